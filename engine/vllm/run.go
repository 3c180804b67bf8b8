package vllm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// gate is a way to get a batch of prompts into one step.
type gate int

const (
	// pauseGate holds the scheduler while the batch arrives.
	pauseGate gate = iota
	// blockGate keeps the engine busy with another prompt meanwhile.
	blockGate
)

// retries is how many more runs than asked for a task may take.
const retries = 5

// maxPatience bounds how far waits are stretched.
const maxPatience = 64

// Run measures the tasks in order.
func (s *session) Run(ctx context.Context, tasks []engine.Task, emit func(engine.Result) error) error {
	for _, task := range tasks {
		result, err := s.task(ctx, task)
		if err != nil {
			return err
		}
		if err := emit(result); err != nil {
			return err
		}
	}
	return nil
}

// task measures one task. An error ends the session.
func (s *session) task(ctx context.Context, task engine.Task) (engine.Result, error) {
	result := engine.Result{Task: task}
	t := task.Step
	switch {
	case t == nil:
		result.Failure = engine.FailureException + "a vLLM server measures whole steps, no layers"
		return result, nil
	case t.BatchSize < 1 || t.InputLen < 1 || t.OutputLen < 1:
		result.Failure = engine.FailureException + fmt.Sprintf("batch %d × %d, %d tokens out: want 1 or more of each", t.BatchSize, t.InputLen, t.OutputLen)
		return result, nil
	case !s.admits(t):
		result.Failure = engine.FailureLimits
		return result, nil
	}
	c := newCollector(t)
	warmup, runs, counted := max(task.Warmup, 0), max(task.Runs, 1), 0
	begin := s.log.mark()
	for run := range warmup + runs + retries {
		if s.enough(c, runs, counted) {
			break
		}
		if run == warmup && warmup > 0 {
			s.setup.Mark(engine.MarkWarm, "answers to the warm-up runs")
			begin = s.log.mark()
		}
		steps, err := s.attempt(ctx, t, task.ID)
		if err != nil {
			var end *taskError
			if !errors.As(err, &end) {
				return result, err
			}
			result.Failure = s.log.redactor.Redact(end.failure)
			break
		}
		if run < warmup {
			s.learn(steps, t)
			continue
		}
		counted++
		if !c.take(steps) {
			s.learn(steps, t)
		}
	}
	points, err := c.points()
	if result.Points = points; result.Failure == "" {
		result.Failure = c.failure(s.limits.budget)
	}
	result.Totals, result.Memory = c.times.Totals, s.used(begin)
	if err != nil {
		result.Failure = engine.FailureException + err.Error()
	}
	return result, nil
}

// used is the fullest that the KV cache was since a mark of the log, as far as
// the log tells it: in tenths of a percent of what it holds.
func (s *session) used(mark int) []profile.Point {
	steps, _, _ := s.log.since(mark)
	share, told := 0.0, false
	for _, step := range steps {
		share, told = max(share, step.KVUsage), told || step.HasKVUsage
	}
	if !told || s.facts.MaxTokens == 0 || share == 0 {
		return nil
	}
	tokens := math.Round(share * float64(s.facts.MaxTokens))
	p := profile.Point{
		Kind: profile.KindMemory, Origin: "log: KV cache usage",
		Memory: &profile.Memory{Part: profile.MemoryKVUsed, Tokens: int64(tokens), BlockSize: s.facts.Deploy.BlockSize},
	}
	if p.Memory.Tokens == 0 || p.Validate() != nil {
		return nil
	}
	return []profile.Point{p}
}

// admits reports whether a task is within the server's limits.
func (s *session) admits(t *engine.StepTask) bool {
	sequence := t.InputLen + t.OutputLen
	if n := s.facts.MaxModelLen; n > 0 && sequence > n {
		return false
	}
	if n := s.limits.sequences; n > 0 && t.BatchSize > n {
		return false
	}
	// A sequence fills whole blocks.
	block := max(s.facts.Deploy.BlockSize, 1)
	if n := s.facts.MaxTokens; n > 0 && int64(t.BatchSize)*int64((sequence+block-1)/block*block) > int64(n) {
		return false
	}
	return true
}

// enough reports whether a task needs no more runs: all samples are there, or
// more runs would not bring them.
func (s *session) enough(c *collector, runs, counted int) bool {
	if counted < runs {
		return false
	}
	t := c.task
	if s.limits.budget > 0 && t.BatchSize*t.InputLen > s.limits.budget {
		return true
	}
	return len(c.times.Prefill) >= runs
}

// learn takes from a run whose batch was split how to do better.
func (s *session) learn(steps []replayed, t *engine.StepTask) {
	for _, o := range steps {
		if o.exact && whole(o.pass, t.BatchSize, t.InputLen) {
			return
		}
	}
	for _, o := range steps {
		// A chunk that does not end its prompt used up the step's budget.
		if n := len(o.pass.Prefill); o.exact && n > 0 && !o.pass.Prefill[n-1].Last && s.limits.budget == 0 {
			s.limits.budget = o.pass.Tokens()
		}
	}
	if s.limits.budget > 0 && t.BatchSize*t.InputLen > s.limits.budget {
		return // no patience helps
	}
	s.patience = min(max(s.patience, 1)*2, maxPatience)
	if s.patience >= maxPatience/4 && len(s.gates) > 1 {
		s.gates, s.patience = s.gates[1:], 1
	}
}

// taskError ends a task and not its session.
type taskError struct{ failure string }

func (e *taskError) Error() string { return e.failure }

// attempt sends a batch once and returns the steps that it took, without
// those of a prompt that only kept the engine busy.
func (s *session) attempt(ctx context.Context, t *engine.StepTask, id int) ([]replayed, error) {
	running, cancel := context.WithTimeout(ctx, s.setup.TaskTimeout)
	defer cancel()
	batch := s.tokens.batch(t.BatchSize, t.InputLen)
	mark := s.log.mark()
	ahead, err := s.send(running, batch, t.OutputLen)
	if err != nil {
		return nil, s.failed(ctx, running, id, err)
	}
	var sent []request
	if ahead > 0 {
		sent = append(sent, request{ahead, 1})
	}
	for range batch {
		sent = append(sent, request{t.InputLen, t.OutputLen})
	}
	want := tokens(sent)
	steps := s.log.wait(running, mark, s.lag(), func(steps []step) bool {
		n := 0
		for _, step := range steps {
			n += step.Totals.Tokens()
		}
		return n >= want
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		s.quiet++
		if s.quiet >= 3 {
			return nil, s.died(id, errors.New("the log tells no more iterations"))
		}
		return nil, nil
	}
	s.quiet = 0
	return follow(steps, sent, ahead > 0), nil
}

// replayed is a step with its pass, where that is known.
type replayed struct {
	totals  forward.Totals
	seconds float64
	pass    forward.Pass
	exact   bool
}

// follow replays requests through the steps of the log.
func follow(steps []step, sent []request, ahead bool) []replayed {
	r := newReplay(sent)
	var out []replayed
	for _, step := range steps {
		if step.gap && len(out) > 0 {
			r.lost = true
		}
		blocked := ahead && r.requests[0].computed < r.requests[0].prompt
		o := replayed{totals: step.Totals, seconds: step.Seconds}
		if o.pass, o.exact = r.next(step.Totals); o.exact && blocked && len(o.pass.Prefill) == 1 && o.pass.Prefill[0].Count == 1 && o.pass.Decode.Count == 0 {
			continue // of the prompt that kept the engine busy alone
		}
		out = append(out, o)
	}
	return out
}

// send gives the server a batch and waits for its answer. ahead is the length
// of the prompt that went before it; 0 where there was none.
func (s *session) send(ctx context.Context, batch [][]int, output int) (ahead int, err error) {
	if len(batch) == 1 {
		return 0, s.complete(ctx, batch, output)
	}
	if s.gates[0] == pauseGate {
		sent, err := s.paused(ctx, batch, output)
		if sent || err != nil {
			return 0, err
		}
		s.gates = s.gates[1:]
	}
	return s.blocked(ctx, batch, output)
}

// settle is how long a batch may take to reach the engine.
func (s *session) settle(batch [][]int) time.Duration {
	tokens := len(batch) * len(batch[0])
	once := 20*time.Millisecond + time.Duration(len(batch))*500*time.Microsecond + time.Duration(tokens)*2*time.Microsecond
	return time.Duration(float64(once) * max(s.patience, 1))
}

// paused sends a batch while the scheduler is held. sent is false where the
// server cannot be paused.
func (s *session) paused(ctx context.Context, batch [][]int, output int) (sent bool, err error) {
	if _, err := s.client.call(ctx, http.MethodPost, "/pause?mode=keep&clear_cache=false", nil); err != nil {
		if code := status(err); code >= 400 && code < 500 {
			return false, nil
		}
		return false, err
	}
	answered := make(chan error, 1)
	go func() { answered <- s.complete(ctx, batch, output) }()
	wait := time.NewTimer(s.settle(batch))
	defer wait.Stop()
	select {
	case <-wait.C:
	case err = <-answered: // refused: nothing waits for the scheduler
		answered <- err
	case <-ctx.Done():
	}
	// The server must go on whatever became of the batch.
	resuming, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, resumed := s.client.call(resuming, http.MethodPost, "/resume", nil)
	if resumed != nil {
		return true, resumed
	}
	return true, <-answered
}

// blocked sends a batch while the engine computes a longer prompt. It returns
// that prompt's length.
func (s *session) blocked(ctx context.Context, batch [][]int, output int) (int, error) {
	length := int(512 * max(s.patience, 1))
	if n := s.facts.MaxModelLen; n > 0 {
		length = min(length, n-1)
	}
	if n := s.limits.budget; n > 0 {
		length = min(length, n)
	}
	length = max(length, 1)
	ahead := [][]int{s.tokens.prompt(length)}
	first := make(chan error, 1)
	go func() { first <- s.complete(ctx, ahead, 1) }()
	wait := time.NewTimer(5 * time.Millisecond)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	err := s.complete(ctx, batch, output)
	return length, errors.Join(err, <-first)
}

// complete sends a request with prompts of token ids.
func (s *session) complete(ctx context.Context, batch [][]int, output int) error {
	return s.client.complete(ctx, s.model, batch, output)
}

// failed tells an error of one task from the end of the server.
func (s *session) failed(ctx, running context.Context, id int, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	code := status(err)
	if code >= 400 && code < 500 {
		return &taskError{engine.FailureException + err.Error()}
	}
	// A process that is about to end may take a moment.
	if s.process != nil && code == 0 {
		grace := time.NewTimer(2 * time.Second)
		defer grace.Stop()
		select {
		case <-s.exited:
			return s.died(id, err)
		case <-grace.C:
		}
	}
	if health := s.client.healthy(ctx); health != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return s.died(id, err)
	}
	switch {
	case running.Err() != nil:
		return &taskError{engine.FailureTimeout + fmt.Sprintf("no answer within %v", s.setup.TaskTimeout)}
	case code >= 500 && engine.SaysOutOfMemory(err.Error()):
		return &taskError{engine.FailureOOM}
	case code >= 500:
		return &taskError{engine.FailureRuntime + err.Error()}
	}
	return &taskError{engine.FailureException + err.Error()}
}
