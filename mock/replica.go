package mock

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
)

// simulatedPart is what a simulation knows of a request.
type simulatedPart struct {
	turn    int32 // of its delivery
	id      int32 // the scheduler's, once added
	added   bool
	entered int64 // ns
	held    bool  // chunks wait for an appointment
	until   int64 // a stall ends, in ns
}

// replica is a simulated engine, and who its requests are. It looks at no clock:
// next says when something happens, and advance lets it happen. All times are
// nanoseconds.
type replica struct {
	*sim.Engine
	scheduler *sim.Scheduler
	async     bool

	prefixes *prefixes           // nil without a prefix cache
	turns    int32               // deliveries
	coming   map[int32]*sequence // on their way, by turn
	live     map[int32]*sequence // in the scheduler, by id

	planned step  // by the last pass
	flying  step  // by the one before
	count   int64 // steps
}

// step is one step of the replica.
type step struct {
	number int64 // 0 for one that computes nothing
	took   int64 // ns that it lasts here, at the speed of the replica, without the host
	totals forward.Totals
}

// hurried is the timer of an engine whose time passes faster.
type hurried struct {
	timer sim.StepTimer
	speed float64
}

// StepTime is that of the timer, as long as it lasts here.
func (h hurried) StepTime(pass forward.Pass) (time.Duration, error) {
	took, err := h.timer.StepTime(pass)
	return h.scaled(took), err
}

// scaled is how long a time of the engine lasts here.
func (h hurried) scaled(d time.Duration) time.Duration {
	return time.Duration(math.Round(float64(d) / h.speed))
}

// newReplica makes the engine; after moves a moment out of a stall of the server.
func newReplica(c *Simulation, after func(int64) int64) (*replica, error) {
	r := &replica{async: c.Scheduler.Async, coming: map[int32]*sequence{}, live: map[int32]*sequence{}}
	config := c.Scheduler
	config.Aggregate = false // every token has somebody to go to
	timer := hurried{c.Timer, c.Speed}
	var err error
	r.Engine, err = sim.NewEngine(sim.EngineConfig{
		Scheduler: config, Timer: timer, Between: timer.scaled(c.Between), Before: timer.scaled(c.Before), Later: after, Enter: r.enter,
	})
	if err != nil {
		return nil, err
	}
	r.scheduler = r.Scheduler()
	if !c.Scheduler.NoPrefixCache {
		r.prefixes = newPrefixes(c.Scheduler.BlockSize)
	}
	return r, nil
}

// arrive lets a request arrive, not before any other did, and says when it
// enters the scheduler's queue.
func (r *replica) arrive(s *sequence, at int64) (entered int64) {
	s.simulated.turn = r.turns
	r.coming[r.turns] = s
	s.simulated.entered = r.Turns().Deliver(r.turns, at)
	r.turns++
	return s.simulated.entered
}

// cancel ends a request.
func (r *replica) cancel(s *sequence) {
	if s.simulated.added {
		r.scheduler.Cancel(s.simulated.id)
		delete(r.live, s.simulated.id)
		return
	}
	delete(r.coming, s.simulated.turn)
}

// next is when something happens; ok is false while there is nothing to do.
func (r *replica) next() (at int64, ok bool) {
	at = r.Turns().Next()
	return at, at != sim.Asleep
}

// advance lets happen what is next.
func (r *replica) advance() (*sim.Event, error) {
	e, err := r.Advance()
	if err != nil {
		return e, fmt.Errorf("step %d: %w", r.count+1, err)
	}
	if e.Kind == sim.Planned {
		r.flying = r.planned
		r.planned = r.describe(e)
	}
	return e, nil
}

// done is the step whose results were taken in last.
func (r *replica) done() step {
	if r.async {
		return r.flying
	}
	return r.planned
}

// enter adds a request that is there to the scheduler.
func (r *replica) enter(turn int32, _ int64) error {
	s := r.coming[turn]
	if s == nil {
		return nil // its client has gone
	}
	q := sim.Request{
		Prompt: s.request.promptTokens(), Output: s.limit, MaxTokens: s.request.maxTokens, Priority: s.request.priority,
	}
	if r.prefixes != nil {
		r.prefixes.sweep(r.scheduler.Cached, r.keys)
		q.Prefix = r.prefixes.spans(s.keys)
	}
	id, err := r.scheduler.Add(q)
	if err != nil {
		return err
	}
	delete(r.coming, turn)
	s.simulated.id, s.simulated.added = id, true
	r.live[id] = s
	return nil
}

// keys are those of all requests that are there.
func (r *replica) keys(yield func([]uint64)) {
	for _, s := range r.live {
		yield(s.keys)
	}
	for _, s := range r.coming {
		yield(s.keys)
	}
}

// describe counts the step that a pass planned, and what it computes.
func (r *replica) describe(e *sim.Event) step {
	if e.Plan.Tokens == 0 {
		return step{}
	}
	r.count++
	out := step{number: r.count, took: e.Took}
	t := &out.totals
	for _, share := range e.Plan.Scheduled {
		// A request that resumes counts as generating if it has a token.
		if int(share.Context) < r.live[share.Request].request.promptTokens() && r.scheduler.Outputs(share.Request) == 0 {
			t.PrefillRequests++
			t.PrefillTokens += int(share.Tokens)
		} else {
			t.DecodeRequests++
			t.DecodeTokens += int(share.Tokens)
		}
	}
	return out
}

// all lists the requests that are there, those in the scheduler by their ids
// and then those that have yet to enter it.
func (r *replica) all() []*sequence {
	var out []*sequence
	for _, part := range []map[int32]*sequence{r.live, r.coming} {
		for _, at := range slices.Sorted(maps.Keys(part)) {
			out = append(out, part[at])
		}
	}
	return out
}
