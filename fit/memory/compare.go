package memory

import (
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/unit"
)

// Component is a part of the memory of a run.
type Component string

// The components, in the order in which they are compared.
const (
	Total       Component = "total"
	Weights     Component = "weights"
	KVCache     Component = "KV cache"
	Activations Component = "activations"
	Overhead    Component = "overhead"
	// KVCapacity is the pool that the engine allocates, needed or not.
	KVCapacity Component = "KV capacity"
)

// Components lists the components in their order.
func Components() []Component {
	return []Component{Total, Weights, KVCache, Activations, Overhead, KVCapacity}
}

// Comparison is one measured size beside the calculated one.
type Comparison struct {
	Component Component
	// What says in words which measured size stands beside which calculated
	// one.
	What                 string
	Measured, Calculated unit.Bytes
	// Diff is measured − calculated: negative where the calculator
	// overestimates.
	Diff unit.Bytes
	// OfMeasured and OfCalculated are Diff in percent of either; nil where
	// that is zero.
	OfMeasured, OfCalculated *float64
	// Class is the scheme's word; empty where its percentage is nil.
	Class string
}

// Percent is the percentage that the scheme goes by; ok is false where it is
// not defined.
func (c Comparison) Percent(s Scheme) (percent float64, ok bool) {
	p := c.OfCalculated
	if s.OfMeasured() {
		p = c.OfMeasured
	}
	if p == nil {
		return 0, false
	}
	return *p, true
}

// comparison is a pair of sizes, either of which may be nil.
type comparison struct {
	component            Component
	what                 string
	measured, calculated *unit.Bytes
}

// compare sets a prediction beside what was measured. skipped says of each
// component that was measured or calculated why it was not compared.
func compare(m Measured, p Prediction, s Scheme) (done []Comparison, skipped []string) {
	pairs := []comparison{
		totals(m, p),
		{Weights, "weights with weights", m.Weights, p.Weights},
		caches(m, p),
		{Activations, "peak activations with activations", m.Activations, p.Activations},
		overheads(m, p),
	}
	if m.Preallocates {
		pairs = append(pairs, comparison{KVCapacity, "allocated KV pool with the KV cache that fits", m.KVCache, p.KVCapacity})
	}
	for _, pair := range pairs {
		switch {
		case pair.measured == nil && pair.calculated == nil:
		case pair.measured == nil:
			skipped = append(skipped, fmt.Sprintf("%s: not measured%s", pair.component, why(pair.component, m)))
		case pair.calculated == nil:
			skipped = append(skipped, fmt.Sprintf("%s: not calculated", pair.component))
		default:
			done = append(done, s.compared(pair))
		}
	}
	return done, skipped
}

// why explains what an engine with a KV pool leaves open.
func why(c Component, m Measured) string {
	switch {
	case !m.Preallocates:
		return ""
	case c == Total && m.Total != nil:
		return " as a need: the engine fills the device up front, and the parts that were measured do not make a total"
	case c == KVCache && m.KVCache != nil:
		return " in use: the pool that the engine allocates up front says nothing about the need"
	}
	return ""
}

// compared computes differences and class of a complete pair.
func (s Scheme) compared(pair comparison) Comparison {
	c := Comparison{Component: pair.component, What: pair.what, Measured: *pair.measured, Calculated: *pair.calculated}
	c.Diff = c.Measured - c.Calculated
	percent := func(of unit.Bytes) *float64 {
		if of == 0 {
			return nil
		}
		p := float64(c.Diff) / float64(of) * 100
		return &p
	}
	c.OfMeasured, c.OfCalculated = percent(c.Measured), percent(c.Calculated)
	if p, ok := c.Percent(s); ok {
		c.Class = s.Class(p)
	}
	return c
}

// caches pairs the cache in use, or what an engine without a pool allocated,
// with that of the batch.
func caches(m Measured, p Prediction) comparison {
	c := comparison{KVCache, "KV cache in use with the KV cache of the batch", m.KVUsed, p.KVCache}
	if c.measured == nil && !m.Preallocates {
		c.what, c.measured = "allocated KV cache with the KV cache of the batch", m.KVCache
	}
	return c
}

// overheads pairs all that is neither weights, cache nor activations.
func overheads(m Measured, p Prediction) comparison {
	c := comparison{Overhead, "overhead with overhead", m.Overhead, p.Overhead}
	if m.Overhead != nil && m.Graphs != nil {
		sum := *m.Overhead + *m.Graphs
		c.what, c.measured = "overhead and graphs with overhead", &sum
	}
	return c
}

// totals pairs the measured total with the calculated one, or of an engine
// with a KV pool the sums of the parts that both know, which must be at least
// weights and cache. A calculator without parts is compared where all parts
// were measured.
func totals(m Measured, p Prediction) comparison {
	if !m.Preallocates {
		return comparison{Total, "memory above the baseline with the total", m.Total, p.Total}
	}
	if m.Weights == nil || m.KVUsed == nil {
		return comparison{Total, "", nil, p.Total}
	}
	names := []string{"weights", "KV cache in use"}
	measured, calculated := *m.Weights+*m.KVUsed, unit.Bytes(0)
	whole := p.Weights == nil || p.KVCache == nil
	if whole && (p.Total == nil || m.Activations == nil || m.Overhead == nil) {
		return comparison{Total, "", nil, p.Total}
	}
	if whole {
		calculated = *p.Total
	} else {
		calculated = *p.Weights + *p.KVCache
	}
	for _, further := range []comparison{{"activations", "", m.Activations, p.Activations}, overheads(m, p)} {
		if further.measured == nil || (further.calculated == nil && !whole) {
			continue
		}
		names = append(names, string(further.component))
		measured += *further.measured
		if !whole {
			calculated += *further.calculated
		}
	}
	what := strings.Join(names, " + ") + " with the same of the calculator"
	if whole {
		what = strings.Join(names, " + ") + " with the total"
	}
	return comparison{Total, what, &measured, &calculated}
}
