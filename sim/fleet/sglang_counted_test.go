package fleet_test

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/sim/sglang"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// TestSGLangListedIsAggregated is TestListedIsAggregated with SGLang's
// schedulers.
func TestSGLangListedIsAggregated(t *testing.T) {
	var seen tally
	crowd := make([]workload.Request, 9) // each of which alone is more than the pool of the second replica
	for i := range crowd {
		crowd[i] = workload.Request{At: unit.Seconds(i) / 50, InputLen: 60, OutputLen: 60, Timeout: unit.Seconds(i%3) / 2}
	}
	for _, pool := range []int{200, 90} {
		c := sglangOf(t, "")
		c.Pool, c.Context, c.Clip, c.Conservativeness = pool, 0, 4, 0.02
		listedIsAggregated(t, scheduleOf(t, crowd...), fleet.Replica{Timer: sim.StepTimerFunc(checked)}, c, &seen)
	}
	seen.all(t)
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoad(t)
		if rapid.Bool().Draw(t, "crowd") {
			l = drawCrowd(t)
		}
		replica, config, _ := drawSGLang(t)
		config.Pool += rapid.SampledFrom([]int{0, 500}).Draw(t, "roomier")
		if rapid.IntRange(0, 2).Draw(t, "too small") == 0 {
			config.Context, config.Pool = 0, 90
		}
		config.Priority = config.Rules.Priorities && config.Policy == sglang.FCFS && rapid.Bool().Draw(t, "priority")
		listedIsAggregated(t, l, replica, config, &seen)
	})
	t.Logf("%+v", seen)
}

// tally counts what was seen in runs.
type tally struct{ counted, preempted, timedOut, aborted int }

// all wants everything to have been seen.
func (s tally) all(t *testing.T) {
	t.Helper()
	if s.counted == 0 || s.preempted == 0 || s.timedOut == 0 || s.aborted == 0 {
		t.Fatalf("%+v: want all of them in some run", s)
	}
}

// listedIsAggregated runs a load on a replica that lists its running requests
// and on one that counts them: every record, step and figure must be the same.
func listedIsAggregated(t interface{ Fatalf(string, ...any) }, l *fleet.Load, replica fleet.Replica, config *sglang.Config, seen *tally) {
	counted := 0
	replica.SGLang = func() (fleet.Loop, error) {
		loop, err := sglang.NewLoop(*config)
		return counting{loop, &counted}, err
	}
	results, faults, steps := [2]*fleet.Result{}, [2]error{}, [2][]fleet.Step{}
	for k := range results {
		replica.Listed, counted = k == 0, 0
		c := fleet.Config{Replicas: []fleet.Replica{replica}, Step: func(s *fleet.Step) { steps[k] = append(steps[k], *s) }}
		results[k], faults[k] = fleet.Run(context.Background(), l, c)
	}
	if a, b := faults[0], faults[1]; (a == nil) != (b == nil) || a != nil && a.Error() != b.Error() {
		t.Fatalf("%+v: fault %v, want %v", *config, b, a)
	}
	for i := range min(len(steps[0]), len(steps[1])) {
		if steps[0][i] != steps[1][i] {
			t.Fatalf("%+v: step %d: %+v, want %+v", *config, i, steps[1][i], steps[0][i])
		}
	}
	if len(steps[0]) != len(steps[1]) {
		t.Fatalf("%+v: %d steps, want %d", *config, len(steps[1]), len(steps[0]))
	}
	if faults[0] != nil {
		return
	}
	seen.counted += counted
	for i, want := range results[0].Records {
		if got := results[1].Records[i]; got != want {
			t.Fatalf("%+v: request %d: %+v, want %+v", *config, i, got, want)
		}
		seen.preempted += int(want.Preemptions)
		switch want.Outcome {
		case fleet.TimedOut:
			seen.timedOut++
		case fleet.Aborted:
			seen.aborted++
		}
	}
	if a, b := figures(results[0]), figures(results[1]); !slices.Equal(a, b) {
		t.Fatalf("%+v: figures %v, want %v", *config, b, a)
	}
}

// counting notes how many decodes a loop counts instead of listing them.
type counting struct {
	fleet.Loop
	counted *int
}

// Plan is that of the loop.
func (c counting) Plan() (*sim.Iteration, error) {
	b, err := c.Loop.Plan()
	if err == nil {
		*c.counted += b.Steady
	}
	return b, err
}

// TestSGLangInterrupted holds what is known of requests that are counted when a
// run is ended: it is what is known of them when they are listed.
func TestSGLangInterrupted(t *testing.T) {
	requests := make([]workload.Request, 12)
	for i := range requests {
		requests[i] = workload.Request{InputLen: 20, OutputLen: 900}
	}
	l, config := scheduleOf(t, requests...), sglangOf(t, "")
	config.Pool, config.Seats = 4000, 2
	var results [2]*fleet.Result
	for k := range results {
		ctx, end := context.WithCancel(context.Background())
		replica := fleet.Replica{SGLang: loopOf(config), Timer: sim.StepTimerFunc(linear), Listed: k == 0}
		var err error
		results[k], err = fleet.Run(ctx, l, fleet.Config{Replicas: []fleet.Replica{replica}, Step: func(*fleet.Step) { end() }})
		if err == nil {
			t.Fatal("it came to its end")
		}
	}
	under := 0
	for i, want := range results[0].Records {
		if want.Outcome == fleet.Unfinished && want.Outputs > 0 {
			under++
		}
		if got := results[1].Records[i]; got != want {
			t.Errorf("request %d: %+v, want %+v", i, got, want)
		}
	}
	if under != 2 {
		t.Errorf("%d requests were under way, want 2", under)
	}
}

// TestSGLangLostVictim follows V, which is preempted in favour of R and lost,
// since R is refused: what is known of it is what is known of it when it is
// listed.
func TestSGLangLostVictim(t *testing.T) {
	l := scheduleOf(t,
		workload.Request{InputLen: 40, OutputLen: 30, Priority: -40},
		workload.Request{InputLen: 5, OutputLen: 30},
		workload.Request{At: 0.05, InputLen: 70, OutputLen: 4, Priority: -20})
	for _, overlap := range []bool{false, true} {
		config := sglangOf(t, "0.5.16")
		config.Pool, config.Context, config.Seats, config.Priority, config.PreemptThreshold, config.Overlap = 110, 0, 2, true, 10, overlap
		var results [2]*fleet.Result
		for k := range results {
			replica := fleet.Replica{SGLang: loopOf(config), Timer: sim.StepTimerFunc(linear), Listed: k == 0}
			var err error
			if results[k], err = fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{replica}}); err != nil {
				t.Fatal(err)
			}
		}
		victim := results[1].Records[1]
		if victim.Outcome != fleet.Aborted || victim.Outputs < 5 {
			t.Errorf("the victim is %v after %d tokens, want it aborted after some", victim.Outcome, victim.Outputs)
		}
		if !slices.Equal(results[0].Records, results[1].Records) || !slices.Equal(figures(results[0]), figures(results[1])) {
			t.Errorf("overlap %t: %+v, want %+v", overlap, results[1].Records, results[0].Records)
		}
	}
}
