package measure

import (
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

// key is what makes two tasks the same.
type key struct {
	layers  bool
	a, b, c int
}

func keyOf(t engine.Task) key {
	if s := t.Step; s != nil {
		return key{false, s.BatchSize, s.InputLen, s.OutputLen}
	}
	return key{true, t.Layers.Tokens, t.Layers.Context, max(t.Layers.Sequences, 1)}
}

// Remaining returns the tasks of which points holds no whole result yet:
// neither all that was to be measured nor a failure. A task of which only a
// part was kept is measured again as a whole; readers of the profile join
// points of the same step.
func Remaining(tasks []engine.Task, points []profile.Point) []engine.Task {
	parts := map[key]map[string]bool{}
	for i := range points {
		k, ok := keyOfPoint(&points[i])
		if !ok {
			continue
		}
		if parts[k] == nil {
			parts[k] = map[string]bool{}
		}
		part := string(points[i].Kind)
		if s := points[i].Step; s != nil && points[i].Kind == profile.KindStep {
			part = s.Mode
		}
		parts[k][part] = true
	}
	var left []engine.Task
	for _, t := range tasks {
		has := parts[keyOf(t)]
		whole := has[string(profile.KindLayer)]
		if t.Step != nil {
			whole = has[profile.Prefill] && (has[profile.Decode] || t.Step.OutputLen <= 1)
		}
		if !whole && !has[string(profile.KindFailure)] {
			left = append(left, t)
		}
	}
	return left
}

// keyOfPoint is the key of the task that a point came from; ok is false for
// points of other origin.
func keyOfPoint(p *profile.Point) (key, bool) {
	switch {
	case p.Step != nil && p.Step.BatchSize > 0 && p.Step.InputLen > 0:
		return key{false, p.Step.BatchSize, p.Step.InputLen, p.Step.OutputLen}, true
	case p.Layer != nil && p.Kind == profile.KindFailure:
		return key{true, p.Layer.Tokens, p.Layer.Context, max(p.Layer.Sequences, 1)}, true
	case p.Layer != nil && p.Layer.Tokens == 0 && p.Layer.Sequences > 0:
		// The attention of a batch of decoding sequences; the batch's other
		// layers only know how many tokens they compute.
		return key{true, 1, p.Layer.SequenceContext, p.Layer.Sequences}, true
	case p.Layer != nil && p.Layer.Sequences <= 1:
		return key{true, p.Layer.Tokens, p.Layer.Context, 1}, true
	}
	return key{}, false
}

// Foreign returns what lies in points and belongs to none of the tasks: points
// of another grid.
func Foreign(tasks []engine.Task, points []profile.Point) int {
	known := map[key]bool{}
	for _, t := range tasks {
		known[keyOf(t)] = true
	}
	n := 0
	for i := range points {
		if k, ok := keyOfPoint(&points[i]); ok && !known[k] {
			n++
		}
	}
	return n
}
