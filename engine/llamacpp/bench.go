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
	return engine.Abilities{Steps: true, MaxBatch: 1, Clocks: []profile.Clock{profile.ClockWall}}
}

// Start runs the shortest test there is, which loads the model and tells build
// and device.
func (bench) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("start %s on %s: "+format, append([]any{program, place}, args...)...)
	}
	switch {
	case setup.Model == "":
		return nil, fail("no model is named: want a .gguf file")
	case setup.NumLayers > 0:
		return nil, fail("a GGUF file is measured as it is, it cannot be cut to its first %d layers", setup.NumLayers)
	case setup.Clock != "" && setup.Clock != profile.ClockWall:
		return nil, fail("it times with the clock %s, not %s", profile.ClockWall, setup.Clock)
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
	err = s.run(ctx, s.start, []string{"-p", "1", "-n", "0", "-r", "1"}, func(p *profile.Profile) error {
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

// startError finds what mends a failure of the first run.
func startError(err error, program string, place engine.Place, model string) error {
	exit, ok := errors.AsType[*engine.ExitError](err)
	switch {
	case !ok:
		return err
	case outOfMemory(err):
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
	f.Deploy = s.setup.Deploy
	f.Deploy.Model = cmp.Or(f.Deploy.Model, s.setup.Model)
	f.Deploy.Engine, f.Deploy.EngineVersion = f.Engine, f.Version
	f.Deploy.DType = cmp.Or(h.Deploy.DType, f.Deploy.DType)
	f.Deploy.Quantization = cmp.Or(h.Deploy.Quantization, f.Deploy.Quantization)
	f.Deploy.KVCacheDType = cmp.Or(h.Deploy.KVCacheDType, f.Deploy.KVCacheDType)
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

// group is a set of tasks that two runs of the program measure: the prompts,
// and the decoding of the same number of tokens after each.
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

// groups sorts tasks by what runs can share, in the order of the first of each.
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
		default:
			output = t.Step.OutputLen
		}
		at := slices.IndexFunc(list, func(g group) bool { return g.output == output && g.runs == t.Runs })
		if at < 0 {
			at = len(list)
			list = append(list, group{output: output, runs: t.Runs})
		}
		list[at].tasks = append(list[at].tasks, p)
	}
	return list
}

// Run measures the tasks, those with equal output length and runs together; a
// result is emitted as soon as the decoding of its task is measured.
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
	for _, decode := range []bool{false, true} {
		for {
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
		if decode {
			break
		}
		for _, p := range g.tasks {
			if !p.done && (g.output == 1 || !s.depths) {
				p.done = true
				if g.output > 1 {
					p.Failure = engine.FailureRuntime + "this llama-bench is too old to decode after a prompt"
				}
			}
			if p.done {
				if err := emit(p.Result); err != nil {
					return err
				}
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
			p.take(point)
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
	// those that are left.
	reason := failure(end)
	p := left[0]
	if problem := engine.Unusable(end); problem != "" {
		return end
	}
	p.fail(reason)
	if decode {
		return emit(p.Result)
	}
	return nil // emitted with the others that are done after the prompts
}

// take books a measured point on its task.
func (p *pending) take(point profile.Point) {
	step := p.Task.Step.PrefillStep()
	if point.Step.Mode == profile.Decode {
		step = p.Task.Step.DecodeStep()
		p.done = true
	}
	point.Step, point.Origin, point.Extra = &step, "", nil
	p.Points = append(p.Points, point)
	p.prompted = true
}
