package sglang

import (
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/sim"
)

// Idle tells which settings of a replica made no difference: one that bound
// nothing may still have made one by what else follows from it. The seats, where
// they were not given, follow from the pool and the context.
type Idle struct {
	config  Config
	release string
	// fraction is mem_fraction_static.
	fraction float64
	// most is the longest context that the model was made for, in tokens.
	most int
	// seats were given.
	seats bool
}

// Idle is that of a launched replica of a model that was made for contexts of so
// many tokens.
func (r *Replica) Idle(release string, most int) *Idle {
	d := &Idle{config: r.Config, release: release, most: max(most, r.Config.Context)}
	for _, c := range r.Choices {
		switch c.Name {
		case "mem_fraction_static":
			d.fraction, _ = strconv.ParseFloat(c.Value, 64) // it was written from a number
		case "max_running_requests":
			d.seats = strings.HasPrefix(c.Source, deploy.Given)
		}
	}
	return d
}

// Narrow keeps of the settings that bound nothing those that made no difference by
// what follows from them either.
func (d *Idle) Narrow(unbound []sim.Knob) []sim.Knob {
	seatsIdle := d.seats || slices.ContainsFunc(unbound, func(s sim.Knob) bool { return s.Name == "max_running_requests" })
	var all []sim.Knob
	for _, s := range unbound {
		keep := true
		switch s.Name {
		case "max_total_num_tokens", "page_size":
			keep = seatsIdle
		case "mem_fraction_static":
			s.From = new(d.fraction)
		case "context_length":
			s.To = new(float64(d.longest()))
			keep = d.longest() > d.config.Context
		}
		if keep {
			all = append(all, s)
		}
	}
	return all
}

// longest is the longest context that the model has and that leaves the seats as
// they are.
func (d *Idle) longest() int {
	if seats, err := DefaultSeats(d.release, d.config.Pool, d.most); !d.seats && (err != nil || seats != d.config.Seats) {
		return d.config.Context
	}
	return d.most
}
