package memory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

// FromDocument is the run of a memory profile, and remarks on what of it is
// left out. It takes the peak above the baseline as total, and of the parts
// those that the engine itself stated, which have high confidence: a part that
// follows from a formula would only be compared with another formula.
//
// With compat it takes everything as the validation of LLM Sizer does: the
// peak with the baseline as total, whatever the engine sets aside, all parts
// as if they were measured, and a GB of its files as 1e9 bytes. The parts are
// sums over the GPUs all the same.
func FromDocument(source string, d *memprofile.Document, compat bool) (Measured, []string) {
	d.Fill()
	m := runOf(d)
	m.Source = source
	m.Faults = append(m.Faults, d.MemoryBreakdown.Faults...)
	if compat {
		m.takeAll(d)
		return m, nil
	}
	remarks := m.takeMeasured(d)
	return m, remarks
}

// runOf is what a profile tells of the run, without the sizes.
func runOf(d *memprofile.Document) Measured {
	run, info, types := &d.BenchmarkParameters, &d.ModelInfo, &d.DTypeMetadata
	m := Measured{
		Model: string(cmp.Or(info.Name, run.Model)),
		Shape: llmsizer.Model{
			Params: value(info.Parameters), Layers: value(info.Layers), Heads: value(info.Heads), KVHeads: value(info.KVHeads),
			HeadDim: value(info.HeadDim), Hidden: value(info.HiddenSize),
		},
		WeightDType:     dtypeOf(types.WeightDType, info.DType, run.DType),
		ActivationDType: dtypeOf(types.ActivationDType, info.DType, run.DType),
		KVDType:         dtypeOf(types.KVCacheDType, run.KVCacheDType),
		GPUs:            value(d.GPUInfo.NumGPUs), PipelineStages: value(run.PipelineParallelSize),
		Utilization: value(run.GPUMemoryUtilization), BlockSize: value(cmp.Or(run.BlockSize, d.KVCache.BlockSize)),
		MaxBatchedTokens: cmp.Or(value(run.MaxNumBatchedTokens), argument(run.EngineArgs, "--max-num-batched-tokens")),
		MaxSequences:     cmp.Or(value(run.MaxNumSeqs), argument(run.EngineArgs, "--max-num-seqs")),
		Batch:            value(run.BatchSize), Input: value(run.InputLen), Output: value(run.OutputLen),
		OnHost: d.GPUInfo.GPUType == "cpu",
	}
	if len(info.Architecture) > 0 {
		var described catalog.Model
		if err := json.Unmarshal(info.Architecture, &described); err == nil && described.Validate() == nil {
			m.Architecture = &described
			if n := value(info.Parameters); n != float64(described.Params().Total) {
				m.Stated.Parameters = n
			}
		}
	}
	if q := strings.ToLower(string(cmp.Or(info.Quantization, run.Quantization))); q != "none" {
		m.Quantization = q
	}
	if run.TensorParallelSize != nil {
		m.GPUs = *run.TensorParallelSize * max(m.PipelineStages, 1)
	}
	for _, length := range []struct {
		name  string
		value *int
	}{{"input length", run.InputLen}, {"output length", run.OutputLen}} {
		if length.value == nil {
			m.Faults = append(m.Faults, "the profile does not tell the "+length.name)
		}
	}
	if m.BlockSize == 0 && d.EngineMetadata.EngineType == "torch" {
		m.BlockSize = 1 // its cache grows by the token
	}
	m.device(d)
	return m
}

// argument is the number that an engine was given under a name; 0 for none.
func argument(args []string, name string) int {
	for i, arg := range args {
		text, ok := strings.CutPrefix(arg, name+"=")
		if arg == name && i+1 < len(args) {
			text, ok = args[i+1], true
		}
		if n, err := format.ParseSize(text, 1); ok && err == nil {
			return n
		}
	}
	return 0
}

// device is that of the peak, or else that of the run.
func (m *Measured) device(d *memprofile.Document) {
	info := &d.GPUInfo
	if len(info.Names) > 0 {
		m.Device = info.Names[0]
	}
	if n := value(info.NumGPUs); info.TotalMemoryBytes != nil && n > 0 {
		each := *info.TotalMemoryBytes / unit.Bytes(n)
		m.DeviceMemory = &each
	}
	if peak := d.MemoryMeasurements.Peak; peak != nil && len(peak.PerGPU) > 0 {
		m.Device = cmp.Or(m.Device, string(peak.PerGPU[0].Name))
		m.DeviceMemory = cmp.Or(peak.PerGPU[0].TotalBytes, m.DeviceMemory)
	}
}

// into is where a part of a profile belongs; nil for a part of another kind.
func (m *Measured) into(part string) **unit.Bytes {
	switch part {
	case memprofile.PartWeights:
		return &m.Weights
	case memprofile.PartKVCache:
		return &m.KVCache
	case memprofile.PartActivations:
		return &m.Activations
	case memprofile.PartCUDAGraphs:
		return &m.Graphs
	case memprofile.PartOverhead:
		return &m.Overhead
	}
	return nil
}

// coarse is the number of tenths of a percent of the cache, in which engines log
// what is in use of it, from which that is known to 5 %.
const coarse = 10

// takeMeasured takes the sizes that were measured; the remarks name the others.
func (m *Measured) takeMeasured(d *memprofile.Document) []string {
	b := &d.MemoryBreakdown
	m.Total, m.Absolute, m.Baseline = b.NetIncreaseBytes, b.TotalMeasuredBytes, b.BaselineBytes
	engine := strings.ToLower(string(d.EngineMetadata.EngineType))
	pooled := strings.Contains(engine, "vllm") || strings.Contains(engine, "sglang")
	m.Preallocates = pooled && !m.OnHost
	var computed, remarks []string
	for _, p := range b.Parts {
		target := m.into(p.Name)
		switch {
		case p.Bytes == nil || target == nil:
		case p.Confidence == memprofile.High && !byFormula(p):
			*target = p.Bytes
		case p.Name == memprofile.PartOverhead && p.Confidence == memprofile.Medium && !byFormula(p):
			remarks = append(remarks, "framework overhead: read before the weights were loaded, and not at the peak")
		default:
			computed = append(computed, strings.NewReplacer("_", " ", "kv", "KV").Replace(p.Name))
		}
	}
	if len(computed) > 0 {
		remarks = append(remarks, strings.Join(computed, ", ")+": computed by the profiler, not measured")
	}
	if d.KVCache.UsedTokens != nil && m.KVCache != nil {
		m.KVUsed = d.KVCache.UsedBytes
	}
	if step := d.KVCache.Bytes; m.KVUsed != nil && step != nil && *m.KVUsed < coarse**step/1000 {
		m.KVUsed = nil
		remarks = append(remarks, "KV cache in use: told in tenths of a percent of the cache, which is too coarse for so little of it")
	}
	if pooled && !m.Preallocates && m.KVCache != nil {
		m.KVCache = nil
		remarks = append(remarks, "KV cache: set aside in the host's memory, where only what is touched counts")
	}
	return remarks
}

// takeAll takes every size as LLM Sizer's validation does.
func (m *Measured) takeAll(d *memprofile.Document) {
	b := &d.MemoryBreakdown
	foreign := len(b.Parts) > 0 && !slices.ContainsFunc(b.Parts, func(p memprofile.Part) bool { return !byFormula(p) })
	scale := 1.0
	if foreign && d.GPUInfo.GPUType == "cuda" {
		scale = 1e9 / (1 << 30) // the file printed GiB as GB
	}
	m.Absolute, m.Baseline = scaled(b.TotalMeasuredBytes, scale), scaled(b.BaselineBytes, scale)
	m.Total = m.Absolute
	var sum unit.Bytes
	for _, p := range b.Parts {
		target := m.into(p.Name)
		if p.Bytes == nil || target == nil {
			continue
		}
		if *target = p.Bytes; foreign && p.Confidence == memprofile.Low {
			*target = scaled(p.Bytes, scale)
		}
		if p.Name != memprofile.PartOverhead {
			sum += **target
		}
	}
	if net := scaled(b.NetIncreaseBytes, scale); foreign && m.Overhead != nil && net != nil {
		rest := max(*net-sum, 0)
		m.Overhead = &rest
	}
}

// byFormula tells the parts that LLM Sizer's profiler computes, whatever
// confidence it gives them.
func byFormula(p memprofile.Part) bool {
	return slices.Contains([]memprofile.Text{"formula", "assumed share", "residual"}, p.Source)
}

// scaled is a size in another unit; nil of nil.
func scaled(b *unit.Bytes, by float64) *unit.Bytes {
	if b == nil {
		return nil
	}
	v := unit.Bytes(math.Round(float64(*b) * by))
	return &v
}

// FromRow is the run of a row of a table of profiles. Of the sizes it takes
// the total above the baseline only: a table does not say which parts were
// measured, nor on which engine, and an engine that fills its devices is
// assumed. With compat it takes all sizes as [FromDocument] does.
func FromRow(source string, row memprofile.MeasuredRow, compat bool) (Measured, []string) {
	m := Measured{
		Source: source, Model: row.Model, Device: row.GPU, GPUs: value(row.GPUs),
		Shape:       llmsizer.Model{Params: value(row.ParamsB) * 1e9},
		WeightDType: dtypeOf(memprofile.Text(row.WeightDType)), ActivationDType: dtypeOf(memprofile.Text(row.ActivationDType)),
		KVDType: dtypeOf(memprofile.Text(row.KVCacheDType)),
		Batch:   value(row.Batch), Input: value(row.InputLen), Output: value(row.OutputLen),
		Preallocates: !compat,
	}
	if row.ErrorMessage != "" {
		m.Faults = append(m.Faults, row.ErrorMessage)
	}
	size := func(name string, gb *float64) *unit.Bytes {
		if gb == nil {
			return nil
		}
		b, err := bytesOf(*gb)
		if err != nil {
			m.Faults = append(m.Faults, fmt.Sprintf("%s: %v", name, err))
		}
		return b
	}
	m.Absolute, m.Baseline = size("total", row.TotalGB), size("baseline", row.BaselineGB)
	if compat {
		m.Total = m.Absolute
		m.Weights, m.KVCache = size("weights", row.WeightsGB), size("KV cache", row.KVGB)
		m.Activations, m.Overhead = size("activations", row.ActivationsGB), size("overhead", row.OverheadGB)
		return m, nil
	}
	if m.Baseline != nil && m.Absolute != nil {
		net := *m.Absolute - *m.Baseline
		m.Total = &net
	}
	return m, []string{"weights, KV cache, activations, overhead: the table does not say whether they were measured"}
}

// Recorded are figures that stand beside measured ones in a table of an
// earlier validation. They are a [Calculator].
type Recorded struct {
	name  string
	sizes map[string]Prediction
}

// NewRecorded returns a calculator without figures.
func NewRecorded(name string) *Recorded { return &Recorded{name, map[string]Prediction{}} }

// Add takes the figures of a row, for the profile with this source; false
// where it has none.
func (r *Recorded) Add(source string, row memprofile.MeasuredRow) bool {
	size := func(gb *float64) *unit.Bytes {
		if gb == nil {
			return nil
		}
		b, err := bytesOf(*gb)
		if err != nil {
			return nil // no size of memory
		}
		return b
	}
	p := Prediction{
		Total: size(row.CalculatorTotalGB), Weights: size(row.CalculatorWeightsGB), KVCache: size(row.CalculatorKVGB),
		Activations: size(row.CalculatorActivationsGB), Overhead: size(row.CalculatorOverheadGB),
	}
	if p.Total == nil {
		return false
	}
	r.sizes[source] = p
	return true
}

// Name is the name given to [NewRecorded].
func (r *Recorded) Name() string { return r.name }

// Calculate finds the figures of a profile by its source.
func (r *Recorded) Calculate(m Measured) (Prediction, error) {
	p, ok := r.sizes[m.Source]
	if !ok {
		return Prediction{}, fmt.Errorf("look up %s in %s: it has no figures", m.Source, r.name)
	}
	return p, nil
}

// dtypeOf is the first of the names that is a format; "auto" is none.
// LLM Sizer's "fp8_bf16" is a cache in fp8.
func dtypeOf(names ...memprofile.Text) catalog.DType {
	for _, name := range names {
		if t, err := catalog.ParseDType(strings.TrimSuffix(string(name), "_bf16")); err == nil {
			return t
		}
	}
	return ""
}

// value is what p points to; 0 where it is nil.
func value[T int | float64](p *T) T {
	if p == nil {
		return 0
	}
	return *p
}
