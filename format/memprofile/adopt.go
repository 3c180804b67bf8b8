package memprofile

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
)

// rocmTotal is what LLM Sizer's profiler writes for the memory of every ROCm
// device, in GB: a constant, no measurement.
const rocmTotal GB = 206

// readForeign reads a document of LLM Sizer, of whatever generation.
func readForeign(name string, top format.Node) (*Document, []string, error) {
	d := &Document{}
	in := &decoder{skipped: olderKey}
	if err := in.object(top, reflect.ValueOf(d).Elem()); err != nil {
		return nil, nil, err
	}
	a := &adoption{d: d, top: top, in: in}
	a.scale()
	if err := a.olderNames(); err != nil {
		return nil, nil, err
	}
	a.names()
	a.measurements()
	a.parts()
	a.times()
	if m := d.MemoryMeasurements; m.Peak.total() == nil && m.Baseline.total() == nil && m.PostWarmup.total() == nil {
		if _, known := Sum(d.MemoryBreakdown.Parts); known == 0 {
			return nil, nil, &format.Error{File: name, Err: noMemoryError{}}
		}
	}
	d.Fill()
	return d, in.remarks(), nil
}

// noMemoryError tells of a profile without anything that this is about.
type noMemoryError struct{}

func (noMemoryError) Error() string { return "holds no memory figure" }

// Hint says where such files come from.
func (noMemoryError) Hint() string {
	return "its memory was not sampled: profile it again, or read its latencies as a vLLM benchmark"
}

// olderKey tells the keys that only older documents have, and that are looked
// for by name.
func olderKey(path string) bool {
	return slices.Contains([]string{
		"model_info.model_name", "model_info.model_id", "gpu_info.gpu_memory_baseline",
		"memory_breakdown.total_gb", "memory_breakdown.weights_gb", "memory_breakdown.overhead_gb",
	}, path)
}

// adoption turns the figures of a foreign document into the primary ones. Its
// sizes in GB are in the fields of ours until then.
type adoption struct {
	d     *Document
	top   format.Node
	in    *decoder
	gb    float64 // bytes of what the document calls a GB where it was measured
	older map[string]*GB
}

func (a *adoption) warn(text string, args ...any) {
	a.in.warnings = append(a.in.warnings, fmt.Sprintf(text, args...))
}

// scale finds out what a GB is: the profiler took 1e9 bytes for ROCm, but the
// MiB of nvidia-smi by 1024.
func (a *adoption) scale() {
	a.gb = 1e9
	switch kind := a.d.GPUInfo.GPUType; kind {
	case "cuda":
		a.gb = 1 << 30
		a.warn("gpu_type cuda: measured GB of the file are MiB/1024, taken as 2^30 bytes")
	case "rocm":
		a.warn("gpu_type rocm: GB of the file are taken as 1e9 bytes")
	default:
		a.warn("gpu_type %q: GB of the file are taken as 1e9 bytes, 7 %% less than the GiB that they may be", cmp.Or(kind, "unknown"))
	}
}

// bytes of a size; nil of nil, and of one that no memory can have.
func (a *adoption) bytes(size *GB, gb float64) *unit.Bytes {
	if size == nil {
		return nil
	}
	v := math.Round(float64(*size) * gb)
	if math.IsNaN(v) || math.Abs(v) > maxBytes {
		a.warn("a size of %g GB is left out", float64(*size))
		return nil
	}
	b := unit.Bytes(v)
	return &b
}

// olderNames reads the keys that only older documents have.
func (a *adoption) olderNames() error {
	info, breakdown := a.top.Get("model_info"), a.top.Get("memory_breakdown")
	for _, key := range []string{"model_name", "model_id"} {
		if n := info.Get(key); n.Present() && a.d.ModelInfo.Name == "" {
			if err := text(n, reflect.ValueOf(&a.d.ModelInfo.Name).Elem()); err != nil {
				return err
			}
		}
	}
	a.older = map[string]*GB{}
	for key, n := range map[string]format.Node{
		"baseline": a.top.Get("gpu_info").Get("gpu_memory_baseline"),
		"total":    breakdown.Get("total_gb"),
		"weights":  breakdown.Get("weights_gb"),
		"overhead": breakdown.Get("overhead_gb"),
	} {
		if !n.Present() {
			continue
		}
		size := new(GB)
		ok, err := a.in.decode(n, reflect.ValueOf(size).Elem())
		if err != nil {
			return err
		}
		if ok {
			a.older[key] = size
		}
	}
	return nil
}

// names fills what one place of the document says from where another does.
func (a *adoption) names() {
	d := a.d
	d.ModelInfo.Name = cmp.Or(d.ModelInfo.Name, d.BenchmarkParameters.Model)
	types, old := &d.DTypeMetadata, d.MemoryBreakdown.ComponentDTypes
	types.WeightDType = cmp.Or(types.WeightDType, old.Weights)
	types.ActivationDType = cmp.Or(types.ActivationDType, old.Activations)
	types.KVCacheDType = cmp.Or(types.KVCacheDType, old.KVCache)
	m, used := &d.ModelInfo, d.MemoryBreakdown.ArchitectureParams
	m.Layers, m.Heads = cmp.Or(m.Layers, used.Layers), cmp.Or(m.Heads, used.Heads)
	m.KVHeads, m.HeadDim = cmp.Or(m.KVHeads, used.KVHeads), cmp.Or(m.HeadDim, used.HeadDim)
	m.HiddenSize, m.Parameters = cmp.Or(m.HiddenSize, used.HiddenSize), cmp.Or(m.Parameters, used.Parameters)
	run := &d.BenchmarkParameters
	run.TensorParallelSize = cmp.Or(run.TensorParallelSize, used.TensorParallelSize)
	if l := &d.LatencyStats; l.Avg == nil && l.MeanMs != nil {
		l.Avg = finite(*l.MeanMs / 1e3)
	}
}

func (a *adoption) measurements() {
	m, b := &a.d.MemoryMeasurements, &a.d.MemoryBreakdown
	for _, p := range []*MemoryPoint{m.Baseline, m.PostWarmup, m.Peak} {
		if p != nil {
			a.point(p)
		}
	}
	peak := a.bytes(cmp.Or(b.TotalMeasuredGB, a.older["total"], a.d.Memory.TotalGB), a.gb)
	measured(&m.Peak, peak)
	baseline := a.bytes(cmp.Or(b.BaselineGB, a.older["baseline"]), a.gb)
	if baseline == nil {
		baseline = difference(m.Peak.total(), a.bytes(cmp.Or(b.NetIncreaseGB, m.MemoryIncreaseGB), a.gb))
	}
	measured(&m.Baseline, baseline)
	info := &a.d.GPUInfo
	if a.constant(info.TotalMemoryGB) {
		a.warn("gpu_info.total_gpu_memory_gb %g is a constant of the profiler for ROCm: left out", float64(*info.TotalMemoryGB))
		info.TotalMemoryGB = nil
	}
	info.TotalMemoryBytes = a.bytes(info.TotalMemoryGB, a.gb)
}

// point takes over one of the three measurements.
func (a *adoption) point(p *MemoryPoint) {
	for i := range p.PerGPU {
		g := &p.PerGPU[i]
		if a.constant(g.TotalGB) {
			g.TotalGB = nil
		}
		g.UsedBytes, g.TotalBytes = cmp.Or(a.bytes(g.UsedGB, a.gb), g.UsedBytes), cmp.Or(a.bytes(g.TotalGB, a.gb), g.TotalBytes)
	}
	p.TotalBytes = cmp.Or(a.bytes(p.TotalGB, a.gb), p.TotalBytes)
}

// constant tells the memory of ROCm devices that was never asked for.
func (a *adoption) constant(total *GB) bool {
	return a.d.GPUInfo.GPUType == "rocm" && total != nil && *total > 0 && math.Mod(float64(*total), float64(rocmTotal)) == 0
}

// measured sets the total of a point that has none yet.
func measured(p **MemoryPoint, total *unit.Bytes) {
	if total == nil || (*p).total() != nil {
		return
	}
	if *p == nil {
		*p = &MemoryPoint{}
	}
	(*p).TotalBytes = total
}

// parts takes over the breakdown. Weights, KV cache and activations that
// follow from the architecture are in 1e9 bytes, the first two of one device;
// those of low confidence are shares of the whole increase, in its unit.
func (a *adoption) parts() {
	b := &a.d.MemoryBreakdown
	levels := b.ConfidenceLevels
	b.ConfidenceLevels.Overall = a.level(cmp.Or(levels.Overall, b.Confidence))
	b.Parts = nil
	devices := 1.0
	if n := a.d.BenchmarkParameters.TensorParallelSize; n != nil && *n > 1 {
		devices = float64(*n)
		a.warn("tensor_parallel_size %d: weights and KV cache of one device are taken times %d", *n, *n)
	}
	mixed := false
	for _, c := range []struct {
		name    string
		size    *GB
		level   Confidence
		devices float64
	}{
		{PartWeights, cmp.Or(b.ModelWeightsGB, a.older["weights"], b.Weights), levels.Weights, devices},
		{PartKVCache, cmp.Or(b.KVCacheGB, b.KVCache), levels.KVCache, devices},
		{PartActivations, cmp.Or(b.ActivationsGB, b.Activations), levels.Activations, 1},
	} {
		if c.size == nil {
			continue
		}
		part := Part{Name: c.name, Confidence: a.level(c.level), Source: "formula"}
		size := 1e9 * c.devices
		if part.Confidence == Low {
			size, part.Source, part.Note = a.gb, "assumed share", "a fixed share of the increase, not measured"
		}
		mixed = mixed || size != a.gb
		part.Bytes = a.bytes(c.size, size)
		b.Parts = append(b.Parts, part)
	}
	a.overhead(cmp.Or(b.FrameworkOverheadGB, a.older["overhead"], b.Overhead), levels.Overhead, mixed)
}

// overhead takes over what remained of the increase. Where figures of
// different units or of one device were subtracted from it, that is done again.
func (a *adoption) overhead(size *GB, level Confidence, mixed bool) {
	if size == nil {
		return
	}
	part := Part{Name: PartOverhead, Confidence: a.level(level), Source: "residual", Bytes: a.bytes(size, a.gb)}
	net := difference(a.d.MemoryMeasurements.Peak.total(), a.d.MemoryMeasurements.Baseline.total())
	if sum, _ := Sum(a.d.MemoryBreakdown.Parts); mixed && net != nil {
		rest := max(*net-sum, 0)
		part.Bytes, part.Note = &rest, "the increase without the parts before it"
		a.warn("memory_breakdown.framework_overhead_gb %g is the increase less figures of another unit or of one device: taken as %s", float64(*size), inGB(rest))
	}
	b := &a.d.MemoryBreakdown
	b.Parts = append(b.Parts, part)
}

// level keeps a known word for a confidence.
func (a *adoption) level(c Confidence) Confidence {
	c = Confidence(strings.ToLower(string(c)))
	if c == "" || rank(c) >= 0 {
		return c
	}
	a.warn("unknown confidence %q: left out", string(c))
	return ""
}

// times keeps the timestamps that are in the layouts of ours.
func (a *adoption) times() {
	d := a.d
	given := d.Timestamp
	d.Timestamp = ""
	for _, text := range []Text{given, d.Metadata.Timestamp} {
		for _, layout := range []string{plainTime, time.RFC3339, "2006-01-02T15:04:05"} {
			if at, err := time.Parse(layout, string(text)); err == nil && d.Timestamp == "" {
				d.Timestamp = Text(at.Format(plainTime))
			}
		}
	}
	if given != "" && d.Timestamp == "" {
		a.warn("timestamp %q: want YYYY-MM-DD HH:MM:SS: left out", string(given))
	}
	if at, err := time.Parse(time.RFC3339, string(d.Metadata.Timestamp)); err == nil {
		d.Metadata.Timestamp = Text(at.UTC().Format(time.RFC3339))
	} else {
		d.Metadata.Timestamp = "" // of no zone
	}
}
