package engine_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

func TestStepPoints(t *testing.T) {
	task := engine.StepTask{BatchSize: 3, InputLen: 10, OutputLen: 5}
	prefill := profile.Step{Mode: profile.Prefill, BatchSize: 3, InputLen: 10, OutputLen: 5, Pass: forward.Prefill(3, 10, 0)}
	decode := prefill
	// 3 sequences at a mean context of 12.5 tokens: 37.5, rounded down.
	decode.Mode, decode.Pass = profile.Decode, forward.Pass{Decode: forward.Sequences{Count: 3, SumContext: 37}}
	for _, test := range []struct {
		why   string
		times engine.StepTimes
		want  []string // what the points say
	}{
		{"nothing measured", engine.StepTimes{}, nil},
		{"both", engine.StepTimes{Prefill: []float64{1, 2}, Decode: []float64{0.5, 0.5}}, []string{"prefill [1 2] 0", "decode [0.5 0.5] 0"}},
		{"whole runs", engine.StepTimes{Prefill: []float64{1}, Decode: []float64{0.5}, Totals: []float64{3}}, []string{"prefill [1] 3", "decode [0.5] 0"}},
		{"decode alone", engine.StepTimes{Decode: []float64{0.5}, Totals: []float64{3}}, []string{"decode [0.5] 3"}},
	} {
		test.times.Clock, test.times.Warnings = profile.ClockCPU, []string{"beware"}
		points, err := engine.StepPoints(task, test.times)
		if err != nil {
			t.Errorf("%s: %v", test.why, err)
		}
		var got []string
		for _, p := range points {
			got = append(got, fmt.Sprintf("%s %v %d", p.Step.Mode, p.Samples, len(p.Extra)))
			want := prefill
			if p.Step.Mode == profile.Decode {
				want = decode
			}
			if d := cmp.Diff(want, *p.Step); d != "" {
				t.Errorf("%s: %s", test.why, d)
			}
			if p.Clock != profile.ClockCPU || len(p.Warnings) != 1 || cap(p.Warnings) > 0 && &p.Warnings[0] == &test.times.Warnings[0] {
				t.Errorf("%s: clock %s, warnings %q of its own", test.why, p.Clock, p.Warnings)
			}
		}
		if d := cmp.Diff(test.want, got); d != "" {
			t.Errorf("%s: %s", test.why, d)
		}
	}
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		for _, times := range []engine.StepTimes{
			{Prefill: []float64{bad}}, {Prefill: []float64{1}, Decode: []float64{bad}}, {Prefill: []float64{1}, Totals: []float64{1, bad}},
		} {
			if points, err := engine.StepPoints(task, times); err == nil {
				t.Errorf("%v gives %d points", times, len(points))
			}
		}
	}
}

// The decode step stands at the mean of the contexts that the single steps had.
func TestDecodeStepContext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		task := engine.StepTask{BatchSize: rapid.IntRange(1, 64).Draw(t, "batch"), InputLen: rapid.IntRange(1, 9000).Draw(t, "input"), OutputLen: rapid.IntRange(2, 99).Draw(t, "output")}
		sum := 0
		for i := 1; i < task.OutputLen; i++ {
			sum += (task.InputLen + i) * task.BatchSize
		}
		mean := float64(sum) / float64(task.OutputLen-1)
		if got := float64(task.DecodeStep().Pass.Decode.SumContext); got > mean || got < mean-0.5 {
			t.Fatalf("%g tokens in all, want %g rounded down", got, mean)
		}
	})
}

// Two runs of a task, as a driver books them.
func ExampleStepPoints() {
	times := engine.StepTimes{Clock: profile.ClockWall}
	times.Add(0.020, []float64{0.004, 0.005, 0.006})
	times.Add(0.022, []float64{0.004, 0.004, 0.004})
	points, err := engine.StepPoints(engine.StepTask{BatchSize: 2, InputLen: 128, OutputLen: 4}, times)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range points {
		fmt.Println(p.Step.Mode, p.Samples, "at", p.Step.Pass.MeanDecodeContext())
	}
	fmt.Printf("a whole run: %s s\n", points[0].Extra["total_latency"])
	// Output:
	// prefill [0.02 0.022] at 0
	// decode [0.005 0.004] at 130
	// a whole run: 0.0345 s
}
