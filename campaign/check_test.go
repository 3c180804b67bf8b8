package campaign_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/campaign"
)

// rightCell is a cell as a file makes it.
func rightCell() campaign.Cell { return cellsOf("m/m@c 512/256/8")[0] }

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*campaign.Cell)
		says   string // empty: it is right
	}{
		{"as it comes from a file", func(*campaign.Cell) {}, ""},
		{"any other right format", func(c *campaign.Cell) { c.DType = "float32" }, ""},
		{"an unknown format", func(c *campaign.Cell) { c.DType = "nonsense" }, `dtype: unknown format "nonsense"`},
		{"a share of more than all", func(c *campaign.Cell) { c.GPUMemoryUtilization = 7 }, "gpu_memory_utilization: 7 is out of range"},
		{"too short a model", func(c *campaign.Cell) { c.MaxModelLen = 4 }, "max_model_len: 4 is too short"},
		{"just long enough", func(c *campaign.Cell) { c.MaxModelLen = 768 }, ""},
		{"a cache of nobody", func(c *campaign.Cell) { c.KVCacheDType = "fp9" }, `kv_cache_dtype: unknown format "fp9"`},
		{"no place", func(c *campaign.Cell) { c.Place = "" }, "place is missing"},
		{"a place of no kind", func(c *campaign.Cell) { c.Place = "moon" }, `place: "moon" is no place`},
		{"no model", func(c *campaign.Cell) { c.ModelID = "" }, "model_id is missing"},
		{"no sequences", func(c *campaign.Cell) { c.BatchSize = 0 }, "batch_size: 0 is out of range"},
		{"no prompt", func(c *campaign.Cell) { c.InputLen = 0 }, "input_len: 0 is out of range"},
		{"no answer", func(c *campaign.Cell) { c.OutputLen = -1 }, "output_len: -1 is out of range"},
		{"blocks of less than nothing", func(c *campaign.Cell) { c.BlockSize = -1 }, "block_size: -1 is out of range"},
		{"a secret", func(c *campaign.Cell) { c.EngineArgs = []string{"--hf-token", "mysecretvalue123"} }, "engine_args: --hf-token holds a secret"},
		{"graphs and none", func(c *campaign.Cell) { c.EnforceEager, c.CUDAGraphs = true, true }, "enforce_eager: it contradicts cuda_graphs"},
	} {
		cell := rightCell()
		c.change(&cell)
		_, err := cell.Check()
		bad, _ := errors.AsType[*campaign.FileError](err)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.why, err)
		case c.says != "" && (bad == nil || len(bad.Faults) != 1 || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "mysecret")):
			t.Errorf("%s: got %v, want %s", c.why, err, c.says)
		}
	}
}

// TestCheckSettles: a cell changed by hand has the hash of the same cell of a file.
func TestCheckSettles(t *testing.T) {
	for _, c := range []struct {
		why          string
		odd, settled func(*campaign.Cell)
	}{
		{"format", func(c *campaign.Cell) { c.DType = "BF16" }, func(c *campaign.Cell) { c.DType = "bfloat16" }},
		{"format of the cache", func(c *campaign.Cell) { c.KVCacheDType = "e4m3" }, func(c *campaign.Cell) { c.KVCacheDType = "fp8_e4m3" }},
		{"a cache left to the engine", func(c *campaign.Cell) { c.KVCacheDType = "Auto" }, func(*campaign.Cell) {}},
		{"no quantization", func(c *campaign.Cell) { c.Quantization = "none" }, func(*campaign.Cell) {}},
		{"one stage", func(c *campaign.Cell) { c.PipelineParallel = 1 }, func(*campaign.Cell) {}},
		{"graphs where they are used anyway", func(c *campaign.Cell) { c.CUDAGraphs = true }, func(*campaign.Cell) {}},
		{"the place of a container", func(c *campaign.Cell) { c.Place, c.ContainerName = "", "c" }, func(*campaign.Cell) {}},
	} {
		odd, settled := rightCell(), rightCell()
		c.odd(&odd)
		c.settled(&settled)
		if got, err := odd.Check(); err != nil || got.Hash() != settled.Hash() {
			t.Errorf("%s: %+v, %v", c.why, got, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := anyCell().Draw(t, "cell")
		if got, err := c.Check(); err != nil || got.Hash() != c.Hash() {
			t.Fatalf("a cell of a file: %+v, %v", got, err)
		}
	})
}

func TestCheckAll(t *testing.T) {
	cells := cellsOf("m@c 1/1/1", "m@c 1/1/2", "n@c 1/1/1")
	cells[0].DType, cells[1].DType = "bf16", "BFloat16"
	settled, err := campaign.CheckAll(cells)
	if err != nil || len(settled) != 3 || settled[0].DType != "bfloat16" || settled[1].DType != "bfloat16" || cells[0].DType != "bf16" {
		t.Fatalf("%+v, %v", settled, err)
	}
	for i := range cells {
		cells[i].GPUMemoryUtilization = 7
	}
	cells[2].DType = "fp12"
	_, err = campaign.CheckAll(cells)
	bad, ok := errors.AsType[*campaign.FileError](err)
	if !ok || len(bad.Faults) != 2 || !strings.Contains(bad.Faults[0].Text, "7 is out of range: want more than 0 and at most 1 (and so for 2 more cells)") || !strings.Contains(bad.Faults[1].Text, `dtype: unknown format "fp12"`) {
		t.Errorf("a fault that all share: %v", err)
	}
	same := cellsOf("m@c 1/1/1", "m@c 1/1/1", "n@c 1/1/1")
	if _, err = campaign.CheckAll(same); err == nil || !strings.Contains(err.Error(), "c_1in_1out_bs1: two cells of m are the same") {
		t.Errorf("two that are equal: %v", err)
	}
}
