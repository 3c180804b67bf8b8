package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// EstimateKeys is a time in milliseconds with what is known of it; low, high
// and level are null where no interval is known.
type EstimateKeys struct {
	// Value, Low and High are in ms, Level is a share of outcomes, 0..1.
	Value float64    `json:"value"`
	Low   *float64   `json:"low"`
	High  *float64   `json:"high"`
	Level *float64   `json:"level"`
	Basis stat.Basis `json:"basis"`
}

// Milliseconds builds the keys of a time.
func Milliseconds(e stat.Estimate[unit.Seconds]) EstimateKeys {
	k := EstimateKeys{Value: e.Value.Milliseconds(), Basis: e.Basis}
	if e.HasInterval() {
		low, high, level := e.Low.Milliseconds(), e.High.Milliseconds(), e.Level
		k.Low, k.High, k.Level = &low, &high, &level
	}
	return k
}

// PredictionKeys is one predicted step.
type PredictionKeys struct {
	Config    string       `json:"config"`
	Mode      string       `json:"mode"`
	BatchSize int          `json:"batch_size"`
	InputLen  int          `json:"input_len"`
	Latency   EstimateKeys `json:"latency_ms"`
	// Extrapolated repeats the basis for readers that look for a flag.
	Extrapolated bool     `json:"extrapolated"`
	Warnings     []string `json:"warnings,omitempty"`
}

// Prediction builds the keys of one predicted step.
func Prediction(config, mode string, batch, input int, e stat.Estimate[unit.Seconds]) PredictionKeys {
	return PredictionKeys{
		Config: config, Mode: mode, BatchSize: batch, InputLen: input, Latency: Milliseconds(e),
		Extrapolated: e.Basis == stat.Extrapolated, Warnings: e.Warnings,
	}
}

// PredictionsDocument is the JSON of predictions.
type PredictionsDocument struct {
	Head
	Predictions []PredictionKeys `json:"predictions"`
}

// Predictions builds the document of predictions.
func Predictions(predictions []PredictionKeys, tool string) PredictionsDocument {
	return PredictionsDocument{NewHead("predictions", tool), predictions}
}

// PredictionText writes one prediction: the four lines of the forward-time
// predictor, then interval and basis.
func PredictionText(w io.Writer, p PredictionKeys) error {
	lines := []string{
		fmt.Sprintf("Prediction for %s (%s):", p.Config, p.Mode),
		fmt.Sprintf("  Batch size: %d", p.BatchSize),
		fmt.Sprintf("  Input length: %d", p.InputLen),
		fmt.Sprintf("  Predicted latency: %.2fms", p.Latency.Value),
	}
	if p.Latency.Level != nil {
		claim := fmt.Sprintf("%.0f %% of outcomes", *p.Latency.Level*100)
		if p.Extrapolated {
			claim = "extrapolated: not calibrated"
		}
		lines = append(lines, fmt.Sprintf("  Interval: %.2f .. %.2f ms (%s)", *p.Latency.Low, *p.Latency.High, claim))
	}
	lines = append(lines, "  Basis: "+string(p.Latency.Basis))
	for _, warning := range p.Warnings {
		lines = append(lines, "  Warning: "+warning)
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// PredictionTable shows predictions, one row each.
func PredictionTable(predictions []PredictionKeys) Table {
	t := Table{Columns: []Column{
		{Name: "config", Left: true},
		{Name: "mode", Left: true},
		{Name: "batch", Key: "batch_size"},
		{Name: "input", Key: "input_len"},
		{Name: "ms", Key: "latency_ms"},
		{Name: "low", Key: "low_ms"},
		{Name: "high", Key: "high_ms"},
		{Name: "level"},
		{Name: "basis", Left: true},
	}}
	optional := func(v *float64, scale float64, decimals int, suffix string) Cell {
		if v == nil {
			return Missing()
		}
		return Shown(strconv.FormatFloat(*v*scale, 'f', decimals, 64)+suffix, *v)
	}
	claimed := false
	warned := map[string]int{}
	var warnings []string
	for _, p := range predictions {
		claimed = claimed || p.Extrapolated && p.Latency.Level != nil
		for _, w := range p.Warnings {
			warned[w]++
			if warned[w] == 1 {
				warnings = append(warnings, w)
			}
		}
		t.Rows = append(t.Rows, []Cell{
			Say(p.Config), Say(p.Mode), Whole(p.BatchSize), Whole(p.InputLen), Fixed(p.Latency.Value, 3),
			optional(p.Latency.Low, 1, 3, ""), optional(p.Latency.High, 1, 3, ""), optional(p.Latency.Level, 100, 0, " %"),
			Say(string(p.Latency.Basis)),
		})
	}
	if claimed {
		t.Notes = append(t.Notes, "Extrapolated: the interval widens with the distance, and its level is not calibrated there.")
	}
	for _, w := range warnings {
		t.Notes = append(t.Notes, fmt.Sprintf("%d of %d: %s", warned[w], len(predictions), w))
	}
	return t
}

// MixedKeys is one predicted step that mixes a chunk of a prompt with decoding
// sequences.
type MixedKeys struct {
	Config string `json:"config"`
	Mode   string `json:"mode"`
	// ChunkTokens are computed on ChunkContext cached tokens; Decodes sequences
	// generate a token each on Context cached ones, null where it is not known.
	ChunkTokens  int          `json:"chunk_tokens"`
	ChunkContext int          `json:"chunk_context"`
	Decodes      int          `json:"decodes"`
	Context      *int         `json:"context"`
	Latency      EstimateKeys `json:"latency_ms"`
	Extrapolated bool         `json:"extrapolated"`
	Warnings     []string     `json:"warnings,omitempty"`
}

// Mixed builds the keys of one mixed step.
func Mixed(config string, chunk, chunkContext, decodes int, context *int, e stat.Estimate[unit.Seconds]) MixedKeys {
	return MixedKeys{
		Config: config, Mode: string(fit.Mixed), ChunkTokens: chunk, ChunkContext: chunkContext, Decodes: decodes, Context: context,
		Latency: Milliseconds(e), Extrapolated: e.Basis == stat.Extrapolated, Warnings: e.Warnings,
	}
}

// MixedDocument is the JSON of predicted mixed steps.
type MixedDocument struct {
	Head
	Predictions []MixedKeys `json:"predictions"`
}

// MixedPredictions builds the document.
func MixedPredictions(predictions []MixedKeys, tool string) MixedDocument {
	return MixedDocument{NewHead("predictions", tool), predictions}
}

// MixedTable shows predicted mixed steps.
func MixedTable(predictions []MixedKeys) Table {
	t := Table{Columns: []Column{
		{Name: "config", Left: true},
		{Name: "chunk", Key: "chunk_tokens"},
		{Name: "its context", Key: "chunk_context", Idle: idle("0")},
		{Name: "decodes"},
		{Name: "their context", Key: "context"},
		{Name: "ms", Key: "latency_ms"},
		{Name: "low", Key: "low_ms"},
		{Name: "high", Key: "high_ms"},
		{Name: "basis", Left: true},
	}}
	seen := map[string]bool{}
	for _, p := range predictions {
		context := Missing()
		if p.Context != nil {
			context = Whole(*p.Context)
		}
		t.Rows = append(t.Rows, []Cell{
			Say(p.Config), Whole(p.ChunkTokens), Whole(p.ChunkContext), Whole(p.Decodes), context,
			known(3, &p.Latency.Value), known(3, p.Latency.Low), known(3, p.Latency.High), Say(string(p.Latency.Basis)),
		})
		for _, w := range p.Warnings {
			if !seen[w] {
				t.Notes = append(t.Notes, w)
			}
			seen[w] = true
		}
	}
	return t
}

// TrainingDocument is the JSON of a training.
type TrainingDocument struct {
	Head
	Config string `json:"config"`
	File   string `json:"file"`
	Model  string `json:"model"`
	Rows   int    `json:"rows"`
	Merged int    `json:"merged"`
	// Skipped counts points that a fit cannot use, by reason.
	Skipped map[string]int `json:"skipped,omitempty"`
	// ColdRuns counts runs far above the others of their row.
	ColdRuns int            `json:"cold_runs"`
	ColdRows int            `json:"cold_rows"`
	Modes    []TrainingMode `json:"modes"`
	// HostGap is what passes between two steps of a server, RequestOverhead
	// what a request that meets an idle server waits beside its steps; both
	// are null where no requests were recorded. GapSteps is the number of steps
	// behind them.
	HostGap         *EstimateKeys `json:"host_gap_ms"`
	RequestOverhead *EstimateKeys `json:"request_overhead_ms"`
	GapSteps        int           `json:"host_gap_steps,omitempty"`
}

// TrainingMode says how one mode was fitted.
type TrainingMode struct {
	Mode   string `json:"mode"`
	Rows   int    `json:"rows"`
	Chosen string `json:"chosen"`
	// InnerMAPE is the mean absolute error in percent of the chosen shape
	// under the cross-validation inside the training rows that chose it, and
	// so a little too good; null where too few rows left nothing to choose.
	InnerMAPE *float64 `json:"inner_cv_mape"`
	// HalfWidth is the half-width of the 80 % interval inside the measured
	// range, in percent.
	HalfWidth *float64 `json:"interval_half_width_percent"`
}

// Training builds the document of a training.
func Training(config, file, model string, data fit.Data, p *fit.Predictor, r fit.Report, tool string) TrainingDocument {
	d := TrainingDocument{
		Head: NewHead("training", tool), Config: config, File: file, Model: model,
		Rows: len(data.Rows), Merged: data.Merged, Skipped: data.Skipped, ColdRuns: r.ColdRuns, ColdRows: r.ColdRows,
	}
	for _, m := range r.Modes {
		mode := TrainingMode{Mode: string(m.Mode), Rows: m.Rows, Chosen: m.Chosen}
		for _, c := range m.Candidates {
			if c.Name == m.Chosen && !math.IsInf(c.MAPE, 0) {
				mode.InnerMAPE = &c.MAPE
			}
		}
		var bands []fit.Band
		if form, ok := p.Form(m.Mode); ok {
			bands = form.Bands
		}
		if form, ok := p.MixedForm(); ok && m.Mode == fit.Mixed {
			bands = form.Bands
		}
		if len(bands) > 0 {
			width := 100 * bands[0].HalfWidth
			mode.HalfWidth = &width
		}
		d.Modes = append(d.Modes, mode)
	}
	if gap, ok := p.Gap(); ok {
		between, before := Milliseconds(gap.Between), Milliseconds(gap.Before)
		d.HostGap, d.RequestOverhead, d.GapSteps = &between, &before, gap.Steps
	}
	return d
}

// TrainingTables shows a training.
func TrainingTables(d TrainingDocument) []Table {
	t := Table{Columns: []Column{
		{Name: "mode", Left: true},
		{Name: "rows"},
		{Name: "chosen", Left: true},
		{Name: "inner CV MAPE %", Key: "inner_cv_mape"},
		{Name: "80 % interval ±%", Key: "interval_half_width_percent"},
	}}
	optional := func(v *float64) Cell {
		if v == nil {
			return Missing()
		}
		return Fixed(*v, 2)
	}
	for _, m := range d.Modes {
		t.Rows = append(t.Rows, []Cell{Say(m.Mode), Whole(m.Rows), Say(m.Chosen), optional(m.InnerMAPE), optional(m.HalfWidth)})
	}
	t.Notes = []string{fmt.Sprintf("%s written to %s", d.Config, d.File)}
	if d.ColdRuns > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d cold runs in %d rows: medians are used, and cold runs count for nothing", d.ColdRuns, d.ColdRows))
	}
	if d.Merged > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d repeated points merged", d.Merged))
	}
	if d.HostGap != nil {
		t.Notes = append(t.Notes, fmt.Sprintf("between two steps the host takes %s; a request that meets an idle server waits %s beside its steps (%d steps compared)",
			span(d.HostGap), span(d.RequestOverhead), d.GapSteps))
	}
	reasons := make([]string, 0, len(d.Skipped))
	for reason := range d.Skipped {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	for _, reason := range reasons {
		t.Notes = append(t.Notes, fmt.Sprintf("%d points not used: %s", d.Skipped[reason], reason))
	}
	return []Table{t}
}

// span is a time with its interval.
func span(e *EstimateKeys) string {
	text := fmt.Sprintf("%.2f ms", e.Value)
	if e.Low != nil {
		text += fmt.Sprintf(" (%.2f .. %.2f)", *e.Low, *e.High)
	}
	return text
}

// ScoresDocument is the JSON of scores.
type ScoresDocument struct {
	Head
	Rows []fit.Score `json:"rows"`
}

// Scores builds the document of scores.
func Scores(scores []fit.Score, tool string) ScoresDocument {
	return ScoresDocument{NewHead("scores", tool), scores}
}

// ScoreTable shows scores side by side.
func ScoreTable(scores []fit.Score) Table {
	t := Table{
		Columns: []Column{
			{Name: "mode", Left: true},
			{Name: "target", Left: true},
			{Name: "model", Left: true},
			{Name: "split", Left: true},
			{Name: "n"},
			{Name: "MAPE", Key: "mape"},
			{Name: "median"},
			{Name: "p90"},
			{Name: "max"},
			{Name: "bias"},
			{Name: "cov80", Key: "coverage80"},
			{Name: "cov95", Key: "coverage95"},
			{Name: "width80"},
		},
		Notes: scoreNotes(scores),
	}
	optional := func(v *float64) Cell {
		if v == nil {
			return Missing()
		}
		return Fixed(*v, 1)
	}
	for _, s := range scores {
		t.Rows = append(t.Rows, []Cell{
			Say(string(s.Mode)), Say(string(s.Target)), Say(s.Model), Say(s.Split), Whole(s.N),
			Fixed(s.MAPE, 2), Fixed(s.Median, 2), Fixed(s.P90, 2), Fixed(s.Max, 2), Fixed(s.Bias, 2),
			optional(s.Coverage80), optional(s.Coverage95), optional(s.Width80),
		})
	}
	return t
}

// scoreNotes say what the figures are, and on rows of which kind they hold.
func scoreNotes(scores []fit.Score) []string {
	const what, coverage = "Errors in percent of the measured time", "coverage is the share of %s inside the interval."
	type source struct{ model, split string }
	type seen struct{ known, of, unknown int }
	counts := map[source]*seen{}
	var order []source
	counted := map[string]bool{}
	clean, without := true, 0
	for _, s := range scores {
		if s.Coverage80 != nil {
			without += s.N - s.WithInterval
		}
		id := source{s.Model, s.Split}
		if counts[id] == nil {
			counts[id] = &seen{}
			order = append(order, id)
		}
		// The targets of a mode are scored on the same rows.
		key := fmt.Sprint(id, s.Mode)
		if counted[key] {
			continue
		}
		counted[key] = true
		counts[id].of += s.N
		switch {
		case s.TrainedOn == nil:
			counts[id].unknown += s.N
			clean = false
		case *s.TrainedOn > 0:
			counts[id].known += *s.TrainedOn
			clean = false
		}
	}
	var notes []string
	if clean {
		notes = append(notes, what+", on rows that were not trained on; "+fmt.Sprintf(coverage, "them"))
	} else {
		notes = append(notes, what+"; "+fmt.Sprintf(coverage, "rows"))
	}
	for _, id := range order {
		switch c := counts[id]; {
		case c.unknown == c.of:
			notes = append(notes, fmt.Sprintf("%s: not known how many of the %d rows it was trained on.", id.model, c.of))
		case c.unknown > 0:
			notes = append(notes, fmt.Sprintf("%s: at least %d of %d rows are of configurations that it was trained on; of %d that is not known.", id.model, c.known, c.of, c.unknown))
		case c.known > 0:
			notes = append(notes, fmt.Sprintf("%s: %d of %d rows are of configurations that it was trained on, so these are not held-out errors.", id.model, c.known, c.of))
		case !clean:
			notes = append(notes, fmt.Sprintf("%s: trained on none of the %d rows.", id.model, c.of))
		}
	}
	if without > 0 {
		notes = append(notes, fmt.Sprintf("%d predictions lie far outside the rows trained on and have no interval; coverage leaves them out.", without))
	}
	return notes
}

// HeldOutFigure draws measured times as dots and what was predicted for each,
// when it was held out, as lines over the input length: one line for each of a
// few batch sizes, both modes.
func HeldOutFigure(title string, held []fit.Held) Figure {
	f := Figure{
		Title:    title,
		Subtitle: "dots: median of the measured runs; lines: predicted for each row by a model that had not seen it",
		X:        Axis{Label: "input length, tokens", Log: true},
		Y:        Axis{Label: "step time, ms", Log: true},
	}
	type key struct {
		mode  fit.Mode
		batch int
	}
	measured, predicted := map[key][]Dot{}, map[key][]Dot{}
	var keys []key
	for _, h := range held {
		k := key{h.Row.Mode, h.Row.BatchSize}
		if _, ok := measured[k]; !ok {
			keys = append(keys, k)
		}
		x := float64(h.Row.InputLen)
		measured[k] = append(measured[k], Dot{x, h.Row.Median * 1e3, ""})
		predicted[k] = append(predicted[k], Dot{x, h.Value.Milliseconds(), ""})
	}
	batches := map[fit.Mode][]int{}
	for _, k := range keys {
		batches[k.mode] = append(batches[k.mode], k.batch)
	}
	group := 0
	for _, mode := range []fit.Mode{fit.Prefill, fit.Decode} {
		for _, batch := range spread(batches[mode]) {
			k := key{mode, batch}
			byX := func(a, b Dot) int { return int(a.X - b.X) }
			slices.SortFunc(predicted[k], byX)
			group++
			f.Series = append(f.Series,
				Series{Name: fmt.Sprintf("%s, batch %d", mode, batch), Points: predicted[k], Line: true, Group: group},
				Series{Points: measured[k], Marks: true, Group: group})
		}
	}
	return f
}

// spread picks the smallest, a middle and the largest of some sizes.
func spread(sizes []int) []int {
	slices.Sort(sizes)
	if len(sizes) <= 3 {
		return sizes
	}
	return []int{sizes[0], sizes[len(sizes)/2], sizes[len(sizes)-1]}
}
