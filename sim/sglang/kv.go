package sglang

// pages is a length rounded up to whole pages, in tokens.
func (s *Scheduler) pages(n int32) int { return int((n + s.page - 1) / s.page * s.page) }

// room evicts until n tokens are free, if the tree has that many.
func (s *Scheduler) room(n int) {
	if s.free >= n || s.config.NoPrefixCache {
		return
	}
	missing := n
	if s.config.Rules.EvictMissing {
		missing -= s.free
	}
	s.free += s.tree.evict(missing)
}

// take uses up n free tokens, or reports that there are not as many.
func (s *Scheduler) take(n int) bool {
	if n > s.free {
		return false
	}
	s.free -= n
	return true
}

// insert gives the first n tokens of a request to the tree, whose lock moves
// there; slots of tokens that the tree had already become free.
func (s *Scheduler) insert(r, n int32) {
	q, t := &s.q, s.tree
	present, node := t.insert(r, n)
	s.free += int(present - q.held[r])
	key := t.floor(n)
	if prompt := t.floor(q.prompt[r]); s.config.Rules.SplitPrompt {
		if prompt > 0 && prompt < key {
			t.walk(r, prompt, true)
		}
	} else if q.state[r] != finished {
		t.match(r, key)
	}
	t.lock(node)
	t.unlock(q.node[r])
	q.node[r], q.held[r] = node, key
}

// checkpoint gives the tree the first n tokens of a request, which are
// computed; a next piece starts behind them.
func (s *Scheduler) checkpoint(r, n int32) {
	if !s.config.NoPrefixCache {
		s.insert(r, n)
	}
	s.q.prefix[r], s.q.extend[r] = n, 0
}

// finish ends a request: the tree keeps its tokens, its own slots become free.
func (s *Scheduler) finish(r int32) {
	q := &s.q
	q.state[r] = finished
	s.open--
	n := q.kv[r]
	if s.config.Rules.FreeWasted {
		n = q.length(r) - 1
	}
	if !s.config.NoPrefixCache {
		s.insert(r, n)
	}
	s.letGo(r, n)
}

// letGo frees the slots of a request's first n tokens that are its own.
func (s *Scheduler) letGo(r, n int32) {
	q := &s.q
	s.free += s.pages(n) - int(q.held[r])
	q.leftover[r] = int32(s.pages(q.kv[r]) - s.pages(n))
	s.tree.unlock(q.node[r])
	q.node[r], q.held[r], q.kv[r] = root, 0, 0
}

// release takes the slots of a request that goes back to the queue, and evicts
// until those who stay can go on for a while. The tree gets nothing.
func (s *Scheduler) release(r int32, stay int) {
	q := &s.q
	if q.steady[r] {
		s.depart(r)
		if s.steady.flies {
			s.steady.wasted = append(s.steady.wasted, r)
		}
	}
	n := q.kv[r]
	if s.config.Rules.RetractKeepsSlot {
		n = min(n, q.prompt[r]+max(q.outs[r]-1, 0))
	}
	s.letGo(r, n)
	ahead := stay * stepsAhead
	if s.config.Rules.RetractAhead {
		if !s.config.NoPrefixCache {
			s.free += s.tree.evict(max(0, ahead-s.free))
		}
	} else {
		s.room(ahead)
	}
	q.prefix[r], q.extend[r], q.hits[r], q.pieces[r] = 0, 0, 0, 0
	q.retracted[r] = true
}

// stepsAhead is how many decode iterations a retraction makes room for.
const stepsAhead = 20
