package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// SchemaName and Version name the file format of a schedule.
const (
	SchemaName = "llmprof/schedule"
	Version    = "1.1"
)

const (
	major, minor = 1, 1

	// maxLine bounds one line of a schedule in bytes: a session of 100,000
	// spans fits.
	maxLine = 16 << 20
	// maxText bounds the whole text in bytes.
	maxText = 4 << 30
)

// header is the first line of a schedule.
type header struct {
	Schema   string  `json:"schema"`
	Version  string  `json:"version"`
	Seed     uint64  `json:"seed"`
	Pattern  string  `json:"pattern"`
	Spec     string  `json:"spec"`
	Classes  []Class `json:"classes,omitempty"`
	Requests int     `json:"requests"`
}

// VersionError says that a schedule is newer than this program.
type VersionError struct {
	// File is the name given to the reader.
	File string
	// Version is the file's.
	Version string
}

// Error names the file and both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: %s version %s is newer than %s", e.File, SchemaName, e.Version, Version)
}

// Hint says what to do next.
func (e *VersionError) Hint() string { return "a newer llmprof reads this file" }

// Write writes a schedule as JSON Lines: a header, then one request a line. A
// schedule with faults is not written.
func Write(w io.Writer, s *Schedule) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("write schedule: %w", err)
	}
	buffered := bufio.NewWriter(w)
	out := json.NewEncoder(buffered)
	out.SetEscapeHTML(false)
	err := out.Encode(header{SchemaName, Version, s.Seed, s.Pattern, s.Spec, s.Classes, len(s.Requests)})
	for i := range s.Requests {
		if err != nil {
			break
		}
		err = out.Encode(&s.Requests[i])
	}
	if err = errors.Join(err, buffered.Flush()); err != nil {
		return fmt.Errorf("write schedule: %w", err)
	}
	return nil
}

// Read reads what [Write] wrote. It is strict: an unknown key, a fault of the
// schedule or a missing line is an error with file and line. A newer minor
// version is read with a warning, and its new keys are left out; a newer major
// version is a [*VersionError]. The name stands in errors; it is not opened.
func Read(name string, r io.Reader) (*Schedule, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxText))
	lines.Buffer(nil, maxLine)
	fail := func(line int, err error) (*Schedule, error) {
		return nil, fmt.Errorf("%s: line %d: %w", name, line, err)
	}
	if !lines.Scan() {
		if err := lines.Err(); err != nil {
			return fail(1, err)
		}
		return nil, fmt.Errorf("%s: the file is empty: want a schedule", name)
	}
	head, newer, err := readHeader(name, lines.Bytes())
	if _, ok := errors.AsType[*VersionError](err); ok {
		return nil, err
	}
	if err != nil {
		return fail(1, err)
	}
	s := &Schedule{Seed: head.Seed, Pattern: head.Pattern, Spec: head.Spec, Classes: head.Classes}
	if newer {
		s.Warnings = append(s.Warnings, &VersionError{File: name, Version: head.Version})
	}
	line := 1
	for ; lines.Scan(); line++ {
		var q Request
		if err := decode(lines.Bytes(), &q, newer); err != nil {
			return fail(line+1, err)
		}
		if len(s.Requests) == head.Requests {
			return fail(line+1, fmt.Errorf("more than the %d requests of the header", head.Requests))
		}
		s.Requests = append(s.Requests, q)
	}
	if err := lines.Err(); err != nil {
		return fail(line+1, err)
	}
	if len(s.Requests) != head.Requests {
		return fail(line, fmt.Errorf("the file ends after %d of %d requests", len(s.Requests), head.Requests))
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// readHeader reads the first line; newer tells of a newer minor version.
func readHeader(name string, text []byte) (head header, newer bool, err error) {
	if err := decode(text, &head, true); err != nil {
		return head, false, fmt.Errorf("want the header of a schedule: %w", err)
	}
	if head.Schema != SchemaName {
		return head, false, fmt.Errorf("schema %q: want %q", head.Schema, SchemaName)
	}
	majorText, minorText, _ := strings.Cut(head.Version, ".")
	foundMajor, err := strconv.Atoi(majorText)
	foundMinor, err2 := strconv.Atoi(minorText)
	switch {
	case err != nil || err2 != nil || foundMajor < 1 || foundMinor < 0:
		return head, false, fmt.Errorf("version %q: want a version such as %q", head.Version, Version)
	case foundMajor > major:
		return head, false, &VersionError{File: name, Version: head.Version}
	case head.Requests < 1 || head.Requests > MaxRequests:
		return head, false, fmt.Errorf("%d requests: want 1 to %d", head.Requests, MaxRequests)
	case foundMajor == major && foundMinor > minor:
		return head, true, nil
	}
	return head, false, decode(text, &header{}, false)
}

// decode reads one JSON value that fills a line; extra allows unknown keys.
func decode(text []byte, v any, extra bool) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if !extra {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the line is empty")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("want one JSON value on the line")
	}
	return nil
}
