package report_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// judged is one calculator on profiles of the given totals, all of which it
// expects to be 10 GB.
func judged(scheme memory.Scheme, totals ...unit.Bytes) memory.Report {
	r := memory.Report{Scheme: scheme}
	for i, total := range totals {
		c := memory.Comparison{Component: memory.Total, What: "total with total", Measured: total, Calculated: 10e9, Diff: total - 10e9}
		ofCalculated := float64(c.Diff) / 10e9 * 100
		c.OfCalculated = &ofCalculated
		if total > 0 {
			ofMeasured := float64(c.Diff) / float64(total) * 100
			c.OfMeasured = &ofMeasured
		}
		if p, ok := c.Percent(scheme); ok {
			c.Class = scheme.Class(p)
		}
		r.Verdicts = append(r.Verdicts, memory.Verdict{
			Source: fmt.Sprintf("p%d.json", i), Model: "m", Calculator: "x", Comparisons: []memory.Comparison{c}, Class: c.Class,
			Skipped: []string{"weights: not measured"}, Notes: []string{"a reserve is assumed"},
		})
	}
	return r
}

func texts(t report.Table) [][]string {
	var rows [][]string
	for _, row := range t.Rows {
		var cells []string
		for _, cell := range row {
			cells = append(cells, cell.Text)
		}
		rows = append(rows, cells)
	}
	return rows
}

func table(t *testing.T, tables []report.Table, title string) report.Table {
	t.Helper()
	for _, found := range tables {
		if strings.HasPrefix(found.Title, title) {
			return found
		}
	}
	t.Fatalf("no table %q", title)
	return report.Table{}
}

func TestMemoryErrors(t *testing.T) {
	twenty := 20.0
	for _, c := range []struct {
		why       string
		scheme    memory.Scheme
		threshold *float64
		want      [][]string // profile, measured, calculated, total %, quality
	}{
		{"of the measured size; an overestimate is negative", memory.Guide, nil, [][]string{
			{"p0.json", "8.00", "10.00", "-25.0", "bad"},
			{"p1.json", "11.00", "10.00", "+9.1", "fair"},
			{"p2.json", "0.00", "10.00", "–", "–"},
		}},
		{"of the calculated size", memory.BatchValidate, nil, [][]string{
			{"p0.json", "8.00", "10.00", "-20.0", "Fair"},
			{"p1.json", "11.00", "10.00", "+10.0", "Good"},
			{"p2.json", "0.00", "10.00", "-100.0", "Poor"},
		}},
		{"either sign above the threshold, and what has no percentage", memory.Guide, &twenty, [][]string{
			{"p0.json", "8.00", "10.00", "-25.0", "bad"},
			{"p2.json", "0.00", "10.00", "–", "–"},
		}},
		{"at the threshold is not above it", memory.BatchValidate, &twenty, [][]string{{"p2.json", "0.00", "10.00", "-100.0", "Poor"}}},
	} {
		t.Run(c.why, func(t *testing.T) {
			d := report.MemoryValidation(judged(c.scheme, 8e9, 11e9, 0), report.MemoryReading{Profiles: 3}, "test")
			if c.threshold != nil {
				d = d.Above(*c.threshold)
			}
			var got [][]string
			for _, row := range texts(table(t, report.MemoryValidationTables(d, false), "Errors in % of the "+d.Basis)) {
				got = append(got, []string{row[0], row[2], row[3], row[4], row[len(row)-1]})
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMemoryValidationDocument(t *testing.T) {
	text, err := json.Marshal(report.MemoryValidation(memory.Report{Scheme: memory.Guide}, report.MemoryReading{}, "test"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"schema":"llmprof/memory-validation","version":"1.0","tool":"test","scheme":"guide","percent_of":"measured","compat":false,` +
		`"profiles":0,"passed_over":0,"comparisons":[],"calculators":[],"unusable":[],"unreadable":[],"remarks":[]}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	r := judged(memory.Guide, 0)
	text, err = json.Marshal(report.MemoryValidation(r, report.MemoryReading{}, "test").Comparisons[0])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"diff_pct_of_measured":null,"diff_pct_of_calculated":-100,"quality":null`) || !strings.Contains(string(text), `"quality":null,"components"`) {
		t.Errorf("a percentage of zero is not null: %s", text)
	}
}

func TestMemorySummaries(t *testing.T) {
	r := judged(memory.Guide, 8e9)
	r.Unusable = []memory.Unusable{{Source: "u.json", Model: "m", Reasons: []string{"no total", "no batch"}}}
	r.Summaries = []memory.Summary{{
		Calculator: "x", Judged: 1,
		Missed: []memory.Missed{{Source: "q.json", Model: "m", Err: errors.New("not known")}},
		Bias: []memory.Bias{
			{Component: memory.Total, N: 1, Few: true, MeanAbs: 25, Mean: -25, Ratio: 1.25},
			{Component: memory.KVCache, N: 4, MeanAbs: 60751.8, Mean: -60751.8, Ratio: 608.518},
			{Component: memory.Weights, N: 4, MeanAbs: 1, Mean: 1},
		},
		Groups:          []memory.Group{{By: "batch", Name: "8", N: 4, MeanAbs: 25, Mean: -25}},
		Issues:          []memory.Issue{{Severity: memory.Critical, Text: "far off", N: 4}},
		Recommendations: []memory.Recommendation{{Component: memory.KVCache, Text: "count heads", N: 1, Few: true, Evidence: []memory.Point{{Source: "p0.json", Measured: 1, Calculated: 4}}}},
	}}
	in := report.MemoryReading{Profiles: 9, PassedOver: 2, Unreadable: []report.MemoryUnreadableKeys{{File: "z.json", Reason: "cut off"}}}
	for _, remark := range []string{"common", "a", "common", "b", "c", "d", "e", "f", "common"} {
		in.Remarks = append(in.Remarks, report.MemoryProfileRemarkKeys{Profile: "p", Remark: remark})
	}
	d := report.MemoryValidation(r, in, "test")
	tables := report.MemoryValidationTables(d, true)
	for title, want := range map[string][][]string{
		"Mean errors": {
			{"x", "total", "1 (few)", "25.0", "-25.0", "1.250", "overestimates"},
			{"x", "KV cache", "4", "607.5 ×", "-607.5 ×", "608.518", "overestimates"},
			{"x", "weights", "4", "1.0", "+1.0", "–", "underestimates"},
		},
		"Errors of the total": {{"x", "batch", "8", "4", "25.0", "-25.0"}},
		"Issues":              {{"critical", "x", "4", "far off"}},
		"Recommendations":     {{"x", "1 (few)", "count heads"}},
		"Left out": {
			{"z.json", "all", "unreadable: cut off"},
			{"u.json", "all", "unusable: no total; no batch"},
			{"q.json", "x", "not known"},
		},
		"Every comparison": {{"p0.json", "x", "total", "8.00", "10.00", "-2.00", "-25.0", "-20.0", "bad", "total with total"}},
		"Not compared":     {{"p0.json", "x", "weights: not measured"}, {"p0.json", "x", "a reserve is assumed"}},
	} {
		if diff := cmp.Diff(want, texts(table(t, tables, title))); diff != "" {
			t.Errorf("%s: %s", title, diff)
		}
	}
	wantNotes := []string{
		"passed over: 2 JSON files that are no memory profiles",
		"3 of 9 profiles: common", "1 of 9 profiles: a", "1 of 9 profiles: b", "1 of 9 profiles: c", "1 of 9 profiles: d", "1 of 9 profiles: e",
		"1 further remarks stand in the JSON document",
	}
	if diff := cmp.Diff(wantNotes, table(t, tables, "Errors in").Notes); diff != "" {
		t.Error(diff)
	}
	if len(d.Calculators) != 1 || len(d.Calculators[0].Recommendations[0].Evidence) != 1 || d.Calculators[0].Bias[2].Ratio != nil {
		t.Errorf("%+v", d.Calculators)
	}
}
