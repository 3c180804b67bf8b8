package llmsizer_test

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost/llmsizer"
)

// readGolden decodes a compressed file of testdata.
func readGolden(t *testing.T, name string, into any) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(plain).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// models reads a table of the tool by both ids.
func models(t *testing.T, name string) map[string]llmsizer.Model {
	t.Helper()
	var table struct {
		Models []struct {
			ID           string  `json:"id"`
			HubID        string  `json:"hf_model_id"`
			Billions     float64 `json:"parameters_billions"`
			Layers       int     `json:"num_layers"`
			Heads        int     `json:"num_heads"`
			KVHeads      int     `json:"num_kv_heads"`
			Hidden       int     `json:"hidden_size"`
			Intermediate int     `json:"intermediate_size"`
		}
	}
	readGolden(t, name, &table)
	out := map[string]llmsizer.Model{}
	for _, m := range table.Models {
		for _, id := range []string{m.ID, m.HubID} {
			if _, ok := out[id]; !ok {
				out[id] = llmsizer.Model{Params: m.Billions * 1e9, Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, Hidden: m.Hidden, Intermediate: m.Intermediate}
			}
		}
	}
	return out
}

func gpus(t *testing.T) map[string]llmsizer.GPU {
	t.Helper()
	var table struct {
		GPUs []struct {
			ID        string  `json:"id"`
			Memory    float64 `json:"vram_gb"`
			Bandwidth float64 `json:"memory_bandwidth_gbps"`
			FP16      float64 `json:"compute_tflops_fp16"`
			FP8       float64 `json:"compute_tflops_fp8"`
		}
	}
	readGolden(t, "gpus.json.gz", &table)
	out := map[string]llmsizer.GPU{}
	for _, g := range table.GPUs {
		out[g.ID] = llmsizer.GPU{MemoryGB: g.Memory, BandwidthGBps: g.Bandwidth, FP16TFLOPS: g.FP16, FP8TFLOPS: g.FP8}
	}
	return out
}

// goldenCase is one case of the app.
type goldenCase struct {
	Model, GPU, Quant, KV   string
	Batch, Seq, Users, GPUs int
	UsedVRAM, TotalVRAM     float64
	VRAMPercentage          float64
	Status                  llmsizer.Status
	Breakdown               llmsizer.Memory
	Perf                    llmsizer.Speed
}

func (c goldenCase) input(t *testing.T, v llmsizer.Version, models map[string]llmsizer.Model, gpus map[string]llmsizer.GPU) llmsizer.Input {
	t.Helper()
	model, ok := models[c.Model]
	if !ok {
		t.Fatalf("no model %s", c.Model)
	}
	gpu, ok := gpus[c.GPU]
	if !ok {
		t.Fatalf("no GPU %s", c.GPU)
	}
	weights, err := catalog.ParseDType(c.Quant)
	if err != nil {
		t.Fatal(err)
	}
	kv := map[string]catalog.DType{"fp16_bf16": catalog.FP16, "fp8_bf16": catalog.FP8, "int8": catalog.INT8}[c.KV]
	return llmsizer.Input{Version: v, Model: model, GPU: gpu, Weights: weights, KV: kv, Batch: c.Batch, Tokens: c.Seq, Users: c.Users, GPUs: c.GPUs}
}

func TestApp(t *testing.T) {
	cards := gpus(t)
	for _, test := range []struct {
		version       llmsizer.Version
		cases, models string
		count         int
	}{
		{llmsizer.AppEarly, "calculator_2c8af80.json.gz", "models.2c8af80.json.gz", 480},
		{llmsizer.AppLate, "calculator_head.json.gz", "models.head.json.gz", 800},
	} {
		t.Run(string(test.version), func(t *testing.T) {
			var cases []goldenCase
			readGolden(t, test.cases, &cases)
			if len(cases) != test.count {
				t.Fatalf("%d cases, want %d", len(cases), test.count)
			}
			table := models(t, test.models)
			var worst float64
			for _, c := range cases {
				got, err := llmsizer.Calculate(c.input(t, test.version, table, cards))
				if err != nil {
					t.Fatal(err)
				}
				for _, pair := range [][2]float64{
					{got.Memory.Total(), c.UsedVRAM},
					{got.Fill.UsedGB, c.UsedVRAM},
					{got.Fill.DeviceGB, c.TotalVRAM},
					{got.Fill.Percent, c.VRAMPercentage},
					{got.Memory.Weights, c.Breakdown.Weights},
					{got.Memory.KVCache, c.Breakdown.KVCache},
					{got.Memory.Activations, c.Breakdown.Activations},
					{got.Memory.Overhead, c.Breakdown.Overhead},
					{got.Memory.MultiGPU, c.Breakdown.MultiGPU},
				} {
					worst = max(worst, math.Abs(pair[0]-pair[1]))
				}
				if got.Fill.Status != c.Status || *got.Speed != c.Perf {
					t.Errorf("%+v: got %s, %+v", c, got.Fill.Status, *got.Speed)
				}
			}
			t.Logf("%d cases, largest difference %g GB", len(cases), worst)
			if worst > 1e-6 {
				t.Errorf("largest difference %g GB, want at most 1e-6", worst)
			}
		})
	}
}

// profile is what a golden of the profiler holds.
type profile struct {
	Info struct {
		Params  float64 `json:"num_parameters"`
		Layers  int     `json:"num_layers"`
		Heads   int     `json:"num_heads"`
		HeadDim int     `json:"head_dim"`
		Hidden  int     `json:"hidden_size"`
	} `json:"model_info"`
	Run struct {
		Input  int    `json:"input_len"`
		Output int    `json:"output_len"`
		Batch  int    `json:"batch_size"`
		GPUs   int    `json:"tensor_parallel_size"`
		DType  string `json:"dtype"`
	} `json:"benchmark_parameters"`
	Parts struct {
		Total           float64 `json:"total_measured_gb"`
		Baseline        float64 `json:"baseline_gb"`
		Net             float64 `json:"net_increase_gb"`
		Weights         float64 `json:"model_weights_gb"`
		KVCache         float64 `json:"kv_cache_gb"`
		Activations     float64 `json:"activations_gb"`
		Overhead        float64 `json:"framework_overhead_gb"`
		OverheadPercent float64 `json:"overhead_percentage"`
		Confidence      struct {
			Overall     llmsizer.Confidence `json:"overall"`
			Weights     llmsizer.Confidence `json:"weights"`
			KVCache     llmsizer.Confidence `json:"kv_cache"`
			Activations llmsizer.Confidence `json:"activations"`
			Overhead    llmsizer.Confidence `json:"overhead"`
		} `json:"confidence_levels"`
	} `json:"memory_breakdown"`
	Comparison map[string]struct {
		Total    float64 `json:"total_gb"`
		Weights  float64 `json:"weights_gb"`
		KVCache  float64 `json:"kv_cache_gb"`
		Overhead float64 `json:"overhead_gb"`
	} `json:"-"`
}

func readProfile(t *testing.T, file string) profile {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p profile
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(whole["calculator_comparison"], &p.Comparison) // a note in profiles without architecture
	return p
}

func (p profile) dtype(t *testing.T) catalog.DType {
	t.Helper()
	if p.Run.DType == "auto" {
		return ""
	}
	d, err := catalog.ParseDType(p.Run.DType)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (p profile) model() llmsizer.Model {
	return llmsizer.Model{Params: p.Info.Params, Layers: p.Info.Layers, Heads: p.Info.Heads, HeadDim: p.Info.HeadDim, Hidden: p.Info.Hidden}
}

func profiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != 7 {
		t.Fatalf("%d profiles, want 7: %v", len(files), err)
	}
	return files
}

func TestSplitGoldens(t *testing.T) {
	for _, file := range profiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p := readProfile(t, file)
			d := p.dtype(t)
			got, err := llmsizer.Split(llmsizer.Reading{
				PeakGB: p.Parts.Total, BaselineGB: p.Parts.Baseline, Model: p.model(),
				Weights: d, Activations: d, KV: d, Batch: p.Run.Batch, Tokens: p.Run.Input + p.Run.Output, GPUs: p.Run.GPUs,
			})
			if err != nil {
				t.Fatal(err)
			}
			c := p.Parts.Confidence
			want := llmsizer.Parts{
				NetGB: p.Parts.Net, Weights: llmsizer.Part{GB: p.Parts.Weights, Confidence: c.Weights}, KVCache: llmsizer.Part{GB: p.Parts.KVCache, Confidence: c.KVCache},
				Activations: llmsizer.Part{GB: p.Parts.Activations, Confidence: c.Activations}, Overhead: llmsizer.Part{GB: p.Parts.Overhead, Confidence: c.Overhead},
				Overall: c.Overall,
			}
			percent := got.OverheadPercent
			got.OverheadPercent = nil
			if got != want || percent == nil || *percent != p.Parts.OverheadPercent {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestScriptGoldens(t *testing.T) {
	checked := 0
	for _, file := range profiles(t) {
		p := readProfile(t, file)
		for version, key := range map[llmsizer.Version]string{llmsizer.ScriptV1: "current_formula", llmsizer.ScriptV2: "proposed_formula"} {
			want, ok := p.Comparison[key]
			if !ok {
				continue
			}
			checked++
			d := p.dtype(t)
			got, err := llmsizer.Calculate(llmsizer.Input{
				Version: version, Model: p.model(), Weights: d, KV: d, Batch: p.Run.Batch, Tokens: p.Run.Input + p.Run.Output, GPUs: p.Run.GPUs,
			})
			if err != nil {
				t.Fatal(err)
			}
			for what, pair := range map[string][2]float64{
				"total": {got.Memory.Total(), want.Total}, "weights": {got.Memory.Weights, want.Weights},
				"KV cache": {got.Memory.KVCache, want.KVCache}, "overhead": {got.Memory.Overhead, want.Overhead},
			} {
				if math.Abs(pair[0]-pair[1]) > 0.005+1e-9 {
					t.Errorf("%s %s: %s %v GB, want %v", file, version, what, pair[0], pair[1])
				}
			}
		}
	}
	if checked != 12 {
		t.Errorf("%d formulas checked, want 12", checked)
	}
}
