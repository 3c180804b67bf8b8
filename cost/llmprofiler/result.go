package llmprofiler

import (
	"bytes"
	"encoding/json"
)

// The reasons for which a request does not fit, in the order of
// [Result.Reasons]. The tool stops at the first of the first three.
const (
	ReasonMaxSeqLen = "exceeds_max_seq_len"
	ReasonBatch     = "bs_gt_decode_max_bs"
	ReasonMemory    = "kv_and_act_do_not_fit"
	ReasonWeights   = "weights_do_not_fit"
)

// Stages holds one value for the prefill and one for a decode step.
type Stages[T any] struct {
	Prefill T `json:"prefill"`
	Decode  T `json:"decode"`
}

// Operators holds one value for each operator with a roofline.
type Operators[T any] struct {
	QKVOProj   T `json:"qkvo_proj"`
	AttnKernel T `json:"attn_kernel"`
	MLP        T `json:"mlp"`
	RMSNorm    T `json:"rmsnorm"`
}

// Roofline is both sides of an operator of one layer, in s.
type Roofline struct {
	// Compute and Memory are in seconds.
	Compute, Memory float64
}

// Time is the larger side, in s.
func (r Roofline) Time() float64 { return max(r.Compute, r.Memory) }

// Bound names the larger side, "compute" or "memory"; compute when equal.
func (r Roofline) Bound() string {
	if r.Memory > r.Compute {
		return "memory"
	}
	return "compute"
}

// MarshalJSON writes the pair [compute, memory].
func (r Roofline) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]float64{r.Compute, r.Memory})
}

// ParamsPerLayer counts parameters of one layer.
type ParamsPerLayer struct {
	QKVOProj int64 `json:"qkvo_proj"`
	MLP      int64 `json:"mlp"`
	RMSNorm  int64 `json:"rmsnorm"`
	Total    int64 `json:"total"`
}

// FLOPsPerLayer counts floating-point operations of one layer. RMSNorm is
// four times the norm's own count and Total holds two of these four, as the
// tool has it.
type FLOPsPerLayer struct {
	AttentionKernel     int64 `json:"attention_kernel"`
	QKVOProj            int64 `json:"qkvo_proj"`
	MLP                 int64 `json:"mlp"`
	RMSNorm             int64 `json:"rmsnorm"`
	PositionalEmbedding int64 `json:"positional_embedding"`
	InputEmbedding      int64 `json:"input_embedding"`
	Total               int64 `json:"total"`
}

// Memory is per GPU: bytes, except the two batch sizes (sequences) and the
// token count. A model larger than the GPU makes the counts negative.
type Memory struct {
	Weights             float64 `json:"weight_memory_per_gpu"`
	PrefillMaxBatch     int64   `json:"prefill_max_bs"`
	PrefillActivations  int64   `json:"prefill_act_per_gpu"`
	DecodeActivations   int64   `json:"decode_act_per_gpu"`
	KVCache             float64 `json:"kv_cache_memory_per_gpu"`
	Consumed            float64 `json:"consume_memory_per_gpu"`
	DecodeMaxBatch      float64 `json:"decode_max_bs"`
	MaxBatchTotalTokens int64   `json:"max_batch_total_tokens"`
}

// Latency is the printed breakdown of a step over all layers of a stage, in
// s. Step is the whole step: embedding and head are in it, but not in the
// terms.
type Latency struct {
	// The terms, in seconds.
	QKVOProj, AttnKernel, MLP, RMSNorm, TPComm, KVCacheRW float64
	// Step is in seconds.
	Step float64
}

// Result is the analysis of an [Input]. Its JSON form has the tool's keys in
// the tool's units (parameters, FLOPs, bytes, s), and beside them the
// configuration, "compat_version", "fits", "reasons" and "warnings". The last
// key of the two latency tables depends on the version.
type Result struct {
	// Input is what was analysed, defaults filled in.
	Input Input `json:"-"`
	// Fits is false where the tool stops with an assertion.
	Fits bool `json:"fits"`
	// Reasons are all that apply, Reason constants in their order.
	Reasons []string `json:"reasons"`
	// Warnings say what a reader must know about the figures.
	Warnings []string `json:"warnings"`

	// Bound names the limiting side of each operator.
	Bound          Stages[Operators[string]] `json:"bound"`
	ParamsPerLayer ParamsPerLayer            `json:"params_per_layer"`
	// ParamsEmbedding counts the input embedding; the output embedding is
	// printed with the same number but not counted in ParamsModel.
	ParamsEmbedding      int64         `json:"params_embedding"`
	ParamsModel          int64         `json:"params_model"`
	PrefillFLOPsPerLayer FLOPsPerLayer `json:"prefill_flops_per_layer"`
	DecodeFLOPsPerLayer  FLOPsPerLayer `json:"decode_flops_per_layer"`
	// PrefillFLOPs and DecodeFLOPs are of the whole model and batch.
	PrefillFLOPs int64  `json:"prefill_flops"`
	DecodeFLOPs  int64  `json:"decode_flops_per_step"`
	Memory       Memory `json:"memory"`
	// Latency is the breakdown of the two steps.
	Latency Stages[Latency] `json:"-"`
	// KVCacheLatency is the time to write the prompt's KV cache, in s.
	KVCacheLatency float64 `json:"-"`
	// InputEmbedding and OutputEmbedding are the parts of a step outside the
	// layers, in s.
	InputEmbedding  Stages[float64] `json:"input_embedding_latency"`
	OutputEmbedding Stages[float64] `json:"output_embedding_latency"`
	// TTFT is the time to the first token in s.
	TTFT float64 `json:"TTFT"`
	// TTOT is the tool's name for the time per output token, in s.
	TTOT float64 `json:"TTOT"`
	// Total is TTFT plus TTOT for every generated token, in s.
	Total float64 `json:"total_infer_latency"`
	// SeedTTOT and SeedTotal are what [Seed] gives for TTOT and Total, in s,
	// whichever version was asked for.
	SeedTTOT  float64 `json:"TTOT_seed_sample_version"`
	SeedTotal float64 `json:"total_infer_latency_seed_sample_version"`

	// Ops are both sides of the roofline of each operator of one layer.
	Ops Stages[Operators[Roofline]] `json:"-"`
}

// ReferenceError is the reason at which the tool itself stops; "" if it runs.
func (r Result) ReferenceError() string {
	if len(r.Reasons) == 0 || r.Reasons[0] == ReasonWeights {
		return ""
	}
	return r.Reasons[0]
}

// MarshalJSON writes one object, see [Result].
func (r Result) MarshalJSON() ([]byte, error) {
	type figures Result
	in := r.Input
	if r.Reasons == nil {
		r.Reasons = []string{}
	}
	if r.Warnings == nil {
		r.Warnings = []string{}
	}
	prefill, decode := r.latencyTables("TTFT", "TTOT")
	var stopped *string
	if reason := r.ReferenceError(); reason != "" {
		stopped = &reason
	}
	return json.Marshal(struct {
		Model         string  `json:"model"`
		GPU           string  `json:"gpu"`
		TP            int     `json:"tp"`
		PP            int     `json:"pp"`
		Batch         int     `json:"bs"`
		InputLen      int     `json:"seq"`
		OutputLen     int     `json:"gen"`
		BytesPerParam float64 `json:"bytes_per_param"`
		Version       Version `json:"compat_version"`
		Runs          bool    `json:"fits_reference_asserts"`
		Stopped       *string `json:"reference_error"`
		figures
		Prefill table `json:"prefill_latency"`
		Decode  table `json:"decode_latency"`
	}{
		in.Model.Name, in.GPU.Name, in.TP, in.PP, in.Batch, in.InputLen, in.OutputLen, in.BytesPerParam, in.Version,
		r.Fits, stopped, figures(r), prefill, decode,
	})
}

// latencyTables are the two breakdowns; first and each name the whole steps.
func (r Result) latencyTables(first, each string) (prefill, decode table) {
	terms := func(stage string, l Latency) table {
		return table{
			{stage + "_qkvo_proj", l.QKVOProj},
			{stage + "_attn_kernel", l.AttnKernel},
			{stage + "_mlp", l.MLP},
			{stage + "_rmsnorm", l.RMSNorm},
			{stage + "_tp_comm", l.TPComm},
			{stage + "_kv_cache_rw", l.KVCacheRW},
		}
	}
	prefill = append(terms("prefill", r.Latency.Prefill), entry{first, r.TTFT})
	decode = append(terms("decode", r.Latency.Decode), entry{"kv_cache_latency", r.KVCacheLatency}, entry{each, r.TTOT})
	return prefill, decode
}

// entry is a key with a number, a text or a [table].
type entry struct {
	key   string
	value any
}

// table is a dictionary that keeps its order.
type table []entry

// MarshalJSON writes an object with the keys in order.
func (t table) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, e := range t {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(e.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(e.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
