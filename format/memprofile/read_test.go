package memprofile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t testing.TB, text string) (*memprofile.Document, string) {
	t.Helper()
	d, warnings, err := memprofile.Read("x.json", strings.NewReader(text), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return d, strings.Join(warnings, "\n")
}

// figures are the sizes of a document in GB, in one line.
func figures(d *memprofile.Document) string {
	b := &d.MemoryBreakdown
	line := ""
	for _, v := range []*memprofile.GB{
		b.BaselineGB, b.TotalMeasuredGB, b.NetIncreaseGB, b.ModelWeightsGB, b.KVCacheGB, b.ActivationsGB, b.FrameworkOverheadGB, b.UnexplainedGB,
	} {
		if v == nil {
			line += " -"
			continue
		}
		line += fmt.Sprintf(" %.3f", float64(*v))
	}
	return line[1:]
}

func TestGoldens(t *testing.T) {
	const gib = 1.073741824 // GB
	for _, c := range []struct {
		why, file  string
		baseline   float64
		peak       float64
		parts      [4]float64 // GB: weights, KV cache, activations, overhead
		confidence memprofile.Confidence
		fault      string
		warning    string
	}{
		{
			why: "known architecture: parts in 1e9 bytes, what remains of the increase in bytes", file: "hi.json",
			baseline: 0.5 * gib, peak: 37.5 * gib, parts: [4]float64{13.4, 4.29, 0.54, 37*gib - 13.4 - 4.29 - 0.54}, confidence: memprofile.High,
			warning: "framework_overhead_gb 18.77",
		},
		{
			why: "unknown architecture: shares of the increase", file: "lo.json",
			baseline: 0.5 * gib, peak: 37.5 * gib, parts: [4]float64{24.05 * gib, 7.4 * gib, 4.44 * gib, 1.11 * gib}, confidence: memprofile.Low,
			warning: "MiB/1024",
		},
		{
			why: "sampled while no engine ran", file: "released.json",
			baseline: 0.5 * gib, peak: 0.5 * gib, parts: [4]float64{13.4, 4.29, 0.54, 0}, confidence: memprofile.High,
			fault: "parts exceed total: weights 13.40 GB, kv_cache 4.29 GB, activations 0.54 GB, framework_overhead 0.00 GB make 18.23 GB of 0.54 GB",
		},
		{
			why: "one of a batch", file: "vllm-inference_256in_256out_bs1_20261120_181600.json",
			baseline: 0.5 * gib, peak: 37.5 * gib, parts: [4]float64{13.4, 0.27, 0.03, 37*gib - 13.7}, confidence: memprofile.High,
		},
		{
			why: "the guide's example: GB of unknown size, baseline from the increase", file: "documented.json",
			baseline: 2.9, peak: 48.2, parts: [4]float64{29.8, 9.2, 5.5, 1.25}, confidence: memprofile.High,
			fault:   "parts exceed increase",
			warning: "metadata.run",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			d, warnings := read(t, string(fixture(t, c.file)))
			b := &d.MemoryBreakdown
			for i, got := range []*memprofile.GB{b.BaselineGB, b.TotalMeasuredGB, b.ModelWeightsGB, b.KVCacheGB, b.ActivationsGB, b.FrameworkOverheadGB} {
				want := append([]float64{c.baseline, c.peak}, c.parts[:]...)[i]
				if got == nil || math.Abs(float64(*got)-want) > 2e-9 {
					t.Errorf("figure %d of %s, want %g", i, figures(d), want)
				}
			}
			if b.Confidence != c.confidence {
				t.Errorf("confidence %q, want %q", b.Confidence, c.confidence)
			}
			faults := strings.Join(d.Faults(), "\n")
			if (faults == "") != (c.fault == "") || !strings.Contains(faults, c.fault) || b.Consistent != (c.fault == "") {
				t.Errorf("faults %q, consistent %v, want %q", faults, b.Consistent, c.fault)
			}
			if !strings.Contains(warnings, c.warning) {
				t.Errorf("warnings %q, want %q", warnings, c.warning)
			}
			if d.ModelInfo.Name == "" || d.LatencyStats.MeanMs == nil {
				t.Errorf("model %q, latency %v", d.ModelInfo.Name, d.LatencyStats)
			}
			again(t, d)
		})
	}
}

// again writes a document and reads it back.
func again(t testing.TB, d *memprofile.Document) {
	t.Helper()
	var first, second bytes.Buffer
	if err := memprofile.Write(&first, d); err != nil {
		t.Fatal(err)
	}
	back, warnings := read(t, first.String())
	if warnings != "" {
		t.Errorf("warnings on what was written: %s", warnings)
	}
	if err := memprofile.Write(&second, back); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("written again it differs:\n%s\n%s", first.String(), second.String())
	}
}

func TestOlderShapes(t *testing.T) {
	const latency = `"latency_stats":{"avg_latency":2,"latencies":[1,3]}`
	for _, c := range []struct{ why, text, name, want, warning string }{
		{
			why:  "the oldest: other names",
			text: `{"model_info":{"model_id":"a/b"},"gpu_info":{"gpu_type":"rocm","gpu_memory_baseline":1},"memory_breakdown":{"total_gb":20,"weights_gb":15,"overhead_gb":"2.5"}}`,
			name: "a/b", want: "1.000 20.000 19.000 15.000 - - 2.500 1.500",
		},
		{
			why:  "a name of two",
			text: `{"model_info":{"model_name":"c","model_id":"d"},"memory_breakdown":{"total_measured_gb":20}}`,
			name: "c", want: "- 20.000 - - - - - -", warning: `gpu_type "unknown"`,
		},
		{
			why:  "v1.0 without measurements; numbers in quotes; a model only in the parameters",
			text: `{"profiler_version":"1.0","benchmark_parameters":{"model":"m","batch_size":"8","output_len":512.0},"memory_breakdown":{"total_measured_gb":"20.5","baseline_gb":0,"kv_cache":2},` + latency + `}`,
			name: "m", want: "0.000 20.500 20.500 - 2.000 - - 18.500",
		},
		{
			why:  "figures that are no numbers are left out",
			text: `{"model_info":{"name":"m"},"memory_breakdown":{"total_measured_gb":20,"baseline_gb":NaN,"activations_gb":-Infinity}}`,
			name: "m", want: "- 20.000 - - - - - -", warning: "memory_breakdown.baseline_gb: left out: NaN",
		},
		{
			why:  "only the guide's total",
			text: `{"model_info":{"name":"m"},"memory_measurements":null,"memory_breakdown":{},"memory":{"total_gb":7}}`,
			name: "m", want: "- 7.000 - - - - - -",
		},
		{
			why: "two devices: parts of one device are taken times two, and what remains again",
			text: `{"model_info":{"name":"m"},"gpu_info":{"gpu_type":"rocm"},"benchmark_parameters":{"tensor_parallel_size":2},
				"memory_measurements":{"baseline":{"total_gb":1},"peak":{"total_gb":101,"per_gpu_details":[{"device":0,"used_gb":50,"total_gb":206.0},{"device":1,"used_gb":51,"total_gb":206.0}]}},
				"memory_breakdown":{"model_weights_gb":10,"kv_cache_gb":20,"activations_gb":5,"framework_overhead_gb":65,
				"confidence_levels":{"weights":"High","kv_cache":"high","activations":"sure"}}}`,
			name: "m", want: "1.000 101.000 100.000 20.000 40.000 5.000 35.000 0.000", warning: `unknown confidence "sure"`,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			d, warnings := read(t, c.text)
			if got := figures(d); got != c.want || string(d.ModelInfo.Name) != c.name || !strings.Contains(warnings, c.warning) {
				t.Errorf("%s of %q, want %s of %q; warnings %s", got, d.ModelInfo.Name, c.want, c.name, warnings)
			}
			again(t, d)
		})
	}
	d, _ := read(t, `{"memory_breakdown":{"total_gb":1},"benchmark_parameters":{"batch_size":8,"output_len":512},`+latency+`}`)
	if rate := d.LatencyStats.TokensPerSecond; rate == nil || *rate != 2048 || *d.LatencyStats.MeanMs != 2000 {
		t.Errorf("8 × 512 tokens in 2 s: %v", d.LatencyStats)
	}
	d, _ = read(t, `{"gpu_info":{"gpu_type":"rocm","total_gpu_memory_gb":412.0},"memory_breakdown":{"total_gb":1}}`)
	if d.GPUInfo.TotalMemoryBytes != nil {
		t.Error("the constant 206 GB of a ROCm device was taken for a measurement")
	}
	for given, want := range map[string]string{
		"2026-11-20 18:15:19": "2026-11-20 18:15:19", "2026-11-20T18:15:19.5": "2026-11-20 18:15:19", "yesterday": "",
	} {
		d, _ = read(t, fmt.Sprintf(`{"timestamp":%q,"memory_breakdown":{"total_gb":1}}`, given))
		if string(d.Timestamp) != want {
			t.Errorf("timestamp %q became %q", given, d.Timestamp)
		}
	}
}

func TestBroken(t *testing.T) {
	ours := func(change ...string) string {
		var b strings.Builder
		if err := memprofile.Write(&b, full()); err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer(change...).Replace(b.String())
	}
	t.Run("ours of before a key was there is read", func(t *testing.T) {
		d, _, err := memprofile.Read("x.json", strings.NewReader(ours(`"run_id"`, `"run"`)), format.Limits{})
		if err != nil || d.Metadata.RunID != "" {
			t.Errorf("%v, %+v", err, d)
		}
	})
	for _, c := range []struct{ why, text, want string }{
		{"a list", `[1]`, "want one JSON object"},
		{"two documents", `{"memory_breakdown":{}}{}`, "want one JSON object"},
		{"cut off", `{"memory_breakdown":{`, "ends in the middle"},
		{"a vLLM result", `{"avg_latency":1,"latencies":[1]}`, "is no memory profile"},
		{"no figure", `{"model_info":{"name":"m"},"memory_breakdown":{"model_weights_gb":null},"latency_stats":{"avg_latency":1}}`, "holds no memory figure"},
		{"a word for a number", `{"memory_breakdown":{"total_measured_gb":"much"}}`, `memory_breakdown.total_measured_gb: want a number, got "much"`},
		{"a list for an object", `{"memory_breakdown":[]}`, "memory_breakdown: want an object, got a list of 0"},
		{"an object for a list", `{"memory_breakdown":{"notes":{}}}`, "memory_breakdown.notes: want a list, got an object of 0 keys"},
		{"a broken device", `{"memory_measurements":{"peak":{"per_gpu_details":[{"used_gb":[]}]}}}`, "memory_measurements.peak.per_gpu_details[0].used_gb: want a number"},
		{"half a layer", `{"model_info":{"num_layers":1.5},"memory_breakdown":{}}`, "model_info.num_layers: want a whole number"},
		{"a number for a name of old", `{"model_info":{"model_id":{}},"memory_breakdown":{}}`, "model_info.model_id: want a string"},
		{"a word for a truth", `{"dtype_metadata":{"quantization_applied":"yes"},"memory_breakdown":{}}`, "dtype_metadata.quantization_applied: want true or false"},
		{"a number twice as long as any", `{"memory_breakdown":{"total_gb":1e999}}`, "is too large"},
		{"another schema", `{"schema":"llmprof/profile","memory_breakdown":{}}`, `schema: want "llmprof/memory-profile"`},
		{"no version", ours(`"version": "1.0"`, `"version": "one"`), `version: want a version such as 1.0, got "one"`},
		{"a newer major version", ours(`"version": "1.0"`, `"version": "2.0"`), "x.json: llmprof/memory-profile version 2.0 is newer than 1.0"},
		{"ours with a size as text", ours(`"total_bytes": 22726564864`, `"total_bytes": "22726564864"`), "total_bytes': got string, want null or integer"},
		{"ours with a size below zero", ours(`"total_bytes": 22726564864`, `"total_bytes": -1`), "minimum: got -1, want 0"},
		{"ours with no number", ours(`"total_bytes": 22726564864`, `"total_bytes": NaN`), "holds a number that is not finite"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, _, err := memprofile.Read("x.json", strings.NewReader(c.text), format.Limits{})
			if err == nil || !strings.HasPrefix(err.Error(), "x.json: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			newer, ok := errors.AsType[*profile.VersionError](err)
			if ok != strings.Contains(c.why, "newer") {
				t.Errorf("a version error: %v", newer)
			}
		})
	}
	_, warnings := read(t, ours(`"version": "1.0"`, `"version": "1.7"`, `"run_id"`, `"colour": 1, "run_id"`))
	if !strings.Contains(warnings, "version 1.7 is newer than 1.0") || !strings.Contains(warnings, "passed over: metadata.colour") {
		t.Errorf("a newer minor version: %s", warnings)
	}
}

// TestSpoilt: a figure that was changed by hand without those that it follows
// from is told with both, and the bytes count.
func TestSpoilt(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(map[string]any)
		want   []string // paths
	}{
		{"nothing", func(map[string]any) {}, nil},
		{"an alias", func(d map[string]any) { d["memory"].(map[string]any)["total_gb"] = 999.5 }, []string{"memory.total_gb is 999.5 in the file, and 22.726564864 by"}},
		{"a size in bytes", func(d map[string]any) { d["memory_breakdown"].(map[string]any)["model_weights_bytes"] = 1 }, []string{"memory_breakdown.model_weights_bytes is 1 in the file, and 16060522496 by"}},
		{"a size of a device", func(d map[string]any) {
			peak := d["memory_measurements"].(map[string]any)["peak"].(map[string]any)
			peak["per_gpu_details"].([]any)[0].(map[string]any)["used_gb"] = 3
		}, []string{"memory_measurements.peak.per_gpu_details[0].used_gb is 3 in the file"}},
		{"what follows from nothing", func(d map[string]any) {
			m := d["memory_measurements"].(map[string]any)
			m["baseline"], m["memory_increase_gb"] = nil, 5
		}, []string{"memory_measurements.memory_increase_gb is 5 in the file, and what it follows from is not there"}},
		{"a name of a part", func(d map[string]any) {
			d["memory_breakdown"].(map[string]any)["parts"].([]any)[0].(map[string]any)["part"] = "wights"
		}, []string{`part "wights" is not known`}},
		{"a part: what follows from it differs", func(d map[string]any) {
			d["memory_breakdown"].(map[string]any)["parts"].([]any)[0].(map[string]any)["bytes"] = 1e9
		}, []string{"memory_breakdown.model_weights_bytes is ", "memory_breakdown.unexplained_gb is ", "memory_breakdown.weights is "}},
	} {
		t.Run(c.why, func(t *testing.T) {
			var b strings.Builder
			if err := memprofile.Write(&b, full()); err != nil {
				t.Fatal(err)
			}
			var d map[string]any
			if err := json.Unmarshal([]byte(b.String()), &d); err != nil {
				t.Fatal(err)
			}
			c.change(d)
			text, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			_, warnings := read(t, string(text))
			for _, want := range c.want {
				if !strings.Contains(warnings, want) {
					t.Errorf("%q is not said: %s", want, warnings)
				}
			}
			if len(c.want) == 0 && warnings != "" {
				t.Error(warnings)
			}
		})
	}
}

func TestDetect(t *testing.T) {
	for text, want := range map[string]bool{
		string(fixture(t, "hi.json")[:1200]):                            true,
		string(fixture(t, "documented.json")):                           true,
		`{"schema":"llmprof/memory-profile","version":"1`:               true,
		`{"schema":"llmprof/profile","version":"1.0"}`:                  false,
		`{"avg_latency":1,"latencies":[1]}`:                             false,
		`{"model_info":{"model_id":"a"},"gpu_info":{"gpu_type":"cuda"}`: true,
		"model_id,container_name":                                       false,
		"":                                                              false,
	} {
		if got := memprofile.Detect([]byte(text)); got != want {
			t.Errorf("%.40q: %v", text, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"hi.json", "lo.json", "released.json", "documented.json"} {
		f.Add(fixture(f, name))
	}
	var ours bytes.Buffer
	if err := memprofile.Write(&ours, full()); err != nil {
		f.Fatal(err)
	}
	f.Add(ours.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		d, _, err := memprofile.Read("x", bytes.NewReader(text), format.Limits{Bytes: 1 << 20, Values: 1 << 16})
		if err != nil {
			return
		}
		d.Fill()
		_ = memprofile.BatchRowOf(d, "c", "f", unit.Seconds(1))
		var out bytes.Buffer
		if memprofile.Write(&out, d) == nil { // a size below zero is refused
			again(t, d)
		}
	})
}
