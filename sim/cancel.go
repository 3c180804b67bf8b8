package sim

import "slices"

// Cancel ends a request that its client has given up, as an engine's abort
// does: its seat and blocks are free for the next pass, and what it computed
// stays in the prefix cache. A step that was planned with it runs as planned,
// but its token is dropped. It reports whether there was anything to end: a
// request that has ended, or was refused, stays what it is.
func (s *Scheduler) Cancel(id int32) bool {
	r := &s.requests
	if id < 0 || int(id) >= len(r.state) {
		return false
	}
	switch r.state[id] {
	case Waiting:
		r.state[id] = Cancelled
		s.waiting.left()
	case Running:
		if s.steady.has(id) {
			s.unsteady(id)
		}
		s.release(id, false)
		s.running = s.steady.without(s.running, id)
		s.steady.others = s.steady.without(s.steady.others, id)
	case Loading:
		s.leaveTransfers(id)
	default:
		return false
	}
	r.state[id] = Cancelled
	silence(s.plan.Scheduled, id)
	silence(s.flying, id)
	return true
}

// unsteady takes a request out of the steady ones, at any time between two
// passes.
func (s *Scheduler) unsteady(id int32) {
	t, p := &s.steady, &s.requests.progress[id]
	if i := slices.Index(t.last, id); i >= 0 {
		t.last = slices.Delete(t.last, i, i+1)
		p.total, p.computed = p.end-1, p.end-1
		if p.end < p.limit {
			p.computed += s.ahead
		}
	} else {
		p.computed = t.computed(id)
		if p.total = p.computed + 1 - s.ahead; s.open {
			p.total--
		}
		t.leave(id)
		t.count--
		t.context -= int64(p.computed)
		t.drop(id)
	}
	t.inside[id] = false
	s.catchUp(id, p)
	if known := p.computed - s.ahead; known >= p.full {
		s.register(id, known)
	}
}

// silence drops the token of a request that a step is about to put out.
func silence(step []Share, id int32) {
	for i := range step {
		if step[i].Request == id {
			step[i].Samples = false
		}
	}
}

// Cached reports whether a block of that identity of a shared node is in
// the prefix cache, held or free. Blocks of a request alone are not looked for.
func (s *Scheduler) Cached(b Block) bool {
	return s.kv.caching && s.kv.known.find(b.Owner, b.Index) != 0
}
