package report

import (
	"github.com/llmprof/llmprof/cost/llmprofiler"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/stat"
)

// Reference builds the document of an analysis by the llm-profiler method:
// the common keys from its figures, and its own under "reference".
func Reference(r llmprofiler.Result, tool string) AnalysisDocument {
	in := r.Input
	tpot := r.TTOT * 1e3
	d := AnalysisDocument{
		Head:  NewHead("analysis", tool),
		Model: in.Model.Name, GPU: in.GPU.Name,
		Deploy:  deploy.Config{Model: in.Model.Name, Device: in.GPU.Name, TensorParallel: in.TP, PipelineParallel: in.PP},
		Request: RequestKeys{BatchSize: in.Batch, InputLen: in.InputLen, OutputLen: in.OutputLen},
		Method:  "llm-profiler", Basis: stat.Theoretical, Fits: r.Fits, Reasons: append([]string{}, r.Reasons...),
		Params: ParamsKeys{
			Total: r.ParamsModel, Active: r.ParamsModel, Embedding: r.ParamsEmbedding,
			PerLayer: map[string]int64{
				"qkvo_proj": r.ParamsPerLayer.QKVOProj, "mlp": r.ParamsPerLayer.MLP,
				"rmsnorm": r.ParamsPerLayer.RMSNorm, "total": r.ParamsPerLayer.Total,
			},
		},
		FLOPs: FLOPsKeys{float64(r.PrefillFLOPs), float64(r.DecodeFLOPs)},
		Memory: MemoryKeys{
			Weights: int64(r.Memory.Weights), KVCache: int64(r.Memory.KVCache), Activations: r.Memory.DecodeActivations,
			Total: int64(r.Memory.Consumed), Device: int64(in.GPU.MemoryGB * 1e9), Usable: int64(in.GPU.MemoryGB * 1e9),
			MaxBatch: int(r.Memory.DecodeMaxBatch), MaxTokens: r.Memory.MaxBatchTotalTokens,
		},
		Latency: LatencyKeys{
			TTFT: r.TTFT * 1e3, TPOT: &tpot, E2E: r.Total * 1e3,
			Prefill: referenceParts(r.Latency.Prefill, r.InputEmbedding.Prefill, r.OutputEmbedding.Prefill, r.TTFT),
			Decode:  referenceParts(r.Latency.Decode, r.InputEmbedding.Decode, r.OutputEmbedding.Decode, r.TTOT),
		},
		Ops:       append(referenceOps("prefill", r, r.Ops.Prefill), referenceOps("decode", r, r.Ops.Decode)...),
		Reference: r, Warnings: r.Warnings,
	}
	return d
}

// referenceParts lists the terms of a step in ms; what the method adds to the
// step beyond them stands as prompt_kv_write, so that the parts sum to it.
func referenceParts(l llmprofiler.Latency, embedding, head, step float64) map[string]float64 {
	parts := map[string]float64{
		"qkvo_proj": l.QKVOProj * 1e3, "attn_kernel": l.AttnKernel * 1e3, "mlp": l.MLP * 1e3, "rmsnorm": l.RMSNorm * 1e3,
		"tp_comm": l.TPComm * 1e3, "kv_cache_rw": l.KVCacheRW * 1e3,
		"input_embedding": embedding * 1e3, "output_embedding": head * 1e3,
	}
	sum := l.QKVOProj + l.AttnKernel + l.MLP + l.RMSNorm + l.TPComm + l.KVCacheRW + embedding + head
	if rest := step - sum; rest > 1e-9*step {
		parts["prompt_kv_write"] = rest * 1e3
	}
	return parts
}

// referenceOps lists the operators that have a roofline.
func referenceOps(stage string, r llmprofiler.Result, o llmprofiler.Operators[llmprofiler.Roofline]) []OpKeys {
	layers := r.Input.Model.NumLayers / r.Input.PP
	flops := r.PrefillFLOPsPerLayer
	if stage == "decode" {
		flops = r.DecodeFLOPsPerLayer
	}
	op := func(name string, count int64, side llmprofiler.Roofline) OpKeys {
		n := float64(layers)
		k := OpKeys{
			Stage: stage, Name: name, Count: layers, FLOPs: n * float64(count),
			Bytes: n * side.Memory * r.Input.GPU.HBMGBps * 0.9 * 1e9,
			Time:  n * side.Time() * 1e3, Compute: n * side.Compute * 1e3, Memory: n * side.Memory * 1e3,
			Bound: side.Bound(),
		}
		if k.Bytes > 0 {
			k.Intensity = k.FLOPs / k.Bytes
		}
		return k
	}
	tp := int64(r.Input.TP)
	return []OpKeys{
		op("qkvo_proj", flops.QKVOProj/tp, o.QKVOProj),
		op("attn_kernel", flops.AttentionKernel/tp, o.AttnKernel),
		op("mlp", flops.MLP/tp, o.MLP),
		op("rmsnorm", flops.RMSNorm/4, o.RMSNorm),
	}
}
