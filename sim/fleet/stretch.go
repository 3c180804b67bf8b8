package fleet

import (
	"fmt"
	"math"
)

// Stretch is the same load at another rate: the times that are known beforehand
// are multiplied by a factor, so that 0.5 doubles the rate. Lengths, prefixes,
// think times and timeouts stay, and everything but the times is shared.
func (l *Load) Stretch(factor float64) (*Load, error) {
	last := 0.0
	for _, at := range l.arrival {
		last = max(last, float64(at)*factor)
	}
	if !(factor > 0 && last < math.MaxInt64/4) {
		return nil, fmt.Errorf("stretched load: factor %g: want one above 0 that keeps the times within %d years", factor, math.MaxInt64/4/int64(1e9)/86400/365)
	}
	out := *l
	out.arrival = make([]int64, len(l.arrival))
	for i, at := range l.arrival {
		out.arrival[i] = at
		if at != none {
			out.arrival[i] = int64(math.Round(float64(at) * factor))
		}
	}
	return &out, nil
}
