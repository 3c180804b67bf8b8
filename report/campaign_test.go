package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

var update = flag.Bool("update", false, "write the golden files anew")

const campaignFolder = "testdata/campaign"

func to[T any](v T) *T { return &v }

// golden compares with a file, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	name = filepath.Join(campaignFolder, name)
	if *update {
		if err := os.WriteFile(name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew)\n%s", name, diff)
	}
}

// llmSizer reads the batch of LLM Sizer's profiler: its rows, and a document of
// its profiles. The profiles say CUDA, where its GB are 2^30 bytes; as ROCm
// they are 1e9, so that the figures keep their digits.
func llmSizer(t *testing.T) ([]memprofile.BatchRow, report.CampaignDocument) {
	t.Helper()
	const results = "batch-bench-results-20261120_181637.csv"
	text, err := os.ReadFile(filepath.Join(campaignFolder, results))
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := memprofile.ReadBatch(results, bytes.NewReader(text), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []report.CampaignRow
	for _, w := range want {
		text, err := os.ReadFile(filepath.Join(campaignFolder, filepath.Base(w.ProfileFile)))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte(`"gpu_type": "cuda"`), []byte(`"gpu_type": "rocm"`), 1)
		d, _, err := memprofile.Read(w.ProfileFile, bytes.NewReader(text), format.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		c := campaign.Defaults()
		c.DType = "float16"
		c.ModelID, c.Place, c.ContainerName = w.ModelID, "docker:"+w.ContainerName, w.ContainerName
		c.InputLen, c.OutputLen, c.BatchSize = *w.InputLen, *w.OutputLen, *w.BatchSize
		rows = append(rows, report.CampaignRowOf(c, report.CampaignEnd{State: "done", Attempts: 1, Seconds: *w.DurationSeconds, ProfileFile: w.ProfileFile}, d))
	}
	d := report.Campaign(report.RunKeys{ID: "20261120-181556-a1"}, rows, nil, "test")
	d.Generated = time.Date(2026, 11, 20, 18, 16, 37, 0, time.UTC)
	return want, d
}

func TestCampaignCSVIsThatOfLLMSizer(t *testing.T) {
	want, d := llmSizer(t)
	var expected, got bytes.Buffer
	if err := memprofile.WriteBatch(&expected, want); err != nil {
		t.Fatal(err)
	}
	if err := report.CampaignCSV(&got, d); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expected.String(), got.String()); diff != "" {
		t.Error(diff)
	}
}

// The text report has every line of LLM Sizer's in its order; what it adds is
// listed here.
func TestCampaignTextHoldsThatOfLLMSizer(t *testing.T) {
	_, d := llmSizer(t)
	var got strings.Builder
	if err := report.CampaignText(&got, d); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(campaignFolder, "batch-bench-report-enhanced-20261120_181637.txt"))
	if err != nil {
		t.Fatal(err)
	}
	left := strings.Split(string(text), "\n")
	var added []string
	for line := range strings.SplitSeq(got.String(), "\n") {
		if len(left) > 0 && line == left[0] {
			left = left[1:]
		} else {
			added = append(added, line)
		}
	}
	if len(left) > 0 {
		t.Errorf("lines that are missing, from %q on; all:\n%s", left[0], got.String())
	}
	noise := "  Noise of the Mean: ± 248.41 ms (95 % of 3 runs)"
	want := []string{"Settings: place docker:vllm-inference, engine vllm, version unknown, dtype float16, TP 1, utilization 0.9", noise, noise, noise, noise}
	if diff := cmp.Diff(want, added); diff != "" {
		t.Error(diff)
	}
}

// profileOf makes up a profile: sizes in GB, latencies in seconds.
func profileOf(c campaign.Cell, peak, weights, kv, used float64, latencies ...float64) *memprofile.Document {
	gb := func(v float64) *unit.Bytes { return to(unit.Bytes(v * 1e9)) }
	d := &memprofile.Document{}
	d.SetTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	d.ModelInfo.Name = memprofile.Text(c.ModelID)
	d.BenchmarkParameters.InputLen, d.BenchmarkParameters.OutputLen, d.BenchmarkParameters.BatchSize = &c.InputLen, &c.OutputLen, &c.BatchSize
	d.DTypeMetadata.WeightDType = memprofile.Text(c.DType)
	d.MemoryMeasurements.Baseline = &memprofile.MemoryPoint{TotalBytes: gb(0.5)}
	d.MemoryMeasurements.PostWarmup = &memprofile.MemoryPoint{TotalBytes: gb(peak - 0.25), At: to(20.0)}
	d.MemoryMeasurements.Peak = &memprofile.MemoryPoint{TotalBytes: gb(peak)}
	d.MemoryBreakdown.Parts = []memprofile.Part{
		{Name: memprofile.PartWeights, Bytes: gb(weights), Confidence: memprofile.High, Source: "log"},
		{Name: memprofile.PartKVCache, Bytes: gb(kv), Confidence: memprofile.High, Source: "log"},
		{Name: memprofile.PartActivations, Bytes: gb(0.6), Confidence: memprofile.Medium, Source: "formula"},
		{Name: memprofile.PartCUDAGraphs, Bytes: gb(0.4), Confidence: memprofile.High, Source: "log"},
		{Name: memprofile.PartOverhead, Note: "the log does not tell"},
	}
	d.KVCache.Tokens, d.KVCache.UsedBytes = to(41408), gb(used)
	d.LatencyStats.Latencies = latencies
	d.GPUInfo.Names = []string{"NVIDIA H100 80GB HBM3"}
	d.EngineMetadata = memprofile.EngineMetadata{EngineType: "vllm", EngineVersion: "0.11.0"}
	return d
}

func cellOf(model string, batch, input, output int) campaign.Cell {
	c := campaign.Defaults()
	c.DType = "float16"
	c.ModelID, c.Place, c.BatchSize, c.InputLen, c.OutputLen = model, "docker:vllm", batch, input, output
	return c
}

// small is a campaign with something of everything: two models, an
// inconsistent profile, and cells that failed or wait.
func small() report.CampaignDocument {
	const one, two = "Qwen/Qwen3-8B", `odd/<script>alert("1")</script>|name`
	var rows []report.CampaignRow
	done := func(c campaign.Cell, d *memprofile.Document) {
		rows = append(rows, report.CampaignRowOf(c, report.CampaignEnd{State: "done", Attempts: 1, Seconds: 61.25, ProfileFile: "results/" + c.Name() + ".json"}, d))
	}
	for _, input := range []int{512, 2048} {
		for i, batch := range []int{1, 8, 32} {
			c := cellOf(one, batch, input, 256)
			grown := float64(batch*(input+256)) * 147456e-9
			slow := 2.4 + float64(i)*0.7 + float64(input)/4096
			done(c, profileOf(c, 71.5+grown/10, 16.4, 52.9, grown, slow, slow*1.01, slow*0.99, slow*1.005, slow*0.995))
		}
	}
	rows[1].Predicted, rows[2].Predicted = to(unit.Bytes(70e9)), to(unit.Bytes(71e9))
	end := func(c campaign.Cell, state, reason, hint string, attempts int) {
		rows = append(rows, report.CampaignRowOf(c, report.CampaignEnd{State: state, Attempts: attempts, Seconds: 12, Error: reason, Hint: hint}, nil))
	}
	end(cellOf(one, 256, 2048, 256), "oom", "CUDA out of memory. Tried to allocate 2.00 GiB", "fewer or shorter sequences, or more devices", 1)
	end(cellOf(one, 512, 2048, 256), "skipped", "not tried: batch size 256 had too little memory", "fewer tokens", 0)
	c := cellOf(two, 1, 64, 16)
	done(c, profileOf(c, 10, 16.4, 2, 1, 0.5))
	c.BlockSize = 256
	end(c, "refused", "No common block size\nfor 256", "", 1)
	c.BlockSize = 32
	end(c, "pending", "", "", 0)
	d := report.Campaign(report.RunKeys{
		ID: "20260301-120000-k3", Name: "H100 & friends", Source: "models.yaml", Created: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC),
	}, rows, []string{"a warning of the run"}, "test")
	d.Generated = time.Date(2026, 3, 1, 14, 30, 0, 0, time.UTC)
	return d
}

func TestCampaignGoldens(t *testing.T) {
	d := small()
	for name, write := range map[string]func(*bytes.Buffer) error{
		"report.txt": func(b *bytes.Buffer) error { return report.CampaignText(b, d) },
		"report.md":  func(b *bytes.Buffer) error { return report.CampaignMarkdown(b, d) },
		"page.html": func(b *bytes.Buffer) error {
			return report.CampaignHTML(b, d, []string{`<svg viewBox="0 0 2 1"><title>figure</title></svg>`})
		},
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(name, err)
		}
		golden(t, name, got.Bytes())
	}
}

func TestCampaignPageIsSafe(t *testing.T) {
	var b strings.Builder
	if err := report.CampaignHTML(&b, small(), nil); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for why, text := range map[string]string{
		"a model's name is no markup": `<script>alert`, "nothing is loaded": `src=`, "nor linked": `href=`, "nor fetched by the style": `url(`, "an unsafe value": "ZgotmplZ",
	} {
		if strings.Contains(page, text) {
			t.Errorf("%s: the page holds %q", why, text)
		}
	}
	for _, bad := range []string{"", "text", "<svg><SCRIPT>1</SCRIPT></svg>", "<svg ><SCRIPT>1</SCRIPT></svg>"} {
		if err := report.CampaignHTML(&b, small(), []string{bad}); err == nil {
			t.Errorf("%q was taken for a drawing", bad)
		}
	}
}

func TestCampaignFigures(t *testing.T) {
	var got []string
	for _, f := range report.CampaignFigures(small()) {
		for _, s := range f.Series {
			got = append(got, fmt.Sprintf("%s | %s | %d points", f.Title, s.Name, len(s.Points)))
		}
	}
	var want []string
	for _, n := range []int{3, 2} {
		for _, part := range []string{"peak", "weights", "KV cache", "KV cache in use", "activations", "CUDA graphs"} {
			want = append(want, fmt.Sprintf("Memory of Qwen/Qwen3-8B | %s | %d points", part, n))
		}
	}
	want = append(want,
		"Latency of Qwen/Qwen3-8B | 512 tokens in, 256 out | 3 points", "Latency of Qwen/Qwen3-8B | 2048 tokens in, 256 out | 3 points",
		"Memory, measured and predicted | equal | 2 points", "Memory, measured and predicted | Qwen/Qwen3-8B | 2 points")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(report.CampaignFigures(report.CampaignDocument{})); n != 0 {
		t.Errorf("%d figures of nothing", n)
	}
}

// Every cell stands exactly once in every format, whatever became of it, and
// what is written twice is the same.
func TestEveryCellOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rows []report.CampaignRow
		seen := map[string]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "cells") {
			c := cellOf(rapid.SampledFrom([]string{"m/a", "m/b"}).Draw(t, "model"), rapid.IntRange(1, 9).Draw(t, "batch"), 1000+rapid.IntRange(1, 9).Draw(t, "input"), 777)
			c.TensorParallel = rapid.IntRange(1, 2).Draw(t, "tp")
			if seen[c.Hash()] {
				continue
			}
			seen[c.Hash()] = true
			state := rapid.SampledFrom([]string{"done", "pending", "failed", "oom", "refused", "timeout", "skipped", "cancelled"}).Draw(t, "state")
			var d *memprofile.Document
			if state == "done" {
				switch d = profileOf(c, 20, 10, 5, 1, 1, 2); rapid.IntRange(0, 2).Draw(t, "kind") {
				case 1:
					d = &memprofile.Document{} // nothing in it
				case 2:
					d = nil // it could not be read
				}
			}
			rows = append(rows, report.CampaignRowOf(c, report.CampaignEnd{State: state, Error: "why", Seconds: 1}, d))
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		d := report.Campaign(report.RunKeys{ID: "r"}, rows, nil, "test")
		var page, again, text, markdown, table, asJSON bytes.Buffer
		for _, err := range []error{
			report.CampaignHTML(&page, d, nil), report.CampaignHTML(&again, d, nil), report.CampaignText(&text, d),
			report.CampaignMarkdown(&markdown, d), report.CampaignCSV(&table, d), report.JSON(&asJSON, d),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if page.String() != again.String() {
			t.Error("two pages of the same campaign differ")
		}
		records, err := csv.NewReader(&table).ReadAll()
		if err != nil || len(records[0]) != 22 {
			t.Fatal(err, len(records[0]))
		}
		var back struct {
			Cells []struct {
				Hash string `json:"hash"`
			} `json:"cells"`
		}
		if err := json.Unmarshal(asJSON.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		for name, n := range map[string]int{
			"CSV": len(records) - 1, "JSON": len(back.Cells),
			"text": strings.Count(text.String(), "Configuration: "), "Markdown": strings.Count(markdown.String(), "| 777 |"),
			"page": strings.Count(page.String(), "<tr><td ") + strings.Count(page.String(), `<li><span class="state`),
		} {
			if n != len(rows) {
				t.Errorf("%s has %d cells, want %d", name, n, len(rows))
			}
		}
	})
}

func TestCampaignJSONNamesUnits(t *testing.T) {
	var b bytes.Buffer
	if err := report.JSON(&b, small()); err != nil {
		t.Fatal(err)
	}
	var d struct {
		Schema string         `json:"schema"`
		Run    map[string]any `json:"run"`
		Cells  []struct {
			ModelID   string   `json:"model_id"`
			BatchSize int      `json:"batch_size"`
			State     string   `json:"state"`
			Seconds   float64  `json:"duration_s"`
			Predicted *float64 `json:"predicted_total_bytes"`
			Profile   *struct {
				Memory  struct{ Bytes *float64 }           `json:"memory"`
				Latency map[string]any                     `json:"latency_stats"`
				Parts   struct{ Weights, Confidence *any } `json:"memory_breakdown"`
			} `json:"profile"`
		} `json:"cells"`
	}
	if err := json.Unmarshal(b.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	c := d.Cells[1]
	if d.Schema != "llmprof/campaign" || c.ModelID != "Qwen/Qwen3-8B" || c.BatchSize != 8 || c.Seconds != 61.25 || *c.Predicted != 70e9 || c.Profile.Latency["mean_latency_ms"] == nil || c.Profile.Parts.Weights == nil {
		t.Errorf("%+v", c)
	}
	if last := d.Cells[len(d.Cells)-1]; last.State != "pending" || last.Profile != nil {
		t.Errorf("%+v", last)
	}
	if counts := d.Run["counts"]; !cmp.Equal(counts, map[string]any{"done": 7.0, "oom": 1.0, "pending": 1.0, "refused": 1.0, "skipped": 1.0}) {
		t.Errorf("counts %v", counts)
	}
}

func ExampleCampaignTables() {
	c := cellOf("Qwen/Qwen3-8B", 8, 512, 256)
	rows := []report.CampaignRow{report.CampaignRowOf(c, report.CampaignEnd{State: "done", Attempts: 1, Seconds: 42}, profileOf(c, 71.5, 16.4, 52.9, 0.9, 2.4, 2.5, 2.6))}
	c.BatchSize = 512
	rows = append(rows, report.CampaignRowOf(c, report.CampaignEnd{State: "oom", Attempts: 1, Error: "CUDA out of memory", Hint: "fewer sequences"}, nil))
	d := report.Campaign(report.RunKeys{ID: "night", Created: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)}, rows, nil, "test")
	if err := report.Text(os.Stdout, slices.DeleteFunc(report.CampaignTables(d), func(t report.Table) bool { return t.Title == c.ModelID })...); err != nil {
		fmt.Println(err)
	}
	// Output:
	// run      night
	// created  2026-03-01 11:00 UTC
	// cells    2: 1 done, 1 oom
	// time     42.0s
	//
	// Not measured
	// model          batch  input  output  state  attempts  reason              what to do
	// Qwen/Qwen3-8B    512    512     256  oom           1  CUDA out of memory  fewer sequences
}

// TestSmallSizes: what a small model holds is shown, and not rounded to nothing.
func TestSmallSizes(t *testing.T) {
	d := &memprofile.Document{}
	small, total := unit.Bytes(4_325_376), unit.Bytes(769_843_200)
	d.MemoryBreakdown.Parts = []memprofile.Part{{Name: memprofile.PartKVCache, Bytes: &small, Confidence: memprofile.High, Source: "engine"}}
	d.MemoryMeasurements.Peak = &memprofile.MemoryPoint{TotalBytes: &total}
	var text strings.Builder
	if err := report.Text(&text, report.CampaignTables(runOf("r", done(cellOf("m/a", 1, 1, 1), d)))...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" 0.0043 ", " 0.77 "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
