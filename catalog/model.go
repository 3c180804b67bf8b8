package catalog

import "slices"

// Model is the architecture of a decoder: everything that its FLOPs, bytes
// and parameters follow from. Sizes count elements, not bytes.
type Model struct {
	// Name is the canonical short name, e.g. "Qwen3-14B".
	Name string `json:"name" yaml:"name"`
	// HubID is the Hugging Face id, e.g. "Qwen/Qwen3-14B"; empty if none.
	HubID string `json:"hub_id,omitempty" yaml:"hub_id,omitempty"`
	// Aliases are further names under which the model is found.
	Aliases []string `json:"aliases,omitempty" yaml:"aliases,omitempty"`
	// Type is the model_type of config.json, e.g. "qwen3_moe".
	Type string `json:"type" yaml:"type"`

	NumLayers  int `json:"num_layers" yaml:"num_layers"`
	HiddenSize int `json:"hidden_size" yaml:"hidden_size"`
	NumHeads   int `json:"num_heads" yaml:"num_heads"`
	// NumKVHeads is the number of key/value heads; with MLA it has no meaning.
	NumKVHeads int `json:"num_kv_heads" yaml:"num_kv_heads"`
	// HeadDim is the size of one query, key and value head.
	HeadDim int `json:"head_dim" yaml:"head_dim"`
	// IntermediateSize is the width of a dense feed-forward block; 0 where
	// every layer is a mixture of experts.
	IntermediateSize int `json:"intermediate_size,omitempty" yaml:"intermediate_size,omitempty"`
	// PlainFFN marks a feed-forward block of two matrices (up, down) instead
	// of the gated three (gate, up, down).
	PlainFFN  bool `json:"plain_ffn,omitempty" yaml:"plain_ffn,omitempty"`
	VocabSize int  `json:"vocab_size" yaml:"vocab_size"`
	// MaxSeqLen is the longest sequence the model was made for, in tokens.
	MaxSeqLen int `json:"max_seq_len" yaml:"max_seq_len"`

	TieEmbeddings bool `json:"tie_embeddings,omitempty" yaml:"tie_embeddings,omitempty"`
	QKVBias       bool `json:"qkv_bias,omitempty" yaml:"qkv_bias,omitempty"`
	OBias         bool `json:"o_bias,omitempty" yaml:"o_bias,omitempty"`
	MLPBias       bool `json:"mlp_bias,omitempty" yaml:"mlp_bias,omitempty"`
	HeadBias      bool `json:"head_bias,omitempty" yaml:"head_bias,omitempty"`
	// QKNorm is "" (none), "head" (one weight vector of HeadDim each for q
	// and k) or "full" (over the whole projected width).
	QKNorm string `json:"qk_norm,omitempty" yaml:"qk_norm,omitempty"`
	// NormsPerLayer counts the norms over the hidden size in one layer: 2,
	// or 4 with post-norms (Gemma 2 and 3).
	NormsPerLayer int `json:"norms_per_layer,omitempty" yaml:"norms_per_layer,omitempty"`
	// NormBias marks LayerNorm with a bias instead of RMSNorm.
	NormBias bool `json:"norm_bias,omitempty" yaml:"norm_bias,omitempty"`
	// AttentionSinks marks one learned logit per head (gpt-oss).
	AttentionSinks bool `json:"attention_sinks,omitempty" yaml:"attention_sinks,omitempty"`
	// AttentionGate marks a query projection of twice the width whose second
	// half gates the attention's output (Qwen3-Next).
	AttentionGate bool `json:"attention_gate,omitempty" yaml:"attention_gate,omitempty"`

	// LayerPattern names the attention of the layers, repeated over them:
	// "full", "sliding", "chunked" or "linear". Empty means "full" throughout.
	LayerPattern []string `json:"layer_pattern,omitempty" yaml:"layer_pattern,omitempty"`
	// Window is the span of "sliding" and "chunked" layers in tokens.
	Window int `json:"window,omitempty" yaml:"window,omitempty"`

	MoE    *MoE             `json:"moe,omitempty" yaml:"moe,omitempty"`
	MLA    *MLA             `json:"mla,omitempty" yaml:"mla,omitempty"`
	Linear *LinearAttention `json:"linear_attention,omitempty" yaml:"linear_attention,omitempty"`

	// DType is the format of the published weights.
	DType DType `json:"dtype,omitempty" yaml:"dtype,omitempty"`
	// Quantization names the format of the published weights where it is not
	// plain: "fp8-block", "mxfp4", "awq", … as deploy.ParseWeightFormat reads
	// it.
	Quantization string `json:"quantization,omitempty" yaml:"quantization,omitempty"`

	// ParamsTotal is the number of parameters of the published checkpoint,
	// next-token-prediction extras and vision parts not counted; 0 where it
	// is not known. Where present it equals Params().Total.
	ParamsTotal int64 `json:"params_total,omitempty" yaml:"params_total,omitempty"`
	// Source says where the figures come from.
	Source string `json:"source" yaml:"source"`
	// Verified says that the figures were compared with that source.
	Verified bool `json:"verified" yaml:"verified"`
	// Note says what a reader must know: parts not counted, variants.
	Note string `json:"note,omitempty" yaml:"note,omitempty"`
}

// MoE describes the mixture-of-experts layers of a model.
type MoE struct {
	// NumExperts is the number of routed experts of one layer.
	NumExperts int `json:"num_experts" yaml:"num_experts"`
	// ExpertsPerToken is the number of routed experts a token visits.
	ExpertsPerToken int `json:"experts_per_token" yaml:"experts_per_token"`
	// IntermediateSize is the width of one routed expert.
	IntermediateSize int `json:"intermediate_size" yaml:"intermediate_size"`
	// SharedIntermediateSize is the joint width of the experts that every
	// token visits; 0 for none.
	SharedIntermediateSize int `json:"shared_intermediate_size,omitempty" yaml:"shared_intermediate_size,omitempty"`
	// SharedGate marks a learned gate (one weight vector) on the shared expert.
	SharedGate bool `json:"shared_gate,omitempty" yaml:"shared_gate,omitempty"`
	// RouterBias marks one bias per expert in the router: a linear bias, or
	// the selection correction of DeepSeek-V3.
	RouterBias bool `json:"router_bias,omitempty" yaml:"router_bias,omitempty"`
	// ExpertBias marks biases in the experts' matrices (gpt-oss).
	ExpertBias bool `json:"expert_bias,omitempty" yaml:"expert_bias,omitempty"`
	// DenseLayers is the number of leading layers with a dense block.
	DenseLayers int `json:"dense_layers,omitempty" yaml:"dense_layers,omitempty"`
	// Every is the distance between mixture layers: of the layers after the
	// dense ones, layer i (from 0) is a mixture if (i+1) mod Every is 0.
	// 0 and 1 mean all of them.
	Every int `json:"every,omitempty" yaml:"every,omitempty"`
}

// MLA describes multi-head latent attention (DeepSeek-V2 and later).
type MLA struct {
	// QLoraRank is the compressed query size; 0 without query compression.
	QLoraRank int `json:"q_lora_rank,omitempty" yaml:"q_lora_rank,omitempty"`
	// KVLoraRank is the compressed key/value size that is cached.
	KVLoraRank int `json:"kv_lora_rank" yaml:"kv_lora_rank"`
	// QKNopeHeadDim is the part of a query or key head without rotation.
	QKNopeHeadDim int `json:"qk_nope_head_dim" yaml:"qk_nope_head_dim"`
	// QKRopeHeadDim is the rotated part, cached once per token.
	QKRopeHeadDim int `json:"qk_rope_head_dim" yaml:"qk_rope_head_dim"`
	// VHeadDim is the size of a value head.
	VHeadDim int `json:"v_head_dim" yaml:"v_head_dim"`
}

// LinearAttention describes gated delta-rule layers (Qwen3-Next): their state
// has a fixed size, so they read and write no KV cache.
type LinearAttention struct {
	NumKeyHeads   int `json:"num_key_heads" yaml:"num_key_heads"`
	NumValueHeads int `json:"num_value_heads" yaml:"num_value_heads"`
	KeyHeadDim    int `json:"key_head_dim" yaml:"key_head_dim"`
	ValueHeadDim  int `json:"value_head_dim" yaml:"value_head_dim"`
	// ConvKernel is the length of the short convolution in tokens.
	ConvKernel int `json:"conv_kernel" yaml:"conv_kernel"`
}

// The attention kinds of [Model.LayerPattern] and [Layer].
const (
	FullAttention    = "full"
	SlidingAttention = "sliding"
	ChunkedAttention = "chunked"
	LinearAttn       = "linear"
)

// Layer is one kind of layer and how often it occurs.
type Layer struct {
	// Attention is one of the attention kinds.
	Attention string
	// MoE says that the feed-forward block is a mixture of experts.
	MoE bool
	// Count is the number of such layers in the model.
	Count int
}

// AttentionOf returns the attention kind of layer i, counted from 0.
func (m *Model) AttentionOf(i int) string {
	if len(m.LayerPattern) == 0 {
		return FullAttention
	}
	return m.LayerPattern[i%len(m.LayerPattern)]
}

// MoEAt reports whether layer i, counted from 0, is a mixture of experts.
func (m *Model) MoEAt(i int) bool {
	if m.MoE == nil || i < m.MoE.DenseLayers {
		return false
	}
	return m.MoE.Every < 2 || (i+1)%m.MoE.Every == 0
}

// Layers returns the distinct kinds of the layers first (inclusive) to last
// (exclusive), in order of first occurrence. Layers(0, NumLayers) is the
// whole model.
func (m *Model) Layers(first, last int) []Layer {
	var kinds []Layer
layers:
	for i := first; i < last; i++ {
		attention, moe := m.AttentionOf(i), m.MoEAt(i)
		for k := range kinds {
			if kinds[k].Attention == attention && kinds[k].MoE == moe {
				kinds[k].Count++
				continue layers
			}
		}
		kinds = append(kinds, Layer{Attention: attention, MoE: moe, Count: 1})
	}
	return kinds
}

// KVElements is how many numbers one layer of the given attention kind caches
// per token: keys and values of every KV head; with MLA the latent and the
// rotated key, once for all heads; none in a linear layer, whose state does not
// grow. Windows and chunks bound the tokens that stay cached, not this number.
func (m *Model) KVElements(attention string) int64 {
	switch {
	case attention == LinearAttn:
		return 0
	case m.MLA != nil:
		return int64(m.MLA.KVLoraRank) + int64(m.MLA.QKRopeHeadDim)
	}
	return 2 * int64(m.NumKVHeads) * int64(m.HeadDim)
}

// KVElementsPerToken is how many numbers all layers together cache for one
// token: the sum of [Model.KVElements] over the layers, to which linear ones
// add nothing. Times the width of a cached number it is the growth of the KV
// cache in bytes per token on one device while no window is full.
func (m *Model) KVElementsPerToken() int64 {
	var total int64
	for _, layer := range m.Layers(0, m.NumLayers) {
		total += int64(layer.Count) * m.KVElements(layer.Attention)
	}
	return total
}

// Clone returns a copy that shares nothing with m.
func (m *Model) Clone() *Model {
	c := *m
	c.Aliases, c.LayerPattern = slices.Clone(m.Aliases), slices.Clone(m.LayerPattern)
	if m.MoE != nil {
		part := *m.MoE
		c.MoE = &part
	}
	if m.MLA != nil {
		part := *m.MLA
		c.MLA = &part
	}
	if m.Linear != nil {
		part := *m.Linear
		c.Linear = &part
	}
	return &c
}

// Norms is the number of norms over the hidden size in one layer.
func (m *Model) Norms() int {
	if m.NormsPerLayer == 0 {
		return 2
	}
	return m.NormsPerLayer
}

// LayerParams counts the parameters of one layer.
type LayerParams struct {
	// Attention: projections, their biases, q/k norms and sinks.
	Attention int64
	// FFN: the dense block, or the experts with router and shared part.
	FFN int64
	// Experts is the part of FFN in routed experts; 0 in a dense layer.
	Experts int64
	// Router is the part of FFN in the router.
	Router int64
	// Norms: the norms over the hidden size.
	Norms int64
}

// Total is the sum of the parts.
func (p LayerParams) Total() int64 { return p.Attention + p.FFN + p.Norms }

// Params counts the parameters of a model.
type Params struct {
	// Total is every parameter; tied embeddings count once.
	Total int64
	// Active is what one token uses: routed experts count ExpertsPerToken
	// times instead of NumExperts times; all the rest, both embeddings
	// included, counts in full.
	Active int64
	// Embedding is the input embedding; Head the output projection, 0 when
	// tied; FinalNorm the norm before it.
	Embedding, Head, FinalNorm int64
}

// Params returns the parameter counts of a valid model. Formulas: GQA, MLA,
// gated delta-rule attention, gated and plain feed-forward blocks, mixtures of
// experts as published with each family; they reproduce the published
// checkpoint sizes to the last parameter.
func (m *Model) Params() Params {
	h, v := int64(m.HiddenSize), int64(m.VocabSize)
	p := Params{Embedding: v * h, FinalNorm: m.normParams()}
	if !m.TieEmbeddings {
		p.Head = v * h
	}
	if m.HeadBias {
		p.Head += v
	}
	p.Total = p.Embedding + p.Head + p.FinalNorm
	p.Active = p.Total
	for _, layer := range m.Layers(0, m.NumLayers) {
		one := m.LayerParams(layer)
		n := int64(layer.Count)
		p.Total += n * one.Total()
		active := one.Total()
		if layer.MoE {
			active += one.Experts/int64(m.MoE.NumExperts)*int64(m.MoE.ExpertsPerToken) - one.Experts
		}
		p.Active += n * active
	}
	return p
}

// LayerParams returns the parameter counts of one layer of the given kind.
func (m *Model) LayerParams(layer Layer) LayerParams {
	p := LayerParams{Norms: int64(m.Norms()) * m.normParams()}
	if layer.Attention == LinearAttn {
		p.Attention = m.linearParams()
	} else {
		p.Attention = m.attentionParams()
	}
	if !layer.MoE {
		p.FFN = m.denseParams(int64(m.IntermediateSize), m.MLPBias)
		return p
	}
	h, e := int64(m.HiddenSize), int64(m.MoE.NumExperts)
	p.Experts = e * m.denseParams(int64(m.MoE.IntermediateSize), m.MoE.ExpertBias)
	p.Router = h * e
	if m.MoE.RouterBias {
		p.Router += e
	}
	p.FFN = p.Experts + p.Router
	if shared := int64(m.MoE.SharedIntermediateSize); shared > 0 {
		p.FFN += m.denseParams(shared, false)
		if m.MoE.SharedGate {
			p.FFN += h
		}
	}
	return p
}

func (m *Model) normParams() int64 {
	if m.NormBias {
		return 2 * int64(m.HiddenSize)
	}
	return int64(m.HiddenSize)
}

func (m *Model) denseParams(width int64, bias bool) int64 {
	h := int64(m.HiddenSize)
	into := int64(2) // gate and up
	if m.PlainFFN {
		into = 1
	}
	p := (into + 1) * h * width
	if bias {
		p += into*width + h
	}
	return p
}

func (m *Model) attentionParams() int64 {
	h, n, k, d := int64(m.HiddenSize), int64(m.NumHeads), int64(m.NumKVHeads), int64(m.HeadDim)
	var p int64
	if a := m.MLA; a != nil {
		r, nope, rope, value := int64(a.KVLoraRank), int64(a.QKNopeHeadDim), int64(a.QKRopeHeadDim), int64(a.VHeadDim)
		if q := int64(a.QLoraRank); q > 0 {
			p += h*q + q + q*n*(nope+rope)
		} else {
			p += h * n * (nope + rope)
		}
		p += h*(r+rope) + r + r*n*(nope+value)
		p += n * value * h
	} else {
		p = 2 * h * d * (n + k)
		if m.AttentionGate {
			p += h * n * d
		}
		if m.QKVBias {
			p += (n + 2*k) * d
		}
	}
	if m.OBias {
		p += h
	}
	if m.AttentionSinks {
		p += n
	}
	switch m.QKNorm {
	case "head":
		p += 2 * d
	case "full":
		p += n*d + k*d
	}
	return p
}

func (m *Model) linearParams() int64 {
	a, h := m.Linear, int64(m.HiddenSize)
	key := int64(a.NumKeyHeads) * int64(a.KeyHeadDim)
	value := int64(a.NumValueHeads) * int64(a.ValueHeadDim)
	heads := int64(a.NumValueHeads)
	p := h * (2*key + 2*value)                 // q, k, v and output gate
	p += h * 2 * heads                         // beta and decay
	p += (2*key + value) * int64(a.ConvKernel) // short convolution
	p += 2*heads + int64(a.ValueHeadDim)       // decay base, step bias, norm
	return p + value*h                         // output
}
