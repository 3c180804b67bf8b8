package profile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Writer writes a profile point by point. Each point reaches the underlying
// writer in one Write of a whole line (compressed and flushed where the file
// is gzip), so that a crash loses at most the point in flight.
type Writer struct {
	name string
	dst  io.Writer
	out  bytes.Buffer
	gz   *gzip.Writer // nil where the file is plain
	err  error
}

// NewWriter starts a new profile in dst and writes the header, whose schema
// and version it sets. The name stands in errors and decides by ".gz" whether
// the file is compressed.
func NewWriter(name string, dst io.Writer, header Header) (*Writer, error) {
	w := newWriter(name, dst, Compressed(name))
	header.Schema, header.Version = Schema, Version
	if err := w.writeLine(header); err != nil {
		return nil, err
	}
	return w, nil
}

// Compressed reports whether a file of this name is written as gzip.
func Compressed(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".gz") }

func newWriter(name string, dst io.Writer, compress bool) *Writer {
	w := &Writer{name: name, dst: dst}
	if compress {
		w.gz = gzip.NewWriter(&w.out)
	}
	return w
}

// Write writes points that belong together: they reach the file in one Write,
// so that a crash loses all of them or none. It refuses what [Point.Validate]
// refuses, without harm to the file. After a failed write to the file every
// further call fails.
func (w *Writer) Write(points ...Point) error {
	var lines []byte
	for i := range points {
		if err := points[i].Validate(); err != nil {
			return fmt.Errorf("write %s: %w", w.name, err)
		}
		line, err := encodeLine(points[i])
		if err != nil {
			return fmt.Errorf("write %s: %w", w.name, err)
		}
		lines = append(lines, line...)
	}
	return w.writeLines(lines)
}

func (w *Writer) writeLine(v any) error {
	line, err := encodeLine(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", w.name, err)
	}
	return w.writeLines(line)
}

// writeLines hands whole lines to the file at once.
func (w *Writer) writeLines(lines []byte) error {
	if w.err != nil {
		return w.err
	}
	if len(lines) == 0 {
		return nil
	}
	if w.gz == nil {
		return w.emit(lines)
	}
	if _, err := w.gz.Write(lines); err != nil {
		return w.fail(err)
	}
	if err := w.gz.Flush(); err != nil {
		return w.fail(err)
	}
	defer w.out.Reset()
	return w.emit(w.out.Bytes())
}

func (w *Writer) emit(b []byte) error {
	if _, err := w.dst.Write(b); err != nil {
		return w.fail(err)
	}
	return nil
}

func (w *Writer) fail(err error) error {
	w.err = fmt.Errorf("write %s: %w", w.name, err)
	return w.err
}

// Close ends the compressed data. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil || w.gz == nil {
		return w.err
	}
	if err := w.gz.Close(); err != nil {
		return w.fail(err)
	}
	defer w.out.Reset()
	if err := w.emit(w.out.Bytes()); err != nil {
		return err
	}
	w.err = fmt.Errorf("write %s: the writer is closed", w.name)
	return nil
}

// encodeLine returns v as one line of JSON with its line feed.
func encodeLine(v any) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	if line.Len() > maxLine {
		return nil, fmt.Errorf("line of %d bytes: want at most %d", line.Len(), maxLine)
	}
	return line.Bytes(), nil
}

// Write writes the whole profile to dst; the name decides by ".gz" whether it
// is compressed. The same profile always gives the same bytes.
func (p *Profile) Write(name string, dst io.Writer) error {
	buffered := bufio.NewWriter(dst)
	var text io.Writer = buffered
	var gz *gzip.Writer
	if Compressed(name) {
		gz = gzip.NewWriter(buffered)
		text = gz
	}
	w, err := NewWriter(strings.TrimSuffix(strings.ToLower(name), ".gz"), text, p.Header)
	if err != nil {
		return err
	}
	w.name = name
	for i := range p.Points {
		if err := w.Write(p.Points[i]); err != nil {
			return fmt.Errorf("point %d: %w", i+1, err)
		}
	}
	var ends []error
	if gz != nil {
		ends = append(ends, gz.Close())
	}
	ends = append(ends, buffered.Flush())
	if err := errors.Join(ends...); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
