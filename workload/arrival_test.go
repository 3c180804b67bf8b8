package workload_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// times are the first n times of a pattern.
func times(a workload.Arrivals, seed uint64, n int) []float64 {
	var out []float64
	if n == 0 {
		return nil
	}
	for t := range a.Times(rand.New(rand.NewPCG(seed, 1))) {
		if out = append(out, float64(t.At)); len(out) == n {
			break
		}
	}
	return out
}

func gapsOf(at []float64) []float64 {
	gaps := make([]float64, len(at))
	last := 0.0
	for i, t := range at {
		gaps[i], last = t-last, t
	}
	return gaps
}

func TestConstantDoesNotDrift(t *testing.T) {
	const rate, n = 3, 1_000_000
	at := times(workload.Constant{Rate: rate}, 0, n)
	for _, k := range []int{0, 1, 2, 3, 999, n - 1} {
		if want := float64(k) / rate; at[k] != want {
			t.Errorf("request %d at %v, want exactly %v", k, at[k], want)
		}
	}
}

func TestGammaMeanAndVariation(t *testing.T) {
	const rate, n = 4.0, 40_000
	for _, burstiness := range []float64{0.25, 0.5, 1, 2, 10, 400} {
		gaps := gapsOf(times(workload.Gamma{Rate: rate, Burstiness: burstiness}, 11, n))
		mean, cv := stat.Mean(gaps), stat.StdDev(gaps)/stat.Mean(gaps)
		wantCV := 1 / math.Sqrt(burstiness)
		// Six standard errors of the mean; those of the variation are wider,
		// since the fourth moment of a bursty distribution is large.
		if diff := math.Abs(mean*rate - 1); diff > 6*wantCV/math.Sqrt(n) {
			t.Errorf("burstiness %g: mean gap %.5f s, want %.5f", burstiness, mean, 1/rate)
		}
		if diff := math.Abs(cv/wantCV - 1); diff > 6*math.Sqrt((2+6/burstiness)/4/n)+0.01 {
			t.Errorf("burstiness %g: variation %.4f, want %.4f", burstiness, cv, wantCV)
		}
	}
}

func TestGammaLimits(t *testing.T) {
	for _, test := range []struct {
		why  string
		a, b workload.Arrivals
	}{
		{"burstiness 1 is Poisson's", workload.Gamma{Rate: 2, Burstiness: 1}, workload.Poisson{Rate: 2}},
		{"endless burstiness is constant", workload.Gamma{Rate: 2, Burstiness: math.Inf(1)}, workload.Constant{Rate: 2}},
		{"an even ramp between equal rates is constant", workload.Ramp{From: 2, To: 2, Shape: workload.Linear, Over: 100, Burstiness: math.Inf(1)}, workload.Constant{Rate: 2}},
		{"so is an exponential one", workload.Ramp{From: 2, To: 2, Shape: workload.Exponential, Over: 100, Burstiness: math.Inf(1)}, workload.Constant{Rate: 2}},
	} {
		if a, b := times(test.a, 5, 100), times(test.b, 5, 100); !slices.Equal(a, b) {
			t.Errorf("%s: %v, want %v", test.why, a[:3], b[:3])
		}
	}
	// The distribution of gaps is the exponential one: Kolmogorov's distance
	// of n draws stays below 1.95/√n in all but one of 1000 cases.
	gaps := gapsOf(times(workload.Poisson{Rate: 2}, 3, 10_000))
	slices.Sort(gaps)
	worst := 0.0
	for i, g := range gaps {
		worst = max(worst, math.Abs(1-math.Exp(-2*g)-(float64(i)+0.5)/float64(len(gaps))))
	}
	if worst > 1.95/math.Sqrt(float64(len(gaps))) {
		t.Errorf("the gaps are not exponential: distance %.4f", worst)
	}
}

func TestRateScalesTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.01, 1000).Draw(t, "rate")
		burstiness := rapid.Float64Range(0.1, 10).Draw(t, "burstiness")
		seed := rapid.Uint64().Draw(t, "seed")
		slow := times(workload.Gamma{Rate: rate, Burstiness: burstiness}, seed, 50)
		fast := times(workload.Gamma{Rate: 2 * rate, Burstiness: burstiness}, seed, 50)
		if !slices.IsSorted(slow) {
			t.Fatalf("times fall: %v", slow)
		}
		for i := range slow {
			if fast[i] != slow[i]/2 {
				t.Fatalf("time %d: %v at twice the rate of %v", i, fast[i], slow[i])
			}
		}
	})
}

func TestRampCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := workload.Ramp{
			From:       rapid.Float64Range(0.1, 20).Draw(t, "from"),
			To:         rapid.Float64Range(0.1, 20).Draw(t, "to"),
			Shape:      rapid.SampledFrom([]workload.RampShape{workload.Linear, workload.Exponential}).Draw(t, "shape"),
			Over:       unit.Seconds(rapid.Float64Range(1, 100).Draw(t, "over")),
			Burstiness: math.Inf(1),
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		at := times(p, 0, -1)
		if want := int(p.Expected(p.Over)+1e-9) + 1; len(at) < want-1 || len(at) > want {
			t.Fatalf("%d requests, want %d", len(at), want)
		}
		for k, got := range at {
			if n := p.Expected(unit.Seconds(got)); math.Abs(n-float64(k)) > 1e-6*(1+float64(k)) {
				t.Fatalf("request %d at %v s, where the rate adds up to %v", k, got, n)
			}
		}
		if !slices.IsSorted(at) {
			t.Fatal("times fall")
		}
	})
}

func TestRampFromNothing(t *testing.T) {
	p := workload.Ramp{From: 0, To: 10, Shape: workload.Linear, Over: 20, Burstiness: math.Inf(1)}
	at := times(p, 0, -1)
	// The rate is t/2, so the k-th request is due at 2√k.
	if len(at) != 101 || at[0] != 0 || math.Abs(at[25]-10) > 1e-9 || math.Abs(at[100]-20) > 1e-9 {
		t.Errorf("%d requests, at %v", len(at), at)
	}
}

func TestBurstAndTrace(t *testing.T) {
	b := workload.Burst{Of: workload.Constant{Rate: 2}, Size: 3}
	if got, want := times(b, 0, 7), []float64{0, 0, 0, 0.5, 0.5, 0.5, 1}; !slices.Equal(got, want) {
		t.Errorf("bursts at %v, want %v", got, want)
	}
	offsets := []unit.Seconds{100, 101, 101, 109}
	for _, test := range []struct {
		why   string
		trace workload.Trace
		want  []float64
	}{
		{"times count from the first", workload.Trace{Offsets: offsets}, []float64{0, 1, 1, 9}},
		{"twice as fast", workload.Trace{Offsets: offsets, Speed: 2}, []float64{0, 0.5, 0.5, 4.5}},
		{"only the first", workload.Trace{Offsets: offsets, Limit: 2}, []float64{0, 1}},
		{"a limit beyond the end", workload.Trace{Offsets: offsets, Limit: 9}, []float64{0, 1, 1, 9}},
	} {
		if got := times(test.trace, 0, -1); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.why, got, test.want)
		}
	}
}

func TestArrivalFaults(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct {
		arrivals workload.Arrivals
		want     string
	}{
		{workload.Constant{}, "constant arrivals: rate 0/s"},
		{workload.Poisson{Rate: nan}, "poisson arrivals: rate NaN/s"},
		{workload.Gamma{Rate: 1, Burstiness: -1}, "burstiness -1"},
		{workload.Ramp{From: 1, To: 2, Shape: "steps", Over: 1, Burstiness: 1}, `shape "steps"`},
		{workload.Ramp{From: 0, To: 2, Shape: workload.Exponential, Over: 1, Burstiness: 1}, "rate 0/s"},
		{workload.Ramp{From: inf, To: 2, Shape: workload.Linear, Over: 1, Burstiness: 1}, "rate +Inf/s"},
		{workload.Ramp{Shape: workload.Linear, Over: 1, Burstiness: 1}, "both rates are 0"},
		{workload.Ramp{From: 1, To: 2, Shape: workload.Linear, Burstiness: 1}, "over 0 s"},
		{workload.Burst{Size: 2}, "want a pattern"},
		{workload.Burst{Of: workload.Closed{Workers: 1}, Size: 2}, "no bursts"},
		{workload.Burst{Of: workload.Poisson{}, Size: 0}, "size 0"},
		{workload.Closed{}, "0 workers"},
		{workload.Closed{Workers: 1, Think: workload.Pause(-1)}, "think time"},
		{workload.Trace{}, "at least one time"},
		{workload.Trace{Offsets: []unit.Seconds{2, 1}}, "rising"},
		{workload.Trace{Offsets: []unit.Seconds{unit.Seconds(nan)}}, "time 0"},
		{workload.Trace{Offsets: []unit.Seconds{1}, Speed: -1, Limit: -1}, "speed -1"},
	} {
		if err := test.arrivals.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v, want %q", test.arrivals, err, test.want)
		}
	}
}
