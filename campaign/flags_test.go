package campaign_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/campaign"
)

// check holds a cell to the rules of flags, and returns it as a file would make it.
func check(c campaign.Cell) (campaign.Cell, error) {
	f := campaign.Flags{Cell: c, InputLengths: []int{c.InputLen}, OutputLengths: []int{c.OutputLen}, BatchSizes: []int{c.BatchSize}}
	if c.BlockSize != 0 {
		f.BlockSizes = []int{c.BlockSize}
	}
	file, err := campaign.FromFlags(f)
	if err != nil {
		return campaign.Cell{}, err
	}
	return file.Cells()[0], nil
}

// rightCell is a cell as a file makes it.
func rightCell() campaign.Cell { return cellsOf("m/m@c 512/256/8")[0] }

// TestFlagsAreChecked: what flags laid over a right cell is judged as in a file.
func TestFlagsAreChecked(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*campaign.Cell)
		says   string // empty: it is right
	}{
		{"as it comes from a file", func(*campaign.Cell) {}, ""},
		{"any other right format", func(c *campaign.Cell) { c.DType = "float32" }, ""},
		{"an unknown format", func(c *campaign.Cell) { c.DType = "nonsense" }, `--dtype: unknown format "nonsense"`},
		{"a share of more than all", func(c *campaign.Cell) { c.GPUMemoryUtilization = 7 }, "--gpu-memory-utilization: 7 is out of range"},
		{"too short a model", func(c *campaign.Cell) { c.MaxModelLen = 4 }, "--max-model-len: 4 is too short"},
		{"just long enough", func(c *campaign.Cell) { c.MaxModelLen = 768 }, ""},
		{"a cache of nobody", func(c *campaign.Cell) { c.KVCacheDType = "fp9" }, `--kv-cache-dtype: unknown format "fp9"`},
		{"no place", func(c *campaign.Cell) { c.Place = "" }, "--container is missing"},
		{"a place of no kind", func(c *campaign.Cell) { c.Place = "moon" }, `--place: "moon" is no place`},
		{"no model", func(c *campaign.Cell) { c.ModelID = "" }, "--model is missing"},
		{"no sequences", func(c *campaign.Cell) { c.BatchSize = 0 }, "--batch-size: 0 is out of range"},
		{"no prompt", func(c *campaign.Cell) { c.InputLen = 0 }, "--input-len: 0 is out of range"},
		{"no answer", func(c *campaign.Cell) { c.OutputLen = -1 }, "--output-len: -1 is out of range"},
		{"blocks of less than nothing", func(c *campaign.Cell) { c.BlockSize = -1 }, "--block-sizes: -1 is out of range"},
		{"a secret", func(c *campaign.Cell) { c.EngineArgs = []string{"--hf-token", "mysecretvalue123"} }, "--engine-arg: --hf-token holds a secret"},
		{"graphs and none", func(c *campaign.Cell) { c.EnforceEager, c.CUDAGraphs = true, true }, "--enforce-eager: it contradicts cuda_graphs"},
	} {
		cell := rightCell()
		c.change(&cell)
		_, err := check(cell)
		bad, _ := errors.AsType[*campaign.FileError](err)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.why, err)
		case c.says != "" && (bad == nil || len(bad.Faults) != 1 || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "mysecret")):
			t.Errorf("%s: got %v, want %s", c.why, err, c.says)
		}
	}
}

// TestFlagsAreSettled: a cell spelt by flags has the hash of the same cell of a file.
func TestFlagsAreSettled(t *testing.T) {
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
		{"no format", func(c *campaign.Cell) { c.DType = "" }, func(*campaign.Cell) {}},
		{"no format for llama.cpp", func(c *campaign.Cell) { c.DType, c.Engine = "", "llama-bench" }, func(c *campaign.Cell) { c.DType, c.Engine = "auto", "llama-bench" }},
		{"the place of a container", func(c *campaign.Cell) { c.Place, c.ContainerName = "", "c" }, func(*campaign.Cell) {}},
	} {
		odd, settled := rightCell(), rightCell()
		c.odd(&odd)
		c.settled(&settled)
		if got, err := check(odd); err != nil || got.Hash() != settled.Hash() {
			t.Errorf("%s: %+v, %v", c.why, got, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := anyCell().Draw(t, "cell")
		if got, err := check(c); err != nil || got.Hash() != c.Hash() {
			t.Fatalf("a cell of a file: %+v, %v", got, err)
		}
	})
}
