package fleet

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// Role is a replica's part of the work.
type Role uint8

const (
	// Whole replicas serve requests from the first to the last token.
	Whole Role = iota
	// Prefill replicas compute prompts for others. A request runs there with one
	// output token, which nobody gets, and its blocks are kept until its KV has
	// been fetched.
	Prefill
	// Decode replicas fetch the KV of prompts and give all output tokens, the
	// first included.
	Decode
)

// String names the role.
func (r Role) String() string {
	switch r {
	case Whole:
		return "whole"
	case Prefill:
		return "prefill"
	case Decode:
		return "decode"
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// Transfer is how KV gets from one replica to another. Transfers do not slow
// each other down.
type Transfer struct {
	// BytesPerToken is the KV of one token, over all devices of a replica.
	BytesPerToken unit.Bytes
	// Bandwidth is that of the link between two replicas.
	Bandwidth unit.BytesPerSecond
	// Latency is added to each transfer.
	Latency time.Duration
}

// time is how long some tokens take, in ns.
func (t *Transfer) time(tokens int64) int64 {
	return int64(t.Latency) + int64(math.Round(float64(tokens)*float64(t.BytesPerToken)/float64(t.Bandwidth)*1e9))
}

// roles reports what is wrong with the roles of the replicas.
func (c *Config) roles() error {
	count := [3]int{}
	for k, r := range c.Replicas {
		if r.Role > Decode {
			return fmt.Errorf("replica %d: %s: want whole, prefill or decode", k, r.Role)
		}
		if r.Role != Whole && r.SGLang != nil {
			return fmt.Errorf("replica %d: %s: only vLLM's scheduler moves KV", k, r.Role)
		}
		count[r.Role]++
	}
	t := &c.Transfer
	if count[Prefill]+count[Decode] == 0 {
		if c.Decode != (Routing{}) || *t != (Transfer{}) {
			return errors.New("a router or a link for replicas that decode, and none does")
		}
		return nil
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if count[Whole] > 0 || count[Prefill] == 0 || count[Decode] == 0 {
		fault("%d whole replicas, %d for prefill and %d for decode: want the first, or both of the others", count[Whole], count[Prefill], count[Decode])
	}
	if err := c.Decode.Validate(); err != nil {
		fault("router of those that decode: %w", err)
	}
	if a, b := c.Router.SignalDelay, c.Decode.SignalDelay; a != b && c.Router.looks() && c.Decode.looks() {
		fault("signals delayed by %v for one router and by %v for the other: want one delay", a, b)
	}
	if t.BytesPerToken < 1 || !(t.Bandwidth > 0) || t.Latency < 0 || t.Latency > time.Hour || t.time(sim.MaxCount) > int64(1e6*time.Hour) || t.time(sim.MaxCount) < 0 {
		fault("transfer of %d bytes a token at %v after %v: want a size, a bandwidth that moves a prompt in hours, and a latency up to 1 h", int64(t.BytesPerToken), t.Bandwidth, t.Latency)
	}
	return errors.Join(faults...)
}

// request is what a scheduler in that role gets of one of the load.
func (r Role) request(q *workload.Request, prefix []sim.Span) sim.Request {
	out := sim.Request{Prompt: q.InputLen, Output: q.OutputLen, Priority: q.Priority, Prefix: prefix}
	switch r {
	case Prefill:
		out.Output, out.Hold = 1, true
		out.Prefix = make([]sim.Span, len(prefix))
		for i, s := range prefix { // an answer is not computed here
			out.Prefix[i] = sim.Span{Node: s.Node, End: min(s.End, q.InputLen)}
		}
	case Decode:
		out.Remote = q.InputLen
	}
	return out
}

// moves reports whether KV comes to a replica, or is fetched from it.
func (v *vllmServer) moves() bool { return v.role != Whole && v.s.Loading()+v.s.Held() > 0 }

// rest lets a replica that can compute nothing wait for KV or for a request.
func (v *vllmServer) rest(now int64) {
	v.rested = now
	v.turns.Rest()
	v.meters.set(now, int64(v.s.WaitingCount()), int64(len(v.s.Running())), v.used())
}

// wake ends a rest.
func (v *vllmServer) wake(now int64) {
	v.meters.used.set(now, v.used())
	v.turns.Wake(now)
}

// loaded says that the KV of a request has come.
func (v *vllmServer) loaded(i int32, now int64) {
	v.s.Loaded(v.ids[i])
	v.wake(now)
}

// fetched says that the KV of a request has been taken.
func (v *vllmServer) fetched(i int32, now int64) {
	v.s.Release(v.ids[i])
	v.wake(now)
}

// handOver passes prompts that are computed on to replicas that decode.
func (v *vllmServer) handOver(now int64, o *sim.Outcome) {
	for _, id := range o.Finished {
		v.host.leave(v.run.record(v.global[id]), id)
		v.run.prefilled(v.global[id], now)
	}
}

// mover is a server between which KV moves.
type mover interface {
	loaded(i int32, now int64)
	fetched(i int32, now int64)
}

// prefilled sends a request on to a replica that decodes.
func (r *run) prefilled(i int32, now int64) {
	rec := &r.records[i]
	rec.Prefilled, rec.Producer = time.Duration(now), rec.Replica
	r.pending[r.at(i)]--
	k := r.second.choose(i)
	rec.Replica = int16(k)
	r.pending[k]++
	r.servers[k].deliver(i, now)
	r.changed(k)
}

// fetch lets the KV of some tokens of a request move from a time on, and says
// for how long.
func (r *run) fetch(i int32, from, tokens int64) int64 {
	t := r.config.Transfer.time(tokens)
	heap.Push(&r.moving, arrival{from + t, i})
	return t
}

// comes is when KV comes next, or idle.
func (r *run) comes() int64 {
	if len(r.moving) == 0 {
		return idle
	}
	return r.moving[0].at
}

// come ends a transfer: the request may be admitted where its KV is now, and
// its blocks are free where it was.
func (r *run) come() {
	e := heap.Pop(&r.moving).(arrival)
	r.now = e.at
	rec := &r.records[e.i]
	if rec.Outcome == Unfinished {
		rec.Loaded = time.Duration(r.now)
	}
	r.tell(int(rec.Replica), func(m mover) { m.loaded(e.i, r.now) })
	r.tell(int(rec.Producer), func(m mover) { m.fetched(e.i, r.now) })
}

// tell lets a server know of a transfer.
func (r *run) tell(k int, what func(mover)) {
	if m, ok := r.servers[k].(mover); ok {
		what(m)
		r.changed(k)
	}
}

// forget frees the blocks of a request that was given up before its KV moved.
func (r *run) forget(i int32) {
	rec := &r.records[i]
	if rec.Producer < 0 || rec.Loaded >= 0 {
		return
	}
	for _, e := range r.moving {
		if e.i == i {
			return // they are free when it has come
		}
	}
	r.tell(int(rec.Producer), func(m mover) { m.fetched(i, r.now) })
}
