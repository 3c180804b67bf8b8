package engine

import (
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/profile"
)

// stepPoints are the points of an answer: of the prefill and, where there were
// decode steps, of those; and the times of whole runs in seconds.
func stepPoints(task Task, event *probeEvent, clock profile.Clock) (points []profile.Point, totals []float64, err error) {
	if err := checkSamples("prefill_s", event.PrefillS, task.Runs); err != nil {
		return nil, nil, err
	}
	decode := make([][]float64, len(event.PrefillS))
	if n := task.Step.OutputLen - 1; n > 0 {
		if len(event.DecodeS) != len(event.PrefillS) {
			return nil, nil, fmt.Errorf("decode_s holds %d runs, prefill_s %d", len(event.DecodeS), len(event.PrefillS))
		}
		for run, steps := range event.DecodeS {
			if err := checkSamples(fmt.Sprintf("decode_s[%d]", run), steps, n); err != nil {
				return nil, nil, err
			}
		}
		decode = event.DecodeS
	}
	times := StepTimes{Clock: clock}
	for run, prefill := range event.PrefillS {
		times.Add(prefill, decode[run])
	}
	points, err = StepPoints(*task.Step, times)
	return points, times.Totals, err
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
