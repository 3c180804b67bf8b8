package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/fit/layers"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/sim/launch"
	"github.com/llmprof/llmprof/sim/sglang"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// simulatedFlags say what serves a simulated load: a deployment, and what times
// its steps.
type simulatedFlags struct {
	replica           replicaFlags
	knobs             knobFlags
	gpus              []string
	predictor, config string
	profile           string
	between, before   time.Duration
	graphs            counts
	given             func(name string) bool
	placed            *placement // nil until it was looked up
}

// placement is a model and the device that serves it.
type placement struct {
	catalog *catalog.Catalog
	model   *catalog.Model
	device  *catalog.Device
}

func (f *simulatedFlags) register(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	gpuFlag(a, cmd, &f.gpus)
	f.replica.register(cmd)
	f.knobs.registerTimes(cmd)
	f.given = a.givenIn(cmd)
	flags.StringVar(&f.predictor, "predictor-file", "", "predictor `file` that times the steps, with the host's times beside them (llmprof train)")
	flags.StringVar(&f.config, "predictor-config", "", "which predictor of the file, where it holds several")
	flags.StringVar(&f.profile, "profile", "", "profile that times the steps: of layers (a file or a bundle) or of steps")
	flags.DurationVar(&f.between, "host-gap", 0, "host time from the end of a step to the begin of the next one (default: the predictor's)")
	flags.DurationVar(&f.before, "request-overhead", 0, "time of a request outside the scheduler, on its way in and out (default: the predictor's)")
	f.graphs = newCounts(1)
	flags.Var(&f.graphs, "cudagraph-capture-sizes", "sizes in tokens to which vLLM's device graphs pad steps, with the datasheet's times (default: the release's; --enforce-eager for none)")
	onlyOnCommandLine(flags, "predictor-file", "predictor-config", "profile", "host-gap", "request-overhead", "cudagraph-capture-sizes")
}

// simulated is a replica ready to serve, with what is to be said of it.
type simulated struct {
	replica  fleet.Replica
	deploy   deploy.Config
	model    *catalog.Model // nil where it is not known, and so is the device
	device   *catalog.Device
	devices  int        // of a replica
	perToken unit.Bytes // KV over all devices; 0 where it is not known
	engine   string
	release  string
	graphs   []int             // sizes of device graphs by default, in tokens
	idle     *launch.Idle      // nil for SGLang
	idlePool *sglang.Idle      // nil for vLLM
	watched  *watchedPredictor // nil where no predictor times the steps
	steps    report.StepSource
	delay    time.Duration // the part of replica.Between that delays a step in the mean
	kv       report.SimulatedPool
	choices  []deploy.Choice
	warnings []string
}

// check refuses flags that contradict each other or do nothing.
func (f *simulatedFlags) check(model string) error {
	switch {
	case f.predictor != "" && f.profile != "":
		return usage("give one of them", "--predictor-file and --profile both time the steps")
	case model == "" && f.profile != "":
		return usage("llmprof simulate MODEL --gpu GPU --profile PROFILE", "--profile wants MODEL and --gpu")
	case f.config != "" && f.predictor == "":
		return usage("", "--predictor-config goes with --predictor-file")
	case model == "" && f.predictor == "" && len(f.gpus) > 0:
		return usage("llmprof models lists the models", "simulate --gpu %s: name a MODEL", f.gpus[0])
	case model == "" && f.predictor == "":
		return usage("llmprof simulate MODEL --gpu GPU, or --predictor-file FILE --num-gpu-blocks N", "simulate: what times the steps is not said")
	case model == "" && len(f.gpus) > 0:
		return usage("llmprof models lists the models", "--gpu goes with a model")
	case model != "" && len(f.gpus) != 1:
		return usage("llmprof gpus lists the devices", "simulate %s wants one --gpu, and got %d", model, len(f.gpus))
	case model == "" && f.replica.blocks.values[0] == 0 && f.replica.serverLog == "":
		return usage("vLLM logs it at its start, and /metrics tells it: --num-gpu-blocks N or --server-log FILE", "without a model the size of the KV cache has to be said")
	case f.between < 0 || f.before < 0:
		return usage("", "--host-gap and --request-overhead: want 0 or more")
	}
	if model == "" {
		if err := refuse(f.ofModel(), f.given, "goes with a model and --gpu"); err != nil {
			return err
		}
	}
	if f.given("cudagraph-capture-sizes") && f.replica.flags.Changed("enforce-eager") {
		return usage("give one of them", "--cudagraph-capture-sizes has no use with --enforce-eager")
	}
	if f.predictor == "" && f.profile == "" {
		return nil
	}
	for _, name := range append(knobNames(), "cudagraph-capture-sizes") {
		if flag := f.replica.flags.Lookup(name); flag != nil && f.given(name) && name != "enforce-eager" {
			return usage("", "--%s acts on the datasheet's times only, and the steps are timed by --predictor-file or --profile", name)
		}
	}
	return nil
}

// ofModel are the flags that act on a model, its memory or its device only.
// The devices of a replica count without a model too where power or a price is
// given.
func (f *simulatedFlags) ofModel() []string {
	names := []string{
		"data-parallel-size", "expert-parallel-size", "pipeline-layers", "all2all-backend", "enforce-eager", "cudagraph-capture-sizes",
		"dtype", "quantization", "kv-cache-dtype", "quantize-embeddings",
		"gpu-memory-utilization", "kv-cache-memory-bytes", "disable-hybrid-kv-cache-manager",
	}
	if !f.given("power-busy") && !f.given("price") {
		names = append(names, "tensor-parallel-size", "pipeline-parallel-size")
	}
	return names
}

// refuse names the first of the flags that was given.
func refuse(names []string, given func(string) bool, why string) error {
	for _, name := range names {
		if given(name) {
			return usage("", "--%s %s", name, why)
		}
	}
	return nil
}

// launch makes the replica. Usual is a usual request with its output in tokens.
func (f *simulatedFlags) launch(ctx context.Context, a *app, model string, usual int) (simulated, error) {
	if err := f.check(model); err != nil {
		return simulated{}, err
	}
	engine, err := f.replica.engineName()
	if err != nil {
		return simulated{}, err
	}
	out := simulated{engine: engine, devices: f.replica.tp.values[0] * f.replica.pp.values[0]}
	if model == "" {
		err = f.bare(a, &out)
	} else {
		err = f.onDevice(ctx, a, model, usual, &out)
	}
	if err != nil {
		return out, err
	}
	if err := f.times(ctx, a, &out); err != nil {
		return out, err
	}
	if f.given("host-gap") {
		out.replica.Between, out.delay = f.between, 0
	}
	if f.given("request-overhead") {
		out.replica.Before = f.before
	}
	out.steps.Between, out.steps.Before = milliseconds(out.replica.Between-out.delay), milliseconds(out.replica.Before)
	out.steps.Delay = milliseconds(out.delay)
	return out, nil
}

func milliseconds(t time.Duration) float64 { return float64(t) / float64(time.Millisecond) }

// place looks up the model and its device, once.
func (f *simulatedFlags) place(ctx context.Context, a *app, ref string) error {
	if f.placed != nil {
		return nil
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	model, err := a.model(ctx, cat, ref)
	if err != nil {
		return err
	}
	device, err := a.device(cat, f.gpus[0])
	if err != nil {
		return err
	}
	f.placed = &placement{cat, model, device}
	return nil
}

// onDevice launches a model on a device, and takes the datasheet's step times.
func (f *simulatedFlags) onDevice(ctx context.Context, a *app, ref string, usual int, out *simulated) error {
	if err := f.place(ctx, a, ref); err != nil {
		return err
	}
	cat, model, device := f.placed.catalog, f.placed.model, f.placed.device
	costs, err := f.knobs.resolve()
	if err != nil {
		return err
	}
	out.model, out.device = model, device
	if out.engine == "sglang" {
		err = f.onSGLang(a, cat, model, device, costs, out)
	} else {
		err = f.onVLLM(a, cat, model, device, costs, usual, out)
	}
	if err != nil {
		return err
	}
	estimator, err := cost.New(model, device, out.deploy, costs)
	if err != nil {
		return usage("", "%w", err)
	}
	out.perToken = estimator.Memory(1, 1, 1).KVPerToken * unit.Bytes(out.devices)
	for _, w := range estimator.Warnings() {
		if !slices.Contains(out.warnings, w) { // the launch has most of them
			out.warnings = append(out.warnings, w)
		}
	}
	out.replica.Timer = estimator
	out.steps = report.StepSource{Basis: string(stat.Theoretical), Source: "datasheet of " + device.Name}
	if n := f.replica.maxModelLen.values[0]; n > model.MaxSeqLen {
		out.warnings = append(out.warnings, fmt.Sprintf("max_model_len %d is beyond the %d of %s: the engine refuses that unless it is told otherwise", n, model.MaxSeqLen, model.Name))
	}
	return f.padded(out)
}

// padded lets steps be as large as the device graphs that vLLM captures.
func (f *simulatedFlags) padded(out *simulated) error {
	if out.engine != "vllm" || f.knobs.settings.Eager || deploy.MachineOf(out.device).Platform == deploy.CPU || f.predictor != "" || f.profile != "" {
		return nil
	}
	sizes := f.graphs.values
	if len(sizes) == 0 {
		sizes = out.graphs
	}
	out.idle.Graphs = len(f.graphs.values) == 0
	timer, err := sim.NewPadded(out.replica.Timer, sizes)
	if err != nil {
		return usage("", "--cudagraph-capture-sizes: %w", err)
	}
	out.replica.Timer = timer
	return nil
}

// onVLLM launches vLLM.
func (f *simulatedFlags) onVLLM(a *app, cat *catalog.Catalog, model *catalog.Model, device *catalog.Device, costs cost.Settings, usual int, out *simulated) error {
	r, err := f.replica.launchVLLM(a, cat, model, device, costs, usual)
	if err != nil {
		return err
	}
	out.release = r.Scheduler.Release.String()
	out.graphs = deploy.VLLMGraphSizes(r.Scheduler, device.Name)
	out.idle = r.Idle(model.MaxSeqLen, device.Name)
	out.replica.VLLM, out.deploy, out.choices, out.warnings = &r.Config, r.Deploy, r.Choices, r.Warnings
	out.kv = report.SimulatedPool{Blocks: r.Config.Blocks, BlockSize: r.Config.BlockSize, Tokens: r.Pool.Tokens, Basis: string(r.Pool.Basis), Origin: r.Pool.Terms()}
	return nil
}

// onSGLang launches SGLang.
func (f *simulatedFlags) onSGLang(a *app, cat *catalog.Catalog, model *catalog.Model, device *catalog.Device, costs cost.Settings, out *simulated) error {
	r, err := f.replica.launchSGLang(a, cat, model, device, costs)
	if err != nil {
		return err
	}
	c := r.Config
	out.release, out.deploy, out.choices, out.warnings = cmp.Or(f.replica.sglangVersion, sglang.NewestRelease), r.Deploy, r.Choices, r.Warnings
	out.idlePool = r.Idle(out.release, model.MaxSeqLen)
	out.replica.SGLang = func() (fleet.Loop, error) { return sglang.NewLoop(c) }
	out.kv = report.SimulatedPool{Blocks: c.Pool / c.Page, BlockSize: c.Page, Tokens: int64(c.Pool / c.Page * c.Page), Basis: string(r.Basis), Origin: "max_total_num_tokens"}
	for _, choice := range r.Choices {
		if choice.Name == "max_total_num_tokens" {
			out.kv.Origin = strings.TrimPrefix(choice.Source, out.kv.Basis+": ")
		}
	}
	return nil
}

// bare takes a replica of an unknown model.
func (f *simulatedFlags) bare(a *app, out *simulated) error {
	if out.engine != "vllm" {
		return usage("give the model and --gpu", "%s without a model: its limits follow from the model", out.engine)
	}
	r, err := f.replica.bareVLLM(a)
	if err != nil {
		return err
	}
	c := &r.config
	out.kv = report.SimulatedPool{
		Blocks: c.Blocks, BlockSize: c.BlockSize, Tokens: int64(c.Blocks-1) * int64(c.BlockSize), Basis: string(r.basis), Origin: r.origin,
	}
	out.idle = launch.NewIdle(r.scheduler, r.config, (c.Blocks-1)*c.BlockSize)
	out.release, out.replica.VLLM, out.choices, out.warnings = r.scheduler.Release.String(), c, r.scheduler.Choices, r.scheduler.Warnings
	return nil
}

// times lets a predictor or a profile time the steps.
func (f *simulatedFlags) times(ctx context.Context, a *app, out *simulated) error {
	switch {
	case f.predictor != "":
		predictor, config, err := a.openPredictor(f.predictor, f.config)
		if errors.Is(err, fs.ErrNotExist) {
			return usage("llmprof train CONFIG FILE makes one", "%w", err)
		}
		if err != nil {
			return err
		}
		if f.placed != nil {
			if err := out.sameMachine(f.placed.catalog, "predictor", f.predictor, predictor.Origin()); err != nil {
				return err
			}
		}
		out.steps = report.StepSource{Basis: string(stat.Fitted), Source: fmt.Sprintf("predictor %s of %s", config, f.predictor)}
		out.predicted(predictor)
	case f.profile != "":
		return f.profiled(ctx, a, out)
	}
	return nil
}

// predicted takes step times and host times from a predictor.
func (s *simulated) predicted(p *fit.Predictor) {
	s.watched = &watchedPredictor{predictor: p}
	s.replica.Timer = s.watched
	var ok bool
	if s.replica.Between, s.replica.Before, ok = hostTimes(p); ok {
		s.delay = nanoseconds(p.Delay())
	} else {
		s.warnings = append(s.warnings, "the predictor knows no time of the host beside the steps: none is added")
	}
}

// hostTimes are the times that a predictor knows beside its steps: between two
// of them, with what delays a step in the mean, and of a request outside the
// scheduler. ok is false where it was trained without any.
func hostTimes(p *fit.Predictor) (between, before time.Duration, ok bool) {
	gap, ok := p.Gap()
	if !ok {
		return 0, 0, false
	}
	return nanoseconds(gap.Between.Value + p.Delay()), nanoseconds(gap.Before.Value), true
}

func nanoseconds(t unit.Seconds) time.Duration { return time.Duration(math.Round(float64(t) * 1e9)) }

// profiled lets a profile of layers, or a predictor of a profile of steps, time
// the steps.
func (f *simulatedFlags) profiled(ctx context.Context, a *app, out *simulated) error {
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	p, _, err := a.readMeasurement(f.profile, readOptions{cat: cat})
	if err != nil {
		return err
	}
	from, layered := originOf(cat, p), len(p.Filter(profile.ByKind(profile.KindLayer)).Points) > 0
	if layered {
		from.TensorParallel = 0 // each layer says for how many ranks it is
	}
	if err := out.sameMachine(cat, "profile", f.profile, from); err != nil {
		return err
	}
	out.steps = report.StepSource{Basis: string(stat.Measured), Source: f.profile}
	if !layered {
		return trainedOn(ctx, f.profile, p, out)
	}
	options := layers.Options{TensorParallel: max(out.deploy.TensorParallel, 1)}
	if out.model.MoE != nil {
		options.Experts = out.model.MoE.NumExperts
	}
	table, err := layers.New(slices.Values(p.Points), options)
	if err != nil {
		return usage("llmprof profile layers measures one", "%s: %w", f.profile, err)
	}
	timer, err := table.Timer(out.model.NumLayers, options.TensorParallel, false)
	if err != nil {
		return usage("", "%s: %w", f.profile, err)
	}
	out.replica.Timer, err = out.exchanging(table, timer, out.model, options.TensorParallel)
	return err
}

// trainedOn trains a predictor on a profile of steps.
func trainedOn(ctx context.Context, name string, p *profile.Profile, out *simulated) error {
	data, _, err := observations([]*profile.Profile{p}, allSamples)
	if err != nil {
		return err
	}
	predictor, _, err := fit.Train(ctx, data.Rows, fit.Options{})
	if err != nil {
		return usage("llmprof train says more", "%s holds no layers, and no predictor can be trained on its steps: %w", name, err)
	}
	out.steps.Basis = string(stat.Fitted)
	out.predicted(predictor)
	return nil
}
