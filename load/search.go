package load

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/llmprof/llmprof/workload"
)

// SearchOptions says how the saturation of a target is looked for.
type SearchOptions struct {
	// Limits are what a request must meet; at least one.
	Limits SLOs
	// Share of the requests must meet them, 0..1; default 0.9.
	Share float64
	// Start is the first rate in requests a second; default 1. Most is where
	// doubling ends; default 4,096.
	Start, Most float64
	// Width is how close the bisection brings the last good and the first bad
	// rate, as a share; default 0.05.
	Width float64
	// Seed is that of the first schedule; each further one has the next.
	Seed uint64
	// Floor makes the closed-loop schedule of one worker, Open one of a rate.
	Floor func(seed uint64) (*workload.Schedule, error)
	Open  func(rate float64, seed uint64) (*workload.Schedule, error)
	// Run puts a schedule on the target and ends early on overload: [Run] with
	// [Options].StopOverload.
	Run func(ctx context.Context, s *workload.Schedule) (*Result, error)
	// Settle waits until the server is idle again; nil to go on at once.
	Settle func(ctx context.Context) error
	// Step, if not nil, is told each step.
	Step func(SearchStep)
}

// SearchStep is a run of the search.
type SearchStep struct {
	// Rate is in requests a second; 0 for the floor.
	Rate float64 `json:"rate"`
	Seed uint64  `json:"seed"`
	// Good says that the limits hold for the wanted share of the requests.
	Good bool `json:"good"`
	// Over says that the run was ended because the server fell behind.
	Over   bool    `json:"over_capacity"`
	Whole  Summary `json:"whole"`
	Steady Summary `json:"steady"`
}

// Saturation is what the search found. What no step showed is nil.
type Saturation struct {
	// Floor is the run of one request at a time.
	Floor SearchStep `json:"floor"`
	// Steps are the others, in the order in which they were run.
	Steps []SearchStep `json:"steps"`
	// Good is the highest rate at which the limits hold, in requests a second;
	// Confirmed says that they did with another seed too.
	Good      *float64 `json:"slo_rate"`
	Confirmed bool     `json:"confirmed"`
	// Short says that no run served even two thirds of Good: all ended before a
	// queue could build up, and longer ones may keep the limits at less only.
	Short bool `json:"short_runs,omitempty"`
	// Knee is the tested rate with the best ratio of throughput to end-to-end
	// latency, in requests a second.
	Knee *float64 `json:"knee_rate"`
	// MaxThroughput is the highest throughput seen, in requests a second, and
	// MaxTokens in output tokens a second.
	MaxThroughput *float64 `json:"max_request_throughput"`
	MaxTokens     *float64 `json:"max_output_throughput"`
	// Partial says why the search ended early; empty where it did not.
	Partial string `json:"partial,omitempty"`
}

// Search finds the rate up to which a target keeps its limits: a run with one
// request at a time, rates that double until one is bad, bisection on a
// logarithmic scale, and the answer again with another seed. A cancelled
// context gives what was found so far.
func Search(ctx context.Context, o SearchOptions) (*Saturation, error) {
	if err := o.prepare(); err != nil {
		return nil, fmt.Errorf("saturation search: %w", err)
	}
	s := &searcher{options: o, found: &Saturation{}}
	err := s.search(ctx)
	s.summarize()
	if interrupted := ctx.Err() != nil; interrupted && err != nil {
		s.found.Partial, err = "interrupted", nil
	}
	return s.found, err
}

// prepare fills the defaults and reports what is missing.
func (o *SearchOptions) prepare() error {
	for _, f := range []struct {
		value   *float64
		instead float64
	}{{&o.Share, 0.9}, {&o.Start, 1}, {&o.Most, 4096}, {&o.Width, 0.05}} {
		if *f.value == 0 {
			*f.value = f.instead
		}
	}
	var faults []error
	if len(o.Limits) == 0 {
		faults = append(faults, errors.New("no limit is given"))
	}
	if !(o.Share > 0 && o.Share <= 1) || !(o.Start > 0) || !(o.Most >= o.Start) || !(o.Width > 0 && o.Width < 1) {
		faults = append(faults, fmt.Errorf("share %g, rates %g to %g, width %g: want a share up to 1, rising rates and a width below 1", o.Share, o.Start, o.Most, o.Width))
	}
	if o.Floor == nil || o.Open == nil || o.Run == nil {
		faults = append(faults, errors.New("schedules and a way to run them are needed"))
	}
	return errors.Join(faults...)
}

// searcher is a search under way.
type searcher struct {
	options SearchOptions
	seed    uint64
	found   *Saturation
}

func (s *searcher) search(ctx context.Context) error {
	floor, err := s.step(ctx, 0)
	if err != nil {
		return fmt.Errorf("saturation search: one request at a time: %w", err)
	}
	s.found.Floor = floor
	if !floor.Good {
		return nil // even an idle server misses the limits
	}
	good, bad := 0.0, math.Inf(1)
	try := func(rate float64) (bool, error) {
		step, err := s.step(ctx, rate)
		if err != nil {
			return false, fmt.Errorf("saturation search at %.4g/s: %w", rate, err)
		}
		s.found.Steps = append(s.found.Steps, step)
		if step.Good {
			good = max(good, rate)
		} else {
			bad = min(bad, rate)
		}
		return step.Good, nil
	}
	for rate := s.options.Start; math.IsInf(bad, 1) && rate <= s.options.Most; rate *= 2 {
		if _, err := try(rate); err != nil {
			return err
		}
	}
	for rate := s.options.Start / 2; good == 0 && rate > s.options.Start/1024; rate /= 2 {
		if _, err := try(rate); err != nil {
			return err
		}
	}
	for good > 0 && !math.IsInf(bad, 1) && bad/good > 1+s.options.Width {
		if _, err := try(math.Sqrt(good * bad)); err != nil {
			return err
		}
	}
	if good == 0 {
		return nil
	}
	s.found.Good = new(good)
	s.found.Confirmed, err = try(good)
	return err
}

// step runs one rate.
func (s *searcher) step(ctx context.Context, rate float64) (SearchStep, error) {
	step := SearchStep{Rate: rate, Seed: s.options.Seed + s.seed}
	s.seed++
	var schedule *workload.Schedule
	var err error
	if rate == 0 {
		schedule, err = s.options.Floor(step.Seed)
	} else {
		schedule, err = s.options.Open(rate, step.Seed)
	}
	if err != nil {
		return step, err
	}
	if s.options.Settle != nil {
		if err := s.options.Settle(ctx); err != nil {
			return step, err
		}
	}
	result, err := s.options.Run(ctx, schedule)
	if err != nil {
		return step, err
	}
	if err := ctx.Err(); err != nil {
		return step, err
	}
	step.Whole, step.Steady = result.Summaries(s.options.Limits)
	step.Over = result.OverCapacity
	step.Good = !step.Over && (!s.options.Limits.Single() || step.Whole.GoodShare != nil && *step.Whole.GoodShare >= s.options.Share)
	for _, v := range step.Whole.SLOs {
		step.Good = step.Good && v.Met
	}
	if s.options.Step != nil {
		s.options.Step(step)
	}
	return step, nil
}

// summarize finds the figures that are over all steps.
func (s *searcher) summarize() {
	best := 0.0
	for _, step := range s.found.Steps {
		raise(&s.found.MaxThroughput, step.Whole.RequestThroughput)
		raise(&s.found.MaxTokens, step.Whole.OutputThroughput)
		rate, latency := step.Whole.RequestThroughput, step.Whole.E2ELSched.Mean
		if rate == nil || latency == nil || *latency <= 0 || step.Over {
			continue
		}
		if power := *rate / *latency; power > best {
			best, s.found.Knee = power, new(step.Rate)
		}
	}
	if good, most := s.found.Good, s.found.MaxThroughput; good != nil && most != nil {
		s.found.Short = *most < shortRuns**good
	}
}

// shortRuns is how much of a rate a run has to serve to be long enough, as a
// share: the rest is the time in which its last requests end.
const shortRuns = 2.0 / 3

// raise keeps the larger value.
func raise(most **float64, value *float64) {
	if value != nil && (*most == nil || *value > **most) {
		*most = value
	}
}
