package workload

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/llmprof/llmprof/unit"
)

// Arrival is when one request, or one session, is due.
type Arrival struct {
	// At is the time in seconds from the start; 0 where After is set.
	At unit.Seconds
	// After is what must end first; nil where the time is known.
	After *Dependency
}

// Arrivals says when requests come.
type Arrivals interface {
	// Times yields the arrivals in their order, without an end where the
	// pattern has none. All chance comes from r.
	Times(r *rand.Rand) iter.Seq[Arrival]
	// Validate reports all faults of the parameters.
	Validate() error
	// String describes the pattern: "poisson 3/s".
	String() string
}

var (
	_ Arrivals = Constant{}
	_ Arrivals = Poisson{}
	_ Arrivals = Gamma{}
	_ Arrivals = Weibull{}
	_ Arrivals = Ramp{}
	_ Arrivals = Rates{}
	_ Arrivals = Burst{}
	_ Arrivals = Closed{}
	_ Arrivals = Trace{}
)

// Constant is one request every 1/Rate seconds, the first at 0.
type Constant struct {
	// Rate is in requests a second; +Inf for all at once.
	Rate float64
}

// Times yields k/Rate.
func (c Constant) Times(*rand.Rand) iter.Seq[Arrival] { return Gamma{c.Rate, math.Inf(1)}.Times(nil) }

// Validate wants a rate above 0.
func (c Constant) Validate() error { return checkRate("constant", c.Rate) }

// String is such as "constant 3/s".
func (c Constant) String() string { return fmt.Sprintf("constant %g/s", c.Rate) }

// Poisson is arrivals that know nothing of each other: exponential gaps, of
// which the first stands before the first request.
type Poisson struct {
	// Rate is the mean rate in requests a second; +Inf for all at once.
	Rate float64
}

// Times yields the arrivals.
func (p Poisson) Times(r *rand.Rand) iter.Seq[Arrival] { return Gamma{p.Rate, 1}.Times(r) }

// Validate wants a rate above 0.
func (p Poisson) Validate() error { return checkRate("poisson", p.Rate) }

// String is such as "poisson 3/s".
func (p Poisson) String() string { return fmt.Sprintf("poisson %g/s", p.Rate) }

// Gamma is gaps that follow a gamma distribution of mean 1/Rate and
// coefficient of variation 1/√Burstiness, as in vllm bench serve. That tool
// then stretches all times so that the last one is count/rate; here they stay
// as they were drawn, and the rate of one schedule differs a little from Rate:
// see [Schedule.MeanRate].
type Gamma struct {
	// Rate is the mean rate in requests a second; +Inf for all at once.
	Rate float64
	// Burstiness is the shape of the distribution, without a unit: 1 is
	// [Poisson], more is smoother, less is burstier, +Inf is [Constant].
	Burstiness float64
}

// Times yields the arrivals.
func (g Gamma) Times(r *rand.Rand) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		for sum := range sums(gaps(r, g.Burstiness)) {
			if !yield(Arrival{At: unit.Seconds(sum / g.Rate)}) {
				return
			}
		}
	}
}

// Validate wants a rate and a burstiness above 0.
func (g Gamma) Validate() error {
	return errors.Join(checkRate("gamma", g.Rate), checkBurstiness("gamma", g.Burstiness))
}

// String is such as "gamma 3/s burstiness 0.5".
func (g Gamma) String() string {
	return fmt.Sprintf("gamma %g/s burstiness %g", g.Rate, g.Burstiness)
}

// Weibull is gaps that follow a Weibull distribution of mean 1/Rate.
type Weibull struct {
	// Rate is the mean rate in requests a second; +Inf for all at once.
	Rate float64
	// Shape is without a unit: 1 is [Poisson], more is smoother, less is
	// burstier, with a longer tail than [Gamma]'s.
	Shape float64
}

// minWeibull bounds the shape: below it the gaps span more than a schedule.
const minWeibull = 0.1

// Times yields the arrivals.
func (w Weibull) Times(r *rand.Rand) iter.Seq[Arrival] {
	scale := w.Rate * math.Gamma(1+1/w.Shape)
	gap := func() float64 { return math.Pow(r.ExpFloat64(), 1/w.Shape) }
	return func(yield func(Arrival) bool) {
		for sum := range sums(gap) {
			if !yield(Arrival{At: unit.Seconds(sum / scale)}) {
				return
			}
		}
	}
}

// Validate wants a rate above 0 and a shape of at least 0.1.
func (w Weibull) Validate() error {
	err := checkRate("weibull", w.Rate)
	if !(w.Shape >= minWeibull && w.Shape <= math.MaxFloat64) {
		err = errors.Join(err, fmt.Errorf("weibull arrivals: shape %g: want a number of at least %g", w.Shape, minWeibull))
	}
	return err
}

// String is such as "weibull 3/s shape 0.7".
func (w Weibull) String() string { return fmt.Sprintf("weibull %g/s shape %g", w.Rate, w.Shape) }

// Burst makes every arrival of another pattern a number of arrivals at once.
type Burst struct {
	// Of is when the bursts come; its rate counts bursts.
	Of Arrivals
	// Size is the number of arrivals in a burst.
	Size int
}

// Times yields the arrivals.
func (b Burst) Times(r *rand.Rand) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		for a := range b.Of.Times(r) {
			for range b.Size {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// Validate wants a size of at least 1 and a pattern whose times are known.
func (b Burst) Validate() error {
	var faults []error
	if b.Size < 1 || b.Size > MaxRequests {
		faults = append(faults, fmt.Errorf("bursts: size %d: want 1 to %d", b.Size, MaxRequests))
	}
	switch b.Of.(type) {
	case nil:
		faults = append(faults, errors.New("bursts: want a pattern of when they come"))
	case Closed:
		faults = append(faults, errors.New("bursts: a closed loop has no bursts"))
	default:
		faults = append(faults, b.Of.Validate())
	}
	return errors.Join(faults...)
}

// String is such as "bursts of 4, poisson 0.8/s".
func (b Burst) String() string { return fmt.Sprintf("bursts of %d, %v", b.Size, b.Of) }

// Closed keeps a number of requests open: that many are due at 0, and each
// next one when a slot becomes free and the think time has passed. The
// answers set the pace, so a closed loop never shows what a queue does.
type Closed struct {
	// Workers is the number of requests that are open together.
	Workers int
	// Think is the time between the end of a request and the next one in its
	// slot; nil for none.
	Think Delay
}

// Times yields the arrivals, without an end.
func (c Closed) Times(r *rand.Rand) iter.Seq[Arrival] {
	think := orNone(c.Think)
	return func(yield func(Arrival) bool) {
		for range c.Workers {
			if !yield(Arrival{}) {
				return
			}
		}
		for yield(Arrival{After: &Dependency{Request: AnyRequest, Think: think.Draw(r)}}) {
		}
	}
}

// Validate wants at least one worker.
func (c Closed) Validate() error {
	var faults []error
	if c.Workers < 1 || c.Workers > MaxRequests {
		faults = append(faults, fmt.Errorf("closed loop: %d workers: want 1 to %d", c.Workers, MaxRequests))
	}
	if err := orNone(c.Think).Validate(); err != nil {
		faults = append(faults, fmt.Errorf("closed loop: %w", err))
	}
	return errors.Join(faults...)
}

// String is such as "closed 8 workers, think 0 s".
func (c Closed) String() string {
	return fmt.Sprintf("closed %d workers, think %v", c.Workers, orNone(c.Think))
}

// Trace is recorded times, counted from the first of them.
type Trace struct {
	// Offsets are the recorded times in seconds, in rising order.
	Offsets []unit.Seconds
	// Speed is the factor by which it runs faster than recorded; 0 for as
	// recorded.
	Speed float64
	// Limit is how many of the first times are taken; 0 for all.
	Limit int
}

// Times yields the times, which end with the trace.
func (t Trace) Times(*rand.Rand) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		for i, at := range t.Offsets {
			if t.Limit > 0 && i == t.Limit {
				return
			}
			if !yield(Arrival{At: (at - t.Offsets[0]) / unit.Seconds(orOne(t.Speed))}) {
				return
			}
		}
	}
}

// Validate wants times in rising order.
func (t Trace) Validate() error {
	var faults []error
	if len(t.Offsets) == 0 {
		faults = append(faults, errors.New("trace: want at least one time"))
	}
	for i, at := range t.Offsets {
		if math.IsNaN(float64(at)) || math.IsInf(float64(at), 0) || i > 0 && at < t.Offsets[i-1] {
			faults = append(faults, fmt.Errorf("trace: time %d is %v: want times in rising order", i, at))
			break
		}
	}
	return errors.Join(append(faults, checkReplay("trace", t.Speed, t.Limit))...)
}

// String is such as "trace of 400 times, speed 2", or "400 at once".
func (t Trace) String() string {
	n := len(t.Offsets)
	if t.Limit > 0 {
		n = min(n, t.Limit)
	}
	if n > 0 && t.Offsets[n-1] == t.Offsets[0] {
		return fmt.Sprintf("%d at once", n)
	}
	return fmt.Sprintf("trace of %d times, speed %g", n, orOne(t.Speed))
}

func checkRate(pattern string, rate float64) error {
	if !(rate > 0) {
		return fmt.Errorf("%s arrivals: rate %g/s: want more than 0", pattern, rate)
	}
	return nil
}

func checkBurstiness(pattern string, burstiness float64) error {
	if !(burstiness > 0) {
		return fmt.Errorf("%s arrivals: burstiness %g: want more than 0", pattern, burstiness)
	}
	return nil
}

func checkReplay(what string, speed float64, limit int) error {
	var faults []error
	if speed != 0 && !(speed > 0 && !math.IsInf(speed, 1)) {
		faults = append(faults, fmt.Errorf("%s: speed %g: want more than 0", what, speed))
	}
	if limit < 0 {
		faults = append(faults, fmt.Errorf("%s: limit %d: want at least 0", what, limit))
	}
	return errors.Join(faults...)
}

func orOne(speed float64) float64 {
	if speed == 0 {
		return 1
	}
	return speed
}
