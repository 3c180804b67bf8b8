package layers

import (
	"math/rand/v2"
	"sync"

	"github.com/llmprof/llmprof/stat"
)

// attentionModel is the physical model of attention at one number of ranks. Its
// times and how far they are off are fitted when they are first asked for, apart
// from each other: who simulates needs the former only, and the latter take two
// more fits.
type attentionModel struct {
	rows  []timed
	level float64

	timed sync.Once
	// surfaces are by phase; with mixed batches all three are one.
	surfaces [3]*surface

	both   sync.Once
	inside [3]band
	beyond band // for each octave
}

// heldShare is one over the share of points that calibrate the intervals.
const heldShare = 10

// model is that of attention.
func (l *layer) model(level float64) *attentionModel {
	l.physical.once.Do(func() {
		rows := make([]timed, 0, len(l.rows))
		for _, r := range l.rows {
			if r.tokens > 0 || r.sequences > 0 {
				rows = append(rows, timed{batch{float64(r.tokens), float64(r.context), float64(r.sequences), float64(r.sequenceContext)}, r.median})
			}
		}
		l.physical.batch = &attentionModel{rows: rows, level: level}
	})
	return l.physical.batch
}

// fit fits the times.
func (m *attentionModel) fit() {
	m.timed.Do(func() { m.surfaces = surfacesOf(m.rows) })
}

// judge finds how far the times are off: inside what was measured by points that
// are held out, beyond it by the points of long contexts.
func (m *attentionModel) judge() {
	train, test := split(m.rows)
	low, high := lower(m.rows)
	held, half := surfacesOf(train), surfacesOf(low)
	var errors [3][]float64
	for _, r := range test {
		if s := held[r.phase()]; s != nil {
			errors[r.phase()] = append(errors[r.phase()], logRatio(s.seconds(r.batch), r.t))
		}
	}
	for p, e := range errors {
		if width, reached, err := stat.ConformalQuantile(e, m.level); err == nil {
			m.inside[p] = band{width, reached}
		}
	}
	var missed []float64
	for _, r := range high {
		if s := half[r.phase()]; s != nil {
			missed = append(missed, logRatio(s.seconds(r.batch), r.t)/max(0.25, s.octaves(r.batch)))
		}
	}
	if width, reached, err := stat.ConformalQuantile(missed, m.level); err == nil {
		m.beyond = band{width, reached}
	}
}

// surfacesOf fits the phases together where batches were mixed, or else apart.
func surfacesOf(rows []timed) (out [3]*surface) {
	var parts [3][]timed
	for _, r := range rows {
		parts[r.phase()] = append(parts[r.phase()], r)
	}
	if len(parts[mixedPhase]) > 0 {
		s := fitSurface(rows)
		for p := range parts {
			if len(parts[p]) > 0 {
				out[p] = s
			}
		}
		return out
	}
	for p := range parts {
		if len(parts[p]) > 0 {
			out[p] = fitSurface(parts[p])
		}
	}
	return out
}

// split holds out a fixed part of the rows, at random.
func split(rows []timed) (train, test []timed) {
	order := rand.New(rand.NewPCG(1, 1)).Perm(len(rows))
	for i, r := range rows {
		if order[i] < len(rows)/heldShare {
			test = append(test, r)
		} else {
			train = append(train, r)
		}
	}
	return train, test
}

// lower parts the rows at half of the longest context.
func lower(rows []timed) (low, high []timed) {
	most := 0.0
	for _, r := range rows {
		most = max(most, r.p, r.k)
	}
	for _, r := range rows {
		if max(r.p, r.k) <= most/2 {
			low = append(low, r)
		} else {
			high = append(high, r)
		}
	}
	return low, high
}

// ask is the physical time of a batch with how far it may be off; ok is false
// where no batch of its kind was measured.
func (m *attentionModel) ask(b batch) (a answer, ok bool) {
	m.both.Do(func() { // at once
		var all sync.WaitGroup
		all.Go(m.fit)
		all.Go(m.judge)
		all.Wait()
	})
	p := b.phase()
	if m.surfaces[p] == nil {
		p = chunkPhase // the sum of a chunk and decodes is as unsure as the chunk
	}
	if a, ok = m.time(b); ok {
		a.inside, a.beyond = m.inside[p], m.beyond
	}
	return a, ok
}

// time is ask without how far it may be off.
func (m *attentionModel) time(b batch) (a answer, ok bool) {
	m.fit()
	p := b.phase()
	if s := m.surfaces[p]; s != nil {
		return answer{seconds: s.seconds(b), octaves: s.octaves(b)}, true
	}
	decode, chunk := m.surfaces[decodePhase], m.surfaces[chunkPhase]
	if p != mixedPhase || decode == nil || chunk == nil {
		return answer{}, false
	}
	one, other := batch{c: b.c, p: b.p}, batch{n: b.n, k: b.k}
	a = answer{
		seconds: chunk.seconds(one) + decode.seconds(other), octaves: max(chunk.octaves(one), decode.octaves(other)),
	}
	return a.unsure("mixed batches were not measured: taken as the sum of the chunk and the decodes"), true
}
