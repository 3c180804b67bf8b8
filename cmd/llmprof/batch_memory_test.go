package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/store"
)

// TestBatchOfMemory runs a batch on devices whose memory an engine does not give
// back: the next cell says so, reports hold what was expected, and the store has
// the files of every cell.
func TestBatchOfMemory(t *testing.T) {
	script := filepath.Join(t.TempDir(), "run.txt")
	if err := os.WriteFile(script, []byte("Warming up...\n@used 5368709120\n@result\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := memoryMachine(t, script, 512<<20)
	t.Setenv("LLMPROF_STORE", filepath.Join(dir, "store.db"))
	t.Chdir(t.TempDir())
	batch := []string{
		"batch", "--model", "Qwen/Qwen3-8B", "--place", "local", "--engine", "vllm-bench", "--program", "fakevllm",
		"--sample-every", "10ms", "--free-within", "0s", "--batch-size", "1", "2",
	}
	out, messages, code := llmprof(t, batch...)
	if code != 0 {
		t.Fatal(out, messages)
	}
	s, err := store.Open(t.Context(), os.Getenv("LLMPROF_STORE"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	runs, err := s.Runs(t.Context())
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	cells, err := s.Cells(t.Context(), runs[0].Run.ID)
	if err != nil || len(cells) != 2 {
		t.Fatal(cells, err)
	}
	for i, c := range cells {
		if !filepath.IsAbs(c.ProfileFile) {
			t.Errorf("the store has %s", c.ProfileFile)
		}
		d, err := readMemoryProfile(c.ProfileFile)
		if err != nil {
			t.Fatal(err)
		}
		held := strings.Contains(strings.Join(d.Metadata.Warnings, "\n"), "when the engine was started, the devices still held 4.50 GiB of the one before it")
		if held != (i == 1) || d.Metadata.Source != "llmprof batch" || !strings.Contains(string(d.Metadata.Command), "fakevllm bench latency --model Qwen/Qwen3-8B") {
			t.Errorf("cell %d: source %q, command %q, warnings %q", i, d.Metadata.Source, d.Metadata.Command, d.Metadata.Warnings)
		}
	}
	d, err := (&app{}).shownRun(t.Context(), s, latestRun)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range d.Rows {
		if row.Predicted == nil || *row.Predicted < 16e9 || filepath.IsAbs(row.ProfileFile) {
			t.Errorf("predicted %v, file %s", row.Predicted, row.ProfileFile)
		}
	}
	kept, err := s.Profiles(t.Context(), store.Filter{Model: "Qwen/Qwen3-8B", Engine: "vllm-bench", Device: "NVIDIA H200"})
	if err != nil || len(kept) != 2 {
		t.Fatal(kept, err)
	}
	if _, messages, code := llmprof(t, "runs", "get", kept[0].Name, "-o", "copy.llmprof"); code != 0 {
		t.Error(messages)
	}
	if _, messages, code := llmprof(t, "lint", "copy.llmprof"); code != 0 {
		t.Error(messages)
	}
}

// TestReportsOfOneSecond: runs of the same second have files of their own.
func TestReportsOfOneSecond(t *testing.T) {
	runsStore(t)
	folder := t.TempDir()
	s, err := store.Open(t.Context(), os.Getenv("LLMPROF_STORE"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := &app{}
	names := map[string]bool{}
	for _, id := range []string{"20260301", "20260302"} {
		d, err := a.shownRun(t.Context(), s, id)
		if err != nil {
			t.Fatal(err)
		}
		written, err := a.writeCampaign(d, folder, d.Generated)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range written {
			names[name] = true
		}
	}
	if len(names) != 10 {
		t.Errorf("%d files of two runs: %v", len(names), names)
	}
}
