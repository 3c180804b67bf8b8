package fleet_test

import (
	"context"
	"fmt"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/workload"
)

// Four replicas whose router knows of their queues what held 100 ms ago.
func ExampleRun() {
	schedule, err := workload.Build(workload.Spec{
		Seed: 1, Count: 2000, Arrivals: workload.Poisson{Rate: 40},
		Lengths: workload.Independent{Input: workload.Fixed(512), Output: workload.Fixed(128)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := fleet.NewLoad(schedule)
	if err != nil {
		fmt.Println(err)
		return
	}
	rules, err := sim.RulesOf("0.33.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	replica := fleet.Replica{
		VLLM: &sim.Config{Rules: rules, Blocks: 10_000, BlockSize: 16, MaxBatchedTokens: 2048, MaxSeqs: 64, MaxModelLen: 4096, Async: true},
		Timer: sim.StepTimerFunc(func(p forward.Pass) (time.Duration, error) {
			d := 8*time.Millisecond + time.Duration(p.Decode.Count)*40*time.Microsecond
			for _, c := range p.Prefill {
				d += time.Duration(c.New) * 20 * time.Microsecond
			}
			return d, nil
		}),
	}
	for _, text := range []string{"round-robin", "least-running:delay=100ms", "least-requests"} {
		routing, err := fleet.ParseRouting(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{replica, replica, replica, replica}, Router: routing})
		if err != nil {
			fmt.Println(err)
			return
		}
		whole, _ := r.Summaries(nil)
		fmt.Printf("%s: TTFT p50 %.0f ms, p99 %.0f ms\n", routing, *whole.TTFT.P50, *whole.TTFT.P99)
	}
	// Output:
	// round-robin: TTFT p50 32 ms, p99 37 ms
	// least-running:delay=100ms: TTFT p50 43 ms, p99 95 ms
	// least-requests: TTFT p50 32 ms, p99 38 ms
}
