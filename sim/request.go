package sim

import (
	"errors"
	"fmt"
	"math"
)

// Request is one request as the engine gets it.
type Request struct {
	// Prompt is the tokens of the prompt.
	Prompt int
	// Output is the tokens after which the request ends.
	Output int
	// MaxTokens is the limit on the output that the scheduler knows; 0 is
	// Output. A request that ends earlier ends by a stop token, which the
	// scheduler cannot foresee.
	MaxTokens int
	// Priority is the scheduling priority as vLLM counts it: the lower, the
	// more important.
	Priority int
	// Prefix says whose tokens the request begins with; empty for tokens that
	// no other request has.
	Prefix []Span
	// Remote is how many tokens of the prompt, from its first, have their KV in
	// another engine. Where they are more than the prefix cache has, the request
	// gets blocks for them and waits without a seat until [Scheduler.Loaded]:
	// see [Plan.Loads]. What is lost by a preemption is computed here.
	Remote int
	// Hold keeps the request's blocks after its end for another engine that
	// fetches its KV, until [Scheduler.Release].
	Hold bool
}

// Span is a part of a request's tokens that others may have too: those before
// End that belong to no earlier span are the node's tokens at these places. A
// session is one span over all tokens of a turn, the output included.
type Span struct {
	// Node is the shared node. All tokens before a node's must be the same in
	// every request that names it.
	Node int32
	// End is the position after the span's last token, counted from the first
	// token of the request.
	End int
}

// State is where a request stands.
type State uint8

const (
	// Waiting is a request that has not run yet, or was preempted.
	Waiting State = iota
	// Running is a request with a seat.
	Running
	// Finished is a request that has all its tokens.
	Finished
	// Unservable is a request that the engine refuses, since its prompt leaves
	// no room for a token.
	Unservable
	// Cancelled is a request that its client gave up: [Scheduler.Cancel].
	Cancelled
	// Loading is a request that has blocks and no seat: it waits for its KV from
	// another engine, or has it and waits for its turn.
	Loading
)

// progress is what every pass looks at, kept in half a cache line.
type progress struct {
	prompt   int32
	total    int32 // tokens of prompt and output so far
	computed int32 // tokens whose KV exists or is scheduled
	inflight int32 // tokens scheduled and not known yet (async)
	limit    int32 // total at which the scheduler knows of the end
	end      int32 // total at which it ends
	room     int32 // tokens that its blocks can hold
	full     int32 // tokens at which its next block can be registered
}

// requests is what is known of every request, by id.
type requests struct {
	progress []progress
	table    []int32 // its blocks in kv
	priority []int32
	state    []State
	resumed  []bool // was preempted
	flags    []uint8

	spans  []nodeBlocks // of all requests
	spanAt []int32      // by id: where its spans end, and those of id+1 begin
}

// nodeBlocks says that blocks before end are the node's.
type nodeBlocks struct {
	owner Owner
	end   int32
}

// add appends a request and returns its id.
func (r *requests) add(q *Request, c *Config) int32 {
	id := int32(len(r.state))
	most := q.MaxTokens
	if most == 0 {
		most = q.Output
	}
	limit := min(q.Prompt+most, c.MaxModelLen)
	r.progress = append(r.progress, progress{
		prompt: int32(q.Prompt), total: int32(q.Prompt),
		limit: int32(limit), end: int32(min(q.Prompt+q.Output, limit)),
	})
	r.table = append(r.table, 0)
	r.priority = append(r.priority, int32(q.Priority))
	r.state = append(r.state, Waiting)
	r.resumed = append(r.resumed, false)
	r.flags = append(r.flags, 0)
	for _, s := range q.Prefix {
		r.spans = append(r.spans, nodeBlocks{Node(s.Node), int32(s.End / c.BlockSize)})
	}
	r.spanAt = append(r.spanAt, int32(len(r.spans)))
	return id
}

// prefix is the spans of a request.
func (r *requests) prefix(id int32) []nodeBlocks {
	from := int32(0)
	if id > 0 {
		from = r.spanAt[id-1]
	}
	return r.spans[from:r.spanAt[id]]
}

// owner says whose the index-th block of a request is.
func (r *requests) owner(id, index int32) Owner {
	for _, s := range r.prefix(id) {
		if index < s.end {
			return s.owner
		}
	}
	return Owner(id)
}

// shared is how many blocks of a request are of shared nodes, all before those
// of its own.
func (r *requests) shared(id int32) int32 {
	if spans := r.prefix(id); len(spans) > 0 {
		return spans[len(spans)-1].end
	}
	return 0
}

// check refuses what is no request.
func (q *Request) check() error {
	switch {
	case q.Prompt < 1 || q.Prompt > MaxCount:
		return fmt.Errorf("prompt of %d tokens: want 1 to %d", q.Prompt, MaxCount)
	case q.Output < 1 || q.Output > MaxCount:
		return fmt.Errorf("output of %d tokens: want 1 to %d", q.Output, MaxCount)
	case q.MaxTokens < 0 || q.MaxTokens > MaxCount:
		return fmt.Errorf("limit of %d tokens: want 0 to %d", q.MaxTokens, MaxCount)
	case q.Priority < math.MinInt32 || q.Priority > math.MaxInt32:
		return fmt.Errorf("priority %d: want a number of 32 bits", q.Priority)
	case q.Remote < 0 || q.Remote > q.Prompt:
		return fmt.Errorf("%d tokens in another engine: want 0 to the %d of the prompt", q.Remote, q.Prompt)
	}
	last := 0
	for _, s := range q.Prefix {
		if s.Node < 0 || s.Node == math.MaxInt32 {
			return fmt.Errorf("shared node %d: want 0 to %d", s.Node, math.MaxInt32-1)
		}
		if s.End < last || s.End > q.Prompt+q.Output {
			return errors.New("spans of a prefix: want ends that grow and are no later than the request's last token")
		}
		last = s.End
	}
	return nil
}
