package fleet

import (
	"time"
)

// Result is what became of a load.
type Result struct {
	// Load is what was served.
	Load *Load
	// Records are those of its requests, in the same order.
	Records []Record
	// Replicas are what served them.
	Replicas []ReplicaResult
	// Elapsed is when the last request ended.
	Elapsed time.Duration
	// Aborted says why the run was ended early; nil for one that came to its
	// end. A run that did not has counts, and no figures.
	Aborted *Infeasible
	// Open is the number of requests that were sent and had not ended, from the first
	// send on.
	Open Level

	replicas     []Replica
	window       window
	first, final int64
	area         float64 // of open requests over time, in request·ns
}

// result closes the books.
func (r *run) result() *Result {
	end := r.over
	out := &Result{Load: r.load, Records: r.records, Elapsed: time.Duration(end), first: r.first, final: r.final}
	for _, s := range r.servers {
		out.Replicas = append(out.Replicas, s.close(r.first, end))
	}
	return r.closed(out)
}

// closed fills in what holds for all replicas together.
func (r *run) closed(out *Result) *Result {
	if r.verdict != nil {
		out.Aborted = r.verdict.found
	}
	out.replicas = r.config.Replicas
	for k := range out.Replicas {
		out.Replicas[k].Role = out.replicas[k].Role
	}
	out.Open = r.open.result(r.first, r.over)
	out.area = r.open.area
	r.window.close(r.first, r.final)
	out.window = r.window
	return out
}
