package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmprof/llmprof/load/metrics"
)

// server publishes vLLM's metrics; requests counts what it has finished.
func server(t *testing.T, requests *atomic.Int64, broken *atomic.Bool) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" || broken.Load() {
			http.NotFound(w, r)
			return
		}
		n := requests.Load()
		fmt.Fprintf(w, `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} %d
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} %g
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0"} %d
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0"} %d
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0"} %d
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="length"} %d
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} %d
vllm:time_to_first_token_seconds_sum{engine="0"} %g
vllm:time_to_first_token_seconds_count{engine="0"} %d
`, n, min(float64(n)/100, 1), 100*n, 100*n, 25*n, n, n, 0.05*float64(n), n)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestWindow(t *testing.T) {
	var requests atomic.Int64
	var broken atomic.Bool
	requests.Store(7) // of before
	s := server(t, &requests, &broken)
	w, err := metrics.Watch(t.Context(), metrics.Server{URL: s.URL + "/v1"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	requests.Store(9) // the warm-up
	w.Read(t.Context())
	begin := time.Now()
	requests.Store(19)
	w.Read(t.Context())
	requests.Store(29)
	end := time.Now()
	w.Stop()
	got, ok := w.Between(begin, end)
	if !ok {
		t.Fatal("no window")
	}
	if *got.Requests != 20 || *got.PromptTokens != 2000 || *got.PrefixHits != 500 || *got.HitRate != 0.25 {
		t.Errorf("%g requests, %g prompt tokens, %g hits, rate %g: want 20, 2000, 500, 0.25", *got.Requests, *got.PromptTokens, *got.PrefixHits, *got.HitRate)
	}
	if *got.TTFT < 49.999 || *got.TTFT > 50.001 || got.Running.Max != 29 || got.KVUsage.Max != 0.29 || got.Preemptions != nil || got.Engine != "vllm" {
		t.Errorf("%+v", got)
	}
	if got, ok := w.Within(begin.Add(-time.Hour), time.Now()); !ok || *got.Requests != 22 || got.Readings != 4 {
		t.Errorf("within all: %+v, %v: want 22 requests of 4 readings", got, ok)
	}
	if got, ok := w.Within(begin, end); ok { // one reading lies between
		t.Errorf("a window of one reading: %+v", got)
	}
	if now := w.Latest(begin); *now.Running != 29 || now.Waiting != nil || *now.KVUsage != 0.29 || *now.HitRate != 0.25 {
		t.Errorf("the last reading: %+v", now)
	}
	if now := w.Latest(time.Now().Add(time.Hour)); *now.Running != 29 || now.HitRate != nil {
		t.Errorf("nothing was looked up since the last reading: %+v", now)
	}
	if idle, known := w.Idle(); idle || !known {
		t.Errorf("29 requests run: idle %v, known %v", idle, known)
	}
}

func TestNoMetrics(t *testing.T) {
	var requests atomic.Int64
	var broken atomic.Bool
	broken.Store(true)
	s := server(t, &requests, &broken)
	if _, err := metrics.Watch(t.Context(), metrics.Server{URL: s.URL}, time.Second); err == nil || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("error %v", err)
	}
	broken.Store(false)
	w, err := metrics.Watch(t.Context(), metrics.Server{URL: s.URL}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := w.Between(time.Now().Add(-time.Second), time.Now()); ok {
		t.Error("one reading makes no window")
	}
	broken.Store(true)
	w.Read(t.Context())
	broken.Store(false)
	w.Stop()
	if got, ok := w.Between(time.Now().Add(-time.Hour), time.Now()); !ok || got.Failed != 1 {
		t.Errorf("%+v, %v: want one reading that did not come", got, ok)
	}
}

// TestFailedReadings: a window counts the readings that did not come in it, and
// not those of the whole watch.
func TestFailedReadings(t *testing.T) {
	var requests atomic.Int64
	var broken atomic.Bool
	s := server(t, &requests, &broken)
	w, err := metrics.Watch(t.Context(), metrics.Server{URL: s.URL}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	read := func(times int, fails bool) {
		broken.Store(fails)
		for range times {
			w.Read(t.Context())
		}
	}
	read(3, true) // the warm-up
	read(1, false)
	begin := time.Now()
	read(1, false)
	read(2, true)
	read(1, false)
	middle := time.Now()
	read(4, true)
	end := time.Now()
	broken.Store(false)
	w.Stop()
	for _, c := range []struct {
		why      string
		window   func(from, to time.Time) (metrics.Window, bool)
		from, to time.Time
		want     int
	}{
		{"from the reading before the begin to the one after the middle, which comes after the last failures", w.Between, begin, middle, 2 + 4},
		{"from the reading before the begin to the last one", w.Between, begin, end, 2 + 4},
		{"up to the middle", w.Within, begin, middle, 2},
		{"up to the end, where nothing was read any more", w.Within, begin, end, 2 + 4},
		{"the whole watch", w.Between, begin.Add(-time.Hour), time.Now(), 3 + 2 + 4},
	} {
		if got, ok := c.window(c.from, c.to); !ok || got.Failed != c.want {
			t.Errorf("%s: %d failed readings, %v: want %d", c.why, got.Failed, ok, c.want)
		}
	}
	w.Forget()
	w.Read(t.Context())
	if got, ok := w.Between(begin, time.Now()); !ok || got.Failed != 0 {
		t.Errorf("after all was forgotten: %d failed readings, %v", got.Failed, ok)
	}
}

// TestSlowReading has a reading that was on its way when the run ended: it may
// lack what ended meanwhile, and the next one counts.
func TestSlowReading(t *testing.T) {
	var requests atomic.Int64
	var broken atomic.Bool
	arrived, answer := make(chan struct{}), make(chan struct{})
	s := server(t, &requests, &broken)
	plain, slow := s.Config.Handler, false
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plain.ServeHTTP(w, r) // what it says is settled here
		if slow {
			slow = false
			close(arrived)
			<-answer
		}
	})
	w, err := metrics.Watch(t.Context(), metrics.Server{URL: s.URL}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	slow = true
	begin := time.Now()
	read := make(chan struct{})
	go func() {
		defer close(read)
		w.Read(t.Context())
	}()
	<-arrived
	requests.Store(20)
	end := time.Now()
	close(answer)
	<-read
	w.Stop()
	if got, ok := w.Between(begin, end); !ok || *got.Requests != 20 {
		t.Errorf("%+v, %v: want 20 requests", got, ok)
	}
}
