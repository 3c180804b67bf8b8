package catalog

import (
	"errors"
	"fmt"
)

// Validate reports everything that makes the model unusable: missing or
// impossible sizes, and a checkpoint size that the formula does not give.
func (m *Model) Validate() error {
	var f faults
	f.sizes(m)
	f.attention(m)
	f.ffn(m)
	f.layerPattern(m)
	f.formats(m)
	if len(f) == 0 { // only then the counts fit their types
		f.params(m)
	}
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("model %s: %w", m.Name, errors.Join(f...))
}

// faults collects what is wrong with one entry.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// need asks for a size of at least 1.
func (f *faults) need(field string, value int) {
	if value < 1 || value > maxSize {
		f.add("%s is %d: want 1 to %d", field, value, maxSize)
	}
}

// optional asks for a size that may be 0.
func (f *faults) optional(field string, value int) {
	if value < 0 || value > maxSize {
		f.add("%s is %d: want 0 to %d", field, value, maxSize)
	}
}

// sizes checks what every decoder has.
func (f *faults) sizes(m *Model) {
	f.need("num_layers", m.NumLayers)
	if m.NumLayers > maxLayers {
		f.add("num_layers is %d: want at most %d", m.NumLayers, maxLayers)
	}
	f.need("hidden_size", m.HiddenSize)
	f.need("num_heads", m.NumHeads)
	f.need("vocab_size", m.VocabSize)
	f.need("max_seq_len", m.MaxSeqLen)
	f.optional("window", m.Window)
	if m.Norms() < 0 || m.Norms() > 8 {
		f.add("norms_per_layer is %d: want 1 to 8", m.NormsPerLayer)
	}
}

// attention checks the heads, the ranks of latent attention and the sizes of
// linear attention.
func (f *faults) attention(m *Model) {
	if a := m.MLA; a != nil {
		f.optional("mla.q_lora_rank", a.QLoraRank)
		f.need("mla.kv_lora_rank", a.KVLoraRank)
		f.need("mla.qk_nope_head_dim", a.QKNopeHeadDim)
		f.optional("mla.qk_rope_head_dim", a.QKRopeHeadDim)
		f.need("mla.v_head_dim", a.VHeadDim)
	} else {
		f.need("num_kv_heads", m.NumKVHeads)
		f.need("head_dim", m.HeadDim)
		if m.NumKVHeads > 0 && m.NumHeads%m.NumKVHeads != 0 {
			f.add("num_heads %d is not a multiple of num_kv_heads %d", m.NumHeads, m.NumKVHeads)
		}
	}
	if a := m.Linear; a != nil {
		f.need("linear_attention.num_key_heads", a.NumKeyHeads)
		f.need("linear_attention.num_value_heads", a.NumValueHeads)
		f.need("linear_attention.key_head_dim", a.KeyHeadDim)
		f.need("linear_attention.value_head_dim", a.ValueHeadDim)
		f.need("linear_attention.conv_kernel", a.ConvKernel)
	}
	switch m.QKNorm {
	case "", "head", "full":
	default:
		f.add("qk_norm is %q: want head or full", m.QKNorm)
	}
}

// ffn checks the dense block and the experts.
func (f *faults) ffn(m *Model) {
	f.optional("intermediate_size", m.IntermediateSize)
	if e := m.MoE; e != nil {
		f.need("moe.num_experts", e.NumExperts)
		f.need("moe.experts_per_token", e.ExpertsPerToken)
		f.need("moe.intermediate_size", e.IntermediateSize)
		f.optional("moe.shared_intermediate_size", e.SharedIntermediateSize)
		f.optional("moe.dense_layers", e.DenseLayers)
		f.optional("moe.every", e.Every)
		if e.ExpertsPerToken > e.NumExperts {
			f.add("moe.experts_per_token %d exceeds moe.num_experts %d", e.ExpertsPerToken, e.NumExperts)
		}
	}
	if m.MoE == nil || m.MoE.DenseLayers > 0 || m.MoE.Every > 1 { // some layer is dense
		f.need("intermediate_size", m.IntermediateSize)
	}
}

// layerPattern checks that every kind of attention has what it needs.
func (f *faults) layerPattern(m *Model) {
	for _, kind := range m.LayerPattern {
		switch kind {
		case FullAttention:
		case SlidingAttention, ChunkedAttention:
			if m.Window < 1 {
				f.add("layer_pattern has %q layers but window is %d", kind, m.Window)
			}
		case LinearAttn:
			if m.Linear == nil {
				f.add(`layer_pattern has "linear" layers but linear_attention is missing`)
			}
		default:
			f.add("layer_pattern: unknown attention kind %q", kind)
		}
	}
}

// formats checks the number format.
func (f *faults) formats(m *Model) {
	if m.DType != "" && m.DType.Bits() == 0 {
		f.add("unknown dtype %q", m.DType)
	}
}

// params holds the published size against the architecture's.
func (f *faults) params(m *Model) {
	switch {
	case m.ParamsTotal < 0:
		f.add("params_total is %d: want 0 or more", m.ParamsTotal)
	case m.sizeBound() > maxParams:
		f.add("the sizes give more than %g parameters", float64(maxParams))
	case m.ParamsTotal != 0:
		if got := m.Params().Total; got != m.ParamsTotal {
			f.add("params_total is %d but the architecture has %d parameters", m.ParamsTotal, got)
		}
	}
}

// sizeBound is at least the number of parameters, computed without overflow.
func (m *Model) sizeBound() float64 {
	h, layer := float64(m.HiddenSize), 0.0
	heads, dim, latent := float64(m.NumHeads+m.NumKVHeads), float64(m.HeadDim), 0.0
	if a := m.MLA; a != nil {
		latent = float64(a.QLoraRank) + float64(a.KVLoraRank) + float64(a.QKRopeHeadDim)
		dim = max(dim, float64(a.QKNopeHeadDim)+float64(a.QKRopeHeadDim)+float64(a.VHeadDim))
	}
	layer += 8 * (heads*dim + latent + 1) * (h + latent + 1)
	if a := m.Linear; a != nil {
		width := float64(a.NumKeyHeads)*float64(a.KeyHeadDim) + float64(a.NumValueHeads)*(float64(a.ValueHeadDim)+1)
		layer += 8 * width * (h + float64(a.ConvKernel))
	}
	layer += 4 * (float64(m.IntermediateSize) + 1) * (h + 1)
	if e := m.MoE; e != nil {
		layer += 4 * (float64(e.NumExperts)*(float64(e.IntermediateSize)+1) + float64(e.SharedIntermediateSize) + 1) * (h + 1)
	}
	layer += 2 * float64(m.Norms()) * h
	return float64(m.NumLayers)*layer + 2*(float64(m.VocabSize)+1)*(h+1)
}

// Bounds against broken files: every count then fits an int64, and no file
// asks for endless work.
const (
	maxSize   = 1 << 28
	maxLayers = 1 << 12
	maxParams = 1 << 60
)
