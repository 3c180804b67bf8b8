package serving_test

import (
	"context"
	"fmt"
	"time"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
	"github.com/llmprof/llmprof/measure/serving"
	"github.com/llmprof/llmprof/mock"
	"github.com/llmprof/llmprof/profile"
)

// Two requests at once, each of 100 new tokens behind 4 cached blocks of 16.
func Example() {
	ctx := context.Background()
	server, err := mock.New(mock.Options{Timer: mock.Timing{First: 10 * time.Millisecond, Gap: 2 * time.Millisecond}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	if err := server.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	e, err := serving.Open(ctx, serving.Options{
		Target:  load.Target{URL: server.URL(), Model: "mock", Engine: load.VLLM},
		Metrics: &metrics.Server{URL: server.URL()}, Warmup: 1, Runs: 5,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	r, err := e.Measure(ctx, serving.Cell{Type: profile.Prefill, NewTokens: 100, CachedBlocks: 4, BlockSize: 16, Requests: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	asked, found, by := r.Proof()
	fmt.Println(len(r.Side(r.Prefill, profile.Prefill).Latencies), "TTFTs")
	fmt.Printf("%d tokens of prefixes, %d found by the %s\n", asked, *found, by)
	// Output:
	// 10 TTFTs
	// 640 tokens of prefixes, 640 found by the counter of prefix hits
}
