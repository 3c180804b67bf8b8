package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
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
	targets, _, err := f.targets(ctx, urls)
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
	// Watched once for all steps, so that a server without metrics is remarked once.
	servers := a.watch(ctx, targets, f, time.Hour).group
	defer servers.Stop()
	search := a.search(targets, f, lengths)
	search.Limits, search.Start, search.Settle = limits, start, untilIdle(servers, f.metricsInterval)
	found, err := load.Search(ctx, search)
	if err != nil {
		return err
	}
	var asked []string
	for _, t := range targets {
		asked = append(asked, t.URL)
	}
	document := report.Saturation(found, limits, strings.Join(asked, ", "), targets[0].Model, version())
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

// search says how the steps of a search are made and run.
func (a *app) search(targets []load.Target, f *benchFlags, lengths workload.Lengths) load.SearchOptions {
	return load.SearchOptions{
		Share: f.share, Seed: f.seed,
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
		Step: a.tellStep,
	}
}

// tellStep says what came of a step of a search.
func (a *app) tellStep(s load.SearchStep) {
	verdict := "kept"
	if !s.Good {
		verdict = "missed"
	}
	text := searchFloor
	if s.Rate > 0 {
		text = fmt.Sprintf("%.4g requests/s", s.Rate)
	}
	a.log().Info(fmt.Sprintf("%s: limits %s", text, verdict))
}

// saveSearch writes the file of a search.
func (f *benchFlags) saveSearch(d report.SaturationDocument) error {
	if f.out == "" {
		return nil
	}
	return writeFile(filepath.Join(f.out, "run.json"), func(w io.Writer) error { return report.JSON(w, d) })
}

// untilIdle waits until the servers are idle again, as far as they tell, and for at
// most 120 intervals. It asks them itself: nothing reads their metrics meanwhile.
func untilIdle(servers metrics.Group, every time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		patience, cancel := context.WithTimeout(ctx, 120*every)
		defer cancel()
		for {
			servers.Read(patience)
			if idle, known := servers.Idle(); idle || !known {
				return ctx.Err()
			}
			select {
			case <-patience.Done():
				return ctx.Err() // nil where only the patience is at its end
			case <-time.After(every):
			}
		}
	}
}
