// Package stat holds the statistics of the project and knows nothing of
// language models: samples and quantiles, least squares with and without
// sign constraints, conformal intervals, and [Estimate], the number that
// never travels alone.
package stat

import (
	"math"
	"slices"
)

// Mean is the arithmetic mean of x; NaN for an empty sample.
func Mean(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// Median is the 0.5 quantile of x; NaN for an empty sample.
func Median(x []float64) float64 { return Quantile(x, 0.5) }

// Quantile is the q quantile of x (q in 0..1) by linear interpolation
// between order statistics, as numpy's default; NaN for an empty sample. x is
// left as it is.
func Quantile(x []float64, q float64) float64 {
	sorted := slices.Clone(x)
	slices.Sort(sorted)
	return QuantileSorted(sorted, q)
}

// QuantileSorted is [Quantile] of a sample that is already in rising order.
func QuantileSorted(sorted []float64, q float64) float64 {
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	at := min(max(q, 0), 1) * float64(n-1)
	i := int(at)
	if i+1 >= n {
		return sorted[n-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// MedianWithout is the median of an ascending sample of at least two values
// after value number out, counted from 0, is taken away: what the others say
// about one of them. It copies nothing. A sample of fewer values, or a number
// that is none of theirs, gives NaN.
func MedianWithout(sorted []float64, out int) float64 {
	n := len(sorted) - 1
	if n < 1 || out < 0 || out > n {
		return math.NaN()
	}
	at := func(i int) float64 {
		if i >= out {
			i++
		}
		return sorted[i]
	}
	return (at((n-1)/2) + at(n/2)) / 2
}

// StdDev is the population standard deviation of x; NaN for an empty sample.
func StdDev(x []float64) float64 {
	mean := Mean(x)
	var sum float64
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(x)))
}
