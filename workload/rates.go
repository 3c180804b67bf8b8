package workload

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/llmprof/llmprof/unit"
)

// RatePoint is a rate from a time on.
type RatePoint struct {
	// At is in seconds from the start.
	At unit.Seconds
	// Rate is in requests a second.
	Rate float64
}

// Rates is a rate that changes at given times: the load of a day, a spike, a
// pause. The times come from inverting the number of requests that the rate
// adds up to, so gaps that span a change are right too.
type Rates struct {
	// Points are the rates in the order of their times, the first at 0.
	Points []RatePoint
	// Between goes from each rate to the next one in a straight line; otherwise
	// a rate holds until the next one.
	Between bool
	// Until ends the arrivals, in seconds, after the last point; 0 lets the last
	// rate hold without an end.
	Until unit.Seconds
	// Burstiness is that of [Gamma], without a unit: +Inf for even arrivals,
	// 1 for Poisson's.
	Burstiness float64
}

// Times yields the arrivals.
func (p Rates) Times(r *rand.Rand) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		k, before, last := 0, 0.0, unit.Seconds(0)
		part := p.part(0)
		for sum := range sums(gaps(r, p.Burstiness)) {
			for n := part.requests(); n == 0 || sum > before+n; n = part.requests() {
				k++
				if k == len(p.Points) {
					return
				}
				part, before = p.part(k), before+n
			}
			last = max(last, part.from+part.when(sum-before)) // times of two parts can differ by a rounding
			if !yield(Arrival{At: last}) {
				return
			}
		}
	}
}

// ratePart is the time between two points.
type ratePart struct {
	from, over unit.Seconds
	low, high  float64 // the rates at its ends
}

// part is the k-th part; the last one has no end where the arrivals have none.
func (p Rates) part(k int) ratePart {
	q := p.Points[k]
	part := ratePart{from: q.At, low: q.Rate, high: q.Rate, over: unit.Seconds(math.Inf(1))}
	if k+1 < len(p.Points) {
		next := p.Points[k+1]
		part.over = next.At - q.At
		if p.Between {
			part.high = next.Rate
		}
	} else if p.Until > 0 {
		part.over = p.Until - q.At
	}
	return part
}

// requests is how many the rate adds up to.
func (p ratePart) requests() float64 {
	if p.low == 0 && p.high == 0 {
		return 0
	}
	return (p.low + p.high) / 2 * float64(p.over)
}

// when is the time after the beginning at which so many have come.
func (p ratePart) when(sum float64) unit.Seconds {
	if sum == 0 {
		return 0
	}
	if p.low == p.high {
		return min(unit.Seconds(sum/p.low), p.over)
	}
	line := Ramp{From: p.low, To: p.high, Shape: Linear, Over: p.over}
	return line.when(sum)
}

// maxPoints bounds the number of rates.
const maxPoints = 100_000

// Validate reports all faults of the parameters.
func (p Rates) Validate() error {
	var faults []error
	if len(p.Points) == 0 || len(p.Points) > maxPoints {
		faults = append(faults, fmt.Errorf("rates: %d points: want 1 to %d", len(p.Points), maxPoints))
	}
	most := 0.0
	for i, q := range p.Points {
		switch {
		case i == 0 && q.At != 0:
			faults = append(faults, fmt.Errorf("rates: the first is at %v: want 0", q.At))
		case !isTime(q.At) || i > 0 && q.At <= p.Points[i-1].At:
			faults = append(faults, fmt.Errorf("rates: point %d is at %v: want times in rising order, to %v", i+1, q.At, MaxTime))
		}
		if !(q.Rate >= 0 && q.Rate <= math.MaxFloat64) {
			faults = append(faults, fmt.Errorf("rates: %g/s at %v: want a number of at least 0", q.Rate, q.At))
		}
		most = max(most, q.Rate)
		if len(faults) >= maxFaults {
			break
		}
	}
	if n := len(p.Points); n > 0 {
		if most == 0 {
			faults = append(faults, errors.New("rates: all of them are 0"))
		}
		if p.Until != 0 && !(p.Until > p.Points[n-1].At && p.Until <= MaxTime) {
			faults = append(faults, fmt.Errorf("rates: until %v: want more than the last point's %v, and at most %v", p.Until, p.Points[n-1].At, MaxTime))
		}
	}
	return errors.Join(append(faults, checkBurstiness("rates", p.Burstiness))...)
}

// endless reports whether arrivals go on without an end.
func (p Rates) endless() bool {
	return p.Until == 0 && len(p.Points) > 0 && p.Points[len(p.Points)-1].Rate > 0
}

// String is such as "rates 1/s, 5/s from 60 s, 1/s from 120 s, burstiness 1".
func (p Rates) String() string {
	const shown = 4
	parts := make([]string, 0, shown+3)
	for i, q := range p.Points[:min(len(p.Points), shown)] {
		part := fmt.Sprintf("%g/s", q.Rate)
		if i > 0 {
			part += " from " + q.At.String()
		}
		parts = append(parts, part)
	}
	if n := len(p.Points); n > shown {
		parts = append(parts, fmt.Sprintf("%d more", n-shown))
	}
	if p.Until > 0 {
		parts = append(parts, "until "+p.Until.String())
	}
	name := "rates "
	if p.Between {
		name = "rates in lines "
	}
	return name + strings.Join(append(parts, fmt.Sprintf("burstiness %g", p.Burstiness)), ", ")
}
