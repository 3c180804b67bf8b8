package sglang

// verdict is whether a prefill batch takes another request.
type verdict uint8

const (
	goOn verdict = iota
	noMemory
	spent // a budget of the batch is used up
)

// adder reserves memory and budgets while a prefill batch is put together, all
// in tokens.
type adder struct {
	input, chunk int
	chunked      bool
	// total is what is reserved with the outputs to come, now without them.
	total, now float64
	admitted   []int32
	piece      int32 // the request that was cut
	// preempted are victims of this pass, in order.
	preempted []int32
	// steps is what requests that ignore EOS will still take, sorted.
	steps    []decodeState
	hasSteps bool
}

// openBatch starts a prefill batch beside rows that decode in it.
func (s *Scheduler) openBatch(rows int) {
	a := &s.adder
	a.chunked = s.config.Chunk > 0
	a.chunk = s.config.Chunk - rows
	a.input = s.config.MaxPrefill - rows
	a.piece = none
	a.admitted, a.preempted = a.admitted[:0], a.preempted[:0]
	a.steps, a.hasSteps = a.steps[:0], false
	a.total, a.now = float64(rows)+s.reserved(), float64(rows)
}

// clip limits an estimate of new tokens.
func (s *Scheduler) clip(n int32) int { return min(int(n), s.clipAt) }

// reserved is what the running requests are expected to take, in tokens. It is
// added up in the engine's order, since it rounds.
func (s *Scheduler) reserved() float64 {
	q, ratio, most, sum := &s.q, s.ratio, s.clipAt, 0.0
	whole := s.config.Rules.IgnoreEOSWhole
	for _, r := range s.running {
		n := q.maxNew[r] - q.outs[r]
		if q.steady[r] {
			n -= q.reads
		}
		// The product is rounded before it is added, as on every machine.
		if share := float64(min(int(n), most)); whole && q.ignoreEOS[r] {
			sum += share
		} else {
			sum += float64(share * ratio)
		}
	}
	return sum
}

// reserve is what a running request is expected to take, in tokens.
func (s *Scheduler) reserve(r int32) float64 {
	ratio := s.ratio
	if s.config.Rules.IgnoreEOSWhole && s.q.ignoreEOS[r] {
		ratio = 1
	}
	return float64(s.clip(s.q.maxNew[r]-s.q.outputs(r))) * ratio
}

// left is the memory that is free, can be evicted and is not reserved, in tokens.
func (s *Scheduler) left() float64 { return float64(s.free+s.tree.evictable) - s.adder.total }

// leftNow is left without outputs to come, in tokens.
func (s *Scheduler) leftNow() float64 { return float64(s.free+s.tree.evictable) - s.adder.now }

// budgets says whether anything is left of them.
func (s *Scheduler) budgets() verdict {
	a := &s.adder
	switch {
	case s.left() <= 0 || s.leftNow() <= 0:
		return noMemory
	case a.input <= 0 || a.chunked && a.chunk <= 0:
		return spent
	}
	return goOn
}

// charge reserves what an admitted request takes.
func (s *Scheduler) charge(extend, fresh int) {
	a := &s.adder
	if s.config.Rules.ChargePages {
		extend = s.pages(int32(extend))
	}
	over := 0
	if s.config.Rules.BatchCountsPage {
		over = int(s.page)
	}
	a.total += float64(extend + fresh + over)
	a.now += float64(extend + over)
	a.input -= extend
	a.chunk -= extend
}

// lookUp finds the cached prefix of a request that is tried.
func (s *Scheduler) lookUp(r int32, known bool) {
	q := &s.q
	q.fill[r] = q.length(r)
	if !known {
		q.prefix[r], q.node[r] = 0, root
		if !s.config.NoPrefixCache {
			q.prefix[r], q.node[r] = s.tree.match(r, q.fill[r]-1)
		}
		q.hits[r] = q.prefix[r]
	}
	q.extend[r] = q.fill[r] - q.prefix[r]
}

// goOnPiece admits the next piece of the request in pieces; it reports false
// where the engine would stop.
func (s *Scheduler) goOnPiece() bool {
	r, q, a, rules := s.piece, &s.q, &s.adder, s.config.Rules
	q.fill[r] = q.length(r)
	limit := s.shorterFirst(r)
	most := a.chunk
	whole := int(q.fill[r] - q.prefix[r])
	if whole > most || limit > 0 && whole > limit {
		s.limits.chunk++
	}
	if rules.PieceByMemory {
		most = min(most, int(s.left()))
		if most < min(whole, a.chunk) {
			s.limits.memory++
		}
		if most <= 0 && rules.PieceAlways {
			most = a.chunk
		}
	}
	if limit > 0 {
		most = min(most, limit)
	}
	if most < 0 {
		return false
	}
	q.extend[r] = int32(min(whole, most))
	a.admitted = append(a.admitted, r)
	if whole > most {
		s.charge(int(q.extend[r]), 0)
		return true
	}
	s.charge(int(q.extend[r]), s.clip(q.maxNew[r]))
	s.piece = none
	return true
}

// shorterFirst is how many tokens of the chunk the request in pieces may take
// under shortest-prefill-first, so that shorter ones get the rest; 0 is all.
func (s *Scheduler) shorterFirst(r int32) int {
	budget := s.adder.chunk
	if s.policy != ShortestPrefill || budget < 2*int(s.page) {
		return 0
	}
	rest, reserved := s.q.fill[r]-s.q.prefix[r], 0
	for _, w := range s.waiting {
		work := s.work(w)
		if work >= rest || reserved+s.pages(work) > budget-int(s.page) {
			break
		}
		reserved += s.pages(work)
	}
	if reserved == 0 {
		return 0
	}
	return (budget - reserved) / int(s.page) * int(s.page)
}

// admit tries to put a waiting request into the batch.
func (s *Scheduler) admit(r int32) verdict {
	q, rules := &s.q, s.config.Rules
	if q.ignoreEOS[r] && s.config.NoPrefixCache {
		return s.admitStepwise(r)
	}
	need := q.maxNew[r]
	if rules.NeedLessOutputs {
		need = max(need-q.outs[r], 0)
	}
	total := float64(int(q.extend[r]) + s.clip(need))
	if rules.NeedCountsPage {
		total += float64(s.page)
	}
	if total >= s.left() {
		return noMemory
	}
	if s.inputFull(r) && !rules.InputUnchunked {
		return spent
	}
	s.tree.lock(q.node[r])
	// The locked prefix can no longer be evicted for it.
	if left := s.left(); total > left || rules.StrictWhenLocked && total == left {
		s.tree.unlock(q.node[r])
		return noMemory
	}
	if s.inputFull(r) || !s.place(r) {
		s.tree.unlock(q.node[r])
		return spent
	}
	q.kv[r], q.held[r] = q.prefix[r], q.prefix[r]
	return s.budgets()
}

// inputFull reports whether max_prefill_tokens keeps a further request out.
func (s *Scheduler) inputFull(r int32) bool {
	a, rules := &s.adder, s.config.Rules
	if len(a.admitted) == 0 || rules.InputUnchunked && a.chunked {
		return false
	}
	input := s.pages(s.q.extend[r])
	full := input > a.input || rules.StrictInput && input == a.input
	if full {
		s.limits.input++
	}
	return full
}

// place takes a request into the batch, cut if the chunk ends; it reports
// false where not even a page of it would fit.
func (s *Scheduler) place(r int32) bool {
	q, a := &s.q, &s.adder
	if input := s.pages(q.extend[r]); !a.chunked || input <= a.chunk {
		a.admitted = append(a.admitted, r)
		s.charge(input, s.clip(q.maxNew[r]))
		return true
	}
	s.limits.chunk++
	if s.piece != none && s.policy == ShortestPrefill {
		return false
	}
	cut, page := a.chunk, int(s.page)
	switch s.config.Rules.Cut {
	case CutLessPage:
		cut -= page - 1
	case CutPages:
		cut = cut / page * page
	case CutEnd:
		end := int(q.prefix[r]) + cut/page*page
		cut = end/page*page - int(q.prefix[r])
	}
	if cut <= 0 {
		return false
	}
	q.extend[r] = int32(cut)
	a.admitted = append(a.admitted, r)
	a.piece = r
	s.charge(cut, 0)
	return true
}
