package memory

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
)

// lingering is a program whose last output takes its reader some time after it
// was stopped.
type lingering struct {
	engine.Process
	begun, stopped chan struct{}
	once           sync.Once
	readers        atomic.Int32
	crowded        atomic.Bool
}

func (l *lingering) Stdout() io.Reader { return l }

func (l *lingering) Wait() error { return nil }

func (l *lingering) Stop(time.Duration) error {
	close(l.stopped)
	return nil
}

func (l *lingering) Read([]byte) (int, error) {
	if l.readers.Add(1) > 1 {
		l.crowded.Store(true)
	}
	defer l.readers.Add(-1)
	l.once.Do(func() { close(l.begun) })
	<-l.stopped
	time.Sleep(50 * time.Millisecond) // enough for another to come, were it let
	return 0, io.EOF
}

// TestOutputClose closes what is being read: the reader ends, and only then is
// the rest read.
func TestOutputClose(t *testing.T) {
	l := &lingering{begun: make(chan struct{}), stopped: make(chan struct{})}
	o := &output{process: l}
	ended := make(chan error, 1)
	go func() {
		_, err := o.Read(make([]byte, 1))
		ended <- err
	}()
	<-l.begun
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the reader ends with %v", err)
	}
	if l.crowded.Load() {
		t.Error("two read at once")
	}
}
