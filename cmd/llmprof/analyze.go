package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/chart"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// analyzeFlags are the flags of analyze.
type analyzeFlags struct {
	gpus                 []string
	tp, pp, dp           counts
	ep                   string
	batch, input, output counts
	deployment           deploymentFlags
	knobs                knobFlags
	method               string
	compat               string
	perOp                bool
	strict               bool
	figure               string
	given                func(name string) bool
}

func (a *app) analyzeCommand() *cobra.Command {
	f := &analyzeFlags{
		tp: newCounts(1, 1), pp: newCounts(1, 1), dp: newCounts(1, 1),
		batch: newCounts(1, 1), input: newCounts(1, 1024), output: newCounts(1, 128),
	}
	cmd := &cobra.Command{
		Use:     "analyze MODEL --gpu GPU",
		Aliases: []string{"llm_profile", "llm-profile"},
		Short:   "Parameters, FLOPs, memory, latency and bounds from first principles",
		Long: `Analyze accounts for a model on a device from datasheet figures alone:
parameters, FLOPs, memory and capacity, TTFT, TPOT and E2E, and for every
operator what bounds it. MODEL is a catalog name, a hub id, a folder with
config.json, or a .gguf file. Nothing is measured, and every figure says so.

Lists (--batch-size 1,8,32) give a table, one row a combination.

The method llm-profiler reproduces another tool's figures, its flaws included,
to compare with; see docs/analyze.md.`,
		Example: `  llmprof analyze Qwen3-14B --gpu h100
  llmprof analyze Llama-3.1-70B --gpu h100 --tp 4 --batch-size 1,8,32 --input-len 512,4k
  llmprof analyze Qwen/Qwen3-30B-A3B --gpu a100-sxm-80gb --per-op
  llmprof analyze DeepSeek-V3 --gpu h200 --tp 8 --ep 8 --json | jq .latency
  llmprof analyze llama2-70b --gpu a100-sxm-40gb --tp 8 --batch-size 32 --method llm-profiler`,
		Args: oneModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.analyze(cmd.Context(), args[0], f)
		},
		ValidArgsFunction: a.completeModels,
	}
	flags := cmd.Flags()
	gpuFlag(a, cmd, &f.gpus)
	flags.Var(&f.tp, "tensor-parallel-size", "ranks that share each layer (--tp)")
	flags.Var(&f.pp, "pipeline-parallel-size", "pipeline stages (--pp)")
	flags.Var(&f.dp, "data-parallel-size", "replicas of the attention (--dp); batch sizes are per replica")
	flags.StringVar(&f.ep, "expert-parallel-size", "", "ranks over which whole experts are spread (--ep); without a number tp x dp")
	flags.Lookup("expert-parallel-size").NoOptDefVal = "auto"
	flags.Var(&f.batch, "batch-size", "requests that start together")
	flags.Var(&f.input, "input-len", "prompt tokens of each request")
	flags.Var(&f.output, "output-len", "generated tokens of each request")
	f.deployment.register(cmd)
	f.knobs.register(cmd)
	f.given = flags.Changed
	flags.StringVar(&f.method, "method", "roofline", "roofline, or llm-profiler to reproduce that tool")
	flags.StringVar(&f.compat, "compat-version", "", "version that --method llm-profiler reproduces: 4185809 (default) or 8c117d6")
	flags.BoolVar(&f.perOp, "per-op", false, "list every operator")
	completeWith(cmd, "method", "roofline", "llm-profiler")
	completeWith(cmd, "compat-version", "4185809", "8c117d6")
	flags.StringVar(&f.figure, "figure", "", "draw the roofline with the operators as SVG to this `file`")
	flags.BoolVar(&f.strict, "strict", false, "exit with 3 if a combination does not fit")
	return cmd
}

// oneModel wants exactly one argument, the model.
func oneModel(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return usage("llmprof models lists what the catalog knows", "%s wants a model", cmd.Name())
	default:
		return usage(fmt.Sprintf("see %s --help", cmd.CommandPath()), "%s wants one model, and got %s", cmd.Name(), strings.Join(args, " "))
	}
}

// gpuFlag registers --gpu with completion.
func gpuFlag(a *app, cmd *cobra.Command, gpus *[]string) {
	cmd.Flags().StringSliceVar(gpus, "gpu", nil, "device by any usual name, e.g. h100 (llmprof gpus)")
	_ = cmd.RegisterFlagCompletionFunc("gpu", a.completeDevices)
}

// deploymentFlags are the flags that fill a deploy.Config.
type deploymentFlags struct {
	dtype, quantization, kvDType string
	quantizeEmbeddings           bool
	utilization, static          float64
	blockSize                    counts
	maxModelLen, maxTokens       counts
	prefix                       counts
	stages                       counts
}

// register registers all of them.
func (f *deploymentFlags) register(cmd *cobra.Command) {
	f.registerFormats(cmd)
	flags := cmd.Flags()
	f.blockSize, f.maxModelLen, f.maxTokens, f.prefix = newCount(1, 16), newEngineCount(0, 0), newEngineCount(0, 0), newCount(0, 0)
	f.stages = newCounts(1)
	flags.Float64Var(&f.utilization, "gpu-memory-utilization", 0.9, "share of device memory that the engine may take")
	flags.Float64Var(&f.static, "mem-fraction-static", 0, "SGLang's share: weights and KV cache only, instead of --gpu-memory-utilization")
	flags.Var(&f.blockSize, "block-size", "tokens in one KV block")
	flags.Var(&f.maxModelLen, "max-model-len", "longest prompt plus output in tokens (default: the model's)")
	flags.Var(&f.maxTokens, "max-num-batched-tokens", "most tokens in one step; longer prefills are chunked (0: no bound)")
	flags.Var(&f.prefix, "cached-prefix", "prompt tokens found in the prefix cache")
	flags.Var(&f.stages, "pipeline-layers", "layers of each pipeline stage, e.g. 21,21,20 (default: equal)")
}

// registerFormats registers those that say how numbers are stored.
func (f *deploymentFlags) registerFormats(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.dtype, "dtype", "", "format of activations and plain weights: bf16 (default), fp16, fp32")
	flags.StringVar(&f.quantization, "quantization", "", "weight format: fp8, awq, gptq, int8, nvfp4, q4_k, …, none (default: the model's own)")
	flags.StringVar(&f.kvDType, "kv-cache-dtype", "", "format of the KV cache: auto (default), fp8, …")
	flags.BoolVar(&f.quantizeEmbeddings, "quantize-embeddings", false, "store embedding and head in the weight format too")
	completeWith(cmd, "dtype", "bf16", "fp16", "fp32")
	completeWith(cmd, "quantization", deploy.WeightFormats()...)
	completeWith(cmd, "kv-cache-dtype", "auto", "bf16", "fp16", "fp8", "int8")
}

// config returns the deployment of the flags.
func (f *deploymentFlags) config() (deploy.Config, error) {
	first := func(c counts) int {
		if len(c.values) == 0 {
			return 0
		}
		return c.values[0]
	}
	c := deploy.Config{
		Quantization: f.quantization, QuantizeEmbeddings: f.quantizeEmbeddings,
		GPUMemoryUtilization: f.utilization, MemFractionStatic: f.static, BlockSize: first(f.blockSize),
		MaxModelLen: first(f.maxModelLen), MaxNumBatchedTokens: first(f.maxTokens), PipelineLayers: f.stages.values,
	}
	if f.utilization == 0 && f.blockSize.values != nil {
		return c, usage("", "--gpu-memory-utilization is 0: want more than 0 and at most 1")
	}
	var err error
	if f.dtype != "" && f.dtype != "auto" {
		if c.DType, err = catalog.ParseDType(f.dtype); err != nil {
			return c, usage("", "--dtype: %w", err)
		}
	}
	if f.kvDType != "" && f.kvDType != "auto" {
		if c.KVCacheDType, err = catalog.ParseDType(f.kvDType); err != nil {
			return c, usage("", "--kv-cache-dtype: %w", err)
		}
	}
	return c, nil
}

// knobFlags are the flags that fill a cost.Settings.
type knobFlags struct {
	settings         cost.Settings
	launch, overhead float64
	attention        string
	sparsity         string
	changed          func(name string) bool
	reserve          unit.Bytes
	shared           counts
}

// knobNames are the flags that only the roofline method obeys.
func knobNames() []string {
	return []string{
		"eff-compute", "eff-hbm", "eff-net", "launch-us", "step-overhead-us", "enforce-eager", "overlap",
		"attention", "kv-reread", "shared-prefix", "expert-skew", "expert-imbalance", "dispatch-once", "sparsity",
		"reserve-memory", "micro-batches",
	}
}

// register registers all of them.
func (f *knobFlags) register(cmd *cobra.Command) {
	f.registerTimes(cmd)
	flags := cmd.Flags()
	flags.Var(bytesFlag{&f.reserve}, "reserve-memory", "memory for context, communicator and graphs (default 1GiB)")
	flags.IntVar(&f.settings.MicroBatches, "micro-batches", 1, "parts of a prefill that follow each other through the stages")
}

// registerTimes registers those that a step's time depends on.
func (f *knobFlags) registerTimes(cmd *cobra.Command) {
	s, flags := &f.settings, cmd.Flags()
	f.shared = newCount(0, 0)
	flags.Float64Var(&s.EffCompute, "eff-compute", 0.7, "reachable share of the compute peak")
	flags.Float64Var(&s.EffHBM, "eff-hbm", 0.8, "reachable share of the memory bandwidth")
	flags.Float64Var(&s.EffNet, "eff-net", 0.75, "reachable share of the link bandwidth")
	flags.Float64Var(&f.launch, "launch-us", 2, "cost of one kernel in µs (default 5 with --enforce-eager)")
	flags.BoolVar(&s.Eager, "enforce-eager", false, "no device graphs: launches cost more")
	flags.Float64Var(&f.overhead, "step-overhead-us", 0, "host time per step in µs")
	flags.Float64Var(&s.Overlap, "overlap", 0, "share of communication hidden behind compute")
	f.attention = "fused"
	if flags.Lookup("attention") == nil { // predict also asks layer profiles with it
		flags.StringVar(&f.attention, "attention", f.attention, "fused, or naive to store the score matrix")
		completeWith(cmd, "attention", "fused", "naive")
	}
	flags.Float64Var(&s.KVReread, "kv-reread", 1, "how often a prefill reads the keys from memory")
	flags.Var(&f.shared, "shared-prefix", "leading tokens that all decoding sequences share and attention reads once")
	flags.Float64Var(&s.ExpertSkew, "expert-skew", 1, "effective share of the experts under uneven routing")
	flags.Float64Var(&s.ExpertImbalance, "expert-imbalance", 1, "load of the busiest expert rank over the mean")
	flags.BoolVar(&s.DispatchOnce, "dispatch-once", false, "send a token once to each expert rank instead of once for each expert")
	flags.StringVar(&f.sparsity, "sparsity", "", "2:4 for structured sparse weights")
	completeWith(cmd, "sparsity", "2:4")
	f.changed = flags.Changed
}

// plain writes a number without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// resolve returns the settings of the flags.
func (f *knobFlags) resolve() (cost.Settings, error) {
	s := f.settings
	for _, share := range []struct {
		name  string
		value float64
	}{{"eff-compute", s.EffCompute}, {"eff-hbm", s.EffHBM}, {"eff-net", s.EffNet}} {
		if !(share.value > 0 && share.value <= 1) {
			return s, usage("", "--%s is %g: want more than 0 and at most 1", share.name, share.value)
		}
	}
	for _, c := range []struct {
		name      string
		value     float64
		low, high float64
	}{
		{"launch-us", f.launch, 0, 1e6},
		{"step-overhead-us", f.overhead, 0, 1e7},
		{"overlap", s.Overlap, 0, 1},
		{"kv-reread", s.KVReread, 1, 1e4},
		{"expert-imbalance", s.ExpertImbalance, 1, 1e4},
	} {
		if !(c.value >= c.low && c.value <= c.high) {
			return s, usage("", "--%s is %g: want %s to %s", c.name, c.value, plain(c.low), plain(c.high))
		}
	}
	s.Launch = unit.Seconds(f.launch * 1e-6)
	if s.Eager && !f.changed("launch-us") {
		s.Launch = 5e-6
	}
	s.NoLaunch = f.launch == 0
	s.StepOverhead = unit.Seconds(f.overhead * 1e-6)
	s.SharedPrefix = f.shared.values[0]
	s.Reserve = f.reserve
	s.NoReserve = f.changed("reserve-memory") && f.reserve == 0
	switch f.attention {
	case "fused":
	case "naive":
		s.NaiveAttention = true
	default:
		return s, usage("", "--attention is %q: want fused or naive", f.attention)
	}
	switch f.sparsity {
	case "":
	case "2:4":
		s.Sparsity = true
	default:
		return s, usage("", "--sparsity is %q: only 2:4 is known", f.sparsity)
	}
	if err := s.Validate(); err != nil {
		return s, usage("", "%w", err)
	}
	return s, nil
}

// analyze runs every combination and writes one document or one table.
func (a *app) analyze(ctx context.Context, ref string, f *analyzeFlags) error {
	if len(f.gpus) == 0 || slices.Contains(f.gpus, "") {
		return usage("llmprof gpus lists the devices", "analyze wants a device: give --gpu")
	}
	switch f.method {
	case "roofline":
		if f.compat != "" {
			return usage("", "--compat-version goes with --method llm-profiler")
		}
		return a.analyzeRoofline(ctx, ref, f)
	case "llm-profiler":
		if f.figure != "" {
			return usage("", "--figure goes with --method roofline")
		}
		return a.analyzeReference(ctx, ref, f)
	default:
		return usage("", "unknown method %q: want roofline or llm-profiler", f.method)
	}
}

func (a *app) analyzeRoofline(ctx context.Context, ref string, f *analyzeFlags) error {
	base, err := f.deployment.config()
	if err != nil {
		return err
	}
	settings, err := f.knobs.resolve()
	if err != nil {
		return err
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	found, err := a.resolve(ctx, cat, ref)
	if err != nil {
		return err
	}
	model := found.Model
	var all []*cost.Analysis
	for _, name := range f.gpus {
		device, err := a.device(cat, name)
		if err != nil {
			return err
		}
		some, err := f.combinations(ctx, model, device, base, settings)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	documents := make([]report.AnalysisDocument, len(all))
	for i, analysis := range all {
		documents[i] = report.Analysis(analysis, version())
		documents[i].Memory.Engine = f.engineKV(analysis)
		documents[i].ModelOrigin, documents[i].ModelRevision = found.Origin, found.Revision
	}
	a.warn(unique(documents)...)
	if f.figure != "" {
		if len(all) != 1 {
			return usage("", "--figure draws one analysis, and the lists give %d", len(all))
		}
		if err := writeFile(f.figure, func(w io.Writer) error { return chart.SVG(w, report.Roofline(all[0])) }); err != nil {
			return err
		}
	}
	switch {
	case len(all) > 1:
		if f.perOp {
			return usage("", "--per-op lists the operators of one analysis, and the lists give %d", len(all))
		}
		err = a.write(report.Results("analyses", version(), documents), report.Sweep(documents))
	case a.format == formatCSV && f.perOp:
		err = a.write(documents[0], report.OpTables(documents[0])...)
	case a.format == formatCSV:
		err = a.write(documents[0], report.Sweep(documents))
	default:
		err = a.write(documents[0], report.AnalysisTables(all[0], f.perOp, documents[0].Memory.Engine)...)
	}
	return errors.Join(err, f.verdict(documents))
}

// combinations analyses every combination of the lists on one device.
func (f *analyzeFlags) combinations(ctx context.Context, model *catalog.Model, device *catalog.Device, base deploy.Config, settings cost.Settings) ([]*cost.Analysis, error) {
	layouts, err := f.layouts(base)
	if err != nil {
		return nil, err
	}
	var all []*cost.Analysis
	for _, c := range layouts {
		est, err := cost.New(model, device, c, settings)
		if err != nil {
			return nil, usage("", "%w", err)
		}
		for _, r := range f.requests() {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			analysis, err := est.Analyze(r)
			if err != nil {
				return nil, usage("", "%w", err)
			}
			all = append(all, analysis)
		}
	}
	return all, nil
}

// layouts lists the deployments of the parallel sizes.
func (f *analyzeFlags) layouts(base deploy.Config) ([]deploy.Config, error) {
	var all []deploy.Config
	for _, tp := range f.tp.values {
		for _, pp := range f.pp.values {
			for _, dp := range f.dp.values {
				sizes, err := expertRanks(f.ep, tp*dp)
				if err != nil {
					return nil, err
				}
				for _, ep := range sizes {
					c := base
					c.TensorParallel, c.PipelineParallel, c.DataParallel, c.ExpertParallel = tp, pp, dp, ep
					all = append(all, c)
				}
			}
		}
	}
	return all, nil
}

// expertRanks reads the value of --expert-parallel-size: sizes, or auto for
// all ranks.
func expertRanks(text string, auto int) ([]int, error) {
	switch text {
	case "", "false":
		return []int{1}, nil
	case "auto", "true":
		return []int{auto}, nil
	}
	sizes := newCounts(1)
	if err := sizes.Set(text); err != nil {
		return nil, usage("", "--expert-parallel-size is %q: %w", text, err)
	}
	return sizes.values, nil
}

// requests lists the combinations of batch, input and output.
func (f *analyzeFlags) requests() []cost.Request {
	var all []cost.Request
	for _, batch := range f.batch.values {
		for _, input := range f.input.values {
			for _, output := range f.output.values {
				all = append(all, cost.Request{Batch: batch, Input: input, Output: output, CachedPrefix: f.deployment.prefix.values[0]})
			}
		}
	}
	return all
}

// verdict is an error under --strict if something does not fit.
func (f *analyzeFlags) verdict(documents []report.AnalysisDocument) error {
	if !f.strict {
		return nil
	}
	for _, d := range documents {
		if !d.Fits {
			return &codedError{codeUnknown, fmt.Errorf("%s does not fit on %s: %s", d.Model, d.GPU, strings.Join(d.Reasons, ", ")), ""}
		}
	}
	return nil
}

// unique lists the warnings of all documents once each.
func unique(documents []report.AnalysisDocument) []string {
	var list []string
	seen := map[string]bool{}
	for _, d := range documents {
		for _, w := range d.Warnings {
			if !seen[w] {
				seen[w] = true
				list = append(list, w)
			}
		}
	}
	return list
}
