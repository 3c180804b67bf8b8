package report

import (
	"strings"
	"testing"

	"github.com/llmprof/llmprof/load"
)

// TestVerdictsOfSimulation shows each limit on a quantile with what was found.
func TestVerdictsOfSimulation(t *testing.T) {
	ttft, itl := load.SLO{Metric: load.TTFT, Quantile: 0.99, Limit: 50}, load.SLO{Metric: load.ITL, Quantile: 0.9, Limit: 20}
	d := SimulationDocument{
		Whole:   load.Summary{SLOs: []load.Verdict{{SLO: ttft, Found: new(60.0)}}},
		Steady:  load.Summary{SLOs: []load.Verdict{{SLO: ttft, Found: new(40.0), Met: true}}},
		Classes: []SimulatedClass{{Name: "chat", Summary: load.Summary{SLOs: []load.Verdict{{SLO: itl}}}}},
	}
	var got []string
	for _, row := range simulatedVerdicts(d).Rows {
		var cells []string
		for _, c := range row {
			cells = append(cells, c.Text)
		}
		got = append(got, strings.Join(cells, "|"))
	}
	want := "whole run|ttft:p99<50ms|60.00|missed\nsteady part|ttft:p99<50ms|40.00|met\nclass chat|itl:p90<20ms|–|not known"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if w := unjudged(d.Classes); len(w) != 1 || w[0] != "class chat: itl:p90<20ms is not judged: itl by class is not known" {
		t.Errorf("warnings %q", w)
	}
	d.Classes[0].Targets, d.Whole.GoodShare = []string{"itl:p90<20ms"}, new(0.25)
	missed := strings.Join(MissedLimits(&d), "\n")
	if want := "ttft:p99<50ms is 60.00 ms\nitl:p90<20ms of class chat is not known\n25.0 % of the requests keep their limits"; missed != want {
		t.Errorf("missed:\n%s\nwant\n%s", missed, want)
	}
	d.Classes, d.Whole.SLOs, d.Whole.GoodShare = nil, d.Steady.SLOs, new(1.0)
	if missed := MissedLimits(&d); len(missed) > 0 {
		t.Errorf("all are met, and these missed: %q", missed)
	}
}
