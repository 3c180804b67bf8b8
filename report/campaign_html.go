package report

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

//go:embed campaign.html
var campaignPage string

// CampaignHTML writes a campaign as one page that needs nothing else: figures,
// style and script are part of it, and without scripts only the sorting of
// tables is missing. The svgs are the drawn [CampaignFigures].
func CampaignHTML(w io.Writer, d CampaignDocument, svgs []string) error {
	page, err := template.New("campaign").Parse(campaignPage)
	if err != nil {
		return fmt.Errorf("read the page of a campaign: %w", err)
	}
	data := pageData{Title: d.title(), Document: d, Summary: campaignSummary(d).Rows, Counts: countKeys(d.Run.Counts)}
	for _, svg := range svgs {
		if !strings.HasPrefix(svg, "<svg ") || strings.Contains(strings.ToLower(svg), "<script") {
			return errors.New("write the page of a campaign: a figure is not a plain SVG drawing")
		}
		data.Figures = append(data.Figures, template.HTML(svg))
	}
	measured, missing := split(d.Rows)
	for _, rows := range grouped(measured, modelOf) {
		data.Models = append(data.Models, pageModelOf(rows))
	}
	if len(missing) > 0 {
		data.Missing = pageMissingOf(missing, d.Rows)
	}
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("write the page of a campaign: %w", err)
	}
	return nil
}

// pageData is what the page shows.
type pageData struct {
	Title    string
	Document CampaignDocument
	Summary  [][]Cell
	Counts   []stateCount
	Models   []pageModel
	Missing  []pageMissing
	Figures  []template.HTML
}

type stateCount struct {
	State string
	Count int
}

type pageMissing struct {
	Model, Sizes, State string
	Attempts            int
	Reason, Hint        string
}

// pageModel is one model: its legend, a bar a cell, and the table.
type pageModel struct {
	Name, Settings string
	Legend         []barPart
	Bars           []bar
	Columns        []Column
	Rows           [][]pageCell
	Notes          []string
}

// pageCell is a cell with the value by which its column is sorted.
type pageCell struct {
	Text, Sort string
	Left       bool
}

// bar is the memory of one cell; widths are in percent of the widest bar.
type bar struct {
	Label, Total, Detail string
	Faulty               bool // its figures contradict each other
	Parts                []barPart
}

type barPart struct {
	Class, Name, Size string
	Width             float64 // percent
	bytes             unit.Bytes
}

func countKeys(counts map[string]int) []stateCount {
	var out []stateCount
	for _, s := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, stateCount{s, counts[s]})
	}
	return out
}

func pageMissingOf(rows, all []CampaignRow) []pageMissing {
	differ := askedApart(all)
	out := make([]pageMissing, len(rows))
	for i, r := range rows {
		out[i] = pageMissing{Model: r.ModelID, Sizes: withSettings(sizesText(r), r, differ), State: r.State, Attempts: r.Attempts, Reason: r.reason(), Hint: r.Hint}
	}
	return out
}

func pageModelOf(rows []CampaignRow) pageModel {
	t := modelTable(rows).shown()
	shared, differ := varying(rows)
	m := pageModel{Name: t.Title, Settings: shared, Columns: t.Columns, Notes: t.Notes[:len(t.Notes)-1]}
	for _, row := range t.Rows {
		cells := make([]pageCell, len(row))
		for i, c := range row {
			cells[i] = pageCell{c.Text, c.raw(), t.Columns[i].Left}
		}
		m.Rows = append(m.Rows, cells)
	}
	most := unit.Bytes(1)
	parts := make([][]barPart, len(rows))
	for i, r := range rows {
		parts[i] = barParts(r)
		sum := unit.Bytes(0)
		for _, p := range parts[i] {
			sum += p.bytes
		}
		most = max(most, sum)
	}
	for i, r := range rows {
		b := bar{Label: withSettings(sizesText(r), r, differ), Total: "not measured", Faulty: !r.Profile.MemoryBreakdown.Consistent}
		if total := r.Profile.MemoryBreakdown.TotalMeasuredBytes; total != nil {
			b.Total = gbCell(total).Text + " GB"
		}
		var detail []string
		for _, p := range parts[i] {
			p.Width = math.Round(float64(p.bytes)/float64(most)*1e4) / 100
			b.Parts = append(b.Parts, p)
			detail = append(detail, p.Name+" "+p.Size)
			if !slices.ContainsFunc(m.Legend, func(l barPart) bool { return l.Class == p.Class }) {
				m.Legend = append(m.Legend, p)
			}
		}
		b.Detail = strings.Join(detail, ", ")
		m.Bars = append(m.Bars, b)
	}
	return m
}

// barParts are the parts of a cell's memory that have a size, from the baseline
// on. The KV cache shows what was in use of it where that is known.
func barParts(r CampaignRow) []barPart {
	b := &r.Profile.MemoryBreakdown
	var parts []barPart
	add := func(class, name string, size *unit.Bytes) {
		if size != nil && *size > 0 {
			parts = append(parts, barPart{Class: class, Name: name, Size: gbCell(size).Text + " GB", bytes: *size})
		}
	}
	add("baseline", "baseline", b.BaselineBytes)
	for _, p := range b.Parts {
		name := strings.ReplaceAll(p.Name, "_", " ")
		class := "other"
		for _, known := range partNames() {
			if known[0] == p.Name {
				class, name = known[0], known[1]
			}
		}
		used := r.Profile.KVCache.UsedBytes
		if p.Name == memprofile.PartKVCache && p.Bytes != nil && used != nil && *used >= 0 && *used <= *p.Bytes {
			free := *p.Bytes - *used
			add("kv_used", "KV cache in use", used)
			add(class, "KV cache set aside", &free)
			continue
		}
		add(class, name, p.Bytes)
	}
	if known := len(parts); known > 0 {
		add("unexplained", "unexplained", b.UnexplainedBytes)
	} else {
		add("unexplained", "not split", b.TotalMeasuredBytes)
	}
	return parts
}
