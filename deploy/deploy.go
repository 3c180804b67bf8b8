// Package deploy describes a deployment: everything that decides how fast a
// model runs on given devices and how much memory it takes. A [Config] is a
// plain value that is saved in every profile and result; [Config.Validate]
// reports all its faults at once.
package deploy

import (
	"errors"
	"fmt"

	"github.com/llmprof/llmprof/catalog"
)

// Config is a deployment. The zero value of a field means its default, which
// [Config.WithDefaults] fills in.
type Config struct {
	// Model is a catalog name, a hub id or a path.
	Model string `json:"model,omitempty"`
	// Device is a canonical device name.
	Device string `json:"device,omitempty"`
	// Engine is "vllm", "sglang", …; empty where none is meant.
	Engine string `json:"engine,omitempty"`
	// EngineVersion is the release, e.g. "0.32.0".
	EngineVersion string `json:"engine_version,omitempty"`

	// TensorParallel is the number of ranks that share each layer. Default 1.
	TensorParallel int `json:"tensor_parallel_size,omitempty"`
	// PipelineParallel is the number of stages. Default 1.
	PipelineParallel int `json:"pipeline_parallel_size,omitempty"`
	// PipelineLayers are the layers of each stage; empty means equal stages,
	// the last one shorter.
	PipelineLayers []int `json:"pipeline_layers,omitempty"`
	// DataParallel is the number of replicas of the attention. Default 1.
	DataParallel int `json:"data_parallel_size,omitempty"`
	// ExpertParallel is the number of ranks over which whole experts are
	// spread; 1 cuts every expert by TensorParallel instead. Default 1.
	ExpertParallel int `json:"expert_parallel_size,omitempty"`

	// DType is the format of activations and of unquantised weights.
	// Default bf16.
	DType catalog.DType `json:"dtype,omitempty"`
	// Quantization names the weight format as [ParseWeightFormat] reads it;
	// empty means the model's own, "none" means DType.
	Quantization string `json:"quantization,omitempty"`
	// QuantizeEmbeddings stores embedding and head in the weight format too,
	// as most GGUF files do.
	QuantizeEmbeddings bool `json:"quantize_embeddings,omitempty"`
	// KVCacheDType is the format of the KV cache. Default: DType.
	KVCacheDType catalog.DType `json:"kv_cache_dtype,omitempty"`

	// GPUMemoryUtilization is the share of device memory that the engine may
	// take, 0..1. Default 0.9.
	GPUMemoryUtilization float64 `json:"gpu_memory_utilization,omitempty"`
	// MemFractionStatic is SGLang's share of device memory, 0..1: what weights
	// and KV cache together may take. 0 means that GPUMemoryUtilization rules.
	MemFractionStatic float64 `json:"mem_fraction_static,omitempty"`
	// BlockSize is the number of tokens in one KV block. Default 16.
	BlockSize int `json:"block_size,omitempty"`
	// MaxModelLen bounds prompt plus output in tokens. Default: the model's.
	MaxModelLen int `json:"max_model_len,omitempty"`
	// MaxNumBatchedTokens bounds the tokens of one step; 0 means that a
	// prompt is computed in one step.
	MaxNumBatchedTokens int `json:"max_num_batched_tokens,omitempty"`
	// MaxNumSeqs bounds the requests that run at once; 0 leaves it to the
	// engine.
	MaxNumSeqs int `json:"max_num_seqs,omitempty"`
	// ChunkedPrefill says whether a prompt may be computed over several steps,
	// PrefixCaching whether the KV blocks of earlier prompts are used again; nil
	// leaves it to the engine.
	ChunkedPrefill *bool `json:"enable_chunked_prefill,omitempty"`
	PrefixCaching  *bool `json:"enable_prefix_caching,omitempty"`
	// SchedulingPolicy is the order in which requests are scheduled: "fcfs",
	// "priority"; empty leaves it to the engine.
	SchedulingPolicy string `json:"scheduling_policy,omitempty"`
}

// WithDefaults returns c with every unset field at its default.
func (c Config) WithDefaults() Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.TensorParallel, 1)
	set(&c.PipelineParallel, 1)
	set(&c.DataParallel, 1)
	set(&c.ExpertParallel, 1)
	set(&c.BlockSize, 16)
	if c.DType == "" {
		c.DType = catalog.BF16
	}
	if c.KVCacheDType == "" {
		c.KVCacheDType = c.DType
	}
	if c.GPUMemoryUtilization == 0 {
		c.GPUMemoryUtilization = 0.9
	}
	return c
}

// Devices is the number of devices of the deployment.
func (c Config) Devices() int {
	c = c.WithDefaults()
	return c.TensorParallel * c.PipelineParallel * c.DataParallel
}

// Validate reports every fault of c with its defaults filled in. It does not
// look at the model: whether heads divide by ranks is the cost model's to say.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	atLeastOne := func(name string, v int) {
		if v < 1 || v > 1<<20 {
			faults = append(faults, fmt.Errorf("%s is %d: want 1 to %d", name, v, 1<<20))
		}
	}
	atLeastOne("tensor parallel size", c.TensorParallel)
	atLeastOne("pipeline parallel size", c.PipelineParallel)
	atLeastOne("data parallel size", c.DataParallel)
	atLeastOne("expert parallel size", c.ExpertParallel)
	atLeastOne("block size", c.BlockSize)
	if c.MaxModelLen < 0 {
		faults = append(faults, fmt.Errorf("max model len is %d: want 0 or more", c.MaxModelLen))
	}
	if c.MaxNumBatchedTokens < 0 {
		faults = append(faults, fmt.Errorf("max num batched tokens is %d: want 0 or more", c.MaxNumBatchedTokens))
	}
	if c.MaxNumSeqs < 0 {
		faults = append(faults, fmt.Errorf("max num seqs is %d: want 0 or more", c.MaxNumSeqs))
	}
	if !(c.GPUMemoryUtilization > 0 && c.GPUMemoryUtilization <= 1) {
		faults = append(faults, fmt.Errorf("gpu memory utilization is %g: want more than 0 and at most 1", c.GPUMemoryUtilization))
	}
	if !(c.MemFractionStatic >= 0 && c.MemFractionStatic <= 1) {
		faults = append(faults, fmt.Errorf("mem fraction static is %g: want 0 to 1", c.MemFractionStatic))
	}
	switch c.DType {
	case catalog.BF16, catalog.FP16, catalog.FP32:
	default:
		faults = append(faults, fmt.Errorf("dtype %q is not an activation format: want bf16, fp16 or fp32; narrower weights go by quantization", c.DType))
	}
	if c.KVCacheDType.Bits() == 0 {
		faults = append(faults, fmt.Errorf("unknown KV cache dtype %q", c.KVCacheDType))
	}
	if _, err := ParseWeightFormat(c.Quantization, c.DType); err != nil {
		faults = append(faults, err)
	}
	if ranks := c.TensorParallel * c.DataParallel; c.ExpertParallel > 1 && ranks%c.ExpertParallel != 0 {
		faults = append(faults, fmt.Errorf("expert parallel size %d does not divide the %d ranks of tensor x data parallel size: raise one of these", c.ExpertParallel, ranks))
	}
	if n := len(c.PipelineLayers); n > 0 && n != c.PipelineParallel {
		faults = append(faults, fmt.Errorf("layers are given for %d stages of %d", n, c.PipelineParallel))
	}
	for stage, layers := range c.PipelineLayers {
		if layers < 1 {
			faults = append(faults, fmt.Errorf("stage %d has %d layers: want at least 1", stage, layers))
		}
	}
	return errors.Join(faults...)
}
