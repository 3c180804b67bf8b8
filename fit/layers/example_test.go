package layers_test

import (
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/fit/layers"
	"github.com/llmprof/llmprof/profile"
)

// sweep is a projection that reads its weights in 100 µs and then computes a
// token in 0.5 µs, and a launch of 2 µs.
func sweep() []profile.Point {
	var points []profile.Point
	add := func(name string, tokens int, seconds float64) {
		points = append(points, profile.Point{
			Kind: profile.KindLayer, Layer: &profile.Layer{Name: name, Tokens: tokens, TensorParallel: 1}, Samples: []float64{seconds},
		})
	}
	for n := 1; n <= 2048; n *= 2 {
		add("qkv_proj", n, math.Hypot(100e-6, float64(n)*0.5e-6))
		add("rotary_emb", n, 2e-6)
	}
	return points
}

func Example() {
	table, err := layers.New(slices.Values(sweep()), layers.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tokens := range []int{64, 4096} {
		e, err := table.LayerTime("qkv_proj", tokens, 1, false)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d tokens: %.2f ms, %s\n", tokens, e.Value.Milliseconds(), e.Basis)
	}
	_, err = table.LayerTime("qk_proj", 1, 1, false)
	fmt.Println(err)
	// Output:
	// 64 tokens: 0.10 ms, measured
	// 4096 tokens: 2.05 ms, extrapolated
	// layer "qk_proj": not in the profile
}
