package deploy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/unit"
)

func gpu(name string, gib float64) deploy.Machine {
	return deploy.Machine{Name: name, Memory: unit.Bytes(gib * float64(unit.GiB))}
}

// TestVLLMLimits is the table of the engine's limits by device, release and
// usage, for a model long enough that no adjustment acts.
func TestVLLMLimits(t *testing.T) {
	b200, h100, a100 := gpu("NVIDIA B200", 178), gpu("NVIDIA H100 80GB HBM3", 79.1), gpu("NVIDIA A100-SXM4-80GB", 79.25)
	gb10 := gpu("NVIDIA GB10", 121)
	cpu := deploy.Machine{Platform: deploy.CPU, Memory: 512 * unit.GiB}
	tpu := func(name string) deploy.Machine { return deploy.Machine{Platform: deploy.TPU, Name: name} }
	for _, c := range []struct {
		why             string
		machine         deploy.Machine
		ranks           int
		releases        string // separated by spaces
		server, offline [2]int
	}{
		{"160 GiB and more", b200, 1, "0.28.0 0.33.0", [2]int{16384, 1024}, [2]int{16384, 1024}},
		{"160 GiB in older releases", b200, 1, "0.9.2 0.20.0 0.27.1", [2]int{8192, 1024}, [2]int{16384, 1024}},
		{"exactly 160 GiB", gpu("x", 160), 1, "0.28.0", [2]int{16384, 1024}, [2]int{16384, 1024}},
		{"70 GiB and more", h100, 1, "0.9.2 0.19.0 0.33.0", [2]int{8192, 1024}, [2]int{16384, 1024}},
		{"exactly 70 GiB", gpu("x", 70), 1, "0.33.0", [2]int{8192, 1024}, [2]int{16384, 1024}},
		{"below 70 GiB", gpu("NVIDIA GeForce RTX 4090", 23.6), 1, "0.9.2 0.33.0", [2]int{2048, 256}, [2]int{8192, 256}},
		{"an A100 by its name", a100, 1, "0.9.2 0.33.0", [2]int{2048, 256}, [2]int{8192, 256}},
		{"an A800 has another name", gpu("NVIDIA A800-SXM4-80GB", 79.25), 1, "0.33.0", [2]int{8192, 1024}, [2]int{16384, 1024}},
		{"an unknown device", deploy.Machine{}, 1, "0.9.2 0.33.0", [2]int{2048, 256}, [2]int{8192, 256}},
		{"GB10 by its name", gb10, 1, "0.33.0", [2]int{2048, 256}, [2]int{8192, 256}},
		{"GB10 by its memory", gb10, 1, "0.9.2 0.32.0", [2]int{8192, 1024}, [2]int{16384, 1024}},
		{"GB100 is no GB10", gpu("NVIDIA GB100", 185), 1, "0.33.0", [2]int{16384, 1024}, [2]int{16384, 1024}},
		{"a CPU", cpu, 1, "0.10.0 0.33.0", [2]int{2048, 128}, [2]int{4096, 256}},
		{"a CPU with ranks", cpu, 6, "0.10.0 0.33.0", [2]int{6 * 2048, 6 * 128}, [2]int{6 * 4096, 6 * 256}},
		{"a CPU in 0.9.2", cpu, 6, "0.9.2", [2]int{2048, 32}, [2]int{4096, 128}},
		{"TPU v6e", tpu("Google Cloud TPU v6e (Trillium)"), 1, "0.9.2 0.33.0", [2]int{1024, 256}, [2]int{2048, 256}},
		{"TPU v5e", tpu("TPU V5E"), 1, "0.33.0", [2]int{512, 256}, [2]int{1024, 256}},
		{"TPU v5p", tpu("TPU V5P"), 1, "0.33.0", [2]int{256, 256}, [2]int{512, 256}},
		{"another TPU", tpu("TPU v4"), 1, "0.33.0", [2]int{2048, 256}, [2]int{8192, 256}},
	} {
		for release := range strings.FieldsSeq(c.releases) {
			ask := deploy.VLLMAsk{Machine: c.machine, ModelLen: 131072, Config: deploy.Config{EngineVersion: release}}
			if c.ranks > 1 {
				ask.Config.TensorParallel, ask.Config.PipelineParallel = c.ranks/2, 2
			}
			for usage, want := range map[deploy.Usage][2]int{deploy.Server: c.server, deploy.Offline: c.offline} {
				ask.Usage = usage
				got, err := deploy.VLLMScheduler(ask)
				if err != nil {
					t.Errorf("%s in %s: %v", c.why, release, err)
				} else if pair := [2]int{got.MaxNumBatchedTokens, got.MaxNumSeqs}; pair != want {
					t.Errorf("%s in %s, usage %d: budget and seats %v, want %v", c.why, release, usage, pair, want)
				}
			}
		}
	}
}

func TestVLLMOtherUsage(t *testing.T) {
	ask := deploy.VLLMAsk{Machine: gpu("H100", 79), Usage: deploy.OtherUsage, ModelLen: 4096}
	if got := scheduler(t, ask); got.MaxNumBatchedTokens != 2048 || got.MaxNumSeqs != 128 {
		t.Errorf("neither server nor LLM class: %d, %d", got.MaxNumBatchedTokens, got.MaxNumSeqs)
	}
}

// TestVLLMAdjustments are the steps after the table, each in the release that
// brought it and in the one before, and their order.
func TestVLLMAdjustments(t *testing.T) {
	type ask = deploy.VLLMAsk
	experts := func(a *ask) {
		a.Knobs.All2AllBackend = "deepep_low_latency"
		a.Config.ExpertParallel, a.Config.DataParallel = 8, 8
	}
	off := new(false)
	for _, c := range []struct {
		why, release  string
		change        func(*ask)
		budget, seats int
	}{
		{"low latency experts", "0.20.0", experts, 256, 256},
		{"the other low latency backend", "0.33.0", func(a *ask) { experts(a); a.Knobs.All2AllBackend = "nixl_ep" }, 256, 256},
		{"before 0.20 they had the table's", "0.19.0", experts, 8192, 1024},
		{"one replica has the table's", "0.33.0", func(a *ask) { experts(a); a.Config.DataParallel = 1 }, 8192, 1024},
		{"no expert parallelism", "0.33.0", func(a *ask) { experts(a); a.Config.ExpertParallel = 1 }, 8192, 1024},
		{"throughput doubles", "0.17.0", func(a *ask) { a.Knobs.PerformanceMode = "throughput" }, 16384, 2048},
		{"interactivity does not", "0.33.0", func(a *ask) { a.Knobs.PerformanceMode = "interactivity" }, 8192, 1024},
		{"throughput doubles the experts' bound too", "0.33.0", func(a *ask) { experts(a); a.Knobs.PerformanceMode = "throughput" }, 512, 512},
		{"throughput leaves what was given", "0.33.0", func(a *ask) { a.Knobs.PerformanceMode, a.Config.MaxNumSeqs = "throughput", 100 }, 16384, 100},
		{"whole prompts raise the budget", "0.11.2", func(a *ask) { a.Config.ChunkedPrefill = off }, 131072, 1024},
		{"a short model leaves it", "0.11.2", func(a *ask) { a.Config.ChunkedPrefill, a.ModelLen = off, 4096 }, 8192, 1024},
		{"0.10.2 takes the model's length", "0.10.2", func(a *ask) { a.Config.ChunkedPrefill, a.ModelLen = off, 4096 }, 4096, 1024},
		{"the largest image", "0.22.0", func(a *ask) { a.Knobs.LargestItem = 9000 }, 9000, 1024},
		{"not before 0.22", "0.21.0", func(a *ask) { a.Knobs.LargestItem = 9000 }, 8192, 1024},
		{"seats x length bound the budget", "0.11.2", func(a *ask) { a.Config.MaxNumSeqs, a.Config.MaxModelLen = 4, 100 }, 400, 4},
		{"not before 0.11.2", "0.11.0", func(a *ask) { a.Config.MaxNumSeqs, a.Config.MaxModelLen = 4, 100 }, 8192, 4},
		{"the budget bounds the seats", "0.10.2", func(a *ask) { a.Config.MaxNumBatchedTokens = 512 }, 512, 512},
		{"a given budget is not cut", "0.33.0", func(a *ask) { a.Config.MaxNumBatchedTokens, a.Config.MaxNumSeqs, a.Config.MaxModelLen = 5000, 4, 100 }, 5000, 4},
	} {
		a := ask{Machine: gpu("NVIDIA H100", 79.1), ModelLen: 131072, Config: deploy.Config{EngineVersion: c.release}}
		c.change(&a)
		got, err := deploy.VLLMScheduler(a)
		if err != nil {
			t.Errorf("%s (%s): %v", c.why, c.release, err)
		} else if got.MaxNumBatchedTokens != c.budget || got.MaxNumSeqs != c.seats {
			t.Errorf("%s (%s): budget %d, seats %d, want %d, %d", c.why, c.release, got.MaxNumBatchedTokens, got.MaxNumSeqs, c.budget, c.seats)
		}
	}
}

// TestVLLMDefaults pins every other default to the release that changed it.
func TestVLLMDefaults(t *testing.T) {
	for _, c := range []struct {
		why, before, from string
		has               func(deploy.VLLM) bool
	}{
		{"async scheduling", "0.13.0", "0.14.0", func(v deploy.VLLM) bool { return v.Async }},
		{"the gate of whole prompts", "0.18.1", "0.19.0", func(v deploy.VLLM) bool { return v.FullISL }},
		{"utilisation 0.92", "0.19.0", "0.20.0", func(v deploy.VLLM) bool { return v.Utilization == 0.92 }},
		{"utilisation 0.9 before", "0.20.0", "0.19.0", func(v deploy.VLLM) bool { return v.Utilization == 0.9 }},
	} {
		for release, want := range map[string]bool{c.before: false, c.from: true} {
			got := scheduler(t, deploy.VLLMAsk{ModelLen: 4096, Config: deploy.Config{EngineVersion: release}})
			if c.has(got) != want {
				t.Errorf("%s: %s has it: %v", c.why, release, !want)
			}
			if !got.ChunkedPrefill || !got.PrefixCaching || got.Policy != "fcfs" || got.Threshold != 0 || got.Watermark != 0 {
				t.Errorf("%s: the defaults that never changed are %+v", release, got)
			}
		}
	}
	for _, c := range []struct {
		why   string
		ask   deploy.VLLMAsk
		async bool
	}{
		{"never on a CPU", deploy.VLLMAsk{Machine: deploy.Machine{Platform: deploy.CPU}}, false},
		{"not even where asked for", deploy.VLLMAsk{Machine: deploy.Machine{Platform: deploy.CPU}, Knobs: deploy.Knobs{AsyncScheduling: new(true)}}, false},
		{"older pipelines", deploy.VLLMAsk{Config: deploy.Config{PipelineParallel: 2, EngineVersion: "0.14.0"}}, false},
		{"newer pipelines", deploy.VLLMAsk{Config: deploy.Config{PipelineParallel: 2}}, true},
		{"switched off", deploy.VLLMAsk{Knobs: deploy.Knobs{AsyncScheduling: new(false)}}, false},
	} {
		c.ask.ModelLen = 4096
		if got := scheduler(t, c.ask); got.Async != c.async {
			t.Errorf("async scheduling, %s: %v", c.why, got.Async)
		}
	}
}

// TestVLLMRefuses are the checks of the engine, by release.
func TestVLLMRefuses(t *testing.T) {
	type ask = deploy.VLLMAsk
	limits := func(budget, seats, length int) func(*ask) {
		return func(a *ask) {
			a.Config.MaxNumBatchedTokens, a.Config.MaxNumSeqs, a.Config.MaxModelLen = budget, seats, length
		}
	}
	knobs := func(k deploy.Knobs) func(*ask) { return func(a *ask) { a.Knobs = k } }
	partial := func(n, long int) func(*ask) {
		return knobs(deploy.Knobs{MaxPartialPrefills: &n, MaxLongPartialPrefills: &long})
	}
	for _, c := range []struct {
		why, release string
		change       func(*ask)
		fault        string // empty for none
		warning      string // empty for none
	}{
		{"no token for a seat", "0.33.0", limits(100, 101, 4096), "max_num_batched_tokens 100 is below max_num_seqs 101", ""},
		{"whole prompts longer than the budget", "0.33.0", func(a *ask) { limits(2048, 8, 4096)(a); a.Config.ChunkedPrefill = new(false) }, "below max_model_len 4096", ""},
		{"a budget that nobody can use", "0.33.0", limits(5000, 4, 100), "", "more than max_num_seqs x max_model_len = 400"},
		{"long above all partial prefills", "0.26.0", partial(2, 3), "max_long_partial_prefills 3 is above", ""},
		{"partial prefills of whole prompts", "0.26.0", func(a *ask) { partial(2, 1)(a); a.Config.ChunkedPrefill = new(false) }, "needs chunked prefill", ""},
		{"partial prefills set a threshold", "0.26.0", partial(2, 1), "", "threshold to 163, 4 % of max_model_len"},
		{"one sets none", "0.26.0", partial(1, 1), "", "max_num_partial_prefills 1 does not change"},
		{"both are gone", "0.27.0", partial(2, 1), "max_long_partial_prefills: vLLM 0.27.0 does not have it any more", ""},
		{"gone, and no release was named", "", partial(2, 1), "", "max_num_partial_prefills has no effect: vLLM 0.27.0 removed it"},
		{"a threshold above the longest", "0.27.0", knobs(deploy.Knobs{LongPrefillThreshold: new(4097)}), "threshold 4097 is above max_model_len 4096", ""},
		{"not checked before", "0.26.0", knobs(deploy.Knobs{LongPrefillThreshold: new(4097)}), "", ""},
		{"but with partial prefills", "0.26.0", knobs(deploy.Knobs{LongPrefillThreshold: new(4097), MaxPartialPrefills: new(2)}), "threshold 4097", ""},
		{"swap space", "0.17.0", knobs(deploy.Knobs{SwapSpace: new(4.0)}), "", "swap_space 4 GiB has no effect"},
		{"swap space is gone", "0.18.0", knobs(deploy.Knobs{SwapSpace: new(4.0)}), "swap_space: vLLM 0.18.0", ""},
		{"swap space, no release named", "", knobs(deploy.Knobs{SwapSpace: new(4.0)}), "", "swap_space has no effect"},
		{"no watermark yet", "0.23.0", knobs(deploy.Knobs{Watermark: new(0.1)}), "watermark: vLLM 0.23.0 does not have it", ""},
		{"a watermark", "0.24.0", knobs(deploy.Knobs{Watermark: new(0.1)}), "", ""},
		{"all blocks", "0.24.0", knobs(deploy.Knobs{Watermark: new(1.0)}), "watermark is 1", ""},
		{"no gate yet", "0.18.0", knobs(deploy.Knobs{ReserveFullISL: new(true)}), "scheduler_reserve_full_isl: vLLM 0.18.0", ""},
		{"no mode yet", "0.16.0", knobs(deploy.Knobs{PerformanceMode: "throughput"}), "performance_mode: vLLM 0.16.0", ""},
		{"no such mode", "0.33.0", knobs(deploy.Knobs{PerformanceMode: "fast"}), `performance_mode "fast"`, ""},
		{"no smaller budget yet", "0.16.0", knobs(deploy.Knobs{MaxScheduledTokens: 100}), "max_num_scheduled_tokens: vLLM 0.16.0", ""},
		{"no bytes yet", "0.10.0", knobs(deploy.Knobs{KVCacheMemory: unit.GiB}), "kv_cache_memory_bytes: vLLM 0.10.0", ""},
		{"no such policy", "0.33.0", func(a *ask) { a.Config.SchedulingPolicy = "lpm" }, `scheduling_policy "lpm"`, ""},
		{"all of the memory and more", "0.33.0", func(a *ask) { a.Config.GPUMemoryUtilization = 1.1 }, "gpu_memory_utilization is 1.1", ""},
		{"async on a CPU", "0.33.0", func(a *ask) { a.Machine.Platform, a.Knobs.AsyncScheduling = deploy.CPU, new(true) }, "", "always switches it off"},
		{"no length", "0.33.0", func(a *ask) { a.ModelLen = 0 }, "max_model_len is 0", ""},
	} {
		a := ask{Machine: gpu("NVIDIA H100", 79.1), ModelLen: 4096, Config: deploy.Config{EngineVersion: c.release}}
		c.change(&a)
		got, err := deploy.VLLMScheduler(a)
		_, invalid := errors.AsType[*deploy.InvalidError](err)
		if (err != nil) != (c.fault != "") || err != nil && (!invalid || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s (%s): error %v, want %q", c.why, c.release, err, c.fault)
		}
		if said := strings.Join(got.Warnings, "\n"); err == nil && (said != "") != (c.warning != "") || !strings.Contains(said, c.warning) {
			t.Errorf("%s (%s): warnings %q, want %q", c.why, c.release, said, c.warning)
		}
	}
	_, err := deploy.VLLMScheduler(deploy.VLLMAsk{Config: deploy.Config{EngineVersion: "9.9.9"}})
	if _, unknown := errors.AsType[*deploy.UnknownReleaseError](err); !unknown {
		t.Errorf("an unknown release: %v", err)
	}
}

// TestVLLMChoices: every value says where it comes from.
func TestVLLMChoices(t *testing.T) {
	got := scheduler(t, deploy.VLLMAsk{
		Machine: gpu("NVIDIA H100", 79.1), ModelLen: 131072,
		Config: deploy.Config{MaxNumSeqs: 4, MaxModelLen: 1000},
	})
	for name, want := range map[string][2]string{
		"max_num_seqs":           {"4", "given"},
		"max_model_len":          {"1000", "given"},
		"max_num_batched_tokens": {"4000", "default of vLLM 0.33.0 for devices of 70 GiB and more, then cut to max_num_seqs x max_model_len"},
		"async_scheduling":       {"true", "default of vLLM 0.33.0"},
	} {
		found := 0
		for _, c := range got.Choices {
			if c.Name == name {
				found++
				if c.Value != want[0] || c.Source != want[1] {
					t.Errorf("%s: %q from %q, want %q", name, c.Value, c.Source, want)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s is said %d times", name, found)
		}
	}
}

// TestVLLMStarts: what is filled in is what the engine itself would accept
// when all of it is given.
func TestVLLMStarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ask := deploy.VLLMAsk{
			Machine:  gpu(rapid.SampledFrom([]string{"A100", "H100", "GB10"}).Draw(t, "name"), rapid.Float64Range(0, 300).Draw(t, "memory")),
			Usage:    rapid.SampledFrom([]deploy.Usage{deploy.Server, deploy.Offline, deploy.OtherUsage}).Draw(t, "usage"),
			ModelLen: rapid.IntRange(1, 1<<20).Draw(t, "length"),
		}
		ask.Config.EngineVersion = fmt.Sprintf("0.%d.2", rapid.IntRange(11, 33).Draw(t, "minor"))
		ask.Config.MaxNumSeqs = rapid.IntRange(0, 64).Draw(t, "seats")
		first, err := deploy.VLLMScheduler(ask)
		if err != nil {
			t.Fatalf("nothing that clashes was given: %v", err)
		}
		ask.Config.MaxNumSeqs, ask.Config.MaxNumBatchedTokens, ask.Config.MaxModelLen = first.MaxNumSeqs, first.MaxNumBatchedTokens, first.MaxModelLen
		second, err := deploy.VLLMScheduler(ask)
		if err != nil || second.MaxNumSeqs != first.MaxNumSeqs || second.MaxNumBatchedTokens != first.MaxNumBatchedTokens {
			t.Fatalf("%+v given again: %+v, %v", first, second, err)
		}
	})
}

func TestMachineOf(t *testing.T) {
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for name, budget := range map[string]int{
		"h100-sxm-80gb": 8192, "a100-sxm-80gb": 2048, "b200-sxm": 16384, "mi300x": 16384, "rtx-4090": 2048,
		"tpu-v6e": 1024, "m3-ultra": 2048, "cpu": 2048,
	} {
		d, _, err := cat.Device(name)
		if err != nil {
			t.Fatal(err)
		}
		got := scheduler(t, deploy.VLLMAsk{Machine: deploy.MachineOf(d), ModelLen: 131072})
		if got.MaxNumBatchedTokens != budget {
			t.Errorf("%s: a budget of %d, want %d", name, got.MaxNumBatchedTokens, budget)
		}
		if got.Async == (name == "cpu") {
			t.Errorf("%s: async scheduling %v", name, got.Async)
		}
	}
}

func ExampleVLLMScheduler() {
	v, err := deploy.VLLMScheduler(deploy.VLLMAsk{
		Machine:  deploy.Machine{Name: "NVIDIA H100 80GB HBM3", Memory: 79 * unit.GiB},
		ModelLen: 131072,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(v.MaxNumBatchedTokens, v.MaxNumSeqs, v.Utilization, v.Async)
	// Output: 8192 1024 0.92 true
}

func scheduler(t *testing.T, ask deploy.VLLMAsk) deploy.VLLM {
	t.Helper()
	v, err := deploy.VLLMScheduler(ask)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
