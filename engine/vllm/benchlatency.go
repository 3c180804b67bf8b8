package vllm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/format/vllmlog"
	"github.com/llmprof/llmprof/profile"
)

// BenchLatency measures by the differences of "vllm bench latency": one run
// of the command with one output token and one with all of them. Each loads the
// model anew, so that a task takes minutes. The prefill holds the host's work
// for a request; its points say so.
type BenchLatency struct {
	// Whole runs the command once for a task, with all output tokens: the
	// result has the times of whole runs and no points.
	Whole bool
}

// Name is "vllm-bench".
func (BenchLatency) Name() string { return "vllm-bench" }

// Abilities are steps by wall clock.
func (BenchLatency) Abilities() engine.Abilities {
	return engine.Abilities{Steps: true, CUDAGraphs: true, Clocks: []profile.Clock{profile.ClockWall}, AnewForTask: true}
}

// Check refuses what would run as something else, and other clocks.
func (BenchLatency) Check(setup engine.Setup) error {
	if setup.Clock != "" && setup.Clock != profile.ClockWall {
		return fmt.Errorf("start vllm: clock %q: vllm bench latency times by wall clock", setup.Clock)
	}
	return unsupported(setup.Deploy)
}

// Start looks whether the program is there; each task starts it again.
func (b BenchLatency) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	if setup.Model == "" {
		return nil, &StartError{Reason: "no model is named", Remedy: "name a folder with a config.json or a hub id"}
	}
	if err := b.Check(setup); err != nil {
		return nil, err
	}
	setup.Program = program(setup)
	if setup.StartTimeout <= 0 {
		setup.StartTimeout = defaultStart
	}
	if setup.TaskTimeout <= 0 {
		setup.TaskTimeout = defaultTask
	}
	s := &benchSession{place: place, setup: setup, limits: limitsOf(setup), whole: b.Whole}
	s.model, s.folder = known(ctx, place, setup.Model)
	starting, cancel := context.WithTimeout(ctx, setup.StartTimeout)
	defer cancel()
	said, log, err := s.command(starting, "--version")
	if err != nil {
		if ctx.Err() == nil && starting.Err() != nil {
			return nil, &StartError{Reason: fmt.Sprintf("vllm --version gave no answer within %v", setup.StartTimeout), Remedy: "a longer start timeout"}
		}
		if _, is := errors.AsType[*engine.UnusableError](err); is || ctx.Err() != nil {
			return nil, err
		}
		return nil, refusal(log, err)
	}
	version := ""
	if found := versionWord.FindAllString(said, -1); len(found) > 0 {
		version = found[len(found)-1]
	}
	s.facts = engine.Facts{
		Engine: "vllm", Version: version, Clock: profile.ClockWall, Timer: "vllm bench latency", Deploy: flagged(setup, s.limits),
		MaxModelLen: s.limits.modelLen, MaxBatch: s.limits.sequences, Layers: layersOf(s.model, setup.NumLayers),
		Threads: threadsOf(setup.Deploy, environment(s.model, s.folder, setup)),
	}
	if !b.Whole {
		s.facts.Warnings = []string{"prefill times hold the host's work for a request; decode times are differences of whole runs"}
	}
	s.facts.Deploy.EngineVersion = version
	if setup.Device != "" {
		s.facts.Device = profile.Device{Reported: setup.Device, Count: max(s.facts.Deploy.TensorParallel, 1) * max(s.facts.Deploy.PipelineParallel, 1)}
	}
	return s, nil
}

var versionWord = regexp.MustCompile(`\d+\.\d+(?:\.\d+)?\S*`)

// benchSession runs the command for each task.
type benchSession struct {
	place  engine.Place
	setup  engine.Setup
	model  *catalog.Model
	folder bool
	limits limits
	facts  engine.Facts
	whole  bool
}

// Facts is what the program said of itself.
func (s *benchSession) Facts() engine.Facts { return s.facts }

// redactor takes out the secrets of the place and of the setup.
func (s *benchSession) redactor() *engine.Redactor {
	return engine.RedactorOf(s.place, s.setup.Env...)
}

// Close does nothing: no process outlives its task.
func (s *benchSession) Close() error { return nil }

// Run measures the tasks in order.
func (s *benchSession) Run(ctx context.Context, tasks []engine.Task, emit func(engine.Result) error) error {
	for _, task := range tasks {
		result := engine.Result{Task: task}
		if err := s.task(ctx, task, &result); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if engine.Unusable(err) != "" {
				return err
			}
			result.Failure = s.redactor().Redact(failureOf(err))
			if advised, ok := errors.AsType[*StartError](err); ok {
				result.Hint = advised.Hint()
			}
		}
		if err := emit(result); err != nil {
			return err
		}
	}
	return nil
}

// failureOf is a task's error as a reason.
func failureOf(err error) string {
	if end, ok := errors.AsType[*taskError](err); ok {
		return end.failure
	}
	if start, ok := errors.AsType[*StartError](err); ok {
		if start.OutOfMemory {
			return engine.FailureOOM
		}
		kind := engine.FailureRuntime
		if start.Refused {
			kind = engine.FailureRefused
		}
		return kind + strings.TrimPrefix(start.Error(), "start ")
	}
	return engine.FailureException + err.Error()
}

// task runs the command once or twice.
func (s *benchSession) task(ctx context.Context, task engine.Task, result *engine.Result) error {
	t := task.Step
	if t == nil || t.BatchSize < 1 || t.InputLen < 1 || t.OutputLen < 1 {
		return &taskError{engine.FailureException + "vllm bench latency measures whole steps of 1 or more prompts and tokens"}
	}
	if n := s.limits.modelLen; n > 0 && t.InputLen+t.OutputLen > n {
		return &taskError{engine.FailureLimits}
	}
	if s.whole {
		run, err := s.latency(ctx, task, t.OutputLen, result)
		if err == nil {
			result.Totals = times(run.Latency)
		}
		return err
	}
	short, err := s.latency(ctx, task, 1, result)
	if err != nil {
		return err
	}
	if t.OutputLen == 1 {
		point, err := vllmbench.PrefillFrom(short)
		if err == nil {
			result.Points, result.Totals = []profile.Point{point}, times(short.Latency)
		}
		return err
	}
	long, err := s.latency(ctx, task, t.OutputLen, result)
	if err != nil {
		return err
	}
	points, err := vllmbench.StepsFrom(short, long)
	if err != nil {
		result.Points = points
		return &taskError{engine.FailureException + err.Error()}
	}
	result.Points, err = uniform(*t, points, long.Latency)
	result.Totals = times(long.Latency)
	return err
}

// times are the latencies of a run in seconds that are such.
func times(l *vllmbench.Latency) []float64 {
	return slices.DeleteFunc(slices.Clone(l.Latencies), func(s float64) bool { return !(s > 0) })
}

// uniform makes the points of two runs, prefill and decode, as those of all
// drivers are. What they say of themselves stays; the longer run is whole.
func uniform(t engine.StepTask, points []profile.Point, whole *vllmbench.Latency) ([]profile.Point, error) {
	if len(points) != 2 {
		return points, nil
	}
	out, err := engine.StepPoints(t, engine.StepTimes{
		Prefill: points[0].Samples, Decode: points[1].Samples, Totals: times(whole), Clock: profile.ClockWall,
	})
	if err != nil {
		return nil, err
	}
	for i, p := range points {
		out[i].Origin, out[i].Warnings = p.Origin, p.Warnings
	}
	return out, nil
}

// latency runs the command and reads its file. What the log tells of memory
// becomes the result's.
func (s *benchSession) latency(ctx context.Context, task engine.Task, output int, result *engine.Result) (vllmbench.Run, error) {
	t := task.Step
	run := vllmbench.Run{BatchSize: t.BatchSize, InputLen: t.InputLen, OutputLen: output}
	dir, remove, err := s.place.TempDir(ctx)
	if err != nil {
		return run, err
	}
	defer remove() //nolint:errcheck // a folder left behind spoils no measurement
	file := path.Join(dir, "latency.json")
	// The command has no time for the start of its own.
	bounded, cancel := context.WithTimeout(ctx, s.setup.StartTimeout+s.setup.TaskTimeout*time.Duration(max(task.Warmup, 0)+max(task.Runs, 1)))
	defer cancel()
	once := *t
	once.OutputLen = output
	_, log, err := s.command(bounded, latencyArgs(s.setup, s.limits, once, task.Warmup, task.Runs, file)...)
	s.read(log, result)
	switch {
	case ctx.Err() != nil:
		return run, ctx.Err()
	case bounded.Err() != nil:
		return run, &taskError{engine.FailureTimeout + "vllm bench latency did not end"}
	case err != nil && outOfVocabulary.MatchString(log):
		return run, &taskError{engine.FailureException + fmt.Sprintf("vllm bench latency draws token ids up to %d, and the model has fewer", BenchVocabulary)}
	case err != nil:
		return run, refusal(log, err)
	}
	r, err := s.place.CopyOut(ctx, file)
	if err != nil {
		return run, fmt.Errorf("vllm bench latency: read its result: %w", err)
	}
	defer r.Close()
	run.Latency, _, err = vllmbench.ReadLatency("vllm bench latency", r, format.Limits{Bytes: 16 << 20})
	return run, err
}

// read takes from a run's log what the engine says of its memory and of the
// deployment.
func (s *benchSession) read(log string, result *engine.Result) {
	p, _, err := vllmlog.Read("log", strings.NewReader(log), vllmlog.Options{})
	if err != nil {
		return // it has no such lines
	}
	result.Memory = slices.DeleteFunc(p.Points, func(p profile.Point) bool { return p.Kind != profile.KindMemory })
	s.facts.Deploy = overlay(s.facts.Deploy, p.Header.Deploy)
}

// latencyArgs is the command line of a run, which writes to a file.
func latencyArgs(setup engine.Setup, l limits, t engine.StepTask, warmup, runs int, file string) []string {
	args := []string{
		"bench", "latency", "--model", setup.Model,
		"--input-len", strconv.Itoa(t.InputLen), "--output-len", strconv.Itoa(t.OutputLen), "--batch-size", strconv.Itoa(t.BatchSize),
		"--num-iters-warmup", strconv.Itoa(max(warmup, 0)), "--num-iters", strconv.Itoa(max(runs, 1)),
		"--output-json", file, "--disable-detokenize",
	}
	return append(args, engineArgs(setup, l)...)
}

// BenchVocabulary is the number of tokens that a model must know for vllm bench
// latency, which draws those of its prompts below it.
const BenchVocabulary = 10000

// CommandLine is the run of a whole task.
func (BenchLatency) CommandLine(setup engine.Setup, task engine.StepTask, warmup, runs int) []string {
	return append([]string{program(setup)}, latencyArgs(setup, limitsOf(setup), task, warmup, runs, "latency.json")...)
}

// command runs vllm and returns what it printed and, of that and of what it
// said on stderr, the log.
func (s *benchSession) command(ctx context.Context, args ...string) (stdout, log string, err error) {
	f := newFollower(s.setup, s.redactor())
	process, err := s.place.Start(ctx, engine.Command{
		Argv: append([]string{s.setup.Program}, args...), Env: environment(s.model, s.folder, s.setup), Stderr: &lineWriter{f: f},
	})
	if err != nil {
		if engine.Unusable(err) == engine.ProgramMissing {
			return "", "", missing(s.setup.Program, s.place.String(), err)
		}
		return "", "", fmt.Errorf("start vllm: %w", err)
	}
	defer process.Stop(0) //nolint:errcheck // it has ended by then
	var said strings.Builder
	f.read(io.TeeReader(process.Stdout(), &limited{w: &said, left: 1 << 20}))
	err = process.Wait()
	return said.String(), f.begun(), err
}

// limited passes on the first bytes and drops the rest.
type limited struct {
	w    io.Writer
	left int
}

// Write never fails.
func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	if n > 0 {
		if _, err := l.w.Write(p[:n]); err != nil {
			return n, err
		}
	}
	return len(p), nil
}
