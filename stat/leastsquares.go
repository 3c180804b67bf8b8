package stat

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// ErrNoData says that a fit was given nothing to fit.
var ErrNoData = errors.New("no data")

// Linear is a linear function with an intercept: y = Bias + Σ Weights[j]·x[j].
type Linear struct {
	// Weights are in units of y per unit of the column.
	Weights []float64
	// Bias is in units of y.
	Bias float64
	// Rank is the number of independent columns that the fit found.
	Rank int
}

// At evaluates the function at x, which has one value for each weight.
func (l Linear) At(x []float64) float64 {
	sum := l.Bias
	for j, w := range l.Weights {
		sum += w * x[j]
	}
	return sum
}

// LeastSquares fits y ≈ bias + x·w by ordinary least squares. x is n×p, one
// row an observation, and y holds n values.
//
// Columns and y are centred first, so the intercept is not part of the norm.
// Among all minimisers the one of least Euclidean norm is returned, which
// makes the answer unique for dependent columns: equal columns share their
// weight equally, and a constant column gets none. Singular values below
// max(n, p)·2⁻⁵²·σmax count as zero, numpy's rule. Tall data are reduced by
// a QR factorisation before the singular value decomposition.
//
// The error is [ErrNoData] for an empty x, and describes any mismatch of
// sizes or value that is not finite.
func LeastSquares(x *mat.Dense, y []float64) (Linear, error) {
	if err := checkSystem(x, y); err != nil {
		return Linear{}, fmt.Errorf("least squares: %w", err)
	}
	n, p := x.Dims()
	centre := make([]float64, p)
	for i := range n {
		for j, v := range x.RawRowView(i) {
			centre[j] += v / float64(n)
		}
	}
	meanY := Mean(y)

	// The last column holds y, so that a QR factorisation carries it along.
	system := mat.NewDense(n, p+1, nil)
	for i := range n {
		row := system.RawRowView(i)
		for j, v := range x.RawRowView(i) {
			row[j] = v - centre[j]
		}
		row[p] = y[i] - meanY
	}
	if n > 2*(p+1) {
		var qr mat.QR
		qr.Factorize(system)
		var r mat.Dense
		qr.RTo(&r)
		system = mat.DenseCopyOf(r.Slice(0, p+1, 0, p+1))
	}
	rows, _ := system.Dims()

	var svd mat.SVD
	if !svd.Factorize(system.Slice(0, rows, 0, p), mat.SVDThin) {
		return Linear{}, fmt.Errorf("least squares: no singular value decomposition of a %d by %d matrix", n, p)
	}
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	sigma := svd.Values(nil)
	fit := Linear{Weights: make([]float64, p), Bias: meanY}
	smallest := float64(max(n, p)) * 0x1p-52 * sigma[0]
	for k, s := range sigma {
		if s <= smallest {
			break
		}
		fit.Rank++
		var along float64
		for i := range rows {
			along += u.At(i, k) * system.At(i, p)
		}
		for j := range p {
			fit.Weights[j] += along / s * v.At(j, k)
		}
	}
	for j, w := range fit.Weights {
		fit.Bias -= w * centre[j]
	}
	return fit, nil
}

// checkSystem reports what keeps x and y from being a system of equations.
func checkSystem(x *mat.Dense, y []float64) error {
	if x == nil || x.IsEmpty() {
		return ErrNoData
	}
	n, p := x.Dims()
	if n != len(y) {
		return fmt.Errorf("%d rows and %d values", n, len(y))
	}
	for i := range n {
		for j := range p {
			if v := x.At(i, j); math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("row %d, column %d: %v is not finite", i, j, v)
			}
		}
		if math.IsNaN(y[i]) || math.IsInf(y[i], 0) {
			return fmt.Errorf("value %d: %v is not finite", i, y[i])
		}
	}
	return nil
}
