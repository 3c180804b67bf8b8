//go:build !unix

package load

import "time"

// cpuTime is not known here.
func cpuTime() (time.Duration, bool) { return 0, false }

// openFiles is not known here.
func openFiles() (uint64, bool) { return 0, false }
