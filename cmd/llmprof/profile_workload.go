package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/measure/serving"
	"github.com/llmprof/llmprof/profile"
)

// profileWorkloadFlags are the flags of profile workload.
type profileWorkloadFlags struct {
	*engineFlags
	samplerFlags
	accessFlags
	c, m, b      counts
	model, url   string
	mode, preset string
	warmup, runs int
	steps        int
	seats        counts
	partial      int
	chunked      bool
	noChunked    bool
	eager        bool
	policy       string
	low, high    int
	out          string
	results      string
	tokenChunks  bool
	resume       bool
	overwrite    bool
	// given tells of a flag whether it stands on the command line.
	given func(name string) bool
}

func (a *app) profileWorkloadCommand() *cobra.Command {
	f := &profileWorkloadFlags{engineFlags: newEngineFlags(), c: newCounts(1), m: newCounts(0), b: newCounts(1), seats: newCount(1, 0)}
	f.blockSize = newCounts(1)
	cmd := &cobra.Command{
		Use:   "workload MODEL",
		Short: "Measure prefill, decode and both together at (C, M, B, block size)",
		Long: `Profile workload measures a live engine at a load of equal requests: B requests
at once (--B), each of C new tokens (--C) behind M blocks of prompt (--M) that
are in the KV cache. The blocks are put there by a priming request, and the
engine's own counter of prefix hits has to show that they were found.

prefill measures the TTFT of the C tokens, decode the time of a token while all B
requests decode at that context, mixed both at once and how much each side slows
the other down. C, M, B and --block-size take lists, and every combination is
measured. Warm-up runs are in no figure. What nobody tells is null and named.

It starts a vLLM server with those very settings, where --place says, or asks the
one at --url; give its --server-log as well, and steps and batch efficiency are
measured too. Without --max-num-batched-tokens and --max-num-seqs a started
server gets B × C tokens and 2 × B requests, of the largest cell.

Results go into a folder: workload.json with all cells, one JSON a cell in the
keys of the schedule planner, and every request, step and reading as .llmprof.
Ctrl-C keeps the cells that are done, and --resume goes on from there.`,
		Example: `  llmprof profile workload meta-llama/Llama-3.1-8B --C 512 --M 32 --B 32 --block-size 16
  llmprof profile workload ./tiny --device cpu --C 128 --M 2 --B 1,4 --profiling-type prefill
  llmprof profile workload --url http://127.0.0.1:8000 --server-log server.log --C 256,1024 --M 0,16 --B 8
  llmprof profile workload Qwen3-8B --preset low-latency --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && (f.url != "" || f.server != "") {
				return nil
			}
			if len(args) == 0 && f.model == "" {
				return usage("for example llmprof profile workload Qwen3-8B --preset low-latency, or --url http://127.0.0.1:8000 for a server that runs", "profile workload wants one model, or the --url of a server")
			}
			return engineModelOrFlag(cmd, args, f.model)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.changed, f.given = cmd.Flags().Changed, a.givenIn(cmd)
			if len(args) > 0 {
				f.model = args[0]
			}
			return a.profileWorkload(cmd.Context(), f)
		},
		ValidArgsFunction: a.completeModels,
	}
	f.registerOwn(cmd)
	return cmd
}

func (f *profileWorkloadFlags) registerOwn(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.engineFlags.registerOwnLimits(cmd, "vllm", "the engine's")
	f.samplerFlags.register(cmd)
	f.accessFlags.register(cmd)
	for _, name := range accessNames() {
		flags.Lookup(name).Usage = "with --url: " + flags.Lookup(name).Usage
	}
	flags.Lookup("max-num-batched-tokens").Usage = "most tokens of one step (default: B × C of the largest cell); with --url what that server has"
	flags.Lookup("max-model-len").Usage = "longest sequence in tokens that the engine admits (default: what the cells need)"
	flags.Lookup("block-size").Usage = "tokens of one KV block, or a list (default: the engine's)"
	flags.Lookup("server").Usage = "the same as --url"
	flags.Var(&f.c, "C", "new prompt tokens of each request, or a list")
	flags.Var(&f.m, "M", "cached KV blocks before them, or a list")
	flags.Var(&f.b, "B", "requests at once, or a list")
	flags.StringVar(&f.model, "model", "", "the model, in place of the argument")
	flags.StringVar(&f.url, "url", "", "server that already runs: http://127.0.0.1:8000")
	flags.StringVar(&f.mode, "profiling-type", profile.Mixed, "prefill, decode or mixed")
	flags.StringVar(&f.preset, "preset", "", "a case to measure: "+presetNames()+"; other flags change it")
	flags.IntVar(&f.warmup, "num-warmup", 3, "runs that are not counted")
	flags.IntVar(&f.runs, "num-measurements", 10, "runs that are")
	flags.IntVar(&f.steps, "num-steps", 32, "steps of a decode in each run while all requests decode")
	flags.Var(&f.seats, "max-num-seqs", "most requests at once in the engine (default: 2 × the largest B); with --url what that server has")
	flags.IntVar(&f.partial, "max-num-partial-prefills", 0, "prompts computed in pieces at once, of vLLM before 0.27 (default: the engine's)")
	flags.BoolVar(&f.chunked, "enable-chunked-prefill", false, "let a prompt take several steps (default: the engine's choice)")
	flags.BoolVar(&f.noChunked, "no-enable-chunked-prefill", false, "compute each prompt in one step")
	flags.BoolVar(&f.eager, "enforce-eager", false, "no CUDA graphs")
	flags.StringVar(&f.policy, "scheduling-policy", "", "fcfs or priority (default: the engine's)")
	flags.IntVar(&f.low, "token-low", 0, "with --url: least random token id")
	flags.IntVar(&f.high, "token-high", 0, "with --url: token id below which random ones stay (default: what the model has)")
	flags.BoolVar(&f.tokenChunks, "token-chunks", false, "with --url: ask vLLM for the token ids of chunks, and count those without text too (random weights)")
	flags.StringVarP(&f.out, "output", "o", "", "folder to write into (default: workload_MODEL)")
	flags.StringVar(&f.results, "results-file", "", "also write the only cell's JSON to this `file`")
	flags.BoolVar(&f.resume, "resume", false, "go on with the folder where it stopped")
	flags.BoolVar(&f.overwrite, "overwrite", false, "replace what the folder holds")
	completeWith(cmd, "profiling-type", profile.Prefill, profile.Decode, profile.Mixed)
	completeWith(cmd, "scheduling-policy", "fcfs", "priority")
	completeWith(cmd, "preset", strings.Split(presetNames(), ", ")...)
	onlyOnCommandLine(flags, "C", "M", "B", "model", "url", "preset", "output", "results-file", "resume", "overwrite")
}

// preset is a case of the schedule planner's guide.
type preset struct {
	name           string
	c, m, b, block int
	tokens, seats  int
	chunked        bool
	policy         string
	utilization    float64 // share, 0..1; 0 is the engine's
	leftOut        string
}

func presets() []preset {
	return []preset{
		{name: "low-latency", c: 256, m: 16, b: 16, block: 16, tokens: 4096, seats: 32, chunked: true, policy: "priority"},
		{name: "high-throughput", c: 2048, m: 128, b: 128, block: 16, tokens: 262144, seats: 256, chunked: true, policy: "fcfs"},
		{
			name: "memory-efficient", c: 512, m: 32, b: 32, block: 8, tokens: 16384, seats: 64, policy: "fcfs", utilization: 0.7,
			leftOut: "swap space, which vLLM no longer has",
		},
	}
}

func presetNames() string {
	var names []string
	for _, p := range presets() {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// usePreset fills in what the user has not said.
func (a *app) usePreset(f *profileWorkloadFlags) error {
	if f.preset == "" {
		return nil
	}
	i := slices.IndexFunc(presets(), func(p preset) bool { return p.name == f.preset })
	if i < 0 {
		return usage("did you mean "+strings.Join(catalog.Nearest(f.preset, strings.Split(presetNames(), ", "), 1), ", ")+"?", "unknown --preset %q: want one of %s", f.preset, presetNames())
	}
	p := presets()[i]
	sizes := 4 // C, M, B and the block size; a running server has decided the rest
	if f.url == "" && f.server == "" {
		sizes = 6
	}
	for _, v := range []struct {
		flag  string
		field *counts
		value int
	}{
		{"C", &f.c, p.c},
		{"M", &f.m, p.m},
		{"B", &f.b, p.b},
		{"block-size", &f.blockSize, p.block},
		{"max-num-batched-tokens", &f.maxBatchedTokens, p.tokens},
		{"max-num-seqs", &f.seats, p.seats},
	}[:sizes] {
		if !f.changed(v.flag) {
			v.field.values = []int{v.value}
		}
	}
	if sizes == 4 {
		a.warn("preset " + p.name + ": the running server has decided all but C, M, B and the block size")
		return nil
	}
	if !f.changed("enable-chunked-prefill") && !f.changed("no-enable-chunked-prefill") {
		f.chunked, f.noChunked = p.chunked, !p.chunked
	}
	if !f.changed("scheduling-policy") {
		f.policy = p.policy
	}
	if !f.changed("gpu-memory-utilization") {
		f.utilization = p.utilization
	}
	if p.leftOut != "" {
		a.warn("preset " + p.name + " leaves out " + p.leftOut)
	}
	return nil
}

// validate checks what can be known before an engine runs.
func (f *profileWorkloadFlags) validate() error {
	if f.server != "" {
		if f.url != "" && f.url != f.server {
			return usage("", "--url %s and --server %s: want one of them", f.url, f.server)
		}
		f.url, f.server = f.server, ""
	}
	for _, axis := range []struct {
		name string
		of   counts
	}{{"C", f.c}, {"M", f.m}, {"B", f.b}} {
		if len(axis.of.values) == 0 {
			return usage("for example --C 512 --M 32 --B 32, or --preset low-latency", "--%s is missing", axis.name)
		}
	}
	switch {
	case !slices.Contains([]string{profile.Prefill, profile.Decode, profile.Mixed}, f.mode):
		return usage("", "unknown --profiling-type %q: want prefill, decode or mixed", f.mode)
	case f.warmup < 0 || f.warmup > 1e6:
		return usage("", "--num-warmup is %d: want 0 or more", f.warmup)
	case f.runs < 1 || f.runs > 1e6:
		return usage("", "--num-measurements is %d: want 1 or more", f.runs)
	case f.steps < 2 || f.steps > 1e6:
		return usage("", "--num-steps is %d: want 2 or more", f.steps)
	case f.partial < 0:
		return usage("", "--max-num-partial-prefills is %d: want 0 or more", f.partial)
	case f.chunked && f.noChunked:
		return usage("", "--enable-chunked-prefill and --no-enable-chunked-prefill contradict each other")
	case f.policy != "" && f.policy != "fcfs" && f.policy != "priority":
		return usage("", "unknown --scheduling-policy %q: want fcfs or priority", f.policy)
	case f.resume && f.overwrite:
		return usage("", "--resume goes on with a folder and --overwrite replaces it: give one of them")
	case f.serverLog != "" && f.url == "":
		return usage("", "--server-log goes with --url")
	case f.low < 0 || f.high < 0 || f.high > 0 && f.high <= f.low:
		return usage("for example --token-low 100 --token-high 30000", "--token-low %d, --token-high %d: want a rising range", f.low, f.high)
	}
	for _, name := range []string{"clock", "free-within"} {
		if f.changed(name) {
			return usage("leave it out", "--%s means nothing to profile workload", name)
		}
	}
	for _, axis := range []*counts{&f.c, &f.m, &f.b, &f.blockSize} {
		axis.values = eachOnce(axis.values)
	}
	if f.name != "" && f.name != "vllm" && f.url == "" {
		return usage("start its server yourself, with the settings to measure, and give its --url", "profile workload starts vLLM servers, and no %s", f.name)
	}
	if err := f.checkURL(); err != nil {
		return err
	}
	return f.samplerFlags.validate()
}

// eachOnce are values without their repetitions.
func eachOnce(values []int) []int {
	var out []int
	for _, v := range values {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// checkURL refuses what is only for a running server where there is none, and
// what a server that runs has decided already.
func (f *profileWorkloadFlags) checkURL() error {
	if f.url == "" {
		only := append(accessNames(), "token-low", "token-high", "token-chunks")
		if i := slices.IndexFunc(only, f.given); i >= 0 {
			return usage("leave it out, or give the --url of a server", "--%s goes with --url", only[i])
		}
		return nil
	}
	if err := checkTLS([]string{f.url}, f.given); err != nil {
		return err
	}
	for _, name := range []string{
		"max-model-len", "enable-chunked-prefill", "no-enable-chunked-prefill", "scheduling-policy",
		"gpu-memory-utilization", "dtype", "tensor-parallel-size", "pipeline-parallel-size", "weights", "program", "image", "engine-arg", "engine-env",
		"threads", "device", "engine", "enforce-eager", "cuda-graphs", "max-num-partial-prefills", "place",
	} {
		if f.changed(name) {
			return usage("leave it out, or let llmprof start a server: without --url", "--%s is the running server's to decide", name)
		}
	}
	return nil
}

// cells are all combinations, those of one block size together.
func (f *profileWorkloadFlags) cells(blockSize int) []serving.Cell {
	var out []serving.Cell
	for _, c := range f.c.values {
		for _, m := range f.m.values {
			for _, b := range f.b.values {
				out = append(out, serving.Cell{Type: f.mode, NewTokens: c, CachedBlocks: m, Requests: b, BlockSize: blockSize})
			}
		}
	}
	return out
}

// ask is the setup of a server for all cells of a block size; 0 leaves that to
// the engine, whose largest is then allowed for.
func (f *profileWorkloadFlags) ask(setup engine.Setup, blockSize int) engine.Setup {
	const largest = 128
	assumed := blockSize
	if assumed == 0 {
		assumed = largest
	}
	budget, seats := 0, 0
	for _, c := range f.cells(assumed) {
		budget, seats = max(budget, c.Requests*c.NewTokens), max(seats, 2*c.Requests)
		setup.MaxInput = max(setup.MaxInput, c.Context())
	}
	setup.MaxBatch, setup.MaxOutput = seats, max(1024, 8*f.steps)
	d := &setup.Deploy
	d.BlockSize = blockSize
	if d.MaxNumSeqs = f.seats.values[0]; d.MaxNumSeqs == 0 {
		d.MaxNumSeqs = seats
	}
	if d.MaxNumBatchedTokens == 0 {
		d.MaxNumBatchedTokens = max(budget, d.MaxNumSeqs)
	}
	d.PrefixCaching = new(true)
	if f.chunked || f.noChunked {
		d.ChunkedPrefill = new(f.chunked)
	}
	d.SchedulingPolicy = f.policy
	setup.Serve, setup.CUDAGraphs = true, !f.eager
	if f.partial > 0 {
		setup.Args = append(slices.Clone(setup.Args), "--max-num-partial-prefills", strconv.Itoa(f.partial))
	}
	return setup
}
