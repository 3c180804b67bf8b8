package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/internal/enginetest"
	"github.com/llmprof/llmprof/internal/tinymodel"
)

// measuredMemory runs profile memory and reads what it wrote.
func measuredMemory(t *testing.T, args ...string) *memprofile.Document {
	t.Helper()
	out := filepath.Join(t.TempDir(), "memory.json")
	command(t, append([]string{"profile", "memory", "-o", out, "--input-len", "128", "--output-len", "8", "--batch-size", "2", "--num-iters-warmup", "1", "--num-iters", "3"}, args...)...)
	d, err := readMemoryProfile(out)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// held wants the three moments in their order, a dense timeline, and weights
// that are known to 2 %.
func held(t *testing.T, d *memprofile.Document, weights int64) {
	t.Helper()
	m := d.MemoryMeasurements
	if m.Baseline == nil || m.PostWarmup == nil || m.Peak == nil {
		t.Fatalf("moments %+v", m)
	}
	if *m.Baseline.TotalBytes != 0 {
		t.Errorf("no process of the engine runs before it: baseline %d", *m.Baseline.TotalBytes)
	}
	if warm, peak := int64(*m.PostWarmup.TotalBytes), int64(*m.Peak.TotalBytes); warm < weights || peak < warm {
		t.Errorf("weights of %d bytes, %d after the warm-up, peak %d", weights, warm, peak)
	}
	if !(*m.Baseline.At < *m.PostWarmup.At) {
		t.Errorf("baseline at %g s, post-warm-up at %g s", *m.Baseline.At, *m.PostWarmup.At)
	}
	line := d.MemoryTimeline
	if line == nil || len(line.Devices) != 1 || len(line.Devices[0].At) < 10 {
		t.Fatal("the timeline is missing")
	}
	t.Logf("%d readings, %.1f a second; peak %s", len(line.Devices[0].At), *line.RateHz, *m.Peak.TotalBytes)
	part := d.MemoryBreakdown.Part(memprofile.PartWeights)
	if part == nil || part.Bytes == nil {
		t.Fatal("the weights are missing")
	}
	off := float64(*part.Bytes)/float64(weights) - 1
	t.Logf("weights %s, %+.3f %% of the tensors' sizes", *part.Bytes, 100*off)
	if math.Abs(off) > 0.02 || part.Confidence != memprofile.High {
		t.Errorf("weights %s with confidence %q, the tensors hold %d bytes", *part.Bytes, part.Confidence, weights)
	}
	if !d.MemoryBreakdown.Consistent {
		t.Errorf("the parts are no split of the peak: %q", d.MemoryBreakdown.Faults)
	}
	for _, note := range d.MemoryBreakdown.Notes {
		t.Log(note)
	}
	if d.LatencyStats.MeanMs == nil || len(d.LatencyStats.Latencies) != 3 {
		t.Errorf("latency %+v", d.LatencyStats)
	}
}

func TestRealTorchMemory(t *testing.T) {
	python := enginetest.Python(t)
	emptyHome(t)
	dir := filepath.Join(t.TempDir(), "small")
	if err := tinymodel.WriteFolder(dir, tinymodel.Small()); err != nil {
		t.Fatal(err)
	}
	d := measuredMemory(t, dir, "--engine", "torch", "--program", python, "--device", "cpu", "--dtype", "float32", "--threads", "1")
	held(t, d, 4*tinymodel.Small().Params())
	if kv := d.MemoryBreakdown.Part(memprofile.PartKVCache); kv.Confidence != memprofile.High || *kv.Bytes <= 0 {
		t.Errorf("KV cache %+v", kv)
	}
	judgedByOurs(t, d)
}

// judgedByOurs holds our own calculator to a profile of an engine on a CPU.
func judgedByOurs(t *testing.T, d *memprofile.Document) {
	t.Helper()
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	m, _ := memory.FromDocument("measured", d, false)
	r := memory.Judge([]memory.Measured{m}, []memory.Calculator{memory.Ours(cat, cost.Settings{})}, memory.Options{Catalog: cat})
	if len(r.Verdicts) != 1 {
		t.Fatalf("our calculator judged nothing: %+v", r)
	}
	found := map[memory.Component]bool{}
	for _, c := range r.Verdicts[0].Comparisons {
		off := float64(c.Diff) / float64(c.Measured)
		t.Logf("our calculator, %s: %+.3f %% of the measured %s", c.Component, 100*off, c.Measured)
		found[c.Component] = math.Abs(off) < 0.02
	}
	if !found[memory.Weights] || !found[memory.KVCache] {
		t.Errorf("weights and KV cache should be within 2 %%: %+v", r.Verdicts[0].Comparisons)
	}
}

func TestRealNodeLlamaCppMemory(t *testing.T) {
	t.Setenv("LLMPROF_NODE_LLAMA_CPP", enginetest.NodeLlamaCpp(t))
	emptyHome(t)
	model := filepath.Join(t.TempDir(), "small.gguf")
	var text bytes.Buffer
	if err := tinymodel.WriteGGUF(&text, tinymodel.Small(), 1); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(model, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	d := measuredMemory(t, model, "--engine", "node-llama-cpp", "--device", "cpu", "--threads", "1")
	held(t, d, 2*tinymodel.Small().Params())
}

// realCampaign has two block sizes that vLLM on a CPU knows, and one that it
// does not, with two lengths.
const realCampaign = `defaults:
  place: local
  engine: vllm
  device: cpu
  dtype: bfloat16
  max_model_len: 2048
  num_warmup: 1
  num_iters: 3
  engine_env: {VLLM_CPU_KVCACHE_SPACE: "1"}
models:
  - model_id: %[1]q
    input_lengths: [64, 128]
    output_lengths: [8]
    batch_sizes: [1, 2]
    block_sizes: [32, 64]
  - model_id: %[1]q
    input_lengths: [64]
    output_lengths: [8]
    batch_sizes: [1]
    block_sizes: [16]
`

// cacheLine is what vLLM prints of its KV cache.
var cacheLine = regexp.MustCompile(`CPU KV cache size: ([\d,]+) tokens`)

func TestRealVLLMCampaign(t *testing.T) {
	vllm := enginetest.VLLM(t)
	emptyHome(t)
	dir, out := tinyFolder(t), t.TempDir()
	file := filepath.Join(out, "tiny.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, realCampaign, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(out)
	var stdout, stderr bytes.Buffer
	args := []string{"batch", file, "--program", vllm, "--threads", "1", "--store", filepath.Join(out, "store.db"), "--results-dir", "results", "--json", "-v"}
	if err := run(context.WithoutCancel(t.Context()), args, strings.NewReader(""), &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var tokens []int
	for _, found := range cacheLine.FindAllStringSubmatch(stderr.String(), -1) {
		n, err := strconv.Atoi(strings.ReplaceAll(found[1], ",", ""))
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, n)
	}
	// The server that is refused for its block size says it too, before.
	if len(tokens) < 2 || slices.Min(tokens) != slices.Max(tokens) {
		t.Fatalf("the logs of the servers tell of caches of %v tokens", tokens)
	}
	profiles, err := filepath.Glob(filepath.Join("results", "*in_*out_*.json"))
	if err != nil || len(profiles) != 8 {
		t.Fatalf("%d profiles, want 8: %v, %v", len(profiles), profiles, err)
	}
	for _, name := range profiles {
		d, err := readMemoryProfile(name)
		if err != nil {
			t.Fatal(err)
		}
		kv, block := d.KVCache, *d.BenchmarkParameters.BlockSize
		// VLLM_CPU_KVCACHE_SPACE is in GiB; a token takes keys and values of 4
		// layers, 4 heads of 32 numbers of 2 bytes.
		const perToken = 2 * 4 * 4 * 32 * 2
		if *kv.Bytes != 1<<30 || *kv.Tokens != tokens[0] || *kv.Tokens != 1<<30/perToken || *kv.Blocks != *kv.Tokens/block || *kv.BlockSize != block {
			t.Errorf("%s: %d bytes, %d blocks of %d, %d tokens; the log says %v tokens", name, *kv.Bytes, *kv.Blocks, *kv.BlockSize, *kv.Tokens, tokens)
		}
		if kv.Source != "vllm:cache_config_info" {
			t.Errorf("%s: the KV cache is told by %s", name, kv.Source)
		}
	}
	var document struct {
		Cells []map[string]json.RawMessage `json:"cells"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	done, refused := 0, 0
	for _, row := range document.Cells {
		switch text := fmt.Sprintf("%s", row); {
		case strings.Contains(text, `"done"`):
			done++
		case strings.Contains(text, `"refused"`) && strings.Contains(text, "blocks of 16 tokens"):
			refused++
		}
	}
	t.Logf("%d cells done, %d refused; the log says %v KV tokens", done, refused, tokens)
	if done != 8 || refused != 1 || len(document.Cells) != 9 {
		t.Errorf("%d of %d cells done, %d refused for their block size\n%s", done, len(document.Cells), refused, stdout.String())
	}
}
