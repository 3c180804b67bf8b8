package campaign

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// Cell is one measurement: a model on an engine at one batch size and one
// pair of lengths, with every default filled in. In JSON a field at its usual
// value may be left out, so that cells of an older file keep their hash when a
// field is added.
type Cell struct {
	// ModelID is a hub id, or a path as the engine's place sees it.
	ModelID string `json:"model_id"`
	// Place is where the engine runs: "local", "docker:NAME", "ssh:HOST", …
	Place string `json:"place"`
	// ContainerName is the container's name where the file gives one; it stands
	// at the front of file names.
	ContainerName string `json:"container_name,omitempty"`
	// Engine is the name of the engine's driver.
	Engine string `json:"engine"`
	// Device is the accelerator as the file names it; empty means whatever the
	// place has. GPUIDs are the devices to use, empty for the first ones.
	Device string   `json:"device,omitempty"`
	GPUIDs []string `json:"gpu_ids,omitempty"`

	// InputLen and OutputLen are tokens of each sequence, BatchSize is the
	// number of sequences.
	InputLen  int `json:"input_len"`
	OutputLen int `json:"output_len"`
	BatchSize int `json:"batch_size"`
	// BlockSize is the number of tokens in one KV block; 0 leaves it to the
	// engine.
	BlockSize int `json:"block_size,omitempty"`

	// DType is the format of activations and plain weights in vLLM's spelling,
	// or "auto". Empty in a [Model] stands for the engine's usual one, which its
	// cells have.
	DType string `json:"dtype"`
	// TensorParallel is the number of devices that share each layer.
	TensorParallel int `json:"tensor_parallel_size"`
	// PipelineParallel is the number of stages; 0 means one.
	PipelineParallel int `json:"pipeline_parallel_size,omitempty"`
	// Quantization is in the engine's spelling; empty means the checkpoint's
	// own. KVCacheDType is in vLLM's, "fp8_e5m2" for example; empty leaves it to
	// the engine.
	Quantization string `json:"quantization,omitempty"`
	KVCacheDType string `json:"kv_cache_dtype,omitempty"`
	// GPUMemoryUtilization is the share of device memory that the engine may
	// take, 0..1.
	GPUMemoryUtilization float64 `json:"gpu_memory_utilization"`
	// MaxModelLen bounds prompt and output in tokens; 0 leaves it to the
	// engine.
	MaxModelLen int `json:"max_model_len,omitempty"`
	// MaxNumBatchedTokens bounds the tokens of one step; 0 leaves it to the
	// engine.
	MaxNumBatchedTokens int `json:"max_num_batched_tokens,omitempty"`
	// Threads are those of an engine on a CPU; 0 leaves them to the engine.
	Threads int `json:"threads,omitempty"`
	// Seed is that of random weights and tokens.
	Seed int64 `json:"seed,omitempty"`
	// EnforceEager does without captured graphs, which are used otherwise except
	// on a CPU; CUDAGraphs asks for them there too.
	EnforceEager bool `json:"enforce_eager,omitempty"`
	CUDAGraphs   bool `json:"cuda_graphs,omitempty"`
	// TrustRemoteCode lets the engine run code that comes with the model.
	TrustRemoteCode bool `json:"trust_remote_code,omitempty"`
	// Weights loads the checkpoint instead of random weights.
	Weights bool `json:"weights,omitempty"`
	// NumWarmup and NumIters count the untimed and the timed iterations.
	NumWarmup int `json:"num_warmup"`
	NumIters  int `json:"num_iters"`
	// EngineArgs are further arguments and EngineEnv further environment
	// variables of the engine.
	EngineArgs []string          `json:"engine_args,omitempty"`
	EngineEnv  map[string]string `json:"engine_env,omitempty"`

	// Architecture is what the file says about the model.
	Architecture Architecture `json:"architecture,omitzero"`
}

// Architecture holds the facts about a model that a file may give. It serves
// predictions and breakdowns and does not change what is measured. 0 means
// not given.
type Architecture struct {
	// Params is the number of parameters.
	Params     float64 `json:"model_params,omitempty"`
	NumLayers  int     `json:"num_layers,omitempty"`
	NumHeads   int     `json:"num_heads,omitempty"`
	NumKVHeads int     `json:"num_kv_heads,omitempty"`
	HeadDim    int     `json:"head_dim,omitempty"`
	HiddenSize int     `json:"hidden_size,omitempty"`
}

// Defaults returns the settings of an entry for which a file says nothing.
// Model, place and sizes are left open, and the format, which depends on the
// engine.
func Defaults() Cell {
	return Cell{
		Engine: "vllm", TensorParallel: 1, GPUMemoryUtilization: 0.9,
		NumWarmup: 10, NumIters: 30,
	}
}

// usualDType is the format of a cell for which nothing states one: the files
// that llama.cpp runs have formats of their own.
func usualDType(engine string) string {
	if engine == "llama-bench" || engine == "node-llama-cpp" {
		return "auto"
	}
	return "float16"
}

// Hash names what decides the measurement: 16 hex digits, the same for equal
// cells in any file. The container's name beside the place and the facts about
// the model do not count.
func (c Cell) Hash() string {
	c.ContainerName, c.Architecture = "", Architecture{}
	return c.digest()
}

// LoadKey is equal for two cells that can run on one loaded engine, one after
// the other.
func (c Cell) LoadKey() string {
	c.InputLen, c.OutputLen, c.BatchSize, c.NumWarmup, c.NumIters = 0, 0, 0, 0, 0
	return c.Hash()
}

// digest hashes the cell's JSON with sorted keys, so that the order of the
// struct's fields does not count.
func (c Cell) digest() string {
	text, err := json.Marshal(c)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err == nil {
		text, err = json.Marshal(fields)
	}
	if err != nil { // a number that JSON does not have: no file gives one
		text = fmt.Appendf(nil, "%+v", c)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Tokens is the number of tokens that the cell's batch holds at its end.
func (c Cell) Tokens() int { return c.BatchSize * (c.InputLen + c.OutputLen) }

// Name is the stem of the cell's files: "vllm_512in_256out_bs8", with
// "_block16" where a block size is asked for. At its front stands the container,
// the host, or on this machine the model. A time is added to it; cells of
// different models in one container share it.
func (c Cell) Name() string {
	name := fmt.Sprintf("%s_%din_%dout_bs%d", fileName(c.host()), c.InputLen, c.OutputLen, c.BatchSize)
	if c.BlockSize > 0 {
		name += fmt.Sprintf("_block%d", c.BlockSize)
	}
	return name
}

// host is the container's name, or the last part of the place; of this machine,
// the model's.
func (c Cell) host() string {
	if c.ContainerName != "" {
		return c.ContainerName
	}
	_, name, found := strings.Cut(c.Place, ":")
	if !found {
		return path.Base(strings.ReplaceAll(c.ModelID, `\`, "/"))
	}
	return name
}

// fileName keeps of s what is safe in the name of a file on any system.
func fileName(s string) string {
	const longest = 100
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, s)
	s = strings.TrimLeft(s[:min(len(s), longest)], ".-")
	if s == "" {
		return "cell"
	}
	return s
}
