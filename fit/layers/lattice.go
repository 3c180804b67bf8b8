package layers

import (
	"math"
	"slices"
)

// lattice is a function on the product of four ascending axes, stored with the
// last axis running fastest.
type lattice struct {
	axes   [4][]float64 // the axes' positions, in the unit of the caller
	stride [4]int
	soft   [4]float64 // how little bends along an axis count
	at     []float64
	known  []bool // the nodes that are data; the others are to be filled
}

// softness lets the correction bend along the chunk and the number of decodes,
// where work comes in waves, more easily than along the contexts.
func softness() [4]float64 { return [4]float64{0.1, 1, 0.3, 1} }

func newLattice(axes [4][]float64) *lattice {
	l := &lattice{axes: axes, soft: softness()}
	size := 1
	for d := 3; d >= 0; d-- {
		l.stride[d] = size
		size *= len(axes[d])
	}
	l.at = make([]float64, size)
	l.known = make([]bool, size)
	return l
}

func (l *lattice) index(i [4]int) int {
	return i[0]*l.stride[0] + i[1]*l.stride[1] + i[2]*l.stride[2] + i[3]*l.stride[3]
}

// node is the place of a value.
func (l *lattice) node(k int) (i [4]int) {
	for d := range i {
		i[d] = k / l.stride[d]
		k %= l.stride[d]
	}
	return i
}

// set makes a node known.
func (l *lattice) set(i [4]int, v float64) {
	k := l.index(i)
	l.at[k], l.known[k] = v, true
}

// lines calls f with the first node of every line along axis d.
func (l *lattice) lines(d int, f func(start int)) {
	block := l.stride[d] * len(l.axes[d])
	for outer := 0; outer < len(l.at); outer += block {
		for inner := range l.stride[d] {
			f(outer + inner)
		}
	}
}

// bend is the stencil of a second derivative at three neighbours of an axis,
// or of a first derivative where c is 0.
type bend struct{ a, b, c float64 }

// flatness is the weight of a step against that of a bend of one octave: a
// little of it lets what the data do not reach level out.
const flatness = 0.02

// fill gives the unknown nodes the values that bend the least along every
// axis, on axes in octaves, by conjugate gradients.
func (l *lattice) fill() {
	n := len(l.at)
	if !slices.Contains(l.known, true) || !slices.Contains(l.known, false) {
		return
	}
	l.seed()
	var bends [4][]bend
	var steps [4][]float64
	for d, axis := range l.axes {
		soft := l.soft[d]
		for i := range axis {
			if i+1 < len(axis) {
				steps[d] = append(steps[d], math.Sqrt(soft*flatness/(axis[i+1]-axis[i])))
			}
			if i == 0 || i+1 == len(axis) {
				continue
			}
			left, right := axis[i]-axis[i-1], axis[i+1]-axis[i]
			// The integral of the squared second derivative over the cell.
			w := math.Sqrt(soft*(left+right)/2) * 2 / (left + right)
			bends[d] = append(bends[d], bend{w / left, -w/left - w/right, w / right})
		}
	}
	diagonal := make([]float64, n)
	apply := func(x, out []float64) {
		clear(out)
		for d := range l.axes {
			s := l.stride[d]
			l.lines(d, func(k int) {
				for _, w := range steps[d] {
					g := w * w * (x[k+s] - x[k])
					out[k] -= g
					out[k+s] += g
					k += s
				}
			})
			l.lines(d, func(k int) {
				for _, b := range bends[d] {
					g := b.a*x[k] + b.b*x[k+s] + b.c*x[k+2*s]
					out[k] += b.a * g
					out[k+s] += b.b * g
					out[k+2*s] += b.c * g
					k += s
				}
			})
		}
		for k, known := range l.known {
			if known {
				out[k] = 0
			}
		}
	}
	for d := range l.axes {
		s := l.stride[d]
		l.lines(d, func(k int) {
			for _, w := range steps[d] {
				diagonal[k] += w * w
				diagonal[k+s] += w * w
				k += s
			}
		})
		l.lines(d, func(k int) {
			for _, b := range bends[d] {
				diagonal[k] += b.a * b.a
				diagonal[k+s] += b.b * b.b
				diagonal[k+2*s] += b.c * b.c
				k += s
			}
		})
	}
	r, z, p, q := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	apply(l.at, r)
	rz := 0.0
	for k := range r {
		r[k] = -r[k]
		if diagonal[k] > 0 {
			z[k] = r[k] / diagonal[k]
		}
		p[k] = z[k]
		rz += r[k] * z[k]
	}
	for iteration := 0; iteration < min(fillSteps, fillWork/n) && rz > 0; iteration++ {
		apply(p, q)
		pq := 0.0
		for k := range p {
			pq += p[k] * q[k]
		}
		if !(pq > 0) {
			return
		}
		alpha := rz / pq
		next, most := 0.0, 0.0
		for k := range p {
			step := alpha * p[k]
			l.at[k] += step
			most = max(most, math.Abs(step))
			r[k] -= alpha * q[k]
			if diagonal[k] > 0 {
				z[k] = r[k] / diagonal[k]
			}
			next += r[k] * z[k]
		}
		if most < fillPrecision {
			return
		}
		beta := next / rz
		rz = next
		for k := range p {
			p[k] = z[k] + beta*p[k]
		}
	}
}

// The end of the filling: steps at most, fewer where the lattice has many
// nodes, and the largest change of a step in log units of time.
const (
	fillSteps     = 400
	fillWork      = 1 << 25
	fillPrecision = 5e-4
)

// seed starts the filling: every unknown node takes the mean of the known ones
// on its four lines, weighted by closeness, until all have a value.
func (l *lattice) seed() {
	done := slices.Clone(l.known)
	for range 4 {
		sum, weight := make([]float64, len(l.at)), make([]float64, len(l.at))
		for d, axis := range l.axes {
			s := l.stride[d]
			l.lines(d, func(start int) {
				for _, back := range []bool{false, true} {
					last, where := math.NaN(), 0.0
					for i := range axis {
						if back {
							i = len(axis) - 1 - i
						}
						k := start + i*s
						if done[k] {
							last, where = l.at[k], axis[i]
							continue
						}
						if !math.IsNaN(last) {
							gap := math.Abs(axis[i] - where)
							w := 1 / (gap * gap)
							sum[k] += w * last
							weight[k] += w
						}
					}
				}
			})
		}
		left := 0
		for k := range l.at {
			switch {
			case done[k]:
			case weight[k] > 0:
				l.at[k], done[k] = sum[k]/weight[k], true
			default:
				left++
			}
		}
		if left == 0 {
			return
		}
	}
	// Unreachable along four axes in four rounds, unless axes are empty.
}

// rising replaces the values by the mean of the closest non-decreasing
// functions above and below, which is non-decreasing along every axis itself.
func (l *lattice) rising() {
	low := slices.Clone(l.at)
	l.cover()
	for d, axis := range l.axes {
		s := l.stride[d]
		l.lines(d, func(start int) {
			for i := len(axis) - 2; i >= 0; i-- {
				k := start + i*s
				low[k] = min(low[k], low[k+s])
			}
		})
	}
	for k := range low {
		l.at[k] = (l.at[k] + low[k]) / 2
	}
}

// cover raises values to the closest non-decreasing function above them.
func (l *lattice) cover() {
	for d, axis := range l.axes {
		s := l.stride[d]
		l.lines(d, func(start int) {
			for i := 1; i < len(axis); i++ {
				k := start + i*s
				l.at[k] = max(l.at[k], l.at[k-s])
			}
		})
	}
}

// blend is the multilinear mean of the corners of a cell.
func (l *lattice) blend(at [4]int, w [4]float64) float64 {
	k := l.index(at)
	var steps [4]int
	var shares [4]float64
	n := 0
	for d, x := range w {
		switch {
		case x == 1:
			k += l.stride[d]
		case x > 0:
			steps[n], shares[n] = l.stride[d], x
			n++
		}
	}
	var v [16]float64
	for corner := range 1 << n {
		i := k
		for d := range n {
			if corner>>d&1 == 1 {
				i += steps[d]
			}
		}
		v[corner] = l.at[i]
	}
	for d := n - 1; d >= 0; d-- {
		half := 1 << d
		for i := range half {
			v[i] += shares[d] * (v[i+half] - v[i])
		}
	}
	return v[0]
}
