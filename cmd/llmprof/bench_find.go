package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/workload"
)

// searchFloor is the search's first run.
const searchFloor = "one request at a time"

// findRate looks for the highest rate that keeps the limits.
func (a *app) findRate(ctx context.Context, urls []string, f *benchFlags, limits load.SLOs) error {
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
	targets, err := f.targets(ctx, urls)
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return fileError("write", f.out, err)
		}
	}
	if math.IsInf(start, 1) {
		start = 0 // the search's own
	}
	found, err := load.Search(ctx, load.SearchOptions{
		Limits: limits, Share: f.share, Seed: f.seed, Start: start,
		Floor: func(seed uint64) (*workload.Schedule, error) {
			one := *f
			one.concurrency, one.prompts, one.duration = 1, min(f.prompts, 20), 0
			return one.schedules(lengths, math.Inf(1), seed)
		},
		Open: func(rate float64, seed uint64) (*workload.Schedule, error) { return f.schedules(lengths, rate, seed) },
		Run: func(ctx context.Context, s *workload.Schedule) (*load.Result, error) {
			title := s.Pattern
			if !s.Open() {
				title = searchFloor
			}
			live := a.newBenchLive(benchSeen{title: title, open: s.Open()}, nil)
			defer live.end()
			return load.Run(ctx, targets, load.Options{
				Schedule: s, Warmup: f.warmup, Timeout: f.timeout, StopOverload: true, Hooks: load.Hooks{Begin: live.begin, Tick: live.tick},
			})
		},
		Settle: a.settle(targets[0], f),
		Step: func(s load.SearchStep) {
			verdict := "kept"
			if !s.Good {
				verdict = "missed"
			}
			text := searchFloor
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
	if err := errors.Join(f.saveSearch(document), a.write(document, report.SaturationTables(document)...)); err != nil {
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

// saveSearch writes the file of a search.
func (f *benchFlags) saveSearch(d report.SaturationDocument) error {
	if f.out == "" {
		return nil
	}
	return writeFile(filepath.Join(f.out, "run.json"), func(w io.Writer) error { return report.JSON(w, d) })
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
