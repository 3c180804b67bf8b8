package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/workload"
)

// flagRange is the value of a flag and what it may be.
type flagRange struct {
	flag  string
	value any
	fits  bool
	want  string
}

// checkRanges reports the first value that does not fit.
func checkRanges(all []flagRange) error {
	for _, c := range all {
		if !c.fits {
			return usage("", "--%s %v: want %s", c.flag, c.value, c.want)
		}
	}
	return nil
}

// positive reports whether a value is finite and above zero.
func positive(v float64) bool { return v > 0 && !math.IsInf(v, 1) }

// check reports the first flag that cannot be meant.
func (f *benchFlags) check() error {
	const above = "more than 0"
	// off is a flag that is not used: its default, but no value to give.
	off := func(flag string, unset bool) bool { return unset && !f.given(flag) }
	err := checkRanges([]flagRange{
		{"num-prompts", f.prompts, f.prompts >= 1 && f.prompts <= workload.MaxRequests, fmt.Sprintf("1 to %d", workload.MaxRequests)},
		{"num-warmups", f.warmup, f.warmup >= 0, "at least 0"},
		{"max-concurrency", f.concurrency, f.concurrency > 0 || off("max-concurrency", f.concurrency == 0), "at least 1, or leave it out for no limit"},
		{"timeout", f.timeout, f.timeout > 0, above},
		{"metrics-interval", f.metricsInterval, f.metricsInterval > 0, above},
		{"goodput-share", f.share, f.share > 0 && f.share <= 1, "more than 0 and at most 1"},
		{"duration", f.duration, f.duration > 0 || off("duration", f.duration == 0), above},
		{"burstiness", f.burstiness, f.burstiness > 0, "more than 0: 1 for Poisson arrivals"},
		{"random-range-ratio", f.ratio, f.ratio >= 0 && f.ratio < 1, "at least 0 and less than 1"},
		{"prefix-share", f.prefixShare, f.prefixShare >= 0 && f.prefixShare <= 1, "0 to 1"},
		{"num-prefixes", f.prefixGroups, f.prefixGroups >= 1, "at least 1"},
		{"session-turns", f.turns, f.turns > 0 || off("session-turns", f.turns == 0), "at least 1, or leave it out for single requests"},
		{"think-time", f.think, f.think >= 0, "at least 0"},
		{"ramp-up-start-rps", f.rampFrom, f.rampFrom == 0 || positive(f.rampFrom), "at least 0"},
		{"ramp-up-end-rps", f.rampTo, f.rampTo == 0 || positive(f.rampTo), "at least 0"},
		{"ramp-up-duration", f.rampOver, f.rampOver > 0 || off("ramp-up-duration", f.rampOver == 0), above},
		{"trace-speed", f.speed, positive(f.speed), above + ": 2 for twice as fast"},
		{"trace-limit", f.limit, f.limit >= 0, "at least 0: 0 for all rows"},
		{"token-low", f.low, f.low == 0 || f.low > 0 && f.high > 0, "at least 0, and --token-high with it"},
		{"token-high", f.high, f.high > f.low || off("token-high", f.high == 0), "more than --token-low"},
	})
	if err != nil {
		return err
	}
	return cmp.Or(f.checkRamp(), f.checkIdle(), f.checkShown())
}

// checkRamp wants a ramp to be told as a whole.
func (f *benchFlags) checkRamp() error {
	const hint = "for example --ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 20 --ramp-up-duration 5m"
	shapes := []string{"", string(workload.Linear), string(workload.Exponential)}
	switch {
	case !slices.Contains(shapes, f.rampShape):
		return usage("", "--ramp-up-strategy %q: want linear or exponential", f.rampShape)
	case !f.ramped():
		return nil
	case f.rampOver == 0:
		return usage(hint, "a ramp wants --ramp-up-duration")
	case f.rampFrom == 0 && f.rampTo == 0:
		return usage(hint, "a ramp wants --ramp-up-start-rps or --ramp-up-end-rps")
	case f.rampShape == string(workload.Exponential) && (f.rampFrom == 0 || f.rampTo == 0):
		return usage(hint, "--ramp-up-strategy exponential wants --ramp-up-start-rps and --ramp-up-end-rps, both more than 0")
	}
	return nil
}

// ramped reports whether the rate rises.
func (f *workloadFlags) ramped() bool {
	return f.rampShape != "" || f.rampFrom > 0 || f.rampTo > 0 || f.rampOver > 0
}

// checkIdle refuses flags that would do nothing beside others: what a user asks
// for and does not get spoils the measurement unseen.
func (f *benchFlags) checkIdle() error {
	arrivals := []string{"duration", "burstiness", "think-time", "session-turns", "ramp-up-strategy", "ramp-up-start-rps", "ramp-up-end-rps", "ramp-up-duration"}
	lengths := []string{"random-input-len", "random-output-len", "random-range-ratio"}
	prefixes := []string{"random-prefix-len", "prefix-share", "num-prefixes"}
	replay := []string{"trace-speed", "trace-limit"}
	data, err := f.data()
	if err != nil {
		return err
	}
	rate, err := parseRate(f.rate)
	if err != nil {
		return err
	}
	paced, scheduled := !math.IsInf(rate, 1) || f.ramped() || f.find, f.schedule != ""
	timed, random := data.timed && !scheduled, data.name == datasetRandom && !scheduled
	for _, c := range []struct {
		when  bool
		flags []string
		why   string
	}{
		{f.find && scheduled, []string{"schedule"}, "with --find-rate, which makes its own load"},
		{f.find, []string{"max-concurrency", "ramp-up-strategy", "ramp-up-start-rps", "ramp-up-end-rps", "ramp-up-duration", "percentile-metrics", "export"}, "with --find-rate, which runs at many rates"},
		{!f.find, []string{"goodput-share"}, "without --find-rate"},
		{f.noMetrics, []string{"metrics-interval"}, "with --no-metrics"},
		{scheduled, slices.Concat([]string{"num-prompts", "request-rate", "seed", "dataset-name", "dataset-path"}, arrivals, lengths, prefixes, replay), "with --schedule, which holds the whole load"},
		{timed, slices.Concat(arrivals, lengths, prefixes), "with a trace that is replayed at its own times: --dataset-name lengths takes its lengths alone"},
		{timed && f.given("trace-limit"), []string{"num-prompts"}, "with --trace-limit, which says the same"},
		{data.name != datasetRandom && !timed, append(lengths, "trace-speed"), "with the lengths of --dataset-path, sent at --request-rate"},
		{random, append(replay, "dataset-path"), "with --dataset-name random"},
		{f.given("duration"), []string{"num-prompts"}, "with --duration: both say where the arrivals end, so give one"},
		{f.ramped(), []string{"request-rate"}, "with a ramp, which says the rate"},
		{!paced, []string{"duration"}, "without --request-rate: give --num-prompts"},
		{!paced && f.burstiness != 1, []string{"burstiness"}, "without --request-rate"},
		{f.prefixLen.values[0] == 0, []string{"prefix-share", "num-prefixes"}, "without --random-prefix-len"},
		{f.turns == 0 && (paced || f.concurrency == 0), []string{"think-time"}, "without --session-turns, or clients of --max-concurrency that pause"},
	} {
		if i := slices.IndexFunc(c.flags, f.given); c.when && i >= 0 {
			return usage("leave out --"+c.flags[i]+", or see llmprof bench --help", "--%s has no use %s", c.flags[i], c.why)
		}
	}
	return nil
}

// checkShown names the metrics that a table can show.
func (f *benchFlags) checkShown() error {
	known := report.BenchMetrics()
	for _, name := range f.metrics() {
		if !slices.Contains(known, name) {
			return usage("did you mean "+catalog.Nearest(name, known, 1)[0]+"?", "--percentile-metrics %q: want some of %s", name, strings.Join(known, ","))
		}
	}
	return nil
}

// metrics are the latencies to show; none for all.
func (f *benchFlags) metrics() []string {
	var names []string
	for name := range strings.SplitSeq(f.shown, ",") {
		if name = strings.TrimSpace(name); f.given("percentile-metrics") || name != "" {
			names = append(names, name)
		}
	}
	return names
}

// limits are those of --slo and --goodput together.
func (f *benchFlags) limits() (load.SLOs, error) {
	const hint = "for example --slo 'ttft:500 tpot:50'"
	var all load.SLOs
	for _, c := range []struct{ flag, text string }{{"slo", f.slo}, {"goodput", f.goodput}} {
		limits, err := load.ParseSLOs(c.text)
		if err == nil && len(limits) == 0 && f.given(c.flag) {
			return nil, usage(strings.Replace(hint, "slo", c.flag, 1), "--%s is empty: want limits", c.flag)
		}
		if err != nil {
			return nil, usage(strings.Replace(hint, "slo", c.flag, 1), "--%s: %w", c.flag, err)
		}
		all = append(all, limits...)
	}
	if f.find && len(all) == 0 {
		return nil, usage(hint, "--find-rate wants --slo: the limits that the rate has to keep")
	}
	return all, nil
}
