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
	s.commit()
	return &s.plan
}

// runningPass walks the running requests from the front while there is budget.
func (s *Scheduler) runningPass() {
	r := &s.requests
	for i := 0; i < len(s.running) && s.budget > 0; {
		id := s.running[i]
		n := s.needs(id)
		if n <= 0 {
			i++
			continue
		}
		if r.computed[id]+n > r.room[id] {
			back, ok := s.makeRoom(id, i, n)
			i -= back
			if !ok && s.policy == Priority && s.rules.SelfPreemptGoesOn {
				continue // at i stands the request after it
			}
			if !ok {
				return
			}
		}
		s.give(id, n)
		i++
	}
}

// needs is how many tokens a running request gets in this pass.
func (s *Scheduler) needs(id int32) int32 {
	r := &s.requests
	computed, inflight := r.computed[id], r.inflight[id]
	if inflight > 0 && computed+2-inflight >= r.limit[id] {
		return 0 // its last token is on its way
	}
	n := r.total[id] + inflight - computed
	if s.threshold > 0 {
		n = min(n, s.threshold)
	}
	return min(n, s.budget, s.maxLen-1-computed)
}

// makeRoom finds the blocks for n more tokens of the request at place i, and
// preempts others until there are enough. It fails where the request preempts
// itself. back is how far its place moved to the front.
func (s *Scheduler) makeRoom(id int32, i int, n int32) (back int, ok bool) {
	r, k := &s.requests, &s.kv
	missing := k.ceil(r.computed[id]+n) - r.room[id]/k.size
	for missing > k.free {
		at := s.victim()
		victim := s.running[at]
		s.running = slices.Delete(s.running, at, at+1)
		if s.takeBack(victim) || (s.rules.VictimMovesIndex && at < i-back) {
			back++
		}
		s.preempt(victim)
		if victim == id {
			return back, false
		}
	}
	k.extend(r.table[id], missing)
	r.room[id] += missing * k.size
	return back, true
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
	s.plan.Scheduled = slices.Delete(s.plan.Scheduled, at, at+1)
	return true
}

// preempt takes a request's blocks and lets it wait. It keeps its outputs, and
// a token that is on its way still counts.
func (s *Scheduler) preempt(id int32) {
	r := &s.requests
	s.kv.release(r.table[id])
	r.computed[id], r.room[id], r.state[id], r.resumed[id] = 0, 0, Waiting, true
	s.waiting.pushFront(id)
	s.plan.Preempted = append(s.plan.Preempted, id)
	s.totals.Preemptions++
}

// waitingPass admits requests while there are budget and seats.
func (s *Scheduler) waitingPass() {
	for s.budget > 0 && s.waiting.n > 0 && len(s.running) < s.seats {
		id := s.waiting.first()
		s.lookUp(id)
		n := s.requests.total[id] - int32(len(s.hits))*s.kv.size
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
		s.give(id, n)
	}
	if !s.rules.ReturnReversed {
		slices.Reverse(s.aside)
	}
	for _, id := range s.aside {
		s.waiting.pushFront(id)
	}
	s.aside = s.aside[:0]
}

// lookUp finds the cached blocks that a request begins with. The last token is
// always computed.
func (s *Scheduler) lookUp(id int32) {
	s.hits = s.hits[:0]
	if !s.kv.caching {
		return
	}
	most := (s.requests.total[id] - 1) / s.kv.size
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
	r, k := &s.requests, &s.kv
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
	need := func(tokens int32) int32 { return max(0, k.ceil(min(tokens, s.maxLen))-hits) + taken + kept }
	found := hits * k.size
	if (s.gated && need(r.total[id]) > k.free) || need(found+n) > k.free {
		return false
	}
	s.waiting.pop()
	s.running = append(s.running, id)
	table := k.hold()
	k.take(table, s.hits)
	missing := max(0, k.ceil(found+n)-hits)
	k.extend(table, missing)
	r.table[id], r.state[id] = table, Running
	r.computed[id], r.room[id] = found, (hits+missing)*k.size
	r.full[id] = found + k.size
	if !k.caching {
		r.full[id] = math.MaxInt32
	}
	s.plan.Hits = append(s.plan.Hits, Hit{id, found})
	s.countLookup(id, found)
	return true
}

// countLookup keeps the statistics of the prefix cache.
func (s *Scheduler) countLookup(id, found int32) {
	t := &s.totals
	if s.requests.resumed[id] {
		t.ResumedQueried += int64(s.requests.total[id])
		t.ResumedHit += int64(found)
		return
	}
	t.Queried += int64(s.requests.total[id])
	t.Hit += int64(found)
}

// give plans n tokens for a request that has the blocks. Blocks that become
// full are cached at once, so that an admission of the same pass can hit them.
func (s *Scheduler) give(id, n int32) {
	r := &s.requests
	computed := r.computed[id]
	s.plan.Scheduled = append(s.plan.Scheduled, Share{id, n, computed})
	s.budget -= n
	if known := min(computed+n, r.total[id]); known >= r.full[id] {
		s.register(id, known)
	}
}

// register gives the blocks that are full within the first tokens of a request
// their identity.
func (s *Scheduler) register(id, tokens int32) {
	r, k := &s.requests, &s.kv
	blocks := k.tables[r.table[id]]
	for ; r.full[id] <= tokens; r.full[id] += k.size {
		i := r.full[id]/k.size - 1
		k.known.add(blocks[i], r.owner(id, i), i)
	}
}

// commit counts the planned tokens as computed and notes who puts out a token:
// every request that has no more to compute.
func (s *Scheduler) commit() {
	r := &s.requests
	s.plan.Evicted = s.kv.evicted
	s.plan.Free = int(s.kv.free)
	s.totals.Evictions += int64(len(s.plan.Evicted))
	s.open = true
	s.launched = s.launched[:0]
	for _, e := range s.plan.Scheduled {
		s.plan.Tokens += int(e.Tokens)
		computed := e.Context + e.Tokens
		r.computed[e.Request] = computed
		if computed != r.total[e.Request]+r.inflight[e.Request] {
			continue
		}
		s.launched = append(s.launched, e.Request)
		if s.async {
			r.inflight[e.Request]++
		}
	}
	if !s.async {
		s.due, s.launched = s.launched, s.due
	}
}
