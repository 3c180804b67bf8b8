package memprofile_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
)

func noLimits() format.Limits { return format.Limits{} }

const batchFile = "batch-bench-results-20261120_181637.csv"

func TestBatchGolden(t *testing.T) {
	text := fixture(t, batchFile)
	rows, warnings, err := memprofile.ReadBatch(batchFile, bytes.NewReader(text), noLimits())
	if err != nil || len(warnings) > 0 || len(rows) != 4 {
		t.Fatal(len(rows), warnings, err)
	}
	if r := rows[1]; *r.KVCacheGB != 2.15 || !r.Success || *r.BatchSize != 8 || *r.LatencyMs != 2500 {
		t.Errorf("second row: %+v", r)
	}
	var out bytes.Buffer
	if err := memprofile.WriteBatch(&out, rows); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestBatchRowOf: but for the sizes that were in GiB, the row of a profile is
// the one that its own tool wrote.
func TestBatchRowOf(t *testing.T) {
	rows, _, err := memprofile.ReadBatch(batchFile, bytes.NewReader(fixture(t, batchFile)), noLimits())
	if err != nil {
		t.Fatal(err)
	}
	want := rows[0]
	d, _ := read(t, string(fixture(t, "vllm-inference_256in_256out_bs1_20261120_181600.json")))
	got := memprofile.BatchRowOf(d, want.ContainerName, want.ProfileFile, 3.815852403640747)
	for _, c := range []struct{ got, want *float64 }{
		{got.TotalMemoryGB, to(40.2653184)}, {got.BaselineGB, to(0.536870912)}, {got.IncreaseGB, to(39.728447488)}, {got.OverheadGB, to(26.028447488)},
	} {
		if *c.got != *c.want {
			t.Errorf("%g GB, want %g", *c.got, *c.want)
		}
	}
	got.TotalMemoryGB, got.BaselineGB, got.IncreaseGB, got.OverheadGB = want.TotalMemoryGB, want.BaselineGB, want.IncreaseGB, want.OverheadGB
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBatchCells(t *testing.T) {
	var out strings.Builder
	rows := []memprofile.BatchRow{
		{ModelID: `a,"b"`, ErrorMessage: "out of memory\nat 1", TotalMemoryGB: to(0.0), BatchSize: to(1), InputLen: to(0)},
		{ModelID: "c", Success: true, TotalMemoryGB: to(1e-5), WeightsGB: to(1e16), KVCacheGB: to(0.0001), LatencyMs: to(-37.0)},
	}
	if err := memprofile.WriteBatch(&out, rows); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "\n")
	want := "\"a,\"\"b\"\"\",,0,,1,False,,,,,,,,,,,,,,,,\"out of memory\nat 1\"\nc,,,,,True,,1e-05,,,1e+16,0.0001,,,,,,,,-37.0,,\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	rows[0].TotalMemoryGB = nil // an empty cell is nothing that was measured
	back, _, err := memprofile.ReadBatch("x", strings.NewReader(out.String()), noLimits())
	if diff := cmp.Diff(rows, back); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestBrokenTables(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"nothing", "", "the file is empty"},
		{"no model", "a,total_memory_gb\n1,2\n", "line 1: has no column model_id or model_name or model"},
		{"no total", "model,a\n1,2\n", "line 1: has no column total_memory_gb or profiled_total_gb"},
		{"a word for a size", "model,total_memory_gb\nm,much\n", `line 2, total_memory_gb: want a number, got "much"`},
		{"hexadecimal", "model,total_memory_gb\nm,0x10\n", "want a number"},
		{"half a batch", "model,total_memory_gb,batch\nm,1,1.5\n", "line 2, batch_size: want a whole number"},
		{"a short row", "model,total_memory_gb\nm\n", "want 2 cells, got 1"},
	} {
		_, _, err := memprofile.ReadMeasuredCSV("x.csv", strings.NewReader(c.text), noLimits())
		if err == nil || !strings.HasPrefix(err.Error(), "x.csv: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.why, err, c.want)
		}
	}
	if _, _, err := memprofile.ReadBatch("x.csv", strings.NewReader("model_id,total_memory_gb,success\nm,1,perhaps\n"), noLimits()); err == nil || !strings.Contains(err.Error(), "want True or False") {
		t.Errorf("an unknown truth: %v", err)
	}
}

func TestMeasured(t *testing.T) {
	for file, want := range map[string]memprofile.MeasuredRow{
		batchFile: {
			ProfileFile: "results/memory-profiles/vllm-inference_256in_256out_bs1_20261120_181600.json", Model: "meta-llama/Llama-2-7b-hf",
			Batch: to(1), InputLen: to(256), OutputLen: to(256), WeightDType: "float16", ActivationDType: "float16", KVCacheDType: "float16", Confidence: "high",
			TotalGB: to(37.5), BaselineGB: to(0.5), WeightsGB: to(13.4), KVGB: to(0.27), ActivationsGB: to(0.03), OverheadGB: to(23.3),
		},
		"batch-validate.head.csv": {
			ProfileFile: "hi.json", Model: "meta-llama/Llama-2-7b-hf", ParamsB: to(6.7), GPUs: to(1), GPU: "NVIDIA H100 SXM5",
			Batch: to(8), InputLen: to(512), OutputLen: to(512), WeightDType: "float16", KVCacheDType: "fp16_bf16",
			TotalGB: to(37.5), WeightsGB: to(13.4), KVGB: to(4.29), ActivationsGB: to(0.54), OverheadGB: to(18.77),
			CalculatorTotalGB: to(20.99), CalculatorWeightsGB: to(14.0), CalculatorKVGB: to(4.29), CalculatorActivationsGB: to(0.27), CalculatorOverheadGB: to(2.43),
		},
		"validate-profile.csv": {
			ProfileFile: "hi.json", Model: "meta-llama/Llama-2-7b-hf", ParamsB: to(6.7), GPUs: to(1), Batch: to(8), InputLen: to(512), OutputLen: to(512),
			TotalGB: to(37.5), WeightsGB: to(13.4), KVGB: to(4.29), ActivationsGB: to(0.54), OverheadGB: to(18.77), CalculatorTotalGB: to(45.3),
		},
	} {
		rows, _, err := memprofile.ReadMeasuredCSV(file, bytes.NewReader(fixture(t, file)), noLimits())
		if err != nil || len(rows) == 0 {
			t.Fatal(file, err)
		}
		if diff := cmp.Diff(want, rows[0]); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

// TestValidationGolden: the row of the original comes out of its figures, of
// which the differences are computed here.
func TestValidationGolden(t *testing.T) {
	row := memprofile.ValidationRow{
		ProfileFile: "hi.json", ModelName: "meta-llama/Llama-2-7b-hf", ParamsB: to(6.7), GPUs: to(1), GPUType: "NVIDIA H100 SXM5",
		Batch: to(8), InputLen: to(512), OutputLen: to(512), SeqLen: to(1024), DType: "float16",
		TotalGB: to(37.5), WeightsGB: to(13.4), KVGB: to(4.29), ActivationsGB: to(0.54), OverheadGB: to(18.77),
		CalculatorTotalGB: to(24.4), CalculatorWeightsGB: to(14.0), CalculatorKVGB: to(4.294967296), CalculatorActivationsGB: to(4.294967296),
		CalculatorOverheadGB: to(1.80719), MatchQuality: "Poor ✗", MatchedModel: "DeepSeek-R1 7B", MatchedGPU: "NVIDIA H100 SXM5",
		InferenceQuant: "fp16", KVQuant: "fp16_bf16", LatencyMs: to(2.5), // seconds, in the original
	}
	var out strings.Builder
	if err := memprofile.WriteValidation(&out, []memprofile.ValidationRow{row}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(fixture(t, "batch-validate.2c8af80.csv"))+"\n", out.String()); diff != "" {
		t.Error(diff)
	}
	d, _ := read(t, string(fixture(t, "hi.json")))
	own := memprofile.ValidationRowOf(d, "hi.json")
	if *own.SeqLen != 1024 || *own.ParamsB != 6.7 || *own.LatencyMs != 2500 || *own.WeightsGB != 13.4 || own.CalculatorTotalGB != nil {
		t.Errorf("row of the profile: %+v", own)
	}
	out.Reset()
	own.CalculatorTotalGB, own.CalculatorWeightsGB = nil, to(0.0)
	if err := memprofile.WriteValidation(&out, []memprofile.ValidationRow{own}); err != nil || !strings.Contains(out.String(), ",,0.00,,,,,,,,,,") {
		t.Errorf("nothing to compare with: %v\n%s", err, out.String())
	}
}

// TestProfileGolden: as the original but for the sign, which is measured less
// calculated here as everywhere.
func TestProfileGolden(t *testing.T) {
	row := memprofile.ProfileRow{
		Timestamp: "2026-11-20T18:16:44.575283", Profile: "hi.json", Model: "meta-llama/Llama-2-7b-hf", ParamsB: to(6.7), GPUs: to(1),
		Batch: to(8), InputLen: to(512), OutputLen: to(512), TotalGB: to(37.5), WeightsGB: to(13.4), KVGB: to(4.29),
		ActivationsGB: to(0.54), OverheadGB: to(18.77), LatencyMs: to(2.5), CalculatorTotalGB: to(45.3), MatchQuality: "Poor ✗",
	}
	var out strings.Builder
	if err := memprofile.WriteProfileRows(&out, []memprofile.ProfileRow{row}); err != nil {
		t.Fatal(err)
	}
	golden := strings.NewReplacer("45.3,7.7", "45.3,-7.7", ",20.7", ",-20.7").Replace(string(fixture(t, "validate-profile.csv")))
	if diff := cmp.Diff(golden, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	d, _ := read(t, string(fixture(t, "hi.json")))
	if err := memprofile.WriteProfileRows(&out, []memprofile.ProfileRow{memprofile.ProfileRowOf(memprofile.ValidationRowOf(d, "hi.json"), string(d.Timestamp))}); err != nil {
		t.Fatal(err)
	}
	if head, _, _ := strings.Cut(out.String(), "\n"); !strings.HasSuffix(head, ",latency_ms") || strings.Count(head, ",") != 13 {
		t.Errorf("columns without a calculator: %s", head)
	}
}

// TestBatchRoundTrip holds for any figures and texts.
func TestBatchRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[!-~é✗]([ -~]{0,5}[!-~])?`)
		size := rapid.Ptr(rapid.Float64Min(1e-300), true)
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) memprofile.BatchRow {
			return memprofile.BatchRow{
				ModelID: text.Draw(t, "model"), Success: rapid.Bool().Draw(t, "success"), ErrorMessage: text.Draw(t, "error"),
				TotalMemoryGB: size.Draw(t, "total"), LatencyMs: size.Draw(t, "latency"), BatchSize: rapid.Ptr(rapid.IntRange(0, 1<<20), true).Draw(t, "batch"),
			}
		}), 1, 5).Draw(t, "rows")
		var out bytes.Buffer
		if err := memprofile.WriteBatch(&out, rows); err != nil {
			t.Fatal(err)
		}
		back, _, err := memprofile.ReadBatch("x", &out, noLimits())
		if diff := cmp.Diff(rows, back); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}

func FuzzReadBatch(f *testing.F) {
	f.Add(fixture(f, batchFile))
	f.Add([]byte("model_id,total_memory_gb\r\nm,nan\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, _, err := memprofile.ReadBatch("x", bytes.NewReader(text), format.Limits{Bytes: 1 << 20})
		if err != nil {
			return
		}
		if err := memprofile.WriteBatch(io.Discard, rows); err != nil {
			t.Error(err)
		}
	})
}

func FuzzReadMeasuredCSV(f *testing.F) {
	for _, name := range []string{batchFile, "batch-validate.head.csv", "validate-profile.csv"} {
		f.Add(fixture(f, name))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, _, err := memprofile.ReadMeasuredCSV("x", bytes.NewReader(text), format.Limits{Bytes: 1 << 20})
		if err != nil && !strings.HasPrefix(err.Error(), "x: ") {
			t.Errorf("an error without the file's name: %v", err)
		}
		if err != nil && len(rows) > 0 {
			t.Error("rows beside an error")
		}
	})
}
