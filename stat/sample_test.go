package stat

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestQuantile(t *testing.T) {
	x := []float64{4, 1, 3, 2}
	for _, c := range []struct {
		why  string
		q    float64
		want float64
	}{
		{"the smallest", 0, 1},
		{"between the second and the third", 0.5, 2.5},
		{"0.9 of three gaps lies in the last", 0.9, 3.7},
		{"the largest", 1, 4},
		{"beyond the end is the end", 2, 4},
	} {
		if got := Quantile(x, c.q); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
	if !slices.Equal(x, []float64{4, 1, 3, 2}) {
		t.Error("the sample was reordered")
	}
	for _, v := range []float64{Mean(nil), Median(nil), StdDev(nil)} {
		if !math.IsNaN(v) {
			t.Errorf("of nothing: %v, want NaN", v)
		}
	}
}

func TestSampleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float64Range(-1e3, 1e3), 1, 30).Draw(t, "x")
		low, high := slices.Min(x)-1e-9, slices.Max(x)+1e-9
		for _, v := range []float64{Mean(x), Median(x), Quantile(x, 0.9)} {
			if v < low || v > high {
				t.Fatalf("%v lies outside the sample", v)
			}
		}
		if Quantile(x, 0.2) > Quantile(x, 0.7) {
			t.Fatal("quantiles fall")
		}
		// The mean is the point of least squared distance.
		var around float64
		for _, v := range x {
			around += (v - Median(x)) * (v - Median(x))
		}
		if StdDev(x) > math.Sqrt(around/float64(len(x)))+1e-9 {
			t.Fatal("the spread is smaller around the median than around the mean")
		}
	})
}

func TestMedianWithout(t *testing.T) {
	for _, c := range []struct {
		why    string
		sorted []float64
		out    int
		want   float64
	}{
		{"the other of two", []float64{1, 5}, 1, 1},
		{"the smallest of three", []float64{1, 2, 4}, 0, 3},
		{"the middle of an even number", []float64{1, 2, 4, 9}, 3, 2},
		{"one of equal values", []float64{1, 2, 2, 9}, 1, 2},
		{"nothing is left", []float64{1}, 0, math.NaN()},
		{"no such value", []float64{1, 2}, 2, math.NaN()},
		{"no such value", []float64{1, 2}, -1, math.NaN()},
	} {
		if got := MedianWithout(c.sorted, c.out); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v without %d: got %g, want %g", c.why, c.sorted, c.out, got, c.want)
		}
	}
}

func TestMedianWithoutIsThatOfTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 2, 20).Draw(t, "x")
		slices.Sort(x)
		out := rapid.IntRange(0, len(x)-1).Draw(t, "out")
		rest := slices.Delete(slices.Clone(x), out, out+1)
		if got, want := MedianWithout(x, out), Median(rest); math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
			t.Fatalf("%v without %d: got %g, want %g", x, out, got, want)
		}
	})
}
