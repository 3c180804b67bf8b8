package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
)

// Options says how an experiment is conducted. The zero value of a field means
// its default.
type Options struct {
	// Start starts the engine, which tells its moments to marked. Required.
	Start func(ctx context.Context, marked func(engine.Mark)) (engine.Session, error)
	// Source reads the devices; nil means that memory is not sampled.
	Source gpu.Source
	// ByProcess counts the resident memory of the engine's processes as used, in
	// place of the device's memory: for engines on a CPU.
	ByProcess bool
	// Keep picks the devices of the engine from all that the source reads; nil
	// keeps all.
	Keep func(gpu.Reading) bool
	// Each is called with every snapshot, of all devices of the source and one
	// at a time, until Close returns; nil for no call.
	Each func(gpu.Snapshot)
	// Every is the time between two readings. Default 100 ms.
	Every time.Duration
	// Settle is how long the devices are read before the engine starts, and
	// how long the last task is read after its end. Default 500 ms.
	Settle time.Duration
	// FreeWithin is how long Close waits for the devices to be as empty as
	// before the engine. Default 30 s.
	FreeWithin time.Duration
	// FreeSlack is how much more than before a device may hold and still count
	// as free, in bytes. Default 256 MiB.
	FreeSlack int64
}

// Experiment is a running engine whose memory is sampled.
type Experiment struct {
	opts      Options
	recording *gpu.Recording
	source    *watched // nil where memory is not sampled
	session   engine.Session
	began     time.Time // of the engine's start
	started   time.Time // its end
	tasks     int

	mu    sync.Mutex
	marks []engine.Mark
}

// SamplerError says that the devices could not be read.
type SamplerError struct {
	Source string
	Err    error
}

// Error names the sampler and why it failed.
func (e *SamplerError) Error() string {
	return fmt.Sprintf("sample memory with %s: %v", e.Source, e.Err)
}

// Unwrap returns what the sampler said.
func (e *SamplerError) Unwrap() error { return e.Err }

// Hint says how to go on without.
func (e *SamplerError) Hint() string {
	return "llmprof doctor says which samplers work here; --sampler none measures without"
}

// ExitCode is that of failures outside.
func (e *SamplerError) ExitCode() int { return 4 }

// Open reads the devices for a moment, starts the engine and goes on reading
// until Close. ctx bounds the sampling too.
func Open(ctx context.Context, opts Options) (*Experiment, error) {
	if opts.Every <= 0 {
		opts.Every = 100 * time.Millisecond
	}
	if opts.Settle <= 0 {
		opts.Settle = 500 * time.Millisecond
	}
	if opts.FreeWithin <= 0 {
		opts.FreeWithin = 30 * time.Second
	}
	if opts.FreeSlack <= 0 {
		opts.FreeSlack = 256 << 20
	}
	e := &Experiment{opts: opts}
	if opts.Source != nil {
		e.source = &watched{Source: opts.Source, each: opts.Each, over: make(chan struct{})}
		e.recording = gpu.Record(context.WithoutCancel(ctx), e.source, gpu.RecordOptions{Every: opts.Every, Keep: opts.Keep})
		if err := e.first(ctx); err != nil {
			_, _ = e.recording.Stop() // its error is the one at hand
			return nil, err
		}
	}
	e.began = time.Now()
	session, err := opts.Start(ctx, e.marked)
	if err != nil {
		return nil, errors.Join(err, e.stop())
	}
	e.session, e.started = session, time.Now()
	return e, nil
}

// first waits for readings of the state before the engine.
func (e *Experiment) first(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := e.recording.First(waiting); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &SamplerError{e.source.Name(), err}
	}
	return pause(ctx, e.opts.Settle)
}

// watched is a source of which is known when it ended by itself.
type watched struct {
	gpu.Source
	each func(gpu.Snapshot) // see [Options]
	over chan struct{}      // closed then
	at   time.Time          // when that was
	err  error              // why; nil where a recording has ended
	told bool               // the error was returned
}

// Follow reads the devices as the source does.
func (w *watched) Follow(ctx context.Context, every time.Duration, take func(gpu.Snapshot)) error {
	both := take
	if w.each != nil {
		both = func(s gpu.Snapshot) {
			w.each(s)
			take(s)
		}
	}
	err := w.Source.Follow(ctx, every, both)
	if ctx.Err() == nil {
		w.at, w.err = time.Now(), err
		close(w.over)
	}
	return err
}

// ended is when nothing was read any more; zero where that is not so.
func (w *watched) ended() time.Time {
	select {
	case <-w.over:
		return w.at
	default:
		return time.Time{}
	}
}

// fault is why the source ended, returned once; nil where it has not failed.
func (w *watched) fault() error {
	if w.ended().IsZero() || w.err == nil || w.told {
		return nil
	}
	w.told = true
	return &SamplerError{w.Name(), w.err}
}

func (e *Experiment) ruler() ruler { return ruler{e.opts.ByProcess} }

// marked keeps a moment.
func (e *Experiment) marked(m engine.Mark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.marks = append(e.marks, m)
}

// Facts is what the engine said when it was ready.
func (e *Experiment) Facts() engine.Facts { return e.session.Facts() }

// Run runs one task, warmup runs of it that do not count and then runs, and
// returns what was seen of it: before the engine's start, while it started and
// until the task's end. The timeline of a later task leaves the start out. An
// error ends the experiment: the engine is of no more use. A task that the
// engine could not do is an observation with a Failure.
func (e *Experiment) Run(ctx context.Context, task engine.StepTask, warmup, runs int) (*Observation, error) {
	begin := time.Now()
	e.tasks++
	var result *engine.Result
	err := e.session.Run(ctx, []engine.Task{{ID: e.tasks, Step: &task, Warmup: warmup, Runs: runs}}, func(r engine.Result) error {
		result = &r
		return nil
	})
	end := time.Now()
	if err == nil && result == nil {
		err = fmt.Errorf("%s ended its run without an answer", e.Facts().Engine)
	}
	if result == nil {
		result = &engine.Result{Task: engine.Task{ID: e.tasks, Step: &task}}
	}
	if e.recording != nil { // a reading of the end
		if waited := pause(ctx, e.opts.Every); err == nil {
			err = waited
		}
	}
	o := &Observation{
		Facts: e.Facts(), Task: task, Warmup: warmup, Runs: runs, Result: *result, Held: e.tasks - 1,
		ruler: e.ruler(), engineBegan: e.began, engineReady: e.started, begin: begin, end: end,
	}
	e.mu.Lock()
	for _, m := range e.marks {
		if o.Held == 0 || m.At.Before(e.started) || !m.At.Before(begin) {
			o.Marks = append(o.Marks, m)
		}
	}
	e.mu.Unlock()
	if e.recording != nil {
		o.Source, o.Timeline, o.deaf = e.source.Name(), e.recording.Timeline(), e.source.ended()
		err = errors.Join(err, e.source.fault())
	}
	o.find()
	o.trim()
	return o, err
}

// Close ends the engine, waits until its memory is free again, and ends the
// sampling. left are the bytes that the devices hold more than before, where
// that is more than the slack; 0 where they are free or were not sampled.
func (e *Experiment) Close(ctx context.Context) (left int64, err error) {
	err = e.session.Close()
	if e.recording != nil {
		left = e.freed(ctx)
	}
	return left, errors.Join(err, e.stop())
}

// freed waits for the devices to be free.
func (e *Experiment) freed(ctx context.Context) int64 {
	timeline := e.recording.Timeline()
	before := int64(0)
	for i := range timeline.Devices {
		if r, ok := e.ruler().at(&timeline, i, e.began); ok {
			before += r.bytes
		}
	}
	deadline := time.Now().Add(e.opts.FreeWithin)
	for {
		snapshot, ok := e.recording.Latest()
		if !ok {
			return 0
		}
		now := int64(0)
		for _, r := range snapshot.Readings {
			if v := e.ruler().used(r.MemoryUsed, r.ProcessMemory); v != nil && (e.opts.Keep == nil || e.opts.Keep(r)) {
				now += *v
			}
		}
		left := now - before
		if left <= e.opts.FreeSlack || !e.source.ended().IsZero() { // then the last reading says nothing of now
			return 0
		}
		if time.Now().After(deadline) || pause(ctx, e.opts.Every) != nil {
			return left
		}
	}
}

func (e *Experiment) stop() error {
	if e.recording == nil {
		return nil
	}
	_, _ = e.recording.Stop() // its error is the source's
	return e.source.fault()
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
