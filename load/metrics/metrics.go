// Package metrics follows what a server says of itself while it is under load:
// its Prometheus metrics, read from before the run until after it.
//
//	w := metrics.Watch(ctx, metrics.Server{URL: "http://127.0.0.1:8000"}, time.Second)
//	… run the load …
//	w.Stop()
//	window := w.Between(from, to)
//
// Counters are differences of two readings: with Between the last at or before
// the begin of a window and the first at or after its end, with Within the first
// and the last inside it; gauges are means and maxima of the
// readings within. vLLM, SGLang and llama-server are known; what one of them does
// not publish is nil.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/llmprof/llmprof/format/prom"
)

// Server is whose metrics are read.
type Server struct {
	// URL is the server's address; its path is left out.
	URL string
	// Header goes with every request.
	Header http.Header
	// Client sends them; nil means one of its own.
	Client *http.Client
}

// maxBody bounds one text in bytes.
const maxBody = 32 << 20

// patience bounds one reading.
const patience = 5 * time.Second

// scrape reads the metrics once.
func (s Server) scrape(ctx context.Context) (*prom.Scrape, error) {
	address, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", s.URL, err)
	}
	address.Path, address.RawQuery, address.Fragment = "/metrics", "", ""
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", s.URL, err)
	}
	for name, values := range s.Header {
		request.Header[name] = values
	}
	client := s.Client
	if client == nil {
		client = http.DefaultClient
	}
	answer, err := client.Do(request)
	if err != nil {
		if told, ok := errors.AsType[*url.Error](err); ok {
			err = told.Err // the address stands before it
		}
		return nil, fmt.Errorf("metrics of %s: %w", s.URL, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics of %s: GET %s: status %d", s.URL, address.Path, answer.StatusCode)
	}
	scraped, _, err := prom.Read(address.String(), io.LimitReader(answer.Body, maxBody))
	if err != nil {
		return nil, err
	}
	if scraped.Engine() == "" {
		return nil, fmt.Errorf("metrics of %s: of no engine that is known: vLLM, SGLang or llama.cpp", s.URL)
	}
	return scraped, nil
}

// reading is the metrics at a time between asked and at, when they were there.
type reading struct {
	asked, at time.Time
	scrape    *prom.Scrape
}

// Watcher reads a server's metrics in the background.
type Watcher struct {
	server Server
	cancel context.CancelFunc
	ended  chan struct{}

	turn     sync.Mutex // one reading at a time, so that they stand in order
	mu       sync.Mutex
	readings []reading
	failures []failures
}

// failures are readings that did not come, the last of them asked for at a time.
type failures struct {
	asked time.Time
	n     int
}

// maxReadings bounds what is kept; every second reading is dropped when it is
// full, but for the first and the last.
const maxReadings = 4096

// Watch reads the metrics once and goes on about every interval until Stop or
// the end of ctx. A server without metrics is an error.
func Watch(ctx context.Context, s Server, every time.Duration) (*Watcher, error) {
	asked := time.Now()
	first, err := s.scrape(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{server: s, cancel: cancel, ended: make(chan struct{}), readings: []reading{{asked, time.Now(), first}}}
	go w.follow(ctx, every)
	return w, nil
}

func (w *Watcher) follow(ctx context.Context, every time.Duration) {
	defer close(w.ended)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.read(ctx)
		}
	}
}

// read takes one more reading.
func (w *Watcher) read(ctx context.Context) {
	w.turn.Lock()
	defer w.turn.Unlock()
	asked := time.Now()
	scraped, err := w.server.scrape(ctx)
	at := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			w.missed(asked)
		}
		return
	}
	w.readings = append(w.readings, reading{asked, at, scraped})
	if len(w.readings) > maxReadings {
		half := w.readings[:1]
		for i := 2; i < len(w.readings); i += 2 {
			half = append(half, w.readings[i])
		}
		w.readings = half
	}
}

// missed notes a reading that did not come. When the list is full, each two that
// follow on another are put together. The lock is held.
func (w *Watcher) missed(asked time.Time) {
	w.failures = append(w.failures, failures{asked, 1})
	if len(w.failures) <= maxReadings {
		return
	}
	half := w.failures[:0]
	for i := 0; i < len(w.failures); i += 2 {
		both := w.failures[i]
		if i+1 < len(w.failures) {
			both = failures{w.failures[i+1].asked, both.n + w.failures[i+1].n}
		}
		half = append(half, both)
	}
	w.failures = half
}

// missedWithin is how many readings did not come that were asked for from one
// time to another. The lock is held.
func (w *Watcher) missedWithin(from, to time.Time) int {
	n := 0
	for _, f := range w.failures {
		if !f.asked.Before(from) && !f.asked.After(to) {
			n += f.n
		}
	}
	return n
}

// Read takes a reading now, as at the begin of what is measured.
func (w *Watcher) Read(ctx context.Context) { w.read(ctx) }

// Stop takes a last reading and ends the watch.
func (w *Watcher) Stop() {
	w.cancel()
	<-w.ended
	w.read(context.Background())
}
