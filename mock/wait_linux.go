package mock

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is the system's monotonic clock in nanoseconds.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it knows the clock
	return t.Nano()
}

// alarm lets a thread sleep to the microsecond and be woken before.
type alarm struct{ fd int }

func newAlarm() (*alarm, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an event descriptor: %w", err)
	}
	return &alarm{fd}, nil
}

// settle prepares the thread that sleeps: the system may otherwise let a sleep
// last 50 µs more, to wake several threads at once.
func (a *alarm) settle() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it the waits are only less exact
}

// sleep waits for d or for ring.
func (a *alarm) sleep(d time.Duration) {
	timeout := unix.NsecToTimespec(int64(d))
	fds := []unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLIN}}
	if n, err := unix.Ppoll(fds, &timeout, nil); err == nil && n > 0 {
		var count [8]byte
		_, _ = unix.Read(a.fd, count[:]) // whoever rang is not waiting
	}
}

// ring ends a sleep, or the next one.
func (a *alarm) ring() {
	_, _ = unix.Write(a.fd, binary.NativeEndian.AppendUint64(nil, 1)) // a full counter rings as well
}

func (a *alarm) close() { _ = unix.Close(a.fd) } // nothing is written to it
