package memory

import (
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Recommendation is a change to a calculator that the measurements ask for.
type Recommendation struct {
	Component Component
	// Text states what is wrong, by how much, and what to do.
	Text string
	// N is the number of profiles, Few says that they are too few for a
	// pattern.
	N   int
	Few bool
	// Evidence are the sizes behind the text, one for each profile.
	Evidence []Point
}

// Point is one profile's sizes of a component.
type Point struct {
	Source               string
	Measured, Calculated unit.Bytes
	m                    Measured
}

// ratio is calculated over measured.
func (p Point) ratio() float64 { return float64(p.Calculated) / float64(p.Measured) }

// pointsOf lists the profiles with a component of which neither size is zero.
func pointsOf(c Component, samples []sample) []Point {
	var out []Point
	for _, s := range samples {
		if found, ok := s.v.of(c); ok && found.Measured > 0 && found.Calculated > 0 {
			out = append(out, Point{s.v.Source, found.Measured, found.Calculated, s.m})
		}
	}
	return out
}

// ratioOf is the geometric mean of calculated over measured; 0 for no points.
func ratioOf(points []Point) float64 {
	if len(points) == 0 {
		return 0
	}
	logs := make([]float64, len(points))
	for i, p := range points {
		logs[i] = math.Log(p.ratio())
	}
	return math.Exp(stat.Mean(logs))
}

const (
	// sameFactor is how far ratios may lie from each other and count as one.
	sameFactor = 1.05
	// worthwhile is the factor below which nobody would change a formula.
	worthwhile = 1.02
	// sameOffset is the spread of a constant offset over its size.
	sameOffset = 0.2
	// offsetShare is the share of the measured total above which an offset is
	// worth a change.
	offsetShare = 0.02
)

// apart is how far a lies from b, as a factor of at least 1.
func apart(a, b float64) float64 { return max(a/b, b/a) }

// recommend finds what the errors have in common.
func recommend(samples []sample) []Recommendation {
	var out []Recommendation
	add := func(c Component, points []Point, format string, args ...any) {
		out = append(out, Recommendation{Component: c, Text: fmt.Sprintf(format, args...), N: len(points), Few: len(points) < fewProfiles, Evidence: points})
	}
	for _, c := range Components() {
		points := pointsOf(c, samples)
		switch {
		case c == Total:
			continue // the parts say what to change
		case c == KVCache && groupedHeads(points, add):
		case c == Weights && quantised(points, add):
		case constantFactor(points):
			r := ratioOf(points)
			add(c, points, "%s: %s, calculated is %.3f × measured on each of %s: multiply by %.3f", c, direction(r), r, profiles(len(points)), 1/r)
		case c == Overhead:
			constantOffset(points, add)
		}
	}
	return out
}

// adder takes a recommendation.
type adder func(c Component, points []Point, format string, args ...any)

func direction(ratio float64) string {
	if ratio > 1 {
		return "overestimated"
	}
	return "underestimated"
}

func profiles(n int) string {
	if n == 1 {
		return "1 profile"
	}
	return fmt.Sprintf("%d profiles", n)
}

// groupedHeads recognises a cache that was calculated with one KV head for
// every query head: it is too big by as many times as heads share one.
func groupedHeads(points []Point, add adder) bool {
	grouped := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.m.Shape.KVHeads == 0 || p.m.Shape.KVHeads >= p.m.Shape.Heads })
	if len(grouped) == 0 {
		return false
	}
	for _, p := range grouped {
		if group := float64(p.m.Shape.Heads) / float64(p.m.Shape.KVHeads); apart(p.ratio(), group) > 1.2 {
			return false
		}
	}
	add(KVCache, grouped, "KV cache is overestimated %.1f × on the %s with grouped-query attention: count KV heads, not query heads", ratioOf(grouped), profiles(len(grouped)))
	return true
}

// quantised recognises weights that are off only where they are quantised.
func quantised(points []Point, add adder) bool {
	var plain, packed []Point
	for _, p := range points {
		if p.m.Quantization == "" && (p.m.WeightDType == "" || p.m.WeightDType.Bits() >= 16) {
			plain = append(plain, p)
		} else {
			packed = append(packed, p)
		}
	}
	if len(plain) == 0 || len(packed) == 0 {
		return false
	}
	r, other := ratioOf(packed), ratioOf(plain)
	if apart(r, other) < 1.1 || apart(r, 1) < apart(other, 1) {
		return false
	}
	advice := "count scales, and embeddings and head in their own format"
	if r > 1 {
		advice = "count the bytes of the quantised format"
	}
	add(Weights, packed, "weights are %s %.2f × on the %s with quantised weights, against %.2f × on the others: %s", direction(r), max(r, 1/r), profiles(len(packed)), max(other, 1/other), advice)
	return true
}

// constantFactor reports whether at least two points share one factor that is
// worth a change.
func constantFactor(points []Point) bool {
	if len(points) < 2 {
		return false
	}
	mean := ratioOf(points)
	return apart(mean, 1) > worthwhile && !slices.ContainsFunc(points, func(p Point) bool { return apart(p.ratio(), mean) > sameFactor })
}

// constantOffset recognises an overhead that is off by the same size
// everywhere.
func constantOffset(points []Point, add adder) {
	if len(points) < 2 {
		return
	}
	diffs := make([]float64, len(points))
	for i, p := range points {
		diffs[i] = float64(p.Measured - p.Calculated)
	}
	mean, spread := stat.Mean(diffs), slices.Max(diffs)-slices.Min(diffs)
	worth := slices.ContainsFunc(points, func(p Point) bool {
		return p.m.Total != nil && math.Abs(mean) > offsetShare*float64(*p.m.Total)
	})
	if !worth || spread > sameOffset*math.Abs(mean) {
		return
	}
	word, sign := "missing", "add"
	if mean < 0 {
		word, sign = "too much", "take away"
	}
	add(Overhead, points, "overhead: %.2f GB (1e9 bytes) are %s on each of %s, within %.2f GB: %s a constant", math.Abs(mean)/1e9, word, profiles(len(points)), spread/1e9, sign)
}
