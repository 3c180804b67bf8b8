package llmprofiler_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost/llmprofiler"
)

func TestExample(t *testing.T) {
	for _, want := range []struct {
		version     llmprofiler.Version
		ttot, total float64
	}{
		{llmprofiler.Seed, 0.040541745771914876, 7.8954159549717335},
		{llmprofiler.June2025, 0.0414887983364022, 8.01663868322611},
	} {
		r := analyze(t, input(t, "llama2-70B", "a100-sxm-40gb", 8, 32, 1024, 128, want.version))
		if r.TTFT != 2.7060724961666294 || r.TTOT != want.ttot || r.Total != want.total || r.KVCacheLatency != 0.0009590405716327259 {
			t.Errorf("%s: TTFT %v TTOT %v total %v KV %v", want.version, r.TTFT, r.TTOT, r.Total, r.KVCacheLatency)
		}
		memory := llmprofiler.Memory{
			Weights: 17178624000, PrefillMaxBatch: 388, PrefillActivations: 1879048192, DecodeActivations: 1879048192,
			KVCache: 1509949440, Consumed: 20567621632, DecodeMaxBatch: 215, MaxBatchTotalTokens: 240249,
		}
		if r.Memory != memory || r.PrefillFLOPs != 4574250228776960 || r.DecodeFLOPs != 4381480058880 || r.ParamsModel != 68714496000 {
			t.Errorf("%s: %+v, FLOPs %d and %d, %d parameters", want.version, r.Memory, r.PrefillFLOPs, r.DecodeFLOPs, r.ParamsModel)
		}
		if !r.Fits || len(r.Reasons) != 0 || len(r.Warnings) != 0 {
			t.Errorf("%s: fits %v, reasons %v, warnings %v", want.version, r.Fits, r.Reasons, r.Warnings)
		}
	}
}

func TestTables(t *testing.T) {
	models, gpus := llmprofiler.Models(), llmprofiler.GPUs()
	if len(models) != 12 || len(gpus) != 14 {
		t.Fatalf("%d models and %d GPUs, want 12 and 14", len(models), len(gpus))
	}
	for _, m := range models {
		for _, g := range gpus {
			for _, version := range []llmprofiler.Version{llmprofiler.Seed, llmprofiler.June2025} {
				r := analyze(t, input(t, strings.ToLower(m.Name), strings.ToUpper(g.Name), 8, 4, 512, 64, version))
				if r.TTFT <= 0 || r.TTOT <= 0 || r.Memory.Weights <= 0 {
					t.Errorf("%s on %s: TTFT %v TTOT %v", m.Name, g.Name, r.TTFT, r.TTOT)
				}
				var text strings.Builder
				if err := llmprofiler.Report(&text, r); err != nil {
					t.Fatal(err)
				}
				if n := strings.Count(text.String(), "\n----"); n != 7 {
					t.Errorf("%s on %s: %d further sections, want 7", m.Name, g.Name, n)
				}
			}
		}
	}
}

func TestParamsOfAllModels(t *testing.T) {
	// L·(2hd(n+k) + FFN + norms) + Vh, worked out by hand from the table.
	for name, want := range map[string]int64{
		"llama-7B":           32*(2*4096*128*64+3*4096*11008+2*4096) + 32000*4096,
		"llama-13B":          40*(2*5120*128*80+3*5120*13824+2*5120) + 32000*5120,
		"llama-30B":          60*(2*6656*128*104+3*6656*17920+2*6656) + 32000*6656,
		"llama-65B":          80*(2*8192*128*128+3*8192*22016+2*8192) + 32000*8192,
		"llama2-13B":         40*(2*5120*128*80+3*5120*13824+2*5120) + 32000*5120,
		"llama2-70B":         80*(2*8192*128*72+3*8192*28672+2*8192) + 32000*8192,
		"internlm-20B":       60*(2*5120*128*80+3*5120*13824+2*5120) + 103168*5120,
		"internlm2-20b-chat": 48*(2*6144*128*56+3*6144*16384+2*6144) + 92544*6144,
		"Qwen3-8B":           36*(2*4096*128*40+3*4096*12288+2*4096+256) + 151936*4096,
		"Qwen3-32B":          64*(2*5120*128*72+3*5120*25600+2*5120+256) + 151936*5120,
		"Qwen3-30B-A3B":      48*(2*2048*128*36+2048*128+8*3*2048*768+2*2048) + 151936*2048,
		"Qwen3-235B-A22B":    94*(2*4096*128*68+4096*128+8*3*4096*1536+2*4096) + 151936*4096,
	} {
		r := analyze(t, input(t, name, "a100-sxm-80gb", 1, 1, 128, 128, ""))
		if r.ParamsModel != want {
			t.Errorf("%s: %d parameters, want %d", name, r.ParamsModel, want)
		}
	}
}

func TestLookup(t *testing.T) {
	for spelling, want := range map[string]string{
		"llama2-70b": "llama2-70B", "LLAMA2-70B": "llama2-70B", "meta-llama/Llama-2-70b-hf": "llama2-70B",
		"Qwen/Qwen3-30B-A3B": "Qwen3-30B-A3B", "qwen3_8b": "Qwen3-8B", " internlm2-20b-chat ": "internlm2-20b-chat",
	} {
		if m, err := llmprofiler.LookupModel(spelling); err != nil || m.Name != want {
			t.Errorf("model %q: got %q, %v; want %q", spelling, m.Name, err, want)
		}
	}
	for spelling, want := range map[string]string{
		"A100": "a100-sxm-80gb", "a100_sxm": "a100-sxm-80gb", "H100": "h100-sxm-80gb", "h100_pcie": "h100-pcie-80gb",
		"NVIDIA-H100-80GB-HBM3": "h100-sxm-80gb", "NVIDIA H100 PCIe": "h100-pcie-80gb", "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
		"V100-SXM-32GB": "v100-sxm-32gb", "910B-64gb": "910b-64gb", "BR104P": "br104p",
	} {
		if g, err := llmprofiler.LookupGPU(spelling); err != nil || g.Name != want {
			t.Errorf("gpu %q: got %q, %v; want %q", spelling, g.Name, err, want)
		}
	}
	_, modelErr := llmprofiler.LookupModel("llama-8B")
	_, gpuErr := llmprofiler.LookupGPU("h200")
	for _, err := range []error{modelErr, gpuErr} {
		unknown, ok := errors.AsType[*llmprofiler.UnknownError](err)
		if !ok || len(unknown.Known) < 12 || !strings.HasPrefix(unknown.Hint(), "known: ") {
			t.Errorf("got %v, want an UnknownError with the table's names", err)
		}
	}
}

func TestEdgeCases(t *testing.T) {
	t.Run("a prompt of one token is a decode step without context", func(t *testing.T) {
		in := input(t, "llama2-70B", "a100-sxm-40gb", 8, 32, 1, 128, llmprofiler.June2025)
		r := analyze(t, in)
		// qkvo: weights twice, and the projections' own traffic.
		qkvo := (4*150994944.0/8 + 2*(150994944+32*(2*(8192+8192)+2*(8192+1024)))/8.0) / (1555 * 0.9 * 1e9)
		if got := r.Latency.Prefill.QKVOProj; math.Abs(got-80*qkvo) > 1e-12*got {
			t.Errorf("qkvo %v, want %v", got, 80*qkvo)
		}
		// KV: read one token, write one, of all sequences.
		kv := 80 * (4 * 8 * 128 * 32 * 2.0) / 8 / (1555 * 0.9 * 1e9)
		if got := r.Latency.Prefill.KVCacheRW; math.Abs(got-kv) > 1e-12*got {
			t.Errorf("kv %v, want %v", got, kv)
		}
		if r.PrefillFLOPsPerLayer != r.DecodeFLOPsPerLayer {
			t.Errorf("prefill %+v, decode %+v", r.PrefillFLOPsPerLayer, r.DecodeFLOPsPerLayer)
		}
		kvLayer := 4 * 8 * 128 * 32 * (2 + 128.0) / 8 / (1555 * 0.9 * 1e9)
		if got := r.KVCacheLatency; math.Abs(got-80*kvLayer) > 1e-12*got {
			t.Errorf("kv_cache_latency %v, want %v", got, 80*kvLayer)
		}
		if len(r.Warnings) != 1 {
			t.Errorf("warnings %q", r.Warnings)
		}
	})
	t.Run("pipeline stages divide layers and KV, not weights", func(t *testing.T) {
		in := input(t, "llama2-70B", "a100-sxm-40gb", 8, 32, 1024, 128, "")
		one := analyze(t, in)
		in.PP = 3 // 26 of 80 layers
		three := analyze(t, in)
		if got, want := three.Latency.Prefill.MLP, one.Latency.Prefill.MLP/80*26; math.Abs(got-want) > 1e-12*want {
			t.Errorf("mlp %v, want %v", got, want)
		}
		if got, want := three.Memory.KVCache, one.Memory.KVCache/80*26; math.Abs(got-want) > 1e-12*want {
			t.Errorf("KV %v, want %v", got, want)
		}
		if three.Memory.Weights != one.Memory.Weights || three.ParamsModel != one.ParamsModel || three.PrefillFLOPs != one.PrefillFLOPs {
			t.Error("weights, parameters or FLOPs changed")
		}
		outside := one.InputEmbedding.Prefill + one.OutputEmbedding.Prefill
		if got, want := three.TTFT, (one.TTFT-outside)/80*26+outside; math.Abs(got-want) > 1e-12*want {
			t.Errorf("TTFT %v, want %v", got, want)
		}
		if len(three.Warnings) != 1 || !strings.Contains(three.Warnings[0], "26 layers per stage") {
			t.Errorf("warnings %q", three.Warnings)
		}
	})
	t.Run("weights larger than the memory", func(t *testing.T) {
		r := analyze(t, input(t, "llama2-70B", "a100-sxm-40gb", 1, 1, 4096, 128, ""))
		want := []string{llmprofiler.ReasonMaxSeqLen, llmprofiler.ReasonBatch, llmprofiler.ReasonMemory, llmprofiler.ReasonWeights}
		if r.Fits || !slices.Equal(r.Reasons, want) {
			t.Errorf("fits %v, reasons %v, want %v", r.Fits, r.Reasons, want)
		}
		left := 40e9 - 2*68714496000.0
		if got, want := r.Memory.PrefillMaxBatch, int64(math.Trunc(left/float64(r.Memory.PrefillActivations))); got != want || got >= 0 {
			t.Errorf("prefill batch %d, want %d", got, want)
		}
		kv := r.Memory.KVCache
		if got, want := r.Memory.DecodeMaxBatch, math.Floor(left/(float64(r.Memory.DecodeActivations)+kv)); got != want {
			t.Errorf("decode batch %v, want %v", got, want)
		}
		if got, want := r.Memory.MaxBatchTotalTokens, int64(r.Memory.DecodeMaxBatch*4224*0.97); got != want {
			t.Errorf("tokens %d, want %d", got, want)
		}
		var text strings.Builder
		if err := llmprofiler.Report(&text, r); err != nil {
			t.Fatal(err)
		}
		// Negative numbers are printed raw.
		for _, line := range []string{"'prefill_max_bs': '-", "'decode_max_bs': '-", ".0B',\n    'max_batch_total_tokens': '-"} {
			if !strings.Contains(text.String(), line) {
				t.Errorf("no %q in\n%s", line, text.String())
			}
		}
	})
	t.Run("one byte per parameter", func(t *testing.T) {
		in := input(t, "llama2-70B", "a100-sxm-40gb", 8, 32, 1024, 128, "")
		two := analyze(t, in)
		in.BytesPerParam = 1
		one := analyze(t, in)
		if got, want := one.Memory.Weights, two.Memory.Weights/2; got != want {
			t.Errorf("weights %v, want %v", got, want)
		}
		hbm := 1555 * 0.9 * 1e9
		saved := 2 * 150994944.0 / 8 / hbm
		if got, want := one.Ops.Decode.QKVOProj.Memory, two.Ops.Decode.QKVOProj.Memory-saved; math.Abs(got-want) > 1e-12*want {
			t.Errorf("qkvo %v, want %v", got, want)
		}
		saved = 2 * 704643072.0 / 8 / hbm
		if got, want := one.Ops.Prefill.MLP.Memory, two.Ops.Prefill.MLP.Memory-saved; math.Abs(got-want) > 1e-12*want {
			t.Errorf("mlp %v, want %v", got, want)
		}
		if got, want := one.Latency.Prefill.TPComm, two.Latency.Prefill.TPComm/2; math.Abs(got-want) > 1e-12*want {
			t.Errorf("comm %v, want %v", got, want)
		}
		if got, want := one.InputEmbedding.Prefill, two.InputEmbedding.Prefill/2; math.Abs(got-want) > 1e-12*want {
			t.Errorf("embedding %v, want %v", got, want)
		}
		if one.Memory.KVCache != two.Memory.KVCache || one.Memory.DecodeActivations != two.Memory.DecodeActivations ||
			one.Ops.Prefill.RMSNorm != two.Ops.Prefill.RMSNorm || one.Ops.Prefill.AttnKernel != two.Ops.Prefill.AttnKernel ||
			one.KVCacheLatency != two.KVCacheLatency {
			t.Error("something else changed")
		}
	})
	t.Run("a mixture of experts is younger than the seed version", func(t *testing.T) {
		r := analyze(t, input(t, "Qwen3-30B-A3B", "a100-sxm-80gb", 1, 1, 128, 128, ""))
		if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "4185809") {
			t.Errorf("warnings %q", r.Warnings)
		}
	})
}

func TestAnalyzeRefuses(t *testing.T) {
	good := func() llmprofiler.Input { return input(t, "llama2-70B", "a100-sxm-40gb", 8, 32, 1024, 128, "") }
	for _, test := range []struct {
		why    string
		change func(*llmprofiler.Input)
		want   string
	}{
		{"zero input", func(in *llmprofiler.Input) { *in = llmprofiler.Input{} }, "model layers is 0"},
		{"no batch", func(in *llmprofiler.Input) { in.Batch = 0 }, "batch size is 0"},
		{"negative prompt", func(in *llmprofiler.Input) { in.InputLen = -1 }, "input length is -1"},
		{"nothing generated", func(in *llmprofiler.Input) { in.OutputLen = 0 }, "output length is 0"},
		{"products beyond 64 bits", func(in *llmprofiler.Input) { in.Batch, in.InputLen = 1<<20, 1<<20 }, "exceed 64-bit integers"},
		{"all sizes at the limit", func(in *llmprofiler.Input) {
			in.TP, in.Batch, in.InputLen, in.OutputLen = 1<<31, 1<<31, 1<<31, 1<<31
		}, "exceed 64-bit integers"},
		{"more stages than layers", func(in *llmprofiler.Input) { in.PP = 81 }, "exceeds the 80 layers"},
		{"more GPUs than bytes", func(in *llmprofiler.Input) { in.TP = 1 << 31 }, "exceeds the bytes"},
		{"unknown version", func(in *llmprofiler.Input) { in.Version = "x" }, `compat version "x"`},
		{"no bandwidth", func(in *llmprofiler.Input) { in.GPU.HBMGBps = 0 }, "gpu memory bandwidth"},
		{"not a number", func(in *llmprofiler.Input) { in.GPU.FP16TFLOPS = math.NaN() }, "fp16 peak"},
		{"infinite memory", func(in *llmprofiler.Input) { in.GPU.MemoryGB = math.Inf(1) }, "gpu memory in GB"},
		{"no link but tensor parallel", func(in *llmprofiler.Input) { in.GPU.IntraNodeGBps = 0 }, "gpu link"},
		{"negative width", func(in *llmprofiler.Input) { in.BytesPerParam = -1 }, "bytes per parameter"},
		{"more active experts than there are", func(in *llmprofiler.Input) { in.Model.NumExperts, in.Model.ExpertsPerToken = 4, 8 }, "experts per token"},
	} {
		t.Run(test.why, func(t *testing.T) {
			in := good()
			test.change(&in)
			if _, err := llmprofiler.Analyze(in); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestFromCatalog(t *testing.T) {
	entry := &catalog.Model{
		Name: "Mixtral-8x7B", Type: "mixtral", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128,
		VocabSize: 32000, MaxSeqLen: 32768, Source: "test",
		MoE: &catalog.MoE{NumExperts: 8, ExpertsPerToken: 2, IntermediateSize: 14336},
	}
	device := &catalog.Device{
		Name: "test-gpu", Memory: catalog.Quantity{Value: 80e9, Source: "t"}, Bandwidth: catalog.Quantity{Value: 2e12, Source: "t"},
		Peaks: map[catalog.DType]catalog.Quantity{catalog.BF16: {Value: 300e12, Source: "t"}},
		Link:  catalog.Link{Bandwidth: catalog.Quantity{Value: 300e9, Source: "t"}},
	}
	m, err := llmprofiler.FromCatalog(entry)
	if err != nil {
		t.Fatal(err)
	}
	g, err := llmprofiler.GPUFromCatalog(device)
	if err != nil {
		t.Fatal(err)
	}
	if g.MemoryGB != 80 || g.HBMGBps != 2000 || g.IntraNodeGBps != 600 || g.FP16TFLOPS != 300 || g.MessageLatency != 8e-6 {
		t.Errorf("gpu %+v", g)
	}
	r := analyze(t, llmprofiler.Input{Model: m, GPU: g, TP: 2, PP: 1, Batch: 1, InputLen: 128, OutputLen: 16, Version: llmprofiler.June2025})
	if want := int64(32*(2*4096*128*40+4096*8+2*3*4096*14336+2*4096) + 32000*4096); r.ParamsModel != want {
		t.Errorf("%d parameters, want %d", r.ParamsModel, want)
	}
	if len(r.Warnings) != 2 || !strings.Contains(r.Warnings[0], "not in the reference's table") || !strings.Contains(r.Warnings[1], "test-gpu") {
		t.Errorf("warnings %q", r.Warnings)
	}

	latent := &catalog.Model{
		Name: "latent", Type: "deepseek_v3", NumLayers: 4, HiddenSize: 2048, NumHeads: 16, VocabSize: 1000, MaxSeqLen: 4096,
		MLA:              &catalog.MLA{KVLoraRank: 512, QKNopeHeadDim: 128, QKRopeHeadDim: 64, VHeadDim: 128},
		MoE:              &catalog.MoE{NumExperts: 8, ExpertsPerToken: 2, IntermediateSize: 512, SharedIntermediateSize: 512, DenseLayers: 1},
		IntermediateSize: 4096, Source: "test",
	}
	m, err = llmprofiler.FromCatalog(latent)
	if err != nil {
		t.Fatal(err)
	}
	if m.NumKVHeads != 16 || m.HeadDim != 128 || len(m.Notes) != 4 {
		t.Errorf("latent attention: %d KV heads of %d, notes %q", m.NumKVHeads, m.HeadDim, m.Notes)
	}
	for _, bad := range []*catalog.Model{nil, {}} {
		if _, err := llmprofiler.FromCatalog(bad); err == nil {
			t.Errorf("model %v: no error", bad)
		}
	}
	for _, bad := range []*catalog.Device{nil, {}} {
		if _, err := llmprofiler.GPUFromCatalog(bad); err == nil {
			t.Errorf("device %v: no error", bad)
		}
	}
}

// JSON has the keys of the recorded rows in either version; only the printed
// report names the whole steps by version.
func TestJSONKeys(t *testing.T) {
	for _, version := range []llmprofiler.Version{llmprofiler.Seed, llmprofiler.June2025} {
		r := analyze(t, input(t, "llama2-70B", "a100-sxm-40gb", 8, 32, 1024, 128, version))
		row := object(t, r).(map[string]any)
		prefill, decode := row["prefill_latency"].(map[string]any), row["decode_latency"].(map[string]any)
		if prefill["TTFT"] != row["TTFT"] || decode["TTOT"] != row["TTOT"] {
			t.Errorf("%s: %v, %v", version, prefill, decode)
		}
		if len(prefill) != 7 || len(decode) != 8 {
			t.Errorf("%s: %d and %d keys, want 7 and 8", version, len(prefill), len(decode))
		}
		if row["compat_version"] != string(version) || row["fits_reference_asserts"] != true || row["reference_error"] != nil {
			t.Errorf("%s: version %v, runs %v, error %v", version, row["compat_version"], row["fits_reference_asserts"], row["reference_error"])
		}
	}
}

// request draws a request on the tables.
func request(t *rapid.T) llmprofiler.Input {
	return llmprofiler.Input{
		Model: rapid.SampledFrom(llmprofiler.Models()).Draw(t, "model"),
		GPU:   rapid.SampledFrom(llmprofiler.GPUs()).Draw(t, "gpu"),
		TP:    rapid.IntRange(1, 16).Draw(t, "tp"), PP: rapid.IntRange(1, 8).Draw(t, "pp"),
		Batch:    rapid.IntRange(1, 256).Draw(t, "batch"),
		InputLen: rapid.IntRange(1, 8192).Draw(t, "input"), OutputLen: rapid.IntRange(1, 4096).Draw(t, "output"),
		Version: rapid.SampledFrom([]llmprofiler.Version{llmprofiler.Seed, llmprofiler.June2025}).Draw(t, "version"),
	}
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := request(t)
		get := func(in llmprofiler.Input) llmprofiler.Result {
			r, err := llmprofiler.Analyze(in)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		base := get(in)
		if base.Fits != (len(base.Reasons) == 0) {
			t.Fatalf("fits %v, reasons %v", base.Fits, base.Reasons)
		}
		more := in
		more.Batch++
		if r := get(more); r.TTFT < base.TTFT || r.TTOT < base.TTOT || r.Memory.Consumed < base.Memory.Consumed {
			t.Fatalf("one more sequence is faster or smaller: %v %v after %v %v", r.TTFT, r.TTOT, base.TTFT, base.TTOT)
		}
		more = in
		more.GPU.HBMGBps *= 2
		if r := get(more); r.TTFT > base.TTFT || r.TTOT > base.TTOT {
			t.Fatalf("more bandwidth is slower: %v %v after %v %v", r.TTFT, r.TTOT, base.TTFT, base.TTOT)
		}
		more = in
		more.GPU.MemoryGB *= 2
		if r := get(more); r.Memory.DecodeMaxBatch < base.Memory.DecodeMaxBatch || len(r.Reasons) > len(base.Reasons) {
			t.Fatalf("more memory holds less: %v after %v", r.Memory, base.Memory)
		}
		l := base.Latency.Prefill
		sum := l.QKVOProj + l.AttnKernel + l.MLP + l.RMSNorm + l.TPComm + l.KVCacheRW + base.InputEmbedding.Prefill + base.OutputEmbedding.Prefill
		if math.Abs(sum-base.TTFT) > 1e-12*base.TTFT {
			t.Fatalf("parts sum to %v, TTFT is %v", sum, base.TTFT)
		}
	})
}

// TestAnyInput draws every number from the whole range: an error or finite
// figures that survive JSON, the report and the graph, and no wrapped count.
func TestAnyInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// One draw in eight may be any number at all, the others are
		// sensible one by one, but together up to and beyond 64 bits.
		wild := rapid.IntRange(0, 7).Draw(t, "wild") == 0
		size := func(name string, bits int) int {
			if wild {
				return rapid.Int().Draw(t, name)
			}
			low := 1 << rapid.IntRange(0, bits-1).Draw(t, name+" bits")
			return rapid.IntRange(low, 2*low).Draw(t, name)
		}
		figure := func(name string, low, high float64) float64 {
			if wild {
				return rapid.Float64().Draw(t, name)
			}
			return rapid.Float64Range(low, high).Draw(t, name)
		}
		in := llmprofiler.Input{
			Model: llmprofiler.Model{
				Name: rapid.String().Draw(t, "name"), Type: rapid.SampledFrom([]string{"llama", "qwen3", "qwen3_moe"}).Draw(t, "type"),
				NumLayers: size("layers", 8), HiddenSize: size("hidden", 14), NumHeads: size("heads", 8), NumKVHeads: size("kv heads", 8),
				HeadDim: size("head size", 9), IntermediateSize: size("width", 15), VocabSize: size("vocab", 18), MaxSeqLen: size("max len", 20),
				NumExperts: rapid.IntRange(16, 256).Draw(t, "experts"), ExpertsPerToken: rapid.IntRange(1, 16).Draw(t, "per token"),
			},
			GPU: llmprofiler.GPU{
				Name: "gpu", MemoryGB: figure("memory", 1, 1000), HBMGBps: figure("hbm", 1, 10000), IntraNodeGBps: figure("link", 1, 2000),
				FP16TFLOPS: figure("fp16", 1, 5000), MessageLatency: figure("latency", 0, 1e-4),
			},
			TP: size("tp", 5), PP: 1, Batch: size("batch", 12), InputLen: size("input", 20), OutputLen: size("output", 20),
			BytesPerParam: figure("bytes per parameter", 0.5, 4),
		}
		if rapid.Bool().Draw(t, "dense") {
			in.Model.NumExperts, in.Model.ExpertsPerToken = 0, 0
		}
		if wild {
			in.PP = rapid.Int().Draw(t, "pp")
		}
		r, err := llmprofiler.Analyze(in)
		if err != nil {
			return
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err) // NaN and infinities cannot be marshalled
		}
		if err := llmprofiler.Report(new(strings.Builder), r); err != nil {
			t.Fatal(err)
		}
		graph, err := llmprofiler.Graph(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range append(graph.Prefill, graph.Decode...) {
			if min(n.FLOPs, n.MemoryAccess, n.Intensity, n.LoadAct, n.StoreAct, n.LoadKVCache) < 0 {
				t.Fatalf("node %+v", n)
			}
		}
		m, b, s := in.Model, float64(in.Batch), float64(in.InputLen)
		head := 2 * b * s * float64(m.HiddenSize) * float64(m.VocabSize) / float64(in.TP) / (in.GPU.FP16TFLOPS * 0.9 * 1e12)
		if math.Abs(head-r.OutputEmbedding.Prefill) > 1e-9*head {
			t.Fatalf("head %v, want %v", r.OutputEmbedding.Prefill, head)
		}
		p := r.ParamsPerLayer
		if params := float64(m.NumLayers)*float64(p.Total) + float64(r.ParamsEmbedding); math.Abs(params-float64(r.ParamsModel)) > 1e-9*params {
			t.Fatalf("%d parameters, want %v", r.ParamsModel, params)
		}
		f := r.PrefillFLOPsPerLayer
		if model := float64(m.NumLayers) * float64(f.Total); math.Abs(model-float64(r.PrefillFLOPs)) > 1e-9*model || f.AttentionKernel <= 0 || f.MLP <= 0 {
			t.Fatalf("FLOPs %d, want %v of %+v", r.PrefillFLOPs, model, f)
		}
	})
}
