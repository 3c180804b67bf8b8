package workload_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/workload"
)

func draws(l workload.Length, n int) []float64 {
	r := rand.New(rand.NewPCG(2, 3))
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(l.Draw(r))
	}
	return out
}

func TestLengthDistributions(t *testing.T) {
	for _, test := range []struct {
		length       workload.Length
		mean, median float64
		low, high    float64 // both must be reached, where not 0
	}{
		{workload.Fixed(7), 7, 7, 7, 7},
		{workload.Uniform{Low: 3, High: 9}, 6, 6, 3, 9},
		{workload.Normal{Mean: 500, StdDev: 50, Low: 1, High: 1000}, 500, 500, 0, 0},
		{workload.Normal{Mean: 10, StdDev: 50, Low: 1, High: 20}, 0, 10, 1, 20},
		{workload.LogNormal{Median: 200, Sigma: 0.5, Low: 1, High: 100_000}, 200 * math.Exp(0.125), 200, 0, 0},
		{workload.LogNormal{Median: 200, Sigma: 2, Low: 16, High: 512}, 0, 200, 16, 512},
	} {
		x := draws(test.length, 20_000)
		if test.mean > 0 && math.Abs(stat.Mean(x)/test.mean-1) > 0.02 {
			t.Errorf("%v: mean %.2f, want %.2f", test.length, stat.Mean(x), test.mean)
		}
		if math.Abs(stat.Median(x)/test.median-1) > 0.1 {
			t.Errorf("%v: median %.2f, want %.2f", test.length, stat.Median(x), test.median)
		}
		if test.low > 0 && (slices.Min(x) != test.low || slices.Max(x) != test.high) {
			t.Errorf("%v: %g..%g, want %g..%g", test.length, slices.Min(x), slices.Max(x), test.low, test.high)
		}
	}
}

func TestAroundRatio(t *testing.T) {
	for _, test := range []struct {
		why    string
		length int
		ratio  float64
		want   workload.Uniform
	}{
		{"no ratio is one length", 1024, 0, workload.Uniform{Low: 1024, High: 1024}},
		{"both bounds are rounded away from the length", 101, 0.25, workload.Uniform{Low: 75, High: 127}},
		{"at least one token", 1, 0.5, workload.Uniform{Low: 1, High: 2}},
	} {
		if got, err := workload.AroundRatio(test.length, test.ratio); err != nil || got != test.want {
			t.Errorf("%s: %v, %v, want %v", test.why, got, err, test.want)
		}
	}
	for _, ratio := range []float64{-0.1, 1, math.NaN()} {
		if _, err := workload.AroundRatio(10, ratio); err == nil {
			t.Errorf("ratio %g is taken", ratio)
		}
	}
}

func TestEmpiricalKeepsPairs(t *testing.T) {
	rows := []workload.Pair{{1, 10}, {2, 20}, {3, 30}, {3, 30}}
	seen := map[workload.Pair]int{}
	n := 0
	for p := range (workload.Empirical{Rows: rows}).Pairs(rand.New(rand.NewPCG(1, 1))) {
		seen[p]++
		if n++; n == 4000 {
			break
		}
	}
	for p, count := range seen {
		if p.Output != 10*p.Input {
			t.Errorf("pair %v was torn apart", p)
		}
		if want := 1000 * (1 + p.Input/3); math.Abs(float64(count-want)) > 200 {
			t.Errorf("pair %v came %d times, want about %d", p, count, want)
		}
	}
	if got := slices.Collect((workload.InOrder{Rows: rows}).Pairs(nil)); !slices.Equal(got, rows) {
		t.Errorf("in order: %v", got)
	}
}

func TestIndependentStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		inputs := func(output workload.Length) []int {
			var out []int
			d := workload.Independent{Input: workload.Uniform{Low: 1, High: 1000}, Output: output}
			for p := range d.Pairs(rand.New(rand.NewPCG(seed, 0))) {
				if out = append(out, p.Input); len(out) == 20 {
					break
				}
			}
			return out
		}
		if a, b := inputs(workload.Fixed(3)), inputs(workload.Normal{Mean: 9, StdDev: 3, Low: 1, High: 90}); !slices.Equal(a, b) {
			t.Fatalf("other outputs change the inputs: %v, %v", a, b)
		}
	})
}

func TestLengthFaults(t *testing.T) {
	for _, test := range []struct {
		part interface{ Validate() error }
		want string
	}{
		{workload.Fixed(0), "fixed length: 0 to 0"},
		{workload.Uniform{Low: 2, High: 1}, "uniform length: 2 to 1"},
		{workload.Uniform{Low: 1, High: workload.MaxLen + 1}, "uniform length"},
		{workload.Normal{Mean: math.Inf(1), Low: 1, High: 2}, "mean +Inf"},
		{workload.Normal{StdDev: -1, Low: 1, High: 2}, "standard deviation -1"},
		{workload.LogNormal{Sigma: math.NaN(), Low: 1, High: 2}, "sigma NaN"},
		{workload.Independent{Input: workload.Fixed(0)}, "input: fixed length"},
		{workload.Independent{Input: workload.Fixed(1)}, "output: want a length"},
		{workload.Empirical{}, "at least one request"},
		{workload.InOrder{Rows: []workload.Pair{{1, 0}}}, "request 0 has input 1, output 0"},
	} {
		if err := test.part.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v, want %q", test.part, err, test.want)
		}
	}
}
