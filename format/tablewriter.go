package format

import (
	"bytes"
	"encoding/csv"
	"io"
)

// NewTableWriter writes the rows of a CSV table that ends its lines as
// newline says, "\n" or "\r\n", as [Table.Newline] gives it. What [Table.Rows]
// read is written byte for byte, but for quotes that were not needed:
// encoding/csv's own UseCRLF would drop a carriage return that stands alone
// within a cell.
func NewTableWriter(w io.Writer, newline string) *csv.Writer {
	if newline == "\r\n" {
		w = &crlfWriter{to: w}
	}
	return csv.NewWriter(w)
}

// crlfWriter puts a carriage return before every line feed.
type crlfWriter struct {
	to   io.Writer
	text []byte
}

func (w *crlfWriter) Write(p []byte) (int, error) {
	w.text = w.text[:0]
	for rest := p; len(rest) > 0; {
		line, after, found := bytes.Cut(rest, []byte{'\n'})
		w.text = append(w.text, line...)
		if found {
			w.text = append(w.text, '\r', '\n')
		}
		rest = after
	}
	if _, err := w.to.Write(w.text); err != nil {
		return 0, err
	}
	return len(p), nil
}
