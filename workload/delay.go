package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/llmprof/llmprof/unit"
)

// Delay is a distribution of times that pass between an answer and the next
// request: a user thinks, or an agent's tool runs.
type Delay interface {
	// Draw is one delay in seconds, from 0 to [MaxTime].
	Draw(r *rand.Rand) unit.Seconds
	// Validate reports all faults of the parameters.
	Validate() error
	// String describes the distribution: "exponential 2 s".
	String() string
}

var (
	_ Delay = Pause(0)
	_ Delay = ExponentialDelay{}
	_ Delay = UniformDelay{}
	_ Delay = LogNormalDelay{}
	_ Delay = RecordedDelay{}
)

// Pause is always the same delay, in seconds.
type Pause unit.Seconds

// Draw is the delay itself.
func (p Pause) Draw(*rand.Rand) unit.Seconds { return unit.Seconds(p) }

// Validate wants a time.
func (p Pause) Validate() error { return checkDelay("think time", unit.Seconds(p)) }

// String is such as "2.000 s".
func (p Pause) String() string { return unit.Seconds(p).String() }

// ExponentialDelay is delays without a memory.
type ExponentialDelay struct {
	// Mean is in seconds.
	Mean unit.Seconds
}

// Draw is one delay.
func (d ExponentialDelay) Draw(r *rand.Rand) unit.Seconds {
	return min(d.Mean*unit.Seconds(r.ExpFloat64()), MaxTime)
}

// Validate wants a time.
func (d ExponentialDelay) Validate() error { return checkDelay("mean think time", d.Mean) }

// String is such as "2.000 s exponential".
func (d ExponentialDelay) String() string { return d.Mean.String() + " exponential" }

// UniformDelay is every delay from Low to High equally often.
type UniformDelay struct {
	// Low and High are in seconds.
	Low, High unit.Seconds
}

// Draw is one delay.
func (d UniformDelay) Draw(r *rand.Rand) unit.Seconds {
	return d.Low + (d.High-d.Low)*unit.Seconds(r.Float64())
}

// Validate wants 0 ≤ Low ≤ High.
func (d UniformDelay) Validate() error {
	err := errors.Join(checkDelay("shortest think time", d.Low), checkDelay("longest think time", d.High))
	if err == nil && d.High < d.Low {
		err = fmt.Errorf("think time: %v to %v: want the shorter first", d.Low, d.High)
	}
	return err
}

// String is such as "uniform 1.000 s..3.000 s".
func (d UniformDelay) String() string { return fmt.Sprintf("uniform %v..%v", d.Low, d.High) }

// LogNormalDelay is log-normal delays, as tools' times roughly are.
type LogNormalDelay struct {
	// Mean and StdDev are those of the delays themselves, in seconds.
	Mean, StdDev unit.Seconds
}

// Draw is one delay.
func (d LogNormalDelay) Draw(r *rand.Rand) unit.Seconds {
	l := LogNormalOf(float64(d.Mean), float64(d.StdDev), 0, 0)
	return min(unit.Seconds(l.Median*math.Exp(l.Sigma*r.NormFloat64())), MaxTime)
}

// Validate wants a mean above 0.
func (d LogNormalDelay) Validate() error {
	err := errors.Join(checkDelay("mean think time", d.Mean), checkDelay("standard deviation of the think time", d.StdDev))
	if err == nil && !(d.Mean > 1e-9) {
		err = fmt.Errorf("mean think time %v: want more than 1 ns", d.Mean)
	}
	return err
}

// String is such as "log-normal 2.000 s±1.000 s".
func (d LogNormalDelay) String() string { return fmt.Sprintf("log-normal %v±%v", d.Mean, d.StdDev) }

// RecordedDelay draws from recorded delays, each as often as it stands there.
type RecordedDelay struct {
	// Values are in seconds.
	Values []unit.Seconds
}

// Draw is one delay.
func (d RecordedDelay) Draw(r *rand.Rand) unit.Seconds { return d.Values[r.IntN(len(d.Values))] }

// Validate wants at least one delay.
func (d RecordedDelay) Validate() error {
	if len(d.Values) == 0 {
		return errors.New("recorded think times: want at least one")
	}
	if i := slices.IndexFunc(d.Values, func(t unit.Seconds) bool { return !isTime(t) }); i >= 0 {
		return fmt.Errorf("recorded think times: number %d is %v: want 0 to %v", i+1, d.Values[i], MaxTime)
	}
	return nil
}

// String is such as "drawn from 40 times".
func (d RecordedDelay) String() string { return fmt.Sprintf("drawn from %d times", len(d.Values)) }

func checkDelay(what string, t unit.Seconds) error {
	if !isTime(t) {
		return fmt.Errorf("%s %v: want 0 to %v", what, t, MaxTime)
	}
	return nil
}

// orNone makes no delay one of 0.
func orNone(d Delay) Delay {
	if d == nil {
		return Pause(0)
	}
	return d
}
