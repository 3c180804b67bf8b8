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
		for _, id := range s.due {
			s.putOut(id)
		}
		if s.async {
			s.due, s.launched = s.launched, s.due
			s.inFlight = len(s.plan.Scheduled) > 0
		}
		if len(o.Finished) > 0 {
			s.running = slices.DeleteFunc(s.running, func(id int32) bool { return s.requests.state[id] == Finished })
		}
	}
	o.Free = int(s.kv.free)
	return o
}

// putOut adds a token to a request. One that has ended meanwhile ran in vain.
func (s *Scheduler) putOut(id int32) {
	r := &s.requests
	if r.state[id] == Finished {
		return
	}
	r.total[id]++
	if s.async {
		r.inflight[id]--
		if known := r.computed[id] - r.inflight[id]; r.state[id] == Running && known >= r.full[id] {
			s.register(id, known)
		}
	}
	s.outcome.Tokens = append(s.outcome.Tokens, Token{id, r.total[id] - r.prompt[id]})
	if r.total[id] < r.end[id] {
		return
	}
	if r.state[id] == Running {
		s.kv.release(r.table[id])
	} else {
		s.waiting.remove(id) // it was preempted while its last token was on its way
	}
	r.state[id] = Finished
	s.totals.Finished++
	s.outcome.Finished = append(s.outcome.Finished, id)
}
