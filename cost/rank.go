package cost

import (
	"math"

	"github.com/llmprof/llmprof/catalog"
)

// linear is one matrix on one rank.
type linear struct {
	in, out float64 // elements of one input and one output row
	// macs is the number of multiply-adds per row.
	macs float64
	// weights is the storage that a pass reads, in bytes.
	weights float64
	// input is the storage of one input element in bytes.
	input float64
	peak  float64 // FLOP/s, efficiency applied
}

// layer is one kind of layer as one rank computes it.
type layer struct {
	attention string
	window    int

	// Grouped-query attention.
	qkv, out linear
	heads    float64 // query heads on the rank
	kvHeads  float64 // KV heads on the rank
	headDim  float64

	// Latent attention; mla is false elsewhere.
	mla              bool
	queryA, queryB   linear // queryB is the whole query map without compression
	kvA, kvB         linear
	latent           float64 // cached numbers per token
	rank, nope, rope float64
	value            float64

	// Linear attention.
	linearAttn       bool
	linearIn         linear
	state, convState float64 // bytes of state per sequence
	stateMACs        float64 // multiply-adds per token

	// Feed-forward.
	gateUp, down linear
	ffnWidth     float64 // columns of the activation on the rank
	gated        bool
	moe          bool
	router       linear
	expertGateUp linear // one routed expert
	expertDown   linear
	expertWidth  float64
	shared       bool
	postNorms    int // norms over the hidden size beyond the two of a layer
	smallWeights float64
}

// embedding is the input table and the output projection on one rank.
type embedding struct {
	tableBytes float64 // storage of the sharded table
	head       linear
	vocab      float64 // unpadded vocabulary
	shardVocab float64 // padded vocabulary of the rank
	normBytes  float64
	tied       bool
}

// quantised returns a matrix whose weights are stored in the deployment's
// weight format; in and out are the sizes on this rank.
func (e *Estimator) quantised(in, out float64, expert bool) linear {
	if e.weights.ExpertsOnly && !expert {
		return e.plain(in, out)
	}
	bits := e.weights.Bits
	if e.settings.Sparsity {
		bits = bits/2 + 1 // half the values, and two index bits for each kept one
	}
	return linear{
		in: in, out: out, macs: in * out,
		weights: in*out*bits/8 + out*float64(e.weights.RowScaleBytes),
		input:   e.weights.ActivationBytes,
		peak:    e.weightPeak,
	}
}

// plain returns a matrix whose weights keep the activation format.
func (e *Estimator) plain(in, out float64) linear {
	return linear{in: in, out: out, macs: in * out, weights: in * out * e.act, input: e.act, peak: e.matrixPeak}
}

// withBias adds n biases in the activation format to the weights read.
func (l linear) withBias(e *Estimator, n float64) linear {
	l.weights += n * e.act
	return l
}

// layerOf lays one kind of layer out on one rank.
func (e *Estimator) layerOf(kind catalog.Layer) layer {
	m, t := e.model, float64(e.tp)
	h := float64(m.HiddenSize)
	l := layer{attention: kind.Attention, window: m.Window, gated: !m.PlainFFN, postNorms: m.Norms() - 2}
	switch {
	case kind.Attention == catalog.LinearAttn:
		e.linearAttention(&l)
	case m.MLA != nil:
		e.latentAttention(&l)
	default:
		e.groupedAttention(&l)
	}
	one := m.LayerParams(kind)
	l.smallWeights = float64(one.Norms) * e.act
	if kind.Attention != catalog.LinearAttn {
		switch m.QKNorm {
		case "head":
			l.smallWeights += 2 * float64(m.HeadDim) * e.act
		case "full":
			l.smallWeights += float64(m.NumHeads+m.NumKVHeads) * float64(m.HeadDim) * e.act
		}
		if m.AttentionSinks {
			l.smallWeights += float64(m.NumHeads) / t * e.act
		}
	}
	into := 2.0
	if m.PlainFFN {
		into = 1
	}
	if !kind.MoE {
		width := math.Ceil(float64(m.IntermediateSize) / t)
		l.ffnWidth = width
		l.gateUp, l.down = e.quantised(h, into*width, false), e.quantised(width, h, false)
		if m.MLPBias {
			l.gateUp, l.down = l.gateUp.withBias(e, into*width), l.down.withBias(e, h)
		}
		return l
	}
	e.experts(&l, into)
	return l
}

func (e *Estimator) groupedAttention(l *layer) {
	m, t := e.model, float64(e.tp)
	h, d := float64(m.HiddenSize), float64(m.HeadDim)
	l.heads, l.kvHeads, l.headDim = float64(m.NumHeads)/t, max(float64(m.NumKVHeads)/t, 1), d
	columns := (l.heads + 2*l.kvHeads) * d
	if m.AttentionGate {
		columns += l.heads * d
	}
	l.qkv, l.out = e.quantised(h, columns, false), e.quantised(l.heads*d, h, false)
	if m.QKVBias {
		l.qkv = l.qkv.withBias(e, (l.heads+2*l.kvHeads)*d)
	}
	if m.OBias {
		l.out = l.out.withBias(e, h)
	}
}

func (e *Estimator) latentAttention(l *layer) {
	m, a := e.model, e.model.MLA
	h := float64(m.HiddenSize)
	l.mla, l.heads = true, float64(m.NumHeads)/float64(e.tp)
	l.rank, l.nope, l.rope, l.value = float64(a.KVLoraRank), float64(a.QKNopeHeadDim), float64(a.QKRopeHeadDim), float64(a.VHeadDim)
	l.latent = l.rank + l.rope
	query := l.heads * (l.nope + l.rope)
	if q := float64(a.QLoraRank); q > 0 {
		l.queryA = e.quantised(h, q, false).withBias(e, q) // the norm between
		l.queryB = e.quantised(q, query, false)
	} else {
		l.queryB = e.quantised(h, query, false)
	}
	l.kvA = e.quantised(h, l.latent, false).withBias(e, l.rank)
	l.kvB = e.quantised(l.rank, l.heads*(l.nope+l.value), false)
	l.out = e.quantised(l.heads*l.value, h, false)
	if m.OBias {
		l.out = l.out.withBias(e, h)
	}
}

func (e *Estimator) linearAttention(l *layer) {
	m, a, t := e.model, e.model.Linear, float64(e.tp)
	h := float64(m.HiddenSize)
	key := float64(a.NumKeyHeads*a.KeyHeadDim) / t
	value := float64(a.NumValueHeads*a.ValueHeadDim) / t
	heads := float64(a.NumValueHeads) / t
	conv := 2*key + value
	l.linearAttn = true
	l.linearIn = e.quantised(h, 2*key+2*value+2*heads, false).withBias(e, conv*float64(a.ConvKernel)+2*heads+float64(a.ValueHeadDim))
	l.out = e.quantised(value, h, false)
	// The state is one key × value matrix per value head, kept in fp32; a
	// token decays it, corrects it and reads it.
	l.state = heads * float64(a.KeyHeadDim) * float64(a.ValueHeadDim) * 4
	l.convState = conv * float64(a.ConvKernel-1) * e.act
	l.stateMACs = 3*heads*float64(a.KeyHeadDim)*float64(a.ValueHeadDim) + conv*float64(a.ConvKernel)
}

func (e *Estimator) experts(l *layer, into float64) {
	m, moe := e.model, e.model.MoE
	h := float64(m.HiddenSize)
	l.moe = true
	l.router = e.plain(h, float64(moe.NumExperts))
	if moe.RouterBias {
		l.router = l.router.withBias(e, float64(moe.NumExperts))
	}
	l.expertWidth = float64(moe.IntermediateSize)
	if e.ep == 1 {
		l.expertWidth = math.Ceil(l.expertWidth / float64(e.tp))
	}
	l.expertGateUp = e.quantised(h, into*l.expertWidth, true)
	l.expertDown = e.quantised(l.expertWidth, h, true)
	if moe.ExpertBias {
		l.expertGateUp = l.expertGateUp.withBias(e, into*l.expertWidth)
		l.expertDown = l.expertDown.withBias(e, h)
	}
	if moe.SharedIntermediateSize > 0 {
		l.shared = true
		l.ffnWidth = math.Ceil(float64(moe.SharedIntermediateSize) / float64(e.tp))
		l.gateUp, l.down = e.quantised(h, into*l.ffnWidth, false), e.quantised(l.ffnWidth, h, false)
		if moe.SharedGate {
			l.gateUp = l.gateUp.withBias(e, h)
		}
	}
}

func (e *Estimator) embeddingOf() embedding {
	m, t := e.model, e.tp
	h := float64(m.HiddenSize)
	padded := (m.VocabSize + 63) / 64 * 64
	padded = (padded + t - 1) / t * t
	shard := float64(padded / t)
	table, head := e.plain(h, shard), e.plain(h, shard)
	if e.config.QuantizeEmbeddings {
		table, head = e.quantised(h, shard, true), e.quantised(h, shard, true)
	}
	head.macs = h * float64(m.VocabSize) / float64(t) // padding is stored and not computed
	if m.HeadBias {
		head = head.withBias(e, shard)
	}
	norm := h * e.act
	if m.NormBias {
		norm *= 2
	}
	return embedding{
		tableBytes: table.weights, head: head, vocab: float64(m.VocabSize),
		shardVocab: shard, normBytes: norm, tied: m.TieEmbeddings,
	}
}
