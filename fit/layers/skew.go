package layers

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/llmprof/llmprof/profile"
)

// skewRow is a batch of decodes of two lengths, with the times of the batches
// whose lengths all are the mean and the longest. Times are in seconds.
type skewRow struct {
	chunk, context, count int
	mean, low, high       float64 // cached tokens
	atMean, atMax, seen   float64
}

// skewRowOf reads a point; ok is false where the profiler gave no alpha.
func skewRowOf(p profile.Point, seen float64) (r skewRow, ok bool) {
	l := p.Layer
	read := func(key string) float64 {
		v := math.NaN()
		if json.Unmarshal(p.Extra[key], &v) != nil || math.IsInf(v, 0) {
			return math.NaN()
		}
		return v
	}
	if math.IsNaN(read("alpha")) || l.Sequences < 1 || l.LongSequences > l.Sequences {
		return r, false
	}
	n, long := float64(l.Sequences), float64(l.LongSequences)
	r = skewRow{
		chunk: l.Tokens, context: l.Context, count: l.Sequences,
		low: float64(l.SequenceContext), high: float64(l.LongContext),
		atMean: read("t_mean_us") * 1e-6, atMax: read("t_max_us") * 1e-6, seen: seen,
	}
	r.mean = (long*r.high + (n-long)*r.low) / n
	return r, r.atMax > 0 && r.atMean > 0
}

// bucket groups batches that are skewed alike.
type bucket struct{ chunk, count, rate, longest, context int }

// skewSums are the sums of a least-squares fit of one factor, in s².
type skewSums struct{ product, square float64 }

func (s *skewSums) add(r skewRow) {
	gap := r.atMax - r.atMean
	s.product += gap * (r.seen - r.atMean)
	s.square += gap * gap
}

func (s skewSums) alpha() float64 {
	if s.square == 0 {
		return 0
	}
	return s.product / s.square
}

// skewFit tells how far a batch of unequal lengths is from one at the mean
// length towards one at the longest.
type skewFit struct {
	rows                     int
	pooled                   float64
	buckets                  map[bucket]float64
	chunks, counts, contexts []int
}

func fitSkew(rows []skewRow) *skewFit {
	f := &skewFit{rows: len(rows), buckets: map[bucket]float64{}}
	chunks, counts, contexts := map[int]bool{}, map[int]bool{}, map[int]bool{}
	var all skewSums
	for _, r := range rows {
		all.add(r)
		chunks[r.chunk], counts[r.count], contexts[r.context] = true, true, true
	}
	f.pooled = all.alpha()
	f.chunks, f.counts, f.contexts = slices.Sorted(maps.Keys(chunks)), slices.Sorted(maps.Keys(counts)), slices.Sorted(maps.Keys(contexts))
	sums := map[bucket]*skewSums{}
	for _, r := range rows {
		b := f.bucket(r)
		if sums[b] == nil {
			sums[b] = &skewSums{}
		}
		sums[b].add(r)
	}
	for b, s := range sums {
		f.buckets[b] = s.alpha()
	}
	return f
}

// bin is the first of the ascending ends that is not below x, or their number.
func bin[T int | float64](ends []T, x T) int {
	i, _ := slices.BinarySearch(ends, x)
	return i
}

func (f *skewFit) bucket(r skewRow) bucket {
	rate := 0.0
	if r.high > r.low {
		rate = (r.mean - r.low) / (r.high - r.low)
	}
	return bucket{
		chunk: min(bin(f.chunks, r.chunk), len(f.chunks)-1), count: bin(f.counts, r.count), context: bin(f.contexts, r.context),
		rate: bin([]float64{0.05, 0.15, 0.4, 0.7}, rate), longest: bin([]float64{1024, 4096, 16384}, r.high),
	}
}

// alpha is the factor of the batch's bucket, or the pooled one.
func (f *skewFit) alpha(r skewRow) float64 {
	if a, ok := f.buckets[f.bucket(r)]; ok {
		return a
	}
	return f.pooled
}

// between is how far a batch of decodes from shortest to longest cached tokens
// is from one at its mean, 0, towards one at the longest, 1.
func (f *skewFit) between(b batch, shortest, longest int, compat bool) float64 {
	alpha := f.alpha(skewRow{
		chunk: int(b.c), context: int(b.p), count: int(b.n),
		mean: b.k, low: float64(shortest), high: float64(longest),
	})
	if !compat {
		alpha = min(max(alpha, 0), 1)
	}
	return alpha
}

// SkewAlpha is the pooled factor between a decode batch at the mean length (0)
// and at the longest (1), and the number of measured batches behind it; 0 rows
// where the profile has none at this number of ranks.
func (t *Table) SkewAlpha(tp int) (alpha float64, rows int) {
	f := t.skews[tp]
	if f == nil {
		return 0, 0
	}
	return f.pooled, f.rows
}
