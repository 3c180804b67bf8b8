package fit

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// maxCentres bounds the centres of a residual; denser data are averaged in
// cells first.
const maxCentres = 128

// Residual is what measurements say beyond the physical terms: a smooth
// log-ratio over (log2 b, log2 x), with b the batch size and x the input
// length of a prefill or the context of a decode in tokens. It is a simple
// kriging (a Gaussian process of zero mean) with a Matérn 3/2 kernel in each
// direction, so it follows the data as far as they agree with each other and
// vanishes a few lengths away from them.
type Residual struct {
	// LengthB and LengthX are the kernel's lengths in octaves of batch size
	// and of x.
	LengthB, LengthX float64
	// Centres are the places that were measured.
	Centres []Centre
}

// Centre is one place of a [Residual].
type Centre struct {
	// LogB and LogX are log2 of the batch size and of x, in octaves.
	LogB, LogX float64
	// Weight is what the centre adds to the log-ratio at its own place,
	// dimensionless.
	Weight float64
}

// At is the log-ratio at batch size b and size x.
func (r *Residual) At(b, x float64) float64 {
	u, v := math.Log2(b), math.Log2(x)
	var total float64
	for _, c := range r.Centres {
		total += c.Weight * matern((u-c.LogB)/r.LengthB) * matern((v-c.LogX)/r.LengthX)
	}
	return total
}

// places lists the distinct batch sizes and sizes of the centres.
func (r *Residual) places() (batches, sizes []float64) {
	if r == nil {
		return nil, nil
	}
	for _, c := range r.Centres {
		batches = append(batches, math.Exp2(c.LogB))
		sizes = append(sizes, math.Exp2(c.LogX))
	}
	slices.Sort(batches)
	slices.Sort(sizes)
	return slices.Compact(batches), slices.Compact(sizes)
}

// matern is the Matérn 3/2 correlation at distance d, in lengths.
func matern(d float64) float64 {
	d = math.Sqrt(3) * math.Abs(d)
	return (1 + d) * math.Exp(-d)
}

// place is one observation of the residual.
type place struct {
	u, v   float64 // log2 b, log2 x
	value  float64 // log(y/p)
	weight float64 // number of rows behind it, outliers counting less
}

// fitResidual fits the residual of samples, or returns nil if leaving each
// place out in turn shows that neighbours say nothing of it.
func fitResidual(samples []sample, residuals []float64) *Residual {
	places := gather(samples, residuals)
	if len(places) < 4 {
		return nil
	}
	var best float64 // leave-one-out error of no residual at all
	for _, p := range places {
		best += min(p.weight, 1) * math.Abs(p.value)
	}
	if best < 1e-9*float64(len(places)) {
		return nil
	}
	var out *Residual
	for _, lengthB := range []float64{1, 3} {
		for _, lengthX := range []float64{1, 3} {
			for _, noise := range []float64{0.01, 0.1, 0.5} {
				weights, loss, ok := krige(places, lengthB, lengthX, noise)
				if !ok || loss >= simplerWins*best {
					continue
				}
				best = loss
				out = &Residual{LengthB: lengthB, LengthX: lengthX}
				for i, w := range weights {
					out.Centres = append(out.Centres, Centre{places[i].u, places[i].v, w})
				}
			}
		}
	}
	return out
}

// krige solves for the weights of the places under a kernel of unit variance
// and the given noise variance, and sums the absolute errors that leaving
// each place out would make.
func krige(places []place, lengthB, lengthX, noise float64) (weights []float64, loss float64, ok bool) {
	n := len(places)
	k := mat.NewSymDense(n, nil)
	values := mat.NewVecDense(n, nil)
	for i, p := range places {
		for j := range i {
			q := places[j]
			k.SetSym(i, j, matern((p.u-q.u)/lengthB)*matern((p.v-q.v)/lengthX))
		}
		k.SetSym(i, i, 1+noise/p.weight)
		values.SetVec(i, p.value)
	}
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		return nil, 0, false
	}
	var solved mat.VecDense
	var inverse mat.SymDense
	if chol.SolveVecTo(&solved, values) != nil || chol.InverseTo(&inverse) != nil {
		return nil, 0, false
	}
	for i, p := range places {
		// The closed form of the leave-one-out error of a linear smoother.
		loss += min(p.weight, 1) * math.Abs(solved.AtVec(i)/inverse.At(i, i))
	}
	return solved.RawVector().Data, loss, true
}

// gather turns samples into at most maxCentres places, averaging within ever
// larger cells of the log-log plane, and gives outliers little weight.
func gather(samples []sample, residuals []float64) []place {
	weights := make([]float64, len(samples))
	_ = huber(residuals, weights)
	for cell := 0.0; ; cell = max(2*cell, 1.0/16) {
		type index struct{ u, v float64 }
		at := map[index]int{}
		var places []place
		for i, s := range samples {
			u, v := math.Log2(s.b), math.Log2(s.x)
			id := index{u, v}
			if cell > 0 {
				id = index{math.Round(u / cell), math.Round(v / cell)}
			}
			k, seen := at[id]
			if !seen {
				k = len(places)
				at[id] = k
				places = append(places, place{})
			}
			w := weights[i] * weights[i]
			places[k].u += w * u
			places[k].v += w * v
			places[k].value += w * residuals[i]
			places[k].weight += w
		}
		if len(places) > maxCentres {
			continue
		}
		for k := range places {
			p := &places[k]
			p.u, p.v, p.value = p.u/p.weight, p.v/p.weight, p.value/p.weight
		}
		slices.SortFunc(places, func(a, b place) int {
			return cmp.Or(cmp.Compare(a.u, b.u), cmp.Compare(a.v, b.v))
		})
		return places
	}
}
