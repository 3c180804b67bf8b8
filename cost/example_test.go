package cost_test

import (
	"fmt"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
)

// The dearest operators of one decode step.
func ExampleEstimator_Ops() {
	est, err := cost.New(dense70B(), card(), deploy.Config{TensorParallel: 8, DType: catalog.BF16}, cost.Settings{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, op := range est.Ops(forward.Decode(32, 1088)) {
		if op.Name == "gate_up_proj" || op.Name == "attention" {
			fmt.Printf("%d × %s: %v, bound by %s, %.1f FLOP/byte\n", op.Count, op.Name, op.Time, op.Bound, op.Intensity())
		}
	}
	// Output:
	// 80 × attention: 16.45 µs, bound by memory, 7.9 FLOP/byte
	// 80 × gate_up_proj: 97.20 µs, bound by memory, 31.7 FLOP/byte
}

// A request on a deployment that is too small, and what would do.
func ExampleEstimator_Analyze() {
	est, err := cost.New(dense70B(), card(), deploy.Config{TensorParallel: 2}, cost.Settings{})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := est.Analyze(cost.Request{Batch: 8, Input: 1024, Output: 128})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a.Fits, a.Reasons[0].Code, a.SmallestTP)
	// Output: false weights_do_not_fit 4
}
