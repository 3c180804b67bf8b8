package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

// Options says how a run is conducted. The zero value of a field means its
// default.
type Options struct {
	// Write takes the points of a finished task; it must keep all of them or
	// none. Required.
	Write func(points ...profile.Point) error
	// Ready is called with the facts of the first engine, before any task. An
	// error ends the run.
	Ready func(engine.Facts) error
	// Progress is told of every step; it may be nil.
	Progress func(Progress)
	// Budget bounds the time of the run, the start of the engine included, to
	// the moment: what is under way then is broken off. 0 means no bound.
	Budget time.Duration
	// MaxScatter is the coefficient of variation, a share of the mean, from
	// which a task is repeated. Default 0.10.
	MaxScatter float64
	// Repeats is how often an unstable task is measured again. Default 2.
	Repeats int
	// Deaths is how many engines may die one after the other, for another
	// reason than want of memory, without a measured point between. Default 3.
	Deaths int
	// More is asked for further tasks when all others have a result; it may be
	// nil. A run ends when it returns none.
	More func() []engine.Task
	// Now is the clock. Default [time.Now].
	Now func() time.Time
}

// Outcome is what became of a run.
type Outcome struct {
	// Measured tasks have points, Failed ones a failure; Left were not tried.
	Measured, Failed, Left int
	// Unstable tasks are flagged in their points.
	Unstable int
	// Restarts is how often the engine was started again.
	Restarts int
	// OutOfTime says that the budget ended the run.
	OutOfTime bool
	// Facts are those of the first engine.
	Facts engine.Facts
}

// errBudget ends a session's run when the time is spent.
var errBudget = errors.New("the time budget is spent")

// Run measures tasks, in order, on sessions that start opens. The error is
// ctx's, start's, that of a Write, or the last death of an engine that keeps
// dying; the outcome is valid with an error too.
func Run(ctx context.Context, start func(context.Context) (engine.Session, error), tasks []engine.Task, opts Options) (Outcome, error) {
	r := &run{opts: opts, start: start, todo: slices.Clone(tasks), total: len(tasks), first: map[key]engine.Result{}, rounds: map[key]int{}, asked: map[key]bool{}}
	for i := range r.todo {
		r.asked[keyOf(r.todo[i])] = true
		r.todo[i].ID = i + 1
	}
	if r.opts.MaxScatter == 0 {
		r.opts.MaxScatter = 0.10
	}
	if r.opts.Repeats == 0 {
		r.opts.Repeats = 2
	}
	if r.opts.Deaths == 0 {
		r.opts.Deaths = 3
	}
	if r.opts.Now == nil {
		r.opts.Now = time.Now
	}
	if r.opts.Progress == nil {
		r.opts.Progress = func(Progress) {}
	}
	r.began = r.opts.Now()
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if r.opts.Budget > 0 {
		bounded, cancel = context.WithTimeoutCause(ctx, r.opts.Budget, errBudget)
	}
	defer cancel()
	err := r.all(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(bounded), errBudget) {
		err = errBudget // whatever the end of the time broke off
	}
	if errors.Is(err, errBudget) {
		r.out.OutOfTime = true
		err = nil
	}
	// What waited to be repeated is worth keeping as it is.
	err = errors.Join(err, r.keepWaiting())
	r.out.Left = len(r.todo) + len(r.again)
	return r.out, err
}

// run is the state of one Run.
type run struct {
	opts  Options
	start func(context.Context) (engine.Session, error)
	began time.Time
	out   Outcome
	total int

	// todo are tasks without a result; again those that scattered, with what
	// was measured of them in first and how often in rounds.
	todo, again []engine.Task
	first       map[key]engine.Result
	rounds      map[key]int

	asked   map[key]bool // every task of the run
	answers int

	pace   pace
	last   time.Time // when the task now running began
	deaths int       // in a row
}

// all opens sessions until nothing is left to do.
func (r *run) all(ctx context.Context) error {
	for {
		if len(r.todo) == 0 && len(r.again) == 0 && len(r.more()) == 0 {
			return nil
		}
		if err := r.check(ctx); err != nil {
			return err
		}
		session, err := r.start(ctx)
		if err != nil {
			if r.out.Restarts > 0 && ctx.Err() == nil {
				return fmt.Errorf("start the engine again: %w", err)
			}
			return err
		}
		err = r.session(ctx, session)
		if closing := session.Close(); err == nil && closing != nil {
			r.note("the engine did not end cleanly: " + closing.Error())
		}
		if died, ok := errors.AsType[*engine.DiedError](err); ok && ctx.Err() == nil {
			err = r.buried(died)
		}
		if err != nil {
			return err
		}
	}
}

// session runs what is to be done on one engine: first what has no result,
// then what scattered, then what these ask for.
func (r *run) session(ctx context.Context, session engine.Session) error {
	facts := session.Facts()
	if r.out.Restarts == 0 && r.out.Facts.Engine == "" {
		r.out.Facts = facts
		if r.opts.Ready != nil {
			if err := r.opts.Ready(facts); err != nil {
				return err
			}
		}
	}
	for {
		if err := r.skip(facts); err != nil {
			return err
		}
		tasks := r.todo
		if len(tasks) == 0 {
			tasks = r.again
		}
		if len(tasks) == 0 {
			if tasks = r.more(); len(tasks) == 0 {
				return nil
			}
			continue
		}
		answers := r.answers
		r.last = r.opts.Now()
		if err := session.Run(ctx, slices.Clone(tasks), r.emit); err != nil {
			return err
		}
		if r.answers == answers {
			return fmt.Errorf("%s ended its run without an answer to %d tasks", facts.Engine, len(tasks))
		}
	}
}

// more asks for further tasks; those that were asked before are left out.
func (r *run) more() []engine.Task {
	if r.opts.More == nil {
		return nil
	}
	for _, t := range r.opts.More() {
		if r.asked[keyOf(t)] {
			continue
		}
		r.asked[keyOf(t)] = true
		r.total++
		t.ID = r.total
		r.todo = append(r.todo, t)
	}
	return r.todo
}

// skip answers the tasks that the engine's limits do not admit.
func (r *run) skip(facts engine.Facts) error {
	for _, t := range slices.Clone(r.todo) {
		if reason := beyond(t, facts); reason != "" {
			if err := r.fail(t, engine.FailureLimits, reason); err != nil {
				return err
			}
		}
	}
	return nil
}

// beyond says why the engine does not admit a task, empty where it does. The
// rule on tokens is the forward-time predictor's: b > floor(tokens / (i + o)).
func beyond(t engine.Task, facts engine.Facts) string {
	var batch, length int
	if s := t.Step; s != nil {
		batch, length = s.BatchSize, s.InputLen+s.OutputLen
	} else {
		batch, length = max(t.Layers.Sequences, 1), t.Layers.Tokens+t.Layers.Context
	}
	switch {
	case facts.MaxModelLen > 0 && length > facts.MaxModelLen:
		return fmt.Sprintf("%d tokens exceed the engine's %d", length, facts.MaxModelLen)
	case facts.MaxTokens > 0 && batch > facts.MaxTokens/length:
		return fmt.Sprintf("%d sequences of %d tokens exceed the KV cache of %d tokens", batch, length, facts.MaxTokens)
	case facts.MaxBatch > 0 && batch > facts.MaxBatch:
		return fmt.Sprintf("%d sequences exceed the engine's %d", batch, facts.MaxBatch)
	}
	return ""
}

// check ends the run where the context or the budget does.
func (r *run) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.spent()
}

// spent ends the run when its time is over by the run's own clock.
func (r *run) spent() error {
	if r.opts.Budget > 0 && r.opts.Now().Sub(r.began) >= r.opts.Budget {
		return errBudget
	}
	return nil
}

// emit takes one result: it is written, or kept to be repeated. A context that
// has ended does not keep a session from handing over what it has.
func (r *run) emit(result engine.Result) error {
	now := r.opts.Now()
	took := now.Sub(r.last)
	r.last = now
	t, k := result.Task, keyOf(result.Task)
	r.answers++
	if before, ok := r.first[k]; ok {
		result = r.repeated(before, result)
	}
	switch {
	case result.Failure != "":
		if err := r.failResult(result); err != nil {
			return err
		}
	case unstable(result.Points, r.opts.MaxScatter) && r.rounds[k] < r.opts.Repeats:
		r.first[k] = result
		r.rounds[k]++
		r.todo = without(r.todo, k)
		r.again = append(without(r.again, k), t)
		r.pace.add(t, took)
		r.deaths = 0
		r.tell(t, "")
		return r.spent()
	default:
		if err := r.keep(result); err != nil {
			return err
		}
		r.pace.add(t, took)
		r.deaths = 0
	}
	r.tell(t, "")
	return r.spent()
}

// repeated joins what a task gave again to what it gave before; a repetition
// that failed changes nothing but ends the repeating.
func (r *run) repeated(before, again engine.Result) engine.Result {
	if again.Failure != "" {
		r.rounds[keyOf(again.Task)] = r.opts.Repeats
		return before
	}
	return join(before, again)
}

// keep writes the points of a task that was measured.
func (r *run) keep(result engine.Result) error {
	if unstable(result.Points, r.opts.MaxScatter) {
		flag(result.Points, r.opts.MaxScatter)
		r.out.Unstable++
	}
	if err := r.opts.Write(result.Points...); err != nil {
		return err
	}
	r.out.Measured++
	r.finish(keyOf(result.Task))
	return nil
}

// failResult writes a failure and what was measured before it.
func (r *run) failResult(result engine.Result) error {
	point := failure(result.Task, result.Failure)
	if err := r.opts.Write(append(slices.Clone(result.Points), point)...); err != nil {
		return err
	}
	r.out.Failed++
	r.finish(keyOf(result.Task))
	return nil
}

// fail writes a failure that no engine was asked about.
func (r *run) fail(t engine.Task, reason, why string) error {
	point := failure(t, reason)
	point.Warnings = []string{why}
	if err := r.opts.Write(point); err != nil {
		return err
	}
	r.out.Failed++
	r.finish(keyOf(t))
	r.tell(t, "")
	return nil
}

// failure is the point of a task that could not be measured.
func failure(t engine.Task, reason string) profile.Point {
	point := profile.Point{Kind: profile.KindFailure, Reason: reason}
	if s := t.Step; s != nil {
		point.Step = &profile.Step{BatchSize: s.BatchSize, InputLen: s.InputLen, OutputLen: s.OutputLen}
		return point
	}
	point.Layer = &profile.Layer{Name: AllLayers, Tokens: t.Layers.Tokens, Context: t.Layers.Context, Sequences: t.Layers.Sequences}
	return point
}

// AllLayers stands for the name of the layer where all of a task's layers
// failed together.
const AllLayers = "*"

// finish takes a task off every list.
func (r *run) finish(k key) {
	r.todo, r.again = without(r.todo, k), without(r.again, k)
	delete(r.first, k)
}

func without(tasks []engine.Task, k key) []engine.Task {
	return slices.DeleteFunc(tasks, func(t engine.Task) bool { return keyOf(t) == k })
}

// buried notes the death of an engine: the task that it died of fails, and
// with a want of memory those that need more of it.
func (r *run) buried(died *engine.DiedError) error {
	if !died.OutOfMemory || died.Task == 0 {
		// Each death of want of memory costs a task, so they come to an end.
		r.deaths++
	}
	if r.deaths > r.opts.Deaths {
		return died
	}
	r.out.Restarts++
	repeating := len(r.todo) == 0
	victim := -1
	list := r.todo
	if repeating {
		list = r.again
	}
	for i, t := range list {
		if t.ID == died.Task {
			victim = i
		}
	}
	if victim < 0 {
		r.note(fmt.Sprintf("%v; starting it again", died))
		return nil
	}
	t := list[victim]
	if repeating {
		// It was measured once; that has to do.
		before := r.first[keyOf(t)]
		r.note(fmt.Sprintf("%v while repeating a task; its first samples stay", died))
		return r.keep(before)
	}
	reason := engine.FailureRuntime + died.Error()
	if died.OutOfMemory {
		reason = engine.FailureOOM
	}
	if err := r.fail(t, reason, died.Error()); err != nil {
		return err
	}
	if died.OutOfMemory {
		for _, larger := range slices.Clone(r.todo) {
			if !dominates(larger, t) {
				continue
			}
			if err := r.fail(larger, engine.FailureOOM, "not tried: a smaller task ended the engine for want of memory"); err != nil {
				return err
			}
		}
	}
	r.note(fmt.Sprintf("%v; starting it again", died))
	return nil
}

// dominates reports whether a needs at least the memory of b.
func dominates(a, b engine.Task) bool {
	switch {
	case a.Step != nil && b.Step != nil:
		return a.Step.BatchSize >= b.Step.BatchSize && a.Step.InputLen >= b.Step.InputLen && a.Step.OutputLen >= b.Step.OutputLen
	case a.Layers != nil && b.Layers != nil:
		return a.Layers.Tokens >= b.Layers.Tokens && a.Layers.Context >= b.Layers.Context && a.Layers.Sequences >= b.Layers.Sequences
	}
	return false
}

// keepWaiting writes what was measured of tasks that wait to be repeated when
// a run ends early.
func (r *run) keepWaiting() error {
	for _, t := range slices.Clone(r.again) {
		if err := r.keep(r.first[keyOf(t)]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) note(text string) { r.tell(engine.Task{}, text) }

func (r *run) tell(t engine.Task, note string) {
	r.opts.Progress(Progress{
		Task: t, Note: note,
		Done: r.out.Measured + r.out.Failed, Failed: r.out.Failed, Repeated: len(r.again), Total: r.total,
		Elapsed: r.opts.Now().Sub(r.began), Left: r.pace.left(slices.Concat(r.todo, r.again)),
	})
}
