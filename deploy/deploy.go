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
	// KVCacheDType is the format of the KV cache. Default: DType.
	KVCacheDType catalog.DType `json:"kv_cache_dtype,omitempty"`

	// GPUMemoryUtilization is the share of device memory that the engine may
	// take, 0..1. Default 0.9.
	GPUMemoryUtilization float64 `json:"gpu_memory_utilization,omitempty"`
	// BlockSize is the number of tokens in one KV block. Default 16.
	BlockSize int `json:"block_size,omitempty"`
	// MaxModelLen bounds prompt plus output in tokens. Default: the model's.
	MaxModelLen int `json:"max_model_len,omitempty"`
	// MaxNumBatchedTokens bounds the tokens of one step; 0 means that a
	// prompt is computed in one step.
	MaxNumBatchedTokens int `json:"max_num_batched_tokens,omitempty"`
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
			faults = append(faults, fmt.Errorf("%s is %d: want at least 1", name, v))
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
	if !(c.GPUMemoryUtilization > 0 && c.GPUMemoryUtilization <= 1) {
		faults = append(faults, fmt.Errorf("gpu memory utilization is %g: want more than 0 and at most 1", c.GPUMemoryUtilization))
	}
	for _, t := range []catalog.DType{c.DType, c.KVCacheDType} {
		if t.Bits() == 0 {
			faults = append(faults, fmt.Errorf("unknown dtype %q", t))
		}
	}
	if _, err := ParseWeightFormat(c.Quantization, c.DType); err != nil {
		faults = append(faults, err)
	}
	if c.ExpertParallel > 1 && (c.TensorParallel*c.DataParallel)%c.ExpertParallel != 0 && c.ExpertParallel%(c.TensorParallel*c.DataParallel) != 0 {
		faults = append(faults, fmt.Errorf("expert parallel size %d does not fit %d tensor x data parallel ranks", c.ExpertParallel, c.TensorParallel*c.DataParallel))
	}
	return errors.Join(faults...)
}
