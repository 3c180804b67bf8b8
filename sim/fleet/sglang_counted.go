package fleet

import (
	"time"

	"github.com/llmprof/llmprof/sim"
)

// counted is what is known of the requests of a loop that counts them: each has
// a token with every result that counts. Results count from 1 here; the run's
// lists have the one up to which the record of such a request is written, and 0
// for a request that is listed.
type counted struct {
	results int32
	last    int64 // when the last one came
	gaps    longest
	trail   trail
}

// count takes in the tokens of a result that are counted. Those whose token
// before was listed wait for this one for a time of their own.
func (v *sglangServer) count(b *sim.Iteration, now int64) {
	c := &v.counted
	c.results++
	c.trail.result(now)
	tokens := b.SteadyOutputs - v.unwanted(b)
	alike := tokens
	for _, id := range b.Joined {
		i := v.global[id]
		r := v.run.record(i)
		if r.Outcome != Unfinished {
			continue
		}
		gap := now - int64(r.Last)
		r.Gap, r.Last = max(r.Gap, time.Duration(gap)), time.Duration(now)
		v.run.gap(now, gap, 1)
		v.run.lists[i] = c.results
		c.trail.came(i, c.results-1)
		alike--
	}
	gap := now - c.last
	c.gaps.add(c.results, gap)
	c.last = now
	v.run.gap(now, gap, alike)
	v.run.tokens(now, tokens)
	for _, id := range b.Finished {
		i := v.global[id]
		if r := v.run.record(i); r.Outcome == Unfinished {
			v.catchUp(i)
			r.Outputs = int32(v.loop.Outputs(id))
		}
	}
}

// unwanted is how many counted tokens of a result nobody waits for.
func (v *sglangServer) unwanted(b *sim.Iteration) int {
	n := 0
	for _, id := range v.gone { // the loop does not know yet
		if v.loop.Steady(id) {
			n++
		}
	}
	for _, id := range b.Finished {
		if v.run.record(v.global[id]).Outcome != Unfinished {
			n++
		}
	}
	return n
}

// catchUp brings the record of a request that was counted up to the last result
// that counted.
func (v *sglangServer) catchUp(i int32) {
	c, written := &v.counted, v.run.lists[i]
	v.run.lists[i] = 0
	if written == 0 || written == c.results {
		return
	}
	r := v.run.record(i)
	r.Gap = max(r.Gap, time.Duration(c.gaps.since(written+1)))
	r.Last = time.Duration(c.last)
	c.trail.came(i, written)
}
