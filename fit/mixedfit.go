package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/llmprof/llmprof/stat"
)

// The fit of mixed steps.
const (
	// blockSteps is the number of neighbouring steps that share a drift: what
	// else the machine did while they ran.
	blockSteps = 32
	// mixedRounds is the number of times that weights and drifts are found
	// anew.
	mixedRounds = 12
	// mixedOutlier is the distance, in robust standard deviations, from which
	// a step loses weight.
	mixedOutlier = 2
	// binsPerOctave says how near two sizes of the cache are to count as equal.
	binsPerOctave = 8
	// mixedFolds is the number of inner folds, mixedChoiceRows the bound on
	// the rows that the form is chosen on.
	mixedFolds      = 5
	mixedChoiceRows = 4096
	// mostUnknown is the share of rows that may lack a size for its term to be
	// fitted.
	mostUnknown = 0.1
)

// timed is a row as the fit of mixed steps sees it.
type timed struct {
	work
	y      float64 // time in seconds
	series bool    // one of the steps of a server in their order
}

// bin is what equal steps of one block have in common.
type bin struct {
	work
	y     float64 // median time in seconds
	n     float64 // number of steps
	block int     // negative where steps were not taken in a row
}

// binsOf takes equal steps that ran within one block together.
func binsOf(steps []timed) (bins []bin, blocks int) {
	type key struct {
		work
		cachedBin, block int
	}
	at := map[key]int{}
	var times [][]float64
	inSeries := 0
	for i := range steps {
		s := &steps[i]
		k := key{work: s.work, cachedBin: int(binsPerOctave * math.Log2(max(s.cached, 1))), block: -1}
		k.cached = 0
		if s.series {
			k.block = inSeries / blockSteps
			blocks = k.block + 1
			inSeries++
		}
		j, seen := at[k]
		if !seen {
			j = len(bins)
			at[k] = j
			bins = append(bins, bin{work: k.work, block: k.block})
			times = append(times, nil)
		}
		bins[j].n++
		bins[j].cached += s.cached
		times[j] = append(times[j], s.y)
	}
	for j := range bins {
		slices.Sort(times[j])
		bins[j].y = stat.QuantileSorted(times[j], 0.5)
		bins[j].cached /= bins[j].n
	}
	return bins, blocks
}

// mixedCandidate is one way to fit mixed steps.
type mixedCandidate struct {
	name      string
	linear    bool    // the regression in seconds
	knots     bool    // tokens bend at powers of two
	stiffness float64 // penalty on bends, relative error per relative bend
}

// mixedCandidates lists the forms from the plainest to the richest.
func mixedCandidates() []mixedCandidate {
	return []mixedCandidate{
		{name: "straight"},
		{name: "bends(10)", knots: true, stiffness: 10},
		{name: "bends(1)", knots: true, stiffness: 1},
	}
}

// mixedBasis lists the terms that bins can tell apart, with a coefficient of
// one. A size that is the same in all bins has no term of its own.
func mixedBasis(bins []bin, c mixedCandidate) []Term {
	terms := []Term{{Variable: VarLaunch, To: 1, Coefficient: 1}}
	speculative := slices.ContainsFunc(bins, func(b bin) bool { return b.decodeRequests != b.decodeTokens })
	for _, v := range workVariables()[1:] {
		least, smallest, largest := math.Inf(1), math.Inf(1), 0.0
		for i := range bins {
			x := bins[i].value(v)
			least, largest = min(least, x), max(largest, x)
			if x > 0 {
				smallest = min(smallest, x)
			}
		}
		switch {
		case least == largest, v == VarDecodeRequests && !speculative:
		case v == VarStepTokens && !c.knots:
		case c.knots && (v == VarStepTokens || v == VarDecodeTokens || v == VarPrefillTokens):
			terms = append(terms, ramps(v, smallest, largest)...)
		default:
			terms = append(terms, Term{Variable: v, To: math.Inf(1), Coefficient: 1})
		}
	}
	return terms
}

// mixedFit is a fit in progress.
type mixedFit struct {
	bins      []bin
	design    *mat.Dense
	weights   []float64 // of outliers
	drift     []float64 // of each block, in natural log units
	predicted []float64 // seconds, without drift
	residuals []float64 // log(y/p), without drift
}

// driftOf is the drift of a bin's block.
func (f *mixedFit) driftOf(i int) float64 {
	if b := f.bins[i].block; b >= 0 {
		return f.drift[b]
	}
	return 0
}

// fitMixed fits a non-negative sum of terms to steps in relative error. The
// time of a step is taken to be that sum times a drift that neighbouring steps
// share, times noise: a server shares its machine, and a slow second says
// nothing of what was computed in it. Drifts are random effects, shrunk by
// what scatters within a block; equal steps of a block count by their median,
// and outliers lose weight by Huber's rule. The mean drift belongs to the
// answer, so that many predicted steps take together what many real ones do.
func fitMixed(steps []timed, c mixedCandidate) ([]Term, error) {
	if c.linear {
		return fitMixedLinear(steps)
	}
	bins, blocks := binsOf(steps)
	terms := mixedBasis(bins, c)
	f := mixedFit{
		bins: bins, design: mat.NewDense(len(bins), len(terms), nil), weights: make([]float64, len(bins)),
		drift: make([]float64, blocks), predicted: make([]float64, len(bins)), residuals: make([]float64, len(bins)),
	}
	for i := range bins {
		row := f.design.RawRowView(i)
		for j, t := range terms {
			row[j] = t.ramp(bins[i].value(t.Variable))
		}
		f.weights[i], f.predicted[i] = 1, bins[i].y
	}
	penalty := f.penalty(terms, c.stiffness)
	var coefficients []float64
	for round := range mixedRounds {
		gram, along := f.normal()
		gram.AddSym(gram, penalty)
		var err error
		coefficients, err = stat.NNLSNormal(gram, along, coefficients)
		if err != nil {
			return nil, fmt.Errorf("terms of mixed steps: %w", err)
		}
		f.judge(coefficients, round > 0)
	}
	var total, n float64
	for i := range bins {
		total += bins[i].n * f.driftOf(i)
		n += bins[i].n
	}
	used := terms[:0]
	for j, v := range coefficients {
		if v > 0 {
			terms[j].Coefficient = v * math.Exp(total/n)
			used = append(used, terms[j])
		}
	}
	return used, nil
}

// normal forms the normal equations of the bins divided by what was predicted
// for them last, drift included, so that long steps and slow blocks count as
// others do.
func (f *mixedFit) normal() (*mat.SymDense, []float64) {
	_, p := f.design.Dims()
	gram := mat.NewSymDense(p, nil)
	raw := gram.RawSymmetric()
	along := make([]float64, p)
	for i := range f.bins {
		row := f.design.RawRowView(i)
		drift := math.Exp(f.driftOf(i))
		each := drift / (f.predicted[i] * drift)
		weight := f.bins[i].n * f.weights[i]
		target := f.bins[i].y / (f.predicted[i] * drift)
		for j, a := range row {
			if a == 0 {
				continue
			}
			a *= weight * each
			along[j] += a * target
			out := raw.Data[j*raw.Stride:]
			for k := j; k < p; k++ {
				out[k] += a * each * row[k]
			}
		}
	}
	return gram, along
}

// penalty is what bends cost, see [bendRows], and the faintest pull to zero
// that decides between terms that nothing else tells apart.
func (f *mixedFit) penalty(terms []Term, stiffness float64) *mat.SymDense {
	out := mat.NewSymDense(len(terms), nil)
	for j, t := range terms {
		var most float64
		for i := range f.bins {
			most = max(most, 1e-4*f.design.At(i, j)/f.bins[i].y)
		}
		out.SetSym(j, j, most*most)
		if j == 0 {
			continue
		}
		before := terms[j-1]
		if before.Variable != t.Variable || before.To != t.From {
			continue
		}
		size := stiffness * (before.To - before.From) / f.typicalTime(t.Variable, t.From)
		out.SetSym(j-1, j-1, out.At(j-1, j-1)+size*size)
		out.SetSym(j, j, out.At(j, j)+size*size)
		out.SetSym(j-1, j, out.At(j-1, j)-size*size)
	}
	return out
}

// typicalTime is the median time of the bins whose variable is nearest to at.
func (f *mixedFit) typicalTime(v Variable, at float64) float64 {
	nearest := math.Inf(1)
	away := make([]float64, len(f.bins))
	for i := range f.bins {
		away[i] = math.Abs(math.Log2(max(f.bins[i].value(v), 0.5) / at))
		nearest = min(nearest, away[i])
	}
	var times []float64
	for i := range f.bins {
		if away[i] <= max(1, nearest) {
			times = append(times, f.bins[i].y)
		}
	}
	return stat.Median(times)
}

// judge finds residuals, drifts and weights anew.
func (f *mixedFit) judge(coefficients []float64, drifting bool) {
	for i := range f.bins {
		f.predicted[i] = max(dot(f.design.RawRowView(i), coefficients), f.bins[i].y/1e3)
		f.residuals[i] = math.Log(f.bins[i].y / f.predicted[i])
	}
	if drifting {
		f.findDrift()
	}
	sizes := make([]float64, len(f.bins))
	for i := range f.bins {
		sizes[i] = math.Abs(f.residuals[i] - f.driftOf(i))
	}
	limit := mixedOutlier * max(1.4826*stat.Median(sizes), 1e-3)
	for i, size := range sizes {
		f.weights[i] = 1
		if size > limit {
			f.weights[i] = limit / size
		}
	}
}

// findDrift takes the drift of each block from its mean residual, shrunk by
// the ratio of the variance within blocks to that between them: where blocks
// differ by no more than their scatter explains, there is no drift.
func (f *mixedFit) findDrift() {
	if len(f.drift) < 2 {
		return
	}
	mean, weight := make([]float64, len(f.drift)), make([]float64, len(f.drift))
	for i := range f.bins {
		if b := f.bins[i].block; b >= 0 {
			w := f.bins[i].n * f.weights[i]
			mean[b] += w * f.residuals[i]
			weight[b] += w
		}
	}
	for b := range mean {
		mean[b] /= max(weight[b], 1e-300)
	}
	var within, count float64
	for i := range f.bins {
		if b := f.bins[i].block; b >= 0 {
			d := f.residuals[i] - mean[b]
			within += f.bins[i].n * f.weights[i] * d * d
			count += f.bins[i].n * f.weights[i]
		}
	}
	within /= count
	centre := stat.Mean(mean)
	var between, expected float64
	for b := range mean {
		between += (mean[b] - centre) * (mean[b] - centre) / float64(len(mean)-1)
		expected += within / max(weight[b], 1) / float64(len(mean))
	}
	between -= expected
	for b := range f.drift {
		f.drift[b] = 0
		if between > 0 {
			f.drift[b] = mean[b] * weight[b] / (weight[b] + within/between)
		}
	}
}

// fitMixedLinear is ordinary least squares in seconds over the sizes.
func fitMixedLinear(steps []timed) ([]Term, error) {
	var vs []Variable
	for _, v := range workVariables() {
		if v != VarLaunch && v != VarHost && v != VarStepTokens && v != VarPairs {
			vs = append(vs, v)
		}
	}
	x := mat.NewDense(len(steps), len(vs), nil)
	y := make([]float64, len(steps))
	for i := range steps {
		for j, v := range vs {
			x.Set(i, j, steps[i].value(v))
		}
		y[i] = steps[i].y
	}
	fitted, err := stat.LeastSquares(x, y)
	if err != nil {
		return nil, fmt.Errorf("linear model of mixed steps: %w", err)
	}
	terms := []Term{{Variable: VarLaunch, To: 1, Coefficient: fitted.Bias}}
	for j, v := range vs {
		terms = append(terms, Term{Variable: v, To: math.Inf(1), Coefficient: fitted.Weights[j]})
	}
	return terms, nil
}

// mixedFloor is the smallest time in seconds that a fit is believed to tell.
func mixedFloor(steps []timed) float64 {
	times := make([]float64, len(steps))
	for i := range steps {
		times[i] = steps[i].y
	}
	return stat.Quantile(times, 0.01) / 2
}

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
	model, err := newMixedModel(form)
	if err != nil {
		return nil, report, err
	}
	model.trained = fingerprintOf(own)
	return model, report, nil
}
