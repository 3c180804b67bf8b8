// Package launch starts a replica on paper: from a model, a device and what a
// user says of the deployment, it fills in everything else as the engine would
// at its start, and says of each setting where its value comes from.
//
//	r, err := launch.VLLM(launch.Ask{Model: model, Device: device})
//	s, err := sim.NewScheduler(r.Config)
//	est, err := cost.New(model, device, r.Deploy, cost.Settings{})
//
// After a run [Replica.Idle] tells which of these settings made no difference.
//
// SGLang's launch is [github.com/llmprof/llmprof/sim/sglang.Launch].
package launch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/stat"
)

// Ask is what is launched. The zero value of a field leaves it to the engine.
type Ask struct {
	// Model and Device are what runs where.
	Model  *catalog.Model
	Device *catalog.Device
	// Config and Knobs hold what the user gave, without defaults filled in.
	Config deploy.Config
	Knobs  deploy.Knobs
	// Usage is how the engine is used.
	Usage deploy.Usage
	// Costs are the settings of the cost model, which knows the weights.
	Costs cost.Settings
	// Measured is a capacity that a real engine had, in place of a computed one.
	Measured *Capacity
	// RequestLen is a usual prompt with its output in tokens. Where layers of
	// several kinds share the pool, it is sized for requests of that length;
	// 0 is the longest.
	RequestLen int
}

// Capacity is a KV pool that was read off an engine. Blocks or Tokens is
// known.
type Capacity struct {
	// Blocks is a count as the engine gives it, one of them never handed out.
	Blocks int64
	// Tokens is the capacity in tokens as the engine prints it.
	Tokens int64
	// BlockSize is the tokens of a block; 0 where it is not said.
	BlockSize int
	// Origin says where it was read.
	Origin string
}

// Replica is a vLLM replica with every setting filled in.
type Replica struct {
	// Config is the replica as the simulator takes it.
	Config sim.Config
	// Deploy is the deployment with what was chosen.
	Deploy deploy.Config
	// Scheduler is the engine's own view of it.
	Scheduler deploy.VLLM
	// Pool is its KV cache.
	Pool cost.KVPool
	// Choices says of each setting where its value comes from.
	Choices []deploy.Choice
	// Warnings are what the engine would remark, knobs without effect, and
	// reasons to trust the pool less.
	Warnings []string
}

// VLLM launches a replica of vLLM. It fails as the engine would: with a
// [*deploy.InvalidError], a [*deploy.UnknownReleaseError] or a
// [*cost.TooSmallError].
func VLLM(ask Ask) (Replica, error) {
	if ask.Model == nil || ask.Device == nil {
		return Replica{}, errors.New("launch: model and device are missing")
	}
	var ignored []string
	if ask.Measured != nil && ask.Knobs.Blocks > 0 {
		ignored = append(ignored, fmt.Sprintf("the capacity of %s has no effect, since a number of blocks is given", ask.Measured.Origin))
		ask.Measured = nil
	}
	machine := deploy.MachineOf(ask.Device)
	scheduler, err := deploy.VLLMScheduler(deploy.VLLMAsk{
		Config: ask.Config, Knobs: ask.Knobs, Machine: machine, Usage: ask.Usage,
		ModelLen: ask.Model.MaxSeqLen, State: ask.Model.Linear != nil,
	})
	if err != nil {
		return Replica{}, fmt.Errorf("launch of %s on %s: %w", ask.Model.Name, ask.Device.Name, err)
	}
	r := Replica{Scheduler: scheduler, Deploy: chosen(ask.Config, scheduler), Choices: scheduler.Choices, Warnings: append(ignored, scheduler.Warnings...)}
	r.blockSize(ask, machine)
	est, err := cost.New(ask.Model, ask.Device, r.Deploy, ask.Costs)
	if err != nil {
		return Replica{}, fmt.Errorf("launch: %w", err)
	}
	r.Deploy = est.Config()
	r.Warnings = append(r.Warnings, est.Warnings()...)
	if r.Pool, err = r.pool(ask, est, machine); err != nil {
		return Replica{}, fmt.Errorf("launch of %s on %s: %w", ask.Model.Name, ask.Device.Name, err)
	}
	r.Warnings = append(r.Warnings, r.Pool.Warnings...)
	err = r.configure(ask)
	return r, err
}

// chosen is a deployment with the scheduler's values.
func chosen(c deploy.Config, v deploy.VLLM) deploy.Config {
	c.Engine, c.EngineVersion = "vllm", v.Release.String()
	c.MaxModelLen, c.MaxNumBatchedTokens, c.MaxNumSeqs = v.MaxModelLen, v.MaxNumBatchedTokens, v.MaxNumSeqs
	c.ChunkedPrefill, c.PrefixCaching = &v.ChunkedPrefill, &v.PrefixCaching
	c.SchedulingPolicy, c.GPUMemoryUtilization = v.Policy, v.Utilization
	return c
}

// blockSize fills in the tokens of a block.
func (r *Replica) blockSize(ask Ask, machine deploy.Machine) {
	size, why, sure := deploy.VLLMBlockSize(r.Scheduler.Release, machine, ask.Model.MLA != nil)
	source := fmt.Sprintf("default of vLLM %s for %s", r.Scheduler.Release, why)
	switch {
	case ask.Measured != nil && ask.Measured.BlockSize > 0:
		size, source = ask.Measured.BlockSize, ask.Measured.Origin
	case ask.Config.BlockSize > 0:
		size, source = ask.Config.BlockSize, deploy.Given
	case !sure:
		r.Warnings = append(r.Warnings, fmt.Sprintf("block size %d: the engine picks it with its attention backend (%s); --block-size sets it", size, why))
	}
	if doubt := deploy.VLLMBlockDoubt(size); doubt != "" && ask.Model.MLA == nil && strings.EqualFold(ask.Device.Vendor, "nvidia") {
		r.Warnings = append(r.Warnings, fmt.Sprintf("block size %d: %s", size, doubt))
	}
	r.Deploy.BlockSize = size
	r.Choices = append(r.Choices, deploy.Choice{Name: "block_size", Value: strconv.Itoa(size), Source: source})
}

// pool is the KV cache: measured, given or computed.
func (r *Replica) pool(ask Ask, est *cost.Estimator, machine deploy.Machine) (cost.KVPool, error) {
	knobs := ask.Knobs
	if m := ask.Measured; m != nil && m.Blocks > 0 {
		knobs.Blocks = int(min(m.Blocks, sim.MaxCount))
	}
	pool, err := est.VLLMPool(cost.PoolAsk{
		VLLM: r.Scheduler, Knobs: knobs, Platform: machine.Platform,
		BlockSize: r.Deploy.BlockSize, Stages: ask.Config.PipelineParallel,
		NewerRunner: deploy.VLLMNewerRunner(r.Scheduler.Release, machine, ask.Model.MoE == nil && ask.Model.Linear == nil),
	})
	if m := ask.Measured; m != nil {
		// What memory would give does not matter, only how layers lie in it.
		if small, ok := errors.AsType[*cost.TooSmallError](err); ok {
			pool, err = small.Pool, nil
		}
		if err == nil {
			blocks := m.Blocks
			if blocks == 0 {
				blocks = pool.BlocksOf(m.Tokens)
			}
			pool, err = pool.WithBlocks(blocks, stat.Measured, m.Origin)
		}
	}
	if err != nil {
		return pool, err
	}
	if ask.Knobs.KVCacheMemory > 0 && (ask.Knobs.Blocks > 0 || ask.Measured != nil) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("kv_cache_memory_bytes has no effect on the number of KV blocks (%s)", pool.Origin))
	}
	if (ask.Knobs.Blocks > 0 || ask.Knobs.KVCacheMemory > 0 || ask.Measured != nil) && ask.Config.GPUMemoryUtilization > 0 {
		r.Warnings = append(r.Warnings, "gpu_memory_utilization has no effect, since the KV pool is given")
	}
	return pool, nil
}

// Config is a scheduler's view of a deployment as the simulator takes it, with
// a pool of blocks of some tokens. What the engine would refuse at its start is
// an error.
func Config(v deploy.VLLM, blocks, blockSize int) (sim.Config, error) {
	rules, err := sim.RulesOf(v.Release.String())
	if err != nil {
		return sim.Config{}, err
	}
	c := sim.Config{
		Rules: rules, Blocks: blocks, BlockSize: blockSize,
		MaxBatchedTokens: v.MaxNumBatchedTokens, MaxScheduledTokens: v.MaxScheduledTokens,
		MaxSeqs: v.MaxNumSeqs, MaxModelLen: v.MaxModelLen,
		Async: v.Async, Threshold: v.Threshold, Watermark: v.Watermark,
		WholePrompts: !v.ChunkedPrefill, NoPrefixCache: !v.PrefixCaching, NoFullSequenceGate: !v.FullISL,
	}
	if v.Policy == sim.Priority.String() {
		c.Policy = sim.Priority
	}
	return c, c.Validate()
}

// configure fills in the simulator's settings.
func (r *Replica) configure(ask Ask) error {
	var err error
	r.Config, err = Config(r.Scheduler, int(min(r.blocks(ask.RequestLen), sim.MaxCount)), r.Pool.Layout.BlockSize)
	if err != nil {
		return fmt.Errorf("launch of %s on %s: %w", ask.Model.Name, ask.Device.Name, err)
	}
	r.Choices = append(r.Choices, deploy.Choice{Name: "num_gpu_blocks", Value: strconv.FormatInt(r.Pool.Blocks, 10), Source: r.Pool.String()})
	if ask.Config.PipelineParallel > 1 {
		r.Warnings = append(r.Warnings, "pipeline stages are scheduled as one: batches in flight on other stages are not simulated")
	}
	return nil
}

// blocks is the pool as a scheduler with one kind of layers sees it. Where
// there are several, or windows, a request takes another number of blocks than
// its length says; the pool then holds as many requests of the usual length as
// the engine's.
func (r *Replica) blocks(usual int) int64 {
	l := r.Pool.Layout
	if len(l.Groups) == 1 && l.Groups[0].Attention == catalog.FullAttention {
		return r.Pool.Blocks
	}
	longest := r.Pool.MaxModelLen
	if usual < 1 || usual > longest {
		usual = longest
	}
	whole := func(tokens int) int64 { return int64((tokens + l.BlockSize - 1) / l.BlockSize) }
	requests := float64(r.Pool.Blocks-1) / float64(l.RequestBlocks(usual, r.Pool.Ahead))
	blocks := max(int64(requests*float64(whole(usual))), whole(longest)) + 1
	r.Warnings = append(r.Warnings, fmt.Sprintf(
		"layers with windows or states share the KV pool: it is simulated as %d blocks of one kind, right for requests of %d tokens", blocks, usual))
	return blocks
}
