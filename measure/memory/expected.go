package memory

import (
	"fmt"
	"math"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/unit"
)

// Expected is what an architecture implies for all devices together. What it
// does not tell is nil.
type Expected struct {
	// Weights is the storage of the weights, KVPerToken the growth of the KV
	// cache for a token of one sequence, KVBatch the cache of the whole batch at
	// its full length, in whole blocks.
	Weights, KVPerToken, KVBatch *unit.Bytes
	// Activations is the peak of intermediate results of the largest step.
	Activations *unit.Bytes
	// Source names the architecture.
	Source string
	// Note is what a reader must know of the figures.
	Note string
}

// Expect computes what the architecture of a model implies for a task. A
// deployment that cannot be laid out is an error.
func Expect(m *catalog.Model, d deploy.Config, task engine.StepTask) (Expected, error) {
	est, err := cost.New(m, cost.AnyDevice(), d, cost.Settings{NoReserve: true})
	if err != nil {
		return Expected{}, fmt.Errorf("expect the memory of %s: %w", m.Name, err)
	}
	step := task.BatchSize * task.InputLen
	if n := d.MaxNumBatchedTokens; n > 0 {
		step = min(step, n)
	}
	rank := est.Memory(task.BatchSize, task.InputLen+task.OutputLen, step)
	all := func(b unit.Bytes) *unit.Bytes {
		b *= unit.Bytes(est.Config().Devices())
		return &b
	}
	e := Expected{
		Weights: all(rank.Weights), KVPerToken: all(rank.KVPerToken), KVBatch: all(rank.KVCache), Activations: all(rank.Activations),
		Source: "architecture of " + m.Name,
	}
	if est.Config().PipelineParallel > 1 {
		e.Note = "the fullest pipeline stage stands for all"
	}
	return e, nil
}

// Architecture is what a user states of a model; 0 is not stated.
type Architecture struct {
	// Parameters is a count.
	Parameters                                  float64
	Layers, Heads, KVHeads, HeadDim, HiddenSize int
	WeightBytes, KVElementBytes                 float64 // bytes of one element
}

// sizes are the figures without those of elements.
func (a Architecture) sizes() deploy.Stated {
	return deploy.Stated{Parameters: a.Parameters, Layers: a.Layers, Heads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim, HiddenSize: a.HiddenSize}
}

// Expect computes what can be computed from the few figures that are stated.
// Without KV heads the heads give an upper bound of the KV cache, and the note
// says so.
func (a Architecture) Expect(task engine.StepTask) Expected {
	e := Expected{Source: "stated architecture"}
	size := func(v float64) *unit.Bytes {
		b := unit.Bytes(math.Round(v))
		return &b
	}
	if a.Parameters > 0 && a.WeightBytes > 0 {
		e.Weights = size(a.Parameters * a.WeightBytes)
	}
	elements, bound := a.sizes().KVElements(1)
	switch {
	case bound:
		e.Note = "KV heads are not stated: the KV cache of full attention is an upper bound"
	case elements == 0 && a.KVHeads > 0 && a.Layers > 0:
		e.Note = "the size of a KV head is not stated, nor the heads that it follows from: the KV cache is not computed"
	}
	if elements > 0 && a.KVElementBytes > 0 {
		token := elements * a.KVElementBytes
		e.KVPerToken = size(token)
		e.KVBatch = size(token * float64(task.BatchSize) * float64(task.InputLen+task.OutputLen))
	}
	return e
}
