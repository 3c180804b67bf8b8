package stat

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

// matrix draws an n×p matrix of numbers with four decimals, sometimes with
// repeated columns.
func matrix(t *rapid.T, n, p int) *mat.Dense {
	x := mat.NewDense(n, p, rapid.SliceOfN(rapid.Map(rapid.IntRange(-100_000, 100_000), func(v int) float64 {
		return float64(v) / 10_000
	}), n*p, n*p).Draw(t, "x"))
	if p > 1 && rapid.Bool().Draw(t, "repeat a column") {
		for i := range n {
			x.Set(i, p-1, x.At(i, 0))
		}
	}
	return x
}

// TestLeastSquaresProperties: residuals are orthogonal to the centred columns
// and sum to zero, and repeated columns share their weight.
func TestLeastSquaresProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, p := rapid.IntRange(1, 40).Draw(t, "n"), rapid.IntRange(1, 6).Draw(t, "p")
		x := matrix(t, n, p)
		y := rapid.SliceOfN(rapid.Float64Range(-10, 10), n, n).Draw(t, "y")
		fit, err := LeastSquares(x, y)
		if err != nil {
			t.Fatal(err)
		}
		residual := make([]float64, n)
		var total, norm float64
		for i := range n {
			residual[i] = y[i] - fit.At(x.RawRowView(i))
			total += residual[i]
		}
		for _, w := range fit.Weights {
			norm += math.Abs(w)
		}
		tolerance := 1e-7 * (1 + norm) * float64(n)
		if math.Abs(total) > tolerance {
			t.Fatalf("residuals sum to %v", total)
		}
		// A column that hardly varies may legitimately count as constant.
		if norm > 1e6 {
			return
		}
		for j := range p {
			var along float64
			for i := range n {
				along += residual[i] * x.At(i, j)
			}
			if math.Abs(along) > 100*tolerance {
				t.Fatalf("residuals along column %d: %v", j, along)
			}
		}
		same := p > 1
		for i := range n {
			same = same && x.At(i, 0) == x.At(i, p-1)
		}
		if same && math.Abs(fit.Weights[0]-fit.Weights[p-1]) > 1e-9*(1+norm) {
			t.Fatalf("equal columns weigh %v and %v", fit.Weights[0], fit.Weights[p-1])
		}
	})
}

// TestLeastSquaresTall: reducing the rows first does not change the answer.
func TestLeastSquaresTall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x := mat.NewDense(5000, 3, nil)
	y := make([]float64, 5000)
	for i := range y {
		a, b := r.Float64(), r.NormFloat64()
		x.SetRow(i, []float64{a, 1e6 * b, a})
		y[i] = 3 + 4*a - 5e-6*1e6*b
	}
	fit, err := LeastSquares(x, y)
	if err != nil {
		t.Fatal(err)
	}
	for j, want := range []float64{2, -5e-6, 2} {
		if math.Abs(fit.Weights[j]/want-1) > 1e-9 {
			t.Errorf("weight %d is %v, want %v", j, fit.Weights[j], want)
		}
	}
	if math.Abs(fit.Bias-3) > 1e-9 || fit.Rank != 2 {
		t.Errorf("bias %v, rank %d, want 3 and 2", fit.Bias, fit.Rank)
	}
}

// TestNNLSOptimality: no coefficient is negative, none in use has a gradient,
// and none at zero would lower the error by growing.
func TestNNLSOptimality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, p := rapid.IntRange(1, 30).Draw(t, "n"), rapid.IntRange(1, 10).Draw(t, "p")
		a := matrix(t, n, p)
		b := rapid.SliceOfN(rapid.Float64Range(-10, 10), n, n).Draw(t, "b")
		x, err := NNLS(a, b)
		if err != nil {
			t.Fatal(err)
		}
		residual := make([]float64, n)
		var size float64
		for i := range n {
			residual[i] = -b[i]
			size = max(size, math.Abs(b[i]))
			for j := range p {
				residual[i] += a.At(i, j) * x[j]
				size = max(size, math.Abs(a.At(i, j)*x[j]))
			}
		}
		for j := range p {
			var gradient, length float64
			for i := range n {
				gradient += a.At(i, j) * residual[i]
				length += a.At(i, j) * a.At(i, j)
			}
			tolerance := 1e-5 * math.Sqrt(length) * (1e-9 + size)
			switch {
			case x[j] < 0:
				t.Fatalf("coefficient %d is %v", j, x[j])
			case x[j] > 0 && math.Abs(gradient) > tolerance:
				t.Fatalf("coefficient %d is %v with gradient %v", j, x[j], gradient)
			case gradient < -tolerance:
				t.Fatalf("coefficient %d is 0 with gradient %v", j, gradient)
			}
		}
	})
}

// TestNNLSStart: where the search begins does not change where it ends.
func TestNNLSStart(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		const n, p = 40, 8
		a := mat.NewDense(n, p, nil)
		b := make([]float64, n)
		for i := range n {
			for j := range p {
				a.Set(i, j, r.NormFloat64())
			}
			b[i] = r.NormFloat64()
		}
		want, err := NNLS(a, b)
		if err != nil {
			t.Fatal(err)
		}
		var gram mat.SymDense
		gram.SymOuterK(1, a.T())
		var along mat.VecDense
		along.MulVec(a.T(), mat.NewVecDense(n, b))
		start := make([]float64, p)
		for j := range start {
			start[j] = float64(r.IntN(2))
		}
		got, err := NNLSNormal(&gram, along.RawVector().Data, start)
		if err != nil {
			t.Fatal(err)
		}
		for j := range p {
			if math.Abs(got[j]-want[j]) > 1e-9 {
				t.Fatalf("coefficient %d is %v from one start and %v from another", j, got[j], want[j])
			}
		}
	}
}

func TestFitsRefuse(t *testing.T) {
	nan := mat.NewDense(2, 1, []float64{1, math.NaN()})
	for _, c := range []struct {
		why string
		x   *mat.Dense
		y   []float64
	}{
		{"no matrix", nil, nil},
		{"fewer values than rows", mat.NewDense(2, 1, nil), []float64{1}},
		{"NaN in the matrix", nan, []float64{1, 2}},
		{"infinity in the values", mat.NewDense(2, 1, nil), []float64{1, math.Inf(1)}},
	} {
		if _, err := LeastSquares(c.x, c.y); err == nil {
			t.Errorf("least squares: %s: accepted", c.why)
		}
		if _, err := NNLS(c.x, c.y); err == nil {
			t.Errorf("non-negative least squares: %s: accepted", c.why)
		}
	}
	if _, err := LeastSquares(nil, nil); !errors.Is(err, ErrNoData) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := NNLSNormal(mat.NewSymDense(2, nil), []float64{1}, nil); err == nil {
		t.Error("sizes that differ: accepted")
	}
	if _, err := NNLSNormal(mat.NewSymDense(1, []float64{math.NaN()}), []float64{1}, nil); err == nil {
		t.Error("a squared length of NaN: accepted")
	}
}

func TestConformalQuantile(t *testing.T) {
	nine := []float64{-9, 8, -7, 6, 5, 4, 3, 2, 1}
	for _, c := range []struct {
		why            string
		residuals      []float64
		level          float64
		width, reached float64
	}{
		{"⌈10·0.8⌉ is the eighth", nine, 0.8, 8, 0.8},
		{"⌈10·0.75⌉ is the eighth", nine, 0.75, 8, 0.8},
		{"nine residuals cannot promise 95 %", nine, 0.95, 9, 0.9},
		{"one residual promises a half", []float64{-3}, 0.8, 3, 0.5},
	} {
		width, reached, err := ConformalQuantile(c.residuals, c.level)
		if err != nil || width != c.width || math.Abs(reached-c.reached) > 1e-12 {
			t.Errorf("%s: %v at %v, error %v, want %v at %v", c.why, width, reached, err, c.width, c.reached)
		}
	}
	for _, level := range []float64{0, 1, -1, math.NaN()} {
		if _, _, err := ConformalQuantile(nine, level); err == nil {
			t.Errorf("level %v: accepted", level)
		}
	}
	if _, _, err := ConformalQuantile(nil, 0.8); !errors.Is(err, ErrNoData) {
		t.Errorf("no residuals: %v", err)
	}
	if _, _, err := ConformalQuantile([]float64{math.NaN()}, 0.8); err == nil {
		t.Error("a residual of NaN: accepted")
	}
}

// TestConformalCoverage: over many draws a new residual is covered as often
// as promised.
func TestConformalCoverage(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const draws = 20000
	covered := 0
	for range draws {
		residuals := make([]float64, 24)
		for i := range residuals {
			residuals[i] = r.NormFloat64()
		}
		width, _, err := ConformalQuantile(residuals, 0.8)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(r.NormFloat64()) <= width {
			covered++
		}
	}
	if share := float64(covered) / draws; math.Abs(share-0.8) > 0.01 {
		t.Errorf("covered %.3f, want 0.80", share)
	}
}

func BenchmarkNNLSTall(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	const n, p = 100_000, 30
	a := mat.NewDense(n, p, nil)
	y := make([]float64, n)
	for i := range n {
		for j := range p {
			a.Set(i, j, r.Float64())
		}
		y[i] = r.Float64()
	}
	for b.Loop() {
		if _, err := NNLS(a, y); err != nil {
			b.Fatal(err)
		}
	}
}
