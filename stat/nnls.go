package stat

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// ErrNoConvergence says that an iteration hit its limit.
var ErrNoConvergence = errors.New("no convergence")

// NNLS solves min ‖a·x − b‖ subject to x ≥ 0. a is n×p and b holds n values;
// any of n and p may be the larger.
//
// It is the active-set method of Lawson and Hanson (Solving Least Squares
// Problems, 1974, chapter 23) on the normal equations of the unit-length
// columns, as Bro and de Jong (J. Chemometrics 11, 1997) run it: one pass
// over the rows, and then work in p only. Columns that depend on those
// already in use are left at zero, as are columns whose squared length
// underflows.
//
// The answer meets the optimality conditions: with the gradient
// g = aᵀ(a·x − b), g ≥ 0 everywhere and g = 0 where x > 0, up to rounding.
func NNLS(a *mat.Dense, b []float64) ([]float64, error) {
	if err := checkSystem(a, b); err != nil {
		return nil, fmt.Errorf("non-negative least squares: %w", err)
	}
	_, p := a.Dims()
	gram := mat.NewSymDense(p, nil)
	gram.SymOuterK(1, a.T())
	along := mat.NewVecDense(p, nil)
	along.MulVec(a.T(), mat.NewVecDense(len(b), b))
	return NNLSNormal(gram, along.RawVector().Data, nil)
}

// NNLSNormal is [NNLS] of a system that is known by its normal equations
// only: gram = aᵀa (p×p) and along = aᵀb (p values). Sums over parts of the
// rows may be added, so that cross-validation touches every row once. start
// may name a solution near by, whose positive entries speed up the search; it
// does not change the answer.
func NNLSNormal(gram *mat.SymDense, along, start []float64) ([]float64, error) {
	p := gram.SymmetricDim()
	if p != len(along) || (start != nil && len(start) != p) {
		return nil, fmt.Errorf("non-negative least squares: %d columns, %d products, %d starting values", p, len(along), len(start))
	}
	s, err := newActiveSet(gram, along)
	if err != nil {
		return nil, err
	}
	if start != nil {
		s.warm(start)
	}
	for range 30*p + 30 {
		j := s.steepest()
		if j < 0 {
			return s.solution(), nil
		}
		s.enter(j)
	}
	return nil, fmt.Errorf("non-negative least squares of %d columns: %w", p, ErrNoConvergence)
}

// activeSet is the state of the search: x is feasible throughout.
type activeSet struct {
	p       int
	gram    []float64 // scaled to a unit diagonal, row-major
	along   []float64 // scaled likewise
	scale   []float64 // length of each column; 0 for an empty column
	tol     float64   // gradient that counts as zero
	x, z    []float64 // current point and the unconstrained one
	in      []bool    // columns that may be positive
	blocked []bool    // columns that depend on those in use
	order   []int     // the columns of in
	chol    []float64 // factor of the block of in
}

func newActiveSet(gram *mat.SymDense, along []float64) (*activeSet, error) {
	p := gram.SymmetricDim()
	s := &activeSet{
		p: p, gram: make([]float64, p*p), along: make([]float64, p), scale: make([]float64, p),
		x: make([]float64, p), z: make([]float64, p), in: make([]bool, p), blocked: make([]bool, p),
		order: make([]int, 0, p), chol: make([]float64, p*p),
	}
	for j := range p {
		d := gram.At(j, j)
		if d < 0 || math.IsNaN(d) || math.IsInf(d, 0) || math.IsNaN(along[j]) || math.IsInf(along[j], 0) {
			return nil, fmt.Errorf("non-negative least squares: column %d has squared length %v and product %v", j, d, along[j])
		}
		s.scale[j] = math.Sqrt(d)
	}
	var largest float64
	for j := range p {
		if s.scale[j] == 0 {
			continue
		}
		s.along[j] = along[j] / s.scale[j]
		largest = max(largest, math.Abs(s.along[j]))
		for k := range p {
			if s.scale[k] > 0 {
				s.gram[j*p+k] = gram.At(j, k) / (s.scale[j] * s.scale[k])
			}
		}
	}
	s.tol = 1e-12 * float64(p+1) * largest
	return s, nil
}

// warm starts from the columns that start uses, if they are independent and
// all stay positive.
func (s *activeSet) warm(start []float64) {
	for j, v := range start {
		s.in[j] = v > 0 && s.scale[j] > 0
	}
	for s.solve() {
		dropped := false
		for _, j := range s.order {
			if s.z[j] <= 0 {
				s.in[j], dropped = false, true
			}
		}
		if !dropped {
			copy(s.x, s.z)
			return
		}
	}
	clear(s.in)
}

// steepest is the free column whose growth lowers the error fastest, or -1.
func (s *activeSet) steepest() int {
	best, at := s.tol, -1
	for j := range s.p {
		if s.in[j] || s.blocked[j] || s.scale[j] == 0 {
			continue
		}
		slope := s.along[j]
		for _, k := range s.order {
			slope -= s.gram[j*s.p+k] * s.x[k]
		}
		if slope > best {
			best, at = slope, j
		}
	}
	return at
}

// enter lets column j grow, and drops the columns that this pushes to zero.
func (s *activeSet) enter(j int) {
	s.in[j] = true
	if !s.solve() || s.z[j] <= 0 {
		// Dependent up to rounding: growing it cannot help.
		s.in[j], s.blocked[j] = false, true
		s.solve()
		return
	}
	clear(s.blocked)
	for {
		step, leaving := 1.0, -1
		for _, k := range s.order {
			if s.z[k] > 0 {
				continue
			}
			if t := s.x[k] / (s.x[k] - s.z[k]); leaving < 0 || t < step {
				step, leaving = t, k
			}
		}
		if leaving < 0 {
			copy(s.x, s.z)
			return
		}
		for _, k := range s.order {
			s.x[k] = max(0, s.x[k]+step*(s.z[k]-s.x[k]))
		}
		s.x[leaving] = 0
		for _, k := range s.order {
			s.in[k] = s.x[k] > 0
		}
		s.solve()
	}
}

// solve puts the unconstrained minimiser over the columns of in into z; it
// reports false if those columns are dependent, and then z is as before.
func (s *activeSet) solve() bool {
	s.order = s.order[:0]
	for j, in := range s.in {
		if in {
			s.order = append(s.order, j)
		}
	}
	m := len(s.order)
	for r, j := range s.order {
		row := s.chol[r*m : r*m+m]
		for c := 0; c <= r; c++ {
			sum := s.gram[j*s.p+s.order[c]]
			other := s.chol[c*m : c*m+m]
			for k := range c {
				sum -= row[k] * other[k]
			}
			if c < r {
				row[c] = sum / other[c]
				continue
			}
			if sum <= 1e-11 {
				return false
			}
			row[r] = math.Sqrt(sum)
		}
	}
	solved := make([]float64, m)
	for r := range m {
		sum := s.along[s.order[r]]
		for k := range r {
			sum -= s.chol[r*m+k] * solved[k]
		}
		solved[r] = sum / s.chol[r*m+r]
	}
	for r := m - 1; r >= 0; r-- {
		sum := solved[r]
		for k := r + 1; k < m; k++ {
			sum -= s.chol[k*m+r] * solved[k]
		}
		solved[r] = sum / s.chol[r*m+r]
	}
	clear(s.z)
	for r, j := range s.order {
		s.z[j] = solved[r]
	}
	return true
}

// solution is x in the caller's units.
func (s *activeSet) solution() []float64 {
	out := make([]float64, s.p)
	for j, v := range s.x {
		if v > 0 {
			out[j] = v / s.scale[j]
		}
	}
	return out
}
