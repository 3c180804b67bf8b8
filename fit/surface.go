package fit

import (
	"math"
	"slices"
)

// The layout of a table.
const (
	// tableMargin is how far it reaches beyond the data, in octaves.
	tableMargin = 2
	// nodesB and nodesX are its nodes in an octave of batch size and of size.
	nodesB = 3
	nodesX = 6
	// maxExtraNodes bounds the measured values that become nodes of their own.
	maxExtraNodes = 64
)

// shape is a fitted function of batch size and size (input length of a
// prefill, context of a decode) in seconds, before it is made monotone.
type shape struct {
	terms    []Term
	residual *Residual // nil for none
	floor    float64   // smallest time in seconds that is believed
}

// physics is the shape without its residual, in seconds.
func (s *shape) physics(b, x float64) float64 {
	return max(s.floor, sum(s.terms, b, x))
}

// at is the shape with its residual, in seconds.
func (s *shape) at(b, x float64) float64 {
	p := s.physics(b, x)
	if s.residual == nil {
		return p
	}
	return p * math.Exp(s.residual.At(b, x))
}

// surface is a shape made positive and non-decreasing in both directions. It
// is a table over the measured box and some octaves around it, bilinear in
// between; beyond, the physics continues the nearest edge in proportion.
type surface struct {
	shape shape
	bs    []float64
	xs    []float64
	times []float64 // seconds, len(bs)·len(xs), row-major in b
}

// newSurface tabulates s over the box. Of the smallest monotone function
// above s and the largest one below, the mean is taken, so that noise is
// averaged and not only lifted.
func newSurface(s shape, box Range) *surface {
	batches, sizes := s.residual.places()
	t := &surface{
		shape: s,
		bs:    nodes(box.MinBatch, box.MaxBatch, nodesB, batches),
		xs:    nodes(box.MinSize, box.MaxSize, nodesX, sizes),
	}
	rows, cols := len(t.bs), len(t.xs)
	raw := make([]float64, rows*cols)
	s.tabulate(t.bs, t.xs, raw)
	above, below := slices.Clone(raw), slices.Clone(raw)
	for r := range rows {
		for c := range cols {
			if r > 0 {
				above[r*cols+c] = max(above[r*cols+c], above[(r-1)*cols+c])
			}
			if c > 0 {
				above[r*cols+c] = max(above[r*cols+c], above[r*cols+c-1])
			}
		}
	}
	for r := rows - 1; r >= 0; r-- {
		for c := cols - 1; c >= 0; c-- {
			if r+1 < rows {
				below[r*cols+c] = min(below[r*cols+c], below[(r+1)*cols+c])
			}
			if c+1 < cols {
				below[r*cols+c] = min(below[r*cols+c], below[r*cols+c+1])
			}
		}
	}
	t.times = raw
	for i := range t.times {
		t.times[i] = (above[i] + below[i]) / 2
	}
	return t
}

// tabulate evaluates s at every node; the residual's kernel is a product, so
// its factors are computed once a row and once a column.
func (s *shape) tabulate(bs, xs, out []float64) {
	var alongB, alongX []float64
	centres := 0
	if s.residual != nil {
		centres = len(s.residual.Centres)
		alongB = make([]float64, len(bs)*centres)
		alongX = make([]float64, len(xs)*centres)
		for k, c := range s.residual.Centres {
			for r, b := range bs {
				alongB[r*centres+k] = c.Weight * matern((math.Log2(b)-c.LogB)/s.residual.LengthB)
			}
			for i, x := range xs {
				alongX[i*centres+k] = matern((math.Log2(x) - c.LogX) / s.residual.LengthX)
			}
		}
	}
	for r, b := range bs {
		for i, x := range xs {
			v := s.physics(b, x)
			if centres > 0 {
				v *= math.Exp(dot(alongB[r*centres:(r+1)*centres], alongX[i*centres:(i+1)*centres]))
			}
			out[r*len(xs)+i] = v
		}
	}
}

// nodes spreads an octave into density nodes from low to high and tableMargin
// octaves around, on powers of two, and adds the measured values unless they
// are many.
func nodes(low, high float64, density int, measured []float64) []float64 {
	low = max(min(low, 1), low*math.Exp2(-tableMargin))
	high *= math.Exp2(tableMargin)
	out := []float64{low, high}
	first, last := math.Floor(math.Log2(low)), math.Ceil(math.Log2(high))
	for o := first; o < last; o++ {
		for k := range density {
			v := math.Exp2(o) * (1 + float64(k)/float64(density))
			if v > low && v < high {
				out = append(out, v)
			}
		}
	}
	if len(measured) <= maxExtraNodes {
		for _, v := range measured {
			if v > low && v < high {
				out = append(out, v)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// at is the time of a step in seconds.
func (t *surface) at(b, x float64) float64 {
	insideB := min(max(b, t.bs[0]), t.bs[len(t.bs)-1])
	insideX := min(max(x, t.xs[0]), t.xs[len(t.xs)-1])
	v := t.lookup(insideB, insideX)
	if insideB == b && insideX == x {
		return v
	}
	return v * t.shape.physics(b, x) / t.shape.physics(insideB, insideX)
}

func (t *surface) lookup(b, x float64) float64 {
	r, fb := cell(t.bs, b)
	c, fx := cell(t.xs, x)
	cols := len(t.xs)
	low := t.times[r*cols+c] + fx*(t.times[r*cols+c+1]-t.times[r*cols+c])
	high := t.times[(r+1)*cols+c] + fx*(t.times[(r+1)*cols+c+1]-t.times[(r+1)*cols+c])
	return low + fb*(high-low)
}

// cell finds the interval of sorted nodes (at least two) that holds v, and
// where in it v lies, 0..1.
func cell(nodes []float64, v float64) (i int, share float64) {
	i, _ = slices.BinarySearch(nodes, v)
	i = min(max(i-1, 0), len(nodes)-2)
	return i, (v - nodes[i]) / (nodes[i+1] - nodes[i])
}
