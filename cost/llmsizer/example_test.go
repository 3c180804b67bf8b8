package llmsizer_test

import (
	"fmt"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost/llmsizer"
)

// One model with all four calculators: the sizes that they ask for differ by
// a factor of 1.7.
func ExampleCalculate() {
	in := llmsizer.Input{
		Model:   llmsizer.Model{Params: 6.7e9, Layers: 32, Heads: 32, Hidden: 4096, Intermediate: 11008},
		Weights: catalog.FP16, KV: catalog.FP16, Batch: 8, Tokens: 1024,
	}
	for _, in.Version = range llmsizer.Versions() {
		r, err := llmsizer.Calculate(in)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%-12s %.2f GB, overhead %.2f GB\n", in.Version, r.Memory.Total(), r.Memory.Overhead)
	}
	// Output:
	// script-v1    19.69 GB, overhead 1.46 GB
	// script-v2    33.25 GB, overhead 15.02 GB
	// app-2c8af80  23.75 GB, overhead 1.76 GB
	// app-83714cf  20.27 GB, overhead 2.39 GB
}
