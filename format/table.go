package format

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// Table reads a CSV text whose first line names the columns. Open one with
// [OpenTable]; its rows can be read once.
type Table struct {
	file     string
	text     []byte
	lines    *csv.Reader
	columns  []string // as they stand in the file
	line     int      // of the text, counted from 1, on which the last row begins
	cells    int      // read so far
	limit    int      // how many cells there may be
	warnings []error
}

// OpenTable reads the column names of a text, as [ReadText] returns it. The
// file's name stands in errors; of the limits, Values bounds the number of
// cells. No two columns may have the same name.
func OpenTable(file string, text []byte, limits Limits) (*Table, error) {
	t := &Table{file: file, text: text, lines: csv.NewReader(bytes.NewReader(text)), limit: limits.WithDefaults().Values}
	t.lines.FieldsPerRecord = -1 // counted in next, which knows of cut lines
	columns, err := t.lines.Read()
	if errors.Is(err, io.EOF) {
		return nil, &Error{File: file, Err: errors.New("has no line of column names")}
	}
	if err != nil {
		return nil, t.broken(err)
	}
	t.columns, t.lines.ReuseRecord = columns, true
	t.line, _ = t.lines.FieldPos(0)
	if len(columns) > t.limit {
		return nil, t.Errorf("", "more than %d cells", t.limit)
	}
	seen := map[string]bool{}
	for _, column := range columns {
		key := strings.TrimSpace(column)
		if seen[key] {
			return nil, t.Errorf("", "column %q stands twice", key)
		}
		seen[key] = true
	}
	return t, nil
}

// Columns are the column names as they stand in the file, blanks around them
// included.
func (t *Table) Columns() []string { return slices.Clone(t.columns) }

// Column is the index of a column in every row; -1 for none. Blanks around
// the name in the file do not count.
func (t *Table) Column(name string) int {
	return slices.IndexFunc(t.columns, func(c string) bool { return strings.TrimSpace(c) == name })
}

// Newline is the line end of the text's first line: "\n" or "\r\n".
func (t *Table) Newline() string {
	if first, _, ok := bytes.Cut(t.text, []byte{'\n'}); ok && bytes.HasSuffix(first, []byte{'\r'}) {
		return "\r\n"
	}
	return "\n"
}

// Rows yields the rows, each with a cell for every column, up to the end or
// the first error, which is an [*Error] with file and line. A row is
// overwritten by the next one, and a cell holds the memory of its whole row:
// clone what is to stay. Blank lines are skipped; what else is left out
// stands in [Table.Warnings] afterwards.
func (t *Table) Rows() iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for {
			row, err := t.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// next reads the next row; [io.EOF] is the end of the table, also where its
// last line was cut off.
func (t *Table) next() ([]string, error) {
	for {
		row, err := t.lines.Read()
		if errors.Is(err, io.EOF) {
			return nil, err
		}
		if err != nil {
			return nil, t.broken(err)
		}
		t.line, _ = t.lines.FieldPos(0)
		if t.cells += len(row); t.cells > t.limit {
			return nil, t.Errorf("", "more than %d cells", t.limit)
		}
		last := t.lines.InputOffset() >= int64(len(t.text)) && !bytes.HasSuffix(t.text, []byte{'\n'})
		switch {
		case last && len(row) < len(t.columns):
			t.warnings = append(t.warnings, &Error{
				File: t.file, Place: t.place(""), Truncated: true,
				Err: errors.New("the file ends in the middle of this line: left out"),
			})
			return nil, io.EOF
		case len(row) != len(t.columns):
			return nil, t.Errorf("", "want %d cells, got %d", len(t.columns), len(row))
		case slices.Equal(row, t.columns): // as in files that were put one after the other
			t.warnings = append(t.warnings, t.Errorf("", "the column names once more: left out"))
			continue
		case last:
			t.warnings = append(t.warnings, t.Errorf("", "the last line has no line end: its last number may be cut off"))
		}
		return row, nil
	}
}

// Warnings are remarks on the rows that were read so far, each an [*Error]
// with file and line: column names that stand once more between the rows,
// which are left out; a last line that was cut off, as by a crash of its
// writer, which is left out too; and a last line without a line end, which is
// taken though its last cell may be cut.
func (t *Table) Warnings() []error { return slices.Clone(t.warnings) }

// Errorf returns an [*Error] at the line of the row that was read last, or of
// the column names before the first. The column, where one is named, becomes
// part of the place: "line 3, time_us".
func (t *Table) Errorf(column, format string, args ...any) error {
	return &Error{File: t.file, Place: t.place(column), Err: fmt.Errorf(format, args...)}
}

func (t *Table) place(column string) string {
	if column == "" {
		return fmt.Sprintf("line %d", t.line)
	}
	return fmt.Sprintf("line %d, %s", t.line, column)
}

// broken turns an error of the CSV reader into one with its place.
func (t *Table) broken(err error) error {
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		return &Error{File: t.file, Place: fmt.Sprintf("line %d, column %d", bad.Line, bad.Column), Err: bad.Err}
	}
	return &Error{File: t.file, Err: err}
}
