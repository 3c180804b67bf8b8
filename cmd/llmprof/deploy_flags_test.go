package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// parsed are the flags of a command line.
func parsed(t *testing.T, line string) (*replicaFlags, error) {
	t.Helper()
	f := &replicaFlags{}
	cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }, SilenceErrors: true, SilenceUsage: true}
	cmd.SetGlobalNormalizationFunc(normaliseFlag)
	f.register(cmd)
	(&knobFlags{}).register(cmd)
	cmd.SetArgs(joinValues(strings.Fields(line)))
	return f, cmd.Execute()
}

func TestReplicaFlags(t *testing.T) {
	base := deploy.Config{Engine: "vllm", TensorParallel: 1, PipelineParallel: 1, DataParallel: 1, ExpertParallel: 1}
	sglang := base
	sglang.Engine = "sglang"
	with := func(c deploy.Config, change func(*deploy.Config)) deploy.Config {
		change(&c)
		return c
	}
	for _, c := range []struct {
		why, line string
		config    deploy.Config
		knobs     deploy.Knobs
	}{
		{"nothing given leaves everything open", "", base, deploy.Knobs{}},
		{
			"limits", "--max-num-seqs 64 --max-num-batched-tokens 4k --max-model-len 8192 --block-size 32 --gpu-memory-utilization 0.8",
			with(base, func(c *deploy.Config) {
				c.MaxNumSeqs, c.MaxNumBatchedTokens, c.MaxModelLen, c.BlockSize, c.GPUMemoryUtilization = 64, 4000, 8192, 32, 0.8
			}),
			deploy.Knobs{},
		},
		{
			"SGLang's names of them", "--engine sglang --max-running-requests 64 --chunked-prefill-size 4096 --context-length 8192 --page-size 32 --schedule-policy lpm --disable-radix-cache --mem-fraction-static 0.8",
			with(sglang, func(c *deploy.Config) {
				c.MaxNumSeqs, c.MaxNumBatchedTokens, c.MaxModelLen, c.BlockSize = 64, 4096, 8192, 32
				c.SchedulingPolicy, c.PrefixCaching, c.MemFractionStatic = "lpm", new(false), 0.8
			}),
			deploy.Knobs{},
		},
		{"its release means it", "--sglang-version 0.5.10", with(sglang, func(c *deploy.Config) { c.EngineVersion = "0.5.10" }), deploy.Knobs{}},
		{"a release of vLLM", "--vllm-version 0.19.0", with(base, func(c *deploy.Config) { c.EngineVersion = "0.19.0" }), deploy.Knobs{}},
		{
			"ranks", "--tp 2 --pp 2 --dp 2 --ep --pipeline-layers 20,12",
			with(base, func(c *deploy.Config) {
				c.TensorParallel, c.PipelineParallel, c.DataParallel, c.ExpertParallel, c.PipelineLayers = 2, 2, 2, 4, []int{20, 12}
			}),
			deploy.Knobs{},
		},
		{
			"formats", "--dtype float16 --quantization fp8 --kv-cache-dtype fp8",
			with(base, func(c *deploy.Config) { c.DType, c.Quantization, c.KVCacheDType = catalog.FP16, "fp8", catalog.FP8 }),
			deploy.Knobs{},
		},
		{
			"switches and their opposites", "--no-enable-chunked-prefill --enable-prefix-caching --no-async-scheduling --no-scheduler-reserve-full-isl",
			with(base, func(c *deploy.Config) { c.ChunkedPrefill, c.PrefixCaching = new(false), new(true) }),
			deploy.Knobs{AsyncScheduling: new(false), ReserveFullISL: new(false)},
		},
		{"a switch that is set to false", "--enable-prefix-caching=false", with(base, func(c *deploy.Config) { c.PrefixCaching = new(false) }), deploy.Knobs{}},
		{
			"knobs", "--long-prefill-token-threshold 0 --watermark 0 --max-num-scheduled-tokens 100 --num-gpu-blocks-override 500 --kv-cache-memory 4GiB --swap-space 4 --max-num-partial-prefills 2 --performance-mode throughput --all2all-backend nixl_ep --disable-hybrid-kv-cache-manager --enforce-eager",
			base,
			deploy.Knobs{
				LongPrefillThreshold: new(0), Watermark: new(0.0), MaxScheduledTokens: 100, Blocks: 500, KVCacheMemory: 4 * unit.GiB, SwapSpace: new(4.0),
				MaxPartialPrefills: new(2), PerformanceMode: "throughput", All2AllBackend: "nixl_ep", NoHybridKVCache: true, Eager: true,
			},
		},
		{
			"SGLang's knobs", "--engine sglang --max-prefill-tokens 4096 --prefill-decode-interval 2 --schedule-conservativeness 0.5 --enable-mixed-chunk --disable-overlap-schedule --retraction-policy priority --priority-scheduling-preemption-threshold 3",
			sglang,
			deploy.Knobs{MaxPrefillTokens: 4096, DecodeInterval: 2, Conservativeness: 0.5, MixedChunk: true, NoOverlap: true, RetractByPriority: true, PreemptThreshold: new(3)},
		},
	} {
		f, err := parsed(t, c.line)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		config, err := f.config()
		knobs, also := f.knobs()
		if err := errors.Join(err, also); err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
		if d := cmp.Diff(c.config, config) + cmp.Diff(c.knobs, knobs); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.why, d)
		}
	}
}

func TestReplicaFlagsRefuse(t *testing.T) {
	for _, c := range []struct{ why, line, want string }{
		{"an engine that is not known", "--engine trtllm", `--engine is "trtllm"`},
		{"a knob of the other engine", "--engine sglang --watermark 0.1", "--watermark belongs to vllm"},
		{"and the other way round", "--engine vllm --mem-fraction-static 0.8", "--mem-fraction-static belongs to sglang"},
		{"a release of each", "--vllm-version 0.33.0 --sglang-version 0.5.10", "--vllm-version belongs to vllm"},
		{"both ways", "--async-scheduling --no-async-scheduling", "want one of them"},
		{"no share", "--gpu-memory-utilization 0", "--gpu-memory-utilization is 0"},
		{"no usage", "--usage batch", `--usage is "batch"`},
		{"several sizes", "--expert-parallel-size 2,4", "is a list"},
		{"no format", "--dtype bf17", "--dtype"},
		{"no policy", "--engine sglang --retraction-policy size", `--retraction-policy is "size"`},
		{"no seat", "--max-num-seqs 0", "0 is too small"},
	} {
		f, err := parsed(t, c.line)
		if err == nil {
			_, config := f.config()
			_, knobs := f.knobs()
			_, usage := f.usageOf()
			err = errors.Join(config, knobs, usage)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.why, err, c.want)
		}
	}
}

// TestLaunchByFlags: flags, a device and what a real server said become a
// replica.
func TestLaunchByFlags(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	log := write("server.log", "(EngineCore pid=1) INFO 10-06 17:00:33 [kv_cache_utils.py:2464] GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 tokens per request: 3.51x\n")
	metrics := write("metrics.txt", "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"9000\"} 1\n")
	other := write("other.txt", "# TYPE x gauge\nx 1\n")
	a := &app{stderr: io.Discard, stdout: io.Discard}
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	model, err := cat.Model("Llama-3.1-8B")
	if err != nil {
		t.Fatal(err)
	}
	device, _, err := cat.Device("a100-sxm-80gb")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why, line  string
		blocks     int // 0 is computed
		block      int
		basis      stat.Basis
		fault, tip string
	}{
		{"computed", "", 0, 16, stat.Theoretical, "", ""},
		{"a log", "--server-log " + log, 28_781, 16, stat.Measured, "", ""},
		{"metrics, whose block wins", "--server-log " + metrics + " --block-size 16", 9000, 32, stat.Measured, "", ""},
		{"given", "--num-gpu-blocks 9000", 9000, 16, stat.Assumed, "", ""},
		{"metrics without it", "--server-log " + other, 0, 0, "", "do not tell a KV capacity", "vllm:cache_config_info"},
		{"no such file", "--server-log " + folder + "/none", 0, 0, "", "none", ""},
		{"stdin", "--server-log -", 0, 0, "", "not stdin", ""},
		{"too small", "--num-gpu-blocks 64", 0, 0, "", "estimated maximum model length is 1008", "lower --max-model-len to 1008"},
	} {
		f, err := parsed(t, c.line)
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		r, err := f.launchVLLM(a, cat, model, device, cost.Settings{}, 0)
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) || !strings.Contains(hintOf(err), c.tip) {
				t.Errorf("%s: error %v with hint %q", c.why, err, hintOf(err))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		if c.blocks > 0 && r.Config.Blocks != c.blocks || r.Config.BlockSize != c.block || r.Pool.Basis != c.basis {
			t.Errorf("%s: %d blocks of %d, %s", c.why, r.Config.Blocks, r.Config.BlockSize, r.Pool.Basis)
		}
	}
	f, err := parsed(t, "--engine sglang --server-log "+metrics)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := f.launchSGLang(a, cat, model, device, cost.Settings{}); err != nil || r.Config.Pool != 288_000 || r.Basis != stat.Measured {
		t.Errorf("SGLang with a measured capacity: %+v, %v", r.Config, err)
	}
}
