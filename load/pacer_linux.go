package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// earlyBy is how long before its time the pacer wakes; it spins the rest.
const earlyBy = 60 * time.Microsecond

// pacer waits for times on a thread of its own, and can be woken before.
type pacer struct {
	clock clock
	event int // eventfd that wakes it
}

// newPacer makes a pacer; close it.
func newPacer(c clock) (*pacer, error) {
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an event for pacing: %w", err)
	}
	return &pacer{c, event}, nil
}

// bind ties the calling goroutine, which alone may wait, to its thread and
// asks for timers without slack. The returned func undoes it.
func (p *pacer) bind() func() {
	runtime.LockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	}
	return func() {
		if err == nil {
			err = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0)
		}
		runtime.UnlockOSThread()
	}
}

// wait returns at the time until, or when woken; a negative time is never.
func (p *pacer) wait(until time.Duration) {
	fds := []unix.PollFd{{Fd: int32(p.event), Events: unix.POLLIN}}
	for {
		var timeout *unix.Timespec
		if until >= 0 {
			left := until - earlyBy - p.clock.now()
			if left <= 0 {
				break
			}
			spec := unix.NsecToTimespec(int64(left))
			timeout = &spec
		}
		n, err := unix.Ppoll(fds, timeout, nil)
		if n > 0 {
			var count [8]byte
			_, _ = unix.Read(p.event, count[:]) // empties it; nothing to read is fine
			return
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			time.Sleep(time.Millisecond) // no reason known; do not spin
		}
	}
	for p.clock.now() < until { // the short rest
	}
}

// wake ends a wait, or the next one.
func (p *pacer) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(p.event, one[:]) // full means that it is awake anyway
}

func (p *pacer) close() { _ = unix.Close(p.event) }
