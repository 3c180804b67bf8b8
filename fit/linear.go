package fit

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"github.com/llmprof/llmprof/stat"
)

// Linear is the four-weight regression of the forward-time predictor that
// this package replaces: ordinary least squares in seconds, of minimum norm,
// with the features
//
//	prefill: [b·i, b·i², b·i, b]
//	decode:  [b, b·i, b·i, b]
//
// of batch size b and input length i. Columns repeat, so equal columns share
// their weight equally. It is kept for comparison and for export.
type Linear struct {
	// Weights are in seconds per unit of the feature.
	Weights [4]float64
	// Bias is in seconds.
	Bias float64
}

// linearFeatures are the original's features.
func linearFeatures(m Mode, batch, input float64) [4]float64 {
	if m == Prefill {
		return [4]float64{batch * input, batch * input * input, batch * input, batch}
	}
	return [4]float64{batch, batch * input, batch * input, batch}
}

// At is the predicted time in seconds. It may be negative: nothing in the
// model forbids it.
func (l Linear) At(m Mode, batch, input float64) float64 {
	sum := l.Bias
	for j, f := range linearFeatures(m, batch, input) {
		sum += l.Weights[j] * f
	}
	return sum
}

// fitLinear fits rows of one mode to target.
func fitLinear(m Mode, rows []Row, target Target) (Linear, error) {
	if len(rows) == 0 {
		return Linear{}, fmt.Errorf("linear model of %s: %w", m, stat.ErrNoData)
	}
	x := mat.NewDense(len(rows), 4, nil)
	y := make([]float64, len(rows))
	for i, r := range rows {
		f := linearFeatures(m, float64(r.BatchSize), float64(r.InputLen))
		x.SetRow(i, f[:])
		y[i] = target.of(r)
	}
	fitted, err := stat.LeastSquares(x, y)
	if err != nil {
		return Linear{}, fmt.Errorf("linear model of %s: %w", m, err)
	}
	return Linear{Weights: [4]float64(fitted.Weights), Bias: fitted.Bias}, nil
}
