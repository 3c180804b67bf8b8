package sim

import (
	"math"
	"slices"
)

// Schedule makes the next pass: those that run get their tokens first, then
// requests are admitted. Results of a step before that were not applied are
// applied first.
func (s *Scheduler) Schedule() *Plan {
	if s.open {
		s.Apply()
	}
	if s.ahead > 0 {
		s.plan.Scheduled, s.flying = s.flying, s.plan.Scheduled
	}
	s.plan.reset()
	s.kv.evicted = s.plan.Evicted
	s.budget, s.threshold = s.most, s.cut
	if s.rules.LoneUncut && len(s.running)+s.WaitingCount() <= 1 {
		s.threshold = 0
	}
	if s.steady.count > 0 && !s.roomy() {
		s.settle()
	}
	if s.steady.count > 0 {
		s.steadyPass()
	} else {
		s.steady.others = s.steady.others[:0]
		s.runningPass()
	}
	if len(s.plan.Preempted) == 0 {
		s.waitingPass()
	}
	s.plan.Tokens = int(s.most - s.budget)
	s.countLimits()
	s.plan.Evicted, s.plan.Free = s.kv.evicted, int(s.kv.free)
	s.totals.Evictions += int64(len(s.plan.Evicted))
	s.open = true
	return &s.plan
}

// runningPass walks the running requests from the front while there is budget.
func (s *Scheduler) runningPass() {
	for i := 0; i < len(s.running) && s.budget > 0; {
		id := s.running[i]
		p := &s.requests.progress[id]
		n := s.needs(p)
		if n <= 0 {
			i++
			continue
		}
		if p.computed+n > p.room {
			var ok bool
			if i, ok = s.makeRoom(id, i, n); !ok && s.rules.SelfPreemptGoesOn {
				continue // at i stands the request after it
			}
			if !ok {
				return
			}
		}
		s.give(id, p, n)
		i++
	}
}

// needs is how many tokens a running request gets in this pass.
func (s *Scheduler) needs(p *progress) int32 {
	if p.inflight > 0 && p.computed+2-p.inflight >= p.limit {
		return 0 // its last token is on its way
	}
	n := p.total + p.inflight - p.computed
	if s.threshold > 0 {
		n = min(n, s.threshold)
	}
	return min(n, s.budget) // max_model_len bounds the limit already
}

// makeRoom finds the blocks for n more tokens of the request at place i, and
// preempts others until there are enough. It fails where the request preempts
// itself. place is where the walk stands then.
func (s *Scheduler) makeRoom(id int32, i int, n int32) (place int, ok bool) {
	p, k := &s.requests.progress[id], &s.kv
	missing := k.ceil(p.computed + n - p.room)
	for missing > k.free {
		at := s.victim()
		victim := s.running[at]
		s.running = slices.Delete(s.running, at, at+1)
		if s.takeBack(victim) || (s.rules.VictimMovesIndex && at < i) {
			i--
		}
		s.preempt(victim)
		if victim == id {
			return i, false
		}
	}
	s.extend(id, p, missing)
	return i, true
}

// victim is the place of the running request that is preempted next.
func (s *Scheduler) victim() int {
	last := len(s.running) - 1
	if s.policy == FCFS {
		return last
	}
	for i := last - 1; i >= 0; i-- {
		if s.waiting.before(s.running[last], s.running[i]) {
			last = i
		}
	}
	return last
}

// takeBack returns the tokens of a request that got some in this pass.
func (s *Scheduler) takeBack(id int32) bool {
	at := slices.IndexFunc(s.plan.Scheduled, func(e Share) bool { return e.Request == id })
	if at < 0 {
		return false
	}
	s.budget += s.plan.Scheduled[at].Tokens
	if s.plan.Scheduled[at].Samples {
		s.requests.progress[id].inflight -= s.ahead
	}
	s.plan.Scheduled = slices.Delete(s.plan.Scheduled, at, at+1)
	return true
}

// preempt takes a request's blocks and lets it wait. It keeps its outputs, and
// a token that is on its way still counts.
func (s *Scheduler) preempt(id int32) {
	r := &s.requests
	s.release(id, true)
	r.progress[id].computed, r.progress[id].room = 0, 0
	r.state[id], r.resumed[id] = Waiting, true
	s.waiting.pushFront(id)
	s.plan.Preempted = append(s.plan.Preempted, id)
	s.totals.Preemptions++
}

// waitingPass admits requests while there are budget and seats.
func (s *Scheduler) waitingPass() {
	for s.budget > 0 && len(s.running) < s.seats {
		id, ok := s.candidate()
		if !ok || !s.tryAdmit(id) {
			break // those behind it wait too
		}
	}
	if !s.rules.ReturnReversed {
		slices.Reverse(s.aside)
	}
	for _, id := range s.aside {
		s.waiting.pushFront(id)
	}
	s.aside = s.aside[:0]
}

// tryAdmit gives the request that is next what it can get in this pass, or sets
// it aside. It fails where the pass ends.
func (s *Scheduler) tryAdmit(id int32) bool {
	if s.requests.state[id] == Loading {
		return s.admitLoaded(id)
	}
	p := &s.requests.progress[id]
	s.lookUp(id, p.total)
	if len(s.remote.tokens) > 0 {
		if external := s.external(id); external > 0 {
			return s.load(id, external)
		}
	}
	n := p.total - int32(len(s.hits))*s.kv.size
	if s.threshold > 0 {
		n = min(n, s.threshold)
	}
	if s.whole && n > s.budget {
		s.totals.Whole++
		if !s.rules.SetLongAside {
			return false
		}
		s.waiting.pop()
		s.aside = append(s.aside, id)
		return true
	}
	n = min(n, s.budget)
	if !s.admit(id, n) {
		return false
	}
	s.give(id, p, n)
	return true
}

// lookUp finds the cached blocks that a request begins with. The last of its
// tokens is always computed.
func (s *Scheduler) lookUp(id, tokens int32) {
	s.hits = s.hits[:0]
	if !s.kv.caching {
		return
	}
	most := (tokens - 1) / s.kv.size
	for i := range most {
		b := s.kv.known.find(s.requests.owner(id, i), i)
		if b == 0 {
			return
		}
		s.hits = append(s.hits, b)
	}
}

// admit gives the head of the queue a seat and blocks for its hits and n more
// tokens, if they can be had without preempting anybody.
func (s *Scheduler) admit(id, n int32) bool {
	r, p, k := &s.requests, &s.requests.progress[id], &s.kv
	hits := int32(len(s.hits))
	found := hits * k.size
	if !s.fits(p.total, found+n, 0) {
		return false
	}
	s.waiting.pop()
	s.running = append(s.running, id)
	s.steady.admitted(id)
	r.table[id], r.state[id] = k.hold(), Running
	k.take(r.table[id], s.hits)
	p.computed, p.room, p.full = found, found, s.firstFull(found)
	s.extend(id, p, max(0, k.ceil(found+n)-hits))
	s.plan.Hits = append(s.plan.Hits, Hit{id, found})
	s.countLookup(id, found)
	return true
}

// fits reports whether the gates let a request in that owns no blocks, when all
// its tokens and those of its first step are so many, the ones that were looked
// up included, and so many blocks are reserved for others.
func (s *Scheduler) fits(tokens, first, reserved int32) bool {
	k, hits, taken, kept := &s.kv, int32(len(s.hits)), int32(0), s.kept()
	for _, b := range s.hits {
		if k.refs[b] == 0 {
			taken++ // out of the free list
		}
	}
	need := func(tokens int32) int32 { return max(0, k.ceil(tokens)-hits) + taken + kept }
	full, next := need(tokens), need(first)+reserved
	if s.gated && full > k.free || next > k.free {
		s.countRefusal(full, next, kept)
		return false
	}
	return true
}

// kept is the blocks that an admission leaves free.
func (s *Scheduler) kept() int32 {
	if len(s.running) == 0 {
		return 0
	}
	return s.watermark
}

// firstFull is the tokens at which the first block can be registered of a
// request that begins with so many cached ones.
func (s *Scheduler) firstFull(found int32) int32 {
	if !s.kv.caching {
		return math.MaxInt32
	}
	return found + s.kv.size
}

// countLookup keeps the statistics of the prefix cache; one that is switched
// off is not asked.
func (s *Scheduler) countLookup(id, found int32) {
	if !s.kv.caching {
		return
	}
	t, asked := &s.totals, int64(s.requests.progress[id].total)
	if s.requests.resumed[id] {
		t.ResumedQueried += asked
		t.ResumedHit += int64(found)
		return
	}
	t.Queried += asked
	t.Hit += int64(found)
}

// give plans n tokens for a request that has the blocks. Blocks that become
// full are cached at once, so that an admission of the same pass can hit them.
func (s *Scheduler) give(id int32, p *progress, n int32) {
	context, computed := p.computed, p.computed+n
	samples := computed == p.total+p.inflight
	if samples {
		p.inflight += s.ahead
	}
	p.computed = computed
	s.budget -= n
	if !samples {
		s.totals.Cut++
		if n == s.threshold {
			s.totals.Threshold++
		}
	}
	s.plan.Scheduled = append(s.plan.Scheduled, Share{id, n, context, samples})
	if known := min(computed, p.total); known >= p.full {
		s.register(id, known)
	}
}

// register gives the blocks that are full within the first tokens of a request
// their identity. Those that are counted only need to be told from others.
func (s *Scheduler) register(id, tokens int32) {
	r, p, k := &s.requests, &s.requests.progress[id], &s.kv
	entries := k.tables[r.table[id]].entries
	for ; p.full <= tokens; p.full += k.size {
		i := p.full/k.size - 1
		if int(i) >= len(entries) {
			p.full = (tokens/k.size + 1) * k.size
			return
		}
		k.known.add(entries[i], r.owner(id, i), i)
	}
}

// extend gives a request further blocks: those of shared nodes one by one, since
// others may find them.
func (s *Scheduler) extend(id int32, p *progress, blocks int32) {
	have := p.room / s.kv.size
	s.kv.extend(s.requests.table[id], blocks, max(s.requests.shared(id)-have, 0))
	p.room += blocks * s.kv.size
}

// release gives a request's blocks back.
func (s *Scheduler) release(id int32, back bool) {
	p, t := &s.requests.progress[id], &s.kv.tables[s.requests.table[id]]
	cached := int32(0)
	if s.kv.caching {
		cached = min(max(p.full/s.kv.size-1-int32(len(t.entries)), 0), t.own)
	}
	s.kv.release(s.requests.table[id], Owner(id), cached, back)
}
