package sim

import (
	"slices"
	"sort"

	"github.com/llmprof/llmprof/forward"
)

// steady keeps the running requests that decode one token in every step
// together: a step changes them all in the same way, so it only has to look at
// those that need a new block, whose block becomes full, or that end. What is
// known of one of them follows from the number of passes:
//
//	computed = base + passes
//
// and it has its next token when those of the step are taken in. While nobody
// can be preempted this is exact: a request was admitted with budget left after
// all those before it, and their needs never grow, so each gets its token.
type steady struct {
	passes  int32 // of the scheduler
	count   int32
	context int64 // sum of computed
	low     int32 // the smallest and the largest base
	high    int32
	stale   bool // one of the two may have left
	base    []int32
	inside  []bool
	place   []int32 // by request: its rank in order of admission
	places  int32

	// In the ring of (base mod block size): how many need a new block when; and,
	// of those whose blocks others may find at once, who needs one when and who
	// has filled one.
	cross       []int32
	needs, fill [][]int32
	ends        Heap[ending]
	last        []int32 // they end with the results of the pass, in order of admission

	shift  int32   // from the place in cross to that in fill
	others []int32 // running requests that are not among them, in order of admission
}

// ending is a request that has its last token with the results of a pass.
type ending struct {
	pass, place, id int32
}

// Before orders by pass and admission.
func (e ending) Before(f ending) bool {
	return e.pass < f.pass || e.pass == f.pass && e.place < f.place
}

// admitted gives a request its rank.
func (t *steady) admitted(id int32) {
	for int(id) >= len(t.place) {
		t.place, t.base, t.inside = append(t.place, 0), append(t.base, 0), append(t.inside, false)
	}
	t.places++
	t.place[id] = t.places
	t.others = append(t.others, id)
}

// has reports whether a request is among the steady ones.
func (t *steady) has(id int32) bool { return int(id) < len(t.inside) && t.inside[id] }

// Steady reports whether a running request is one that is counted and not
// listed: see [Config.Aggregate].
func (s *Scheduler) Steady(id int32) bool { return s.steady.has(id) }

// computed is that of a steady request.
func (t *steady) computed(id int32) int32 { return t.base[id] + t.passes }

// ring is the place in a ring of those that stand at a number of computed
// tokens, modulo the block size, before the next pass.
func (t *steady) ring(computed int32) int {
	n := int32(len(t.cross))
	return int(((computed-t.passes)%n + n) % n)
}

// at is where a request stands, or would stand, in a list in order of admission.
func (t *steady) at(list []int32, id int32) int {
	place := t.place[id]
	return sort.Search(len(list), func(i int) bool { return t.place[list[i]] >= place })
}

// insert puts a request into a list in order of admission.
func (t *steady) insert(list []int32, id int32) []int32 {
	n := len(list)
	if n == 0 || t.place[list[n-1]] < t.place[id] {
		return append(list, id)
	}
	return slices.Insert(list, t.at(list, id), id)
}

// without takes a request out of a list in order of admission, if it is there.
func (t *steady) without(list []int32, id int32) []int32 {
	if i := t.at(list, id); i < len(list) && list[i] == id {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// drop takes the end of a request out of the heap.
func (t *steady) drop(id int32) {
	rest := t.ends
	t.ends = t.ends[:0]
	for _, e := range rest { // the heap is never longer than what is read already
		if e.id != id {
			t.ends.Push(e)
		}
	}
}

// joins reports whether requests that put out a token become steady: always
// where some are, else with room for some steps without a victim.
func (s *Scheduler) joins() bool {
	return s.config.Aggregate && (s.steady.count > 0 || s.kv.free >= 2*int32(len(s.running)))
}

// join makes a request that has just put out a token a steady one, if it
// decodes.
func (s *Scheduler) join(id int32, p *progress) {
	if p.inflight != s.ahead || p.computed != p.total+s.ahead-1 {
		return
	}
	t := &s.steady
	t.base[id], t.inside[id] = p.computed-t.passes, true
	if t.count == 0 {
		t.low, t.high, t.stale = t.base[id], t.base[id], false
	}
	t.low, t.high = min(t.low, t.base[id]), max(t.high, t.base[id])
	t.count++
	t.context += int64(p.computed)
	i := t.ring(p.computed)
	t.cross[i]++
	if s.found(id, p) {
		t.needs[i] = t.insert(t.needs[i], id)
		i = t.ring(p.computed + 1 - s.ahead)
		t.fill[i] = t.insert(t.fill[i], id)
	}
	t.ends.Push(ending{t.passes + p.end - p.total - 1, t.place[id], id})
}

// found reports whether blocks that a request has still to fill are those of a
// node, which others may look up.
func (s *Scheduler) found(id int32, p *progress) bool {
	return s.requests.shared(id)*s.kv.size > min(p.room, p.full-s.kv.size)
}

// roomy reports whether the next pass finds a block for everybody who runs.
func (s *Scheduler) roomy() bool {
	t := &s.steady
	need := t.cross[t.ring(0)]
	for _, id := range t.others {
		p := &s.requests.progress[id]
		if n := s.needs(p); n > 0 && p.computed+n > p.room {
			need += s.kv.ceil(p.computed + n - p.room)
		}
	}
	return need <= s.kv.free
}

// steadyPass is the running pass where some requests are steady and nobody has
// to be preempted.
func (s *Scheduler) steadyPass() {
	t := &s.steady
	work := forward.Sequences{Count: int(t.count), SumContext: t.context}
	t.last = t.last[:0]
	for len(t.ends) > 0 && t.ends[0].pass == t.passes {
		id := t.ends.Pop().id
		t.last = append(t.last, id)
		if p := &s.requests.progress[id]; s.ahead > 0 && p.end == p.limit {
			work.Count-- // its last token is on its way
			work.SumContext -= int64(t.computed(id))
			t.leave(id)
		}
	}
	if work.Count > 0 {
		if t.stale {
			s.respread()
		}
		work.Shortest, work.Longest = int(t.low+t.passes), int(t.high+t.passes)
	}
	now := t.ring(0)
	alike := t.cross[now]
	for _, id := range t.needs[now] {
		s.extend(id, &s.requests.progress[id], 1)
		alike--
	}
	s.kv.pop(alike)
	s.othersPass(work.Count)
	for _, id := range t.last {
		t.count--
		t.context -= int64(t.computed(id))
		if p := &s.requests.progress[id]; s.ahead == 0 || p.end < p.limit {
			t.leave(id)
		}
	}
	t.passes++
	t.context += int64(t.count)
	s.plan.Steady = work
}

// respread finds the smallest and the largest base of the steady requests that
// get a token in this pass.
func (s *Scheduler) respread() {
	t := &s.steady
	t.stale = false
	first := true
	for _, id := range s.running {
		if p := &s.requests.progress[id]; !t.inside[id] || s.ahead > 0 && p.end == p.limit && slices.Contains(t.last, id) {
			continue
		}
		if first {
			t.low, t.high, first = t.base[id], t.base[id], false
		}
		t.low, t.high = min(t.low, t.base[id]), max(t.high, t.base[id])
	}
}

// leave takes a request out of the rings.
func (t *steady) leave(id int32) {
	t.stale = t.stale || t.base[id] == t.low || t.base[id] == t.high
	n := int32(len(t.cross))
	i := (t.base[id]%n + n) % n
	t.cross[i]--
	t.needs[i] = t.without(t.needs[i], id)
	i = (i + t.shift) % n
	t.fill[i] = t.without(t.fill[i], id)
}

// othersPass gives the requests that are not steady their tokens, and caches
// the blocks of steady ones that become full and that others may find, in order
// of admission. Count steady requests get a token each.
func (s *Scheduler) othersPass(count int) {
	t := &s.steady
	fill := t.fill[t.ring(0)]
	left := s.budget - int32(count)
	taken := int32(0)
	for _, id := range t.others {
		for len(fill) > 0 && t.place[fill[0]] < t.place[id] {
			s.fill(fill[0])
			fill = fill[1:]
		}
		p := &s.requests.progress[id]
		s.budget = left - taken
		if n := s.needs(p); n == s.budget {
			s.budget += int32(count) - s.steadyBefore(id) // those after it do not matter to it
		}
		n := s.needs(p)
		if n <= 0 {
			continue
		}
		if p.computed+n > p.room {
			s.extend(id, p, s.kv.ceil(p.computed+n-p.room))
		}
		s.give(id, p, n)
		taken += n
	}
	for _, id := range fill {
		s.fill(id)
	}
	s.budget = left - taken
}

// steadyBefore is how many steady requests that get a token were admitted before
// a request.
func (s *Scheduler) steadyBefore(id int32) int32 {
	t := &s.steady
	before := int32(t.at(s.running, id) - t.at(t.others, id))
	if s.ahead == 0 {
		return before
	}
	for _, last := range t.last {
		if p := &s.requests.progress[last]; p.end == p.limit && t.place[last] < t.place[id] {
			before--
		}
	}
	return before
}

// fill caches the block that a steady request fills with this pass.
func (s *Scheduler) fill(id int32) { s.register(id, s.steady.computed(id)+1-s.ahead) }

// settle lists every steady request again. A token that is on its way becomes
// part of the plan that flies.
func (s *Scheduler) settle() {
	t := &s.steady
	for _, id := range s.running {
		if !t.inside[id] {
			continue
		}
		s.restore(id, t.computed(id))
		s.plan.Settled = append(s.plan.Settled, id)
	}
	if s.ahead > 0 {
		s.flying = s.refly()
	}
	for _, id := range s.plan.Settled {
		t.inside[id] = false
	}
	for i := range t.cross {
		t.cross[i], t.needs[i], t.fill[i] = 0, t.needs[i][:0], t.fill[i][:0]
	}
	t.count, t.context, t.ends, t.others = 0, 0, t.ends[:0], t.others[:0]
}

// restore writes out what is known of a steady request between two steps, when
// so many of its tokens are computed.
func (s *Scheduler) restore(id, computed int32) {
	p := &s.requests.progress[id]
	p.computed, p.total, p.inflight = computed, computed+1-s.ahead, s.ahead
	s.catchUp(id, p)
	if known := p.total - 1; known >= p.full {
		s.register(id, known)
	}
}

// catchUp gives a request the blocks that were counted for it while it was
// steady.
func (s *Scheduler) catchUp(id int32, p *progress) {
	blocks := s.kv.ceil(p.computed) - p.room/s.kv.size
	s.kv.tables[s.requests.table[id]].own += blocks
	p.room += blocks * s.kv.size
}

// refly is the plan that flies with the steady requests listed.
func (s *Scheduler) refly() []Share {
	t := &s.steady
	old := slices.DeleteFunc(s.flying, func(e Share) bool { return t.inside[e.Request] })
	list := make([]Share, 0, len(old)+len(s.plan.Settled))
	for _, id := range s.plan.Settled {
		for len(old) > 0 && t.place[old[0].Request] < t.place[id] {
			list, old = append(list, old[0]), old[1:]
		}
		list = append(list, Share{id, 1, s.requests.progress[id].computed - 1, true})
	}
	return append(list, old...)
}

// endSteady ends a steady request that has its last token.
func (s *Scheduler) endSteady(id int32) {
	p := &s.requests.progress[id]
	p.total, p.computed = p.end, p.end-1
	if p.end < p.limit {
		p.computed += s.ahead // a step computes it once more
	}
	s.catchUp(id, p)
	if known := p.end - 1; known >= p.full {
		s.register(id, known)
	}
	s.steady.inside[id] = false
	s.finish(id)
}
