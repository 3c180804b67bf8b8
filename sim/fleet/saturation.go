package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/load"
)

// Saturation says whether more came than was served.
type Saturation struct {
	// Verdict is "steady", "saturated" or "unknown", Why says why.
	Verdict, Why string
	// Drift is by how many requests under way the load grew a second, Excess the
	// share of the requests that piled up; 0 without a drift.
	Drift, Excess float64
}

// Verdicts of [Saturation].
const (
	VerdictSteady    = "steady"
	VerdictSaturated = "saturated"
	VerdictUnknown   = "unknown"
)

const (
	// driftSamples is the number of times at which open requests are counted.
	driftSamples = 40
	// driftLeast is the least number of requests that says something.
	driftLeast = 50
)

// Saturation judges an open load as bench does while it runs (package load), at
// the time of the last send: it is saturated where over the second half of the
// sends the number of requests under way and the TTFT of those that ended well
// both rise, each with its 95 % interval above zero, and the former by more than
// 5 % of the requests and by at least half of what the answers fall short of
// them. Where only the former rises so it is unknown: a batch fills up, and
// whether it will be enough the run is too short to show.
func (r *Result) Saturation() Saturation {
	n := 0
	for i := range r.Records {
		if r.Records[i].Sent >= 0 {
			n++
		}
	}
	middle, last := r.first+(r.final-r.first)/2, r.final
	switch {
	case r.Load.child != nil:
		return Saturation{Verdict: VerdictUnknown, Why: "requests wait for answers, so the load follows the replicas"}
	case last <= middle:
		return Saturation{Verdict: VerdictUnknown, Why: "all requests came at once"}
	case n < driftLeast:
		return Saturation{Verdict: VerdictUnknown, Why: fmt.Sprintf("%d requests are too few to see a drift", n)}
	}
	at, firsts := r.firstTokens(middle, last)
	if len(at) < load.RisePoints {
		return Saturation{Verdict: VerdictUnknown, Why: fmt.Sprintf("%d answers while requests came are too few to see a drift", len(at))}
	}
	times, open := r.openOver(middle, last)
	rise := load.RiseOf(seconds(last-middle), load.Series{At: times, Values: open}, load.Series{At: at, Values: firsts})
	if !rise.Open {
		return Saturation{Verdict: VerdictSteady, Why: "requests under way did not grow while requests came"}
	}
	s := Saturation{Verdict: VerdictSaturated, Drift: rise.Slope, Excess: rise.Excess}
	if !rise.TTFT {
		s.Verdict = VerdictUnknown
		s.Why = fmt.Sprintf("requests under way grew by %.2g a second, %.0f in the end, and TTFT did not: a batch that fills up, or the start of a queue; more requests tell", s.Drift, open[len(open)-1])
		return s
	}
	s.Why = fmt.Sprintf("requests under way grew by %.2g a second and TTFT with them: %.1f %% of what came piled up, %.0f were under way in the end",
		s.Drift, 100*s.Excess, open[len(open)-1])
	return s
}

// firstTokens are the TTFTs in seconds of the requests that ended well in a time,
// and when they ended, in their order.
func (r *Result) firstTokens(from, to int64) (at, ttft []float64) {
	type answer struct{ at, ttft float64 }
	var all []answer
	for i := range r.Records {
		rec := &r.Records[i]
		if t, ok := rec.TTFT(); ok && rec.Outcome == Completed && int64(rec.Ended) >= from && int64(rec.Ended) <= to {
			all = append(all, answer{rec.Ended.Seconds(), t.Seconds()})
		}
	}
	slices.SortStableFunc(all, func(a, b answer) int { return cmp.Compare(a.at, b.at) })
	for _, a := range all {
		at, ttft = append(at, a.at), append(ttft, a.ttft)
	}
	return at, ttft
}

// openOver is the number of requests under way at equal steps of a time, the end
// included, and these times in seconds.
func (r *Result) openOver(from, to int64) (times, open []float64) {
	span := float64(to - from)
	change := make([]float64, driftSamples+1)
	slot := func(t int64) int { // the first time that is not before t
		k := math.Ceil(float64(t-from)/span*driftSamples) - 1
		return int(min(max(k, 0), driftSamples))
	}
	for i := range r.Records {
		rec := &r.Records[i]
		if rec.Sent < 0 {
			continue
		}
		change[slot(int64(rec.Sent))]++
		if rec.Ended >= 0 { // else the run ended first
			change[slot(int64(rec.Ended))]--
		}
	}
	sum := 0.0
	for k := range driftSamples {
		sum += change[k]
		open = append(open, sum)
		times = append(times, seconds(from+int64(span*float64(k+1)/driftSamples)))
	}
	return times, open
}
