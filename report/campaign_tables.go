package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

// RunsDocument is the JSON of a list of runs.
type RunsDocument struct {
	Head
	Runs []RunKeys `json:"runs"`
}

// Runs builds the document of a list of runs.
func Runs(runs []RunKeys, tool string) RunsDocument {
	return RunsDocument{NewHead("runs", tool), append([]RunKeys{}, runs...)}
}

// RunsTable lists runs.
func RunsTable(d RunsDocument) Table {
	t := Table{Columns: []Column{
		{Name: "run", Key: "run_id", Left: true},
		{Name: "name", Left: true, Idle: idle("")},
		{Name: "source", Left: true, Idle: idle("")},
		{Name: "created", Left: true},
		{Name: "cells"},
		{Name: "of these", Key: "counts", Left: true},
		{Name: "time", Key: "duration_s"},
	}}
	for _, r := range d.Runs {
		t.Rows = append(t.Rows, []Cell{
			Say(r.ID), Say(r.Name), Say(r.Source), Shown(dateText(r.Created), r.Created.UTC().Format(time.RFC3339)),
			Whole(r.Cells), Say(countsText(r.Counts)), Shown(durationText(r.Seconds), r.Seconds),
		})
	}
	return t
}

// countsText names states with their numbers: "10 done, 2 oom".
func countsText(counts map[string]int) string {
	states := slices.Sorted(maps.Keys(counts))
	if i := slices.Index(states, stateDone); i > 0 {
		states = slices.Insert(slices.Delete(states, i, i+1), 0, stateDone)
	}
	parts := make([]string, len(states))
	for i, s := range states {
		parts[i] = fmt.Sprintf("%d %s", counts[s], s)
	}
	return strings.Join(parts, ", ")
}

func dateText(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}

// durationText prints seconds as people say them: "1h2m3s", "4.2s".
func durationText(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Minute {
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	}
	return d.Round(time.Second).String()
}

// CampaignTables shows a campaign: the run, a table for each model, and what
// was not measured.
func CampaignTables(d CampaignDocument) []Table {
	tables := []Table{campaignSummary(d)}
	measured, missing := split(d.Rows)
	for _, rows := range grouped(measured, modelOf) {
		tables = append(tables, modelTable(rows))
	}
	if len(missing) > 0 {
		tables = append(tables, missingTable(missing, d.Rows))
	}
	return tables
}

// CampaignMarkdown writes the same tables as a page of Markdown.
func CampaignMarkdown(w io.Writer, d CampaignDocument) error {
	title := "# Memory campaign " + strings.ReplaceAll(d.title(), "\n", " ") + "\n\n"
	if _, err := io.WriteString(w, title); err != nil {
		return err
	}
	return Markdown(w, CampaignTables(d)...)
}

// title is the name of the run, or its ID.
func (d CampaignDocument) title() string {
	if d.Run.Name != "" {
		return d.Run.Name
	}
	return d.Run.ID
}

func campaignSummary(d CampaignDocument) Table {
	t := pairTable("")
	t.pair("run", d.Run.ID)
	for _, p := range [][2]string{{"name", d.Run.Name}, {"source", d.Run.Source}} {
		if p[1] != "" {
			t.pair(p[0], p[1])
		}
	}
	t.pair("created", dateText(d.Run.Created))
	if !d.Generated.IsZero() {
		t.pair("report of", dateText(d.Generated))
	}
	cells := strconv.Itoa(d.Run.Cells)
	if len(d.Run.Counts) > 0 {
		cells += ": " + countsText(d.Run.Counts)
	}
	t.pair("cells", cells)
	t.pair("time", durationText(d.Run.Seconds))
	t.Notes = append(t.Notes, d.Warnings...)
	return t
}

// setting is something that cells of a model share, or in which they differ.
type setting struct {
	name string
	of   func(CampaignRow) string
}

func settings() []setting {
	positive := func(n int) string {
		if n <= 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	return []setting{
		{"place", func(r CampaignRow) string { return r.Place }},
		{"engine", func(r CampaignRow) string { return r.Engine }},
		{"version", func(r CampaignRow) string {
			if r.Profile == nil {
				return ""
			}
			return string(r.Profile.EngineMetadata.EngineVersion)
		}},
		{"device", CampaignRow.device},
		{"dtype", func(r CampaignRow) string { return r.DType }},
		{"quantization", func(r CampaignRow) string { return r.Quantization }},
		{"KV dtype", func(r CampaignRow) string { return r.KVCacheDType }},
		{"TP", func(r CampaignRow) string { return positive(r.TensorParallel) }},
		{"PP", func(r CampaignRow) string { return positive(r.PipelineParallel) }},
		{"GPUs", func(r CampaignRow) string { return strings.Join(r.GPUIDs, ",") }},
		{"block size", func(r CampaignRow) string { return positive(r.BlockSize) }},
		{"utilization", func(r CampaignRow) string {
			if !strings.HasPrefix(r.Engine, "vllm") {
				return "" // a setting of vLLM's alone
			}
			return strconv.FormatFloat(r.GPUMemoryUtilization, 'g', -1, 64)
		}},
		{"max length", func(r CampaignRow) string { return positive(r.MaxModelLen) }},
		{"tokens of a step", func(r CampaignRow) string { return positive(r.MaxNumBatchedTokens) }},
		{"threads", func(r CampaignRow) string { return positive(r.Threads) }},
		{"seed", func(r CampaignRow) string { return positive(int(r.Seed)) }},
		{"graphs", func(r CampaignRow) string {
			switch {
			case r.EnforceEager:
				return "no"
			case r.CUDAGraphs:
				return "yes"
			}
			return ""
		}},
		{"variables", func(r CampaignRow) string {
			var pairs []string
			for _, name := range slices.Sorted(maps.Keys(r.EngineEnv)) {
				pairs = append(pairs, name+"="+r.EngineEnv[name])
			}
			return strings.Join(pairs, " ")
		}},
		{"arguments", func(r CampaignRow) string { return strings.Join(r.EngineArgs, " ") }},
	}
}

// device is what the driver called the devices, or else what was asked for.
func (r CampaignRow) device() string {
	if r.Profile == nil || len(r.Profile.GPUInfo.Names) == 0 {
		return r.Device
	}
	names := slices.Compact(slices.Sorted(slices.Values(r.Profile.GPUInfo.Names)))
	return strings.Join(names, ", ")
}

// said names a value; nothing where there is none.
func said(name, value string) string {
	if value == "" {
		return ""
	}
	return name + " " + value
}

// varying splits the settings into those that all rows share, as text, and
// those in which they differ.
func varying(rows []CampaignRow) (shared string, differ []setting) {
	var parts []string
	for _, s := range settings() {
		first := s.of(rows[0])
		if slices.ContainsFunc(rows, func(r CampaignRow) bool { return s.of(r) != first }) {
			differ = append(differ, s)
		} else if text := said(s.name, first); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", "), differ
}

// sizesText names a cell within its model.
func sizesText(r CampaignRow) string {
	return fmt.Sprintf("%d × %d in, %d out", r.BatchSize, r.InputLen, r.OutputLen)
}

// withSettings adds to a name the settings in which a cell differs from others.
func withSettings(name string, r CampaignRow, differ []setting) string {
	for _, s := range differ {
		if text := said(s.name, s.of(r)); text != "" {
			name += ", " + text
		}
	}
	return name
}

// modelTable shows the cells of one model that were measured.
func modelTable(rows []CampaignRow) Table {
	shared, differ := varying(rows)
	t := Table{Title: rows[0].ModelID, Columns: []Column{{Name: "batch", Key: "batch_size"}, {Name: "input", Key: "input_len"}, {Name: "output", Key: "output_len"}}}
	for _, s := range differ {
		t.Columns = append(t.Columns, Column{Name: s.name, Left: true})
	}
	none := idle("–")
	size := func(name, key string) {
		t.Columns = append(t.Columns, Column{Name: name + " GB", Key: key + "_gb", Idle: none})
	}
	size("total", "total_memory")
	size("predicted", "predicted_total")
	size("baseline", "baseline_memory")
	size("weights", "weights")
	size("KV cache", "kv_cache")
	size("KV used", "kv_cache_used")
	size("activations", "activations")
	size("CUDA graphs", "cuda_graphs")
	size("overhead", "overhead")
	size("unexplained", "unexplained")
	t.Columns = append(t.Columns, []Column{
		{Name: "KV tokens", Key: "kv_cache_tokens", Idle: none},
		{Name: "latency ms", Key: "latency_ms", Idle: none},
		{Name: "± ms", Key: "latency_noise_ms", Idle: none},
		{Name: "tok/s", Key: "tokens_per_second", Idle: none},
		{Name: "confidence", Left: true, Idle: none},
		{Name: "state", Left: true},
	}...)
	for _, r := range rows {
		t.Rows = append(t.Rows, modelRow(r, differ))
		for _, fault := range r.Profile.MemoryBreakdown.Faults {
			t.Notes = append(t.Notes, sizesText(r)+": "+fault)
		}
	}
	t.Notes = append(t.Notes, shared)
	return t
}

func modelRow(r CampaignRow, differ []setting) []Cell {
	row := []Cell{Whole(r.BatchSize), Whole(r.InputLen), Whole(r.OutputLen)}
	for _, s := range differ {
		row = append(row, Say(s.of(r)))
	}
	b := &r.Profile.MemoryBreakdown
	for _, size := range []*unit.Bytes{
		b.TotalMeasuredBytes, r.Predicted, b.BaselineBytes, b.ModelWeightsBytes, b.KVCacheBytes, b.KVCacheUsedBytes,
		b.ActivationsBytes, b.CUDAGraphsBytes, b.FrameworkOverheadBytes, b.UnexplainedBytes,
	} {
		row = append(row, gbCell(size))
	}
	tokens, confidence := Missing(), Missing()
	if n := r.Profile.KVCache.Tokens; n != nil {
		tokens = Whole(*n)
	}
	if b.Confidence != "" {
		confidence = Say(string(b.Confidence))
	}
	state := r.State
	if !b.Consistent {
		state += ", inconsistent"
	}
	l := &r.Profile.LatencyStats
	noise := latencySide(l).Noise
	return append(row, tokens, known(2, l.MeanMs), known(2, noise), known(1, l.TokensPerSecond), confidence, Say(state))
}

// gbCell shows a size in 1e9 bytes.
func gbCell(size *unit.Bytes) Cell {
	if size == nil {
		return Missing()
	}
	return inGB(int64(*size))
}

// inGB shows a size in 1e9 bytes with two decimals, a small one with four: what
// a small model holds is not nothing.
func inGB(bytes int64) Cell {
	gb := float64(bytes) / 1e9
	if gb != 0 && math.Abs(gb) < 0.1 {
		return Fixed(gb, 4)
	}
	return Fixed(gb, 2)
}

// askedApart are the settings that were asked for and tell the cells of a
// campaign apart, for those of which nothing else is known.
func askedApart(all []CampaignRow) []setting {
	_, differ := varying(all)
	return slices.DeleteFunc(differ, func(s setting) bool { return s.name == "version" || s.name == "device" })
}

// missingTable shows the cells without a result, out of all, why, and what
// helps. A long reason stands in full below, once for all cells.
func missingTable(rows, all []CampaignRow) Table {
	differ := askedApart(all)
	t := Table{Title: "Not measured", Columns: []Column{
		{Name: "model", Key: "model_id", Left: true},
		{Name: "batch", Key: "batch_size"},
		{Name: "input", Key: "input_len"},
		{Name: "output", Key: "output_len"},
	}}
	for _, s := range differ {
		t.Columns = append(t.Columns, Column{Name: s.name, Left: true})
	}
	t.Columns = append(t.Columns, []Column{
		{Name: "state", Left: true},
		{Name: "attempts"},
		{Name: "reason", Left: true, Idle: idle("")},
		{Name: "what to do", Key: "hint", Left: true, Idle: idle("")},
	}...)
	for _, r := range rows {
		row := []Cell{Say(r.ModelID), Whole(r.BatchSize), Whole(r.InputLen), Whole(r.OutputLen)}
		for _, s := range differ {
			row = append(row, Say(s.of(r)))
		}
		reason := oneLine(r.reason())
		short := beginning(reason)
		if short != reason && !slices.Contains(t.Notes, reason) {
			t.Notes = append(t.Notes, reason)
		}
		t.Rows = append(t.Rows, append(row, Say(r.State), Whole(r.Attempts), Shown(short, reason), Say(oneLine(r.Hint))))
	}
	return t
}

// beginning is as many whole words of a line as a row of a table has room for.
func beginning(s string) string {
	const longest = 120 // runes
	runes := []rune(s)
	if len(runes) <= longest {
		return s
	}
	s = string(runes[:longest])
	if i := strings.LastIndexByte(s, ' '); i > 0 {
		s = s[:i]
	}
	return s + " …"
}

// oneLine joins the lines of a text.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// partNames are the parts of a breakdown in the order in which reports show
// them, with their names for people.
func partNames() [][2]string {
	return [][2]string{
		{memprofile.PartWeights, "weights"},
		{memprofile.PartKVCache, "KV cache"},
		{memprofile.PartActivations, "activations"},
		{memprofile.PartCUDAGraphs, "CUDA graphs"},
		{memprofile.PartOverhead, "overhead"},
	}
}
