package cost

import (
	"math"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/unit"
)

// Bound names what limits an operator.
type Bound string

// The bounds.
const (
	BoundCompute Bound = "compute"
	BoundMemory  Bound = "memory"
	BoundNetwork Bound = "network"
	BoundLaunch  Bound = "launch"
)

// Op is one operator of a pass on one rank. All amounts are those of one
// occurrence; Count says how often it occurs in the pass.
type Op struct {
	// Name is the operator's usual name: "qkv_proj", "attention", …
	Name string
	// Count is the number of occurrences, e.g. layers.
	Count int
	// FLOPs is the matrix work, a multiply-add counting two.
	FLOPs unit.FLOPs
	// VectorFLOPs is elementwise work, which is charged by its bytes only.
	VectorFLOPs unit.FLOPs
	// Bytes is the traffic to and from device memory.
	Bytes unit.Bytes
	// Message is what a collective sends or sums, in bytes.
	Message unit.Bytes
	// Compute and Memory are the two sides of the roofline, Network the time
	// on the link that is not hidden, Launch the kernels' fixed cost.
	Compute, Memory, Network, Launch unit.Seconds
	// Time is max(Compute, Memory) + Network + Launch.
	Time unit.Seconds
	// Bound is the largest of the four.
	Bound Bound
}

// Intensity is the arithmetic intensity in FLOP/byte; 0 without traffic.
func (o Op) Intensity() float64 {
	if o.Bytes == 0 {
		return 0
	}
	return float64(o.FLOPs) / float64(o.Bytes)
}

// step sums the operators of one pass and, where asked, lists them.
type step struct {
	e *Estimator
	// list says that ops is wanted, not only total.
	list  bool
	ops   []Op
	total unit.Seconds
	// count applies to the operators that are added.
	count int
	// tokens is T, rows is R.
	tokens, rows float64
}

// work adds an operator of matrix and memory work.
func (s *step) work(name string, flops, vector, bytes, peak float64, kernels int) {
	compute := unit.Seconds(flops / peak)
	memory := unit.Seconds(bytes / s.e.bandwidth)
	launch := unit.Seconds(float64(kernels) * s.e.launch)
	time := max(compute, memory) + launch
	s.total += unit.Seconds(s.count) * time
	if !s.list {
		return
	}
	op := Op{
		Name: name, Count: s.count,
		FLOPs: unit.FLOPs(flops), VectorFLOPs: unit.FLOPs(vector), Bytes: unit.Bytes(math.Round(bytes)),
		Compute: compute, Memory: memory, Launch: launch, Time: time,
	}
	op.Bound = boundOf(op)
	s.ops = append(s.ops, op)
}

// network adds a collective that takes seconds on the link.
func (s *step) network(name string, message, seconds float64) {
	network := unit.Seconds(seconds * (1 - s.e.settings.Overlap))
	launch := unit.Seconds(s.e.launch)
	time := network + launch
	s.total += unit.Seconds(s.count) * time
	if !s.list {
		return
	}
	op := Op{Name: name, Count: s.count, Message: unit.Bytes(math.Round(message)), Network: network, Launch: launch, Time: time}
	op.Bound = boundOf(op)
	s.ops = append(s.ops, op)
}

// wait adds time in which no operator runs.
func (s *step) wait(name string, time unit.Seconds) {
	s.total += unit.Seconds(s.count) * time
	if s.list {
		s.ops = append(s.ops, Op{Name: name, Count: s.count, Launch: time, Time: time, Bound: BoundLaunch})
	}
}

func boundOf(op Op) Bound {
	bound, longest := BoundCompute, op.Compute
	if op.Memory >= longest {
		bound, longest = BoundMemory, op.Memory
	}
	if op.Network > longest {
		bound, longest = BoundNetwork, op.Network
	}
	if op.Launch > longest {
		bound = BoundLaunch
	}
	return bound
}

// matrix adds a linear layer over rows.
func (s *step) matrix(name string, l linear, rows float64) {
	s.work(name, 2*l.macs*rows, 0, l.weights+rows*(l.input*l.in+s.e.act*l.out), l.peak, 1)
}

// norm adds a norm over the hidden size; fused says that it also adds and
// stores the residual.
func (s *step) norm(name string, fused bool) {
	h := float64(s.e.model.HiddenSize)
	passes := 2.0
	if fused {
		passes = 4
	}
	s.work(name, 0, 4*s.tokens*h, passes*s.e.act*s.tokens*h, s.e.matrixPeak, 1)
}

// part is a stretch of a pass that runs on one pipeline stage, or the whole.
type part struct {
	// counts are the layers of each kind.
	counts []int
	// first and last say that embedding and head belong to it.
	first, last bool
	// nearSends and farSends are the transfers to the next stage.
	nearSends, farSends int
}

// run goes through the operators of a part of a pass in order of execution.
func (e *Estimator) run(p *forward.Pass, where *part, list bool) step {
	s := step{e: e, list: list, count: 1, tokens: float64(p.Tokens()), rows: float64(p.Rows())}
	hidden := e.act * s.tokens * float64(e.model.HiddenSize)
	if where.first {
		s.work("embedding", 0, 0, 2*hidden, e.matrixPeak, 1)
		if e.tp > 1 {
			s.network("embedding_all_reduce", hidden, e.net.allReduce(hidden, e.tp))
		}
	}
	for i := range e.layers {
		if s.count = where.counts[i]; s.count > 0 {
			s.layer(&e.layers[i], p)
		}
	}
	if s.count = where.nearSends; s.count > 0 {
		s.network("pipeline_send", hidden, e.net.send(hidden, false))
	}
	if s.count = where.farSends; s.count > 0 {
		s.network("pipeline_send_inter_node", hidden, e.net.send(hidden, true))
	}
	s.count = 1
	if where.last {
		s.head()
	}
	if overhead := e.settings.StepOverhead; where.last && overhead > 0 {
		s.wait("step_overhead", overhead)
	}
	return s
}

// head adds the final norm and the projection on the vocabulary.
func (s *step) head() {
	e := s.e
	s.norm("final_norm", true)
	if s.rows == 0 {
		return
	}
	s.matrix("lm_head", e.embed.head, s.rows)
	if e.tp > 1 {
		logits := e.act * s.rows * e.embed.vocab
		s.network("logits_all_gather", logits, e.net.allGather(logits, e.tp))
	}
}

// layer adds the operators of one kind of layer.
func (s *step) layer(l *layer, p *forward.Pass) {
	e := s.e
	s.norm("attention_norm", true)
	switch {
	case l.linearAttn:
		s.linearAttention(l, p)
	case l.mla:
		s.latentAttention(l, p)
	default:
		s.groupedAttention(l, p)
	}
	s.matrix("o_proj", l.out, s.tokens)
	hidden := e.act * s.tokens * float64(e.model.HiddenSize)
	if e.tp > 1 {
		s.network("attention_all_reduce", hidden, e.net.allReduce(hidden, e.tp))
	}
	if l.postNorms > 0 {
		s.norm("attention_post_norm", false)
	}
	s.norm("ffn_norm", true)
	if l.moe {
		s.experts(l)
	} else {
		s.dense(l)
		if e.tp > 1 {
			s.network("ffn_all_reduce", hidden, e.net.allReduce(hidden, e.tp))
		}
	}
	if l.postNorms > 1 {
		s.norm("ffn_post_norm", false)
	}
}

func (s *step) groupedAttention(l *layer, p *forward.Pass) {
	e, t := s.e, s.tokens
	s.matrix("qkv_proj", l.qkv, t)
	kvRow := 2 * l.kvHeads * l.headDim * e.kv
	s.work("rope_kv_write", 0, 6*t*(l.heads+l.kvHeads)*l.headDim, t*kvRow, e.matrixPeak, 1)
	sp := spanOf(p, l.attention, l.window, e.settings.SharedPrefix)
	width := l.heads * l.headDim
	flops := 4 * width * (sp.prefillPairs + sp.decodePairs)
	bytes := 2*e.act*t*width + kvRow*(sp.prefillKV*e.settings.KVReread+sp.decodeKV)
	if e.settings.NaiveAttention {
		bytes += 4 * e.act * l.heads * sp.scores
	}
	s.work("attention", flops, 5*l.heads*(sp.prefillPairs+sp.decodePairs), bytes, e.matrixPeak, 1)
}

// latentAttention expands keys and values for prompts and absorbs the
// expansion into query and output for decoding.
func (s *step) latentAttention(l *layer, p *forward.Pass) {
	e, t := s.e, s.tokens
	if l.queryA.macs > 0 {
		s.matrix("q_a_proj", l.queryA, t)
	}
	s.matrix("q_b_proj", l.queryB, t)
	s.matrix("kv_a_proj", l.kvA, t)
	s.matrix("kv_b_proj", l.kvB, t)
	row := l.latent * e.kv
	s.work("rope_kv_write", 0, 6*t*(l.heads+1)*l.rope, t*row, e.matrixPeak, 1)
	sp := spanOf(p, l.attention, l.window, e.settings.SharedPrefix)
	decode := float64(p.Decode.Count)
	prefill := t - decode
	expanded := l.nope + l.rope + l.value
	flops := 2 * l.heads * (expanded*sp.prefillPairs +
		l.rank*(l.nope+l.value)*sp.prefillContext +
		(2*l.rank+l.rope)*sp.decodePairs)
	bytes := e.act*l.heads*prefill*expanded +
		e.act*l.heads*decode*(l.latent+l.rank) +
		row*(sp.prefillContext+sp.decodeKV) +
		e.act*l.heads*expanded*sp.prefillKV*e.settings.KVReread
	if e.settings.NaiveAttention {
		bytes += 4 * e.act * l.heads * sp.scores
	}
	s.work("attention", flops, 5*l.heads*(sp.prefillPairs+sp.decodePairs), bytes, e.matrixPeak, 1)
}

// linearAttention reads and writes one state per sequence instead of a cache.
func (s *step) linearAttention(l *layer, p *forward.Pass) {
	e, t := s.e, s.tokens
	sequences := float64(p.Decode.Count)
	for i := range p.Prefill {
		sequences += float64(p.Prefill[i].Count)
	}
	s.matrix("linear_attention_in_proj", l.linearIn, t)
	bytes := 2*sequences*(l.state+l.convState) + e.act*t*(l.linearIn.out+l.out.in)
	s.work("linear_attention", 2*t*l.stateMACs, 0, bytes, e.matrixPeak, 2)
}

func (s *step) dense(l *layer) {
	s.matrix("gate_up_proj", l.gateUp, s.tokens)
	s.activation("activation", s.tokens, l.ffnWidth, l.gated)
	s.matrix("down_proj", l.down, s.tokens)
}

// activation adds the elementwise function between the matrices of a block
// of the given width.
func (s *step) activation(name string, rows, width float64, gated bool) {
	columns := 2.0
	if gated {
		columns = 3
	}
	s.work(name, 0, 4*rows*width, s.e.act*rows*columns*width, s.e.matrixPeak, 1)
}

// distinctExperts is the expected number of experts of one layer that tokens
// visit under uniform routing: E·(1−(1−K/E)^T).
func distinctExperts(experts, perToken, tokens float64) float64 {
	if tokens <= 0 {
		return 0
	}
	return experts * -math.Expm1(tokens*math.Log1p(-perToken/experts))
}

// expertsRead is the expected number of distinct experts of one layer that
// tokens read, over all ranks.
func (e *Estimator) expertsRead(tokens float64) float64 {
	perToken := float64(e.model.MoE.ExpertsPerToken)
	effective := max(float64(e.model.MoE.NumExperts)*e.settings.ExpertSkew, perToken)
	return distinctExperts(effective, perToken, tokens)
}

// experts adds a mixture: router, permutation, experts, combination, the
// shared expert, and the messages of its layout.
func (s *step) experts(l *layer) {
	e, moe := s.e, s.e.model.MoE
	h := float64(e.model.HiddenSize)
	hidden := e.act * s.tokens * h
	number, perToken := float64(moe.NumExperts), float64(moe.ExpertsPerToken)
	s.matrix("router", l.router, s.tokens)
	s.work("topk", 0, 2*s.tokens*number, e.act*s.tokens*(number+2*perToken), e.matrixPeak, 1)

	// Tokens that meet in the layer, and rows and experts of the busiest rank.
	ep := float64(e.ep)
	gathered := s.tokens
	if e.ep > e.tp {
		gathered *= ep / float64(e.tp)
	}
	copies := perToken
	if e.settings.DispatchOnce {
		copies = ep * (1 - math.Pow(1-1/ep, perToken))
	}
	sent := s.tokens / float64(e.tp) * copies * h // numbers that each rank sends
	if e.ep > 1 {
		s.network("dispatch_all_to_all", sent*e.weights.ActivationBytes, e.net.allToAll(sent*e.weights.ActivationBytes, e.ep))
	}
	rows := gathered * perToken / ep
	if e.ep > 1 {
		rows = min(rows*e.settings.ExpertImbalance, gathered*perToken)
	}
	read := e.expertsRead(gathered) / ep
	s.work("permute", 0, 0, e.act*h*(rows/perToken+rows), e.matrixPeak, 1)
	s.grouped("experts_gate_up", l.expertGateUp, rows, read)
	s.activation("experts_activation", rows, l.expertWidth, l.gated)
	s.grouped("experts_down", l.expertDown, rows, read)
	s.work("combine", 0, 2*rows*h, e.act*h*(rows+rows/perToken), e.matrixPeak, 1)
	if l.shared {
		s.matrix("shared_gate_up_proj", l.gateUp, s.tokens)
		s.activation("shared_activation", s.tokens, l.ffnWidth, l.gated)
		s.matrix("shared_down_proj", l.down, s.tokens)
	}
	switch {
	case e.ep > 1:
		s.network("combine_all_to_all", sent*e.act, e.net.allToAll(sent*e.act, e.ep))
		if e.tp > 1 {
			s.network("ffn_all_gather", hidden, e.net.allGather(hidden, e.tp))
			if l.shared {
				s.network("shared_all_reduce", hidden, e.net.allReduce(hidden, e.tp))
			}
		}
	case e.tp > 1:
		s.network("ffn_all_reduce", hidden, e.net.allReduce(hidden, e.tp))
	}
}

// grouped adds one matrix of several experts: the weights of read experts,
// rows in all.
func (s *step) grouped(name string, one linear, rows, read float64) {
	s.work(name, 2*one.macs*rows, 0, one.weights*read+rows*(one.input*one.in+s.e.act*one.out), one.peak, 1)
}
