package memory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Subject says what was measured, as far as the engine does not.
type Subject struct {
	// Name is the model's name, Model its architecture; nil where it is not
	// known. Stated is what the user says of it, which wins.
	Name   string
	Model  *catalog.Model
	Stated Architecture
	// Asked is the deployment that was asked for.
	Asked deploy.Config
	// Loaded says that the checkpoint was read; otherwise weights were random,
	// which take the same memory.
	Loaded bool
	// Method is how it was run: "vllm_bench_latency", …
	Method string
	// EngineArgs are further arguments of the engine, secrets removed.
	EngineArgs []string
	// Vendor of the devices is "cuda", "rocm" or "cpu"; empty where not known.
	Vendor string
	// SystemDevices is the number of devices that the sampler saw; 0 where not
	// known.
	SystemDevices int
}

// Expected is what the architecture implies for a task, as far as it is known:
// the stated one, with its blanks filled from the model's. err says why that
// could not be used; the stated figures stand alone then.
func (s Subject) Expected(o *Observation) (Expected, error) {
	d := s.deployed(o)
	alone := s.stated(d).Expect(o.Task)
	m, err := s.model()
	if m == nil {
		return alone, err
	}
	e, err := Expect(m, d, o.Task)
	if err != nil {
		return alone, err
	}
	if s.Stated.sizes() == (deploy.Stated{}) {
		return e, nil
	}
	if alone.Weights != nil {
		e.Weights = alone.Weights
	}
	e.Source = alone.Source + ", what it lacks as in " + s.Model.Name
	return e, nil
}

// model is the model with what is stated of its sizes; nil where it is not
// known, or where they do not go together.
func (s Subject) model() (*catalog.Model, error) {
	if s.Model == nil {
		return nil, nil
	}
	return s.Stated.sizes().Over(s.Model)
}

// deployed is the deployment as the engine states it, and where it does not, as
// it was asked for.
func (s Subject) deployed(o *Observation) deploy.Config {
	d, asked := o.Facts.Deploy, s.Asked
	if d.DType == "" {
		d.DType = asked.DType
	}
	if d.Quantization == "" {
		d.Quantization = asked.Quantization
	}
	if d.KVCacheDType == "" {
		d.KVCacheDType = asked.KVCacheDType
	}
	if d.BlockSize == 0 {
		d.BlockSize = asked.BlockSize
	}
	d.TensorParallel = max(d.TensorParallel, asked.TensorParallel)
	d.PipelineParallel = max(d.PipelineParallel, asked.PipelineParallel)
	if d.MaxModelLen == 0 {
		d.MaxModelLen = asked.MaxModelLen
	}
	if d.MaxNumBatchedTokens == 0 {
		d.MaxNumBatchedTokens = asked.MaxNumBatchedTokens
	}
	if d.GPUMemoryUtilization == 0 {
		d.GPUMemoryUtilization = asked.GPUMemoryUtilization
	}
	return d
}

// stated fills the sizes of elements in.
func (s Subject) stated(d deploy.Config) Architecture {
	a := s.Stated
	c := d.WithDefaults()
	if w, err := deploy.ParseWeightFormat(c.Quantization, c.DType); err == nil {
		a.WeightBytes = w.Bits / 8
	}
	a.KVElementBytes = c.KVCacheDType.Bytes()
	return a
}

// Document is the observation as a memory profile.
func (o *Observation) Document(s Subject, at time.Time) *memprofile.Document {
	d := &memprofile.Document{}
	d.SetTime(at)
	running := s.deployed(o)
	expected, err := s.Expected(o)
	b := o.Breakdown(expected)
	d.MemoryBreakdown.Parts, d.MemoryBreakdown.Notes = b.Parts, slices.Concat(b.Notes, o.between())
	d.MemoryBreakdown.EstimationMethod = "engine_statements_then_architecture"
	d.KVCache = b.KV
	d.Metadata.Warnings = append(d.Metadata.Warnings, o.warnings(err)...)
	d.ModelInfo = s.modelInfo(running, expected)
	o.parameters(&d.BenchmarkParameters, s, running)
	d.DTypeMetadata = dtypes(running, s)
	d.LatencyStats = o.latency()
	d.MemoryMeasurements = memprofile.MemoryMeasurements{
		Baseline: point(o.Baseline), PostWarmup: point(o.PostWarmup), Peak: point(o.Peak),
	}
	d.MemoryTimeline = o.timeline()
	o.devices(&d.GPUInfo, s)
	d.EngineMetadata = memprofile.EngineMetadata{
		EngineVersion: memprofile.Text(o.Facts.Version), EngineType: memprofile.Text(o.Facts.Engine), ProfilingMethod: memprofile.Text(s.Method), Libraries: o.Facts.Libraries,
	}
	d.Fill()
	return d
}

// between says what the engine's processes may have held between two readings,
// where the kernel knows of more than was read.
func (o *Observation) between() []string {
	if o.Peak == nil {
		return nil
	}
	var most int64
	for _, d := range o.Peak.Devices {
		if d.ProcessPeak != nil {
			most += *d.ProcessPeak
		}
	}
	if most <= o.Peak.Total() {
		return nil
	}
	return []string{fmt.Sprintf("peak: between two readings the engine's processes held at most %s, an upper bound: what each of them has held at any time, summed", unit.Bytes(most))}
}

// warnings are what a reader must know of the whole.
func (o *Observation) warnings(architecture error) []string {
	out := slices.Clone(o.Facts.Warnings)
	if architecture != nil {
		out = append(out, "the architecture was not used: "+architecture.Error())
	}
	if o.Source == "" {
		out = append(out, "memory was not sampled")
	}
	if o.Source == gpu.RecordedName {
		out = append(out, "memory was played from a recording and not read: baseline, post-warm-up and peak are what it showed at the moments of this engine, which were not its own")
	}
	if o.unheard(o.end) {
		out = append(out, "the sampler ended before the engine did: the peak is not known")
	}
	if o.ruler.byProcess {
		out = append(out, "an engine on a CPU: used is the resident memory of its processes, and memory that they have set aside and not touched is not in it")
	}
	if o.Held > 0 {
		out = append(out, "the engine had run other tasks before, and may still have held memory of theirs")
	}
	if o.PostWarmup == nil && o.Source != "" && o.deaf.IsZero() {
		out = append(out, "post-warm-up was not measured: the engine did not say when it was warm")
	}
	return out
}

func (s Subject) modelInfo(d deploy.Config, e Expected) memprofile.ModelInfo {
	m := memprofile.ModelInfo{
		Name: memprofile.Text(s.Name), DType: memprofile.Text(d.DType), Quantization: memprofile.Text(d.Quantization), WeightsBytes: e.Weights,
		ArchitectureSource: memprofile.Text(e.Source),
	}
	known, _ := s.model() // its error is a warning
	if known != nil {
		if text, err := json.Marshal(known); err == nil {
			m.Architecture = text
		}
	} else {
		known = s.Model
	}
	if known != nil {
		n := float64(known.Params().Total)
		m.Parameters = &n
		m.Layers, m.Heads, m.KVHeads = count(int64(known.NumLayers)), count(int64(known.NumHeads)), count(int64(known.NumKVHeads))
		m.HeadDim, m.HiddenSize = count(int64(known.HeadDim)), count(int64(known.HiddenSize))
	}
	// What the user states wins.
	if s.Stated.Parameters > 0 {
		m.Parameters = &s.Stated.Parameters
	}
	for _, given := range []struct {
		value int
		into  **int
	}{
		{s.Stated.Layers, &m.Layers},
		{s.Stated.Heads, &m.Heads},
		{s.Stated.KVHeads, &m.KVHeads},
		{s.Stated.HeadDim, &m.HeadDim},
		{s.Stated.HiddenSize, &m.HiddenSize},
	} {
		if given.value > 0 {
			*given.into = &given.value
		}
	}
	return m
}

func (o *Observation) parameters(p *memprofile.BenchmarkParameters, s Subject, d deploy.Config) {
	p.Model = memprofile.Text(s.Name)
	p.InputLen, p.OutputLen, p.BatchSize = &o.Task.InputLen, &o.Task.OutputLen, &o.Task.BatchSize
	p.DType, p.Quantization = memprofile.Text(vllmName(d.DType)), memprofile.Text(d.Quantization)
	tp, pp := max(d.TensorParallel, 1), max(d.PipelineParallel, 1)
	p.TensorParallelSize, p.PipelineParallelSize = &tp, &pp
	p.WarmupIters, p.Iters = &o.Warmup, &o.Runs
	p.KVCacheDType, p.BlockSize, p.MaxModelLen = memprofile.Text(vllmName(d.KVCacheDType)), count(int64(d.BlockSize)), count(int64(d.MaxModelLen))
	p.MaxNumBatchedTokens, p.MaxNumSeqs = count(int64(d.MaxNumBatchedTokens)), count(int64(o.Facts.MaxBatch))
	if d.GPUMemoryUtilization > 0 && s.Vendor != "cpu" {
		p.GPUMemoryUtilization = &d.GPUMemoryUtilization
	}
	p.EngineArgs = s.EngineArgs
}

// vllmName is a format as vLLM and the profiles of its users spell it.
func vllmName(t catalog.DType) string {
	switch t {
	case catalog.BF16:
		return "bfloat16"
	case catalog.FP16:
		return "float16"
	case catalog.FP32:
		return "float32"
	}
	return string(t)
}

// dtypes names the formats of the components as far as they are known.
func dtypes(d deploy.Config, s Subject) memprofile.DTypeMetadata {
	quantized := d.Quantization != "" && d.Quantization != "none"
	kv := d.KVCacheDType
	if kv == "" {
		kv = d.DType
	}
	m := memprofile.DTypeMetadata{
		WeightDType: memprofile.Text(vllmName(d.DType)), ActivationDType: memprofile.Text(vllmName(d.DType)), KVCacheDType: memprofile.Text(vllmName(kv)),
		RequestedDType: memprofile.Text(vllmName(s.Asked.DType)), QuantizationApplied: &quantized,
	}
	if quantized {
		m.WeightDType = memprofile.Text(d.Quantization)
	}
	return m
}

func (o *Observation) latency() memprofile.LatencyStats {
	l := memprofile.LatencyStats{Latencies: o.Result.Totals}
	if len(o.Result.Totals) == 0 {
		return l
	}
	l.Percentiles = map[string]float64{}
	for _, p := range []struct {
		key   string
		share float64
	}{{"10", .10}, {"25", .25}, {"50", .50}, {"75", .75}, {"90", .90}, {"99", .99}} {
		l.Percentiles[p.key] = stat.Quantile(o.Result.Totals, p.share)
	}
	return l
}

// point is a moment as the profile has it.
func point(m *Moment) *memprofile.MemoryPoint {
	if m == nil {
		return nil
	}
	at := m.At.Seconds()
	p := &memprofile.MemoryPoint{At: &at, Marker: memprofile.Text(m.Marker)}
	for _, d := range m.Devices {
		p.PerGPU = append(p.PerGPU, memprofile.GPUUsed{
			Device: &d.Index, UUID: memprofile.Text(d.UUID), Name: memprofile.Text(d.Name),
			UsedBytes: size(d.Bytes), TotalBytes: bytesOf(d.Total), ProcessBytes: bytesOf(d.Process), ProcessPeakBytes: bytesOf(d.ProcessPeak),
		})
	}
	return p
}

func bytesOf(n *int64) *unit.Bytes {
	if n == nil {
		return nil
	}
	return size(*n)
}

// timeline is every sample; nil where there is none.
func (o *Observation) timeline() *memprofile.Timeline {
	t := &o.Timeline
	if len(t.Devices) == 0 {
		return nil
	}
	out := &memprofile.Timeline{Source: memprofile.Text(t.Source)}
	if interval, rate, ok := o.pace(); ok {
		out.Interval, out.RateHz = &interval, &rate
	}
	for i := range t.Devices {
		s := &t.Devices[i]
		l := lists(s.Samples)
		out.Devices = append(out.Devices, memprofile.DeviceTimeline{
			Index: &s.Index, UUID: memprofile.Text(s.UUID), Name: memprofile.Text(s.Name), At: l.at,
			UsedBytes: sizes(l.used), ProcessBytes: sizes(l.process), PowerW: l.power, Utilization: l.utilization,
		})
		if l.process != nil {
			out.ProcessScope = memprofile.Text(scope(t.Source, o.ruler.byProcess))
		}
	}
	return out
}

// scope says whose memory a source reads as that of processes.
func scope(source string, byProcess bool) string {
	switch {
	case byProcess:
		return "the engine's processes"
	case source == SamplerNvidiaSMI:
		return "all compute processes of the device, whosever, up to a second before"
	}
	return "all compute processes of the device, whosever"
}

func sizes(values []*int64) []*unit.Bytes {
	if values == nil {
		return nil
	}
	out := make([]*unit.Bytes, len(values))
	for i, v := range values {
		out[i] = bytesOf(v)
	}
	return out
}

// devices says on what the engine ran. A CPU is no device, and its memory that
// of the host.
func (o *Observation) devices(g *memprofile.GPUInfo, s Subject) {
	g.GPUType = "unknown"
	if s.Vendor != "" {
		g.GPUType = memprofile.Text(s.Vendor)
	}
	g.Sampler = memprofile.Text(o.Source)
	var total *unit.Bytes
	for i := range o.Timeline.Devices {
		series := &o.Timeline.Devices[i]
		if series.Name != "" {
			g.Names = append(g.Names, series.Name)
		}
		switch {
		case series.MemoryTotal == nil || i > 0 && total == nil:
			total = nil
		case i == 0:
			total = size(*series.MemoryTotal)
		default:
			*total += unit.Bytes(*series.MemoryTotal)
		}
	}
	if o.ruler.byProcess {
		g.GPUType, g.NumGPUs, g.HostMemoryBytes = "cpu", new(int), total
	} else {
		g.NumGPUs, g.SystemGPUs, g.TotalMemoryBytes = count(int64(len(o.Timeline.Devices))), count(int64(s.SystemDevices)), total
	}
	if len(g.Names) == 0 && strings.TrimSpace(o.Facts.Device.Reported) != "" {
		g.Names = []string{o.Facts.Device.Reported}
	}
}
