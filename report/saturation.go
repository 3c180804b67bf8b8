package report

import (
	"github.com/llmprof/llmprof/load"
)

// SaturationDocument is the JSON of a search for the rate that keeps limits.
type SaturationDocument struct {
	Head
	Target string    `json:"target"`
	Model  string    `json:"model"`
	Limits load.SLOs `json:"slo"`
	load.Saturation
}

// Saturation builds the document of a search.
func Saturation(s *load.Saturation, limits load.SLOs, target, model, tool string) SaturationDocument {
	return SaturationDocument{Head: NewHead("saturation", tool), Target: target, Model: model, Limits: limits, Saturation: *s}
}

// SaturationTables shows a search.
func SaturationTables(d SaturationDocument) []Table {
	summary := pairTable("")
	summary.pair("server", d.Target)
	summary.pair("model", d.Model)
	for _, l := range d.Limits {
		summary.pair("limit", l.String())
	}
	rate := func(name string, v *float64, unit string) {
		text := "not found"
		if v != nil {
			text = Fixed(*v, 2).Text + " " + unit
		}
		summary.pair(name, text)
	}
	rate("rate that keeps the limits", d.Good, "requests/s")
	if d.Good != nil && !d.Confirmed {
		summary.pair("", "another seed did not confirm it")
	}
	if d.Short {
		summary.pair("", "but the runs were too short to tell: none served as much, since they ended before a queue could build up; give more --num-prompts or a --duration")
	}
	rate("knee", d.Knee, "requests/s")
	rate("highest throughput", d.MaxThroughput, "requests/s")
	rate("", d.MaxTokens, "output tok/s")
	steps := Table{Title: "Runs", Columns: []Column{
		{Name: "rate/s", Key: "rate"},
		{Name: "limits", Left: true},
		{Name: "completed"},
		{Name: "failed"},
		{Name: "req/s", Key: "request_throughput"},
		{Name: "share that kept them", Key: "goodput_share"},
		{Name: "TTFT p50 ms", Key: "ttft_sched_p50_ms"},
		{Name: "TTFT p90 ms", Key: "ttft_sched_p90_ms"},
		{Name: "TPOT p50 ms", Key: "tpot_p50_ms"},
	}}
	for _, s := range append([]load.SearchStep{d.Floor}, d.Steps...) {
		verdict := map[bool]string{true: "kept", false: "missed"}[s.Good]
		if s.Over {
			verdict = "over capacity"
		}
		first := Say("one at a time")
		if s.Rate > 0 {
			first = Fixed(s.Rate, 2)
		}
		w := &s.Whole
		steps.Rows = append(steps.Rows, []Cell{
			first, Say(verdict), Whole(w.Completed), Whole(w.Failed), known(2, w.RequestThroughput), known(3, w.GoodShare),
			known(1, w.TTFTSched.P50), known(1, w.TTFTSched.P90), known(2, w.TPOT.P50),
		})
	}
	steps.Notes = []string{"TTFT from schedule"}
	return []Table{summary, steps}
}
