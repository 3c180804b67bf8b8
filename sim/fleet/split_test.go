package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// split is one replica for prompts and one that decodes, with steps of 10 ms,
// and a link that takes 2 ms and 1 ms a token.
func split(tb testing.TB, async bool) fleet.Config {
	tb.Helper()
	c := fleet.Config{
		Replicas: []fleet.Replica{small(tb), small(tb)},
		Transfer: fleet.Transfer{BytesPerToken: 1000, Bandwidth: 1e6, Latency: 2 * time.Millisecond},
	}
	for k := range c.Replicas {
		c.Replicas[k].VLLM.Async = async
	}
	c.Replicas[0].Role, c.Replicas[1].Role = fleet.Prefill, fleet.Decode
	return c
}

// TestSplit follows two prompts by hand. The first is computed from 0 to 10 ms,
// its KV comes at 10+2+6 ms, and its three tokens at 28, 38 and 48 ms. The
// second is computed from 10 to 20 ms; the replica that decodes sees it when its
// step ends at 28 ms, its KV is there at 36 ms, and the next step begins at 38.
func TestSplit(t *testing.T) {
	l := caseOf(t, []req{{at: 0, in: 6, out: 3}, {at: 1, in: 6, out: 1}})
	ms := time.Millisecond
	for _, async := range []bool{false, true} {
		r, err := fleet.Run(context.Background(), l, split(t, async))
		if err != nil {
			t.Fatal(err)
		}
		want := []fleet.Record{
			{Sent: 0, Admitted: 0, Prefilled: 10 * ms, Loaded: 18 * ms, First: 28 * ms, Last: 48 * ms, Ended: 48 * ms, Own: 20 * ms, Moved: 8 * ms, Gap: 10 * ms, Outputs: 3, Replica: 1, Outcome: fleet.Completed},
			{Sent: 1 * ms, Queued: 10 * ms, Admitted: 10 * ms, Prefilled: 20 * ms, Loaded: 36 * ms, First: 48 * ms, Last: 48 * ms, Ended: 48 * ms, Own: 20 * ms, Waited: 19 * ms, Moved: 8 * ms, Outputs: 1, Replica: 1, Outcome: fleet.Completed},
		}
		if async { // the pass at 28 ms is for the step from 38 ms, which starts the transfer
			want[1].Loaded, want[1].First, want[1].Last, want[1].Ended, want[1].Waited = 46*ms, 58*ms, 58*ms, 58*ms, 29*ms
		}
		for i, rec := range r.Records {
			if rec != want[i] {
				t.Errorf("async %v: request %d\n%+v, want\n%+v", async, i, rec, want[i])
			}
		}
		w := r.Waterfall()
		if w.Transfer.N != 2 || *w.Transfer.Max != 8 || *w.Others.Max != 0 {
			t.Errorf("async %v: transfers %+v, others %+v", async, w.Transfer, w.Others)
		}
		if first := r.Replicas[0].UsedBlocks; first.Max != 4 {
			t.Errorf("async %v: the blocks of both prompts are held at once: %+v", async, first)
		}
	}
}

// TestSplitGivesUp ends a request in each phase. A later one that needs nearly
// all blocks of both replicas must come through.
func TestSplitGivesUp(t *testing.T) {
	for _, c := range []struct {
		why     string
		timeout float64 // ms
	}{
		{"while its prompt is computed", 5}, {"while its KV moves", 15}, {"while its last prompt token is computed", 25}, {"while it decodes", 35},
	} {
		s := &workload.Schedule{Requests: []workload.Request{
			{ID: 0, InputLen: 6, OutputLen: 9, Timeout: unit.Seconds(c.timeout / 1e3)},
			{ID: 1, At: 0.1, InputLen: 155, OutputLen: 5},
		}}
		l, err := fleet.NewLoad(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, async := range []bool{false, true} {
			config := split(t, async)
			for k := range config.Replicas {
				config.Replicas[k].VLLM.Blocks = 41
			}
			r, err := fleet.Run(context.Background(), l, config)
			if err != nil {
				t.Fatalf("%s: %v", c.why, err)
			}
			if a, b := r.Records[0], r.Records[1]; a.Outcome != fleet.TimedOut || b.Outcome != fleet.Completed {
				t.Errorf("%s: %+v, %+v", c.why, a, b)
			}
		}
	}
}

// TestSplitGivesUpInQueue has a second request whose prompt is computed at
// 207 ms, while the first holds nearly all blocks of the replica that decodes,
// until 237 ms. It is given up at 220 ms, before its KV moves. The third needs the
// blocks that it held.
func TestSplitGivesUpInQueue(t *testing.T) {
	s := &workload.Schedule{Requests: []workload.Request{
		{ID: 0, InputLen: 155, OutputLen: 5},
		{ID: 1, At: 0.04, InputLen: 100, OutputLen: 5, Timeout: 0.18},
		{ID: 2, At: 0.3, InputLen: 155, OutputLen: 5},
	}}
	l, err := fleet.NewLoad(s)
	if err != nil {
		t.Fatal(err)
	}
	config := split(t, false)
	for k := range config.Replicas {
		config.Replicas[k].VLLM.Blocks = 41
	}
	r, err := fleet.Run(context.Background(), l, config)
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	if b, c := r.Records[1], r.Records[2]; b.Outcome != fleet.TimedOut || b.Prefilled != 207*ms || b.Loaded != fleet.Never || c.Outcome != fleet.Completed || c.Admitted != 300*ms {
		t.Errorf("%+v\n%+v", b, c)
	}
}

// TestSplitQueues lets prompts wait for blocks that are held until their KV has
// been fetched.
func TestSplitQueues(t *testing.T) {
	var all []req
	for i := range 12 {
		all = append(all, req{at: float64(i), in: 150, out: 10})
	}
	for _, async := range []bool{false, true} {
		c := split(t, async)
		for k := range c.Replicas {
			c.Replicas[k].VLLM.Blocks = 41 // one prompt
		}
		r, err := fleet.Run(context.Background(), caseOf(t, all), c)
		if err != nil {
			t.Fatal(err)
		}
		last := time.Duration(0)
		for i, rec := range r.Records {
			// 152 ms of transfer, after which the next prompt takes its place.
			if rec.Outcome != fleet.Completed || i > 0 && (rec.Admitted < last || rec.Loaded < last+152*time.Millisecond) {
				t.Errorf("async %v: request %d: %+v after %v", async, i, rec, last)
			}
			last = rec.Loaded
		}
	}
}

func TestRoles(t *testing.T) {
	for why, spoil := range map[string]func(*fleet.Config){
		"nobody decodes":            func(c *fleet.Config) { c.Replicas[1].Role = fleet.Prefill },
		"nobody computes prompts":   func(c *fleet.Config) { c.Replicas[0].Role = fleet.Decode },
		"one does all":              func(c *fleet.Config) { c.Replicas = append(c.Replicas, small(t)) },
		"no link":                   func(c *fleet.Config) { c.Transfer = fleet.Transfer{} },
		"no size":                   func(c *fleet.Config) { c.Transfer.BytesPerToken = 0 },
		"a latency below 0":         func(c *fleet.Config) { c.Transfer.Latency = -1 },
		"no such role":              func(c *fleet.Config) { c.Replicas[0].Role = 3 },
		"a router that there isn't": func(c *fleet.Config) { c.Decode.Policy = 99 },
		"two delays": func(c *fleet.Config) {
			c.Decode = fleet.Routing{Policy: fleet.LeastKV, SignalDelay: 1}
			c.Router = fleet.Routing{Policy: fleet.LeastKV, SignalDelay: 2}
		},
		"a link and no roles": func(c *fleet.Config) { c.Replicas[0].Role, c.Replicas[1].Role = fleet.Whole, fleet.Whole },
	} {
		c := split(t, false)
		spoil(&c)
		if err := c.Validate(); err == nil {
			t.Errorf("%s: is taken", why)
		}
	}
	if r := (&fleet.Result{Aborted: &fleet.Infeasible{At: time.Second, Why: "late"}}); r.Aborted.String() != "infeasible at 1s: late" {
		t.Errorf("%v", r.Aborted)
	}
}
