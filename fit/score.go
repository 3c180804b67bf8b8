package fit

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/stat"
)

// Target says which time of a row counts as the truth.
type Target string

// The targets.
const (
	// Median is the median of the runs: what a warm step takes.
	Median Target = "median"
	// Mean is the mean of the runs, cold ones included, as the measuring
	// program reported it.
	Mean Target = "mean"
)

// of is the row's time in seconds.
func (t Target) of(r Row) float64 {
	if t == Mean {
		return r.Mean
	}
	return r.Median
}

func (t Target) validate() error {
	if t != Median && t != Mean {
		return fmt.Errorf("target %q: want %s or %s", t, Median, Mean)
	}
	return nil
}

// Score is the error of a model on rows that it was not trained on. Errors
// are in percent of the measured time.
type Score struct {
	// Model is what was scored.
	Model string `json:"model"`
	// Mode is the kind of step.
	Mode Mode `json:"mode"`
	// Split names how rows were held out.
	Split string `json:"split"`
	// Target is the time that counted as the truth.
	Target Target `json:"target"`
	// N is the number of rows scored.
	N int `json:"n"`
	// MAPE is the mean absolute error, Median, P90 and Max the quantiles, all
	// in percent.
	MAPE   float64 `json:"mape"`
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	Max    float64 `json:"max"`
	// Bias is the median signed error in percent, positive where the
	// prediction is too long.
	Bias float64 `json:"bias"`
	// Coverage80 and Coverage95 are the percentages of rows inside the
	// intervals of those levels, Width80 the median of (high−low)/value in
	// percent. Null where the model gives no intervals.
	Coverage80 *float64 `json:"coverage80"`
	Coverage95 *float64 `json:"coverage95"`
	Width80    *float64 `json:"width80"`
}

// tally gathers the errors of one mode.
type tally struct {
	signed, widths []float64 // fractions
	in80, in95, of int
}

// add scores p on one row.
func (t *tally) add(p *Predictor, r Row, target Target) error {
	q := Query{Mode: r.Mode, BatchSize: r.BatchSize, InputLen: r.InputLen}
	if f, err := p.fitted(r.Mode); err == nil && f.surface != nil && math.Abs(r.Context-f.offset-float64(r.InputLen)) >= 1 && r.Mode == Decode {
		context := int(math.Round(r.Context)) // timed after another number of steps than usual
		q.Context = &context
	}
	truth := target.of(r)
	narrow, err := p.Predict(q)
	if err != nil {
		return fmt.Errorf("score %s: %w", r.Origin, err)
	}
	wide, err := p.PredictAt(q, levels()[1])
	if err != nil {
		return fmt.Errorf("score %s: %w", r.Origin, err)
	}
	t.signed = append(t.signed, float64(narrow.Value)/truth-1)
	if !narrow.HasInterval() {
		return nil
	}
	t.of++
	t.widths = append(t.widths, float64((narrow.High-narrow.Low)/narrow.Value))
	if float64(narrow.Low) <= truth && truth <= float64(narrow.High) {
		t.in80++
	}
	if float64(wide.Low) <= truth && truth <= float64(wide.High) {
		t.in95++
	}
	return nil
}

func (t *tally) score(model string, m Mode, split string, target Target) Score {
	sizes := make([]float64, len(t.signed))
	for i, e := range t.signed {
		sizes[i] = math.Abs(e)
	}
	percent := func(v float64) *float64 { v *= 100; return &v }
	s := Score{
		Model: model, Mode: m, Split: split, Target: target, N: len(sizes),
		MAPE: 100 * stat.Mean(sizes), Median: 100 * stat.Median(sizes), P90: 100 * stat.Quantile(sizes, 0.9),
		Max: 100 * slices.Max(sizes), Bias: 100 * stat.Median(t.signed),
	}
	if t.of == len(sizes) {
		s.Coverage80 = percent(float64(t.in80) / float64(t.of))
		s.Coverage95 = percent(float64(t.in95) / float64(t.of))
		s.Width80 = percent(stat.Median(t.widths))
	}
	return s
}

// ScorePredictor scores a finished predictor on rows of the modes that it
// knows; model and split are the names to report.
func ScorePredictor(p *Predictor, rows []Row, target Target, model, split string) ([]Score, error) {
	if err := target.validate(); err != nil {
		return nil, err
	}
	var out []Score
	for _, m := range p.Modes() {
		var t tally
		for _, r := range rowsOf(rows, m) {
			if err := t.add(p, r, target); err != nil {
				return nil, err
			}
		}
		if len(t.signed) > 0 {
			out = append(out, t.score(model, m, split, target))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("score %s: no rows of a mode that it knows: %w", model, stat.ErrNoData)
	}
	return out, nil
}

// Split is a way to hold out rows: some are trained on, some scored, some
// perhaps neither.
type Split struct {
	// Name is printed with every score.
	Name string
	// Train and Test say what a row is for, by the row and its index among
	// the rows of its mode.
	Train, Test func(index int, r Row) bool
}

// HoldOut trains each model on one part of the rows and scores it on another.
// The linear model is trained on the target itself, auto on medians. Scores
// come by mode, then in the order of models.
func HoldOut(rows []Row, split Split, models []string, target Target) ([]Score, error) {
	return evaluate(rows, split.Name, []Split{split}, models, target)
}

// CrossValidate scores each model by k-fold cross-validation: row number n of
// a mode, counted from 0 in file order, is held out in fold n mod k, so the
// folds are the same on every run. The split is named "mod<k>". The linear
// model is trained on the target itself, auto on medians. Scores come by mode,
// then in the order of models.
func CrossValidate(rows []Row, k int, models []string, target Target) ([]Score, error) {
	for _, m := range modes() {
		if n := len(rowsOf(rows, m)); k < 2 || (n > 0 && n < k) {
			return nil, fmt.Errorf("cross-validate %s: %d folds of %d rows: want at least 2 folds and as many rows", m, k, n)
		}
	}
	folds := make([]Split, k)
	for f := range folds {
		folds[f].Train = func(index int, _ Row) bool { return index%k != f }
		folds[f].Test = func(index int, _ Row) bool { return index%k == f }
	}
	return evaluate(rows, fmt.Sprintf("mod%d", k), folds, models, target)
}

// evaluate pools the errors of all folds.
func evaluate(rows []Row, name string, folds []Split, models []string, target Target) ([]Score, error) {
	if err := target.validate(); err != nil {
		return nil, err
	}
	if len(models) == 0 {
		return nil, errors.New("score: no model named")
	}
	var out []Score
	for _, m := range modes() {
		own := rowsOf(rows, m)
		if len(own) == 0 {
			continue
		}
		for _, model := range models {
			var t tally
			for _, fold := range folds {
				if err := t.fold(own, fold, Options{Model: model, LinearTarget: target}, target); err != nil {
					return nil, fmt.Errorf("score %s of %s, split %s: %w", m, model, name, err)
				}
			}
			if len(t.signed) == 0 {
				return nil, fmt.Errorf("score %s, split %s: no rows to test: %w", m, name, stat.ErrNoData)
			}
			out = append(out, t.score(model, m, name, target))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("score: no prefill or decode rows: %w", stat.ErrNoData)
	}
	return out, nil
}

// fold trains on one part of the rows of a mode and scores the other.
func (t *tally) fold(rows []Row, split Split, options Options, target Target) error {
	var train, test []Row
	for i, r := range rows {
		if split.Train(i, r) {
			train = append(train, r)
		}
		if split.Test(i, r) {
			test = append(test, r)
		}
	}
	p, _, err := Train(train, options)
	if err != nil {
		return err
	}
	for _, r := range test {
		if err := t.add(p, r, target); err != nil {
			return err
		}
	}
	return nil
}
