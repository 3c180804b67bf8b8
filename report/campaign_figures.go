package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

// CampaignFigures draws a campaign: for each load of a model its memory by part
// and its latency, over the batch size and over the length; then the memory
// that was measured against the one that was predicted, where that is known.
// What did not vary is not drawn.
func CampaignFigures(d CampaignDocument) []Figure {
	measured, _ := split(d.Rows)
	var figures []Figure
	for _, ofModel := range grouped(measured, modelOf) {
		_, differ := varying(ofModel)
		for _, rows := range grouped(ofModel, func(r CampaignRow) string { return r.LoadKey() }) {
			title := withSettings(rows[0].ModelID, rows[0], differ)
			for _, f := range []Figure{
				memoryOver(title, rows, "batch size", batchOf, lengthsText),
				memoryOver(title, rows, "input and output, tokens", lengthOf, batchText),
				latencyOver(title, rows),
			} {
				if len(f.Series) > 0 {
					figures = append(figures, f)
				}
			}
		}
	}
	if f := predictedFigure(measured); len(f.Series) > 0 {
		figures = append(figures, f)
	}
	return figures
}

func batchOf(r CampaignRow) int { return r.BatchSize }

func lengthOf(r CampaignRow) int { return r.InputLen + r.OutputLen }

func lengthsText(r CampaignRow) string {
	return fmt.Sprintf("%d tokens in, %d out", r.InputLen, r.OutputLen)
}

func batchText(r CampaignRow) string { return fmt.Sprintf("batch %d", r.BatchSize) }

// distinct counts the values of x.
func distinct(rows []CampaignRow, x func(CampaignRow) int) int { return len(grouped(rows, x)) }

// widest is the group in which x has most values, the last of equals, which is
// the largest as a rule, in rising order; nil where x does not vary.
func widest(rows []CampaignRow, x func(CampaignRow) int, fixed func(CampaignRow) string) []CampaignRow {
	groups := grouped(rows, fixed)
	slices.Reverse(groups)
	best := slices.MaxFunc(groups, func(a, b []CampaignRow) int { return cmp.Compare(distinct(a, x), distinct(b, x)) })
	if distinct(best, x) < 2 {
		return nil
	}
	return slices.SortedStableFunc(slices.Values(best), func(a, b CampaignRow) int { return cmp.Compare(x(a), x(b)) })
}

// memoryOver draws the parts of the memory; a figure without series where x
// does not vary.
func memoryOver(title string, rows []CampaignRow, label string, x func(CampaignRow) int, fixed func(CampaignRow) string) Figure {
	f := Figure{Title: "Memory of " + title, X: Axis{Label: label}, Y: Axis{Label: "memory, GB (1e9 bytes)"}}
	best := widest(rows, x, fixed)
	if best == nil {
		return f
	}
	f.Subtitle = fixed(best[0]) + "; all devices together"
	add := func(name string, group int, faint bool, size func(*memprofile.Document) *unit.Bytes) {
		s := Series{Name: name, Line: true, Marks: true, Group: group, Faint: faint}
		for _, r := range best {
			if b := size(r.Profile); b != nil {
				s.Points = append(s.Points, Dot{X: float64(x(r)), Y: float64(*b) / 1e9})
			}
		}
		if len(s.Points) > 0 {
			f.Series = append(f.Series, s)
		}
	}
	add("peak", 0, false, func(d *memprofile.Document) *unit.Bytes { return d.MemoryBreakdown.TotalMeasuredBytes })
	for i, part := range partNames() {
		add(part[1], i+1, false, func(d *memprofile.Document) *unit.Bytes {
			if p := d.MemoryBreakdown.Part(part[0]); p != nil {
				return p.Bytes
			}
			return nil
		})
		if part[0] == memprofile.PartKVCache {
			add("KV cache in use", i+1, true, func(d *memprofile.Document) *unit.Bytes { return d.KVCache.UsedBytes })
		}
	}
	return f
}

// latencyOver draws the latency over the batch size, a line for each pair of
// lengths; without series where the batch size does not vary.
func latencyOver(title string, rows []CampaignRow) Figure {
	f := Figure{
		Title: "Latency of " + title, Subtitle: "mean of the timed runs, from the prompts to the last token",
		X: Axis{Label: "batch size"}, Y: Axis{Label: "latency of a batch, ms"},
	}
	for i, group := range grouped(rows, lengthsText) {
		line := widest(group, batchOf, lengthsText)
		s := Series{Name: lengthsText(group[0]), Line: true, Marks: true, Group: i + 1}
		for _, r := range line {
			if ms := r.Profile.LatencyStats.MeanMs; ms != nil {
				s.Points = append(s.Points, Dot{X: float64(r.BatchSize), Y: *ms})
			}
		}
		if len(s.Points) > 1 {
			f.Series = append(f.Series, s)
		}
	}
	return f
}

// predictedFigure draws measured over predicted memory beside the line on
// which they are equal.
func predictedFigure(rows []CampaignRow) Figure {
	f := Figure{
		Title: "Memory, measured and predicted", Subtitle: "peak of all devices together; on the line both are equal",
		X: Axis{Label: "predicted, GB (1e9 bytes)"}, Y: Axis{Label: "measured, GB (1e9 bytes)"},
	}
	most := 0.0
	for i, group := range grouped(rows, modelOf) {
		s := Series{Name: group[0].ModelID, Marks: true, Group: i + 1}
		for _, r := range group {
			if total := r.Profile.MemoryBreakdown.TotalMeasuredBytes; total != nil && r.Predicted != nil {
				dot := Dot{X: float64(*r.Predicted) / 1e9, Y: float64(*total) / 1e9}
				s.Points = append(s.Points, dot)
				most = max(most, dot.X, dot.Y)
			}
		}
		if len(s.Points) > 0 {
			f.Series = append(f.Series, s)
		}
	}
	if len(f.Series) > 0 {
		f.Series = append([]Series{{Name: "equal", Line: true, Faint: true, Points: []Dot{{}, {X: most, Y: most}}}}, f.Series...)
	}
	return f
}
