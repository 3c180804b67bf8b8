package sim

import (
	"fmt"
	"time"

	"github.com/llmprof/llmprof/forward"
)

// Engine is a replica of vLLM in its own time: a [Scheduler] whose steps last as
// long as a timer says. Requests are delivered as they come, also while it runs;
// it says when its next event is, and each event says what happened. It looks at
// no clock, so that the same engine serves a simulation, which jumps from event
// to event, and a server that waits for them. All times are nanoseconds from one
// start.
type Engine struct {
	scheduler Scheduler
	turns     Turns
	timer     StepTimer
	enter     func(i int32, now int64) error
	pass      forward.Pass
	event     Event
	cold      bool // the first step after a sleep is planned
	stalls    int  // passes in a row that computed nothing
}

// EngineConfig is what an engine is made of.
type EngineConfig struct {
	Scheduler Config
	// Timer times the steps.
	Timer StepTimer
	// Between, Before and Later are those of [Turns].
	Between, Before time.Duration
	Later           func(at int64) int64
	// Enter is called for every delivered request when a pass is made that sees
	// it, in the order of delivery: it adds the request to the scheduler, unless
	// its client has gone. An error ends the pass.
	Enter func(i int32, now int64) error
}

// Event is what one call of [Engine.Advance] did.
type Event struct {
	Kind EventKind
	// Further says that the next event is at the same time and belongs to this
	// one: a simulation lets nobody come between.
	Further bool
	// Runs says of a pass that a step begins now and ends at End: the planned one,
	// with async scheduling the one that was planned before.
	Runs bool
	At   int64 // ns
	End  int64 // ns
	// The planned step computes Pass, begins at Begin and takes Took, without the
	// host's time; a step of no tokens takes none. Host is the host's time between
	// steps until then, since the start.
	Begin, Took, Host int64 // ns

	// Outcome are the last results, Plan is what the last pass decided and Pass
	// what its step computes.
	Outcome *Outcome
	Plan    *Plan
	Pass    *forward.Pass
}

// EventKind is what happened.
type EventKind uint8

const (
	// Slept is an engine that has nothing to do until a request comes.
	Slept EventKind = iota
	// Read is the results of a step, taken in.
	Read
	// Planned is a pass that was made.
	Planned
)

// NewEngine makes an engine without requests.
func NewEngine(c EngineConfig) (*Engine, error) {
	e := new(Engine)
	if err := e.Reset(c); err != nil {
		return nil, err
	}
	return e, nil
}

// Reset makes the engine a new one, as [NewEngine] does, that uses the memory of
// the old one. After an error it is what it was.
func (e *Engine) Reset(c EngineConfig) error {
	if err := e.scheduler.Reset(c.Scheduler); err != nil {
		return err
	}
	e.turns.Reset(Turns{Overlap: c.Scheduler.Async, Between: int64(c.Between), Before: int64(c.Before), Later: c.Later})
	e.timer, e.enter, e.cold, e.stalls = c.Timer, c.Enter, false, 0
	e.event = Event{Outcome: &e.scheduler.outcome, Plan: &e.scheduler.plan, Pass: &e.pass}
	return nil
}

// Scheduler is the engine's scheduler: who adds requests, cancels them or looks
// at its state does so there, between two events or in Enter.
func (e *Engine) Scheduler() *Scheduler { return &e.scheduler }

// Turns are the engine's turns: who delivers requests does so there.
func (e *Engine) Turns() *Turns { return &e.turns }

// Advance lets happen what is next, and says what that was: the event is valid
// until the next one. After an error the engine cannot go on, but for a
// [*StallError]: after [Turns.Rest] a request that comes, or one that was
// cancelled and [Turns.Wake], may let it.
func (e *Engine) Advance() (*Event, error) {
	t, s, out := &e.turns, &e.scheduler, &e.event
	out.At, out.Runs = t.at, false
	if due, later := t.Results(); due {
		out.Kind, out.Further = Read, !later
		s.Apply()
		return out, nil
	}
	out.Kind, out.Further = Planned, false
	switch {
	case e.cold: // the step planned first begins, and the one after it is planned
		e.cold = false
		s.Apply() // nothing ran before
	case !s.Idle():
	case t.Nobody():
		out.Kind = Slept
		t.Sleep()
		return out, nil
	case t.Overlap:
		out.Begin, out.Host = out.At, t.host
		works, err := e.plan(out)
		t.Starts(out.Took, works)
		e.cold, out.Further = true, true
		return out, err
	}
	out.Begin = t.Turn()
	out.Host, out.Runs = t.host, true
	works, err := e.plan(out)
	t.Plans(out.Took, works)
	out.End = t.at
	return out, err
}

// plan makes a pass and times it; works says that it computes something.
func (e *Engine) plan(out *Event) (works bool, err error) {
	out.Took = 0
	for {
		i, ok := e.turns.Take()
		if !ok {
			break
		}
		if err := e.enter(i, out.At); err != nil {
			return false, err
		}
	}
	p := e.scheduler.Schedule()
	e.compute(p)
	if p.Tokens == 0 {
		return false, e.stalled(p)
	}
	e.stalls = 0
	took, err := e.timer.StepTime(e.pass)
	if err == nil && took < 0 {
		err = fmt.Errorf("%v: want 0 or more", took)
	}
	if err != nil {
		return false, fmt.Errorf("time of a step of %d tokens: %w", p.Tokens, err)
	}
	out.Took = int64(took)
	return true, nil
}

// stallsMost is how many passes in a row may compute nothing while requests wait
// for nothing from outside.
const stallsMost = 3

// StallError says that requests wait for ever: none of them can be computed, and
// nothing is under way that would change this.
type StallError struct {
	// Waiting and Running are requests.
	Waiting, Running int
}

// Error counts the requests.
func (e *StallError) Error() string {
	return fmt.Sprintf("%d requests wait and %d run, and none can be computed", e.Waiting, e.Running)
}

// Hint says what lets such a load go on.
func (e *StallError) Hint() string {
	return "what lets it go on: clients that give up after a timeout, more KV blocks, or fcfs where another policy orders the queue"
}

// stalled is an error where requests wait for ever.
func (e *Engine) stalled(p *Plan) error {
	s := &e.scheduler
	waiting, running := s.WaitingCount(), len(s.running)
	e.stalls++
	if s.Loading()+s.Held() > 0 || waiting+running == 0 {
		e.stalls = 0
	}
	if e.stalls > stallsMost && len(p.Preempted) == 0 && !s.Idle() {
		return &StallError{Waiting: waiting, Running: running}
	}
	return nil
}

// compute writes down what a plan computes.
func (e *Engine) compute(p *Plan) {
	pass := &e.pass
	pass.Prefill, pass.Decode = pass.Prefill[:0], p.Steady
	for i := range p.Scheduled {
		share := &p.Scheduled[i]
		if e.scheduler.Decodes(share) {
			pass.Decode.Add(int(share.Context))
			continue
		}
		pass.Prefill = append(pass.Prefill, forward.Chunk{Count: 1, New: int(share.Tokens), Context: int(share.Context), Last: share.Samples})
	}
}

// Decodes reports whether a share of a plan is the one token of a request that
// decodes; all others are parts of prompts, or of what a preempted request
// computes again.
func (s *Scheduler) Decodes(e *Share) bool {
	return e.Tokens == 1 && e.Context >= s.requests.progress[e.Request].prompt
}
