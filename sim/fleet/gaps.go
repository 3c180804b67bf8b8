package fleet

import (
	"math"
	"math/bits"
	"sort"
)

// histogram counts times in ns in buckets of a width of less than 0.8 %, so
// that a quantile is off by less than 0.4 %. Sum and count are exact, and so are
// the extremes unless they were taken out again: then they are off by less than
// 0.8 %.
type histogram struct {
	counts   []uint64
	n        uint64
	sum      uint64    // ns
	squares  [2]uint64 // ns², high and low word: sums that do not depend on the order
	min, max int64     // of all that was ever counted, until tighten
	any      bool      // something was
}

// bucketBits is the number of bits of a time that its bucket keeps.
const bucketBits = 7

// bucket is the bucket of a time of at least 0.
func bucket(t int64) int {
	if t < 1<<bucketBits {
		return int(t)
	}
	shift := bits.Len64(uint64(t)) - bucketBits - 1
	return shift<<bucketBits + int(t>>shift)
}

// edges are the smallest and the largest time of a bucket, in ns.
func edges(b int) (low, high int64) {
	if b < 1<<(bucketBits+1) {
		return int64(b), int64(b)
	}
	shift := b>>bucketBits - 1
	low = int64(b-shift<<bucketBits) << shift
	return low, low + int64(1)<<shift - 1
}

// middle is the middle of a bucket in ns.
func middle(b int) float64 {
	low, high := edges(b)
	return float64(low) + float64(high-low)/2
}

// add counts a time n times.
func (h *histogram) add(t int64, n int) {
	if n == 0 {
		return
	}
	b := bucket(t)
	if b >= len(h.counts) {
		h.counts = append(h.counts, make([]uint64, b+1-len(h.counts)+1<<bucketBits)...)
	}
	h.counts[b] += uint64(n)
	if !h.any || t < h.min {
		h.min = t
	}
	h.max, h.any = max(h.max, t), true
	h.n += uint64(n)
	all := uint64(t) * uint64(n)
	h.sum += all
	high, low := bits.Mul64(uint64(t), all)
	h.square(high, low)
}

// take takes a time out again that was counted n times.
func (h *histogram) take(t int64, n int) {
	h.counts[bucket(t)] -= uint64(n)
	h.n -= uint64(n)
	all := uint64(t) * uint64(n)
	h.sum -= all
	high, low := bits.Mul64(uint64(t), all)
	var borrow uint64
	h.squares[1], borrow = bits.Sub64(h.squares[1], low, 0)
	h.squares[0] -= high + borrow
}

// tighten brings the extremes within what is left.
func (h *histogram) tighten() {
	if h.n == 0 {
		h.min, h.max = 0, 0
		return
	}
	first, last := 0, len(h.counts)-1
	for h.counts[first] == 0 {
		first++
	}
	for h.counts[last] == 0 {
		last--
	}
	least, _ := edges(first)
	_, most := edges(last)
	h.min, h.max = max(h.min, least), min(h.max, most)
}

// square adds to the squares.
func (h *histogram) square(high, low uint64) {
	var carry uint64
	h.squares[1], carry = bits.Add64(h.squares[1], low, 0)
	h.squares[0] += high + carry
}

// merge adds the counts of another histogram.
func (h *histogram) merge(o *histogram) {
	if !o.any {
		return
	}
	if missing := len(o.counts) - len(h.counts); missing > 0 {
		h.counts = append(h.counts, make([]uint64, missing)...)
	}
	for b, n := range o.counts {
		h.counts[b] += n
	}
	if !h.any || o.min < h.min {
		h.min = o.min
	}
	h.max, h.any = max(h.max, o.max), true
	h.n, h.sum = h.n+o.n, h.sum+o.sum
	h.square(o.squares[0], o.squares[1])
}

// mean and deviation are in ns, the latter that of the population.
func (h *histogram) mean() float64 { return float64(h.sum) / float64(h.n) }

func (h *histogram) deviation() float64 {
	m := h.mean()
	squares := math.Ldexp(float64(h.squares[0]), 64) + float64(h.squares[1])
	return math.Sqrt(max(squares/float64(h.n)-float64(m*m), 0))
}

// quantile is that of a share, in ns; the histogram is not empty.
func (h *histogram) quantile(share float64) float64 {
	rank, seen := uint64(share*float64(h.n-1)), uint64(0)
	for b, n := range h.counts {
		if seen += n; seen > rank {
			return min(max(middle(b), float64(h.min)), float64(h.max))
		}
	}
	return float64(h.max)
}

// longest answers what the longest gap since a step was: it keeps the gaps that
// no later one is as long as.
type longest struct {
	step []int32
	gap  []int64
}

// add appends the gap of a step, which is later than all before it.
func (l *longest) add(step int32, gap int64) {
	n := len(l.gap)
	for n > 0 && l.gap[n-1] <= gap {
		n--
	}
	l.step, l.gap = append(l.step[:n], step), append(l.gap[:n], gap)
}

// since is the longest gap of the steps from one on; 0 without any.
func (l *longest) since(step int32) int64 {
	i := sort.Search(len(l.step), func(i int) bool { return l.step[i] >= step })
	if i == len(l.gap) {
		return 0
	}
	return l.gap[i]
}

// level is a quantity over time: its time-weighted mean, and a distribution for
// its quantiles.
type level struct {
	value  int64
	since  int64 // ns
	weight float64
	area   float64
	most   int64
	times  []float64 // ns by bucket of the value
}

// set changes the value at a time.
func (l *level) set(at, value int64) {
	l.until(at)
	l.value, l.most = value, max(l.most, value)
}

// until accounts for the value up to a time.
func (l *level) until(at int64) {
	span := float64(at - l.since)
	l.since = at
	if span <= 0 {
		return
	}
	b := bucket(l.value)
	if b >= len(l.times) {
		l.times = append(l.times, make([]float64, b+1-len(l.times)+1<<bucketBits)...)
	}
	l.times[b] += span
	l.weight += span
	l.area += span * float64(l.value)
}

// before leaves out the time before some moment, in which the value was 0.
func (l *level) before(at int64) {
	if l.weight > 0 {
		l.times[0] -= float64(at)
		l.weight -= float64(at)
	}
}

// mean is the time-weighted mean; 0 over no time.
func (l *level) mean() float64 {
	if l.weight == 0 {
		return 0
	}
	return l.area / l.weight
}

// quantile is the value that is not exceeded in a share of the time.
func (l *level) quantile(share float64) float64 {
	seen := 0.0
	for b, span := range l.times {
		if seen += span; span > 0 && seen >= share*l.weight {
			return min(middle(b), float64(l.most))
		}
	}
	return float64(l.most)
}
