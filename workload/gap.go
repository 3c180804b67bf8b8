package workload

import (
	"iter"
	"math"
	"math/rand/v2"
)

// gaps returns the source of the gaps, of mean 1, of a burstiness. Even gaps
// begin with 0, so that their k-th sum is k.
func gaps(r *rand.Rand, burstiness float64) func() float64 {
	switch {
	case math.IsInf(burstiness, 1):
		next := 0.0
		return func() float64 {
			gap := next
			next = 1
			return gap
		}
	case burstiness == 1:
		return r.ExpFloat64
	}
	return func() float64 { return gamma(r, burstiness) / burstiness }
}

// sums yields the running sums of gaps, without an end.
func sums(gap func() float64) iter.Seq[float64] {
	return func(yield func(float64) bool) {
		for sum := gap(); yield(sum); sum += gap() {
		}
	}
}

// gamma draws from the gamma distribution of a shape and scale 1 (Marsaglia
// and Tsang, "A simple method for generating gamma variables", 2000).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		// 1-Float64 is never 0, so the power is defined for every shape.
		return gamma(r, shape+1) * math.Pow(1-r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
