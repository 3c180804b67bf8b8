package sim

import "slices"

// Apply takes in the results of a step. Without async scheduling it is the step
// that was just planned; with it the one before, since a pass is made while the
// step before still runs.
func (s *Scheduler) Apply() *Outcome {
	o := &s.outcome
	o.Tokens, o.Finished, o.Steady = o.Tokens[:0], o.Finished[:0], 0
	if s.open {
		s.open = false
		done := s.plan.Scheduled
		if s.ahead > 0 {
			done = s.flying
		}
		o.Steady = int(s.steady.count) + len(s.steady.last)
		listed := s.steady.count == 0
		o.Tokens = s.putOut(done, o.Tokens)
		s.depart(listed)
	}
	o.Free = int(s.kv.free)
	return o
}

// depart takes those who ended out of the lists.
func (s *Scheduler) depart(listed bool) {
	t := &s.steady
	t.last = t.last[:0]
	switch {
	case !listed:
		for _, id := range s.outcome.Finished {
			s.running = t.without(s.running, id)
			t.others = t.without(t.others, id)
		}
	case len(s.outcome.Finished) > 0:
		s.running = slices.DeleteFunc(s.running, func(id int32) bool { return s.requests.state[id] == Finished })
	}
	if t.count == 0 {
		return
	}
	if listed { // the first that are steady
		t.others = t.others[:0]
		for _, id := range s.running {
			if !t.inside[id] {
				t.others = append(t.others, id)
			}
		}
		return
	}
	t.others = slices.DeleteFunc(t.others, func(id int32) bool { return t.inside[id] })
}

// putOut gives a token to each request that a step computed to its end, and
// appends it to tokens. Those of steady requests are counted already, but the
// ones that end with them end in their order.
func (s *Scheduler) putOut(done []Share, tokens []Token) []Token {
	r, last := &s.requests, s.steady.last
	joins := s.joins()
	for i := range done {
		id := done[i].Request
		for len(last) > 0 && s.steady.place[last[0]] < s.steady.place[id] {
			s.endSteady(last[0])
			last = last[1:]
		}
		if !done[i].Samples || s.steady.has(id) {
			continue
		}
		p := &r.progress[id]
		if s.ahead > 0 && !s.arrived(id, p) {
			continue
		}
		p.total++
		tokens = append(tokens, Token{id, p.total - p.prompt})
		switch {
		case p.total >= p.end:
			s.finish(id)
		case joins && r.state[id] == Running:
			s.join(id, p)
		}
	}
	for _, id := range last {
		s.endSteady(id)
	}
	return tokens
}

// arrived takes a token off those in flight; it is of no use if a stop token
// has ended the request meanwhile. A block may become full only now that the
// token is known; it is cached before a request that ends gives it back.
func (s *Scheduler) arrived(id int32, p *progress) bool {
	state := s.requests.state[id]
	p.inflight--
	if known := p.computed - p.inflight; known >= p.full && state == Running {
		s.register(id, known)
	}
	return state != Finished
}

// finish ends a request.
func (s *Scheduler) finish(id int32) {
	r := &s.requests
	switch {
	case r.state[id] == Running && r.flags[id]&wantsHold != 0:
		r.flags[id] |= holding
		s.remote.held++
	case r.state[id] == Running:
		s.release(id, false)
	default:
		r.state[id] = Finished
		s.waiting.left() // it was preempted while its last token was on its way
	}
	r.state[id] = Finished
	s.totals.Finished++
	s.outcome.Finished = append(s.outcome.Finished, id)
}
