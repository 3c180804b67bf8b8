package engine

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"
)

// probeLimits are what a probe is given before it is given up.
type probeLimits struct {
	// close is how long a probe may take to end by itself, stop how long after
	// it was asked to, settle how long its end may take to show once its
	// output has ended.
	close, stop, settle time.Duration
	// line is the longest line in bytes.
	line int
}

// maxWait bounds the time that a task may take, however many runs it has.
const maxWait = 30 * 24 * time.Hour

func defaultProbeLimits() probeLimits {
	return probeLimits{close: 10 * time.Second, stop: 3 * time.Second, settle: 10 * time.Second, line: maxProbeLine}
}

// StartProbe starts a probe at a place and returns once it is ready to
// measure. The process lives until the session is closed or ctx ends. Variables
// of the setup come on top of the command's; what the probe prints beside its
// events goes to the setup's log.
//
// A probe that says why it cannot measure ends as an [*UnusableError] or as an
// error with a Hint method; one that dies, falls silent or breaks the protocol
// as a [*DiedError]. The same holds for the session's Run, after which the
// session is of no more use than to be closed. A task that takes too long is
// emitted with FailureTimeout first, then the session ends, for nothing but its
// end frees the device.
func StartProbe(ctx context.Context, place Place, cmd Command, setup Setup) (Session, error) {
	return startProbe(ctx, place, cmd, setup, defaultProbeLimits())
}

// probeSession is a running probe.
type probeSession struct {
	engine, place string
	process       Process
	limits        probeLimits
	taskTimeout   time.Duration
	facts         Facts
	log           *probeLog
	mark          func(name, source string)

	// lines come from the probe; the channel closes at the end of its output.
	lines chan probeLine
	// quit closes when nobody reads lines any more, ended when the process has
	// ended; end is set by then.
	quit, ended chan struct{}
	end         error

	// turn holds the right to run tasks; broken says why there is no use.
	turn   chan struct{}
	broken error
	// writing guards the process's stdin, closing the close of quit.
	writing sync.Mutex
	closing sync.Once
	closed  error
}

func startProbe(ctx context.Context, place Place, cmd Command, setup Setup, limits probeLimits) (Session, error) {
	if len(cmd.Argv) == 0 {
		return nil, errors.New("start probe: no program named")
	}
	cmd.Env = append(append([]string(nil), cmd.Env...), setup.Env...)
	log := &probeLog{w: setup.Log, redactor: RedactorOf(place, cmd.Env...)}
	if cmd.Stderr == nil && setup.Log != nil {
		cmd.Stderr = log
	}
	process, err := place.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	s := &probeSession{
		engine: cmp.Or(setup.Deploy.Engine, path.Base(cmd.Argv[0])), place: place.String(), process: process, limits: limits,
		taskTimeout: setup.TaskTimeout, log: log, mark: setup.Mark,
		lines: make(chan probeLine), quit: make(chan struct{}), ended: make(chan struct{}),
		turn: make(chan struct{}, 1),
	}
	if s.taskTimeout <= 0 {
		s.taskTimeout = 10 * time.Minute
	}
	go s.read()

	timeout := setup.StartTimeout
	if timeout <= 0 {
		timeout = 15 * time.Minute
	}
	s.send(openRequest(setup))
	ready, err := s.await(ctx, 0, timeout)
	if err == nil {
		s.facts, err = readFacts(ready, setup)
	}
	if err != nil {
		var died *DiedError
		var timedOut *probeTimeoutError
		switch {
		case errors.As(err, &timedOut):
			err = &DiedError{Engine: s.engine, Err: fmt.Errorf("not ready after %v; a model that loads slowly needs a longer start timeout", timeout)}
		case errors.As(err, &died) && errors.As(died.Err, new(*ExitError)):
			err = notStarted(s.engine, s.place, cmd.Argv[0], died.Err)
		}
		_ = s.kill() // the cause matters more than how the rest went down
		return nil, err
	}
	return s, nil
}

// Facts is what the probe said when it was ready.
func (s *probeSession) Facts() Facts { return s.facts }

// Run measures the tasks in order.
func (s *probeSession) Run(ctx context.Context, tasks []Task, emit func(Result) error) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, task := range tasks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.broken != nil {
			return s.broken
		}
		request, err := taskRequest(task)
		if err != nil {
			return err
		}
		result, err := s.measure(ctx, task, request)
		if err != nil {
			s.broken = err
		}
		if result != nil {
			if err := emit(*result); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// taskRequest is the request for a task.
func taskRequest(task Task) (probeTask, error) {
	r := probeTask{ID: task.ID, Warmup: max(task.Warmup, 0), Runs: task.Runs}
	least := func(sizes ...int) bool {
		for _, n := range sizes {
			if n < 1 {
				return false
			}
		}
		return true
	}
	switch {
	case task.Runs < 1:
		return r, fmt.Errorf("task %d: %d runs: want at least 1", task.ID, task.Runs)
	case task.Step != nil && task.Layers == nil:
		t := task.Step
		if !least(t.BatchSize, t.InputLen, t.OutputLen) {
			return r, fmt.Errorf("task %d: batch size %d, input %d, output %d: want at least 1 of each", task.ID, t.BatchSize, t.InputLen, t.OutputLen)
		}
		r.Op, r.BatchSize, r.InputLen, r.OutputLen = "step", t.BatchSize, t.InputLen, t.OutputLen
	case task.Layers != nil && task.Step == nil:
		t := task.Layers
		if !least(t.Tokens, t.Sequences) || t.Context < 0 {
			return r, fmt.Errorf("task %d: %d tokens after %d of %d sequences: want at least 1 token and sequence", task.ID, t.Tokens, t.Context, t.Sequences)
		}
		r.Op, r.Tokens, r.Context, r.Sequences = "layers", t.Tokens, t.Context, t.Sequences
	default:
		return r, fmt.Errorf("task %d: want either a step or layers", task.ID)
	}
	return r, nil
}

// measure runs one task. An error ends the session; a result may come with
// one.
func (s *probeSession) measure(ctx context.Context, task Task, request probeTask) (*Result, error) {
	runs := min(int64(request.Warmup)+int64(request.Runs), int64(maxWait/s.taskTimeout))
	timeout := s.taskTimeout * time.Duration(max(runs, 1))
	s.send(request)
	event, err := s.await(ctx, task.ID, timeout)
	var late *probeTimeoutError
	if errors.As(err, &late) {
		_ = s.kill() // a probe that hangs is ended by force, whatever it says
		text := fmt.Sprintf("no answer within %v", timeout)
		died := &DiedError{Engine: s.engine, Task: task.ID, Err: fmt.Errorf("%s; a longer task timeout gives it more time", text)}
		return &Result{Task: task, Failure: FailureTimeout + text}, died
	}
	if err != nil {
		_ = s.kill() // the cause matters more
		return nil, err
	}
	result := &Result{Task: task}
	switch {
	case event.Event == "failed":
		result.Failure = failure(event.Reason, event.Message)
		return result, nil
	case event.Event != request.Op:
		err = fmt.Errorf("it is of kind %q", event.Event)
	case task.Step != nil:
		result.Points, result.Totals, err = stepPoints(task, event, s.facts.Clock)
	default:
		result.Points, err = layerPoints(task, event, s.facts.Clock)
	}
	if err == nil && len(result.Points) > 0 {
		first := &result.Points[0]
		var unsure []string
		result.Memory, unsure = memoryPoints(event.Memory)
		first.Warnings = append(append(first.Warnings, event.Warnings...), unsure...)
	}
	if err != nil {
		result.Points, result.Totals, result.Failure = nil, nil, FailureRuntime+"the probe's answer is of no use: "+err.Error()
	}
	return result, nil
}

// probeTimeoutError says that the probe did not answer in time.
type probeTimeoutError struct{}

// Error says so.
func (*probeTimeoutError) Error() string { return "no answer in time" }

// await waits for the answer to a task, or for "ready" (task 0 before the
// engine is known).
func (s *probeSession) await(ctx context.Context, task int, timeout time.Duration) (*probeEvent, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.quit:
			return nil, fmt.Errorf("%s: the session is closed", s.engine)
		case <-timer.C:
			return nil, &probeTimeoutError{}
		case line, ok := <-s.lines:
			if !ok {
				return nil, s.died(ctx, task)
			}
			event, err := s.take(line, task)
			if event != nil || err != nil {
				return event, err
			}
		}
	}
}

// take looks at one line: the answer that is waited for, the end of the
// session, or something for the log.
func (s *probeSession) take(line probeLine, task int) (*probeEvent, error) {
	ready := s.facts.Clock != ""
	broken := func(format string, args ...any) error {
		return &DiedError{Engine: s.engine, Task: task, Err: fmt.Errorf(format, args...)}
	}
	if line.broken != nil {
		return nil, broken("a line of its output is broken: %w: %s", line.broken, Shorten(s.log.redactor.Redact(line.text), 200))
	}
	e := line.event
	if e == nil {
		s.log.line(line.text)
		return nil, nil
	}
	e.redact(s.log.redactor)
	switch e.Event {
	case "fatal":
		return nil, fatalError(s.engine, s.place, ready, task, e)
	case "ready":
		if ready {
			return nil, broken("it says ready for the second time")
		}
		if e.Engine != "" {
			s.engine = e.Engine
		}
		s.mark(MarkReady, "probe: ready")
		return e, nil
	case "mark":
		switch e.Name {
		case MarkStarted, MarkLoaded, MarkWarm:
			s.mark(e.Name, "probe: "+e.Name)
		}
		return nil, nil
	case "step", "layers", "failed":
		if !ready {
			return nil, broken("it answers %q before it is ready", e.Event)
		}
		if e.ID != task {
			return nil, broken("it answers task %d while task %d runs", e.ID, task)
		}
		return e, nil
	}
	s.log.line(strings.TrimSpace(e.Event + ": " + e.Message))
	return nil, nil
}

// died says how a probe ended whose output is at its end.
func (s *probeSession) died(ctx context.Context, task int) error {
	timer := time.NewTimer(s.limits.settle)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-ctx.Done():
	case <-timer.C:
	}
	if err := ctx.Err(); err != nil {
		return err // it ended because it was to end
	}
	died := &DiedError{Engine: s.engine, Task: task}
	select {
	case <-s.ended:
		died.Err, died.OutOfMemory = s.end, OutOfMemory(s.end)
		if s.end == nil {
			died.Err = errors.New("it ended without a word")
		}
	default:
		died.Err = errors.New("it closed its output and does not end")
	}
	if said := s.log.last(); said != "" && !errors.As(died.Err, new(*ExitError)) {
		died.Err = fmt.Errorf("%w; its last words: %s", died.Err, said)
	}
	return died
}

// read hands the probe's lines over until its output ends, then waits for the
// process.
func (s *probeSession) read() {
	out := s.process.Stdout()
	reader := probeReader{r: bufio.NewReaderSize(out, 64<<10), limit: s.limits.line}
	for {
		line, err := reader.next()
		if err != nil {
			break
		}
		select {
		case s.lines <- line:
		case <-s.quit:
		}
	}
	_, _ = io.Copy(io.Discard, out) // a failed read leaves nothing to look at
	close(s.lines)
	s.end = s.process.Wait()
	close(s.ended)
}

// send writes a request. A probe that does not take it shows by its silence or
// its end, so that is left to those who wait for the answer.
func (s *probeSession) send(request any) {
	line, err := json.Marshal(request)
	if err != nil {
		return // requests are plain values
	}
	go func() {
		s.writing.Lock()
		defer s.writing.Unlock()
		_, _ = s.process.Stdin().Write(append(line, '\n'))
	}()
}

// Close asks the probe to end, waits for it, and ends it by force where it
// does not.
func (s *probeSession) Close() error {
	s.closing.Do(func() {
		close(s.quit)
		go func() {
			s.writing.Lock()
			defer s.writing.Unlock()
			stdin := s.process.Stdin()
			_, _ = io.WriteString(stdin, `{"op":"close"}`+"\n") // the end of stdin says it too
			_ = stdin.Close()
		}()
		if !s.waitEnd(s.limits.close) {
			s.closed = s.force()
		}
	})
	return s.closed
}

// kill ends the probe at once.
func (s *probeSession) kill() error {
	s.closing.Do(func() {
		close(s.quit)
		s.closed = s.force()
	})
	return s.closed
}

// force stops the process and waits until it is gone.
func (s *probeSession) force() error {
	if err := s.process.Stop(s.limits.stop); err != nil {
		return fmt.Errorf("stop %s on %s: %w", s.engine, s.place, err)
	}
	if !s.waitEnd(s.limits.settle) {
		return fmt.Errorf("stop %s on %s: its output does not end; a process that it started may still run", s.engine, s.place)
	}
	return nil
}

func (s *probeSession) waitEnd(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.ended:
		return true
	case <-timer.C:
		return false
	}
}
