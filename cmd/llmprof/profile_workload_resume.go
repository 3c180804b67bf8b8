package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/measure/serving"
	"github.com/llmprof/llmprof/report"
)

// Names in a folder: of the document, and of the profile of a block size.
const (
	workloadFile    = "workload.json"
	workloadProfile = "blocks-of-%s.llmprof"
)

// folder makes the folder, or reads what one holds that is gone on with.
func (w *workloadRun) folder() error {
	f := w.f
	if f.out == "" {
		name := w.model
		if name == "" {
			name = strings.NewReplacer("://", "_", ":", "_", "/", "_").Replace(f.url)
		}
		f.out = "workload_" + fileName(name)
	}
	w.total = len(f.c.values) * len(f.m.values) * len(f.b.values) * max(len(f.blockSize.values), 1)
	if f.results != "" && w.total > 1 {
		return usage("-o FOLDER holds a file for each", "--results-file takes one cell, and there are %d", w.total)
	}
	if f.results != "" {
		if err := (&outputFlags{overwrite: true}).free(f.results); err != nil {
			return err
		}
	}
	at := w.where.String()
	if f.url != "" {
		at = f.url
	}
	w.document = report.WorkloadDocument{Head: report.NewHead("workload", version()), Place: at, Results: []report.WorkloadResult{}, Asked: w.asked(), Profiles: map[string]int64{}}
	name := filepath.Join(f.out, workloadFile)
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return fileError("write", f.out, err)
		}
		return w.untold(&w.document)
	case err != nil:
		return fileError("read", name, err)
	case f.overwrite:
		return w.clear(text)
	case !f.resume:
		return usage("--resume goes on with it, --overwrite replaces it, -o names another folder", "%s exists", name)
	}
	return w.goOn(name, text)
}

// asked is how cells are measured, apart from which ones.
func (w *workloadRun) asked() map[string]any {
	f, d := w.f, w.setup.Deploy
	d.BlockSize = 0
	d.MaxNumSeqs, d.MaxNumBatchedTokens, d.SchedulingPolicy = f.seats.values[0], f.maxBatchedTokens.values[0], f.policy
	said := map[string]any{
		"model": w.model, "url": f.url, "deploy": d, "warmup": f.warmup, "runs": f.runs, "steps": f.steps, "seed": f.seed,
		"chunked": f.chunked, "not_chunked": f.noChunked, "weights": f.weights, "device": f.device, "threads": f.threads, "eager": f.eager,
		"engine_args": strings.Join(publicArgs(f.args, f.env), " "), "token_low": f.low, "token_high": f.high, "token_chunks": f.tokenChunks,
		"place": f.place, "image": f.image, "program": f.program, "partial": f.partial, "sampler": f.sampler,
	}
	if f.kind != "" {
		said["backend"] = f.kind
	}
	var plain map[string]any // as it is read back
	text, err := json.Marshal(said)
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err != nil {
		return nil
	}
	return plain
}

// clear removes the files that a folder's document names, and no others.
func (w *workloadRun) clear(text []byte) error {
	var held report.WorkloadDocument
	_ = json.Unmarshal(text, &held) // what cannot be read names no files, and is written over
	for _, name := range held.Files {
		own := filepath.Join(w.f.out, filepath.Base(name))
		if err := os.Remove(own); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fileError("write", own, err)
		}
	}
	return nil
}

// goOn takes the results that a folder holds; those that failed are measured
// again.
func (w *workloadRun) goOn(name string, text []byte) error {
	var held report.WorkloadDocument
	if err := json.Unmarshal(text, &held); err != nil {
		return usage("--overwrite replaces it, -o names another folder", "%s: %w", name, err)
	}
	if differ := differences(held.Asked, w.asked()); len(differ) > 0 {
		return usage("measure into another folder: -o FOLDER, or give the flags of the first run", "%s was measured in another way: %s", name, strings.Join(differ, "; "))
	}
	for _, r := range held.Results {
		if r.Failure == "" {
			w.document.Results = append(w.document.Results, r)
		}
	}
	w.document.Files = held.Files
	if err := w.untold(&held); err != nil {
		return err
	}
	return w.cutBack(held.Profiles)
}

// untold refuses profiles that the document of their folder does not tell of:
// what is measured now does not belong with them.
func (w *workloadRun) untold(held *report.WorkloadDocument) error {
	if w.f.overwrite {
		return nil
	}
	found, err := filepath.Glob(filepath.Join(w.f.out, fmt.Sprintf(workloadProfile, "*")))
	if err != nil {
		return fileError("read", w.f.out, err)
	}
	for _, name := range found {
		_, sized := held.Profiles[filepath.Base(name)]
		listed := func(file string) bool { return filepath.Base(file) == filepath.Base(name) }
		if !sized && !slices.ContainsFunc(held.Files, listed) {
			return usage("move it away, -o names another folder, --overwrite replaces it",
				"%s holds points, and no %s says how they were measured", name, filepath.Join(w.f.out, workloadFile))
		}
	}
	return nil
}

// cutBack takes the profiles back to what the document tells of: the points of a
// cell that was being written when a run was killed are measured again.
func (w *workloadRun) cutBack(sizes map[string]int64) error {
	for _, base := range slices.Sorted(maps.Keys(sizes)) {
		name, size := filepath.Join(w.f.out, filepath.Base(base)), sizes[base]
		info, err := os.Stat(name)
		switch {
		case size == 0 && errors.Is(err, fs.ErrNotExist):
			continue // it was killed before the file was made
		case err != nil:
			return fileError("read", name, err)
		case info.Size() < size || size < 0:
			return usage("--overwrite measures all cells anew, -o names another folder", "%s is shorter than it was: %d bytes, and the cells that are done are %d", name, info.Size(), size)
		case info.Size() > size:
			if err := os.Truncate(name, size); err != nil {
				return fileError("write", name, err)
			}
		}
		w.document.Profiles[base] = size
	}
	return nil
}

// openPoints opens the profile that a cell's points are added to. The document
// tells of it, and how long it is, before it grows.
func (w *workloadRun) openPoints(name string) (*os.File, error) {
	base := filepath.Base(name)
	mode := os.O_RDWR | os.O_CREATE
	if _, known := w.document.Profiles[base]; !known {
		size := int64(0)
		if info, err := os.Stat(name); err == nil && !w.f.overwrite {
			size = info.Size() // of a run whose document tells no sizes
		}
		w.document.Profiles[base] = size
		w.wrote(name)
		if err := w.keepDocument(); err != nil {
			return nil, err
		}
		if w.f.overwrite {
			mode |= os.O_TRUNC
		}
	}
	file, err := os.OpenFile(name, mode, 0o644)
	if err != nil {
		return nil, fileError("write", name, err)
	}
	return file, nil
}

// keepDocument writes the document.
func (w *workloadRun) keepDocument() error {
	name := filepath.Join(w.f.out, workloadFile)
	w.wrote(name)
	return writeFile(name, func(out io.Writer) error { return report.JSON(out, w.document) })
}

// alike holds a server to be as those were on which the cells that are done were
// measured: of the same release, and for the same block size with the same
// settings, as far as both told them.
func (w *workloadRun) alike(s *workloadServer) error {
	now := toldBy(s.facts.Deploy)
	for _, r := range w.document.Results {
		if r.Failure != "" {
			continue
		}
		names := []string{"engine", "engine_version"}
		before := toldBy(r.Engine)
		if r.Config.BlockSize == s.opts.BlockSize {
			names = slices.Sorted(maps.Keys(before))
		}
		var differ []string
		for _, name := range names {
			a, told := before[name]
			b, tells := now[name]
			if told && tells && !reflect.DeepEqual(a, b) {
				differ = append(differ, fmt.Sprintf("%s: %s there, %s now", name, stated(a), stated(b)))
			}
		}
		if len(differ) > 0 {
			return usage("measure into another folder: -o FOLDER, or start the server as it was: settings that were not given follow from the largest cell, so give them",
				"the server is not as it was when %s was measured: %s", filepath.Join(w.f.out, workloadFile), strings.Join(differ, "; "))
		}
	}
	return nil
}

// toldBy are the settings of a deployment that are known, by their keys.
func toldBy(c deploy.Config) map[string]any {
	var said map[string]any
	text, err := json.Marshal(c)
	if err != nil || json.Unmarshal(text, &said) != nil {
		return nil
	}
	return said
}

// done reports whether a cell is measured; a block size of 0 stands for any.
func (w *workloadRun) done(c serving.Cell) bool {
	for _, r := range w.document.Results {
		k := r.Config
		if r.ProfilingType == c.Type && k.C == c.NewTokens && k.M == c.CachedBlocks && k.B == c.Requests && (c.BlockSize == 0 || k.BlockSize == c.BlockSize) {
			return true
		}
	}
	return false
}
