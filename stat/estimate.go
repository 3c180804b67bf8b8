package stat

// Basis says where a number comes from. Every figure that llmprof shows
// carries one.
type Basis string

// The bases, from the strongest to the weakest.
const (
	// Measured: read off a run of the very thing asked for.
	Measured Basis = "measured"
	// Fitted: a coefficient or a value that a fit found.
	Fitted Basis = "fitted"
	// Interpolated: predicted inside the range of the measurements.
	Interpolated Basis = "interpolated"
	// Extrapolated: predicted outside the range of the measurements.
	Extrapolated Basis = "extrapolated"
	// Theoretical: computed from datasheet figures alone.
	Theoretical Basis = "theoretical"
	// Assumed: a default that nobody measured for this case.
	Assumed Basis = "assumed"
)

// Estimate is a number with what is known about it. Q is a unit type.
type Estimate[Q ~int64 | ~float64] struct {
	// Value is the point estimate.
	Value Q
	// Low and High bound Value; both equal Value where no interval is known.
	Low, High Q
	// Level is the share of outcomes that Low..High is meant to cover, 0..1;
	// 0 where no interval is known.
	Level float64
	// Basis says where the number comes from.
	Basis Basis
	// Warnings are reasons to trust the number less than its interval says.
	Warnings []string
}

// HasInterval reports whether Low and High carry information.
func (e Estimate[Q]) HasInterval() bool { return e.Level > 0 }

// Exactly returns an estimate without an interval.
func Exactly[Q ~int64 | ~float64](value Q, basis Basis) Estimate[Q] {
	return Estimate[Q]{Value: value, Low: value, High: value, Basis: basis}
}
