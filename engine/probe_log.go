package engine

import (
	"io"
	"strings"
	"sync"
)

// probeLog takes what a probe prints beside its events, from several
// goroutines.
type probeLog struct {
	redactor *Redactor

	mu   sync.Mutex
	w    io.Writer
	tail string
}

// Write passes on what the place has cleaned already.
func (l *probeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w == nil {
		return len(p), nil
	}
	return l.w.Write(p)
}

// line logs one line and remembers it as the last.
func (l *probeLog) line(text string) {
	text = Shorten(l.redactor.Redact(text), 2000)
	if strings.TrimSpace(text) == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = Shorten(text, 200)
	if l.w != nil {
		_, _ = io.WriteString(l.w, text+"\n") // a log that fails must not fail the measurement
	}
}

func (l *probeLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail
}
