// Package report turns results into tables and documents: values that a
// terminal, a CSV file, a Markdown page and a JSON reader all render from, so
// that they cannot disagree.
//
// A [Table] holds each cell twice: as text for people and as a raw value for
// machines. [Text], [CSV] and [Markdown] render tables; [JSON] and [YAML]
// write one document. The documents themselves ([Analysis], [Predictions],
// [Scores], …) are built from results by functions of this package and
// fix the JSON keys, with the unit in every key.
//
// Nothing here depends on the width of a terminal, on the locale or on the
// order of a map.
package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// Table is a titled grid of cells with notes below it.
type Table struct {
	// Title stands above the table in text and Markdown; empty for none.
	Title   string
	Columns []Column
	Rows    [][]Cell
	// Notes stand below the table, one a line.
	Notes []string
}

// Column heads one column.
type Column struct {
	// Name is the heading; a unit stands in it.
	Name string
	// Key is the heading in CSV: snake_case with the unit as suffix. Empty
	// means Name.
	Key string
	// Left aligns the column to the left; numbers stand right.
	Left bool
	// Idle names a text that says nothing: where every cell shows it, text
	// and Markdown leave the column out.
	Idle *string
}

// idle points to the text that a column may hold in vain.
func idle(text string) *string { return &text }

// shown is the table without its idle columns.
func (t Table) shown() Table {
	var keep []int
	for i, c := range t.Columns {
		inVain := c.Idle != nil
		for _, row := range t.Rows {
			inVain = inVain && row[i].Text == *c.Idle
		}
		if !inVain {
			keep = append(keep, i)
		}
	}
	if len(keep) == len(t.Columns) {
		return t
	}
	out := Table{Title: t.Title, Notes: t.Notes}
	for _, i := range keep {
		out.Columns = append(out.Columns, t.Columns[i])
	}
	for _, row := range t.Rows {
		kept := make([]Cell, len(keep))
		for k, i := range keep {
			kept[k] = row[i]
		}
		out.Rows = append(out.Rows, kept)
	}
	return out
}

// Cell is one entry.
type Cell struct {
	// Text is shown to people.
	Text string
	// Value is written to CSV; nil means Text.
	Value any
}

// Say returns a cell of plain text.
func Say(text string) Cell { return Cell{Text: text} }

// Whole returns a cell of a whole number.
func Whole[T ~int | ~int64](v T) Cell {
	return Cell{Text: strconv.FormatInt(int64(v), 10), Value: int64(v)}
}

// Fixed returns a cell of a number shown with the given decimals and kept
// exact for machines.
func Fixed(v float64, decimals int) Cell {
	return Cell{Text: strconv.FormatFloat(v, 'f', decimals, 64), Value: v}
}

// Shown returns a cell with separate text and value.
func Shown(text string, value any) Cell { return Cell{Text: text, Value: value} }

// Missing is the cell of something that was not measured or does not apply.
func Missing() Cell { return Cell{Text: "–", Value: ""} }

// Text writes tables as aligned plain text, a blank line between them.
func Text(w io.Writer, tables ...Table) error {
	var b strings.Builder
	for i, t := range tables {
		if i > 0 {
			b.WriteByte('\n')
		}
		t.shown().text(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t Table) text(b *strings.Builder) {
	if t.Title != "" {
		b.WriteString(t.Title + "\n")
	}
	widths := make([]int, len(t.Columns))
	headed := false
	for i, c := range t.Columns {
		widths[i] = utf8.RuneCountInString(c.Name)
		headed = headed || c.Name != ""
	}
	for _, row := range t.Rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell.Text))
		}
	}
	line := func(text func(i int) string) {
		var out strings.Builder
		for i, c := range t.Columns {
			if i > 0 {
				out.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text(i)))
			if c.Left {
				out.WriteString(text(i) + pad)
			} else {
				out.WriteString(pad + text(i))
			}
		}
		b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
	if headed {
		line(func(i int) string { return t.Columns[i].Name })
	}
	for _, row := range t.Rows {
		line(func(i int) string { return row[i].Text })
	}
	for _, note := range t.Notes {
		b.WriteString(note + "\n")
	}
}

// CSV writes tables as CSV with a header line each; a blank line separates
// them.
func CSV(w io.Writer, tables ...Table) error {
	for i, t := range tables {
		if i > 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		out := csv.NewWriter(w)
		record := make([]string, len(t.Columns))
		for j, c := range t.Columns {
			if record[j] = c.Key; c.Key == "" {
				record[j] = c.Name
			}
		}
		if err := out.Write(record); err != nil {
			return err
		}
		for _, row := range t.Rows {
			for j, cell := range row {
				record[j] = cell.raw()
			}
			if err := out.Write(record); err != nil {
				return err
			}
		}
		out.Flush()
		if err := out.Error(); err != nil {
			return err
		}
	}
	return nil
}

// raw prints the cell for machines: numbers in their shortest exact form.
func (c Cell) raw() string {
	switch v := c.Value.(type) {
	case nil:
		return c.Text
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

// Markdown writes tables as GitHub Markdown.
func Markdown(w io.Writer, tables ...Table) error {
	var b strings.Builder
	escape := strings.NewReplacer("|", `\|`, "\n", " ")
	for i, t := range tables {
		t = t.shown()
		if i > 0 {
			b.WriteByte('\n')
		}
		if t.Title != "" {
			b.WriteString("### " + t.Title + "\n\n")
		}
		for _, c := range t.Columns {
			b.WriteString("| " + escape.Replace(c.Name) + " ")
		}
		b.WriteString("|\n")
		for _, c := range t.Columns {
			if c.Left {
				b.WriteString("|:---")
			} else {
				b.WriteString("|---:")
			}
		}
		b.WriteString("|\n")
		for _, row := range t.Rows {
			for _, cell := range row {
				b.WriteString("| " + escape.Replace(cell.Text) + " ")
			}
			b.WriteString("|\n")
		}
		for _, note := range t.Notes {
			b.WriteString("\n" + note + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// JSON writes v as one indented document.
func JSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// YAML writes v as one YAML document with the keys and the order of its JSON.
func YAML(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text, err = yaml.JSONToYAML(text)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
