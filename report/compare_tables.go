package report

import (
	"fmt"
	"slices"
	"strings"
)

// ServedTables shows two served loads side by side.
func ServedTables(d ServedDocument) []Table {
	a, b := sideNames(d)
	summary := pairTable("")
	summary.pair(a, sideText(d.A))
	summary.pair(b, sideText(d.B))
	summary.pair("load", d.A.Workload.Spec)
	if d.B.Workload.Spec != d.A.Workload.Spec {
		summary.pair("", d.B.Workload.Spec)
	}
	tables := []Table{summary}
	for _, w := range []struct {
		title   string
		figures []ServedFigure
		notes   []string
	}{
		{"Whole run", d.Whole, nil},
		{"Steady part", d.Steady, nil},
		{"Engine, whole run", d.Engines, []string{"a server's steps are those that put tokens out, and its levels readings of its gauges; a simulation counts all and averages over time"}},
	} {
		if len(w.figures) > 0 {
			tables = append(tables, servedTable(w.title, a, b, w.figures, w.notes))
		}
	}
	if len(d.Bounds) > 0 {
		tables = append(tables, boundTable(d))
	}
	return tables
}

// sideNames are the headings of the two runs.
func sideNames(d ServedDocument) (a, b string) {
	if d.A.Kind == d.B.Kind {
		return d.A.Kind + " a", d.B.Kind + " b"
	}
	return d.A.Kind, d.B.Kind
}

func sideText(s ServedSide) string {
	tool := ""
	if s.Schema == "" { // of another load tool
		tool = s.Tool
	}
	parts := []string{s.File, tool, s.Verdict, s.Model, s.GPU, strings.TrimSpace(s.Engine + " " + s.Release)}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
}

// servedTable shows figures. What neither run knows has no row; notes name that,
// and what one of them does not know.
func servedTable(title, a, b string, figures []ServedFigure, notes []string) Table {
	t := Table{Title: title, Columns: []Column{
		{Name: "", Key: "figure", Left: true}, {Name: a, Key: keyOf(a)}, {Name: b, Key: keyOf(b)}, {Name: "difference", Key: "difference_percent"},
	}}
	var neither, notA, notB []string
	for _, f := range figures {
		switch {
		case f.A == nil && f.B == nil:
			neither = append(neither, f.text)
			continue
		case f.A == nil:
			notA = append(notA, f.text)
		case f.B == nil:
			notB = append(notB, f.text)
		}
		difference := Missing()
		if f.Difference != nil {
			difference = Shown(fmt.Sprintf("%+.2f %%", *f.Difference), *f.Difference)
			if *f.A == *f.B {
				difference = Shown("equal", 0.0)
			}
		}
		t.Rows = append(t.Rows, []Cell{Say(f.text), known(f.decimals, f.A), known(f.decimals, f.B), difference})
	}
	for _, missing := range []struct {
		where string
		what  []string
	}{{"not known in the one that was " + a, notA}, {"not known in the one that was " + b, notB}, {"known in neither", neither}} {
		if len(missing.what) > 0 {
			t.Notes = append(t.Notes, missing.where+": "+strings.Join(wholeLatencies(missing.what), "; "))
		}
	}
	t.Notes = append(t.Notes, notes...)
	return t
}

// wholeLatencies says a latency by its name alone where all its figures are in
// the list, in their order.
func wholeLatencies(names []string) []string {
	all := latencyFigures()
	var out []string
	for i := 0; i < len(names); i++ {
		metric, figure, _ := strings.Cut(names[i], " ")
		last := i + len(all) - 1
		if figure == all[0]+", ms" && last < len(names) && names[last] == metric+" "+all[len(all)-1]+", ms" {
			out = append(out, metric)
			i = last
			continue
		}
		out = append(out, names[i])
	}
	return out
}

func keyOf(name string) string { return strings.ReplaceAll(name, " ", "_") }

func boundTable(d ServedDocument) Table {
	t := Table{Title: "Bounds on means", Columns: []Column{
		{Name: "", Key: "metric", Left: true}, {Name: "window", Left: true}, {Name: "at most", Key: "bound_percent"}, {Name: "difference", Key: "difference_percent"}, {Name: "holds", Left: true},
	}}
	for _, b := range d.Bounds {
		difference, holds := Missing(), "no"
		if b.Difference != nil {
			difference = Shown(fmt.Sprintf("%+.2f %%", *b.Difference), *b.Difference)
		}
		if b.Holds {
			holds = "yes"
		}
		t.Rows = append(t.Rows, []Cell{
			Say(strings.ToUpper(string(b.Metric))), Say(string(b.Window)), Shown(fmt.Sprintf("%g %%", b.Percent), b.Percent), difference, Say(holds),
		})
	}
	return t
}
