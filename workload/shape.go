package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/llmprof/llmprof/unit"
)

var (
	_ Length = Zipf{}
	_ Length = Histogram{}
	_ Length = Recorded{}
)

// Zipf is a power law: a length n is drawn with the weight 1/n^Exponent, so
// that the shortest is the most frequent.
type Zipf struct {
	// Exponent is without a unit: 0 for all lengths equally often.
	Exponent float64
	// Low and High are the shortest and the longest length in tokens.
	Low, High int
}

// Draw is one length, by rejection-inversion (Hörmann and Derflinger,
// "Rejection-inversion to generate variates from monotone discrete
// distributions", 1996).
func (z Zipf) Draw(r *rand.Rand) int {
	top := z.area(float64(z.High) + 0.5)
	width := z.area(float64(z.Low)+0.5) - z.weight(float64(z.Low)) - top
	for {
		u := top + r.Float64()*width
		n := min(max(math.Round(z.inverse(u)), float64(z.Low)), float64(z.High))
		if n == float64(z.Low) || u >= z.area(n+0.5)-z.weight(n) {
			return int(n)
		}
	}
}

// weight is how often a length comes, in proportion.
func (z Zipf) weight(n float64) float64 { return math.Pow(n, -z.Exponent) }

// area is the integral of weight from 1, and inverse finds the end of an area.
func (z Zipf) area(n float64) float64 {
	if z.Exponent == 1 {
		return math.Log(n)
	}
	return math.Expm1((1-z.Exponent)*math.Log(n)) / (1 - z.Exponent)
}

func (z Zipf) inverse(area float64) float64 {
	if z.Exponent == 1 {
		return math.Exp(area)
	}
	return math.Exp(math.Log1p(area*(1-z.Exponent)) / (1 - z.Exponent))
}

// maxExponent bounds the exponent of a Zipf law: beyond, the shortest length
// is all that is ever drawn.
const maxExponent = 100

// Validate reports all faults of the parameters.
func (z Zipf) Validate() error {
	var faults []error
	if !(z.Exponent >= 0 && z.Exponent <= maxExponent) {
		faults = append(faults, fmt.Errorf("zipf length: exponent %g: want 0 to %d", z.Exponent, maxExponent))
	}
	return errors.Join(append(faults, checkBounds("zipf length", z.Low, z.High))...)
}

// String is such as "zipf 1.2 in 16..4096".
func (z Zipf) String() string { return fmt.Sprintf("zipf %g in %d..%d", z.Exponent, z.Low, z.High) }

// Bin is a part of a [Histogram]: lengths from Low to High, both in it, that
// are equally frequent among themselves.
type Bin struct {
	// Low and High are in tokens.
	Low, High int
	// Weight says how often the bin comes, against the sum of all. Without a unit.
	Weight float64
}

// Histogram draws a bin by its weight, then a length within it.
type Histogram struct {
	Bins []Bin
}

// Draw is one length.
func (h Histogram) Draw(r *rand.Rand) int {
	at := r.Float64() * h.total()
	last := h.Bins[0]
	for _, b := range h.Bins {
		if b.Weight > 0 {
			last = b
		}
		if at -= b.Weight; at < 0 {
			break
		}
	}
	return last.Low + r.IntN(last.High-last.Low+1)
}

func (h Histogram) total() float64 {
	sum := 0.0
	for _, b := range h.Bins {
		sum += b.Weight
	}
	return sum
}

// maxBins bounds a histogram, which is gone through for every draw.
const maxBins = 1000

// Validate wants bins of which one has a weight; they may overlap.
func (h Histogram) Validate() error {
	var faults []error
	if len(h.Bins) == 0 || len(h.Bins) > maxBins {
		faults = append(faults, fmt.Errorf("histogram: %d bins: want 1 to %d", len(h.Bins), maxBins))
	}
	for _, b := range h.Bins {
		faults = append(faults, checkBounds("histogram bin", b.Low, b.High), checkNumber("histogram bin: weight", b.Weight))
	}
	if total := h.total(); len(h.Bins) > 0 && !(total > 0 && total <= math.MaxFloat64) {
		faults = append(faults, fmt.Errorf("histogram: weights add up to %g: want more than 0", total))
	}
	return errors.Join(faults...)
}

// String is such as "histogram of 5 bins in 1..4096".
func (h Histogram) String() string {
	low, high := MaxLen, 1
	for _, b := range h.Bins {
		low, high = min(low, b.Low), max(high, b.High)
	}
	return fmt.Sprintf("histogram of %d bins in %d..%d", len(h.Bins), low, high)
}

// Recorded draws from recorded lengths, each as often as it stands there.
type Recorded struct {
	// Values are in tokens.
	Values []int
}

// Draw is one length.
func (d Recorded) Draw(r *rand.Rand) int { return d.Values[r.IntN(len(d.Values))] }

// Validate wants at least one length.
func (d Recorded) Validate() error {
	if len(d.Values) == 0 {
		return errors.New("recorded lengths: want at least one")
	}
	if i := slices.IndexFunc(d.Values, func(n int) bool { return n < 1 || n > MaxLen }); i >= 0 {
		return fmt.Errorf("recorded lengths: number %d is %d: want 1 to %d", i+1, d.Values[i], MaxLen)
	}
	return nil
}

// String is such as "drawn from 400 lengths".
func (d Recorded) String() string { return "drawn from " + unit.Plural(len(d.Values), "length") }

// pick finds the place of a draw among running sums of weights.
func pick(sums []float64, share float64) int {
	at := share * sums[len(sums)-1]
	return sort.Search(len(sums)-1, func(i int) bool { return sums[i] > at })
}
