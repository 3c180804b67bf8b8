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
	"github.com/llmprof/llmprof/profile"
)

// BenchLatency measures by the differences of "vllm bench latency": one run
// of the command with one output token and one with all of them. Each loads the
// model anew, so that a task takes minutes. The prefill holds the host's work
// for a request; its points say so.
type BenchLatency struct{}

// Name is "vllm-bench".
func (BenchLatency) Name() string { return "vllm-bench" }

// Abilities are steps by wall clock.
func (BenchLatency) Abilities() engine.Abilities {
	return engine.Abilities{Steps: true, Clocks: []profile.Clock{profile.ClockWall}}
}

// Start looks whether the program is there; each task starts it again.
func (BenchLatency) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	if setup.Model == "" {
		return nil, &StartError{Reason: "no model is named", Remedy: "name a folder with a config.json or a hub id"}
	}
	if err := unsupported(setup.Deploy); err != nil {
		return nil, err
	}
	if setup.Clock != "" && setup.Clock != profile.ClockWall {
		return nil, fmt.Errorf("start vllm: clock %q: vllm bench latency times by wall clock", setup.Clock)
	}
	if setup.Program == "" {
		setup.Program = "vllm"
	}
	if setup.StartTimeout <= 0 {
		setup.StartTimeout = defaultStart
	}
	if setup.TaskTimeout <= 0 {
		setup.TaskTimeout = defaultTask
	}
	s := &benchSession{place: place, setup: setup, limits: limitsOf(setup)}
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
		Threads:  threadsOf(setup.Deploy, environment(s.model, s.folder, setup)),
		Warnings: []string{"prefill times hold the host's work for a request; decode times are differences of whole runs"},
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
		var err error
		if result.Points, err = s.task(ctx, task); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if engine.Unusable(err) != "" {
				return err
			}
			result.Failure = s.redactor().Redact(failureOf(err))
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
		return engine.FailureRuntime + strings.TrimPrefix(start.Error(), "start ")
	}
	return engine.FailureException + err.Error()
}

// task runs the command once or twice.
func (s *benchSession) task(ctx context.Context, task engine.Task) ([]profile.Point, error) {
	t := task.Step
	if t == nil || t.BatchSize < 1 || t.InputLen < 1 || t.OutputLen < 1 {
		return nil, &taskError{engine.FailureException + "vllm bench latency measures whole steps of 1 or more prompts and tokens"}
	}
	if n := s.limits.modelLen; n > 0 && t.InputLen+t.OutputLen > n {
		return nil, &taskError{engine.FailureLimits}
	}
	short, err := s.latency(ctx, task, 1)
	if err != nil {
		return nil, err
	}
	if t.OutputLen == 1 {
		point, err := vllmbench.PrefillFrom(short)
		if err != nil {
			return nil, err
		}
		return []profile.Point{point}, nil
	}
	long, err := s.latency(ctx, task, t.OutputLen)
	if err != nil {
		return nil, err
	}
	points, err := vllmbench.StepsFrom(short, long)
	if err != nil {
		return points, &taskError{engine.FailureException + err.Error()}
	}
	return uniform(*t, points, long.Latency)
}

// uniform makes the points of two runs, prefill and decode, as those of all
// drivers are. What they say of themselves stays; the longer run is whole.
func uniform(t engine.StepTask, points []profile.Point, whole *vllmbench.Latency) ([]profile.Point, error) {
	if len(points) != 2 {
		return points, nil
	}
	totals := slices.DeleteFunc(slices.Clone(whole.Latencies), func(s float64) bool { return !(s > 0) })
	out, err := engine.StepPoints(t, engine.StepTimes{
		Prefill: points[0].Samples, Decode: points[1].Samples, Totals: totals, Clock: profile.ClockWall,
	})
	if err != nil {
		return nil, err
	}
	for i, p := range points {
		out[i].Origin, out[i].Warnings = p.Origin, p.Warnings
	}
	return out, nil
}

// latency runs the command and reads its file.
func (s *benchSession) latency(ctx context.Context, task engine.Task, output int) (vllmbench.Run, error) {
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
	args := []string{
		"bench", "latency", "--model", s.setup.Model,
		"--input-len", strconv.Itoa(t.InputLen), "--output-len", strconv.Itoa(output), "--batch-size", strconv.Itoa(t.BatchSize),
		"--num-iters-warmup", strconv.Itoa(max(task.Warmup, 1)), "--num-iters", strconv.Itoa(max(task.Runs, 1)),
		"--output-json", file, "--disable-detokenize",
	}
	_, log, err := s.command(bounded, append(args, engineArgs(s.setup, s.limits)...)...)
	switch {
	case ctx.Err() != nil:
		return run, ctx.Err()
	case bounded.Err() != nil:
		return run, &taskError{engine.FailureTimeout + "vllm bench latency did not end"}
	case err != nil && outOfVocabulary.MatchString(log):
		return run, &taskError{engine.FailureException + "vllm bench latency draws token ids up to 10000, and the model has fewer"}
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

// command runs vllm and returns what it printed and, of that and of what it
// said on stderr, the log.
func (s *benchSession) command(ctx context.Context, args ...string) (stdout, log string, err error) {
	f := newFollower(s.setup.Log, s.redactor())
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
