package sglang

import (
	"cmp"
	"math"
	"slices"
)

const (
	// queueMatched is how many waiting requests are looked up at most.
	queueMatched = 128
	// queueRefresh is how many passes lie between two lookups that only keep
	// the prefixes of waiting requests fresh.
	queueRefresh = 32
	// sharedEnough is the hit above which a request is not compared with
	// others, and the common part that puts it behind them, in tokens.
	sharedEnough = 32
)

// active is the policy of this pass.
func (s *Scheduler) active() Policy {
	p := s.policy
	if (p == LPM || p == HRRN) && len(s.waiting) > queueMatched {
		return FCFS
	}
	return p
}

// sortQueue orders the waiting requests for a pass.
func (s *Scheduler) sortQueue() {
	if len(s.waiting) > 1 {
		s.limits.ordered++
	}
	p := s.active()
	if p.cacheAware() {
		s.lookUpQueue()
	}
	switch q := &s.q; {
	case s.policy == FCFS && s.config.Priority:
		s.sortBy(func(a, b int32) int {
			return cmp.Or(cmp.Compare(q.priority[b], q.priority[a]), cmp.Compare(q.entry[a], q.entry[b]))
		})
	case p == LPM:
		s.sortBy(func(a, b int32) int {
			if q.low[a] || q.low[b] {
				return compareBool(q.low[a], q.low[b])
			}
			return cmp.Compare(q.hits[b], q.hits[a])
		})
	case p == DFSWeight:
		s.sortByTree()
	case p == LOF && s.config.Priority:
		s.sortBy(func(a, b int32) int {
			return cmp.Or(cmp.Compare(q.priority[b], q.priority[a]), cmp.Compare(q.maxNew[b], q.maxNew[a]))
		})
	case p == LOF:
		s.sortBy(func(a, b int32) int { return cmp.Compare(q.maxNew[b], q.maxNew[a]) })
	case p == Random:
		s.random.Shuffle(len(s.waiting), func(i, j int) { s.waiting[i], s.waiting[j] = s.waiting[j], s.waiting[i] })
	case p == RoutingKey:
		s.sortByKey()
	case p == HRRN:
		s.sortBy(func(a, b int32) int {
			return cmp.Or(cmp.Compare(s.response(a), s.response(b)), cmp.Compare(q.rank[a], q.rank[b]), cmp.Compare(a, b))
		})
	case p == ShortestPrefill:
		s.sortBy(func(a, b int32) int {
			return cmp.Or(compareBool(q.low[a], q.low[b]), cmp.Compare(s.work(a), s.work(b)), cmp.Compare(q.entry[a], q.entry[b]))
		})
	}
	if !p.cacheAware() {
		s.refreshQueue()
	}
}

// sortBy sorts the queue and keeps the order of equals.
func (s *Scheduler) sortBy(compare func(a, b int32) int) {
	if !slices.IsSortedFunc(s.waiting, compare) {
		slices.SortStableFunc(s.waiting, compare)
	}
}

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// lookUpQueue finds the hits of all waiting requests, and marks those whose
// prefix an earlier one will bring into the cache. They hold no lock on what
// was found.
func (s *Scheduler) lookUpQueue() {
	q, t := &s.q, s.tree
	s.passes++
	for len(s.branchPass) < len(t.top) {
		s.branchPass = append(s.branchPass, 0)
		s.branchEnd = append(s.branchEnd, 0)
	}
	for _, r := range s.waiting {
		n := q.length(r)
		if s.config.Rules.MatchLessOne {
			n--
		}
		hit, node := t.match(r, n)
		q.prefix[r], q.node[r], q.hits[r] = hit, node, hit
		if s.config.Rules.SortLessOne {
			q.hits[r] = min(hit, q.length(r)-1)
		}
		q.low[r] = hit <= sharedEnough && s.sharesEnough(r, n)
	}
}

// sharesEnough reports whether a request has enough of its first n tokens in
// common with one that was looked at before in this pass; else it is kept to be
// compared with later ones.
func (s *Scheduler) sharesEnough(r, n int32) bool {
	chain, same := s.tree.whose.of(r), int32(0)
	for _, p := range chain {
		if s.branchPass[p.branch] != s.passes {
			break
		}
		same = min(s.branchEnd[p.branch], p.end, n)
	}
	if same >= sharedEnough {
		return true
	}
	for _, p := range chain {
		if s.branchPass[p.branch] != s.passes {
			s.branchPass[p.branch], s.branchEnd[p.branch] = s.passes, 0
		}
		s.branchEnd[p.branch] = max(s.branchEnd[p.branch], min(p.end, n))
	}
	return false
}

// refreshQueue looks up what the head of the queue will want, now and then, so
// that it is not evicted.
func (s *Scheduler) refreshQueue() {
	if !s.config.Rules.RefreshWaiting || s.config.NoPrefixCache || len(s.waiting) == 0 {
		return
	}
	s.refreshes++
	if s.refreshes%queueRefresh != 1 {
		return
	}
	for i := min(len(s.waiting), queueMatched) - 1; i >= 0; i-- {
		r := s.waiting[i]
		s.tree.match(r, s.q.length(r))
	}
}

// work is the uncached length of a waiting request, at least 1 token.
func (s *Scheduler) work(r int32) int32 { return max(1, s.q.length(r)-s.q.hits[r]) }

// response is the key of hrrn, smallest first, a ratio of tokens.
func (s *Scheduler) response(r int32) float64 {
	uncached := s.q.prompt[r] - s.q.hits[r]
	switch {
	case s.q.low[r]:
		return math.Inf(1)
	case uncached <= 0:
		return math.Inf(-1)
	}
	return -float64(max(0, s.prefilled-s.q.seen[r])) / float64(uncached)
}

// sortByKey puts requests first whose routing key many running requests have.
func (s *Scheduler) sortByKey() {
	q := &s.q
	count := func(r int32) int32 {
		n := int32(0)
		for _, o := range s.running {
			if q.routing[r] != 0 && q.routing[o] == q.routing[r] {
				n++
			}
		}
		return n
	}
	known := false
	for _, r := range s.running {
		known = known || q.routing[r] != 0
	}
	if !known {
		return
	}
	for _, r := range s.waiting {
		q.hits[r] = count(r)
	}
	s.sortBy(func(a, b int32) int {
		return cmp.Or(cmp.Compare(q.hits[b], q.hits[a]), cmp.Compare(q.routing[a], q.routing[b]))
	})
}

// sortByTree orders the queue by a walk of the tree, heaviest branch first.
func (s *Scheduler) sortByTree() {
	t := s.tree
	s.weight = slices.Grow(s.weight[:0], len(t.start))[:len(t.start)]
	clear(s.weight)
	s.byNode = append(s.byNode[:0], s.waiting...)
	slices.SortStableFunc(s.byNode, func(a, b int32) int { return cmp.Compare(s.q.node[a], s.q.node[b]) })
	for _, r := range s.waiting {
		for n := s.q.node[r]; n != none; n = t.parent[n] {
			s.weight[n]++
		}
	}
	s.waiting = s.waiting[:0]
	s.visit(root)
}

// visit appends the requests of a branch to the queue.
func (s *Scheduler) visit(n int32) {
	t := s.tree
	from := len(s.branch)
	for c := t.first[n]; c != none; c = t.right[c] {
		if s.weight[c] > 0 {
			s.branch = append(s.branch, c)
		}
	}
	to := len(s.branch)
	slices.SortStableFunc(s.branch[from:to], func(a, b int32) int { return cmp.Compare(s.weight[b], s.weight[a]) })
	for i := from; i < to; i++ {
		s.visit(s.branch[i])
	}
	s.branch = s.branch[:from]
	at, _ := slices.BinarySearchFunc(s.byNode, n, func(r, node int32) int { return cmp.Compare(s.q.node[r], node) })
	for ; at < len(s.byNode) && s.q.node[s.byNode[at]] == n; at++ {
		s.waiting = append(s.waiting, s.byNode[at])
	}
}
