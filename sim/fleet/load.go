package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// Load is a schedule made ready to be simulated. It is not changed by a run, so
// that many runs can share it.
type Load struct {
	schedule *workload.Schedule
	requests []workload.Request

	arrival  []int64 // ns from the start; none where it depends on another request
	spans    []sim.Span
	spanAt   []int32 // by request: where its spans end; nil without any span
	child    []int32 // by request: the first that waits for it, -1 for none; nil in an open load
	sibling  []int32 // by request: the next that waits for the same one
	slots    []int32 // requests that wait for any free slot, in their order
	timeouts bool    // some clients give up
}

// none stands for a time that is not known, or a request that there is not.
const none = -1

// NewLoad makes a schedule ready. The schedule must not be changed afterwards.
func NewLoad(s *workload.Schedule) (*Load, error) { return NewLoadContext(context.Background(), s) }

// lookEvery is after how many requests a context is looked at.
const lookEvery = 4096

// NewLoadContext is [NewLoad] that stops with the context's error where that
// ends: prompts of millions of requests are compared for seconds.
func NewLoadContext(ctx context.Context, s *workload.Schedule) (*Load, error) {
	if s == nil {
		return nil, errors.New("simulated load: want a schedule")
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("simulated load: %w", err)
	}
	l := &Load{schedule: s, requests: s.Requests, arrival: make([]int64, len(s.Requests))}
	shared, open := false, true
	for i := range s.Requests {
		q := &s.Requests[i]
		l.arrival[i] = nanoseconds(q.At)
		shared = shared || len(q.Prefix) > 0
		open = open && q.After == nil
		l.timeouts = l.timeouts || q.Timeout > 0
	}
	if !open {
		l.chain()
	}
	if shared {
		if err := l.share(ctx); err != nil {
			return nil, fmt.Errorf("simulated load: %w", err)
		}
	}
	return l, nil
}

// Requests is the number of requests.
func (l *Load) Requests() int { return len(l.requests) }

// Schedule is what the load was made of.
func (l *Load) Schedule() *workload.Schedule { return l.schedule }

// chain links the requests to those that they wait for.
func (l *Load) chain() {
	l.child, l.sibling = make([]int32, len(l.requests)), make([]int32, len(l.requests))
	for i := range l.child {
		l.child[i], l.sibling[i] = none, none
	}
	for i := len(l.requests) - 1; i >= 0; i-- { // so that siblings stand in their order
		after := l.requests[i].After
		switch {
		case after == nil:
		case after.Request == workload.AnyRequest:
			l.arrival[i] = none
			l.slots = append(l.slots, int32(i))
		default:
			l.arrival[i] = none
			l.sibling[i], l.child[after.Request] = l.child[after.Request], int32(i)
		}
	}
	for i, j := 0, len(l.slots)-1; i < j; i, j = i+1, j-1 {
		l.slots[i], l.slots[j] = l.slots[j], l.slots[i]
	}
}

// place is a node of the tree of beginnings: the tokens of a seed after the
// first end tokens of another node.
type place struct {
	before int32
	end    int32
	seed   uint64
}

// share numbers the spans of all requests such that equal beginnings have equal
// nodes. A prompt whose own tokens stand in another request's prefix, as in a
// session, is shared to its end, and so is an answer that a later turn repeats.
func (l *Load) share(ctx context.Context) error {
	repeated := map[uint64]bool{}
	for _, q := range l.until(ctx) {
		for _, s := range q.Prefix {
			repeated[s.Seed] = true
		}
	}
	nodes := map[place]int32{}
	node := func(before, end int32, seed uint64) int32 {
		at := place{before, end, seed}
		n, ok := nodes[at]
		if !ok {
			n = int32(len(nodes))
			nodes[at] = n
		}
		return n
	}
	l.spanAt = make([]int32, len(l.requests))
	answers := l.answers(ctx)
	for i, q := range l.until(ctx) {
		last, end := int32(none), 0
		add := func(seed uint64, tokens int) {
			last = node(last, int32(end), seed)
			end += tokens
			l.spans = append(l.spans, sim.Span{Node: last, End: end})
		}
		for _, s := range q.Prefix {
			add(s.Seed, s.Len)
		}
		if own := q.InputLen - end; own > 0 && repeated[q.Seed] {
			add(q.Seed, own)
		}
		if seed, ok := answers[int32(i)]; ok && end == q.InputLen {
			add(seed, q.OutputLen)
		}
		l.spanAt[i] = int32(len(l.spans))
	}
	return ctx.Err()
}

// until ranges over the requests as long as the context goes on.
func (l *Load) until(ctx context.Context) iter.Seq2[int, *workload.Request] {
	return func(yield func(int, *workload.Request) bool) {
		for i := range l.requests {
			if i%lookEvery == 0 && ctx.Err() != nil || !yield(i, &l.requests[i]) {
				return
			}
		}
	}
}

// answers are the seeds of the answers that later turns repeat, by request.
func (l *Load) answers(ctx context.Context) map[int32]uint64 {
	answers, turns := map[int32]uint64{}, map[string]int32{}
	for i, q := range l.until(ctx) {
		last, later := turns[q.Session]
		if q.Session != "" {
			turns[q.Session] = int32(i)
		}
		if q.After != nil && q.After.Request >= 0 {
			last, later = int32(q.After.Request), true
		}
		if !later {
			continue
		}
		before := &l.requests[last]
		k := len(before.Prefix)
		if before.PrefixLen() < before.InputLen {
			k++ // its own tokens
		}
		if k < len(q.Prefix) && q.Prefix[k].Answer {
			answers[last] = q.Prefix[k].Seed
		}
	}
	return answers
}

// prefix is the spans of a request.
func (l *Load) prefix(i int32) []sim.Span {
	if l.spanAt == nil {
		return nil
	}
	from := int32(0)
	if i > 0 {
		from = l.spanAt[i-1]
	}
	return l.spans[from:l.spanAt[i]]
}

func nanoseconds(t unit.Seconds) int64 { return int64(math.Round(float64(t) * 1e9)) }
