package cost

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/unit"
)

// Request is a batch of equal requests that start together.
type Request struct {
	// Batch is the number of requests (per data-parallel replica).
	Batch int
	// Input and Output are the prompt and generated tokens of each.
	Input, Output int
	// CachedPrefix is the number of prompt tokens found in the prefix cache;
	// whole blocks of it count, and at least one token is computed.
	CachedPrefix int
}

// Validate reports every fault of the request.
func (r Request) Validate() error {
	var faults []error
	within := func(name string, v, low int) {
		if v < low || v > 1<<30 {
			faults = append(faults, fmt.Errorf("%s is %d: want %d or more", name, v, low))
		}
	}
	within("batch size", r.Batch, 1)
	within("input length", r.Input, 1)
	within("output length", r.Output, 1)
	within("cached prefix", r.CachedPrefix, 0)
	if len(faults) == 0 && float64(r.Batch)*float64(r.Input) > 1<<40 {
		faults = append(faults, fmt.Errorf("batch size %d x input length %d is beyond 2^40 tokens", r.Batch, r.Input))
	}
	return errors.Join(faults...)
}

// The reasons for which a request does not fit.
const (
	ReasonWeights   = "weights_do_not_fit"
	ReasonMemory    = "kv_and_act_do_not_fit"
	ReasonBatch     = "bs_gt_max_batch"
	ReasonMaxSeqLen = "exceeds_max_seq_len"
)

// Reason says why a request does not fit.
type Reason struct {
	// Code is one of the Reason constants.
	Code string
	// Message says it in words, with by how much.
	Message string
}

// Stage is the work of a prefill or of a mean decode step.
type Stage struct {
	// Ops lists the operators per rank. With several passes their amounts
	// are sums (prefill) or means (decode) over them, per occurrence.
	Ops []Op
	// Time is the sum of the operators.
	Time unit.Seconds
	// FLOPs is the matrix work of the whole model, over all ranks.
	FLOPs unit.FLOPs
	// Passes is the number of forward passes behind the figures.
	Passes int
	// MFU and MBU are achieved over peak compute and bandwidth, 0..1, over
	// all devices of the replica. The peak is that of the format in which
	// each operator multiplies.
	MFU, MBU float64
	// Bubble is the share of the stages' time that they wait for each other,
	// 0..1; 0 without a pipeline.
	Bubble float64
}

// Analysis is the theoretical account of a request on a deployment.
type Analysis struct {
	Model    *catalog.Model
	Device   *catalog.Device
	Config   deploy.Config
	Settings Settings
	Request  Request

	Prefill Stage
	// Decode is the mean step; zero where the request generates one token.
	Decode Stage

	// TTFT is the time to the first token of the whole batch.
	TTFT unit.Seconds
	// TPOT is the mean time of a further token, FirstTPOT and LastTPOT those
	// of the first and last decode step; all 0 where Output is 1.
	TPOT, FirstTPOT, LastTPOT unit.Seconds
	// E2E is TTFT and all decode steps.
	E2E unit.Seconds

	// PrefillTokensPerSecond counts computed prompt tokens, the others
	// generated tokens and finished requests; per replica.
	PrefillTokensPerSecond, DecodeTokensPerSecond, RequestsPerSecond float64
	// PipelinedTokensPerSecond counts generated tokens with one batch in
	// flight for each pipeline stage; 0 without a pipeline.
	PipelinedTokensPerSecond float64

	Memory Memory
	// MaxBatch is the number of such requests that fit, MaxTokens the number
	// of cached tokens beside the activations of that batch.
	MaxBatch  int
	MaxTokens int64
	// Fits says that the request can run; Reasons say why not.
	Fits    bool
	Reasons []Reason
	// SmallestTP is the smallest tensor parallel size on which the request
	// fits; 0 if none was found or none is needed.
	SmallestTP int
	Warnings   []string
}

// Analyze accounts for a request on the estimator's deployment.
func (e *Estimator) Analyze(r Request) (*Analysis, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	passes, err := e.prefillPasses(r)
	if err != nil {
		return nil, err
	}
	a := &Analysis{
		Model: e.model, Device: e.device, Config: e.config, Settings: e.settings, Request: r,
		Warnings: append([]string(nil), e.warnings...),
	}
	whole, err := e.unsharded()
	if err != nil {
		return nil, err
	}
	a.Prefill = e.prefillStage(passes, whole)
	a.TTFT = a.Prefill.Time
	e.decode(a, whole)
	a.E2E = a.TTFT + unit.Seconds(r.Output-1)*a.TPOT
	a.PrefillTokensPerSecond = float64(r.Batch) * float64(r.Input-e.cached(r)) / float64(a.TTFT)
	if a.TPOT > 0 {
		a.DecodeTokensPerSecond = float64(r.Batch) / float64(a.TPOT)
	}
	a.RequestsPerSecond = float64(r.Batch) / float64(a.E2E)
	a.Memory = e.Memory(r.Batch, r.Input+r.Output, e.stepTokens(r, r.Batch))
	a.MaxBatch, a.MaxTokens = e.Capacity(r.Input+r.Output, func(batch int) int { return e.stepTokens(r, batch) })
	e.judge(a)
	return a, nil
}

// stepTokens is the largest number of tokens that a prefill of batch such
// requests computes in one pass.
func (e *Estimator) stepTokens(r Request, batch int) int {
	tokens := batch * (r.Input - e.cached(r))
	if budget := e.config.MaxNumBatchedTokens; budget > 0 {
		return max(min(tokens, budget), min(batch, budget))
	}
	return tokens
}

// cached is the number of prompt tokens that a prefix cache saves: whole
// blocks, and never the last token.
func (e *Estimator) cached(r Request) int {
	block := e.config.BlockSize
	return min(r.CachedPrefix/block*block, (r.Input-1)/block*block)
}

// maxPasses bounds the chunks of one prefill.
const maxPasses = 1 << 16

// prefillPasses cuts the prompts of the batch into steps of at most
// MaxNumBatchedTokens, prompt after prompt, as a chunked scheduler does.
func (e *Estimator) prefillPasses(r Request) ([]forward.Pass, error) {
	context := e.cached(r)
	todo := r.Input - context
	budget := e.config.MaxNumBatchedTokens
	if budget == 0 || r.Batch*todo <= budget {
		return []forward.Pass{forward.Prefill(r.Batch, todo, context)}, nil
	}
	if steps := (r.Batch*todo + budget - 1) / budget; steps > maxPasses {
		return nil, fmt.Errorf("a prefill of %d x %d tokens takes %d steps of %d tokens: at most %d steps are computed; raise max num batched tokens", r.Batch, todo, steps, budget, maxPasses)
	}
	var passes []forward.Pass
	var now forward.Pass
	left := budget
	flush := func() {
		passes = append(passes, now)
		now, left = forward.Pass{}, budget
	}
	for prompts := r.Batch; prompts > 0; {
		if whole := min(prompts, left/todo); whole > 0 {
			now.Prefill = append(now.Prefill, forward.Chunk{Count: whole, New: todo, Context: context, Last: true})
			prompts -= whole
			left -= whole * todo
		} else {
			for done := 0; done < todo; {
				n := min(left, todo-done)
				now.Prefill = append(now.Prefill, forward.Chunk{Count: 1, New: n, Context: context + done, Last: done+n == todo})
				done += n
				if left -= n; left == 0 {
					flush()
				}
			}
			prompts--
		}
		if left == 0 {
			flush()
		}
	}
	if len(now.Prefill) > 0 {
		flush()
	}
	return passes, nil
}

// unsharded is the same model on one rank: its FLOPs are those of the model,
// without what ranks compute twice.
func (e *Estimator) unsharded() (*Estimator, error) {
	c := e.config
	c.TensorParallel, c.PipelineParallel, c.DataParallel, c.ExpertParallel, c.PipelineLayers = 1, 1, 1, 1, nil
	return New(e.model, e.device, c, e.settings)
}

func (e *Estimator) flops(p forward.Pass) unit.FLOPs {
	var sum unit.FLOPs
	for _, op := range e.Ops(p) {
		sum += unit.FLOPs(op.Count) * op.FLOPs
	}
	return sum
}

// prefillStage sums the prompt passes, or times one of them through a
// pipeline of micro-batches.
func (e *Estimator) prefillStage(passes []forward.Pass, whole *Estimator) Stage {
	s := Stage{Passes: len(passes)}
	for _, p := range passes {
		s.FLOPs += whole.flops(p)
	}
	parts := 1
	if e.pp > 1 && len(passes) == 1 {
		// Parts of equal size: as many as their size asks for.
		count := passes[0].Prefill[0].Count
		size := (count + e.settings.MicroBatches - 1) / e.settings.MicroBatches
		parts = (count + size - 1) / size
		passes[0].Prefill[0].Count = size
	}
	sum := newSum()
	for _, p := range passes {
		sum.add(e.Ops(p), 1)
	}
	work := slices.Clone(sum.ops)
	if parts > 1 {
		// The other parts follow at the pace of the slowest stage.
		sum.add(e.slowestStage(&passes[0]).ops, float64(parts-1))
	}
	s.Ops = sum.ops
	e.finish(&s, work, parts)
	return s
}

// slowestStage runs a pass on the stage that takes longest for it.
func (e *Estimator) slowestStage(p *forward.Pass) step {
	var slowest step
	for i := range e.stages {
		if one := e.run(p, &e.stages[i], true); one.total > slowest.total {
			slowest = one
		}
	}
	return slowest
}

// decode fills in the decode steps of a: exact for outputs up to 512, else
// integrated between context lengths.
func (e *Estimator) decode(a *Analysis, whole *Estimator) {
	r := a.Request
	steps := r.Output - 1
	if steps < 1 {
		return
	}
	step := func(j int) forward.Pass { return forward.Decode(r.Batch, r.Input+j-1) }
	sum := newSum()
	var flops unit.FLOPs
	for j, weight := range sampleSteps(steps) {
		p := step(j)
		sum.add(e.Ops(p), weight/float64(steps))
		flops += unit.FLOPs(weight) * whole.flops(p)
	}
	a.Decode = Stage{Ops: sum.ops, FLOPs: flops / unit.FLOPs(steps), Passes: steps}
	e.finish(&a.Decode, sum.ops, 1)
	a.TPOT = a.Decode.Time
	if e.pp > 1 {
		middle := step((steps + 1) / 2)
		a.PipelinedTokensPerSecond = float64(r.Batch) / float64(e.slowestStage(&middle).total)
	}
	a.FirstTPOT, a.LastTPOT = e.Seconds(step(1)), e.Seconds(step(steps))
}

// sampleSteps yields decode steps 1..n with weights that sum to n: each step
// where n is at most 512, else 129 steps by the trapezoid rule. Step times
// are piecewise linear in the context, so its error lies in the few pieces
// with a kink: below 1e-4 of the mean.
func sampleSteps(n int) func(func(int, float64) bool) {
	const exact, intervals = 512, 128
	return func(yield func(int, float64) bool) {
		if n <= exact {
			for j := 1; j <= n; j++ {
				if !yield(j, 1) {
					return
				}
			}
			return
		}
		at := func(i int) int { return 1 + int(math.Round(float64(i)*float64(n-1)/intervals)) }
		scale := float64(n) / float64(n-1)
		for i := 0; i <= intervals; i++ {
			var width float64
			if i > 0 {
				width += float64(at(i)-at(i-1)) / 2
			}
			if i < intervals {
				width += float64(at(i+1)-at(i)) / 2
			}
			if !yield(at(i), width*scale) {
				return
			}
		}
	}
}

// opSum adds the operators of several passes of the same estimator by name
// and position.
type opSum struct {
	ops   []Op
	bytes []float64
}

func newSum() *opSum { return &opSum{} }

// add adds weight times the operators of one pass. Passes without logits have
// no lm_head: their operators are matched by name and count.
func (s *opSum) add(ops []Op, weight float64) {
	at := 0
	for _, op := range ops {
		i := s.find(op, at)
		at = i + 1
		into := &s.ops[i]
		into.FLOPs += unit.FLOPs(weight) * op.FLOPs
		into.VectorFLOPs += unit.FLOPs(weight) * op.VectorFLOPs
		into.Compute += unit.Seconds(weight) * op.Compute
		into.Memory += unit.Seconds(weight) * op.Memory
		into.Network += unit.Seconds(weight) * op.Network
		into.Launch += unit.Seconds(weight) * op.Launch
		into.Time += unit.Seconds(weight) * op.Time
		s.bytes[i] += weight * float64(op.Bytes)
		into.Bytes = unit.Bytes(math.Round(s.bytes[i]))
		into.Message += unit.Bytes(math.Round(weight * float64(op.Message)))
		into.Bound = boundOf(*into)
	}
}

// find returns the place of op at or after position at, inserting it there
// if it is new.
func (s *opSum) find(op Op, at int) int {
	for i := at; i < len(s.ops); i++ {
		if s.ops[i].Name == op.Name && s.ops[i].Count == op.Count {
			return i
		}
	}
	s.ops = append(s.ops, Op{Name: op.Name, Count: op.Count})
	s.bytes = append(s.bytes, 0)
	return len(s.ops) - 1
}

// finish derives time and utilisation from the operators. work lists what
// all stages do for one micro-batch, of which there are parts.
func (e *Estimator) finish(s *Stage, work []Op, parts int) {
	for _, op := range s.Ops {
		s.Time += unit.Seconds(op.Count) * op.Time
	}
	var compute, memory, busy unit.Seconds
	for _, op := range work {
		n := unit.Seconds(op.Count * parts)
		compute += n * op.Compute
		memory += n * op.Memory
		busy += n * op.Time
	}
	all := s.Time * unit.Seconds(e.pp) // the time of all stages
	s.MFU = float64(compute/all) * e.settings.EffCompute
	s.MBU = float64(memory/all) * e.settings.EffHBM
	if e.pp > 1 {
		s.Bubble = float64(1 - busy/all)
	}
}

// judge says whether the request fits, and if not by how much and on how
// many ranks it would.
func (e *Estimator) judge(a *Analysis) {
	r, m := a.Request, a.Memory
	length := r.Input + r.Output
	limit := e.config.MaxModelLen
	if limit == 0 {
		limit = e.model.MaxSeqLen
	}
	if length > limit {
		a.Reasons = append(a.Reasons, Reason{ReasonMaxSeqLen, fmt.Sprintf("%d input and %d output tokens exceed the longest sequence of %d tokens", r.Input, r.Output, limit)})
	}
	switch {
	case m.Weights+m.Reserve > m.Usable:
		a.Reasons = append(a.Reasons, Reason{ReasonWeights, fmt.Sprintf("weights and reserve take %v of the %v usable on %s: %v too much", m.Weights+m.Reserve, m.Usable, e.device.Name, m.Weights+m.Reserve-m.Usable)})
	case a.MaxBatch == 0:
		a.Reasons = append(a.Reasons, Reason{ReasonMemory, fmt.Sprintf("weights and activations leave %v for the KV cache, and one sequence of %d tokens takes %v: %v too much", m.KVBudget(), length, m.KVPerSequence, m.KVPerSequence-m.KVBudget())})
	case r.Batch > a.MaxBatch:
		a.Reasons = append(a.Reasons, Reason{ReasonBatch, fmt.Sprintf("%d sequences of %d tokens exceed the %d that fit: %v too much", r.Batch, length, a.MaxBatch, m.Total()-m.Usable)})
	}
	a.Fits = len(a.Reasons) == 0
	if !a.Fits && !m.Fits() {
		a.SmallestTP = e.smallestTP(r)
	}
}

// smallestTP searches the tensor parallel sizes above the present one.
func (e *Estimator) smallestTP(r Request) int {
	for t := e.tp + 1; t <= e.model.NumHeads; t++ {
		if e.model.NumHeads%t != 0 {
			continue
		}
		c := e.config
		c.TensorParallel = t
		if c.ExpertParallel > 1 {
			c.ExpertParallel = t * c.DataParallel
		}
		other, err := New(e.model, e.device, c, e.settings)
		if err != nil {
			continue
		}
		if other.Memory(r.Batch, r.Input+r.Output, other.stepTokens(r, r.Batch)).Fits() {
			return t
		}
	}
	return 0
}
