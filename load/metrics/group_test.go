package metrics_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmprof/llmprof/load/metrics"
	"github.com/llmprof/llmprof/profile"
)

// TestGroup has two servers of unlike load, the fuller one first, and one that
// publishes nothing.
func TestGroup(t *testing.T) {
	var few, many atomic.Int64
	var never atomic.Bool
	var group metrics.Group
	for _, requests := range []*atomic.Int64{&many, &few} {
		w, err := metrics.Watch(t.Context(), metrics.Server{URL: server(t, requests, &never).URL}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		group = append(group, w)
	}
	if idle, known := group.Idle(); !idle || !known {
		t.Errorf("nothing runs: idle %v, known %v", idle, known)
	}
	begin := time.Now()
	group.Read(t.Context())
	few.Store(4)
	many.Store(40)
	group.Read(t.Context())
	if idle, known := group.Idle(); idle || !known {
		t.Errorf("44 requests run: idle %v, known %v", idle, known)
	}
	if now := group.Latest(begin); *now.Running != 44 || *now.KVUsage != 0.4 || now.HitRate != nil || now.Waiting != nil {
		t.Errorf("the last readings: %+v", now)
	}
	if now := (metrics.Group{group[1], group[0]}).Latest(begin); *now.KVUsage != 0.4 {
		t.Errorf("the other way round: %+v", now)
	}
	if now := group[:1].Latest(begin); *now.Running != 40 || *now.KVUsage != 0.4 || *now.HitRate != 0.25 {
		t.Errorf("the last reading of one alone: %+v", now)
	}
	group.Stop()
	var windows []*metrics.Window
	for _, w := range group {
		window, ok := w.Between(begin, time.Now())
		if !ok {
			t.Fatal("no window")
		}
		windows = append(windows, &window)
	}
	sum := metrics.Sum(windows)
	if *sum.Requests != 44 || *sum.PromptTokens != 4400 || *sum.PrefixHits != 1100 || *sum.HitRate != 0.25 || sum.Engine != "vllm" {
		t.Errorf("%+v", sum)
	}
	if sum.Running != nil || sum.KVUsage != nil || sum.TTFT != nil || sum.Preemptions != nil {
		t.Errorf("gauges, means and what nobody counts have no sum: %+v", sum)
	}
	if *windows[0].Requests != 40 || windows[0].Running == nil || windows[0].TTFT == nil {
		t.Errorf("a server's own window is changed: %+v", windows[0])
	}
	if alone := metrics.Sum(windows[:1]); *alone.Requests != 40 || alone.Running == nil || alone.TTFT == nil {
		t.Errorf("the sum of one server is all that it says: %+v", alone)
	}
	if partial := metrics.Sum([]*metrics.Window{windows[0], nil}); partial != nil {
		t.Errorf("a sum without one of the servers: %+v", partial)
	}
	if none := metrics.Sum(nil); none != nil {
		t.Errorf("a sum of nothing: %+v", none)
	}

	silent := metrics.Group{nil, group[1]}
	if now := silent.Latest(begin); now != (metrics.Latest{}) {
		t.Errorf("what one of two servers tells is not of both: %+v", now)
	}
	if now := (metrics.Group{}).Latest(begin); now != (metrics.Latest{}) {
		t.Errorf("nobody tells anything: %+v", now)
	}
	if idle, known := silent.Idle(); idle || !known || !silent.Followed() {
		t.Errorf("one server tells that it is busy: idle %v, known %v", idle, known)
	}
	if _, known := (metrics.Group{nil}).Idle(); known || (metrics.Group{nil}).Followed() {
		t.Error("no server tells")
	}
}

// TestSumParts: one server that does not count something leaves its sum unknown,
// and caches are one only where both are told.
func TestSumParts(t *testing.T) {
	a := metrics.Window{Engine: "vllm", Seconds: 4, Readings: 5, Failed: 1, Requests: new(3.0), Preemptions: new(1.0), Cache: &profile.KVCache{BlockSize: 16, Blocks: 10, Tokens: 160}, Warnings: []string{"x"}}
	b := metrics.Window{Engine: "sglang", Seconds: 5, Readings: 3, Failed: 2, Requests: new(4.0), Cache: &profile.KVCache{BlockSize: 32, Blocks: 10, Tokens: 320}, Warnings: []string{"y"}}
	sum := metrics.Sum([]*metrics.Window{&a, &b})
	if sum.Engine != "vllm, sglang" || sum.Seconds != 5 || sum.Readings != 3 || sum.Failed != 3 || *sum.Requests != 7 || sum.Preemptions != nil || len(sum.Warnings) != 2 {
		t.Errorf("%+v", sum)
	}
	if c := *sum.Cache; c != (profile.KVCache{Tokens: 480}) || a.Cache.Tokens != 160 {
		t.Errorf("caches with unlike blocks: %+v", c)
	}
	same := b
	same.Cache = &profile.KVCache{BlockSize: 16, Blocks: 5, Tokens: 80}
	if c := *metrics.Sum([]*metrics.Window{&a, &same}).Cache; c != (profile.KVCache{BlockSize: 16, Blocks: 15, Tokens: 240}) {
		t.Errorf("caches with equal blocks: %+v", c)
	}
	same.Cache = nil
	if c := metrics.Sum([]*metrics.Window{&a, &same}).Cache; c != nil {
		t.Errorf("a cache that is not told: %+v", c)
	}
}
