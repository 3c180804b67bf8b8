package report

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/llmprof/llmprof/unit"
)

// CampaignText writes the report of a batch in the layout of LLM Sizer's, with
// more figures where there are some, and with the cells that were not measured
// in a section of their own.
func CampaignText(w io.Writer, d CampaignDocument) error {
	out := &campaignText{bufio.NewWriter(w)}
	measured, missing := split(d.Rows)
	waiting := d.Run.Counts["pending"] + d.Run.Counts["running"]
	out.rule("ENHANCED BATCH PROFILING REPORT (v2.0)")
	made := d.Generated
	if made.IsZero() {
		made = d.Run.Created
	}
	out.line("Generated: %s", made.Format(time.DateTime))
	out.line("Total Profiles: %d", len(d.Rows))
	out.line("Successful: %d", len(measured))
	out.line("Failed: %d", len(missing)-waiting)
	if waiting > 0 {
		out.line("Not run yet: %d", waiting)
	}
	for _, rows := range grouped(d.Rows, modelOf) {
		out.model(rows)
	}
	if len(missing) > 0 {
		out.missing(missing)
	}
	if len(d.Warnings) > 0 {
		out.line("")
		out.rule("WARNINGS")
		for _, warning := range d.Warnings {
			out.line("%s", oneLine(warning))
		}
	}
	return out.Flush()
}

// campaignText writes lines; Flush returns the first error.
type campaignText struct{ *bufio.Writer }

func (t *campaignText) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// rule writes a heading between double lines.
func (t *campaignText) rule(title string) {
	line := strings.Repeat("=", 80)
	t.line("%s\n%s\n%s", line, title, line)
}

func (t *campaignText) model(rows []CampaignRow) {
	measured, _ := split(rows)
	t.line("")
	t.rule("MODEL: " + rows[0].ModelID)
	t.line("Engine Version: %s", engineText(rows))
	t.line("Configurations: %d", len(rows))
	t.line("Successful: %d", len(measured))
	if len(measured) == 0 {
		return
	}
	shared, differ := varying(measured)
	t.line("Settings: %s", shared)
	for _, r := range measured {
		t.line("")
		t.configuration(r, differ)
	}
}

// engineText names the engines of a model with the versions that were measured.
func engineText(rows []CampaignRow) string {
	var names []string
	if measured, _ := split(rows); len(measured) > 0 {
		rows = measured
	}
	for _, r := range rows {
		name, version := r.Engine, "unknown"
		if strings.EqualFold(name, "vllm") {
			name = "vLLM"
		}
		if r.Measured() && r.Profile.EngineMetadata.EngineVersion != "" {
			version = string(r.Profile.EngineMetadata.EngineVersion)
		}
		if text := name + " " + version; !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	return strings.Join(names, ", ")
}

func (t *campaignText) configuration(r CampaignRow, differ []setting) {
	b, l, d := &r.Profile.MemoryBreakdown, &r.Profile.LatencyStats, &r.Profile.DTypeMetadata
	t.line("Configuration: input=%d, output=%d, batch=%d", r.InputLen, r.OutputLen, r.BatchSize)
	t.settings(r, differ)
	t.size("Total Memory", b.TotalMeasuredBytes)
	t.size("Predicted", r.Predicted)
	t.size("Baseline", b.BaselineBytes)
	t.size("Increase", b.NetIncreaseBytes)
	t.size("Weights", b.ModelWeightsBytes)
	t.size("KV Cache", b.KVCacheBytes)
	t.size("KV Cache in use", b.KVCacheUsedBytes)
	t.size("Activations", b.ActivationsBytes)
	t.size("CUDA Graphs", b.CUDAGraphsBytes)
	t.size("Overhead", b.FrameworkOverheadBytes)
	if b.UnexplainedBytes != nil && *b.UnexplainedBytes > 0 {
		t.size("Unexplained", b.UnexplainedBytes)
	}
	t.text("Weight dtype", string(d.WeightDType))
	t.text("Confidence", string(b.Confidence))
	for _, fault := range b.Faults {
		t.text("Inconsistent", fault)
	}
	if l.MeanMs != nil {
		t.line("  Mean Latency: %.2f ms", *l.MeanMs)
	}
	if noise := latencySide(l).Noise; noise != nil {
		t.line("  Noise of the Mean: ± %.2f ms (95 %% of %d runs)", *noise, len(l.Latencies))
	}
	if r.ProfileFile != "" {
		t.text("Profile", path.Base(strings.ReplaceAll(r.ProfileFile, `\`, "/")))
	}
	t.line("  Duration: %.1fs", r.Seconds)
}

// settings writes in what a configuration differs from the others.
func (t *campaignText) settings(r CampaignRow, differ []setting) {
	for _, s := range differ {
		t.text("Setting", said(s.name, s.of(r)))
	}
}

// size writes a size that is known.
func (t *campaignText) size(name string, size *unit.Bytes) {
	if size != nil {
		t.line("  %s: %.2f GB", name, float64(*size)/1e9)
	}
}

// text writes a text that is there.
func (t *campaignText) text(name, text string) {
	if text != "" {
		t.line("  %s: %s", name, text)
	}
}

// missing writes the cells without a result.
func (t *campaignText) missing(rows []CampaignRow) {
	t.line("")
	t.rule("NOT MEASURED")
	_, differ := varying(rows)
	for i, r := range rows {
		if i > 0 {
			t.line("")
		}
		t.line("Configuration: input=%d, output=%d, batch=%d", r.InputLen, r.OutputLen, r.BatchSize)
		t.text("Model", r.ModelID)
		t.settings(r, differ)
		t.text("State", r.State)
		t.line("  Attempts: %d", r.Attempts)
		t.text("Reason", oneLine(r.reason()))
		t.text("What to do", oneLine(r.Hint))
	}
}
