package fleet

import "slices"

// trail knows when each token of a request came, for the few that do not
// complete: their tokens are no output, as those of a failed request are none in
// a measured run.
type trail struct {
	on    bool
	times []int64           // of the results of a replica, in ns
	runs  map[int32][]run32 // by request: the results with a token of it
}

// run32 is from one result to another, both included.
type run32 struct{ from, to int32 }

// result notes the time of the next result.
func (t *trail) result(now int64) {
	if t.on {
		t.times = append(t.times, now)
	}
}

// came notes that a request got a token with each result from one to the last.
func (t *trail) came(i int32, from int32) {
	if !t.on {
		return
	}
	to := int32(len(t.times)) - 1
	if t.runs == nil {
		t.runs = map[int32][]run32{}
	}
	runs := t.runs[i]
	if last := len(runs) - 1; last >= 0 && runs[last].to >= from-1 {
		runs[last].to = max(runs[last].to, to)
		return
	}
	if from <= to {
		t.runs[i] = append(runs, run32{from, to})
	}
}

// drop forgets a request of trails. If it did not complete, its tokens are no
// output, and neither they nor the times between them count.
func (w *window) drop(i int32, completed bool, trails ...*trail) {
	if !completed {
		var times []int64
		for _, t := range trails {
			times = t.of(times, i)
		}
		slices.Sort(times)
		w.forget(times)
	}
	for _, t := range trails {
		delete(t.runs, i)
	}
}

// of appends the times at which the tokens of a request came.
func (t *trail) of(times []int64, i int32) []int64 {
	for _, s := range t.runs[i] {
		times = append(times, t.times[s.from:s.to+1]...)
	}
	return times
}

// forget takes the tokens of one request out, which came at these times.
func (w *window) forget(times []int64) {
	for k, at := range times {
		w.tokens(at, -1)
		if k > 0 {
			w.ungap(at, at-times[k-1])
		}
	}
}
