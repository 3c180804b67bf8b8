// Package sglang measures SGLang's sglang.bench_one_batch: exact prefill and
// decode batches without a scheduler and without a prefix cache.
//
// One process measures a whole rectangle of the grid. Every batch size stands
// on its command line once for each warm-up and each sample, one after the
// other, so that a shape is warmed up and measured in one go; the output names
// the rows by their order in the product of the lists. The figures come from
// the result file, which SGLang writes when all is done, and from its output
// (rounded to 10 µs, and said so) where it ends before.
//
// The driver follows SGLang's documented command and output. It was tested with
// a program that imitates them, not with SGLang on a GPU, which needs hardware
// that its authors did not have.
package sglang

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	format "github.com/llmprof/llmprof/format/sglang"
	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// New returns the driver.
func New() engine.Driver { return driver{} }

type driver struct{}

// Name is "sglang".
func (driver) Name() string { return "sglang" }

// Abilities are steps, timed on the host around a device synchronisation.
func (driver) Abilities() engine.Abilities {
	return engine.Abilities{Steps: true, Clocks: []profile.Clock{profile.ClockWall}}
}

// packages are what pip is asked for.
const packages = `"sglang[all]"`

// facts is the program that says what the Python has, as one JSON object on
// the last line.
const facts = `
import importlib.metadata, json, sys
found = {"python": sys.version.split()[0], "executable": sys.executable}
for name in ("sglang", "torch"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
if "sglang" in found and "torch" in found:
    import torch
    found["cuda"] = torch.version.cuda or ""
    found["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps(found))
`

// Start looks for SGLang; its processes start with the tasks.
func (driver) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	if setup.NumLayers > 0 {
		// The model is cut by overriding its configuration.
		setup.Args = append(slices.Clone(setup.Args), "--json-model-override-args", fmt.Sprintf(`{"num_hidden_layers": %d}`, setup.NumLayers))
	}
	if setup.StartTimeout == 0 {
		setup.StartTimeout = 15 * time.Minute
	}
	if setup.TaskTimeout == 0 {
		setup.TaskTimeout = 10 * time.Minute
	}
	asking, cancel := context.WithTimeout(ctx, setup.StartTimeout)
	defer cancel()
	missing := func(err error) error { return engine.PythonMissing(err, place, setup.Program, packages) }
	process, err := place.Start(asking, engine.Command{Argv: engine.PythonCommand(setup.Program, "-c", facts), Env: setup.Env, Stderr: setup.Log})
	if err != nil {
		return nil, missing(err)
	}
	ask := fmt.Sprintf("ask %s on %s for SGLang", cmp.Or(setup.Program, "Python"), place)
	_ = process.Stdin().Close() // it reads nothing
	text, err := io.ReadAll(io.LimitReader(process.Stdout(), 1<<20))
	if err := errors.Join(err, process.Wait()); err != nil {
		return nil, missing(fmt.Errorf("%s: %w", ask, err))
	}
	var found struct {
		Python, Executable, SGLang, Torch, CUDA string
		Devices                                 []string
	}
	redactor := engine.NewRedactor(setup.Env...)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &found); err != nil {
		return nil, fmt.Errorf("%s: it answers %q", ask, redactor.Redact(string(lines[len(lines)-1])))
	}
	python := cmp.Or(setup.Program, found.Executable, "python3")
	if found.SGLang == "" {
		return nil, &engine.UnusableError{
			Problem: engine.EngineMissing, What: "sglang in " + python + " on " + place.String(),
			Remedy: engine.PackageRemedy(python, packages),
		}
	}
	s := &session{place: place, setup: setup, python: python, redactor: redactor, facts: engine.Facts{
		Engine: "sglang", Version: found.SGLang, Clock: profile.ClockWall, Timer: "time.perf_counter", Resolution: 1e-9, Deploy: setup.Deploy,
		Libraries: map[string]string{"python": found.Python, "torch": found.Torch},
	}}
	if found.CUDA != "" {
		s.facts.Libraries["cuda"] = found.CUDA
	}
	if len(found.Devices) > 0 {
		s.facts.Device = profile.Device{Reported: found.Devices[0], Count: s.ranks()}
	}
	return s, nil
}

type session struct {
	place    engine.Place
	setup    engine.Setup
	python   string
	facts    engine.Facts
	redactor *engine.Redactor
}

func (s *session) ranks() int {
	return max(1, s.setup.Deploy.TensorParallel) * max(1, s.setup.Deploy.PipelineParallel)
}

// Facts is what is known before the first process: not the capacity of the KV
// cache, which bench_one_batch says with its first line and applies itself.
func (s *session) Facts() engine.Facts { return s.facts }

// Close has nothing to end: a process lasts as long as its tasks.
func (s *session) Close() error { return nil }

// rectangle is what one process measures: every batch size with every input
// length, at one output length.
type rectangle struct {
	batches, inputs  []int
	output           int
	warmup, runs     int
	tasks            map[[2]int]engine.Task
	last             float64 // the largest work, to run the dearest last
	emitted, skipped map[[2]int]bool
}

// rectangles covers the tasks: input lengths that want the same batch sizes
// share a process.
func rectangles(tasks []engine.Task) ([]*rectangle, error) {
	type column struct {
		input, output, warmup, runs int
	}
	columns := map[column][]int{}
	byShape := map[column]map[int]engine.Task{}
	var order []column
	for _, t := range tasks {
		if t.Step == nil {
			return nil, errors.New("sglang times whole steps only")
		}
		c := column{t.Step.InputLen, t.Step.OutputLen, t.Warmup, t.Runs}
		if byShape[c] == nil {
			byShape[c] = map[int]engine.Task{}
			order = append(order, c)
		}
		columns[c] = append(columns[c], t.Step.BatchSize)
		byShape[c][t.Step.BatchSize] = t
	}
	byKey := map[string]*rectangle{}
	var all []*rectangle
	for _, c := range order {
		batches := columns[c]
		slices.Sort(batches)
		key := fmt.Sprint(batches, c.output, c.warmup, c.runs)
		r := byKey[key]
		if r == nil {
			r = &rectangle{
				batches: batches, output: c.output, warmup: c.warmup, runs: c.runs,
				tasks: map[[2]int]engine.Task{}, emitted: map[[2]int]bool{}, skipped: map[[2]int]bool{},
			}
			byKey[key] = r
			all = append(all, r)
		}
		r.inputs = append(r.inputs, c.input)
		for b, t := range byShape[c] {
			r.tasks[[2]int{b, c.input}] = t
		}
		r.last = max(r.last, float64(slices.Max(batches))*float64(c.input))
	}
	for _, r := range all {
		slices.Sort(r.inputs)
	}
	slices.SortStableFunc(all, func(a, b *rectangle) int { return cmp.Compare(a.last, b.last) })
	return all, nil
}

// shapes lists the rows that the process will print, in order.
func (r *rectangle) shapes() [][2]int {
	var out [][2]int
	for _, b := range r.batches {
		for range r.warmup + r.runs {
			for _, i := range r.inputs {
				out = append(out, [2]int{b, i})
			}
		}
	}
	return out
}

// Run measures the tasks, a process for each rectangle of the grid.
func (s *session) Run(ctx context.Context, tasks []engine.Task, emit func(engine.Result) error) error {
	all, err := rectangles(tasks)
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := s.rectangle(ctx, r, emit); err != nil {
			return err
		}
	}
	return nil
}

// argv is the command line of a rectangle.
func (s *session) argv(r *rectangle, result string) []string {
	d := s.setup.Deploy
	argv := []string{s.python, "-m", "sglang.bench_one_batch", "--model-path", s.setup.Model, "--run-name", "llmprof", "--result-filename", result, "--batch-size"}
	for _, b := range r.batches {
		for range r.warmup + r.runs {
			argv = append(argv, strconv.Itoa(b))
		}
	}
	argv = append(argv, "--input-len")
	for _, i := range r.inputs {
		argv = append(argv, strconv.Itoa(i))
	}
	argv = append(argv, "--output-len", strconv.Itoa(r.output))
	if !s.setup.LoadWeights {
		argv = append(argv, "--load-format", "dummy")
	}
	optional := func(flag string, v int) {
		if v > 0 {
			argv = append(argv, flag, strconv.Itoa(v))
		}
	}
	optional("--tp-size", d.TensorParallel)
	optional("--pp-size", d.PipelineParallel)
	optional("--context-length", d.MaxModelLen)
	optional("--page-size", d.BlockSize)
	if s.setup.CUDAGraphs {
		optional("--cuda-graph-max-bs", slices.Max(r.batches))
	}
	if d.MemFractionStatic > 0 {
		argv = append(argv, "--mem-fraction-static", strconv.FormatFloat(d.MemFractionStatic, 'g', -1, 64))
	}
	if d.DType != "" {
		name := map[catalog.DType]string{catalog.BF16: "bfloat16", catalog.FP16: "float16", catalog.FP32: "float32"}[d.DType]
		if name != "" {
			argv = append(argv, "--dtype", name)
		}
	}
	if d.Quantization != "" {
		argv = append(argv, "--quantization", d.Quantization)
	}
	if s.setup.Device != "" {
		argv = append(argv, "--device", s.setup.Device)
	}
	return append(argv, s.setup.Args...)
}

// rectangle runs one process.
func (s *session) rectangle(ctx context.Context, r *rectangle, emit func(engine.Result) error) error {
	dir, remove, err := s.place.TempDir(ctx)
	if err != nil {
		return fmt.Errorf("sglang: %w", err)
	}
	defer func() { _ = remove() }() // a leftover of a place that is gone
	result := path.Join(dir, "result.jsonl")
	// The time of a rectangle is bounded by the time that its tasks may take.
	shapes := r.shapes()
	bounded, cancel := context.WithTimeout(ctx, s.setup.StartTimeout+time.Duration(len(shapes))*s.setup.TaskTimeout)
	defer cancel()
	process, err := s.place.Start(bounded, engine.Command{Argv: s.argv(r, result), Env: s.setup.Env, Stderr: s.setup.Log})
	if err != nil {
		return err
	}
	_ = process.Stdin().Close() // it reads nothing
	rows, watched := s.watch(process, r, shapes)
	ended := errors.Join(watched, process.Wait())
	complete := len(rows) == len(shapes) && ended == nil
	if complete {
		// The file has the same rows, unrounded.
		if err := s.precise(ctx, result, rows); err != nil && ctx.Err() == nil {
			s.log(err.Error())
		}
	}
	for i := range rows {
		if rows[i].Skipped {
			r.skipped[shapes[i]] = true
		}
	}
	if err := s.report(r, shapes, rows, emit); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if complete {
		return nil
	}
	victim := 0
	if len(rows) < len(shapes) {
		victim = r.tasks[shapes[len(rows)]].ID
	}
	if ended == nil {
		ended = fmt.Errorf("bench_one_batch printed %d of %d rows", len(rows), len(shapes))
	}
	if bounded.Err() != nil {
		ended = fmt.Errorf("no row within its time: %w", ended)
	}
	if len(rows) == 0 {
		if missing := s.moduleMissing(ended); missing != nil {
			return missing
		}
	}
	return &engine.DiedError{Engine: "sglang", Task: victim, OutOfMemory: outOfMemory(ended), Err: ended}
}

// moduleMissing recognises a Python without SGLang.
func (s *session) moduleMissing(err error) error {
	if exit, ok := errors.AsType[*engine.ExitError](err); ok && strings.Contains(exit.Stderr, "No module named 'sglang") {
		return &engine.UnusableError{Problem: engine.EngineMissing, What: "sglang in " + s.python + " on " + exit.Place, Remedy: engine.PackageRemedy(s.python, packages), Err: err}
	}
	return nil
}

// outOfMemory reports whether a process seems to have died of want of memory.
func outOfMemory(err error) bool {
	exit, ok := errors.AsType[*engine.ExitError](err)
	if !ok {
		return false
	}
	text := strings.ToLower(exit.Stderr)
	return strings.Contains(text, "out of memory") || exit.Code == 137 || strings.EqualFold(strings.TrimPrefix(strings.ToUpper(exit.Signal), "SIG"), "kill") || strings.EqualFold(exit.Signal, "killed")
}

func (s *session) log(text string) {
	if s.setup.Log != nil {
		_, _ = fmt.Fprintln(s.setup.Log, "sglang: "+s.redactor.Redact(text))
	}
}

// watch reads the rows as they are printed. A process that says nothing for
// longer than a task may take is stopped.
func (s *session) watch(process engine.Process, r *rectangle, shapes [][2]int) ([]format.Row, error) {
	lines := make(chan string)
	scanned := make(chan error, 1)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(process.Stdout())
		in.Buffer(make([]byte, 64<<10), 1<<20)
		for in.Scan() {
			lines <- in.Text()
		}
		scanned <- in.Err()
	}()
	var bench format.Bench
	var rows []format.Row
	patience := time.NewTimer(s.setup.StartTimeout)
	defer patience.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return rows, <-scanned
			}
			row, ok := bench.Line(line)
			if !ok || len(rows) == len(shapes) {
				continue
			}
			rows = append(rows, row)
			patience.Reset(time.Duration(r.warmup+r.runs) * s.setup.TaskTimeout)
		case <-patience.C:
			stopping := process.Stop(5 * time.Second)
			for range lines { // until it has ended
			}
			return rows, errors.Join(fmt.Errorf("nothing was printed for too long after %d of %d rows", len(rows), len(shapes)), stopping)
		}
	}
}

// precise replaces printed figures by those of the result file, whose rows are
// those that were not skipped.
func (s *session) precise(ctx context.Context, result string, rows []format.Row) error {
	file, err := s.place.CopyOut(ctx, result)
	if err != nil {
		return fmt.Errorf("read the result file: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	p, _, err := stepbench.Read("result.jsonl", file, stepbench.Options{})
	if err != nil {
		return err
	}
	at := -1
	next := func() bool {
		for at++; at < len(rows); at++ {
			if !rows[at].Skipped {
				return true
			}
		}
		return false
	}
	for i := range p.Points {
		point := &p.Points[i]
		mean, ok := point.Mean()
		if !ok || point.Step == nil {
			continue
		}
		switch point.Step.Mode {
		case profile.Prefill:
			if !next() {
				return errors.New("the result file holds more rows than were printed")
			}
			if abs(float64(mean)-rows[at].Prefill) > 2*rows[at].Printed {
				return fmt.Errorf("row %d of the result file says %v and the output %v", at+1, mean, unit.Seconds(rows[at].Prefill))
			}
			rows[at].Prefill, rows[at].Printed, rows[at].Total = float64(mean), 0, 0
			if err := json.Unmarshal(point.Extra["total_latency"], &rows[at].Total); err != nil {
				rows[at].Total = 0 // it is not said
			}
		case profile.Decode:
			if at >= 0 && at < len(rows) {
				rows[at].Decode = float64(mean)
			}
		}
	}
	return nil
}

func abs(v float64) float64 { return max(v, -v) }

// report emits the result of every task whose rows are all there.
func (s *session) report(r *rectangle, shapes [][2]int, rows []format.Row, emit func(engine.Result) error) error {
	type times struct {
		engine.StepTimes // in seconds
		seen             int
		rounded          bool
	}
	all := map[[2]int]*times{}
	for i, row := range rows {
		shape := shapes[i]
		t := all[shape]
		if t == nil {
			t = &times{StepTimes: engine.StepTimes{Clock: profile.ClockWall}}
			all[shape] = t
		}
		t.seen++
		if row.Skipped || t.seen <= r.warmup {
			continue
		}
		t.Prefill = append(t.Prefill, row.Prefill)
		t.rounded = t.rounded || row.Printed > 0
		if row.Decode > 0 {
			t.Decode = append(t.Decode, row.Decode)
		}
		if row.Printed == 0 && row.Total > 0 { // printed, it is rounded to 1 ms
			t.Totals = append(t.Totals, row.Total)
		}
	}
	for _, shape := range shapes {
		t, task := all[shape], r.tasks[shape]
		if t == nil || t.seen < r.warmup+r.runs || r.emitted[shape] {
			continue
		}
		r.emitted[shape] = true
		result := engine.Result{Task: task}
		if r.skipped[shape] {
			result.Failure = engine.FailureLimits
		} else {
			var err error
			if result.Points, err = points(*task.Step, t.StepTimes, t.rounded); err != nil {
				result.Failure = engine.FailureException + err.Error()
			}
		}
		if err := emit(result); err != nil {
			return err
		}
	}
	return nil
}

// points builds the points of a task. What not every run has is left out.
func points(t engine.StepTask, times engine.StepTimes, rounded bool) ([]profile.Point, error) {
	if rounded {
		times.Warnings = []string{"rounded to 10 µs: read from the output of a process that ended early"}
	}
	if len(times.Decode) != len(times.Prefill) || t.OutputLen < 2 {
		times.Decode = nil
	}
	if len(times.Totals) != len(times.Prefill) {
		times.Totals = nil
	}
	return engine.StepPoints(t, times)
}
