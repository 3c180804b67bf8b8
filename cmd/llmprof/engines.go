package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/llamacpp"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/sglang"
	"github.com/llmprof/llmprof/engine/torch"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// engineChoice is one value of --engine.
type engineChoice struct {
	name, what string
	driver     func(f *engineFlags) (engine.Driver, error)
}

// engineChoices lists the engines that can be measured.
func engineChoices() []engineChoice {
	plain := func(d engine.Driver) func(*engineFlags) (engine.Driver, error) {
		return func(*engineFlags) (engine.Driver, error) { return d, nil }
	}
	return []engineChoice{
		{"torch", "transformers on torch in a probe of its own: steps and layers, random or real weights", plain(torch.New())},
		{"vllm", "a vLLM server whose log says the time of every step", vllmServer},
		{"vllm-probe", "vLLM inside a probe: exact batches, random or real weights", plain(vllm.Probe{})},
		{"vllm-bench", "vllm bench latency, from the difference of two output lengths", plain(vllm.BenchLatency{})},
		{"sglang", "sglang.bench_one_batch", plain(sglang.New())},
		{"llama-bench", "llama.cpp's llama-bench (one sequence at a time)", plain(llamacpp.Bench())},
		{"node-llama-cpp", "llama.cpp inside a Node.js process: any batch size", plain(llamacpp.Node())},
		{"probe", "any program that speaks the probe protocol (--program; docs/engines.md)", plain(engine.ProbeProgram())},
	}
}

// findEngine finds an engine by its name.
func findEngine(name string) (engineChoice, error) {
	var names []string
	for _, c := range engineChoices() {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	return engineChoice{}, usage("did you mean "+strings.Join(catalog.Nearest(name, names, 3), ", ")+"? llmprof doctor says which are here", "unknown engine %q", name)
}

// placeForms lists the kinds of places for help texts.
const placeForms = "local, docker:NAME, podman:NAME, kubectl:[NAMESPACE/]POD[/CONTAINER] or ssh:[USER@]HOST[:PORT]"

// engineFlags say what is measured where.
type engineFlags struct {
	name, place, program string
	image                string
	container            *place.Container // of the image, once it runs
	server, serverLog    string
	device, dtype, clock string
	numLayers, threads   int
	weights, graphs      bool
	tp, pp               counts
	maxModelLen          counts
	maxBatchedTokens     counts
	blockSize            counts
	utilization          float64
	args, env            []string
	seed                 int64
	startTimeout         time.Duration
	taskTimeout          time.Duration
	changed              func(string) bool
}

func newEngineFlags() *engineFlags {
	return &engineFlags{tp: newCount(1, 1), pp: newCount(1, 1), maxModelLen: newCount(1, 0), maxBatchedTokens: newCount(1, 0), blockSize: newCount(1, 0)}
}

// registerCut adds the flag that measures a part of the model.
func (f *engineFlags) registerCut(cmd *cobra.Command, numLayers int) {
	cmd.Flags().IntVar(&f.numLayers, "num-layers", numLayers, "measure only the first layers of the model; 0 for all")
	onlyOnCommandLine(cmd.Flags(), "num-layers")
}

// registerOwnLimits adds the flags for a measurement whose engine keeps its own
// limits, and tells the engine that runs where none is named.
func (f *engineFlags) registerOwnLimits(cmd *cobra.Command, defaultEngine, defaultUtilization string) {
	f.register(cmd)
	for name, usual := range map[string][2]string{
		"engine":                 {"torch, llama-bench for a .gguf file", defaultEngine},
		"max-model-len":          {"what the grid needs", "the model's"},
		"max-num-batched-tokens": {"what the grid needs", "the engine's"},
		"gpu-memory-utilization": {"the engine's", defaultUtilization},
	} {
		flag := cmd.Flags().Lookup(name)
		flag.Usage = strings.Replace(flag.Usage, "(default: "+usual[0]+")", "(default: "+usual[1]+")", 1)
	}
}

func (f *engineFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	var names []string
	for _, c := range engineChoices() {
		names = append(names, c.name)
	}
	flags.StringVar(&f.name, "engine", "", "engine to measure: "+strings.Join(names, ", ")+" (default: torch, llama-bench for a .gguf file)")
	flags.StringVar(&f.place, "place", "local", "where it runs: "+placeForms)
	flags.StringVar(&f.image, "image", "", "run a container of this image for the time of the measurement, with --place docker or podman; nothing is pulled")
	flags.StringVar(&f.program, "program", "", "interpreter or executable to use instead of the one found")
	flags.StringVar(&f.server, "server", "", "URL of a vLLM server that already runs (with --server-log)")
	flags.StringVar(&f.serverLog, "server-log", "", "log that this server writes, with --enable-logging-iteration-details")
	flags.StringVar(&f.device, "device", "", "cuda, cpu, … (default: the engine's choice)")
	flags.StringVar(&f.dtype, "dtype", "", "format of weights and activations: bf16, fp16 or fp32 (default: the engine's choice)")
	flags.StringVar(&f.clock, "clock", "", "what to time with: device, wall or cpu, as the engine can (default: its best)")
	flags.IntVar(&f.threads, "threads", 0, "threads of an engine on a CPU; 0 for its own choice")
	flags.BoolVar(&f.weights, "weights", false, "load the checkpoint instead of random weights")
	flags.BoolVar(&f.graphs, "cuda-graphs", false, "replay decode steps from captured graphs, where the engine can")
	flags.Var(&f.tp, "tensor-parallel-size", "ranks that share each layer (--tp_size)")
	flags.Var(&f.pp, "pipeline-parallel-size", "pipeline stages (--pp_size)")
	flags.Var(&f.maxModelLen, "max-model-len", "longest sequence in tokens that the engine admits (default: what the grid needs)")
	flags.Var(&f.maxBatchedTokens, "max-num-batched-tokens", "most tokens of one step (default: what the grid needs)")
	flags.Var(&f.blockSize, "block-size", "tokens of one KV block (default: the engine's)")
	flags.Float64Var(&f.utilization, "gpu-memory-utilization", 0, "share of device memory that the engine may take, 0..1 (default: the engine's)")
	flags.StringArrayVar(&f.args, "engine-arg", nil, "further `argument` for the engine's command line (repeatable)")
	flags.StringArrayVar(&f.env, "engine-env", nil, "further `NAME=value` for the engine's environment (repeatable)")
	flags.Int64Var(&f.seed, "seed", 0, "seed of random weights and tokens")
	flags.DurationVar(&f.startTimeout, "start-timeout", 0, "longest start of the engine (default 15m)")
	flags.DurationVar(&f.taskTimeout, "task-timeout", 0, "longest time of one run of one point (default 10m)")
	completeWith(cmd, "engine", names...)
	completeWith(cmd, "dtype", "bf16", "fp16", "fp32")
	completeWith(cmd, "clock", string(profile.ClockDevice), string(profile.ClockWall), string(profile.ClockCPU))
	completeWith(cmd, "device", "cuda", "cpu")
	onlyOnCommandLine(flags, "image", "program", "server", "server-log", "seed")
}

// open finds the driver and the place, and builds the setup. close ends what it
// has started.
func (f *engineFlags) open(ctx context.Context, model modelRef) (engine.Driver, engine.Place, engine.Setup, error) {
	fail := func(err error) (engine.Driver, engine.Place, engine.Setup, error) {
		return nil, nil, engine.Setup{}, err
	}
	name := f.name
	if name == "" {
		name = "torch"
		switch {
		case f.server != "":
			name = "vllm"
		case strings.HasSuffix(strings.ToLower(model.path), ".gguf"):
			name = "llama-bench"
		}
	}
	choice, err := findEngine(name)
	if err != nil {
		return fail(err)
	}
	driver, err := choice.driver(f)
	if err != nil {
		return fail(err)
	}
	if (f.server != "" || f.serverLog != "") && name != "vllm" {
		return fail(usage("", "--server and --server-log go with --engine vllm"))
	}
	if f.image == "" && (f.place == "docker" || f.place == "podman") {
		return fail(usage("docker ps lists the containers", "--place %s wants a container, %s:NAME, or an image to run: --image NAME", f.place, f.place))
	}
	setup, err := f.setup(model)
	if err != nil {
		return fail(err)
	}
	if err := knownClock(driver, setup.Clock); err != nil {
		return fail(err)
	}
	where, err := f.where(ctx, model)
	if err != nil {
		return fail(err)
	}
	return driver, where, setup, nil
}

// knownClock refuses a clock that a driver does not have.
func knownClock(driver engine.Driver, clock profile.Clock) error {
	if clocks := driver.Abilities().Clocks; clock != "" && !slices.Contains(clocks, clock) {
		return usage("", "%s cannot be timed with the clock %q: it has %s", driver.Name(), clock, unit.List(clocks))
	}
	return nil
}

// setup is what the flags ask of an engine.
func (f *engineFlags) setup(model modelRef) (engine.Setup, error) {
	switch {
	case f.numLayers < 0:
		return engine.Setup{}, usage("", "--num-layers is %d: want 0 or more", f.numLayers)
	case f.threads < 0:
		return engine.Setup{}, usage("", "--threads is %d: want 0 or more", f.threads)
	case f.startTimeout < 0 || f.taskTimeout < 0:
		return engine.Setup{}, usage("", "--start-timeout is %s, --task-timeout %s: want none negative", f.startTimeout, f.taskTimeout)
	case !(f.utilization >= 0 && f.utilization <= 1):
		return engine.Setup{}, usage("", "--gpu-memory-utilization is %g: want a share, 0 to 1", f.utilization)
	}
	setup := engine.Setup{
		Model: model.path, NumLayers: f.numLayers, LoadWeights: f.weights, Device: f.device, Clock: profile.Clock(f.clock),
		Threads: f.threads, CUDAGraphs: f.graphs, Seed: f.seed, Program: f.program, Args: f.args, Env: f.env,
		StartTimeout: f.startTimeout, TaskTimeout: f.taskTimeout,
		Deploy: deploy.Config{
			Model: model.path, TensorParallel: f.tp.values[0], PipelineParallel: f.pp.values[0], MaxModelLen: f.maxModelLen.values[0],
			MaxNumBatchedTokens: f.maxBatchedTokens.values[0], BlockSize: f.blockSize.values[0], GPUMemoryUtilization: f.utilization,
		},
	}
	if f.dtype != "" {
		var err error
		if setup.Deploy.DType, err = catalog.ParseDType(f.dtype); err != nil {
			return engine.Setup{}, usage("", "--dtype: %w", err)
		}
	}
	return setup, nil
}

// where is the place, with a container of the image started where one is asked
// for.
func (f *engineFlags) where(ctx context.Context, model modelRef) (engine.Place, error) {
	if f.image == "" {
		return place.Parse(f.place)
	}
	image := place.Image{Name: f.image, Program: f.place, Network: "none"}
	switch f.place {
	case "local", "docker":
		image.Program = "docker"
	case "podman":
	default:
		return nil, usage("", "--image goes with --place docker or --place podman, and not with %s", f.place)
	}
	if f.device != "cpu" {
		image.GPUs = []string{"all"}
	}
	if filepath.IsAbs(model.path) {
		image.Mounts = append(image.Mounts, model.path+":"+model.path+":ro")
	} else {
		image.Network = "" // the engine fetches the model itself
	}
	container, err := place.RunImage(ctx, image)
	if err != nil {
		return nil, err
	}
	f.container = container
	return container, nil
}

// local reports whether the engine sees the files of this machine: it runs
// here, or in a container that gets the model's folder.
func (f *engineFlags) local() bool { return f.place == "local" || f.image != "" }

// close removes the container that open started, if any.
func (f *engineFlags) close() error {
	if f.container == nil {
		return nil
	}
	return f.container.Close()
}

// vllmServer attaches to a server that runs, or starts one.
func vllmServer(f *engineFlags) (engine.Driver, error) {
	if f.server == "" {
		if f.serverLog != "" {
			return nil, usage("", "--server-log goes with --server")
		}
		return &vllm.Server{}, nil
	}
	if f.serverLog == "" {
		return nil, usage("start the server with --enable-logging-iteration-details and give its log: --server-log FILE",
			"--server needs --server-log: the times of the steps stand there")
	}
	if _, err := os.Stat(f.serverLog); err != nil {
		return nil, fileError("read", f.serverLog, err)
	}
	return &vllm.Server{
		URL: f.server, APIKey: os.Getenv("OPENAI_API_KEY"),
		// What the server did before is not this measurement's.
		OpenLog: func(context.Context) (io.ReadCloser, error) { return follow(f.serverLog) },
	}, nil
}

// modelRef is a model as the engine takes it, and the name to record.
type modelRef struct{ path, name string }

// engineModel finds what to hand to an engine: a path that is here as an
// absolute one, a name of the catalog as its hub id, all else as it is.
func (a *app) engineModel(cat *catalog.Catalog, ref string, local bool) (modelRef, error) {
	if strings.TrimSpace(ref) == "" {
		return modelRef{}, usage("", "the model's name is empty")
	}
	if info, err := os.Stat(ref); err == nil && local {
		path, err := filepath.Abs(ref)
		if err != nil {
			return modelRef{}, fileError("read", ref, err)
		}
		if info.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "config.json")); err != nil {
				return modelRef{}, usage("a model is a folder with a config.json, a .gguf file or a hub id", "model %s: the folder has no config.json", ref)
			}
		}
		return modelRef{path, strings.TrimSuffix(filepath.Base(path), ".gguf")}, nil
	}
	if !local && (filepath.IsAbs(ref) || strings.HasPrefix(ref, "/")) {
		return modelRef{ref, strings.TrimSuffix(filepath.Base(ref), ".gguf")}, nil
	}
	if !local && (strings.HasPrefix(ref, ".") || strings.HasSuffix(ref, ".gguf")) {
		return modelRef{}, usage("give the path as it is there, from the root: /models/…", "model %s: a path at another place has to be absolute", ref)
	}
	if strings.HasPrefix(ref, ".") || filepath.IsAbs(ref) || strings.HasSuffix(ref, ".gguf") {
		return modelRef{}, usage("", "model %s: there is no such file or folder", ref)
	}
	model, err := cat.Model(ref)
	switch {
	case err == nil && model.HubID != "":
		return modelRef{model.HubID, model.HubID}, nil
	case err == nil:
		return modelRef{}, usage("give a folder with its config.json", "model %s has no hub id that an engine could load", model.Name)
	case strings.Count(ref, "/") == 1:
		return modelRef{ref, ref}, nil
	}
	var unknown *catalog.UnknownError
	if errors.As(err, &unknown) {
		return modelRef{}, &codedError{codeUnknown, err, unknown.Hint() + "; a folder with a config.json and a hub id (owner/name) work too"}
	}
	return modelRef{}, fmt.Errorf("model %s: %w", ref, err)
}
