package vllm

import (
	"encoding/json"
	"fmt"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// collector gathers the samples of one task.
type collector struct {
	task            *engine.StepTask
	prefill, decode []float64
	// apart are decode samples of runs whose batch was split, with the sum of
	// their steps' contexts and their number.
	apart        []float64
	apartContext float64 // in tokens
	apartSteps   int
	// extra are points of single steps, found by what they computed.
	extra []*profile.Point
	index map[string]*profile.Point
}

// maxExtra bounds the points of one task.
const maxExtra = 2000

func newCollector(t *engine.StepTask) *collector {
	return &collector{task: t, index: map[string]*profile.Point{}}
}

// take adds the steps of a run and reports whether it was whole: one step for
// all prompts, every other for all sequences.
func (c *collector) take(steps []replayed) bool {
	b, i := c.task.BatchSize, c.task.InputLen
	first := len(steps) > 0 && steps[0].exact && whole(steps[0].pass, b, i)
	var times []float64
	sum := 0.0
	for _, o := range steps {
		switch {
		case !(o.seconds > 0):
		case o.exact && whole(o.pass, b, i):
			c.prefill = append(c.prefill, o.seconds)
		case o.exact && decoding(o.pass, b):
			times = append(times, o.seconds)
			sum += float64(o.pass.Decode.SumContext)
		default:
			c.single(o)
		}
	}
	switch {
	case len(times) == 0:
	case first && len(times) == c.task.OutputLen-1:
		c.decode = append(c.decode, stat.Median(times))
	default:
		c.apart = append(c.apart, stat.Median(times))
		c.apartContext += sum
		c.apartSteps += len(times)
	}
	return first
}

// single adds a step as a point of its own.
func (c *collector) single(o replayed) {
	s := &profile.Step{Pass: o.pass}
	if !o.exact {
		s.Pass, s.Totals = forward.Pass{}, &o.totals
	}
	switch sums := s.Sums(); {
	case sums.DecodeRequests == 0:
		s.Mode = profile.Prefill
	case sums.PrefillRequests == 0:
		s.Mode = profile.Decode
	default:
		s.Mode = profile.Mixed
	}
	key, err := json.Marshal(s)
	if err != nil {
		return
	}
	p := c.index[string(key)]
	if p == nil {
		p = &profile.Point{Kind: profile.KindStep, Step: s, Clock: profile.ClockWall, Samples: []float64{o.seconds}}
		if len(c.extra) >= maxExtra || p.Validate() != nil {
			return
		}
		c.index[string(key)] = p
		c.extra = append(c.extra, p)
		return
	}
	p.Samples = append(p.Samples, o.seconds)
}

// points are what was measured: prefill, decode, then single steps.
func (c *collector) points() []profile.Point {
	var out []profile.Point
	add := func(mode string, pass forward.Pass, samples []float64, warnings ...string) {
		if len(samples) == 0 {
			return
		}
		out = append(out, profile.Point{
			Kind: profile.KindStep, Samples: samples, Clock: profile.ClockWall, Warnings: warnings,
			Step: &profile.Step{Mode: mode, BatchSize: c.task.BatchSize, InputLen: c.task.InputLen, OutputLen: c.task.OutputLen, Pass: pass},
		})
	}
	add(profile.Prefill, forward.Prefill(c.task.BatchSize, c.task.InputLen, 0), c.prefill)
	if len(c.decode) > 0 {
		add(profile.Decode, decodePass(c.task), c.decode)
	} else if len(c.apart) > 0 {
		pass := forward.Pass{Decode: forward.Sequences{Count: c.task.BatchSize, SumContext: int64(c.apartContext/float64(c.apartSteps) + 0.5)}}
		add(profile.Decode, pass, c.apart, "the prompts took several steps: of the decode steps only those with the whole batch count, at their own contexts")
	}
	for _, p := range c.extra {
		out = append(out, *p)
	}
	return out
}

// decodePass is the pass for which the decode steps of a task stand. They run
// at contexts input+1 … input+output−1, whose mean is input + output/2.
func decodePass(t *engine.StepTask) forward.Pass {
	b, i, o := int64(t.BatchSize), int64(t.InputLen), int64(t.OutputLen)
	return forward.Pass{Decode: forward.Sequences{Count: t.BatchSize, SumContext: b*i + b*o/2}}
}

// failure says which half of a task is missing, and why.
func (c *collector) failure(budget int) string {
	t := c.task
	switch {
	case len(c.prefill) == 0 && budget > 0 && t.BatchSize*t.InputLen > budget:
		return engine.FailureException + fmt.Sprintf("the engine did not take the batch in one step: %d prompt tokens, and a step holds at most %d",
			t.BatchSize*t.InputLen, budget)
	case len(c.prefill) == 0:
		return engine.FailureException + "the engine did not take the batch in one step"
	case t.OutputLen > 1 && len(c.decode) == 0 && len(c.apart) == 0:
		return engine.FailureException + "no step decoded the whole batch"
	}
	return ""
}
