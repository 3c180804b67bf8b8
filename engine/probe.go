package engine

import "github.com/llmprof/llmprof/profile"

// The probe protocol: one JSON object a line, requests on the probe's stdin,
// events on its stdout. Lines on stdout that are no JSON object are chatter and
// go to the log; so does everything on stderr. A probe ends when its stdin does.
//
//	→ {"op":"open","schema":"llmprof/probe","version":1,"model":"/m","dtype":"bf16","device":"cuda",…}
//	← {"event":"ready","schema":"llmprof/probe","version":1,"engine":"torch","engine_version":"2.13.0",…}
//	→ {"op":"step","id":1,"batch_size":4,"input_len":512,"output_len":32,"warmup":3,"runs":5}
//	← {"event":"step","id":1,"prefill_s":[…5 times…],"decode_s":[[…31 times…],…]}
//	→ {"op":"layers","id":2,"tokens":128,"context":0,"sequences":1,"warmup":10,"runs":100}
//	← {"event":"layers","id":2,"layers":[{"name":"q_proj","samples_s":[…]},…]}
//	← {"event":"failed","id":3,"reason":"oom","message":"CUDA out of memory …"}
//	← {"event":"fatal","reason":"engine-missing","message":"No module named 'torch'","hint":"pip install torch"}
//	→ {"op":"close"}
//
// A step answers with one prefill time a run and output_len - 1 decode times of
// each run, in seconds; warm-up runs are not among them. Every request for a
// task has exactly one answer, "step" or "layers" or "failed", with its id; an
// answer may have warnings of its own, which go with its first point.
//
// Reasons of "failed": oom, skipped_due_to_limits, runtime_error, exception,
// timeout; the message says the rest. Reasons of "fatal": engine-missing,
// model-missing, model-unsupported, permission-denied, no-device, oom, or words
// of the probe's own; "hint" is the command or the advice that mends it.
//
// "ready" may state what the engine is and computes with; of that, "num_layers"
// is the number of decoder blocks that it runs, after the model was cut,
// "threads" that of the threads that it computes with on a CPU, and "weights" is
// "random" or "loaded". What it leaves out is not known, and of the deployment
// nothing is recorded that it does not state: "dtype", "kv_cache_dtype",
// "quantization", "block_size", "max_model_len", "max_num_batched_tokens",
// "tensor_parallel_size", "pipeline_parallel_size", "gpu_memory_utilization".
// A "ready" that states something else than what was asked for ends the session;
// the longest sequence alone may be shorter.
//
// A "mark" tells of a moment while something else is waited for: "started", when
// libraries and device are up and loading begins, "loaded", once the weights are
// in memory, and "warm", once the warm-up runs of a task are over. "ready" is such a moment by itself. An answer may state "memory" of its
// task, as "ready" may of the engine.
//
//	← {"event":"mark","name":"warm"}
//
// Events of other names, as "log" and "progress", go to the log with their
// message. Fields that a side does not know are passed over.
const (
	// ProbeSchema and ProbeVersion are what both sides of the protocol name in
	// their first line; a probe of another version is refused.
	ProbeSchema  = "llmprof/probe"
	ProbeVersion = 1
)

// probeOpen is the first request.
type probeOpen struct {
	Op          string `json:"op"` // "open"
	Schema      string `json:"schema"`
	Version     int    `json:"version"`
	Model       string `json:"model"`
	DType       string `json:"dtype,omitempty"`
	Device      string `json:"device,omitempty"`
	Clock       string `json:"clock,omitempty"`
	NumLayers   int    `json:"num_layers,omitempty"`
	LoadWeights bool   `json:"load_weights,omitempty"`
	Threads     int    `json:"threads,omitempty"`
	Seed        int64  `json:"seed"`
	MaxBatch    int    `json:"max_batch,omitempty"`
	MaxInput    int    `json:"max_input,omitempty"`
	MaxOutput   int    `json:"max_output,omitempty"`
	CUDAGraphs  bool   `json:"cuda_graphs,omitempty"`
	// MaxModelLen, MaxBatchedTokens, BlockSize and TensorParallel are the
	// deployment's where it states them.
	MaxModelLen      int      `json:"max_model_len,omitempty"`
	MaxBatchedTokens int      `json:"max_num_batched_tokens,omitempty"`
	BlockSize        int      `json:"block_size,omitempty"`
	TensorParallel   int      `json:"tensor_parallel_size,omitempty"`
	Args             []string `json:"args,omitempty"`
}

// probeTask is a request to measure.
type probeTask struct {
	Op        string `json:"op"` // "step" or "layers"
	ID        int    `json:"id"`
	BatchSize int    `json:"batch_size,omitempty"`
	InputLen  int    `json:"input_len,omitempty"`
	OutputLen int    `json:"output_len,omitempty"`
	Tokens    int    `json:"tokens,omitempty"`
	Context   int    `json:"context,omitempty"`
	Sequences int    `json:"sequences,omitempty"`
	Warmup    int    `json:"warmup"`
	Runs      int    `json:"runs"`
}

// probeEvent is any line of a probe.
type probeEvent struct {
	Event string `json:"event"`
	ID    int    `json:"id"`

	// Of "ready".
	Schema        string            `json:"schema"`
	Version       int               `json:"version"`
	Engine        string            `json:"engine"`
	EngineVersion string            `json:"engine_version"`
	Libraries     map[string]string `json:"libraries"`
	Device        string            `json:"device"`
	DeviceCount   int               `json:"device_count"`
	Driver        string            `json:"driver"`
	Clock         string            `json:"clock"`
	Timer         string            `json:"timer"`
	ResolutionS   float64           `json:"timer_resolution_s"`
	MaxModelLen   int               `json:"max_model_len"`
	MaxTokens     int               `json:"max_total_tokens"`
	MaxBatch      int               `json:"max_batch"`
	NumLayers     int               `json:"num_layers"`
	Threads       int               `json:"threads"`
	DType         string            `json:"dtype"`
	KVCacheDType  string            `json:"kv_cache_dtype"`
	Quantization  string            `json:"quantization"`
	Weights       string            `json:"weights"` // "random" or "loaded"
	BlockSize     int               `json:"block_size"`
	BatchedTokens int               `json:"max_num_batched_tokens"`
	TensorSize    int               `json:"tensor_parallel_size"`
	PipelineSize  int               `json:"pipeline_parallel_size"`
	Utilization   float64           `json:"gpu_memory_utilization"` // 0..1
	WeightsBytes  int64             `json:"weights_bytes"`
	// Memory holds further figures, as a profile's memory points have them. It
	// and Warnings may stand in answers too.
	Memory   []profile.Memory `json:"memory"`
	Warnings []string         `json:"warnings"`

	// Of "mark".
	Name string `json:"name"`

	// Of "step": one time a run, and the times of its single decode steps.
	PrefillS []float64   `json:"prefill_s"`
	DecodeS  [][]float64 `json:"decode_s"`

	// Of "layers".
	Layers []probeLayer `json:"layers"`

	// Of "failed" and "fatal".
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// probeLayer is one layer's answer.
type probeLayer struct {
	Name string `json:"name"`
	// PerSequence says that the layer works once a sequence, Attention that
	// its time depends on each sequence's context.
	PerSequence bool      `json:"per_sequence"`
	Attention   bool      `json:"attention"`
	SamplesS    []float64 `json:"samples_s"`
}
