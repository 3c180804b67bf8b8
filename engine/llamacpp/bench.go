package llamacpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

// Bench drives llama-bench. It computes one sequence at a time; tasks of more
// are answered with [engine.FailureLimits]. Setup.Program is the program to
// use, Setup.Args are further arguments for it. It warms up by itself, once
// before each test, so that a task's warm-up runs add nothing.
func Bench() engine.Driver { return bench{} }

type bench struct{}

// program is what is looked for where the setup names no program.
const program = "llama-bench"

// Name is that of the program.
func (bench) Name() string { return program }

// Abilities are steps of one sequence in wall time.
func (bench) Abilities() engine.Abilities {
	return engine.Abilities{Steps: true, MaxBatch: 1, Clocks: []profile.Clock{profile.ClockWall}, AnewForTask: true}
}

// Check refuses what has no place on the command line, and other clocks.
func (bench) Check(setup engine.Setup) error {
	if setup.Clock != "" && setup.Clock != profile.ClockWall {
		return fmt.Errorf("it times with the clock %s, not %s", profile.ClockWall, setup.Clock)
	}
	return refuse(unapplied(setup)...)
}

// Start runs the shortest test there is, which loads the model and tells build
// and device.
func (b bench) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	setup.Log = engine.Concurrent(setup.Log)
	fail := func(format string, args ...any) error {
		return fmt.Errorf("start %s on %s: "+format, append([]any{program, place}, args...)...)
	}
	if setup.Model == "" {
		return nil, fail("no model is named: want a .gguf file")
	}
	if err := b.Check(setup); err != nil {
		return nil, fail("%w", err)
	}
	s := &benchSession{place: place, setup: setup, program: cmp.Or(setup.Program, program), redactor: engine.NewRedactor(setup.Env...)}
	s.start, s.task = cmp.Or(setup.StartTimeout, 15*time.Minute), cmp.Or(setup.TaskTimeout, 10*time.Minute)
	help, err := s.help(ctx)
	if err != nil {
		return nil, err
	}
	if s.depths = strings.Contains(help, "--n-depth"); !s.depths {
		s.facts.Warnings = append(s.facts.Warnings, "this llama-bench is too old to decode after a prompt (it has no --n-depth): prompts only")
	}
	var first *profile.Profile
	err = s.run(ctx, s.start, shortest(), func(p *profile.Profile) error {
		first = cmp.Or(first, p)
		return nil
	})
	switch {
	case err != nil:
		return nil, startError(err, s.program, place, setup.Model)
	case first == nil:
		return nil, fail("it printed no result")
	}
	s.readFacts(first)
	return s, nil
}

// unapplied is what has no place on llama-bench's command line.
func unapplied(setup engine.Setup) []option {
	d := setup.Deploy
	return append(
		common(setup, "leave it out; llama-bench takes all devices, and --engine-arg -sm --engine-arg row splits each layer over them"),
		option{
			d.KVCacheDType != "" && cacheType(d.KVCacheDType) == "",
			fmt.Sprintf("KV cache of %s: llama.cpp's formats have names of their own", d.KVCacheDType),
			"--engine-arg -ctk --engine-arg q4_0 --engine-arg -ctv --engine-arg q4_0, or another that llama.cpp knows",
		},
		option{
			d.MaxModelLen != 0, fmt.Sprintf("--max-model-len %d: llama-bench makes each context as long as its test", d.MaxModelLen),
			"leave it out, or bound the grid",
		},
	)
}

// startError finds what mends a failure of the first run.
func startError(err error, program string, place engine.Place, model string) error {
	exit, ok := errors.AsType[*engine.ExitError](err)
	switch {
	case !ok:
		return err
	case engine.OutOfMemory(err):
		return &engine.DiedError{Engine: program, OutOfMemory: true, Err: err}
	case strings.Contains(exit.Stderr, "load model"):
		return &modelError{what: fmt.Sprintf("load %s with %s on %s", model, program, place), err: err}
	}
	return &engine.DiedError{Engine: program, Err: err}
}

// modelError says that a model cannot be loaded.
type modelError struct {
	what string
	err  error
}

// Error names model and cause.
func (e *modelError) Error() string { return e.what + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *modelError) Unwrap() error { return e.err }

// Hint says what to do next.
func (e *modelError) Hint() string {
	return "name a .gguf file as the engine's place sees it; a newer llama.cpp may know the model"
}

// benchSession runs the program once for each group of tasks.
type benchSession struct {
	place       engine.Place
	setup       engine.Setup
	program     string
	start, task time.Duration
	// depths says that the program has --n-depth.
	depths   bool
	facts    engine.Facts
	redactor *engine.Redactor
}

// Facts is what the first test told.
func (s *benchSession) Facts() engine.Facts { return s.facts }

// Close does nothing: no process outlives its run.
func (*benchSession) Close() error { return nil }

// readFacts takes what a result states of build, device and model.
func (s *benchSession) readFacts(p *profile.Profile) {
	h := p.Header
	f := &s.facts
	f.Engine, f.Version, f.Device = h.Deploy.Engine, h.Deploy.EngineVersion, h.Device
	f.Clock, f.Timer, f.Resolution = profile.ClockWall, "std::chrono", 1e-9
	f.MaxBatch = 1
	f.Libraries = map[string]string{}
	for key, name := range map[string]string{"backends": "backends", "build_commit": "commit"} {
		if text := strings.Trim(string(h.Metadata[key]), `"`); text != "" {
			f.Libraries[name] = text
		}
	}
	if n, err := strconv.Atoi(string(h.Metadata["n_threads"])); err == nil {
		f.Threads = max(n, 0)
	}
	if size, err := strconv.ParseInt(string(h.Metadata["model_size"]), 10, 64); err == nil && size > 0 {
		f.Memory = append(f.Memory, profile.Point{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryWeights, Bytes: size}})
	}
	// Formats are the file's and what the program says that it uses.
	asked := s.setup.Deploy
	f.Deploy = deploy.Config{
		Model: cmp.Or(asked.Model, s.setup.Model), Engine: f.Engine, EngineVersion: f.Version,
		TensorParallel: asked.TensorParallel, PipelineParallel: asked.PipelineParallel, // of which there is no more than 1
		DType: h.Deploy.DType, Quantization: h.Deploy.Quantization, KVCacheDType: h.Deploy.KVCacheDType,
	}
	if asked.MaxNumBatchedTokens > 0 {
		f.Deploy.MaxNumBatchedTokens = asked.MaxNumBatchedTokens
		if n, err := strconv.Atoi(string(h.Metadata["n_ubatch"])); err == nil && n > 0 {
			f.Deploy.MaxNumBatchedTokens = n
		}
	}
}

// arguments are those of every run.
func (s *benchSession) arguments() []string {
	list := []string{"-m", s.setup.Model, "-o", "jsonl"}
	add := func(flag string, value int) { list = append(list, flag, strconv.Itoa(value)) }
	if s.setup.Threads > 0 {
		add("-t", s.setup.Threads)
	}
	switch s.setup.Device {
	case "":
	case "cpu":
		add("-ngl", 0)
	default:
		add("-ngl", 99) // more than models have: all of them
	}
	if n := s.setup.Deploy.MaxNumBatchedTokens; n > 0 {
		add("-b", n)
		add("-ub", n)
	}
	if name := cacheType(s.setup.Deploy.KVCacheDType); name != "" {
		list = append(list, "-ctk", name, "-ctv", name)
	}
	return append(list, s.setup.Args...)
}

// cacheType is llama.cpp's name of a format of the KV cache; empty for those
// that it does not have.
func cacheType(t catalog.DType) string {
	switch t {
	case catalog.FP16:
		return "f16"
	case catalog.BF16:
		return "bf16"
	case catalog.FP32:
		return "f32"
	case catalog.INT8:
		return "q8_0"
	}
	return ""
}

// maxGroup is how many tasks share the loading of the model, which is also how
// many may be lost when a run is stopped.
const maxGroup = 4

// group is a few tasks that two runs of the program measure: the prompts, and
// the decoding of the same number of tokens after each.
type group struct {
	output, runs int
	tasks        []*pending
}

// pending is a task under way.
type pending struct {
	engine.Result
	// prompted and done say what is measured, or given up.
	prompted, done bool
}

// fail ends a task.
func (p *pending) fail(reason string) {
	p.Failure, p.prompted, p.done = reason, true, true
}

// groups cuts tasks, in their order, into those that runs can share.
func groups(tasks []engine.Task) []group {
	var list []group
	for _, t := range tasks {
		p := &pending{Result: engine.Result{Task: t}}
		output := 0
		switch {
		case t.Step == nil || t.Runs < 1 || t.Step.BatchSize < 1 || t.Step.InputLen < 1 || t.Step.OutputLen < 1:
			p.fail(engine.FailureException + "llama-bench measures steps of at least one sequence, token and run")
		case t.Step.BatchSize > 1:
			p.fail(engine.FailureLimits)
		}
		if t.Step != nil {
			output = t.Step.OutputLen
		}
		last := len(list) - 1
		if last < 0 || len(list[last].tasks) == maxGroup || list[last].output != output || list[last].runs != t.Runs {
			list = append(list, group{output: output, runs: t.Runs})
			last++
		}
		list[last].tasks = append(list[last].tasks, p)
	}
	return list
}

// Run measures the tasks in their order, a few at a time; a result is emitted
// as soon as the decoding of its task is measured.
func (s *benchSession) Run(ctx context.Context, tasks []engine.Task, emit func(engine.Result) error) error {
	for _, g := range groups(tasks) {
		if err := s.measure(ctx, g, emit); err != nil {
			return err
		}
	}
	return nil
}

// measure runs one group.
func (s *benchSession) measure(ctx context.Context, g group, emit func(engine.Result) error) error {
	for _, p := range g.tasks {
		if p.done {
			if err := emit(p.Result); err != nil {
				return err
			}
		}
	}
	for _, decode := range []bool{false, true} {
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			var open []*pending
			for _, p := range g.tasks {
				if !p.prompted || decode && !p.done {
					open = append(open, p)
				}
			}
			if len(open) == 0 {
				break
			}
			if err := s.part(ctx, g, open, decode, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

// part runs the program for the prompts or the decoding of tasks. A run that
// fails ends the task that it was at; the caller comes again for the rest.
func (s *benchSession) part(ctx context.Context, g group, tasks []*pending, decode bool, emit func(engine.Result) error) error {
	lengths := make([]string, len(tasks))
	for i, p := range tasks {
		lengths[i] = strconv.Itoa(p.Task.Step.InputLen)
	}
	args := []string{"-p", strings.Join(lengths, ","), "-n", "0"}
	if decode {
		args = []string{"-p", "0", "-n", strconv.Itoa(g.output - 1), "-d", strings.Join(lengths, ",")}
	}
	args = append(args, "-r", strconv.Itoa(g.runs))

	left := tasks
	var refused error // what emit said
	end := s.run(ctx, s.task*time.Duration(g.runs+1), args, func(result *profile.Profile) error {
		for _, point := range result.Points {
			i := slices.IndexFunc(left, func(p *pending) bool { return p.Task.Step.InputLen == point.Step.InputLen })
			if i < 0 || (point.Step.Mode == profile.Decode) != decode {
				continue // not asked for
			}
			p := left[i]
			left = slices.Concat(left[:i], left[i+1:])
			p.take(point, s.depths)
			if p.done {
				refused = emit(p.Result)
				if refused != nil {
					return refused
				}
			}
		}
		return nil
	})
	switch {
	case refused != nil:
		return refused
	case ctx.Err() != nil:
		return ctx.Err()
	case len(left) == 0:
		return nil
	}
	// Tests run in the order of the list, so the program was at the first of
	// those that are left, unless it cannot run at all.
	if err := s.alive(ctx, end); err != nil {
		return err
	}
	left[0].fail(failure(end))
	return emit(left[0].Result)
}

// alive returns nil where a run's end is its task's own affair: where the
// program still runs the shortest test there is.
func (s *benchSession) alive(ctx context.Context, end error) error {
	died := &engine.DiedError{Engine: program, OutOfMemory: engine.OutOfMemory(end), Err: end}
	if engine.Unusable(end) != "" || errors.As(end, new(*engine.DiedError)) {
		return died
	}
	tested := false
	err := s.run(ctx, s.start, shortest(), func(*profile.Profile) error {
		tested = true
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case tested && err == nil:
		return nil
	case err == nil:
		err = errors.New("it printed no result")
	}
	died.OutOfMemory = engine.OutOfMemory(err)
	died.Err = fmt.Errorf("the shortest test fails: %w; before that: %s", err, failure(end))
	return died
}

// shortest are the arguments of the shortest test there is.
func shortest() []string { return []string{"-p", "1", "-n", "0", "-r", "1"} }

// take books a measured point on its task; depths says that the program can
// decode after a prompt.
func (p *pending) take(point profile.Point, depths bool) {
	step := p.Task.Step.PrefillStep()
	p.done = p.Task.Step.OutputLen == 1
	switch {
	case point.Step.Mode == profile.Decode:
		step = p.Task.Step.DecodeStep()
		p.done = true
	case !p.done && !depths:
		p.fail(engine.FailureRuntime + "this llama-bench is too old to decode after a prompt")
	}
	point.Step, point.Origin, point.Extra = &step, "", nil
	p.Points = append(p.Points, point)
	p.prompted = true
}
