package memprofile

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/llmprof/llmprof/unit"
)

// SchemaName and Version name the format that this package writes.
const (
	SchemaName = "llmprof/memory-profile"
	Version    = "1.0"
)

// compatible is the version of LLM Sizer's profiler and of its schema whose
// keys the documents have.
const compatible = "2.0"

// plainTime is the layout of the profile's own timestamp.
const plainTime = time.DateTime

// SetTime sets both timestamps, in UTC.
func (d *Document) SetTime(t time.Time) {
	d.Metadata.Timestamp = Text(t.UTC().Format(time.RFC3339))
	d.Timestamp = Text(t.UTC().Format(plainTime))
}

// Part finds a part by its name; nil where there is none.
func (b *MemoryBreakdown) Part(name string) *Part {
	i := slices.IndexFunc(b.Parts, func(p Part) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &b.Parts[i]
}

// bytes of a part; nil where unknown.
func (b *MemoryBreakdown) bytes(name string) *unit.Bytes {
	if p := b.Part(name); p != nil {
		return p.Bytes
	}
	return nil
}

// confidence in a part; empty where unknown.
func (b *MemoryBreakdown) confidence(name string) Confidence {
	if p := b.Part(name); p != nil {
		return p.Confidence
	}
	return ""
}

// Sum of the parts that are known, in bytes, and how many these are.
func Sum(parts []Part) (total unit.Bytes, known int) {
	for _, p := range parts {
		if p.Bytes != nil {
			total += *p.Bytes
			known++
		}
	}
	return total, known
}

// Slack is by how many bytes the sum of parts may be off for the last digits
// of their figures.
func Slack(parts []Part) unit.Bytes {
	var slack unit.Bytes
	for _, p := range parts {
		switch {
		case p.Bytes == nil:
		case p.RoundingBytes != nil:
			slack += *p.RoundingBytes
		default:
			slack += rounding
		}
	}
	return slack
}

// onCPU reports whether the engine computed on the host's processors, and had
// no device of its own.
func (d *Document) onCPU() bool { return d.GPUInfo.GPUType == "cpu" }

// total is the memory of a point; nil where it was not measured.
func (p *MemoryPoint) total() *unit.Bytes {
	if p == nil {
		return nil
	}
	if p.TotalBytes != nil {
		return p.TotalBytes
	}
	return p.sum()
}

// sum adds up the devices; nil where not all of them are known.
func (p *MemoryPoint) sum() *unit.Bytes {
	if len(p.PerGPU) == 0 {
		return nil
	}
	var sum unit.Bytes
	for _, g := range p.PerGPU {
		if g.UsedBytes == nil {
			return nil
		}
		sum += *g.UsedBytes
	}
	return &sum
}

// Fill writes every derived key from the ones that are given: sizes in GB and
// aliases, differences, means, timestamps, versions and the faults. It may be
// called any number of times; [Write] and [Read] call it.
func (d *Document) Fill() {
	d.Schema, d.Version = SchemaName, Version
	d.ProfilerVersion, d.SchemaVersion, d.EngineMetadata.ProfilerVersion = compatible, compatible, compatible
	if at, err := time.Parse(time.RFC3339, string(d.Metadata.Timestamp)); err == nil {
		d.Timestamp = Text(at.UTC().Format(plainTime))
	}
	d.Metadata.Warnings = listed(d.Metadata.Warnings)
	d.GPUInfo.Names = listed(d.GPUInfo.Names)
	d.GPUInfo.TotalMemoryGB = gb(d.GPUInfo.TotalMemoryBytes)
	d.LatencyStats.fill(d.BenchmarkParameters)
	d.MemoryMeasurements.fill(d.onCPU())
	d.fillKV()
	d.fillTimeline()
	d.fillBreakdown()
	peak := d.MemoryMeasurements.Peak.total()
	d.Memory = Memory{TotalBytes: peak, TotalGB: gb(peak)}
}

func (l *LatencyStats) fill(run BenchmarkParameters) {
	if l.Avg == nil && len(l.Latencies) > 0 {
		l.Avg = finite(mean(l.Latencies))
	}
	l.MeanMs = nil
	if l.Avg == nil {
		return
	}
	l.MeanMs = finite(*l.Avg * 1e3)
	if run.BatchSize != nil && run.OutputLen != nil {
		l.TokensPerSecond = finite(float64(*run.BatchSize) * float64(*run.OutputLen) / *l.Avg)
	}
}

func (m *MemoryMeasurements) fill(onCPU bool) {
	for _, p := range []*MemoryPoint{m.Baseline, m.PostWarmup, m.Peak} {
		if p != nil {
			p.fill()
		}
		if p != nil && onCPU {
			p.NumGPUs = new(int)
		}
	}
	m.MemoryIncreaseGB = gb(difference(m.Peak.total(), m.Baseline.total()))
	m.BaselineToWarmupGB = gb(difference(m.PostWarmup.total(), m.Baseline.total()))
	m.WarmupToPeakGB = gb(difference(m.Peak.total(), m.PostWarmup.total()))
}

func (p *MemoryPoint) fill() {
	p.PerGPU = listed(p.PerGPU)
	for i := range p.PerGPU {
		g := &p.PerGPU[i]
		g.UsedGB, g.TotalGB = gb(g.UsedBytes), gb(g.TotalBytes)
	}
	if n := len(p.PerGPU); n > 0 {
		p.NumGPUs = &n
	}
	p.TotalBytes = p.total()
	p.TotalGB = gb(p.TotalBytes)
	p.MaxUsedGB, p.MeanUsedGB, p.StddevUsedGB = nil, nil, nil
	if p.sum() == nil {
		return
	}
	used := make([]float64, len(p.PerGPU)) // GB
	for i, g := range p.PerGPU {
		used[i] = float64(*g.UsedGB)
	}
	middle, squares := mean(used), 0.0
	for _, v := range used {
		squares += (v - middle) * (v - middle)
	}
	most, average, deviation := GB(slices.Max(used)), GB(middle), GB(0)
	if len(used) > 1 {
		deviation = GB(math.Sqrt(squares / float64(len(used)-1)))
	}
	p.MaxUsedGB, p.MeanUsedGB, p.StddevUsedGB = &most, &average, &deviation
}

func (d *Document) fillKV() {
	kv := &d.KVCache
	if kv.Bytes == nil {
		kv.Bytes = d.MemoryBreakdown.bytes(PartKVCache)
	}
	if kv.Tokens == nil && kv.Blocks != nil && kv.BlockSize != nil {
		tokens := *kv.Blocks * *kv.BlockSize
		kv.Tokens = &tokens
	}
	if kv.UsedBytes == nil && kv.UsedTokens != nil && kv.Bytes != nil && kv.Tokens != nil && *kv.Tokens > 0 {
		used := unit.Bytes(math.Round(float64(*kv.Bytes) / float64(*kv.Tokens) * float64(*kv.UsedTokens)))
		kv.UsedBytes = &used
	}
}

func (d *Document) fillTimeline() {
	if d.MemoryTimeline == nil {
		return
	}
	d.MemoryTimeline.Devices = listed(d.MemoryTimeline.Devices)
	for i := range d.MemoryTimeline.Devices {
		t := &d.MemoryTimeline.Devices[i]
		t.At = listed(t.At)
	}
}

func (d *Document) fillBreakdown() {
	b := &d.MemoryBreakdown
	b.Parts, b.Notes = listed(b.Parts), listed(b.Notes)

	b.TotalMeasuredBytes, b.BaselineBytes = d.MemoryMeasurements.Peak.total(), d.MemoryMeasurements.Baseline.total()
	b.NetIncreaseBytes = difference(b.TotalMeasuredBytes, b.BaselineBytes)
	b.ModelWeightsBytes, b.KVCacheBytes = b.bytes(PartWeights), b.bytes(PartKVCache)
	b.ActivationsBytes, b.CUDAGraphsBytes = b.bytes(PartActivations), b.bytes(PartCUDAGraphs)
	b.FrameworkOverheadBytes, b.KVCacheUsedBytes = b.bytes(PartOverhead), d.KVCache.UsedBytes
	b.UnexplainedBytes = nil
	if sum, known := Sum(b.Parts); b.NetIncreaseBytes != nil && known > 0 {
		rest := *b.NetIncreaseBytes - sum
		b.UnexplainedBytes = &rest
	}

	b.TotalMeasuredGB, b.BaselineGB, b.NetIncreaseGB = gb(b.TotalMeasuredBytes), gb(b.BaselineBytes), gb(b.NetIncreaseBytes)
	b.ModelWeightsGB, b.KVCacheGB, b.KVCacheUsedGB = gb(b.ModelWeightsBytes), gb(b.KVCacheBytes), gb(b.KVCacheUsedBytes)
	b.ActivationsGB, b.CUDAGraphsGB = gb(b.ActivationsBytes), gb(b.CUDAGraphsBytes)
	b.FrameworkOverheadGB, b.UnexplainedGB = gb(b.FrameworkOverheadBytes), gb(b.UnexplainedBytes)
	b.OverheadPercentage = nil
	if b.FrameworkOverheadBytes != nil && b.TotalMeasuredBytes != nil && *b.TotalMeasuredBytes > 0 {
		share := float64(*b.FrameworkOverheadBytes) / float64(*b.TotalMeasuredBytes) * 100
		b.OverheadPercentage = &share
	}

	levels := &b.ConfidenceLevels
	levels.Weights, levels.KVCache = b.confidence(PartWeights), b.confidence(PartKVCache)
	levels.Activations, levels.Overhead = b.confidence(PartActivations), b.confidence(PartOverhead)
	levels.Overall = cmp.Or(levels.Overall, b.lowest())

	b.Weights, b.KVCache, b.Activations, b.Overhead = b.ModelWeightsGB, b.KVCacheGB, b.ActivationsGB, b.FrameworkOverheadGB
	b.Confidence = levels.Overall

	t, m := d.DTypeMetadata, d.ModelInfo
	b.ComponentDTypes = ComponentDTypes{Weights: t.WeightDType, Activations: t.ActivationDType, KVCache: t.KVCacheDType}
	b.ArchitectureParams = ArchitectureParams{
		Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim, HiddenSize: m.HiddenSize,
		Parameters: m.Parameters, TensorParallelSize: d.BenchmarkParameters.TensorParallelSize,
	}
	b.Faults = listed(d.Faults())
	b.Consistent = len(b.Faults) == 0
}

// lowest confidence among the parts that have a figure; empty where none has.
func (b *MemoryBreakdown) lowest() Confidence {
	var lowest Confidence
	for _, p := range b.Parts {
		if p.Bytes != nil && p.Confidence != "" && (lowest == "" || rank(p.Confidence) < rank(lowest)) {
			lowest = p.Confidence
		}
	}
	if lowest == Residual { // the word tells of one part only
		return Low
	}
	return lowest
}

func rank(c Confidence) int {
	return slices.Index([]Confidence{Low, Residual, Medium, High}, c)
}

// gb of a size; nil of nil.
func gb(b *unit.Bytes) *GB {
	if b == nil {
		return nil
	}
	v := GB(float64(*b) / 1e9)
	return &v
}

// difference of two sizes; nil where one is unknown.
func difference(a, b *unit.Bytes) *unit.Bytes {
	if a == nil || b == nil {
		return nil
	}
	v := *a - *b
	return &v
}

// finite is nil for what is no number, as after a division by zero.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// mean of values, of which there is at least one.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// listed is an empty list in place of nil, for keys that are never null.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
