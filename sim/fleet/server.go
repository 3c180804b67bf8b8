package fleet

import (
	"fmt"
	"time"

	"github.com/llmprof/llmprof/sim"
)

// idle is the time of the next event of a replica that waits for requests.
const idle = sim.Asleep

// server is one replica in the course of a run.
type server interface {
	// deliver lets a request reach the engine at a time that is not before any
	// that was delivered.
	deliver(i int32, at int64)
	// next is when something happens, or idle.
	next() int64
	// cancel ends a request that was delivered and has not ended.
	cancel(i int32)
	// event does what happens at the time of next.
	event() error
	// close ends its books of a run from the first send to its end.
	close(first, end int64) ReplicaResult
	// depth is what routers see of it.
	depth() depth
	// stalled is an error where it rests: at the end of a run requests wait there.
	stalled() *StallError
}

// StallError says that a replica stood still until the end of the run: requests
// wait there, and none of them can be computed.
type StallError struct {
	// Replica is the index of the replica, and At since when it stood still.
	Replica int
	At      time.Duration
	// Request is the first one in its queue, -1 without one.
	Request int
	// Err counts the requests.
	Err *sim.StallError

	held int // requests whose blocks it keeps for another replica
}

// Error names replica, time and request.
func (e *StallError) Error() string {
	text := fmt.Sprintf("replica %d at %v", e.Replica, e.At)
	if e.Request >= 0 {
		text += fmt.Sprintf(", request %d first in its queue", e.Request)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap is what is the matter.
func (e *StallError) Unwrap() error { return e.Err }

// cache is a prefix cache as it is now.
type cache interface {
	// Lookup is how many tokens of a prompt it has.
	Lookup(prompt int, prefix []sim.Span) int
}

// lookup is how many tokens of a request's prompt are cached in blocks of some
// tokens: as seen in a view of the past, or now if that is nil.
func (r *run) lookup(i int32, view cacheView, block int, now cache) int {
	prompt, prefix := r.load.requests[i].InputLen, r.load.prefix(i)
	if view == nil {
		return now.Lookup(prompt, prefix)
	}
	return sim.HitTokens(prompt, block, prefix, func(b sim.Block) bool { return view[b] > 0 })
}

func lastIndex(list []int32, i int32) int {
	for k := len(list) - 1; k >= 0; k-- {
		if list[k] == i {
			return k
		}
	}
	return none
}

// newServer makes a replica ready to serve.
func newServer(r *run, index int16, c Replica) (server, error) {
	if c.SGLang != nil {
		return newSGLang(r, index, c)
	}
	return newVLLM(r, index, c)
}
