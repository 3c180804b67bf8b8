package sglang

import (
	"cmp"
	"slices"
)

// leave drops requests from the running batch that have ended, or will end
// with a result in flight, and reports whether any of the latter were there.
func (s *Scheduler) leave() (ending bool) {
	if s.steady.on {
		return s.leaveSteady()
	}
	kept := s.running[:0]
	for _, r := range s.running {
		switch {
		case s.q.state[r] != runs:
		case s.endsInFlight(r):
			ending = true
		default:
			kept = append(kept, r)
		}
	}
	s.running = kept
	if ending {
		s.full = false
	}
	return ending
}

// endsInFlight reports whether the result in flight is a request's last by its
// length.
func (s *Scheduler) endsInFlight(r int32) bool {
	return s.config.Rules.SkipFinishing && s.config.Overlap &&
		s.q.outputs(r)+1 >= s.q.maxNew[r] && s.q.flying[r]
}

// tryDecode makes a decode batch of the running requests, retracting some if
// they do not fit, and reports whether there is one.
func (s *Scheduler) tryDecode() (bool, error) {
	if len(s.running) == 0 {
		return false, nil
	}
	before := len(s.running)
	ending := s.leave()
	if len(s.running) == 0 {
		s.full = false
		return false, nil
	}
	if s.steady.on {
		if s.roomy(1) {
			s.decodeSteady(before)
			return true, nil
		}
		s.settle()
	}
	fits := s.decodeFits(s.running)
	if !fits {
		s.limits.memory++
	}
	switch {
	case fits:
		s.ratio = max(s.ratio-s.decay, s.least)
	case ending:
		s.full = false
		return false, nil
	default:
		if err := s.retract(); err != nil {
			return false, err
		}
	}
	if len(s.running) < before {
		s.full = false
	}
	if len(s.running) == 0 {
		return false, nil
	}
	if !s.takeDecode() {
		return false, s.stop("a decode batch does not fit in the pool")
	}
	s.batch.Kind = Decode
	s.schedule(s.running)
	return true, nil
}

// schedule adds decode rows to the batch.
func (s *Scheduler) schedule(rows []int32) {
	b := &s.batch
	for _, r := range rows {
		b.Requests = append(b.Requests, r)
		b.Tokens = append(b.Tokens, 1)
	}
}

// opensPage reports whether the next token of a request needs a page.
func (s *Scheduler) opensPage(r int32) bool {
	n := s.q.slots(r)
	if s.config.Rules.PagesByLength {
		n = s.q.length(r) - 1
		if s.config.Rules.OverlapLength && s.config.Overlap {
			n++
		}
	}
	return n%s.page == 0
}

// decodeFits evicts for the next token of every row and reports whether all
// have a slot.
func (s *Scheduler) decodeFits(rows []int32) bool {
	n := 0
	for _, r := range rows {
		if s.opensPage(r) {
			n++
		}
	}
	n *= int(s.page)
	s.room(n)
	return s.free >= n
}

// takeDecode takes the slots of the next tokens of the running requests.
func (s *Scheduler) takeDecode() bool {
	q := &s.q
	slots := 0
	for _, r := range s.running {
		slots += s.pages(q.kv[r]+1) - s.pages(q.kv[r])
	}
	s.room(len(s.running) * int(s.page))
	if !s.take(slots) {
		return false
	}
	for _, r := range s.running {
		s.batch.Context += int64(q.kv[r])
		q.kv[r]++
	}
	return true
}

// retract puts running requests back until the others fit: those with the
// fewest outputs first, then the longest prompts, then the later in the batch.
func (s *Scheduler) retract() error {
	q, rules := &s.q, s.config.Rules
	s.order = append(s.order[:0], s.running...)
	order := s.order
	slices.SortStableFunc(order, func(a, b int32) int {
		byPriority := 0
		if s.config.RetractByPriority {
			byPriority = cmp.Compare(q.priority[b], q.priority[a])
		}
		return cmp.Or(byPriority, cmp.Compare(q.outs[b], q.outs[a]), cmp.Compare(q.prompt[a], q.prompt[b]))
	})
	b, from := &s.batch, len(s.batch.Retracted)
	for first := true; first || !s.stayFit(order); first = false {
		if len(order) == 1 {
			if !rules.AbortLast && s.free == 0 {
				return s.stop("not even the last running request fits in the pool")
			}
			break
		}
		r := order[len(order)-1]
		order = order[:len(order)-1]
		b.Retracted = append(b.Retracted, r)
		s.limits.retracted++
		s.release(r, len(order))
	}
	if len(order) == 1 && rules.AbortLast && !s.decodeFits(order) {
		s.release(order[0], 0)
		s.abort(order[0])
		order = order[:0]
	}
	s.running = append(s.running[:0], order...)
	s.ratio = s.ratioOf(order)
	for _, r := range b.Retracted[from:] {
		s.enqueue(r)
	}
	return nil
}

// stayFit reports whether those who stay have room enough.
func (s *Scheduler) stayFit(rows []int32) bool {
	if s.config.Rules.RetractAhead {
		return s.free >= len(rows)*stepsAhead
	}
	return s.decodeFits(rows)
}

// ratioOf is the ratio after a retraction, from those who stay.
func (s *Scheduler) ratioOf(rows []int32) float64 {
	outs, most := stepsAhead*len(rows), 0
	for _, r := range rows {
		outs += int(s.q.outs[r])
		most += int(s.q.maxNew[r])
	}
	if s.config.Rules.RatioPlusOne {
		most++
	}
	return min(1, float64(outs)/float64(most))
}
