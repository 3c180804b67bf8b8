//go:build unix

package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the CPU time of this process, user and system.
func cpuTime() (time.Duration, bool) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}

// openFiles is how many files this process may open; the Go runtime has raised
// the soft limit as far as it may.
func openFiles() (uint64, bool) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0, false
	}
	return uint64(limit.Cur), true //nolint:unconvert // signed on some systems
}
