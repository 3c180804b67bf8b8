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

// mixedVerdict is what cross-validation inside the training rows found.
type mixedVerdict struct {
	verdict
	choice mixedCandidate
}

// chooseMixed compares forms on folds: neighbouring steps share a drift, so
// steps of a server are held out in stretches of time.
func chooseMixed(ctx context.Context, steps []timed, list []mixedCandidate) (mixedVerdict, error) {
	steps = thinSeries(steps, mixedChoiceRows)
	v := mixedVerdict{choice: list[0]}
	folds := min(mixedFolds, len(steps))
	if folds < 3 {
		return v, nil
	}
	errs := make([][]float64, len(list))
	byFold := make([][]float64, len(list)) // mean clipped errors
	numbers := foldNumbers(len(steps), folds, func(i int) bool { return steps[i].series })
	for fold := range folds {
		var train, test []timed
		for i, s := range steps {
			if numbers[i] == fold {
				test = append(test, s)
			} else {
				train = append(train, s)
			}
		}
		if err := mixedErrors(ctx, train, test, list, func(k int, log float64, _ *timed) { errs[k] = append(errs[k], log) }); err != nil {
			return v, err
		}
		for k, es := range errs {
			byFold[k] = append(byFold[k], meanAPE(es[len(es)-len(test):], maxAPE))
		}
	}
	upper := make([][]distant, len(list))
	all := mixedRangeOf(steps)
	for _, above := range []func(*timed) bool{
		func(s *timed) bool {
			return s.decodeRequests > all.MaxDecodeRequests/4 || s.prefillRequests > max(all.MaxPrefillRequests/4, 1)
		},
		func(s *timed) bool { return s.prefillTokens > all.MaxPrefillTokens/4 },
	} {
		var train, test []timed
		for i := range steps {
			if above(&steps[i]) {
				test = append(test, steps[i])
			} else {
				train = append(train, steps[i])
			}
		}
		if len(train) < max(minUpperRows, len(steps)/4) {
			continue
		}
		known := mixedRangeOf(train)
		if err := mixedErrors(ctx, train, test, list, func(k int, log float64, s *timed) {
			if d := known.outside(&s.work); !d.inside() {
				upper[k] = append(upper[k], distant{log, d})
			}
		}); err != nil {
			return v, err
		}
	}
	v.plain, v.scores = make([]float64, len(list)), make([]float64, len(list))
	for k, es := range errs {
		v.plain[k], v.scores[k] = meanAPE(es, math.Inf(1)), meanAPE(es, maxAPE)
	}
	at := pickMixed(v.scores, byFold, upper)
	v.choice, v.errors, v.upper = list[at], errs[at], upper[at]
	return v, nil
}

// The rule by which a richer form of mixed steps replaces a plainer one: it
// lowers the error by a ratio, in most folds, and goes on beyond its data not
// much worse, in difference of relative errors. Single steps are noisy, so
// that a ratio alone tells little: that all folds agree does.
const (
	richerGain  = 0.995
	richerFolds = 0.8
	richerUpper = 0.02
)

// pickMixed returns the form to keep; the list goes from plain to rich.
func pickMixed(scores []float64, byFold [][]float64, upper [][]distant) int {
	beyond := func(k int) float64 {
		var logs []float64
		for _, d := range upper[k] {
			logs = append(logs, d.log)
		}
		if len(logs) == 0 {
			return 0
		}
		return meanAPE(logs, maxAPE)
	}
	best := 0
	for k := 1; k < len(scores); k++ {
		wins := 0
		for f, e := range byFold[k] {
			if e < byFold[best][f] {
				wins++
			}
		}
		if scores[k] < richerGain*scores[best] && float64(wins) >= richerFolds*float64(len(byFold[k])) && beyond(k) <= beyond(best)+richerUpper {
			best = k
		}
	}
	return best
}

// mixedErrors fits every form to train and hands on its log(y/p) on test;
// infinite where the form could not be fitted.
func mixedErrors(ctx context.Context, train, test []timed, list []mixedCandidate, take func(k int, log float64, s *timed)) error {
	floor := mixedFloor(train)
	var faults []error
	for k, c := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		terms, err := fitMixed(train, c)
		if err != nil {
			faults = append(faults, err)
		}
		for i := range test {
			log := math.Inf(1)
			if err == nil {
				log = math.Log(test[i].y / max(sumWork(terms, &test[i].work), floor))
			}
			take(k, log, &test[i])
		}
	}
	if len(faults) == len(list) {
		return errors.Join(faults...)
	}
	return nil
}

// foldNumbers deals n rows into folds: those of a series in stretches, in
// order, the others in turn.
func foldNumbers(n, folds int, series func(int) bool) []int {
	inSeries := 0
	for i := range n {
		if series(i) {
			inSeries++
		}
	}
	out := make([]int, n)
	met, others := 0, 0
	for i := range n {
		if series(i) {
			out[i] = met * folds / inSeries
			met++
			continue
		}
		out[i] = others % folds
		others++
	}
	return out
}

// thinSeries keeps at most about limit steps: whole blocks of neighbours,
// evenly spread.
func thinSeries(steps []timed, limit int) []timed {
	if len(steps) <= limit {
		return steps
	}
	blocks := (len(steps) + blockSteps - 1) / blockSteps
	keep := limit / blockSteps
	out := make([]timed, 0, limit)
	for k := range keep {
		from := k * blocks / keep * blockSteps
		out = append(out, steps[from:min(from+blockSteps, len(steps))]...)
	}
	return out
}

// timedOf are the rows as the fit sees them, mixed ones in the order of their
// file and then the others. Sizes that some rows lack are filled in where most
// have them; cached and pairs say whether they are known. perRequest is the
// median number of cached tokens a request.
func timedOf(rows []Row) (steps []timed, cached, pairs bool, perRequest float64) {
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b Row) int {
		if a.Mode == Mixed && b.Mode == Mixed {
			return cmp.Compare(a.Index, b.Index)
		}
		return cmp.Compare(fromOrder(a.Mode), fromOrder(b.Mode))
	})
	var each []float64
	lacking, prompts := 0, 0
	pairs = true
	for i := range sorted {
		r := &sorted[i]
		s := timed{work: r.work(), y: r.Median, series: r.series()}
		steps = append(steps, s)
		if math.IsNaN(s.cached) {
			lacking++
		} else {
			each = append(each, s.cached/(s.prefillRequests+s.decodeRequests))
		}
		if s.prefillTokens > 0 {
			prompts++
		}
		pairs = pairs && !math.IsNaN(s.pairs)
	}
	cached = len(each) > 0 && float64(lacking) <= mostUnknown*float64(len(steps))
	pairs = pairs && prompts > 0
	if cached {
		perRequest = stat.Median(each)
	}
	for i := range steps {
		s := &steps[i]
		if !cached {
			s.cached = 0
		} else if math.IsNaN(s.cached) {
			s.cached = perRequest * (s.prefillRequests + s.decodeRequests)
		}
		if !pairs {
			s.pairs = 0
		}
	}
	return steps, cached, pairs, perRequest
}

// fromOrder puts mixed rows first.
func fromOrder(m Mode) int {
	if m == Mixed {
		return 0
	}
	return 1
}

// meanDelay is by how much the steps of a server took longer in the mean than
// the form tells, in seconds; at least 0.
func meanDelay(form *MixedForm, steps []timed) float64 {
	model := mixedModel{form: *form, cached: true, pairs: true}
	sum, n := 0.0, 0
	for i := range steps {
		if steps[i].series {
			w := steps[i].work
			model.fill(&w)
			sum += steps[i].y - model.at(&w)
			n++
		}
	}
	return max(sum/float64(max(n, 1)), 0)
}

// trainMixed fits the model of mixed steps to mixed rows and to what else was
// timed beside them.
func trainMixed(ctx context.Context, rows []Row, options Options) (*mixedModel, ModeReport, error) {
	own := rowsOf(rows, Mixed)
	report := ModeReport{Mode: Mixed, Rows: len(own)}
	for i := range rows {
		r := &rows[i]
		if err := r.checkWork(); err != nil || !possibleTime(r.Median) || !possibleTime(r.Mean) {
			return nil, report, fmt.Errorf("%s row of %q, median %v s, mean %v s: not a measurement", r.Mode, r.Origin, r.Median, r.Mean)
		}
	}
	steps, cached, _, perRequest := timedOf(rows)
	form := MixedForm{Rows: len(own), Range: mixedRangeOf(steps), Floor: mixedFloor(steps)}
	list := mixedCandidates()
	if options.Model == LinearModel {
		list = []mixedCandidate{{name: LinearModel, linear: true}}
	}
	v, err := chooseMixed(ctx, steps, list)
	if err != nil {
		return nil, report, err
	}
	for k := range v.scores {
		report.Candidates = append(report.Candidates, CandidateScore{Name: list[k].name, MAPE: 100 * v.plain[k], Clipped: 100 * v.scores[k]})
	}
	if form.Bands, err = bands(Mixed, v.verdict); err != nil {
		return nil, report, err
	}
	if err := ctx.Err(); err != nil {
		return nil, report, err
	}
	if form.Terms, err = fitMixed(steps, v.choice); err != nil {
		return nil, report, err
	}
	form.Model, report.Chosen = v.choice.name, v.choice.name
	if cached {
		form.CachedPerRequest = perRequest
	}
	form.Delay = meanDelay(&form, steps)
	model, err := newMixedModel(form)
	if err != nil {
		return nil, report, err
	}
	model.trained = fingerprintOf(own)
	return model, report, nil
}
