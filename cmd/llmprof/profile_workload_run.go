package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/measure"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/measure/serving"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
)

// workloadRun measures cells into a folder.
type workloadRun struct {
	app      *app
	f        *profileWorkloadFlags
	model    string // the name to record
	where    engine.Place
	driver   engine.Driver
	setup    engine.Setup
	sampling memory.Sampling
	document report.WorkloadDocument
	meter    *meter
	points   map[int]bool // files of this run, by block size
	total    int          // cells
}

func (a *app) profileWorkload(ctx context.Context, f *profileWorkloadFlags) (fault error) {
	if err := a.usePreset(f); err != nil {
		return err
	}
	if err := f.validate(); err != nil {
		return err
	}
	w := &workloadRun{app: a, f: f, meter: a.newMeter(), points: map[int]bool{}}
	if err := w.prepare(ctx); err != nil {
		return err
	}
	defer func() { fault = errors.Join(fault, f.close()) }()
	if err := w.folder(); err != nil {
		return err
	}
	sizes := f.blockSize.values
	if len(sizes) == 0 {
		sizes = []int{0}
	}
	var err error
	for _, size := range sizes {
		if err = w.server(ctx, size); err != nil {
			break
		}
	}
	w.meter.end()
	if f.results != "" && len(w.document.Results) == 1 {
		err = errors.Join(err, writeFile(f.results, func(out io.Writer) error { return report.JSON(out, w.document.Results[0]) }))
		w.wrote(f.results)
	}
	if err != nil && len(w.document.Results) == 0 {
		return err
	}
	// What is done is shown all the same.
	if err := errors.Join(err, a.write(w.document, report.WorkloadTables(w.document)...)); err != nil {
		return err
	}
	return w.verdict()
}

// verdict is an error where cells could not be measured.
func (w *workloadRun) verdict() error {
	failed := 0
	for _, r := range w.document.Results {
		if r.Failure != "" {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return &incompleteError{fmt.Sprintf("%d of %d cells could not be measured", failed, len(w.document.Results)), "the reasons stand above; --resume tries them again"}
}

// prepare finds what is measured, and where.
func (w *workloadRun) prepare(ctx context.Context) error {
	f := w.f
	if f.url != "" {
		if !strings.Contains(f.url, "://") {
			f.url = "http://" + f.url
		}
		w.where, w.model = place.Local(), f.model
		if w.f.sampler == memory.SamplerAuto {
			return nil // the server may be anywhere
		}
		var err error
		w.sampling, err = memory.FindSampler(ctx, w.where, memory.Wanted{Sampler: f.sampler})
		return err
	}
	cat, err := w.app.catalog()
	if err != nil {
		return err
	}
	model, err := w.app.engineModel(cat, f.model, f.local())
	if err != nil {
		return err
	}
	w.model, f.name = model.name, "vllm"
	// The flags of one server are set for each.
	sizes := f.blockSize.values
	f.blockSize.values = []int{0}
	w.driver, w.where, w.setup, err = f.open(ctx, model)
	f.blockSize.values = sizes
	if err != nil {
		return err
	}
	run, err := w.app.newMemoryRun(ctx, memoryRun{cat: cat, driver: w.driver, place: w.where, setup: w.setup}, f.samplerFlags, nil)
	if err != nil {
		return err
	}
	w.setup, w.sampling = run.setup, run.sampling
	if w.app.verbose {
		w.setup.Log = w.app.stderr
	}
	return nil
}

// workloadFile is the name of the document in a folder.
const workloadFile = "workload.json"

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
	w.document = report.WorkloadDocument{Head: report.NewHead("workload", version()), Place: at, Results: []report.WorkloadResult{}, Asked: w.asked()}
	name := filepath.Join(f.out, workloadFile)
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return fileError("write", f.out, err)
		}
		return nil
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
	return nil
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

// server measures all cells of a block size that are left; 0 is the engine's.
func (w *workloadRun) server(ctx context.Context, size int) (fault error) {
	var left []serving.Cell
	for _, c := range w.f.cells(size) {
		if !w.done(c) {
			left = append(left, c)
		}
	}
	if len(left) == 0 {
		return nil
	}
	var s *workloadServer
	defer func() { fault = errors.Join(fault, s.close()) }()
	for i, c := range left {
		if s == nil {
			var err error
			if s, err = w.start(ctx, size); err != nil {
				if ctx.Err() != nil || w.f.url != "" {
					return err
				}
				return w.refused(left[i:], err)
			}
		}
		if c.BlockSize == 0 {
			c.BlockSize = s.opts.BlockSize
		}
		alive, err := w.cell(ctx, s, c, i+1, len(left))
		if err != nil {
			return err
		}
		if !alive && s.session != nil && i+1 < len(left) {
			w.app.warn("the server died and is started again")
			err, s = s.close(), nil
			w.app.log().Debug(fmt.Sprint("the end of the server: ", err))
		}
	}
	return nil
}

// refused notes cells whose server did not start, and goes on with those of
// other settings.
func (w *workloadRun) refused(cells []serving.Cell, err error) error {
	var hinted interface{ Hint() string }
	hint := ""
	if errors.As(err, &hinted) {
		hint = hinted.Hint()
	}
	for _, c := range cells {
		r := &serving.Result{Cell: c, Started: time.Now(), Failure: err.Error(), Hint: hint}
		if fault := w.keep(r, &workloadServer{asked: w.f.ask(w.setup, c.BlockSize).Deploy}); fault != nil {
			return fault
		}
	}
	w.meter.end()
	w.app.warn("the server did not start: " + err.Error())
	return nil
}

// progress is how far a cell is, in words.
func (w *workloadRun) progress(p serving.Progress) string {
	text := fmt.Sprintf("[%d/%d] %s: %s", len(w.document.Results)+1, w.total, p.Cell, p.Phase)
	if p.Runs > 0 {
		text += fmt.Sprintf(", run %d of %d", p.Run, p.Runs)
	}
	return text
}

// cell measures one cell; alive is false where the server does not answer any
// more.
func (w *workloadRun) cell(ctx context.Context, s *workloadServer, c serving.Cell, number, of int) (alive bool, err error) {
	w.app.log().Debug(fmt.Sprintf("cell %d of %d: %s", number, of, c))
	r, err := s.on.Measure(ctx, c)
	if err != nil {
		return false, err
	}
	if err := w.keep(r, s); err != nil {
		return false, err
	}
	if r.Failure == "" {
		return true, nil
	}
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, gone := load.About(asking, s.opts.Target)
	return gone == nil, nil
}

// keep writes what was measured of a cell.
func (w *workloadRun) keep(r *serving.Result, s *workloadServer) error {
	f, c := w.f, r.Cell
	name := fmt.Sprintf("%s_C%d_M%d_B%d_BS%d", c.Type, c.NewTokens, c.CachedBlocks, c.Requests, c.BlockSize)
	file := filepath.Join(f.out, name+".json")
	result := report.Workload(r, report.WorkloadRun{
		Model: w.model, Asked: s.asked, Ran: s.facts.Deploy, MaxPartialPrefills: f.partial, Warmup: f.warmup, Runs: f.runs, OnCPU: w.sampling.ByProcess, ResultsFile: cmp.Or(f.results, file),
	})
	if err := writeFile(file, func(out io.Writer) error { return report.JSON(out, result) }); err != nil {
		return err
	}
	if err := w.keepPoints(r, s); err != nil {
		return err
	}
	w.document.Results = append(w.document.Results, result)
	w.wrote(file)
	w.wrote(filepath.Join(f.out, workloadFile))
	return writeFile(filepath.Join(f.out, workloadFile), func(out io.Writer) error { return report.JSON(out, w.document) })
}

// wrote notes a file once.
func (w *workloadRun) wrote(name string) {
	for _, known := range w.document.Files {
		if known == name {
			return
		}
	}
	w.document.Files = append(w.document.Files, name)
}

// keepPoints adds a cell's points to the profile of its server.
func (w *workloadRun) keepPoints(r *serving.Result, s *workloadServer) (fault error) {
	if r.Failure != "" {
		return nil // the document says it; a profile holds what was measured
	}
	points, err := r.Points()
	if err != nil {
		return err
	}
	name := filepath.Join(w.f.out, fmt.Sprintf("blocks-of-%d.llmprof", r.Cell.BlockSize))
	mode := os.O_RDWR | os.O_CREATE
	if w.f.overwrite && !w.points[r.Cell.BlockSize] {
		mode |= os.O_TRUNC
	}
	file, err := os.OpenFile(name, mode, 0o644)
	if err != nil {
		return fileError("write", name, err)
	}
	defer func() { fault = errors.Join(fault, file.Close()) }()
	header := measure.Header(s.facts)
	header.Tool, header.Created, header.Source = version(), time.Now().UTC().Format(time.RFC3339), "llmprof profile workload"
	header.Deploy.Model = w.model
	out, err := profile.Append(name, file, header)
	if err != nil {
		return err
	}
	if !w.points[r.Cell.BlockSize] {
		w.points[r.Cell.BlockSize] = true
		w.wrote(name)
		points = append(s.facts.Memory, points...)
	}
	return errors.Join(out.Write(points...), out.Close())
}
