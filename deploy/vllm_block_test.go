package deploy_test

import (
	"testing"

	"github.com/llmprof/llmprof/deploy"
)

func TestVLLMBlockSize(t *testing.T) {
	cpu := deploy.Machine{Platform: deploy.CPU}
	for _, c := range []struct {
		why, release string
		machine      deploy.Machine
		latent       bool
		tokens       int
		sure         bool
	}{
		{"CUDA", "0.9.2", gpu("NVIDIA H100 80GB HBM3", 79), false, 16, true},
		{"CUDA", "0.33.0", gpu("NVIDIA H100 80GB HBM3", 79), false, 16, true},
		{"ROCm", "0.33.0", gpu("AMD Instinct MI300X", 192), false, 16, true},
		{"Intel GPUs", "0.17.0", gpu("Intel Data Center GPU Max 1550", 128), false, 64, true},
		{"Intel GPUs", "0.18.0", gpu("Intel Data Center GPU Max 1550", 128), false, 16, true},
		{"a CPU", "0.32.0", cpu, false, 128, true},
		{"latent on a CPU", "0.32.0", cpu, true, 16, true},
		{"latent on Hopper", "0.17.0", gpu("NVIDIA H200", 140), true, 64, false},
		{"latent on Hopper", "0.18.0", gpu("NVIDIA H200", 140), true, 16, false},
		{"latent on Blackwell", "0.17.0", gpu("NVIDIA B200", 178), true, 128, false},
		{"latent on Blackwell", "0.18.0", gpu("NVIDIA GB300", 277), true, 32, false},
		{"latent on Ampere", "0.33.0", gpu("NVIDIA A100-SXM4-80GB", 79), true, 16, false},
	} {
		r, _ := deploy.ParseRelease(c.release)
		tokens, why, sure := deploy.VLLMBlockSize(r, c.machine, c.latent)
		if tokens != c.tokens || sure != c.sure || why == "" {
			t.Errorf("%s in %s: blocks of %d (%s), sure %v; want %d, %v", c.why, c.release, tokens, why, sure, c.tokens, c.sure)
		}
	}
}

func TestVLLMNewerRunner(t *testing.T) {
	card, cpu := gpu("NVIDIA H100", 79), deploy.Machine{Platform: deploy.CPU}
	for _, c := range []struct {
		why, release string
		machine      deploy.Machine
		dense, want  bool
	}{
		{"dense models", "0.24.0", card, true, false},
		{"dense models", "0.25.0", card, true, true},
		{"others", "0.28.0", card, false, false},
		{"others", "0.29.0", card, false, true},
		{"a CPU", "0.33.0", cpu, true, false},
	} {
		r, _ := deploy.ParseRelease(c.release)
		if got := deploy.VLLMNewerRunner(r, c.machine, c.dense); got != c.want {
			t.Errorf("%s in %s: %v", c.why, c.release, got)
		}
	}
}

func TestVLLMStates(t *testing.T) {
	for release, want := range map[string]bool{"0.24.0": false, "0.25.0": true} {
		got := scheduler(t, deploy.VLLMAsk{ModelLen: 4096, State: true, Config: deploy.Config{EngineVersion: release}})
		if got.PrefixCaching != want {
			t.Errorf("states in %s: prefix caching %v", release, got.PrefixCaching)
		}
	}
}
