package load

import "time"

// pacer waits for times of a run, and can be woken before. One goroutine, bound
// to its [Alarm], may wait.
type pacer struct {
	clock clock
	*Alarm
}

// newPacer makes a pacer; close it.
func newPacer(c clock) (*pacer, error) {
	alarm, err := NewAlarm()
	if err != nil {
		return nil, err
	}
	return &pacer{c, alarm}, nil
}

// wait returns at the time until, or when rung for; a negative time is never.
// It wakes a little early and spins the rest.
func (p *pacer) wait(until time.Duration) {
	if until < 0 {
		p.Sleep(-1)
		return
	}
	for left := until - p.clock.now(); left > earlyBy; left = until - p.clock.now() {
		if p.Sleep(left - earlyBy) {
			return
		}
	}
	for p.clock.now() < until { // the short rest
	}
}
