package campaign_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// planned returns the plan of one cell.
func planned(t *testing.T, c campaign.Cell, o campaign.PlanOptions) campaign.PlannedCell {
	t.Helper()
	plan := campaign.NewPlan([]campaign.Cell{c}, o)
	if plan.Count != 1 || plan.Loads != 1 || len(plan.Cells) != 1 {
		t.Fatalf("plan %+v", plan)
	}
	return plan.Cells[0]
}

// builtin draws on the embedded tables.
func builtin(t *testing.T, device string) campaign.PlanOptions {
	t.Helper()
	tables, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	o := campaign.PlanOptions{Model: tables.Model, FindDevice: func(name string) (*catalog.Device, error) {
		d, _, err := tables.Device(name)
		return d, err
	}}
	if device != "" {
		if o.Device, err = o.FindDevice(device); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func llama7B() campaign.Cell {
	c := campaign.Defaults()
	c.DType = "float16"
	c.ModelID, c.Place, c.InputLen, c.OutputLen, c.BatchSize = "meta-llama/Llama-2-7b-hf", "local", 512, 512, 8
	c.Architecture = campaign.Architecture{Params: 6.7e9, NumLayers: 32, NumHeads: 32, HiddenSize: 4096}
	return c
}

// TestPlanFromTheFile predicts as far as the file's own facts go.
func TestPlanFromTheFile(t *testing.T) {
	// The figures of the original for this cell: 13.40 and 4.29 GB.
	const weights, kv = 13_400_000_000, 2 * 32 * 32 * 128 * 2 * 1024 * 8
	for _, c := range []struct {
		why         string
		change      func(*campaign.Cell)
		weights, kv unit.Bytes // -1: unknown
		note        string
	}{
		{"heads only are an upper bound", func(*campaign.Cell) {}, weights, kv, "an upper bound, with all heads in place of the KV heads"},
		{"KV heads", func(c *campaign.Cell) { c.Architecture.NumKVHeads = 8 }, weights, kv / 4, "model_params of the file in float16"},
		{"head size wins over the hidden size", func(c *campaign.Cell) { c.Architecture.HeadDim = 64 }, weights, kv / 2, ""},
		{"two devices", func(c *campaign.Cell) { c.TensorParallel = 2 }, weights / 2, kv / 2, ""},
		{"two stages", func(c *campaign.Cell) { c.PipelineParallel = 2 }, weights / 2, kv / 2, ""},
		{"stages of unequal layers", func(c *campaign.Cell) { c.PipelineParallel = 5 }, weights / 5, kv / 32 * 7, ""},
		{"a narrow cache of a kind", func(c *campaign.Cell) { c.KVCacheDType = "fp8_e5m2" }, weights, kv / 2, ""},
		{"more devices than KV heads", func(c *campaign.Cell) { c.TensorParallel, c.Architecture.NumKVHeads = 4, 2 }, weights / 4, kv / 32, ""},
		{"narrow cache", func(c *campaign.Cell) { c.KVCacheDType = "fp8" }, weights, kv / 2, ""},
		{"fp8 weights", func(c *campaign.Cell) { c.Quantization = "fp8" }, weights / 2, kv, "all parameters counted in fp8"},
		{"fp8 as the format", func(c *campaign.Cell) { c.DType = "fp8" }, weights / 2, kv, ""},
		{"whole blocks", func(c *campaign.Cell) { c.BlockSize = 768 }, weights, kv * 3 / 2, ""},
		{"no facts", func(c *campaign.Cell) { c.Architecture = campaign.Architecture{} }, -1, -1, "the number of parameters is not known"},
		{"a hidden size alone is an upper bound", func(c *campaign.Cell) { c.Architecture.NumHeads = 0 }, weights, kv, "an upper bound, with all heads"},
		{"KV heads of no known size", func(c *campaign.Cell) { c.Architecture.NumHeads, c.Architecture.NumKVHeads = 0, 8 }, weights, -1, "head size are not known"},
		{"no layers", func(c *campaign.Cell) { c.Architecture.NumLayers = 0 }, weights, -1, "layers, KV heads and head size are not known"},
		{"a format of the checkpoint", func(c *campaign.Cell) { c.DType = "auto" }, -1, -1, "the format of the checkpoint is not known"},
		{"experts in another format", func(c *campaign.Cell) { c.Quantization = "mxfp4" }, -1, kv, "only the experts"},
		{"a word of the engine", func(c *campaign.Cell) { c.Quantization, c.KVCacheDType = "own", "own" }, -1, -1, `unknown quantization "own"`},
	} {
		cell := llama7B()
		c.change(&cell)
		got := planned(t, cell, campaign.PlanOptions{})
		p := got.Predicted
		is := func(b *unit.Bytes, want unit.Bytes) bool { return b == nil && want < 0 || b != nil && *b == want }
		if !is(p.Weights, c.weights) || !is(p.KVCache, c.kv) || !strings.Contains(strings.Join(p.Notes, "\n"), c.note) {
			t.Errorf("%s: weights %v, KV cache %v, notes %q", c.why, p.Weights, p.KVCache, p.Notes)
		}
		if p.Total != nil || p.Activations != nil || p.MeasureSeconds != nil || got.Fits != nil || got.Reason != "the architecture of meta-llama/Llama-2-7b-hf is not known" {
			t.Errorf("%s: something was made up: %+v", c.why, got)
		}
	}
}

// TestPlanFromTheTables predicts with architecture and device.
func TestPlanFromTheTables(t *testing.T) {
	cell := llama7B()
	cell.ModelID, cell.DType, cell.Architecture = "Qwen/Qwen3-8B", "bfloat16", campaign.Architecture{}
	got := planned(t, cell, builtin(t, "h100-sxm-80gb"))
	p := got.Predicted
	if got.Fits == nil || !*got.Fits || got.Reason != "" || p.Basis != stat.Theoretical {
		t.Fatalf("got %+v", got)
	}
	// 8,190,735,360 parameters; 36 layers, 8 KV heads of 128.
	if want := unit.Bytes(2 * 8_190_735_360); *p.Weights != want {
		t.Errorf("weights %d, want %d", *p.Weights, want)
	}
	if want := unit.Bytes(2 * 36 * 8 * 128 * 2 * 1024 * 8); *p.KVCache != want {
		t.Errorf("KV cache %d, want %d", *p.KVCache, want)
	}
	if *p.Total != *p.Weights+*p.KVCache+*p.Activations+*p.Reserve || *p.Total > *p.Usable {
		t.Errorf("parts and total: %+v", p)
	}
	if *p.MeasureSeconds != *p.LatencySeconds*40 || *p.LatencySeconds <= 0 {
		t.Errorf("latency %g s, all iterations %g s", *p.LatencySeconds, *p.MeasureSeconds)
	}

	cell.BatchSize = 4096
	if got := planned(t, cell, builtin(t, "h100-sxm-80gb")); got.Fits == nil || *got.Fits || got.Reason == "" {
		t.Errorf("a batch of 4096: %+v", got)
	}
	cell.BatchSize, cell.TensorParallel = 8, 3
	if got := planned(t, cell, builtin(t, "h100-sxm-80gb")); got.Fits == nil || *got.Fits || !strings.Contains(got.Reason, "tensor parallel size 3 does not divide") {
		t.Errorf("on three devices: %+v", got)
	}
	cell.TensorParallel = 1
	if got := planned(t, cell, builtin(t, "")); got.Fits != nil || got.Reason != "no device is named" || *got.Predicted.Weights != *p.Weights || *got.Predicted.KVCache != *p.KVCache {
		t.Errorf("without a device: %+v", got)
	}
	cell.Device = "H100"
	if got := planned(t, cell, builtin(t, "")); got.Fits == nil || *got.Predicted.Total != *p.Total {
		t.Errorf("with the cell's own device: %+v", got)
	}
	// The tokens of a step bound the activations.
	cell.InputLen = 8192
	usual := planned(t, cell, builtin(t, ""))
	cell.EngineArgs = []string{"--max-num-batched-tokens", "2048"}
	small := planned(t, cell, builtin(t, ""))
	if *small.Predicted.Activations*4 != *usual.Predicted.Activations {
		t.Errorf("activations of 2048 tokens %v, of 8192 %v", small.Predicted.Activations, usual.Predicted.Activations)
	}
	cell.EngineArgs, cell.MaxNumBatchedTokens = nil, 2048
	if own := planned(t, cell, builtin(t, "")); *own.Predicted.Activations != *small.Predicted.Activations {
		t.Errorf("activations of 2048 tokens %v, in a field of its own %v", small.Predicted.Activations, own.Predicted.Activations)
	}
	cell.PipelineParallel = 2
	if staged := planned(t, cell, builtin(t, "")); *staged.Predicted.Weights >= *small.Predicted.Weights {
		t.Errorf("weights of one stage %v, of one of two %v", small.Predicted.Weights, staged.Predicted.Weights)
	}
}

// TestPlanOfAChoice: cells keep their places in the file.
func TestPlanOfAChoice(t *testing.T) {
	file, _ := parseFile(t, "batch-config.yaml")
	only, err := campaign.Select("batch=8")
	if err != nil {
		t.Fatal(err)
	}
	cells := file.Cells()
	plan := campaign.NewPlan(cells, campaign.PlanOptions{Only: only})
	if plan.Count != 2 || len(plan.Cells) != 2 || len(plan.Groups) != 1 || len(plan.Groups[0].Cells) != 2 {
		t.Fatalf("plan %+v", plan)
	}
	for _, c := range plan.Cells {
		if c.BatchSize != 8 || c.Hash != cells[c.Index].Hash() {
			t.Errorf("%s of batch %d has index %d", c.Name, c.BatchSize, c.Index)
		}
	}
}

// TestPlanTime counts the cells that can run, and no others.
func TestPlanTime(t *testing.T) {
	one := llama7B()
	one.ModelID, one.DType, one.Architecture = "Qwen/Qwen3-8B", "bfloat16", campaign.Architecture{}
	other, large, strange := one, one, one
	other.OutputLen, large.BatchSize, strange.ModelID = 64, 4096, "owner/unknown"
	o := builtin(t, "h100-sxm-80gb")
	seconds := func(cells ...campaign.Cell) float64 {
		plan := campaign.NewPlan(cells, o)
		if plan.PredictedSeconds == nil {
			return -1
		}
		return *plan.PredictedSeconds
	}
	alone := seconds(one)
	if alone <= 0 {
		t.Fatalf("one cell takes %g s", alone)
	}
	for _, c := range []struct {
		why   string
		cells []campaign.Cell
		want  float64
	}{
		{"a sum", []campaign.Cell{one, other}, alone + seconds(other)},
		{"a cell that does not fit takes no time", []campaign.Cell{large, one}, alone},
		{"nothing runs", []campaign.Cell{large}, -1},
		{"one cell is not known", []campaign.Cell{one, strange}, -1},
	} {
		if got := seconds(c.cells...); got != c.want {
			t.Errorf("%s: %g s, want %g", c.why, got, c.want)
		}
	}
	o.Refusal = func(g campaign.Group, c campaign.Cell) error {
		if c.OutputLen == g.MaxOutput {
			return nil
		}
		return errors.New("too short")
	}
	plan := campaign.NewPlan([]campaign.Cell{other, one}, o)
	if got := *plan.PredictedSeconds; got != alone || plan.Cells[0].Refused != "too short" || plan.Cells[1].Refused != "" {
		t.Errorf("%g s with one cell refused, want %g; cells %+v", got, alone, plan.Cells)
	}
}

func TestPlanDocument(t *testing.T) {
	file, _ := parseFile(t, "batch-config.yaml")
	asked := 0
	plan := campaign.NewPlan(file.Cells(), campaign.PlanOptions{
		Model:   func(string) (*catalog.Model, error) { asked++; return nil, errors.New("no network") },
		Command: func(c campaign.Cell) []string { return []string{"llmprof", "profile", "memory", c.ModelID} },
	})
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Schema, Version string
		Count, Loads    int
		Warnings        []string
		Predicted       *float64 `json:"predicted_s"`
		Groups          []struct {
			Cells    []string
			MaxBatch int `json:"max_batch"`
		}
		Cells []map[string]any
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Schema != "llmprof/batch-plan" || got.Version != "1.0" || got.Count != 4 || got.Loads != 1 || got.Predicted != nil ||
		len(got.Groups) != 1 || len(got.Groups[0].Cells) != 4 || got.Groups[0].MaxBatch != 8 {
		t.Errorf("%s", text)
	}
	if asked != 1 || len(got.Warnings) != 1 || got.Warnings[0] != "model meta-llama/Llama-2-7b-hf: no network" {
		t.Errorf("asked %d times, warnings %q", asked, got.Warnings)
	}
	for _, key := range []string{"index", "hash", "name", "model_id", "container_name", "place", "engine", "input_len", "output_len", "batch_size", "dtype", "tensor_parallel_size", "command", "predicted", "fits", "reason"} {
		if _, ok := got.Cells[3][key]; !ok {
			t.Errorf("a cell has no %s: %s", key, text)
		}
	}
	if fits := got.Cells[3]["fits"]; fits != nil {
		t.Errorf("fits is %v, want null", fits)
	}
}

// TestPlanOfSamples plans every cell of the largest sample.
func TestPlanOfSamples(t *testing.T) {
	file, _ := parseFile(t, "configs_v2.1/models-comprehensive-enhanced.yaml")
	plan := campaign.NewPlan(file.Cells(), builtin(t, "mi300x"))
	known := 0
	for _, c := range plan.Cells {
		switch {
		case c.Fits != nil:
			known++
		case c.Reason == "":
			t.Errorf("%s of %s: unknown without a reason", c.Name, c.ModelID)
		}
		if c.Predicted.Total == nil && c.Fits == nil && len(c.Predicted.Notes) == 0 {
			t.Errorf("%s of %s: no total and no note", c.Name, c.ModelID)
		}
	}
	t.Logf("%d of %d cells are predicted, %d loads; warnings %q", known, plan.Count, plan.Loads, plan.Warnings)
	if known < 50 {
		t.Errorf("%d of %d cells are predicted", known, plan.Count)
	}
}
