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

// Predictor tells how long a homogeneous prefill or decode step takes. The
// zero value knows no mode. It is safe for concurrent use.
type Predictor struct {
	fits [2]*fitted // by modes()
}

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
	// InputLen tokens. In a prefill it can only be nil or 0.
	Context *int
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
	return nil, fmt.Errorf("mode %q: want %s or %s", m, Prefill, Decode)
}

// Modes lists the modes that were trained.
func (p *Predictor) Modes() []Mode {
	var out []Mode
	for k, m := range modes() {
		if p.fits[k] != nil {
			out = append(out, m)
		}
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
// The error is a [NotMeasuredError] for a mode without training rows and for
// prefill on cached tokens.
func (p *Predictor) PredictAt(q Query, level float64) (stat.Estimate[unit.Seconds], error) {
	none := stat.Estimate[unit.Seconds]{}
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

// StepTime is the predicted time of a homogeneous pass: whole prompts of one
// length, or decoding sequences, which are taken at their mean context. Any
// other pass is a [NotMeasuredError]: parts of a mixed step do not add up.
func (p *Predictor) StepTime(pass forward.Pass) (time.Duration, error) {
	q := Query{Mode: Decode, BatchSize: pass.Decode.Count}
	x := pass.MeanDecodeContext()
	if len(pass.Prefill) > 0 {
		if pass.Decode.Count > 0 {
			return 0, &NotMeasuredError{What: "mixed prefill and decode step", Why: "only homogeneous steps were timed"}
		}
		q = Query{Mode: Prefill}
		first := pass.Prefill[0]
		for _, c := range pass.Prefill {
			if c.New != first.New || c.Context > 0 {
				return 0, &NotMeasuredError{What: "prefill of prompts of several lengths or on cached tokens", Why: "only whole prompts of one length were timed"}
			}
			q.BatchSize += c.Count
		}
		x = float64(first.New)
	}
	f, err := p.fitted(q.Mode)
	if err != nil {
		return 0, err
	}
	if q.BatchSize < 1 || q.BatchSize > maxCount || !(x >= 0 && x <= maxCount) || (q.Mode == Prefill && x < 1) {
		return 0, fmt.Errorf("%s step of %d sequences of %v tokens: want at least one sequence and token", q.Mode, q.BatchSize, x)
	}
	ns := f.at(q.Mode, float64(q.BatchSize), x) * 1e9
	if !(ns > 0 && ns < math.MaxInt64/2) {
		return 0, fmt.Errorf("%s step of %d sequences of %v tokens: the fitted time of %v s is out of range", q.Mode, q.BatchSize, x, ns/1e9)
	}
	return time.Duration(math.Round(ns)), nil
}
