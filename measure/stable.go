package measure

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// scatter is the coefficient of variation of a point's samples, a share of
// their mean; 0 for fewer than two. From six samples on it is that of their
// middle half, so that a disturbed round does not condemn the calm ones that
// follow it: a normal distribution has 1.349 standard deviations between its
// quartiles.
func scatter(samples []float64) float64 {
	switch n := len(samples); {
	case n < 2:
		return 0
	case n < 6:
		return stat.StdDev(samples) / stat.Mean(samples)
	default:
		return (stat.Quantile(samples, 0.75) - stat.Quantile(samples, 0.25)) / 1.349 / stat.Median(samples)
	}
}

// unstable reports whether any point of a task scatters too much. Layers are
// judged together, by the sum of their means: a layer of a microsecond always
// scatters.
func unstable(points []profile.Point, most float64) bool {
	for i := range points {
		if p := &points[i]; judged(p) && scatter(p.Samples) > most {
			return true
		}
	}
	return scatterOfLayers(points) > most
}

// judged reports whether a point is judged on its own. Steps outside the grid
// come as the engine batched them.
func judged(p *profile.Point) bool {
	return p.Kind == profile.KindStep && p.Step.BatchSize > 0
}

// scatterOfLayers is the scatter of the sum of all layers, taken as independent
// of each other.
func scatterOfLayers(points []profile.Point) float64 {
	var variance, mean float64
	for i := range points {
		if p := &points[i]; p.Kind == profile.KindLayer && len(p.Samples) > 1 {
			middle := stat.Median(p.Samples)
			deviation := scatter(p.Samples) * middle
			variance += deviation * deviation
			mean += middle
		}
	}
	if mean == 0 {
		return 0
	}
	return math.Sqrt(variance) / mean
}

// join adds the samples of a repeated task to those it had.
func join(before, again engine.Result) engine.Result {
	out := before
	out.Points = slices.Clone(before.Points)
	for _, p := range again.Points {
		i := slices.IndexFunc(out.Points, func(q profile.Point) bool { return same(&p, &q) })
		if i < 0 {
			out.Points = append(out.Points, p)
			continue
		}
		out.Points[i].Samples = slices.Concat(out.Points[i].Samples, p.Samples)
		out.Points[i].Summary = nil
		out.Points[i].Extra = joinRuns(out.Points[i].Extra, p.Extra)
	}
	return out
}

// joinRuns joins what two rounds say of their whole runs, and its means; all
// else stays as the first round has it.
func joinRuns(a, b map[string]json.RawMessage) map[string]json.RawMessage {
	type run struct {
		Latency float64 `json:"total_latency"`      // in seconds
		Rate    float64 `json:"overall_throughput"` // in tokens per second
	}
	const key = "runs_data"
	var runs, more []run
	if json.Unmarshal(a[key], &runs) != nil || json.Unmarshal(b[key], &more) != nil {
		return a
	}
	runs = append(runs, more...)
	var latencies, rates []float64
	for _, r := range runs {
		latencies, rates = append(latencies, r.Latency), append(rates, r.Rate)
	}
	out := maps.Clone(a)
	for name, value := range map[string]any{key: runs, "total_latency": stat.Mean(latencies), "overall_throughput": stat.Mean(rates)} {
		if text, err := json.Marshal(value); err == nil {
			out[name] = text
		}
	}
	return out
}

// same reports whether two points measure the same thing.
func same(p, q *profile.Point) bool {
	switch {
	case p.Kind != q.Kind || p.Clock != q.Clock:
		return false
	case p.Layer != nil && q.Layer != nil:
		return *p.Layer == *q.Layer
	case p.Step != nil && q.Step != nil:
		a, b := p.Step, q.Step
		return a.Mode == b.Mode && a.BatchSize == b.BatchSize && a.InputLen == b.InputLen && a.OutputLen == b.OutputLen &&
			slices.Equal(a.Pass.Prefill, b.Pass.Prefill) && a.Pass.Decode == b.Pass.Decode && (a.Totals == nil) == (b.Totals == nil) &&
			(a.Totals == nil || *a.Totals == *b.Totals)
	}
	return false
}

// flag marks the points of a task that still scatter: each step that does, and
// the first of layers that do together.
func flag(points []profile.Point, most float64) {
	say := func(p *profile.Point, what string, cv float64) {
		p.Warnings = append(slices.Clip(p.Warnings), fmt.Sprintf("unstable: %s by %.0f %% (coefficient of variation) over %d runs", what, 100*cv, len(p.Samples)))
	}
	for i := range points {
		if cv := scatter(points[i].Samples); judged(&points[i]) && cv > most {
			say(&points[i], "the samples scatter", cv)
		}
	}
	if cv := scatterOfLayers(points); cv > most {
		first := slices.IndexFunc(points, func(p profile.Point) bool { return p.Kind == profile.KindLayer })
		say(&points[first], "all layers of this shape together scatter", cv)
	}
}
