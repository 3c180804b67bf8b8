package fit

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/llmprof/llmprof/stat"
)

// sample is a row as the fit sees it.
type sample struct {
	b, x float64 // batch size; input length (prefill) or context (decode)
	y    float64 // time in seconds
}

// The stiffness of the attention term, which decides how a prefill goes on
// beyond the longest measured input: the noisier the rows, the less a bend of
// the last stretch is believed.
const (
	tailPerScatter = 100
	minTail        = 2
	maxTail        = 10
)

// robustRounds is the number of times the rows are weighted anew.
const robustRounds = 3

// fitPhysics fits a non-negative sum of terms to samples in relative error:
// it minimises Σ ((p−y)/y)² by non-negative least squares on rows divided by
// y. Each bend of a variable's curve costs stiffness times its relative size,
// squared, so that a stretch without data goes on as its neighbours do.
// Rows far outside the scatter of the rest, such as means that hold a cold
// run, lose weight by Huber's rule. The terms are those of basis, those with
// a coefficient of zero left out. residuals are log(y/p) of each sample.
func fitPhysics(m Mode, samples []sample, knots bool, stiffness float64) (terms []Term, residuals []float64, err error) {
	terms = basis(m, samples, knots)
	n, p := len(samples), len(terms)
	design := mat.NewDense(n, p, nil)
	for i, s := range samples {
		row := design.RawRowView(i)
		for j, t := range terms {
			row[j] = t.ramp(t.Variable.value(s.b, s.x)) / s.y
		}
	}
	bends := bendRows(terms, samples, stiffness, minTail)
	weights := make([]float64, n)
	for i := range weights {
		weights[i] = 1
	}
	var coefficients []float64
	errors := make([]float64, n)
	for round := range robustRounds {
		gram, along := normal(design, weights, bends)
		coefficients, err = stat.NNLSNormal(gram, along, coefficients)
		if err != nil {
			return nil, nil, fmt.Errorf("physical terms of %s: %w", m, err)
		}
		for i := range n {
			errors[i] = dot(design.RawRowView(i), coefficients) - 1
		}
		if round+1 < robustRounds {
			scatter := huber(errors, weights)
			bends = bendRows(terms, samples, stiffness, min(max(tailPerScatter*scatter, minTail), maxTail))
		}
	}
	residuals = make([]float64, n)
	for i, e := range errors {
		residuals[i] = -math.Log(max(1+e, 1e-9))
	}
	used := terms[:0]
	for j, c := range coefficients {
		if c > 0 {
			terms[j].Coefficient = c
			used = append(used, terms[j])
		}
	}
	return used, residuals, nil
}

// huber sets weights to 1 within three robust standard deviations of zero
// and to fall off as 1/|error| beyond. It returns that standard deviation, as
// a fraction like the errors.
func huber(errors, weights []float64) (scatter float64) {
	sizes := make([]float64, len(errors))
	for i, e := range errors {
		sizes[i] = math.Abs(e)
	}
	scatter = max(1.4826*stat.Median(sizes), 1e-3)
	limit := 3 * scatter
	for i, size := range sizes {
		weights[i] = 1
		if size > limit {
			weights[i] = limit / size
		}
	}
	return scatter
}

// normal forms the normal equations of weighted rows whose target is 1, and
// of unweighted rows whose target is 0.
func normal(design *mat.Dense, weights []float64, zero *mat.Dense) (*mat.SymDense, []float64) {
	n, p := design.Dims()
	weighted := mat.NewDense(n, p, nil)
	along := make([]float64, p)
	for i, w := range weights {
		root := math.Sqrt(w)
		out := weighted.RawRowView(i)
		for j, v := range design.RawRowView(i) {
			out[j] = root * v
			along[j] += w * v
		}
	}
	gram := mat.NewSymDense(p, nil)
	gram.SymOuterK(1, weighted.T())
	if zero != nil {
		var more mat.SymDense
		more.SymOuterK(1, zero.T())
		gram.AddSym(gram, &more)
	}
	return gram, along
}

// bendRows are the penalty: one row for each pair of neighbouring stretches
// of a variable, stiffness·(slope₂−slope₁)·(length of the first)/y, with y the
// time of the samples near the bend. tail is the least stiffness of attention.
func bendRows(terms []Term, samples []sample, stiffness, tail float64) *mat.Dense {
	samples = thin(samples, maxChoiceRows)
	var rows [][]float64
	for j := 1; j < len(terms); j++ {
		before, after := terms[j-1], terms[j]
		if before.Variable != after.Variable || before.To != after.From {
			continue
		}
		row := make([]float64, len(terms))
		stiff := stiffness
		if before.Variable == VarAttention {
			stiff = max(stiffness, tail)
		}
		size := stiff * (before.To - before.From) / typicalTime(before.Variable, before.To, samples)
		row[j-1], row[j] = -size, size
		rows = append(rows, row)
	}
	// The faintest pull to zero decides between terms that nothing else
	// tells apart.
	for j, t := range terms {
		row := make([]float64, len(terms))
		for _, s := range samples {
			row[j] = max(row[j], 1e-4*t.ramp(t.Variable.value(s.b, s.x))/s.y)
		}
		rows = append(rows, row)
	}
	out := mat.NewDense(len(rows), len(terms), nil)
	for i, row := range rows {
		out.SetRow(i, row)
	}
	return out
}

// typicalTime is the median time of the samples whose variable is nearest to
// at: within a factor of two, or else the nearest octave that has any.
func typicalTime(v Variable, at float64, samples []sample) float64 {
	for octaves := 1.0; ; octaves *= 2 {
		var times []float64
		for _, s := range samples {
			if math.Abs(math.Log2(max(v.value(s.b, s.x), 1e-300)/at)) <= octaves {
				times = append(times, s.y)
			}
		}
		if len(times) > 0 {
			slices.Sort(times)
			return stat.QuantileSorted(times, 0.5)
		}
		if octaves > 4096 {
			return 1
		}
	}
}

func dot(a, b []float64) float64 {
	var sum float64
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}
