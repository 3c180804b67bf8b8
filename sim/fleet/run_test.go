package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// drawLoad draws a small load of any kind.
func drawLoad(t *rapid.T) *fleet.Load {
	spec := workload.Spec{
		Seed: rapid.Uint64Range(0, 1000).Draw(t, "seed"), Count: rapid.IntRange(1, 40).Draw(t, "count"),
		Arrivals: rapid.SampledFrom([]workload.Arrivals{
			workload.Poisson{Rate: 20},
			workload.Poisson{Rate: 200},
			workload.Closed{Workers: 3, Think: workload.Pause(0.01)},
			workload.Burst{Of: workload.Constant{Rate: 10}, Size: 4},
		}).Draw(t, "arrivals"),
		Lengths: workload.Independent{
			Input:  workload.Uniform{Low: 1, High: rapid.IntRange(1, 70).Draw(t, "input")},
			Output: workload.Uniform{Low: 1, High: rapid.IntRange(1, 40).Draw(t, "output")},
		},
	}
	if rapid.Bool().Draw(t, "prefixes") {
		spec.Prefixes = &workload.Prefixes{Share: 0.7, Groups: 2, Length: workload.Uniform{Low: 4, High: 20}}
	}
	if rapid.Bool().Draw(t, "sessions") {
		spec.Sessions = &workload.Sessions{Turns: workload.Uniform{Low: 1, High: 3}, Context: 120}
	}
	if rapid.Bool().Draw(t, "timeouts") {
		spec.Timeout = unit.Seconds(rapid.Float64Range(0.01, 0.5).Draw(t, "timeout"))
	}
	s, err := workload.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	l, err := fleet.NewLoad(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// drawReplica draws a replica that is sometimes short of blocks.
func drawReplica(t *rapid.T) fleet.Replica {
	rules, err := sim.RulesOf(rapid.SampledFrom([]string{"0.11.2", "0.19.0", "0.33.0"}).Draw(t, "release"))
	if err != nil {
		t.Fatal(err)
	}
	return fleet.Replica{
		VLLM: &sim.Config{
			Rules: rules, BlockSize: 4, Blocks: rapid.IntRange(41, 200).Draw(t, "blocks"), MaxBatchedTokens: rapid.IntRange(8, 64).Draw(t, "budget"),
			MaxSeqs: rapid.IntRange(1, 8).Draw(t, "seats"), MaxModelLen: 160, Async: rapid.Bool().Draw(t, "async"),
		},
		Timer:   sim.StepTimerFunc(linear),
		Between: time.Duration(rapid.IntRange(0, 1).Draw(t, "between")) * time.Millisecond,
		Before:  time.Duration(rapid.IntRange(0, 1).Draw(t, "before")) * 3 * time.Millisecond,
	}
}

// TestListedIsAggregated holds runs that walk every request against runs that
// count the decodes: every record, step and figure must be the same.
func TestListedIsAggregated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, c := drawLoad(t), fleet.Config{Replicas: []fleet.Replica{drawReplica(t)}}
		if rapid.Bool().Draw(t, "split") {
			c = drawSplit(t)
		}
		results, steps := [2]*fleet.Result{}, [2][]fleet.Step{}
		for k := range results {
			for i := range c.Replicas {
				c.Replicas[i].Listed = k == 0
			}
			c.Step = func(s *fleet.Step) { steps[k] = append(steps[k], *s) }
			r, err := fleet.Run(context.Background(), l, c)
			if err != nil {
				t.Fatal(err)
			}
			results[k] = r
		}
		for i := range steps[0] {
			if i >= len(steps[1]) || steps[0][i] != steps[1][i] {
				t.Fatalf("step %d: %+v, want %+v", i, steps[1][i], steps[0][i])
			}
		}
		for i, want := range results[0].Records {
			if got := results[1].Records[i]; got != want {
				t.Fatalf("request %d: %+v, want %+v", i, got, want)
			}
		}
		a, b := figures(results[0]), figures(results[1])
		if !slices.Equal(a, b) {
			t.Fatalf("figures %v, want %v", b, a)
		}
	})
}

// figures are some of a result.
func figures(r *fleet.Result) []float64 {
	var out []float64
	whole, steady := r.Summaries(nil)
	for _, s := range []load.Summary{whole, steady} {
		if s.OutputThroughput != nil {
			out = append(out, *s.OutputThroughput)
		}
		for _, f := range []load.Figure{s.TTFT, s.TPOT, s.ITL, s.E2EL} {
			out = append(out, float64(f.N))
			if f.N > 0 {
				out = append(out, *f.Mean, *f.Max, *f.P95)
			}
		}
	}
	return out
}

// TestConservation holds what must be so whatever the load.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, replica := drawLoad(t), drawReplica(t)
		conserves(t, l, fleet.Config{Replicas: []fleet.Replica{replica}})
	})
}

// conserves runs a load and checks that nothing is lost and time goes on.
func conserves(t *rapid.T, l *fleet.Load, c fleet.Config) {
	t.Helper()
	prefill, begin := 0, time.Duration(0)
	ends := make([]time.Duration, len(c.Replicas))
	c.Step = func(s *fleet.Step) {
		if s.Begin < ends[s.Replica] || s.Begin < begin || s.End < s.Begin || s.PrefillTokens+s.Decodes != s.Tokens {
			t.Fatalf("a step after %v: %+v", ends[s.Replica], *s)
		}
		prefill, begin, ends[s.Replica] = prefill+s.PrefillTokens, s.Begin, s.End
	}
	r, err := fleet.Run(context.Background(), l, c)
	if err != nil {
		t.Fatal(err)
	}
	if law := r.Little(); law.Error > 1e-9 {
		t.Fatalf("Little's law is off by %g: %+v", law.Error, law)
	}
	gaps, computed := 0, 0
	for i, rec := range r.Records {
		q := l.Schedule().Requests[i]
		switch rec.Outcome {
		case fleet.Completed:
			want := min(q.OutputLen, 160-q.InputLen)
			if int(rec.Outputs) != want {
				t.Fatalf("request %d has %d tokens, want %d", i, rec.Outputs, want)
			}
			computed += q.InputLen - int(rec.Hits)
			gaps += want - 1
		case fleet.TimedOut:
			if q.Timeout == 0 || rec.Ended-rec.Sent != time.Duration(float64(q.Timeout)*1e9+0.5) {
				t.Fatalf("request %d is given up after %v, want %v", i, rec.Ended-rec.Sent, q.Timeout)
			}
		case fleet.Unservable:
			if q.InputLen < 160 {
				t.Fatalf("request %d of %d tokens is refused", i, q.InputLen)
			}
		default:
			t.Fatalf("request %d: %v", i, rec.Outcome)
		}
		if rec.First >= 0 && !(rec.Sent <= rec.Admitted && rec.Admitted < rec.First && rec.First <= rec.Last && rec.Last <= rec.Ended && rec.Own <= rec.First-rec.Admitted) {
			t.Fatalf("request %d: %+v", i, rec)
		}
	}
	if prefill < computed {
		t.Fatalf("%d prompt tokens are computed, want at least %d", prefill, computed)
	}
	if whole, _ := r.Summaries(nil); whole.ITL.N != gaps {
		t.Fatalf("%d inter-token times, want %d", whole.ITL.N, gaps)
	}
}

// TestGoneOnTheWay has requests that are given up before they reach the engine,
// one after the other: it never computes anything, and that is no fault.
func TestGoneOnTheWay(t *testing.T) {
	s := &workload.Schedule{}
	for i := range 8 {
		s.Requests = append(s.Requests, workload.Request{ID: i, At: unit.Seconds(i), InputLen: 4, OutputLen: 4, Timeout: 0.01})
	}
	l, err := fleet.NewLoad(s)
	if err != nil {
		t.Fatal(err)
	}
	replica := small(t)
	replica.Before = 50 * time.Millisecond
	r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{replica}})
	if err != nil {
		t.Fatal(err)
	}
	for i, rec := range r.Records {
		if rec.Outcome != fleet.TimedOut || rec.Admitted >= 0 {
			t.Errorf("request %d: %+v", i, rec)
		}
	}
}

// TestTurnsWithTimes: a turn of a session that has a time of its own finds the
// answer to the turn before it too.
func TestTurnsWithTimes(t *testing.T) {
	first := workload.Request{ID: 0, InputLen: 40, OutputLen: 40, Seed: 1, Session: "s", Turn: 1}
	second := workload.Request{ID: 1, At: 10, InputLen: 100, OutputLen: 2, Seed: 2, Session: "s", Turn: 2}
	second.Prefix = workload.Continue(first, 3, second.InputLen)
	l, err := fleet.NewLoad(&workload.Schedule{Requests: []workload.Request{first, second}})
	if err != nil {
		t.Fatal(err)
	}
	config := h100(t)
	config.BlockSize = 4
	r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{{VLLM: &config, Timer: sim.StepTimerFunc(linear)}}})
	if err != nil {
		t.Fatal(err)
	}
	// 79 of 80 tokens of the first turn were computed: 19 full blocks of 4.
	if got := r.Records[1].Hits; got != 76 {
		t.Errorf("the second turn finds %d tokens, want 76", got)
	}
}

// TestInterrupted: a run that is ended keeps what became of the load until then.
func TestInterrupted(t *testing.T) {
	l, config := reference(t, 3000, 20), h100(t)
	for _, c := range []struct {
		why               string
		replicas, threads int
	}{{"one replica", 1, 1}, {"several in one order of time", 3, 1}, {"several on two threads", 3, 2}} {
		t.Run(c.why, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			r, err := fleet.Run(ctx, l, fleet.Config{
				Replicas: replicas(fleet.Replica{VLLM: &config, Timer: sim.StepTimerFunc(linear)}, c.replicas), Threads: c.threads,
				Progress: func(p fleet.Progress) error {
					if p.Ended > 1000 {
						cancel()
					}
					return nil
				},
			})
			if !errors.Is(err, context.Canceled) || r == nil {
				t.Fatalf("result %v, error %v", r, err)
			}
			count := map[fleet.Outcome]int{}
			for _, rec := range r.Records {
				count[rec.Outcome]++
			}
			whole, steady := r.Summaries(nil)
			if count[fleet.Completed] < 1000 || count[fleet.Unfinished] == 0 || count[fleet.Unsent] == 0 || whole.Completed != count[fleet.Completed] {
				t.Errorf("outcomes %v, %d completed in the summary", count, whole.Completed)
			}
			if steady.To > r.Elapsed.Seconds() || r.Little().Error > 1e-9 || len(r.Replicas) != c.replicas {
				t.Errorf("steady until %v s of %v, Little %+v", steady.To, r.Elapsed, r.Little())
			}
		})
	}
}

// TestNewLoadContext: prompts that are being compared end with their context.
func TestNewLoadContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	requests := []workload.Request{{InputLen: 8, OutputLen: 1, Prefix: []workload.Span{{Seed: 1, Len: 4}}}}
	if l, err := fleet.NewLoadContext(ctx, &workload.Schedule{Requests: requests}); l != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v, want no load and what ended the context", l, err)
	}
}
