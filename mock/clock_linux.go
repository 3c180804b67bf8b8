package mock

import "golang.org/x/sys/unix"

// monotonic is the system's monotonic clock in nanoseconds.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it knows the clock
	return t.Nano()
}
