package fleet

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
)

// vllmServer is a replica with vLLM's scheduler: an engine, and what its events
// mean for the run.
type vllmServer struct {
	run    *run
	index  int16
	engine *sim.Engine
	turns  *sim.Turns     // the engine's
	s      *sim.Scheduler // the engine's
	config sim.Config
	timer  sim.StepTimer
	before int64
	host   host
	trail  trail

	queued int64   // prompt tokens of requests on their way, or waiting
	put    []int32 // of these, those that were preempted, by id in the scheduler
	rested int64   // when it began to rest last
	role   Role
	ids    []int32 // by request: its id in the scheduler, none before it gets there
	global []int32 // by id in the scheduler
	steps  [2]Step
	ahead  int // which of the steps was planned last

	alone   forward.Pass
	applied int32
	last    int64 // when results were taken in last
	gaps    longest
	meters  meters
}

func newVLLM(r *run, index int16, c Replica) (*vllmServer, error) {
	config := *c.VLLM
	config.Aggregate = !c.Listed
	v := r.memory.vllm[index]
	if v.engine == nil {
		v.engine = new(sim.Engine)
	}
	if err := v.engine.Reset(sim.EngineConfig{Scheduler: config, Timer: c.Timer, Between: c.Between, Before: c.Before, Enter: v.enter}); err != nil {
		return nil, err
	}
	*v = vllmServer{
		run: r, index: index, engine: v.engine, config: config, timer: c.Timer, before: int64(c.Before),
		alone: forward.Pass{Prefill: make([]forward.Chunk, 1)}, global: v.global[:0],
		gaps: longest{step: v.gaps.step[:0], gap: v.gaps.gap[:0]},
	}
	v.turns, v.s = v.engine.Turns(), v.engine.Scheduler()
	if v.role, v.ids = c.Role, r.ids; v.role == Prefill {
		v.ids = r.sources
	}
	v.meters.usable = v.s.UsableBlocks()
	v.trail.on = r.load.timeouts
	return v, nil
}

func (v *vllmServer) next() int64 { return v.turns.Next() }

func (v *vllmServer) deliver(i int32, at int64) {
	v.turns.Deliver(i, at)
	v.queued += v.prompt(i)
}

// prompt is the tokens of a request's prompt.
func (v *vllmServer) prompt(i int32) int64 { return int64(v.run.load.requests[i].InputLen) }

func (v *vllmServer) cancel(i int32) {
	id := v.ids[i]
	if id < 0 {
		v.queued -= v.prompt(i)
		return // it is on its way, and is refused when it gets there
	}
	if state := v.s.State(id); state == sim.Waiting || state == sim.Loading {
		v.leaves(id)
	}
	rec := v.run.record(i)
	if rec.First >= 0 && v.s.Steady(id) {
		v.steady(i)
	}
	rec.Outputs = int32(v.s.Outputs(id))
	v.run.window.drop(i, false, &v.trail)
	v.s.Cancel(id)
	if v.turns.Resting() {
		v.wake(v.run.now)
	}
}

// leaves takes a request that waited off the tokens of those that wait.
func (v *vllmServer) leaves(id int32) {
	v.queued -= v.prompt(v.global[id])
	if i := lastIndex(v.put, id); i >= 0 {
		v.put = slices.Delete(v.put, i, i+1)
	}
}

func (v *vllmServer) depth() depth {
	return depth{
		waiting: v.s.WaitingCount() + v.turns.Coming(), running: len(v.s.Running()),
		used: v.s.UsableBlocks() - v.s.FreeBlocks(), usable: v.s.UsableBlocks(), tokens: v.queued,
	}
}

func (v *vllmServer) lookup(i int32, view cacheView) int {
	return v.run.lookup(i, view, v.config.BlockSize, v.s)
}

func (v *vllmServer) watch() { v.s.Watch() }

func (v *vllmServer) changes() []sim.CacheChange { return v.s.TakeChanges() }

func (v *vllmServer) event() error {
	for further := true; further; {
		e, err := v.engine.Advance()
		_, stalls := errors.AsType[*sim.StallError](err)
		if err == nil || stalls {
			switch e.Kind {
			case sim.Read:
				v.apply(e.At, e.Outcome)
			case sim.Planned:
				err = v.planned(e, stalls)
			case sim.Slept:
				v.meters.set(e.At, 0, 0, v.used())
			}
		}
		if err != nil {
			return fmt.Errorf("replica %d at %v: %w", v.index, time.Duration(e.At), err)
		}
		further = e.Further
	}
	return nil
}

// used is the blocks that are held.
func (v *vllmServer) used() int64 { return int64(v.s.UsableBlocks() - v.s.FreeBlocks()) }

// planned takes in a pass, and lets the step run whose turn it is. One that
// stalls lets the replica rest.
func (v *vllmServer) planned(e *sim.Event, stalls bool) error {
	w, planned := &v.steps[0], &v.steps[0]
	if v.config.Async {
		v.ahead ^= 1
		w, planned = &v.steps[v.ahead^1], &v.steps[v.ahead]
	}
	if err := v.plan(e, planned); err != nil || !e.Runs {
		return err
	}
	if w.Tokens > 0 {
		w.Begin, w.End = time.Duration(e.At), time.Duration(e.End)
		v.run.stepped(&v.meters, w)
	} else if stalls || v.moves() && w.Preempted == 0 && planned.Tokens == 0 && planned.Preempted == 0 {
		v.rest(e.At)
	}
	return nil
}

func (v *vllmServer) stalled() *StallError {
	if !v.turns.Resting() {
		return nil
	}
	first := none
	if id, ok := v.s.First(); ok {
		first = int(v.global[id])
	}
	return &StallError{
		Replica: int(v.index), At: time.Duration(v.rested), Request: first,
		Err:  &sim.StallError{Waiting: v.s.WaitingCount(), Running: len(v.s.Running())},
		held: v.s.Held(),
	}
}

func (v *vllmServer) close(first, end int64) ReplicaResult {
	out, totals := v.meters.result(first, end), v.s.Totals()
	out.ResumedQueries, out.ResumedTokens = totals.ResumedQueried, totals.ResumedHit
	out.Unbound = unbound(&v.config, &totals, v.run.load.spanAt != nil)
	return out
}
