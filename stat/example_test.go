package stat_test

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"github.com/llmprof/llmprof/stat"
)

// A time of 5 ms plus 2 ms a token, with the tokens in two equal columns,
// which share the weight.
func ExampleLeastSquares() {
	x := mat.NewDense(3, 2, []float64{1, 1, 2, 2, 4, 4})
	fit, err := stat.LeastSquares(x, []float64{7, 9, 13})
	fmt.Printf("%.1f + %.1f·x, rank %d, error %v\n", fit.Bias, fit.Weights, fit.Rank, err)
	// Output: 5.0 + [1.0 1.0]·x, rank 1, error <nil>
}

// The unconstrained answer is -1 for the second column; a physical cost
// cannot be negative.
func ExampleNNLS() {
	a := mat.NewDense(3, 2, []float64{1, 0, 1, 1, 1, 2})
	x, err := stat.NNLS(a, []float64{3, 2, 1})
	fmt.Printf("%.2f, error %v\n", x, err)
	// Output: [2.00 0.00], error <nil>
}

// Nine residuals of a fit on data that it had not seen.
func ExampleConformalQuantile() {
	residuals := []float64{-0.01, 0.02, 0.005, -0.03, 0.012, -0.008, 0.001, 0.04, -0.002}
	width, level, _ := stat.ConformalQuantile(residuals, 0.8)
	fmt.Printf("±%.3f covers %.0f %%\n", width, 100*level)
	// Output: ±0.030 covers 80 %
}
