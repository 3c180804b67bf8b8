package layers

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/llmprof/llmprof/stat"
)

// batch is the shape of one attention call: a prompt chunk of c tokens on p
// cached ones, and n sequences that decode on k cached tokens each.
type batch struct{ c, p, n, k float64 }

// timed is a batch and its time in seconds.
type timed struct {
	batch
	t float64
}

// phase tells which parts a batch has.
type phase int

const (
	decodePhase phase = iota
	chunkPhase
	mixedPhase
)

func (b batch) phase() phase {
	switch {
	case b.c == 0:
		return decodePhase
	case b.n == 0:
		return chunkPhase
	}
	return mixedPhase
}

func (b batch) sizes() [4]float64 { return [4]float64{b.c, b.p, b.n, b.k} }

// surface is a function of batches, in seconds: a lattice of times, non-
// decreasing in each size. Index 0 of the first and the third axis stands for
// no chunk and no decodes.
type surface struct {
	axes [4][]float64 // chunk, its context, sequences, their context
	time *lattice
	end  [4]float64 // what was measured of each axis
	// slope are the rises beyond the end of each axis, over the others: in
	// seconds per token of context, per sequence, and per pair of tokens.
	slope [4]*lattice
}

// mostNodes bounds a lattice; axes of larger ones are thinned.
const mostNodes = 1 << 19

// octaves are the positions of the sizes of an axis in octaves. Zero, which
// some axes start with, lies an octave below the first size.
func octaves(axis []float64) []float64 {
	out := make([]float64, len(axis))
	for i, x := range axis {
		switch {
		case x > 0:
			out[i] = math.Log2(x)
		case len(axis) > 1:
			out[i] = math.Log2(axis[1]) - 1
		}
	}
	return out
}

// axesOf are the sizes that occur in the rows, thinned to the bound.
func axesOf(rows []timed) (axes [4][]float64) {
	for d := range axes {
		values := map[float64]bool{}
		for _, r := range rows {
			if d == 1 && r.c == 0 || d == 3 && r.n == 0 {
				continue
			}
			values[r.sizes()[d]] = true
		}
		if d == 0 || d == 2 || len(values) == 0 {
			values[0] = true
		}
		for x := range values {
			axes[d] = append(axes[d], x)
		}
		slices.Sort(axes[d])
	}
	for {
		size, longest := 1.0, 0
		for d := range axes {
			size *= float64(len(axes[d]))
			if len(axes[d]) > len(axes[longest]) {
				longest = d
			}
		}
		if size <= mostNodes {
			return axes
		}
		long := axes[longest]
		var thin []float64
		for i, x := range long {
			if i < 2 || i%2 == 1 || i == len(long)-1 {
				thin = append(thin, x)
			}
		}
		if len(thin) == len(long) {
			return axes
		}
		axes[longest] = thin
	}
}

// locate is the node of a batch, if it is one.
func locate(axes [4][]float64, b batch) (i [4]int, ok bool) {
	for d, x := range b.sizes() {
		if d == 1 && b.c == 0 || d == 3 && b.n == 0 {
			continue
		}
		at, found := slices.BinarySearch(axes[d], x)
		if !found {
			return i, false
		}
		i[d] = at
	}
	return i, true
}

func fitSurface(rows []timed) *surface {
	s := &surface{axes: axesOf(rows)}
	var parts [3][]timed
	for _, r := range rows {
		parts[r.phase()] = append(parts[r.phase()], r)
	}
	none := []float64{0}
	decode := fitPart(parts[decodePhase], [4][]float64{none, none, s.axes[2][1:], s.axes[3]}, decodeTerms)
	chunk := fitPart(parts[chunkPhase], [4][]float64{s.axes[0][1:], s.axes[1], none, none}, chunkTerms)
	mixed := fitPart(parts[mixedPhase], [4][]float64{s.axes[0][1:], s.axes[1], s.axes[2][1:], s.axes[3]}, func(b batch) []float64 {
		i, _ := locate(s.axes, b)
		d, c := 0.0, 0.0
		if decode != nil {
			d = decode.at[decode.index([4]int{0, 0, i[2] - 1, i[3]})]
		}
		if chunk != nil {
			c = chunk.at[chunk.index([4]int{i[0] - 1, i[1], 0, 0})]
		}
		return []float64{1, d, c, max(d, c), b.n, b.n * b.k, b.c * (b.p + b.c/2)}
	})
	s.time = newLattice(s.axes)
	for k := range s.time.at {
		i := s.time.node(k)
		switch c, n := i[0], i[2]; {
		case c == 0 && n > 0 && decode != nil:
			s.time.at[k] = decode.at[decode.index([4]int{0, 0, n - 1, i[3]})]
		case n == 0 && c > 0 && chunk != nil:
			s.time.at[k] = chunk.at[chunk.index([4]int{c - 1, i[1], 0, 0})]
		case c > 0 && n > 0 && mixed != nil:
			s.time.at[k] = mixed.at[mixed.index([4]int{c - 1, i[1], n - 1, i[3]})]
		}
	}
	s.time.rising()
	return s.extended()
}

// reach are the nodes that are added beyond the end of each axis, in ends.
func reach() []float64 { return []float64{2, 4, 16} }

// extended adds nodes beyond the data, which continue the slopes of their
// neighbourhood and are raised where they would fall. Inside nothing changes.
func (s *surface) extended() *surface {
	out := &surface{axes: s.axes}
	for d, axis := range s.axes {
		out.end[d] = axis[len(axis)-1]
		out.axes[d] = slices.Clone(axis)
		for _, times := range reach() {
			if out.end[d] > 0 {
				out.axes[d] = append(out.axes[d], times*out.end[d])
			}
		}
	}
	out.time = newLattice(out.axes)
	for k := range out.time.at {
		i := out.time.node(k)
		b := batch{out.axes[0][i[0]], out.axes[1][i[1]], out.axes[2][i[2]], out.axes[3][i[3]]}
		out.time.at[k] = s.local(b)
	}
	out.time.cover()
	for d := range out.slope {
		out.slope[d] = out.slopes(d)
	}
	return out
}

// local is the time of a batch beyond the data by the rise over about the last
// octave before it.
func (s *surface) local(b batch) float64 {
	e := s.ends(b)
	at, w := s.place(e)
	v := s.time.blend(at, w)
	out := v
	rise := func(d int) float64 { // s over the octave
		low := e
		sizes := [...]*float64{&low.c, &low.p, &low.n, &low.k}
		*sizes[d] = s.axes[d][s.back(d)]
		at, w := s.place(low)
		return max(0, v-s.time.blend(at, w))
	}
	step := func(d int) float64 {
		axis := s.axes[d]
		return axis[len(axis)-1] - axis[s.back(d)]
	}
	if b.k > e.k && b.n > 0 && step(3) > 0 {
		out += rise(3) / step(3) * (b.k - e.k) * max(1, b.n/max(1, e.n))
	}
	if b.p > e.p && b.c > 0 && step(1) > 0 {
		out += rise(1) / step(1) * (b.p - e.p) * max(1, b.c/max(1, e.c))
	}
	if b.n > e.n && step(2) > 0 {
		out += rise(2) / step(2) * (b.n - e.n)
	}
	if b.c > e.c && step(0) > 0 {
		low := s.axes[0][s.back(0)]
		out += rise(0) / (pairs(e.c, e.p) - pairs(low, e.p)) * (pairs(b.c, e.p) - pairs(e.c, e.p))
	}
	return out
}

// back is the last node of an axis that is no more than half of its end.
func (s *surface) back(d int) int {
	axis := s.axes[d]
	back := 0
	for i, x := range axis {
		if x <= axis[len(axis)-1]/2 {
			back = i
		}
	}
	return back
}

// pairs is the work of a chunk of c tokens on p cached ones.
func pairs(c, p float64) float64 { return c * (p + c/2) }

// slopes are the rises over about the last octave of axis d, non-decreasing
// along the others as the times are: what goes on for ever.
func (s *surface) slopes(d int) *lattice {
	axes := s.axes
	last := len(axes[d]) - 1
	back := s.back(d)
	axes[d] = axes[d][last:]
	l := newLattice(axes)
	if back == last {
		return l
	}
	for k := range l.at {
		end := l.node(k)
		from := end
		end[d], from[d] = last, back
		step := s.axes[d][last] - s.axes[d][back]
		if p := s.axes[1][end[1]]; d == 0 {
			step = pairs(s.axes[0][last], p) - pairs(s.axes[0][back], p)
		}
		l.at[k] = max(0, s.time.at[s.time.index(end)]-s.time.at[s.time.index(from)]) / step
	}
	l.rising()
	return l
}

// decodeTerms are what decodes cost: a launch, sequences, the longest one, and
// reads of the cache.
func decodeTerms(b batch) []float64 { return []float64{1, b.n, b.k, b.n * b.k} }

// chunkTerms are what a chunk costs: a launch, its tokens, reads of the cache,
// and pairs of tokens.
func chunkTerms(b batch) []float64 {
	return []float64{1, b.c, b.p, b.c * b.p, b.c * b.c / 2}
}

// fitTerms fits non-negative weights in relative error.
func fitTerms(rows []timed, terms func(batch) []float64) func(batch) float64 {
	width := len(terms(rows[0].batch))
	a, b := mat.NewDense(len(rows), width, nil), make([]float64, len(rows))
	for i, r := range rows {
		for j, x := range terms(r.batch) {
			a.Set(i, j, x/r.t)
		}
		b[i] = 1
	}
	weights, err := stat.NNLS(a, b)
	if err != nil {
		weights = make([]float64, width)
	}
	least := math.Inf(1)
	for _, r := range rows {
		least = min(least, r.t)
	}
	return func(at batch) float64 {
		sum := 0.0
		for j, x := range terms(at) {
			sum += weights[j] * x
		}
		return max(sum, least/2)
	}
}

// fitPart fits one phase: terms, and on the nodes of the lattice what they
// miss, in logs. It is nil without rows.
func fitPart(rows []timed, axes [4][]float64, terms func(batch) []float64) *lattice {
	onGrid := rows[:0:0]
	var places [][4]int
	for _, r := range rows {
		if i, ok := locate(axes, r.batch); ok {
			onGrid, places = append(onGrid, r), append(places, i)
		}
	}
	if len(onGrid) == 0 {
		return nil
	}
	base := fitTerms(onGrid, terms)
	var logs [4][]float64
	for d, axis := range axes {
		logs[d] = octaves(axis)
	}
	l := newLattice(logs)
	for i, r := range onGrid {
		l.set(places[i], math.Log(r.t/base(r.batch)))
	}
	l.fill()
	for k := range l.at {
		i := l.node(k)
		l.at[k] = base(batch{axes[0][i[0]], axes[1][i[1]], axes[2][i[2]], axes[3][i[3]]}) * math.Exp(l.at[k])
	}
	return l
}

// bracket finds x on an axis: the node at or below it and how far it is
// towards the next one, 0..1. Outside it clamps.
func bracket(axis []float64, x float64) (i int, w float64) {
	if len(axis) < 2 || x <= axis[0] {
		return 0, 0
	}
	last := len(axis) - 1
	if x >= axis[last] {
		return last - 1, 1
	}
	i, found := slices.BinarySearchFunc(axis, x, cmp.Compare[float64])
	if found {
		return i, 0
	}
	return i - 1, (x - axis[i-1]) / (axis[i] - axis[i-1])
}

// place is the cell of a batch and where it lies in it; sizes beyond the
// lattice clamp. A chunk or a count below the first that was measured counts as
// that one.
func (s *surface) place(b batch) (at [4]int, w [4]float64) {
	if b.c > 0 && len(s.axes[0]) > 1 {
		c := max(b.c, s.axes[0][1])
		at[0], w[0] = bracket(s.axes[0][1:], c)
		at[0]++
		if w[0] > 0 && w[0] < 1 {
			// Between chunks the work grows as the pairs of tokens.
			low, high := pairs(s.axes[0][at[0]], b.p), pairs(s.axes[0][at[0]+1], b.p)
			w[0] = (pairs(c, b.p) - low) / (high - low)
		}
		at[1], w[1] = bracket(s.axes[1], b.p)
	}
	if b.n > 0 && len(s.axes[2]) > 1 {
		at[2], w[2] = bracket(s.axes[2][1:], max(b.n, s.axes[2][1]))
		at[2]++
		at[3], w[3] = bracket(s.axes[3], b.k)
	}
	return at, w
}

// ends is the batch with all sizes clamped to the ends of the axes.
func (s *surface) ends(b batch) batch {
	last := func(d int) float64 { return s.axes[d][len(s.axes[d])-1] }
	return batch{min(b.c, last(0)), min(b.p, last(1)), min(b.n, last(2)), min(b.k, last(3))}
}

// seconds is the time of a batch. Beyond the lattice the slopes at its ends go
// on: per token of context in proportion to what reads it, per pair of tokens for
// the chunk.
func (s *surface) seconds(b batch) float64 {
	e := s.ends(b)
	at, w := s.place(e)
	out := s.time.blend(at, w)
	if b == e {
		return out
	}
	slope := func(d int) float64 {
		at, w := at, w
		at[d], w[d] = 0, 0
		return s.slope[d].blend(at, w)
	}
	if b.k > e.k && b.n > 0 {
		out += slope(3) * (b.k - e.k) * max(1, b.n/max(1, e.n))
	}
	if b.p > e.p && b.c > 0 {
		out += slope(1) * (b.p - e.p) * max(1, b.c/max(1, e.c))
	}
	if b.n > e.n {
		out += slope(2) * (b.n - e.n)
	}
	if b.c > e.c {
		out += slope(0) * (pairs(b.c, e.p) - pairs(e.c, e.p))
	}
	return out
}

// octaves is how far a batch lies beyond the lattice, summed over the sizes.
func (s *surface) octaves(b batch) float64 {
	sum := 0.0
	for d, x := range b.sizes() {
		if d < 2 && b.c == 0 || d >= 2 && b.n == 0 {
			continue
		}
		axis := s.axes[d]
		sum += math.Log2(max(1, x/max(1, s.end[d])))
		first := axis[0]
		if (d == 0 || d == 2) && len(axis) > 1 {
			first = axis[1]
		}
		sum += math.Log2(max(1, first/max(1, x)))
	}
	return sum
}
