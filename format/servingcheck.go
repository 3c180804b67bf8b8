package format

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// minP99 is the number of values from which a p99 is computed.
const minP99 = 100

// NewDistribution describes values in milliseconds, which it sorts; nil for
// none.
func NewDistribution(ms []float64, over Over, origin string) *Distribution {
	if len(ms) == 0 {
		return nil
	}
	slices.Sort(ms)
	at := func(q float64) *float64 { return new(stat.QuantileSorted(ms, q)) }
	d := &Distribution{
		N: new(len(ms)), Mean: new(stat.Mean(ms)), Std: new(stat.StdDev(ms)), Min: at(0), P50: at(0.5), P90: at(0.9), P95: at(0.95), Max: at(1),
		Over: over, Origin: origin,
	}
	if len(ms) >= minP99 {
		d.P99 = at(0.99)
	}
	return d
}

// Summarize computes the figures of a run from its requests, for files that
// hold nothing else. Where every request was sent at the very time at which it
// was due, nobody recorded the latter: figures that count from there are nil.
func Summarize(points []profile.Point) Serving {
	var s Serving
	var ttft, tpot, ntpot, icl, e2el, lag, ttftDue, e2elDue []float64
	first, last := math.Inf(1), math.Inf(-1)
	input, output, cached, done, late, allGaps := 0, 0, 0, 0, false, true
	var open []edge
	for i := range points {
		r := points[i].Request
		if points[i].Kind != profile.KindRequest || r == nil {
			continue
		}
		done++
		first, last = min(first, r.Sent), max(last, r.Last)
		open = append(open, edge{r.Sent, 1}, edge{r.Last, -1})
		input, output, cached = input+r.InputLen, output+r.OutputLen, cached+r.CachedLen
		ttft, e2el = append(ttft, 1e3*(r.First-r.Sent)), append(e2el, 1e3*(r.Last-r.Sent))
		ttftDue, e2elDue = append(ttftDue, 1e3*(r.First-r.Scheduled)), append(e2elDue, 1e3*(r.Last-r.Scheduled))
		lag = append(lag, 1e3*(r.Sent-r.Scheduled))
		late = late || r.Sent != r.Scheduled
		if r.OutputLen > 1 {
			tpot = append(tpot, 1e3*(r.Last-r.First)/float64(r.OutputLen-1))
		}
		if r.OutputLen > 0 {
			ntpot = append(ntpot, 1e3*(r.Last-r.Sent)/float64(r.OutputLen))
		}
		_, gaps := KeptRun(&points[i])
		allGaps = allGaps && gaps != nil
		for _, gap := range gaps {
			icl = append(icl, 1e3*gap)
		}
	}
	if done == 0 {
		return s
	}
	const origin = "computed from the requests"
	s.Completed, s.InputTokens, s.OutputTokens = &done, &input, &output
	if cached > 0 {
		s.CachedTokens = &cached
	}
	s.TTFT, s.E2EL = NewDistribution(ttft, OverRequests, origin), NewDistribution(e2el, OverRequests, origin)
	s.TPOT, s.NTPOT = NewDistribution(tpot, OverRequests, origin), NewDistribution(ntpot, OverRequests, origin)
	if allGaps {
		s.ICL = NewDistribution(icl, OverChunks, origin)
	}
	if late {
		s.TTFTSched, s.E2ELSched = NewDistribution(ttftDue, OverRequests, origin), NewDistribution(e2elDue, OverRequests, origin)
		s.SendLag = NewDistribution(lag, OverRequests, origin)
	}
	if d := last - first; d > 0 {
		s.Duration, s.RequestThroughput, s.OutputThroughput = &d, new(float64(done)/d), new(float64(output)/d)
		s.TotalThroughput = new(float64(input+output) / d)
		mean, peak := concurrency(open, d)
		s.Concurrency, s.PeakConcurrency = &mean, &peak
	}
	return s
}

// edge is an instant at which the number of open requests changes.
type edge struct {
	at    float64
	delta int
}

// concurrency is the number of open requests over a time in seconds: its mean,
// and the largest.
func concurrency(edges []edge, seconds float64) (mean float64, peak int) {
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), a.delta-b.delta) })
	open := 0
	for i, e := range edges {
		if i > 0 {
			mean += float64(open) * (e.at - edges[i-1].at) / seconds
		}
		open += e.delta
		peak = max(peak, open)
	}
	return mean, peak
}

// The relative differences from which two figures of a file contradict each
// other: totals, which follow from each other, and means, which tools take of
// slightly different stretches.
const (
	totalTolerance = 0.005
	meanTolerance  = 0.01
)

// Check compares the figures of a run with each other and with its requests,
// where all are there. Warnings show both numbers; nothing is corrected.
func (s *Serving) Check(points []profile.Point) []error {
	var warnings []error
	warn := func(text string, args ...any) {
		warnings = append(warnings, fmt.Errorf("%s: %s", s.Origin, fmt.Sprintf(text, args...)))
	}
	if s.Requests != nil && s.Completed != nil && s.Failed != nil {
		got := *s.Completed + *s.Failed
		if s.Cancelled != nil {
			got += *s.Cancelled
		}
		if got != *s.Requests {
			warn("%d requests ended, but %d were asked for", got, *s.Requests)
		}
	}
	total := func(what string, rate *float64, count *int) {
		if rate == nil || count == nil || s.Duration == nil {
			return
		}
		if got, want := *rate**s.Duration, float64(*count); apart(got, want, totalTolerance) {
			warn("%s is %.6g a second over %.6g s, which makes %.6g, but the total is %.6g", what, *rate, *s.Duration, got, want)
		}
	}
	total("request throughput", s.RequestThroughput, s.Completed)
	total("output throughput", s.OutputThroughput, s.OutputTokens)
	if s.Completed == nil || *s.Completed != len(points) {
		return warnings
	}
	computed := Summarize(points)
	for _, c := range []struct {
		what      string
		said, got *Distribution
	}{{"ttft", s.TTFT, computed.TTFT}, {"tpot", s.TPOT, computed.TPOT}, {"ntpot", s.NTPOT, computed.NTPOT}, {"icl", s.ICL, computed.ICL}, {"e2el", s.E2EL, computed.E2EL}} {
		if c.said == nil || c.got == nil || c.said.Mean == nil || c.said.Over != c.got.Over {
			continue
		}
		if apart(*c.said.Mean, *c.got.Mean, meanTolerance) {
			warn("%s has a mean of %.6g ms, but that of the requests is %.6g ms", c.what, *c.said.Mean, *c.got.Mean)
		}
	}
	return warnings
}

// apart reports whether two figures differ by more than a share of the larger.
func apart(a, b, tolerance float64) bool {
	return math.Abs(a-b) > tolerance*max(math.Abs(a), math.Abs(b))
}

// UnmappedWarning tells of the names that no word of ours means; nil where
// there are none.
func (s *Serving) UnmappedWarning() error {
	n := len(s.Unmapped)
	if n == 0 {
		return nil
	}
	const most = 8
	names := strings.Join(s.Unmapped[:min(n, most)], ", ")
	if n > most {
		names += ", … (all are listed in the profile)"
	}
	return fmt.Errorf("%s: %d names of figures have no place here: %s", s.Origin, n, names)
}
