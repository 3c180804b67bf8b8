package measure

import (
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// scatter is the coefficient of variation of a point's samples, a share of
// their mean; 0 for fewer than two.
func scatter(samples []float64) float64 {
	if len(samples) < 2 {
		return 0
	}
	return stat.StdDev(samples) / stat.Mean(samples)
}

// unstable reports whether any point of a task scatters too much. Layers are
// judged together, by the sum of their means: a layer of a microsecond always
// scatters.
func unstable(points []profile.Point, most float64) bool {
	var variance, mean float64
	layers := false
	for i := range points {
		p := &points[i]
		switch p.Kind {
		case profile.KindStep:
			// Steps outside the grid come as the engine batched them.
			if p.Step.BatchSize > 0 && scatter(p.Samples) > most {
				return true
			}
		case profile.KindLayer:
			if len(p.Samples) < 2 {
				continue
			}
			layers = true
			deviation := stat.StdDev(p.Samples)
			variance += deviation * deviation
			mean += stat.Mean(p.Samples)
		}
	}
	return layers && math.Sqrt(variance) > most*mean
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

// flag marks the points of a task that still scatter.
func flag(points []profile.Point, most float64) {
	for i := range points {
		p := &points[i]
		if cv := scatter(p.Samples); p.Kind == profile.KindStep && p.Step.BatchSize > 0 && cv > most {
			p.Warnings = append(slices.Clip(p.Warnings), fmt.Sprintf("unstable: the samples scatter by %.0f %% (coefficient of variation) over %d runs", 100*cv, len(p.Samples)))
		}
	}
}
