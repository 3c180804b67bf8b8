package llmsizer_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost/llmsizer"
)

func TestExamplesOfTheApp(t *testing.T) {
	model, gpu := models(t, "models.head.json.gz")["Qwen/Qwen3-8B"], gpus(t)["h100-sxm"]
	for _, test := range []struct {
		why                     string
		batch, tokens, users, n int
		totalGB, percent        float64
		totalSpeed, perUser     float64
	}{
		{"one sequence on one GPU", 1, 1024, 1, 1, 18.8855, 23.607, 41, 41},
		{"two users on four GPUs", 8, 4096, 2, 4, 31.0502, 9.7032, 460, 230},
	} {
		t.Run(test.why, func(t *testing.T) {
			r, err := llmsizer.Calculate(llmsizer.Input{
				Version: llmsizer.AppLate, Model: model, GPU: gpu, Weights: catalog.FP16, KV: catalog.FP16,
				Batch: test.batch, Tokens: test.tokens, Users: test.users, GPUs: test.n,
			})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(r.Memory.Total()-test.totalGB) > 5e-5 || math.Abs(r.Fill.Percent-test.percent) > 5e-4 || r.Fill.Status != llmsizer.Okay {
				t.Errorf("memory %v GB, %+v", r.Memory.Total(), *r.Fill)
			}
			if r.Speed.Total != test.totalSpeed || r.Speed.PerUser != test.perUser {
				t.Errorf("speed %+v", *r.Speed)
			}
		})
	}
}

// input is a request that every calculator takes.
func input(v llmsizer.Version) llmsizer.Input {
	return llmsizer.Input{
		Version: v, Model: llmsizer.Model{Params: 8e9, Layers: 32, Heads: 32, KVHeads: 8, Hidden: 4096, Intermediate: 14336},
		GPU:     llmsizer.GPU{MemoryGB: 80, BandwidthGBps: 3350, FP16TFLOPS: 989},
		Weights: catalog.FP16, KV: catalog.FP16, Batch: 8, Tokens: 1024, GPUs: 2,
	}
}

func TestCalculateRefuses(t *testing.T) {
	for _, test := range []struct {
		why    string
		change func(*llmsizer.Input)
		want   string
	}{
		{"unknown version", func(in *llmsizer.Input) { in.Version = "v9" }, `version "v9"`},
		{"no parameters", func(in *llmsizer.Input) { in.Model.Params = 0 }, "number of parameters is 0"},
		{"not a number", func(in *llmsizer.Input) { in.Model.Params = math.NaN() }, "number of parameters is NaN"},
		{"no layers", func(in *llmsizer.Input) { in.Model.Layers = 0 }, "layers is 0"},
		{"no heads to divide by", func(in *llmsizer.Input) { in.Model.Heads = 0 }, "heads is 0"},
		{"nothing in the batch", func(in *llmsizer.Input) { in.Batch = 0 }, "batch size is 0"},
		{"no tokens", func(in *llmsizer.Input) { in.Tokens = -1 }, "tokens is -1"},
		{"negative GPUs", func(in *llmsizer.Input) { in.GPUs = -1 }, "-1 GPUs"},
		{"a KV format without a factor", func(in *llmsizer.Input) { in.KV = catalog.INT4 }, "KV cache in int4"},
		{"a weight format without a size", func(in *llmsizer.Input) { in.Weights = "q3" }, "weights in q3"},
		{"infinite memory", func(in *llmsizer.Input) { in.GPU.MemoryGB = math.Inf(1) }, "GPU memory"},
	} {
		t.Run(test.why, func(t *testing.T) {
			in := input(llmsizer.AppLate)
			test.change(&in)
			if _, err := llmsizer.Calculate(in); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestWhatIsLeftOut(t *testing.T) {
	for _, v := range llmsizer.Versions() {
		in := input(v)
		r, err := llmsizer.Calculate(in)
		if err != nil {
			t.Fatal(err)
		}
		if app := !v.PerGPU(); (r.Fill != nil) != app || (r.Speed != nil) != app {
			t.Errorf("%s: fill %v, speed %v", v, r.Fill, r.Speed)
		}
		in.GPU = llmsizer.GPU{}
		bare, err := llmsizer.Calculate(in)
		if err != nil {
			t.Fatal(err)
		}
		if bare.Fill != nil || bare.Speed != nil || bare.Memory != r.Memory {
			t.Errorf("%s without a GPU: %+v", v, bare)
		}
	}
}

// Only the late app sees that KV heads are shared.
func TestGroupedHeads(t *testing.T) {
	for _, v := range llmsizer.Versions() {
		in := input(v)
		grouped, err := llmsizer.Calculate(in)
		if err != nil {
			t.Fatal(err)
		}
		in.Model.KVHeads = 0
		plain, err := llmsizer.Calculate(in)
		if err != nil {
			t.Fatal(err)
		}
		want := 1.0
		if v == llmsizer.AppLate {
			want = 4
		}
		if ratio := plain.Memory.KVCache / grouped.Memory.KVCache; math.Abs(ratio-want) > 1e-12 {
			t.Errorf("%s: %v times the KV cache without shared heads, want %v", v, ratio, want)
		}
	}
}

// A second GPU costs the scripts 15 % of the halved weights of one GPU.
func TestScriptOverGPUs(t *testing.T) {
	r, err := llmsizer.Calculate(input(llmsizer.ScriptV2))
	if err != nil {
		t.Fatal(err)
	}
	if r.Memory.Weights != 8 || math.Abs(r.Memory.MultiGPU-8.0/2*0.15) > 1e-12 {
		t.Errorf("weights %v GB, several GPUs %v GB", r.Memory.Weights, r.Memory.MultiGPU)
	}
}

func TestSplitRefuses(t *testing.T) {
	for _, test := range []struct {
		why    string
		change func(*llmsizer.Reading)
		want   string
	}{
		{"released memory", func(r *llmsizer.Reading) { r.BaselineGB = 9 }, "exceeds the peak"},
		{"not a number", func(r *llmsizer.Reading) { r.PeakGB = math.NaN() }, "peak in GB is NaN"},
		{"no batch", func(r *llmsizer.Reading) { r.Batch = 0 }, "batch size is 0"},
		{"unknown format", func(r *llmsizer.Reading) { r.KV = "q3" }, `format "q3"`},
	} {
		t.Run(test.why, func(t *testing.T) {
			r := llmsizer.Reading{PeakGB: 8, BaselineGB: 1, Batch: 1, Tokens: 1}
			test.change(&r)
			if _, err := llmsizer.Split(r); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestSplitOfNothing(t *testing.T) {
	p, err := llmsizer.Split(llmsizer.Reading{Batch: 1, Tokens: 1})
	if err != nil || p.OverheadPercent != nil {
		t.Errorf("percent of no memory: %v, %v", p.OverheadPercent, err)
	}
	p, err = llmsizer.Split(llmsizer.Reading{PeakGB: 10, Batch: 2, Tokens: 100, Model: llmsizer.Model{Layers: 10, Heads: 4, HeadDim: 64}})
	if err != nil {
		t.Fatal(err)
	}
	if p.KVCache.Confidence != llmsizer.High || p.Activations.Confidence != llmsizer.Low || p.Overall != llmsizer.Low {
		t.Errorf("heads and head size stand for the hidden size in the KV cache only: %+v", p)
	}
}

// TestProperties: any number gives an error or finite figures, and more
// sequences never need less.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(name string) int {
			if rapid.IntRange(0, 15).Draw(t, name+" wild") == 0 {
				return rapid.Int().Draw(t, name)
			}
			return rapid.IntRange(1, 1<<20).Draw(t, name)
		}
		in := llmsizer.Input{
			Version: rapid.SampledFrom(llmsizer.Versions()).Draw(t, "version"),
			Model: llmsizer.Model{
				Params: rapid.Float64Range(1, 1e13).Draw(t, "params"), Layers: size("layers"), Heads: size("heads"), KVHeads: size("kv heads"),
				Hidden: size("hidden"), Intermediate: size("width"),
			},
			GPU:     llmsizer.GPU{MemoryGB: rapid.Float64Range(0, 1e4).Draw(t, "memory"), BandwidthGBps: 1000, FP16TFLOPS: 100},
			Weights: rapid.SampledFrom(catalog.DTypes()).Draw(t, "weights"), KV: rapid.SampledFrom([]catalog.DType{catalog.BF16, catalog.FP8, catalog.FP6}).Draw(t, "kv"),
			Batch: size("batch"), Tokens: size("tokens"), Users: size("users"), GPUs: size("gpus"),
		}
		r, err := llmsizer.Calculate(in)
		if err != nil {
			return
		}
		if total := r.Memory.Total(); math.IsNaN(total) || math.IsInf(total, 0) || total <= 0 {
			t.Fatalf("%+v: %v GB", in, total)
		}
		in.Batch++
		more, err := llmsizer.Calculate(in)
		if err == nil && more.Memory.Total() < r.Memory.Total() {
			t.Fatalf("one more sequence needs %v GB after %v GB", more.Memory.Total(), r.Memory.Total())
		}
	})
}
