package cost

import (
	"fmt"
	"math"
	"strings"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Assumptions about the memory of a vLLM engine that neither datasheet nor
// architecture give. They are chosen so that capacities printed in public logs
// come out (testdata/vllm-capacities.csv).
const (
	// samplerBytes is what the sampler of the older runner's dummy run takes for
	// one logit: the logits in two formats, their sorted copy with its indices,
	// probabilities.
	samplerBytes = 38
	// What leaves the device outside the tensors: of a rank alone, more since
	// vLLM 0.27 counts whatever left the device, and of one that is joined with
	// others by collectives.
	aloneNonTorch      = 50 * unit.MiB
	aloneNonTorchNewer = 256 * unit.MiB
	joinedNonTorch     = 1536 * unit.MiB
	// graphBytes is the estimate of the captured graphs, which the newer runner
	// counts with the workspace of attention.
	graphBytes      = 256 * unit.MiB
	graphBytesNewer = 768 * unit.MiB
	// cpuProcess is the engine's own process on a CPU, without the weights.
	cpuProcess = 1 * unit.GiB
	// oldCPUSpace is VLLM_CPU_KVCACHE_SPACE where it is not set, to 0.19.
	oldCPUSpace = 4 * unit.GiB
)

// poolMemory is what a rank of a stage has for the pool, and its terms.
func (e *Estimator) poolMemory(stage *part, ask PoolAsk) ([]PoolPart, unit.Bytes) {
	if given := ask.Knobs.KVCacheMemory; given > 0 {
		return []PoolPart{{Name: "kv_cache_memory_bytes", Bytes: given, Basis: stat.Assumed, Note: deploy.Given}}, given
	}
	v := ask.VLLM
	if ask.Platform == deploy.CPU && !v.Release.From(20, 0) {
		return []PoolPart{{Name: "VLLM_CPU_KVCACHE_SPACE", Bytes: oldCPUSpace, Basis: stat.Assumed, Note: "where it is not set"}}, oldCPUSpace
	}
	requested := unit.Bytes(math.Ceil(e.device.Memory.Value * v.Utilization))
	parts := []PoolPart{
		{fmt.Sprintf("%s x %g =", e.device.MemoryBytes(), v.Utilization), requested, stat.Theoretical, e.device.Memory.Source},
		{"weights", e.stageWeights(stage), stat.Theoretical, "shards of a rank"},
	}
	if ask.Platform == deploy.CPU {
		parts = append(parts, PoolPart{"process", cpuProcess, stat.Assumed, ""})
	} else {
		parts = append(parts, e.dummyRun(stage, ask), e.nonTorch(ask))
		if graphs := e.graphs(ask); graphs.Bytes > 0 {
			parts = append(parts, graphs)
		}
	}
	left := requested
	for _, part := range parts[1:] {
		left -= part.Bytes
	}
	return parts, left
}

// dummyRun is the peak of the batch that the engine computes before it makes
// the pool: the widest layer, or the sampler at the end.
func (e *Estimator) dummyRun(stage *part, ask PoolAsk) PoolPart {
	v := ask.VLLM
	budget := v.MaxNumBatchedTokens
	p := PoolPart{"peak activation", e.activations(budget, 0), stat.Theoretical, fmt.Sprintf("a batch of %d tokens", budget)}
	if !stage.last {
		return p
	}
	rows := min(budget, v.MaxNumSeqs)
	hidden := float64(budget) * float64(e.model.HiddenSize) * e.act
	logit := float64(samplerBytes)
	if ask.NewerRunner {
		logit = e.act
	}
	sampler := unit.Bytes(math.Round(float64(rows)*e.embed.vocab*logit + hidden))
	if sampler > p.Bytes {
		p.Bytes, p.Basis = sampler, stat.Assumed
		p.Note = fmt.Sprintf("%d rows of %.0f logits, %g bytes each", rows, e.embed.vocab, logit)
	}
	return p
}

// nonTorch is what leaves the device outside the tensors.
func (e *Estimator) nonTorch(ask PoolAsk) PoolPart {
	p := PoolPart{"non-torch", aloneNonTorch, stat.Assumed, "as in public logs"}
	switch {
	case ask.NonTorch != nil:
		p.Bytes, p.Basis, p.Note = *ask.NonTorch, stat.Assumed, deploy.Given
	case e.tp*e.pp*e.dp > 1:
		p.Bytes = joinedNonTorch
	case ask.VLLM.Release.From(27, 0):
		p.Bytes = aloneNonTorchNewer
	}
	return p
}

// graphs is what the engine takes off for device graphs: from 0.20 on CUDA,
// from 0.26 on ROCm, from 0.31 on Intel GPUs.
func (e *Estimator) graphs(ask PoolAsk) PoolPart {
	p := PoolPart{Name: "graphs", Basis: stat.Assumed, Note: "as in public logs"}
	if ask.Knobs.Eager || ask.Platform != deploy.GPU {
		return p
	}
	r := ask.VLLM.Release
	switch vendor := strings.ToLower(e.device.Vendor); {
	case vendor == "nvidia" && !r.From(20, 0), vendor == "amd" && !r.From(26, 0), vendor == "intel" && !r.From(31, 0):
		return p
	case vendor != "nvidia" && vendor != "amd" && vendor != "intel":
		return p
	}
	p.Bytes = graphBytes
	if ask.NewerRunner {
		p.Bytes = graphBytesNewer
	}
	if ask.Graphs != nil {
		p.Bytes, p.Note = *ask.Graphs, deploy.Given
	}
	return p
}
