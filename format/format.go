// Package format holds what the readers of foreign files share; each format
// has a subpackage of its own.
//
// [ReadText] reads a file that may be gzip, within bounds, and refuses what
// is not text. [ParseJSON] turns it into a tree of [Node] values that know
// their place, so that every error names file and place:
//
//	x.json: results[3].prefill_latency: want a positive number of seconds, got "abc"
//
// The parser follows RFC 8259 and, beyond it, takes what tools really write:
// several values one after the other (JSON Lines, appended objects), a byte
// order mark, and the bare tokens NaN, Infinity and -Infinity. A number may
// also stand in quotes. It refuses a key that stands twice in one object,
// since two readers could take different values from it.
//
// A CSV file is a [Table]: [OpenTable] reads the line of column names,
// [Table.Rows] yields the rows, [Table.Errorf] gives a fault its line, and
// [Table.Warnings] tells of rows that were left out:
//
//	dense.csv: line 3, time_us: want a positive number, got "abc"
//
// [ParseTime] and [TimeText] move the decimal point between the unit of a
// file and seconds in the text, so that a time which is read and written has
// equal digits again; [ParseSize] reads a count. A cell that would not come
// back as it stood is kept in the point's Extra: [KeepCell], [KeptCell],
// [SizeCell].
//
// What a load tool says of a run is a [Serving], in our words and units:
// readers find its numbers with [Figures], [KeepServings] and [KeepRun] put it
// and its requests into a profile, [Serving.Check] looks for figures that
// contradict each other, and [Summarize] computes what a file of requests does
// not say.
package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/llmprof/llmprof/profile"
)

// Limits bounds what a reader takes in. The zero value of a field means its
// default.
type Limits struct {
	// Bytes is the largest text in bytes, after decompression.
	// Default 128 MiB.
	Bytes int64
	// Depth is how deep JSON values may nest. Default 64.
	Depth int
	// Values is the number of JSON values, or of cells of a table, of one
	// file. Default 4 million.
	Values int
}

// WithDefaults fills in what is not set.
func (l Limits) WithDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = 128 << 20
	}
	if l.Depth == 0 {
		l.Depth = 64
	}
	if l.Values == 0 {
		l.Values = 4 << 20
	}
	return l
}

// Error is a fault of a file with its place.
type Error struct {
	// File is the name given to the reader.
	File string
	// Place is a path such as "results[3].batch_size", a position such as
	// "line 3, column 14", or both; empty where the whole file is meant.
	Place string
	// Truncated says that the text ends in the middle of a value.
	Truncated bool
	// Err says what is wrong.
	Err error
}

// Error prints file, place and fault.
func (e *Error) Error() string {
	if e.Place == "" {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.File, e.Place, e.Err)
}

// Unwrap returns the fault itself.
func (e *Error) Unwrap() error { return e.Err }

// ReadText reads the text of a file that is plain or gzip, without a byte
// order mark. An empty file, another archive, binary data, text that is not
// UTF-8 and a text beyond the limit are errors of type [*Error].
func ReadText(name string, r io.Reader, limits Limits) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, &Error{File: name, Err: err} }
	expanded, err := profile.Expand(r, profile.Bounds{Bytes: limits.WithDefaults().Bytes})
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fail(errors.New("the compressed data is cut off"))
	}
	if err != nil {
		return fail(err)
	}
	text, err := io.ReadAll(expanded)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fail(fmt.Errorf("the compressed data is cut off after %d bytes of text", len(text)))
	}
	if err != nil {
		return fail(err)
	}
	if len(text) == 0 {
		return fail(errors.New("the file is empty"))
	}
	for _, archive := range []struct{ magic, name string }{
		{"PK\x03\x04", "a zip archive"},
		{"PK\x05\x06", "a zip archive"},
		{"\x28\xb5\x2f\xfd", "zstd data"},
		{"\xfd7zXZ\x00", "xz data"},
		{"BZh", "bzip2 data"},
		{"\x1f\x8b", "gzip inside gzip"},
		{"GGUF", "a GGUF model"},
		{"\xff\xfe", "UTF-16 text"},
		{"\xfe\xff", "UTF-16 text"},
	} {
		if bytes.HasPrefix(text, []byte(archive.magic)) {
			return fail(fmt.Errorf("the file is %s: want UTF-8 text, plain or gzip", archive.name))
		}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if len(bytes.TrimSpace(text)) == 0 {
		return fail(errors.New("the file holds nothing but blanks"))
	}
	if at := invalidUTF8(text); at >= 0 {
		return nil, &Error{File: name, Place: position(text, at), Err: fmt.Errorf("byte 0x%02x is not UTF-8 text", text[at])}
	}
	return text, nil
}

// invalidUTF8 is the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for at := 0; ; {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// position names an offset in a text.
func position(text []byte, offset int) string {
	offset = min(offset, len(text))
	line := 1 + bytes.Count(text[:offset], []byte{'\n'})
	column := offset - bytes.LastIndexByte(text[:offset], '\n')
	return fmt.Sprintf("line %d, column %d", line, column)
}
