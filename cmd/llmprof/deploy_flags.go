package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/sglang"
	"github.com/llmprof/llmprof/unit"
)

// replicaFlags are the flags that say how one replica of an engine is started,
// in vLLM's spellings; [normaliseFlag] knows SGLang's. What is not given is left
// to the engine's own defaults.
type replicaFlags struct {
	formats deploymentFlags

	engine, vllmVersion, sglangVersion string
	usage                              string
	tp, pp, dp                         counts
	ep                                 string
	stages                             counts

	utilization, static             float64
	blockSize, maxModelLen          counts
	maxTokens, maxSeqs, scheduled   counts
	blocks                          counts
	kvMemory                        unit.Bytes
	policy                          string
	chunked, prefix, async, fullISL switchPair
	threshold, partial, longPartial counts
	watermark, swapSpace            float64
	performance, all2all            string
	noHybrid                        bool
	maxTotal                        counts
	maxPrefill, decodeInterval      counts
	conservativeness                float64
	mixed, noOverlap                bool
	retraction                      string
	preemptThreshold                int
	serverLog                       string

	flags *pflag.FlagSet
}

// switchPair is a switch with its opposite: --x and --no-x.
type switchPair struct{ on, off bool }

// register adds both.
func (s *switchPair) register(flags *pflag.FlagSet, name, usage string) {
	flags.BoolVar(&s.on, name, false, usage)
	flags.BoolVar(&s.off, "no-"+name, false, "the opposite of --"+name)
}

// value is what was given; nil is neither.
func (s *switchPair) value(flags *pflag.FlagSet, name string) (*bool, error) {
	on, off := flags.Changed(name), flags.Changed("no-"+name)
	switch {
	case on && off:
		return nil, usage("", "--%s and --no-%s: want one of them", name, name)
	case on:
		return new(s.on), nil
	case off:
		return new(!s.off), nil
	}
	return nil, nil
}

// register adds all of them. Flags of the cost model, --enforce-eager among
// them, are knobFlags' to add.
func (f *replicaFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.flags = flags
	f.tp, f.pp, f.dp, f.stages = newCount(1, 1), newCount(1, 1), newCount(1, 1), newCounts(1)
	f.formats.registerFormats(cmd)
	flags.StringVar(&f.engine, "engine", "", "vllm (default) or sglang: whose scheduler and whose defaults")
	flags.StringVar(&f.vllmVersion, "vllm-version", "", "release of vLLM (default: "+sim.NewestRelease+")")
	flags.StringVar(&f.sglangVersion, "sglang-version", "", "release of SGLang (default: "+sglang.NewestRelease+")")
	flags.StringVar(&f.usage, "usage", "server", "server, or offline for vLLM's LLM class, which has other defaults")
	flags.Var(&f.tp, "tensor-parallel-size", "ranks that share each layer (--tp)")
	flags.Var(&f.pp, "pipeline-parallel-size", "pipeline stages (--pp)")
	flags.Var(&f.dp, "data-parallel-size", "replicas of the attention (--dp)")
	flags.StringVar(&f.ep, "expert-parallel-size", "", "ranks over which whole experts are spread (--ep); without a number tp x dp")
	flags.Lookup("expert-parallel-size").NoOptDefVal = "auto"
	flags.Var(&f.stages, "pipeline-layers", "layers of each pipeline stage, e.g. 21,21,20 (default: equal)")
	f.registerPool(flags)
	f.registerLimits(flags)
	f.registerSGLang(flags)
	completeWith(cmd, "engine", "vllm", "sglang")
	completeWith(cmd, "vllm-version", deploy.VLLMReleases()...)
	completeWith(cmd, "sglang-version", sglang.Releases()...)
	completeWith(cmd, "usage", "server", "offline")
	completeWith(cmd, "scheduling-policy", "fcfs", "priority")
	completeWith(cmd, "performance-mode", "balanced", "interactivity", "throughput")
	onlyOnCommandLine(flags, "server-log")
}

// registerPool adds the flags of the memory.
func (f *replicaFlags) registerPool(flags *pflag.FlagSet) {
	f.blockSize, f.blocks = newCount(1, 0), newCount(2, 0)
	flags.Float64Var(&f.utilization, "gpu-memory-utilization", 0, "share of device memory that vLLM may take (default: the release's)")
	flags.Float64Var(&f.static, "mem-fraction-static", 0, "SGLang's share, of weights and KV cache only (default: the release's)")
	flags.Var(&f.blockSize, "block-size", "tokens in one KV block (default: the engine's)")
	flags.Var(&f.blocks, "num-gpu-blocks", "KV blocks, for SGLang pages, in place of what memory gives (--num-gpu-blocks-override)")
	flags.Var(engineBytesFlag{bytesFlag{&f.kvMemory}}, "kv-cache-memory-bytes", "memory of a rank for the KV cache, in place of what is left")
	flags.StringVar(&f.serverLog, "server-log", "", "log, metrics text or profile of a real server, whose KV capacity is taken")
	flags.BoolVar(&f.noHybrid, "disable-hybrid-kv-cache-manager", false, "count layers with windows as full ones")
	flags.Float64Var(&f.swapSpace, "swap-space", 0, "GiB, without effect in vLLM's current engine")
}

// registerLimits adds the flags of the scheduler.
func (f *replicaFlags) registerLimits(flags *pflag.FlagSet) {
	f.maxModelLen, f.maxTokens, f.maxSeqs, f.scheduled = newEngineCount(1, 0), newEngineCount(1, 0), newCount(1, 0), newEngineCount(1, 0)
	f.threshold, f.partial, f.longPartial = newCount(0, 0), newCount(1, 1), newCount(1, 1)
	flags.Var(&f.maxModelLen, "max-model-len", "longest prompt plus output in tokens; 8k is 8000 and 8K 8192, as in vLLM (default: the model's)")
	flags.Var(&f.maxTokens, "max-num-batched-tokens", "most tokens in one step, for SGLang the chunk of a prefill (default: the engine's for the device)")
	flags.Var(&f.maxSeqs, "max-num-seqs", "most requests that run at once (default: the engine's for the device)")
	flags.Var(&f.scheduled, "max-num-scheduled-tokens", "a smaller budget of the scheduler, in tokens")
	flags.StringVar(&f.policy, "scheduling-policy", "", "fcfs or priority, or one of SGLang's (default: the engine's)")
	f.chunked.register(flags, "enable-chunked-prefill", "let a prompt take several steps (default: on)")
	f.prefix.register(flags, "enable-prefix-caching", "find the blocks of earlier prompts again (default: on)")
	f.async.register(flags, "async-scheduling", "plan a step while the one before runs (default: the release's)")
	f.fullISL.register(flags, "scheduler-reserve-full-isl", "admit a request only when its whole prompt fits (default: on from 0.19)")
	flags.Var(&f.threshold, "long-prefill-token-threshold", "most tokens of one request in a step, 0 for no bound")
	flags.Var(&f.partial, "max-num-partial-prefills", "of vLLM before 0.27, where it hardly acts")
	flags.Var(&f.longPartial, "max-long-partial-prefills", "of vLLM before 0.27, where it does not act")
	flags.Float64Var(&f.watermark, "watermark", 0, "fraction of the blocks that admissions leave free")
	flags.StringVar(&f.performance, "performance-mode", "", "balanced, interactivity or throughput, which doubles default limits")
	flags.StringVar(&f.all2all, "all2all-backend", "", "what carries tokens to experts; low-latency ones bound the default budget")
}

// registerSGLang adds what only SGLang has.
func (f *replicaFlags) registerSGLang(flags *pflag.FlagSet) {
	f.maxTotal, f.maxPrefill, f.decodeInterval = newCount(1, 0), newCount(1, 0), newCount(1, 0)
	flags.Var(&f.maxTotal, "max-total-tokens", "SGLang: most tokens of the KV pool (default: what memory gives)")
	flags.Var(&f.maxPrefill, "max-prefill-tokens", "SGLang: most prompt tokens of a prefill batch")
	flags.Var(&f.decodeInterval, "prefill-decode-interval", "SGLang: decode iterations after each prefill batch")
	flags.Float64Var(&f.conservativeness, "schedule-conservativeness", 0, "SGLang: factor of the memory that is kept for outputs")
	flags.BoolVar(&f.mixed, "enable-mixed-chunk", false, "SGLang: decode in prefill batches too")
	flags.BoolVar(&f.noOverlap, "disable-overlap-schedule", false, "SGLang: read results before the next batch")
	flags.StringVar(&f.retraction, "retraction-policy", "", "SGLang: priority retracts the least important first")
	flags.IntVar(&f.preemptThreshold, "priority-scheduling-preemption-threshold", 10, "SGLang: how much lower a victim's priority is")
}

// onlyOf lists the flags that one engine has alone.
func onlyOf(engine string) []string {
	if engine == "vllm" {
		return []string{
			"gpu-memory-utilization", "kv-cache-memory-bytes", "disable-hybrid-kv-cache-manager", "swap-space", "max-num-scheduled-tokens",
			"async-scheduling", "no-async-scheduling", "scheduler-reserve-full-isl", "no-scheduler-reserve-full-isl",
			"long-prefill-token-threshold", "max-num-partial-prefills", "max-long-partial-prefills", "watermark",
			"performance-mode", "all2all-backend", "usage", "vllm-version", "cudagraph-capture-sizes",
		}
	}
	return []string{
		"mem-fraction-static", "max-total-tokens", "max-prefill-tokens", "prefill-decode-interval", "schedule-conservativeness", "enable-mixed-chunk",
		"disable-overlap-schedule", "retraction-policy", "priority-scheduling-preemption-threshold", "sglang-version",
	}
}

// engineName is the engine that is meant.
func (f *replicaFlags) engineName() (string, error) {
	name := f.engine
	if name == "" {
		name = "vllm"
		if f.sglangVersion != "" {
			name = "sglang"
		}
	}
	other := map[string]string{"vllm": "sglang", "sglang": "vllm"}[name]
	if other == "" {
		return "", usage("", "--engine is %q: want vllm or sglang", name)
	}
	for _, flag := range onlyOf(other) {
		if f.flags.Changed(flag) {
			return "", usage("--engine "+other+" chooses the other one", "--%s belongs to %s, and the engine is %s", flag, other, name)
		}
	}
	return name, nil
}

// config is the deployment as it was given: what was not is zero.
func (f *replicaFlags) config() (deploy.Config, error) {
	engine, err := f.engineName()
	if err != nil {
		return deploy.Config{}, err
	}
	c, err := f.formats.config()
	if err != nil {
		return c, err
	}
	c.Engine, c.EngineVersion = engine, f.vllmVersion+f.sglangVersion
	c.TensorParallel, c.PipelineParallel, c.DataParallel = f.tp.values[0], f.pp.values[0], f.dp.values[0]
	ranks, err := expertRanks(f.ep, c.TensorParallel*c.DataParallel)
	if err != nil {
		return c, err
	}
	if len(ranks) != 1 {
		return c, usage("", "--expert-parallel-size is a list: want one number")
	}
	c.ExpertParallel, c.PipelineLayers = ranks[0], f.stages.values
	for _, share := range []struct {
		name  string
		value float64
		into  *float64
	}{{"gpu-memory-utilization", f.utilization, &c.GPUMemoryUtilization}, {"mem-fraction-static", f.static, &c.MemFractionStatic}} {
		if f.flags.Changed(share.name) && !(share.value > 0 && share.value <= 1) {
			return c, usage("", "--%s is %g: want more than 0 and at most 1", share.name, share.value)
		}
		*share.into = share.value
	}
	c.BlockSize, c.MaxModelLen = f.blockSize.values[0], f.maxModelLen.values[0]
	c.MaxNumBatchedTokens, c.MaxNumSeqs, c.SchedulingPolicy = f.maxTokens.values[0], f.maxSeqs.values[0], f.policy
	if c.ChunkedPrefill, err = f.chunked.value(f.flags, "enable-chunked-prefill"); err != nil {
		return c, err
	}
	c.PrefixCaching, err = f.prefix.value(f.flags, "enable-prefix-caching")
	return c, err
}

// knobs are the settings beside the deployment.
func (f *replicaFlags) knobs() (deploy.Knobs, error) {
	k := deploy.Knobs{
		MaxScheduledTokens: f.scheduled.values[0], PerformanceMode: f.performance, All2AllBackend: f.all2all,
		NoHybridKVCache: f.noHybrid, Blocks: f.blocks.values[0], KVCacheMemory: f.kvMemory,
		MaxTotalTokens: f.maxTotal.values[0], MaxPrefillTokens: f.maxPrefill.values[0], Conservativeness: f.conservativeness, MixedChunk: f.mixed,
		NoOverlap: f.noOverlap, DecodeInterval: f.decodeInterval.values[0], RetractByPriority: f.retraction == "priority",
	}
	if k.MaxTotalTokens > 0 && k.Blocks > 0 {
		return k, usage("give one of them", "--max-total-tokens and --num-gpu-blocks both bound the KV pool")
	}
	if f.retraction != "" && f.retraction != "priority" {
		return k, usage("", "--retraction-policy is %q: want priority, or leave it out", f.retraction)
	}
	for _, n := range []struct {
		name  string
		value int
		into  **int
	}{
		{"long-prefill-token-threshold", f.threshold.values[0], &k.LongPrefillThreshold},
		{"max-num-partial-prefills", f.partial.values[0], &k.MaxPartialPrefills},
		{"max-long-partial-prefills", f.longPartial.values[0], &k.MaxLongPartialPrefills},
		{"priority-scheduling-preemption-threshold", f.preemptThreshold, &k.PreemptThreshold},
	} {
		if f.flags.Changed(n.name) {
			*n.into = new(n.value)
		}
	}
	if f.flags.Changed("watermark") {
		k.Watermark = new(f.watermark)
	}
	if f.flags.Changed("swap-space") {
		k.SwapSpace = new(f.swapSpace)
	}
	if eager := f.flags.Lookup("enforce-eager"); eager != nil {
		k.Eager = eager.Value.String() == "true"
	}
	var err error
	if k.AsyncScheduling, err = f.async.value(f.flags, "async-scheduling"); err != nil {
		return k, err
	}
	k.ReserveFullISL, err = f.fullISL.value(f.flags, "scheduler-reserve-full-isl")
	return k, err
}

// usageOf is how the engine is used.
func (f *replicaFlags) usageOf() (deploy.Usage, error) {
	names := []string{"server", "offline"}
	at := slices.Index(names, f.usage)
	if at < 0 {
		return 0, usage("", "--usage is %q: want %s", f.usage, strings.Join(names, " or "))
	}
	return deploy.Usage(at), nil
}
