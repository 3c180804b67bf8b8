package llmprofiler

import (
	"fmt"
	"math"
)

// Efficiencies that the tool applies whatever it is told.
const (
	computeEfficiency = 0.9
	hbmEfficiency     = 0.9
	linkEfficiency    = 0.75
)

// tokenShare is the part of the token capacity that the tool reports.
const tokenShare = 0.97

// rates are the speeds of one GPU.
type rates struct {
	compute float64 // FLOP/s
	hbm     float64 // bytes/s
	link    float64 // bytes/s
	latency float64 // s per message
}

func ratesOf(g GPU) rates {
	return rates{
		compute: g.FP16TFLOPS * computeEfficiency * 1e12,
		hbm:     g.HBMGBps * hbmEfficiency * 1e9,
		link:    g.IntraNodeGBps * linkEfficiency * 1e9,
		latency: g.MessageLatency,
	}
}

// analysis is a valid input in the types of the formulas.
type analysis struct {
	shape                       shape[int64]
	params                      params[int64]
	rates                       rates
	tp, batch, input, output    int64
	layers                      int64 // of one pipeline stage
	bytesPerParam, memory, left float64
}

// Analyze computes everything, also for a request that does not fit. The
// error is that of [Input.Validate].
func Analyze(in Input) (Result, error) {
	in = in.withDefaults()
	if err := in.Validate(); err != nil {
		return Result{}, err
	}
	a := newAnalysis(in)
	r := Result{Input: in, Warnings: warnings(in)}

	p := a.params
	r.ParamsPerLayer = ParamsPerLayer{QKVOProj: p.attn, MLP: p.mlp, RMSNorm: p.norm, Total: p.layer}
	r.ParamsEmbedding, r.ParamsModel = p.embed, p.model
	prefill := a.shape.flops(a.batch, a.input, a.output)
	decode := a.shape.flops(a.batch, 1, a.output)
	r.PrefillFLOPsPerLayer, r.DecodeFLOPsPerLayer = flopsRow(prefill), flopsRow(decode)
	r.PrefillFLOPs, r.DecodeFLOPs = a.shape.layers*prefill.layer, a.shape.layers*decode.layer

	var err error
	if r.Memory, err = a.memoryPerGPU(); err != nil {
		return Result{}, fmt.Errorf("analyze %s on %s with llm-profiler: %w", in.Model.Name, in.GPU.Name, err)
	}
	a.latencies(&r)
	r.Reasons = a.reasons(in.Model.MaxSeqLen, r.Memory)
	r.Fits = len(r.Reasons) == 0
	return r, nil
}

func newAnalysis(in Input) analysis {
	a := analysis{
		shape: shapeOf[int64](in.Model), rates: ratesOf(in.GPU),
		tp: int64(in.TP), batch: int64(in.Batch), input: int64(in.InputLen), output: int64(in.OutputLen),
		layers: int64(in.Model.NumLayers / in.PP), bytesPerParam: in.BytesPerParam, memory: in.GPU.MemoryGB * 1e9,
	}
	a.params = a.shape.params()
	a.left = a.memory - a.weights(a.bytesPerParam*float64(a.params.model))
	return a
}

// weights divides bytes of weights among the tensor parallel GPUs.
func (a analysis) weights(bytes float64) float64 { return bytes / float64(a.tp) }

func flopsRow(f flops[int64]) FLOPsPerLayer {
	return FLOPsPerLayer{
		AttentionKernel: f.attn, QKVOProj: f.qkvo, MLP: f.mlp, RMSNorm: 4 * f.norm,
		PositionalEmbedding: f.pos, Total: f.layer,
	}
}

func (a analysis) memoryPerGPU() (Memory, error) {
	prefillAct := a.shape.largest(a.input, a.output) / a.tp
	decodeAct := a.shape.largest(1, a.output) / a.tp
	if prefillAct == 0 || decodeAct == 0 {
		return Memory{}, fmt.Errorf("tensor parallel size %d exceeds the bytes of the largest tensor", a.tp)
	}
	length := a.input + a.output
	kvOne := quotient(4*a.shape.k*a.shape.d*length*a.layers, a.tp)
	m := Memory{
		Weights:            a.weights(a.bytesPerParam * float64(a.params.model)),
		PrefillActivations: a.batch * prefillAct,
		DecodeActivations:  a.batch * decodeAct,
		KVCache:            float64(a.batch) * kvOne,
		DecodeMaxBatch:     floorDiv(a.left, float64(decodeAct)+kvOne),
	}
	m.Consumed = m.Weights + float64(m.DecodeActivations) + m.KVCache
	prefillMax := a.left / float64(prefillAct)
	tokens := float64(m.DecodeMaxBatch*float64(length)) * tokenShare
	if math.Abs(prefillMax) > maxInteger || math.Abs(tokens) > maxInteger {
		return Memory{}, fmt.Errorf("memory for %g sequences: the counts exceed 64-bit integers", prefillMax)
	}
	m.PrefillMaxBatch, m.MaxBatchTotalTokens = int64(prefillMax), int64(tokens)
	return m, nil
}

// floorDiv is Python's // on floats for b > 0.
func floorDiv(a, b float64) float64 {
	mod := math.Mod(a, b)
	div := (a - mod) / b
	if mod < 0 {
		div--
	}
	if div == 0 {
		return 0
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor
}

func (a analysis) reasons(maxLen int, m Memory) []string {
	var reasons []string
	add := func(applies bool, reason string) {
		if applies {
			reasons = append(reasons, reason)
		}
	}
	add(a.input+a.output > int64(maxLen), ReasonMaxSeqLen)
	add(float64(a.batch) > m.DecodeMaxBatch, ReasonBatch)
	add(m.KVCache+float64(m.DecodeActivations) >= a.left, ReasonMemory)
	add(a.left < 0, ReasonWeights)
	return reasons
}

func warnings(in Input) []string {
	var out []string
	add := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	out = append(out, in.Model.Notes...)
	out = append(out, in.GPU.Notes...)
	if in.Model.NumLayers%in.PP != 0 {
		add("%d layers are not divisible by pipeline parallel size %d: %d layers per stage are counted",
			in.Model.NumLayers, in.PP, in.Model.NumLayers/in.PP)
	}
	if in.InputLen == 1 {
		add("a prompt of one token is priced as a decode step")
	}
	if in.Model.NumExperts > 0 && in.Version == Seed {
		add("version %s knew no mixture of experts: only its time per output token is applied", Seed)
	}
	return out
}

// step is the cost of one forward pass.
type step struct {
	ops         Operators[Roofline]
	comm, kv    float64 // s per layer
	embed, head float64 // s
	total       float64 // s
}

// step prices b sequences of t new tokens; a decode step (t = 1) attends to
// 1+g tokens.
func (a analysis) step(t, g int64) step {
	f, m := a.shape.flops(a.batch, t, g), a.shape.traffic(a.batch, t, g)
	s := step{
		ops: Operators[Roofline]{
			QKVOProj:   a.linear(f.qkvo, a.params.attn, m.qkvo.traffic),
			AttnKernel: a.roofline(quotient(f.attn, a.tp), quotient(m.attn.traffic, a.tp)),
			MLP:        a.linear(f.mlp, a.params.mlp, m.mlp.traffic),
			RMSNorm:    a.roofline(float64(f.norm), float64(4*a.params.norm+m.norm.traffic)),
		},
		comm: a.allReduce(t),
		kv:   quotient(m.kv, a.tp) / a.rates.hbm,
	}
	s.embed = float64(a.bytesPerParam*float64(a.params.embed))/a.rates.hbm + s.comm
	s.head = quotient(2*a.batch*t*a.shape.h*a.shape.vocab, a.tp) / a.rates.compute
	layer := s.ops.QKVOProj.Time() + s.ops.AttnKernel.Time() + s.ops.MLP.Time() + s.ops.RMSNorm.Time() + s.comm + s.kv
	s.total = float64(layer*float64(a.layers)) + s.embed + s.head
	return s
}

// linear prices matrices whose weights the method reads twice: once with the
// traffic and once at two further bytes per parameter byte.
func (a analysis) linear(flops, params, traffic int64) Roofline {
	weights := a.weights(2 * a.bytesPerParam * float64(params))
	return a.roofline(quotient(flops, a.tp), weights+quotient(traffic, a.tp))
}

func (a analysis) roofline(flops, bytes float64) Roofline {
	return Roofline{Compute: flops / a.rates.compute, Memory: bytes / a.rates.hbm}
}

// allReduce is the communication of one layer in s.
func (a analysis) allReduce(t int64) float64 {
	if a.tp == 1 {
		return 0
	}
	volume := quotient(6*a.batch*t*a.shape.h*(a.tp-1), a.tp)
	return max(float64(volume*a.bytesPerParam)/a.rates.link, a.rates.latency)
}

func (a analysis) latencies(r *Result) {
	prefill, decode := a.step(a.input, 0), a.step(1, a.output)
	kvLayer := quotient(a.shape.kv(a.batch, a.input, a.output), a.tp) / a.rates.hbm
	layers := float64(a.layers)

	r.KVCacheLatency = layers * kvLayer
	r.TTFT = prefill.total
	total := func(each float64) float64 { return r.TTFT + float64(float64(a.output)*each) }
	r.SeedTTOT = decode.total + kvLayer
	r.SeedTotal = total(r.SeedTTOT)
	r.TTOT, r.Total = r.SeedTTOT, r.SeedTotal
	if r.Input.Version == June2025 {
		r.TTOT = decode.total + float64(layers*kvLayer)
		r.Total = total(r.TTOT)
	}
	r.InputEmbedding = Stages[float64]{prefill.embed, decode.embed}
	r.OutputEmbedding = Stages[float64]{prefill.head, decode.head}
	r.Ops = Stages[Operators[Roofline]]{prefill.ops, decode.ops}
	r.Bound = Stages[Operators[string]]{bounds(prefill.ops), bounds(decode.ops)}
	r.Latency = Stages[Latency]{prefill.breakdown(layers, r.TTFT), decode.breakdown(layers, r.TTOT)}
}

func bounds(o Operators[Roofline]) Operators[string] {
	return Operators[string]{o.QKVOProj.Bound(), o.AttnKernel.Bound(), o.MLP.Bound(), o.RMSNorm.Bound()}
}

func (s step) breakdown(layers, whole float64) Latency {
	return Latency{
		QKVOProj:   s.ops.QKVOProj.Time() * layers,
		AttnKernel: s.ops.AttnKernel.Time() * layers,
		MLP:        s.ops.MLP.Time() * layers,
		RMSNorm:    s.ops.RMSNorm.Time() * layers,
		TPComm:     s.comm * layers,
		KVCacheRW:  s.kv * layers,
		Step:       whole,
	}
}
