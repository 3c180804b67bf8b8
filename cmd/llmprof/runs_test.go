package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/store"
	"github.com/llmprof/llmprof/unit"
)

// llmprof runs the command and returns its output and exit code.
func llmprof(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, messages bytes.Buffer
	err := run(t.Context(), args, strings.NewReader(""), &out, &messages)
	return out.String(), messages.String(), exitCode(err)
}

// measured is a profile as a batch stores it: peak in MiB, latencies around a
// mean in seconds.
func measured(c campaign.Cell, peak unit.Bytes, mean float64) *memprofile.Document {
	d := &memprofile.Document{}
	d.SetTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	d.ModelInfo.Name = memprofile.Text(c.ModelID)
	d.BenchmarkParameters.InputLen, d.BenchmarkParameters.OutputLen, d.BenchmarkParameters.BatchSize = &c.InputLen, &c.OutputLen, &c.BatchSize
	baseline, total, weights, warm := unit.Bytes(500)<<20, peak<<20, peak<<20-unit.Bytes(2000)<<20, 5.0
	device := 0
	point := func(used *unit.Bytes) *memprofile.MemoryPoint {
		return &memprofile.MemoryPoint{At: &warm, PerGPU: []memprofile.GPUUsed{{Device: &device, UsedBytes: used}}}
	}
	d.MemoryMeasurements = memprofile.MemoryMeasurements{Baseline: point(&baseline), PostWarmup: point(&total), Peak: point(&total)}
	d.MemoryBreakdown.Parts = []memprofile.Part{{Name: memprofile.PartWeights, Bytes: &weights, Confidence: memprofile.High, Source: "log"}}
	for i := range 20 {
		d.LatencyStats.Latencies = append(d.LatencyStats.Latencies, mean*(1+0.01*float64(i%2*2-1)))
	}
	d.EngineMetadata.EngineVersion = "0.11.0"
	return d
}

// runsStore makes a store with two runs of three cells each: the second one is
// 10 % slower at batch 8, and its last cell ran out of memory. The profile of
// its first cell is a file with the series of its samples.
func runsStore(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("HOME", folder)
	t.Setenv("LLMPROF_STORE", filepath.Join(folder, "llmprof.db"))
	st, err := store.Open(t.Context(), os.Getenv("LLMPROF_STORE"))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for n, id := range []string{"20260301-120000-aa", "20260302-120000-bb"} {
		var cells []campaign.Cell
		for _, batch := range []int{1, 8, 64} {
			c := campaign.Defaults()
			c.DType = "float16"
			c.ModelID, c.Place, c.InputLen, c.OutputLen, c.BatchSize = "m/a", "local", 512, 128, batch
			cells = append(cells, c)
		}
		err = errors.Join(err, campaign.Create(t.Context(), st, store.Run{ID: id, Kind: "batch", Source: "grid.yaml", Created: at.AddDate(0, 0, n)}, cells))
		for i, c := range cells {
			attempt, fault := st.Begin(t.Context(), id, c.Hash(), at)
			row := store.Cell{RunID: id, Hash: c.Hash(), State: store.Done, Attempts: attempt, Ended: at, Seconds: 2.5}
			mean := float64(c.BatchSize)
			if n == 1 && i == 1 {
				mean *= 1.1
			}
			if n == 1 && i == 2 {
				row.State, row.Error, row.Hint = store.OOM, "CUDA out of memory", "fewer sequences"
			} else {
				row.Result, row.ProfileFile = resultOf(t, measured(c, 30000, mean), filepath.Join(folder, id+c.Name()+".json"), n == 1 && i == 0)
			}
			err = errors.Join(err, fault, st.Finish(t.Context(), row))
		}
	}
	if err := errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
}

// resultOf is what the store keeps of a profile. Its file is written with a
// series, or is missing.
func resultOf(t *testing.T, d *memprofile.Document, file string, written bool) (result json.RawMessage, name string) {
	t.Helper()
	var text, whole bytes.Buffer
	err := memprofile.Write(&text, d)
	if written {
		line := memprofile.DeviceTimeline{}
		for i := range 40 {
			line.At = append(line.At, float64(i))
			used := unit.Bytes(29000+i%2*1000) << 20
			line.UsedBytes = append(line.UsedBytes, &used)
		}
		d.MemoryTimeline = &memprofile.Timeline{Source: "test", Devices: []memprofile.DeviceTimeline{line}}
		err = errors.Join(err, memprofile.Write(&whole, d), os.WriteFile(file, whole.Bytes(), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return text.Bytes(), file
}

func TestRunsList(t *testing.T) {
	runsStore(t)
	out, messages, code := llmprof(t, "runs")
	want := `run                 source     created               cells  of these       time
20260302-120000-bb  grid.yaml  2026-03-02 12:00 UTC      3  2 done, 1 oom  7.5s
20260301-120000-aa  grid.yaml  2026-03-01 12:00 UTC      3  3 done         7.5s
`
	if diff := cmp.Diff(want, out); diff != "" || messages != "" || code != 0 {
		t.Error(diff, messages, code)
	}
}

func TestRunsShow(t *testing.T) {
	runsStore(t)
	for _, id := range []string{"latest", "20260302", "20260302-120000-bb"} {
		out, messages, code := llmprof(t, "runs", "show", id)
		if code != 0 || messages != "" {
			t.Fatal(id, messages, code)
		}
		for _, want := range []string{"run      20260302-120000-bb", "cells    3: 2 done, 1 oom", "8800.00", "31.46", "CUDA out of memory  fewer sequences"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", id, want, out)
			}
		}
	}
	for id, want := range map[string]string{"2026": "the beginning of several", "nobody": "not in the store"} {
		ends := map[string]int{"2026": codeUsage, "nobody": codeUnknown}[id]
		if out, messages, code := llmprof(t, "runs", "show", id); code != ends || out != "" || !strings.Contains(messages, want) {
			t.Errorf("%s: %q %q %d", id, out, messages, code)
		}
	}
	var d struct {
		Schema string `json:"schema"`
		Cells  []struct {
			State   string         `json:"state"`
			Profile map[string]any `json:"profile"`
		} `json:"cells"`
	}
	out, _, _ := llmprof(t, "runs", "show", "latest", "--json")
	if err := json.Unmarshal([]byte(out), &d); err != nil || d.Schema != "llmprof/campaign" || len(d.Cells) != 3 || d.Cells[0].Profile == nil || d.Cells[2].Profile != nil {
		t.Errorf("%v: %+v", err, d)
	}
}

func TestRunsCompare(t *testing.T) {
	runsStore(t)
	var d struct {
		Cells []struct {
			MatchedBy string `json:"matched_by"`
			StateB    string `json:"state_b"`
			Latency   *struct {
				Verdict string   `json:"verdict"`
				Low     *float64 `json:"low_pct"`
			} `json:"latency_ms"`
			Memory *struct {
				A, B struct {
					Noise float64 `json:"noise"`
				}
				Verdict string `json:"verdict"`
			} `json:"total_memory_bytes"`
		} `json:"cells"`
	}
	out, messages, code := llmprof(t, "runs", "compare", "20260301", "latest", "--json")
	if err := json.Unmarshal([]byte(out), &d); err != nil || len(d.Cells) != 3 || code != 0 {
		t.Fatal(err, messages, code, len(d.Cells))
	}
	var got []string
	for _, c := range d.Cells {
		verdict := "–"
		if c.Latency != nil {
			verdict = fmt.Sprintf("%s %s, memory ± %.0f and ± %.0f MiB", c.Latency.Verdict, c.Memory.Verdict, c.Memory.A.Noise/(1<<20), c.Memory.B.Noise/(1<<20))
		}
		got = append(got, c.MatchedBy+" "+c.StateB+" "+verdict)
	}
	// The readings of the second run are known, and lie 1000 MiB apart.
	want := []string{"hash done same unclear, memory ± 1 and ± 1001 MiB", "hash done slower same, memory ± 1 and ± 1 MiB", "hash oom –"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"20260301", "latest", "--fail-on-regression", "5"}, codeNo, "2 of 3 cells worse by more than 5 %: m/a, 8 × 512 in, 128 out: slower by 10.0 %; m/a, 64 × 512 in, 128 out: oom, and was measured before"},
		{[]string{"20260301", "latest", "--fail-on-regression", "15"}, codeNo, "1 of 3 cells worse"},
		{[]string{"latest", "20260301", "--fail-on-regression", "0"}, 0, ""},
		{[]string{"20260301", "20260301", "--fail-on-regression", "0"}, 0, ""},
	} {
		out, messages, code := llmprof(t, append([]string{"runs", "compare"}, c.args...)...)
		if code != c.code || !strings.Contains(messages, c.want) || !strings.Contains(out, "same") {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, messages)
		}
	}
}

func TestRunsExport(t *testing.T) {
	runsStore(t)
	folder := filepath.Join(t.TempDir(), "reports")
	if out, messages, code := llmprof(t, "runs", "export", "latest", "-o", folder); code != 0 || out != "" || strings.Count(messages, "wrote ") != 5 {
		t.Fatal(out, messages, code)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		stem, _, _ := strings.Cut(e.Name(), "-20")
		texts[stem+filepath.Ext(e.Name())] = string(text)
	}
	for name, want := range map[string]string{
		"batch-bench-results.csv": "True", "batch-bench-report-enhanced.txt": "ENHANCED BATCH PROFILING REPORT", "batch-bench-report.txt": "Total Profiles: 3",
		"batch-bench-report.md": "### m/a", "batch-bench-report.html": "<svg ",
	} {
		if !strings.Contains(texts[name], want) {
			t.Errorf("%s has no %q: %q", name, want, texts[name])
		}
	}
	for _, form := range []string{"csv", "txt", "markdown", "html", "json"} {
		out, messages, code := llmprof(t, "runs", "export", "20260301", "--format", form)
		file := filepath.Join(folder, "one."+form)
		_, _, again := llmprof(t, "runs", "export", "20260301", "--format", form, "-o", file)
		text, err := os.ReadFile(file)
		if err != nil || code != 0 || again != 0 || messages != "" || len(out) < 100 || len(text) != len(out) {
			t.Errorf("%s: %v %d %d %q, %d bytes and %d", form, err, code, again, messages, len(out), len(text))
		}
	}
	records, err := csv.NewReader(strings.NewReader(texts["batch-bench-results.csv"])).ReadAll()
	if err != nil || len(records) != 4 || records[3][5] != "False" || records[3][21] != "CUDA out of memory" || records[2][slices.Index(records[0], "latency_ms")] != "8800.0" {
		t.Errorf("%v: %q", err, records)
	}
}

func TestRunsDelete(t *testing.T) {
	runsStore(t)
	if out, messages, code := llmprof(t, "runs", "delete", "20260301"); code != 0 || out != "" || messages != "deleted run 20260301-120000-aa\n" {
		t.Fatal(out, messages, code)
	}
	if out, messages, code := llmprof(t, "runs", "export", "latest", "--json"); code != 0 || messages != "" || !json.Valid([]byte(out)) {
		t.Error(out, messages, code)
	}
	if out, _, _ := llmprof(t, "runs", "-o", "csv"); strings.Contains(out, "20260301-1") || !strings.Contains(out, "20260302-1") {
		t.Error(out)
	}
	if out, messages, code := llmprof(t, "runs", "delete", "latest", "--json"); code != 0 || messages != "" || !strings.Contains(out, `"run_id": "20260302-120000-bb"`) {
		t.Error(out, messages, code)
	}
}

// A result that cannot be read costs its own cell only.
func TestBrokenResult(t *testing.T) {
	c := campaign.Defaults()
	c.DType = "float16"
	c.ModelID, c.Place, c.InputLen, c.OutputLen, c.BatchSize = "m/a", "local", 1, 1, 1
	spec, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	good, _ := resultOf(t, measured(c, 30000, 1), "", false)
	d, err := campaignDocument(store.Run{ID: "r"}, []store.Cell{
		{Hash: "a", Spec: spec, State: store.Done, Result: json.RawMessage(`{"schema":"llmprof/memory-profile"}`)},
		{Hash: "b", Spec: spec, State: store.Done, Result: good},
	})
	if err != nil || len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], "result of cell a") || d.Rows[0].Measured() || !d.Rows[1].Measured() {
		t.Errorf("%v: %q", err, d.Warnings)
	}
	if _, err := campaignDocument(store.Run{ID: "r"}, []store.Cell{{Hash: "a", Spec: json.RawMessage(`[]`)}}); err == nil {
		t.Error("settings that cannot be read are no error")
	}
}
