package layers

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// physical is what physical lookups of a layer use.
type physical struct {
	curve  *curve // along tokens, or sequences
	decode *curve // seed tables: one token, along its context plus one
	expert []*curve
	once   sync.Once // attention's model is made when it is first asked for
	batch  *attentionModel
}

// preparePhysical fits the curves of all layers but attention.
func (t *Table) preparePhysical() {
	for _, tp := range t.TensorParallel() {
		rank := t.ranks[tp]
		launch := math.Inf(1)
		var own []*layer
		for _, name := range sortedNames(rank) {
			l := rank[name]
			own = append(own, l)
			for _, r := range l.rows {
				launch = min(launch, r.median)
			}
		}
		var shared []*curve
		for _, l := range own {
			l.fitCurves(launch)
			if l.physical.curve != nil && l.kind == perToken {
				shared = append(shared, l.physical.curve)
			}
		}
		common := balance(shared)
		for _, l := range own {
			p := &l.physical
			for _, c := range append([]*curve{p.curve, p.decode}, p.expert...) {
				if c != nil {
					c.continued(common)
				}
			}
			if p.curve != nil {
				p.curve.calibrate(l.samples(), launch, common, t.options.Level)
			}
			if p.decode != nil {
				p.decode.calibrate(l.decodes(), launch, common, t.options.Level)
			}
			for i, c := range p.expert {
				c.calibrate(l.expertSamples(l.lines[i].experts), launch, common, t.options.Level)
			}
		}
	}
}

func sortedNames(rank map[string]*layer) []string {
	names := make([]string, 0, len(rank))
	for name := range rank {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (l *layer) fitCurves(launch float64) {
	switch l.kind {
	case perBatch:
	case perExpert:
		for _, e := range l.lines {
			l.physical.expert = append(l.physical.expert, fitCurve(l.expertSamples(e.experts), launch))
		}
	default:
		if in := l.samples(); len(in) > 0 {
			l.physical.curve = fitCurve(in, launch)
			if onPairs(l.name) {
				l.physical.curve.onPairs()
			}
		}
		if in := l.decodes(); len(in) > 1 {
			l.physical.decode = fitCurve(in, launch)
			l.physical.decode.tile = 1
		}
	}
}

// onPairs reports whether a layer works on pairs of tokens, by the names of the
// seed tables.
func onPairs(name string) bool {
	switch name {
	case seedAttention, "qk_matmul", "softmax", "sv_matmul", "attention/wrapper":
		return true
	}
	return false
}

// samples are the times along the layer's one size, without cached tokens.
func (l *layer) samples() []sample {
	var out []sample
	for _, r := range l.rows {
		x := r.tokens
		if l.kind == perSequence {
			x = r.sequences
		}
		if r.context == 0 && x > 0 && (len(out) == 0 || out[len(out)-1].x < float64(x)) {
			out = append(out, sample{float64(x), r.median})
		}
	}
	return out
}

// decodes are the times of one token along its context plus itself, of a layer
// that was measured with cached tokens.
func (l *layer) decodes() []sample {
	var out []sample
	cached := false
	for _, r := range l.rows {
		if r.tokens == 1 && l.kind == perToken {
			cached = cached || r.context > 0
			out = append(out, sample{float64(r.context + 1), r.median})
		}
	}
	if !cached {
		return nil
	}
	return out
}

func (l *layer) expertSamples(experts int) []sample {
	var out []sample
	for _, r := range l.rows {
		x := float64(max(1, r.tokens))
		if r.experts == experts && (len(out) == 0 || out[len(out)-1].x < x) {
			out = append(out, sample{x, r.median})
		}
	}
	return out
}

// answer is a physical time with what is known about it.
type answer struct {
	seconds  float64
	octaves  float64 // beyond the grid
	inside   band
	beyond   band
	warnings []string
}

// farAway is the number of octaves beyond the grid from which on there is no
// interval.
const farAway = 4

// estimate adds basis and interval. measured is the row of the very size, or
// nil.
func (a answer) estimate(measured *row) stat.Estimate[unit.Seconds] {
	v := unit.Seconds(a.seconds)
	out := stat.Exactly(v, stat.Interpolated)
	out.Warnings = a.warnings
	if measured != nil {
		if len(measured.warnings) > 0 {
			out.Warnings = append(slices.Clip(out.Warnings), measured.warnings...)
		}
		if math.Abs(a.seconds-measured.median) <= 1e-9*measured.median {
			out.Basis = stat.Measured
			return out
		}
	}
	half, level := a.inside.half, a.inside.level
	if a.octaves > 0 {
		out.Basis = stat.Extrapolated
		half, level = a.inside.half+a.beyond.half*a.octaves, min(a.inside.level, a.beyond.level)
		if a.octaves > farAway {
			level = 0
			out.Warnings = append(slices.Clip(out.Warnings), "far outside the measured range: no interval is known")
		}
	}
	if level > 0 {
		f := unit.Seconds(math.Exp(half))
		out.Low, out.High, out.Level = v/f, v*f, level
	}
	return out
}

func (c *curve) answer(x float64) answer {
	return answer{seconds: c.at(x), octaves: max(c.octaves(x), math.Log2(max(1, c.points[0].x/x))), inside: c.inside, beyond: c.beyond}
}

// ask is the physical time of a layer that is not attention.
func (l *layer) ask(s size) (answer, error) {
	p := &l.physical
	switch {
	case l.kind == perExpert:
		return l.askExperts(s), nil
	case p.curve == nil && p.decode == nil:
		return answer{}, notMeasured(fmt.Sprintf("layer %q", l.name), "it has no points of its sizes alone")
	case l.kind == perSequence:
		return p.curve.answer(float64(s.sequences)), nil
	case s.context > 0 && p.decode == nil && p.curve != nil:
		if l.name != seedAttention {
			return p.curve.answer(float64(s.tokens)), nil // only attention looks at cached tokens
		}
		a := p.curve.answer(math.Sqrt(float64(s.tokens) * float64(s.tokens+2*s.context)))
		return a.unsure("no times with cached tokens: taken as a prompt with as many pairs of tokens"), nil
	case s.tokens == 1 && p.decode != nil:
		return p.decode.answer(float64(s.context + 1)), nil
	case p.curve == nil:
		return answer{}, notMeasured(fmt.Sprintf("layer %q for a prompt of %d tokens", l.name, s.tokens), "only single tokens were timed")
	case s.context == 0:
		return p.curve.answer(float64(s.tokens)), nil
	}
	one, after := p.decode.at(1), p.decode.answer(float64(s.context+1))
	prompt := p.curve.answer(float64(s.tokens))
	if after.seconds < 1.25*one {
		return prompt, nil
	}
	pairs := p.curve.answer(math.Sqrt(float64(s.tokens) * float64(s.tokens+2*s.context)))
	if after.seconds > pairs.seconds {
		pairs = after
	}
	return pairs.unsure("prompt chunks on cached tokens were not measured: taken as a prompt with as many pairs of tokens"), nil
}

// unsure marks an answer that no measurement of its kind stands behind.
func (a answer) unsure(warning string) answer {
	a.octaves = max(a.octaves, 1)
	a.warnings = append(slices.Clip(a.warnings), warning)
	return a
}

func (l *layer) askExperts(s size) answer {
	x, tokens := float64(s.experts), float64(s.tokens)
	last := len(l.lines) - 1
	i, found := slices.BinarySearchFunc(l.lines, s.experts, func(e expertLine, x int) int { return cmp.Compare(e.experts, x) })
	switch {
	case found:
		return l.physical.expert[i].answer(tokens)
	case i == 0:
		a := l.physical.expert[0].answer(tokens)
		a.octaves += math.Log2(float64(l.lines[0].experts) / max(1, x))
		return a
	case i > last:
		// More experts read more weights, in proportion at most.
		a := l.physical.expert[last].answer(tokens)
		grow := x / float64(l.lines[last].experts)
		a.seconds *= grow
		a.octaves += math.Log2(grow)
		return a
	}
	low, high := l.physical.expert[i-1].answer(tokens), l.physical.expert[i].answer(tokens)
	w := (x - float64(l.lines[i-1].experts)) / float64(l.lines[i].experts-l.lines[i-1].experts)
	low.seconds += w * max(0, high.seconds-low.seconds)
	low.octaves = max(low.octaves, high.octaves)
	return low
}
