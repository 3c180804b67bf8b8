package engine

import (
	"io"
	"sync"
)

// Concurrent returns a writer to w that several goroutines may use, as a
// driver's [Setup.Log] is written to by the driver and by the place. Nil stays
// nil.
func Concurrent(w io.Writer) io.Writer {
	if w == nil {
		return nil
	}
	return &concurrent{w: w}
}

type concurrent struct {
	mu sync.Mutex
	w  io.Writer
}

func (c *concurrent) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.Write(p)
}
