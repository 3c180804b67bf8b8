package fleet

import (
	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/stat"
)

// Power is what one device of a replica draws.
type Power struct {
	// Idle and Busy are in watts: Busy is drawn while a step runs.
	Idle, Busy float64 // W
	// Basis says where the figures come from.
	Basis stat.Basis
}

// PowerLimit is the power limit of a device taken for all it ever draws, which
// is an upper bound that nobody measured; ok is false where the catalog has no
// limit.
func PowerLimit(d catalog.Device) (p Power, ok bool) {
	return Power{Idle: d.Power.Value, Busy: d.Power.Value, Basis: stat.Assumed}, d.Power.Known()
}

// Usage is what a run took.
type Usage struct {
	// Energy is in joules; nil unless the power of all replicas is known.
	Energy *Amount
	// Cost is in the currency of the prices; nil unless those of all replicas
	// are known.
	Cost *Amount
}

// Amount is an energy or a cost, and its share of what was achieved.
type Amount struct {
	// Total is that of all replicas from the first send to the end of the run, in
	// joules or in the currency of the prices.
	Total float64 // J, or currency
	// PerThousandTokens is that of 1000 output tokens of completed requests, in
	// the same unit; nil without any.
	PerThousandTokens *float64
	// PerGood is that of a request that was completed and kept its limits, in the
	// same unit; nil without any, and where there are no limits.
	PerGood *float64 // J, or currency
	// Basis is the weakest one of what it was computed from; empty for a cost.
	Basis stat.Basis
}

// Usage is the energy and the cost of the run. A request is good as in
// [Result.Summaries]. A run that was ended early has none.
func (r *Result) Usage(limits load.SLOs) Usage {
	span := r.Elapsed.Seconds() - seconds(r.first)
	energy, cost := new(Amount), new(Amount)
	for k := range r.replicas {
		c, devices := &r.replicas[k], float64(r.replicas[k].Devices)
		if energy != nil && c.Power != nil {
			busy := r.Replicas[k].Busy.Seconds()
			energy.Total += float64(devices * (c.Power.Busy*busy + float64(c.Power.Idle*max(span-busy, 0))))
			energy.Basis = weaker(energy.Basis, c.Power.Basis)
		} else {
			energy = nil
		}
		if cost != nil && c.Price != nil {
			cost.Total += float64(devices * *c.Price * span / 3600)
		} else {
			cost = nil
		}
	}
	if r.Aborted != nil {
		return Usage{}
	}
	r.share(limits, energy, cost)
	return Usage{energy, cost}
}

// share divides amounts by what the run achieved.
func (r *Result) share(limits load.SLOs, amounts ...*Amount) {
	s := newSample()
	for i := range r.Records {
		s.add(r, int32(i), limits)
	}
	for _, a := range amounts {
		if a == nil {
			continue
		}
		if s.outputs > 0 {
			a.PerThousandTokens = new(a.Total * 1000 / float64(s.outputs))
		}
		if s.good > 0 {
			a.PerGood = new(a.Total / float64(s.good))
		}
	}
}

// weaker is the basis that promises less.
func weaker(a, b stat.Basis) stat.Basis {
	order := [...]stat.Basis{stat.Measured, stat.Fitted, stat.Interpolated, stat.Extrapolated, stat.Theoretical, stat.Assumed}
	for i := len(order) - 1; i >= 0; i-- {
		if a == order[i] || b == order[i] {
			return order[i]
		}
	}
	return b
}
