package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/llmprof/llmprof/workload"
)

// Options says what load is put on the targets and how.
type Options struct {
	// Schedule is what is sent and when.
	Schedule *workload.Schedule
	// MaxConcurrency bounds the open requests: those over it are held back and
	// keep their scheduled time. 0 is no bound.
	MaxConcurrency int
	// Warmup is the number of requests sent before the run; they are in no
	// statistics and share no prefix with those of the run.
	Warmup int
	// Timeout bounds one request, connection included; default 10 minutes.
	Timeout time.Duration
	// MaxAnswer bounds one answer in bytes; default 64 MiB.
	MaxAnswer int
	// Text gives a request's prompt; nil, or an empty answer, for random text.
	Text func(workload.Request) string
	// StopOverload ends the run early when open requests and TTFT keep rising.
	StopOverload bool
	// Hooks watch the run.
	Hooks Hooks
}

// Hooks are called while a run goes on; nil ones cost nothing. They are called
// from the run's own goroutines, one at a time for each hook, and must be fast.
type Hooks struct {
	// Begin is called after the warm-up and before the clock of the run
	// starts; it may take its time.
	Begin func()
	// Done is called for each request of the run that has ended.
	Done func(*Record)
	// Tick is called ten times a second.
	Tick func(Live)
}

// Result is what a run gave.
type Result struct {
	// Started is the wall-clock time of the run's start: a label, nothing is
	// computed from it.
	Started time.Time
	// Schedule is what was sent.
	Schedule *workload.Schedule
	// MaxConcurrency is the bound on open requests; 0 for none.
	MaxConcurrency int
	// Records are the requests that came due, in the order of the schedule.
	Records []Record
	// Warmup are the requests sent before.
	Warmup []Record
	// Unsent counts requests that never came due.
	Unsent int
	// Partial says why the run ended early; empty where it did not.
	Partial string
	// OverCapacity says that the run was ended because the server fell behind.
	OverCapacity bool
	// Machine is the client's machine.
	Machine Machine
	// Elapsed is the time from the start to the last end.
	Elapsed time.Duration
	// ServerHits is how many prompt tokens the server's own metrics counted as
	// found in its prefix cache meanwhile, for who has read them to fill in; nil
	// where they are not known.
	ServerHits *float64
}

// Defaults of [Options].
const (
	defaultTimeout   = 10 * time.Minute
	defaultMaxAnswer = 64 << 20
	warmAtOnce       = 16
)

// Run puts the load on the targets, in turn where there are several, and
// returns the records. A cancelled context gives a partial result without an
// error. An error means that nothing was measured.
func Run(ctx context.Context, targets []Target, o Options) (*Result, error) {
	endpoints, err := o.prepare(targets)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	load := loadAverage()
	s := &session{options: o, endpoints: endpoints, clock: clock{time.Now()}}
	if s.net, err = newNetwork(ctx, s.clock, endpoints, s.finished); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	defer s.net.close()
	s.net.prepare(spareConnections(o))
	result := &Result{Schedule: o.Schedule, MaxConcurrency: o.MaxConcurrency}
	if o.Warmup > 0 {
		warm, err := s.run(ctx, warmSchedule(o), Hooks{}, false)
		if err != nil {
			return nil, fmt.Errorf("load: warm-up: %w", err)
		}
		result.Warmup = warm.records
		if failed := warmFailure(warm.records); failed != nil && ctx.Err() == nil {
			return nil, failed
		}
	}
	if o.Hooks.Begin != nil {
		o.Hooks.Begin()
	}
	runtime.GC()
	measured := machineNow(load)
	defer debug.SetGCPercent(debug.SetGCPercent(200))
	d, err := s.run(ctx, o.Schedule, o.Hooks, o.StopOverload)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	result.Machine = measured()
	result.Started = s.clock.origin.Add(d.base)
	result.Records, result.Partial, result.OverCapacity = d.records, d.partial, d.over
	result.Unsent = len(o.Schedule.Requests) - len(d.records)
	for i := range d.records {
		result.Elapsed = max(result.Elapsed, d.records[i].Close)
	}
	return result, nil
}

// prepare checks the options, fills their defaults and prepares the targets.
func (o *Options) prepare(targets []Target) ([]*endpoint, error) {
	var faults []error
	var endpoints []*endpoint
	for _, t := range targets {
		e, err := t.prepare()
		if err != nil {
			faults = append(faults, err)
		}
		endpoints = append(endpoints, e)
	}
	if len(targets) == 0 {
		faults = append(faults, errors.New("no target is given"))
	}
	if o.Schedule == nil || len(o.Schedule.Requests) == 0 {
		faults = append(faults, errors.New("the schedule holds no request"))
	} else {
		faults = append(faults, checkSchedule(o.Schedule.Requests))
	}
	if o.MaxConcurrency < 0 || o.Warmup < 0 || o.Timeout < 0 || o.MaxAnswer < 0 {
		faults = append(faults, fmt.Errorf("concurrency %d, warm-up %d, time limit %v, answer limit %d: none may be negative",
			o.MaxConcurrency, o.Warmup, o.Timeout, o.MaxAnswer))
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = defaultMaxAnswer
	}
	return endpoints, errors.Join(faults...)
}

// checkSchedule reports the first request that could not be sent.
func checkSchedule(requests []workload.Request) error {
	for i, q := range requests {
		switch {
		case q.ID != i:
			return fmt.Errorf("request %d of the schedule has ID %d", i, q.ID)
		case q.At < 0 || q.At > 1e7 || math.IsNaN(float64(q.At)):
			return fmt.Errorf("request %d is due at %v", i, q.At)
		case q.InputLen < 1 || q.OutputLen < 1 || q.InputLen > workload.MaxLen || q.OutputLen > workload.MaxLen:
			return fmt.Errorf("request %d asks for %d tokens from %d", i, q.OutputLen, q.InputLen)
		case q.After != nil && (q.After.Request >= i || q.After.Request < workload.AnyRequest):
			return fmt.Errorf("request %d waits for request %d, which does not stand before it", i, q.After.Request)
		case q.After != nil && !(q.After.Think >= 0 && q.After.Think <= 1e7):
			return fmt.Errorf("request %d has a think time of %v", i, q.After.Think)
		}
	}
	return nil
}

// spareConnections is how many connections are opened before the run: all that
// can be needed where that is known, else those of the first half second.
func spareConnections(o Options) int {
	waiting, early := 0, 0
	for _, q := range o.Schedule.Requests {
		switch {
		case q.After != nil:
			waiting++
		case q.At < 0.5:
			early++
		}
	}
	spare := max(early, 8)
	if o.MaxConcurrency > 0 {
		spare = min(spare, o.MaxConcurrency)
	}
	return min(spare, len(o.Schedule.Requests), 1024)
}

// warmSchedule makes the warm-up: a few requests of the schedule with other
// text, in a closed loop.
func warmSchedule(o Options) *workload.Schedule {
	workers := warmAtOnce
	if o.MaxConcurrency > 0 {
		workers = min(workers, o.MaxConcurrency)
	}
	warm := &workload.Schedule{}
	for i := range o.Warmup {
		q := o.Schedule.Requests[i%len(o.Schedule.Requests)]
		q.ID, q.At, q.After, q.Prefix, q.Session, q.Turn = i, 0, nil, nil, "", 0
		q.Seed = ^(q.Seed + uint64(i)<<32) & (1<<53 - 1)
		if i >= workers {
			q.After = &workload.Dependency{Request: workload.AnyRequest}
		}
		warm.Requests = append(warm.Requests, q)
	}
	return warm
}

// WarmupError says that no request of the warm-up was answered: the run would
// only measure how fast the server refuses.
type WarmupError struct {
	// Requests is how many were sent.
	Requests int
	// First is how the first one failed, Status the HTTP status it was answered
	// with, 0 where there was none.
	First  *Failure
	Status int
}

// Error says how many requests failed, and how the first one did.
func (e *WarmupError) Error() string {
	return fmt.Sprintf("load: none of %d warm-up requests was answered, the first: %v", e.Requests, e.First)
}

// ExitCode is that of failures outside, where the server gave no answer, failed
// by its own fault or had no time, and else that of mistakes.
func (e *WarmupError) ExitCode() int {
	const mistake, outside = 2, 4
	switch e.First.Kind {
	case FailStatus:
		if e.Status < 500 && e.Status != http.StatusRequestTimeout && e.Status != http.StatusTooManyRequests {
			return mistake
		}
	case FailRedirect, FailContent, FailRequest:
		return mistake
	}
	return outside
}

// Hint says what to look at.
func (e *WarmupError) Hint() string {
	return "check the URL, the model's name, the endpoint and the prompt's length against the server"
}

// warmFailure is nil where at least one warm-up request was answered.
func warmFailure(records []Record) *WarmupError {
	if slices.ContainsFunc(records, func(r Record) bool { return r.OK() }) || len(records) == 0 {
		return nil
	}
	return &WarmupError{Requests: len(records), First: records[0].Failure, Status: records[0].Status}
}
