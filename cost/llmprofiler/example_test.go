package llmprofiler_test

import (
	"fmt"

	"github.com/llmprof/llmprof/cost/llmprofiler"
)

// The example of the reference tool's README.
func Example() {
	model, err := llmprofiler.LookupModel("llama2-70B")
	if err != nil {
		fmt.Println(err)
		return
	}
	gpu, err := llmprofiler.LookupGPU("a100-sxm-40gb")
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := llmprofiler.Analyze(llmprofiler.Input{
		Model: model, GPU: gpu, TP: 8, PP: 1, Batch: 32, InputLen: 1024, OutputLen: 128,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("TTFT %.3f s, then %.2f ms a token, %s bound\n",
		result.TTFT, 1000*result.TTOT, result.Bound.Decode.MLP)
	fmt.Printf("fits %v: at most %.0f sequences\n", result.Fits, result.Memory.DecodeMaxBatch)
	// Output:
	// TTFT 2.706 s, then 40.54 ms a token, memory bound
	// fits true: at most 215 sequences
}
