package fleet

import (
	"math"
	"time"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/workload"
)

// Summaries are the figures of the whole run and of its steady part, field by
// field those of a measured one ([load.Result.Summaries]). A request is good if
// it keeps the targets of its class, or limits where that has none. One whose limits
// are all on quantiles, or that has none, is neither good nor bad and does not count;
// where no other is, goodput is not known. The client sends in time, so TTFT and E2EL count from the schedule as well, and there is
// no send lag. A simulated chunk holds one token.
func (r *Result) Summaries(limits load.SLOs) (whole, steady load.Summary) {
	w := &r.window
	whole = r.summary(load.Whole, r.first, int64(r.Elapsed), limits, &w.whole)
	steady = r.summary(load.Steady, w.from, max(w.to, w.from), limits, &w.steady)
	if r.Aborted != nil {
		return counts(whole), counts(steady)
	}
	return whole, steady
}

// counts are what is left of a summary of a run that was ended early.
func counts(s load.Summary) load.Summary {
	return load.Summary{
		Window: s.Window, From: s.From, To: s.To, Duration: s.Duration,
		Completed: s.Completed, Failed: s.Failed, Cancelled: s.Cancelled,
	}
}

// sample collects what requests say.
type sample struct {
	ttft, tpot, ntpot, e2el, queue []float64 // ms
	completed, failed, cancelled   int
	judged, good                   int
	inputs, outputs, hits          int
}

func newSample() *sample { return &sample{} }

// add takes in a request.
func (s *sample) add(r *Result, i int32, limits load.SLOs) {
	rec, q := &r.Records[i], &r.Load.requests[i]
	if t, ok := rec.Queue(); ok {
		s.queue = append(s.queue, milliseconds(t))
	}
	switch rec.Outcome {
	case Completed:
		s.completed++
	case Unservable, Aborted, TimedOut:
		s.failed++
	case Unfinished:
		s.cancelled++
	}
	targets := load.SLOs(r.Load.limits(i, limits))
	if rec.Outcome != Unfinished && targets.Single() {
		s.judged++
		if rec.Outcome == Completed && rec.keeps(targets) {
			s.good++
		}
	}
	if rec.Outcome != Completed {
		return
	}
	s.inputs, s.outputs, s.hits = s.inputs+q.InputLen, s.outputs+int(rec.Outputs), s.hits+int(rec.Hits)
	ttft, _ := rec.TTFT()
	e2el, _ := rec.E2EL()
	s.ttft, s.e2el = append(s.ttft, milliseconds(ttft)), append(s.e2el, milliseconds(e2el))
	s.ntpot = append(s.ntpot, milliseconds(e2el)/float64(rec.Outputs))
	if tpot, ok := rec.TPOT(); ok {
		s.tpot = append(s.tpot, milliseconds(tpot))
	}
}

// keeps reports whether a completed request keeps the limits on single ones.
func (r *Record) keeps(limits []workload.SLO) bool {
	for _, l := range limits {
		t, ok := time.Duration(0), true
		switch l.Metric {
		case load.TTFT, load.TTFTSched:
			t, ok = r.TTFT()
		case load.TPOT:
			if t, ok = r.TPOT(); !ok {
				continue // one token has none
			}
		case load.NTPOT:
			t, ok = r.E2EL()
			t /= time.Duration(max(r.Outputs, 1))
		case load.E2EL, load.E2ELSched:
			t, ok = r.E2EL()
		case load.ITL, load.ICL:
			continue // pooled, judged over all
		}
		if !ok || l.Quantile == 0 && milliseconds(t) > l.Limit {
			return false
		}
	}
	return true
}

// limits are those of a request: its class's targets, or those of the run.
func (l *Load) limits(i int32, run load.SLOs) []workload.SLO {
	if name := l.requests[i].Class; name != "" {
		for k := range l.schedule.Classes {
			if c := &l.schedule.Classes[k]; c.Name == name && len(c.Targets) > 0 {
				return c.Targets
			}
		}
	}
	return run
}

// judged reports whether any request has limits of its own: one on a quantile
// makes none of them good or bad.
func (l *Load) judged(run load.SLOs) bool {
	for _, c := range l.schedule.Classes {
		if load.SLOs(c.Targets).Single() {
			return true
		}
	}
	return run.Single()
}

// summary describes the window between two times in ns.
func (r *Result) summary(w load.Window, from, to int64, limits load.SLOs, gaps *histogram) load.Summary {
	s := newSample()
	sent, ended := 0, 0
	for i := range r.Records {
		rec := &r.Records[i]
		if rec.Sent < 0 {
			continue
		}
		if rec.Outcome == Completed && (w == load.Whole || int64(rec.Last) >= from && int64(rec.Last) <= to) {
			ended++
		}
		if w == load.Whole || int64(rec.Sent) >= from && int64(rec.Sent) <= to {
			sent++
			s.add(r, int32(i), limits)
		}
	}
	out := load.Summary{Window: w, From: seconds(from), To: seconds(to), Duration: seconds(to - from)}
	out.Concurrency = r.concurrency(from, to, func(int) bool { return true })
	s.into(&out, limits, gaps)
	if out.Duration > 0 {
		streamed := float64(s.outputs)
		if w == load.Steady {
			streamed = float64(r.window.streamed)
		}
		out.SendRate = new(float64(sent) / out.Duration)
		out.RequestThroughput = new(float64(ended) / out.Duration)
		out.OutputThroughput = new(streamed / out.Duration)
		if r.Load.judged(limits) {
			out.Goodput = new(float64(s.good) / out.Duration)
		}
	}
	out.GoodShare = s.goodShare()
	return out
}

// goodShare is the share of the judged requests that were good; nil without any.
func (s *sample) goodShare() *float64 {
	if s.judged == 0 {
		return nil
	}
	return new(float64(s.good) / float64(s.judged))
}

// into writes counts, figures and verdicts of a sample.
func (s *sample) into(out *load.Summary, limits load.SLOs, gaps *histogram) {
	out.Completed, out.Failed, out.Cancelled = s.completed, s.failed, s.cancelled
	out.InputTokens, out.OutputTokens, out.CachedTokens = new(s.inputs), new(s.outputs), new(s.hits)
	out.TTFT, out.TPOT, out.NTPOT, out.E2EL = load.NewFigure(s.ttft), load.NewFigure(s.tpot), load.NewFigure(s.ntpot), load.NewFigure(s.e2el)
	out.TTFTSched, out.E2ELSched = out.TTFT, out.E2EL
	if gaps != nil {
		out.ITL = gaps.figure()
		out.ICL = out.ITL
	}
	samples := map[load.Metric][]float64{load.TTFT: s.ttft, load.TPOT: s.tpot, load.NTPOT: s.ntpot, load.E2EL: s.e2el}
	for _, l := range limits {
		if l.Quantile == 0 {
			continue
		}
		v := load.Verdict{SLO: l}
		switch sorted := samples[l.Metric]; {
		case len(sorted) > 0:
			v.Found = new(stat.QuantileSorted(sorted, l.Quantile))
		case gaps != nil && gaps.n > 0 && (l.Metric == load.ITL || l.Metric == load.ICL):
			v.Found = new(gaps.quantile(l.Quantile) / 1e6)
		}
		v.Met = v.Found != nil && *v.Found <= l.Limit
		out.SLOs = append(out.SLOs, v)
	}
}

// figure describes the histogram in milliseconds.
func (h *histogram) figure() load.Figure {
	if h.n == 0 {
		return load.Figure{}
	}
	return load.FigureOf(int(h.n), h.mean()/1e6, h.deviation()/1e6, float64(h.max)/1e6, func(share float64) float64 { return h.quantile(share) / 1e6 })
}

// left is when a request was over, in ns: with its last token, when it was
// refused or given up, or at the end of the run.
func (r *Result) left(rec *Record) int64 {
	if rec.Ended >= 0 {
		return int64(rec.Ended)
	}
	return int64(r.Elapsed)
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func milliseconds(t time.Duration) float64 { return float64(t) / 1e6 }

// Little is Little's law: the mean number of requests under way is their rate
// times their mean time.
type Little struct {
	// Open is the mean number of open requests as the run counted it, RateTime
	// the rate times the mean time of the records, both from the first send to
	// the end.
	Open, RateTime float64
	// Error is how far they are apart, as a share of the former.
	Error float64
}

// Little holds the run against Little's law, which is an identity here: an error
// that is not rounding is a fault of the simulation.
func (r *Result) Little() Little {
	total := 0.0
	for i := range r.Records {
		if rec := &r.Records[i]; rec.Sent >= 0 {
			total += float64(r.left(rec) - int64(rec.Sent))
		}
	}
	span := float64(max(int64(r.Elapsed)-r.first, 1))
	l := Little{Open: r.area / span, RateTime: total / span}
	if l.Open > 0 {
		l.Error = math.Abs(l.RateTime-l.Open) / l.Open
	}
	return l
}
