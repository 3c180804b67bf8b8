package fit

import (
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
		if v != VarLaunch && v != VarHost && v != VarFresh && v != VarStepTokens && v != VarPairs {
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
