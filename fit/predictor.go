package fit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Form is the native form of a fitted mode: a sum of physical terms times the
// exponential of a residual, made non-decreasing in batch size and in size.
type Form struct {
	// Model names the shape; "linear" without Terms stands for the four
	// linear weights themselves.
	Model string
	// Rows is the number of rows it was trained on.
	Rows int
	// Terms are the physical part, in seconds.
	Terms []Term
	// Residual corrects the terms near the data; nil for none.
	Residual *Residual
	// Floor is the smallest time of the physical part, in seconds.
	Floor float64
	// Range is what was measured.
	Range Range
	// Bands are the intervals, the default first; empty where too few rows
	// were known.
	Bands []Band
}

// fitted is a trained mode.
type fitted struct {
	linear  Linear
	form    *Form        // nil for a bare file of the original
	surface *surface     // nil where linear answers
	known   bool         // the range of form is known
	offset  float64      // context less input length of the timed steps, in tokens
	trained *fingerprint // nil where the training rows are not known
}

func newFitted(linear Linear, form *Form, offset float64) (*fitted, error) {
	f := &fitted{linear: linear, form: form, known: form != nil, offset: offset}
	if form == nil || len(form.Terms) == 0 {
		return f, nil
	}
	f.surface = newSurface(shape{terms: form.Terms, residual: form.Residual, floor: form.Floor}, form.Range)
	for _, t := range f.surface.times {
		if !(t > 0) || math.IsInf(t, 1) {
			return nil, errors.New("the fitted function is not positive and finite over its range")
		}
	}
	return f, nil
}

// Predictor tells how long a step takes. The zero value knows no mode. It is
// safe for concurrent use.
type Predictor struct {
	fits  [2]*fitted  // by modes()
	mixed *mixedModel // nil without one
	gap   *Gap        // nil where it is not known
	from  Origin
}

// Origin names the model and the device that were measured, as the measurement
// spelled them; each is empty where it did not say. TensorParallel is the number
// of ranks that shared each layer; 0 where it did not say.
type Origin struct {
	Model, Device  string
	TensorParallel int
}

// Origin is what the metadata of the predictor's file say was measured. It is
// empty for a predictor that was not read from one.
func (p *Predictor) Origin() Origin { return p.from }

// Query asks for the time of one step.
type Query struct {
	// Mode is the kind of step.
	Mode Mode
	// BatchSize is the number of sequences.
	BatchSize int
	// InputLen is the number of prompt tokens of each sequence.
	InputLen int
	// Context is the number of cached tokens of each decoding sequence. Nil
	// means the mean over the steps that were timed after a prompt of
	// InputLen tokens. In a prefill, where it counts the cached tokens before
	// each prompt, it means 0.
	Context *int
	// Totals or Pass tell what a step computes instead, and then Mode is
	// [Mixed] or empty and the other fields stay empty. Of both, Pass counts.
	Totals *forward.Totals
	Pass   *forward.Pass
}

// NotMeasuredError says that a predictor was asked about something that its
// measurements say nothing of.
type NotMeasuredError struct {
	// What was asked, and Why no measurement answers it.
	What, Why string
}

// Error implements error.
func (e *NotMeasuredError) Error() string { return e.What + ": not measured: " + e.Why }

// Hint says what to do.
func (e *NotMeasuredError) Hint() string {
	return "measure it and train again, or ask for a theoretical estimate"
}

func (p *Predictor) fitted(m Mode) (*fitted, error) {
	for k, known := range modes() {
		if known != m {
			continue
		}
		if p.fits[k] == nil {
			return nil, &NotMeasuredError{What: string(m) + " step", Why: "the predictor was trained without " + string(m) + " rows"}
		}
		return p.fits[k], nil
	}
	return nil, fmt.Errorf("mode %q: want %s, %s, or %s with totals or a pass", m, Prefill, Decode, Mixed)
}

// Modes lists the modes that were trained.
func (p *Predictor) Modes() []Mode {
	var out []Mode
	for k, m := range modes() {
		if p.fits[k] != nil {
			out = append(out, m)
		}
	}
	if p.mixed != nil {
		out = append(out, Mixed)
	}
	return out
}

// Linear returns the four-weight regression of a mode; ok is false if the
// mode was not trained.
func (p *Predictor) Linear(m Mode) (l Linear, ok bool) {
	f, err := p.fitted(m)
	if err != nil {
		return Linear{}, false
	}
	return f.linear, true
}

// Form returns the native form of a mode; ok is false if the mode was not
// trained or holds nothing but linear weights. The form must not be changed.
func (p *Predictor) Form(m Mode) (form Form, ok bool) {
	f, err := p.fitted(m)
	if err != nil || f.form == nil {
		return Form{}, false
	}
	return *f.form, true
}

// Predict estimates the time of a step, with an interval of level 0.8 where
// enough rows were known (see [Predictor.PredictAt]).
func (p *Predictor) Predict(q Query) (stat.Estimate[unit.Seconds], error) {
	return p.PredictAt(q, levels()[0])
}

// PredictAt is [Predictor.Predict] with an interval of the given level, 0.8
// or 0.95. The estimate's Level is what the number of rows can promise.
//
// Inside the measured ranges of batch size, of length and of their product
// the basis is interpolated, outside it is extrapolated: the interval widens
// with the distance and its level is what it was made for, not what was
// checked. More than four octaves outside in any of the three there is no
// interval but a warning. Without a known range, in a bare file of four
// weights, the basis is fitted.
//
// Mixed steps, prefill on cached tokens, and the modes that no rows of their
// own were trained on are answered by the model of mixed steps where there is
// one: its range is that of the sizes of a step, and what it does not know,
// such as contexts that a log left out, is said in a warning. Otherwise they
// are a [NotMeasuredError].
func (p *Predictor) PredictAt(q Query, level float64) (stat.Estimate[unit.Seconds], error) {
	none := stat.Estimate[unit.Seconds]{}
	if w, warning, answered, err := p.mixedQuery(q); answered {
		if err != nil {
			return none, err
		}
		if level != levels()[0] && level != levels()[1] {
			return none, fmt.Errorf("interval of level %v: want %v or %v", level, levels()[0], levels()[1])
		}
		out, err := p.mixed.estimate(w, level)
		if warning != "" && err == nil {
			out.Warnings = append(out.Warnings, warning)
		}
		return out, err
	}
	f, err := p.fitted(q.Mode)
	if err != nil {
		return none, err
	}
	if level != levels()[0] && level != levels()[1] {
		return none, fmt.Errorf("interval of level %v: want %v or %v", level, levels()[0], levels()[1])
	}
	x, err := f.size(q)
	if err != nil {
		return none, err
	}
	b := float64(q.BatchSize)
	value := f.at(q.Mode, b, x)
	out := stat.Exactly(unit.Seconds(value), stat.Fitted)
	if value <= 0 {
		out.Warnings = []string{"the linear model gives a time that is not positive"}
	}
	if !f.known {
		return out, nil
	}
	away := f.form.Range.outside(b, x)
	out.Basis = stat.Interpolated
	if !away.inside() {
		out.Basis = stat.Extrapolated
	}
	if away.far() {
		out.Warnings = append(out.Warnings, "far outside the measured range: no interval is known")
		return out, nil
	}
	for _, band := range f.form.Bands {
		if band.Asked == level && value > 0 {
			half := math.Exp(min(band.at(away), 10*maxLogWidth))
			out.Low, out.High, out.Level = unit.Seconds(value/half), unit.Seconds(value*half), band.Level
		}
	}
	return out, nil
}

// size is the query's input length or context in tokens.
func (f *fitted) size(q Query) (float64, error) {
	cached := 0
	if q.Context != nil {
		cached = *q.Context
	}
	if q.BatchSize < 1 || q.BatchSize > maxCount || q.InputLen < 0 || q.InputLen > maxCount || cached < 0 || cached > maxCount {
		return 0, fmt.Errorf("%s step of batch size %d, input length %d, context %d: want a batch size of 1 to 2^40, lengths of 0 to 2^40", q.Mode, q.BatchSize, q.InputLen, cached)
	}
	switch {
	case q.Mode == Decode && q.Context != nil:
		return float64(cached), nil
	case q.InputLen == 0:
		return 0, fmt.Errorf("%s step of batch size %d: want an input length of at least 1", q.Mode, q.BatchSize)
	case q.Mode == Decode:
		return float64(q.InputLen) + f.offset, nil
	case cached > 0:
		return 0, &NotMeasuredError{What: fmt.Sprintf("prefill of %d tokens on %d cached ones", q.InputLen, cached), Why: "only whole prompts were timed"}
	}
	return float64(q.InputLen), nil
}

// at is the predicted time in seconds at batch size b and size x.
func (f *fitted) at(m Mode, b, x float64) float64 {
	if f.surface != nil {
		return f.surface.at(b, x)
	}
	if m == Decode {
		x -= f.offset
	}
	return f.linear.At(m, b, x)
}

// mixedQuery turns a query that the model of mixed steps answers into sizes.
// answered is false for those of a homogeneous mode that has a model of its
// own, or where there is no model of mixed steps to help out.
func (p *Predictor) mixedQuery(q Query) (w work, warning string, answered bool, err error) {
	if q.Pass != nil || q.Totals != nil {
		w, err = p.workOfQuery(q)
		if err == nil && q.Pass != nil && w.cached > w.prefillTokens+w.decodeTokens {
			warning = p.mixed.contextWarning(&w)
		}
		return w, warning, true, err
	}
	if p.mixed == nil || q.Mode != Prefill && q.Mode != Decode {
		return work{}, "", false, nil
	}
	cached := q.Context != nil && *q.Context > 0
	if p.trained(q.Mode) && (q.Mode == Decode || !cached) {
		return work{}, "", false, nil
	}
	size := fitted{}
	context := 0.0
	if q.Mode == Prefill && cached {
		context = float64(*q.Context)
		q.Context = nil
	}
	x, err := size.size(q)
	if err != nil {
		return work{}, "", true, err
	}
	if context > maxCount {
		return work{}, "", true, fmt.Errorf("prefill on %v cached tokens: want at most 2^40", context)
	}
	b := float64(q.BatchSize)
	if q.Mode == Decode {
		w = work{decodeTokens: b, decodeRequests: b, cached: b * (x + 1)}
		warning = p.mixed.contextWarning(&w)
		return w, warning, true, nil
	}
	w = work{prefillTokens: b * x, prefillRequests: b, cached: b * (x + context), pairs: b * x * (context + x/2)}
	if cached {
		warning = p.mixed.contextWarning(&w)
	}
	return w, warning, true, nil
}

// workOfQuery reads the sizes off totals or a pass.
func (p *Predictor) workOfQuery(q Query) (work, error) {
	if q.Mode != Mixed && q.Mode != "" || q.BatchSize != 0 || q.InputLen != 0 || q.Context != nil {
		return work{}, fmt.Errorf("%s query with totals or a pass: want mode %s and no other sizes", q.Mode, Mixed)
	}
	if p.mixed == nil {
		return work{}, noMixed()
	}
	if q.Pass == nil {
		return totalsWork(*q.Totals)
	}
	w, ok := passWork(q.Pass)
	if !ok {
		return work{}, fmt.Errorf("mixed step: %w", cmp.Or(q.Pass.Validate(), errors.New("a count above 2^40")))
	}
	return w, nil
}

// StepTime is the predicted time of a pass. Whole prompts of one length and
// decoding sequences, which are taken at their mean context, are answered by
// the models of those steps where they were trained; any other pass by the
// model of mixed steps. Without that it is a [NotMeasuredError]: parts of a
// mixed step do not add up.
func (p *Predictor) StepTime(pass forward.Pass) (time.Duration, error) {
	took, _, err := p.stepTime(&pass, false)
	return took, err
}

// StepTimeRanged is StepTime, and says whether that lies outside what was
// measured. A predictor whose range is not known says that it does not.
func (p *Predictor) StepTimeRanged(pass forward.Pass) (took time.Duration, extrapolated bool, err error) {
	return p.stepTime(&pass, true)
}

// stepTime is the time of a pass, and where it is asked for also whether that is
// extrapolated.
func (p *Predictor) stepTime(pass *forward.Pass, ranged bool) (took time.Duration, extrapolated bool, err error) {
	m, batch, x, why := homogeneous(pass)
	if p.mixed != nil && (why != "" || !p.trained(m)) {
		w, ok := passWork(pass)
		if !ok {
			return 0, false, fmt.Errorf("step: %w", cmp.Or(pass.Validate(), errors.New("a count above 2^40")))
		}
		took, err = p.mixed.duration(&w)
		return took, ranged && err == nil && !p.mixed.form.Range.holds(&w), err
	}
	switch why {
	case "":
	case "mixed prefill and decode step":
		return 0, false, &NotMeasuredError{What: why, Why: "only homogeneous steps were timed"}
	default:
		return 0, false, &NotMeasuredError{What: why, Why: "only whole prompts of one length were timed"}
	}
	f, err := p.fitted(m)
	if err != nil {
		return 0, false, err
	}
	if batch < 1 || batch > maxCount || !(x >= 0 && x <= maxCount) || (m == Prefill && x < 1) {
		return 0, false, fmt.Errorf("%s step of %d sequences of %v tokens: want at least one sequence and token", m, batch, x)
	}
	ns := f.at(m, float64(batch), x) * 1e9
	if !(ns > 0 && ns < math.MaxInt64/2) {
		return 0, false, fmt.Errorf("%s step of %d sequences of %v tokens: the fitted time of %v s is out of range", m, batch, x, ns/1e9)
	}
	return time.Duration(math.Round(ns)), ranged && f.known && !f.form.Range.holds(float64(batch), x), nil
}

// homogeneous is the mode and the sizes of a pass of equal prompts or of
// decoding sequences; why says what else is in it, empty for nothing.
func homogeneous(pass *forward.Pass) (m Mode, batch int, x float64, why string) {
	m, batch, x = Decode, pass.Decode.Count, pass.MeanDecodeContext()
	if len(pass.Prefill) == 0 {
		return m, batch, x, ""
	}
	m, batch, x = Prefill, 0, float64(pass.Prefill[0].New)
	for i := range pass.Prefill {
		c := &pass.Prefill[i]
		if c.New != pass.Prefill[0].New || c.Context > 0 {
			why = "prefill of prompts of several lengths or on cached tokens"
		}
		batch += c.Count
	}
	if pass.Decode.Count > 0 {
		why = "mixed prefill and decode step"
	}
	return m, batch, x, why
}

// trained reports whether a homogeneous mode has a model of its own.
func (p *Predictor) trained(m Mode) bool {
	if m == Prefill {
		return p.fits[0] != nil
	}
	return p.fits[1] != nil
}
