package load_test

import (
	"math"
	"testing"

	"github.com/llmprof/llmprof/load"
)

func TestRise(t *testing.T) {
	series := func(n int, value func(at float64) float64) load.Series {
		var s load.Series
		for i := range n {
			at := 10 * float64(i) / float64(n-1)
			s.At, s.Values = append(s.At, at), append(s.Values, value(at))
		}
		return s
	}
	ramp := func(by float64) func(float64) float64 { return func(at float64) float64 { return 5 + by*at } }
	step := func(from float64) func(float64) float64 {
		return func(at float64) float64 {
			if at >= from {
				return 45
			}
			return 5
		}
	}
	for _, c := range []struct {
		why        string
		open, ttft load.Series
		rises      bool
		both       bool
	}{
		{"both grow evenly", series(40, ramp(4)), series(60, ramp(0.1)), true, true},
		{"a batch fills up", series(40, ramp(4)), series(60, ramp(0)), true, false},
		{"5 % of the requests", series(40, ramp(0.3)), series(57, ramp(0.1)), false, false},
		{"a little more", series(40, ramp(0.31)), series(57, ramp(0.1)), true, true},
		{"it falls", series(40, ramp(-0.2)), series(60, ramp(0.1)), false, false},
		{"one burst at the end", series(40, step(9.2)), series(60, ramp(0.1)), false, false},
		{"one burst in the middle stays", series(40, step(5)), series(60, ramp(0.1)), true, true},
		{"19 points", series(19, ramp(4)), series(60, ramp(0.1)), false, false},
		{"19 answers", series(40, ramp(4)), series(19, ramp(0.1)), false, false},
	} {
		r := load.RiseOf(10, c.open, c.ttft)
		if r.Open != c.rises || r.TTFT != c.both || (r.Slope > 0) != c.rises {
			t.Errorf("%s: %+v", c.why, r)
		}
	}
	if r := load.RiseOf(10, series(40, ramp(4)), series(60, ramp(0))); math.Abs(r.Slope-4) > 1e-9 || math.Abs(r.Excess-0.4) > 1e-9 {
		t.Errorf("%+v, want 4 a second and 40 of 100", r)
	}
}
