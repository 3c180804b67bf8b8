package llmprofiler

import "math/big"

// number lets the counting formulas run twice: in float64 to see whether
// everything fits, then in int64 to be exact.
type number interface{ int64 | float64 }

// shape is a model's sizes in the symbols of the formulas.
type shape[N number] struct {
	layers, h, n, k, d, width, vocab N
	experts, perToken                N
	moe, qkNorm                      bool
}

func shapeOf[N number](m Model) shape[N] {
	return shape[N]{
		layers: N(m.NumLayers), h: N(m.HiddenSize), n: N(m.NumHeads), k: N(m.NumKVHeads), d: N(m.HeadDim),
		width: N(m.IntermediateSize), vocab: N(m.VocabSize),
		experts: N(m.NumExperts), perToken: N(m.ExpertsPerToken),
		moe: m.NumExperts > 0, qkNorm: m.Type == "qwen3",
	}
}

// params counts the parameters of one layer and of the model.
type params[N number] struct{ attn, mlp, norm, layer, embed, model N }

func (s shape[N]) params() params[N] {
	p := params[N]{
		attn:  2 * s.h * s.d * (s.n + s.k),
		mlp:   3 * s.h * s.width,
		norm:  2 * s.h,
		embed: s.vocab * s.h,
	}
	if s.moe {
		p.mlp = s.h*s.experts + s.perToken*3*s.h*s.width
	}
	if s.qkNorm {
		p.norm += 2 * s.d
	}
	p.layer = p.attn + p.mlp + p.norm
	p.model = s.layers*p.layer + p.embed
	return p
}

// flops are those of one layer.
type flops[N number] struct{ attn, qkvo, mlp, norm, pos, layer N }

// flops counts for b sequences of t new tokens each; t = 1 is a decode step
// after g generated tokens.
func (s shape[N]) flops(b, t, g N) flops[N] {
	matmul := 2 * b * t * t * s.n * s.d
	if t == 1 {
		matmul = 2 * s.n * s.d * (1 + g)
	}
	f := flops[N]{
		attn: 2*matmul + 8*b*t*s.d + 3*b*t*s.n*s.d,
		qkvo: 4 * b * t * s.h * s.d * (s.n + s.k),
		mlp:  6 * b * t * s.h * s.width,
		norm: 4 * b * t * s.h,
		pos:  2 * b * t * s.h,
	}
	if s.moe {
		f.mlp = 2*b*t*s.h*s.experts + 6*s.perToken*b*t*s.h*s.width
	}
	f.layer = f.qkvo + f.mlp + f.attn + 2*f.norm + f.pos
	return f
}

// access is what an operator moves and the largest tensor that it touches,
// in bytes before division among the GPUs.
type access[N number] struct{ traffic, largest N }

// traffic is the access of one layer's operators and of its KV cache.
type traffic[N number] struct {
	qkvo, attn, mlp, norm access[N]
	kv                    N
}

func (s shape[N]) traffic(b, t, g N) traffic[N] {
	query, kvWidth := s.n*s.d, s.k*s.d
	mlp := [][2]N{{s.h, s.width}, {s.h, s.width}, {s.width, s.h}}
	if s.moe {
		mlp = append(mlp, [2]N{s.h, s.d})
	}
	return traffic[N]{
		qkvo: linear(b*t, [][2]N{{s.h, query}, {s.h, kvWidth}, {s.h, kvWidth}, {query, s.h}}),
		mlp:  linear(b*t, mlp),
		attn: s.attention(b, t, g),
		norm: access[N]{traffic: 2*s.h + 4*b*t*s.h, largest: 2 * max(2*s.h, 2*b*t*s.h)},
		kv:   s.kv(b, t, g),
	}
}

// linear adds up matrices of the given input and output widths for a number
// of rows.
func linear[N number](rows N, matrices [][2]N) access[N] {
	var a access[N]
	for _, m := range matrices {
		in, out := m[0], m[1]
		a.traffic += 2 * (in*out + (in+out)*rows)
		a.largest = max(a.largest, 2*max(in*out, in*rows, out*rows))
	}
	return a
}

func (s shape[N]) attention(b, t, g N) access[N] {
	context := t
	if t == 1 {
		context = 1 + g
	}
	query := b * s.n * t * s.d
	keys := b * s.k * context * s.d
	scores := b * s.n * context * context
	output := b * s.n * context * s.d
	a := access[N]{
		traffic: 2 * (query + 2*keys + 4*scores + output),
		largest: 2 * max(query, keys, scores, output),
	}
	if s.qkNorm {
		a.traffic += 4*s.d + 8*b*t*s.d
	}
	return a
}

// kv is the KV cache traffic of one layer in bytes.
func (s shape[N]) kv(b, t, g N) N {
	if t == 1 {
		return 4*s.k*s.d*b + 4*s.k*s.d*b*(1+g)
	}
	return 4 * s.k * s.d * b * t
}

// largest is the largest tensor of one sequence in bytes, the method's
// stand-in for activation memory.
func (s shape[N]) largest(t, g N) N {
	a := s.traffic(1, t, g)
	return max(a.qkvo.largest, a.attn.largest, a.mlp.largest, a.norm.largest)
}

// bound is not below any integer of the whole analysis, those of the graph
// included. All terms are positive, so the sum of the largest will do.
func (s shape[N]) bound(b, prompt, generated, tp N) N {
	var sum N
	for _, t := range []N{1, prompt} {
		a := s.traffic(b, t, generated)
		sum += s.layers*s.flops(b, t, generated).layer +
			a.qkvo.traffic + a.attn.traffic + a.mlp.traffic + a.norm.traffic + a.kv +
			6*b*t*s.h*tp + 2*b*t*s.h*s.vocab + b*s.largest(t, generated) +
			10*b*t*(s.experts+s.width+s.n*s.d)
	}
	whole := prompt + generated
	return sum + 4*s.params().model + s.params().norm*4 +
		4*s.layers*s.k*s.d*whole + 4*s.vocab*s.h +
		10*b*s.n*max(whole, s.d)*whole + 10*b*s.n*prompt*prompt + 4*s.n*s.d*whole
}

// quotient divides two integers with a single rounding, also beyond 2^53.
func quotient(a, b int64) float64 {
	const exact = 1 << 53
	if -exact <= a && a <= exact && -exact <= b && b <= exact {
		return float64(a) / float64(b)
	}
	q, _ := new(big.Rat).SetFrac64(a, b).Float64()
	return q
}
