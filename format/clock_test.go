package format

import (
	"math"
	"testing"
)

func TestOneClock(t *testing.T) {
	for _, c := range []struct {
		why                 string
		sent, arrived, want []float64
	}{
		{"none", nil, nil, nil},
		{"clocks that agree stay", []float64{1, 2}, []float64{1.5, 9}, []float64{1, 2}},
		{"the quickest needed no time", []float64{1e9 + 1, 1e9 + 2}, []float64{7.5, 8.25}, []float64{7.25, 8.25}},
		{"the other way round", []float64{3, 4}, []float64{2e9, 2e9 + 3}, []float64{2e9, 2e9 + 1}},
	} {
		got := OneClock(c.sent, c.arrived)
		if len(got) != len(c.want) {
			t.Fatalf("%s: got %v, want %v", c.why, got, c.want)
		}
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-6 {
				t.Errorf("%s: got %v, want %v", c.why, got, c.want)
			}
		}
	}
}
