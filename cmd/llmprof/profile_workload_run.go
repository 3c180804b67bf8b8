package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
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
	"github.com/llmprof/llmprof/unit"
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
	return &incompleteError{fmt.Sprintf("%d of %s could not be measured", failed, unit.Plural(len(w.document.Results), "cell")), "the reasons stand above; --resume tries them again"}
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
			if err := w.alike(s); err != nil {
				return err
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

// keep writes what was measured of a cell. The document comes last, so that what
// it does not tell of is measured again.
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
	return w.keepDocument()
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
	name := filepath.Join(w.f.out, fmt.Sprintf(workloadProfile, strconv.Itoa(r.Cell.BlockSize)))
	file, err := w.openPoints(name)
	if err != nil {
		return err
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
		points = append(s.facts.Memory, points...)
	}
	if err := errors.Join(out.Write(points...), out.Close()); err != nil {
		return err
	}
	w.document.Profiles[filepath.Base(name)], err = file.Seek(0, io.SeekEnd)
	return err
}
