package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// runLevelFlags are the flags of batch that are about the run as a whole and
// change no cell.
func runLevelFlags() []string {
	return []string{
		"config", "model", // what is run
		"program", "image", "clock", // kept with the run: see runSettings
		"server", "server-log", // refused
		"start-timeout", "task-timeout", "cell-timeout", "attempts", "backoff",
		"sampler", "sample-every", "free-within",
		"store", "results-dir", "name", "gpu",
		"dry-run", "resume", "run", "retry-failed", "other-settings", "only",
		"output", "json", "quiet", "verbose", "log-format", "catalog", "help",
	}
}

// cellFlagValues are values other than those of fileCampaign.
func cellFlagValues() map[string]string {
	return map[string]string{
		"container": "other", "place": "docker:other", "input-len": "99", "output-len": "9", "batch-size": "3", "block-sizes": "32", "block-size": "32",
		"engine": "torch", "device": "cpu", "dtype": "float32", "quantization": "awq", "kv-cache-dtype": "fp8", "tensor-parallel-size": "2",
		"pipeline-parallel-size": "2", "gpu-memory-utilization": "0.5", "max-model-len": "2048", "max-num-batched-tokens": "512", "threads": "2", "seed": "7",
		"cuda-graphs": "false", "enforce-eager": "true", "trust-remote-code": "true", "weights": "true", "num-iters-warmup": "1", "num-iters": "2",
		"engine-arg": "--fast", "engine-env": "NCCL_DEBUG=WARN", "model-params": "7e9", "num-layers": "3", "num-heads": "8", "num-kv-heads": "2",
		"head-dim": "16", "hidden-size": "128",
	}
}

// fileCampaign has two cells and states nothing more.
const fileCampaign = `models:
  - {model_id: owner/tiny, container_name: c, input_lengths: [64, 128], output_lengths: [4], batch_sizes: [1]}
`

// plannedCells are the cells of a dry run, without what follows from them.
func plannedCells(t *testing.T, args ...string) []map[string]any {
	t.Helper()
	var out, messages bytes.Buffer
	if err := run(t.Context(), append([]string{"batch", "--dry-run", "--json"}, args...), strings.NewReader(""), &out, &messages); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	var plan struct{ Cells []map[string]any }
	if err := json.Unmarshal(out.Bytes(), &plan); err != nil {
		t.Fatal(err)
	}
	for _, c := range plan.Cells {
		for _, key := range []string{"command", "predicted", "fits", "reason", "name", "hash"} {
			delete(c, key)
		}
	}
	return plan.Cells
}

// TestBatchFlagsAct: every flag of batch changes the cells of a file, and those
// that flags make, or is known to be about the run.
func TestBatchFlagsAct(t *testing.T) {
	emptyHome(t)
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(fileCampaign), 0o600); err != nil {
		t.Fatal(err)
	}
	values := cellFlagValues()
	fromFile, fromFlags := []string{file}, []string{"--model", "owner/tiny", "--container", "c", "--input-len", "64", "128", "--output-len", "4"}
	plainFile, plainFlags := plannedCells(t, fromFile...), plannedCells(t, fromFlags...)
	var named []string
	for _, f := range cellFlags() {
		named = append(named, f.name)
	}
	command, _, err := (&app{}).root().Find([]string{"batch"})
	if err != nil {
		t.Fatal(err)
	}
	walk := func(f *pflag.Flag) {
		value, acts := values[f.Name]
		delete(values, f.Name)
		if acts == slices.Contains(runLevelFlags(), f.Name) {
			t.Errorf("--%s: is it about the run, or what does it change in a cell?", f.Name)
			return
		}
		if acts != slices.Contains(named, f.Name) {
			t.Errorf("--%s is not in the table of flags that change cells", f.Name)
		}
		if !acts {
			return
		}
		arg := "--" + f.Name + "=" + value
		if cmp.Equal(plainFile, plannedCells(t, append(fromFile, arg)...)) {
			t.Errorf("%s changes no cell of a file", arg)
		}
		if f.Name != "container" && cmp.Equal(plainFlags, plannedCells(t, append(fromFlags, arg)...)) {
			t.Errorf("%s changes no cell of flags", arg)
		}
	}
	command.Flags().VisitAll(walk)
	command.InheritedFlags().VisitAll(walk)
	if len(values) > 0 {
		t.Errorf("batch has no flags %v", values)
	}
}

// TestBatchFlagsChecked: flags over a file are held to the rules of the file.
func TestBatchFlagsChecked(t *testing.T) {
	emptyHome(t)
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(fileCampaign), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why, want string
		args      []string
	}{
		{"no format", `c.yaml:2: with these flags: --dtype: unknown format "nonsense"`, []string{"--dtype", "nonsense"}},
		{"no share", "--gpu-memory-utilization: 7 is out of range", []string{"--gpu-memory-utilization", "7"}},
		{"too short for its cells", "--max-model-len: 4 is too short", []string{"--max-model-len", "4"}},
		{"a number twice", "--batch-size: 2 stands twice", []string{"--batch-size", "2", "2"}},
		{"two words for one thing", "--block-size and --block-sizes say the same", []string{"--block-size", "16", "--block-sizes", "16"}},
		{"both", "--enforce-eager and --cuda-graphs contradict", []string{"--enforce-eager", "--cuda-graphs"}},
		{"no variable", "--engine-env NCCL_DEBUG: want NAME=value", []string{"--engine-env", "NCCL_DEBUG"}},
		{"no sampler", `unknown sampler "foo"`, []string{"--sampler", "foo"}},
		{"no recording", "no.jsonl", []string{"--sampler", "no.jsonl"}},
		{"no time", "--free-within is -1s", []string{"--free-within", "-1s"}},
	} {
		out, messages, code := llmprof(t, append([]string{"batch", file}, c.args...)...)
		if code != codeUsage || out != "" || !strings.Contains(messages, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", c.why, code, codeUsage, c.want, messages)
		}
	}
	if _, err := os.Stat(memoryFolder); err == nil {
		t.Error("the folder of results was made")
	}
	same := plannedCells(t, file, "--dtype", "bf16")
	if diff := cmp.Diff(plannedCells(t, file, "--dtype", "bfloat16"), same); diff != "" {
		t.Errorf("two spellings are two cells (-bfloat16 +bf16)\n%s", diff)
	}
}
