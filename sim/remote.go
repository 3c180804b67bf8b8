package sim

import "slices"

// What a request is besides its state, where KV moves between engines.
const (
	// wantsHold: its blocks stay after its end.
	wantsHold uint8 = 1 << iota
	// loaded: the KV that it waited for is there.
	loaded
	// holding: it has blocks and no seat.
	holding
)

// transfers are the requests of a scheduler whose KV comes from another engine
// or is fetched by one.
type transfers struct {
	tokens  map[int32]int32 // by request: what comes from elsewhere, until it was asked for
	found   map[int32]int32 // by request: tokens that will be there when it is loaded
	waiting []int32         // those that wait for KV, or have it and wait for a seat, in order
	loading int             // of these, and of cancelled ones: KV on its way
	held    int             // requests that have ended and keep their blocks
}

// register notes what a request wants of other engines.
func (t *transfers) register(id int32, q *Request) (flags uint8) {
	if q.Remote > 0 {
		if t.tokens == nil {
			t.tokens, t.found = map[int32]int32{}, map[int32]int32{}
		}
		t.tokens[id] = int32(q.Remote)
	}
	if q.Hold {
		flags = wantsHold
	}
	return flags
}

// Loading is how many requests hold blocks into which KV is on its way.
func (s *Scheduler) Loading() int { return s.remote.loading }

// Held is how many requests have ended and keep their blocks.
func (s *Scheduler) Held() int { return s.remote.held }

// Release gives back the blocks of a request that has ended and was to hold
// them; they stay in the prefix cache. It reports whether there were any.
func (s *Scheduler) Release(id int32) bool {
	r := &s.requests
	if id < 0 || int(id) >= len(r.state) || r.state[id] != Finished || r.flags[id]&holding == 0 {
		return false
	}
	r.flags[id] &^= holding
	s.remote.held--
	s.release(id, false)
	return true
}

// Loaded says that the KV of a request, named in [Plan].Loads, is there: it may
// be admitted from the next pass on. The blocks of one that was cancelled
// meanwhile are free now. It reports whether the request waited for its KV.
func (s *Scheduler) Loaded(id int32) bool {
	r := &s.requests
	if id < 0 || int(id) >= len(r.state) || r.flags[id]&(holding|loaded) != holding {
		return false
	}
	switch r.state[id] {
	case Loading:
		r.flags[id] |= loaded
	case Cancelled:
		r.flags[id] &^= holding
		s.release(id, false)
	default:
		return false
	}
	s.remote.loading--
	return true
}

// candidate is the request that is admitted next: of those whose KV was loaded
// and those that wait, the former under fcfs, the first in its order under
// priority.
func (s *Scheduler) candidate() (id int32, ok bool) {
	id = -1
	for _, at := range s.remote.waiting {
		if s.requests.flags[at]&loaded == 0 || id >= 0 && !s.waiting.before(at, id) {
			continue
		}
		if id = at; s.policy == FCFS {
			return id, true
		}
	}
	if s.waiting.n > 0 && (id < 0 || s.waiting.before(s.waiting.first(), id)) {
		id = s.waiting.first()
	}
	return id, id >= 0
}

// external is how many tokens of a request come from elsewhere, beyond those
// that were just looked up; 0 once they have been asked for.
func (s *Scheduler) external(id int32) int32 {
	return max(0, s.remote.tokens[id]-int32(len(s.hits))*s.kv.size)
}

// load gives a request blocks for its KV that comes from elsewhere, and lets it
// wait for that without a seat. Beside the gates of an admission, the blocks
// that prefills under way still need stay free.
func (s *Scheduler) load(id, external int32) bool {
	r, p, k := &s.requests, &s.requests.progress[id], &s.kv
	found := int32(len(s.hits)) * k.size
	if !s.fits(p.total, found+external, s.reserved()) {
		return false
	}
	s.waiting.pop()
	r.table[id], r.state[id] = k.hold(), Loading
	r.flags[id] |= holding
	k.take(r.table[id], s.hits)
	p.room, p.full = found, s.firstFull(found)
	s.extend(id, p, k.ceil(external))
	delete(s.remote.tokens, id)
	s.remote.found[id] = found + external
	s.remote.waiting = append(s.remote.waiting, id)
	s.remote.loading++
	s.plan.Loads = append(s.plan.Loads, Load{id, external, found})
	s.countLookup(id, found)
	return true
}

// reserved is how many blocks the requests that have blocks still need for all
// tokens that are known of them.
func (s *Scheduler) reserved() int32 {
	list := s.running
	if s.steady.count > 0 {
		list = s.steady.others // steady ones have what they need
	}
	need := int32(0)
	for _, group := range [...][]int32{list, s.remote.waiting} {
		for _, id := range group {
			if s.steady.has(id) {
				continue // among those that end with this pass, the last of their kind
			}
			p := &s.requests.progress[id]
			need += max(0, s.kv.ceil(p.total)-p.room/s.kv.size)
		}
	}
	return need
}

// admitLoaded gives a request whose KV was loaded a seat and its next tokens.
// At least its last token is computed here.
func (s *Scheduler) admitLoaded(id int32) bool {
	r, p, k := &s.requests, &s.requests.progress[id], &s.kv
	here := s.remote.found[id]
	if here >= p.full {
		s.register(id, here)
	}
	p.computed = min(here, p.total-1)
	n := p.total - p.computed
	if s.threshold > 0 {
		n = min(n, s.threshold)
	}
	if s.whole && n > s.budget {
		return false
	}
	n = min(n, s.budget)
	s.hits = s.hits[:0]
	owned := p.room / k.size
	kept := s.kept()
	need := func(tokens int32) int32 { return max(0, k.ceil(tokens)-owned) + kept }
	if full, next := need(p.total), need(p.computed+n); s.gated && full > k.free || next > k.free {
		s.countRefusal(full, next, kept)
		return false
	}
	s.remote.waiting = slices.DeleteFunc(s.remote.waiting, func(at int32) bool { return at == id })
	delete(s.remote.found, id)
	r.flags[id] &^= holding | loaded
	r.state[id] = Running
	s.running = append(s.running, id)
	s.steady.admitted(id)
	if missing := k.ceil(p.computed+n) - owned; missing > 0 {
		s.extend(id, p, missing)
	}
	s.plan.Hits = append(s.plan.Hits, Hit{id, p.computed})
	s.give(id, p, n)
	return true
}

// leaveTransfers takes a request that is given up out of those that wait for
// KV. Blocks into which KV is on its way are free only when it is there.
func (s *Scheduler) leaveTransfers(id int32) {
	s.remote.waiting = slices.DeleteFunc(s.remote.waiting, func(at int32) bool { return at == id })
	delete(s.remote.found, id)
	if s.requests.flags[id]&loaded != 0 {
		s.requests.flags[id] &^= holding
		s.release(id, false)
	}
}
