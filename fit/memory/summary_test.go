package memory_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/unit"
)

// run is a profile of a total of 100 GB, half of it weights.
func run(change func(*memory.Measured)) memory.Measured {
	m := memory.Measured{
		Model: "m", Shape: llmsizer.Model{Params: 8e9, Heads: 32, KVHeads: 8}, WeightDType: catalog.BF16,
		GPUs: 1, Batch: 8, Input: 512, Output: 512,
		Total: gb(100), Weights: gb(50), KVUsed: gb(20), Activations: gb(10), Overhead: gb(20),
	}
	if change != nil {
		change(&m)
	}
	return m
}

// scaled is a calculator that errs by a factor for each size and run.
func scaled(factor func(memory.Measured, memory.Component) float64) fixed {
	return fixed{"scaled", func(m memory.Measured) (memory.Prediction, error) {
		size := func(c memory.Component, b *unit.Bytes) *unit.Bytes {
			v := unit.Bytes(math.Round(float64(*b) * factor(m, c)))
			return &v
		}
		return memory.Prediction{
			Total: size(memory.Total, m.Total), Weights: size(memory.Weights, m.Weights), KVCache: size(memory.KVCache, m.KVUsed),
			Activations: size(memory.Activations, m.Activations), Overhead: size(memory.Overhead, m.Overhead),
		}, nil
	}}
}

func summary(t *testing.T, c memory.Calculator, runs ...memory.Measured) memory.Summary {
	t.Helper()
	r := memory.Judge(runs, []memory.Calculator{c}, memory.Options{})
	if len(r.Verdicts) != len(runs) {
		t.Fatalf("%+v", r)
	}
	return r.Summaries[0]
}

func TestBiasNamesItsSign(t *testing.T) {
	s := summary(t, scaled(func(_ memory.Measured, c memory.Component) float64 {
		switch c {
		case memory.Weights:
			return 1.5
		case memory.KVCache:
			return 0.5
		}
		return 1
	}), run(nil), run(nil), run(nil))
	for _, b := range s.Bias {
		want, mean, ratio := "even", 0.0, 1.0
		switch b.Component {
		case memory.Weights:
			want, mean, ratio = "overestimates", -50, 1.5
		case memory.KVCache:
			want, mean, ratio = "underestimates", 50, 0.5
		}
		if b.Direction() != want || math.Abs(b.Mean-mean) > 1e-9 || math.Abs(b.Ratio-ratio) > 1e-9 || b.N != 3 || b.Few {
			t.Errorf("%+v %s, want %s by %v, ratio %v", b, b.Direction(), want, mean, ratio)
		}
	}
}

func TestDirection(t *testing.T) {
	for _, c := range []struct {
		why  string
		mean float64
		want string
	}{
		{"none", 0, "even"},
		{"too little to be shown", 0.049, "even"},
		{"too little to be shown, below", -0.049, "even"},
		{"as little as is shown", 0.06, "underestimates"},
		{"as little as is shown, below", -0.06, "overestimates"},
	} {
		if got := (memory.Bias{Mean: c.mean}).Direction(); got != c.want {
			t.Errorf("%s: %g %% is called %s, want %s", c.why, c.mean, got, c.want)
		}
	}
}

func TestGroups(t *testing.T) {
	var runs []memory.Measured
	for _, billions := range []float64{7, 9.99, 10, 20, 40, 80, 700, 0} {
		runs = append(runs, run(func(m *memory.Measured) { m.Shape.Params = billions * 1e9 }))
	}
	runs[1].Batch, runs[2].GPUs, runs[3].Quantization = 16, 2, "awq"
	s := summary(t, scaled(func(memory.Measured, memory.Component) float64 { return 0.9 }), runs...)
	var got []string
	for _, g := range s.Groups {
		if math.Abs(g.Mean-10) > 1e-9 || math.Abs(g.MeanAbs-10) > 1e-9 || g.Few != (g.N < 3) {
			t.Errorf("%+v", g)
		}
		got = append(got, fmt.Sprintf("%s %s: %d", g.By, g.Name, g.N))
	}
	want := []string{
		"model size < 10 B: 2", "model size < 20 B: 1", "model size < 40 B: 1", "model size < 80 B: 1", "model size 80+ B: 2",
		"weights awq: 1", "weights bf16: 7", "batch 8: 7", "batch 16: 1", "GPUs 1: 7", "GPUs 2: 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestIssues(t *testing.T) {
	all := func(f float64) fixed {
		return scaled(func(memory.Measured, memory.Component) float64 { return f })
	}
	large := func(m *memory.Measured) { m.Shape.Params = 70e9 }
	several := func(m *memory.Measured) { m.GPUs = 4 }
	onlyTotal := func(f func(memory.Measured) float64) fixed {
		return scaled(func(m memory.Measured, c memory.Component) float64 {
			if c == memory.Total {
				return f(m)
			}
			return 1
		})
	}
	for _, test := range []struct {
		why  string
		c    memory.Calculator
		runs []memory.Measured
		want []string
	}{
		{"within 10 %", all(0.91), []memory.Measured{run(nil)}, nil},
		{"above 10 %", all(0.88), []memory.Measured{run(nil)}, []string{"warning total: mean error 12.0 % of measured"}},
		{"above 20 %", all(0.78), []memory.Measured{run(nil)}, []string{"critical total: mean error 22.0 % of measured"}},
		{"one part above 30 %", scaled(func(_ memory.Measured, c memory.Component) float64 {
			if c == memory.Overhead {
				return 1.4
			}
			return 1
		}), []memory.Measured{run(nil)}, []string{"critical overhead: mean error 40.0 % of measured, above 30; the calculator overestimates by 40.0"}},
		{"large models", onlyTotal(func(m memory.Measured) float64 {
			if m.Shape.Params > 40e9 {
				return 0.74
			}
			return 1
		}), []memory.Measured{run(large), run(nil), run(nil)}, []string{"warning models above 40 B: mean error of the total 26.0"}},
		{
			"several GPUs are worse", onlyTotal(func(m memory.Measured) float64 { return 1 - 0.02*float64(m.GPUs) }),
			[]memory.Measured{run(several), run(nil)},
			[]string{"warning several GPUs: mean error of the total 8.0 % of measured, above 1.5 times the 2.0 on one GPU"},
		},
		{"the gravest first", onlyTotal(func(memory.Measured) float64 { return 0.7 }), []memory.Measured{run(large)}, []string{"critical total", "warning models above 40 B"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			s := summary(t, test.c, test.runs...)
			if len(s.Issues) != len(test.want) {
				t.Fatalf("issues %+v, want %q", s.Issues, test.want)
			}
			for i, issue := range s.Issues {
				if text := string(issue.Severity) + " " + issue.Text; !strings.HasPrefix(text, test.want[i]) || !issue.Few {
					t.Errorf("got %q (few %v), want %q", text, issue.Few, test.want[i])
				}
			}
		})
	}
}

func TestRecommendations(t *testing.T) {
	part := func(part memory.Component, f func(memory.Measured) float64) fixed {
		return scaled(func(m memory.Measured, c memory.Component) float64 {
			if c == part {
				return f(m)
			}
			return 1
		})
	}
	always := func(f float64) func(memory.Measured) float64 { return func(memory.Measured) float64 { return f } }
	packed := func(m *memory.Measured) { m.Quantization = "awq" }
	mixed := func(m *memory.Measured) { m.Weights, m.Overhead, m.Total = gb(10), gb(20), gb(60) }
	for _, test := range []struct {
		why  string
		c    memory.Calculator
		runs []memory.Measured
		want string // empty: none
		n    int
	}{
		{"nothing is wrong", part(memory.KVCache, always(1)), []memory.Measured{run(nil), run(nil), run(nil)}, "", 0},
		{
			"query heads counted", part(memory.KVCache, always(4)),
			[]memory.Measured{run(nil), run(nil), run(nil)},
			"KV cache is overestimated 4.0 × on the 3 profiles with grouped-query attention: count KV heads, not query heads", 3,
		},
		{"query heads counted, seen once", part(memory.KVCache, always(4)), []memory.Measured{run(nil)}, "on the 1 profile with grouped-query attention", 1},
		{"too big, but by another factor", part(memory.KVCache, always(2)), []memory.Measured{run(nil)}, "", 0},
		{
			"constant factor", part(memory.Weights, always(1.045)),
			[]memory.Measured{run(nil), run(mixed), run(nil)},
			"weights: overestimated, calculated is 1.045 × measured on each of 3 profiles: multiply by 0.957", 3,
		},
		{"a factor seen once is no constant", part(memory.Weights, always(1.5)), []memory.Measured{run(nil)}, "", 0},
		{
			"no common factor", part(memory.Activations, func(m memory.Measured) float64 { return float64(m.Batch) }),
			[]memory.Measured{run(nil), run(func(m *memory.Measured) { m.Batch = 1 })},
			"", 0,
		},
		{"scales forgotten", part(memory.Weights, func(m memory.Measured) float64 {
			if m.Quantization != "" {
				return 0.7
			}
			return 1
		}), []memory.Measured{run(nil), run(packed), run(packed)}, "weights are underestimated 1.43 × on the 2 profiles with quantised weights, against 1.00 × on the others", 2},
		{"a constant is missing", fixed{"offset", func(m memory.Measured) (memory.Prediction, error) {
			return memory.Prediction{Overhead: gb(float64(*m.Overhead)/1e9 - 5)}, nil
		}}, []memory.Measured{run(nil), run(func(m *memory.Measured) { m.Overhead = gb(10) }), run(nil)}, "overhead: 5.00 GB (1e9 bytes) are missing on each of 3 profiles", 3},
	} {
		t.Run(test.why, func(t *testing.T) {
			s := summary(t, test.c, test.runs...)
			if test.want == "" {
				if len(s.Recommendations) != 0 {
					t.Fatalf("unexpected %+v", s.Recommendations)
				}
				return
			}
			if len(s.Recommendations) != 1 {
				t.Fatalf("%d recommendations: %+v", len(s.Recommendations), s.Recommendations)
			}
			got := s.Recommendations[0]
			if !strings.Contains(got.Text, test.want) || got.N != test.n || len(got.Evidence) != test.n || got.Few != (test.n < 3) {
				t.Errorf("got %+v, want %q from %d", got, test.want, test.n)
			}
			if !strings.ContainsAny(got.Text, "0123456789") {
				t.Errorf("no number in %q", got.Text)
			}
		})
	}
}
