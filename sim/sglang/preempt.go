package sglang

import (
	"cmp"
	"slices"
)

// preemptFor puts running requests of lower priority back in favour of a
// waiting one, if there are such and their reserve covers what it needs.
func (s *Scheduler) preemptFor(r int32) bool {
	q, a, rules := &s.q, &s.adder, s.config.Rules
	missing := float64(q.extend[r])
	if rules.PreemptByFill {
		missing = float64(q.fill[r] - q.prefix[r])
	}
	missing += float64(s.clip(q.maxNew[r])) - s.left()
	s.byNode = append(s.byNode[:0], s.running...)
	slices.SortStableFunc(s.byNode, func(x, y int32) int {
		return cmp.Or(cmp.Compare(q.priority[x], q.priority[y]), cmp.Compare(q.entry[y], q.entry[x]))
	})
	from := len(a.preempted)
	for _, o := range s.byNode {
		switch {
		case q.state[o] != runs || slices.Contains(a.preempted[:from], o):
			continue
		case int(q.priority[r])-int(q.priority[o]) <= s.config.PreemptThreshold:
			continue // all after it are as important
		}
		a.preempted = append(a.preempted, o)
		missing -= s.reserve(o)
		if missing <= 0 && rules.PreemptStops {
			break
		}
	}
	victims := a.preempted[from:]
	if len(victims) > 0 && missing > 0 {
		s.limits.memory++
	}
	if len(victims) == 0 || missing > 0 {
		a.preempted = a.preempted[:from]
		return false
	}
	// Memory comes back in the order of the batch.
	s.limits.preempted += int64(len(victims))
	kept, gone := s.running[:0], 0
	before := len(s.running)
	for _, o := range s.running {
		if !slices.Contains(victims, o) {
			kept = append(kept, o)
			continue
		}
		if rules.PreemptStops {
			a.total -= s.reserve(o)
		} else {
			a.total -= s.reserve(r)
		}
		gone++
		s.release(o, before-gone)
	}
	s.running = kept
	return true
}
