package fleet

import (
	"slices"

	"github.com/llmprof/llmprof/load"
)

// ClassSummary is the whole run of one class of requests.
type ClassSummary struct {
	// Name is the class's, Requests their number.
	Name     string
	Requests int
	// Summary counts the class's requests over the time of the whole run. Its
	// verdicts are on the class's own targets, or on the limits of the run where
	// it has none; those on inter-token times have nothing found.
	Summary load.Summary
	// Queue is the time of a request in the queue, in milliseconds.
	Queue load.Figure
}

// Classes are the figures of each class of the load. Inter-token times are not
// known by class.
func (r *Result) Classes(limits load.SLOs) []ClassSummary {
	var all []ClassSummary
	for _, c := range r.Load.schedule.Classes {
		targets := limits
		if len(c.Targets) > 0 {
			targets = c.Targets
		}
		out := r.class(c.Name, targets)
		if r.Aborted != nil {
			out.Summary, out.Queue = counts(out.Summary), load.Figure{}
		}
		all = append(all, out)
	}
	return all
}

// class describes the requests of a class, held against its targets.
func (r *Result) class(name string, targets load.SLOs) ClassSummary {
	s := newSample()
	out := ClassSummary{Name: name}
	mine := func(i int) bool { return r.Load.requests[i].Class == name }
	sent := 0
	for i := range r.Records {
		if !mine(i) {
			continue
		}
		out.Requests++
		if r.Records[i].Sent >= 0 {
			sent++
			s.add(r, int32(i), targets)
		}
	}
	out.Queue = load.NewFigure(s.queue)
	w := &out.Summary
	*w = load.Summary{Window: load.Whole, From: seconds(r.first), To: r.Elapsed.Seconds(), Duration: r.Elapsed.Seconds() - seconds(r.first)}
	w.Concurrency = r.concurrency(r.first, int64(r.Elapsed), mine)
	s.into(w, targets, nil)
	if w.Duration > 0 {
		w.SendRate = new(float64(sent) / w.Duration)
		w.RequestThroughput = new(float64(s.completed) / w.Duration)
		w.OutputThroughput = new(float64(s.outputs) / w.Duration)
		if targets.Single() {
			w.Goodput = new(float64(s.good) / w.Duration)
		}
	}
	w.GoodShare = s.goodShare()
	return out
}

// concurrency is the number of open requests between two times in ns, of those
// that count. What is open for no time does not count for the most.
func (r *Result) concurrency(from, to int64, counts func(i int) bool) load.Concurrency {
	var begins, ends []int64
	area := 0.0
	for i := range r.Records {
		rec := &r.Records[i]
		if rec.Sent < 0 || !counts(i) {
			continue
		}
		if begin, end := max(int64(rec.Sent), from), min(r.left(rec), to); end > begin {
			area += float64(end - begin)
			begins, ends = append(begins, begin), append(ends, end)
		}
	}
	slices.Sort(begins)
	slices.Sort(ends)
	var c load.Concurrency
	ended := 0
	for open, at := range begins {
		for ends[ended] <= at {
			ended++
		}
		c.Max = max(c.Max, open+1-ended)
	}
	if to > from {
		c.Mean = area / float64(to-from)
	}
	return c
}
