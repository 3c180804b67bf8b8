package fit

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// mixedJSON is the form of mixed steps in a file, since version 1.1.
type mixedJSON struct {
	Model            string         `json:"model"`
	Rows             int            `json:"rows"`
	Range            mixedRangeJSON `json:"range"`
	Floor            float64        `json:"floor_s"`
	Delay            float64        `json:"mean_delay_s,omitempty"` // since version 1.2
	CachedPerRequest float64        `json:"cached_tokens_per_request,omitempty"`
	Terms            []termJSON     `json:"terms"`
	Bands            []bandJSON     `json:"intervals,omitempty"`
	Trained          *trainedJSON   `json:"trained_on,omitempty"`
}

type mixedRangeJSON struct {
	PrefillTokens   float64 `json:"max_prefill_tokens"`
	DecodeTokens    float64 `json:"max_decode_tokens"`
	PrefillRequests float64 `json:"max_prefill_requests"`
	DecodeRequests  float64 `json:"max_decode_requests"`
	Cached          float64 `json:"max_cached_tokens,omitempty"`
	Pairs           float64 `json:"max_prefill_pairs,omitempty"`
	Both            bool    `json:"prefill_and_decode"`
}

// gapJSON is the host gap in a file, since version 1.1.
type gapJSON struct {
	Between secondsJSON `json:"between_steps"`
	Before  secondsJSON `json:"before_requests"`
	Periods int         `json:"busy_periods"`
	Steps   int         `json:"steps"`
}

type secondsJSON struct {
	Value    float64  `json:"value_s"`
	Low      float64  `json:"low_s"`
	High     float64  `json:"high_s"`
	Level    float64  `json:"level"`
	Warnings []string `json:"warnings,omitempty"`
}

// termsToJSON writes terms.
func termsToJSON(terms []Term) []termJSON {
	var out []termJSON
	for _, t := range terms {
		term := termJSON{Variable: t.Variable, From: t.From, Coefficient: t.Coefficient, Unit: t.Unit()}
		if !math.IsInf(t.To, 1) {
			term.To = &t.To
		}
		out = append(out, term)
	}
	return out
}

// toJSON writes the model; nil for none.
func (m *mixedModel) toJSON() *mixedJSON {
	if m == nil {
		return nil
	}
	f, r := &m.form, &m.form.Range
	out := &mixedJSON{
		Model: f.Model, Rows: f.Rows, Floor: f.Floor, Delay: f.Delay, CachedPerRequest: f.CachedPerRequest, Terms: termsToJSON(f.Terms), Trained: m.trained.toJSON(),
		Range: mixedRangeJSON{r.MaxPrefillTokens, r.MaxDecodeTokens, r.MaxPrefillRequests, r.MaxDecodeRequests, r.MaxCached, r.MaxPairs, r.Both},
	}
	for _, b := range f.Bands {
		out.Bands = append(out.Bands, bandJSON(b))
	}
	return out
}

// model reads a form back and checks every number; nil for none.
func (j *mixedJSON) model() (*mixedModel, error) {
	if j == nil {
		return nil, nil //nolint:nilnil // a file without one is sound
	}
	r := j.Range
	form := MixedForm{
		Model: j.Model, Rows: j.Rows, Floor: j.Floor, Delay: j.Delay, CachedPerRequest: j.CachedPerRequest,
		Range: MixedRange{r.PrefillTokens, r.DecodeTokens, r.PrefillRequests, r.DecodeRequests, r.Cached, r.Pairs, r.Both},
	}
	var faults []error
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, v := range []float64{r.PrefillTokens, r.DecodeTokens, r.PrefillRequests, r.DecodeRequests, r.Cached, j.CachedPerRequest} {
		if !(v >= 0 && v <= maxCount*maxCount) {
			wrong("range %+v, %v cached tokens a request: want sizes of 0 to 2^80", r, j.CachedPerRequest)
			break
		}
	}
	if !(r.Pairs >= 0 && r.Pairs <= 1e40) {
		wrong("range of %v pairs: want 0 to 1e40", r.Pairs)
	}
	if len(j.Terms) == 0 || len(j.Terms) > maxTerms || len(j.Bands) > maxBands {
		wrong("%d terms and %d intervals: want 1 to %d terms, up to %d intervals", len(j.Terms), len(j.Bands), maxTerms, maxBands)
		return nil, errors.Join(faults...)
	}
	if !possibleTime(j.Floor) {
		wrong("floor of %v s: want a positive time", j.Floor)
	}
	if !(j.Delay >= 0 && j.Delay <= maxGap) {
		wrong("mean delay of %v s: want 0 to %d", j.Delay, maxGap)
	}
	for i, t := range j.Terms {
		term, err := t.term(func(v Variable) bool { return slices.Contains(workVariables(), v) })
		if err != nil {
			wrong("term %d: %w", i, err)
		}
		form.Terms = append(form.Terms, term)
	}
	for i, b := range j.Bands {
		if err := b.check(); err != nil {
			wrong("interval %d: %w", i, err)
		}
		form.Bands = append(form.Bands, Band(b))
	}
	trained, err := j.Trained.fingerprint()
	if err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	m, err := newMixedModel(form)
	if err != nil {
		return nil, err
	}
	m.trained = trained
	return m, nil
}

// term reads a term back; known says which variables it may have.
func (j termJSON) term(known func(Variable) bool) (Term, error) {
	t := Term{Variable: j.Variable, From: j.From, To: math.Inf(1), Coefficient: j.Coefficient}
	if j.To != nil {
		t.To = *j.To
	}
	switch {
	case !known(j.Variable) || unitOf(j.Variable) != j.Unit:
		return t, fmt.Errorf("variable %q in %q: not a variable of this version", j.Variable, j.Unit)
	case !(t.From >= 0 && t.From < t.To) || math.Abs(t.Coefficient) > 1e12:
		return t, fmt.Errorf("from %v to %v, coefficient %v: out of range", t.From, t.To, t.Coefficient)
	}
	return t, nil
}

// check reports an interval that cannot be.
func (j bandJSON) check() error {
	share := func(v float64) bool { return v > 0 && v < 1 }
	width := func(v float64) bool { return v >= 0 && v <= maxLogWidth }
	if !share(j.Asked) || !share(j.Level) || !width(j.HalfWidth) || !width(j.PerBatchOctave) || !width(j.PerSizeOctave) {
		return fmt.Errorf("%+v: out of range", j)
	}
	return nil
}

// toJSON writes the gap; nil for none.
func (g *Gap) toJSON() *gapJSON {
	if g == nil {
		return nil
	}
	seconds := func(e stat.Estimate[unit.Seconds]) secondsJSON {
		return secondsJSON{float64(e.Value), float64(e.Low), float64(e.High), e.Level, e.Warnings}
	}
	return &gapJSON{seconds(g.Between), seconds(g.Before), g.Periods, g.Steps}
}

// gap reads a gap back; nil for none.
func (j *gapJSON) gap() (*Gap, error) {
	if j == nil {
		return nil, nil //nolint:nilnil // a file without one is sound
	}
	estimate := func(s secondsJSON) stat.Estimate[unit.Seconds] {
		e := stat.Exactly(unit.Seconds(s.Value), stat.Fitted)
		e.Low, e.High, e.Level, e.Warnings = unit.Seconds(s.Low), unit.Seconds(s.High), s.Level, s.Warnings
		return e
	}
	g := &Gap{Between: estimate(j.Between), Before: estimate(j.Before), Periods: j.Periods, Steps: j.Steps}
	err := g.check()
	return g, err
}
