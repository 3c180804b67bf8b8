package profile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
)

// Schema and Version name the file format that this package writes.
const (
	Schema  = "llmprof/profile"
	Version = "1.4"
)

const (
	major, minor = 1, 4

	// maxLine bounds one line of text in bytes: a point of 500,000 samples
	// fits.
	maxLine = 16 << 20
	// maxWarnings bounds the remarks that Read keeps.
	maxWarnings = 100
)

// SyntaxError is a line that could not be used. The lines after it can.
type SyntaxError struct {
	// File is the name given to the reader, Line counts from 1.
	File string
	Line int
	// Truncated says that the file ends in the middle of this line, as after
	// a crash of its writer.
	Truncated bool
	// Err says what is wrong.
	Err error
}

// Error names file and line.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s: line %d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns the fault itself.
func (e *SyntaxError) Unwrap() error { return e.Err }

// VersionError says that a file is newer than this program. A newer major
// version is refused with it; as one of [Reader.Warnings] it tells of a newer
// minor version.
type VersionError struct {
	// File is the name given to the reader.
	File string
	// Kind is the schema of the file.
	Kind string
	// Version is the file's, Supported the newest that is known here.
	Version, Supported string
}

// Error names the file and both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: %s version %s is newer than %s", e.File, e.Kind, e.Version, e.Supported)
}

// Hint says what to do next.
func (e *VersionError) Hint() string { return "a newer llmprof reads this file" }

// Reader reads a profile as a stream. It holds one line at a time.
type Reader struct {
	file     string
	src      io.Reader
	lines    *bufio.Reader
	line     int
	opened   bool
	header   Header
	err      error
	warnings []error
	ended    bool
}

// NewReader returns a reader of the profile in r, plain or gzip. The name
// stands in errors; it is not opened. Nothing is read yet.
func NewReader(name string, r io.Reader) *Reader { return &Reader{file: name, src: r} }

// Header returns the file's first line. It fails with a [*SyntaxError] on
// anything but the header of a profile and with a [*VersionError] on one of a
// newer major version.
func (r *Reader) Header() (Header, error) {
	if !r.opened {
		r.opened = true
		r.err = r.open()
	}
	return r.header, r.err
}

// Warnings are remarks on the whole file, known once the header is read.
func (r *Reader) Warnings() []error { return r.warnings }

func (r *Reader) open() error {
	// Lines are bounded and dropped one by one, so only the time that a bomb
	// could cost needs a bound.
	text, err := Expand(r.src, Bounds{Slack: 16 << 20})
	if err != nil {
		return fmt.Errorf("read %s: %w", r.file, err)
	}
	r.lines = bufio.NewReaderSize(text, 64<<10)
	line, err := r.next()
	if errors.Is(err, io.EOF) {
		return &SyntaxError{File: r.file, Line: 1, Truncated: true, Err: errors.New("the file is empty: want the header of a profile")}
	}
	if err != nil {
		return err
	}
	return r.decodeHeader(bytes.TrimPrefix(line, []byte("\ufeff")), &r.header)
}

func (r *Reader) decodeHeader(line []byte, h *Header) error {
	fault := func(format string, args ...any) error {
		return &SyntaxError{File: r.file, Line: r.line, Err: fmt.Errorf(format, args...)}
	}
	if err := json.Unmarshal(line, h); err != nil {
		// The shape of a newer major version may be another one.
		if h.Schema != Schema {
			return fault("not the header of a profile: %w", err)
		}
		if version := r.checkVersion(h.Version); version != nil {
			return version
		}
		return fault("header: %w", err)
	}
	if h.Schema != Schema {
		return fault("not a profile: schema is %q, want %q", h.Schema, Schema)
	}
	return r.checkVersion(h.Version)
}

func (r *Reader) checkVersion(version string) error {
	a, b, ok := strings.Cut(version, ".")
	fileMajor, errA := strconv.ParseUint(a, 10, 31)
	fileMinor, errB := strconv.ParseUint(b, 10, 31)
	if !ok || errA != nil || errB != nil || fileMajor == 0 {
		return &SyntaxError{File: r.file, Line: r.line, Err: fmt.Errorf("version is %q: want major.minor", version)}
	}
	newer := &VersionError{File: r.file, Kind: Schema, Version: version, Supported: Version}
	switch {
	case fileMajor > major:
		return newer
	case fileMajor == major && fileMinor > minor:
		r.warnings = append(r.warnings, newer)
	}
	return nil
}

// Points yields the points in order. A line that cannot be used is yielded as
// a [*SyntaxError] with an empty point, and reading goes on with the next;
// so is a cut-off end, with Truncated set. Any other error is the last value.
func (r *Reader) Points() iter.Seq2[Point, error] {
	return func(yield func(Point, error) bool) {
		if _, err := r.Header(); err != nil {
			yield(Point{}, err)
			return
		}
		for !r.ended {
			line, err := r.next()
			if errors.Is(err, io.EOF) {
				return
			}
			point, err := r.decode(line, err)
			if errors.Is(err, errHeader) {
				continue
			}
			if !yield(point, err) {
				return
			}
			if _, goOn := errors.AsType[*SyntaxError](err); err != nil && !goOn {
				r.ended = true
			}
		}
	}
}

// errHeader marks the repeated header of a concatenated file.
var errHeader = errors.New("header")

// decode turns a line into a point; err is what reading the line gave.
func (r *Reader) decode(line []byte, err error) (Point, error) {
	var bad *SyntaxError
	if errors.As(err, &bad) && bad.Truncated && line != nil {
		// A last line without its line feed may still be whole.
		if point, whole := decodePoint(line); whole == nil {
			return point, nil
		}
	}
	if err != nil {
		return Point{}, err
	}
	point, err := decodePoint(line)
	if err == nil {
		return point, nil
	}
	if point.Kind == "" {
		var again Header
		if json.Unmarshal(line, &again) == nil && again.Schema == Schema {
			return Point{}, r.joinHeader(line)
		}
	}
	return Point{}, &SyntaxError{File: r.file, Line: r.line, Err: err}
}

// joinHeader checks the header of a concatenated part against the file's.
func (r *Reader) joinHeader(line []byte) error {
	var again Header
	if err := r.decodeHeader(line, &again); err != nil {
		if bad, ok := errors.AsType[*SyntaxError](err); ok {
			// Points of an unknown origin must not be read as the file's own.
			return fmt.Errorf("read %s: line %d: %w", r.file, bad.Line, bad.Err)
		}
		return err
	}
	first := r.header
	first.Source, again.Source = r.file+": line 1", fmt.Sprintf("%s: line %d", r.file, r.line)
	if _, err := mergeHeaders([]*Header{&first, &again}); err != nil {
		return err
	}
	return errHeader
}

func decodePoint(line []byte) (Point, error) {
	var p Point
	if err := json.Unmarshal(line, &p); err != nil {
		return Point{}, err
	}
	if err := p.Validate(); err != nil {
		return Point{Kind: p.Kind}, err
	}
	return p, nil
}

// next returns the next line that is not blank, without its line feed. The
// slice is valid until the next call. At the end it returns [io.EOF]; a last
// line without a line feed comes with a truncated [*SyntaxError].
func (r *Reader) next() ([]byte, error) {
	for {
		line, err := r.readLine()
		r.line++
		switch {
		case errors.Is(err, bufio.ErrTooLong):
			return nil, &SyntaxError{File: r.file, Line: r.line, Err: fmt.Errorf("longer than %d bytes", maxLine)}
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			r.ended = true
			return r.lastLine(line, err)
		case err != nil:
			r.ended = true
			return nil, fmt.Errorf("read %s: line %d: %w", r.file, r.line, err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

// lastLine judges what stands after the last line feed.
func (r *Reader) lastLine(line []byte, err error) ([]byte, error) {
	line = bytes.TrimSpace(line)
	cut := errors.Is(err, io.ErrUnexpectedEOF)
	if len(line) == 0 && !cut {
		return nil, io.EOF
	}
	if r.header.Schema == "" && json.Valid(line) {
		return line, nil // a header alone
	}
	reason := errors.New("the file ends in the middle of this line")
	if cut {
		reason = errors.New("the file ends in the middle of its compressed data")
	}
	return line, &SyntaxError{File: r.file, Line: r.line, Truncated: true, Err: reason}
}

// readLine returns a line with its line feed, or [bufio.ErrTooLong] after
// skipping a line beyond the bound.
func (r *Reader) readLine() ([]byte, error) {
	line, err := r.lines.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for tooLong := false; ; {
		line, err = r.lines.ReadSlice('\n')
		if tooLong = tooLong || len(long)+len(line) > maxLine; !tooLong {
			long = append(long, line...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case tooLong && err == nil:
			return nil, bufio.ErrTooLong
		case tooLong:
			return nil, err
		default:
			return long, err
		}
	}
}

// Read reads a whole profile. Lines that could not be used are left out and
// come back as warnings, at most 100 of them one by one, beside remarks on
// the whole file.
func Read(name string, src io.Reader) (*Profile, []error, error) {
	r := NewReader(name, src)
	header, err := r.Header()
	if err != nil {
		return nil, nil, err
	}
	p := &Profile{Header: header}
	var warnings []error
	more := 0
	for point, err := range r.Points() {
		if _, ok := errors.AsType[*SyntaxError](err); ok {
			if len(warnings) < maxWarnings {
				warnings = append(warnings, err)
			} else {
				more++
			}
			continue
		}
		if err != nil {
			return nil, warnings, err
		}
		p.Points = append(p.Points, point)
	}
	if more > 0 {
		warnings = append(warnings, fmt.Errorf("%s: %d more lines could not be used", name, more))
	}
	return p, append(r.Warnings(), warnings...), nil
}
