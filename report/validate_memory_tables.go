package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/fit/memory"
)

// MemoryValidationTables shows the document: errors by component, means,
// patterns, issues and recommendations; with detailed every size that was
// compared and what each calculator assumed.
func MemoryValidationTables(d MemoryValidationDocument, detailed bool) []Table {
	tables := []Table{memoryErrors(d)}
	if detailed {
		tables = append(tables, memoryDetails(d), memorySkipped(d))
	}
	tables = append(tables, memoryMeans(d), memoryPatterns(d), memoryIssues(d), memoryRecommendations(d), memoryLeftOut(d))
	return slices.DeleteFunc(tables, func(t Table) bool { return len(t.Rows) == 0 && len(t.Notes) == 0 })
}

// signed prints a percentage with its sign.
func signed(p *float64) Cell {
	if p == nil {
		return Missing()
	}
	return Shown(percentText("%+.1f", *p), *p)
}

// unsigned prints the size of a percentage.
func unsigned(p float64) Cell { return Shown(percentText("%.1f", p), p) }

// percentText prints a percentage; beyond 999 it says how many times the whole
// it is.
func percentText(format string, p float64) string {
	if math.Abs(p) > 999 {
		return fmt.Sprintf(format+" ×", p/100)
	}
	return fmt.Sprintf(format, p)
}

func quality(q *string) Cell {
	if q == nil {
		return Missing()
	}
	return Say(*q)
}

// counted is a number of profiles, marked where they are too few for a pattern.
func counted(n int, few bool) Cell {
	if few {
		return Shown(fmt.Sprintf("%d (few)", n), int64(n))
	}
	return Whole(n)
}

func memoryErrors(d MemoryValidationDocument) Table {
	t := Table{Title: fmt.Sprintf("Errors in %% of the %s size; negative: the calculator overestimates", d.Basis), Columns: []Column{
		{Name: "profile", Left: true},
		{Name: "calculator", Left: true},
		{Name: "measured GB", Key: "measured_gb", Idle: idle(Missing().Text)},
		{Name: "calculated GB", Key: "calculated_gb", Idle: idle(Missing().Text)},
	}}
	for _, c := range memory.Components() {
		t.Columns = append(t.Columns, Column{Name: string(c) + " %", Key: strings.ReplaceAll(strings.ToLower(string(c)), " ", "_") + "_error_pct", Idle: idle(Missing().Text)})
	}
	t.Columns = append(t.Columns, Column{Name: "quality", Left: true})
	for _, v := range d.Comparisons {
		row := []Cell{Say(v.Profile), Say(v.Calculator), Missing(), Missing()}
		if total := v.part(memory.Total); total != nil {
			row[2], row[3] = inGB(total.Measured), inGB(total.Calculated)
		}
		for _, c := range memory.Components() {
			row = append(row, signed(d.percent(v, c)))
		}
		t.Rows = append(t.Rows, append(row, quality(v.Quality)))
	}
	t.Notes = memoryErrorNotes(d)
	return t
}

// maxRemarks bounds the remarks below a table; the document has all.
const maxRemarks = 6

// memoryErrorNotes say how the profiles were read, which are not in the list,
// and what of those in it is left out.
func memoryErrorNotes(d MemoryValidationDocument) []string {
	var notes []string
	if d.Compat {
		notes = append(notes, "read as LLM Sizer does: parts that were computed stand as measured, and the whole peak, with an idle KV pool, as the need")
	}
	if d.Threshold != nil {
		notes = append(notes, fmt.Sprintf("listed are totals that are off by more than %g %%, and what has none; means and files hold all", *d.Threshold))
	}
	if d.PassedOver > 0 {
		notes = append(notes, fmt.Sprintf("passed over: %d JSON files that are no memory profiles", d.PassedOver))
	}
	var remarks []string
	n := map[string]int{}
	for _, r := range d.Remarks {
		if n[r.Remark] == 0 {
			remarks = append(remarks, r.Remark)
		}
		n[r.Remark]++
	}
	for _, r := range remarks[:min(len(remarks), maxRemarks)] {
		notes = append(notes, fmt.Sprintf("%d of %d profiles: %s", n[r], d.Profiles, r))
	}
	if more := len(remarks) - maxRemarks; more > 0 {
		notes = append(notes, fmt.Sprintf("%d further remarks stand in the JSON document", more))
	}
	return notes
}

// memoryDetails lists every size that was compared.
func memoryDetails(d MemoryValidationDocument) Table {
	t := Table{Title: "Every comparison, over all GPUs", Columns: []Column{
		{Name: "profile", Left: true},
		{Name: "calculator", Left: true},
		{Name: "component", Left: true},
		{Name: "measured GB", Key: "measured_gb"},
		{Name: "calculated GB", Key: "calculated_gb"},
		{Name: "difference GB", Key: "diff_gb"},
		{Name: "% of measured", Key: "diff_pct_of_measured"},
		{Name: "% of calculated", Key: "diff_pct_of_calculated"},
		{Name: "quality", Left: true},
		{Name: "what was compared", Key: "what", Left: true},
	}}
	for _, v := range d.Comparisons {
		for _, c := range v.Components {
			t.Rows = append(t.Rows, []Cell{
				Say(v.Profile), Say(v.Calculator), Say(c.Component), inGB(c.Measured), inGB(c.Calculated), inGB(c.Diff),
				signed(c.OfMeasured), signed(c.OfCalculated), quality(c.Quality), Say(c.What),
			})
		}
	}
	return t
}

// memorySkipped lists what was not compared and what was assumed.
func memorySkipped(d MemoryValidationDocument) Table {
	t := Table{Title: "Not compared, and assumed", Columns: []Column{
		{Name: "profile", Left: true},
		{Name: "calculator", Left: true},
		{Name: "remark", Left: true},
	}}
	for _, v := range d.Comparisons {
		for _, text := range slices.Concat(v.Skipped, v.Notes) {
			t.Rows = append(t.Rows, []Cell{Say(v.Profile), Say(v.Calculator), Say(text)})
		}
	}
	return t
}

func memoryMeans(d MemoryValidationDocument) Table {
	t := Table{Title: "Mean errors by component", Columns: []Column{
		{Name: "calculator", Left: true},
		{Name: "component", Left: true},
		{Name: "profiles"},
		{Name: "mean size of the error %", Key: "mean_abs_error_pct"},
		{Name: "mean error %", Key: "mean_error_pct"},
		{Name: "calculated / measured", Key: "calculated_over_measured"},
		{Name: "the calculator", Key: "direction", Left: true},
	}}
	for _, c := range d.Calculators {
		for _, b := range c.Bias {
			ratio := Missing()
			if b.Ratio != nil {
				ratio = Fixed(*b.Ratio, 3)
			}
			t.Rows = append(t.Rows, []Cell{
				Say(c.Calculator), Say(b.Component), counted(b.Profiles, b.Few), unsigned(b.MeanAbs), signed(&b.Mean), ratio, Say(b.Direction),
			})
		}
	}
	return t
}

func memoryPatterns(d MemoryValidationDocument) Table {
	t := Table{Title: "Errors of the total by kind of run", Columns: []Column{
		{Name: "calculator", Left: true},
		{Name: "by", Left: true},
		{Name: "group", Left: true},
		{Name: "profiles"},
		{Name: "mean size of the error %", Key: "mean_abs_error_pct"},
		{Name: "mean error %", Key: "mean_error_pct"},
	}}
	for _, c := range d.Calculators {
		for _, p := range c.Patterns {
			t.Rows = append(t.Rows, []Cell{
				Say(c.Calculator), Say(p.By), Say(p.Group), counted(p.Profiles, p.Few), unsigned(p.MeanAbs), signed(&p.Mean),
			})
		}
	}
	return t
}

func memoryIssues(d MemoryValidationDocument) Table {
	t := Table{Title: "Issues", Columns: []Column{
		{Name: "severity", Left: true},
		{Name: "calculator", Left: true},
		{Name: "profiles"},
		{Name: "issue", Left: true},
	}}
	for _, c := range d.Calculators {
		for _, i := range c.Issues {
			t.Rows = append(t.Rows, []Cell{Say(i.Severity), Say(c.Calculator), counted(i.Profiles, i.Few), Say(i.Text)})
		}
	}
	return t
}

func memoryRecommendations(d MemoryValidationDocument) Table {
	t := Table{Title: "Recommendations", Columns: []Column{
		{Name: "calculator", Left: true},
		{Name: "profiles"},
		{Name: "recommendation", Left: true},
	}}
	for _, c := range d.Calculators {
		for _, r := range c.Recommendations {
			t.Rows = append(t.Rows, []Cell{Say(c.Calculator), counted(r.Profiles, r.Few), Say(r.Text)})
		}
	}
	return t
}

// memoryLeftOut lists what enters no mean.
func memoryLeftOut(d MemoryValidationDocument) Table {
	t := Table{Title: "Left out", Columns: []Column{
		{Name: "profile", Left: true},
		{Name: "calculator", Left: true},
		{Name: "reason", Left: true},
	}}
	for _, u := range d.Unreadable {
		t.Rows = append(t.Rows, []Cell{Say(u.File), Say("all"), Say("unreadable: " + u.Reason)})
	}
	for _, u := range d.Unusable {
		t.Rows = append(t.Rows, []Cell{Say(u.Profile), Say("all"), Say("unusable: " + strings.Join(u.Reasons, "; "))})
	}
	for _, c := range d.Calculators {
		for _, m := range c.Missed {
			t.Rows = append(t.Rows, []Cell{Say(m.Profile), Say(c.Calculator), Say(strings.Join(m.Reasons, "; "))})
		}
	}
	return t
}
