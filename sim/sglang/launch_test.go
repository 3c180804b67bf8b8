package sglang_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/sim/sglang"
	"github.com/llmprof/llmprof/stat"
)

func launchAsk(t *testing.T, model, device string) sglang.LaunchAsk {
	t.Helper()
	cat, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	m, err := cat.Model(model)
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := cat.Device(device)
	if err != nil {
		t.Fatal(err)
	}
	return sglang.LaunchAsk{Model: m, Device: d}
}

// TestLaunch: what is given arrives, the rest is the release's.
func TestLaunch(t *testing.T) {
	type ask = sglang.LaunchAsk
	for _, c := range []struct {
		why     string
		change  func(*ask)
		holds   func(sglang.Replica) bool
		warning string
	}{
		{"nothing given", func(*ask) {}, func(r sglang.Replica) bool {
			c := r.Config
			return c.Chunk == 8192 && c.MaxPrefill == 16384 && c.Page == 1 && c.Policy == sglang.FCFS && c.Overlap && !c.Mixed && !c.NoPrefixCache &&
				c.Conservativeness == 1 && c.Context == 131072 && c.Seats == 2048 && c.Pool > 380_000 && c.Pool < 480_000 && r.Basis == stat.Theoretical
		}, ""},
		{"a share by what nvidia-smi calls the memory's total", func(a *ask) { a.Config.EngineVersion = "0.5.5" }, func(r sglang.Replica) bool {
			return r.Deploy.MemFractionStatic == 0.835
		}, ""},
		{"a share that leaves room for graphs of prefills", func(a *ask) { a.Config.EngineVersion = "0.5.10" }, func(r sglang.Replica) bool {
			return r.Deploy.MemFractionStatic == 0.83
		}, ""},
		{"an old release", func(a *ask) { a.Config.EngineVersion = "0.4.1" }, func(r sglang.Replica) bool {
			return r.Config.Policy == sglang.LPM && r.Deploy.MemFractionStatic == 0.88 && r.Deploy.EngineVersion == "0.4.1"
		}, ""},
		{"limits", func(a *ask) {
			a.Config.MaxNumSeqs, a.Config.MaxNumBatchedTokens, a.Config.BlockSize, a.Config.MaxModelLen = 64, 2048, 16, 4096
			a.Knobs.MaxPrefillTokens, a.Knobs.Conservativeness, a.Knobs.DecodeInterval = 4096, 0.5, 2
		}, func(r sglang.Replica) bool {
			c := r.Config
			return c.Seats == 64 && c.Chunk == 2048 && c.Page == 16 && c.Pool%16 == 0 && c.Context == 4096 && c.MaxPrefill == 4096 && c.Conservativeness == 0.5 && c.DecodeInterval == 2
		}, ""},
		{"a bound of the pool in tokens", func(a *ask) { a.Config.BlockSize, a.Knobs.MaxTotalTokens = 16, 1000 }, func(r sglang.Replica) bool {
			return r.Config.Pool == 992 && r.Basis == stat.Assumed
		}, ""},
		{"a bound beyond memory", func(a *ask) { a.Knobs.MaxTotalTokens = 50_000_000 }, func(r sglang.Replica) bool {
			return r.Config.Pool < 480_000 && r.Basis == stat.Theoretical
		}, "max_total_tokens 50000000 has no effect: memory gives 411965"},
		{"a bound of a pool that was read", func(a *ask) {
			a.PoolTokens, a.PoolOrigin, a.Knobs.MaxTotalTokens = 5000, "server.log", 100
		}, func(r sglang.Replica) bool {
			return r.Config.Pool == 5000 && r.Basis == stat.Measured
		}, "max_total_tokens has no effect, since the KV pool is that of server.log"},
		{"switches", func(a *ask) {
			a.Config.PrefixCaching, a.Config.ChunkedPrefill = new(false), new(false)
			a.Knobs.NoOverlap, a.Knobs.MixedChunk = true, true
		}, func(r sglang.Replica) bool {
			return r.Config.NoPrefixCache && r.Config.Chunk == -1 && !r.Config.Overlap && r.Config.Mixed
		}, ""},
		{"priorities", func(a *ask) { a.Config.SchedulingPolicy = "priority" }, func(r sglang.Replica) bool {
			return r.Config.Priority && r.Config.PreemptThreshold == 10 && r.Config.Policy == sglang.FCFS &&
				slices.Contains(r.Choices, deploy.Choice{Name: "enable_priority_scheduling", Value: "true", Source: deploy.Given}) &&
				slices.Contains(r.Choices, deploy.Choice{Name: "schedule_policy", Value: "fcfs", Source: "follows from enable_priority_scheduling"})
		}, ""},
		{"another policy", func(a *ask) { a.Config.SchedulingPolicy = "lpm" }, func(r sglang.Replica) bool { return r.Config.Policy == sglang.LPM }, ""},
		{"a share", func(a *ask) { a.Config.MemFractionStatic = 0.5 }, func(r sglang.Replica) bool { return r.Config.Pool < 260_000 }, ""},
		{"a capacity", func(a *ask) { a.Knobs.Blocks = 1000 }, func(r sglang.Replica) bool {
			return r.Config.Pool == 1000 && r.Basis == stat.Assumed && r.Config.Seats == 500
		}, ""},
		{"a measured capacity", func(a *ask) { a.PoolTokens, a.PoolOrigin = 438_784, "server.log: line 3" }, func(r sglang.Replica) bool {
			return r.Config.Pool == 438_784 && r.Basis == stat.Measured
		}, ""},
		{"ranks", func(a *ask) { a.Config.TensorParallel = 2 }, func(r sglang.Replica) bool { return r.Config.Pool > 900_000 }, ""},
	} {
		a := launchAsk(t, "Llama-3.1-8B", "h100-sxm-80gb")
		c.change(&a)
		r, err := sglang.Launch(a)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		if !c.holds(r) {
			t.Errorf("%s: %+v, %s", c.why, r.Config, r.Choices)
		}
		if said := strings.Join(r.Warnings, "\n"); said != c.warning {
			t.Errorf("%s: warnings %q", c.why, said)
		}
		for _, choice := range r.Choices {
			if choice.Source == "" || choice.Value == "" {
				t.Errorf("%s: nobody says where %s comes from", c.why, choice.Name)
			}
		}
	}
	windows := launchAsk(t, "Gemma-3-27B", "h100-sxm-80gb")
	if r, err := sglang.Launch(windows); err != nil || len(r.Warnings) != 1 {
		t.Errorf("windows: %q, %v", r.Warnings, err)
	}
}

// TestPrintedPool compares with what a real server printed for four H100 in
// a public report of July 2025, where the share was given; its
// release is not said.
func TestPrintedPool(t *testing.T) {
	const printed = 367_404
	a := launchAsk(t, "Qwen3-235B-A22B", "h100-sxm-80gb")
	a.Config = deploy.Config{EngineVersion: "0.4.7", TensorParallel: 4, Quantization: "fp8-block", MemFractionStatic: 0.93}
	r, err := sglang.Launch(a)
	if err != nil {
		t.Fatal(err)
	}
	off := float64(r.Config.Pool)/printed - 1
	t.Logf("%d tokens, the engine %d: %+.2f %%; %s", r.Config.Pool, printed, 100*off, r.Choices)
	if off < -0.05 || off > 0.05 {
		t.Errorf("off by %+.2f %%", 100*off)
	}
}

func TestLaunchRefuses(t *testing.T) {
	a := launchAsk(t, "Llama-3.1-70B", "h100-sxm-80gb")
	if _, err := sglang.Launch(a); err == nil || !strings.Contains(err.Error(), "nothing fits") {
		t.Errorf("70B on one device: %v", err)
	}
	a = launchAsk(t, "Llama-3.1-8B", "h100-sxm-80gb")
	a.Config.SchedulingPolicy = "largest"
	if _, err := sglang.Launch(a); err == nil || !strings.Contains(err.Error(), `schedule_policy "largest": want priority or one of fcfs, lpm, `) {
		t.Errorf("no such policy: %v", err)
	}
	a.Config = deploy.Config{EngineVersion: "0.5.11"}
	_, err := sglang.Launch(a)
	if _, unknown := errors.AsType[*sglang.UnknownReleaseError](err); !unknown {
		t.Errorf("a release that was not read: %v", err)
	}
	a.Config, a.Knobs = deploy.Config{EngineVersion: "0.5.5"}, deploy.Knobs{DecodeInterval: 2}
	if _, err := sglang.Launch(a); err == nil || !strings.Contains(err.Error(), "this release has it not") {
		t.Errorf("a setting that the release lacks: %v", err)
	}
	if _, err := sglang.Launch(sglang.LaunchAsk{}); err == nil {
		t.Error("nothing is refused")
	}
}
