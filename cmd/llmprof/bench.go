package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/workload"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	targetFlags
	workloadFlags
	concurrency     int
	warmup          int
	timeout         time.Duration
	slo, goodput    string
	shown           string
	out             string
	export          []string
	noMetrics       bool
	find            bool
	share           float64
	overload        bool
	metricsInterval time.Duration
}

func (a *app) benchCommand() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench URL...",
		Short: "Put a live endpoint under load and measure what its users feel",
		Long: `Bench loads an OpenAI-compatible server with a schedule that is made beforehand
from one seed, and measures TTFT, ITL, TPOT and end-to-end latency, from the
moment of sending and from the moment at which each request was due. It judges
itself: a client that fell behind, a run of failures, or no steady part ends as
INVALID, exit code 1, and its figures are written all the same. Without a rate
and a limit all is sent at once: a burst, which has no steady part.

With --request-rate requests come at that rate whatever the server does (Poisson,
or as --burstiness says). With --max-concurrency and no rate, so many clients ask
one after the other. With both, requests beyond the limit wait, and their wait
counts from schedule. The server's own metrics are read meanwhile.

On a terminal the figures so far are shown meanwhile. --export vllm-serve=FILE
writes what vllm bench serve would have written.

The flags are those of vllm bench serve; several URLs are asked in turn.`,
		Example: `  llmprof bench http://127.0.0.1:8000 --request-rate 4 --num-prompts 200 --random-input-len 512 --random-output-len 128
  llmprof bench http://127.0.0.1:8000 --max-concurrency 32 --num-prompts 500 --goodput 'ttft:500 tpot:50'
  llmprof bench http://127.0.0.1:8000 --find-rate --slo 'ttft:500 tpot:50'
  llmprof bench http://127.0.0.1:8000 --dataset-path azure.csv --trace-speed 2 -o results/monday`,
		Args: benchURLs,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := a.givenIn(cmd)
			f.given = func(name string) bool { return given(name) || given(strings.TrimPrefix(name, "random-")) }
			f.endpointGiven = f.given("endpoint")
			return a.bench(cmd.Context(), args, f)
		},
	}
	f.targetFlags.register(cmd)
	f.workloadFlags.register(cmd)
	flags := cmd.Flags()
	flags.Var(newWhole(&f.concurrency, 0), "max-concurrency", "most open requests; without --request-rate, the number of clients that ask one after the other")
	flags.IntVar(&f.warmup, "num-warmups", 2, "requests before the run that are in no figure")
	flags.Var(newSpan(&f.timeout, 10*time.Minute), "timeout", "longest time of one request")
	flags.StringVar(&f.slo, "slo", "", "limits, as 'ttft:500 tpot:50' in ms for each request, or 'ttft:p99<500ms' for a quantile")
	flags.StringVar(&f.goodput, "goodput", "", "the same for each request, as vllm bench serve has it")
	flags.StringVar(&f.shown, "percentile-metrics", "", "latencies in the table: "+strings.Join(report.BenchMetrics(), ",")+" (default: all); JSON has all")
	flags.StringVarP(&f.out, "output", "o", "", "folder to write run.json, requests.jsonl, schedule.jsonl and run.llmprof into")
	flags.StringArrayVar(&f.export, "export", nil, "further `FORMAT=FILE` to write the run to: vllm-serve (repeatable)")
	flags.BoolVar(&f.noMetrics, "no-metrics", false, "do not read the server's /metrics")
	flags.DurationVar(&f.metricsInterval, "metrics-interval", time.Second, "time between two readings of /metrics")
	flags.BoolVar(&f.find, "find-rate", false, "look for the highest rate that keeps the --slo, from --request-rate (1) on")
	flags.Float64Var(&f.share, "goodput-share", 0.9, "with --find-rate: share of requests that must keep the limits, 0..1")
	flags.BoolVar(&f.overload, "stop-overload", false, "with --request-rate or a trace: end early when open requests and TTFT keep rising")
	onlyOnCommandLine(flags, "output", "export", "slo", "goodput")
	return cmd
}

// bench runs a load, or looks for the rate that keeps the limits.
func (a *app) bench(ctx context.Context, urls []string, f *benchFlags) error {
	if err := cmp.Or(f.check(), checkTLS(urls, f.given)); err != nil {
		return err
	}
	if urls[0] == "serve" {
		return usage("leave it out: llmprof bench URL", "serve is no address, and bench has no further commands")
	}
	limits, err := f.limits()
	if err != nil {
		return err
	}
	exports, err := f.exports()
	if err != nil {
		return err
	}
	if f.find {
		return a.findRate(ctx, urls, f, limits)
	}
	schedule, err := a.benchSchedule(f)
	if err != nil {
		return err
	}
	targets, facts, err := f.targets(ctx, urls)
	if err != nil {
		return err
	}
	for _, w := range schedule.Warnings {
		a.warn(w.Error())
	}
	if f.out != "" {
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return fileError("write", f.out, err)
		}
		if err := writeFile(filepath.Join(f.out, "schedule.jsonl"), func(w io.Writer) error { return workload.Write(w, schedule) }); err != nil {
			return err
		}
	}
	if err := checkExports(exports); err != nil {
		return err
	}
	servers := a.watch(ctx, targets, f, f.metricsInterval)
	result, err := a.runBench(ctx, targets, schedule, f, servers.group)
	if err != nil {
		return err
	}
	whole, steady := result.Summaries(limits)
	said := servers.windows(result, steady)
	onServer, steadyOnServer := said.together()
	result.ServerHits = prefixHits(onServer)
	document := report.Bench(result, whole, steady, load.Judge(result, whole, steady, load.DefaultLimits()), version())
	document.Model, document.Engine, document.Endpoint = targets[0].Model, string(targets[0].Engine), string(targets[0].Endpoint)
	document.EngineVersion = releases(facts)
	for _, t := range targets {
		document.Targets = append(document.Targets, t.URL)
	}
	document.ServerWhole, document.Server = onServer, steadyOnServer
	if len(said) > 1 && servers.group.Followed() {
		document.Servers = said
	}
	document.Warnings = servers.warnings
	// What could not be saved is shown all the same.
	saved := errors.Join(exportBench(f, exports, result, &document), a.saveBench(f.out, result, &document))
	if err := errors.Join(a.write(document, report.BenchTables(document, f.metrics())...), saved); err != nil {
		return err
	}
	return benchVerdict(ctx, &document)
}

// runBench runs a load while it shows it and reads the servers' metrics.
func (a *app) runBench(ctx context.Context, targets []load.Target, s *workload.Schedule, f *benchFlags, group metrics.Group) (*load.Result, error) {
	live := a.newBenchLive(benchSeen{open: s.Open()}, group)
	result, err := load.Run(ctx, targets, load.Options{
		Schedule: s, MaxConcurrency: f.held(s), Warmup: f.warmup, Timeout: f.timeout, StopOverload: f.overload,
		Hooks: load.Hooks{Tick: live.tick, Begin: func() {
			group.Read(ctx)
			live.begin()
		}},
	})
	live.end()
	group.Stop()
	return result, err
}

// prefixHits are the prompt tokens that the server found in its prefix cache;
// nil where it does not say, or where it computed prompts twice after a
// preemption, and found them then.
func prefixHits(w *metrics.Window) *float64 {
	if w == nil || w.Preemptions != nil && *w.Preemptions > 0 {
		return nil
	}
	return w.PrefixHits
}

// benchVerdict ends an interrupted run, and one that is not to be trusted.
func benchVerdict(ctx context.Context, d *report.BenchDocument) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case d.Verdict == string(load.Invalid):
		return &verdictError{"the measurement is INVALID: " + strings.Join(d.Reasons, "; ")}
	case d.Partial != "":
		return &incompleteError{"the run ended early: " + d.Partial, "the figures are those of what was measured"}
	}
	return nil
}

// held is the limit on open requests; a closed loop holds itself.
func (f *benchFlags) held(s *workload.Schedule) int {
	if !s.Open() {
		return 0
	}
	return f.concurrency
}

// saveBench writes a run's files.
func (a *app) saveBench(folder string, r *load.Result, d *report.BenchDocument) error {
	if folder == "" {
		return nil
	}
	header := load.Header{
		Started: d.Started, Tool: version(), Targets: d.Targets, Seed: r.Schedule.Seed, Pattern: r.Schedule.Pattern, Spec: r.Schedule.Spec,
		Machine: r.Machine, Gate: &load.Gate{Grade: load.Grade(d.Verdict), Checks: d.Checks}, Partial: r.Partial,
	}
	records, run := filepath.Join(folder, "requests.jsonl"), filepath.Join(folder, "run.json")
	err := writeFile(records, func(w io.Writer) error {
		out := bufio.NewWriter(w)
		return errors.Join(load.WriteRecords(out, header, r.Records), out.Flush())
	})
	if err != nil {
		return err
	}
	points, err := report.BenchProfile(r, d)
	if err != nil {
		return err
	}
	kept := filepath.Join(folder, "run.llmprof")
	if err := writeFile(kept, func(w io.Writer) error { return points.Write(kept, w) }); err != nil {
		return err
	}
	d.Files = append([]string{run, records, filepath.Join(folder, "schedule.jsonl"), kept}, d.Files...)
	return writeFile(run, func(w io.Writer) error { return report.JSON(w, d) })
}
