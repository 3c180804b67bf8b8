package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
)

// memoryFiles are the two files of an observation.
type memoryFiles struct{ document, points string }

// filesOf names the profile beside a document.
func filesOf(document string) memoryFiles {
	return memoryFiles{document, strings.TrimSuffix(document, ".json") + ".llmprof"}
}

// save writes an observation and reads the document back: only what can be read
// has been measured.
func (r *memoryRun) save(files memoryFiles, o *memory.Observation, d *memprofile.Document) error {
	if err := os.MkdirAll(filepath.Dir(files.document), 0o755); err != nil {
		return fileError("write", files.document, err)
	}
	p := r.profile(o)
	if len(p.Points) > 0 {
		if err := writeFile(files.points, func(w io.Writer) error { return p.Write(files.points, w) }); err != nil {
			return err
		}
	}
	if err := writeFile(files.document, func(w io.Writer) error { return memprofile.Write(w, d) }); err != nil {
		return err
	}
	if _, err := readMemoryProfile(files.document); err != nil {
		return fmt.Errorf("read back what was written: %w", err)
	}
	return nil
}

// decodeMemoryProfile reads the text of a profile.
func decodeMemoryProfile(name string, text []byte) (*memprofile.Document, error) {
	d, _, err := memprofile.Read(name, bytes.NewReader(text), format.Limits{})
	return d, err
}

// readMemoryProfile reads a profile of any schema.
func readMemoryProfile(name string) (*memprofile.Document, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fileError("read", name, err)
	}
	d, _, err := memprofile.Read(name, io.Reader(file), format.Limits{})
	return d, errors.Join(err, file.Close())
}

// memoryName is the stem of a profile's file.
func memoryName(name string, task engine.StepTask, block int, at time.Time) string {
	stem := fmt.Sprintf("%s_%din_%dout_bs%d", fileName(name), task.InputLen, task.OutputLen, task.BatchSize)
	if block > 0 {
		stem += fmt.Sprintf("_block%d", block)
	}
	return stem + "_" + at.Format("20060102_150405")
}

// unusedName is the name of a JSON file of which, and of the .llmprof beside it,
// there is none yet: profiles of the same second get a number.
func unusedName(stem string) string {
	for n := 1; ; n++ {
		name := stem
		if n > 1 {
			name += fmt.Sprintf("_%d", n)
		}
		_, document := os.Stat(name + ".json")
		_, points := os.Stat(name + ".llmprof")
		if document != nil && points != nil {
			return name + ".json"
		}
	}
}

// targets holds the files to be writable before anything is measured. The
// default folder is made when there is something to write.
func (f *profileMemoryFlags) targets(out string) error {
	if out == "-" || strings.HasSuffix(out, ".llmprof") || strings.HasSuffix(out, ".gz") {
		return usage("for example -o memory.json; --json prints it", "a memory profile is a .json file, with a .llmprof beside it: -o %s", out)
	}
	target := outputFlags{overwrite: true}
	names := []string{out, filesOf(out).points}
	if f.out == "" {
		names = nil
		if err := writableFolder(filepath.Dir(out)); err != nil {
			return err
		}
	}
	if f.record != "" {
		names = append(names, f.record)
	}
	for _, name := range names {
		if err := target.free(name); err != nil {
			return err
		}
	}
	return nil
}

// writableFolder reports whether files can be written into a folder that may
// have to be made first.
func writableFolder(folder string) error {
	there := folder
	info, err := os.Stat(there)
	for ; errors.Is(err, fs.ErrNotExist) && filepath.Dir(there) != there; info, err = os.Stat(there) {
		there = filepath.Dir(there)
	}
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return fileError("write", folder, err)
	}
	trial, err := os.CreateTemp(there, unfinished+strings.Replace(ownerName(), ":", "-", 1)+"-*") // so that a sweep finds it
	if err != nil {
		return fileError("write", folder, err)
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}

// recorder keeps every reading in a file, which is made at the first one.
type recorder struct {
	name string
	file *os.File
	w    *gpu.Writer
	err  error // of the first write that failed
}

// take writes a reading. It is called from one goroutine, close after it.
func (r *recorder) take(s gpu.Snapshot) {
	if r.err == nil && r.file == nil {
		if r.file, r.err = os.Create(r.name); r.err == nil {
			r.w = gpu.NewWriter(r.file, s.Time)
		}
	}
	if r.err == nil {
		r.err = r.w.Write(s)
	}
}

func (r *recorder) close() error {
	if r.file != nil {
		r.err = errors.Join(r.err, r.file.Close())
	}
	if r.err != nil {
		return fileError("write", r.name, r.err)
	}
	return nil
}
