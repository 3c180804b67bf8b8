package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/llmprof/llmprof/format/trace"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// benchSchedule makes the load of a run.
func (a *app) benchSchedule(f *benchFlags) (*workload.Schedule, error) {
	if f.schedule != "" {
		file, err := a.openInput(f.schedule)
		if err != nil {
			return nil, err
		}
		s, err := workload.Read(f.schedule, file)
		return s, errors.Join(err, file.Close())
	}
	if f.concurrency < 0 || f.warmup < 0 || f.prompts < 1 {
		return nil, usage("", "--max-concurrency is %d, --num-warmups %d, --num-prompts %d: want none negative, and one request at least", f.concurrency, f.warmup, f.prompts)
	}
	lengths, recorded, err := a.benchLengths(f)
	if err != nil {
		return nil, err
	}
	if recorded != nil {
		s, err := workload.Replay(recorded.Requests, workload.Replaying{Seed: f.seed, Speed: f.speed, Limit: f.limit, Name: f.path})
		return s, scheduleError(err)
	}
	rate, err := parseRate(f.rate)
	if err != nil {
		return nil, err
	}
	return f.schedules(lengths, rate, f.seed)
}

// schedules makes a schedule at a rate.
func (f *benchFlags) schedules(lengths workload.Lengths, rate float64, seed uint64) (*workload.Schedule, error) {
	arrivals, err := f.arrivals(rate)
	if err != nil {
		return nil, err
	}
	spec := workload.Spec{Seed: seed, Arrivals: arrivals, Lengths: lengths, Count: f.prompts, Duration: unit.Seconds(f.duration.Seconds())}
	if f.duration > 0 && !f.changed("num-prompts") {
		spec.Count = 0
	}
	if n := f.prefixLen.values[0]; n > 0 {
		spec.Prefixes = &workload.Prefixes{Share: f.prefixShare, Groups: f.prefixGroups, Length: workload.Fixed(n), Added: true}
	}
	if f.turns > 0 {
		spec.Sessions = &workload.Sessions{Turns: workload.Fixed(f.turns), Think: unit.Seconds(f.think.Seconds())}
	}
	s, err := workload.Build(spec)
	return s, scheduleError(err)
}

// scheduleError makes the faults of a load a mistake of its flags.
func scheduleError(err error) error {
	if err == nil {
		return nil
	}
	return usage("see llmprof bench --help", "the load cannot be made: %w", err)
}

// arrivals are when requests come.
func (f *benchFlags) arrivals(rate float64) (workload.Arrivals, error) {
	if f.rampShape != "" || f.rampTo > 0 {
		shape := workload.RampShape(f.rampShape)
		if f.rampShape == "" {
			shape = workload.Linear
		}
		return workload.Ramp{From: f.rampFrom, To: f.rampTo, Shape: shape, Over: unit.Seconds(f.rampOver.Seconds()), Burstiness: f.burstiness}, nil
	}
	switch {
	case math.IsInf(rate, 1) && f.concurrency > 0:
		return workload.Closed{Workers: f.concurrency, Think: unit.Seconds(f.think.Seconds())}, nil
	case math.IsInf(rate, 1):
		return workload.Trace{Offsets: make([]unit.Seconds, f.prompts)}, nil
	case math.IsInf(f.burstiness, 1):
		return workload.Constant{Rate: rate}, nil
	case f.burstiness == 1:
		return workload.Poisson{Rate: rate}, nil
	}
	return workload.Gamma{Rate: rate, Burstiness: f.burstiness}, nil
}

// benchLengths are how long prompts and answers are, or the whole trace where
// its times count too.
func (a *app) benchLengths(f *benchFlags) (workload.Lengths, *trace.Trace, error) {
	name := f.dataset
	if f.path != "" && !f.changed("dataset-name") {
		name = "trace"
	}
	switch name {
	case "random":
		return f.randomLengths()
	case "trace", "lengths":
	case "sharegpt", "custom":
		name = "lengths"
	default:
		return nil, nil, unknownDataset(name)
	}
	if f.path == "" {
		return nil, nil, usage("", "--dataset-name %s wants --dataset-path FILE", name)
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, nil, fileError("read", f.path, err)
	}
	t, err := trace.Read(f.path, file, trace.Options{})
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, nil, err
	}
	for _, w := range t.Warnings {
		a.warn(w.Error())
	}
	if name == "trace" && t.Timed && !f.changed("request-rate") {
		return nil, t, nil
	}
	if name == "trace" && !t.Timed && !f.changed("request-rate") {
		return nil, nil, usage("--request-rate says how often requests come", "%s holds lengths and no times", f.path)
	}
	pairs := t.Pairs()
	if f.limit > 0 && f.limit < len(pairs) {
		pairs = pairs[:f.limit]
	}
	return workload.Empirical{Rows: pairs}, nil, nil
}

func (f *benchFlags) randomLengths() (workload.Lengths, *trace.Trace, error) {
	of := func(n int) (workload.Length, error) {
		if f.ratio == 0 {
			return workload.Fixed(n), nil
		}
		return workload.AroundRatio(n, f.ratio)
	}
	input, err := of(f.input.values[0])
	if err != nil {
		return nil, nil, usage("", "--random-range-ratio: %w", err)
	}
	output, err := of(f.output.values[0])
	if err != nil {
		return nil, nil, usage("", "--random-range-ratio: %w", err)
	}
	return workload.Independent{Input: input, Output: output}, nil, nil
}

// findRate looks for the highest rate that keeps the limits.
func (a *app) findRate(ctx context.Context, targets []load.Target, f *benchFlags, limits load.SLOs) error {
	lengths, recorded, err := a.benchLengths(f)
	if err != nil {
		return err
	}
	if recorded != nil {
		return usage("--dataset-name lengths takes the lengths alone", "--find-rate makes its own times, and a trace has them")
	}
	start, err := parseRate(f.rate)
	if err != nil {
		return err
	}
	if math.IsInf(start, 1) {
		start = 0 // the search's own
	}
	found, err := load.Search(ctx, load.SearchOptions{
		Limits: limits, Share: f.share, Seed: f.seed, Start: start,
		Floor: func(seed uint64) (*workload.Schedule, error) {
			one := *f
			one.concurrency, one.prompts = 1, min(f.prompts, 20)
			return one.schedules(lengths, math.Inf(1), seed)
		},
		Open: func(rate float64, seed uint64) (*workload.Schedule, error) { return f.schedules(lengths, rate, seed) },
		Run: func(ctx context.Context, s *workload.Schedule) (*load.Result, error) {
			return load.Run(ctx, targets, load.Options{Schedule: s, Warmup: f.warmup, Timeout: f.timeout, StopOverload: true})
		},
		Settle: a.settle(targets[0], f),
		Step: func(s load.SearchStep) {
			verdict := "kept"
			if !s.Good {
				verdict = "missed"
			}
			text := "one request at a time"
			if s.Rate > 0 {
				text = fmt.Sprintf("%.4g requests/s", s.Rate)
			}
			a.log().Info(fmt.Sprintf("%s: limits %s", text, verdict))
		},
	})
	if err != nil {
		return err
	}
	document := report.Saturation(found, limits, targets[0].URL, targets[0].Model, version())
	if err := a.write(document, report.SaturationTables(document)...); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if found.Good == nil {
		return &verdictError{"no rate keeps the limits"}
	}
	return nil
}

// settle waits until the server is idle again, as far as it tells.
func (a *app) settle(t load.Target, f *benchFlags) func(context.Context) error {
	return func(ctx context.Context) error {
		w := a.watch(ctx, t, f)
		if w == nil {
			return nil
		}
		defer w.Stop()
		for range 120 {
			if idle, known := w.Idle(); idle || !known {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(f.metricsInterval):
			}
		}
		return nil
	}
}

// benchLive shows a run on a terminal.
type benchLive struct {
	*meter
	last time.Time
}

func (a *app) newBenchLive() *benchLive { return &benchLive{meter: a.newMeter()} }

// show writes the figures so far over the last ones, or a line now and then.
func (l *benchLive) show(s load.Live) {
	now := time.Now()
	if l.quiet || now.Sub(l.last) < l.interval {
		return
	}
	l.last = now
	text := fmt.Sprintf("%d of %d, %d running", s.Done+s.Failed, s.Total, s.Running)
	if s.Waiting > 0 {
		text += fmt.Sprintf(", %d held back", s.Waiting)
	}
	if s.Failed > 0 {
		text += fmt.Sprintf(", %d failed", s.Failed)
	}
	text += fmt.Sprintf(", %.1f req/s, %.0f tok/s", s.RequestRate, s.TokenRate)
	if s.TTFT50 > 0 {
		text += fmt.Sprintf(", TTFT %s / %s", s.TTFT50.Round(100*time.Microsecond), s.TTFT99.Round(100*time.Microsecond))
	}
	if s.ICL50 > 0 {
		text += fmt.Sprintf(", ICL %s / %s", s.ICL50.Round(100*time.Microsecond), s.ICL99.Round(100*time.Microsecond))
	}
	text += ", " + s.Elapsed.Round(time.Second).String()
	if !l.live {
		_, _ = fmt.Fprintln(l.w, text) // stderr is for people: nothing depends on it
		return
	}
	_, _ = fmt.Fprintf(l.w, "\r%s%s", text, strings.Repeat(" ", max(0, l.width-len(text))))
	l.width = len(text)
}
