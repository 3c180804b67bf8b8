package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// PrefillStep is the prefill of a task as a profile has it: all prompts whole
// in one step, nothing in the KV cache.
func (t StepTask) PrefillStep() profile.Step {
	return profile.Step{
		Mode: profile.Prefill, BatchSize: t.BatchSize, InputLen: t.InputLen, OutputLen: t.OutputLen,
		Pass: forward.Prefill(t.BatchSize, t.InputLen, 0),
	}
}

// DecodeStep is the one step for which all decode steps of a task stand. They
// run at the contexts input+1 … input+output−1, whose mean is input + output/2;
// the sum over the batch is rounded down, not the mean.
func (t StepTask) DecodeStep() profile.Step {
	b, i, o := int64(t.BatchSize), int64(t.InputLen), int64(t.OutputLen)
	return profile.Step{
		Mode: profile.Decode, BatchSize: t.BatchSize, InputLen: t.InputLen, OutputLen: t.OutputLen,
		Pass: forward.Pass{Decode: forward.Sequences{Count: t.BatchSize, SumContext: b*i + b*o/2}},
	}
}

// StepTimes are the times of a step task, in seconds. Prefill, Decode and
// Totals may be of different runs where an engine cannot do otherwise; where
// each has as many as the others, the values at one index are of one run.
type StepTimes struct {
	// Prefill has one time a run.
	Prefill []float64
	// Decode has one time a run, the median of its single decode steps; empty
	// where nothing was decoded.
	Decode []float64
	// Totals are the times of whole runs, prefill and all decode steps; empty
	// where they are not known.
	Totals []float64
	// Clock is what all of them were timed with.
	Clock profile.Clock
	// Warnings go with every point.
	Warnings []string
}

// Add adds a run: the time of its prefill and those of its single decode steps,
// all in seconds.
func (s *StepTimes) Add(prefill float64, decode []float64) {
	s.Prefill = append(s.Prefill, prefill)
	total := prefill
	for _, t := range decode {
		total += t
	}
	if len(decode) > 0 {
		s.Decode = append(s.Decode, stat.Median(decode))
	}
	s.Totals = append(s.Totals, total)
}

// StepPoints are the points of a step task, the same from every driver: one of
// the prefill and one of the decode steps, each where it has samples. The times
// of whole runs stand in the first point's Extra under the keys that benchmark
// files have for them (total_latency, overall_throughput, runs_data), since a
// profile has no field of its own for prefill and decode together.
//
// A time that no profile admits, as one of 0 seconds, is an error.
func StepPoints(t StepTask, times StepTimes) ([]profile.Point, error) {
	var points []profile.Point
	for _, part := range []struct {
		key     string
		step    profile.Step
		samples []float64
	}{
		{"prefill", t.PrefillStep(), times.Prefill},
		{"decode", t.DecodeStep(), times.Decode},
	} {
		if len(part.samples) == 0 {
			continue
		}
		if err := checkSamples(part.key, part.samples, 1); err != nil {
			return nil, err
		}
		points = append(points, profile.Point{
			Kind: profile.KindStep, Step: &part.step, Samples: part.samples, Clock: times.Clock, Warnings: slices.Clone(times.Warnings),
		})
	}
	if len(points) > 0 && len(times.Totals) > 0 {
		if err := checkSamples("total", times.Totals, 1); err != nil {
			return nil, err
		}
		extra, err := overall(t, times.Totals)
		if err != nil {
			return nil, err
		}
		points[0].Extra = extra
	}
	return valid(points)
}

// overall holds the times of whole runs in seconds as benchmark files do.
func overall(t StepTask, totals []float64) (map[string]json.RawMessage, error) {
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
