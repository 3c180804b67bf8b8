package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/format/trace"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// loadFlags say which load a command works on: a file that holds one, or how
// one is made.
type loadFlags struct {
	madeFlags
	trace, file   string
	dataset       string
	speed         float64
	limit         int
	arrival       string
	input, output string
	classes       []string
	concurrency   int
	timeout       time.Duration
}

func (f *loadFlags) register(a *app, cmd *cobra.Command) {
	f.madeFlags.register(cmd)
	f.given = a.givenIn(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.trace, "trace", "", "recorded traffic to replay: Azure, Mooncake, BurstGPT, splitwise, LLMServingSim, vLLM's result, CSV or JSON Lines")
	flags.StringVar(&f.trace, "dataset-path", "", "the same, as bench has it")
	flags.StringVar(&f.dataset, "dataset-name", "", "what the trace is, as bench has it: trace for its times and lengths, lengths, or sharegpt, burstgpt, azure, mooncake, custom")
	flags.StringVar(&f.file, "workload", "", "YAML or JSON `file` that describes a load, or a schedule that was written")
	flags.StringVar(&f.file, "schedule", "", "the same, as bench has it")
	flags.Float64Var(&f.speed, "trace-speed", 1, "how much faster than recorded a trace is replayed")
	flags.Var(newWhole(&f.limit, 0), "trace-limit", "rows of the trace to take; 0 for all")
	flags.StringVar(&f.arrival, "arrival", "", "poisson, gamma, weibull or constant (default: as --burstiness says)")
	flags.StringVar(&f.input, "input-len", "1024", "prompt tokens: 512, 4k, normal:512:256, lognormal:512:256, uniform:16:512, zipf:1.2:16:4k or file:F")
	flags.StringVar(&f.output, "output-len", "128", "tokens to generate, as --input-len")
	flags.StringVar(&f.input, "random-input-len", "1024", "the same as --input-len, as bench has it")
	flags.StringVar(&f.output, "random-output-len", "128", "the same as --output-len, as bench has it")
	flags.Float64Var(&f.ratio, "random-range-ratio", 0, "spread of lengths that are numbers: uniform from length×(1−r) to length×(1+r)")
	flags.Var(newWhole(&f.concurrency, 0), "max-concurrency", "clients that ask one after the other, in place of a rate")
	flags.Var(newSpan(&f.timeout, 0), "timeout", "how long after it was due a client gives a request up; 0 for never")
	flags.StringArrayVar(&f.classes, "class", nil, "part of the traffic: 'chat share=3 priority=-1 input-len=512 output-len=64 prefix-len=200 slo=ttft:500,tpot:50'; once for each")
	completeWith(cmd, "arrival", arrivalNames()...)
	completeWith(cmd, "dataset-name", datasetNames()...)
	onlyOnCommandLine(flags, "trace", "dataset-path", "dataset-name", "workload", "schedule", "input-len", "output-len", "random-input-len", "random-output-len", "seed", "timeout", "class")
}

func arrivalNames() []string { return []string{"poisson", "gamma", "weibull", "constant"} }

// schedule makes the load, or reads it.
func (f *loadFlags) schedule(ctx context.Context, a *app) (*workload.Schedule, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	switch {
	case f.trace != "" && !f.lengthsOnly():
		t, err := a.readTrace(f.trace)
		if err == nil {
			err = f.checkKind(t)
		}
		if err != nil {
			return nil, err
		}
		classes, err := f.classesOf(a, nil)
		if err != nil {
			return nil, err
		}
		return replayTrace(f.trace, t, workload.Replaying{Seed: f.seed, Speed: f.speed, Limit: f.taken(), Timeout: unit.Seconds(f.timeout.Seconds()), Classes: classes})
	case f.file != "":
		return a.readLoad(ctx, f.file, f.givenSeed())
	}
	rate, err := parseRate(f.rate)
	if err != nil {
		return nil, err
	}
	lengths, err := f.lengths(a)
	if err != nil {
		return nil, err
	}
	spec := f.spec(f.arrivalsAt(rate), lengths, f.seed)
	if spec.Classes, err = f.classesOf(a, lengths); err != nil {
		return nil, err
	}
	spec.Timeout = unit.Seconds(f.timeout.Seconds())
	s, err := workload.BuildContext(ctx, spec)
	return s, scheduleError(err)
}

// lengthsOnly reports whether a trace gives lengths and no times.
func (f *loadFlags) lengthsOnly() bool {
	all := datasets()
	i := slices.IndexFunc(all, func(d dataset) bool { return d.name == f.dataset })
	return i >= 0 && !all[i].timed && f.dataset != datasetRandom
}

// lengths are those of the flags, or of a trace of which nothing else is taken.
func (f *loadFlags) lengths(a *app) (workload.Lengths, error) {
	if f.trace == "" {
		return a.lengths(f.input, f.output, f.ratio)
	}
	t, err := a.readTrace(f.trace)
	if err != nil {
		return nil, err
	}
	pairs := t.Pairs()
	if f.limit > 0 && f.limit < len(pairs) {
		pairs = pairs[:f.limit]
	}
	return workload.Empirical{Rows: pairs}, f.checkKind(t)
}

// checkKind refuses a file that is not what --dataset-name says.
func (f *loadFlags) checkKind(t *trace.Trace) error {
	for _, d := range datasets() {
		if d.name == f.dataset && d.kind != "" && d.kind != t.Kind {
			return usage("leave --dataset-name out, or give lengths: both read every kind", "--dataset-name %s: %s is of the kind %s", d.name, f.trace, t.Kind)
		}
	}
	return nil
}

// checkDataset refuses names of data that nothing is known of, or that want a
// file.
func (f *loadFlags) checkDataset() error {
	switch {
	case f.dataset == "" && !f.given("dataset-name"):
		return nil
	case !slices.Contains(datasetNames(), f.dataset):
		return unknownDataset(f.dataset)
	case f.dataset != datasetRandom && f.trace == "":
		return usage("for example --trace azure.csv", "--dataset-name %s wants --trace FILE", f.dataset)
	}
	return nil
}

// classesOf are the classes of a load with some lengths.
func (f *loadFlags) classesOf(a *app, lengths workload.Lengths) ([]workload.Class, error) {
	var all []workload.Class
	for _, text := range f.classes {
		c, err := workload.ParseClass(text, lengths, a.records(""))
		if bad, ok := errors.AsType[*workload.ClassError](err); ok {
			return nil, usage(bad.Hint(), "--class: %w", err)
		}
		all = append(all, c)
	}
	return all, nil
}

// givenSeed is the seed of the command line; nil for none.
func (f *loadFlags) givenSeed() *uint64 {
	if !f.given("seed") {
		return nil
	}
	return &f.seed
}

// taken is how many rows of a trace are taken; 0 for all.
func (f *loadFlags) taken() int {
	if f.given("num-prompts") {
		return f.prompts
	}
	return f.limit
}

// arrivalsAt are when requests come.
func (f *loadFlags) arrivalsAt(rate float64) workload.Arrivals {
	switch {
	case math.IsInf(rate, 1) || f.ramped():
		return f.arrivals(rate, f.concurrency)
	case f.arrival == "constant":
		return workload.Constant{Rate: rate}
	case f.arrival == "weibull":
		return workload.Weibull{Rate: rate, Shape: f.burstiness}
	}
	return f.arrivals(rate, 0)
}

// check reports the first flag that cannot be meant.
func (f *loadFlags) check() error {
	err := checkRanges(append(f.ranges(), []flagRange{
		{"trace-speed", f.speed, positive(f.speed), "more than 0: 2 for twice as fast"},
		{"trace-limit", f.limit, f.limit >= 0, "at least 0: 0 for all rows"},
		{"max-concurrency", f.concurrency, f.concurrency > 0 || f.off("max-concurrency", f.concurrency == 0), "at least 1, or leave it out"},
		{"timeout", f.timeout, f.timeout > 0 || f.off("timeout", f.timeout == 0), "more than 0, or leave it out for none"},
	}...))
	if err != nil {
		return err
	}
	if f.arrival != "" && !slices.Contains(arrivalNames(), f.arrival) {
		return usage("", "--arrival %q: want poisson, gamma, weibull or constant", f.arrival)
	}
	if err := f.checkRamp(); err != nil {
		return err
	}
	if err := f.checkDataset(); err != nil {
		return err
	}
	return f.checkIdle()
}

// checkIdle refuses flags that would do nothing beside others.
func (f *loadFlags) checkIdle() error {
	rate, err := parseRate(f.rate)
	if err != nil {
		return err
	}
	paced := !math.IsInf(rate, 1) || f.ramped()
	replay := []string{"trace-speed", "trace-limit"}
	made, timed := madeByFlags(), f.trace != "" && !f.lengthsOnly()
	lengths := []string{"input-len", "output-len", "random-input-len", "random-output-len", "random-range-ratio"}
	return f.idle([]idleFlags{
		{f.given("trace"), []string{"dataset-path"}, "with --trace, which says the same"},
		{f.given("workload"), []string{"schedule"}, "with --workload, which says the same"},
		{f.given("input-len"), []string{"random-input-len"}, "with --input-len, which says the same"},
		{f.given("output-len"), []string{"random-output-len"}, "with --output-len, which says the same"},
		{f.dataset == datasetRandom, []string{"trace", "dataset-path"}, "with --dataset-name random"},
		{f.trace != "" && f.file != "", []string{"workload", "schedule"}, "with --trace: each is a whole load"},
		{timed, made, "with --trace, which holds the whole load: --dataset-name lengths takes its lengths alone"},
		{f.trace != "" && !timed, append(lengths, "trace-speed"), "with the lengths of --trace"},
		{timed && f.given("trace-limit"), []string{"num-prompts"}, "with --trace-limit, which says the same"},
		{f.file != "", slices.Concat(made, replay, []string{"num-prompts", "timeout", "class"}), "with --workload, which holds the whole load"},
		{f.trace == "", replay, "without --trace"},
		{f.given("duration"), []string{"num-prompts"}, "with --duration: both say where the arrivals end, so give one"},
		{f.ramped(), []string{"request-rate", "arrival"}, "with a ramp, which says the rate"},
		{!paced, []string{"duration", "arrival"}, "without --request-rate: give --num-prompts"},
		{!paced && f.burstiness != 1 || f.arrival == "poisson" || f.arrival == "constant", []string{"burstiness"}, "without --request-rate, or with arrivals that have none"},
		{paced, []string{"max-concurrency"}, "with a rate: a load that is made beforehand is not held back"},
		{f.prefixLen.values[0] == 0, []string{"prefix-share", "num-prefixes"}, "without --random-prefix-len"},
		{f.turns == 0 && f.concurrency == 0, []string{"think-time"}, "without --session-turns, or clients of --max-concurrency that pause"},
	})
}

// madeByFlags are the flags that say how a load is made, but for its size and
// seed.
func madeByFlags() []string {
	return []string{
		"request-rate", "arrival", "burstiness", "duration", "max-concurrency", "input-len", "output-len", "random-input-len", "random-output-len", "random-range-ratio",
		"random-prefix-len", "prefix-share", "num-prefixes", "session-turns", "think-time",
		"ramp-up-strategy", "ramp-up-start-rps", "ramp-up-end-rps", "ramp-up-duration",
	}
}

// asked reports whether any flag says which load is meant.
func (f *loadFlags) asked() bool {
	return f.trace != "" || f.file != "" || slices.ContainsFunc(append(madeByFlags(), "num-prompts", "dataset-name", "class"), f.given)
}

// idleFlags have no use in some case.
type idleFlags struct {
	when  bool
	flags []string
	why   string
}

// idle reports the first flag that is given and has no use.
func (f *madeFlags) idle(all []idleFlags) error {
	for _, c := range all {
		if i := slices.IndexFunc(c.flags, f.given); c.when && i >= 0 {
			return usage("leave out --"+c.flags[i]+", or see --help", "--%s has no use %s", c.flags[i], c.why)
		}
	}
	return nil
}
