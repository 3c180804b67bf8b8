package workload

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/llmprof/llmprof/unit"
)

// RampShape is how the rate of a [Ramp] goes from one end to the other.
type RampShape string

// The shapes, named as in vllm bench serve.
const (
	Linear      RampShape = "linear"      // by equal steps in equal times
	Exponential RampShape = "exponential" // by equal factors in equal times
)

// Ramp is a rate that changes with the time. The times come from inverting
// the number of requests that the rate adds up to, so the rate changes
// without steps. vllm bench serve changes the rate with the number of the
// request instead, so its ramp takes another time.
type Ramp struct {
	// From and To are the rates at the start and at the end, in requests a
	// second.
	From, To float64
	// Shape is how the rate goes from From to To.
	Shape RampShape
	// Over is the length of the ramp in seconds; the arrivals end with it.
	Over unit.Seconds
	// Burstiness is that of [Gamma], without a unit: +Inf for even arrivals,
	// 1 for Poisson's.
	Burstiness float64
}

// Times yields the arrivals, which end with the ramp.
func (p Ramp) Times(r *rand.Rand) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		end := p.Expected(p.Over)
		for sum := range sums(gaps(r, p.Burstiness)) {
			if sum > end || !yield(Arrival{At: p.when(sum)}) {
				return
			}
		}
	}
}

// Expected is the number of requests that the rate adds up to until a time
// within the ramp.
func (p Ramp) Expected(t unit.Seconds) float64 {
	if p.Shape == Exponential {
		if g := p.growth(); g != 0 {
			return p.From * math.Expm1(g*float64(t)) / g
		}
		return p.From * float64(t)
	}
	return (p.From + p.slope()*float64(t)/2) * float64(t)
}

// when is the inverse of Expected.
func (p Ramp) when(sum float64) unit.Seconds {
	var t float64
	switch g := p.growth(); {
	case sum == 0:
		return 0
	case p.Shape == Exponential && g != 0:
		t = math.Log1p(sum*g/p.From) / g
	case p.Shape == Exponential:
		t = sum / p.From
	default: // the root of the quadratic that holds for a slope of 0 too
		t = 2 * sum / (p.From + math.Sqrt(max(p.From*p.From+2*p.slope()*sum, 0)))
	}
	return min(unit.Seconds(t), p.Over)
}

// slope is the change of the rate a second, in requests a square second.
func (p Ramp) slope() float64 { return (p.To - p.From) / float64(p.Over) }

// growth is the exponent of the rate a second.
func (p Ramp) growth() float64 { return math.Log(p.To/p.From) / float64(p.Over) }

// Validate reports all faults of the parameters.
func (p Ramp) Validate() error {
	var faults []error
	if p.Shape != Linear && p.Shape != Exponential {
		faults = append(faults, fmt.Errorf("ramp: shape %q: want %s or %s", p.Shape, Linear, Exponential))
	}
	least := 0.0
	if p.Shape == Exponential {
		least = math.SmallestNonzeroFloat64
	}
	for _, rate := range []float64{p.From, p.To} {
		if !(rate >= least && rate <= math.MaxFloat64) {
			faults = append(faults, fmt.Errorf("%s ramp: rate %g/s: want more than 0, or 0 at one end of a linear ramp", p.Shape, rate))
		}
	}
	if p.From == 0 && p.To == 0 && p.Shape == Linear {
		faults = append(faults, errors.New("linear ramp: both rates are 0"))
	}
	if !(p.Over > 0 && p.Over <= MaxTime) {
		faults = append(faults, fmt.Errorf("ramp: over %v: want more than 0 and at most %v", p.Over, MaxTime))
	}
	return errors.Join(append(faults, checkBurstiness("ramp", p.Burstiness))...)
}

// String is such as "linear ramp 1/s to 10/s over 60 s, burstiness 1".
func (p Ramp) String() string {
	return fmt.Sprintf("%s ramp %g/s to %g/s over %v, burstiness %g", p.Shape, p.From, p.To, p.Over, p.Burstiness)
}
