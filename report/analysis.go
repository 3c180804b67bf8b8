package report

import (
	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Head opens every document.
type Head struct {
	// Schema is "llmprof/<kind>".
	Schema string `json:"schema"`
	// Version is "major.minor" of the schema.
	Version string `json:"version"`
	// Tool is the version of llmprof that made the document.
	Tool string `json:"tool"`
}

// NewHead opens a document of the given kind, made by version tool.
func NewHead(kind, tool string) Head { return Head{"llmprof/" + kind, "1.0", tool} }

// AnalysisDocument is the JSON of one theoretical analysis. Amounts are those
// of one device unless a key says otherwise.
type AnalysisDocument struct {
	Head
	Model string `json:"model"`
	// ModelOrigin is where the architecture was found, ModelRevision which
	// state of it, where the origin has states.
	ModelOrigin   string        `json:"model_origin,omitempty"`
	ModelRevision string        `json:"model_revision,omitempty"`
	GPU           string        `json:"gpu"`
	Deploy        deploy.Config `json:"deploy"`
	Request       RequestKeys   `json:"request"`
	// Method is "roofline" or "llm-profiler".
	Method string `json:"method"`
	// Basis is the basis of every figure.
	Basis stat.Basis `json:"basis"`
	Fits  bool       `json:"fits"`
	// Reasons are codes; Messages say the same in words.
	Reasons  []string       `json:"reasons"`
	Messages []string       `json:"messages,omitempty"`
	Params   ParamsKeys     `json:"params"`
	FLOPs    FLOPsKeys      `json:"flops"`
	Memory   MemoryKeys     `json:"memory"`
	Latency  LatencyKeys    `json:"latency"`
	Ops      []OpKeys       `json:"ops"`
	Rates    *RateKeys      `json:"rates,omitempty"`
	Settings *cost.Settings `json:"settings,omitempty"`
	// SmallestTP is the smallest tensor parallel size that fits, where the
	// asked one does not.
	SmallestTP int `json:"smallest_tensor_parallel_size,omitempty"`
	// Reference holds the figures of the llm-profiler method in its own keys
	// and units.
	Reference any      `json:"reference,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

// RequestKeys echo what was asked.
type RequestKeys struct {
	BatchSize    int `json:"batch_size"`
	InputLen     int `json:"input_len"`
	OutputLen    int `json:"output_len"`
	CachedPrefix int `json:"cached_prefix,omitempty"`
}

// ParamsKeys count the parameters of the whole model.
type ParamsKeys struct {
	Total  int64 `json:"total"`
	Active int64 `json:"active"`
	// PerLayer counts one layer of the kind that occurs most: attention, ffn,
	// norms, total.
	PerLayer  map[string]int64 `json:"per_layer"`
	Embedding int64            `json:"embedding"`
	Head      int64            `json:"head"`
}

// FLOPsKeys count the matrix work of the whole model.
type FLOPsKeys struct {
	// Prefill and DecodeStep are in FLOPs.
	Prefill    float64 `json:"prefill"`
	DecodeStep float64 `json:"decode_step"`
}

// MemoryKeys are bytes and counts of the fullest device.
type MemoryKeys struct {
	Weights     int64 `json:"weights_bytes"`
	KVCache     int64 `json:"kv_cache_bytes"`
	Activations int64 `json:"activations_bytes"`
	Reserve     int64 `json:"reserve_bytes"`
	Total       int64 `json:"total_bytes"`
	Device      int64 `json:"device_bytes"`
	Usable      int64 `json:"usable_bytes"`
	KVPerToken  int64 `json:"kv_bytes_per_token,omitempty"`
	MaxBatch    int   `json:"max_batch"`
	MaxTokens   int64 `json:"max_tokens"`
	// Engine is what an engine's defaults give; absent where it would not start.
	Engine *EngineKV `json:"engine_kv_cache,omitempty"`
}

// LatencyKeys are milliseconds; the op maps sum to TTFT and TPOT. TPOT is
// null where a request generates one token.
type LatencyKeys struct {
	TTFT      float64            `json:"ttft_ms"`
	TPOT      *float64           `json:"tpot_ms"`
	FirstTPOT *float64           `json:"first_tpot_ms,omitempty"`
	LastTPOT  *float64           `json:"last_tpot_ms,omitempty"`
	E2E       float64            `json:"e2e_ms"`
	Prefill   map[string]float64 `json:"prefill_ms"`
	Decode    map[string]float64 `json:"decode_ms"`
}

// OpKeys is one operator; flops, bytes and time_ms are those of all count
// occurrences together.
type OpKeys struct {
	Stage     string  `json:"stage"`
	Name      string  `json:"name"`
	Count     int     `json:"count"`
	FLOPs     float64 `json:"flops"`
	Bytes     float64 `json:"bytes"`
	Message   float64 `json:"message_bytes,omitempty"`
	Time      float64 `json:"time_ms"`
	Compute   float64 `json:"compute_ms"`
	Memory    float64 `json:"memory_ms"`
	Network   float64 `json:"network_ms"`
	Launch    float64 `json:"launch_ms"`
	Bound     string  `json:"bound"`
	Intensity float64 `json:"intensity"`
	// MFU and MBU are achieved over peak compute and bandwidth, 0..1.
	MFU float64 `json:"mfu"`
	MBU float64 `json:"mbu"`
}

// RateKeys are throughputs of one data-parallel replica and utilisations
// (0..1) of its devices.
type RateKeys struct {
	PrefillTokens float64  `json:"prefill_tok_s"`
	DecodeTokens  *float64 `json:"decode_tok_s"`
	// PipelinedTokens counts output tokens with one batch in flight for each
	// pipeline stage; null without a pipeline.
	PipelinedTokens *float64 `json:"decode_tok_s_pipelined,omitempty"`
	Requests        float64  `json:"requests_s"`
	// OutputPerGPU counts output tokens per second and device, TotalPerGPU
	// prompt and output tokens.
	OutputPerGPU float64 `json:"output_tok_s_gpu"`
	TotalPerGPU  float64 `json:"total_tok_s_gpu"`
	// PrefillBubble is the share of the stages' time that they wait.
	PrefillBubble float64  `json:"prefill_bubble,omitempty"`
	PrefillMFU    float64  `json:"prefill_mfu"`
	PrefillMBU    float64  `json:"prefill_mbu"`
	DecodeMFU     *float64 `json:"decode_mfu"`
	DecodeMBU     *float64 `json:"decode_mbu"`
}

// Analysis builds the document of a roofline analysis; tool is the version
// that made it.
func Analysis(a *cost.Analysis, tool string) AnalysisDocument {
	r, m := a.Request, a.Memory
	d := AnalysisDocument{
		Head:  NewHead("analysis", tool),
		Model: a.Model.Name, GPU: a.Device.Name, Deploy: a.Config,
		Request: RequestKeys{r.Batch, r.Input, r.Output, r.CachedPrefix},
		Method:  "roofline", Basis: stat.Theoretical, Fits: a.Fits, Reasons: []string{},
		Params: Params(a.Model),
		FLOPs:  FLOPsKeys{float64(a.Prefill.FLOPs), float64(a.Decode.FLOPs)},
		Memory: MemoryKeys{
			Weights: int64(m.Weights), KVCache: int64(m.KVCache), Activations: int64(m.Activations), Reserve: int64(m.Reserve), Total: int64(m.Total()),
			Device: int64(m.Device), Usable: int64(m.Usable), KVPerToken: int64(m.KVPerToken), MaxBatch: a.MaxBatch, MaxTokens: a.MaxTokens,
		},
		Latency: LatencyKeys{
			TTFT: a.TTFT.Milliseconds(), E2E: a.E2E.Milliseconds(),
			Prefill: byOp(a.Prefill.Ops), Decode: byOp(a.Decode.Ops),
		},
		Ops:        append(opKeys("prefill", a.Prefill.Ops, a.Settings), opKeys("decode", a.Decode.Ops, a.Settings)...),
		Settings:   &a.Settings,
		SmallestTP: a.SmallestTP,
		Warnings:   a.Warnings,
	}
	for _, reason := range a.Reasons {
		d.Reasons = append(d.Reasons, reason.Code)
		d.Messages = append(d.Messages, reason.Message)
	}
	devices := float64(a.Config.TensorParallel * a.Config.PipelineParallel)
	d.Rates = &RateKeys{
		PrefillTokens: a.PrefillTokensPerSecond, Requests: a.RequestsPerSecond,
		OutputPerGPU: a.RequestsPerSecond * float64(r.Output) / devices,
		TotalPerGPU:  a.RequestsPerSecond * float64(r.Input+r.Output) / devices,
		PrefillMFU:   a.Prefill.MFU, PrefillMBU: a.Prefill.MBU, PrefillBubble: a.Prefill.Bubble,
	}
	if a.PipelinedTokensPerSecond > 0 {
		d.Rates.PipelinedTokens = &a.PipelinedTokensPerSecond
	}
	if a.TPOT > 0 {
		ms := func(s unit.Seconds) *float64 { v := s.Milliseconds(); return &v }
		d.Latency.TPOT, d.Latency.FirstTPOT, d.Latency.LastTPOT = ms(a.TPOT), ms(a.FirstTPOT), ms(a.LastTPOT)
		d.Rates.DecodeTokens = &a.DecodeTokensPerSecond
		d.Rates.DecodeMFU, d.Rates.DecodeMBU = &a.Decode.MFU, &a.Decode.MBU
	}
	return d
}

// Params counts the parameters of a model for a document.
func Params(m *catalog.Model) ParamsKeys {
	p := m.Params()
	kinds := m.Layers(0, m.NumLayers)
	most := kinds[0]
	for _, k := range kinds {
		if k.Count > most.Count {
			most = k
		}
	}
	one := m.LayerParams(most)
	return ParamsKeys{
		Total: p.Total, Active: p.Active, Embedding: p.Embedding, Head: p.Head,
		PerLayer: map[string]int64{"attention": one.Attention, "ffn": one.FFN, "norms": one.Norms, "total": one.Total()},
	}
}

// byOp sums milliseconds by operator name.
func byOp(ops []cost.Op) map[string]float64 {
	sums := map[string]float64{}
	for _, op := range ops {
		sums[op.Name] += float64(op.Count) * op.Time.Milliseconds()
	}
	return sums
}

func opKeys(stage string, ops []cost.Op, s cost.Settings) []OpKeys {
	keys := make([]OpKeys, 0, len(ops))
	for _, op := range ops {
		n := float64(op.Count)
		keys = append(keys, OpKeys{
			Stage: stage, Name: op.Name, Count: op.Count,
			FLOPs: n * float64(op.FLOPs), Bytes: n * float64(op.Bytes), Message: n * float64(op.Message),
			Time: n * op.Time.Milliseconds(), Compute: n * op.Compute.Milliseconds(), Memory: n * op.Memory.Milliseconds(),
			Network: n * op.Network.Milliseconds(), Launch: n * op.Launch.Milliseconds(),
			Bound: string(op.Bound), Intensity: op.Intensity(),
			MFU: float64(op.Compute/op.Time) * s.EffCompute, MBU: float64(op.Memory/op.Time) * s.EffHBM,
		})
	}
	return keys
}

// ResultsDocument holds several results of one kind.
type ResultsDocument[T any] struct {
	Head
	Results []T `json:"results"`
}

// Results wraps several results into one document of the given kind.
func Results[T any](kind, tool string, results []T) ResultsDocument[T] {
	return ResultsDocument[T]{NewHead(kind, tool), results}
}

// EngineKV is the KV cache that a release of an engine would have of a
// deployment, computed as the engine does.
type EngineKV struct {
	Engine  string `json:"engine"`
	Release string `json:"engine_version"`
	// Tokens is the capacity, StepTokens the most tokens of a step, beside whose
	// activations it lies.
	Tokens     int64 `json:"tokens"`
	StepTokens int   `json:"max_num_batched_tokens"`
	// Utilization is the share of the device's memory that the engine takes, 0..1.
	Utilization float64 `json:"gpu_memory_utilization"`
	Basis       string  `json:"basis"`
}
