package mock

import "time"

// clock tells the monotonic time of the machine.
type clock struct {
	base   time.Time
	offset int64 // of base, in ns
}

func newClock() clock {
	base := time.Now()
	return clock{base, monotonic()}
}

// now is in nanoseconds.
func (c clock) now() int64 { return c.offset + int64(time.Since(c.base)) }

// wall is the calendar time of a moment.
func (c clock) wall(ns int64) time.Time { return c.base.Add(time.Duration(ns - c.offset)) }
