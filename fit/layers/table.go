package layers

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// Generation names the program whose rules compat lookups follow.
type Generation string

// The generations of layer tables.
const (
	// Seed: one block at batch size 1; exact keys only, the last duplicate
	// wins.
	Seed Generation = "seed"
	// V10 is LLMServingSim 1.0: the nearest input, attention on a coarse
	// grid of predictions, the first duplicate wins.
	V10 Generation = "v1.0"
	// V11 is LLMServingSim 1.1: straight lines between points.
	V11 Generation = "v1.1"
)

// Options say how to read a table. The zero value is good.
type Options struct {
	// TensorParallel is the number of ranks of points that do not say; by
	// default 1.
	TensorParallel int
	// Generation chooses the rules of compat lookups; by default the points
	// tell it by the sizes that they have.
	Generation Generation
	// Level is the share of outcomes that intervals are meant to cover, above
	// 0 and below 1; by default 0.8.
	Level float64
	// Experts is the number of experts of a block, for seed tables that hold
	// the layers of one expert.
	Experts int
}

func (o Options) withDefaults() (Options, error) {
	if o.TensorParallel == 0 {
		o.TensorParallel = 1
	}
	if o.Level == 0 {
		o.Level = 0.8
	}
	var faults []error
	if o.TensorParallel < 0 {
		faults = append(faults, fmt.Errorf("tensor parallel size %d: want at least 1", o.TensorParallel))
	}
	if !(o.Level > 0 && o.Level < 1) {
		faults = append(faults, fmt.Errorf("interval of level %v: want it between 0 and 1", o.Level))
	}
	if o.Experts < 0 {
		faults = append(faults, fmt.Errorf("%d experts: want at least 0", o.Experts))
	}
	switch o.Generation {
	case "", Seed, V10, V11:
	default:
		faults = append(faults, fmt.Errorf("generation %q: want %s, %s or %s", o.Generation, Seed, V10, V11))
	}
	return o, errors.Join(faults...)
}

// attention is the name of the layer with sizes of its own in bundles,
// seedAttention its name in the older tables.
const (
	attention     = "attention"
	seedAttention = "attn"
)

// size holds the sizes of a call.
type size struct{ tokens, context, sequences, sequenceContext, experts int }

// row is everything that was measured at one size.
type row struct {
	size
	median      float64 // s, over the points of this size
	first, last int64   // ns, of the first and the last point
	warnings    []string
}

// kind says which sizes a layer's time depends on.
type kind int

const (
	perToken kind = iota
	perSequence
	perExpert
	perBatch // attention
)

// layer is a layer on a number of ranks.
type layer struct {
	name  string
	tp    int
	kind  kind
	rows  []row // by size
	at    map[size]int
	line  line // compat, of layers with one size
	lines []expertLine
	batch *batchIndex // compat, of attention

	physical physical
}

// Table is a layer profile that can be asked. It is safe for concurrent use.
type Table struct {
	options    Options
	generation Generation
	ranks      map[int]map[string]*layer
	skews      map[int]*skewFit
	messages   map[int]map[string]*curve // collectives between ranks, by bytes
}

// New reads the points of kind layer and leaves others alone. Points of one
// size are taken together: their median is what physical lookups use, their
// first or last what compat lookups do. An error says that there is nothing
// to use, or which point cannot be.
func New(points iter.Seq[profile.Point], options Options) (*Table, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("layer table: %w", err)
	}
	t := &Table{options: options, generation: options.Generation, ranks: map[int]map[string]*layer{}, skews: map[int]*skewFit{}}
	type key struct {
		name string
		tp   int
	}
	type cell struct {
		times    []float64
		warnings []string
	}
	grouped := map[key]map[size]*cell{}
	skewed := map[int][]skewRow{}
	sent := map[int]map[string]map[int64][]float64{}
	saysRanks := false
	for p := range points {
		if p.Kind != profile.KindLayer || p.Layer == nil {
			continue
		}
		l := p.Layer
		time, ok := p.Median()
		if !ok || !(time > 0) || math.IsInf(float64(time), 0) || l.Name == "" {
			return nil, fmt.Errorf("layer table: %s: layer %q: want a name and a time above 0", cmp.Or(p.Origin, "point"), l.Name)
		}
		saysRanks = saysRanks || l.TensorParallel > 0
		tp := cmp.Or(l.TensorParallel, options.TensorParallel)
		if min(l.Tokens, l.Context, l.Sequences, l.SequenceContext, l.ActivatedExperts, tp) < 0 {
			return nil, fmt.Errorf("layer table: %s: layer %q: a size is negative", cmp.Or(p.Origin, "point"), l.Name)
		}
		if l.LongSequences > 0 {
			if r, ok := skewRowOf(p, float64(time)); ok {
				skewed[tp] = append(skewed[tp], r)
			}
			continue
		}
		if l.MessageBytes > 0 {
			addMessage(sent, tp, l, float64(time))
			continue
		}
		k := key{l.Name, tp}
		if grouped[k] == nil {
			grouped[k] = map[size]*cell{}
		}
		s := size{l.Tokens, l.Context, l.Sequences, l.SequenceContext, l.ActivatedExperts}
		c := grouped[k][s]
		if c == nil {
			c = &cell{}
			grouped[k][s] = c
		}
		c.times = append(c.times, float64(time))
		c.warnings = append(c.warnings, p.Warnings...)
	}
	if len(grouped) == 0 {
		return nil, errors.New("layer table: no points of kind layer with a time")
	}
	for k, cells := range grouped {
		l := &layer{name: k.name, tp: k.tp, at: make(map[size]int, len(cells)), rows: make([]row, 0, len(cells))}
		for s, c := range cells {
			l.rows = append(l.rows, row{
				size: s, median: stat.Median(c.times), first: nanoseconds(c.times[0]), last: nanoseconds(c.times[len(c.times)-1]),
				warnings: slices.Compact(slices.Sorted(slices.Values(c.warnings))),
			})
		}
		slices.SortFunc(l.rows, func(a, b row) int {
			return cmp.Or(cmp.Compare(a.tokens, b.tokens), cmp.Compare(a.context, b.context), cmp.Compare(a.sequences, b.sequences),
				cmp.Compare(a.sequenceContext, b.sequenceContext), cmp.Compare(a.experts, b.experts))
		})
		for i, r := range l.rows {
			l.at[r.size] = i
		}
		l.classify()
		if t.ranks[k.tp] == nil {
			t.ranks[k.tp] = map[string]*layer{}
		}
		t.ranks[k.tp][k.name] = l
	}
	if t.generation == "" {
		t.generation = t.guess(saysRanks)
	}
	for _, rank := range t.ranks {
		for _, l := range rank {
			l.index(t.generation)
		}
	}
	for tp, rows := range skewed {
		t.skews[tp] = fitSkew(rows)
	}
	t.preparePhysical()
	t.messages = fitMessages(sent)
	return t, nil
}

// nanoseconds is the whole number that the original programs keep.
func nanoseconds(seconds float64) int64 {
	return int64(max(1, min(math.RoundToEven(math.Round(seconds*1e13)/1e4), math.MaxInt64/4)))
}

func (l *layer) classify() {
	var sequences, sequenceContext, tokens, experts bool
	for _, r := range l.rows {
		tokens = tokens || r.tokens > 0
		sequences = sequences || r.sequences > 0
		sequenceContext = sequenceContext || r.sequenceContext > 0
		experts = experts || r.experts > 0
	}
	switch {
	case l.name == attention || sequenceContext || tokens && sequences:
		l.kind = perBatch
	case experts:
		l.kind = perExpert
	case sequences:
		l.kind = perSequence
	}
}

func (t *Table) guess(saysRanks bool) Generation {
	old := false
	for _, rank := range t.ranks {
		for _, l := range rank {
			switch l.kind {
			case perSequence, perExpert:
				return V11
			case perBatch:
				old = true
				for _, r := range l.rows {
					if r.tokens > 0 && r.sequences > 0 {
						return V11
					}
				}
			}
			switch l.name {
			case "qkv_proj", "gate_up_proj":
				return V11
			}
		}
	}
	if old || saysRanks {
		return V10
	}
	return Seed
}

// Generation is the program whose rules compat lookups follow.
func (t *Table) Generation() Generation { return t.generation }

// TensorParallel lists the numbers of ranks that were measured.
func (t *Table) TensorParallel() []int { return slices.Sorted(maps.Keys(t.ranks)) }

// Axis is one size of a layer.
type Axis struct {
	// Name is the size as in [profile.Layer]: "tokens", "context",
	// "sequences", "sequence_context", "activated_experts" or "message_bytes".
	Name string
	// Values is the number of different values, Min and Max their range.
	Values, Min, Max int
}

// Info describes a layer of a table.
type Info struct {
	// Name is the layer, TensorParallel the number of ranks.
	Name           string
	TensorParallel int
	// Points is the number of different sizes that were measured.
	Points int
	// Axes are the sizes that differ or are not 0.
	Axes []Axis
}

// Layers lists the layers of the table by number of ranks and name.
func (t *Table) Layers() []Info {
	var out []Info
	for _, tp := range t.TensorParallel() {
		for _, name := range slices.Sorted(maps.Keys(t.ranks[tp])) {
			l := t.ranks[tp][name]
			info := Info{Name: name, TensorParallel: tp, Points: len(l.rows)}
			for _, axis := range []struct {
				name string
				of   func(size) int
			}{
				{"tokens", func(s size) int { return s.tokens }},
				{"context", func(s size) int { return s.context }},
				{"sequences", func(s size) int { return s.sequences }},
				{"sequence_context", func(s size) int { return s.sequenceContext }},
				{"activated_experts", func(s size) int { return s.experts }},
			} {
				values := map[int]bool{}
				for _, r := range l.rows {
					values[axis.of(r.size)] = true
				}
				all := slices.Sorted(maps.Keys(values))
				if last := all[len(all)-1]; last > 0 {
					info.Axes = append(info.Axes, Axis{axis.name, len(all), all[0], last})
				}
			}
			out = append(out, info)
		}
		for _, name := range slices.Sorted(maps.Keys(t.messages[tp])) {
			points := t.messages[tp][name].points
			out = append(out, Info{Name: name, TensorParallel: tp, Points: len(points), Axes: []Axis{
				{"message_bytes", len(points), int(points[0].x), int(points[len(points)-1].x)},
			}})
		}
	}
	return out
}

// stable reports whether a layer is not split between ranks, so that the times
// of one rank hold for all.
func stable(name string) bool {
	switch name {
	case "layernorm", "final_layernorm", "sampler", "moe":
		return true
	}
	return false
}

// find is a layer at a number of ranks; 0 ranks mean the table's default.
func (t *Table) find(name string, tp int, compat bool) (*layer, error) {
	tp = cmp.Or(tp, t.options.TensorParallel)
	if stable(name) {
		if l := t.ranks[tp][name]; l != nil && !compat {
			return l, nil
		}
		if l := t.ranks[1][name]; l != nil {
			return l, nil
		}
	}
	rank := t.ranks[tp]
	if rank == nil {
		return nil, notMeasured(fmt.Sprintf("layer %q on %d tensor-parallel ranks", name, tp), "the profile has "+t.measuredRanks())
	}
	if l := rank[name]; l != nil {
		return l, nil
	}
	for _, other := range t.TensorParallel() {
		if t.ranks[other][name] != nil {
			return nil, notMeasured(fmt.Sprintf("layer %q on %d tensor-parallel ranks", name, tp), fmt.Sprintf("it was measured on %d", other))
		}
	}
	return nil, unknownLayer(name, slices.Collect(maps.Keys(rank)))
}

func (t *Table) measuredRanks() string {
	var list []string
	for _, tp := range t.TensorParallel() {
		list = append(list, strconv.Itoa(tp))
	}
	if len(list) == 1 {
		return "tensor-parallel size " + list[0] + " only"
	}
	return "tensor-parallel sizes " + strings.Join(list, ", ")
}
