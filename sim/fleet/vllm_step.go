package fleet

import (
	"fmt"
	"time"

	"github.com/llmprof/llmprof/sim"
)

// plan takes in what a pass decided, and describes the step that it planned.
func (v *vllmServer) plan(e *sim.Event, w *Step) error {
	p := e.Plan
	v.host.spent = e.Host
	v.settle(p.Settled)
	for _, h := range p.Hits {
		r := v.run.record(v.global[h.Request])
		v.leaves(h.Request)
		v.seat(r, h.Request, e.Begin)
		if r.Admitted < 0 {
			r.Admitted, r.Hits = time.Duration(e.Begin), h.Tokens
		}
	}
	for _, id := range p.Preempted {
		v.run.record(v.global[id]).Preemptions++
		v.queued += v.prompt(v.global[id])
		v.put = append(v.put, id)
	}
	for _, l := range p.Loads {
		v.loads(l.Request, e.Begin, int64(l.Tokens))
	}
	queried, hit := v.s.LookedUp()
	*w = Step{
		Replica: int(v.index), Tokens: p.Tokens, Waiting: v.s.WaitingCount(), Running: len(v.s.Running()),
		FreeBlocks: p.Free, UsableBlocks: v.meters.usable, Preempted: len(p.Preempted), Evicted: len(p.Evicted),
		Queried: queried, Hit: hit,
	}
	if p.Tokens == 0 {
		return nil
	}
	w.Prefills, w.Decodes, w.Context = len(e.Pass.Prefill), e.Pass.Decode.Count, e.Pass.Decode.SumContext
	w.PrefillTokens = p.Tokens - w.Decodes
	if w.Prefills == 0 {
		return nil
	}
	if err := v.split(e); err != nil {
		return fmt.Errorf("time of a part of a step of %d tokens: %w", p.Tokens, err)
	}
	return nil
}

// enter puts a request into the scheduler's queue.
func (v *vllmServer) enter(i int32, now int64) error {
	if v.run.record(i).Outcome != Unfinished {
		return nil // its client has gone
	}
	q := &v.run.load.requests[i]
	v.run.record(i).queued(now)
	id, err := v.s.Add(v.role.request(q, v.run.load.prefix(i)))
	if err != nil {
		return fmt.Errorf("request %d: %w", i, err)
	}
	v.global = append(v.global, i)
	v.ids[i] = id
	if v.s.State(id) == sim.Unservable {
		v.queued -= v.prompt(i)
		v.run.end(i, now, Unservable)
	}
	return nil
}

// split adds what each prompt of a step would take alone to its record.
func (v *vllmServer) split(e *sim.Event) error {
	k, d := 0, time.Duration(e.Took)
	together := len(e.Pass.Prefill)+e.Pass.Decode.Count > 1
	for i := range e.Plan.Scheduled {
		share := &e.Plan.Scheduled[i]
		if v.s.Decodes(share) {
			continue
		}
		chunk := e.Pass.Prefill[k]
		k++
		r := v.run.record(v.global[share.Request])
		if r.First >= 0 {
			continue
		}
		own := d
		if together {
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

// settle ends the time in which requests were counted and not listed.
func (v *vllmServer) settle(ids []int32) {
	for _, id := range ids {
		v.steady(v.global[id])
	}
}

// steady brings the record of a request that was not listed up to the last
// results.
func (v *vllmServer) steady(i int32) {
	r := v.run.record(i)
	r.Gap = max(r.Gap, time.Duration(v.gaps.since(v.run.lists[i]+1)))
	r.Last = time.Duration(v.last)
	v.trail.came(i, v.run.lists[i]) // results count from 1 there, and from 0 here
}

// apply takes in the results of a step that ended.
func (v *vllmServer) apply(now int64, o *sim.Outcome) {
	if len(v.put) > 0 {
		v.ended(o.Finished)
	}
	if v.role == Prefill {
		v.handOver(now, o)
		return
	}
	v.applied++
	gap := now - v.last
	v.last = now
	v.trail.result(now)
	if o.Steady > 0 {
		v.gaps.add(v.applied, gap)
		v.run.tokens(now, o.Steady)
		v.run.gap(now, gap, o.Steady)
	}
	v.run.tokens(now, len(o.Tokens))
	for _, t := range o.Tokens {
		i := v.global[t.Request]
		r := v.run.record(i)
		if t.Number == 1 {
			r.First = time.Duration(now)
			v.host.leave(r, t.Request)
		} else {
			g := now - int64(r.Last)
			r.Gap = max(r.Gap, time.Duration(g))
			v.run.gap(now, g, 1)
		}
		r.Last = time.Duration(now)
		v.run.lists[i] = v.applied
		v.trail.came(i, v.applied-1)
	}
	for _, id := range o.Finished {
		i := v.global[id]
		r := v.run.record(i)
		if v.run.lists[i] != v.applied {
			v.steady(i)
		}
		r.Outputs = int32(v.s.Outputs(id))
		v.run.window.drop(i, true, &v.trail)
		v.run.end(i, now, Completed)
	}
}

// ended looks for requests that ended while they waited: preempted ones whose
// last token was on its way.
func (v *vllmServer) ended(ids []int32) {
	for _, id := range ids {
		if lastIndex(v.put, id) >= 0 {
			v.leaves(id)
		}
	}
}
