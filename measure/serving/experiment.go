package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
	"github.com/llmprof/llmprof/profile"
)

// Options says what is measured and how. The zero value of a field means its
// default, or that it is not known.
type Options struct {
	// Target is the server and how it is asked. Required.
	Target load.Target
	// Metrics is where it publishes its own; nil for nowhere.
	Metrics *metrics.Server
	// Log tells of its steps; nil where nobody does.
	Log interface {
		Mark() int
		Steps(ctx context.Context, mark, tokens int) []engine.ServedStep
	}
	// Source reads the devices, Keep picks the engine's; nil where they are not
	// read. Every is the time between two readings. Default 100 ms.
	Source gpu.Source
	Keep   func(gpu.Reading) bool
	Every  time.Duration

	// BlockSize, MaxModelLen, Seats (requests at once), Budget (tokens of a
	// step), KVTokens and PrefixCaching are the server's, as far as it told.
	BlockSize, MaxModelLen, Seats, Budget, KVTokens int
	PrefixCaching                                   *bool
	// StepNote goes with every step as a warning.
	StepNote string

	// Warmup runs come first and are not counted; Runs are. Default of Runs: 10.
	Warmup, Runs int
	// Steps is how many steps of a decode are wanted in each run while all
	// requests decode. Default 32.
	Steps int
	// Timeout bounds one request. Default 10 minutes.
	Timeout time.Duration
	// Seed makes the prompts.
	Seed uint64
	// Progress is told of every run; it may be nil.
	Progress func(Progress)
}

// Progress says how far a cell is.
type Progress struct {
	Cell Cell
	// Phase is what runs: "priming", "prefill alone", "decode alone", "mixed".
	Phase string
	// Run of Runs, warm-up included, counted from 1.
	Run, Runs int
}

// Experiment is a server that is measured cell by cell.
type Experiment struct {
	opts    Options
	watcher *metrics.Watcher // nil without metrics
	random  *rand.Rand
	drawn   uint64 // tells sequences of tokens apart
	cell    Cell
}

// metricsEvery is the time between two readings of the metrics beside those
// around each run: they cost the server a little.
const metricsEvery = time.Second

// Open makes ready to measure. The error says that the server's metrics, which
// were asked for, cannot be read.
func Open(ctx context.Context, opts Options) (*Experiment, error) {
	if opts.Warmup < 0 || opts.Runs < 0 || opts.Steps < 0 {
		return nil, fmt.Errorf("%d warm-up runs, %d runs, %d steps: want none negative", opts.Warmup, opts.Runs, opts.Steps)
	}
	opts.Runs, opts.Steps = cmp.Or(opts.Runs, 10), cmp.Or(opts.Steps, 32)
	opts.Timeout = cmp.Or(opts.Timeout, 10*time.Minute)
	e := &Experiment{opts: opts}
	if opts.Metrics != nil {
		var err error
		if e.watcher, err = metrics.Watch(context.WithoutCancel(ctx), *opts.Metrics, metricsEvery); err != nil {
			return nil, err
		}
		// A server that has seen prompts may have seen these; what it has counted
		// picks others, and a fresh server always gets the same.
		e.drawn = e.watcher.PromptTokens()
	}
	e.draw()
	return e, nil
}

// draw begins another sequence of tokens.
func (e *Experiment) draw() {
	e.random = rand.New(rand.NewPCG(e.opts.Seed, 0x5e4f+e.drawn)) // repeatable on purpose
	e.drawn++
}

// Close ends the reading of metrics.
func (e *Experiment) Close() {
	if e.watcher != nil {
		e.watcher.Stop()
	}
}

// cellError ends a cell, and not the experiment.
type cellError struct{ reason, hint string }

func (e *cellError) Error() string { return e.reason }

// failed makes an error that ends a cell.
func failed(hint, format string, args ...any) error {
	return &cellError{fmt.Sprintf(format, args...), hint}
}

// Measure measures a cell. A cell that the server cannot run, or of which
// something cannot be true, is a result with a Failure; an error, which is ctx's
// or says that nothing can be sent at all, ends the experiment. What was
// measured of a cell before ctx ended is lost.
func (e *Experiment) Measure(ctx context.Context, c Cell) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &Result{Cell: c, Started: time.Now(), Budget: e.opts.Budget, Seats: e.opts.Seats, KVTokens: e.opts.KVTokens, StepNote: e.opts.StepNote}
	if e.watcher != nil {
		e.watcher.Forget()
	}
	e.cell = c
	err := e.phases(ctx, c, r)
	var end *cellError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &end):
		r.Failure, r.Hint = end.reason, end.hint
	case err != nil:
		return nil, err
	}
	r.missing(&e.opts)
	return r, nil
}

// phases runs what a cell is made of.
func (e *Experiment) phases(ctx context.Context, c Cell, r *Result) error {
	least := 1
	if c.Type != profile.Prefill {
		least = e.opts.Steps + 1
	}
	if reason, hint := e.opts.fits(c, least); reason != "" {
		return failed(hint, "%s", reason)
	}
	own, others := e.prefixes(c), e.prefixes(c)
	var err error
	if c.Type != profile.Decode {
		if r.Prefill, err = e.repeat(ctx, "prefill alone", own, func(int) []sent { return e.prefill(c, own, 0) }, nil); err != nil {
			return err
		}
	}
	if c.Type != profile.Prefill {
		d := decoding{experiment: e, cell: c, prefixes: others, output: e.opts.Steps + 3}
		if r.Decode, err = e.repeat(ctx, "decode alone", others, d.requests, d.adapt); err != nil {
			return err
		}
	}
	if c.Type == profile.Mixed {
		m := mixing{decoding: decoding{experiment: e, cell: c, prefixes: others, output: e.opts.Steps + 3}, arrivals: own}
		m.plan(r.Prefill, r.Decode)
		if r.Mixed, err = e.repeat(ctx, "mixed", append(own, others...), m.requests, m.adapt); err != nil {
			return err
		}
	}
	return nil
}
