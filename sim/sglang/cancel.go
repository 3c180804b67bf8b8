package sglang

import "slices"

// Cancel ends a request whose client has gone, as the engine's abort does: one
// that waits leaves the queue at once, one that runs computes its next token,
// or the rest of its prompt, and ends with it, so that what it computed stays in
// the cache. It reports whether there was anything to end.
func (s *Scheduler) Cancel(id int32) bool {
	if id < 0 || int(id) >= len(s.q.state) {
		return false
	}
	switch s.q.state[id] {
	case waits:
		s.dequeue(id)
		s.q.state[id] = aborted
		s.open--
		s.queued -= int64(s.q.prompt[id])
	case runs:
		s.q.gone[id] = true
		if s.q.steady[id] {
			s.steady.endAt(s.q.reads+1, &s.q, id)
		}
	default:
		return false
	}
	return true
}

// dequeue takes a request out of the queue. Those who leave are mostly the oldest,
// which stand in front: the shorter side moves.
func (s *Scheduler) dequeue(id int32) {
	i := slices.Index(s.waiting, id)
	if i > len(s.waiting)/2 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return
	}
	copy(s.waiting[1:i+1], s.waiting[:i])
	s.waiting = s.waiting[1:]
}

// Running counts the requests that run, in pieces too.
func (s *Scheduler) Running() int { return s.open - len(s.waiting) }

// Waiting counts the requests in the queue.
func (s *Scheduler) Waiting() int { return len(s.waiting) }

// Outputs is the number of tokens that a request has and that were read.
func (s *Scheduler) Outputs(id int32) int { return int(s.q.outputs(id)) }

// Length is the number of tokens of a request: its prompt and its outputs.
func (s *Scheduler) Length(id int32) int { return int(s.q.length(id)) }

// Used is what requests hold of the pool, in tokens; whole pages.
func (s *Scheduler) Used() int { return s.size - s.free - s.tree.evictable }

// Patience is after how many iterations in a row that computed and read nothing
// none will do more, if nothing arrives and nobody leaves.
func (s *Scheduler) Patience() int {
	n := 2 + s.config.DecodeInterval
	if s.policy == Random {
		n += 20 * len(s.waiting) // another head may be tried
	}
	return n
}
