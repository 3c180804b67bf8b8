package sglang

import (
	"cmp"
	"slices"
)

// decodeState is what a request will still take and what it gives back at its
// end.
type decodeState struct {
	left float64 // tokens to come
	held int     // tokens of prompt and outputs
}

// admitStepwise tries a request that ignores EOS where no prefix is cached: it
// steps from the end of one request to that of the next and asks whether the
// tokens of all of them fit until then.
func (s *Scheduler) admitStepwise(r int32) verdict {
	q, a, rules := &s.q, &s.adder, s.config.Rules
	paged := s.pages(q.extend[r])
	if rules.StepwiseExtraPage {
		paged += int(s.page)
	}
	if rules.StepwiseByPage && float64(paged) > min(s.leftNow(), s.left()) {
		return noMemory
	}
	s.addStates(r)
	if !rules.StepwiseByPage {
		paged = int(q.prompt[r])
	}
	if !s.stepsFit(s.leftNow() - float64(paged)) {
		return noMemory
	}
	if extend := int(q.extend[r]); !a.chunked || extend <= a.chunk {
		a.admitted = append(a.admitted, r)
		s.charge(extend, s.clip(q.maxNew[r]))
	} else {
		s.limits.chunk++
		if a.chunk <= 0 {
			return spent
		}
		q.extend[r] = int32(a.chunk)
		a.admitted = append(a.admitted, r)
		a.piece = r
		s.charge(a.chunk, 0)
	}
	q.kv[r], q.held[r] = 0, 0
	return s.budgets()
}

// addStates adds a request to those that the walk looks at, at the first time
// with all that run or are admitted.
func (s *Scheduler) addStates(r int32) {
	a := &s.adder
	if a.hasSteps {
		if d, ok := s.decodeState(r); ok {
			// The engine never puts one behind the last that it compared.
			at := 0
			for i := range a.steps {
				at = i
				if d.left <= a.steps[i].left {
					break
				}
			}
			a.steps = slices.Insert(a.steps, at, d)
		}
		return
	}
	a.hasSteps = true
	add := func(o int32) {
		if d, ok := s.decodeState(o); ok {
			a.steps = append(a.steps, d)
		}
	}
	add(r)
	for _, o := range s.running {
		add(o)
	}
	for _, o := range a.admitted {
		add(o)
	}
	slices.SortStableFunc(a.steps, func(x, y decodeState) int { return cmp.Compare(x.left, y.left) })
}

// decodeState is that of a request, or none if it has nothing to come.
func (s *Scheduler) decodeState(r int32) (decodeState, bool) {
	ratio := s.ratio
	if s.q.ignoreEOS[r] {
		ratio = 1
	}
	left := float64(s.q.maxNew[r])*ratio - float64(s.q.outputs(r))
	return decodeState{left: left, held: int(s.q.length(r))}, left > 0
}

// stepsFit walks from end to end with so many tokens left.
func (s *Scheduler) stepsFit(left float64) bool {
	steps, freed := s.adder.steps, 0
	for i, d := range steps {
		rows := float64(len(steps) - i)
		least := rows // one token in reserve for each
		until := d.left
		if !s.config.Rules.StepwiseByPage {
			least = 0
			if i+1 < len(steps) {
				until = steps[i+1].left
			}
		}
		if left+float64(freed)-until*rows <= least {
			return false
		}
		freed += d.held
	}
	return true
}
