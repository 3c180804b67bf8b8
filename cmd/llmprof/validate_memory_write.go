package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/report"
)

// writeMemoryFiles writes the files that are asked for; first names the
// calculator of those that have room for one.
func writeMemoryFiles(document *report.MemoryValidationDocument, in *memoryInput, first string, f *validateMemoryFlags) error {
	for _, out := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{f.csv, func(w io.Writer) error { return in.writeValidation(w, *document, first) }},
		{f.record, func(w io.Writer) error { return in.appendRecords(w, f.record, *document, first) }},
		{f.summary, func(w io.Writer) error {
			return report.Text(w, report.MemoryValidationTables(*document, f.detailed)...)
		}},
	} {
		if out.name == "" {
			continue
		}
		if err := writeFile(out.name, out.write); err != nil {
			return err
		}
		document.Files = append(document.Files, out.name)
	}
	return nil
}

// rows are the comparisons in the columns of batch-validate; of those with
// several calculators, the comparison with the one named. A size that was not
// compared is that of the profile.
func (in *memoryInput) rows(document report.MemoryValidationDocument, calculator string) []memprofile.ValidationRow {
	var rows []memprofile.ValidationRow
	for _, v := range document.Comparisons {
		i := slices.IndexFunc(in.profiles, func(p memoryProfile) bool { return p.measured.Source == v.Profile })
		if i < 0 || v.Calculator != calculator && v.Calculator != in.recorded.Name() {
			continue
		}
		rows = append(rows, in.profiles[i].compared(v))
	}
	return rows
}

// compared completes the row of a profile.
func (p memoryProfile) compared(v report.MemoryVerdictKeys) memprofile.ValidationRow {
	m, row := p.measured, p.row
	row.MatchedModel, row.MatchedGPU, row.InferenceQuant, row.KVQuant = m.Model, m.Device, m.Quantization, string(m.KVDType)
	if row.InferenceQuant == "" {
		row.InferenceQuant = string(m.WeightDType)
	}
	if v.Quality != nil {
		row.MatchQuality = *v.Quality
	}
	inGB := func(bytes int64) *float64 {
		gb := float64(bytes) / 1e9
		return &gb
	}
	cache := m.KVUsed
	if cache == nil && !m.Preallocates {
		cache = m.KVCache
	}
	for _, c := range []struct {
		component            memory.Component
		measured, calculated **float64
		own                  *int64
	}{
		{memory.Total, &row.TotalGB, &row.CalculatorTotalGB, (*int64)(m.Total)},
		{memory.Weights, &row.WeightsGB, &row.CalculatorWeightsGB, (*int64)(m.Weights)},
		{memory.KVCache, &row.KVGB, &row.CalculatorKVGB, (*int64)(cache)},
		{memory.Activations, &row.ActivationsGB, &row.CalculatorActivationsGB, (*int64)(m.Activations)},
		{memory.Overhead, &row.OverheadGB, &row.CalculatorOverheadGB, (*int64)(m.Overhead)},
	} {
		*c.measured = nil
		if c.own != nil {
			*c.measured = inGB(*c.own)
		}
		for _, found := range v.Components {
			if found.Component == string(c.component) {
				*c.measured, *c.calculated = inGB(found.Measured), inGB(found.Calculated)
			}
		}
	}
	return row
}

// writeValidation writes the comparisons in the columns of batch-validate.
func (in *memoryInput) writeValidation(w io.Writer, document report.MemoryValidationDocument, calculator string) error {
	return memprofile.WriteValidation(w, in.rows(document, calculator))
}

// appendRecords writes what the file holds, and below it the comparisons in
// the columns of validate-profile.
func (in *memoryInput) appendRecords(w io.Writer, file string, document report.MemoryValidationDocument, calculator string) error {
	var records []memprofile.ProfileRow
	for _, v := range in.rows(document, calculator) {
		records = append(records, memprofile.ProfileRowOf(v, in.timeOf(v.ProfileFile)))
	}
	var text bytes.Buffer
	if err := memprofile.WriteProfileRows(&text, records); err != nil {
		return err
	}
	before, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(before)) == 0 {
		_, err = w.Write(text.Bytes())
		return err
	}
	if err != nil {
		return err
	}
	return appendTable(w, before, &text)
}

// timeOf is the time of the profile in a file.
func (in *memoryInput) timeOf(file string) string {
	for _, p := range in.profiles {
		if p.row.ProfileFile == file {
			return p.at
		}
	}
	return ""
}

// appendTable writes a CSV and below it the rows of another, in the order of
// its own columns.
func appendTable(w io.Writer, before []byte, more io.Reader) error {
	columns, err := csv.NewReader(bytes.NewReader(before)).Read()
	if err != nil {
		return err
	}
	rows, err := csv.NewReader(more).ReadAll()
	if err != nil {
		return err
	}
	at := make([]int, len(columns))
	for i, c := range columns {
		at[i] = slices.Index(rows[0], strings.TrimSpace(c))
	}
	for i, c := range rows[0] {
		if !slices.Contains(at, i) {
			return fmt.Errorf("it has no column %s: name another file", c)
		}
	}
	if _, err := w.Write(append(bytes.TrimRight(before, "\r\n"), '\n')); err != nil {
		return err
	}
	out := csv.NewWriter(w)
	for _, row := range rows[1:] {
		record := make([]string, len(columns))
		for i, from := range at {
			if from >= 0 {
				record[i] = row[from]
			}
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
