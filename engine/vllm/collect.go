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
	task *engine.StepTask
	// times are the samples, all in seconds: of prefills that were one step,
	// of decode steps and whole runs where the whole run was as it should be.
	times engine.StepTimes
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
	return &collector{task: t, times: engine.StepTimes{Clock: profile.ClockWall}, index: map[string]*profile.Point{}}
}

// take adds the steps of a run and reports whether it was whole: one step for
// all prompts, every other for all sequences.
func (c *collector) take(steps []replayed) bool {
	b, i := c.task.BatchSize, c.task.InputLen
	first := len(steps) > 0 && steps[0].exact && whole(steps[0].pass, b, i)
	var times []float64
	sum, total := 0.0, 0.0 // of contexts in tokens, of times in seconds
	for _, o := range steps {
		switch {
		case !(o.seconds > 0):
		case o.exact && whole(o.pass, b, i):
			c.times.Prefill = append(c.times.Prefill, o.seconds)
			total += o.seconds
		case o.exact && decoding(o.pass, b):
			times = append(times, o.seconds)
			total += o.seconds
			sum += float64(o.pass.Decode.SumContext)
		default:
			c.single(o)
		}
	}
	all := first && len(times) == c.task.OutputLen-1
	if all && steps[0].seconds > 0 {
		c.times.Totals = append(c.times.Totals, total)
	}
	switch {
	case len(times) == 0:
	case all:
		c.times.Decode = append(c.times.Decode, stat.Median(times))
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
func (c *collector) points() ([]profile.Point, error) {
	out, err := engine.StepPoints(*c.task, c.times)
	if err != nil {
		return nil, err
	}
	if len(c.times.Decode) == 0 && len(c.apart) > 0 {
		step := c.task.DecodeStep()
		step.Pass.Decode.SumContext = int64(c.apartContext/float64(c.apartSteps) + 0.5)
		out = append(out, profile.Point{
			Kind: profile.KindStep, Step: &step, Samples: c.apart, Clock: profile.ClockWall,
			Warnings: []string{"the prompts took several steps: of the decode steps only those with the whole batch count, at their own contexts"},
		})
	}
	for _, p := range c.extra {
		out = append(out, *p)
	}
	return out, nil
}

// failure says which half of a task is missing, and why.
func (c *collector) failure(budget int) string {
	t := c.task
	switch {
	case len(c.times.Prefill) == 0 && budget > 0 && t.BatchSize*t.InputLen > budget:
		return engine.FailureException + fmt.Sprintf("the engine did not take the batch in one step: %d prompt tokens, and a step holds at most %d",
			t.BatchSize*t.InputLen, budget)
	case len(c.times.Prefill) == 0:
		return engine.FailureException + "the engine did not take the batch in one step"
	case t.OutputLen > 1 && len(c.times.Decode) == 0 && len(c.apart) == 0:
		return engine.FailureException + "no step decoded the whole batch"
	}
	return ""
}
