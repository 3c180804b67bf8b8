package fleet_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
)

// TestWaterfallOfOne has prompts that are alone: nothing is the work of others,
// and nothing waits, but for KV that comes while the host is between steps. A prompt of 150 tokens takes 3 steps of 64.
func TestWaterfallOfOne(t *testing.T) {
	l := caseOf(t, []req{{at: 0, in: 150, out: 3}, {at: 500, in: 4, out: 3}})
	ms := time.Millisecond
	for _, c := range []struct {
		why         string
		async, both bool
		host, waits time.Duration
	}{
		{"3 ms before the steps, and 1 ms between each two of three", false, false, 5 * ms, 0},
		{"3 ms before the steps, and 1 ms at the end of each", true, false, 6 * ms, 0},
		{"the same, and 3 ms before the step that decodes", false, true, 8 * ms, ms},
		{"the same, and 1 ms at the end of that step", true, true, 10 * ms, 0},
	} {
		config := fleet.Config{Replicas: []fleet.Replica{small(t)}}
		if c.both {
			config = split(t, c.async)
		}
		for k := range config.Replicas {
			config.Replicas[k].VLLM.Async, config.Replicas[k].Between, config.Replicas[k].Before = c.async, ms, 3*ms
		}
		r, err := fleet.Run(context.Background(), l, config)
		if err != nil {
			t.Fatal(err)
		}
		for i, rec := range r.Records {
			ttft, _ := rec.TTFT()
			if rest := ttft - rec.Waited - rec.Host - rec.Own - rec.Moved; rest != 0 || rec.Waited != c.waits {
				t.Errorf("%s: request %d waits %v and has %v of others: %+v", c.why, i, rec.Waited, rest, rec)
			}
		}
		if got := r.Records[0].Host; got != c.host {
			t.Errorf("%s: the host takes %v, want %v", c.why, got, c.host)
		}
	}
}

// TestWaterfallAddsUp holds the parts of every request against its time to the
// first token: none is below zero, and the figures add up.
func TestWaterfallAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, c := drawLoad(t), fleet.Config{Replicas: []fleet.Replica{drawReplica(t)}}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 1:
			c = drawSplit(t)
		case 2:
			config := sglangOf(t, "0.5.23")
			config.Overlap = rapid.Bool().Draw(t, "overlap")
			c.Replicas[0] = fleet.Replica{SGLang: loopOf(config), Timer: sim.StepTimerFunc(linear), Between: time.Millisecond, Before: 2 * time.Millisecond}
		}
		r, err := fleet.Run(context.Background(), l, c)
		if err != nil {
			t.Fatal(err)
		}
		sum, n := time.Duration(0), 0
		for i, rec := range r.Records {
			ttft, ok := rec.TTFT()
			if !ok {
				continue
			}
			if rec.Outcome == fleet.Completed {
				sum, n = sum+ttft, n+1
			}
			if rest := ttft - rec.Waited - rec.Host - rec.Own - rec.Moved; rec.Waited < 0 || rec.Host < 0 || rec.Moved < 0 || rest < 0 {
				t.Fatalf("request %d: %v of others in %+v", i, rest, rec)
			}
		}
		if n == 0 {
			return
		}
		w := r.Waterfall()
		parts := *w.Queue.Mean + *w.Host.Mean + *w.Own.Mean + *w.Others.Mean
		if w.Transfer.N > 0 {
			parts += *w.Transfer.Mean * float64(w.Transfer.N) / float64(n)
		}
		if want := sum.Seconds() * 1e3 / float64(n); parts < want-1e-6*want || parts > want+1e-6*want {
			t.Fatalf("parts add up to %g ms, want %g", parts, want)
		}
	})
}
