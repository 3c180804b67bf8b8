package memprofile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

func to[T any](v T) *T { return &v }

// full is a document in which nothing is missing. Its figures are those of a
// public run of Llama-3.1-8B on an RTX 4090, as far as that tells them.
func full() *memprofile.Document {
	d := &memprofile.Document{}
	d.SetTime(time.Date(2026, 11, 20, 19, 15, 19, 0, time.FixedZone("", 3600)))
	d.Metadata.Tool, d.Metadata.Host, d.Metadata.Place = "llmprof v1", "h", "local"
	d.Metadata.Source, d.Metadata.Command, d.Metadata.RunID = "vllm bench latency", "vllm serve", "r1"
	d.ModelInfo = memprofile.ModelInfo{
		Name: "meta-llama/Llama-3.1-8B", Parameters: to(8030261248.0), Layers: to(32), Heads: to(32), KVHeads: to(8), HeadDim: to(128),
		HiddenSize: to(4096), DType: "bfloat16", Quantization: "none", WeightsBytes: to(unit.Bytes(16060522496)), ArchitectureSource: "config.json",
	}
	d.BenchmarkParameters = memprofile.BenchmarkParameters{
		Model: "meta-llama/Llama-3.1-8B", InputLen: to(512), OutputLen: to(512), BatchSize: to(8), DType: "bfloat16",
		TensorParallelSize: to(1), PipelineParallelSize: to(1), Quantization: "none", WarmupIters: to(10), Iters: to(30),
		KVCacheDType: "auto", BlockSize: to(16), MaxModelLen: to(8192), GPUMemoryUtilization: to(0.9), EngineArgs: []string{"--enforce-eager"},
	}
	d.DTypeMetadata = memprofile.DTypeMetadata{
		WeightDType: "bfloat16", ActivationDType: "bfloat16", KVCacheDType: "bfloat16", RequestedDType: "auto", QuantizationApplied: to(false),
	}
	d.LatencyStats = memprofile.LatencyStats{Avg: to(2.5), Latencies: []float64{2.4, 2.5, 2.6}, Percentiles: map[string]float64{
		"10": 2.42, "25": 2.45, "50": 2.5, "75": 2.55, "90": 2.58, "99": 2.598,
	}}
	point := func(used unit.Bytes, at float64, marker memprofile.Text) *memprofile.MemoryPoint {
		return &memprofile.MemoryPoint{At: &at, Marker: marker, PerGPU: []memprofile.GPUUsed{{
			Device: to(0), UUID: "GPU-1", Name: "NVIDIA GeForce RTX 4090", UsedBytes: &used, TotalBytes: to(unit.Bytes(25250627584)), ProcessBytes: to(used / 2), ProcessPeakBytes: to(used),
		}}}
	}
	d.MemoryMeasurements = memprofile.MemoryMeasurements{
		Baseline: point(1_000_000, 0, "before the start"), PostWarmup: point(22_726_564_864, 9, "log: Application startup complete"),
		Peak: point(22_726_564_864, 12.5, "highest sample"),
	}
	part := func(name string, size unit.Bytes, c memprofile.Confidence) memprofile.Part {
		return memprofile.Part{Name: name, Bytes: &size, RoundingBytes: to(unit.Bytes(11e6)), Confidence: c, Source: "log", Note: "n"}
	}
	d.MemoryBreakdown.Parts = []memprofile.Part{
		part(memprofile.PartWeights, 16_060_522_496, memprofile.High), part(memprofile.PartKVCache, 5_427_429_376, memprofile.High),
		part(memprofile.PartActivations, 900_000_000, memprofile.Medium), part(memprofile.PartCUDAGraphs, 100_000_000, memprofile.Medium),
		part(memprofile.PartOverhead, 200_000_000, memprofile.Low),
	}
	d.MemoryBreakdown.EstimationMethod, d.MemoryBreakdown.Notes = "measured", []string{"a"}
	d.KVCache = memprofile.KVCache{Blocks: to(2588), BlockSize: to(16), UsedTokens: to(8192), Source: "log"}
	d.MemoryTimeline = &memprofile.Timeline{Source: "nvml", Interval: to(0.1), RateHz: to(10.0), ProcessScope: "all", Devices: []memprofile.DeviceTimeline{{
		Index: to(0), UUID: "GPU-1", Name: "NVIDIA GeForce RTX 4090", At: []float64{0, 0.1}, UsedBytes: []*unit.Bytes{to(unit.Bytes(1_000_000)), to(unit.Bytes(22_726_564_864))},
		ProcessBytes: []*unit.Bytes{nil, to(unit.Bytes(5))}, PowerW: []*float64{to(30.0), to(300.5)}, Utilization: []*float64{to(0.0), nil},
	}}}
	d.CalculatorComparison = json.RawMessage(`{"note":"none"}`)
	d.GPUInfo = memprofile.GPUInfo{
		GPUType: "cuda", NumGPUs: to(1), SystemGPUs: to(2), Names: []string{"NVIDIA GeForce RTX 4090"}, Sampler: "nvml", TotalMemoryBytes: to(unit.Bytes(25250627584)),
	}
	d.EngineMetadata = memprofile.EngineMetadata{
		EngineVersion: "0.11.0", EngineType: "vllm", ProfilingMethod: "vllm_bench_latency", Libraries: map[string]string{"torch": "2.9"},
	}
	return d
}

// tree is the document as a reader of the file has it.
func tree(t testing.TB, d *memprofile.Document) map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := memprofile.Write(&b, d); err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// at follows a jq path such as ".memory.total_gb" or ".devices[0].name".
func at(v any, path string) any {
	for key := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch here := v.(type) {
		case map[string]any:
			v = here[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(here) {
				return nil
			}
			v = here[i]
		default:
			return nil
		}
	}
	return v
}

// TestPaths: every query of the guide has an answer.
func TestPaths(t *testing.T) {
	doc := tree(t, full())
	for _, path := range strings.Fields(`
		.memory.total_gb .latency_stats.mean_latency_ms
		.memory_breakdown.weights .memory_breakdown.kv_cache .memory_breakdown.activations .memory_breakdown.overhead .memory_breakdown.confidence
		.profiler_version .schema_version
		.memory_measurements.baseline.total_gb .memory_measurements.peak.total_gb .memory_measurements.memory_increase_gb
		.memory_breakdown.model_weights_gb .memory_breakdown.kv_cache_gb .memory_breakdown.activations_gb
		.memory_breakdown.framework_overhead_gb .memory_breakdown.confidence_levels.overall
		.memory_measurements.peak.per_gpu_details .memory_measurements.peak.per_gpu_details[0].used_gb
		.memory_breakdown.total_measured_gb
		.metadata .metadata.timestamp .latency_stats.tokens_per_second .engine_metadata.engine_version .engine_metadata.engine_type
		.memory_breakdown.confidence_levels.weights .memory_breakdown.confidence_levels.kv_cache .memory_breakdown.confidence_levels.activations
		.memory_measurements.post_warmup.total_gb .model_info.name .model_info.num_parameters .model_info.num_layers .model_info.dtype
	`) {
		if at(doc, path) == nil {
			t.Errorf("%s is null", path)
		}
	}
	for path, want := range map[string]any{
		".schema": "llmprof/memory-profile", ".version": "1.0", ".profiler_version": "2.0", ".timestamp": "2026-11-20 18:15:19",
		".metadata.timestamp": "2026-11-20T18:15:19Z", ".latency_stats.tokens_per_second": 8 * 512 / 2.5,
		".memory_breakdown.weights": 16.060522496, ".memory_breakdown.confidence": "low", ".memory_breakdown.consistent": true,
		".memory_breakdown.unexplained_bytes": 22_725_564_864.0 - 16_060_522_496 - 5_427_429_376 - 1_200_000_000,
		".kv_cache.tokens":                    41408.0, ".kv_cache.used_bytes": 8192 * 131072.0, ".memory_breakdown.kv_cache_used_gb": 1.073741824,
		".memory_measurements.peak.stddev_used_gb": 0.0, ".memory_measurements.warmup_to_peak_gb": 0.0,
		".memory_breakdown.overhead_percentage": 200_000_000.0 / 22_726_564_864 * 100,
	} {
		if got := at(doc, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

// TestRealPaths: every key of a real v2.0 file stands in ours, and where that
// has a value, so has what is read from it.
func TestRealPaths(t *testing.T) {
	for _, name := range []string{"hi.json", "lo.json"} {
		text := fixture(t, name)
		var theirs map[string]any
		if err := json.Unmarshal(text, &theirs); err != nil {
			t.Fatal(err)
		}
		d, _ := read(t, string(text))
		own, all := tree(t, d), tree(t, full())
		var walk func(path string, v any)
		walk = func(path string, v any) {
			switch v := v.(type) {
			case map[string]any:
				for key, child := range v {
					walk(path+"."+key, child)
				}
				return
			case []any:
				for i, child := range v {
					walk(path+"["+strconv.Itoa(i)+"]", child)
				}
				return
			}
			if got := at(own, path); (got == nil) != (v == nil) {
				t.Errorf("%s: %s is %v, in the file %v", name, path, got, v)
			}
			if !strings.HasPrefix(path, ".calculator_comparison") && v != nil && !strings.Contains(path, "notes") && !strings.Contains(path, "latencies") && at(all, path) == nil {
				t.Errorf("%s is null in a full document", path)
			}
			if _, word := v.(string); word && at(own, path) != v {
				t.Errorf("%s: %s is %v, in the file %v", name, path, at(own, path), v)
			}
		}
		walk("", theirs)
	}
}

func TestNothingMeasured(t *testing.T) {
	doc := tree(t, &memprofile.Document{})
	for _, path := range []string{
		".memory.total_gb", ".memory_breakdown.weights", ".memory_breakdown.unexplained_gb", ".memory_breakdown.overhead_percentage", ".memory_measurements.peak",
		".latency_stats.mean_latency_ms", ".latency_stats.tokens_per_second", ".kv_cache.bytes", ".memory_timeline", ".timestamp", ".model_info.name",
	} {
		if got := at(doc, path); got != nil {
			t.Errorf("%s is %v", path, got)
		}
	}
	again(t, &memprofile.Document{})
	zero := full()
	zero.LatencyStats.Avg = to(0.0)
	zero.MemoryMeasurements.Peak = &memprofile.MemoryPoint{TotalBytes: to(unit.Bytes(0))}
	if doc := tree(t, zero); at(doc, ".latency_stats.tokens_per_second") != nil || at(doc, ".memory_breakdown.overhead_percentage") != nil {
		t.Error("something was divided by zero")
	}
}

func TestSeveralDevices(t *testing.T) {
	d := &memprofile.Document{}
	for _, used := range []unit.Bytes{1e9, 2e9, 3e9, 6e9} {
		peak := &d.MemoryMeasurements.Peak
		if *peak == nil {
			*peak = &memprofile.MemoryPoint{}
		}
		(*peak).PerGPU = append((*peak).PerGPU, memprofile.GPUUsed{UsedBytes: &used})
	}
	doc := tree(t, d)
	for path, want := range map[string]float64{"total_gb": 12, "max_used_gb": 6, "mean_used_gb": 3, "stddev_used_gb": math.Sqrt(14.0 / 3), "num_gpus": 4} {
		if got := at(doc, ".memory_measurements.peak."+path); got != want {
			t.Errorf("%s is %v, want %g", path, got, want)
		}
	}
}

func TestFaults(t *testing.T) {
	type change func(d *memprofile.Document)
	for _, c := range []struct {
		why    string
		change change
		want   string
	}{
		{"a sound document", func(*memprofile.Document) {}, ""},
		{"parts above the total", func(d *memprofile.Document) { d.MemoryBreakdown.Parts[0].Bytes = to(unit.Bytes(17e9)) }, "parts exceed total: weights 17.00 GB"},
		{"parts above the increase", func(d *memprofile.Document) {
			*d.MemoryMeasurements.Baseline.PerGPU[0].UsedBytes = 1e9
		}, "parts exceed increase"},
		{"rounding is no fault", func(d *memprofile.Document) { *d.MemoryBreakdown.Parts[4].Bytes += 45e6 }, ""},
		{"nor is what eight devices round together", func(d *memprofile.Document) {
			*d.MemoryBreakdown.Parts[4].Bytes += 300e6
			d.MemoryBreakdown.Parts[0].RoundingBytes = to(unit.Bytes(8 * 43e6))
		}, ""},
		{"an exact figure has no rounding", func(d *memprofile.Document) {
			for i := range d.MemoryBreakdown.Parts {
				d.MemoryBreakdown.Parts[i].RoundingBytes = to(unit.Bytes(0))
			}
			*d.MemoryBreakdown.Parts[4].Bytes += 45e6
		}, "parts exceed total"},
		{"a cache in the host's memory need not be touched", func(d *memprofile.Document) {
			d.GPUInfo.GPUType = "cpu"
			d.MemoryBreakdown.Parts[1].Bytes = to(unit.Bytes(500e9))
		}, ""},
		{"weights must", func(d *memprofile.Document) {
			d.GPUInfo.GPUType = "cpu"
			d.MemoryBreakdown.Parts[0].Bytes = to(unit.Bytes(500e9))
		}, "parts exceed total: weights 500.00 GB, activations"},
		{"a part below zero", func(d *memprofile.Document) { d.MemoryBreakdown.Parts[2].Bytes = to(unit.Bytes(-1e9)) }, "activations is negative: -1.00 GB"},
		{"no memory in use", func(d *memprofile.Document) {
			d.MemoryMeasurements.Peak = &memprofile.MemoryPoint{TotalBytes: to(unit.Bytes(0))}
		}, "total is zero"},
		{"a baseline above the peak", func(d *memprofile.Document) {
			d.MemoryMeasurements.Baseline = &memprofile.MemoryPoint{TotalBytes: to(unit.Bytes(23e9))}
		}, "baseline of 23.00 GB exceeds the peak of 22.73 GB"},
		{"a warm-up above the peak", func(d *memprofile.Document) { *d.MemoryMeasurements.PostWarmup.PerGPU[0].UsedBytes = 24e9 }, "post_warmup of 24.00 GB exceeds the peak"},
		{"more than the device has", func(d *memprofile.Document) { *d.MemoryMeasurements.Peak.PerGPU[0].UsedBytes = 26e9 }, "peak of device 0 is 26.00 GB, more than the 25.25 GB that it has"},
		{"devices that do not add up", func(d *memprofile.Document) { d.MemoryMeasurements.Peak.TotalBytes = to(unit.Bytes(23e9)) }, "its devices add up to 22.73 GB"},
		{"a negative point", func(d *memprofile.Document) {
			d.MemoryMeasurements.Baseline = &memprofile.MemoryPoint{TotalBytes: to(unit.Bytes(-1e9))}
		}, "baseline is negative"},
		{"more KV cache in use than there is", func(d *memprofile.Document) {
			d.KVCache.UsedBytes = to(unit.Bytes(6e9))
			d.KVCache.Bytes = to(unit.Bytes(5.427e9))
		}, "KV cache in use, 6.00 GB, exceeds"},
		{"more tokens than there is room for", func(d *memprofile.Document) { d.KVCache.UsedTokens, d.KVCache.Tokens = to(41409), to(41408) }, "KV cache holds 41409 tokens"},
		{"two sizes of the KV cache", func(d *memprofile.Document) { d.KVCache.Bytes = to(unit.Bytes(5e9)) }, "kv_cache.bytes is 5.00 GB, but the part kv_cache 5.43 GB"},
		{"a part that stands twice", func(d *memprofile.Document) {
			d.MemoryBreakdown.Parts = append(d.MemoryBreakdown.Parts, memprofile.Part{Name: memprofile.PartWeights})
		}, "part weights stands twice"},
		{"a timeline that goes back", func(d *memprofile.Document) { slices.Reverse(d.MemoryTimeline.Devices[0].At) }, "timeline of device 0 goes back in time"},
		{"a timeline of unequal lists", func(d *memprofile.Document) {
			d.MemoryTimeline.Devices[0].PowerW = []*float64{to(1.0)}
		}, "timeline of device 0 has 2 times, but 1 of power_w"},
	} {
		t.Run(c.why, func(t *testing.T) {
			d := full()
			c.change(d)
			before := strings.Join(d.Faults(), "\n")
			d.Fill()
			if got := strings.Join(d.MemoryBreakdown.Faults, "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || !strings.Contains(before, c.want) {
				t.Errorf("faults %q, before filling %q, want %q", got, before, c.want)
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(d *memprofile.Document)
		want   string
	}{
		{"a size below zero", func(d *memprofile.Document) { d.KVCache.UsedBytes = to(unit.Bytes(-1)) }, "/kv_cache/used_bytes': minimum"},
		{"a confidence of its own", func(d *memprofile.Document) { d.MemoryBreakdown.Parts[0].Confidence = "sure" }, "value must be one of"},
		{"no number", func(d *memprofile.Document) { d.LatencyStats.Avg = to(math.NaN()) }, "unsupported value"},
		{"a comparison that is a list", func(d *memprofile.Document) { d.CalculatorComparison = json.RawMessage(`[]`) }, "/calculator_comparison"},
		{"a part without a name", func(d *memprofile.Document) { d.MemoryBreakdown.Parts[0].Name = "" }, "/memory_breakdown/parts/0/part"},
	} {
		d := full()
		c.change(d)
		var out bytes.Buffer
		if err := memprofile.Write(&out, d); err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%s: error %v, want %q; %d bytes written", c.why, err, c.want, out.Len())
		}
	}
	if err := memprofile.Write(brokenWriter{}, full()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

// TestSchemaInStep: every key of the structs stands in the schema and the
// other way round, and every key is required.
func TestSchemaInStep(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(memprofile.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	resolve := func(v any) map[string]any {
		node, _ := v.(map[string]any)
		if ref, ok := node["$ref"].(string); ok {
			node, _ = at(schema, strings.ReplaceAll(strings.TrimPrefix(ref, "#"), "/", ".")).(map[string]any)
		}
		return node
	}
	var walk func(path string, typ reflect.Type, node map[string]any)
	walk = func(path string, typ reflect.Type, node map[string]any) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct {
			walk(path+"[]", typ.Elem(), resolve(node["items"]))
			return
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		properties, _ := node["properties"].(map[string]any)
		var keys, named, required []string
		for i := range typ.NumField() {
			key := typ.Field(i).Tag.Get("json")
			keys = append(keys, key)
			walk(path+"."+key, typ.Field(i).Type, resolve(properties[key]))
		}
		for key := range properties {
			named = append(named, key)
		}
		for _, key := range node["required"].([]any) {
			required = append(required, key.(string))
		}
		for _, list := range [][]string{keys, named, required} {
			slices.Sort(list)
		}
		if diff := cmp.Diff(keys, named); diff != "" {
			t.Errorf("%s: the struct and the schema: %s", path, diff)
		}
		if diff := cmp.Diff(keys, required); diff != "" {
			t.Errorf("%s: the struct and what the schema requires: %s", path, diff)
		}
	}
	walk("", reflect.TypeFor[memprofile.Document](), schema)
}

// TestRoundTrip: what is given is read back as it was written.
func TestRoundTrip(t *testing.T) {
	sizes := rapid.Ptr(rapid.Map(rapid.Int64Range(0, 1<<45), func(n int64) unit.Bytes { return unit.Bytes(n) }), true)
	seconds := rapid.Float64Range(0, 1e6)
	words := rapid.Map(rapid.StringMatching(`[ -~é✗]{0,12}`), func(s string) memprofile.Text { return memprofile.Text(s) })
	counts := rapid.Ptr(rapid.IntRange(0, 1<<20), true)
	rapid.Check(t, func(t *rapid.T) {
		d := full()
		d.ModelInfo.Name, d.Metadata.Command = words.Draw(t, "name"), words.Draw(t, "command")
		d.ModelInfo.Layers, d.BenchmarkParameters.BatchSize = counts.Draw(t, "layers"), counts.Draw(t, "batch")
		d.LatencyStats.Avg, d.LatencyStats.Latencies = rapid.Ptr(seconds, true).Draw(t, "avg"), rapid.SliceOfN(seconds, 1, 4).Draw(t, "latencies")
		d.KVCache.UsedTokens = counts.Draw(t, "used")
		d.MemoryMeasurements.Baseline = rapid.Ptr(rapid.Just(memprofile.MemoryPoint{Marker: "m"}), true).Draw(t, "baseline")
		d.MemoryMeasurements.Peak = &memprofile.MemoryPoint{TotalBytes: sizes.Draw(t, "peak")}
		for i := range d.MemoryBreakdown.Parts {
			d.MemoryBreakdown.Parts[i].Bytes = sizes.Draw(t, "part")
			d.MemoryBreakdown.Parts[i].Note = words.Draw(t, "note")
		}
		used := rapid.SliceOfN(sizes, 0, 5).Draw(t, "series")
		d.MemoryTimeline.Devices[0].UsedBytes, d.MemoryTimeline.Devices[0].At = used, make([]float64, len(used))
		var b strings.Builder
		if err := memprofile.Write(&b, d); err != nil {
			t.Fatal(err)
		}
		back, warnings, err := memprofile.Read("x", strings.NewReader(b.String()), noLimits())
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		back.CalculatorComparison = d.CalculatorComparison // compact or not
		if diff := cmp.Diff(d, back); diff != "" {
			t.Fatal(diff)
		}
	})
}
