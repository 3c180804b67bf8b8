//go:build !linux

package mock

import "time"

// monotonic is 0 where the system's clock is not to be had: times count from
// the start of the server.
func monotonic() int64 { return 0 }

// alarm lets a goroutine sleep and be woken before.
type alarm struct{ bell chan struct{} }

func newAlarm() (*alarm, error) { return &alarm{make(chan struct{}, 1)}, nil }

func (a *alarm) settle() {}

// sleep waits for d or for ring.
func (a *alarm) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.bell:
	}
}

// ring ends a sleep, or the next one.
func (a *alarm) ring() {
	select {
	case a.bell <- struct{}{}:
	default:
	}
}

func (a *alarm) close() {}
