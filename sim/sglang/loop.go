package sglang

import (
	"fmt"

	"github.com/llmprof/llmprof/sim"
)

// Loop is a scheduler for requests as a load has them, with blocks for pages.
type Loop struct {
	scheduler *Scheduler
	turn      sim.Iteration
}

// NewLoop makes a loop without requests.
func NewLoop(c Config) (*Loop, error) {
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	return &Loop{scheduler: s}, nil
}

// Add puts a request into the queue; see [Scheduler.Add]. Its priority is the
// lower, the more important. One that the engine refuses is an error that wraps
// [sim.ErrUnservable].
func (l *Loop) Add(q sim.Request) (id int32, err error) {
	r := Request{Prompt: q.Prompt, MaxNew: q.Output, Prefix: q.Prefix}
	if q.MaxTokens > 0 {
		r.MaxNew, r.EOSAt = q.MaxTokens, q.Output
	}
	if l.scheduler.config.Priority {
		r.Priority = -q.Priority
	}
	if !l.scheduler.Busy() {
		l.scheduler.interval = 0 // the engine's loop went on while nothing was there
	}
	id, err = l.scheduler.Add(r)
	if err != nil {
		return 0, fmt.Errorf("sglang: %w", err)
	}
	return id, nil
}

// Cancel ends a request whose client has gone; see [Scheduler.Cancel].
func (l *Loop) Cancel(id int32) bool { return l.scheduler.Cancel(id) }

// Aggregate lets running requests be counted; see [Config.Aggregate]. It is
// called before the first request comes.
func (l *Loop) Aggregate() { l.scheduler.config.Aggregate = true }

// Steady reports whether a request is one that is counted.
func (l *Loop) Steady(id int32) bool { return l.scheduler.q.steady[id] }

// Outputs is the number of tokens that a request has and that were read.
func (l *Loop) Outputs(id int32) int { return l.scheduler.Outputs(id) }

// Unbound are the settings that made no difference so far; see
// [Scheduler.Unbound].
func (l *Loop) Unbound() []sim.Knob { return l.scheduler.Unbound() }

// Lookup is how many tokens of a prompt the cache has now; see
// [Scheduler.Lookup].
func (l *Loop) Lookup(prompt int, prefix []sim.Span) int { return l.scheduler.Lookup(prompt, prefix) }

// Watch and TakeChanges tell what changes in the cache; see [Scheduler.Watch].
func (l *Loop) Watch() { l.scheduler.Watch() }

// TakeChanges are the changes since the last call; see [Scheduler.TakeChanges].
func (l *Loop) TakeChanges() []sim.CacheChange { return l.scheduler.TakeChanges() }

// Plan is the next iteration without what it will read. It is valid until the
// next call of Plan or Cancel. The error is that of an engine that stopped, and
// stays.
func (l *Loop) Plan() (*sim.Iteration, error) {
	b, err := l.scheduler.Plan()
	if err != nil {
		return nil, err
	}
	page := l.scheduler.config.Page
	l.turn = sim.Iteration{
		Requests: b.Requests, Tokens: b.Tokens, Cached: b.Cached, Context: b.Context, Piece: b.Piece,
		Preempted: b.Retracted, Aborted: b.Aborted, Queried: b.Queried, Hit: b.Hit,
		Waiting: len(b.Waiting), Running: b.Open - len(b.Waiting),
		FreeBlocks: (b.Free + b.Evictable) / page, Evicted: b.Evicted / page,
		Steady: b.Steady, Settled: b.Settled,
	}
	return &l.turn, nil
}

// Read reads the result that is due after a Plan, into what that returned.
func (l *Loop) Read() {
	l.scheduler.Read()
	b := &l.scheduler.batch
	l.turn.Outputs, l.turn.Finished, l.turn.SteadyOutputs, l.turn.Joined = b.Outputs, b.Finished, b.SteadyOutputs, b.Joined
}

// State is where the loop stands.
func (l *Loop) State() sim.LoopState {
	s := l.scheduler
	first := none
	if len(s.waiting) > 0 {
		first = s.waiting[0]
	}
	return sim.LoopState{
		Waiting: s.Waiting(), Running: s.Running(), UsedBlocks: s.Used() / s.config.Page, UsableBlocks: s.size / s.config.Page,
		WaitingTokens: s.queued, BlockTokens: s.config.Page, First: first,
		Busy: s.Busy(), Patience: s.Patience(), Overlap: s.config.Overlap,
	}
}
