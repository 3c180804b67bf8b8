package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/workload"
)

// linear is a step time of 5 ms, 20 µs a prompt token, 30 µs a decode and 10 ns
// a token of context.
func linear(p forward.Pass) (time.Duration, error) {
	ns := 5_000_000 + 30_000*int64(p.Decode.Count) + 10*p.Decode.SumContext
	for _, c := range p.Prefill {
		ns += int64(c.Count) * int64(c.New) * 20_000
	}
	return time.Duration(ns), nil
}

func reference(tb testing.TB, n int, rate float64) *fleet.Load {
	tb.Helper()
	length := workload.Normal{Mean: 512, StdDev: 256, Low: 1, High: 4096}
	s, err := workload.Build(workload.Spec{
		Seed: 1, Count: n, Arrivals: workload.Poisson{Rate: rate},
		Lengths: workload.Independent{Input: length, Output: length},
	})
	if err != nil {
		tb.Fatal(err)
	}
	l, err := fleet.NewLoad(s)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func h100(tb testing.TB) sim.Config {
	tb.Helper()
	rules, err := sim.RulesOf("")
	if err != nil {
		tb.Fatal(err)
	}
	return sim.Config{Rules: rules, Blocks: 27_000, BlockSize: 16, MaxBatchedTokens: 2048, MaxSeqs: 256, MaxModelLen: 8192, Async: true}
}

// BenchmarkReference serves 10,000 requests of some 512 and 512 tokens at 20/s.
func BenchmarkReference(b *testing.B) {
	l := reference(b, 10_000, 20)
	for _, mode := range []struct {
		name          string
		listed, async bool
	}{{"listed", true, true}, {"aggregated", false, true}, {"aggregated sync", false, false}} {
		b.Run(mode.name, func(b *testing.B) {
			config := h100(b)
			config.Async = mode.async
			b.ReportAllocs()
			steps := int64(0)
			var runner fleet.Runner
			for b.Loop() {
				r, err := runner.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{{VLLM: &config, Timer: sim.StepTimerFunc(linear), Listed: mode.listed}}})
				if err != nil {
					b.Fatal(err)
				}
				steps += r.Replicas[0].Steps
			}
			b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}

// BenchmarkCluster serves 10,000 requests of some 512 and 512 tokens at 60/s
// with four replicas.
func BenchmarkCluster(b *testing.B) {
	l := reference(b, 10_000, 60)
	for _, mode := range []struct {
		router  string
		threads int
	}{
		{"round-robin", 1},
		{"round-robin", 2},
		{"least-requests", 1},
		{"weighted:queue=1,kv=1,prefix=2", 1},
		{"weighted:queue=1,kv=1,prefix=2,delay=50ms", 1},
	} {
		b.Run(fmt.Sprintf("%s/%d", mode.router, mode.threads), func(b *testing.B) {
			routing, err := fleet.ParseRouting(mode.router)
			if err != nil {
				b.Fatal(err)
			}
			config := h100(b)
			replica := fleet.Replica{VLLM: &config, Timer: sim.StepTimerFunc(linear)}
			b.ReportAllocs()
			var runner fleet.Runner
			for b.Loop() {
				if _, err := runner.Run(context.Background(), l, fleet.Config{Replicas: replicas(replica, 4), Router: routing, Threads: mode.threads}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
