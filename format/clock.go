package format

import "math"

// farApart in seconds tells clocks that count from different moments, such as
// an engine's from the start of its machine, from those that agree.
const farApart = 1e5

// OneClock gives the times at which something was sent, in seconds, on the
// clock of those at which it arrived, where the two clocks count from different
// moments: the one that was on its way for the shortest time is taken to have
// needed none. Times of clocks that agree come back as they are. Both lists are
// of one length.
func OneClock(sent, arrived []float64) []float64 {
	out := append([]float64(nil), sent...)
	shift := math.Inf(1)
	for i := range sent {
		shift = min(shift, arrived[i]-sent[i])
	}
	if math.IsInf(shift, 0) || math.IsNaN(shift) || math.Abs(shift) < farApart {
		return out
	}
	for i := range out {
		out[i] = min(out[i]+shift, arrived[i])
	}
	return out
}
