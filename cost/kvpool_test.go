package cost_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// poolCase is an engine with its settings given.
type poolCase struct {
	model, device, release string
	config                 deploy.Config
	knobs                  deploy.Knobs
	memory                 float64 // bytes of the device; 0 is the catalog's
}

// poolOf lets an engine start.
func poolOf(t interface{ Fatalf(string, ...any) }, c poolCase) (cost.KVPool, error) {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatalf("%v", err)
	}
	model, err := cat.Model(c.model)
	if err != nil {
		t.Fatalf("%v", err)
	}
	found, _, err := cat.Device(c.device)
	if err != nil {
		t.Fatalf("%v", err)
	}
	device := *found
	if c.memory > 0 {
		device.Memory.Value = c.memory
	}
	machine := deploy.MachineOf(&device)
	c.config.EngineVersion = c.release
	v, err := deploy.VLLMScheduler(deploy.VLLMAsk{Config: c.config, Knobs: c.knobs, Machine: machine, ModelLen: model.MaxSeqLen, State: model.Linear != nil})
	if err != nil {
		t.Fatalf("%v", err)
	}
	est, err := cost.New(model, &device, c.config, cost.Settings{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	block := c.config.BlockSize
	if block == 0 {
		block, _, _ = deploy.VLLMBlockSize(v.Release, machine, model.MLA != nil)
	}
	return est.VLLMPool(cost.PoolAsk{
		VLLM: v, Knobs: c.knobs, Platform: machine.Platform, BlockSize: block, Stages: c.config.PipelineParallel,
		NewerRunner: deploy.VLLMNewerRunner(v.Release, machine, model.MoE == nil && model.Linear == nil),
	})
}

// TestPrintedCapacities compares with what real engines printed.
func TestPrintedCapacities(t *testing.T) {
	file, err := os.Open("testdata/vllm-capacities.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		number := func(i int) float64 {
			v, err := strconv.ParseFloat(row[i], 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		pool, err := poolOf(t, poolCase{
			release: row[1], model: row[2], device: row[3], memory: number(4),
			config: deploy.Config{
				GPUMemoryUtilization: number(5), TensorParallel: int(number(6)), Quantization: row[7], MaxModelLen: int(number(8)),
				MaxNumBatchedTokens: int(number(9)), MaxNumSeqs: int(number(10)),
			},
		})
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
			continue
		}
		off := float64(pool.Blocks)/number(11) - 1
		t.Logf("%s: %d blocks, the engine %s: %+.2f %%; %s", row[0], pool.Blocks, row[11], 100*off, pool)
		if math.Abs(off) > number(12) {
			t.Errorf("%s: off by %+.2f %%, more than %g %%", row[0], 100*off, 100*number(12))
		}
	}
}

// TestPoolByRelease: what is taken off, by release and platform.
func TestPoolByRelease(t *testing.T) {
	parts := func(c poolCase) map[string]unit.Bytes {
		pool, err := poolOf(t, c)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]unit.Bytes{}
		for i, p := range pool.Parts {
			if i == 0 {
				p.Name = "share"
			}
			found[p.Name] = p.Bytes
		}
		return found
	}
	h100 := func(release string) poolCase {
		return poolCase{model: "Llama-3.1-8B", device: "h100-sxm-80gb", release: release, config: deploy.Config{MaxModelLen: 8192}}
	}
	for _, c := range []struct {
		why, part, before, from string
		device                  string
	}{
		{"graphs on CUDA", "graphs", "0.19.0", "0.20.0", "h100-sxm-80gb"},
		{"graphs on ROCm", "graphs", "0.25.0", "0.26.0", "mi300x"},
		{"graphs on Intel GPUs", "graphs", "0.30.0", "0.31.0", "max-1550"},
	} {
		a, b := h100(c.before), h100(c.from)
		a.device, b.device = c.device, c.device
		if before, from := parts(a)[c.part], parts(b)[c.part]; before != 0 || from <= 0 {
			t.Errorf("%s: %s in %s and %s in %s", c.why, before, c.before, from, c.from)
		}
	}
	eager := h100("0.33.0")
	eager.knobs.Eager = true
	if got := parts(eager)["graphs"]; got != 0 {
		t.Errorf("without graphs %s are taken off for them", got)
	}
	if a, b := parts(h100("0.26.0"))["non-torch"], parts(h100("0.27.0"))["non-torch"]; a >= b {
		t.Errorf("0.27 counts whatever left the device: %s, before %s", b, a)
	}
	want := unit.Bytes(math.Ceil(84943715697 * 0.92))
	if got := parts(h100("0.33.0"))["share"]; got != want {
		t.Errorf("the share is %d bytes, want %d", got, want)
	}
	cpu := poolCase{model: "Llama-3.2-1B", device: "cpu", release: "0.19.0", config: deploy.Config{MaxModelLen: 8192, DType: catalog.BF16}}
	if got := parts(cpu)["share"]; got != 4*unit.GiB {
		t.Errorf("an old CPU engine takes %s", got)
	}
	cpu.release = "0.20.0"
	if got := parts(cpu); got["share"] < 400*unit.GiB || got["peak activation"] != 0 {
		t.Errorf("a newer one takes %v", got)
	}
}

// TestPoolRunners: what the newer runner's dummy run leaves out, and how far a
// request runs ahead of a window.
func TestPoolRunners(t *testing.T) {
	peak := func(release string) (unit.Bytes, int) {
		pool, err := poolOf(t, poolCase{model: "Gemma-3-4B", device: "h100-sxm-80gb", release: release, config: deploy.Config{MaxModelLen: 8192, PipelineParallel: 2}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pool.Parts {
			if p.Name == "peak activation" {
				return p.Bytes, pool.Ahead
			}
		}
		t.Fatal("no peak")
		return 0, 0
	}
	older, before := peak("0.24.0")
	newer, from := peak("0.33.0")
	if older < 8*newer {
		t.Errorf("a sampler of 1024 rows takes %s in 0.24 and %s in 0.33", older, newer)
	}
	if before != 8192 || from != 3*8192 {
		t.Errorf("%d and %d tokens ahead on two stages: want one batch to 0.25, and stages and one more in the newer runner", before, from)
	}
	pool, err := poolOf(t, poolCase{model: "Qwen3-Next-80B-A3B", device: "h200-sxm-141gb", release: "0.33.0", config: deploy.Config{MaxModelLen: 4096, TensorParallel: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if n := pool.Layout.RequestBlocks(4096, 1); n != 3*2+8 {
		t.Errorf("with a prefix cache of states a request takes %d blocks, want two a group and those of the full layers", n)
	}
}

// TestPoolGiven: bytes and blocks that were given.
func TestPoolGiven(t *testing.T) {
	c := poolCase{model: "Llama-3.1-8B", device: "h100-sxm-80gb", release: "0.33.0", config: deploy.Config{MaxModelLen: 1024}}
	const block = 16 * 131072
	for _, given := range []struct {
		why    string
		knobs  deploy.Knobs
		blocks int64
	}{
		{"bytes of a rank", deploy.Knobs{KVCacheMemory: 100*block + 7}, 100},
		{"a number", deploy.Knobs{Blocks: 77}, 77},
		{"the number wins", deploy.Knobs{Blocks: 77, KVCacheMemory: 100 * block}, 77},
	} {
		c.knobs = given.knobs
		pool, err := poolOf(t, c)
		if err != nil {
			t.Errorf("%s: %v", given.why, err)
			continue
		}
		if pool.Blocks != given.blocks || pool.Basis != stat.Assumed || pool.Origin == "" {
			t.Errorf("%s: %d blocks, %s by %q, want %d", given.why, pool.Blocks, pool.Basis, pool.Origin, given.blocks)
		}
	}
	c.knobs = deploy.Knobs{Blocks: 65}
	pool, err := poolOf(t, c)
	if err != nil {
		t.Errorf("64 usable blocks hold 1024 tokens: %v", err)
	}
	for _, release := range []string{"0.28.0", "0.33.0"} {
		c.release, c.knobs = release, deploy.Knobs{Blocks: 64}
		_, err = poolOf(t, c)
		small, ok := errors.AsType[*cost.TooSmallError](err)
		if !ok || small.Longest != 1008 || small.Need != 64 || !strings.Contains(err.Error(), "estimated maximum model length is 1008") {
			t.Errorf("%s, 64 blocks with the null block: %v", release, err)
		}
	}
	measured, err := pool.WithBlocks(500, stat.Measured, "server.log: line 7")
	if err != nil || measured.Blocks != 500 || measured.Basis != stat.Measured || measured.Tokens != 8000 {
		t.Errorf("a count that was read: %+v, %v", measured, err)
	}
	if got := measured.String(); got != "500 blocks of 16 = 8000 tokens (measured: server.log: line 7)" {
		t.Errorf("it shows as %q", got)
	}
	if _, err := pool.WithBlocks(0, stat.Measured, ""); err == nil {
		t.Error("no blocks are refused")
	}
}

// TestPoolTooLarge: a model that fills the device says so.
func TestPoolTooLarge(t *testing.T) {
	_, err := poolOf(t, poolCase{model: "Llama-3.1-70B", device: "h100-sxm-80gb", release: "0.33.0"})
	small, ok := errors.AsType[*cost.TooSmallError](err)
	if !ok || small.Longest != 0 || !strings.Contains(small.Hint(), "leaves no room") {
		t.Fatalf("70B on one device: %v", err)
	}
	for _, c := range []struct {
		why    string
		config deploy.Config
		knobs  deploy.Knobs
		hint   string
	}{
		{"a share below the weights", deploy.Config{GPUMemoryUtilization: 0.1}, deploy.Knobs{}, "raise --gpu-memory-utilization, which is 0.1"},
		{"a number of blocks", deploy.Config{}, deploy.Knobs{Blocks: 9}, "lower --max-model-len to 128, or raise --num-gpu-blocks"},
		{"one block, which is never handed out", deploy.Config{}, deploy.Knobs{Blocks: 1}, "raise --num-gpu-blocks"},
		{"bytes of a rank", deploy.Config{}, deploy.Knobs{KVCacheMemory: 9 * 16 * 131072}, "lower --max-model-len to 128, or raise --kv-cache-memory-bytes"},
	} {
		_, err := poolOf(t, poolCase{model: "Llama-3.1-8B", device: "h100-sxm-80gb", release: "0.33.0", config: c.config, knobs: c.knobs})
		if small, ok := errors.AsType[*cost.TooSmallError](err); !ok || !strings.HasPrefix(small.Hint(), c.hint) {
			t.Errorf("%s: %v, want the hint %q", c.why, err, c.hint)
		}
	}
	_, err = poolOf(t, poolCase{model: "Llama-3.1-8B", device: "rtx-4090", release: "0.33.0"})
	if small, ok = errors.AsType[*cost.TooSmallError](err); !ok || small.Longest < 20_000 || !strings.Contains(small.Hint(), strconv.Itoa(small.Longest)) {
		t.Fatalf("131072 tokens on a 24 GB card: %v", err)
	}
}

// TestPoolShapes: layouts of whole models over ranks and formats.
func TestPoolShapes(t *testing.T) {
	for _, c := range []struct {
		why       string
		c         poolCase
		blockSize int
		bytes     int64 // of a block on a rank
		groups    int
	}{
		{"plain", poolCase{model: "Llama-3.1-8B", device: "h100-sxm-80gb"}, 16, 16 * 131072, 1},
		{"halved by ranks", poolCase{model: "Llama-3.1-8B", device: "h100-sxm-80gb", config: deploy.Config{TensorParallel: 2}}, 16, 16 * 65536, 1},
		{"a whole head on each of more ranks than heads", poolCase{model: "Qwen3-30B-A3B", device: "h100-sxm-80gb", config: deploy.Config{TensorParallel: 8}}, 16, 16 * 48 * 2 * 128 * 2, 1},
		{"fp8 cache", poolCase{model: "Llama-3.1-8B", device: "h100-sxm-80gb", config: deploy.Config{KVCacheDType: catalog.FP8}}, 16, 16 * 65536, 1},
		{"stages hold their own layers", poolCase{model: "Llama-3.1-8B", device: "h100-sxm-80gb", config: deploy.Config{PipelineParallel: 2}}, 16, 16 * 65536, 1},
		{"latent attention is not split", poolCase{model: "DeepSeek-V2-Lite", device: "h100-sxm-80gb", config: deploy.Config{TensorParallel: 2}}, 16, 16 * 27 * 576 * 2, 1},
		{"sliding and full layers", poolCase{model: "Gemma-3-27B", device: "h100-sxm-80gb"}, 16, 16 * 10 * 2 * 16 * 128 * 2, 7},
		{"chunks", poolCase{model: "Llama-4-Scout", device: "h100-sxm-80gb", config: deploy.Config{TensorParallel: 8, MaxModelLen: 8192}}, 16, 16 * 12 * 2 * 128 * 2, 4},
		{"a state per sequence", poolCase{model: "Qwen3-Next-80B-A3B", device: "h200-sxm-141gb", config: deploy.Config{TensorParallel: 2}}, 544, 12 * 544 * 1024, 4},
	} {
		c.c.release = "0.33.0"
		if c.c.config.MaxModelLen == 0 {
			c.c.config.MaxModelLen = 4096
		}
		pool, err := poolOf(t, c.c)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		l := pool.Layout
		if l.BlockSize != c.blockSize || l.BlockBytes != c.bytes || len(l.Groups) != c.groups {
			t.Errorf("%s: blocks of %d tokens and %d bytes in %d groups; want %d, %d, %d", c.why, l.BlockSize, l.BlockBytes, len(l.Groups), c.blockSize, c.bytes, c.groups)
		}
	}
}

// TestPoolGrows: more memory never gives fewer blocks, a larger budget never
// more, and the terms sum to what is available.
func TestPoolGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := poolCase{
			model: "Llama-3.1-8B", device: "h100-sxm-80gb",
			release: fmt.Sprintf("0.%d.2", rapid.IntRange(11, 33).Draw(t, "minor")),
			memory:  rapid.Float64Range(40e9, 200e9).Draw(t, "memory"),
			config: deploy.Config{
				MaxModelLen: 4096, MaxNumSeqs: rapid.IntRange(1, 512).Draw(t, "seats"),
				MaxNumBatchedTokens: rapid.IntRange(512, 16384).Draw(t, "budget"),
			},
		}
		pool, err := poolOf(t, c)
		if err != nil {
			t.Fatalf("%v", err)
		}
		left := pool.Parts[0].Bytes
		for _, p := range pool.Parts[1:] {
			left -= p.Bytes
		}
		if left != pool.Available || pool.Blocks != int64(left)/pool.Layout.BlockBytes {
			t.Fatalf("the terms leave %d of %d bytes for %d blocks", left, pool.Available, pool.Blocks)
		}
		more, wide := c, c
		more.memory *= 1.01
		wide.config.MaxNumBatchedTokens *= 2
		larger, err := poolOf(t, more)
		if err != nil || larger.Blocks < pool.Blocks {
			t.Fatalf("more memory: %d blocks after %d, %v", larger.Blocks, pool.Blocks, err)
		}
		if wider, err := poolOf(t, wide); err == nil && wider.Blocks > pool.Blocks {
			t.Fatalf("a larger budget: %d blocks after %d", wider.Blocks, pool.Blocks)
		}
	})
}
