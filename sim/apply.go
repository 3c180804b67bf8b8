package sim

import "slices"

// Apply takes in the results of a step. Without async scheduling it is the step
// that was just planned; with it the one before, since a pass is made while the
// step before still runs.
func (s *Scheduler) Apply() *Outcome {
	o := &s.outcome
	o.Tokens, o.Finished = o.Tokens[:0], o.Finished[:0]
	if s.open {
		s.open = false
		done := s.plan.Scheduled
		if s.ahead > 0 {
			done = s.flying
		}
		o.Tokens = s.putOut(done, o.Tokens)
	}
	if len(o.Finished) > 0 {
		s.running = slices.DeleteFunc(s.running, func(id int32) bool { return s.requests.state[id] == Finished })
	}
	o.Free = int(s.kv.free)
	return o
}

// putOut gives a token to each request that a step computed to its end, and
// appends it to tokens.
func (s *Scheduler) putOut(done []Share, tokens []Token) []Token {
	r := &s.requests
	for i := range done {
		if !done[i].Samples {
			continue
		}
		id := done[i].Request
		p := &r.progress[id]
		if s.ahead > 0 && !s.arrived(id, p) {
			continue
		}
		p.total++
		tokens = append(tokens, Token{id, p.total - p.prompt})
		if p.total >= p.end {
			s.finish(id)
		}
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
	if r.state[id] == Running {
		s.kv.release(r.table[id])
	} else {
		s.waiting.remove(id) // it was preempted while its last token was on its way
	}
	r.state[id] = Finished
	s.totals.Finished++
	s.outcome.Finished = append(s.outcome.Finished, id)
}
