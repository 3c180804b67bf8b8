//go:build !linux

package load

import "time"

// pacer waits for times, and can be woken before.
type pacer struct {
	clock clock
	event chan struct{}
}

// newPacer makes a pacer; close it.
func newPacer(c clock) (*pacer, error) { return &pacer{c, make(chan struct{}, 1)}, nil }

// bind has nothing to do where no finer timer is known.
func (p *pacer) bind() func() { return func() {} }

// wait returns at the time until, or when woken; a negative time is never.
func (p *pacer) wait(until time.Duration) {
	if until < 0 {
		<-p.event
		return
	}
	timer := time.NewTimer(until - p.clock.now())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.event:
	}
}

// wake ends a wait, or the next one.
func (p *pacer) wake() {
	select {
	case p.event <- struct{}{}:
	default:
	}
}

func (p *pacer) close() {}
