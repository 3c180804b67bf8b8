package layers

import (
	"cmp"
	"fmt"
	"math"

	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// logRatio is how far a prediction is off, in logs.
func logRatio(predicted, measured float64) float64 { return math.Log(predicted / measured) }

// maxSize bounds the sizes of a question; products of two stay exact.
const maxSize = 1 << 30

// Time is the time of one call of a layer, given by its name and the sizes that
// matter to it, on TensorParallel ranks or, for 0, the table's default. Skewed
// attention is asked for by [Table.Iteration].
//
// A compat answer has no interval. The error is an [UnknownLayerError], a
// [fit.NotMeasuredError], or about a size that cannot be.
func (t *Table) Time(l profile.Layer, compat bool) (stat.Estimate[unit.Seconds], error) {
	e, err := t.time(l, compat)
	if v := float64(e.Value); err == nil && (!(v > 0) || math.IsInf(v, 0)) {
		return stat.Estimate[unit.Seconds]{}, notMeasured(fmt.Sprintf("layer %q of %d tokens", l.Name, l.Tokens), "the points around it give no time")
	}
	return e, err
}

// time looks a layer up; a lookup between points of nothing gives no number.
func (t *Table) time(l profile.Layer, compat bool) (stat.Estimate[unit.Seconds], error) {
	none := stat.Estimate[unit.Seconds]{}
	for _, x := range [...]int{l.Tokens, l.Context, l.Sequences, l.SequenceContext, l.ActivatedExperts, l.TensorParallel} {
		if x < 0 || x > maxSize {
			return none, fmt.Errorf("time of layer %q: size %d: want 0 to %d", l.Name, x, maxSize)
		}
	}
	found, err := t.find(l.Name, l.TensorParallel, compat)
	if err != nil {
		return none, err
	}
	var s size
	switch found.kind {
	case perBatch:
		return t.attend(found, batch{float64(l.Tokens), float64(l.Context), float64(l.Sequences), float64(l.SequenceContext)}, compat)
	case perSequence:
		s = size{sequences: l.Sequences}
	case perExpert:
		s = size{tokens: l.Tokens, experts: l.ActivatedExperts}
	default:
		s = size{tokens: l.Tokens, context: l.Context}
	}
	if s.tokens+s.sequences < 1 {
		return none, fmt.Errorf("time of layer %q of no %s: want at least 1", l.Name, found.kind)
	}
	if compat {
		ns, basis, ok := found.compat(t.generation, s, batch{})
		if !ok {
			return none, notMeasured(fmt.Sprintf("layer %q of %d tokens on %d cached ones", l.Name, s.tokens, s.context), "there is no such point, and this generation does not interpolate")
		}
		return stat.Exactly(unit.Seconds(ns*1e-9), basis), nil
	}
	a, err := found.ask(s)
	if err != nil {
		return none, err
	}
	return a.estimate(found.row(s)), nil
}

// row is what was measured at a size, or nil.
func (l *layer) row(s size) *row {
	if i, ok := l.at[s]; ok {
		return &l.rows[i]
	}
	return nil
}

// String names the size that a kind of layer is asked by.
func (k kind) String() string {
	if k == perSequence {
		return "sequences"
	}
	return "tokens"
}

// LayerTime is [Table.Time] of a layer with one size: the tokens of the step,
// or the sequences where the layer works once a sequence.
func (t *Table) LayerTime(name string, tokensOrSequences, tp int, compat bool) (stat.Estimate[unit.Seconds], error) {
	l := profile.Layer{Name: name, Tokens: tokensOrSequences, TensorParallel: tp}
	if found, err := t.find(name, tp, compat); err == nil && found.kind == perSequence {
		l.Tokens, l.Sequences = 0, tokensOrSequences
	}
	return t.Time(l, compat)
}

// Attention is the time of attention for a chunk of prompt tokens on kvPrefill
// cached ones together with nDecode sequences of kvDecode cached tokens each.
// Either part may be absent.
func (t *Table) Attention(chunk, kvPrefill, nDecode, kvDecode, tp int, compat bool) (stat.Estimate[unit.Seconds], error) {
	return t.Time(profile.Layer{
		Name: t.attentionName(tp), Tokens: chunk, Context: kvPrefill, Sequences: nDecode, SequenceContext: kvDecode, TensorParallel: tp,
	}, compat)
}

// attentionName is attention's name at a number of ranks.
func (t *Table) attentionName(tp int) string {
	rank := t.ranks[cmp.Or(tp, t.options.TensorParallel)]
	if rank[attention] == nil && rank[seedAttention] != nil {
		return seedAttention
	}
	return attention
}

// attend is the time of a batch, whose contexts may be means.
func (t *Table) attend(l *layer, b batch, compat bool) (stat.Estimate[unit.Seconds], error) {
	none := stat.Estimate[unit.Seconds]{}
	if b.c == 0 && b.n == 0 {
		return none, fmt.Errorf("attention of no tokens and no sequences: want at least one")
	}
	if b.c == 0 {
		b.p = 0
	}
	if b.n == 0 {
		b.k = 0
	}
	if compat {
		ns, basis, ok := l.compat(t.generation, size{int(b.c), int(b.p), int(b.n), int(b.k), 0}, b)
		if !ok {
			return none, notMeasured(b.String(), "there is no such point")
		}
		return stat.Exactly(unit.Seconds(ns*1e-9), basis), nil
	}
	a, ok := l.model(t.options.Level).ask(b)
	if !ok {
		return none, notMeasured(b.String(), "no batches of this kind were timed")
	}
	var measured *row
	if b.k == math.Trunc(b.k) {
		measured = l.row(size{int(b.c), int(b.p), int(b.n), int(b.k), 0})
	}
	return a.estimate(measured), nil
}

// String describes the batch.
func (b batch) String() string {
	return fmt.Sprintf("attention of a chunk of %.0f tokens on %.0f cached ones and %.0f decodes on %.0f", b.c, b.p, b.n, b.k)
}
