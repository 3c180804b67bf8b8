package fleet

import "github.com/llmprof/llmprof/load"

// Waterfall splits the time to the first token of the requests that completed;
// all parts of a request add up to it.
type Waterfall struct {
	// Queue is the time in the queues of engines, Host the host's before a
	// request's steps and between them, Own what the steps up to the first token
	// would have taken for the prompt alone, and Others the rest: the work of
	// others in these steps, and steps that computed none of it.
	Queue, Host, Own, Others load.Figure
	// Transfer is the KV's way from one replica to another; empty where replicas
	// have no roles.
	Transfer load.Figure
}

// Waterfall splits TTFT.
func (r *Result) Waterfall() Waterfall {
	if r.Aborted != nil {
		return Waterfall{}
	}
	var queue, host, own, others, transfer []float64
	for i := range r.Records {
		rec := &r.Records[i]
		if rec.Outcome != Completed {
			continue
		}
		t, _ := rec.TTFT()
		if rec.Loaded >= 0 {
			transfer = append(transfer, milliseconds(rec.Moved))
		}
		queue, host = append(queue, milliseconds(rec.Waited)), append(host, milliseconds(rec.Host))
		own = append(own, milliseconds(rec.Own))
		others = append(others, milliseconds(t-rec.Waited-rec.Host-rec.Own-rec.Moved))
	}
	return Waterfall{load.NewFigure(queue), load.NewFigure(host), load.NewFigure(own), load.NewFigure(others), load.NewFigure(transfer)}
}
