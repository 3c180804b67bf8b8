package torch_test

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/torch"
)

// These tests need no torch: they end before it is imported.

func TestStartRefusesOtherDeployments(t *testing.T) {
	for want, setup := range map[string]engine.Setup{
		"no model is named":                     {},
		"pipeline parallel size 2":              {Model: "m", Deploy: deploy.Config{PipelineParallel: 2}},
		"in blocks of 16 tokens":                {Model: "m", Deploy: deploy.Config{BlockSize: 16}},
		"steps of at most 2048 tokens":          {Model: "m", Deploy: deploy.Config{MaxNumBatchedTokens: 2048}},
		"a share of 0.9 of the device's memory": {Model: "m", Deploy: deploy.Config{GPUMemoryUtilization: 0.9}},
		"tensor parallel size 2":                {Model: "m", Deploy: deploy.Config{TensorParallel: 2}},
		"quantisation awq":                      {Model: "m", Deploy: deploy.Config{Quantization: "awq"}},
		"a KV cache in fp8":                     {Model: "m", Deploy: deploy.Config{KVCacheDType: "fp8"}},
	} {
		_, err := torch.New().Start(t.Context(), place.Local(), setup)
		hint := "the vllm engine"
		if setup.Model == "" {
			hint = ""
		}
		checkError(t, err, want, "", hint)
	}
}

// TestKernelTimes: on a GPU a layer's time is that of its kernels alone.
func TestKernelTimes(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-B", "testdata/profiler_events.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH=.")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Passes   []map[string]float64
		Warnings []string
		None     string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })
	if diff := cmp.Diff([]map[string]float64{{"q_proj": 55e-6, "rope": 2e-6}, {"rope": 7e-6}}, got.Passes, near); diff != "" {
		t.Errorf("seconds of each pass (-want +got):\n%s", diff)
	}
	if len(got.Warnings) != 1 || !strings.HasPrefix(got.Warnings[0], "q_proj: no kernel ran") || !strings.Contains(got.None, "--events") {
		t.Errorf("warnings %q, without kernels %q", got.Warnings, got.None)
	}
}

func TestStartWithoutPython(t *testing.T) {
	for name, program := range map[string]string{"the one of the setup": filepath.Join(t.TempDir(), "python"), "any": ""} {
		t.Run(name, func(t *testing.T) {
			empty := t.TempDir()
			if program == "" {
				shell, err := exec.LookPath("sh")
				if err != nil {
					t.Skip("SKIPPED, NOT TESTED: no sh")
				}
				if err := os.Symlink(shell, filepath.Join(empty, "sh")); err != nil {
					t.Skipf("SKIPPED, NOT TESTED: %v", err)
				}
			}
			scratch := t.TempDir()
			_, err := torch.New().Start(t.Context(), place.Local("PATH="+empty, "TMPDIR="+scratch), engine.Setup{Model: "m", Program: program})
			checkError(t, err, "not installed", engine.ProgramMissing, "LLMPROF_PYTHON")
			if left, _ := os.ReadDir(scratch); len(left) != 0 {
				t.Errorf("%d files are left behind", len(left))
			}
		})
	}
}

func TestStartWithoutTorch(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	// -S without site-packages, by way of a script, so that no torch is found.
	bare := filepath.Join(t.TempDir(), "bare-python")
	if err := os.WriteFile(bare, []byte("#!/bin/sh\nexec "+python+" -S -E \"$@\"\n"), 0o700); err != nil {
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	local := place.Local(append(os.Environ(), "LLMPROF_PYTHON="+bare)...)
	_, err = torch.New().Start(t.Context(), local, engine.Setup{Model: "m"})
	checkError(t, err, "No module named 'torch'", engine.EngineMissing, "-m pip install torch transformers, or name another Python: --program PATH or $LLMPROF_PYTHON")
}
