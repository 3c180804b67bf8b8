// Package peers measures what a command costs, with all the processes that it
// starts: the load generators that are compared with ours are trees of them.
//
// The comparison itself is the program below it ("make peers").
package peers

import (
	"time"

	"github.com/llmprof/llmprof/unit"
)

// Usage is what a command and its descendants took.
type Usage struct {
	// CPU is their processor time, user and system.
	CPU time.Duration
	// Wall is the time from start to end.
	Wall time.Duration
	// Peak is the most memory that they held at one time, shared pages counted
	// once. It is read twice a second; what a single process held in between
	// counts too.
	Peak unit.Bytes
}
