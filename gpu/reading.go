package gpu

import (
	"context"
	"time"
)

// Reading is the state of one device at one time. Fields that the tool did not
// give are nil.
type Reading struct {
	// Index is the tool's number of the device, -1 where it gives none; UUID
	// and Name are empty then.
	Index int
	UUID  string
	Name  string
	// Parent is the UUID of the card that a MIG instance is a part of, empty
	// for a whole device. An instance has its card's Index.
	Parent string
	// Time is the tool's own time stamp as it wrote it, in local time without
	// a zone; empty where there is none.
	Time string
	// MemoryTotal and MemoryUsed are in bytes.
	MemoryTotal, MemoryUsed *int64
	// ProcessMemory is what the followed processes hold of the device, in
	// bytes; Processes is their number. ProcessPeak is the sum, in bytes, of
	// the most that each of them has held so far, by the kernel's own account:
	// never less than what they held together.
	ProcessMemory, ProcessPeak *int64
	Processes                  int
	// Utilization is the share of time in which a kernel ran,
	// MemoryUtilization that in which memory was read or written, 0..1.
	Utilization, MemoryUtilization *float64
	// Power and PowerLimit are in watts.
	Power, PowerLimit *float64
	// Clock and MemoryClock are in hertz, 1/s.
	Clock, MemoryClock *float64
	// Temperature is in degrees Celsius.
	Temperature *float64
}

// Snapshot is the state of the devices at one time. A source that reads some
// of them less often leaves them out in between.
type Snapshot struct {
	Time     time.Time
	Readings []Reading
}

// Source reads devices again and again.
type Source interface {
	// Name is the tool that is asked: "nvidia-smi", "proc", …
	Name() string
	// Follow reads all devices about every interval and hands each snapshot
	// on, in the order of time and one at a time. It returns nil when ctx has
	// ended, or when a recording has, and otherwise why reading failed for
	// good.
	Follow(ctx context.Context, every time.Duration, take func(Snapshot)) error
}

// defaultEvery is the interval where none is given.
const defaultEvery = 100 * time.Millisecond

// interval is every, or the default.
func interval(every time.Duration) time.Duration {
	if every <= 0 {
		return defaultEvery
	}
	return every
}
