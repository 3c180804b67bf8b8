package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/trace"
	"github.com/llmprof/llmprof/workload"
)

// loadHead is how much of a file tells its kind, in bytes.
const loadHead = 4096

// loadKind is what a file about a load holds.
type loadKind int

const (
	loadTrace    loadKind = iota // recorded traffic
	loadSchedule                 // a schedule that was written
	loadSpec                     // a description in YAML or JSON
	loadLengths                  // lengths, one a line
)

// kindOfLoad tells what a file holds by its first bytes.
func kindOfLoad(head []byte) loadKind {
	packed := len(head) > 1 && head[0] == 0x1f && head[1] == 0x8b // gzip
	text := strings.TrimLeft(strings.TrimPrefix(string(head), "\ufeff"), " \t\r\n")
	for strings.HasPrefix(text, "#") {
		_, rest, _ := strings.Cut(text, "\n")
		text = strings.TrimLeft(rest, " \t\r\n")
	}
	line, _, _ := strings.Cut(text, "\n")
	switch {
	case packed:
		return loadTrace
	case strings.HasPrefix(text, "{"):
		if strings.Contains(line, `"`+workload.SchemaName+`"`) {
			return loadSchedule
		}
		if describes([]byte(text)) {
			return loadSpec
		}
		return loadTrace
	case strings.HasPrefix(text, "["):
		return loadTrace
	case line != "" && strings.Trim(strings.TrimSpace(line), "0123456789.kKMiG") == "":
		return loadLengths
	case strings.Contains(line, ","):
		// A table's first line names columns, and a key of YAML has a colon
		// behind it before anything else comes.
		if key, _, keyed := strings.Cut(line, ":"); !keyed || strings.Contains(key, ",") {
			return loadTrace
		}
	}
	return loadSpec
}

// describes reports whether a JSON object is the description of a load: it has a
// key of one, and is of no kind of trace.
func describes(text []byte) bool {
	keys, _ := format.TopKeys(text)
	return (keys["arrivals"] || keys["lengths"] || keys["trace"]) && trace.JSONKind(text) == ""
}

// openLoad opens a file and tells what it holds.
func (a *app) openLoad(name string) (io.Reader, io.Closer, loadKind, error) {
	file, err := a.openInput(name)
	if err != nil {
		return nil, nil, 0, err
	}
	in := bufio.NewReaderSize(file, loadHead)
	head, err := in.Peek(loadHead)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, 0, errors.Join(fileError("read", name, err), file.Close())
	}
	return in, file, kindOfLoad(bytes.Clone(head)), nil
}

// readTrace reads recorded traffic and says what was assumed.
func (a *app) readTrace(name string) (*trace.Trace, error) {
	in, file, kind, err := a.openLoad(name)
	if err != nil {
		return nil, err
	}
	if kind == loadSchedule {
		_ = file.Close() // read only
		return nil, usage("--schedule reads it", "%s is a schedule that llmprof wrote, not recorded traffic", sourceName(name))
	}
	t, err := trace.Read(name, in, trace.Options{})
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	for _, w := range t.Warnings {
		a.warn(w.Error())
	}
	return t, nil
}

// replayTrace makes a schedule of recorded traffic.
func replayTrace(name string, t *trace.Trace, how workload.Replaying) (*workload.Schedule, error) {
	if !t.Timed {
		return nil, usage("--input-len file:"+name+" --output-len file:"+name+" take its lengths alone", "%s holds lengths and no times", name)
	}
	how.Name = name
	s, err := workload.Replay(t.Requests, how)
	return s, scheduleError(err)
}

// lengths are how long prompts and answers are; a ratio spreads those that are
// numbers.
func (a *app) lengths(input, output string, ratio float64) (workload.Lengths, error) {
	lengths, err := workload.ParseLengths(input, output, a.records(""))
	if err != nil {
		if hint := hintOf(err); hint != "" {
			return nil, usage(hint, "--input-len, --output-len: %w", err)
		}
		return nil, err
	}
	if ratio == 0 {
		return lengths, nil
	}
	each, ok := lengths.(workload.Independent)
	in, okIn := each.Input.(workload.Fixed)
	out, okOut := each.Output.(workload.Fixed)
	if !ok || !okIn || !okOut {
		return nil, usage("leave it out", "--random-range-ratio has no use with lengths that are spread: it spreads numbers")
	}
	if each.Input, err = workload.AroundRatio(int(in), ratio); err != nil {
		return nil, usage("", "--random-range-ratio: %w", err)
	}
	if each.Output, err = workload.AroundRatio(int(out), ratio); err != nil {
		return nil, usage("", "--random-range-ratio: %w", err)
	}
	return each, nil
}

// records opens the files that a load refers to, whose names are relative to
// a folder.
func (a *app) records(folder string) func(string) (workload.Records, error) {
	return func(name string) (workload.Records, error) {
		if folder != "" && !filepath.IsAbs(name) && name != "-" {
			name = filepath.Join(folder, name)
		}
		in, file, kind, err := a.openLoad(name)
		if err != nil {
			return workload.Records{}, err
		}
		defer file.Close()
		switch kind {
		case loadLengths:
			d, err := workload.ReadLengths(name, in)
			return workload.Records{Values: d.Values}, err
		case loadSchedule:
			s, err := workload.Read(name, in)
			if err != nil {
				return workload.Records{}, err
			}
			return workload.Records{Requests: s.Requests, Timed: true}, nil
		}
		t, err := trace.Read(name, in, trace.Options{})
		if err != nil {
			return workload.Records{}, err
		}
		for _, w := range t.Warnings {
			a.warn(w.Error())
		}
		return workload.Records{Requests: t.Requests, Timed: t.Timed}, nil
	}
}

// readLoad reads a file that describes a load or holds one. A seed that is given
// takes the place of the description's.
func (a *app) readLoad(ctx context.Context, name string, seed *uint64) (*workload.Schedule, error) {
	in, file, kind, err := a.openLoad(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	switch {
	case kind == loadSchedule && seed != nil:
		return nil, usage("leave out --seed", "--seed has no use with %s, a schedule that was made from one", name)
	case kind == loadSchedule:
		s, err := workload.Read(name, in)
		if err != nil {
			return nil, scheduleFile(err)
		}
		for _, w := range s.Warnings {
			a.warn(w.Error())
		}
		return s, nil
	case kind != loadSpec:
		return nil, usage("--trace reads it", "%s is recorded traffic", name)
	}
	described, err := workload.ReadSpec(name, in, a.records(filepath.Dir(name)))
	if err != nil {
		return nil, err
	}
	if seed != nil {
		described.Spec.Seed, described.Replay.Seed = *seed, *seed
	}
	s, err := described.Schedule(ctx)
	return s, scheduleError(err)
}

// scheduleFile makes a schedule of a newer version something unknown.
func scheduleFile(err error) error {
	if newer, ok := errors.AsType[*workload.VersionError](err); ok {
		return &codedError{codeUnknown, err, newer.Hint()}
	}
	return err
}
