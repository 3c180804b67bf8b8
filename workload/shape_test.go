package workload_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// TestZipfWeights holds the frequency of every length to its weight.
func TestZipfWeights(t *testing.T) {
	const n = 60_000
	for _, z := range []workload.Zipf{{Exponent: 0, Low: 3, High: 12}, {Exponent: 0.6, Low: 1, High: 20}, {Exponent: 1, Low: 2, High: 20}, {Exponent: 2.5, Low: 1, High: 8}} {
		counts, sum := map[float64]float64{}, 0.0
		for _, x := range draws(z, n) {
			counts[x]++
		}
		for k := z.Low; k <= z.High; k++ {
			sum += math.Pow(float64(k), -z.Exponent)
		}
		for k := z.Low; k <= z.High; k++ {
			want := n * math.Pow(float64(k), -z.Exponent) / sum
			if got := counts[float64(k)]; math.Abs(got-want) > 6*math.Sqrt(want) {
				t.Errorf("%v: %d came %g times, want about %.0f", z, k, got, want)
			}
			delete(counts, float64(k))
		}
		if len(counts) > 0 {
			t.Errorf("%v: beyond its bounds: %v", z, counts)
		}
	}
}

func TestZipfStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.IntRange(1, workload.MaxLen).Draw(t, "low")
		z := workload.Zipf{Exponent: rapid.Float64Range(0, 100).Draw(t, "exponent"), Low: low, High: rapid.IntRange(low, workload.MaxLen).Draw(t, "high")}
		if got := z.Draw(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))); got < z.Low || got > z.High {
			t.Fatalf("%v: drew %d", z, got)
		}
	})
}

func TestHistogramAndRecorded(t *testing.T) {
	h := workload.Histogram{Bins: []workload.Bin{{Low: 1, High: 10, Weight: 3}, {Low: 50, High: 50}, {Low: 100, High: 300, Weight: 1}}}
	below, mean := 0.0, []float64{}
	for _, x := range draws(h, 20_000) {
		switch {
		case x <= 10:
			below++
		case x >= 100 && x <= 300:
			mean = append(mean, x)
		default:
			t.Fatalf("drew %g of a bin without weight", x)
		}
	}
	if math.Abs(below/20_000-0.75) > 0.02 || math.Abs(stat.Mean(mean)-200) > 6 {
		t.Errorf("share %g of the first bin, mean %g of the last, want 0.75 and 200", below/20_000, stat.Mean(mean))
	}
	counts := map[float64]float64{}
	for _, x := range draws(workload.Recorded{Values: []int{7, 7, 9}}, 9000) {
		counts[x]++
	}
	if len(counts) != 2 || math.Abs(counts[7]/9000-2.0/3) > 0.03 {
		t.Errorf("recorded lengths came %v times", counts)
	}
}

func TestLogNormalOf(t *testing.T) {
	x := draws(workload.LogNormalOf(512, 256, 1, workload.MaxLen), 100_000)
	if mean, sd := stat.Mean(x), stat.StdDev(x); math.Abs(mean/512-1) > 0.01 || math.Abs(sd/256-1) > 0.03 {
		t.Errorf("mean %.1f, standard deviation %.1f, want 512 and 256", mean, sd)
	}
}

func TestParseLength(t *testing.T) {
	for _, test := range []struct {
		text string
		want workload.Length
	}{
		{"512", workload.Fixed(512)},
		{" 4k ", workload.Fixed(4000)},
		{"4Ki", workload.Fixed(4096)},
		{"fixed:7", workload.Fixed(7)},
		{"normal:512:256", workload.Normal{Mean: 512, StdDev: 256, Low: 1, High: workload.MaxLen}},
		{"normal:1.5k:0.5:16:2k", workload.Normal{Mean: 1500, StdDev: 0.5, Low: 16, High: 2000}},
		{"lognormal:512:256:8:1Ki", workload.LogNormalOf(512, 256, 8, 1024)},
		{"uniform:16:512", workload.Uniform{Low: 16, High: 512}},
		{"zipf:1.2:16:4Ki", workload.Zipf{Exponent: 1.2, Low: 16, High: 4096}},
	} {
		if got, err := workload.ParseLength(test.text); err != nil || got != test.want {
			t.Errorf("%q: %v, %v, want %v", test.text, got, err, test.want)
		}
	}
	h, err := workload.ParseLength("histogram:1-128=3,200=0.5")
	if err != nil || h.String() != "histogram of 2 bins in 1..200" {
		t.Errorf("%v, %v", h, err)
	}
	for _, test := range []struct{ text, want string }{
		{"", "is not a count"},
		{"0", "want bounds within 1"},
		{"-4", "is negative"},
		{"many", "is not a count"},
		{"gamma:1:2", `unknown distribution "gamma"`},
		{"file:x", `unknown distribution "file"`},
		{"normal:512", "1 numbers after normal"},
		{"normal:512:1:2", "3 numbers after normal"},
		{"normal:a:b", `"a" is not a number`},
		{"normal:512:-1", "standard deviation -1"},
		{"normal:NaN:1", `"NaN" is not a number`},
		{"lognormal:0:1", "mean 0: want more than 0"},
		{"uniform:5:2", "5 to 2"},
		{"uniform:1.5:2", "0 to 2"},
		{"zipf:-1:1:2", "exponent -1"},
		{"zipf:1:1:1e30", "1 to 0"},
		{"histogram:", "is not a count"},
		{"histogram:1-5", "has no weight"},
		{"histogram:1-5=0", "add up to 0"},
		{"histogram:5-1=1", "5 to 1"},
	} {
		_, err := workload.ParseLength(test.text)
		if bad, ok := errors.AsType[*workload.LengthError](err); !ok || !strings.Contains(err.Error(), test.want) || bad.Hint() == "" {
			t.Errorf("%q: error %v, want %q", test.text, err, test.want)
		}
	}
}

func TestReadLengths(t *testing.T) {
	got, err := workload.ReadLengths("x", strings.NewReader("# tokens\n5\n\n 4k\n"))
	if err != nil || len(got.Values) != 2 || got.Values[1] != 4000 {
		t.Errorf("%v, %v", got, err)
	}
	for _, test := range []struct{ why, text, want string }{
		{"an empty file", "# nothing\n", "x: holds no length"},
		{"a word", "5\nfive\n", "x: line 2: "},
		{"no token", "0", "x: line 1: length 0"},
		{"an endless line", strings.Repeat("1", 1000), "x: line 1: "},
	} {
		if _, err := workload.ReadLengths("x", strings.NewReader(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.why, err, test.want)
		}
	}
}

func FuzzParseLength(f *testing.F) {
	for _, text := range []string{"512", "normal:512:256:1:4k", "lognormal:1:1e300", "uniform:1:9", "zipf:1:1:16777216", "histogram:1-128=3,129-512=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		length, err := workload.ParseLength(text)
		if err != nil {
			return
		}
		r := rand.New(rand.NewPCG(1, 1))
		for range 20 {
			if n := length.Draw(r); n < 1 || n > workload.MaxLen {
				t.Fatalf("%q: drew %d", text, n)
			}
		}
	})
}

func FuzzReadLengths(f *testing.F) {
	f.Add("5\n4k\n# a\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := workload.ReadLengths("x", strings.NewReader(text)); err == nil && got.Validate() != nil {
			t.Fatalf("what was read cannot be drawn from: %v", got.Validate())
		}
	})
}

func TestDelays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, test := range []struct {
		delay    workload.Delay
		mean, sd float64
	}{
		{workload.Pause(2), 2, 0},
		{workload.ExponentialDelay{Mean: 2}, 2, 2},
		{workload.UniformDelay{Low: 1, High: 4}, 2.5, 3 / math.Sqrt(12)},
		{workload.LogNormalDelay{Mean: 2, StdDev: 1}, 2, 1},
		{workload.RecordedDelay{Values: []unit.Seconds{1, 3}}, 2, 1},
	} {
		if err := test.delay.Validate(); err != nil {
			t.Fatal(err)
		}
		x := make([]float64, 40_000)
		for i := range x {
			x[i] = float64(test.delay.Draw(r))
		}
		if math.Abs(stat.Mean(x)-test.mean) > 0.06 || math.Abs(stat.StdDev(x)-test.sd) > 0.1 {
			t.Errorf("%v: mean %.3f, standard deviation %.3f, want %.3f and %.3f", test.delay, stat.Mean(x), stat.StdDev(x), test.mean, test.sd)
		}
	}
	for _, bad := range []workload.Delay{
		workload.Pause(-1), workload.Pause(math.NaN()),
		workload.ExponentialDelay{Mean: -1},
		workload.UniformDelay{Low: 2, High: 1},
		workload.LogNormalDelay{},
		workload.LogNormalDelay{Mean: 1, StdDev: -1},
		workload.RecordedDelay{},
		workload.RecordedDelay{Values: []unit.Seconds{-1}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
