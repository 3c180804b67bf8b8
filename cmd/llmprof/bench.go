package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
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
itself: a client that fell behind, a run of failures, or no steady part (as when
all is sent at once without a limit) ends as INVALID, exit code 1, and its
figures are written all the same.

With --request-rate requests come at that rate whatever the server does (Poisson,
or as --burstiness says). With --max-concurrency and no rate, so many clients ask
one after the other. With both, requests beyond the limit wait, and their wait
counts from schedule. The server's own metrics are read meanwhile.

The flags are those of vllm bench serve; several URLs are asked in turn.`,
		Example: `  llmprof bench http://127.0.0.1:8000 --request-rate 4 --num-prompts 200 --random-input-len 512 --random-output-len 128
  llmprof bench http://127.0.0.1:8000 --max-concurrency 32 --num-prompts 500 --goodput 'ttft:500 tpot:50'
  llmprof bench http://127.0.0.1:8000 --find-rate --slo 'ttft:500 tpot:50'
  llmprof bench http://127.0.0.1:8000 --dataset-path azure.csv --trace-speed 2 -o results/monday`,
		Args: atLeastOne("the URL of a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.changed = cmd.Flags().Changed
			return a.bench(cmd.Context(), args, f)
		},
	}
	f.targetFlags.register(cmd)
	f.workloadFlags.register(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.concurrency, "max-concurrency", 0, "most open requests; without --request-rate, the number of clients that ask one after the other")
	flags.IntVar(&f.warmup, "num-warmups", 2, "requests before the run that are in no figure")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Minute, "longest time of one request")
	flags.StringVar(&f.slo, "slo", "", "limits, as 'ttft:500 tpot:50' in ms for each request, or 'ttft:p99<500ms' for a quantile")
	flags.StringVar(&f.goodput, "goodput", "", "the same for each request, as vllm bench serve has it")
	flags.StringVar(&f.shown, "percentile-metrics", "", "latencies in the table: ttft,tpot,itl,icl,e2el,… (default: all); JSON has all")
	flags.StringVarP(&f.out, "output", "o", "", "folder to write run.json, requests.jsonl and schedule.jsonl into")
	flags.BoolVar(&f.noMetrics, "no-metrics", false, "do not read the server's /metrics")
	flags.DurationVar(&f.metricsInterval, "metrics-interval", time.Second, "time between two readings of /metrics")
	flags.BoolVar(&f.find, "find-rate", false, "look for the highest rate that keeps the --slo, from --request-rate (1) on")
	flags.Float64Var(&f.share, "goodput-share", 0.9, "with --find-rate: share of requests that must keep the limits, 0..1")
	flags.BoolVar(&f.overload, "stop-overload", false, "end early when open requests and TTFT keep rising")
	onlyOnCommandLine(flags, "output", "slo", "goodput")
	return cmd
}

// targetFlags say who is asked and how.
type targetFlags struct {
	model, kind, endpoint string
	headers               []string
	extra                 string
	caFile                string
	certFile, keyFile     string
	insecure              bool
	text, unary, running  bool
	low, high             int
}

func (f *targetFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "", "model to ask for (default: the first that the server names)")
	flags.StringVar(&f.kind, "backend", "", "what the server is: openai, vllm, sglang, llamacpp, ollama (default: found out)")
	flags.StringVar(&f.endpoint, "endpoint", string(load.Completions), "completions or chat, or their paths")
	flags.StringArrayVar(&f.headers, "header", nil, "further `NAME=VALUE` with every request (repeatable)")
	flags.StringVar(&f.extra, "extra-body", "", "JSON object with further fields of every request")
	flags.StringVar(&f.caFile, "tls-ca", "", "PEM `file` of certificates to trust")
	flags.StringVar(&f.certFile, "tls-cert", "", "PEM `file` of the client's certificate")
	flags.StringVar(&f.keyFile, "tls-key", "", "PEM `file` of its key")
	flags.BoolVar(&f.insecure, "insecure", false, "trust any certificate")
	flags.BoolVar(&f.text, "text-prompts", false, "send words even where the server takes token ids")
	flags.BoolVar(&f.unary, "no-stream", false, "ask for whole answers: there is no TTFT then")
	flags.BoolVar(&f.running, "running-usage", false, "ask for token counts in every chunk, where chunks hold several tokens")
	flags.IntVar(&f.low, "token-low", 0, "least random token id (default 100, or what the model has)")
	flags.IntVar(&f.high, "token-high", 0, "token id below which random ones stay (default 10000, or what the model has)")
	completeWith(cmd, "backend", "openai", "vllm", "sglang", "llamacpp", "ollama")
	completeWith(cmd, "endpoint", "completions", "chat")
	onlyOnCommandLine(flags, "model", "backend", "endpoint")
}

// targets builds the targets of some URLs.
func (f *targetFlags) targets(ctx context.Context, urls []string) ([]load.Target, error) {
	t := load.Target{
		Model: f.model, Engine: load.Engine(f.kind), APIKey: os.Getenv("OPENAI_API_KEY"), Text: f.text, Unary: f.unary, RunningUsage: f.running,
		TokenLow: f.low, TokenHigh: f.high,
		TLS: load.TLS{CAFile: f.caFile, Insecure: f.insecure, CertFile: f.certFile, KeyFile: f.keyFile},
	}
	switch strings.TrimPrefix(strings.Trim(f.endpoint, "/"), "v1/") {
	case "completions", "":
		t.Endpoint = load.Completions
	case "chat", "chat/completions":
		t.Endpoint = load.Chat
	default:
		return nil, usage("", "unknown --endpoint %q: want completions or chat", f.endpoint)
	}
	backends := map[string]load.Engine{
		"": "", "openai": load.OpenAI, "openai-chat": load.OpenAI, "vllm": load.VLLM, "sglang": load.SGLang,
		"llamacpp": load.LlamaCpp, "llama.cpp": load.LlamaCpp, "llama-server": load.LlamaCpp, "ollama": load.Ollama,
	}
	kind, ok := backends[f.kind]
	if !ok {
		return nil, usage("", "unknown --backend %q: want openai, vllm, sglang, llamacpp or ollama", f.kind)
	}
	if f.kind == "openai-chat" {
		t.Endpoint = load.Chat
	}
	t.Engine = kind
	for _, pair := range f.headers {
		name, value, found := strings.Cut(pair, "=")
		if !found || name == "" {
			return nil, usage("for example --header X-Team=search", "--header %q: want NAME=VALUE", name)
		}
		if t.Headers == nil {
			t.Headers = map[string]string{}
		}
		t.Headers[name] = value
	}
	if f.extra != "" {
		if err := json.Unmarshal([]byte(f.extra), &t.Extra); err != nil {
			return nil, usage(`for example --extra-body '{"top_k": 1}'`, "--extra-body: want a JSON object: %w", err)
		}
	}
	var out []load.Target
	for _, url := range urls {
		one := t
		one.URL = url
		if !strings.Contains(url, "://") {
			one.URL = "http://" + url
		}
		if err := f.ask(ctx, &one); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// ask fills in what the server says of itself: its model and its kind.
func (f *targetFlags) ask(ctx context.Context, t *load.Target) error {
	about, err := load.About(ctx, *t)
	if err != nil && t.Model == "" {
		return err
	}
	if t.Model == "" {
		t.Model = about.Model
	}
	if t.Engine == "" {
		t.Engine = about.Engine
	}
	return nil
}

// workloadFlags say what load is made.
type workloadFlags struct {
	prompts          int
	rate             string
	burstiness       float64
	duration         time.Duration
	seed             uint64
	input, output    counts
	ratio            float64
	prefixLen        counts
	prefixShare      float64
	prefixGroups     int
	turns            int
	think            time.Duration
	rampFrom, rampTo float64
	rampShape        string
	rampOver         time.Duration
	dataset, path    string
	speed            float64
	limit            int
	schedule         string
	changed          func(string) bool
}

func (f *workloadFlags) register(cmd *cobra.Command) {
	f.input, f.output, f.prefixLen = newCount(1, 1024), newCount(1, 128), newCount(0, 0)
	flags := cmd.Flags()
	flags.IntVar(&f.prompts, "num-prompts", 1000, "requests of the run")
	flags.StringVar(&f.rate, "request-rate", "inf", "requests a second, or inf: all at once, or as --max-concurrency lets them")
	flags.Float64Var(&f.burstiness, "burstiness", 1, "1 for Poisson arrivals, below for bursts, above for even gaps, inf for equal ones")
	flags.DurationVar(&f.duration, "duration", 0, "end of the arrivals, in place of --num-prompts")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of times, lengths and prompts")
	flags.Var(&f.input, "random-input-len", "prompt tokens (--input-len)")
	flags.Var(&f.output, "random-output-len", "tokens to generate (--output-len)")
	flags.Float64Var(&f.ratio, "random-range-ratio", 0, "spread of both lengths: uniform from length×(1−r) to length×(1+r)")
	flags.Var(&f.prefixLen, "random-prefix-len", "tokens that prompts share, ahead of their own")
	flags.Float64Var(&f.prefixShare, "prefix-share", 1, "share of requests with a shared prefix, 0..1")
	flags.IntVar(&f.prefixGroups, "num-prefixes", 1, "different shared prefixes")
	flags.IntVar(&f.turns, "session-turns", 0, "make each arrival a conversation of so many turns; the prompt grows with them")
	flags.DurationVar(&f.think, "think-time", 0, "pause of a client, or between two turns")
	flags.StringVar(&f.rampShape, "ramp-up-strategy", "", "let the rate rise: linear or exponential")
	flags.Float64Var(&f.rampFrom, "ramp-up-start-rps", 0, "rate at the start of the ramp, requests/s")
	flags.Float64Var(&f.rampTo, "ramp-up-end-rps", 0, "rate at its end, requests/s")
	flags.DurationVar(&f.rampOver, "ramp-up-duration", 0, "length of the ramp")
	flags.StringVar(&f.dataset, "dataset-name", "random", "random, or trace for times and lengths of --dataset-path, or lengths for its lengths alone")
	flags.StringVar(&f.path, "dataset-path", "", "trace: Azure, Mooncake, BurstGPT, ShareGPT, vLLM's own result, CSV or JSON Lines")
	flags.Float64Var(&f.speed, "trace-speed", 1, "how much faster than recorded a trace is replayed")
	flags.IntVar(&f.limit, "trace-limit", 0, "rows of the trace to take; 0 for all")
	flags.StringVar(&f.schedule, "schedule", "", "replay a schedule that a run has written (schedule.jsonl)")
	completeWith(cmd, "dataset-name", "random", "trace", "lengths")
	completeWith(cmd, "ramp-up-strategy", "linear", "exponential")
	onlyOnCommandLine(flags, "dataset-path", "dataset-name", "schedule", "seed")
}

// bench runs a load, or looks for the rate that keeps the limits.
func (a *app) bench(ctx context.Context, urls []string, f *benchFlags) error {
	limits, err := f.limits()
	if err != nil {
		return err
	}
	schedule, err := a.benchSchedule(f)
	if err != nil {
		return err
	}
	targets, err := f.targets(ctx, urls)
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
	if f.find {
		return a.findRate(ctx, targets, f, limits)
	}
	watcher := a.watch(ctx, targets[0], f)
	live := a.newBenchLive()
	result, err := load.Run(ctx, targets, load.Options{
		Schedule: schedule, MaxConcurrency: f.held(schedule), Warmup: f.warmup, Timeout: f.timeout, StopOverload: f.overload,
		Hooks: load.Hooks{Tick: live.show, Begin: func() {
			if watcher != nil {
				watcher.Read(ctx)
			}
		}},
	})
	live.end()
	if watcher != nil {
		watcher.Stop()
	}
	if err != nil {
		return err
	}
	whole, steady := result.Summaries(limits)
	document := report.Bench(result, whole, steady, load.Judge(result, whole, steady, load.DefaultLimits()), version())
	document.Model, document.Engine, document.Endpoint = targets[0].Model, string(targets[0].Engine), string(targets[0].Endpoint)
	for _, t := range targets {
		document.Targets = append(document.Targets, t.URL)
	}
	document.ServerWhole, document.Server = windowsOf(watcher, result, steady)
	if err := a.saveBench(f.out, result, &document); err != nil {
		return err
	}
	var shown []string
	if f.shown != "" {
		shown = strings.Split(f.shown, ",")
	}
	if err := a.write(document, report.BenchTables(document, shown)...); err != nil {
		return err
	}
	return benchVerdict(ctx, &document)
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

func (f *benchFlags) limits() (load.SLOs, error) {
	text := strings.TrimSpace(f.slo + " " + f.goodput)
	if text == "" {
		if f.find {
			return nil, usage("for example --slo 'ttft:500 tpot:50'", "--find-rate wants --slo: the limits that the rate has to keep")
		}
		return nil, nil
	}
	limits, err := load.ParseSLOs(text)
	if err != nil {
		return nil, usage("for example --slo 'ttft:500 tpot:50'", "--slo: %w", err)
	}
	return limits, nil
}

// watch follows the server's metrics; nil where it publishes none.
func (a *app) watch(ctx context.Context, t load.Target, f *benchFlags) *metrics.Watcher {
	if f.noMetrics {
		return nil
	}
	server := metrics.Server{URL: t.URL, Header: http.Header{}}
	if t.APIKey != "" {
		server.Header.Set("Authorization", "Bearer "+t.APIKey)
	}
	w, err := metrics.Watch(context.WithoutCancel(ctx), server, f.metricsInterval)
	if err != nil {
		a.log().Info("the server's own metrics are not read: " + err.Error())
		return nil
	}
	return w
}

// windowsOf are the server's figures of both windows.
func windowsOf(w *metrics.Watcher, r *load.Result, steady load.Summary) (whole, part *metrics.Window) {
	if w == nil {
		return nil, nil
	}
	at := func(seconds float64) time.Time { return r.Started.Add(time.Duration(seconds * float64(time.Second))) }
	if window, ok := w.Between(r.Started, r.Started.Add(r.Elapsed)); ok {
		whole = &window
	}
	if window, ok := w.Within(at(steady.From), at(steady.To)); ok {
		part = &window
	}
	return whole, part
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
	d.Files = []string{run, records, filepath.Join(folder, "schedule.jsonl")}
	return writeFile(run, func(w io.Writer) error { return report.JSON(w, d) })
}

// parseRate reads a rate; +Inf for "inf".
func parseRate(text string) (float64, error) {
	if slices.Contains([]string{"inf", "infinity", "+inf"}, strings.ToLower(text)) {
		return math.Inf(1), nil
	}
	var rate float64
	if _, err := fmt.Sscanf(text, "%g", &rate); err != nil || !(rate > 0) {
		return 0, usage("for example --request-rate 4, or inf", "--request-rate %q: want requests a second", text)
	}
	return rate, nil
}

// unknownDataset names what there is.
func unknownDataset(name string) error {
	known := []string{"random", "trace", "lengths"}
	return usage("did you mean "+strings.Join(catalog.Nearest(name, known, 2), ", ")+"?", "unknown --dataset-name %q: want one of %s", name, strings.Join(known, ", "))
}
