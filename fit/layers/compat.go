package layers

import (
	"cmp"
	"math"
	"slices"

	"github.com/llmprof/llmprof/stat"
)

// line is a table of one size: ascending sizes and their times.
type line struct {
	x  []int
	ns []int64
}

// span is where a size lies among ascending ones: at lower, and weight of the
// way to the next. Below the first it clamps, above the last the weight
// exceeds 1.
func span(axis []int, x float64) (lower int, weight float64) {
	last := len(axis) - 1
	if last < 1 || x <= float64(axis[0]) {
		return 0, 0
	}
	i, found := slices.BinarySearchFunc(axis, x, func(a int, x float64) int { return cmp.Compare(float64(a), x) })
	if found && i < last {
		return i, 0
	}
	i = min(max(i, 1), last)
	return i - 1, (x - float64(axis[i-1])) / float64(axis[i]-axis[i-1])
}

func spanBasis(axis []int, x float64, weight float64) stat.Basis {
	switch {
	case x < float64(axis[0]) || x > float64(axis[len(axis)-1]):
		return stat.Extrapolated
	case weight == 0 || weight == 1:
		return stat.Measured
	}
	return stat.Interpolated
}

func (l line) at(x float64) (float64, stat.Basis) {
	i, w := span(l.x, x)
	v := float64(l.ns[i])
	if w != 0 {
		v += w * float64(l.ns[i+1]-l.ns[i])
	}
	return v, spanBasis(l.x, x, w)
}

// nearest is the time of the closest size, the smaller of two that are equally
// close.
func (l line) nearest(x float64) (float64, stat.Basis) {
	i, w := span(l.x, x)
	if w > 0.5 {
		i++
	}
	basis := stat.Interpolated
	if float64(l.x[i]) == x {
		basis = stat.Measured
	}
	return float64(l.ns[i]), basis
}

// expertLine is a table of tokens for a number of activated experts.
type expertLine struct {
	experts int
	line
}

// batchIndex is the table of attention: slices of equal chunk and number of
// decodes.
type batchIndex struct {
	chunks, counts []int
	slices         map[[2]int]*batchSlice
	pairs          [][2]int   // keys of slices in ascending order
	grid           []gridCell // by chunk and count
}

// gridCell is the slice of a chunk and a number of decodes, or the one that
// replaces it.
type gridCell struct {
	*batchSlice
	replaced bool
}

// batchSlice holds for each context of the chunk the times by context of the
// decodes.
type batchSlice struct {
	contexts []int
	lines    []line
}

// index prepares the compat lookups of a generation.
func (l *layer) index(g Generation) {
	switch l.kind {
	case perBatch:
		if g != V11 {
			return // looked up by key
		}
		l.batch = &batchIndex{slices: map[[2]int]*batchSlice{}}
		for _, r := range l.rows {
			l.batch.add(r)
		}
		slices.Sort(l.batch.chunks)
		slices.Sort(l.batch.counts)
		l.batch.chunks = slices.Compact(l.batch.chunks)
		l.batch.counts = slices.Compact(l.batch.counts)
		slices.SortFunc(l.batch.pairs, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
		for _, chunk := range l.batch.chunks {
			for _, count := range l.batch.counts {
				l.batch.grid = append(l.batch.grid, l.batch.cell(chunk, count))
			}
		}
	case perExpert:
		rows := slices.Clone(l.rows)
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.experts, b.experts) })
		for _, r := range rows {
			if n := len(l.lines); n == 0 || l.lines[n-1].experts != r.experts {
				l.lines = append(l.lines, expertLine{experts: r.experts})
			}
			into := &l.lines[len(l.lines)-1]
			into.x, into.ns = append(into.x, r.tokens), append(into.ns, r.first)
		}
	default:
		for _, r := range l.rows {
			x := r.tokens
			if l.kind == perSequence {
				x = r.sequences
			}
			if n := len(l.line.x); r.context == 0 && (n == 0 || l.line.x[n-1] != x) {
				l.line.x, l.line.ns = append(l.line.x, x), append(l.line.ns, r.first)
			}
		}
		if len(l.line.x) == 0 { // a layer of decodes only
			r := l.rows[0]
			l.line.x, l.line.ns = []int{r.tokens}, []int64{r.first}
		}
	}
}

// add takes rows in ascending order of chunk and its context.
func (b *batchIndex) add(r row) {
	key := [2]int{r.tokens, r.sequences}
	s := b.slices[key]
	if s == nil {
		s = &batchSlice{}
		b.slices[key] = s
		b.pairs = append(b.pairs, key)
		b.chunks = append(b.chunks, r.tokens)
		b.counts = append(b.counts, r.sequences)
	}
	if n := len(s.contexts); n == 0 || s.contexts[n-1] != r.context {
		s.contexts = append(s.contexts, r.context)
		s.lines = append(s.lines, line{})
	}
	into := &s.lines[len(s.lines)-1]
	into.x, into.ns = append(into.x, r.sequenceContext), append(into.ns, r.first)
}

func (s *batchSlice) at(context, sequenceContext float64) (float64, stat.Basis) {
	i, w := span(s.contexts, context)
	v, basis := s.lines[i].at(sequenceContext)
	if w != 0 {
		high, b := s.lines[i+1].at(sequenceContext)
		v, basis = v+w*(high-v), weaker(basis, b)
	}
	return v, weaker(basis, spanBasis(s.contexts, context, w))
}

// cell is the slice of a chunk and a number of decodes, or of the pair nearest
// to them where they were not measured together.
func (b *batchIndex) cell(chunk, count int) gridCell {
	if s := b.slices[[2]int{chunk, count}]; s != nil {
		return gridCell{s, false}
	}
	best, least := b.pairs[0], math.Inf(1)
	for _, p := range b.pairs {
		if d := math.Hypot(float64(p[0]-chunk), float64(p[1]-count)); d < least {
			best, least = p, d
		}
	}
	return gridCell{b.slices[best], true}
}

// at is the v1.1 rule: within a slice over both contexts, then over the number
// of decodes, then over the chunk.
func (b *batchIndex) at(q batch) (float64, stat.Basis) {
	ci, cw := span(b.chunks, q.c)
	ni, nw := span(b.counts, q.n)
	basis := weaker(spanBasis(b.chunks, q.c, cw), spanBasis(b.counts, q.n, nw))
	corner := func(c, n int) float64 {
		s := b.grid[c*len(b.counts)+n]
		v, own := s.at(q.p, q.k)
		if s.replaced {
			own = weaker(own, stat.Interpolated)
		}
		basis = weaker(basis, own)
		return v
	}
	along := func(c int) float64 {
		v := corner(c, ni)
		if nw != 0 {
			v += nw * (corner(c, ni+1) - v)
		}
		return v
	}
	v := along(ci)
	if cw != 0 {
		v += cw * (along(ci+1) - v)
	}
	return v, basis
}

// experts is the rule for mixtures of experts: over the tokens for either
// number of experts, then between those.
func (l *layer) experts(tokens, activated float64) (float64, stat.Basis) {
	i, w := 0, 0.0
	last := len(l.lines) - 1
	if last > 0 && activated > float64(l.lines[0].experts) {
		for i < last-1 && float64(l.lines[i+1].experts) <= activated {
			i++
		}
		low, high := float64(l.lines[i].experts), float64(l.lines[i+1].experts)
		w = (activated - low) / (high - low)
	}
	v, basis := l.lines[i].at(tokens)
	if w != 0 {
		high, b := l.lines[i+1].at(tokens)
		v, basis = v+w*(high-v), weaker(basis, b)
		if w != 1 {
			basis = weaker(basis, stat.Interpolated)
		}
	}
	if activated < float64(l.lines[0].experts) || activated > float64(l.lines[last].experts) {
		basis = stat.Extrapolated
	}
	return v, basis
}

// The grid of the v1.0 predictions, in tokens.
const (
	contextStep = 64
	chunkStep   = 32
)

func roundUp(x float64, step float64) int { return int(math.Ceil(x/step) * step) }

// parts is the v1.0 rule of attention: a prediction for the chunk and one for
// the decodes, both on a coarse grid.
func (l *layer) parts(q batch) (ns float64, basis stat.Basis) {
	basis = stat.Measured
	add := func(s size, far func(size) float64) {
		i, ok := l.at[s]
		if !ok {
			basis = stat.Interpolated
			least := math.Inf(1)
			i = -1
			for j, r := range l.rows {
				if d := far(r.size); d < least {
					i, least = j, d
				}
			}
		}
		if i >= 0 {
			ns += float64(l.rows[i].first)
		}
	}
	if q.c > 0 {
		s := size{tokens: roundUp(q.c, chunkStep), context: roundUp(q.p, contextStep)}
		add(s, func(o size) float64 {
			if o.tokens == 0 || o.sequences > 0 {
				return math.Inf(1)
			}
			return math.Hypot(float64(o.tokens-s.tokens), float64(o.context-s.context))
		})
	}
	if q.n > 0 {
		s := size{sequences: int(q.n), sequenceContext: roundUp(q.k, contextStep)}
		add(s, func(o size) float64 {
			if o.sequences == 0 || o.tokens > 0 {
				return math.Inf(1)
			}
			return math.Hypot(float64(o.sequences-s.sequences), float64(o.sequenceContext-s.sequenceContext))
		})
	}
	return ns, basis
}

// compat is the time in ns by the rules of a generation. ok is false where the
// generation has no answer.
func (l *layer) compat(g Generation, s size, q batch) (ns float64, basis stat.Basis, ok bool) {
	if g == Seed {
		i, found := l.at[s]
		if !found {
			return 0, "", false
		}
		return float64(l.rows[i].last), stat.Measured, true
	}
	switch l.kind {
	case perBatch:
		if g == V10 {
			ns, basis = l.parts(q)
			return ns, basis, ns > 0
		}
		ns, basis = l.batch.at(q)
	case perExpert:
		ns, basis = l.experts(float64(s.tokens), float64(s.experts))
	default:
		if i, found := l.at[s]; found {
			ns, basis = float64(l.rows[i].first), stat.Measured
			break
		}
		x := s.tokens
		if l.kind == perSequence {
			x = s.sequences
		}
		if g == V10 {
			ns, basis = l.line.nearest(float64(x))
		} else {
			ns, basis = l.line.at(float64(x))
		}
	}
	return max(1, math.Trunc(ns)), basis, true
}

// weaker is the weaker of two bases of lookups.
func weaker(a, b stat.Basis) stat.Basis {
	for _, basis := range []stat.Basis{stat.Extrapolated, stat.Interpolated} {
		if a == basis || b == basis {
			return basis
		}
	}
	return stat.Measured
}
