package fit

import (
	"cmp"
	"context"
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

// Score is the error of a model on rows, as a rule on rows that it was not
// trained on. Errors are in percent of the measured time.
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
	// TrainedOn is how many of them are of configurations that the model was
	// trained on; null if that is not known.
	TrainedOn *int `json:"trained_on"`
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
	// percent, all of the rows that have an interval; WithInterval is their
	// number. Null where none has.
	Coverage80 *float64 `json:"coverage80"`
	Coverage95 *float64 `json:"coverage95"`
	Width80    *float64 `json:"width80"`
	// WithInterval is less than N where rows lie far outside the data.
	WithInterval int `json:"with_interval"`
}

// tally gathers the errors of one mode.
type tally struct {
	signed, widths []float64 // fractions
	in80, in95, of int
	known          int // rows that were trained on
}

// add scores p on one row.
func (t *tally) add(p *Predictor, r Row, target Target) error {
	q := r.query()
	if f, err := p.fitted(r.Mode); err == nil && f.surface != nil && math.Abs(r.Context-f.offset-float64(r.InputLen)) >= 1 && r.Mode == Decode {
		cached := int(math.Round(r.Context)) // timed after another number of steps than usual
		q.Context = &cached
	}
	if r.Mode == Decode && !p.trained(Decode) {
		cached := int(math.Round(r.Context))
		q.Context = &cached
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
		Model: model, Mode: m, Split: split, Target: target, N: len(sizes), TrainedOn: &t.known, WithInterval: t.of,
		MAPE: 100 * stat.Mean(sizes), Median: 100 * stat.Median(sizes), P90: 100 * stat.Quantile(sizes, 0.9),
		Max: 100 * slices.Max(sizes), Bias: 100 * stat.Median(t.signed),
	}
	if t.of > 0 {
		s.Coverage80 = percent(float64(t.in80) / float64(t.of))
		s.Coverage95 = percent(float64(t.in95) / float64(t.of))
		s.Width80 = percent(stat.Median(t.widths))
	}
	return s
}

// query asks for the row's step.
func (r *Row) query() Query {
	if r.Mode == Mixed {
		return Query{Mode: Mixed, Totals: r.Totals, Pass: r.Pass}
	}
	return Query{Mode: r.Mode, BatchSize: r.BatchSize, InputLen: r.InputLen}
}

// answers reports whether the predictor knows steps of a mode, be it by the
// model of mixed steps.
func (p *Predictor) answers(m Mode) bool {
	switch m {
	case Mixed:
		return p.mixed != nil
	case Prefill:
		return p.trained(m) || p.mixed != nil && p.mixed.form.Range.MaxPrefillTokens > 0
	case Decode:
	}
	return p.trained(m) || p.mixed != nil && p.mixed.form.Range.MaxDecodeTokens > 0
}

// trainedOn is what the predictor remembers of the rows of a mode.
func (p *Predictor) trainedOn(m Mode) *fingerprint {
	if m == Mixed && p.mixed != nil {
		return p.mixed.trained
	}
	if f, err := p.fitted(m); err == nil {
		return f.trained
	}
	return nil
}

// ScorePredictor scores a finished predictor on rows of the modes that it
// knows; model and split are the names to report. [Score.TrainedOn] tells how
// many of the rows it was trained on; a bare file of four weights does not say.
func ScorePredictor(p *Predictor, rows []Row, target Target, model, split string) ([]Score, error) {
	if err := target.validate(); err != nil {
		return nil, err
	}
	var out []Score
	for _, m := range allModes() {
		if !p.answers(m) {
			continue
		}
		var t tally
		for _, r := range rowsOf(rows, m) {
			if err := t.add(p, r, target); err != nil {
				return nil, err
			}
		}
		if len(t.signed) == 0 {
			continue
		}
		score := t.score(model, m, split, target)
		score.TrainedOn = p.trainedOn(m).count(rowsOf(rows, m))
		out = append(out, score)
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
	// Train and Test say what a row is for.
	Train, Test func(Row) bool

	series string // the name for mixed rows, where that is another
}

// parts are the rows to train on and to test on.
func (s Split) parts(rows []Row) (train, test []Row) {
	for _, r := range rows {
		if s.Train(r) {
			train = append(train, r)
		}
		if s.Test(r) {
			test = append(test, r)
		}
	}
	return train, test
}

// HoldOut trains each model on one part of the rows and scores it on another.
// The linear model is trained on the target itself, auto on medians. Scores
// come by mode, then in the order of models. When ctx ends the error is ctx's.
func HoldOut(ctx context.Context, rows []Row, split Split, models []string, target Target) ([]Score, error) {
	return evaluate(ctx, rows, split.Name, []Split{split}, models, target)
}

// CrossValidate scores each model by k-fold cross-validation: row number n of
// the file ([Row.Index]) is held out in fold n mod k, so the folds are the
// same on every run, and in all modes. The split is named "mod<k>". Mixed steps
// that a server logged in their order are held out in k stretches of time,
// since neighbours resemble each other; that split is named "blocks<k>". The
// linear model is trained on the target itself, auto on medians. Scores come
// by mode, then in the order of models. When ctx ends the error is ctx's.
func CrossValidate(ctx context.Context, rows []Row, k int, models []string, target Target) ([]Score, error) {
	folds, err := foldsOf(rows, k)
	if err != nil {
		return nil, fmt.Errorf("cross-validate %w", err)
	}
	return evaluate(ctx, rows, fmt.Sprintf("mod%d", k), folds, models, target)
}

// foldsOf cuts rows into k folds by their number in the file, and the steps of
// a server into k stretches.
func foldsOf(rows []Row, k int) ([]Split, error) {
	var series []int // the numbers of the steps of a server
	for i := range rows {
		if rows[i].series() {
			series = append(series, rows[i].Index)
		}
	}
	slices.Sort(series)
	if len(series) > 0 && (k < 2 || len(series) < k) {
		return nil, fmt.Errorf("%s: %d folds of %d steps: want at least 2 folds and as many steps", Mixed, k, len(series))
	}
	for _, m := range allModes() {
		own := slices.DeleteFunc(rowsOf(rows, m), func(r Row) bool { return r.series() })
		if m == Mixed && len(series) > 0 && len(own) < k {
			continue // the stretches alone are enough to test
		}
		if k < 2 || (len(own) > 0 && len(own) < k) {
			return nil, fmt.Errorf("%s: %d folds of %d rows: want at least 2 folds and as many rows", m, k, len(own))
		}
		if len(own) > 0 && !slices.ContainsFunc(own, func(r Row) bool { return r.Index%k != own[0].Index%k }) {
			return nil, fmt.Errorf("%s: the numbers of all %d rows in the file leave the remainder %d when divided by %d: want another number of folds", m, len(own), own[0].Index%k, k)
		}
	}
	folds := make([]Split, k)
	for f := range folds {
		folds[f].Test = func(r Row) bool {
			if r.series() {
				at, _ := slices.BinarySearch(series, r.Index)
				return at*k/len(series) == f
			}
			return r.Index%k == f
		}
		folds[f].Train = func(r Row) bool { return !folds[f].Test(r) }
	}
	if len(series) > 0 {
		for f := range folds {
			folds[f].series = fmt.Sprintf("blocks%d", k)
		}
	}
	return folds, nil
}

// evaluate pools the errors of all folds.
func evaluate(ctx context.Context, rows []Row, name string, folds []Split, models []string, target Target) ([]Score, error) {
	if err := target.validate(); err != nil {
		return nil, err
	}
	if len(models) == 0 {
		return nil, errors.New("score: no model named")
	}
	var out []Score
	for _, m := range allModes() {
		own := rowsOf(rows, m)
		if len(own) == 0 {
			continue
		}
		if m == Mixed {
			own = rows // the others join in training
			name = cmp.Or(folds[0].series, name)
		}
		for _, model := range models {
			var t tally
			for _, fold := range folds {
				if err := t.fold(ctx, m, own, fold, Options{Model: model, LinearTarget: target}, target); err != nil {
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
		return nil, fmt.Errorf("score: no rows of steps: %w", stat.ErrNoData)
	}
	return out, nil
}

// fold trains a mode on one part of the rows and scores it on the other.
func (t *tally) fold(ctx context.Context, m Mode, rows []Row, split Split, options Options, target Target) error {
	train, test := split.parts(rows)
	test = rowsOf(test, m)
	if len(test) == 0 {
		return nil
	}
	p, err := trainOnly(ctx, m, train, options)
	if err != nil {
		return err
	}
	for _, r := range test {
		if err := t.add(p, r, target); err != nil {
			return err
		}
		if split.Train(r) {
			t.known++
		}
	}
	return nil
}
