package cost

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// PoolAsk is what the KV pool of a vLLM engine follows from, beside the model
// and the device.
type PoolAsk struct {
	// VLLM is the engine's scheduler: its longest request, its budget, its seats
	// and its share of the memory.
	VLLM deploy.VLLM
	// Knobs hold what was given of the pool.
	Knobs deploy.Knobs
	// Platform is the kind of the device.
	Platform deploy.Platform
	// BlockSize is the tokens of a block.
	BlockSize int
	// NonTorch and Graphs are the memory that the engine takes outside its
	// tensors and for device graphs, in bytes a rank; nil are assumed.
	NonTorch, Graphs *unit.Bytes
	// Stages is the number of pipeline stages.
	Stages int
	// NewerRunner says that vLLM's newer model runner computes the steps, whose
	// dummy run leaves the sampler's copies out: [deploy.VLLMNewerRunner].
	NewerRunner bool
}

// PoolPart is one term of a rank's memory.
type PoolPart struct {
	// Name says what it is.
	Name string
	// Bytes is its size, taken off the share where it is not the share itself.
	Bytes unit.Bytes
	// Basis says where it comes from.
	Basis stat.Basis
	// Note says more.
	Note string
}

// KVPool is the KV cache of a vLLM engine.
type KVPool struct {
	// Layout is how the layers lie over the blocks.
	Layout KVLayout
	// Blocks is num_gpu_blocks as the engine counts them: one of them is never
	// handed out.
	Blocks int64
	// Available is the memory for the pool on the rank that has least.
	Available unit.Bytes
	// MaxModelLen is the longest request in tokens, Ahead the tokens that are
	// computed before older ones leave a window.
	MaxModelLen, Ahead int
	// Concurrency is how many requests of MaxModelLen the blocks hold, Tokens
	// the capacity, both as the engine prints them.
	Concurrency float64
	Tokens      int64
	// Parts are the terms of Available; empty where it was given.
	Parts []PoolPart
	// Basis is Theoretical, or Assumed where the count was given, or Measured.
	Basis stat.Basis
	// Origin says where a count was read or given.
	Origin string
	// Warnings are reasons to trust it less.
	Warnings []string
}

// String shows the count and its terms in one line.
func (p KVPool) String() string {
	return fmt.Sprintf("%d blocks of %d = %d tokens (%s: %s)", p.Blocks, p.Layout.BlockSize, p.Tokens, p.Basis, p.Terms())
}

// Terms shows what the pool's memory is made of, or where the count was read or
// given.
func (p KVPool) Terms() string {
	if len(p.Parts) == 0 {
		return p.Origin
	}
	var terms []string
	for i, part := range p.Parts {
		sign := "- "
		if i == 0 {
			sign = ""
		}
		terms = append(terms, sign+part.Name+" "+part.Bytes.String())
	}
	return strings.Join(terms, " ")
}

// TooSmallError says that the longest request does not fit in the pool.
type TooSmallError struct {
	// Pool is the pool.
	Pool KVPool
	// Need is the blocks of one request of Pool.MaxModelLen.
	Need int64
	// Longest is the longest request that fits, in tokens.
	Longest int
	// Utilization is the share of the device that the engine takes, 0..1.
	Utilization float64
}

// Error names both counts.
func (e *TooSmallError) Error() string {
	return fmt.Sprintf("one request of max_model_len %d needs %d KV blocks, and %d of %d are usable: the estimated maximum model length is %d",
		e.Pool.MaxModelLen, e.Need, max(e.Pool.Blocks-1, 0), e.Pool.Blocks, e.Longest)
}

// Hint says what would make room.
func (e *TooSmallError) Hint() string {
	more := "--gpu-memory-utilization"
	switch {
	case e.Pool.Basis == stat.Assumed && len(e.Pool.Parts) == 0:
		more = "--num-gpu-blocks"
	case e.Pool.Basis == stat.Assumed:
		more = "--kv-cache-memory-bytes"
	case e.Pool.Basis == stat.Measured && e.Longest > 0:
		return fmt.Sprintf("lower --max-model-len to %d", e.Longest)
	}
	if e.Longest < 1 && more != "--gpu-memory-utilization" {
		return "raise " + more
	}
	if e.Longest < 1 && e.Utilization > 0 && e.Utilization < usualShare {
		return fmt.Sprintf("raise --gpu-memory-utilization, which is %g; or take a larger device or more of them (--tensor-parallel-size)", e.Utilization)
	}
	if e.Longest < 1 {
		return "the model leaves no room for a KV cache: take a larger device, more of them (--tensor-parallel-size) or narrower weights (--quantization)"
	}
	return fmt.Sprintf("lower --max-model-len to %d, or raise %s", e.Longest, more)
}

// usualShare is gpu_memory_utilization of most releases: below it, the share is
// what leaves no room.
const usualShare = 0.9

// VLLMPool computes the KV pool that a vLLM engine makes of a rank's memory.
// A pool in which the longest request does not fit is a [*TooSmallError], also
// in releases that start with a block less and then never run such a request.
func (e *Estimator) VLLMPool(ask PoolAsk) (KVPool, error) {
	pool := KVPool{
		MaxModelLen: ask.VLLM.MaxModelLen, Ahead: ask.ahead(), Basis: stat.Theoretical,
		Blocks: math.MaxInt64,
	}
	for i := range e.stages {
		layout, err := NewKVLayout(ask.VLLM.Release, e.kvLayers(&e.stages[i]), ask.BlockSize, !ask.Knobs.NoHybridKVCache)
		if err != nil {
			return KVPool{}, fmt.Errorf("KV cache of %s: %w", e.model.Name, err)
		}
		if ask.VLLM.PrefixCaching {
			layout.StateBlocks = 2
		}
		parts, available := e.poolMemory(&e.stages[i], ask)
		if n := layout.Blocks(int64(available)); n < pool.Blocks {
			pool.Layout, pool.Blocks, pool.Available, pool.Parts = layout, n, available, parts
		}
	}
	if ask.Knobs.KVCacheMemory > 0 {
		pool.Basis, pool.Origin = stat.Assumed, "kv_cache_memory_bytes was given"
	}
	if n := ask.Knobs.Blocks; n > 0 {
		pool.Blocks, pool.Basis, pool.Parts, pool.Origin = int64(n), stat.Assumed, nil, "num_gpu_blocks_override was given"
	}
	pool.Warnings = append(pool.Warnings, pool.Layout.Notes...)
	if e.model.Linear != nil {
		pool.Warnings = append(pool.Warnings, fmt.Sprintf("the state of linear layers is taken to be kept in %s, as some checkpoints say otherwise", e.config.DType))
	}
	err := pool.count()
	if small, ok := errors.AsType[*TooSmallError](err); ok {
		small.Utilization = ask.VLLM.Utilization
	}
	return pool, err
}

// WithBlocks is the pool with another number of blocks, of some basis and
// origin, in place of the computed one.
func (p KVPool) WithBlocks(blocks int64, basis stat.Basis, origin string) (KVPool, error) {
	if blocks < 1 {
		return KVPool{}, fmt.Errorf("%d KV blocks: want at least 1", blocks)
	}
	p.Blocks, p.Basis, p.Origin, p.Parts = blocks, basis, origin, nil
	err := p.count()
	return p, err
}

// BlocksOf is the count of a pool of the same layout of which the engine prints
// a capacity of tokens; the rounding of the print may hide a block.
func (p KVPool) BlocksOf(tokens int64) int64 {
	l := p.Layout
	if !l.Release.From(21, 0) {
		return tokens / int64(l.BlockSize) * int64(len(l.Groups))
	}
	request := float64(l.RequestBlocks(p.MaxModelLen, p.Ahead))
	return int64(math.Ceil(float64(tokens) * request / float64(max(p.MaxModelLen, 1))))
}

// count fills in what follows from the blocks, and checks the longest request.
func (p *KVPool) count() error {
	if p.MaxModelLen < 1 {
		return errors.New("max_model_len is not known")
	}
	need := p.Layout.RequestBlocks(p.MaxModelLen, p.Ahead)
	p.Concurrency = p.Layout.Concurrency(p.Blocks, p.MaxModelLen, p.Ahead)
	p.Tokens = p.Layout.LogTokens(p.Blocks, p.MaxModelLen, p.Ahead)
	if need > p.Blocks-1 {
		return &TooSmallError{Pool: *p, Need: need, Longest: p.Layout.Longest(p.Blocks, p.Ahead, p.MaxModelLen)}
	}
	return nil
}

// ahead is how many tokens of a request are computed before older ones leave
// a window.
func (a PoolAsk) ahead() int {
	batches := 1
	if a.VLLM.Release.From(26, 0) {
		batches = max(a.Stages, 1)
		if a.VLLM.Async && (batches == 1 || a.NewerRunner) {
			batches++
		}
	}
	return batches * a.VLLM.MaxNumBatchedTokens
}

// kvLayers are the caches of a rank's layers.
func (e *Estimator) kvLayers(stage *part) []KVLayer {
	var layers []KVLayer
	for i, kind := range e.kinds {
		l := &e.layers[i]
		layer := KVLayer{Attention: kind.Attention, Window: l.window, Count: stage.counts[i], TokenBytes: int64(math.Round(e.cacheRow(l)))}
		if kind.Attention == catalog.LinearAttn {
			// The engine keeps the state in the format of the activations,
			// not in that of the sums.
			const sums = 4
			layer.StateBytes = int64(math.Round(l.state/sums*e.act + l.convState))
		}
		layers = append(layers, layer)
	}
	return layers
}
