package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/unit"
)

// drawRouting draws a router of any policy.
func drawRouting(t *rapid.T) fleet.Routing {
	r := fleet.Routing{Policy: rapid.SampledFrom(fleet.Policies()).Draw(t, "policy"), Seed: rapid.Uint64Range(0, 5).Draw(t, "routing seed")}
	switch r.Policy {
	case fleet.Weighted:
		weight := func(name string) float64 { return float64(rapid.IntRange(0, 3).Draw(t, name)) }
		r.Weights = fleet.Weights{Queue: weight("queue"), Running: weight("running"), Requests: 1, Tokens: weight("tokens"), KV: weight("kv"), Prefix: weight("prefix"), Session: weight("session")}
	case fleet.PrefixAffinity:
		r.Bound = rapid.SampledFrom([]float64{0, 1, 1.25}).Draw(t, "bound")
	}
	delayed := r
	delayed.SignalDelay = time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * 30 * time.Millisecond
	if delayed.Validate() == nil {
		return delayed
	}
	return r
}

// drawCluster draws replicas that are not alike.
func drawCluster(t *rapid.T) fleet.Config {
	c := fleet.Config{Router: drawRouting(t)}
	for range rapid.IntRange(1, 11).Draw(t, "replicas") {
		c.Replicas = append(c.Replicas, drawReplica(t))
	}
	return c
}

// drawSplit draws replicas for prompts and replicas that decode.
func drawSplit(t *rapid.T) fleet.Config {
	c := drawCluster(t)
	c.Replicas = append(c.Replicas, drawReplica(t))
	decode := rapid.IntRange(1, len(c.Replicas)-1).Draw(t, "decode")
	for k := range c.Replicas {
		c.Replicas[k].Role = fleet.Prefill
		if k < decode {
			c.Replicas[k].Role = fleet.Decode
		}
	}
	c.Decode = drawRouting(t)
	if c.Decode.SignalDelay > 0 && c.Router.SignalDelay > 0 {
		c.Decode.SignalDelay = c.Router.SignalDelay
	} else {
		c.Decode.SignalDelay, c.Router.SignalDelay = 0, 0
	}
	c.Transfer = fleet.Transfer{
		BytesPerToken: 1000, Bandwidth: unit.BytesPerSecond(rapid.SampledFrom([]float64{1e5, 1e6, 1e9}).Draw(t, "bandwidth")),
		Latency: time.Duration(rapid.IntRange(0, 3).Draw(t, "latency")) * time.Millisecond,
	}
	return c
}

// addSGLang puts a replica of SGLang among others.
func addSGLang(t *rapid.T, c *fleet.Config) {
	config := sglangOf(t, rapid.SampledFrom([]string{"0.5.5", "0.5.23"}).Draw(t, "SGLang"))
	config.Overlap = rapid.Bool().Draw(t, "overlap")
	config.Pool = rapid.IntRange(300, 1000).Draw(t, "pool")
	c.Replicas = append(c.Replicas, fleet.Replica{SGLang: loopOf(config), Timer: sim.StepTimerFunc(linear)})
	if c.Router.Policy == fleet.PrefixHit || c.Router.Weights.Prefix > 0 {
		c.Router.SignalDelay = 0
	}
}

// everything is all that a run says, as bytes.
func everything(t *rapid.T, l *fleet.Load, c fleet.Config) []byte {
	t.Helper()
	return everythingIn(t, new(fleet.Runner), l, c)
}

// everythingIn uses a runner that may have served something else before.
func everythingIn(t *rapid.T, runner *fleet.Runner, l *fleet.Load, c fleet.Config) []byte {
	t.Helper()
	var steps []fleet.Step
	c.Step = func(s *fleet.Step) { steps = append(steps, *s) }
	r, err := runner.Run(context.Background(), l, c)
	if err != nil {
		t.Fatal(err)
	}
	whole, steady := r.Summaries(load.SLOs{{Metric: load.TTFT, Quantile: 0.9, Limit: 50}})
	var out bytes.Buffer
	for _, part := range []any{r.Records, r.Replicas, r.Open, r.Elapsed, whole, steady, r.Waterfall(), r.Saturation(), r.Little()} {
		text, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		out.WriteByte('\n')
	}
	for _, s := range steps {
		fmt.Fprintln(&out, s)
	}
	return out.Bytes()
}

// differ is the first line in which two texts differ.
func differ(a, b []byte) string {
	as, bs := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return fmt.Sprintf("line %d: %.2000s\nand: %.2000s", i, as[i], bs[i])
		}
	}
	return fmt.Sprintf("%d lines and %d", len(as), len(bs))
}

// TestThreads holds runs on several threads against runs on one, and against
// runs that let all replicas take their events in one order of time, which
// somebody who watches the progress needs.
func TestThreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, c := drawLoad(t), drawCluster(t)
		c.Threads = 1
		if rapid.IntRange(0, 4).Draw(t, "split") == 0 {
			c = drawSplit(t)
		} else if rapid.IntRange(0, 3).Draw(t, "with SGLang") == 0 {
			addSGLang(t, &c)
		}
		one := everything(t, l, c)
		for _, c.Threads = range []int{2, 8} {
			if got := everything(t, l, c); !bytes.Equal(one, got) {
				t.Fatalf("%v on %d threads: %s", c.Router, c.Threads, differ(one, got))
			}
		}
		c.Progress = func(fleet.Progress) error { return nil }
		for _, c.Threads = range []int{1, 3} {
			if got := everything(t, l, c); !bytes.Equal(one, got) {
				t.Fatalf("%v replica by replica, and watched on %d threads: %s", c.Router, c.Threads, differ(one, got))
			}
		}
	})
}

// TestThreadsAtOnce has a request that comes when another one ends: both are
// open at that time, whichever way the replicas are simulated.
func TestThreadsAtOnce(t *testing.T) {
	l := caseOf(t, []req{{at: 0, in: 4, out: 1}, {at: 10, in: 4, out: 1}, {at: 20, in: 4, out: 1}})
	for _, progress := range []func(fleet.Progress) error{nil, func(fleet.Progress) error { return nil }} {
		r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: replicas(small(t), 2), Progress: progress})
		if err != nil {
			t.Fatal(err)
		}
		if r.Open.Max != 2 || r.Open.Mean != 1 {
			t.Errorf("open requests are %+v, want one in the mean and two at most", r.Open)
		}
	}
}

// TestRunner holds runs in used memory against runs in new memory.
func TestRunner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runner fleet.Runner
		for range 3 {
			l, c := drawLoad(t), drawCluster(t)
			if rapid.Bool().Draw(t, "split") {
				c = drawSplit(t)
			} else if rapid.Bool().Draw(t, "with SGLang") {
				addSGLang(t, &c)
			}
			c.Threads = rapid.IntRange(0, 3).Draw(t, "threads")
			if rapid.IntRange(0, 3).Draw(t, "ends early") == 0 { // and leaves something behind
				short := c
				short.Abort = &fleet.Abort{GoodShare: 1, Limits: load.SLOs{{Metric: load.TTFT, Limit: 0.001}}}
				if _, err := runner.Run(context.Background(), l, short); err != nil {
					t.Fatal(err)
				}
			}
			want := everything(t, l, c)
			if got := everythingIn(t, &runner, l, c); !bytes.Equal(want, got) {
				t.Fatalf("in new memory and in used memory: %s", differ(want, got))
			}
		}
	})
}

// TestClusters holds what must be so whatever the load, the replicas and the
// router are.
func TestClusters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, c := drawLoad(t), drawCluster(t)
		if rapid.Bool().Draw(t, "split") {
			c = drawSplit(t)
		}
		conserves(t, l, c)
	})
}

// TestProgress ends a run from its callback.
func TestProgress(t *testing.T) {
	l := reference(t, 3000, 20)
	config := h100(t)
	for _, threads := range []int{1, 2} {
		sum, at, stop := 0, time.Duration(0), errors.New("enough")
		_, err := fleet.Run(context.Background(), l, fleet.Config{
			Replicas: replicas(fleet.Replica{VLLM: &config, Timer: small(t).Timer}, 3), Threads: threads,
			Progress: func(p fleet.Progress) error {
				if p.Requests != 3000 || p.Sent < p.Ended || p.Ended < sum || p.At < at {
					t.Errorf("after %d at %v: %+v", sum, at, p)
				}
				if sum, at = p.Ended, p.At; sum > 1000 {
					return stop
				}
				return nil
			},
		})
		// A second thread may not have given its first replica back by then.
		if !errors.Is(err, stop) || sum <= 1000 || at == 0 && threads == 1 {
			t.Fatalf("%d threads: %v after %d requests at %v, want the error of the callback", threads, err, sum, at)
		}
	}
}

func TestAbort(t *testing.T) {
	config := h100(t)
	replica := fleet.Replica{VLLM: &config, Timer: small(t).Timer}
	slow := load.SLOs{{Metric: load.TTFT, Quantile: 0.9, Limit: 5}}
	for _, c := range []struct {
		why   string
		rate  float64
		abort fleet.Abort
		want  string
	}{
		{"every first token takes two steps of 10 ms at least, so the 51st of 500 that ends decides", 20, fleet.Abort{Limits: slow}, "51 of 500 requests are above the limit of ttft:p90<5ms"},
		{"the same limit with room for all", 20, fleet.Abort{Limits: load.SLOs{{Metric: load.TTFT, Quantile: 0.9, Limit: 5e6}}}, ""},
		{"half of the requests may miss", 20, fleet.Abort{Limits: load.SLOs{{Metric: load.TTFT, Limit: 5}}, GoodShare: 0.5}, "251 of 500 requests miss their targets, and 50 % have to keep them"},
		{"256 seats at 100/s and 5 s each: most wait that come after 2.56 s", 100, fleet.Abort{Windows: 3, Window: 500 * time.Millisecond}, "the queue grew over 3 windows of 500ms, to "},
		{"at 20/s nobody waits for long", 20, fleet.Abort{Windows: 3, Window: 2 * time.Second}, ""},
	} {
		l := reference(t, 500, c.rate)
		r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{replica}, Abort: &c.abort})
		if err != nil {
			t.Fatal(err)
		}
		whole, _ := r.Summaries(slow)
		switch {
		case c.want == "" && (r.Aborted != nil || whole.TTFT.N != 500):
			t.Errorf("%s: %v", c.why, r.Aborted)
		case c.want != "" && (r.Aborted == nil || !strings.HasPrefix(r.Aborted.Why, c.want)):
			t.Errorf("%s: %v, want %s", c.why, r.Aborted, c.want)
		case c.want != "" && (whole.TTFT.N > 0 || whole.GoodShare != nil || len(whole.SLOs) > 0 || r.Waterfall().Queue.N > 0):
			t.Errorf("%s: a run that was ended early has figures: %+v", c.why, whole)
		case r.Little().Error > 1e-9:
			t.Errorf("%s: %+v", c.why, r.Little())
		}
	}
}

// TestAbortIsRight holds runs that were ended early for a limit on a quantile
// against whole runs, which must miss it.
func TestAbortIsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, c := drawLoad(t), drawCluster(t)
		limits := load.SLOs{{
			Metric:   rapid.SampledFrom([]load.Metric{load.TTFT, load.E2EL, load.TPOT}).Draw(t, "metric"),
			Quantile: rapid.Float64Range(0.05, 0.95).Draw(t, "quantile"), Limit: rapid.Float64Range(1, 300).Draw(t, "limit"),
		}}
		whole, err := fleet.Run(context.Background(), l, c)
		if err != nil {
			t.Fatal(err)
		}
		c.Abort = &fleet.Abort{Limits: limits}
		short, err := fleet.Run(context.Background(), l, c)
		if err != nil {
			t.Fatal(err)
		}
		figures, _ := whole.Summaries(limits)
		if short.Aborted != nil && figures.SLOs[0].Met {
			t.Fatalf("%v, and %v is met in the end", short.Aborted, limits[0])
		}
	})
}

// TestStretch serves a load at twice the rate.
func TestStretch(t *testing.T) {
	l := caseOf(t, []req{{at: 0, in: 4, out: 1}, {at: 100, in: 8, out: 2, prefix: 3}, {at: 300, in: 12, out: 3}})
	half, err := l.Stretch(0.5)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		l    *fleet.Load
		want [3]int64 // ms
	}{{l, [3]int64{0, 100, 300}}, {half, [3]int64{0, 50, 150}}} {
		r, err := fleet.Run(context.Background(), c.l, fleet.Config{Replicas: replicas(small(t), 1)})
		if err != nil {
			t.Fatal(err)
		}
		for i, rec := range r.Records {
			if rec.Sent.Milliseconds() != c.want[i] || int(rec.Outputs) != i+1 {
				t.Errorf("request %d: %+v, want one of %d tokens at %d ms", i, rec, i+1, c.want[i])
			}
		}
	}
	for _, bad := range []float64{0, -1, 1e300} {
		if _, err := l.Stretch(bad); err == nil {
			t.Errorf("factor %g is taken", bad)
		}
	}
}
