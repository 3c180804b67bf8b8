//go:build !linux

package load

import "time"

// earlyBy is 0 where no finer timer is known: nothing is left to spin.
const earlyBy = 0

// Alarm lets a goroutine sleep and be woken before.
type Alarm struct{ event chan struct{} }

// NewAlarm makes an alarm; close it.
func NewAlarm() (*Alarm, error) { return &Alarm{make(chan struct{}, 1)}, nil }

// Bind has nothing to do where no finer timer is known.
func (a *Alarm) Bind() func() { return func() {} }

// Sleep returns after d, or when rung for, which it reports; a negative d never
// passes.
func (a *Alarm) Sleep(d time.Duration) (rung bool) {
	var passed <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-passed:
		return false
	case <-a.event:
		return true
	}
}

// Ring ends a sleep, or the next one.
func (a *Alarm) Ring() {
	select {
	case a.event <- struct{}{}:
	default:
	}
}

// Close releases the alarm, which nobody may ring or hear any more.
func (a *Alarm) Close() {}
