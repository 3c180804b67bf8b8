package vllmbench

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// Latency is the result of "vllm bench latency": the time of a whole batch,
// prompts and all tokens after them. All times are in seconds.
type Latency struct {
	// ModelID is the model as the command line named it; empty in old files.
	ModelID string
	// Average and Deviation are nil where the file has none.
	Average, Deviation *float64
	// Latencies are the times of the single iterations.
	Latencies []float64
	// Percentiles are in ascending order.
	Percentiles []Percentile
	// Extra keeps foreign keys, verbatim.
	Extra map[string]json.RawMessage
	// Origin is where the result was read.
	Origin string
}

// Percentile is one percentile of a distribution.
type Percentile struct {
	// Percent is 0 to 100.
	Percent float64
	Seconds float64
}

// ReadLatency reads the file of --output-json, or what the command printed.
func ReadLatency(name string, r io.Reader, limits format.Limits) (*Latency, []error, error) {
	text, kind, err := open(name, r, limits, KindLatency, KindLatencyStdout)
	if err != nil {
		return nil, nil, err
	}
	if kind == KindLatencyStdout {
		l, err := latencyStdout(name, text)
		return l, nil, err
	}
	nodes, warnings, err := objects(name, text, limits)
	if err != nil {
		return nil, nil, err
	}
	if len(nodes) > 1 {
		return nil, nil, nodes[1].Errorf("a second result: want one a file")
	}
	f := newFields(nodes[0])
	l := &Latency{
		ModelID: f.text("model_id"), Average: f.seconds("avg_latency", 1), Deviation: f.seconds("std_latency", 1),
		Latencies: list(f, f.get("latencies"), secondsOf), Origin: name,
	}
	for key, n := range f.get("percentiles").Members() {
		percent, err := strconv.ParseFloat(key, 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			f.fail(n.Errorf("want a percentile from 0 to 100 as the key, got %q", key))
			break
		}
		if v := f.figure(n, maxSeconds, 1); v != nil {
			l.Percentiles = append(l.Percentiles, Percentile{Percent: percent, Seconds: *v})
		}
	}
	sortPercentiles(l.Percentiles)
	l.Extra = f.extra()
	if l.Average != nil && len(l.Latencies) > 0 {
		f.agree(f.get("avg_latency"), *l.Average, stat.Mean(l.Latencies), 1e-5, "the mean of the latencies")
	}
	return l, append(warnings, f.warnings...), f.err
}

func sortPercentiles(p []Percentile) {
	slices.SortFunc(p, func(a, b Percentile) int {
		switch {
		case a.Percent < b.Percent:
			return -1
		case a.Percent > b.Percent:
			return 1
		}
		return 0
	})
}

var percentileLine = regexp.MustCompile(`(?m)^([\d.]+)% percentile latency: *(\S+) seconds`)

func latencyStdout(name string, text []byte) (*Latency, error) {
	l := &Latency{Origin: name}
	average, err := printed(name, averageLine.FindSubmatch(text), 1)
	if err != nil {
		return nil, err
	}
	l.Average = &average
	for _, found := range percentileLine.FindAllSubmatch(text, 1000) {
		percent, err := printed(name, found, 1)
		if err != nil {
			return nil, err
		}
		seconds, err := printed(name, found, 2)
		if err != nil {
			return nil, err
		}
		if percent > 100 {
			return nil, &format.Error{File: name, Err: fmt.Errorf("%s: want 0%% to 100%%", found[0])}
		}
		l.Percentiles = append(l.Percentiles, Percentile{Percent: percent, Seconds: seconds})
	}
	sortPercentiles(l.Percentiles)
	return l, nil
}

// printed reads a number of a printed line.
func printed(name string, found [][]byte, group int) (float64, error) {
	v, err := strconv.ParseFloat(string(found[group]), 64)
	if err != nil || !(v >= 0 && v <= maxCount) {
		return 0, &format.Error{File: name, Err: fmt.Errorf("%s: want a number, got %q", found[0], found[group])}
	}
	return v, nil
}

// Run is a latency result with the command line's figures, which its file does
// not hold.
type Run struct {
	Latency *Latency
	// BatchSize is --batch-size, InputLen and OutputLen the tokens of each
	// sequence.
	BatchSize, InputLen, OutputLen int
}

// StepsFrom takes the time of a decode step from two runs that differ in the
// output length only, as (long − short) / (difference of the lengths): one
// sample an iteration of the long run, each against the median of the short
// one. Where the short run generated one token, its iterations are samples of
// the prefill; they hold the host's work for a request as well, and a warning
// says so.
func StepsFrom(short, long Run) ([]profile.Point, error) {
	switch {
	case short.BatchSize != long.BatchSize || short.InputLen != long.InputLen:
		return nil, fmt.Errorf("latency runs of batch %d × %d and batch %d × %d: want the same batch size and input length",
			short.BatchSize, short.InputLen, long.BatchSize, long.InputLen)
	case short.BatchSize < 1 || short.InputLen < 1 || short.OutputLen < 1:
		return nil, fmt.Errorf("latency run of batch %d × %d, %d tokens out: want 1 or more of each", short.BatchSize, short.InputLen, short.OutputLen)
	case short.OutputLen >= long.OutputLen:
		return nil, fmt.Errorf("latency runs of %d and %d tokens out: want the second to be longer", short.OutputLen, long.OutputLen)
	}
	a, b := short.Latency.samples(), long.Latency.samples()
	if len(a) == 0 || len(b) == 0 {
		return nil, fmt.Errorf("latency runs of batch %d × %d: one holds no time", short.BatchSize, short.InputLen)
	}
	var points []profile.Point
	if short.OutputLen == 1 {
		prefill, err := PrefillFrom(short)
		if err != nil {
			return nil, err
		}
		prefill.Step.OutputLen = long.OutputLen
		points = append(points, prefill)
	}
	base, steps := stat.Median(a), float64(long.OutputLen-short.OutputLen)
	samples := make([]float64, 0, len(b))
	for _, t := range b {
		if t > base {
			samples = append(samples, (t-base)/steps)
		}
	}
	if len(samples) == 0 {
		return points, fmt.Errorf("latency runs of batch %d × %d: %d tokens out took no longer than %d",
			short.BatchSize, short.InputLen, long.OutputLen, short.OutputLen)
	}
	decode := profile.Point{Kind: profile.KindStep, Step: &profile.Step{
		Mode: profile.Decode, BatchSize: long.BatchSize, InputLen: long.InputLen, OutputLen: long.OutputLen, Pass: between(short, long),
	}, Samples: samples, Clock: profile.ClockWall, Origin: long.Latency.Origin}
	if n := len(b) - len(samples); n > 0 {
		decode.Warnings = []string{fmt.Sprintf("%d of %d iterations left out: they took no longer than the shorter run", n, len(b))}
	}
	return append(points, decode), nil
}

// PrefillFrom takes the iterations of a run that generated one token as
// samples of its prefill, with a warning that they hold the host's work for a
// request as well.
func PrefillFrom(run Run) (profile.Point, error) {
	if run.BatchSize < 1 || run.InputLen < 1 || run.OutputLen != 1 {
		return profile.Point{}, fmt.Errorf("latency run of batch %d × %d, %d tokens out: want one token out", run.BatchSize, run.InputLen, run.OutputLen)
	}
	samples := run.Latency.samples()
	if len(samples) == 0 {
		return profile.Point{}, fmt.Errorf("latency run of batch %d × %d: holds no time", run.BatchSize, run.InputLen)
	}
	return profile.Point{
		Kind: profile.KindStep, Samples: samples, Clock: profile.ClockWall, Origin: run.Latency.Origin,
		Step: &profile.Step{
			Mode: profile.Prefill, BatchSize: run.BatchSize, InputLen: run.InputLen, OutputLen: 1,
			Pass: forward.Prefill(run.BatchSize, run.InputLen, 0),
		},
		Warnings: []string{"holds the host's work for a request: the whole latency of a run with one output token"},
	}, nil
}

// samples are the iterations, or the mean where they were not kept.
func (l *Latency) samples() []float64 {
	var out []float64
	for _, t := range l.Latencies {
		if t > 0 {
			out = append(out, t)
		}
	}
	if len(out) == 0 && l.Average != nil && *l.Average > 0 {
		out = append(out, *l.Average)
	}
	return out
}

// between is the pass for which the steps that only the long run has stand,
// at their mean context. With one token in the short run these are contexts
// input+1 … input+output−1, whose mean is input + output/2.
func between(short, long Run) forward.Pass {
	b, i := int64(long.BatchSize), int64(long.InputLen)
	return forward.Pass{Decode: forward.Sequences{
		Count:      long.BatchSize,
		SumContext: b*i + b*(int64(short.OutputLen)-1+int64(long.OutputLen))/2,
	}}
}
