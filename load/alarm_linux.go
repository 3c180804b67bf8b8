package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// earlyBy is how long before its time a pacer wakes.
const earlyBy = 60 * time.Microsecond

// Alarm lets a goroutine sleep with the grain of the system's timers, which is
// finer than that of Go's, and be woken before.
type Alarm struct{ event int }

// NewAlarm makes an alarm; close it.
func NewAlarm() (*Alarm, error) {
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an event for an alarm: %w", err)
	}
	return &Alarm{event}, nil
}

// Bind ties the calling goroutine, which alone may sleep, to its thread and
// asks for timers without slack: the system may otherwise let a sleep last
// 50 µs more. The returned func undoes it.
func (a *Alarm) Bind() func() {
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

// Sleep returns after d, or when rung for, which it reports, and now and then
// too early; a negative d never passes.
func (a *Alarm) Sleep(d time.Duration) (rung bool) {
	var timeout *unix.Timespec
	if d >= 0 {
		spec := unix.NsecToTimespec(int64(d))
		timeout = &spec
	}
	fds := []unix.PollFd{{Fd: int32(a.event), Events: unix.POLLIN}}
	n, err := unix.Ppoll(fds, timeout, nil)
	if n > 0 {
		var count [8]byte
		_, _ = unix.Read(a.event, count[:]) // empties it; nothing to read is fine
	}
	if err != nil && !errors.Is(err, unix.EINTR) {
		time.Sleep(time.Millisecond) // no reason known; do not spin
	}
	return n > 0
}

// Ring ends a sleep, or the next one.
func (a *Alarm) Ring() {
	_, _ = unix.Write(a.event, binary.NativeEndian.AppendUint64(nil, 1)) // full means that it is awake anyway
}

// Close releases the alarm, which nobody may ring or hear any more.
func (a *Alarm) Close() { _ = unix.Close(a.event) }
