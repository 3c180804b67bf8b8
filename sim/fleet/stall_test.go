package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// TestStall has two replicas, of which the first stands still from its first
// request on: the pool never holds it, and the requests behind it wait. The other
// one serves all of its own, whichever way the replicas are simulated.
func TestStall(t *testing.T) {
	config := sglangOf(t, "")
	config.Pool, config.Context, config.Clip = 40, 0, 0
	short := func(at float64) workload.Request {
		return workload.Request{At: unit.Seconds(at), InputLen: 4, OutputLen: 3}
	}
	l := scheduleOf(t, workload.Request{InputLen: 16, OutputLen: 60}, short(0.1), short(0.2), short(0.3))
	replica := fleet.Replica{SGLang: loopOf(config), Timer: sim.StepTimerFunc(linear)}
	want := []fleet.Outcome{fleet.Unfinished, fleet.Completed, fleet.Unfinished, fleet.Completed}
	for _, c := range []struct {
		why      string
		threads  int
		progress func(fleet.Progress) error
	}{
		{why: "one by one"},
		{why: "on two threads", threads: 2},
		{why: "in one order of time", progress: func(fleet.Progress) error { return nil }},
	} {
		r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: replicas(replica, 2), Threads: c.threads, Progress: c.progress})
		e, ok := errors.AsType[*fleet.StallError](err)
		if !ok || r == nil {
			t.Fatalf("%s: %v, want a result and that a replica stands still", c.why, err)
		}
		if e.Replica != 0 || e.Request != 0 || e.At != 200*time.Millisecond || *e.Err != (sim.StallError{Waiting: 2}) || e.Err.Hint() == "" {
			t.Errorf("%s: %+v: %v, want request 0 before another one on replica 0", c.why, *e, e)
		}
		var got []fleet.Outcome
		for i := range r.Records {
			got = append(got, r.Records[i].Outcome)
		}
		if end := r.Records[3].Ended; !slices.Equal(got, want) || r.Elapsed != end {
			t.Errorf("%s: %v until %v, want %v until %v", c.why, got, r.Elapsed, want, end)
		}
		if law := r.Little(); law.Error > 1e-9 {
			t.Errorf("%s: Little's law is off by %g", c.why, law.Error)
		}
	}
}

// TestStallSplit has a replica that decodes and orders by priority. The request
// that matters most was preempted and needs more blocks than are left: those of a
// request whose KV has come and that stands behind it. It goes on when the client
// of one of them leaves.
func TestStallSplit(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		first := workload.Request{InputLen: 80, OutputLen: 60, Priority: -1}
		second := workload.Request{At: 0.001, InputLen: 80, OutputLen: 9, Priority: 1}
		if leaves {
			second.Timeout = 5
		}
		for _, async := range []bool{false, true} {
			config := split(t, async)
			for k := range config.Replicas {
				config.Replicas[k].VLLM.Blocks, config.Replicas[k].VLLM.Policy = 41, sim.Priority
			}
			r, err := fleet.Run(context.Background(), scheduleOf(t, first, second), config)
			e, stalled := errors.AsType[*fleet.StallError](err)
			switch {
			case leaves && (err != nil || r.Records[0].Outcome != fleet.Completed || r.Records[1].Outcome != fleet.TimedOut):
				t.Errorf("async %v: %v, want the first to complete when the second has left", async, err)
			case !leaves && (!stalled || r == nil || e.Replica != 1 || e.Request != 0):
				t.Errorf("async %v: %v, want that request 0 stands still on replica 1", async, err)
			}
		}
	}
}
