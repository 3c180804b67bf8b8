package main

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/report"
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

// benchURLs wants addresses, and no limit that stands where none is read.
func benchURLs(cmd *cobra.Command, args []string) error {
	if i := slices.IndexFunc(args, isLimit); i >= 0 {
		return usage("--goodput '"+args[i]+"'", "%s is a limit and no address", args[i])
	}
	return atLeastOne("the URL of a server")(cmd, args)
}

// check reports the first flag that cannot be meant.
func (f *benchFlags) check() error {
	const above = "more than 0"
	err := checkRanges(append(f.ranges(), []flagRange{
		{"num-warmups", f.warmup, f.warmup >= 0, "at least 0"},
		{"max-concurrency", f.concurrency, f.concurrency > 0 || f.off("max-concurrency", f.concurrency == 0), "at least 1, or leave it out for no limit"},
		{"timeout", f.timeout, f.timeout > 0, above},
		{"metrics-interval", f.metricsInterval, f.metricsInterval > 0, above},
		{"goodput-share", f.share, f.share > 0 && f.share <= 1, "more than 0 and at most 1"},
		{"trace-speed", f.speed, positive(f.speed), above + ": 2 for twice as fast"},
		{"trace-limit", f.limit, f.limit >= 0, "at least 0: 0 for all rows"},
		{"token-low", f.low, f.low == 0 || f.low > 0 && f.high > 0, "at least 0, and --token-high with it"},
		{"token-high", f.high, f.high > f.low || f.off("token-high", f.high == 0), "more than --token-low"},
	}...))
	if err != nil {
		return err
	}
	return cmp.Or(f.checkRamp(), f.checkIdle(), f.checkShown())
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
	return f.idle([]idleFlags{
		{f.find && scheduled, []string{"schedule"}, "with --find-rate, which makes its own load"},
		{f.find, []string{"max-concurrency", "ramp-up-strategy", "ramp-up-start-rps", "ramp-up-end-rps", "ramp-up-duration", "percentile-metrics", "export"}, "with --find-rate, which runs at many rates"},
		{f.find, []string{"stop-overload"}, "with --find-rate, which ends every run in which the server falls behind"},
		{!paced && !timed && !scheduled, []string{"stop-overload"}, "without --request-rate: what waits for answers, or comes all at once, cannot keep rising"},
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
	})
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
	all, err := parseLimits(f.slo, f.goodput, f.given)
	if err != nil {
		return nil, err
	}
	if f.find && len(all) == 0 {
		return nil, usage("for example --slo 'ttft:500 tpot:50'", "--find-rate wants --slo: the limits that the rate has to keep")
	}
	return all, nil
}
