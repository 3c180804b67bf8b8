package vllm

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
)

// unsupported refuses a deployment that these drivers would run as another one
// in silence.
func unsupported(d deploy.Config) error {
	ranks := max(d.TensorParallel, 1)
	for _, c := range []struct {
		asked  bool
		what   string
		remedy string
	}{
		{d.DataParallel > 1, fmt.Sprintf("%d data-parallel engines", d.DataParallel), "measure one replica: data_parallel_size 1"},
		{d.DType != "" && dtypeName(d.DType) == "", fmt.Sprintf("activations in %s", d.DType), "bf16, fp16 or fp32; formats of weights are a quantisation"},
		{
			d.KVCacheDType != "" && d.KVCacheDType != catalog.FP8 && d.KVCacheDType != d.DType,
			fmt.Sprintf("a KV cache in %s", d.KVCacheDType), "fp8, or the format of the activations",
		},
		{d.ExpertParallel > 1 && d.ExpertParallel != ranks, fmt.Sprintf("experts over %d of %d ranks", d.ExpertParallel, ranks), "vLLM spreads experts over all tensor-parallel ranks"},
		{len(d.PipelineLayers) > 0, "stages of chosen layers", "VLLM_PP_LAYER_PARTITION in the engine's environment chooses them"},
		{d.MemFractionStatic > 0, "SGLang's share of memory", "gpu_memory_utilization is vLLM's"},
		{d.QuantizeEmbeddings, "quantised embeddings", "llama-bench measures GGUF files"},
	} {
		if c.asked {
			return &StartError{Reason: c.what + ": not measured here", Remedy: c.remedy}
		}
	}
	return nil
}

// decided refuses what a server that runs has decided already.
func decided(setup engine.Setup) error {
	d := setup.Deploy
	var names []string
	for _, c := range []struct {
		asked bool
		name  string
	}{
		{d.DType != "", "dtype"},
		{d.KVCacheDType != "", "KV cache dtype"},
		{d.Quantization != "", "quantisation"},
		{d.QuantizeEmbeddings, "quantised embeddings"},
		{d.TensorParallel > 1, "tensor parallel size"},
		{d.PipelineParallel > 1 || len(d.PipelineLayers) > 0, "pipeline parallel size"},
		{d.DataParallel > 1, "data parallel size"},
		{d.ExpertParallel > 1, "expert parallel size"},
		{d.BlockSize > 0, "block size"},
		{d.MaxModelLen > 0, "max model len"},
		{d.MaxNumBatchedTokens > 0, "max num batched tokens"},
		{d.MaxNumSeqs > 0, "max num seqs"},
		{d.ChunkedPrefill != nil, "chunked prefill"},
		{d.PrefixCaching != nil, "prefix caching"},
		{d.SchedulingPolicy != "", "scheduling policy"},
		{d.GPUMemoryUtilization > 0 || d.MemFractionStatic > 0, "GPU memory utilization"},
		{setup.LoadWeights, "weights"},
		{setup.NumLayers > 0, "number of layers"},
		{setup.Device != "", "device"},
		{setup.Threads > 0, "threads"},
		{setup.CUDAGraphs, "CUDA graphs"},
		{setup.Program != "", "program"},
		{len(setup.Args) > 0, "arguments"},
		{len(setup.Env) > 0, "environment"},
	} {
		if c.asked {
			names = append(names, c.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	verb := "is"
	if len(names) > 1 || strings.HasSuffix(names[0], "s") {
		verb = "are"
	}
	return &StartError{
		Reason: fmt.Sprintf("attach: %s %s the running server's to decide", strings.Join(names, ", "), verb),
		Remedy: "leave it out, or let llmprof start a server of its own",
	}
}

// flagged is the deployment that an engine's command line asks for, the user's
// own arguments included.
func flagged(setup engine.Setup, l limits) deploy.Config {
	asked := setup.Deploy
	d := deploy.Config{
		Engine: "vllm", Model: asked.Model, DType: asked.DType, Quantization: asked.Quantization, BlockSize: asked.BlockSize,
		TensorParallel: asked.TensorParallel, PipelineParallel: asked.PipelineParallel, GPUMemoryUtilization: asked.GPUMemoryUtilization,
		KVCacheDType: asked.KVCacheDType, ExpertParallel: asked.ExpertParallel, MaxModelLen: l.modelLen, MaxNumBatchedTokens: l.budget,
		MaxNumSeqs: l.sequences, ChunkedPrefill: asked.ChunkedPrefill, PrefixCaching: asked.PrefixCaching, SchedulingPolicy: asked.SchedulingPolicy,
	}
	if d.Model == "" {
		d.Model = setup.Model
	}
	own := func(flag string, take func(value string)) {
		if value, given := argument(setup.Args, flag); given {
			take(value)
		}
	}
	count := func(field *int) func(string) {
		return func(value string) { *field, _ = strconv.Atoi(value) } // what is no number is not known
	}
	format := func(field *catalog.DType) func(string) {
		return func(value string) {
			var err error
			if *field, err = catalog.ParseDType(value); err != nil {
				*field = "" // "auto"
			}
		}
	}
	own("--dtype", format(&d.DType))
	own("--kv-cache-dtype", format(&d.KVCacheDType))
	own("--quantization", func(value string) { d.Quantization = value })
	own("--block-size", count(&d.BlockSize))
	own("--tensor-parallel-size", count(&d.TensorParallel))
	own("--pipeline-parallel-size", count(&d.PipelineParallel))
	own("--gpu-memory-utilization", func(value string) {
		if d.GPUMemoryUtilization, _ = strconv.ParseFloat(value, 64); !(d.GPUMemoryUtilization > 0 && d.GPUMemoryUtilization <= 1) {
			d.GPUMemoryUtilization = 0
		}
	})
	own("--enable-expert-parallel", func(string) { d.ExpertParallel = max(d.TensorParallel, 1) })
	return d
}

// overlay is a deployment with what the engine's log says of it.
func overlay(d, said deploy.Config) deploy.Config {
	for _, size := range []struct{ field, said *int }{
		{&d.TensorParallel, &said.TensorParallel},
		{&d.PipelineParallel, &said.PipelineParallel},
		{&d.DataParallel, &said.DataParallel},
		{&d.ExpertParallel, &said.ExpertParallel},
		{&d.MaxNumBatchedTokens, &said.MaxNumBatchedTokens},
		{&d.MaxNumSeqs, &said.MaxNumSeqs},
	} {
		if *size.said > 0 {
			*size.field = *size.said
		}
	}
	for _, format := range []struct{ field, said *catalog.DType }{{&d.DType, &said.DType}, {&d.KVCacheDType, &said.KVCacheDType}} {
		if *format.said != "" {
			*format.field = *format.said
		}
	}
	for _, either := range []struct{ field, said **bool }{{&d.ChunkedPrefill, &said.ChunkedPrefill}, {&d.PrefixCaching, &said.PrefixCaching}} {
		if *either.said != nil {
			*either.field = *either.said
		}
	}
	d.SchedulingPolicy = cmp.Or(said.SchedulingPolicy, d.SchedulingPolicy)
	if said.Quantization != "" {
		d.Quantization = said.Quantization
	}
	if said.GPUMemoryUtilization > 0 {
		d.GPUMemoryUtilization = said.GPUMemoryUtilization
	}
	if said.BlockSize > 0 && d.BlockSize == 0 { // the metrics know best
		d.BlockSize = said.BlockSize
	}
	return d
}
