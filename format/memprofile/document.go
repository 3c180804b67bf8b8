package memprofile

import (
	"encoding/json"

	"github.com/llmprof/llmprof/unit"
)

// GB is a size in 1e9 bytes. Every size in GB stands beside the same size in
// bytes, from which [Document.Fill] derives it.
type GB float64

// Text is a string of the file; an empty one is written as null.
type Text string

// MarshalJSON writes null for an empty text.
func (t Text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// Confidence says how far a figure can be trusted. An empty one is unknown.
type Confidence string

// The levels. High is read or counted exactly, Medium follows from a formula
// or from a log line that rounds, Low rests on an estimate. Residual is the
// word of older profiles for an overhead that is just what remains.
const (
	High     Confidence = "high"
	Medium   Confidence = "medium"
	Low      Confidence = "low"
	Residual Confidence = "calculated_residual"
)

// MarshalJSON writes null for an unknown level.
func (c Confidence) MarshalJSON() ([]byte, error) { return Text(c).MarshalJSON() }

// Names of the parts of a breakdown.
const (
	PartWeights     = "weights"
	PartKVCache     = "kv_cache"
	PartActivations = "activations"
	PartCUDAGraphs  = "cuda_graphs"
	PartOverhead    = "framework_overhead"
)

// partNames lists the parts of a breakdown.
func partNames() []string {
	return []string{PartWeights, PartKVCache, PartActivations, PartCUDAGraphs, PartOverhead}
}

// Document is a memory profile. Keys that are null were not measured. Fields
// that are said to be derived are written by [Document.Fill] alone.
type Document struct {
	// Schema, Version, ProfilerVersion and SchemaVersion are derived: ours,
	// and the v2.0 of LLM Sizer with which the keys are compatible.
	Schema          string `json:"schema"`
	Version         string `json:"version"`
	ProfilerVersion string `json:"profiler_version"`
	SchemaVersion   string `json:"schema_version"`
	// Timestamp is "YYYY-MM-DD HH:MM:SS", derived where Metadata has a time.
	Timestamp Text     `json:"timestamp"`
	Metadata  Metadata `json:"metadata"`

	ModelInfo           ModelInfo           `json:"model_info"`
	BenchmarkParameters BenchmarkParameters `json:"benchmark_parameters"`
	DTypeMetadata       DTypeMetadata       `json:"dtype_metadata"`
	LatencyStats        LatencyStats        `json:"latency_stats"`
	// Memory is derived: the total under the path that the guide names.
	Memory             Memory             `json:"memory"`
	MemoryBreakdown    MemoryBreakdown    `json:"memory_breakdown"`
	KVCache            KVCache            `json:"kv_cache"`
	MemoryMeasurements MemoryMeasurements `json:"memory_measurements"`
	MemoryTimeline     *Timeline          `json:"memory_timeline"`
	// CalculatorComparison is any JSON object: current_formula,
	// proposed_formula, actual_measured, validation_status; or a note.
	CalculatorComparison json.RawMessage `json:"calculator_comparison"`
	GPUInfo              GPUInfo         `json:"gpu_info"`
	EngineMetadata       EngineMetadata  `json:"engine_metadata"`
}

// Metadata says where a profile comes from.
type Metadata struct {
	// Timestamp is RFC 3339 in UTC; see [Document.SetTime].
	Timestamp Text     `json:"timestamp"`
	Tool      Text     `json:"tool"`
	Host      Text     `json:"host"`
	Place     Text     `json:"place"`
	Source    Text     `json:"source"`
	Command   Text     `json:"command"`
	RunID     Text     `json:"run_id"`
	Warnings  []string `json:"warnings"`
}

// ModelInfo is what is known of the model.
type ModelInfo struct {
	Name Text `json:"name"`
	// Parameters is the number of them, a count.
	Parameters         *float64    `json:"num_parameters"`
	Layers             *int        `json:"num_layers"`
	Heads              *int        `json:"num_heads"`
	KVHeads            *int        `json:"num_kv_heads"`
	HeadDim            *int        `json:"head_dim"`
	HiddenSize         *int        `json:"hidden_size"`
	DType              Text        `json:"dtype"`
	Quantization       Text        `json:"quantization"`
	WeightsBytes       *unit.Bytes `json:"weights_bytes"` // of the whole model
	ArchitectureSource Text        `json:"architecture_source"`
	// Architecture is the whole description as the catalog has it, an object;
	// with it the profile can be held to calculators anywhere.
	Architecture json.RawMessage `json:"architecture"`
}

// BenchmarkParameters is what was run.
type BenchmarkParameters struct {
	Model                Text `json:"model"`
	InputLen             *int `json:"input_len"`  // tokens
	OutputLen            *int `json:"output_len"` // tokens
	BatchSize            *int `json:"batch_size"`
	DType                Text `json:"dtype"`
	TensorParallelSize   *int `json:"tensor_parallel_size"`
	PipelineParallelSize *int `json:"pipeline_parallel_size"`
	Quantization         Text `json:"quantization"`
	WarmupIters          *int `json:"num_iters_warmup"`
	Iters                *int `json:"num_iters"`
	KVCacheDType         Text `json:"kv_cache_dtype"`
	BlockSize            *int `json:"block_size"`    // tokens
	MaxModelLen          *int `json:"max_model_len"` // tokens
	// MaxNumBatchedTokens and MaxNumSeqs bound one step: tokens, sequences.
	MaxNumBatchedTokens *int `json:"max_num_batched_tokens"`
	MaxNumSeqs          *int `json:"max_num_seqs"`
	// GPUMemoryUtilization is a fraction of the device's memory, 0 to 1.
	GPUMemoryUtilization *float64 `json:"gpu_memory_utilization"`
	EngineArgs           []string `json:"engine_args"`
}

// DTypeMetadata names the types of the components.
type DTypeMetadata struct {
	WeightDType         Text  `json:"weight_dtype"`
	ActivationDType     Text  `json:"activation_dtype"`
	KVCacheDType        Text  `json:"kv_cache_dtype"`
	RequestedDType      Text  `json:"requested_dtype"`
	QuantizationApplied *bool `json:"quantization_applied"`
}

// LatencyStats is the time of one iteration: the whole batch from its prompts
// to the last token. Its first three fields are those of "vllm bench latency".
type LatencyStats struct {
	Avg         *float64           `json:"avg_latency"` // seconds
	Latencies   []float64          `json:"latencies"`   // seconds
	Percentiles map[string]float64 `json:"percentiles"` // "50" and so on, in seconds
	// MeanMs is derived from Avg, in milliseconds.
	MeanMs *float64 `json:"mean_latency_ms"`
	// TokensPerSecond counts output tokens per second: derived from Avg and
	// the run's batch and output length, or as given where one is unknown.
	TokensPerSecond *float64 `json:"tokens_per_second"`
}

// Memory is the total under the path that the guide names, derived from the
// peak.
type Memory struct {
	TotalGB    *GB         `json:"total_gb"`
	TotalBytes *unit.Bytes `json:"total_bytes"`
}

// Part is one component of the memory in use.
type Part struct {
	// Name is one of the Part constants, or any other word.
	Name string `json:"part"`
	// Bytes of all the engine's devices together; nil where not measured,
	// and Note says why.
	Bytes *unit.Bytes `json:"bytes"`
	// RoundingBytes is what the last digits of the figure may hide, over all
	// devices; nil where that is not known.
	RoundingBytes *unit.Bytes `json:"rounding_bytes"`
	Confidence    Confidence  `json:"confidence"`
	// Source tells where the figure comes from: "log", "checkpoint", "formula".
	Source Text `json:"source"`
	Note   Text `json:"note"`
}

// MemoryBreakdown splits what the engine took into parts.
type MemoryBreakdown struct {
	// Parts, EstimationMethod, Notes and ConfidenceLevels.Overall are given;
	// everything else is derived from them and from the measurements.
	Parts            []Part   `json:"parts"`
	EstimationMethod Text     `json:"estimation_method"`
	Notes            []string `json:"notes"`

	TotalMeasuredBytes     *unit.Bytes `json:"total_measured_bytes"`
	BaselineBytes          *unit.Bytes `json:"baseline_bytes"`
	NetIncreaseBytes       *unit.Bytes `json:"net_increase_bytes"`
	ModelWeightsBytes      *unit.Bytes `json:"model_weights_bytes"`
	KVCacheBytes           *unit.Bytes `json:"kv_cache_bytes"`
	KVCacheUsedBytes       *unit.Bytes `json:"kv_cache_used_bytes"`
	ActivationsBytes       *unit.Bytes `json:"activations_bytes"`
	CUDAGraphsBytes        *unit.Bytes `json:"cuda_graphs_bytes"`
	FrameworkOverheadBytes *unit.Bytes `json:"framework_overhead_bytes"`
	// UnexplainedBytes is the increase that no known part accounts for, so that
	// parts and it always sum to the increase; negative where the parts exceed
	// it, be it by what their rounding hides.
	UnexplainedBytes *unit.Bytes `json:"unexplained_bytes"`

	TotalMeasuredGB     *GB `json:"total_measured_gb"`
	BaselineGB          *GB `json:"baseline_gb"`
	NetIncreaseGB       *GB `json:"net_increase_gb"`
	ModelWeightsGB      *GB `json:"model_weights_gb"`
	KVCacheGB           *GB `json:"kv_cache_gb"`
	KVCacheUsedGB       *GB `json:"kv_cache_used_gb"`
	ActivationsGB       *GB `json:"activations_gb"`
	CUDAGraphsGB        *GB `json:"cuda_graphs_gb"`
	FrameworkOverheadGB *GB `json:"framework_overhead_gb"`
	UnexplainedGB       *GB `json:"unexplained_gb"`
	// OverheadPercentage is the overhead in percent of the total.
	OverheadPercentage *float64 `json:"overhead_percentage"`

	// The short names of the guide.
	Weights     *GB        `json:"weights"`
	KVCache     *GB        `json:"kv_cache"`
	Activations *GB        `json:"activations"`
	Overhead    *GB        `json:"overhead"`
	Confidence  Confidence `json:"confidence"`

	ConfidenceLevels   ConfidenceLevels   `json:"confidence_levels"`
	ComponentDTypes    ComponentDTypes    `json:"component_dtypes"`
	ArchitectureParams ArchitectureParams `json:"architecture_params_used"`

	Consistent bool     `json:"consistent"` // no faults
	Faults     []string `json:"faults"`
}

// ConfidenceLevels repeats the confidence of the parts. Overall is given, or
// the lowest of the parts that have a figure.
type ConfidenceLevels struct {
	Overall     Confidence `json:"overall"`
	Weights     Confidence `json:"weights"`
	KVCache     Confidence `json:"kv_cache"`
	Activations Confidence `json:"activations"`
	Overhead    Confidence `json:"overhead"`
}

// ComponentDTypes repeats [DTypeMetadata].
type ComponentDTypes struct {
	Weights     Text `json:"weights"`
	Activations Text `json:"activations"`
	KVCache     Text `json:"kv_cache"`
}

// ArchitectureParams repeats [ModelInfo].
type ArchitectureParams struct {
	Layers     *int `json:"num_layers"`
	Heads      *int `json:"num_heads"`
	KVHeads    *int `json:"num_kv_heads"`
	HeadDim    *int `json:"head_dim"`
	HiddenSize *int `json:"hidden_size"`
	// Parameters is the number of them, a count.
	Parameters         *float64 `json:"model_params"`
	TensorParallelSize *int     `json:"tensor_parallel_size"`
}

// KVCache is the key-value cache of all the engine's devices together: what
// was set aside for it, and how much of that was in use.
type KVCache struct {
	Bytes      *unit.Bytes `json:"bytes"`
	Blocks     *int        `json:"blocks"`
	BlockSize  *int        `json:"block_size"` // tokens
	Tokens     *int        `json:"tokens"`
	UsedTokens *int        `json:"used_tokens"`
	UsedBytes  *unit.Bytes `json:"used_bytes"`
	Source     Text        `json:"source"`
}

// MemoryMeasurements are the three moments of a run; nil is not measured. The
// differences are derived.
type MemoryMeasurements struct {
	Baseline           *MemoryPoint `json:"baseline"`
	PostWarmup         *MemoryPoint `json:"post_warmup"`
	Peak               *MemoryPoint `json:"peak"`
	MemoryIncreaseGB   *GB          `json:"memory_increase_gb"`
	BaselineToWarmupGB *GB          `json:"baseline_to_warmup_gb"`
	WarmupToPeakGB     *GB          `json:"warmup_to_peak_gb"`
}

// MemoryPoint is the memory in use at one moment, or at the highest moment of
// each device. The sizes in GB are derived.
type MemoryPoint struct {
	// TotalBytes over all devices; derived from PerGPU where nil.
	TotalBytes *unit.Bytes `json:"total_bytes"`
	// At is in seconds from the start of the sampling.
	At *float64 `json:"at_s"`
	// Marker is what told that moment, as in "log: Application startup complete".
	Marker       Text      `json:"marker"`
	TotalGB      *GB       `json:"total_gb"`
	MaxUsedGB    *GB       `json:"max_used_gb"`
	MeanUsedGB   *GB       `json:"mean_used_gb"`
	StddevUsedGB *GB       `json:"stddev_used_gb"` // of a sample, 0 for one device
	NumGPUs      *int      `json:"num_gpus"`       // 0 on a CPU
	PerGPU       []GPUUsed `json:"per_gpu_details"`
}

// GPUUsed is the memory of one device at one moment. The sizes in GB are
// derived.
type GPUUsed struct {
	Device       *int        `json:"device"`
	UUID         Text        `json:"uuid"`
	Name         Text        `json:"name"`
	UsedBytes    *unit.Bytes `json:"used_bytes"`
	TotalBytes   *unit.Bytes `json:"total_bytes"`   // what the device has
	ProcessBytes *unit.Bytes `json:"process_bytes"` // see Timeline.ProcessScope
	// ProcessPeakBytes is the sum of the most that each of the engine's
	// processes has held so far by the kernel's account: an upper bound of what
	// they held together, between two readings as well.
	ProcessPeakBytes *unit.Bytes `json:"process_peak_bytes"`
	UsedGB           *GB         `json:"used_gb"`
	TotalGB          *GB         `json:"total_gb"`
}

// Timeline is the series of samples: of a run on an engine of its own all of
// them, of a later one those before the engine's start and those of the run.
type Timeline struct {
	Source Text `json:"source"`
	// Interval is the middle time between two neighbours of the samples listed,
	// RateHz how many of them there are in a second, of the device with the
	// fewest.
	Interval *float64 `json:"interval_s"`
	RateHz   *float64 `json:"rate_hz"`
	// ProcessScope says whose memory process_bytes is.
	ProcessScope Text             `json:"process_scope"`
	Devices      []DeviceTimeline `json:"devices"`
}

// DeviceTimeline is the series of one device: lists of equal length, or nil
// where that figure was never measured. A sample that lacks a figure has nil
// in its place.
type DeviceTimeline struct {
	Index        *int          `json:"index"`
	UUID         Text          `json:"uuid"`
	Name         Text          `json:"name"`
	At           []float64     `json:"at_s"`
	UsedBytes    []*unit.Bytes `json:"used_bytes"`
	ProcessBytes []*unit.Bytes `json:"process_bytes"`
	PowerW       []*float64    `json:"power_w"`
	Utilization  []*float64    `json:"utilization"` // share of the time, 0 to 1
}

// GPUInfo is what is known of the devices.
type GPUInfo struct {
	GPUType    Text     `json:"gpu_type"` // cuda, rocm, cpu or unknown
	NumGPUs    *int     `json:"num_gpus"` // of the engine; 0 on a CPU
	SystemGPUs *int     `json:"system_gpus"`
	Names      []string `json:"names"`
	Sampler    Text     `json:"sampler"`
	// TotalMemoryBytes of the engine's GPUs together.
	TotalMemoryBytes *unit.Bytes `json:"total_gpu_memory_bytes"`
	TotalMemoryGB    *GB         `json:"total_gpu_memory_gb"` // derived
	// HostMemoryBytes is what the host has, for an engine on its CPU.
	HostMemoryBytes *unit.Bytes `json:"host_memory_bytes"`
}

// EngineMetadata is what is known of the engine.
type EngineMetadata struct {
	EngineVersion   Text              `json:"engine_version"`
	EngineType      Text              `json:"engine_type"`
	ProfilingMethod Text              `json:"profiling_method"`
	ProfilerVersion string            `json:"profiler_version"` // derived
	Libraries       map[string]string `json:"libraries"`
}
