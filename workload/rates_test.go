package workload_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

func TestRatesByHand(t *testing.T) {
	points := []workload.RatePoint{{At: 0, Rate: 1}, {At: 2, Rate: 4}, {At: 3, Rate: 0}, {At: 10, Rate: 2}}
	even := math.Inf(1)
	for _, test := range []struct {
		why   string
		rates workload.Rates
		want  []float64
	}{
		{"each rate holds until the next, a pause has none", workload.Rates{Points: points, Until: 11, Burstiness: even}, []float64{0, 1, 2, 2.25, 2.5, 2.75, 3, 10.5, 11}},
		{"a pause at the start", workload.Rates{Points: []workload.RatePoint{{At: 0}, {At: 5, Rate: 1}}, Until: 7, Burstiness: even}, []float64{5, 6, 7}},
		{"a last rate of 0 ends them", workload.Rates{Points: []workload.RatePoint{{At: 0, Rate: 2}, {At: 1}}, Burstiness: even}, []float64{0, 0.5, 1}},
		{
			"a line from 0: t²/2 requests until t, then the last rate",
			workload.Rates{Points: []workload.RatePoint{{At: 0}, {At: 4, Rate: 4}}, Between: true, Until: 5, Burstiness: even},
			[]float64{0, math.Sqrt(2), 2, math.Sqrt(6), math.Sqrt(8), math.Sqrt(10), math.Sqrt(12), math.Sqrt(14), 4, 4.25, 4.5, 4.75, 5},
		},
	} {
		if err := test.rates.Validate(); err != nil {
			t.Fatalf("%s: %v", test.why, err)
		}
		got := times(test.rates, 1, -1)
		if !slices.EqualFunc(got, test.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%s: %v, want %v", test.why, got, test.want)
		}
	}
}

// TestRatesPartsAreRight holds the arrivals within each part to its rate.
func TestRatesPartsAreRight(t *testing.T) {
	p := workload.Rates{Points: []workload.RatePoint{{At: 0, Rate: 20}, {At: 500, Rate: 200}, {At: 600, Rate: 5}}, Until: 3000, Burstiness: 1}
	var counts [3]float64
	for _, at := range times(p, 5, -1) {
		switch {
		case at < 500:
			counts[0]++
		case at < 600:
			counts[1]++
		default:
			counts[2]++
		}
	}
	for i, want := range []float64{10_000, 20_000, 12_000} {
		if math.Abs(counts[i]-want) > 6*math.Sqrt(want) { // six standard deviations
			t.Errorf("part %d has %g arrivals, want about %g", i, counts[i], want)
		}
	}
}

func TestRatesRise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := workload.Rates{Between: rapid.Bool().Draw(t, "between"), Burstiness: rapid.SampledFrom([]float64{0.3, 1, math.Inf(1)}).Draw(t, "burstiness")}
		at := unit.Seconds(0)
		for range rapid.IntRange(1, 6).Draw(t, "points") {
			p.Points = append(p.Points, workload.RatePoint{At: at, Rate: rapid.SampledFrom([]float64{0, 0.1, 3, 50}).Draw(t, "rate")})
			at += unit.Seconds(rapid.Float64Range(0.1, 9).Draw(t, "over"))
		}
		p.Until = at
		if p.Validate() != nil {
			return // all rates are 0
		}
		got := times(p, rapid.Uint64().Draw(t, "seed"), 5000)
		if !slices.IsSorted(got) || len(got) > 0 && (got[0] < 0 || got[len(got)-1] > float64(p.Until)+1e-9) {
			t.Fatalf("times %v of %v", got, p)
		}
	})
}

func TestRatesFaults(t *testing.T) {
	ok := []workload.RatePoint{{At: 0, Rate: 1}}
	for _, test := range []struct {
		want  string
		rates workload.Rates
	}{
		{"0 points", workload.Rates{Burstiness: 1}},
		{"the first is at 1", workload.Rates{Points: []workload.RatePoint{{At: 1, Rate: 1}}, Burstiness: 1}},
		{"in rising order", workload.Rates{Points: []workload.RatePoint{{Rate: 1}, {Rate: 2}}, Burstiness: 1}},
		{"-1/s at 0 s", workload.Rates{Points: []workload.RatePoint{{Rate: -1}}, Burstiness: 1}},
		{"all of them are 0", workload.Rates{Points: []workload.RatePoint{{}}, Burstiness: 1}},
		{"until -1", workload.Rates{Points: ok, Until: -1, Burstiness: 1}},
		{"burstiness 0", workload.Rates{Points: ok}},
	} {
		if err := test.rates.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
	if _, err := workload.Build(workload.Spec{Arrivals: workload.Rates{Points: ok, Burstiness: 1}, Lengths: lengths()}); err == nil || !strings.Contains(err.Error(), "has no end") {
		t.Errorf("a last rate that goes on: %v", err)
	}
}

func TestWeibullMeanAndVariation(t *testing.T) {
	const rate, n = 4.0, 40_000
	for _, shape := range []float64{0.5, 1, 2, 8} {
		gaps := gapsOf(times(workload.Weibull{Rate: rate, Shape: shape}, 3, n))
		mean, cv := stat.Mean(gaps), stat.StdDev(gaps)/stat.Mean(gaps)
		first, second := math.Gamma(1+1/shape), math.Gamma(1+2/shape)
		want := math.Sqrt(second/(first*first) - 1)
		if math.Abs(mean*rate-1) > 6*want/math.Sqrt(n) || math.Abs(cv/want-1) > 0.08 {
			t.Errorf("shape %g: mean gap %.5f s, variation %.3f, want %.5f and %.3f", shape, mean, cv, 1/rate, want)
		}
	}
	for _, bad := range []workload.Weibull{{Rate: 1}, {Rate: 0, Shape: 1}, {Rate: 1, Shape: math.Inf(1)}, {Rate: 1, Shape: 0.01}} {
		if bad.Validate() == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
