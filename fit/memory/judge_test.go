package memory_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/unit"
)

const (
	// cardMemory is what the driver reported on the card of the public run.
	cardMemory unit.Bytes = 25_250_627_584
	// perToken is the KV cache of Llama-3.1-8B: 2·32·8·128·2 bytes.
	perToken unit.Bytes = 131_072
	// pooled is the number of tokens in the pool of that run.
	pooled = 41_408
)

// card is the public run of vLLM on an RTX 4090 with a batch that fills its
// pool to the last block.
func card() memory.Measured {
	deviceMemory, weights, pool := cardMemory, unit.Bytes(2*8_030_261_248), pooled*perToken
	return memory.Measured{
		Source: "rtx4090", Model: "meta-llama/Llama-3.1-8B", WeightDType: catalog.BF16, ActivationDType: catalog.BF16,
		GPUs: 1, Device: "RTX4090", DeviceMemory: &deviceMemory,
		Preallocates: true, Utilization: 0.9, BlockSize: 16, MaxBatchedTokens: 2048, MaxSequences: 256,
		Batch: 32, Input: 647, Output: 647, // 41,408 tokens
		Weights: &weights, KVCache: &pool, KVUsed: &pool,
	}
}

func TestPublicRun(t *testing.T) {
	c := builtin(t)
	m := card()
	r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Ours(c, cost.Settings{}), memory.Sizer(llmsizer.AppEarly)}, memory.Options{Catalog: c})
	if len(r.Verdicts) != 2 || len(r.Unusable) != 0 {
		t.Fatalf("%+v", r)
	}
	pool := of(t, r.Verdicts[0], memory.KVCapacity)
	tokens := pool.Calculated / perToken / 16 * 16
	t.Logf("%d KV tokens predicted, %d allocated: %+.2f %%", tokens, pooled, (float64(tokens)/pooled-1)*100)
	if off := math.Abs(float64(tokens)/pooled - 1); off > 0.03 {
		t.Errorf("%d tokens predicted, %d allocated: %.1f %% off, want at most 3", tokens, pooled, off*100)
	}
	if weights := of(t, r.Verdicts[0], memory.Weights); weights.Diff != 0 {
		t.Errorf("weights off by %v", weights.Diff)
	}
	if !strings.Contains(strings.Join(r.Verdicts[0].Notes, "\n"), "reserve of 1.00 GiB") {
		t.Errorf("the reserve is not stated: %q", r.Verdicts[0].Notes)
	}
	cache := of(t, r.Verdicts[0], memory.KVCache)
	if ratio := float64(cache.Calculated) / float64(cache.Measured); math.Abs(ratio-1) > 0.02 {
		t.Errorf("KV cache of the batch %v, in use %v", cache.Calculated, cache.Measured)
	}
	cache = of(t, r.Verdicts[1], memory.KVCache)
	if ratio := float64(cache.Calculated) / float64(cache.Measured); math.Abs(ratio-4) > 0.01 {
		t.Errorf("with the hidden size the KV cache is %.3f times too big, want 4", ratio)
	}
	budget := unit.Bytes(math.Floor(0.9 * float64(cardMemory)))
	if rest := budget - *m.Weights - *m.KVCache; math.Abs(float64(rest)/1e9-1.238) > 0.0005 {
		t.Errorf("remainder %v, want 1.238 GB", rest)
	}
}

func TestEnginesWithAPool(t *testing.T) {
	need := memory.Prediction{Total: gb(22), Weights: gb(16), KVCache: gb(4), Activations: gb(1), Overhead: gb(1)}
	base := memory.Measured{
		Source: "s", Model: "m", Preallocates: true, Batch: 1, Input: 1, Output: 1,
		Total: gb(72), Weights: gb(16), KVCache: gb(50), KVUsed: gb(5), Activations: gb(2), Graphs: gb(1), Overhead: gb(3),
	}
	for _, test := range []struct {
		why    string
		change func(*memory.Measured, *memory.Prediction)
		total  *unit.Bytes // measured
		what   string
	}{
		{"the pool is no need", nil, gb(27), "weights + KV cache in use + activations + overhead with the same"},
		{"only what both know", func(m *memory.Measured, p *memory.Prediction) { m.Overhead, p.Activations = nil, nil }, gb(21), "weights + KV cache in use with the same"},
		{"a total against all the parts", func(_ *memory.Measured, p *memory.Prediction) { *p = memory.Prediction{Total: gb(22)} }, gb(27), "with the total"},
		{"a total against some parts is nothing", func(m *memory.Measured, p *memory.Prediction) {
			m.Activations = nil
			*p = memory.Prediction{Total: gb(22)}
		}, nil, "do not make a total"},
		{"the use is not known", func(m *memory.Measured, _ *memory.Prediction) { m.KVUsed = nil }, nil, "says nothing about the need"},
		{"an engine without a pool", func(m *memory.Measured, _ *memory.Prediction) { m.Preallocates = false }, gb(72), "above the baseline"},
	} {
		t.Run(test.why, func(t *testing.T) {
			m, p := base, need
			if test.change != nil {
				test.change(&m, &p)
			}
			r := memory.Judge([]memory.Measured{m}, []memory.Calculator{says(p)}, memory.Options{})
			if len(r.Verdicts) != 1 {
				t.Fatalf("%+v", r)
			}
			v := r.Verdicts[0]
			if test.total == nil {
				if text := strings.Join(v.Skipped, "\n"); v.Class != "" || !strings.Contains(text, test.what) {
					t.Errorf("class %q, skipped %q, want %q in it", v.Class, text, test.what)
				}
				return
			}
			total := of(t, v, memory.Total)
			if total.Measured != *test.total || !strings.Contains(total.What, test.what) || v.Class != total.Class {
				t.Errorf("got %v, %q, want %v, %q", total.Measured, total.What, *test.total, test.what)
			}
			for _, c := range v.Comparisons {
				if c.Diff != c.Measured-c.Calculated || c.What == "" {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

func TestUnusable(t *testing.T) {
	for _, test := range []struct {
		why    string
		change func(*memory.Measured)
		want   string
	}{
		{"parts exceed the total, as in memory read after the run", func(m *memory.Measured) { m.Total = gb(0.5) }, "the parts exceed the total"},
		{"read while nothing ran", func(m *memory.Measured) { m.Total = gb(0) }, "total is zero"},
		{"no total", func(m *memory.Measured) { m.Total = nil }, "no total was measured"},
		{"the reader found a fault", func(m *memory.Measured) { m.Faults = []string{"sampling failed"} }, "sampling failed"},
		{"no batch", func(m *memory.Measured) { m.Batch = 0 }, "batch size is 0"},
		{"negative length", func(m *memory.Measured) { m.Output = -1 }, "output length is -1"},
		{"more in use than there is", func(m *memory.Measured) { m.KVUsed = gb(5) }, "exceeds the"},
		{"negative size", func(m *memory.Measured) { m.Weights = gb(-1) }, "weights of -1000000000 bytes"},
		{"sizes beyond any machine", func(m *memory.Measured) { m.Batch, m.Input = 1<<20, 1<<20 }, "want at most"},
	} {
		t.Run(test.why, func(t *testing.T) {
			bad, good := hi(), hi()
			test.change(&bad)
			calculators := []memory.Calculator{memory.Sizer(llmsizer.ScriptV2)}
			alone := memory.Judge([]memory.Measured{good}, calculators, memory.Options{})
			r := memory.Judge([]memory.Measured{bad, good}, calculators, memory.Options{})
			if len(r.Unusable) != 1 || !strings.Contains(strings.Join(r.Unusable[0].Reasons, "\n"), test.want) {
				t.Fatalf("unusable %+v, want %q", r.Unusable, test.want)
			}
			if len(r.Verdicts) != 1 || r.Summaries[0].Bias[0] != alone.Summaries[0].Bias[0] {
				t.Error("the unusable profile enters the means")
			}
		})
	}
	if r := memory.Judge([]memory.Measured{{Preallocates: true, Batch: 1, Input: 1, Model: "m", Weights: gb(1)}}, nil, memory.Options{}); len(r.Unusable) != 0 {
		t.Errorf("an engine's own figures need no total: %+v", r.Unusable)
	}
}

func TestModelsMatchByIDOnly(t *testing.T) {
	c := builtin(t)
	calculators := []memory.Calculator{memory.Ours(c, cost.Settings{}), memory.Sizer(llmsizer.AppLate)}
	for _, test := range []struct {
		why, id string
		known   bool
	}{
		{"hub id", "meta-llama/Llama-2-7b-hf", true},
		{"another case", "META-LLAMA/llama-2-7B-HF", true},
		{"an alias", "NousResearch/Llama-2-7b-hf", true},
		{"the same size is another model", "someone/finetune-7b", false},
		{"no id", "", false},
	} {
		t.Run(test.why, func(t *testing.T) {
			m := hi()
			m.Model, m.Shape = test.id, llmsizer.Model{Params: 6.738e9}
			r := memory.Judge([]memory.Measured{m}, calculators, memory.Options{Catalog: c})
			if !test.known {
				for _, s := range r.Summaries {
					if len(s.Missed) != 1 || s.Judged != 0 {
						t.Fatalf("%+v", s)
					}
					unknown, ok := errors.AsType[*memory.UnknownModelError](s.Missed[0].Err)
					if !ok || unknown.Hint() == "" {
						t.Errorf("missed because of %v", s.Missed[0].Err)
					}
				}
				return
			}
			if len(r.Verdicts) != 2 {
				t.Fatalf("%+v", r)
			}
			if weights := of(t, r.Verdicts[0], memory.Weights); weights.Calculated != 2*6_738_415_616 {
				t.Errorf("weights %d bytes", weights.Calculated)
			}
		})
	}
}

func TestOursRefuses(t *testing.T) {
	c := builtin(t)
	for _, test := range []struct {
		why    string
		change func(*memory.Measured)
		want   string
	}{
		{"unknown device", func(m *memory.Measured) { m.Device = "abacus" }, `device "abacus"`},
		{"heads do not divide", func(m *memory.Measured) { m.GPUs = 3 }, "does not divide"},
		{"stages do not divide", func(m *memory.Measured) { m.GPUs, m.PipelineStages = 4, 3 }, "3 pipeline stages"},
		{"unknown weight format", func(m *memory.Measured) { m.Quantization = "zip" }, "zip"},
	} {
		t.Run(test.why, func(t *testing.T) {
			m := hi()
			test.change(&m)
			r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Ours(c, cost.Settings{})}, memory.Options{Catalog: c})
			if missed := r.Summaries[0].Missed; len(missed) != 1 || !strings.Contains(missed[0].Err.Error(), test.want) {
				t.Errorf("missed %+v, want %q", missed, test.want)
			}
		})
	}
	if _, err := memory.Ours(nil, cost.Settings{}).Calculate(memory.Measured{Architecture: &catalog.Model{}}); err == nil {
		t.Error("no catalog: no error")
	}
}

// TestOursOnCPU: an engine on a CPU has sizes like any other, and a total only
// with a reserve for its processes.
func TestOursOnCPU(t *testing.T) {
	m := card()
	pool := 32 * 647 * 2 * perToken
	m.OnHost, m.Preallocates, m.Device, m.DeviceMemory, m.KVUsed, m.KVCache = true, false, "host memory", nil, nil, &pool
	m.Total = gb(30)
	for _, c := range []struct {
		why      string
		settings cost.Settings
		overhead *unit.Bytes
	}{
		{"nothing is assumed", cost.Settings{}, nil},
		{"what is stated counts", cost.Settings{Reserve: *gb(3)}, gb(3)},
		{"nothing beside", cost.Settings{NoReserve: true}, gb(0)},
	} {
		t.Run(c.why, func(t *testing.T) {
			r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Ours(builtin(t), c.settings)}, memory.Options{Catalog: builtin(t)})
			if len(r.Verdicts) != 1 {
				t.Fatalf("%+v", r)
			}
			v := r.Verdicts[0]
			if diff := of(t, v, memory.Weights).Diff; diff != 0 {
				t.Errorf("weights off by %v", diff)
			}
			if cache := of(t, v, memory.KVCache); math.Abs(float64(cache.Calculated)/float64(pool)-1) > 0.02 {
				t.Errorf("KV cache of the batch %v, want %v", cache.Calculated, pool)
			}
			p, err := memory.Ours(builtin(t), c.settings).Calculate(described(t, m))
			if err != nil {
				t.Fatal(err)
			}
			if (p.Total == nil) != (c.overhead == nil) || (p.Overhead == nil) != (c.overhead == nil) || p.KVCapacity != nil {
				t.Fatalf("total %v, overhead %v, KV capacity %v", p.Total, p.Overhead, p.KVCapacity)
			}
			if c.overhead != nil && (*p.Overhead != *c.overhead || *p.Total != *p.Weights+*p.KVCache+*p.Activations+*c.overhead) {
				t.Errorf("overhead %v, total %v", *p.Overhead, *p.Total)
			}
			if text := strings.Join(p.Notes, "\n"); strings.Contains(text, "GPU is assumed") || strings.Contains(text, "no total") != (c.overhead == nil) {
				t.Errorf("notes %q", p.Notes)
			}
		})
	}
}

// described gives a run the architecture that the catalog has of its model.
func described(t *testing.T, m memory.Measured) memory.Measured {
	t.Helper()
	found, err := builtin(t).Model(m.Model)
	if err != nil {
		t.Fatal(err)
	}
	m.Architecture = found
	return m
}

func TestOursOnSeveralGPUs(t *testing.T) {
	c := builtin(t)
	one := hi()
	four := one
	four.GPUs, four.PipelineStages = 4, 2
	packed := one
	packed.Quantization = "awq"
	r := memory.Judge([]memory.Measured{one, four, packed}, []memory.Calculator{memory.Ours(c, cost.Settings{})}, memory.Options{Catalog: c})
	if len(r.Verdicts) != 3 {
		t.Fatalf("%+v", r.Summaries)
	}
	whole, parts := of(t, r.Verdicts[0], memory.Weights).Calculated, of(t, r.Verdicts[1], memory.Weights).Calculated
	if ratio := float64(parts) / float64(whole); ratio < 1 || ratio > 1.05 {
		t.Errorf("weights %v on one GPU, %v on four", whole, parts)
	}
	if ratio := float64(of(t, r.Verdicts[2], memory.Weights).Calculated) / float64(whole); ratio < 0.25 || ratio > 0.33 {
		t.Errorf("awq weights are %.2f of plain ones", ratio)
	}
	if !strings.Contains(strings.Join(r.Verdicts[1].Notes, "\n"), "the fullest GPU times 4") {
		t.Errorf("notes %q", r.Verdicts[1].Notes)
	}
}

func TestSizerFormats(t *testing.T) {
	for _, test := range []struct {
		why, quantization string
		weights           catalog.DType
		want              float64 // GB for 6.7e9 parameters
	}{
		{"plain", "", catalog.FP16, 13.4},
		{"not told", "", "", 13.4},
		{"four bits with scales", "awq", catalog.FP16, 3.35},
		{"eight bits", "fp8", catalog.FP16, 6.7},
		{"integers", "int8", catalog.FP16, 6.7},
		{"by the weights' own format", "", catalog.FP8, 6.7},
	} {
		t.Run(test.why, func(t *testing.T) {
			m := hi()
			m.Quantization, m.WeightDType = test.quantization, test.weights
			p, err := memory.Sizer(llmsizer.AppEarly).Calculate(m)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(float64(*p.Weights)/1e9-test.want) > 1e-9 {
				t.Errorf("weights %d bytes, want %v GB", *p.Weights, test.want)
			}
		})
	}
}

// The scripts compute for one GPU: the sum over four counts four of them.
func TestSizerPerGPU(t *testing.T) {
	m := hi()
	m.GPUs = 4
	p, err := memory.Sizer(llmsizer.ScriptV1).Calculate(m)
	if err != nil {
		t.Fatal(err)
	}
	if *p.Weights != 13_400_000_000 || math.Abs(float64(*p.Activations)/1e9-4*0.536870912) > 1e-9 || len(p.Notes) != 1 {
		t.Errorf("weights %d, activations %d, notes %q", *p.Weights, *p.Activations, p.Notes)
	}
}

func TestSchemes(t *testing.T) {
	for _, test := range []struct {
		scheme  memory.Scheme
		percent float64
		want    string
		basis   string
	}{
		{memory.Guide, -2, "excellent", "% of measured"},
		{memory.Guide, 2.01, "good", "% of measured"},
		{memory.Guide, 10, "fair", "% of measured"},
		{memory.Guide, -20, "poor", "% of measured"},
		{memory.Guide, 1e9, "bad", "% of measured"},
		{memory.ValidateCalculator, 5, "exact", "% of calculated"},
		{memory.ValidateCalculator, -30, "fair", "% of calculated"},
		{memory.ValidateCalculator, 31, "poor", "% of calculated"},
		{memory.BatchValidate, 6, "Good", "% of calculated"},
		{memory.ValidateProfile, -20.1, "Poor", "% of measured"},
	} {
		if got := test.scheme.Class(test.percent); got != test.want || test.scheme.Basis() != test.basis {
			t.Errorf("%s: %v is %s %s, want %s %s", test.scheme, test.percent, got, test.scheme.Basis(), test.want, test.basis)
		}
	}
	for _, s := range memory.Schemes() {
		if got, err := memory.ParseScheme(string(s)); err != nil || got != s {
			t.Errorf("%s: %s, %v", s, got, err)
		}
	}
	if s, err := memory.ParseScheme(""); err != nil || s != memory.Guide {
		t.Errorf("default %s, %v", s, err)
	}
	if _, err := memory.ParseScheme("nice"); err == nil {
		t.Error("scheme nice: no error")
	}
}

// TestProperties: differences are measured − calculated, percentages are of
// what they say, zero divides nothing, and no profile vanishes.
func TestProperties(t *testing.T) {
	size := func(t *rapid.T, name string) *unit.Bytes {
		if rapid.Bool().Draw(t, name+" known") {
			b := unit.Bytes(rapid.Int64Range(-5, 1<<40).Draw(t, name))
			return &b
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) {
		var all []memory.Measured
		for range rapid.IntRange(0, 6).Draw(t, "profiles") {
			all = append(all, memory.Measured{
				Model: "m", Shape: llmsizer.Model{Params: rapid.Float64Range(0, 1e12).Draw(t, "params"), Heads: 8, KVHeads: rapid.IntRange(0, 8).Draw(t, "kv")},
				Batch: rapid.IntRange(0, 64).Draw(t, "batch"), Input: rapid.IntRange(0, 64).Draw(t, "in"), GPUs: rapid.IntRange(0, 8).Draw(t, "gpus"),
				Preallocates: rapid.Bool().Draw(t, "pool"),
				Total:        size(t, "total"), Weights: size(t, "weights"), KVCache: size(t, "cache"), KVUsed: size(t, "used"),
				Activations: size(t, "activations"), Graphs: size(t, "graphs"), Overhead: size(t, "overhead"),
			})
		}
		p := memory.Prediction{Total: size(t, "p total"), Weights: size(t, "p weights"), KVCache: size(t, "p cache"), KVCapacity: size(t, "p pool"), Activations: size(t, "p act"), Overhead: size(t, "p over")}
		scheme := rapid.SampledFrom(memory.Schemes()).Draw(t, "scheme")
		r := memory.Judge(all, []memory.Calculator{says(p)}, memory.Options{Scheme: scheme})
		if len(r.Verdicts)+len(r.Unusable) != len(all) {
			t.Fatalf("%d verdicts and %d unusable of %d profiles", len(r.Verdicts), len(r.Unusable), len(all))
		}
		for _, v := range r.Verdicts {
			for _, c := range v.Comparisons {
				if c.Diff != c.Measured-c.Calculated || (c.OfMeasured == nil) != (c.Measured == 0) || (c.OfCalculated == nil) != (c.Calculated == 0) {
					t.Fatalf("%+v", c)
				}
			}
		}
		for _, b := range r.Summaries[0].Bias {
			if math.IsNaN(b.Mean) || math.IsInf(b.Mean, 0) || b.MeanAbs < math.Abs(b.Mean)-1e-9*b.MeanAbs || b.Few != (b.N < 3) {
				t.Fatalf("%+v", b)
			}
		}
		for _, rec := range r.Summaries[0].Recommendations {
			if rec.N != len(rec.Evidence) || rec.N == 0 {
				t.Fatalf("%+v", rec)
			}
		}
	})
}
