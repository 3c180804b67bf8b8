package memory

import (
	"fmt"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/unit"
)

// Measured is one profiled run. Sizes are sums over the GPUs of the run; one
// that was not measured is nil. A size that the profiler computed from a
// formula is not measured and must not stand here.
type Measured struct {
	// Source names the profile, usually its file.
	Source string
	// Model is the model's id; nothing else identifies it.
	Model string
	// Shape is what the profile tells of the architecture; zeros are unknown.
	Shape llmsizer.Model
	// Architecture is the model's own description, if it is known. Stated is
	// what the user says against it, for [Ours].
	Architecture *catalog.Model
	Stated       deploy.Stated
	// WeightDType, ActivationDType and KVDType are empty where unknown.
	WeightDType, ActivationDType, KVDType catalog.DType
	// Quantization names the weight format as the engine was told; empty
	// means none.
	Quantization string

	// GPUs is the number of GPUs of the run; 0 means 1. PipelineStages is how
	// many of them follow each other; 0 means 1.
	GPUs, PipelineStages int
	// Device is the name of the GPU, DeviceMemory the memory of one of them
	// as the driver reports it.
	Device       string
	DeviceMemory *unit.Bytes
	// OnHost says that the engine ran on a CPU: the sizes are resident memory of
	// its processes.
	OnHost bool

	// Preallocates says that the engine takes its KV pool up front.
	Preallocates bool
	// Utilization is the share of device memory that the engine may take,
	// 0..1; 0 where unknown.
	Utilization float64
	// BlockSize is the number of tokens in a KV block, MaxBatchedTokens and
	// MaxSequences bound a step of the engine; 0 where unknown.
	BlockSize, MaxBatchedTokens, MaxSequences int

	// Batch is the number of sequences, Input and Output their tokens.
	Batch, Input, Output int

	// Total is the peak above the baseline, Absolute the peak itself, Baseline
	// what was in use before the engine.
	Total, Absolute, Baseline *unit.Bytes
	// Weights is what loading the model took.
	Weights *unit.Bytes
	// KVCache is what was allocated for the cache, KVUsed the most that was in
	// use.
	KVCache, KVUsed *unit.Bytes
	// Activations is the peak of intermediate results, Graphs what captured
	// graphs take, Overhead what else was measured.
	Activations, Graphs, Overhead *unit.Bytes

	// Faults are what the reader of the profile found wrong with it.
	Faults []string

	told llmsizer.Model // the shape without what the catalog adds
}

// tokens is the length of a sequence at its end.
func (m Measured) tokens() int { return m.Input + m.Output }

func (m Measured) gpus() int { return max(m.GPUs, 1) }

// complete fills in what the catalog knows of the model by its id.
func (m Measured) complete(c *catalog.Catalog) Measured {
	m.told = m.Shape
	if m.Architecture == nil && c != nil {
		if found, err := c.Model(m.Model); err == nil {
			m.Architecture = found
		}
	}
	a := m.Architecture
	if a == nil {
		return m
	}
	fill := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	if m.Shape.Params == 0 {
		m.Shape.Params = float64(a.Params().Total)
	}
	fill(&m.Shape.Layers, a.NumLayers)
	fill(&m.Shape.Heads, a.NumHeads)
	if a.MLA == nil {
		fill(&m.Shape.KVHeads, a.NumKVHeads)
	}
	fill(&m.Shape.HeadDim, a.HeadDim)
	fill(&m.Shape.Hidden, a.HiddenSize)
	fill(&m.Shape.Intermediate, a.IntermediateSize)
	return m
}

const (
	// maxCount bounds batch, lengths and GPUs, maxTokens the tokens of a
	// batch, so that sizes stay below 63 bits.
	maxCount  = 1 << 24
	maxTokens = 1 << 34
	// maxBytes bounds a measured size.
	maxBytes = 1 << 55
	// slack is how much the parts may exceed the total: profiles are written
	// with rounded sizes.
	slack = 0.01
)

// unusable lists why nothing can be learnt from the profile.
func (m Measured) unusable() []string {
	reasons := append([]string(nil), m.Faults...)
	say := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	for _, size := range []struct {
		name  string
		value int
		least int
	}{
		{"batch size", m.Batch, 1},
		{"input length", m.Input, 0},
		{"output length", m.Output, 0},
		{"tokens of a sequence", m.tokens(), 1},
		{"number of GPUs", m.GPUs, 0},
		{"number of pipeline stages", m.PipelineStages, 0},
		{"block size", m.BlockSize, 0},
		{"most tokens of a step", m.MaxBatchedTokens, 0},
		{"most sequences of a step", m.MaxSequences, 0},
	} {
		if size.value < size.least || size.value > maxCount {
			say("%s is %d: want %d to %d", size.name, size.value, size.least, maxCount)
		}
	}
	if most := max(m.Batch, m.MaxSequences); len(reasons) == 0 && most*m.tokens() > maxTokens {
		say("%d sequences of %d tokens: want at most %d tokens", most, m.tokens(), maxTokens)
	}
	for _, part := range append(m.parts(), part{"total", m.Total}, part{"peak", m.Absolute}, part{"baseline", m.Baseline}, part{"KV cache in use", m.KVUsed}) {
		if part.size != nil && (*part.size < 0 || *part.size > maxBytes) {
			say("%s of %d bytes", part.name, *part.size)
		}
	}
	if len(reasons) > 0 {
		return reasons
	}
	return m.inconsistent()
}

// inconsistent lists how the sizes contradict each other.
func (m Measured) inconsistent() []string {
	var reasons []string
	if m.KVUsed != nil && m.KVCache != nil && *m.KVUsed > *m.KVCache {
		reasons = append(reasons, fmt.Sprintf("KV cache in use %v exceeds the %v allocated", *m.KVUsed, *m.KVCache))
	}
	var sum unit.Bytes
	measured := false
	for _, part := range m.parts() {
		if part.size != nil {
			sum += *part.size
			measured = true
		}
	}
	switch {
	case m.Total == nil && (!m.Preallocates || !measured):
		reasons = append(reasons, "no total was measured")
	case m.Total != nil && *m.Total == 0:
		reasons = append(reasons, "the measured total is zero: memory was read while the engine did not run")
	case m.Total != nil && float64(sum) > float64(*m.Total)*(1+slack):
		reasons = append(reasons, fmt.Sprintf("the parts exceed the total: %v of %v", sum, *m.Total))
	}
	return reasons
}

// part is a named size.
type part struct {
	name string
	size *unit.Bytes
}

// parts lists what the total consists of. A cache of which only the use is
// known counts with that.
func (m Measured) parts() []part {
	cache := m.KVCache
	if cache == nil {
		cache = m.KVUsed
	}
	return []part{{"weights", m.Weights}, {"KV cache", cache}, {"activations", m.Activations}, {"graphs", m.Graphs}, {"overhead", m.Overhead}}
}
