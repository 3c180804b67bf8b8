package launch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/launch"
	"github.com/llmprof/llmprof/stat"
)

type failer interface{ Fatalf(string, ...any) }

func ask(t failer, model, device string) launch.Ask {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatalf("%v", err)
	}
	m, err := cat.Model(model)
	if err != nil {
		t.Fatalf("%v", err)
	}
	d, _, err := cat.Device(device)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return launch.Ask{Model: m, Device: d}
}

// TestVLLM: nothing given, everything known.
func TestVLLM(t *testing.T) {
	a := ask(t, "Llama-3.1-8B", "h100-sxm-80gb")
	r, err := launch.VLLM(a)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Config
	if c.MaxBatchedTokens != 8192 || c.MaxSeqs != 1024 || c.MaxModelLen != 131072 || c.BlockSize != 16 || !c.Async || c.WholePrompts || c.NoPrefixCache || c.NoFullSequenceGate {
		t.Errorf("a server on an H100: %+v", c)
	}
	if int64(c.Blocks) != r.Pool.Blocks || c.Blocks < 27_000 || c.Blocks > 30_000 || r.Pool.Basis != stat.Theoretical {
		t.Errorf("%d blocks of %s", c.Blocks, r.Pool)
	}
	if r.Deploy.EngineVersion != sim.NewestRelease || r.Deploy.MaxNumSeqs != 1024 || r.Deploy.GPUMemoryUtilization != 0.92 || r.Deploy.BlockSize != 16 {
		t.Errorf("the deployment is %+v", r.Deploy)
	}
	sources := map[string]string{}
	for _, choice := range r.Choices {
		sources[choice.Name] = choice.Source
	}
	for _, name := range []string{
		"max_num_batched_tokens", "max_num_seqs", "max_model_len", "block_size", "num_gpu_blocks", "async_scheduling",
		"enable_chunked_prefill", "enable_prefix_caching", "gpu_memory_utilization", "scheduling_policy", "watermark", "scheduler_reserve_full_isl", "long_prefill_token_threshold",
	} {
		if sources[name] == "" {
			t.Errorf("nobody says where %s comes from", name)
		}
	}
	if len(r.Warnings) > 0 {
		t.Errorf("warnings without reason: %q", r.Warnings)
	}
	if _, err := sim.NewScheduler(c); err != nil {
		t.Errorf("the scheduler refuses it: %v", err)
	}
}

// TestVLLMGiven: what is given arrives, and says so.
func TestVLLMGiven(t *testing.T) {
	for _, c := range []struct {
		why     string
		model   string
		change  func(*launch.Ask)
		holds   func(launch.Replica) bool
		warning string // empty for none
	}{
		{"switches", "Llama-3.1-8B", func(a *launch.Ask) {
			a.Config.PrefixCaching, a.Config.ChunkedPrefill = new(false), new(false)
			a.Knobs.AsyncScheduling, a.Knobs.ReserveFullISL = new(false), new(false)
			a.Config.MaxModelLen = 4096
		}, func(r launch.Replica) bool {
			return r.Config.NoPrefixCache && r.Config.WholePrompts && !r.Config.Async && r.Config.NoFullSequenceGate
		}, ""},
		{"limits", "Llama-3.1-8B", func(a *launch.Ask) {
			a.Config.MaxModelLen, a.Config.MaxNumSeqs, a.Config.MaxNumBatchedTokens, a.Config.BlockSize = 4096, 7, 512, 32
			a.Knobs.LongPrefillThreshold, a.Knobs.Watermark, a.Knobs.MaxScheduledTokens = new(100), new(0.05), 256
		}, func(r launch.Replica) bool {
			c := r.Config
			return c.MaxModelLen == 4096 && c.MaxSeqs == 7 && c.MaxBatchedTokens == 512 && c.BlockSize == 32 && c.Threshold == 100 && c.Watermark == 0.05 && c.MaxScheduledTokens == 256
		}, ""},
		{"blocks of 8", "Llama-3.1-8B", func(a *launch.Ask) { a.Config.BlockSize = 8 }, func(r launch.Replica) bool { return r.Config.BlockSize == 8 }, "block size 8: not a multiple of 16"},
		{"blocks beside bytes", "Llama-3.1-8B", func(a *launch.Ask) { a.Knobs.Blocks, a.Knobs.KVCacheMemory = 10_000, 10<<30 }, func(r launch.Replica) bool {
			return r.Pool.Blocks == 10_000
		}, "kv_cache_memory_bytes has no effect"},
		{"the policy", "Llama-3.1-8B", func(a *launch.Ask) { a.Config.SchedulingPolicy = "priority" }, func(r launch.Replica) bool { return r.Config.Policy == sim.Priority }, ""},
		{"the release", "Llama-3.1-8B", func(a *launch.Ask) { a.Config.EngineVersion = "0.11.2" }, func(r launch.Replica) bool {
			return !r.Config.Async && r.Config.Rules.SetLongAside && r.Deploy.GPUMemoryUtilization == 0.9 && r.Config.Watermark == 0
		}, ""},
		{"offline", "Llama-3.1-8B", func(a *launch.Ask) { a.Usage = deploy.Offline }, func(r launch.Replica) bool { return r.Config.MaxBatchedTokens == 16384 }, ""},
		{"a number of blocks", "Llama-3.1-8B", func(a *launch.Ask) { a.Knobs.Blocks, a.Config.GPUMemoryUtilization = 9000, 0.5 }, func(r launch.Replica) bool {
			return r.Config.Blocks == 9000 && r.Pool.Basis == stat.Assumed
		}, "gpu_memory_utilization has no effect"},
		{"measured blocks", "Llama-3.1-8B", func(a *launch.Ask) {
			a.Measured = &launch.Capacity{Blocks: 28_781, BlockSize: 16, Origin: "server.log: line 7"}
		}, func(r launch.Replica) bool {
			return r.Config.Blocks == 28_781 && r.Pool.Basis == stat.Measured && r.Pool.Tokens == 460_496
		}, ""},
		{"a number wins over a measured one", "Llama-3.1-8B", func(a *launch.Ask) {
			a.Knobs.Blocks, a.Measured = 9000, &launch.Capacity{Blocks: 10_000, Origin: "server.log"}
		}, func(r launch.Replica) bool { return r.Config.Blocks == 9000 }, "the capacity of server.log has no effect"},
		{"measured tokens", "Llama-3.1-8B", func(a *launch.Ask) { a.Measured = &launch.Capacity{Tokens: 460_496, Origin: "server.log: line 7"} }, func(r launch.Replica) bool {
			return r.Config.Blocks == 28_781
		}, ""},
		{"a model too large for the device, measured elsewhere", "Llama-3.1-70B", func(a *launch.Ask) {
			a.Measured = &launch.Capacity{Blocks: 28_781, Origin: "server.log"}
		}, func(r launch.Replica) bool { return r.Config.Blocks == 28_781 }, ""},
		{"stages", "Llama-3.1-8B", func(a *launch.Ask) { a.Config.PipelineParallel = 2 }, func(r launch.Replica) bool { return r.Pool.Layout.BlockBytes == 16*65536 }, "pipeline stages are scheduled as one"},
		{"a knob without effect", "Llama-3.1-8B", func(a *launch.Ask) { a.Knobs.SwapSpace = new(4.0) }, func(launch.Replica) bool { return true }, "swap_space has no effect"},
		{"latent attention", "DeepSeek-V2-Lite", func(*launch.Ask) {}, func(r launch.Replica) bool { return r.Config.BlockSize == 16 }, "the engine picks it with its attention backend"},
		{"windows", "Gemma-3-27B", func(a *launch.Ask) { a.Config.MaxModelLen, a.RequestLen = 8192, 2048 }, func(r launch.Replica) bool {
			// Seven groups of 10 layers: a request of 2048 tokens takes seven times
			// its length, and blocks for what slides.
			return int64(r.Config.Blocks) < r.Pool.Blocks/6 && int64(r.Config.Blocks) > r.Pool.Blocks/8
		}, "right for requests of 2048 tokens"},
	} {
		a := ask(t, c.model, "h100-sxm-80gb")
		c.change(&a)
		r, err := launch.VLLM(a)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		if !c.holds(r) {
			t.Errorf("%s: %+v of %s", c.why, r.Config, r.Pool)
		}
		if said := strings.Join(r.Warnings, "\n"); !strings.Contains(said, c.warning) || c.warning == "" && c.model == "Llama-3.1-8B" && said != "" {
			t.Errorf("%s: warnings %q, want %q", c.why, said, c.warning)
		}
	}
}

func TestVLLMRefuses(t *testing.T) {
	a := ask(t, "Llama-3.1-70B", "h100-sxm-80gb")
	_, err := launch.VLLM(a)
	if _, ok := errors.AsType[*cost.TooSmallError](err); !ok {
		t.Errorf("70B on one device: %v", err)
	}
	a = ask(t, "Llama-3.1-8B", "h100-sxm-80gb")
	a.Config.MaxNumBatchedTokens, a.Config.MaxNumSeqs = 4, 5
	_, err = launch.VLLM(a)
	if _, ok := errors.AsType[*deploy.InvalidError](err); !ok {
		t.Errorf("more seats than tokens: %v", err)
	}
	a.Config = deploy.Config{EngineVersion: "0.99.0"}
	_, err = launch.VLLM(a)
	if _, ok := errors.AsType[*deploy.UnknownReleaseError](err); !ok {
		t.Errorf("an unknown release: %v", err)
	}
	a.Config = deploy.Config{TensorParallel: 3}
	if _, err = launch.VLLM(a); err == nil {
		t.Error("heads that do not divide are refused")
	}
	if _, err = launch.VLLM(launch.Ask{}); err == nil {
		t.Error("nothing is refused")
	}
}

// TestVLLMLaunches: whatever fits can be scheduled.
func TestVLLMLaunches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := ask(t, rapid.SampledFrom([]string{"Llama-3.2-1B", "Gemma-3-4B", "DeepSeek-V2-Lite", "Mistral-7B-v0.1", "gpt-oss-20b"}).Draw(t, "model"),
			rapid.SampledFrom([]string{"h100-sxm-80gb", "a100-sxm-80gb", "mi300x", "b200-sxm"}).Draw(t, "device"))
		a.Config.EngineVersion = fmt.Sprintf("0.%d.2", rapid.IntRange(11, 33).Draw(t, "minor"))
		a.Config.MaxModelLen = rapid.IntRange(2, 8192).Draw(t, "length")
		a.Config.MaxNumSeqs = rapid.IntRange(0, 300).Draw(t, "seats")
		a.RequestLen = rapid.IntRange(0, 8192).Draw(t, "usual")
		r, err := launch.VLLM(a)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if _, err := sim.NewScheduler(r.Config); err != nil {
			t.Fatalf("the scheduler refuses it: %v", err)
		}
	})
}

func ExampleVLLM() {
	models, err := catalog.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	model, _ := models.Model("Llama-3.1-8B")
	device, _, _ := models.Device("a100-sxm-80gb")
	r, err := launch.VLLM(launch.Ask{Model: model, Device: device, Config: deploy.Config{MaxNumSeqs: 64}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range r.Choices {
		if strings.HasPrefix(c.Name, "max_num") {
			fmt.Printf("%s %s (%s)\n", c.Name, c.Value, c.Source)
		}
	}
	// Output:
	// max_num_batched_tokens 2048 (default of vLLM 0.33.0 for devices below 70 GiB, A100 and unknown ones)
	// max_num_seqs 64 (given)
}
