package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// TestClasses has steps of 10 ms: the chats take 20 and 50 ms, the batch 90 ms
// and one that is given up after 15 ms. The run takes 200 ms.
func TestClasses(t *testing.T) {
	s := &workload.Schedule{
		Classes: []workload.Class{
			{Name: "chat", Share: 0.5, Targets: []workload.SLO{{Metric: load.E2EL, Limit: 30}, {Metric: load.E2EL, Quantile: 0.5, Limit: 30}, {Metric: load.ITL, Quantile: 0.9, Limit: 99}}},
			{Name: "batch", Share: 0.5},
		},
		Requests: []workload.Request{
			{ID: 0, InputLen: 4, OutputLen: 2, Class: "chat"},
			{ID: 1, At: 0.05, InputLen: 4, OutputLen: 5, Class: "chat"},
			{ID: 2, At: 0.1, InputLen: 4, OutputLen: 9, Class: "batch"},
			{ID: 3, At: 0.185, InputLen: 4, OutputLen: 9, Class: "batch", Timeout: unit.Seconds(0.015)},
		},
	}
	l, err := fleet.NewLoad(s)
	if err != nil {
		t.Fatal(err)
	}
	r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{small(t)}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Elapsed != 200*time.Millisecond {
		t.Fatalf("the run takes %v", r.Elapsed)
	}
	all := r.Classes(load.SLOs{{Metric: load.E2EL, Limit: 100}, {Metric: load.TTFT, Quantile: 0.9, Limit: 5}})
	is := func(what string, got *float64, want float64) {
		t.Helper()
		if got == nil || *got < want-1e-9 || *got > want+1e-9 {
			t.Errorf("%s is %v, want %g", what, got, want)
		}
	}
	chat, batch := all[0].Summary, all[1].Summary
	is("good share of chats", chat.GoodShare, 0.5)
	is("goodput of chats", chat.Goodput, 1/0.2)
	is("throughput of chats", chat.RequestThroughput, 2/0.2)
	is("tokens of chats", chat.OutputThroughput, 7/0.2)
	is("good share of the batch", batch.GoodShare, 0.5)
	is("tokens of the batch", batch.OutputThroughput, 9/0.2)
	is("open chats", &chat.Concurrency.Mean, 0.07/0.2)
	if chat.Concurrency.Max != 1 || batch.Concurrency.Max != 2 || batch.Failed != 1 || batch.Cancelled != 0 {
		t.Errorf("chats %+v, batch %+v with %d failed and %d cancelled", chat.Concurrency, batch.Concurrency, batch.Failed, batch.Cancelled)
	}
	if v := chat.SLOs; len(v) != 2 || v[0].Met || v[0].Found == nil || *v[0].Found != 35 || v[1].Found != nil || v[1].Met {
		t.Errorf("chats are judged %+v: want a median of 35 ms, missed, and no inter-token times", v)
	}
	if v := batch.SLOs; len(v) != 1 || v[0].SLO.Metric != load.TTFT || v[0].Met {
		t.Errorf("the batch is judged %+v: want the limits of the run", v)
	}
	quantile := r.Classes(load.SLOs{{Metric: load.TTFT, Quantile: 0.9, Limit: 5000}})[1].Summary
	if quantile.Goodput != nil || quantile.GoodShare != nil {
		t.Errorf("a limit on a quantile alone gives a goodput of %v and a share of %v", quantile.Goodput, quantile.GoodShare)
	}
	// Requests are judged neither good nor bad if only their class's
	// quantiles or nothing holds for them: one chat of two keeps its limit.
	for _, limits := range []load.SLOs{nil, {{Metric: load.TTFT, Quantile: 0.9, Limit: 5000}}} {
		whole, _ := r.Summaries(limits)
		is("good share of all", whole.GoodShare, 0.5)
		is("goodput of all", whole.Goodput, 1/0.2)
	}
	whole, steady := r.Summaries(nil)
	if whole.Concurrency.Max != 2 || steady.Concurrency.Max != 1 {
		t.Errorf("at most %d and %d open, want 2 in the whole run and 1 until the last is sent", whole.Concurrency.Max, steady.Concurrency.Max)
	}
	is("failed", new(float64(whole.Failed)), 1)
	r, err = fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{small(t)}, Abort: &fleet.Abort{GoodShare: 0.6}})
	if err != nil || r.Aborted == nil || r.Aborted.Why != "1 of 2 requests miss their targets, and 60 % have to keep them" {
		t.Errorf("%v, %v: want an early end for one of the two chats", r.Aborted, err)
	}
}
