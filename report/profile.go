package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/profile"
)

// ImportDocument is the JSON of an import: what the profile holds.
type ImportDocument struct {
	Head
	// File is the profile that was written.
	File   string `json:"file"`
	Model  string `json:"model,omitempty"`
	Device string `json:"device,omitempty"`
	Engine string `json:"engine,omitempty"`
	// Points counts all points; the others are parts of it.
	Points   int `json:"points"`
	Prefill  int `json:"prefill"`
	Decode   int `json:"decode"`
	Mixed    int `json:"mixed"`
	Layers   int `json:"layers"`
	Memory   int `json:"memory"`
	Requests int `json:"requests"`
	Failures int `json:"failures"`
	// Samples counts single timings.
	Samples int `json:"samples"`
}

// Import counts what a profile holds; file is where it was written.
func Import(p *profile.Profile, file string, tool string) ImportDocument {
	h := p.Header
	d := ImportDocument{
		Head: NewHead("import", tool), File: file, Model: h.Deploy.Model,
		Device: h.Device.Name, Engine: strings.TrimSpace(h.Deploy.Engine + " " + h.Deploy.EngineVersion), Points: len(p.Points),
	}
	if d.Device == "" {
		d.Device = h.Device.Reported
	}
	for _, point := range p.Points {
		d.Samples += len(point.Samples)
		switch point.Kind {
		case profile.KindFailure:
			d.Failures++
			continue
		case profile.KindLayer:
			d.Layers++
		case profile.KindMemory:
			d.Memory++
		case profile.KindRequest:
			d.Requests++
		}
		if point.Step == nil {
			continue
		}
		switch point.Step.Mode {
		case profile.Prefill:
			d.Prefill++
		case profile.Decode:
			d.Decode++
		case profile.Mixed:
			d.Mixed++
		}
	}
	return d
}

// ImportTables shows an import.
func ImportTables(d ImportDocument) []Table {
	t := pairTable("")
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	t.pair("wrote", d.File)
	t.pair("model", or(d.Model, "not recorded"))
	t.pair("device", or(d.Device, "not recorded"))
	t.pair("engine", or(d.Engine, "not recorded"))
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{
		{d.Prefill, "prefill"},
		{d.Decode, "decode"},
		{d.Mixed, "mixed"},
		{d.Layers, "layers"},
		{d.Memory, "memory"},
		{d.Requests, "requests"},
		{d.Failures, "failed"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	points := strconv.Itoa(d.Points)
	if len(parts) > 0 {
		points += ": " + strings.Join(parts, ", ")
	}
	t.pair("points", points)
	t.pair("timings", strconv.Itoa(d.Samples))
	return []Table{t}
}

// LintDocument is the JSON of a lint.
type LintDocument struct {
	Head
	Points   int               `json:"points"`
	Findings []profile.Finding `json:"findings"`
}

// Lint builds the document of a lint.
func Lint(p *profile.Profile, findings []profile.Finding, tool string) LintDocument {
	if findings == nil {
		findings = []profile.Finding{}
	}
	return LintDocument{NewHead("lint", tool), len(p.Points), findings}
}

// LintTables shows a lint: one row a rule, and the examples below.
func LintTables(d LintDocument) []Table {
	t := Table{Columns: []Column{
		{Name: "severity", Left: true},
		{Name: "rule", Left: true},
		{Name: "count"},
		{Name: "finding", Left: true},
	}}
	examples := Table{Title: "Examples", Columns: []Column{{Name: "rule", Left: true}, {Name: "example", Left: true}}}
	for _, f := range d.Findings {
		t.Rows = append(t.Rows, []Cell{Say(string(f.Severity)), Say(string(f.Rule)), Whole(f.Count), Say(f.Message)})
		for _, example := range f.Examples {
			examples.Rows = append(examples.Rows, []Cell{Say(string(f.Rule)), Say(example)})
		}
	}
	t.Notes = []string{fmt.Sprintf("%d points checked", d.Points)}
	if len(examples.Rows) == 0 {
		return []Table{t}
	}
	return []Table{t, examples}
}
