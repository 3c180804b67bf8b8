package sglang

import (
	"fmt"

	"github.com/llmprof/llmprof/sim"
)

// Request is what a client asks for. Sizes are in tokens.
type Request struct {
	// Prompt is the length of the prompt, at least 1.
	Prompt int
	// MaxNew is max_new_tokens, at least 1.
	MaxNew int
	// Prefix says whose tokens the request begins with, outputs included; empty
	// for tokens that no other request has.
	Prefix []sim.Span
	// EOSAt is the output that is EOS, counted from 1; 0 is none.
	EOSAt int
	// Priority is larger for the more important; used with [Config.Priority].
	Priority int
	// RoutingKey is used by the policy of that name; 0 is none.
	RoutingKey int
	// Rank breaks ties of the policy hrrn, lowest first, as the engine breaks them
	// by the names of requests; those of one rank keep the order of arrival.
	Rank int
	// IgnoreEOS is ignore_eos, which changes what is reserved.
	IgnoreEOS bool
}

// status is where a request stands.
type status uint8

const (
	waits status = iota
	runs
	finished
	aborted
)

// requests is the state of all requests, one array a field, indexed by id.
type requests struct {
	prompt, maxNew, outs []int32
	eosAt                []int32
	priority, routing    []int32
	rank                 []int32
	ignoreEOS            []bool
	state                []status
	// retracted says that a result in flight does not count.
	retracted []bool
	// flying says that a result of the request is not read.
	flying []bool
	// pieces counts unfinished pieces whose result is not read.
	pieces []int32
	// kv are tokens with a slot; the first held of them belong to the tree, up
	// to node, which the request locks.
	kv, held, node []int32
	// leftover are tokens whose slots come back when a wasted result is read.
	leftover []int32
	// prefix are tokens computed before the batch, extend those of it.
	prefix, extend []int32
	// fill is the length at the last lookup.
	fill []int32
	// hits is what the last lookup found, at most all tokens but one.
	hits []int32
	// entry is the order of entering the queue, newest last.
	entry []int64
	// seen is what was prefilled when the request entered the queue, in tokens.
	seen []int64
	// low says that the request goes to the end of the queue in this pass.
	low []bool
	// gone says that its client has gone: it ends with its next output.
	gone []bool
	// steady says that the request is counted: kv is what it would be without
	// passes, and outs without reads, which count for all of them.
	steady        []bool
	passes, reads int32
	// place is its rank in the order of joining the running batch.
	place []int64
}

// slots are the tokens of a request with a slot.
func (q *requests) slots(r int32) int32 {
	if q.steady[r] {
		return q.kv[r] + q.passes
	}
	return q.kv[r]
}

// outputs are those that were read.
func (q *requests) outputs(r int32) int32 {
	if q.steady[r] {
		return q.outs[r] + q.reads
	}
	return q.outs[r]
}

// length is prompt and outputs of a request, in tokens.
func (q *requests) length(r int32) int32 { return q.prompt[r] + q.outputs(r) }

// add appends a request.
func (q *requests) add(r Request) int32 {
	id := int32(len(q.prompt))
	q.prompt = append(q.prompt, int32(r.Prompt))
	q.maxNew = append(q.maxNew, int32(r.MaxNew))
	q.eosAt = append(q.eosAt, int32(r.EOSAt))
	q.priority = append(q.priority, int32(r.Priority))
	q.routing = append(q.routing, int32(r.RoutingKey))
	q.rank = append(q.rank, int32(r.Rank))
	q.ignoreEOS = append(q.ignoreEOS, r.IgnoreEOS)
	q.outs = append(q.outs, 0)
	q.state = append(q.state, waits)
	q.retracted = append(q.retracted, false)
	q.flying = append(q.flying, false)
	q.pieces = append(q.pieces, 0)
	q.kv = append(q.kv, 0)
	q.held = append(q.held, 0)
	q.node = append(q.node, root)
	q.leftover = append(q.leftover, 0)
	q.prefix = append(q.prefix, 0)
	q.extend = append(q.extend, 0)
	q.fill = append(q.fill, 0)
	q.hits = append(q.hits, 0)
	q.entry = append(q.entry, 0)
	q.seen = append(q.seen, 0)
	q.low = append(q.low, false)
	q.gone = append(q.gone, false)
	q.steady = append(q.steady, false)
	q.place = append(q.place, 0)
	return id
}

// Add puts a request at the end of the queue; the next [Scheduler.Step] sees
// it. Requests are numbered from 0 in the order of Add. With [Config.Context]
// max_new is cut to what the context and the pool hold, and a prompt that they
// cannot hold is refused with a [*RefusedError]; a refused request has no
// number.
func (s *Scheduler) Add(r Request) (int32, error) {
	for _, f := range []struct {
		name               string
		value, least, most int
	}{
		{"prompt", r.Prompt, 1, MaxCount},
		{"max_new", r.MaxNew, 1, MaxCount},
		{"eos_at", r.EOSAt, 0, MaxCount},
		{"priority", r.Priority, -MaxCount, MaxCount},
		{"routing key", r.RoutingKey, 0, MaxCount},
		{"rank", r.Rank, 0, MaxCount},
	} {
		if f.value < f.least || f.value > f.most {
			return 0, fmt.Errorf("add request: %s %d: want %d to %d", f.name, f.value, f.least, f.most)
		}
	}
	r.IgnoreEOS = r.IgnoreEOS || s.config.IgnoreEOS
	most, asked := r.Prompt+r.MaxNew, r.MaxNew
	if c := s.config.Context; c > 0 {
		longest := min(c, s.size) - 1
		if r.Prompt >= longest-inputMargin {
			s.limits.cutShort(s)
			return 0, fmt.Errorf("add request: %w", &RefusedError{Prompt: r.Prompt, Longest: longest - inputMargin - 1, Context: c, Pool: s.size})
		}
		r.MaxNew = min(r.MaxNew, longest-r.Prompt-1)
	}
	if err := s.tree.know(r.Prefix, most); err != nil {
		return 0, fmt.Errorf("add request: %w", err)
	}
	id := s.q.add(r)
	s.limits.arrived(s, id, &r, asked)
	s.open++
	s.enqueue(id)
	return id, nil
}

// RefusedError is a prompt that the engine refuses at arrival. Sizes are in
// tokens.
type RefusedError struct {
	// Prompt is its length, Longest what is taken with a context and a pool of
	// these sizes.
	Prompt, Longest, Context, Pool int
}

// Unwrap is [sim.ErrUnservable].
func (e *RefusedError) Unwrap() error { return sim.ErrUnservable }

// Error names the sizes.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("prompt of %d tokens: want less than %d in a context of %d and a pool of %d", e.Prompt, e.Longest+1, e.Context, e.Pool)
}

// inputMargin is by how much the longest input is shorter than the longest
// request, in tokens.
const inputMargin = 5

// enqueue puts a request at the end of the queue.
func (s *Scheduler) enqueue(r int32) {
	s.entries++
	s.q.entry[r] = s.entries
	s.q.seen[r] = s.prefilled
	s.q.state[r] = waits
	if n := len(s.waiting); n == cap(s.waiting) {
		if cap(s.line) <= 2*n { // else fewer are copied than have left
			s.line = make([]int32, 0, 2*n+16)
		}
		s.waiting = append(s.line, s.waiting...)
	}
	s.waiting = append(s.waiting, r)
	s.queued += int64(s.q.prompt[r])
}
