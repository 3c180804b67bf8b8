package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/llmprof/llmprof/stat"
)

// Limits of the search for a shape.
const (
	innerFolds = 10
	// manyRows is the number of rows from which half the folds will do.
	manyRows = 300
	// maxChoiceRows bounds the rows that the shape is chosen on; the chosen
	// one is fitted to all.
	maxChoiceRows = 1000
	// choiceSeed draws the inner folds.
	choiceSeed = 1
	// simplerWins is the gain in error, as a ratio, that a later candidate
	// needs to replace an earlier one.
	simplerWins = 0.98
	// closeScore and closePoint say what comes near the best: a ratio, and a
	// difference of relative errors.
	closeScore = 1.1
	closePoint = 0.0005
	// minUpperRows is the least number of rows from which a continuation is
	// judged.
	minUpperRows = 6
	// maxAPE clips the error of one row in comparisons, as a fraction.
	maxAPE = 0.5
)

// candidate is one way to fit a mode.
type candidate struct {
	name      string
	linear    bool    // the regression in seconds
	knots     bool    // piecewise linear terms
	stiffness float64 // penalty on bends, relative error per relative bend
	residual  bool
}

// candidates lists the shapes from the plainest to the richest.
func candidates() []candidate {
	list := []candidate{
		{name: "proportional"},
		{name: "linear", linear: true},
	}
	for _, residual := range []bool{false, true} {
		if residual {
			list = append(list, candidate{name: "proportional+residual", residual: true})
		}
		for _, s := range []float64{1, 0.3, 0.1} {
			name := fmt.Sprintf("physics(%g)", s)
			if residual {
				name += "+residual"
			}
			list = append(list, candidate{name: name, knots: true, stiffness: s, residual: residual})
		}
	}
	return list
}

// shapes fits every candidate to samples; one that fails is nil, and only if
// all fail is there an error. Candidates that differ in the residual share the
// rest. ctx is asked before each.
func shapes(ctx context.Context, m Mode, samples []sample, list []candidate) ([]*shape, error) {
	floor := math.Inf(1)
	for _, s := range samples {
		floor = min(floor, s.y/2)
	}
	type fitted struct {
		terms     []Term
		residuals []float64
	}
	done := map[candidate]fitted{}
	out := make([]*shape, len(list))
	var faults []error
	for i, c := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		plain := c
		plain.name, plain.residual = "", false
		f, ok := done[plain]
		if !ok {
			var err error
			if c.linear {
				f.terms, err = fitLinearTerms(m, samples)
			} else {
				f.terms, f.residuals, err = fitPhysics(m, samples, c.knots, c.stiffness)
			}
			if err != nil {
				faults = append(faults, err)
				continue
			}
			done[plain] = f
		}
		out[i] = &shape{terms: f.terms, floor: floor}
		if c.residual {
			out[i].residual = fitResidual(samples, f.residuals)
		}
	}
	if len(faults) == len(list) {
		return nil, errors.Join(faults...)
	}
	return out, nil
}

// fitLinearTerms is the regression in seconds over batch size and x.
func fitLinearTerms(m Mode, samples []sample) ([]Term, error) {
	x := mat.NewDense(len(samples), 4, nil)
	y := make([]float64, len(samples))
	for i, s := range samples {
		f := linearFeatures(m, s.b, s.x)
		x.SetRow(i, f[:])
		y[i] = s.y
	}
	fitted, err := stat.LeastSquares(x, y)
	if err != nil {
		return nil, fmt.Errorf("linear model of %s: %w", m, err)
	}
	return linearTerms(m, Linear{Weights: [4]float64(fitted.Weights), Bias: fitted.Bias}), nil
}

// verdict is what cross-validation inside the training rows found.
type verdict struct {
	choice candidate
	// errors are log(y/p) of rows that the fit had not seen, for the choice.
	errors []float64
	// upper are its errors above the rows that it was fitted to.
	upper []distant
	// plain are the mean errors of every candidate, as fractions, and scores
	// the same of errors clipped at maxAPE.
	plain, scores []float64
}

// distant is a log(y/p) at a distance from the data.
type distant struct {
	log  float64
	away distance
}

// choose picks the candidate of least mean relative error on held-out rows,
// and the plainest if there are too few rows to hold any out.
func choose(ctx context.Context, m Mode, samples []sample, list []candidate) (verdict, error) {
	samples = thin(samples, maxChoiceRows)
	n := len(samples)
	if n < 3 {
		return verdict{choice: list[0]}, nil
	}
	folds := min(innerFolds, n)
	if n > manyRows {
		folds = innerFolds / 2
	}
	order := rand.New(rand.NewPCG(choiceSeed, uint64(n))).Perm(n)
	errs := make([][]float64, len(list))
	for f := range folds {
		var train, test []sample
		for i, at := range order {
			if i%folds == f {
				test = append(test, samples[at])
			} else {
				train = append(train, samples[at])
			}
		}
		fitted, err := shapes(ctx, m, train, list)
		if err != nil {
			return verdict{}, err
		}
		for k, s := range fitted {
			for _, t := range test {
				e := math.NaN()
				if s != nil {
					e = math.Log(t.y / s.at(t.b, t.x))
				}
				if math.IsNaN(e) {
					e = math.Inf(1)
				}
				errs[k] = append(errs[k], e)
			}
		}
	}
	upper, err := upperErrors(ctx, m, samples, list)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{plain: make([]float64, len(list)), scores: make([]float64, len(list))}
	for k, es := range errs {
		v.plain[k], v.scores[k] = meanAPE(es, math.Inf(1)), meanAPE(es, maxAPE)
	}
	at := pick(v.scores, upper)
	v.choice, v.errors, v.upper = list[at], errs[at], upper[at]
	return v, nil
}

// pick returns the candidate of least score. Of those that come near it, the
// one that goes on best beyond its data wins, and the plainer of equals.
func pick(scores []float64, upper [][]distant) int {
	least := slices.Min(scores)
	best, bestUpper := -1, 0.0
	for k, score := range scores {
		if score > closeScore*least+closePoint {
			continue
		}
		var logs []float64
		for _, d := range upper[k] {
			logs = append(logs, d.log)
		}
		// Inside counts in full, outside by a tenth.
		combined := score
		if len(logs) > 0 {
			combined += meanAPE(logs, maxAPE) / 10
		}
		if best < 0 || combined < simplerWins*bestUpper {
			best, bestUpper = k, combined
		}
	}
	return best
}

// meanAPE is the mean relative error, as a fraction, of errors log(y/p), each
// clipped at limit.
func meanAPE(errs []float64, limit float64) float64 {
	sizes := make([]float64, len(errs))
	for i, e := range errs {
		sizes[i] = min(math.Abs(math.Expm1(-e)), limit)
	}
	return stat.Mean(sizes)
}

// upperErrors fits each candidate to the samples up to a quarter of the
// largest batch size, then of the largest size, and returns its errors on
// those above; none where too few are left to fit.
func upperErrors(ctx context.Context, m Mode, samples []sample, list []candidate) ([][]distant, error) {
	all := rangeOf(samples)
	out := make([][]distant, len(list))
	for _, above := range []func(sample) bool{
		func(s sample) bool { return s.b > all.MaxBatch/4 },
		func(s sample) bool { return s.x > all.MaxSize/4 },
	} {
		var train, test []sample
		for _, s := range samples {
			if above(s) {
				test = append(test, s)
			} else {
				train = append(train, s)
			}
		}
		if len(train) < minUpperRows || len(train) < len(samples)/4 {
			continue
		}
		fitted, err := shapes(ctx, m, train, list)
		if err != nil {
			return nil, err
		}
		known := rangeOf(train)
		for _, s := range test {
			d := known.outside(s.b, s.x)
			if d.inside() {
				continue
			}
			for k, f := range fitted {
				e := math.Inf(1)
				if f != nil {
					e = math.Log(s.y / f.at(s.b, s.x))
				}
				out[k] = append(out[k], distant{e, d})
			}
		}
	}
	return out, nil
}

// thin keeps every k-th sample so that at most limit remain.
func thin(samples []sample, limit int) []sample {
	if len(samples) <= limit {
		return samples
	}
	out := make([]sample, 0, limit)
	for i := range limit {
		out = append(out, samples[i*len(samples)/limit])
	}
	return out
}
