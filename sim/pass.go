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
	if s.rules.LoneUncut && len(s.running)+s.waiting.n <= 1 {
		s.threshold = 0
	}
	s.runningPass()
	if len(s.plan.Preempted) == 0 {
		s.waitingPass()
	}
	s.plan.Tokens = int(s.most - s.budget)
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
	k.extend(s.requests.table[id], missing)
	p.room += missing * k.size
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
	s.kv.release(r.table[id])
	r.progress[id].computed, r.progress[id].room = 0, 0
	r.state[id], r.resumed[id] = Waiting, true
	s.waiting.pushFront(id)
	s.plan.Preempted = append(s.plan.Preempted, id)
	s.totals.Preemptions++
}

// waitingPass admits requests while there are budget and seats.
func (s *Scheduler) waitingPass() {
	for s.budget > 0 && s.waiting.n > 0 && len(s.running) < s.seats {
		id := s.waiting.first()
		p := &s.requests.progress[id]
		s.lookUp(id, p.total)
		n := p.total - int32(len(s.hits))*s.kv.size
		if s.threshold > 0 {
			n = min(n, s.threshold)
		}
		if s.whole && n > s.budget {
			if !s.rules.SetLongAside {
				break
			}
			s.waiting.pop()
			s.aside = append(s.aside, id)
			continue
		}
		n = min(n, s.budget)
		if !s.admit(id, n) {
			break // those behind it wait too
		}
		s.give(id, p, n)
	}
	if !s.rules.ReturnReversed {
		slices.Reverse(s.aside)
	}
	for _, id := range s.aside {
		s.waiting.pushFront(id)
	}
	s.aside = s.aside[:0]
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
	taken := int32(0) // hits that are in the free list
	for _, b := range s.hits {
		if k.refs[b] == 0 {
			taken++
		}
	}
	kept := s.watermark
	if len(s.running) == 0 {
		kept = 0
	}
	need := func(tokens int32) int32 { return max(0, k.ceil(tokens)-hits) + taken + kept }
	found := hits * k.size
	if (s.gated && need(p.total) > k.free) || need(found+n) > k.free {
		return false
	}
	s.waiting.pop()
	s.running = append(s.running, id)
	table := k.hold()
	k.take(table, s.hits)
	missing := max(0, k.ceil(found+n)-hits)
	k.extend(table, missing)
	r.table[id], r.state[id] = table, Running
	p.computed, p.room, p.full = found, (hits+missing)*k.size, found+k.size
	if !k.caching {
		p.full = math.MaxInt32
	}
	s.plan.Hits = append(s.plan.Hits, Hit{id, found})
	s.countLookup(id, found)
	return true
}

// countLookup keeps the statistics of the prefix cache.
func (s *Scheduler) countLookup(id, found int32) {
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
	s.plan.Scheduled = append(s.plan.Scheduled, Share{id, n, context, samples})
	if known := min(computed, p.total); known >= p.full {
		s.register(id, known)
	}
}

// register gives the blocks that are full within the first tokens of a request
// their identity.
func (s *Scheduler) register(id, tokens int32) {
	r, p, k := &s.requests, &s.requests.progress[id], &s.kv
	blocks := k.tables[r.table[id]]
	for ; p.full <= tokens; p.full += k.size {
		i := p.full/k.size - 1
		k.known.add(blocks[i], r.owner(id, i), i)
	}
}
