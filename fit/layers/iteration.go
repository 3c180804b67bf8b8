package layers

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// total sums estimates. Bounds add up as if all errors had one cause, which
// makes the interval rather too wide than too narrow.
type total struct {
	stat.Estimate[unit.Seconds]
	parts  int
	silent bool // a part has no interval
}

func (s *total) add(e stat.Estimate[unit.Seconds], times float64) {
	n := unit.Seconds(times)
	s.Value += e.Value * n
	s.Low += e.Low * n
	s.High += e.High * n
	if s.parts == 0 {
		s.Basis = e.Basis
	}
	s.Basis = weaker(s.Basis, e.Basis)
	if e.Level > 0 && (s.Level == 0 || e.Level < s.Level) {
		s.Level = e.Level
	}
	if !e.HasInterval() && e.Basis != stat.Measured {
		s.silent = true
	}
	for _, w := range e.Warnings {
		s.warn(w)
	}
	s.parts++
}

func (s *total) warn(w string) {
	if !slices.Contains(s.Warnings, w) {
		s.Warnings = append(s.Warnings, w)
	}
}

// estimate is the sum; it has no interval where a part that was not measured
// has none.
func (s *total) estimate() stat.Estimate[unit.Seconds] {
	e := s.Estimate
	if s.silent || e.Level == 0 {
		e.Low, e.High, e.Level = e.Value, e.Value, 0
	}
	return e
}

// part is a layer and how often it runs.
type part struct {
	name  string
	times float64
}

// stepParts are the layers of one step by their names, in the order in which
// they run: the ends once, the others in every block, layernorm twice.
func (t *Table) stepParts(numLayers, tp int) ([]part, error) {
	rank := t.ranks[cmp.Or(tp, t.options.TensorParallel)]
	have := func(name string) bool { return rank[name] != nil || stable(name) && t.ranks[1][name] != nil }
	need := []string{"embedding", "layernorm", "qkv_proj", attention, "o_proj"}
	if !have("moe") {
		need = append(need, "gate_up_proj", "act_fn", "down_proj")
	}
	need = append(need, "final_layernorm", "lm_head")
	var missing []string
	for _, name := range need {
		if !have(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, notMeasured("step of the engine", "the profile lacks "+strings.Join(missing, ", "))
	}
	blocks := float64(numLayers)
	parts := []part{{"embedding", 1}, {"layernorm", blocks}, {"qkv_proj", blocks}}
	for _, name := range sortedNames(rank) { // rotary_emb and what else a family has
		if !slices.Contains(need, name) && name != "moe" && name != "sampler" {
			parts = append(parts, part{name, blocks})
		}
	}
	parts = append(parts, part{attention, blocks}, part{"o_proj", blocks}, part{"layernorm", blocks})
	for _, name := range []string{"gate_up_proj", "act_fn", "down_proj"} {
		if have(name) {
			parts = append(parts, part{name, blocks})
		}
	}
	if have("moe") {
		parts = append(parts, part{"moe", blocks})
	}
	parts = append(parts, part{"final_layernorm", 1}, part{"lm_head", 1})
	if have("sampler") {
		parts = append(parts, part{"sampler", 1})
	}
	return parts, nil
}

// maxLayers bounds the blocks of a model.
const maxLayers = 1 << 16

// checkStep reports a step that cannot be, or that no ranks were measured for.
func (t *Table) checkStep(pass forward.Pass, numLayers, tp int) error {
	if err := checkPass(pass, numLayers); err != nil {
		return err
	}
	if t.ranks[tp] == nil {
		return notMeasured(fmt.Sprintf("step on %d tensor-parallel ranks", tp), "the profile has "+t.measuredRanks())
	}
	return nil
}

// Iteration is the time of one step of the engine, a bundle of batches needed:
// the layers in the order embedding, blocks, final_layernorm, lm_head, sampler.
// Work once a sequence counts the pass's rows of logits. Decoding sequences of
// unequal length are told by pass.DecodeContexts or by the shortest and the
// longest of pass.Decode, and cost more than their mean as far as the profile
// measured such batches. A mixture of experts is taken
// with all measured experts activated.
//
// It is compute time: what passes between the engine's steps, and between ranks,
// is not in it.
func (t *Table) Iteration(pass forward.Pass, numLayers, tp int, compat bool) (stat.Estimate[unit.Seconds], error) {
	none := stat.Estimate[unit.Seconds]{}
	tp = cmp.Or(tp, t.options.TensorParallel)
	if err := t.checkStep(pass, numLayers, tp); err != nil {
		return none, err
	}
	parts, err := t.stepParts(numLayers, tp)
	if err != nil {
		return none, err
	}
	var sum total
	for _, p := range parts {
		e, err := t.stepPart(p.name, pass, tp, compat)
		if errors.Is(err, errNothing) {
			continue
		}
		if err != nil {
			return none, fmt.Errorf("time of a step: %w", err)
		}
		sum.add(e, p.times)
	}
	if t.ranks[tp]["sampler"] == nil && t.ranks[1]["sampler"] == nil {
		sum.warn("the profile has no sampler, and its time is not in this one")
	}
	if tp > 1 {
		sum.warn("communication between the tensor-parallel ranks is not measured, and not in this time")
	}
	return sum.estimate(), nil
}

// errNothing says that a pass gives a layer nothing to do.
var errNothing = errors.New("nothing to compute")

func checkPass(pass forward.Pass, numLayers int) error {
	if err := pass.Validate(); err != nil {
		return fmt.Errorf("time of a step: %w", err)
	}
	if numLayers < 1 || numLayers > maxLayers {
		return fmt.Errorf("time of a step of %d blocks: want 1 to %d", numLayers, maxLayers)
	}
	tokens := int64(pass.Decode.Count)
	for _, c := range pass.Prefill {
		if c.Count > maxSize || c.New > maxSize || c.Context > maxSize {
			return fmt.Errorf("time of a step: chunk of %d × %d tokens on %d: want at most %d", c.Count, c.New, c.Context, maxSize)
		}
		tokens += int64(c.Count) * int64(c.New)
		if tokens > maxSize {
			break
		}
	}
	if tokens > maxSize || pass.MeanDecodeContext() > maxSize {
		return fmt.Errorf("time of a step: more than %d tokens", maxSize)
	}
	for _, c := range pass.DecodeContexts {
		if c < 0 || c > maxSize {
			return fmt.Errorf("time of a step: decode context of %d tokens: want 0 to %d", c, maxSize)
		}
	}
	return nil
}

func (t *Table) stepPart(name string, pass forward.Pass, tp int, compat bool) (stat.Estimate[unit.Seconds], error) {
	if name == attention {
		return t.stepAttention(pass, tp, compat)
	}
	l, err := t.find(name, tp, compat)
	if err != nil {
		return stat.Estimate[unit.Seconds]{}, err
	}
	ask := profile.Layer{Name: name, Tokens: pass.Tokens(), TensorParallel: tp}
	switch l.kind {
	case perSequence:
		ask.Tokens, ask.Sequences = 0, pass.Rows()
		if ask.Sequences == 0 {
			return stat.Estimate[unit.Seconds]{}, errNothing
		}
	case perExpert:
		ask.ActivatedExperts = l.lines[len(l.lines)-1].experts
	}
	return t.Time(ask, compat)
}

// stepAttention is the attention of a pass: its chunks as one of the same
// tokens and pairs of tokens, its decodes at their mean length, and what
// unequal lengths add.
func (t *Table) stepAttention(pass forward.Pass, tp int, compat bool) (stat.Estimate[unit.Seconds], error) {
	l, err := t.find(attention, tp, compat)
	if err != nil {
		return stat.Estimate[unit.Seconds]{}, err
	}
	b, chunks := joined(pass, t.generation == V10 && compat)
	b.n, b.k = float64(pass.Decode.Count), pass.MeanDecodeContext()
	e, err := t.attend(l, b, compat)
	if err != nil {
		return e, err
	}
	if chunks > 1 {
		e.Warnings = append(slices.Clip(e.Warnings), "several prompt chunks in one step were not measured: taken as one chunk of as many tokens and pairs of tokens")
	}
	return t.skewed(l, e, b, pass, compat)
}

// joined takes all chunks together. The chunk has their tokens and context for
// as many pairs of tokens; where even without context it had more, it is the
// shorter one that has as many, which is the rule of v1.0.
func joined(pass forward.Pass, square bool) (b batch, chunks int) {
	var pairs, squares, cached float64
	for _, c := range pass.Prefill {
		n, q, p := float64(c.Count), float64(c.New), float64(c.Context)
		chunks += c.Count
		b.c += n * q
		pairs += n * q * (p + q/2)
		squares += n * q * q
		cached += n * p
	}
	switch {
	case chunks == 0:
	case chunks == 1:
		b.p = cached
	case square:
		b.c, b.p = math.Sqrt(squares), cached
	default:
		b.p = pairs/b.c - b.c/2
		if b.p < 0 {
			b.c, b.p = math.Sqrt(2*pairs), 0
		}
	}
	return b, chunks
}

// spread is the shortest and the longest context of the decodes of a pass; ok
// is false where they are not known or all alike.
func spread(pass forward.Pass) (shortest, longest int, ok bool) {
	shortest, longest = pass.Decode.Shortest, pass.Decode.Longest
	if len(pass.DecodeContexts) > 0 {
		shortest, longest = slices.Min(pass.DecodeContexts), slices.Max(pass.DecodeContexts)
	}
	return shortest, longest, pass.Decode.Count > 1 && longest > shortest
}

// skewed adds what decodes of unequal lengths cost beyond their mean.
func (t *Table) skewed(l *layer, e stat.Estimate[unit.Seconds], b batch, pass forward.Pass, compat bool) (stat.Estimate[unit.Seconds], error) {
	shortest, longest, ok := spread(pass)
	if !ok {
		return e, nil
	}
	fit := t.skews[l.tp]
	if fit == nil || fit.rows == 0 {
		e.Warnings = append(slices.Clip(e.Warnings), "batches of unequal lengths were not measured: decodes are taken at their mean length")
		return e, nil
	}
	top := b
	top.k = float64(longest)
	high, err := t.attend(l, top, compat)
	if err != nil {
		return e, err
	}
	alpha := fit.between(b, shortest, longest, compat)
	if high.Value <= e.Value || alpha == 0 {
		return e, nil
	}
	more := unit.Seconds(alpha) * (high.Value - e.Value)
	e.Value += more
	e.Low += more
	e.High += more
	e.Basis = weaker(e.Basis, weaker(high.Basis, stat.Interpolated))
	if compat {
		e.Value = unit.Seconds(max(1, math.Trunc(float64(e.Value)*1e9)) * 1e-9)
		e.Low, e.High = e.Value, e.Value
	}
	return e, nil
}
