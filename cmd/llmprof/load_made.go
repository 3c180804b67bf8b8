package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// madeFlags say how a load is made: when requests come, how many, and what
// their prompts have in common. Commands that send a load and commands that
// simulate one have the same.
type madeFlags struct {
	prompts          int
	rate             string
	burstiness       float64
	duration         time.Duration
	seed             uint64
	ratio            float64
	prefixLen        counts
	prefixShare      float64
	prefixGroups     int
	turns            int
	think            time.Duration
	rampFrom, rampTo float64
	rampShape        string
	rampOver         time.Duration
	// given tells of a flag whether it stands on the command line.
	given func(name string) bool
}

func (f *madeFlags) register(cmd *cobra.Command) {
	f.prefixLen = newCount(0, 0)
	flags := cmd.Flags()
	flags.Var(newWhole(&f.prompts, 1000), "num-prompts", "requests of the run; with --session-turns conversations, each of so many requests")
	flags.StringVar(&f.rate, "request-rate", "inf", "requests a second, or inf: all at once, or as --max-concurrency lets them")
	flags.Float64Var(&f.burstiness, "burstiness", 1, "1 for Poisson arrivals, below for bursts, above for even gaps, inf for equal ones")
	flags.Var(newSpan(&f.duration, 0), "duration", "end of the arrivals, in place of --num-prompts")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of times, lengths and prompts")
	flags.Var(&f.prefixLen, "random-prefix-len", "tokens that prompts share, ahead of their own")
	flags.Float64Var(&f.prefixShare, "prefix-share", 1, "share of requests with a shared prefix, 0..1")
	flags.Var(newWhole(&f.prefixGroups, 1), "num-prefixes", "different shared prefixes")
	flags.Var(newWhole(&f.turns, 0), "session-turns", "make each arrival a conversation of so many turns; the prompt grows with them")
	flags.Var(newSpan(&f.think, 0), "think-time", "pause of a client, or between two turns")
	flags.StringVar(&f.rampShape, "ramp-up-strategy", "", "let the rate rise: linear or exponential")
	flags.Float64Var(&f.rampFrom, "ramp-up-start-rps", 0, "rate at the start of the ramp, requests/s")
	flags.Float64Var(&f.rampTo, "ramp-up-end-rps", 0, "rate at its end, requests/s")
	flags.Var(newSpan(&f.rampOver, 0), "ramp-up-duration", "length of the ramp")
	completeWith(cmd, "ramp-up-strategy", "linear", "exponential")
}

// ranges are what the flags may be.
func (f *madeFlags) ranges() []flagRange {
	return []flagRange{
		{"num-prompts", f.prompts, f.prompts >= 1 && f.prompts <= workload.MaxRequests, fmt.Sprintf("1 to %d", workload.MaxRequests)},
		{"duration", f.duration, f.duration > 0 || f.off("duration", f.duration == 0), "more than 0"},
		{"burstiness", f.burstiness, f.burstiness > 0, "more than 0: 1 for Poisson arrivals"},
		{"random-range-ratio", f.ratio, f.ratio >= 0 && f.ratio < 1, "at least 0 and less than 1"},
		{"prefix-share", f.prefixShare, f.prefixShare >= 0 && f.prefixShare <= 1, "0 to 1"},
		{"num-prefixes", f.prefixGroups, f.prefixGroups >= 1, "at least 1"},
		{"session-turns", f.turns, f.turns > 0 || f.off("session-turns", f.turns == 0), "at least 1, or leave it out for single requests"},
		{"think-time", f.think, f.think >= 0, "at least 0"},
		{"ramp-up-start-rps", f.rampFrom, f.rampFrom == 0 || positive(f.rampFrom), "at least 0"},
		{"ramp-up-end-rps", f.rampTo, f.rampTo == 0 || positive(f.rampTo), "at least 0"},
		{"ramp-up-duration", f.rampOver, f.rampOver > 0 || f.off("ramp-up-duration", f.rampOver == 0), "more than 0"},
	}
}

// off is a flag that is not used: its default, but no value to give.
func (f *madeFlags) off(flag string, unset bool) bool { return unset && !f.given(flag) }

// checkRamp wants a ramp to be told as a whole.
func (f *madeFlags) checkRamp() error {
	const hint = "for example --ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 20 --ramp-up-duration 5m"
	shapes := []string{"", string(workload.Linear), string(workload.Exponential)}
	switch {
	case !slices.Contains(shapes, f.rampShape):
		return usage("", "--ramp-up-strategy %q: want linear or exponential", f.rampShape)
	case !f.ramped():
		return nil
	case f.rampOver == 0:
		return usage(hint, "a ramp wants --ramp-up-duration")
	case f.rampFrom == 0 && f.rampTo == 0:
		return usage(hint, "a ramp wants --ramp-up-start-rps or --ramp-up-end-rps")
	case f.rampShape == string(workload.Exponential) && (f.rampFrom == 0 || f.rampTo == 0):
		return usage(hint, "--ramp-up-strategy exponential wants --ramp-up-start-rps and --ramp-up-end-rps, both more than 0")
	}
	return nil
}

// ramped reports whether the rate rises.
func (f *madeFlags) ramped() bool {
	return f.rampShape != "" || f.rampFrom > 0 || f.rampTo > 0 || f.rampOver > 0
}

// ramp is how the rate rises.
func (f *madeFlags) ramp() workload.Ramp {
	shape := workload.RampShape(cmp.Or(f.rampShape, string(workload.Linear)))
	return workload.Ramp{From: f.rampFrom, To: f.rampTo, Shape: shape, Over: unit.Seconds(f.rampOver.Seconds()), Burstiness: f.burstiness}
}

// arrivals are when requests come, at a rate or from a number of clients.
func (f *madeFlags) arrivals(rate float64, clients int) workload.Arrivals {
	switch {
	case f.ramped():
		return f.ramp()
	case math.IsInf(rate, 1) && clients > 0:
		return workload.Closed{Workers: clients, Think: workload.Pause(f.think.Seconds())}
	case math.IsInf(rate, 1):
		return workload.Trace{Offsets: make([]unit.Seconds, f.prompts)}
	case math.IsInf(f.burstiness, 1):
		return workload.Constant{Rate: rate}
	case f.burstiness == 1:
		return workload.Poisson{Rate: rate}
	}
	return workload.Gamma{Rate: rate, Burstiness: f.burstiness}
}

// spec is the load of some arrivals.
func (f *madeFlags) spec(arrivals workload.Arrivals, lengths workload.Lengths, seed uint64) workload.Spec {
	spec := workload.Spec{Seed: seed, Arrivals: arrivals, Lengths: lengths, Count: f.prompts, Duration: unit.Seconds(f.duration.Seconds())}
	if f.duration > 0 {
		spec.Count = 0
	}
	if n := f.prefixLen.values[0]; n > 0 {
		spec.Prefixes = &workload.Prefixes{Share: f.prefixShare, Groups: f.prefixGroups, Length: workload.Fixed(n), Added: true}
	}
	if f.turns > 0 {
		spec.Sessions = &workload.Sessions{Turns: workload.Fixed(f.turns), Think: workload.Pause(f.think.Seconds())}
	}
	return spec
}
