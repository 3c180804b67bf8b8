package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// stepPoints are the prefill point and, where there were decode steps, the
// decode point of an answer. A sample of the decode point is the median of the
// single steps of one run.
func stepPoints(task Task, event *probeEvent, clock profile.Clock) ([]profile.Point, error) {
	t := task.Step
	if err := checkSamples("prefill_s", event.PrefillS, task.Runs); err != nil {
		return nil, err
	}
	runs := len(event.PrefillS)
	totals := append([]float64(nil), event.PrefillS...)
	var medians []float64
	if t.OutputLen > 1 {
		if len(event.DecodeS) != runs {
			return nil, fmt.Errorf("decode_s holds %d runs, prefill_s %d", len(event.DecodeS), runs)
		}
		for run, steps := range event.DecodeS {
			if err := checkSamples(fmt.Sprintf("decode_s[%d]", run), steps, t.OutputLen-1); err != nil {
				return nil, err
			}
			medians = append(medians, stat.Median(steps))
			for _, s := range steps {
				totals[run] += s
			}
		}
	}
	extra, err := overall(t, totals)
	if err != nil {
		return nil, err
	}
	step := profile.Step{
		Mode: profile.Prefill, BatchSize: t.BatchSize, InputLen: t.InputLen, OutputLen: t.OutputLen,
		Pass: forward.Prefill(t.BatchSize, t.InputLen, 0),
	}
	points := []profile.Point{{Kind: profile.KindStep, Step: &step, Samples: event.PrefillS, Clock: clock, Extra: extra}}
	if t.OutputLen > 1 {
		decode := step
		decode.Mode, decode.Pass = profile.Decode, decodePass(t)
		points = append(points, profile.Point{Kind: profile.KindStep, Step: &decode, Samples: medians, Clock: clock})
	}
	return valid(points)
}

// decodePass is the pass for which the decode steps of a task stand. They run
// at contexts input+1 … input+output−1, whose mean is input + output/2.
func decodePass(t *StepTask) forward.Pass {
	b, i, o := int64(t.BatchSize), int64(t.InputLen), int64(t.OutputLen)
	return forward.Pass{Decode: forward.Sequences{Count: t.BatchSize, SumContext: b*i + b*o/2}}
}

// overall holds the times of whole runs under the keys that benchmark files
// have for them; a profile has no field of its own for prefill and decode
// together.
func overall(t *StepTask, totals []float64) (map[string]json.RawMessage, error) {
	type run struct {
		Latency    float64 `json:"total_latency"`      // in seconds
		Throughput float64 `json:"overall_throughput"` // in tokens per second
	}
	tokens := float64(t.BatchSize) * float64(t.InputLen+t.OutputLen)
	runs, rates := make([]run, len(totals)), make([]float64, len(totals))
	for i, s := range totals {
		runs[i] = run{Latency: s, Throughput: tokens / s}
		rates[i] = tokens / s
	}
	extra := map[string]json.RawMessage{}
	for key, value := range map[string]any{
		"total_latency": stat.Mean(totals), "overall_throughput": stat.Mean(rates), "runs_data": runs,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		extra[key] = text
	}
	return extra, nil
}

// layerPoints are the points of an answer, one a layer.
func layerPoints(task Task, event *probeEvent, clock profile.Clock) ([]profile.Point, error) {
	if len(event.Layers) == 0 {
		return nil, fmt.Errorf("the answer names no layer")
	}
	var points []profile.Point
	var left []string
	for i, l := range event.Layers {
		if err := checkSamples(fmt.Sprintf("layers[%d] %s: samples_s", i, l.Name), l.SamplesS, task.Runs); err != nil {
			return nil, err
		}
		shape, ok := layerShape(task.Layers, l)
		if !ok {
			left = append(left, l.Name)
			continue
		}
		points = append(points, profile.Point{Kind: profile.KindLayer, Layer: &shape, Samples: l.SamplesS, Clock: clock})
	}
	if len(left) > 0 && len(points) > 0 {
		points[0].Warnings = []string{fmt.Sprintf("%s of %d prompts in one step has no place in a profile and was left out",
			strings.Join(left, ", "), task.Layers.Sequences)}
	}
	return valid(points)
}

// layerShape says what a layer computed. ok is false for the attention of
// several prompts, which a layer point cannot describe.
func layerShape(t *LayersTask, l probeLayer) (shape profile.Layer, ok bool) {
	shape = profile.Layer{Name: l.Name, Tokens: t.Tokens * t.Sequences, Context: t.Context}
	switch {
	case t.Sequences > 1 && l.PerSequence:
		shape.Sequences = t.Sequences
	case t.Sequences > 1 && attention(l):
		if t.Tokens > 1 {
			return profile.Layer{}, false
		}
		shape = profile.Layer{Name: l.Name, Sequences: t.Sequences, SequenceContext: t.Context}
	}
	return shape, true
}

// attention reports whether a layer's time depends on every sequence's
// context: because the probe says so, or by the names that profiles have.
func attention(l probeLayer) bool {
	switch l.Name {
	case "attn", "attention", "qk_matmul", "softmax", "sv_matmul":
		return true
	}
	return l.Attention
}

// checkSamples wants at least n positive times in seconds.
func checkSamples(key string, samples []float64, n int) error {
	if len(samples) < n || len(samples) == 0 {
		return fmt.Errorf("%s holds %d times, want %d", key, len(samples), max(n, 1))
	}
	for i, s := range samples {
		if !(s > 0) || math.IsInf(s, 0) {
			return fmt.Errorf("%s[%d] is %g: want a positive number of seconds", key, i, s)
		}
	}
	return nil
}

// valid holds points to what a profile admits.
func valid(points []profile.Point) ([]profile.Point, error) {
	for i := range points {
		if err := points[i].Validate(); err != nil {
			return nil, err
		}
	}
	return points, nil
}

// failure is the reason of a failed task as profiles write it.
func failure(reason, message string) string {
	text := strings.TrimSpace(message)
	if text == "" {
		text = "the engine gave no reason"
	}
	switch reason {
	case FailureOOM, FailureLimits:
		return reason
	case "timeout":
		return FailureTimeout + text
	case "exception":
		return FailureException + text
	case "runtime_error":
		return FailureRuntime + text
	}
	for _, prefix := range []string{FailureTimeout, FailureException, FailureRuntime} {
		if strings.HasPrefix(reason, prefix) {
			return reason
		}
	}
	if reason != "" {
		text = reason + ": " + text
	}
	return FailureRuntime + text
}
