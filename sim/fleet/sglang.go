package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
)

// Loop is an engine whose every iteration makes one batch and reads one result.
// *sglang.Loop is one.
type Loop interface {
	// Add puts a request into the queue, or refuses it with an error that wraps
	// [sim.ErrUnservable]. Ids count from 0 in the order of Add, without those
	// that were refused.
	Add(q sim.Request) (id int32, err error)
	// Cancel ends a request whose client has gone, if it has not ended.
	Cancel(id int32) bool
	// Aggregate lets requests be counted instead of listed, from the first on.
	Aggregate()
	// Steady reports whether a request is counted.
	Steady(id int32) bool
	// Outputs is how many tokens of a request were read.
	Outputs(id int32) int
	// Plan is the next iteration, without outputs. It is valid until the next
	// Plan or Cancel.
	Plan() (*sim.Iteration, error)
	// Read reads the result that is due into it. Plan and Read take turns.
	Read()
	// State is where the loop stands.
	State() sim.LoopState
	// Lookup is how many tokens of a prompt the prefix cache has now.
	Lookup(prompt int, prefix []sim.Span) int
	// Unbound are the settings that made no difference so far, in a fixed order.
	Unbound() []Knob
	// Watch keeps what changes in the prefix cache from now on.
	Watch()
	// TakeChanges are the changes since the last call.
	TakeChanges() []sim.CacheChange
}

// sglangServer is a replica with SGLang's scheduler. Every event is an iteration
// of its loop. Without overlap an iteration plans a batch, lets it run and reads
// its result at its end. With overlap it plans a batch when the one before
// begins, reads the result of the one before at its end, and lets the planned
// one begin then.
type sglangServer struct {
	run     *run
	index   int16
	loop    Loop
	timer   sim.StepTimer
	turns   sim.Turns // it rests where nothing happens until somebody comes or leaves
	host    host
	trail   trail // of tokens that were listed
	counted counted
	page    int // tokens

	coming  int64          // prompt tokens of requests on their way
	global  []int32        // by number in the scheduler
	gone    []int32        // numbers of those whose clients left since the last iteration
	current Step           // what runs
	planned Step           // what runs next, with overlap
	due     *sim.Iteration // planned, and to be read when the step that runs ends
	quiet   int            // iterations in a row that computed and read nothing
	rested  int64          // when it began to rest last

	queried, hit int64
	pass, alone  forward.Pass
	meters       meters
}

func newSGLang(r *run, index int16, c Replica) (*sglangServer, error) {
	loop, err := c.SGLang()
	if err != nil {
		return nil, err
	}
	if !c.Listed {
		loop.Aggregate()
	}
	state := loop.State()
	v := &sglangServer{
		run: r, index: index, loop: loop, timer: c.Timer, page: state.BlockTokens,
		alone: forward.Pass{Prefill: make([]forward.Chunk, 1)},
	}
	v.turns.Reset(sim.Turns{Overlap: state.Overlap, Between: int64(c.Between), Before: int64(c.Before)})
	v.meters.usable = state.UsableBlocks
	v.trail.on, v.counted.trail.on = true, true // a request may outgrow the pool
	return v, nil
}

func (v *sglangServer) next() int64 { return v.turns.Next() }

func (v *sglangServer) deliver(i int32, at int64) {
	v.turns.Deliver(i, at)
	v.coming += int64(v.run.load.requests[i].InputLen)
}

// cancel lets the next iteration know that a client has gone.
func (v *sglangServer) cancel(i int32) {
	id := v.run.ids[i]
	if id < 0 {
		v.coming -= int64(v.run.load.requests[i].InputLen)
		return // it is on its way, and is refused when it gets there
	}
	v.gone = append(v.gone, id)
	v.catchUp(i)
	v.run.record(i).Outputs = int32(v.loop.Outputs(id))
	v.run.window.drop(i, false, &v.trail, &v.counted.trail)
	v.turns.Wake(v.run.now)
}

func (v *sglangServer) depth() depth {
	s := v.loop.State()
	return depth{
		waiting: s.Waiting + v.turns.Coming(), running: s.Running, used: s.UsedBlocks, usable: s.UsableBlocks,
		tokens: s.WaitingTokens + v.coming,
	}
}

func (v *sglangServer) lookup(i int32, view cacheView) int {
	return v.run.lookup(i, view, v.page, v.loop)
}

func (v *sglangServer) watch() { v.loop.Watch() }

func (v *sglangServer) changes() []sim.CacheChange { return v.loop.TakeChanges() }

func (v *sglangServer) close(first, end int64) ReplicaResult {
	for id, i := range v.global {
		if r := v.run.record(i); r.Outcome == Unfinished {
			v.catchUp(i)
			r.Outputs = int32(v.loop.Outputs(int32(id)))
		}
	}
	out := v.meters.result(first, end)
	out.Unbound = v.loop.Unbound()
	return out
}

func (v *sglangServer) event() error {
	now := v.turns.Next()
	if due, later := v.turns.Results(); due {
		v.read(now)
		if later {
			return nil
		}
	}
	if !v.loop.State().Busy && v.turns.Nobody() {
		return v.sleep(now)
	}
	begin := v.turns.Turn()
	v.host.spent = v.turns.Host()
	next, took, err := v.plan(now, begin)
	if err != nil {
		return err
	}
	v.current = next
	if v.turns.Overlap {
		v.current, v.planned = v.planned, next
	}
	current := &v.current
	v.quiet++
	if next.Tokens > 0 || current.Tokens > 0 {
		v.quiet = 0
	}
	if v.quiet > v.loop.State().Patience {
		v.block(now)
		return nil
	}
	v.turns.Plans(took, next.Tokens > 0)
	if current.Tokens > 0 {
		current.Begin, current.End = time.Duration(now), time.Duration(v.turns.Next())
		v.run.stepped(&v.meters, current)
	}
	return nil
}

// sleep waits for the next request. The engine's loop goes on meanwhile, which
// sets some of its counters back.
func (v *sglangServer) sleep(now int64) error {
	for range v.loop.State().Patience {
		if _, err := v.loop.Plan(); err != nil {
			return fmt.Errorf("replica %d at %v: %w", v.index, time.Duration(now), err)
		}
		v.loop.Read()
	}
	v.gone = v.gone[:0]
	v.meters.set(now, 0, 0, 0)
	v.quiet = 0
	v.turns.Sleep()
	return nil
}

// block waits for somebody to come or to leave: of those who wait nobody is
// admitted, and nobody runs.
func (v *sglangServer) block(now int64) {
	v.read(now)
	s := v.loop.State()
	v.meters.set(now, int64(s.Waiting), int64(s.Running), int64(s.UsedBlocks))
	v.quiet, v.rested = 0, now
	v.turns.Rest()
}

func (v *sglangServer) stalled() *StallError {
	if !v.turns.Resting() {
		return nil
	}
	s, first := v.loop.State(), none
	if s.First >= 0 {
		first = int(v.global[s.First])
	}
	return &StallError{
		Replica: int(v.index), At: time.Duration(v.rested), Request: first,
		Err: &sim.StallError{Waiting: s.Waiting, Running: s.Running},
	}
}

// plan makes a batch at a time, for a step that begins at another and takes some
// time.
func (v *sglangServer) plan(now, begin int64) (w Step, took int64, err error) {
	if err := v.receive(now); err != nil {
		return w, 0, err
	}
	b, err := v.loop.Plan()
	if err != nil {
		return w, 0, fmt.Errorf("replica %d at %v: %w", v.index, time.Duration(now), err)
	}
	v.due = b
	for _, id := range b.Settled {
		v.catchUp(v.global[id])
	}
	for _, id := range b.Preempted {
		v.catchUp(v.global[id])
		v.run.record(v.global[id]).Preemptions++
	}
	for _, id := range b.Aborted {
		v.catchUp(v.global[id])
		if i := v.global[id]; v.run.record(i).Outcome == Unfinished {
			v.run.record(i).Outputs = int32(v.loop.Outputs(id))
			v.run.window.drop(i, false, &v.trail, &v.counted.trail)
			v.run.end(i, now, Aborted)
		}
	}
	v.queried, v.hit = v.queried+int64(b.Queried), v.hit+int64(b.Hit)
	w = Step{
		Replica: int(v.index), Waiting: b.Waiting, Running: b.Running, Preempted: len(b.Preempted),
		FreeBlocks: b.FreeBlocks, UsableBlocks: v.meters.usable, Evicted: b.Evicted,
		Queried: v.queried, Hit: v.hit,
	}
	v.fill(b, &w, begin)
	if w.Tokens == 0 {
		return w, 0, nil
	}
	d, err := v.timer.StepTime(v.pass)
	if err == nil && w.Prefills > 0 {
		err = v.split(b, d)
	}
	if err != nil {
		return w, 0, fmt.Errorf("replica %d at %v: time of a step of %d tokens: %w", v.index, time.Duration(now), w.Tokens, err)
	}
	return w, int64(d), nil
}

// receive takes in those who came and lets those go who left.
func (v *sglangServer) receive(now int64) error {
	for {
		i, ok := v.turns.Take()
		if !ok {
			break
		}
		if v.run.record(i).Outcome != Unfinished {
			continue // its client has gone
		}
		v.coming -= int64(v.run.load.requests[i].InputLen)
		if err := v.admit(i, now); err != nil {
			return err
		}
	}
	for _, id := range v.gone {
		v.loop.Cancel(id)
	}
	v.gone = v.gone[:0]
	return nil
}

// admit puts a request into the scheduler's queue.
func (v *sglangServer) admit(i int32, now int64) error {
	q := &v.run.load.requests[i]
	v.run.record(i).queued(now)
	id, err := v.loop.Add(sim.Request{Prompt: q.InputLen, Output: q.OutputLen, Priority: q.Priority, Prefix: v.run.load.prefix(i)})
	if errors.Is(err, sim.ErrUnservable) {
		v.run.end(i, now, Unservable)
		return nil
	}
	if err != nil {
		return fmt.Errorf("request %d: %w", i, err)
	}
	v.global = append(v.global, i)
	v.run.ids[i] = id
	return nil
}

// fill writes what a batch computes, and when the requests in it are admitted.
func (v *sglangServer) fill(b *sim.Iteration, w *Step, begin int64) {
	v.pass.Prefill = v.pass.Prefill[:0]
	for k, cached := range b.Cached {
		id, n := b.Requests[k], b.Tokens[k]
		if n == 0 {
			continue // rows that decode leave nothing of the chunk
		}
		if r := v.run.record(v.global[id]); r.Admitted < 0 {
			r.Admitted, r.Hits = time.Duration(begin), cached
			v.host.admit(r, id, int64(r.Sent), begin, v.turns.Before)
		}
		v.pass.Prefill = append(v.pass.Prefill, forward.Chunk{Count: 1, New: int(n), Context: int(cached), Last: id != b.Piece})
		w.PrefillTokens += int(n)
	}
	v.pass.Decode = forward.Sequences{Count: len(b.Requests) - len(b.Cached) + b.Steady, SumContext: b.Context}
	w.Prefills, w.Decodes, w.Context = len(v.pass.Prefill), v.pass.Decode.Count, v.pass.Decode.SumContext
	w.Tokens = w.PrefillTokens + w.Decodes
}

// split adds what each prompt of a step would take alone to its record.
func (v *sglangServer) split(b *sim.Iteration, d time.Duration) error {
	k := 0
	for j := range b.Cached {
		if b.Tokens[j] == 0 {
			continue
		}
		chunk := v.pass.Prefill[k]
		k++
		r := v.run.record(v.global[b.Requests[j]])
		if r.First >= 0 {
			continue
		}
		own := d
		if len(v.pass.Prefill)+v.pass.Decode.Count > 1 {
			v.alone.Prefill[0] = chunk
			var err error
			if own, err = v.timer.StepTime(v.alone); err != nil {
				return err
			}
		}
		r.Own += min(own, d)
	}
	return nil
}

// read takes in the outputs that are due.
func (v *sglangServer) read(now int64) {
	b := v.due
	v.due = nil
	v.loop.Read()
	if b.SteadyOutputs > 0 {
		v.count(b, now)
	}
	tokens, gap, same := 0, int64(0), 0
	v.trail.result(now)
	for _, o := range b.Outputs {
		r := v.run.record(v.global[o.Request])
		if o.Number == 0 || r.Outcome != Unfinished {
			continue // it is wasted, or nobody waits for it
		}
		tokens++
		v.trail.came(v.global[o.Request], int32(len(v.trail.times))-1)
		r.Outputs = o.Number
		if r.Outputs == 1 {
			r.First = time.Duration(now)
			v.host.leave(r, o.Request)
		} else {
			g := now - int64(r.Last)
			r.Gap = max(r.Gap, time.Duration(g))
			if g != gap && same > 0 { // most are the same
				v.run.gap(now, gap, same)
				same = 0
			}
			gap, same = g, same+1
		}
		r.Last = time.Duration(now)
	}
	if same > 0 {
		v.run.gap(now, gap, same)
	}
	v.run.tokens(now, tokens)
	for _, id := range b.Finished {
		if i := v.global[id]; v.run.record(i).Outcome == Unfinished {
			v.run.window.drop(i, true, &v.trail, &v.counted.trail)
			v.run.end(i, now, Completed)
		}
	}
}
