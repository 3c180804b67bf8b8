package fleet_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/workload"
)

// TestUsage has two replicas of 2 and 1 devices. The first computes from 0 to
// 50 ms, the second from 100 to 130 ms; the run ends at 130 ms.
func TestUsage(t *testing.T) {
	l := caseOf(t, []req{{at: 0, in: 4, out: 5}, {at: 100, in: 4, out: 3}})
	first, second := small(t), small(t)
	first.Devices, first.Power, first.Price = 2, &fleet.Power{Idle: 100, Busy: 700, Basis: stat.Measured}, new(3.6)
	second.Devices, second.Power, second.Price = 1, &fleet.Power{Idle: 50, Busy: 400, Basis: stat.Assumed}, new(1.8)
	run := func(replicas ...fleet.Replica) *fleet.Result {
		r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: replicas})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	is := func(what string, got *float64, want float64) {
		t.Helper()
		if got == nil || math.Abs(*got-want) > 1e-12 {
			t.Errorf("%s is %v, want %g", what, got, want)
		}
	}
	joules := 2*(700*0.05+100*0.08) + 400*0.03 + 50*0.1
	cost := (2*3.6 + 1.8) * 0.13 / 3600
	limits := load.SLOs{{Metric: load.E2EL, Limit: 40}} // the second keeps it
	u := run(first, second).Usage(limits)
	is("energy", &u.Energy.Total, joules)
	is("energy of 1000 tokens", u.Energy.PerThousandTokens, joules/8*1000)
	is("energy of a good request", u.Energy.PerGood, joules)
	is("cost", &u.Cost.Total, cost)
	is("cost of 1000 tokens", u.Cost.PerThousandTokens, cost/8*1000)
	is("cost of a good request", u.Cost.PerGood, cost)
	if u.Energy.Basis != stat.Assumed {
		t.Errorf("basis is %s, want the weaker one", u.Energy.Basis)
	}
	if u := run(first, second).Usage(nil); u.Energy.PerGood != nil || u.Cost.PerGood != nil {
		t.Errorf("without limits no request is good: %+v", u)
	}
	quantiles := load.SLOs{{Metric: load.E2EL, Quantile: 0.9, Limit: 1e6}}
	if u := run(first, second).Usage(quantiles); u.Energy.PerGood != nil || u.Cost.PerGood != nil {
		t.Errorf("a limit on a quantile makes no request good: %+v", u)
	}
	if whole, steady := run(first, second).Summaries(quantiles); whole.Goodput != nil || whole.GoodShare != nil || steady.Goodput != nil || steady.GoodShare != nil {
		t.Errorf("a limit on a quantile gives no goodput: %v, %v, %v, %v", whole.Goodput, whole.GoodShare, steady.Goodput, steady.GoodShare)
	}
	second.Power = nil
	if u := run(first, second).Usage(limits); u.Energy != nil || u.Cost == nil {
		t.Errorf("the power of one replica is not known: %+v", u)
	}
	first.Price = nil
	if u := run(first, second).Usage(limits); u.Energy != nil || u.Cost != nil {
		t.Errorf("nor is the price of the other: %+v", u)
	}
	if p, ok := fleet.PowerLimit(catalog.Device{Power: catalog.Quantity{Value: 700}}); !ok || p.Idle != 700 || p.Busy != 700 || p.Basis != stat.Assumed {
		t.Errorf("limit of 700 W: %+v, %v", p, ok)
	}
	if p, ok := fleet.PowerLimit(catalog.Device{}); ok {
		t.Errorf("no limit: %+v", p)
	}
}

// TestFaults is what a configuration is refused for.
func TestFaults(t *testing.T) {
	for why, spoil := range map[string]func(*fleet.Config){
		"no replica":                     func(c *fleet.Config) { c.Replicas = nil },
		"a price and no devices":         func(c *fleet.Config) { c.Replicas[0].Price = new(1.0) },
		"power below 0":                  func(c *fleet.Config) { c.Replicas[0].Devices, c.Replicas[0].Power = 1, &fleet.Power{Idle: -1} },
		"more idle than busy":            func(c *fleet.Config) { c.Replicas[0].Devices, c.Replicas[0].Power = 1, &fleet.Power{Idle: 2, Busy: 1} },
		"a price that is no number":      func(c *fleet.Config) { c.Replicas[0].Devices, c.Replicas[0].Price = 1, new(math.NaN()) },
		"threads below 0":                func(c *fleet.Config) { c.Threads = -1 },
		"a router without weights":       func(c *fleet.Config) { c.Router.Policy = fleet.Weighted },
		"a router that there is not":     func(c *fleet.Config) { c.Router.Policy = 99 },
		"one window":                     func(c *fleet.Config) { c.Abort = &fleet.Abort{Windows: 1, Window: 1} },
		"windows without length":         func(c *fleet.Config) { c.Abort = &fleet.Abort{Windows: 3} },
		"more good requests than all":    func(c *fleet.Config) { c.Abort = &fleet.Abort{GoodShare: 1.1} },
		"a limit that is none":           func(c *fleet.Config) { c.Abort = &fleet.Abort{Limits: load.SLOs{{Metric: load.TTFT}}} },
		"a step that never can be timed": func(c *fleet.Config) { c.Replicas[0].Timer = nil },
	} {
		c := fleet.Config{Replicas: []fleet.Replica{small(t)}}
		spoil(&c)
		if _, err := fleet.Run(context.Background(), caseOf(t, []req{{in: 1, out: 1}}), c); err == nil {
			t.Errorf("%s: is taken", why)
		}
	}
}

// TestBusyUntilTheEnd has a client that gives up at 25 ms, in the third step of
// 10 ms: the run ends there, and so does what the replica was busy.
func TestBusyUntilTheEnd(t *testing.T) {
	s := &workload.Schedule{Requests: []workload.Request{{ID: 0, InputLen: 4, OutputLen: 9, Timeout: 0.025}}}
	l, err := fleet.NewLoad(s)
	if err != nil {
		t.Fatal(err)
	}
	replica := small(t)
	replica.Devices, replica.Power = 1, &fleet.Power{Idle: 100, Busy: 700}
	for _, between := range []time.Duration{0, time.Millisecond} {
		replica.Between = between
		r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{replica}})
		if err != nil {
			t.Fatal(err)
		}
		busy := 25*time.Millisecond - 2*between
		if r.Elapsed != 25*time.Millisecond || r.Replicas[0].Busy != busy {
			t.Errorf("between %v: busy %v of %v, want %v of 25ms", between, r.Replicas[0].Busy, r.Elapsed, busy)
		}
		if e, want := r.Usage(nil).Energy.Total, 700*busy.Seconds()+100*2*between.Seconds(); math.Abs(e-want) > 1e-9 {
			t.Errorf("between %v: energy %g J, want %g", between, e, want)
		}
	}
}

// TestLittleFromTheFirstSend has a request of 50 ms that comes after a second:
// the mean number of open requests is that of the whole run's summary, and what the
// replica shows counts from then on too.
func TestLittleFromTheFirstSend(t *testing.T) {
	r, err := fleet.Run(context.Background(), caseOf(t, []req{{at: 1000, in: 4, out: 5}}), fleet.Config{Replicas: []fleet.Replica{small(t)}})
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := r.Summaries(nil)
	if law := r.Little(); law.Open != 1 || law.RateTime != 1 || whole.Concurrency.Mean != 1 {
		t.Errorf("%+v and %g open requests, want 1", law, whole.Concurrency.Mean)
	}
	if one := r.Replicas[0]; r.Open.Mean != 1 || one.Running.Mean != 1 || one.Running.P99 != 1 || one.UsedBlocks.Mean < 1 {
		t.Errorf("%+v open, %+v running and %+v blocks used, want 1 request", r.Open, one.Running, one.UsedBlocks)
	}
}
