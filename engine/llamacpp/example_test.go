package llamacpp_test

import (
	"fmt"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/llamacpp"
)

func Example() {
	for _, d := range []engine.Driver{llamacpp.Bench(), llamacpp.Node()} {
		a := d.Abilities()
		fmt.Println(d.Name(), "times by", a.Clocks, "batches up to", a.MaxBatch)
	}
	// Output:
	// llama-bench times by [wall] batches up to 1
	// node-llama-cpp times by [wall cpu] batches up to 0
}
