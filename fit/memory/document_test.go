package memory_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/cost/llmsizer"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

// profiles is where the fixtures of the format stand.
const profiles = "../../format/memprofile/testdata/"

func document(t testing.TB, name string) *memprofile.Document {
	t.Helper()
	file, err := os.Open(profiles + name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	d, _, err := memprofile.Read(name, file, format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// cardDocument is the public run of [card] as a profile of ours.
func cardDocument() *memprofile.Document {
	n := func(v int) *int { return &v }
	share, used := 0.9, 41_408
	total, weights, pool := cardMemory, unit.Bytes(2*8_030_261_248), pooled*perToken
	baseline, peak := unit.Bytes(0.4e9), unit.Bytes(23.2e9)
	computed := unit.Bytes(0.3e9)
	d := &memprofile.Document{}
	d.ModelInfo = memprofile.ModelInfo{Name: "meta-llama/Llama-3.1-8B", DType: "bfloat16", Layers: n(32), Heads: n(32), KVHeads: n(8), HeadDim: n(128), HiddenSize: n(4096)}
	d.DTypeMetadata = memprofile.DTypeMetadata{WeightDType: "bfloat16", ActivationDType: "bfloat16", KVCacheDType: "auto"}
	d.BenchmarkParameters = memprofile.BenchmarkParameters{
		InputLen: n(647), OutputLen: n(647), BatchSize: n(32), TensorParallelSize: n(1), PipelineParallelSize: n(1), BlockSize: n(16), GPUMemoryUtilization: &share,
		EngineArgs: []string{"--max-num-batched-tokens", "2048", "--max-num-seqs=256"},
	}
	d.MemoryMeasurements.Baseline = &memprofile.MemoryPoint{TotalBytes: &baseline}
	d.MemoryMeasurements.Peak = &memprofile.MemoryPoint{PerGPU: []memprofile.GPUUsed{{Name: "NVIDIA GeForce RTX 4090", UsedBytes: &peak, TotalBytes: &total}}}
	d.MemoryBreakdown.Parts = []memprofile.Part{
		{Name: memprofile.PartWeights, Bytes: &weights, Confidence: memprofile.High, Source: "log"},
		{Name: memprofile.PartKVCache, Bytes: &pool, Confidence: memprofile.High, Source: "log"},
		{Name: memprofile.PartActivations, Bytes: &computed, Confidence: memprofile.Medium, Source: "architecture of llama-3.1-8b"},
		{Name: memprofile.PartCUDAGraphs, Note: "the engine does not say"},
	}
	d.KVCache = memprofile.KVCache{Blocks: n(2588), BlockSize: n(16), UsedTokens: &used}
	d.EngineMetadata.EngineType = "vllm"
	d.GPUInfo.GPUType, d.GPUInfo.NumGPUs = "cuda", n(1)
	return d
}

func size(b *unit.Bytes) string {
	if b == nil {
		return "nil"
	}
	return fmt.Sprintf("%.2f", float64(*b)/1e9)
}

func sizes(m memory.Measured) string {
	return fmt.Sprintf("total %s weights %s cache %s used %s activations %s graphs %s overhead %s",
		size(m.Total), size(m.Weights), size(m.KVCache), size(m.KVUsed), size(m.Activations), size(m.Graphs), size(m.Overhead))
}

func TestFromDocument(t *testing.T) {
	overhead, read := cardDocument(), unit.Bytes(0.5e9)
	overhead.MemoryBreakdown.Parts = append(overhead.MemoryBreakdown.Parts, memprofile.Part{
		Name: memprofile.PartOverhead, Bytes: &read, Confidence: memprofile.Medium, Source: "log: Starting to load model",
	})
	for _, test := range []struct {
		why     string
		d       *memprofile.Document
		compat  bool
		sizes   string
		pool    bool
		remarks string
	}{
		{
			"only what the engine states is measured", cardDocument(), false,
			"total 22.80 weights 16.06 cache 5.43 used 5.43 activations nil graphs nil overhead nil", true,
			"activations: computed by the profiler, not measured",
		},
		{
			"an overhead that was read earlier is no part of the peak", overhead, false,
			"total 22.80 weights 16.06 cache 5.43 used 5.43 activations nil graphs nil overhead nil", true,
			"framework overhead: read before the weights were loaded, and not at the peak; activations: computed by the profiler, not measured",
		},
		{
			"ours with all that it holds", cardDocument(), true,
			"total 23.20 weights 16.06 cache 5.43 used nil activations 0.30 graphs nil overhead nil", false, "",
		},
		{
			"the parts of LLM Sizer follow from its formulas, whatever confidence they claim", document(t, "hi.json"), false,
			"total 39.73 weights nil cache nil used nil activations nil graphs nil overhead nil", true,
			"weights, KV cache, activations, framework overhead: computed by the profiler, not measured",
		},
		{
			"as LLM Sizer printed it", document(t, "hi.json"), true,
			"total 37.50 weights 13.40 cache 4.29 used nil activations 0.54 graphs nil overhead 18.77", false, "",
		},
		{
			"assumed shares as LLM Sizer printed them", document(t, "lo.json"), true,
			"total 37.50 weights 24.05 cache 7.40 used nil activations 4.44 graphs nil overhead 1.11", false, "",
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			m, remarks := memory.FromDocument("x.json", test.d, test.compat)
			if got := sizes(m); got != test.sizes {
				t.Errorf("got  %s\nwant %s", got, test.sizes)
			}
			if m.Preallocates != test.pool || m.Source != "x.json" || len(m.Faults) > 0 {
				t.Errorf("%+v", m)
			}
			if got := strings.Join(remarks, "; "); got != test.remarks {
				t.Errorf("remarks %q, want %q", got, test.remarks)
			}
		})
	}
}

func TestFromDocumentTellsTheRun(t *testing.T) {
	m, _ := memory.FromDocument("x.json", cardDocument(), false)
	if m.Device != "NVIDIA GeForce RTX 4090" || *m.DeviceMemory != cardMemory || m.GPUs != 1 || m.Batch != 32 || m.Input != 647 || m.Output != 647 ||
		m.Utilization != 0.9 || m.BlockSize != 16 || m.MaxBatchedTokens != 2048 || m.MaxSequences != 256 || m.WeightDType != catalog.BF16 || m.KVDType != "" || m.Shape.KVHeads != 8 {
		t.Errorf("%+v", m)
	}
	c := builtin(t)
	r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Ours(c, cost.Settings{})}, memory.Options{Catalog: c})
	if len(r.Verdicts) != 1 {
		t.Fatalf("%+v", r)
	}
	for component, bound := range map[memory.Component]float64{memory.Total: 1, memory.Weights: 0.01, memory.KVCapacity: 3} {
		if off := *of(t, r.Verdicts[0], component).OfMeasured; math.Abs(off) > bound {
			t.Errorf("%s is off by %.2f %%, want at most %g", component, off, bound)
		}
	}
}

func TestFromDocumentChanges(t *testing.T) {
	n := func(v int) *int { return &v }
	for _, test := range []struct {
		why    string
		change func(*memprofile.Document)
		check  func(memory.Measured) bool
	}{
		{"all GPUs of all stages", func(d *memprofile.Document) {
			d.BenchmarkParameters.TensorParallelSize, d.BenchmarkParameters.PipelineParallelSize = n(4), n(2)
		}, func(m memory.Measured) bool { return m.GPUs == 8 && m.PipelineStages == 2 }},
		{"without a layout the GPUs of the engine", func(d *memprofile.Document) {
			d.BenchmarkParameters.TensorParallelSize, d.GPUInfo.NumGPUs = nil, n(2)
		}, func(m memory.Measured) bool { return m.GPUs == 2 }},
		{"a use that was computed is not measured", func(d *memprofile.Document) {
			used := 5 * unit.GiB
			d.KVCache.UsedTokens, d.KVCache.UsedBytes = nil, &used
		}, func(m memory.Measured) bool { return m.KVUsed == nil && m.KVCache != nil }},
		{"a use of which the digits say little is not compared", func(d *memprofile.Document) {
			used, tokens := 99*pooled*perToken/10_000, 99*pooled/10_000
			d.KVCache.UsedTokens, d.KVCache.UsedBytes = &tokens, &used
		}, func(m memory.Measured) bool { return m.KVUsed == nil && m.KVCache != nil }},
		{"a percent of the cache is told well enough", func(d *memprofile.Document) {
			used, tokens := pooled*perToken/100, pooled/100
			d.KVCache.UsedTokens, d.KVCache.UsedBytes = &tokens, &used
		}, func(m memory.Measured) bool { return m.KVUsed != nil }},
		{"an engine without a pool needs what it takes", func(d *memprofile.Document) { d.EngineMetadata.EngineType = "transformers" }, func(m memory.Measured) bool { return !m.Preallocates }},
		{"an engine on a CPU", func(d *memprofile.Document) { d.GPUInfo.GPUType = "cpu" }, func(m memory.Measured) bool { return m.OnHost && !m.Preallocates }},
		{"torch's cache has no blocks", func(d *memprofile.Document) {
			d.EngineMetadata.EngineType, d.BenchmarkParameters.BlockSize, d.KVCache.BlockSize = "torch", nil, nil
		}, func(m memory.Measured) bool { return m.BlockSize == 1 }},
		{"a pool in the host's memory is not resident", func(d *memprofile.Document) { d.GPUInfo.GPUType = "cpu" }, func(m memory.Measured) bool {
			return !m.Preallocates && m.KVCache == nil && m.KVUsed != nil
		}},
		{"no length", func(d *memprofile.Document) { d.BenchmarkParameters.InputLen = nil }, func(m memory.Measured) bool {
			return strings.Contains(strings.Join(m.Faults, "\n"), "does not tell the input length")
		}},
		{"a total that was not measured", func(d *memprofile.Document) { d.MemoryMeasurements.Baseline = nil }, func(m memory.Measured) bool { return m.Total == nil }},
		{"no quantisation", func(d *memprofile.Document) { d.ModelInfo.Quantization = "None" }, func(m memory.Measured) bool { return m.Quantization == "" }},
		{"quantised", func(d *memprofile.Document) {
			d.BenchmarkParameters.Quantization, d.DTypeMetadata.WeightDType = "AWQ", "awq"
		}, func(m memory.Measured) bool { return m.Quantization == "awq" && m.WeightDType == catalog.BF16 }},
	} {
		t.Run(test.why, func(t *testing.T) {
			d := cardDocument()
			test.change(d)
			if m, _ := memory.FromDocument("x.json", d, false); !test.check(m) {
				t.Errorf("%+v: %s", m, sizes(m))
			}
		})
	}
}

// A profile whose memory was read while nothing ran enters no mean, however it
// is read.
func TestFaultyDocument(t *testing.T) {
	for _, compat := range []bool{false, true} {
		m, _ := memory.FromDocument("released.json", document(t, "released.json"), compat)
		r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Sizer(llmsizer.ScriptV1)}, memory.Options{})
		if len(r.Unusable) != 1 || !strings.Contains(r.Unusable[0].Reasons[0], "parts exceed total") || len(r.Verdicts) != 0 {
			t.Errorf("compat %v: %+v", compat, r)
		}
	}
}

// The rows of batch-validate come out of the profile itself, once the number
// of parameters is the one that the original took from another model.
func TestDocumentGoldens(t *testing.T) {
	for file, version := range map[string]llmsizer.Version{"batch-validate.2c8af80.csv": llmsizer.AppEarly, "batch-validate.head.csv": llmsizer.AppLate} {
		golden := row(t, file)
		m, _ := memory.FromDocument("hi.json", document(t, "hi.json"), true)
		m.Shape.Params = 7.0e9
		r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Sizer(version)}, memory.Options{Scheme: memory.BatchValidate})
		total := of(t, r.Verdicts[0], memory.Total)
		if got := fmt.Sprintf("%.1f", *total.OfCalculated); got != golden["diff_total_pct"] {
			t.Errorf("%s: %s %%, want %s", file, got, golden["diff_total_pct"])
		}
		if got := size(&total.Measured); got != golden["profiled_total_gb"] {
			t.Errorf("%s: measured %s, want %s", file, got, golden["profiled_total_gb"])
		}
	}
}

func measuredRows(t *testing.T, text string) []memprofile.MeasuredRow {
	t.Helper()
	rows, _, err := memprofile.ReadMeasuredCSV("x.csv", strings.NewReader(text), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestFromRow(t *testing.T) {
	batch := measuredRows(t, `model_id,input_len,output_len,batch_size,total_memory_gb,baseline_memory_gb,weights_gb,kv_cache_gb,activations_gb,overhead_gb,weight_dtype,error_message
meta-llama/Llama-2-7b-hf,256,128,8,37.5,0.5,13.4,2.15,0.27,21.18,float16,
m,256,128,8,,,,,,,,out of memory
m,256,128,8,-3,,,,,,,
`)
	for _, test := range []struct {
		why    string
		row    int
		compat bool
		sizes  string
		faults string
	}{
		{"a table does not say what was measured", 0, false, "total 37.00 weights nil cache nil used nil activations nil graphs nil overhead nil", ""},
		{"as LLM Sizer", 0, true, "total 37.50 weights 13.40 cache 2.15 used nil activations 0.27 graphs nil overhead 21.18", ""},
		{"a run that failed", 1, true, "total nil weights nil cache nil used nil activations nil graphs nil overhead nil", "out of memory"},
		{"no size", 2, true, "total nil weights nil cache nil used nil activations nil graphs nil overhead nil", "total: -3 GB is no size of memory"},
	} {
		t.Run(test.why, func(t *testing.T) {
			m, remarks := memory.FromRow("x", batch[test.row], test.compat)
			if got := sizes(m); got != test.sizes || m.Preallocates == test.compat || (len(remarks) > 0) == test.compat {
				t.Errorf("%s, %q, want %s", got, remarks, test.sizes)
			}
			if got := strings.Join(m.Faults, "\n"); got != test.faults {
				t.Errorf("faults %q, want %q", got, test.faults)
			}
			if m.Batch != 8 || m.Input != 256 || m.Output != 128 {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestRecorded(t *testing.T) {
	text, err := os.ReadFile(profiles + "batch-validate.head.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows := measuredRows(t, string(text))
	recorded := memory.NewRecorded("as recorded")
	if !recorded.Add("row", rows[0]) || recorded.Add("other", memprofile.MeasuredRow{}) {
		t.Error("a row with figures is taken, one without is not")
	}
	m, _ := memory.FromRow("row", rows[0], true)
	other := m
	other.Source = "other"
	r := memory.Judge([]memory.Measured{m, other}, []memory.Calculator{recorded}, memory.Options{Scheme: memory.BatchValidate})
	if len(r.Verdicts) != 1 || len(r.Summaries[0].Missed) != 1 {
		t.Fatalf("%+v", r)
	}
	if got := *of(t, r.Verdicts[0], memory.Total).OfCalculated; math.Abs(got-78.6) > 0.1 {
		t.Errorf("%.1f %%, want 78.6", got)
	}
	if m.KVDType != catalog.FP16 || m.WeightDType != catalog.FP16 || m.Device != "NVIDIA H100 SXM5" {
		t.Errorf("%+v", m)
	}
}

// TestStated: what the user states counts for ours, with the model's own sizes
// in its blanks.
func TestStated(t *testing.T) {
	c := builtin(t)
	base, _ := memory.FromDocument("x.json", cardDocument(), false)
	calculate := func(stated deploy.Stated) (memory.Prediction, error) {
		m := base
		m.Stated = stated
		r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Ours(c, cost.Settings{})}, memory.Options{Catalog: c})
		var p memory.Prediction
		if missed := r.Summaries[0].Missed; len(missed) > 0 {
			return p, missed[0].Err
		}
		for _, found := range r.Verdicts[0].Comparisons {
			v := found.Calculated
			switch found.Component {
			case memory.Weights:
				p.Weights = &v
			case memory.KVCache:
				p.KVCache = &v
			case memory.KVCapacity:
				p.KVCapacity = &v
			}
		}
		p.Notes = r.Verdicts[0].Notes
		return p, nil
	}
	plain, err := calculate(deploy.Stated{})
	if err != nil {
		t.Fatal(err)
	}
	stated, err := calculate(deploy.Stated{Parameters: 7e9, KVHeads: 4})
	if err != nil {
		t.Fatal(err)
	}
	if *stated.Weights != 14e9 || 2**stated.KVCache != *plain.KVCache || !strings.Contains(strings.Join(stated.Notes, "\n"), "the stated architecture, what it lacks as in Llama-3.1-8B") {
		t.Errorf("weights %v, cache %v of %v, notes %q", *stated.Weights, *stated.KVCache, *plain.KVCache, stated.Notes)
	}
	if more := *stated.KVCapacity - *plain.KVCapacity; more < *plain.Weights-14e9-1e8 || more > *plain.Weights-14e9+1e8 {
		t.Errorf("%v of room more, the weights are %v smaller", more, *plain.Weights-14e9)
	}
	if _, err := calculate(deploy.Stated{KVHeads: 5}); err == nil || !strings.Contains(err.Error(), "not a multiple of num_kv_heads 5") {
		t.Errorf("what makes no model: %v", err)
	}
	d := cardDocument()
	described, err := c.Model("Llama-3.1-8B")
	if err != nil {
		t.Fatal(err)
	}
	if d.ModelInfo.Architecture, err = json.Marshal(described); err != nil {
		t.Fatal(err)
	}
	params := 7e9
	for why, want := range map[string]float64{"those of the architecture": 0, "stated ones": params} {
		n := float64(described.Params().Total)
		if want > 0 {
			n = want
		}
		d.ModelInfo.Parameters = &n
		if m, _ := memory.FromDocument("x.json", d, false); m.Stated != (deploy.Stated{Parameters: want}) {
			t.Errorf("%s: %+v", why, m.Stated)
		}
	}
}

// TestUnknownModel: a profile that holds the architecture of a model is judged
// by ours, whether the catalog knows it or not.
func TestUnknownModel(t *testing.T) {
	c := builtin(t)
	d := cardDocument()
	own, err := c.Model("Llama-3.1-8B")
	if err != nil {
		t.Fatal(err)
	}
	d.ModelInfo.Name = "example-org/of-my-own"
	described := own.Clone()
	described.Name, described.HubID, described.Aliases = "of-my-own", "example-org/of-my-own", nil
	if d.ModelInfo.Architecture, err = json.Marshal(described); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := memprofile.Write(&file, d); err != nil {
		t.Fatal(err)
	}
	read, _, err := memprofile.Read("x.json", &file, format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := memory.FromDocument("x.json", read, false)
	r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Ours(c, cost.Settings{})}, memory.Options{Catalog: c})
	if len(r.Verdicts) != 1 {
		t.Fatalf("%+v", r.Summaries)
	}
	if off := *of(t, r.Verdicts[0], memory.Weights).OfMeasured; math.Abs(off) > 0.01 {
		t.Errorf("weights are off by %g %%", off)
	}
	d.ModelInfo.Architecture = nil
	m, _ = memory.FromDocument("x.json", d, false)
	r = memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Ours(c, cost.Settings{})}, memory.Options{Catalog: c})
	if len(r.Verdicts) != 0 || len(r.Summaries[0].Missed) != 1 {
		t.Errorf("without it: %+v", r)
	}
}

// TestHostCache: a profile of vLLM on a CPU is held to calculators by what can
// be compared, however much it has set aside.
func TestHostCache(t *testing.T) {
	d := cardDocument()
	pool, used := unit.Bytes(500e9), 41_408
	d.GPUInfo.GPUType = "cpu"
	d.MemoryBreakdown.Parts[1].Bytes, d.KVCache.Bytes, d.KVCache.UsedTokens = &pool, &pool, &used
	d.KVCache.Blocks, d.KVCache.Tokens = nil, to(5_000_000)
	m, remarks := memory.FromDocument("x.json", d, false)
	r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Sizer(llmsizer.ScriptV2)}, memory.Options{Catalog: builtin(t)})
	if len(r.Unusable) != 0 || len(r.Verdicts) != 1 {
		t.Fatalf("%+v", r)
	}
	of(t, r.Verdicts[0], memory.Total)
	of(t, r.Verdicts[0], memory.Weights)
	if m.KVCache != nil || !strings.Contains(strings.Join(remarks, "\n"), "only what is touched counts") {
		t.Errorf("cache %v, remarks %q", m.KVCache, remarks)
	}
}

// TestRule: the goldens of LLM Sizer's profiler come out of its rule, from what
// the profile tells and not from what the catalog knows of the model.
func TestRule(t *testing.T) {
	c := builtin(t)
	for _, test := range []struct {
		why, file string
		change    func(*memory.Measured)
		want      string
		note      string
	}{
		{"with an architecture", "hi.json", nil, "weights 13.40 KV cache 4.29 activations 0.54 overhead 18.77", "the measured 37.00 GB, split: weights high, KV cache high, activations medium"},
		{"without one: fixed shares, whatever the catalog knows", "lo.json", nil, "weights 24.05 KV cache 7.40 activations 4.44 overhead 1.11", "split: weights low, KV cache low, activations low"},
		{"sums over the GPUs", "hi.json", func(m *memory.Measured) { m.GPUs = 2 }, "weights 13.40 KV cache 4.30 activations 0.54 overhead 27.62", "high"},
	} {
		m, _ := memory.FromDocument(test.file, document(t, test.file), true)
		if test.change != nil {
			test.change(&m)
		}
		r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Rule()}, memory.Options{Catalog: c})
		if len(r.Verdicts) != 1 {
			t.Fatalf("%s: %+v", test.why, r)
		}
		v := r.Verdicts[0]
		var got []string
		for _, found := range v.Comparisons {
			got = append(got, fmt.Sprintf("%s %s", found.Component, size(&found.Calculated)))
		}
		if text := strings.Join(got, " "); text != test.want || !strings.Contains(v.Notes[0], test.note) {
			t.Errorf("%s: %s, %q; want %s", test.why, text, v.Notes, test.want)
		}
	}
	m, _ := memory.FromDocument("x.json", cardDocument(), false)
	m.Absolute = nil
	if _, err := memory.Rule().Calculate(m); err == nil || !strings.Contains(err.Error(), "it splits the measured peak, and there is none") {
		t.Errorf("without a peak: %v", err)
	}
}

func to[T any](v T) *T { return &v }
