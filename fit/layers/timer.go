package layers

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// Timer times the steps of one model: what a simulator asks for. It is safe for
// concurrent use, and a question allocates nothing.
type Timer struct {
	table         *Table
	numLayers, tp int
	compat        bool
	attention     *layer
	skew          *skewFit // nil where no batches of unequal lengths were measured
	// byTokens and byRows are the seconds of all layers that work once a token
	// or once a row of logits, and of what ranks exchange for them.
	byTokens, byRows []float64
	exchange         Exchange
}

// Exchange is the time in which tensor-parallel ranks exchange what a step
// computes.
type Exchange struct {
	// Tokens is that of a step of n tokens, all its layers together, Rows that of
	// n rows of logits. Nil is no time.
	Tokens, Rows func(n int) unit.Seconds
}

// mostKept bounds the numbers of tokens and rows whose times are kept.
const mostKept = 1 << 14

// Timer is the table as seen by a model of numLayers blocks on tp ranks. It
// looks up all layers but attention at once, so that every later question is
// quick.
func (t *Table) Timer(numLayers, tp int, compat bool) (*Timer, error) {
	tp = cmp.Or(tp, t.options.TensorParallel)
	if err := t.checkStep(forward.Decode(1, 1), numLayers, tp); err != nil {
		return nil, err
	}
	l, err := t.find(attention, tp, compat)
	if err != nil {
		return nil, err
	}
	m := &Timer{table: t, numLayers: numLayers, tp: tp, compat: compat, attention: l}
	if fit := t.skews[l.tp]; fit != nil && fit.rows > 0 {
		m.skew = fit
	}
	// The shortest step tells whether all layers are there.
	if _, err := m.StepTime(forward.Decode(1, 1)); err != nil {
		return nil, err
	}
	tokens, rows := m.measured()
	m.byTokens, m.byRows = kept(tokens, m.tokens), kept(rows, m.rows)
	return m, nil
}

// With is the timer with what the ranks exchange added to every step.
func (t *Timer) With(e Exchange) *Timer {
	m := *t
	m.exchange = e
	m.byTokens, m.byRows = kept(len(t.byTokens)-1, m.tokens), kept(len(t.byRows)-1, m.rows)
	return &m
}

// measured are the most tokens and rows of logits that any layer but attention
// was measured with.
func (t *Timer) measured() (tokens, rows int) {
	for _, l := range t.table.ranks[t.tp] {
		for _, r := range l.rows {
			switch l.kind {
			case perBatch:
			case perSequence:
				rows = max(rows, r.sequences)
			default:
				tokens = max(tokens, r.tokens)
			}
		}
	}
	return tokens, rows
}

// kept are the times of 0 to most, or up to the first that has none.
func kept(most int, at func(int) (float64, error)) []float64 {
	out := make([]float64, 1, min(most, mostKept)+1)
	for n := 1; n < cap(out); n++ {
		s, err := at(n)
		if err != nil {
			break
		}
		out = append(out, s)
	}
	return out
}

// tokens is the time in seconds of the layers that work once a token.
func (t *Timer) tokens(n int) (float64, error) {
	s, err := t.sum(n, 0)
	if t.exchange.Tokens != nil {
		s += float64(t.exchange.Tokens(n))
	}
	return s, err
}

// rows is the time in seconds of the layers that work once a row of logits.
func (t *Timer) rows(n int) (float64, error) {
	s, err := t.sum(0, n)
	if t.exchange.Rows != nil {
		s += float64(t.exchange.Rows(n))
	}
	return s, err
}

// sum adds up the layers that are given something to do, attention left out.
func (t *Timer) sum(tokens, rows int) (float64, error) {
	parts, err := t.table.stepParts(t.numLayers, t.tp)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, p := range parts {
		l, err := t.table.find(p.name, t.tp, t.compat)
		if err != nil {
			return 0, fmt.Errorf("time of a step: %w", err)
		}
		ask := profile.Layer{Name: p.name, Tokens: tokens, TensorParallel: t.tp}
		switch l.kind {
		case perBatch:
			continue
		case perSequence:
			ask.Tokens, ask.Sequences = 0, rows
		case perExpert:
			ask.ActivatedExperts = l.lines[len(l.lines)-1].experts
		}
		if ask.Tokens+ask.Sequences == 0 {
			continue
		}
		e, err := t.table.Time(ask, t.compat)
		if err != nil {
			return 0, fmt.Errorf("time of a step: %w", err)
		}
		sum += float64(e.Value) * p.times
	}
	return sum, nil
}

// StepTime is the time of a pass, see [Table.Iteration].
func (t *Timer) StepTime(pass forward.Pass) (time.Duration, error) {
	if err := checkPass(pass, t.numLayers); err != nil {
		return 0, err
	}
	seconds, err := t.attend(pass)
	if err != nil {
		return 0, fmt.Errorf("time of a step: %w", err)
	}
	seconds *= float64(t.numLayers)
	for _, part := range [...]struct {
		n    int
		kept []float64
		at   func(*Timer, int) (float64, error)
	}{
		{pass.Tokens(), t.byTokens, (*Timer).tokens},
		{pass.Rows(), t.byRows, (*Timer).rows},
	} {
		if part.n < len(part.kept) {
			seconds += part.kept[part.n]
			continue
		}
		s, err := part.at(t, part.n)
		if err != nil {
			return 0, err
		}
		seconds += s
	}
	ns := seconds * 1e9
	if !(ns > 0 && ns < math.MaxInt64/2) {
		return 0, fmt.Errorf("time of a step: %v s is out of range", seconds)
	}
	return time.Duration(math.Round(ns)), nil
}

// attend is the time in seconds of one attention call of a pass.
func (t *Timer) attend(pass forward.Pass) (float64, error) {
	b, _ := joined(pass, t.table.generation == V10 && t.compat)
	b.n, b.k = float64(pass.Decode.Count), pass.MeanDecodeContext()
	mean, err := t.batch(b)
	shortest, longest, ok := spread(pass)
	if err != nil || !ok || t.skew == nil {
		return mean, err
	}
	top := b
	top.k = float64(longest)
	high, err := t.batch(top)
	if err != nil {
		return 0, err
	}
	alpha := t.skew.between(b, shortest, longest, t.compat)
	if high <= mean || alpha == 0 {
		return mean, nil
	}
	mean += alpha * (high - mean)
	if t.compat {
		mean = max(1, math.Trunc(mean*1e9)) * 1e-9
	}
	return mean, nil
}

// batch is the time in seconds of attention for a batch.
func (t *Timer) batch(b batch) (float64, error) {
	if t.compat {
		e, err := t.table.attend(t.attention, b, true)
		return float64(e.Value), err
	}
	if b.c == 0 {
		b.p = 0
	}
	if b.n == 0 {
		b.k = 0
	}
	a, ok := t.attention.model(t.table.options.Level).time(b)
	if !ok {
		return 0, notMeasured(b.String(), "no batches of this kind were timed")
	}
	return a.seconds, nil
}
