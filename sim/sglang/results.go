package sglang

// Output is a token that was read.
type Output struct {
	// Request is whose it is.
	Request int32
	// Index counts the outputs of a request from 1; 0 is a wasted token, of a
	// request that had ended or gone back to the queue before it was read.
	Index int32
}

// read takes the results of a batch of which the first fresh requests were
// prefilled and the others decoded.
func (s *Scheduler) read(batch []int32, fresh int) {
	q, b := &s.q, &s.batch
	for i, r := range batch {
		switch {
		case q.state[r] == finished || q.state[r] == aborted || q.retracted[r]:
			s.free += int(q.leftover[r])
			q.leftover[r] = 0
			b.Outputs = append(b.Outputs, Output{Request: r})
		case i < fresh && q.pieces[r] > 0:
			q.pieces[r]--
		default:
			q.outs[r]++
			b.Outputs = append(b.Outputs, Output{Request: r, Index: q.outs[r]})
			switch {
			case q.outs[r] >= q.maxNew[r] || q.outs[r] == q.eosAt[r]:
				s.finish(r)
				b.Finished = append(b.Finished, r)
			case i < fresh:
				s.checkpoint(r, q.prefix[r]+q.extend[r])
			}
		}
	}
}
