package campaign_test

import (
	"encoding/json"
	"path"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/campaign"
)

// anyCell draws from few values, so that equal cells and groups occur.
func anyCell() *rapid.Generator[campaign.Cell] {
	return rapid.Custom(func(t *rapid.T) campaign.Cell {
		c := campaign.Defaults()
		c.DType = "float16"
		c.ModelID = rapid.SampledFrom([]string{"a/x", "b/y"}).Draw(t, "model")
		c.ContainerName = rapid.SampledFrom([]string{"one", "two"}).Draw(t, "container")
		c.Place = "docker:" + c.ContainerName
		c.InputLen = rapid.IntRange(1, 3).Draw(t, "input")
		c.OutputLen = rapid.IntRange(1, 3).Draw(t, "output")
		c.BatchSize = rapid.IntRange(1, 3).Draw(t, "batch")
		c.BlockSize = rapid.SampledFrom([]int{0, 16}).Draw(t, "block")
		c.TensorParallel = rapid.IntRange(1, 2).Draw(t, "tp")
		return c
	})
}

// distinct draws cells without repeats.
func distinct(t *rapid.T) []campaign.Cell {
	return rapid.SliceOfNDistinct(anyCell(), 1, 60, campaign.Cell.Hash).Draw(t, "cells")
}

// TestHash holds the identity of cells: a change here makes every run that is
// half done begin anew.
func TestHash(t *testing.T) {
	c := campaign.Defaults()
	c.DType = "float16"
	c.ModelID, c.Place, c.ContainerName = "Qwen/Qwen3-8B", "docker:vllm", "vllm"
	c.InputLen, c.OutputLen, c.BatchSize = 512, 256, 8
	if got := c.Hash(); got != "f094287f5040f69c" {
		t.Errorf("hash %s", got)
	}
	if got := c.LoadKey(); got != "6601c8d92690081a" {
		t.Errorf("load key %s", got)
	}
	for _, test := range []struct {
		why        string
		change     func(*campaign.Cell)
		hash, load bool // must differ
	}{
		{"the container's name beside the place", func(c *campaign.Cell) { c.ContainerName = "vllm_20260101_120000" }, false, false},
		{"facts about the model", func(c *campaign.Cell) { c.Architecture.Params = 1 }, false, false},
		{"input", func(c *campaign.Cell) { c.InputLen++ }, true, false},
		{"output", func(c *campaign.Cell) { c.OutputLen++ }, true, false},
		{"batch", func(c *campaign.Cell) { c.BatchSize++ }, true, false},
		{"iterations", func(c *campaign.Cell) { c.NumIters++ }, true, false},
		{"model", func(c *campaign.Cell) { c.ModelID = "x" }, true, true},
		{"place", func(c *campaign.Cell) { c.Place = "local" }, true, true},
		{"engine", func(c *campaign.Cell) { c.Engine = "sglang" }, true, true},
		{"device", func(c *campaign.Cell) { c.Device = "h100" }, true, true},
		{"devices", func(c *campaign.Cell) { c.GPUIDs = []string{"1"} }, true, true},
		{"format", func(c *campaign.Cell) { c.DType = "bfloat16" }, true, true},
		{"quantization", func(c *campaign.Cell) { c.Quantization = "awq" }, true, true},
		{"format of the cache", func(c *campaign.Cell) { c.KVCacheDType = "fp8" }, true, true},
		{"TP", func(c *campaign.Cell) { c.TensorParallel = 2 }, true, true},
		{"block size", func(c *campaign.Cell) { c.BlockSize = 16 }, true, true},
		{"utilization", func(c *campaign.Cell) { c.GPUMemoryUtilization = 0.8 }, true, true},
		{"longest sequence", func(c *campaign.Cell) { c.MaxModelLen = 4096 }, true, true},
		{"stages", func(c *campaign.Cell) { c.PipelineParallel = 2 }, true, true},
		{"tokens of a step", func(c *campaign.Cell) { c.MaxNumBatchedTokens = 2048 }, true, true},
		{"threads", func(c *campaign.Cell) { c.Threads = 4 }, true, true},
		{"seed", func(c *campaign.Cell) { c.Seed = 7 }, true, true},
		{"no graphs", func(c *campaign.Cell) { c.EnforceEager = true }, true, true},
		{"graphs", func(c *campaign.Cell) { c.CUDAGraphs = true }, true, true},
		{"foreign code", func(c *campaign.Cell) { c.TrustRemoteCode = true }, true, true},
		{"checkpoint", func(c *campaign.Cell) { c.Weights = true }, true, true},
		{"arguments", func(c *campaign.Cell) { c.EngineArgs = []string{"-x"} }, true, true},
		{"environment", func(c *campaign.Cell) { c.EngineEnv = map[string]string{"A": "1"} }, true, true},
	} {
		d := c
		test.change(&d)
		if (d.Hash() != c.Hash()) != test.hash || (d.LoadKey() != c.LoadKey()) != test.load {
			t.Errorf("%s: hash %s against %s, load key %s against %s", test.why, d.Hash(), c.Hash(), d.LoadKey(), c.LoadKey())
		}
	}
}

// TestHashIsStable reads cells back from JSON with their keys in any order.
func TestHashIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCell().Draw(t, "cell")
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		shuffled := []byte("{")
		keys := make([]string, 0, len(fields))
		for key := range fields {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for i, key := range rapid.Permutation(keys).Draw(t, "order") {
			if i > 0 {
				shuffled = append(shuffled, ',')
			}
			shuffled = append(append(append(shuffled, '"'), key...), `":`...)
			shuffled = append(shuffled, fields[key]...)
		}
		var back campaign.Cell
		if err := json.Unmarshal(append(shuffled, '}'), &back); err != nil {
			t.Fatal(err)
		}
		if back.Hash() != c.Hash() || back.LoadKey() != c.LoadKey() {
			t.Fatalf("%s became %+v", text, back)
		}
	})
}

func TestName(t *testing.T) {
	for _, c := range []struct{ container, place, want string }{
		{"vllm", "docker:vllm", "vllm_512in_256out_bs8"},
		{"", "local", "Qwen3-8B_512in_256out_bs8"},
		{"", "kubectl:ns/pod", "ns-pod_512in_256out_bs8"},
		{"", "ssh:me@host:22", "me-host-22_512in_256out_bs8"},
		{"", "ssh:../../etc", "etc_512in_256out_bs8"},
		{"é", "docker:é", "cell_512in_256out_bs8"},
	} {
		cell := campaign.Cell{ModelID: "Qwen/Qwen3-8B", ContainerName: c.container, Place: c.place, InputLen: 512, OutputLen: 256, BatchSize: 8}
		if got := cell.Name(); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		cell := campaign.Cell{Place: rapid.String().Draw(t, "place")}
		if name := cell.Name(); path.Base(name) != name || name[0] == '.' || name[0] == '-' || len(name) > 200 {
			t.Fatalf("%q", name)
		}
	})
}

// TestOrder holds the partition: every cell once, one load for each key,
// places one after the other, bounds that admit every cell.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := distinct(t)
		groups := campaign.Order(cells)
		seen, keys := map[string]int{}, map[string]bool{}
		var places []string
		for _, g := range groups {
			if keys[g.Key] {
				t.Fatalf("key %s is loaded twice", g.Key)
			}
			keys[g.Key] = true
			places = append(places, g.Cells[0].Place)
			for i, c := range g.Cells {
				seen[c.Hash()]++
				if c.LoadKey() != g.Key || c.BatchSize > g.MaxBatch || c.InputLen > g.MaxInput || c.OutputLen > g.MaxOutput {
					t.Fatalf("cell %+v in group %+v", c, g)
				}
				if i > 0 && c.Tokens() < g.Cells[i-1].Tokens() {
					t.Fatalf("cell %d of %+v is cheaper than the one before", i, g)
				}
			}
		}
		for _, c := range cells {
			if seen[c.Hash()] != 1 || !keys[c.LoadKey()] {
				t.Fatalf("cell %+v occurs %d times", c, seen[c.Hash()])
			}
		}
		if len(seen) != len(cells) {
			t.Fatalf("%d cells became %d", len(cells), len(seen))
		}
		if n := len(slices.Compact(slices.Clone(places))); n > 2 || places[0] != cells[0].Place {
			t.Fatalf("places are not taken in turn: %v", places)
		}
	})
}
