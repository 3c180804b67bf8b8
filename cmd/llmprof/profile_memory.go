package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// memoryFolder is where memory profiles go without -o.
const memoryFolder = "results/memory-profiles"

// architectureFlags state what a model is made of.
type architectureFlags struct {
	params                                   float64
	layers, heads, kvHeads, headDim, hiddens int
}

func (f *architectureFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Float64Var(&f.params, "model-params", 0, "number of parameters, 6.7e9 (default: from the model's config)")
	flags.IntVar(&f.layers, "num-layers", 0, "decoder blocks of the model (default: from its config)")
	flags.IntVar(&f.heads, "num-heads", 0, "attention heads (default: from its config)")
	flags.IntVar(&f.kvHeads, "num-kv-heads", 0, "KV heads (default: from its config)")
	flags.IntVar(&f.headDim, "head-dim", 0, "size of a head (default: from its config)")
	flags.IntVar(&f.hiddens, "hidden-size", 0, "width of the residual stream (default: from its config)")
	onlyOnCommandLine(flags, "model-params", "num-layers", "num-heads", "num-kv-heads", "head-dim", "hidden-size")
}

func (f *architectureFlags) validate() error {
	if !(f.params >= 0) || f.params > 1e15 {
		return usage("for example --model-params 6.7e9", "--model-params is %g: want a number of parameters", f.params)
	}
	for _, size := range []struct {
		name string
		n    int
	}{{"num-layers", f.layers}, {"num-heads", f.heads}, {"num-kv-heads", f.kvHeads}, {"head-dim", f.headDim}, {"hidden-size", f.hiddens}} {
		if size.n < 0 || size.n > 1<<20 {
			return usage("", "--%s is %d: want 0 to %d", size.name, size.n, 1<<20)
		}
	}
	if f.heads > 0 && f.kvHeads > f.heads {
		return usage("", "--num-kv-heads is %d, more than --num-heads %d", f.kvHeads, f.heads)
	}
	return nil
}

func (f *architectureFlags) architecture() memory.Architecture {
	return memory.Architecture{Parameters: f.params, Layers: f.layers, Heads: f.heads, KVHeads: f.kvHeads, HeadDim: f.headDim, HiddenSize: f.hiddens}
}

// given reports whether enough is stated for a breakdown.
func (f *architectureFlags) given() bool { return f.params > 0 && f.layers > 0 }

// profileMemoryFlags are the flags of profile memory.
type profileMemoryFlags struct {
	*engineFlags
	samplerFlags
	architectureFlags
	model, hubModel      string
	input, output, batch counts
	quantization, kv     string
	trust, eager         bool
	warmup, runs         int
	hardware, out        string
	record               string
}

func (a *app) profileMemoryCommand() *cobra.Command {
	f := &profileMemoryFlags{engineFlags: newEngineFlags(), input: newCount(1, 512), output: newCount(1, 128), batch: newCount(1, 1)}
	cmd := &cobra.Command{
		Use:   "memory MODEL",
		Short: "Measure memory while an engine runs, and what it is made of",
		Long: `Profile memory runs MODEL on an engine and reads the devices' memory all the
while, twenty times a second: before the engine starts (baseline), when the
engine says that it is warm (post-warm-up), and at its largest (peak). It splits
the peak into weights, KV cache, activations, CUDA graphs and overhead: as the
engine's own log and metrics state them (confidence high), as the architecture
implies (medium), or as what remains (low). What was not measured is null.

Without --engine it runs "vllm bench latency", llama-bench for a .gguf file. On a
GPU it reads NVIDIA's or AMD's driver, at the place where the engine runs; for an
engine on a CPU (--device cpu) the resident memory of the engine's processes.

It writes two files: the profile as JSON (schema 2.0 of LLM Sizer's profiler, and
more) and every reading as a .llmprof beside it. --record keeps what the driver
said, of all its devices; --sampler plays such a file in its place.`,
		Example: `  llmprof profile memory meta-llama/Llama-3.1-8B --input-len 512 --output-len 512 --batch-size 8
  llmprof profile memory --model ./tiny --engine vllm --device cpu --max-model-len 2048 -o tiny.json
  llmprof profile memory Qwen3-8B --place docker:vllm-inference --tp 2 --kv-cache-dtype fp8 --json
  llmprof profile memory Qwen3-8B --record devices.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error { return engineModelOrFlag(cmd, args, f.model) },
		RunE: func(cmd *cobra.Command, args []string) error {
			f.changed = cmd.Flags().Changed
			ref := f.model
			if len(args) > 0 {
				ref = args[0]
			}
			return a.profileMemory(cmd.Context(), ref, f)
		},
		ValidArgsFunction: a.completeModels,
	}
	flags := cmd.Flags()
	f.engineFlags.registerOwnLimits(cmd, "vllm-bench, llama-bench for a .gguf file", "the engine's")
	f.samplerFlags.register(cmd)
	f.architectureFlags.register(cmd)
	flags.StringVar(&f.model, "model", "", "the model, in place of the argument")
	flags.StringVar(&f.hubModel, "hf-model-id", "", "model whose config tells the architecture, where MODEL is a path that is not here")
	flags.Var(&f.input, "input-len", "prompt tokens of each sequence")
	flags.Var(&f.output, "output-len", "tokens to generate")
	flags.Var(&f.batch, "batch-size", "sequences at once")
	flags.StringVar(&f.quantization, "quantization", "", "weight format of the checkpoint: awq, gptq, fp8, int8, int4, …")
	flags.StringVar(&f.kv, "kv-cache-dtype", "", "format of the KV cache: auto, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2 or int8")
	flags.BoolVar(&f.trust, "trust-remote-code", false, "let the engine run code that comes with the model")
	flags.BoolVar(&f.eager, "enforce-eager", false, "no CUDA graphs")
	flags.IntVar(&f.warmup, "num-iters-warmup", 10, "runs that are not counted")
	flags.IntVar(&f.runs, "num-iters", 30, "runs that are timed")
	flags.StringVar(&f.hardware, "gpu", "", "name of the hardware in what is written (--hardware; default: what the driver reports)")
	flags.StringVarP(&f.out, "output", "o", "", "JSON file to write (default: "+memoryFolder+"/MODEL_….json)")
	flags.StringVar(&f.record, "record", "", "`file` for all readings of all devices, JSON Lines, which --sampler plays")
	completeWith(cmd, "kv-cache-dtype", "auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8")
	onlyOnCommandLine(flags, "model", "hf-model-id", "output", "gpu", "record")
	return cmd
}

func (f *profileMemoryFlags) validate() error {
	switch {
	case f.warmup < 0 || f.warmup > 1e6:
		return usage("", "--num-iters-warmup is %d: want 0 or more", f.warmup)
	case f.runs < 1 || f.runs > 1e6:
		return usage("", "--num-iters is %d: want 1 or more", f.runs)
	case f.server != "":
		return usage("", "profile memory starts its engine, to see the memory before it: --server does not go with it")
	case f.record != "" && f.sampler == memory.SamplerNone:
		return usage("", "--sampler none reads nothing that --record could keep")
	case f.record != "" && !strings.ContainsAny(f.record, "./"):
		return usage("for example --record ./"+f.record, "--record %s: --sampler takes files whose name has a dot or a slash", f.record)
	}
	return errors.Join(f.samplerFlags.validate(), f.architectureFlags.validate())
}

// settings takes the formats out of the flags: those of the engine know fewer
// spellings.
func (f *profileMemoryFlags) settings() memorySettings {
	s := memorySettings{dtype: f.dtype, quantization: f.quantization, kv: f.kv, trust: f.trust, eager: f.eager}
	f.dtype = ""
	return s
}

// memorySettings are the formats of a run as users of the profiler spell them.
type memorySettings struct {
	dtype, quantization, kv string
	trust, eager            bool
}

// apply fills them in for a driver.
func (m memorySettings) apply(driver engine.Driver, s *engine.Setup) error {
	var err error
	engineName := driver.Name()
	switch strings.ToLower(m.dtype) {
	case "", "auto":
	case "fp8":
		if m.quantization != "" && m.quantization != "fp8" {
			return usage("", "--dtype fp8 and --quantization %s contradict each other", m.quantization)
		}
		m.quantization = "fp8"
	default:
		if s.Deploy.DType, err = parseFormat(m.dtype, catalog.FP16, catalog.BF16, catalog.FP32); err != nil {
			return usage("auto, float16, bfloat16, float32 or fp8; --quantization names formats of weights", "--dtype: %w", err)
		}
	}
	s.Deploy.Quantization = m.quantization
	switch strings.ToLower(m.kv) {
	case "", "auto":
	default:
		if s.Deploy.KVCacheDType, err = parseFormat(m.kv, catalog.FP16, catalog.BF16, catalog.FP8, catalog.INT8); err != nil {
			return usage("auto, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2 or int8", "--kv-cache-dtype: %w", err)
		}
		// The kinds of fp8 cost the same, and the engine has to be told which.
		if own := strings.ToLower(strings.ReplaceAll(m.kv, "-", "_")); strings.HasPrefix(own, "fp8_") || own == "int8" {
			if !strings.HasPrefix(engineName, "vllm") {
				return usage("fp8 leaves the choice to the engine", "--kv-cache-dtype %s means nothing to %s", m.kv, engineName)
			}
			s.Args = append(slices.Clone(s.Args), "--kv-cache-dtype", own)
		}
	}
	s.CUDAGraphs = s.CUDAGraphs || driver.Abilities().CUDAGraphs && !m.eager && s.Device != "cpu"
	s.OwnLimits = true
	if m.trust {
		if !strings.HasPrefix(engineName, "vllm") && engineName != "torch" && engineName != "sglang" {
			return usage("", "--trust-remote-code means nothing to %s", engineName)
		}
		s.Args = append(s.Args, "--trust-remote-code")
	}
	return nil
}

// parseFormat reads a format that is one of the known ones.
func parseFormat(text string, known ...catalog.DType) (catalog.DType, error) {
	t, err := catalog.ParseDType(text)
	if err == nil && !slices.Contains(known, t) {
		return "", fmt.Errorf("%s is not to be had", text)
	}
	return t, err
}

// memoryEngine is the engine to run where none was chosen.
func memoryEngine(name, model string) string {
	switch {
	case name != "":
		return name
	case strings.HasSuffix(strings.ToLower(model), ".gguf"):
		return "llama-bench"
	}
	return "vllm-bench"
}

// onceATask makes a driver run its command once for a task.
func onceATask(d engine.Driver) engine.Driver {
	if _, ok := d.(vllm.BenchLatency); ok {
		return vllm.BenchLatency{Whole: true}
	}
	return d
}

func (a *app) profileMemory(ctx context.Context, ref string, f *profileMemoryFlags) (fault error) {
	if err := f.validate(); err != nil {
		return err
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	model, err := a.engineModel(cat, ref, f.local())
	if err != nil {
		return err
	}
	settings := f.settings()
	f.name = memoryEngine(f.name, model.path)
	driver, where, setup, err := f.open(ctx, model)
	if err != nil {
		return err
	}
	defer func() { fault = errors.Join(fault, f.close()) }()
	if err := settings.apply(driver, &setup); err != nil {
		return err
	}
	task := engine.StepTask{BatchSize: f.batch.values[0], InputLen: f.input.values[0], OutputLen: f.output.values[0]}
	setup.MaxBatch, setup.MaxInput, setup.MaxOutput = task.BatchSize, task.InputLen, task.OutputLen
	if most := driver.Abilities().MaxBatch; most > 0 && task.BatchSize > most {
		return usage("--engine chooses another", "%s runs at most %s at once", driver.Name(), unit.Plural(most, "sequence"))
	}
	out := f.document(memoryName(model.name, task, setup.Deploy.BlockSize, time.Now()))
	if err := f.targets(out); err != nil {
		return err
	}
	subject := memory.Subject{
		Name: model.name, Stated: f.architecture(), Asked: setup.Deploy, Loaded: setup.LoadWeights, Method: methodOf(driver.Name()),
		EngineArgs: publicArgs(setup.Args, setup.Env),
	}
	subject.Model = a.architectureOf(ctx, cat, ref, f)
	if err := fewTokens(f.name, subject.Model); err != nil {
		return usage("--engine vllm starts a server, which takes any prompt", "%w", err)
	}
	run, err := a.newMemoryRun(ctx, memoryRun{
		cat: cat, driver: onceATask(driver), place: where, setup: setup, subject: subject, hardware: f.hardware, source: "llmprof profile memory",
	}, f.samplerFlags, nil)
	if err != nil {
		return err
	}
	progress, record := a.watched(run, f.record)
	defer func() { fault = errors.Join(fault, record.close()) }()
	o, err := a.measureMemory(ctx, run, task, f, progress)
	if o == nil || err != nil {
		return err
	}
	document := run.document(o)
	files := filesOf(out)
	if err := run.save(files, o, document); err != nil {
		return err
	}
	a.warn(document.Metadata.Warnings...)
	a.warn(document.MemoryBreakdown.Faults...)
	return a.write(document, report.MemoryTables(document, files.document, files.points)...)
}

// document is the file to write: without -o one of a name that nothing has.
func (f *profileMemoryFlags) document(name string) string {
	if f.out != "" {
		return f.out
	}
	return unusedName(filepath.Join(memoryFolder, name))
}

// watched has a run show where it has come to, and keep its readings in a file
// where one is named.
func (a *app) watched(run *memoryRun, file string) (*memoryProgress, *recorder) {
	progress, record := newMemoryProgress(a.newMeter(), run), &recorder{name: file}
	run.marked = progress.marked
	run.each = func(s gpu.Snapshot) {
		progress.read(s)
		if file != "" {
			record.take(s)
		}
	}
	return progress, record
}

// measureMemory measures a task. One that failed is an error.
func (a *app) measureMemory(ctx context.Context, run *memoryRun, task engine.StepTask, f *profileMemoryFlags, progress *memoryProgress) (*memory.Observation, error) {
	a.log().Info(fmt.Sprintf("starting %s on %s", run.driver.Name(), run.place))
	began := time.Now()
	o, held, err := run.measure(ctx, task, f.warmup, f.runs)
	progress.end()
	if held > 0 {
		a.warn(fmt.Sprintf("the devices still hold %s more than before the engine", held))
	}
	if o == nil {
		return nil, err
	}
	a.log().Debug(fmt.Sprintf("it took %s", time.Since(began).Round(time.Second)))
	if o.Result.Failure != "" {
		return nil, errors.Join(err, memoryFailure(o))
	}
	return o, err
}

// fewTokens is why an engine cannot run a model, where it draws token ids that
// the model does not have; nil where it can, or the model is not known.
func fewTokens(engineName string, m *catalog.Model) error {
	if engineName != "vllm-bench" || m == nil || m.VocabSize >= vllm.BenchVocabulary {
		return nil
	}
	return fmt.Errorf("vllm bench latency draws token ids up to %d, and %s has %d", vllm.BenchVocabulary, m.Name, m.VocabSize)
}

// measure runs one task on an engine of its own; held is what the devices hold
// afterwards more than before.
func (r *memoryRun) measure(ctx context.Context, task engine.StepTask, warmup, runs int) (o *memory.Observation, held unit.Bytes, err error) {
	e, err := r.open(ctx)
	if err != nil {
		return nil, 0, err
	}
	o, err = e.Run(ctx, task, warmup, runs)
	left, closing := e.Close(context.WithoutCancel(ctx))
	return o, unit.Bytes(left), errors.Join(err, closing)
}

// memoryFailure is why a task was not measured.
func memoryFailure(o *memory.Observation) error {
	hint := o.Result.Hint
	if o.Result.Failure == engine.FailureOOM && hint == "" {
		hint = "fewer or shorter sequences, a smaller --max-model-len, or more devices"
	}
	if o.Result.Failure == engine.FailureLimits && hint == "" {
		hint = "the sequences are longer, or more, than the engine and the model admit: shorter --input-len and --output-len, a smaller --batch-size, or a larger --max-model-len"
	}
	return &codedError{codeOutside, fmt.Errorf("%d × %d tokens could not be measured: %s", o.Task.BatchSize, o.Task.InputLen, failureWords(o.Result.Failure)), hint}
}

// methodOf names a way to run as profiles do.
func methodOf(driver string) string {
	if driver == "vllm-bench" {
		return "vllm_bench_latency"
	}
	return strings.ReplaceAll(driver, "-", "_")
}

// architectureOf finds the architecture of a model; nil where it is not known,
// which costs the figures that would follow from it.
func (a *app) architectureOf(ctx context.Context, cat *catalog.Catalog, ref string, f *profileMemoryFlags) *catalog.Model {
	if f.hubModel != "" {
		ref = f.hubModel
	}
	m, err := a.model(ctx, cat, ref)
	if err == nil {
		return m
	}
	if f.given() {
		a.log().Debug("architecture: " + err.Error())
		return nil
	}
	a.warn(fmt.Sprintf("the architecture is not known, and figures that follow from it are left out: %v", err))
	return nil
}
