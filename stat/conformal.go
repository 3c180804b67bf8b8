package stat

import (
	"fmt"
	"math"
	"slices"
)

// ConformalQuantile is the half-width that covers a new residual with
// probability of at least level: the order statistic ⌈(n+1)·level⌉ of the
// absolute residuals (split conformal prediction; Vovk et al., Algorithmic
// Learning in a Random World, 2005). The residuals must come from data that
// the fit has not seen, and the new one must be exchangeable with them.
//
// reached is the level that the returned order statistic really promises:
// at least level, or n/(n+1) where the sample is too small for level and its
// largest residual is returned. An empty sample is an error, as is a level
// outside 0..1 or a residual that is NaN.
func ConformalQuantile(residuals []float64, level float64) (width, reached float64, err error) {
	n := len(residuals)
	if n == 0 {
		return 0, 0, fmt.Errorf("conformal quantile: %w", ErrNoData)
	}
	if !(level > 0 && level < 1) {
		return 0, 0, fmt.Errorf("conformal quantile: level %v: want a share between 0 and 1", level)
	}
	sizes := make([]float64, n)
	for i, r := range residuals {
		if math.IsNaN(r) {
			return 0, 0, fmt.Errorf("conformal quantile: residual %d is not a number", i)
		}
		sizes[i] = math.Abs(r)
	}
	slices.Sort(sizes)
	// The tolerance keeps 0.8·(9+1) from becoming 9 by rounding.
	rank := int(math.Ceil(float64(n+1)*level - 1e-9))
	rank = min(max(rank, 1), n)
	return sizes[rank-1], float64(rank) / float64(n+1), nil
}
