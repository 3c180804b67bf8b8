package stat_test

import (
	"math"
	"testing"

	"github.com/llmprof/llmprof/stat"
)

func TestLine(t *testing.T) {
	for _, c := range []struct {
		why        string
		x, y       []float64
		slope, low float64
	}{
		{"on a line", []float64{1, 2, 4}, []float64{5, 7, 11}, 2, 2},
		// Residuals are 1/6, -1/3, 1/6, and x varies by 2: the error is √(1/6/1/2).
		{"beside a line", []float64{0, 1, 2}, []float64{0, 0, 1}, 0.5, 0.5 - 2*math.Sqrt(1.0/12)},
		{"two points are on any line", []float64{0, 1}, []float64{0, 1}, 0, 0},
		{"x does not vary", []float64{1, 1, 1}, []float64{0, 1, 2}, 0, 0},
	} {
		slope, low := stat.Line(c.x, c.y)
		if math.Abs(slope-c.slope) > 1e-12 || math.Abs(low-c.low) > 1e-12 {
			t.Errorf("%s: %g, at least %g; want %g, at least %g", c.why, slope, low, c.slope, c.low)
		}
	}
}
