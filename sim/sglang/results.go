package sglang

import "github.com/llmprof/llmprof/sim"

// read takes the results of a batch of which the first fresh requests were
// prefilled and the others decoded.
func (s *Scheduler) read(batch []int32, fresh int) {
	q, b := &s.q, &s.batch
	for i, r := range batch {
		switch {
		case q.state[r] == finished || q.state[r] == aborted || q.retracted[r]:
			s.free += int(q.leftover[r])
			q.leftover[r] = 0
			b.Outputs = append(b.Outputs, sim.Token{Request: r})
		case i < fresh && q.pieces[r] > 0:
			q.pieces[r]--
		default:
			q.outs[r]++
			outs := q.outputs(r)
			b.Outputs = append(b.Outputs, sim.Token{Request: r, Number: outs})
			if outs >= q.maxNew[r] || outs == q.eosAt[r] || q.gone[r] {
				s.over(r)
				continue
			}
			if i < fresh {
				s.checkpoint(r, q.prefix[r]+q.extend[r])
			}
			if q.steady[r] {
				s.foresee(r)
			}
		}
	}
}
