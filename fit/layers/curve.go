package layers

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/llmprof/llmprof/stat"
)

// sample is a size and the time in seconds that was measured at it.
type sample struct {
	x, t float64
}

// curve is the physical model of a layer along one size: through the data,
// smoothed so that noise does not make it fall, and beyond them along
// √(flat² + (rate·x)²).
type curve struct {
	points []sample // ascending in x
	tile   float64  // times rise at multiples of it; 1 for smoothly
	heavy  bool     // reads weights: far above the time of a launch, and flat at first
	flat   float64  // s
	rate   float64  // s per unit of x
	square float64  // s per unit of x², of layers that work on pairs
	sum    bool     // flat + rate·x + square·x² instead of the root
	pairs  bool     // works on pairs of tokens
	inside band
	beyond band // for each octave above the last point
}

// band is the half-width of an interval in logs, and the level it reaches; the
// zero value is none.
type band struct{ half, level float64 }

// The tiles of matrix products, in rows. The usual one is taken where the data
// do not tell.
const usualTile = 128

func tiles() []float64 { return []float64{1, 16, 32, 64, 128, 256} }

const (
	// within is what a step inside a tile counts; the rest waits for the next.
	within = 0.05
	// clearFall in logs is more than noise.
	clearFall = 0.1
	// clearlyBetter is the share of the usual tile's error that makes another
	// one the better choice.
	clearlyBetter = 0.8
	// heavyLaunches, flatSpan and flatRise tell layers that read weights: so
	// many times the shortest time of any layer, and over so many times the
	// smallest size no more than so much longer.
	heavyLaunches, flatSpan, flatRise = 4, 64, 1.5
	// heavyTail and lightTail are the parts of the range, down from its end,
	// that the continuation is fitted to.
	heavyTail, lightTail = 8, 4
	// heavyFade is how fast the last step of a heavy layer is forgotten beyond
	// the data, as a power of the distance: within an octave.
	heavyFade = 4
)

// effective is the size that times are linear in.
func effective(x, tile float64) float64 {
	if tile <= 1 {
		return x
	}
	return (1-within)*math.Ceil(x/tile)*tile + within*x
}

// smoothed makes the times non-decreasing: neighbours that fall share their
// geometric mean, unless one is clearly off it.
func smoothed(in []sample) []sample {
	type pool struct{ sum, n float64 }
	var pools []pool
	for _, s := range in {
		pools = append(pools, pool{math.Log(s.t), 1})
		for len(pools) > 1 {
			a, b := pools[len(pools)-2], pools[len(pools)-1]
			if a.sum/a.n <= b.sum/b.n {
				break
			}
			pools = append(pools[:len(pools)-2], pool{a.sum + b.sum, a.n + b.n})
		}
	}
	out := make([]sample, 0, len(in))
	for _, p := range pools {
		own := in[len(out) : len(out)+int(p.n)]
		mean := p.sum / p.n
		off := slices.ContainsFunc(own, func(s sample) bool { return math.Abs(math.Log(s.t)-mean) > clearFall })
		for _, s := range own {
			if len(own) > 1 && !off {
				s.t = math.Exp(mean)
			}
			out = append(out, s)
		}
	}
	return out
}

// join is the straight line between two points in the effective size.
func join(a, b sample, tile, x float64) float64 {
	from := effective(a.x, tile)
	return a.t + (effective(x, tile)-from)/(effective(b.x, tile)-from)*(b.t-a.t)
}

// leftOut are the errors, in logs, of the points when their neighbours
// interpolate them.
func leftOut(points []sample, tile float64) []float64 {
	var out []float64
	for i := 1; i+1 < len(points); i++ {
		out = append(out, math.Log(join(points[i-1], points[i+1], tile, points[i].x)/points[i].t))
	}
	return out
}

func meanAbs(errors []float64) float64 {
	sum := 0.0
	for _, e := range errors {
		sum += math.Abs(e)
	}
	return sum / float64(max(1, len(errors)))
}

// tells reports whether there are points that show what happens within tiles.
func tells(in []sample, tile float64) bool {
	n := 0
	for _, s := range in {
		if tile == 1 || s.x > tile && math.Mod(s.x, tile) != 0 {
			n++
		}
	}
	return n >= 4
}

// fitCurve fits a layer inside the range of its samples, which ascend in x.
// launch is the shortest time of any layer in s. [curve.continued] is still to
// be called.
func fitCurve(in []sample, launch float64) *curve {
	c := &curve{points: smoothed(in), tile: 1}
	first := in[0]
	c.heavy = first.t > heavyLaunches*launch
	for _, s := range in {
		if s.x <= flatSpan*first.x && s.t > flatRise*first.t {
			c.heavy = false
		}
	}
	if c.heavy {
		c.tile = usualTile
	}
	best := meanAbs(leftOut(in, c.tile))
	usual := c.tile
	for _, tile := range tiles() {
		if tile == usual || !tells(in, max(tile, usual)) || c.heavy && tile < usualTile/4 {
			continue
		}
		if e := meanAbs(leftOut(in, tile)); e < clearlyBetter*best {
			best, c.tile = e, tile
		}
	}
	return c
}

// onPairs makes it the curve of a layer that works on pairs of tokens.
func (c *curve) onPairs() { c.pairs, c.heavy, c.tile = true, false, 1 }

// tail are the points that the continuation is fitted to.
func (c *curve) tail() []sample {
	last := c.points[len(c.points)-1]
	part := float64(lightTail)
	if c.heavy {
		part = heavyTail
	}
	i := slices.IndexFunc(c.points, func(s sample) bool { return s.x > last.x/part })
	return c.points[max(0, i):]
}

// roots are the rows of the least-squares problem of flat² and rate², in
// relative error, for times in units of unit.
func roots(rows []sample, tile, unit float64) (a [][2]float64) {
	for _, s := range rows {
		e, t := effective(s.x, tile), s.t/unit
		a = append(a, [2]float64{1 / (t * t), e * e / (t * t)})
	}
	return a
}

// solve fits the right side, by default ones, by non-negative weights of the
// columns.
func solve[R [2]float64 | [3]float64](rows []R, right []float64) (w R) {
	if len(rows) == 0 {
		return w
	}
	a, b := mat.NewDense(len(rows), len(w), nil), make([]float64, len(rows))
	for i, r := range rows {
		for j := range len(w) {
			a.Set(i, j, r[j])
		}
		b[i] = 1
	}
	copy(b, right)
	if x, err := stat.NNLS(a, b); err == nil {
		for j := range x {
			w[j] = x[j]
		}
	}
	return w
}

// balance is what heavy layers of a device have in common: the rate over the
// time of one, in 1 per unit of x; 0 without heavy layers.
func balance(curves []*curve) float64 {
	var rows [][2]float64
	for _, c := range curves {
		if c.heavy {
			rows = append(rows, roots(c.tail(), c.tile, c.points[0].t)...)
		}
	}
	return math.Sqrt(solve(rows, nil)[1])
}

// continued fits the times beyond the last point. A heavy layer leans towards
// the balance of its device, the more the less of its own range lies where
// arithmetic takes longer than reading the weights.
func (c *curve) continued(balance float64) {
	tail := c.tail()
	rows := roots(tail, c.tile, 1)
	right := slices.Repeat([]float64{1}, len(rows))
	last := c.points[len(c.points)-1]
	if rate := balance * c.points[0].t; c.heavy && rate > 0 {
		weight := math.Sqrt(float64(len(tail))) / (balance * last.x)
		rows = append(rows, [2]float64{0, weight / (rate * rate)})
		right = append(right, weight)
	}
	w := solve(rows, right)
	c.flat, c.rate, c.sum = math.Sqrt(w[0]), math.Sqrt(w[1]), false
	if c.heavy {
		return
	}
	if c.pairs {
		var terms [][3]float64
		for _, s := range tail {
			terms = append(terms, [3]float64{1 / s.t, s.x / s.t, s.x * s.x / s.t})
		}
		w := solve(terms, nil)
		c.flat, c.rate, c.square, c.sum = w[0], w[1], w[2], true
		return
	}
	root, misfit := *c, c.misfit(tail)
	rows = rows[:0]
	for _, s := range tail {
		rows = append(rows, [2]float64{1 / s.t, effective(s.x, c.tile) / s.t})
	}
	w = solve(rows, nil)
	c.flat, c.rate, c.sum = w[0], w[1], true
	if c.misfit(tail) > misfit/2 {
		*c = root
	}
}

func (c *curve) misfit(rows []sample) float64 {
	sum := 0.0
	for _, s := range rows {
		sum += math.Abs(math.Log(s.t / c.base(s.x)))
	}
	return sum
}

func (c *curve) base(x float64) float64 {
	if c.sum {
		return c.flat + c.rate*effective(x, c.tile) + c.square*x*x
	}
	return math.Hypot(c.flat, c.rate*effective(x, c.tile))
}

// at is the time in seconds at x.
func (c *curve) at(x float64) float64 {
	last := len(c.points) - 1
	switch {
	case x <= c.points[0].x:
		return c.points[0].t
	case x <= c.points[last].x:
		i, found := slices.BinarySearchFunc(c.points, x, func(s sample, x float64) int { return cmp.Compare(s.x, x) })
		if found {
			return c.points[i].t
		}
		return join(c.points[i-1], c.points[i], c.tile, x)
	}
	end := c.points[last]
	base := c.base(end.x)
	if !(base > 0) {
		return end.t
	}
	gap := math.Log(end.t / base)
	if c.heavy {
		gap *= math.Pow(end.x/x, heavyFade)
	}
	return max(end.t, c.base(x)*math.Exp(gap))
}

// octaves is how far x lies above the last point; 0 inside.
func (c *curve) octaves(x float64) float64 {
	return math.Log2(max(1, x/c.points[len(c.points)-1].x))
}

// calibrate finds the bands of a level from points that are held out of in.
func (c *curve) calibrate(in []sample, launch, balance, level float64) {
	if errors := leftOut(in, c.tile); len(errors) > 0 {
		if half, reached, err := stat.ConformalQuantile(errors, level); err == nil {
			c.inside = band{half, reached}
		}
	}
	last := in[len(in)-1].x
	n := len(in)
	for n > 0 && in[n-1].x > last/2 {
		n--
	}
	if n < 4 {
		return
	}
	half := fitCurve(in[:n], launch)
	if c.pairs {
		half.onPairs()
	}
	half.continued(balance)
	var errors []float64
	for _, s := range in[n:] {
		errors = append(errors, math.Log(half.at(s.x)/s.t)/max(0.25, half.octaves(s.x)))
	}
	if wide, reached, err := stat.ConformalQuantile(errors, level); err == nil {
		c.beyond = band{max(wide, c.inside.half), reached}
	}
}
