package serving

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// sent is a request of a run and the side that it is of.
type sent struct {
	workload.Request
	side string
}

// Run is one run of a cell.
type Run struct {
	// Started is its beginning, Elapsed the time to the end of its last request.
	Started time.Time
	Elapsed time.Duration
	// Prefill and Decode are the records of the requests of either side, in
	// their order.
	Prefill, Decode []load.Record
	// From and To bound the part that is measured, since the start: of a prefill
	// until its last first token, of a decode while all requests decode, of both
	// together while prompts are computed and all others decode.
	From, To time.Duration
	// Steps are the engine's, of the whole run; nil where it does not tell them.
	Steps []engine.ServedStep
	// Server is what the server says of the run; nil where it publishes nothing.
	Server *profile.Server
	// Hits are the tokens of prompts that the server found in its cache by its
	// counter of prefix hits, Cached those that its answers name; nil where one
	// does not say.
	Hits, Cached *int
}

// Phase is the counted runs of one load, and the devices meanwhile.
type Phase struct {
	Runs []Run
	// Timeline is empty where the devices are not read.
	Timeline gpu.Timeline
}

// Tries of runs that did not find in the cache what was put there, and of those
// whose requests did not overlap as they should.
const (
	maxPrimings    = 5
	maxAdaptations = 8
)

// repeat primes the prefixes, warms up and makes the counted runs of a load.
// adapt looks at a run, bounds what is measured of it, and reports whether it
// counts; nil takes prefills.
func (e *Experiment) repeat(ctx context.Context, phase string, prefixes [][]workload.Span, requests func(run int) []sent, adapt func(*Run) (bool, error)) (*Phase, error) {
	if adapt == nil {
		adapt = boundPrefill
	}
	out := &Phase{}
	var recording *gpu.Recording
	defer func() {
		if recording != nil {
			out.Timeline, _ = recording.Stop() // a sampler that fails leaves the devices out
		}
	}()
	primed, misses, adaptations := false, 0, 0
	for n := 0; len(out.Runs) < e.opts.Runs; {
		if !primed {
			if err := e.prime(ctx, prefixes); err != nil {
				return nil, err
			}
		}
		e.tell(phase, n+1)
		if n == e.opts.Warmup && recording == nil && e.opts.Source != nil {
			recording = gpu.Record(ctx, e.opts.Source, gpu.RecordOptions{Every: e.opts.Every, Keep: e.opts.Keep})
		}
		run, err := e.run(ctx, requests(n))
		if err != nil {
			return nil, err
		}
		if primed = e.asPrimed(run); !primed {
			misses++
			if misses == maxPrimings {
				return nil, e.unprimed(run)
			}
			continue
		}
		misses = 0
		whole, err := adapt(run)
		switch {
		case err != nil:
			return nil, err
		case n < e.opts.Warmup:
			n++
		case whole:
			out.Runs = append(out.Runs, *run)
			n++
		default:
			adaptations++
			if adaptations > maxAdaptations {
				return nil, failed("more steps (--num-steps), or a smaller B", "%s: in none of %d runs did all requests run together", phase, adaptations)
			}
		}
	}
	return out, nil
}

// tell tells of a run that begins.
func (e *Experiment) tell(phase string, run int) {
	if e.opts.Progress != nil {
		e.opts.Progress(Progress{e.cell, phase, run, e.opts.Warmup + e.opts.Runs})
	}
}

// asPrimed reports whether a run found in the cache just what was put there.
// Where it found more, tokens that should be new were there already, as after an
// earlier measurement with the same seed: others are drawn from then on.
func (e *Experiment) asPrimed(r *Run) bool {
	found := r.found()
	if found == nil || *found == e.wanted(r) {
		return true
	}
	if *found > e.wanted(r) {
		e.draw()
	}
	return false
}

// wanted is how many tokens of a run's prompts are in the cache.
func (e *Experiment) wanted(r *Run) int { return e.cell.Cached() * (len(r.Prefill) + len(r.Decode)) }

// unprimed says why a cell cannot be measured whose prefixes are not found as
// they should be.
func (e *Experiment) unprimed(r *Run) error {
	found, want := *r.found(), e.wanted(r)
	if found > want {
		return failed("another --seed, or a server that nobody else asks", "the server found %d tokens in its cache, and only %d were put there: others were not new to it", found, want)
	}
	return failed("a larger KV cache, a smaller B or M; --block-size has to be the server's own",
		"the server found %d tokens in its cache, and M × block size of %d requests are %d", found, len(r.Prefill)+len(r.Decode), want)
}

// prime puts prefixes into the server's cache.
func (e *Experiment) prime(ctx context.Context, prefixes [][]workload.Span) error {
	if e.cell.CachedBlocks == 0 {
		return nil
	}
	if e.opts.Progress != nil {
		e.opts.Progress(Progress{Cell: e.cell, Phase: "priming"})
	}
	var requests []sent
	for _, prefix := range prefixes {
		// One token more, since some engines do not keep a block that ends the
		// prompt.
		requests = append(requests, sent{workload.Request{InputLen: e.cell.Cached() + 1, OutputLen: 1, Seed: e.seed(), Prefix: prefix}, profile.Prefill})
	}
	_, err := e.run(ctx, requests)
	return err
}

// seed is a new seed for tokens.
func (e *Experiment) seed() uint64 { return e.random.Uint64() >> 11 }

// prefixes are new prefixes of a cell's requests, one each.
func (e *Experiment) prefixes(c Cell) [][]workload.Span {
	out := make([][]workload.Span, c.Requests)
	for i := range out {
		if c.CachedBlocks > 0 {
			out[i] = []workload.Span{{Seed: e.seed(), Len: c.Cached()}}
		}
	}
	return out
}

// prefill are requests of new tokens behind prefixes, due at a time.
func (e *Experiment) prefill(c Cell, prefixes [][]workload.Span, at unit.Seconds) []sent {
	return e.requests(c, prefixes, at, 1, profile.Prefill)
}

func (e *Experiment) requests(c Cell, prefixes [][]workload.Span, at unit.Seconds, output int, side string) []sent {
	var out []sent
	for _, prefix := range prefixes {
		out = append(out, sent{workload.Request{At: at, InputLen: c.Context(), OutputLen: output, Seed: e.seed(), Prefix: prefix}, side})
	}
	return out
}

// run sends requests and gathers what is known of them.
func (e *Experiment) run(ctx context.Context, requests []sent) (*Run, error) {
	schedule := &workload.Schedule{Pattern: "at once", Seed: e.opts.Seed}
	for i, q := range requests {
		q.ID = i
		schedule.Requests = append(schedule.Requests, q.Request)
	}
	if e.watcher != nil {
		e.watcher.Read(ctx)
	}
	mark := 0
	if e.opts.Log != nil {
		mark = e.opts.Log.Mark()
	}
	result, err := load.Run(ctx, []load.Target{e.opts.Target}, load.Options{Schedule: schedule, Timeout: e.opts.Timeout})
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	run := &Run{Started: result.Started, Elapsed: result.Elapsed}
	if err := run.take(result.Records, requests); err != nil {
		return nil, err
	}
	if e.watcher != nil {
		run.Server = e.settled(ctx, result)
	}
	run.countCached()
	if e.opts.Log != nil {
		run.Steps = e.opts.Log.Steps(ctx, mark, run.computed())
	}
	return run, nil
}

// take sorts the records by side and holds them to be what was asked for.
func (r *Run) take(records []load.Record, requests []sent) error {
	for i := range records {
		rec := records[i]
		q := requests[rec.ID]
		if rec.Failure != nil {
			return failed("", "a request of %d tokens failed: %s", q.InputLen, rec.Failure)
		}
		if len(rec.Chunks) == 0 {
			return failed("the server has to stream its answers", "a request of %d tokens was answered without a stream", q.InputLen)
		}
		if rec.Output.Known() && rec.Output.Tokens != q.OutputLen {
			return failed("a server that keeps to ignore_eos and min_tokens is needed, as vLLM and SGLang do", "asked for were %d tokens, the server generated %d", q.OutputLen, rec.Output.Tokens)
		}
		if q.side == profile.Prefill {
			r.Prefill = append(r.Prefill, rec)
		} else {
			r.Decode = append(r.Decode, rec)
		}
	}
	if len(records) != len(requests) {
		return errors.New("the run ended before all requests were sent")
	}
	return nil
}

// settled waits until the metrics tell of all that was answered, and returns
// what they say of the run.
func (e *Experiment) settled(ctx context.Context, result *load.Result) *profile.Server {
	want := 0.0
	for i := range result.Records {
		want += float64(result.Records[i].Output.Tokens)
	}
	var window profile.Server
	known := false
	for wait := 10 * time.Millisecond; wait < 2*time.Second && ctx.Err() == nil; wait *= 2 {
		e.watcher.Read(ctx)
		if window, known = e.watcher.Between(result.Started, time.Now()); known && (window.GenerationTokens == nil || *window.GenerationTokens >= want) {
			break
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
	if !known {
		return nil
	}
	// What is running when nothing runs says nothing of the run.
	window.Running, window.Waiting, window.KVUsage = e.watcher.Gauges(result.Started, result.Started.Add(result.Elapsed))
	return &window
}

// countCached finds out how much of the prompts was cached.
func (r *Run) countCached() {
	if r.Server != nil && r.Server.PrefixHits != nil && !math.IsNaN(*r.Server.PrefixHits) {
		r.Hits = new(int(*r.Server.PrefixHits + 0.5))
	}
	total := 0
	for _, rec := range r.all() {
		if !rec.Cached.Known() {
			return
		}
		total += rec.Cached.Tokens
	}
	r.Cached = &total
}

// found is how much of the prompts was cached: the answers know it of these
// requests alone, the counter of all that the server had. nil where neither says.
func (r *Run) found() *int {
	if r.Cached != nil {
		return r.Cached
	}
	return r.Hits
}

func (r *Run) all() []load.Record { return slices.Concat(r.Prefill, r.Decode) }

// computed is the number of tokens that the run's requests had to compute: the
// last token generated is never computed.
func (r *Run) computed() int {
	n := 0
	for _, rec := range r.all() {
		n += rec.Prompt.Tokens + rec.Output.Tokens - 1
	}
	if found := r.found(); found != nil {
		n -= *found
	}
	return n
}
