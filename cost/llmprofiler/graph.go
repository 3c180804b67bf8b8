package llmprofiler

import (
	"fmt"
	"math"
)

// Node is one box of the tool's structure graph: one operator of one layer.
type Node struct {
	Name string `json:"-"`
	// FLOPs are per GPU, except those of attention.
	FLOPs int64 `json:"flops"`
	// MemoryAccess is the sum of the loads and stores below, in bytes.
	MemoryAccess int64 `json:"memory_access"`
	// Intensity is FLOPs per byte, decimals cut off.
	Intensity int64 `json:"arithmetic_intensity"`
	// AttainableFLOPS is the roofline at this intensity in FLOP/s.
	AttainableFLOPS float64 `json:"att_flops"`
	// Bound is "memory" or "compute".
	Bound string `json:"bound"`

	// The parts of the access in bytes.
	LoadWeight  int64 `json:"load_weight"`
	LoadAct     int64 `json:"load_act"`
	StoreAct    int64 `json:"store_act"`
	LoadKVCache int64 `json:"load_kv_cache"`
	StoreKV     int64 `json:"store_kv_cache"`
}

// Graph returns the nodes of the tool's structure graph for the two stages.
// Its decode context is prompt plus generation, unlike that of [Analyze].
// "qwen3_moe_norm", "embedding", "rope" and "lm_head" stand for every model.
// The error is that of [Input.Validate].
func Graph(in Input) (Stages[[]Node], error) {
	in = in.withDefaults()
	if err := in.Validate(); err != nil {
		return Stages[[]Node]{}, err
	}
	build := func(tokens int64) []Node {
		g := grapher{
			shape: shapeOf[int64](in.Model), rates: ratesOf(in.GPU),
			tp: int64(in.TP), batch: int64(in.Batch), tokens: tokens,
			prompt: int64(in.InputLen), context: int64(in.InputLen) + int64(in.OutputLen),
		}
		g.projections()
		g.attention(tokens != 1)
		g.rest()
		return g.nodes
	}
	return Stages[[]Node]{Prefill: build(int64(in.InputLen)), Decode: build(1)}, nil
}

type grapher struct {
	shape           shape[int64]
	rates           rates
	tp, batch       int64
	tokens          int64 // new tokens of a sequence
	prompt, context int64 // tokens of a sequence
	nodes           []Node
}

// whole adds a node that every GPU runs undivided.
func (g *grapher) whole(n Node) {
	n.MemoryAccess = n.LoadWeight + n.LoadAct + n.StoreAct + n.LoadKVCache + n.StoreKV
	intensity := 0.0
	if n.MemoryAccess > 0 {
		intensity = quotient(n.FLOPs, n.MemoryAccess)
	}
	n.Intensity = int64(math.Trunc(intensity))
	n.Bound, n.AttainableFLOPS = "compute", g.rates.compute
	if intensity < g.rates.compute/g.rates.hbm {
		n.Bound, n.AttainableFLOPS = "memory", intensity*g.rates.hbm
	}
	g.nodes = append(g.nodes, n)
}

// split adds a node divided among the GPUs and returns it.
func (g *grapher) split(n Node) Node {
	for _, part := range []*int64{&n.FLOPs, &n.LoadWeight, &n.LoadAct, &n.StoreAct, &n.LoadKVCache, &n.StoreKV} {
		*part /= g.tp
	}
	g.whole(n)
	return n
}

// linear adds a matrix of the given widths; a key or value projection stores
// its result as KV cache.
func (g *grapher) linear(name string, in, out int64, cached bool) Node {
	rows := g.batch * g.tokens
	n := Node{Name: name, FLOPs: 2 * rows * in * out, LoadWeight: 2 * in * out, LoadAct: 2 * in * rows}
	if cached {
		n.StoreKV = 2 * out * rows
	} else {
		n.StoreAct = 2 * out * rows
	}
	return g.split(n)
}

func (g *grapher) projections() {
	s := g.shape
	g.linear("q_proj", s.h, s.n*s.d, false)
	g.linear("k_proj", s.h, s.k*s.d, true)
	g.linear("v_proj", s.h, s.k*s.d, true)
	g.linear("out_proj", s.n*s.d, s.h, false)
	if !s.moe {
		g.linear("gate_proj", s.h, s.width, false)
		g.linear("up_proj", s.h, s.width, false)
		g.linear("down_proj", s.width, s.h, false)
		return
	}
	rows := g.batch * g.tokens
	g.linear("router_gate", s.h, s.experts, false)
	var expert Node
	for _, part := range []Node{
		g.linear("expert_gate_proj", s.h, s.width, false),
		g.linear("expert_up_proj", s.h, s.width, false),
		g.linear("expert_down_proj", s.width, s.h, false),
	} {
		expert.FLOPs += part.FLOPs
		expert.LoadWeight += part.LoadWeight
		expert.LoadAct += part.LoadAct
		expert.StoreAct += part.StoreAct
	}
	for i := range s.perToken {
		expert.Name = fmt.Sprintf("moe_mlp_%d", i)
		g.whole(expert)
	}
	logits := 2 * rows * s.experts
	g.split(Node{Name: "router_softmax", FLOPs: 5 * rows * s.experts, LoadAct: logits, StoreAct: logits})
	g.split(Node{Name: "router_top-k", FLOPs: rows * s.experts, LoadAct: logits, StoreAct: logits})
	g.split(Node{Name: "router_norm_topk_prob", FLOPs: rows * s.h, LoadAct: 2 * rows * s.h, StoreAct: 2 * rows * s.h})
}

// attention adds the unfused attention, which the tool does not divide.
func (g *grapher) attention(prefill bool) {
	s, b, p, c := g.shape, g.batch, g.prompt, g.context
	softmax := 5 * b * s.n * p * p
	if prefill {
		scores := b * s.n * p * p
		keys := b * s.k * p * s.d
		query := b * s.n * p * s.d
		g.whole(Node{Name: "qk_matmul", FLOPs: 2 * scores * s.d, LoadAct: 2 * (query + keys), StoreAct: 2 * scores})
		g.whole(Node{Name: "softmax", FLOPs: softmax, LoadAct: 2 * scores, StoreAct: 2 * scores})
		g.whole(Node{Name: "sv_matmul", FLOPs: 2 * scores * s.d, LoadAct: 2 * scores, StoreAct: 2 * query, LoadKVCache: keys})
		return
	}
	scores := b * s.n * c * c
	keys := b * s.k * c * s.d
	matmul := 2 * s.n * s.d * c
	g.whole(Node{Name: "qk_matmul", FLOPs: matmul, LoadAct: 2 * b * s.n * s.d, StoreAct: 2 * scores, LoadKVCache: 2 * keys})
	g.whole(Node{Name: "softmax", FLOPs: softmax, LoadAct: 2 * scores, StoreAct: 2 * scores})
	g.whole(Node{Name: "sv_matmul", FLOPs: matmul, LoadAct: 2 * scores, StoreAct: 2 * b * s.n * c * s.d, LoadKVCache: keys})
}

func (g *grapher) rest() {
	s, rows := g.shape, g.batch*g.tokens
	norm := func(name string, flops, width, rowBytes int64) {
		g.split(Node{Name: name, FLOPs: flops, LoadWeight: 2 * width, LoadAct: rowBytes, StoreAct: rowBytes})
	}
	if s.qkNorm || s.moe {
		norm("q_norm", 4*rows*s.d, s.d, 2*rows*s.d)
		norm("k_norm", 4*rows*s.d, s.d, 2*rows*s.d)
	}
	hidden := 2 * rows * s.h
	g.split(Node{Name: "embedding", LoadWeight: 2 * s.h * s.vocab / g.tp, LoadAct: 2 * rows, StoreAct: hidden})
	norm("input_layernorm", 4*rows*s.h, s.h, hidden)
	norm("post_attention_layernorm", 4*rows*s.h, s.h, hidden)
	norm("qwen3_moe_norm", 4*rows*s.h, s.h, hidden)
	gated := 4 * rows * s.width
	g.split(Node{Name: "mlp_silu_dot", FLOPs: gated, LoadAct: gated, StoreAct: gated})
	g.split(Node{Name: "attn_add", FLOPs: rows * s.h, LoadAct: 2 * hidden, StoreAct: hidden})
	g.split(Node{Name: "mlp_add", FLOPs: rows * s.h, LoadAct: 2 * hidden, StoreAct: hidden})
	rotated := 2 * rows * s.n * s.d
	g.split(Node{Name: "rope", FLOPs: rotated, LoadAct: rotated, StoreAct: rotated})
	g.split(Node{Name: "lm_head", LoadAct: 2 * rows, StoreAct: hidden})
}
