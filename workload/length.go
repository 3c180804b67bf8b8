package workload

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/llmprof/llmprof/unit"
)

// Length is a distribution of lengths.
type Length interface {
	// Draw is one length in tokens (or turns, in [Sessions]), at least 1.
	Draw(r *rand.Rand) int
	// Validate reports all faults of the parameters.
	Validate() error
	// String describes the distribution: "uniform 96..288".
	String() string
}

var (
	_ Length = Fixed(0)
	_ Length = Uniform{}
	_ Length = Normal{}
	_ Length = LogNormal{}
)

// Fixed is always the same length.
type Fixed int

// Draw is the length itself.
func (f Fixed) Draw(*rand.Rand) int { return int(f) }

// Validate wants at least 1.
func (f Fixed) Validate() error { return checkBounds("fixed length", int(f), int(f)) }

// String is such as "fixed 128".
func (f Fixed) String() string { return fmt.Sprintf("fixed %d", int(f)) }

// Uniform is every length from Low to High equally often.
type Uniform struct {
	// Low and High are the shortest and the longest length in tokens.
	Low, High int
}

// AroundRatio is the uniform distribution from length·(1−ratio), rounded
// down, to length·(1+ratio), rounded up, both at least 1: the
// --random-range-ratio of vllm bench serve 0.32. That tool first takes the
// special tokens of the tokenizer off an input length.
func AroundRatio(length int, ratio float64) (Uniform, error) {
	if !(ratio >= 0 && ratio < 1) {
		return Uniform{}, fmt.Errorf("range ratio %g: want at least 0 and less than 1", ratio)
	}
	u := Uniform{
		Low:  max(int(math.Floor(float64(length)*(1-ratio))), 1),
		High: max(int(math.Ceil(float64(length)*(1+ratio))), 1),
	}
	return u, u.Validate()
}

// Draw is one length.
func (u Uniform) Draw(r *rand.Rand) int { return u.Low + r.IntN(u.High-u.Low+1) }

// Validate wants 1 ≤ Low ≤ High.
func (u Uniform) Validate() error { return checkBounds("uniform length", u.Low, u.High) }

// String is such as "uniform 96..288".
func (u Uniform) String() string { return fmt.Sprintf("uniform %d..%d", u.Low, u.High) }

// Normal is a normal distribution. A draw beyond Low or High becomes that
// bound, so the mean of the draws can differ from Mean.
type Normal struct {
	// Mean and StdDev are in tokens.
	Mean, StdDev float64
	// Low and High are the shortest and the longest length in tokens.
	Low, High int
}

// Draw is one length.
func (n Normal) Draw(r *rand.Rand) int { return clip(n.Mean+n.StdDev*r.NormFloat64(), n.Low, n.High) }

// Validate reports all faults of the parameters.
func (n Normal) Validate() error {
	return errors.Join(
		checkNumber("normal length: mean", n.Mean),
		checkNumber("normal length: standard deviation", n.StdDev),
		checkBounds("normal length", n.Low, n.High))
}

// String is such as "normal 512±64 in 1..1024".
func (n Normal) String() string {
	return fmt.Sprintf("normal %g±%g in %d..%d", n.Mean, n.StdDev, n.Low, n.High)
}

// LogNormal is a log-normal distribution, as the lengths of real prompts
// roughly are. A draw beyond Low or High becomes that bound.
type LogNormal struct {
	// Median is in tokens.
	Median float64
	// Sigma is the standard deviation of the natural logarithm,
	// without a unit.
	Sigma float64
	// Low and High are the shortest and the longest length in tokens.
	Low, High int
}

// Draw is one length.
func (l LogNormal) Draw(r *rand.Rand) int {
	return clip(l.Median*math.Exp(l.Sigma*r.NormFloat64()), l.Low, l.High)
}

// Validate reports all faults of the parameters.
func (l LogNormal) Validate() error {
	return errors.Join(
		checkNumber("log-normal length: median", l.Median),
		checkNumber("log-normal length: sigma", l.Sigma),
		checkBounds("log-normal length", l.Low, l.High))
}

// String is such as "log-normal 512 sigma 0.8 in 16..4096".
func (l LogNormal) String() string {
	return fmt.Sprintf("log-normal %.6g sigma %.6g in %d..%d", l.Median, l.Sigma, l.Low, l.High)
}

// Pair is the lengths of one request in tokens.
type Pair struct {
	Input, Output int
}

// Lengths says how long prompts and answers are.
type Lengths interface {
	// Pairs yields the lengths of one request after the other, without an end
	// where the distribution has none. All chance comes from r.
	Pairs(r *rand.Rand) iter.Seq[Pair]
	// Validate reports all faults of the parameters.
	Validate() error
	// String describes the lengths: "input fixed 512; output fixed 128".
	String() string
}

var (
	_ Lengths = Independent{}
	_ Lengths = Empirical{}
	_ Lengths = InOrder{}
)

// Independent draws inputs and outputs from two distributions, each with a
// random stream of its own.
type Independent struct {
	Input, Output Length
}

// Pairs yields the lengths, without an end.
func (d Independent) Pairs(r *rand.Rand) iter.Seq[Pair] {
	inputs := rand.New(rand.NewPCG(r.Uint64(), 1))
	outputs := rand.New(rand.NewPCG(r.Uint64(), 2))
	return func(yield func(Pair) bool) {
		for yield(Pair{Input: d.Input.Draw(inputs), Output: d.Output.Draw(outputs)}) {
		}
	}
}

// Validate reports the faults of both distributions.
func (d Independent) Validate() error {
	var faults []error
	for _, part := range []struct {
		name   string
		length Length
	}{{"input", d.Input}, {"output", d.Output}} {
		if part.length == nil {
			faults = append(faults, fmt.Errorf("%s: want a length", part.name))
		} else if err := part.length.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", part.name, err))
		}
	}
	return errors.Join(faults...)
}

// String is such as "input fixed 512; output fixed 128".
func (d Independent) String() string { return fmt.Sprintf("input %v; output %v", d.Input, d.Output) }

// Empirical draws from recorded requests, each as often as it stands there.
// The input and the output of a request stay together.
type Empirical struct {
	Rows []Pair
}

// Pairs yields the lengths, without an end.
func (e Empirical) Pairs(r *rand.Rand) iter.Seq[Pair] {
	return func(yield func(Pair) bool) {
		for yield(e.Rows[r.IntN(len(e.Rows))]) {
		}
	}
}

// Validate wants at least one row.
func (e Empirical) Validate() error { return checkRows(e.Rows) }

// String is such as "drawn from 400 requests".
func (e Empirical) String() string { return "drawn from " + unit.Plural(len(e.Rows), "request") }

// InOrder takes recorded requests one after the other and ends with them.
type InOrder struct {
	Rows []Pair
}

// Pairs yields the lengths.
func (o InOrder) Pairs(*rand.Rand) iter.Seq[Pair] {
	return func(yield func(Pair) bool) {
		for _, p := range o.Rows {
			if !yield(p) {
				return
			}
		}
	}
}

// Validate wants at least one row.
func (o InOrder) Validate() error { return checkRows(o.Rows) }

// String is such as "400 requests in order".
func (o InOrder) String() string { return unit.Plural(len(o.Rows), "request") + " in order" }

func checkRows(rows []Pair) error {
	if len(rows) == 0 {
		return errors.New("recorded lengths: want at least one request")
	}
	for i, p := range rows {
		if min(p.Input, p.Output) < 1 || max(p.Input, p.Output) > MaxLen {
			return fmt.Errorf("recorded lengths: request %d has input %d, output %d: want 1 to %d", i, p.Input, p.Output, MaxLen)
		}
	}
	return nil
}

func checkBounds(what string, low, high int) error {
	if low < 1 || high < low || high > MaxLen {
		return fmt.Errorf("%s: %d to %d: want bounds within 1 to %d", what, low, high, MaxLen)
	}
	return nil
}

// checkNumber wants a finite number of at least 0.
func checkNumber(what string, v float64) error {
	if !(v >= 0 && v <= math.MaxFloat64) {
		return fmt.Errorf("%s %g: want a number of at least 0", what, v)
	}
	return nil
}

func clip(v float64, low, high int) int {
	return int(math.Round(min(max(v, float64(low)), float64(high))))
}
