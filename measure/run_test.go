package measure_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/measure"
	"github.com/llmprof/llmprof/profile"
)

// fake is an engine whose behaviour a test scripts by task.
type fake struct {
	facts engine.Facts
	// answer gives the result of the n-th try of a task, counted over all
	// sessions; an error ends the session.
	answer func(t engine.Task, try int) (engine.Result, error)
	tries  map[string]int
	ctx    context.Context // of the session that runs
	starts int
	closed int
	// refuse ends a start, counted from 1.
	refuse func(start int) error
}

func (f *fake) start(context.Context) (engine.Session, error) {
	f.starts++
	if f.refuse != nil {
		if err := f.refuse(f.starts); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fake) Facts() engine.Facts { return f.facts }
func (f *fake) Close() error        { f.closed++; return nil }

func (f *fake) Run(ctx context.Context, tasks []engine.Task, emit func(engine.Result) error) error {
	f.ctx = ctx
	for _, t := range tasks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if f.tries == nil {
			f.tries = map[string]int{}
		}
		f.tries[name(t)]++
		result, err := f.answer(t, f.tries[name(t)])
		if err != nil {
			return err
		}
		if err := emit(result); err != nil {
			return err
		}
	}
	return nil
}

func name(t engine.Task) string {
	if s := t.Step; s != nil {
		return fmt.Sprintf("%dx%d", s.BatchSize, s.InputLen)
	}
	return fmt.Sprintf("%d@%d", t.Layers.Tokens, t.Layers.Context)
}

// measured is the result of a task with one prefill point.
func measured(t engine.Task, samples ...float64) engine.Result {
	s := t.Step
	return engine.Result{Task: t, Points: []profile.Point{{
		Kind: profile.KindStep, Samples: samples, Clock: profile.ClockWall,
		Step: &profile.Step{Mode: profile.Prefill, BatchSize: s.BatchSize, InputLen: s.InputLen, OutputLen: s.OutputLen, Pass: forward.Prefill(s.BatchSize, s.InputLen, 0)},
	}}}
}

// sink keeps what is written.
type sink struct{ points []profile.Point }

func (s *sink) write(points ...profile.Point) error {
	for _, p := range points {
		if err := p.Validate(); err != nil {
			return err
		}
	}
	s.points = append(s.points, points...)
	return nil
}

// said lists what is known of every task: its samples or its failure.
func (s *sink) said() []string {
	var out []string
	for _, p := range s.points {
		text := fmt.Sprintf("%dx%d", p.Step.BatchSize, p.Step.InputLen)
		if p.Kind == profile.KindFailure {
			text += " " + p.Reason
		} else {
			text += fmt.Sprintf(" %d samples", len(p.Samples))
		}
		if slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.HasPrefix(w, "unstable") }) {
			text += " unstable"
		}
		out = append(out, text)
	}
	return out
}

func grid(batches, inputs []int) []engine.Task {
	return measure.Grid{BatchSizes: batches, InputLens: inputs, OutputLen: 1}.Tasks(1, 2)
}

func TestRun(t *testing.T) {
	died := func(task engine.Task, oom bool) error {
		return &engine.DiedError{Engine: "fake", Task: task.ID, OutOfMemory: oom, Err: errors.New("killed")}
	}
	steady := func(task engine.Task, _ int) (engine.Result, error) { return measured(task, 0.01, 0.0101), nil }
	for _, c := range []struct {
		why    string
		facts  engine.Facts
		answer func(engine.Task, int) (engine.Result, error)
		refuse func(int) error
		budget time.Duration
		want   []string
		err    string
		starts int
		out    measure.Outcome
	}{
		{
			why: "all is measured, the cheapest first", answer: steady, starts: 1,
			want: []string{"1x16 2 samples", "2x16 2 samples", "1x64 2 samples", "2x64 2 samples"},
			out:  measure.Outcome{Measured: 4},
		},
		{
			why: "limits of the engine", answer: steady, starts: 1, facts: engine.Facts{MaxTokens: 70},
			want: []string{"2x64 skipped_due_to_limits", "1x16 2 samples", "2x16 2 samples", "1x64 2 samples"},
			out:  measure.Outcome{Measured: 3, Failed: 1},
		},
		{
			why: "several beyond the limits", answer: steady, starts: 1, facts: engine.Facts{MaxModelLen: 20, MaxBatch: 1},
			want: []string{"2x16 skipped_due_to_limits", "1x64 skipped_due_to_limits", "2x64 skipped_due_to_limits", "1x16 2 samples"},
			out:  measure.Outcome{Measured: 1, Failed: 3},
		},
		{
			why: "memory ends a point, not the run", starts: 1,
			answer: func(task engine.Task, _ int) (engine.Result, error) {
				if task.Step.InputLen == 64 && task.Step.BatchSize == 1 {
					return engine.Result{Task: task, Failure: engine.FailureOOM}, nil
				}
				return steady(task, 0)
			},
			want: []string{"1x16 2 samples", "2x16 2 samples", "1x64 oom", "2x64 2 samples"},
			out:  measure.Outcome{Measured: 3, Failed: 1},
		},
		{
			why: "an engine that dies is started again without what killed it", starts: 2,
			answer: func(task engine.Task, _ int) (engine.Result, error) {
				if task.Step.InputLen == 16 && task.Step.BatchSize == 2 {
					return engine.Result{}, died(task, false)
				}
				return steady(task, 0)
			},
			want: []string{"1x16 2 samples", "2x16 runtime_error: fake died: killed", "1x64 2 samples", "2x64 2 samples"},
			out:  measure.Outcome{Measured: 3, Failed: 1, Restarts: 1},
		},
		{
			why: "what needs more memory than what killed the engine is not tried", starts: 2,
			answer: func(task engine.Task, _ int) (engine.Result, error) {
				if task.Step.InputLen == 16 && task.Step.BatchSize == 2 {
					return engine.Result{}, died(task, true)
				}
				return steady(task, 0)
			},
			want: []string{"1x16 2 samples", "2x16 oom", "2x64 oom", "1x64 2 samples"},
			out:  measure.Outcome{Measured: 2, Failed: 2, Restarts: 1},
		},
		{
			why: "an engine that always dies", starts: 3,
			answer: func(task engine.Task, _ int) (engine.Result, error) { return engine.Result{}, died(task, false) },
			want:   []string{"1x16 runtime_error: fake died: killed", "2x16 runtime_error: fake died: killed"},
			err:    "fake died: killed",
			out:    measure.Outcome{Failed: 2, Left: 2, Restarts: 2},
		},
		{
			why: "an engine that cannot be started again", starts: 2,
			answer: func(task engine.Task, _ int) (engine.Result, error) { return engine.Result{}, died(task, false) },
			refuse: func(start int) error {
				if start == 2 {
					return errors.New("no such engine")
				}
				return nil
			},
			want: []string{"1x16 runtime_error: fake died: killed"},
			err:  "start the engine again: no such engine",
			out:  measure.Outcome{Failed: 1, Left: 3, Restarts: 1},
		},
		{
			why: "what scatters is repeated", starts: 1,
			answer: func(task engine.Task, try int) (engine.Result, error) {
				if task.Step.InputLen == 16 && try == 1 {
					return measured(task, 0.01, 0.013), nil
				}
				return measured(task, 0.0115, 0.0115, 0.0115, 0.0115), nil
			},
			want: []string{"1x64 4 samples", "2x64 4 samples", "1x16 6 samples", "2x16 6 samples"},
			out:  measure.Outcome{Measured: 4},
		},
		{
			why: "what still scatters is flagged", starts: 1,
			answer: func(task engine.Task, _ int) (engine.Result, error) {
				if task.Step.InputLen == 64 && task.Step.BatchSize == 2 {
					return measured(task, 0.01, 0.03), nil
				}
				return steady(task, 0)
			},
			want: []string{"1x16 2 samples", "2x16 2 samples", "1x64 2 samples", "2x64 6 samples unstable"},
			out:  measure.Outcome{Measured: 4, Unstable: 1},
		},
		{
			why: "a death while repeating keeps the first samples", starts: 2,
			answer: func(task engine.Task, try int) (engine.Result, error) {
				if task.Step.InputLen == 16 && try == 1 {
					return measured(task, 0.01, 0.03), nil
				}
				if task.Step.InputLen == 16 && task.Step.BatchSize == 1 {
					return engine.Result{}, died(task, false)
				}
				return measured(task, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02), nil
			},
			want: []string{"1x64 20 samples", "2x64 20 samples", "1x16 2 samples unstable", "2x16 22 samples"},
			out:  measure.Outcome{Measured: 4, Unstable: 1, Restarts: 1},
		},
		{
			why: "the budget ends the run", answer: steady, budget: 25 * time.Second, starts: 1,
			want: []string{"1x16 2 samples", "2x16 2 samples"},
			out:  measure.Outcome{Measured: 2, Left: 2, OutOfTime: true},
		},
		{
			why: "an engine that answers nothing", starts: 1, err: "fake ended its run without an answer to 4 tasks",
			out: measure.Outcome{Left: 4},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			c.facts.Engine = "fake"
			f := &fake{facts: c.facts, answer: c.answer, refuse: c.refuse}
			session := f.start
			if c.answer == nil {
				session = func(context.Context) (engine.Session, error) { f.starts++; return silent{f}, nil }
			}
			var out sink
			now := time.Unix(0, 0)
			outcome, err := measure.Run(t.Context(), session, grid([]int{1, 2}, []int{16, 64}), measure.Options{
				Write: func(points ...profile.Point) error { now = now.Add(13 * time.Second); return out.write(points...) }, Budget: c.budget, Deaths: 2,
				Now: func() time.Time { return now },
			})
			if c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if got := out.said(); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if f.starts != c.starts {
				t.Errorf("%d starts, want %d", f.starts, c.starts)
			}
			outcome.Facts = engine.Facts{}
			if fmt.Sprint(outcome) != fmt.Sprint(c.out) {
				t.Errorf("outcome %+v, want %+v", outcome, c.out)
			}
		})
	}
}

// silent answers no task.
type silent struct{ engine.Session }

func (silent) Run(context.Context, []engine.Task, func(engine.Result) error) error { return nil }

// TestManyDeathsOfMemory: want of memory ends points, however many.
func TestManyDeathsOfMemory(t *testing.T) {
	f := &fake{facts: engine.Facts{Engine: "fake"}, answer: func(task engine.Task, _ int) (engine.Result, error) {
		if task.Step.BatchSize*task.Step.InputLen >= 256 {
			return engine.Result{}, &engine.DiedError{Engine: "fake", Task: task.ID, OutOfMemory: true, Err: errors.New("killed")}
		}
		return measured(task, 0.01), nil
	}}
	var out sink
	outcome, err := measure.Run(t.Context(), f.start, grid([]int{1, 2, 4, 8, 16, 32}, []int{8, 16, 32, 64, 128, 256}), measure.Options{Write: out.write})
	if err != nil || outcome.Left != 0 || outcome.Measured != 15 || outcome.Failed != 21 {
		t.Errorf("outcome %+v, error %v", outcome, err)
	}
}

// TestBudget: the time ends what is under way, and a file that cannot be
// written to is told of all the same.
func TestBudget(t *testing.T) {
	hanging := &fake{facts: engine.Facts{Engine: "fake"}}
	hanging.answer = func(task engine.Task, try int) (engine.Result, error) {
		if try == 1 {
			return measured(task, 0.01, 0.03), nil // to be repeated
		}
		<-hanging.ctx.Done()
		return engine.Result{}, hanging.ctx.Err()
	}
	var out sink
	outcome, err := measure.Run(t.Context(), hanging.start, grid([]int{1}, []int{16, 64}), measure.Options{Write: out.write, Budget: 3 * time.Second})
	if err != nil || !outcome.OutOfTime || outcome.Measured != 2 || outcome.Unstable != 2 {
		t.Errorf("outcome %+v, error %v", outcome, err)
	}
	full := errors.New("disk full")
	hanging.tries = nil
	outcome, err = measure.Run(t.Context(), hanging.start, grid([]int{1}, []int{16, 64}), measure.Options{
		Write: func(...profile.Point) error { return full }, Budget: 3 * time.Second,
	})
	if !errors.Is(err, full) || outcome.Left != 2 {
		t.Errorf("outcome %+v, error %v", outcome, err)
	}
}

// TestRepeatedRuns: what is told of whole runs counts those of all rounds.
func TestRepeatedRuns(t *testing.T) {
	f := &fake{facts: engine.Facts{Engine: "fake"}, answer: func(task engine.Task, try int) (engine.Result, error) {
		r := measured(task, 0.01*float64(try), 0.03)
		r.Points[0].Extra = map[string]json.RawMessage{
			"runs_data":     json.RawMessage(`[{"total_latency":1,"overall_throughput":2},{"total_latency":3,"overall_throughput":4}]`),
			"total_latency": json.RawMessage(`2`), "other": json.RawMessage(`"x"`),
		}
		return r, nil
	}}
	var out sink
	if _, err := measure.Run(t.Context(), f.start, grid([]int{1}, []int{16}), measure.Options{Write: out.write, Repeats: 1}); err != nil {
		t.Fatal(err)
	}
	extra := out.points[0].Extra
	if got := strings.Count(string(extra["runs_data"]), "total_latency"); got != 4 || string(extra["total_latency"]) != "2" || string(extra["overall_throughput"]) != "3" || string(extra["other"]) != `"x"` {
		t.Errorf("extra %s", extra)
	}
}

// TestRunOnce: whatever an engine does, every task has exactly one result, and
// a run that is stopped anywhere is continued without loss or repetition.
func TestRunOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tasks := grid([]int{1, 2, 4}, []int{16, 64, 256})
		behaviour := rapid.SliceOfN(rapid.IntRange(0, 9), 200, 200).Draw(t, "behaviour")
		stop := rapid.SliceOfN(rapid.IntRange(1, 20), 6, 6).Draw(t, "stops")
		step := 0
		f := &fake{facts: engine.Facts{Engine: "fake"}, answer: func(task engine.Task, _ int) (engine.Result, error) {
			step++
			switch behaviour[step%len(behaviour)] {
			case 0:
				return engine.Result{}, &engine.DiedError{Engine: "fake", Task: task.ID, OutOfMemory: step%2 == 0, Err: errors.New("x")}
			case 1:
				return engine.Result{Task: task, Failure: engine.FailureOOM}, nil
			case 2:
				return measured(task, 0.1, 0.3), nil
			}
			return measured(task, 0.1, 0.1), nil
		}}
		var out sink
		for _, after := range append(stop, 1<<30) {
			ctx, cancel := context.WithCancel(t.Context())
			written := 0
			_, err := measure.Run(ctx, f.start, measure.Remaining(tasks, out.points), measure.Options{Write: func(points ...profile.Point) error {
				if written++; written >= after {
					cancel()
				}
				return out.write(points...)
			}, Deaths: 1000})
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		seen := map[string]int{}
		for _, p := range out.points {
			seen[fmt.Sprintf("%dx%d", p.Step.BatchSize, p.Step.InputLen)]++
		}
		for _, task := range tasks {
			if seen[name(task)] != 1 {
				t.Errorf("%s: %d results", name(task), seen[name(task)])
			}
		}
	})
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{facts: engine.Facts{Engine: "fake"}, answer: func(task engine.Task, _ int) (engine.Result, error) {
		if task.Step.InputLen == 64 {
			cancel()
		}
		return measured(task, 0.1, 0.2), nil
	}}
	var out sink
	outcome, err := measure.Run(ctx, f.start, grid([]int{1}, []int{16, 64, 256}), measure.Options{Write: out.write})
	if !errors.Is(err, context.Canceled) || outcome.Measured != 2 || outcome.Left != 1 || f.closed != 1 {
		t.Errorf("outcome %+v, error %v, %d sessions closed", outcome, err, f.closed)
	}
}

func TestFailedWrite(t *testing.T) {
	f := &fake{facts: engine.Facts{Engine: "fake"}, answer: func(task engine.Task, _ int) (engine.Result, error) { return measured(task, 0.1), nil }}
	full := errors.New("disk full")
	_, err := measure.Run(t.Context(), f.start, grid([]int{1}, []int{16, 64}), measure.Options{Write: func(...profile.Point) error { return full }})
	if !errors.Is(err, full) || f.closed != 1 {
		t.Errorf("error %v, %d sessions closed", err, f.closed)
	}
}

func TestProgress(t *testing.T) {
	f := &fake{facts: engine.Facts{Engine: "fake"}, answer: func(task engine.Task, _ int) (engine.Result, error) { return measured(task, 0.1), nil }}
	now := time.Unix(0, 0)
	var last measure.Progress
	var left []time.Duration
	var out sink
	tasks := grid([]int{1, 2, 4}, []int{64, 128, 256, 512})
	_, err := measure.Run(t.Context(), f.start, tasks, measure.Options{
		Write: out.write,
		// Every task takes a millisecond a token.
		Now: func() time.Time {
			if n := len(out.points); n > 0 {
				s := out.points[n-1].Step
				now = now.Add(time.Duration(s.BatchSize*s.InputLen) * time.Millisecond)
			}
			return now
		},
		Progress: func(p measure.Progress) { last, left = p, append(left, p.Left) },
	})
	if err != nil || last.Done != 12 || last.Total != 12 || last.Left != 0 {
		t.Errorf("error %v, last %+v", err, last)
	}
	if left[0] != 0 || left[7] <= left[10] || left[10] <= 0 {
		t.Errorf("time left %v", left)
	}
}

func TestPowersOfTwo(t *testing.T) {
	for _, c := range []struct {
		least, most int
		want        []int
	}{
		{1, 64, []int{1, 2, 4, 8, 16, 32, 64}},
		{1, 1, []int{1}},
		{16, 100, []int{16, 32, 64, 100}},
		{3, 9, []int{3, 4, 8, 9}},
	} {
		if got := measure.PowersOfTwo(c.least, c.most); !slices.Equal(got, c.want) {
			t.Errorf("PowersOfTwo(%d, %d) = %v, want %v", c.least, c.most, got, c.want)
		}
	}
}
