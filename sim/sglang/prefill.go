package sglang

// tryPrefill builds a prefill batch of the request in pieces and of waiting
// ones, and reports whether there is one. It is an error where the engine
// would stop.
func (s *Scheduler) tryPrefill() (bool, error) {
	rules := s.config.Rules
	if s.config.Priority || rules.EmptyClearsFlag && len(s.running) == 0 {
		s.full = false
	}
	if (s.full || len(s.waiting) == 0) && s.piece == none {
		return false, nil
	}
	if s.seats() <= 0 && s.seatsStop() {
		s.limits.seats++
		s.full = true
		return false, nil
	}
	s.sortQueue()
	rows := 0
	if s.config.Mixed && s.config.Chunk > 0 {
		rows = len(s.running)
	}
	s.openBatch(rows)
	if len(s.running) > 0 {
		s.limits.beside++
	}
	a := &s.adder
	if s.piece != none && !s.goOnPiece() {
		return false, s.stop("running rows leave no token of the chunk for the request in pieces")
	}
	old := len(a.admitted)
	s.admitQueue()
	s.queueReturns(old)
	if len(a.admitted) == 0 {
		return false, nil
	}
	if a.piece != none {
		s.piece = a.piece
	}
	if s.piece != none {
		s.q.pieces[s.piece]++
	}
	if err := s.extendBatch(); err != nil {
		return false, err
	}
	return true, s.mix()
}

// seats is how many running requests may still be added. It is taken after
// victims left, so it counts those who run now.
func (s *Scheduler) seats() int {
	n := s.config.Seats - len(s.running)
	if !s.config.Rules.PieceHoldsSeat || !s.holdsPiece {
		return n
	}
	rows := s.config.Seats - 1
	for _, r := range s.running {
		if s.q.state[r] == runs {
			rows--
		}
	}
	return min(n, rows)
}

// seatsStop reports whether a pass without a free seat ends at once.
func (s *Scheduler) seatsStop() bool {
	if s.config.Priority {
		return false
	}
	switch s.config.Rules.Seats {
	case SeatsStopNew:
		return s.piece == none
	case SeatsStopPieces:
		return s.piece != none
	}
	return true
}

// admitQueue goes down the queue until a request is refused.
func (s *Scheduler) admitQueue() {
	a, rules := &s.adder, s.config.Rules
	known := rules.MatchLessOne && s.active().cacheAware()
	for _, r := range s.waiting {
		if rules.SpentStops && s.budgets() == spent {
			s.limits.verdict(spent, a)
			return
		}
		if len(a.admitted) >= s.seats() {
			s.limits.seats++
			s.full = true
		}
		if s.full && (!s.config.Priority || !s.preemptFor(r)) {
			return
		}
		s.lookUp(r, known)
		v := s.admit(r)
		s.limits.verdict(v, a)
		switch v {
		case noMemory:
			s.full = !rules.EmptyClearsFlag || len(a.admitted) > 0 || len(s.running) > 0
			return
		case spent:
			return
		}
	}
}

// queueReturns takes the admitted requests off the queue, all but the first
// old ones of the batch, and puts victims at its end.
func (s *Scheduler) queueReturns(old int) {
	a := &s.adder
	for _, r := range a.admitted[old:] {
		s.queued -= int64(s.q.prompt[r])
	}
	s.waiting = s.waiting[len(a.admitted)-old:]
	for _, r := range a.preempted {
		if len(a.admitted) == 0 && !s.config.Rules.PreemptedReturn {
			s.abort(r)
			continue
		}
		s.batch.Retracted = append(s.batch.Retracted, r)
		s.enqueue(r)
	}
}

// abort ends a request that the engine gives up.
func (s *Scheduler) abort(r int32) {
	s.q.state[r] = aborted
	s.open--
	s.batch.Aborted = append(s.batch.Aborted, r)
}

// extendBatch takes the slots of the batch.
func (s *Scheduler) extendBatch() error {
	q, b := &s.q, &s.batch
	total, slots := 0, 0
	for _, r := range s.adder.admitted {
		total += int(q.extend[r])
		slots += s.pages(q.prefix[r]+q.extend[r]) - s.pages(q.prefix[r])
	}
	if s.page > 1 {
		total += len(s.adder.admitted) * int(s.page)
	}
	s.room(total)
	if !s.take(slots) {
		return s.stop("a prefill batch does not fit in the pool")
	}
	b.Kind = Prefill
	for i, r := range s.adder.admitted {
		if !s.config.NoPrefixCache && (i > 0 || !s.holdsPiece) {
			b.Queried, b.Hit = b.Queried+int(q.fill[r]), b.Hit+int(q.prefix[r])
			s.limits.hit += int64(q.prefix[r])
		}
		q.kv[r] = q.prefix[r] + q.extend[r]
		q.state[r] = runs
		q.retracted[r] = false
		b.Requests = append(b.Requests, r)
		b.Tokens = append(b.Tokens, q.extend[r])
		b.Cached = append(b.Cached, q.prefix[r])
	}
	b.fresh = len(b.Requests)
	return nil
}

// mix lets the running requests decode in the prefill batch, behind it.
func (s *Scheduler) mix() error {
	if !s.config.Mixed || s.config.Chunk <= 0 || len(s.running) == 0 {
		return nil
	}
	s.settle()
	s.leave()
	if len(s.running) > 0 {
		if s.config.Rules.MixedNeedsRoom && !s.decodeFits(s.running) {
			return nil
		}
		if !s.takeDecode() {
			return s.stop("the decode rows of a mixed batch do not fit in the pool")
		}
		for _, r := range s.running {
			s.q.fill[r] = s.q.length(r)
		}
		s.batch.Kind = Mixed
		s.schedule(s.running)
	}
	s.running, s.adopted = s.running[:0], 0
	return nil
}
