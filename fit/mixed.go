package fit

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// MixedForm is the fitted function of mixed steps: a sum of terms over the
// sizes of a step, in seconds. It is non-decreasing in each of them, except
// where it is the plain regression, and but for what a server that comes from
// idle takes longer ([VarFresh]).
type MixedForm struct {
	// Model names the form.
	Model string
	// Rows is the number of mixed rows that it was trained on.
	Rows int
	// Terms are the summands, in seconds.
	Terms []Term
	// Floor is the least time in seconds that is told.
	Floor float64
	// Delay is by how much steps of a server took longer in the mean than is
	// told, in seconds: what is told is a step's usual time, and what else the
	// machine does interrupts some. Whoever adds up many steps adds it to each.
	Delay float64
	// CachedPerRequest is the median number of cached tokens a request in the
	// training rows, for steps whose cache is not known; 0 where no term needs
	// it.
	CachedPerRequest float64
	// Range is what was measured.
	Range MixedRange
	// Bands are the intervals, the default first; empty where too few rows
	// were known. Their batch octaves are of requests, their size octaves of
	// tokens.
	Bands []Band
}

// MixedRange holds the largest sizes that were measured in one step.
type MixedRange struct {
	// MaxPrefillTokens and MaxDecodeTokens are in tokens,
	// MaxPrefillRequests and MaxDecodeRequests in requests, MaxCached in
	// tokens of KV cache, MaxPairs in token pairs.
	MaxPrefillTokens, MaxDecodeTokens     float64
	MaxPrefillRequests, MaxDecodeRequests float64
	MaxCached, MaxPairs                   float64
	// Both says that some step computed prompts and generated.
	Both bool
}

func mixedRangeOf(steps []timed) MixedRange {
	var r MixedRange
	for i := range steps {
		s := &steps[i]
		r.MaxPrefillTokens, r.MaxDecodeTokens = max(r.MaxPrefillTokens, s.prefillTokens), max(r.MaxDecodeTokens, s.decodeTokens)
		r.MaxPrefillRequests, r.MaxDecodeRequests = max(r.MaxPrefillRequests, s.prefillRequests), max(r.MaxDecodeRequests, s.decodeRequests)
		r.MaxCached, r.MaxPairs = max(r.MaxCached, s.cached), max(r.MaxPairs, s.pairs)
		r.Both = r.Both || s.prefillTokens > 0 && s.decodeTokens > 0
	}
	return r
}

// outside measures how far a step lies beyond the range, in octaves of
// requests and of tokens; the cache and the pairs count where they were known.
func (r *MixedRange) outside(w *work) distance {
	beyond := func(v, high float64) float64 {
		if v > high && v > 1 {
			return math.Log2(v / max(high, 1))
		}
		return 0
	}
	d := distance{
		batch: max(beyond(w.prefillRequests, r.MaxPrefillRequests), beyond(w.decodeRequests, r.MaxDecodeRequests), beyond(w.decodeTokens, r.MaxDecodeTokens)),
		size:  beyond(w.prefillTokens, r.MaxPrefillTokens),
	}
	if r.MaxCached > 0 {
		d.size = max(d.size, beyond(w.cached, r.MaxCached))
	}
	if r.MaxPairs > 0 {
		d.size = max(d.size, beyond(w.pairs, r.MaxPairs))
	}
	return d
}

// holds reports whether a step lies within the range: whether outside is no
// distance, without the logarithms.
func (r *MixedRange) holds(w *work) bool {
	within := func(v, high float64) bool { return !(v > high && v > 1) }
	return within(w.prefillRequests, r.MaxPrefillRequests) && within(w.decodeRequests, r.MaxDecodeRequests) &&
		within(w.decodeTokens, r.MaxDecodeTokens) && within(w.prefillTokens, r.MaxPrefillTokens) &&
		(r.MaxCached <= 0 || within(w.cached, r.MaxCached)) && (r.MaxPairs <= 0 || within(w.pairs, r.MaxPairs))
}

// mixedModel is a trained model of mixed steps.
type mixedModel struct {
	form          MixedForm
	cached, pairs bool         // some term needs them
	trained       *fingerprint // nil where the training rows are not known
}

// newMixedModel checks that the form tells positive and finite times.
func newMixedModel(form MixedForm) (*mixedModel, error) {
	m := &mixedModel{form: form}
	for _, t := range form.Terms {
		m.cached = m.cached || t.Variable == VarCached
		m.pairs = m.pairs || t.Variable == VarPairs
	}
	r := form.Range
	most := work{r.MaxPrefillTokens, r.MaxDecodeTokens, r.MaxPrefillRequests, r.MaxDecodeRequests, r.MaxCached, r.MaxPairs}
	if !possibleTime(m.at(&work{})) || !possibleTime(m.at(&most)) {
		return nil, errors.New("the fitted function of mixed steps is not positive and finite over its range")
	}
	return m, nil
}

// fill puts what the training rows suggest in the place of sizes that are not
// known.
func (m *mixedModel) fill(w *work) {
	if m.cached && math.IsNaN(w.cached) {
		w.cached = m.form.CachedPerRequest * (w.prefillRequests + w.decodeRequests)
	}
	if m.pairs && math.IsNaN(w.pairs) {
		w.pairs = w.prefillTokens * w.prefillTokens / (2 * w.prefillRequests)
	}
}

// at is the predicted time in seconds; all sizes that a term needs are known.
func (m *mixedModel) at(w *work) float64 {
	return max(sumWork(m.form.Terms, w), m.form.Floor)
}

// refuse says why no measurement answers for w; nil where one does.
func (m *mixedModel) refuse(w *work) error {
	switch {
	case w.prefillTokens > 0 && m.form.Range.MaxPrefillTokens == 0:
		return &NotMeasuredError{What: "step with prompt tokens", Why: "only steps without prompt tokens were timed"}
	case w.decodeTokens > 0 && m.form.Range.MaxDecodeTokens == 0:
		return &NotMeasuredError{What: "step with generating requests", Why: "only steps without generating requests were timed"}
	}
	return nil
}

// estimate is the predicted time with its interval.
func (m *mixedModel) estimate(w work, level float64) (stat.Estimate[unit.Seconds], error) {
	if err := m.refuse(&w); err != nil {
		return stat.Estimate[unit.Seconds]{}, err
	}
	var warnings []string
	if m.cached && math.IsNaN(w.cached) {
		warnings = append(warnings, "the tokens in the KV cache are not given: as many a request as in the measured steps are taken")
	}
	if m.pairs && math.IsNaN(w.pairs) {
		warnings = append(warnings, "the shapes of the prompt chunks are not given: equal whole prompts are taken")
	}
	m.fill(&w)
	value := m.at(&w)
	out := stat.Exactly(unit.Seconds(value), stat.Interpolated)
	away := m.form.Range.outside(&w)
	if !away.inside() {
		out.Basis = stat.Extrapolated
	}
	if w.prefillTokens > 0 && w.decodeTokens > 0 && !m.form.Range.Both {
		out.Basis = stat.Extrapolated
		warnings = append(warnings, "prompts and generating requests were timed apart, never in one step")
	}
	out.Warnings = warnings
	if away.far() {
		out.Warnings = append(out.Warnings, "far outside the measured range: no interval is known")
		return out, nil
	}
	for _, band := range m.form.Bands {
		if band.Asked == level {
			half := math.Exp(min(band.at(away), 10*maxLogWidth))
			out.Low, out.High, out.Level = unit.Seconds(value/half), unit.Seconds(value*half), band.Level
		}
	}
	return out, nil
}

// duration is the predicted time of a step whose sizes are sound.
func (m *mixedModel) duration(w *work) (time.Duration, error) {
	if err := m.refuse(w); err != nil {
		return 0, err
	}
	m.fill(w)
	ns := m.at(w) * 1e9
	if !(ns > 0 && ns < math.MaxInt64/2) {
		return 0, fmt.Errorf("mixed step of %v tokens: the fitted time of %v s is out of range", w.prefillTokens+w.decodeTokens, ns/1e9)
	}
	return time.Duration(math.Round(ns)), nil
}

// contextWarning is the remark on a question about cached tokens where the
// training rows told nothing of them; empty where they did.
func (m *mixedModel) contextWarning(w *work) string {
	r := &m.form.Range
	if r.MaxCached > 0 || w.decodeTokens == 0 && r.MaxPairs > 0 {
		return ""
	}
	return "the model knows no context lengths: the time is that of the contexts in the measured steps"
}

// passWork is the work of a sound pass; ok is false for any other.
func passWork(p *forward.Pass) (w work, ok bool) {
	if p.Decode.Count < 0 || p.Decode.Count > maxCount || p.Decode.SumContext < 0 || p.Decode.Count == 0 && len(p.Prefill) == 0 {
		return work{}, false
	}
	for i := range p.Prefill {
		c := &p.Prefill[i]
		if c.Count < 1 || c.Count > maxCount || c.New < 1 || c.New > maxCount || c.Context < 0 || c.Context > maxCount {
			return work{}, false
		}
	}
	return workOfPass(p), true
}

// totalsWork is the work of sound totals.
func totalsWork(t forward.Totals) (work, error) {
	if err := t.Validate(); err != nil {
		return work{}, fmt.Errorf("mixed step: %w", err)
	}
	if t.PrefillTokens > maxCount || t.DecodeTokens > maxCount {
		return work{}, fmt.Errorf("mixed step of %d prompt and %d other tokens: want at most 2^40", t.PrefillTokens, t.DecodeTokens)
	}
	return workOfTotals(t), nil
}

// StepTimeOf is [Predictor.StepTime] of a step of which only sums are known.
// Sizes that a term needs and t lacks are taken as in the measured steps.
// Without a mixed model the error is a [NotMeasuredError].
func (p *Predictor) StepTimeOf(t forward.Totals) (time.Duration, error) {
	if p.mixed == nil {
		return 0, noMixed()
	}
	w, err := totalsWork(t)
	if err != nil {
		return 0, err
	}
	return p.mixed.duration(&w)
}

// MixedForm returns the fitted function of mixed steps; ok is false without
// one. The form must not be changed.
func (p *Predictor) MixedForm() (form MixedForm, ok bool) {
	if p.mixed == nil {
		return MixedForm{}, false
	}
	return p.mixed.form, true
}

// Delay is by how much the steps of a server take longer in the mean than is
// told for them: see [MixedForm].
func (p *Predictor) Delay() unit.Seconds {
	if p.mixed == nil {
		return 0
	}
	return unit.Seconds(p.mixed.form.Delay)
}

func noMixed() error {
	return &NotMeasuredError{What: "mixed step", Why: "the predictor was trained without mixed rows"}
}

// work is the sizes of the row's step.
func (r *Row) work() work {
	switch {
	case r.Pass != nil:
		return workOfPass(r.Pass)
	case r.Totals != nil:
		return workOfTotals(*r.Totals)
	case r.Mode == Prefill:
		p := forward.Pass{Prefill: []forward.Chunk{{Count: r.BatchSize, New: r.InputLen, Last: true}}}
		return workOfPass(&p)
	}
	b := float64(r.BatchSize)
	return work{decodeTokens: b, decodeRequests: b, cached: b * (r.Context + 1)}
}

// series reports whether the row is one of the steps that a server ran one
// after another.
func (r *Row) series() bool { return r.Mode == Mixed && r.Totals != nil }

// checkWork reports what makes the row's step impossible.
func (r *Row) checkWork() error {
	switch {
	case r.Mode != Mixed:
		return checkShape(r.BatchSize, r.InputLen, r.Context)
	case r.Pass != nil:
		if _, ok := passWork(r.Pass); !ok {
			return errors.New("a pass that cannot be")
		}
		return nil
	case r.Totals != nil:
		_, err := totalsWork(*r.Totals)
		return err
	}
	return errors.New("neither a pass nor totals are known")
}
