package fleet_test

import (
	"context"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/workload"
)

// TestTokensOfTheCompleted has two requests of 30 tokens in steps of 10 ms, of
// which one is given up at 205 ms, and a last one at 1 s: of the steady part,
// from 0.1 s, the output is that of the request that completes.
func TestTokensOfTheCompleted(t *testing.T) {
	for _, closed := range []bool{false, true} {
		s := &workload.Schedule{Requests: []workload.Request{
			{ID: 0, InputLen: 4, OutputLen: 30},
			{ID: 1, InputLen: 4, OutputLen: 30, Timeout: 0.205},
			{ID: 2, At: 1, InputLen: 4, OutputLen: 2},
		}}
		if closed { // another way to the same sends: the window is known in the end
			s.Requests[2] = workload.Request{ID: 2, InputLen: 4, OutputLen: 2, After: &workload.Dependency{Request: 0, Think: 0.7}}
		}
		l, err := fleet.NewLoad(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"vllm", "async", "sglang"} {
			replica := small(t)
			replica.VLLM.Async = kind == "async"
			if kind == "sglang" {
				config := sglangOf(t, "")
				config.Overlap = false
				replica = fleet.Replica{SGLang: loopOf(config), Timer: sim.StepTimerFunc(func(forward.Pass) (time.Duration, error) { return 10 * time.Millisecond, nil })}
			}
			r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{replica}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Records[1].Outcome != fleet.TimedOut || r.Records[2].Sent != time.Second {
				t.Fatalf("%s: %+v", kind, r.Records)
			}
			whole, steady := r.Summaries(nil)
			// Tokens come at 10, 20, … 300 ms: 21 of them from 100 ms on.
			if got, want := *steady.OutputThroughput*steady.Duration, 21.0; got < want-1e-6 || got > want+1e-6 {
				t.Errorf("%s, closed %v: %g tokens in the steady part, want %g", kind, closed, got, want)
			}
			// The first one has 29 times between tokens, 21 of them end from 100 ms on.
			if whole.ITL.N != 30 || steady.ITL.N != 21 || *whole.ITL.Mean != 10 || *steady.ITL.Max != 10 {
				t.Errorf("%s, closed %v: ITL %+v, steady %+v", kind, closed, whole.ITL, steady.ITL)
			}
		}
	}
}

// TestITLOfTheCompleted holds the times between tokens against the records: those
// of the requests that completed, and no others, as in a measured run.
func TestITLOfTheCompleted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		if rapid.IntRange(0, 2).Draw(t, "with SGLang") == 0 {
			addSGLang(t, &c)
		}
		r, err := fleet.Run(context.Background(), drawLoad(t), c)
		if err != nil {
			t.Fatal(err)
		}
		n, sum, most := 0, 0.0, 0.0
		for _, rec := range r.Records {
			if rec.Outcome != fleet.Completed {
				continue
			}
			n += int(rec.Outputs) - 1
			sum += rec.Last.Seconds() - rec.First.Seconds()
			most = max(most, rec.Gap.Seconds())
		}
		whole, _ := r.Summaries(nil)
		if whole.ITL.N != n {
			t.Fatalf("%d times between tokens, want %d", whole.ITL.N, n)
		}
		if n == 0 {
			return
		}
		if mean := *whole.ITL.Mean / 1e3; math.Abs(mean-sum/float64(n)) > 1e-9 {
			t.Fatalf("mean of %v s, want %v", mean, sum/float64(n))
		}
		if found := *whole.ITL.Max / 1e3; found < most-1e-9 || found > most*1.008+1e-9 {
			t.Fatalf("the longest is %v s, want %v", found, most)
		}
	})
}
