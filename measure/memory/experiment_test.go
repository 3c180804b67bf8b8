package memory_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
)

// act is one thing that an engine does: its memory changes, it says something,
// or the sampler dies.
type act struct {
	used int64
	mark string
	dies error
}

// scripted opens an experiment on one device whose engine does starting before
// it is ready, and tasks[i] in its i-th task.
func scripted(t *testing.T, b *bank, o memory.Options, starting []act, tasks ...[]act) *memory.Experiment {
	t.Helper()
	o.Source, o.Every, o.Settle = b, time.Millisecond, 3*time.Millisecond
	o.Start = func(_ context.Context, marked func(engine.Mark)) (engine.Session, error) {
		do := func(acts []act) {
			for _, a := range acts {
				switch {
				case a.mark != "":
					marked(engine.Mark{Name: a.mark, At: time.Now(), Source: "said " + a.mark})
				case a.dies != nil:
					b.fail(a.dies)
				default:
					b.hold(a.used)
				}
			}
		}
		do(starting)
		return &session{
			run:   func(task engine.Task) engine.Result { do(tasks[task.ID-1]); return engine.Result{} },
			close: func() error { b.hold(0); return nil },
		}, nil
	}
	e, err := memory.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func run(t *testing.T, e *memory.Experiment) *memory.Observation {
	t.Helper()
	o, err := e.Run(t.Context(), engine.StepTask{BatchSize: 1, InputLen: 8, OutputLen: 8}, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// at is the memory of a moment, -1 where there is none.
func at(m *memory.Moment) int64 {
	if m == nil {
		return -1
	}
	return m.Total()
}

func TestMoments(t *testing.T) {
	use := func(n int64) act { return act{used: n} }
	say := func(name string) act { return act{mark: name} }
	for _, c := range []struct {
		why                                  string
		starting, task                       []act
		baseline, started, loaded, warm, top int64
		marker                               string
	}{
		{
			"the moments in their order",
			[]act{use(10), say(engine.MarkStarted), use(20), say(engine.MarkLoaded), use(30), say(engine.MarkReady)},
			[]act{use(50), say(engine.MarkWarm), use(70), use(40)},
			0, 10, 20, 50, 70, "said warm",
		},
		{
			"an engine that tells them in no order: each is what was read when it was told",
			[]act{use(10), say(engine.MarkReady), use(20), say(engine.MarkLoaded), use(30), say(engine.MarkStarted)},
			[]act{use(50), say(engine.MarkWarm), use(40)},
			0, 30, 20, 50, 50, "said warm",
		},
		{
			"of several the last counts: two ranks, two warm-ups",
			[]act{use(10), say(engine.MarkLoaded), use(20), say(engine.MarkLoaded)},
			[]act{use(30), say(engine.MarkWarm), use(40), say(engine.MarkWarm), use(35)},
			0, -1, 20, 40, 40, "said warm",
		},
		{
			"what is told before an engine is ready counts as well: it starts in its task",
			nil,
			[]act{use(10), say(engine.MarkStarted), use(20), say(engine.MarkLoaded), use(60), use(30), say(engine.MarkReady), use(45), say(engine.MarkWarm), use(50)},
			0, 10, 20, 45, 60, "said warm",
		},
		{
			"an engine that does not say when it is warm is so after its start",
			[]act{use(30), say(engine.MarkReady)},
			[]act{use(50)},
			0, -1, -1, 30, 50, "said ready",
		},
		{"an engine that says nothing: not measured", []act{use(30)}, []act{use(50), use(20)}, 0, -1, -1, -1, 50, ""},
		{"the largest is that of the start", []act{use(90), use(30), say(engine.MarkReady)}, []act{use(50)}, 0, -1, -1, 30, 90, "said ready"},
	} {
		t.Run(c.why, func(t *testing.T) {
			e := scripted(t, newBank(0), memory.Options{}, c.starting, c.task)
			o := run(t, e)
			if _, err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
			got := []int64{at(o.Baseline), at(o.Started), at(o.Loaded), at(o.PostWarmup), at(o.Peak)}
			if want := []int64{c.baseline, c.started, c.loaded, c.warm, c.top}; !slices.Equal(got, want) {
				t.Errorf("baseline, started, loaded, warm and peak are %v, want %v", got, want)
			}
			if c.marker != "" && o.PostWarmup.Marker != c.marker {
				t.Errorf("warm by %q, want %q", o.PostWarmup.Marker, c.marker)
			}
			warned := strings.Contains(strings.Join(o.Document(memory.Subject{}, time.Unix(0, 0)).Metadata.Warnings, "\n"), "post-warm-up was not measured")
			if warned != (c.warm < 0) {
				t.Errorf("a warning that post-warm-up was not measured: %v", warned)
			}
		})
	}
}

// TestOtherTasks: of what other tasks took, nothing counts.
func TestOtherTasks(t *testing.T) {
	b := newBank(5)
	e := scripted(t, b, memory.Options{}, []act{{used: 40}, {mark: engine.MarkReady}},
		[]act{{used: 60}, {mark: engine.MarkWarm}, {used: 100}, {used: 50}},
		[]act{{used: 70}},
		[]act{{used: 30}, {mark: engine.MarkWarm}, {used: 45}},
	)
	for i, want := range []struct{ warm, peak int64 }{{60, 100}, {40, 70}, {30, 45}} {
		if i > 0 {
			b.hold(50 - 10*int64(i-1)) // what is left of the task before
		}
		o := run(t, e)
		if at(o.PostWarmup) != want.warm || at(o.Peak) != want.peak || at(o.Baseline) != 5 || o.Held != i {
			t.Errorf("task %d: warm %d, peak %d, baseline %d, %d before it; want %+v", i, at(o.PostWarmup), at(o.Peak), at(o.Baseline), o.Held, want)
		}
		held := strings.Contains(strings.Join(o.Document(memory.Subject{}, time.Unix(0, 0)).Metadata.Warnings, "\n"), "had run other tasks before")
		if held != (i > 0) {
			t.Errorf("task %d: a warning of other tasks: %v", i, held)
		}
	}
	if left, err := e.Close(t.Context()); left != 0 || err != nil {
		t.Errorf("%d bytes left, %v", left, err)
	}
}

// TestByProcess: on a CPU the processes' memory is what is used, whatever the
// host holds.
func TestByProcess(t *testing.T) {
	b := newBank(7000)
	b.process = []int64{0}
	e, err := memory.Open(t.Context(), memory.Options{
		Source: b, ByProcess: true, Every: time.Millisecond, Settle: 3 * time.Millisecond,
		Start: func(_ context.Context, marked func(engine.Mark)) (engine.Session, error) {
			b.holds(300)
			marked(engine.Mark{Name: engine.MarkReady, At: time.Now(), Source: "log"})
			return &session{
				run: func(engine.Task) engine.Result {
					b.hold(9000)
					b.holds(800)
					b.holds(400)
					return engine.Result{}
				},
				close: func() error { b.holds(0); return nil },
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, e)
	if at(o.Baseline) != 0 || at(o.PostWarmup) != 300 || at(o.Peak) != 800 {
		t.Errorf("baseline %d, warm %d, peak %d", at(o.Baseline), at(o.PostWarmup), at(o.Peak))
	}
	d := o.Document(memory.Subject{Vendor: "cpu"}, time.Unix(0, 0))
	if !strings.Contains(strings.Join(d.Metadata.Warnings, "\n"), "an engine on a CPU") || d.BenchmarkParameters.GPUMemoryUtilization != nil {
		t.Errorf("warnings %q, utilisation %v", d.Metadata.Warnings, d.BenchmarkParameters.GPUMemoryUtilization)
	}
	if left, err := e.Close(t.Context()); left != 0 || err != nil {
		t.Errorf("%d bytes left, %v: the host's memory does not count", left, err)
	}
}

// TestSamplerDies: the fault is named, and nothing that was not seen is told.
func TestSamplerDies(t *testing.T) {
	broken := errors.New("the driver went away")
	task := []act{{used: 50}, {mark: engine.MarkWarm}, {dies: broken}, {mark: engine.MarkLoaded}}
	e := scripted(t, newBank(3), memory.Options{}, []act{{used: 30}, {mark: engine.MarkReady}}, task, nil)
	o, err := e.Run(t.Context(), engine.StepTask{BatchSize: 1, InputLen: 8, OutputLen: 8}, 1, 1)
	var fault *memory.SamplerError
	if !errors.As(err, &fault) || !errors.Is(err, broken) || err.Error() != "sample memory with bank: the driver went away" {
		t.Errorf("error %v", err)
	}
	if fault.ExitCode() != 4 || !strings.Contains(fault.Hint(), "doctor") {
		t.Errorf("exit code %d, hint %q", fault.ExitCode(), fault.Hint())
	}
	if at(o.Baseline) != 3 || at(o.PostWarmup) != 50 || at(o.Peak) != -1 || at(o.Loaded) != -1 {
		t.Errorf("baseline %d, warm %d, peak %d, loaded %d", at(o.Baseline), at(o.PostWarmup), at(o.Peak), at(o.Loaded))
	}
	d := o.Document(memory.Subject{}, time.Unix(0, 0))
	if d.Memory.TotalBytes != nil || d.MemoryBreakdown.NetIncreaseBytes != nil || !strings.Contains(strings.Join(d.Metadata.Warnings, "\n"), "the peak is not known") {
		t.Errorf("total %v, increase %v, warnings %q", d.Memory.TotalBytes, d.MemoryBreakdown.NetIncreaseBytes, d.Metadata.Warnings)
	}
	if len(o.Timeline.Devices[0].Samples) == 0 {
		t.Error("what was read is lost")
	}
	// The next task begins deaf.
	if o := run(t, e); at(o.Peak) != -1 || at(o.PostWarmup) != 30 {
		t.Errorf("peak %d, warm %d without a reading", at(o.Peak), at(o.PostWarmup))
	}
	// The fault was told, and free memory cannot be waited for.
	if left, err := e.Close(t.Context()); left != 0 || err != nil {
		t.Errorf("close: %d bytes left, %v", left, err)
	}
}

// TestRecordingEnds: a recording that is over is no fault, and knows no peak.
func TestRecordingEnds(t *testing.T) {
	recorded, err := gpu.Replay(strings.NewReader(`{"at_s": 0, "devices": [{"index": 0, "memory_used_bytes": 9}]}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	e, err := memory.Open(t.Context(), memory.Options{
		Source: finite{recorded, over}, Settle: 10 * time.Millisecond, Every: 500 * time.Millisecond,
		Start: func(context.Context, func(engine.Mark)) (engine.Session, error) { <-over; return &session{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if o := run(t, e); at(o.Baseline) != 9 || at(o.Peak) != -1 {
		t.Errorf("baseline %d, peak %d", at(o.Baseline), at(o.Peak))
	}
	if left, err := e.Close(t.Context()); left != 0 || err != nil {
		t.Errorf("close: %d bytes left, %v", left, err)
	}
}

// finite says when its source has ended.
type finite struct {
	gpu.Source
	over chan struct{}
}

func (s finite) Follow(ctx context.Context, every time.Duration, take func(gpu.Snapshot)) error {
	defer close(s.over)
	return s.Source.Follow(ctx, every, take)
}

func TestOpenFails(t *testing.T) {
	silent := errors.New("no such library")
	refused := errors.New("no space for the weights")
	started := func(error) func(context.Context, func(engine.Mark)) (engine.Session, error) {
		return func(context.Context, func(engine.Mark)) (engine.Session, error) { return nil, refused }
	}
	for _, c := range []struct {
		why    string
		source *bank
		want   error
	}{
		{"a sampler that never reads", func() *bank { b := newBank(0); b.broken = silent; return b }(), silent},
		{"an engine that does not start", newBank(0), refused},
	} {
		e, err := memory.Open(t.Context(), memory.Options{Source: c.source, Every: time.Millisecond, Settle: time.Millisecond, Start: started(refused)})
		if e != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.why, err)
		}
		before := len(c.source.snapshots())
		time.Sleep(5 * time.Millisecond)
		if after := len(c.source.snapshots()); after != before {
			t.Errorf("%s: the sampler goes on reading", c.why)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := memory.Open(ctx, memory.Options{Source: newBank(0), Settle: time.Hour, Start: started(nil)}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while reading the baseline: %v", err)
	}
}

// TestWithoutSampler: times are measured, memory is not.
func TestWithoutSampler(t *testing.T) {
	e, err := memory.Open(t.Context(), memory.Options{
		Every: 1000 * time.Hour,
		Start: func(_ context.Context, marked func(engine.Mark)) (engine.Session, error) {
			marked(engine.Mark{Name: engine.MarkReady, At: time.Now()})
			return &session{facts: engine.Facts{Engine: "fake"}, run: func(engine.Task) engine.Result { return engine.Result{Totals: []float64{2}} }}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, e) // and does not wait for a reading that there is not
	d := o.Document(memory.Subject{}, time.Unix(0, 0))
	if o.Baseline != nil || o.Peak != nil || d.MemoryTimeline != nil || d.Memory.TotalGB != nil || *d.LatencyStats.MeanMs != 2000 {
		t.Errorf("memory %+v, latency %v", d.Memory, d.LatencyStats)
	}
	if !slices.Contains(d.Metadata.Warnings, "memory was not sampled") {
		t.Errorf("warnings %q", d.Metadata.Warnings)
	}
	if _, err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// silent answers nothing.
type silent struct{ session }

func (*silent) Run(context.Context, []engine.Task, func(engine.Result) error) error { return nil }

func TestNoAnswer(t *testing.T) {
	e, err := memory.Open(t.Context(), memory.Options{Start: func(context.Context, func(engine.Mark)) (engine.Session, error) {
		return &silent{session{facts: engine.Facts{Engine: "fake"}}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Run(t.Context(), engine.StepTask{}, 0, 1); err == nil || err.Error() != "fake ended its run without an answer" {
		t.Errorf("error %v", err)
	}
}

// TestClose: the engine's memory is waited for, and what stays is told.
func TestClose(t *testing.T) {
	failed := errors.New("it hung")
	for _, c := range []struct {
		why    string
		close  func(*bank) error
		within time.Duration
		left   int64
		err    error
	}{
		{"memory that is freed a while after", func(b *bank) error {
			b.hold(900)
			go func() { b.hold(500); b.hold(150) }()
			return nil
		}, time.Minute, 0, nil},
		{"memory that stays", func(b *bank) error { b.hold(700); return nil }, 5 * time.Millisecond, 600, nil},
		{"within the slack", func(b *bank) error { b.hold(164); return nil }, 5 * time.Millisecond, 0, nil},
		{"an engine that ends badly", func(b *bank) error { b.hold(100); return failed }, time.Minute, 0, failed},
	} {
		b := newBank(100)
		e, err := memory.Open(t.Context(), memory.Options{
			Source: b, Every: time.Millisecond, Settle: time.Millisecond, FreeWithin: c.within, FreeSlack: 64,
			Start: func(context.Context, func(engine.Mark)) (engine.Session, error) {
				return &session{close: func() error { return c.close(b) }}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if left, err := e.Close(t.Context()); left != c.left || !errors.Is(err, c.err) {
			t.Errorf("%s: %d bytes left, %v; want %d, %v", c.why, left, err, c.left, c.err)
		}
	}
}
