package measure_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/measure"
	"github.com/llmprof/llmprof/profile"
)

// sweep measures a curve until the sweep asks for nothing more.
func sweep(t *testing.T, s measure.Sweep, seconds func(tokens, context int) float64) (*sink, measure.Outcome) {
	t.Helper()
	f := &fake{facts: engine.Facts{Engine: "fake"}, answer: func(task engine.Task, _ int) (engine.Result, error) {
		l := task.Layers
		point := func(name string, share float64) profile.Point {
			v := share * seconds(l.Tokens, l.Context)
			return profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: name, Tokens: l.Tokens, Context: l.Context}, Samples: []float64{v, v}, Clock: profile.ClockDevice}
		}
		return engine.Result{Task: task, Points: []profile.Point{point("q_proj", 0.25), point("attn", 0.75)}}, nil
	}}
	out := &sink{}
	outcome, err := measure.Run(t.Context(), f.start, s.Tasks(), measure.Options{
		Write: out.write, More: func() []engine.Task { return s.Next(out.points) },
	})
	if err != nil || f.starts != 1 {
		t.Fatal(err, f.starts)
	}
	return out, outcome
}

// bent is flat up to 512 tokens and linear above, with a square part.
func bent(tokens, context int) float64 {
	n := float64(tokens)
	return 1e-4*max(1, n/512) + 1e-10*n*n + 2e-8*float64(context)
}

func TestSweep(t *testing.T) {
	s := measure.Sweep{PrefillMax: 2048, DecodeMax: 2048, Warmup: 1, Runs: 2}
	out, outcome := sweep(t, s, bent)
	prefill, decode := measure.Interpolations(out.points)
	if outcome.Measured > 40 || prefill.Median > 0.03 || decode.Max > 1e-9 {
		t.Errorf("%d shapes, errors %+v and %+v", outcome.Measured, prefill, decode)
	}
	var lengths []int
	for _, p := range out.points {
		if p.Layer.Name == "attn" && p.Layer.Context == 0 {
			lengths = append(lengths, p.Layer.Tokens)
		}
	}
	slices.Sort(lengths)
	if !slices.Contains(lengths, 384) && !slices.Contains(lengths, 768) {
		t.Errorf("the bend at 512 tokens was not looked at: %v", lengths)
	}
	for i := 1; i < len(lengths); i++ {
		if lengths[i] == lengths[i-1] {
			t.Errorf("%d tokens were measured twice", lengths[i])
		}
	}
	// Between the measured lengths linear interpolation is as good as it says.
	worst := 0.0
	for n := 1; n <= 2048; n++ {
		k, ok := slices.BinarySearch(lengths, n)
		if ok {
			continue
		}
		a, b := lengths[k-1], lengths[k]
		w := float64(n-a) / float64(b-a)
		worst = max(worst, math.Abs((1-w)*bent(a, 0)+w*bent(b, 0)-bent(n, 0))/bent(n, 0))
	}
	if worst > prefill.Max {
		t.Errorf("interpolation misses by %.3f, and the sweep says at most %.3f", worst, prefill.Max)
	}
}

func TestSweepBounds(t *testing.T) {
	for _, c := range []struct {
		sweep measure.Sweep
		want  int
	}{
		{measure.Sweep{PrefillMax: 8, DecodeMax: 4, Full: true, Runs: 1}, 12}, // 8 prompts, 4 further contexts
		{measure.Sweep{PrefillMax: 8, DecodeMax: -1, Runs: 1}, 4},
		{measure.Sweep{PrefillMax: 0, DecodeMax: 0, Runs: 1}, 1},
		{measure.Sweep{PrefillMax: 1, DecodeMax: 16, Runs: 1}, 2},
		{measure.Sweep{PrefillMax: 0, DecodeMax: 64, Runs: 1}, 4},
	} {
		if got := c.sweep.Tasks(); len(got) != c.want {
			t.Errorf("%+v: %d tasks, want %d", c.sweep, len(got), c.want)
		}
	}
	// A curve that never gets straight ends at the bound.
	steps := func(tokens, _ int) float64 { return 1e-4 * float64(1+tokens%2) * float64(tokens) }
	_, outcome := sweep(t, measure.Sweep{PrefillMax: 2048, DecodeMax: -1, Warmup: 1, Runs: 2, MaxPoints: 20}, steps)
	if outcome.Measured != 20 {
		t.Errorf("%d shapes, want the bound of 20", outcome.Measured)
	}
}

func ExampleGrid() {
	for _, t := range (measure.Grid{BatchSizes: []int{1, 8}, InputLens: []int{128, 1024}, OutputLen: 32}).Tasks(3, 5) {
		fmt.Printf("%d × %d\n", t.Step.BatchSize, t.Step.InputLen)
	}
	// Output:
	// 1 × 128
	// 8 × 128
	// 1 × 1024
	// 8 × 1024
}
