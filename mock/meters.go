package mock

import (
	"math"
	"time"
)

// histogram counts observations below bounds, as Prometheus does.
type histogram struct {
	bounds []float64
	counts []uint64 // one more than bounds
	sum    float64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(value float64) {
	i := 0
	for i < len(h.bounds) && value > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += value
}

// seconds observes a time in nanoseconds.
func (h *histogram) seconds(ns int64) { h.observe(float64(ns) / 1e9) }

// meters are what the engine counts.
type meters struct {
	queries, hits             int64 // tokens
	prompt, cached, generated int64 // tokens
	preemptions               int64
	reasons                   map[string]int64 // requests

	ttft, gap, requestGap, endToEnd   histogram // s
	queue, inference, prefill, decode histogram // s
	prompts, answers, limits          histogram // tokens
	computed                          histogram // tokens
	params, evictions                 histogram
	lateness                          lateness
}

func newMeters() meters {
	first := []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	gaps := []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	long := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	sizes := []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000}
	return meters{
		reasons: map[string]int64{},
		ttft:    newHistogram(first), gap: newHistogram(gaps), requestGap: newHistogram(gaps), endToEnd: newHistogram(long),
		queue: newHistogram(long), inference: newHistogram(long), prefill: newHistogram(long), decode: newHistogram(long),
		prompts: newHistogram(sizes), answers: newHistogram(sizes), limits: newHistogram(sizes), computed: newHistogram(sizes),
		params: newHistogram([]float64{1, 2, 5, 10, 20}), evictions: newHistogram([]float64{1, 2, 3, 4, 5, 10, 20}),
	}
}

// admitted counts a request that runs for the first time.
func (m *meters) admitted(s *sequence, share bool) {
	if share {
		m.queries += int64(s.request.promptTokens())
		m.hits += int64(s.cached)
	}
}

// put counts a write.
func (m *meters) put(s *sequence, b batch) {
	if s.first == 0 {
		s.first = b.emit
		m.ttft.seconds(b.emit - s.arrival)
		m.prompt += int64(s.request.promptTokens())
		m.cached += int64(s.cached)
	} else {
		m.gap.seconds(b.emit - s.last)
	}
	for _, p := range b.pieces {
		m.generated += int64(p.tokens)
	}
	m.lateness.observe(b.emit - b.pieces[len(b.pieces)-1].due)
}

// finished counts the end of a request.
func (m *meters) finished(s *sequence, now int64) {
	m.reasons[s.reason]++
	if s.first == 0 || s.reason == "abort" {
		return
	}
	if s.sent > 1 {
		m.requestGap.seconds((now - s.first) / int64(s.sent-1))
	}
	m.endToEnd.seconds(now - s.arrival)
	m.queue.seconds(s.admitted - max(s.arrival, s.simulated.entered))
	m.inference.seconds(now - s.admitted)
	m.prefill.seconds(s.first - s.admitted)
	m.decode.seconds(now - s.first)
	m.prompts.observe(float64(s.request.promptTokens()))
	m.answers.observe(float64(s.sent))
	m.limits.observe(float64(s.request.maxTokens))
	m.computed.observe(float64(s.request.promptTokens() - s.cached))
	m.params.observe(1)
	m.evictions.observe(float64(s.preempts))
}

// lateness counts times on a scale of eighths of an octave.
type lateness struct {
	counts [8 * 63]uint64
	count  uint64
	max    int64 // ns
}

func (l *lateness) observe(ns int64) {
	l.max = max(l.max, ns)
	l.counts[min(int(8*math.Log2(float64(max(ns, 1)))), len(l.counts)-1)]++
	l.count++
}

// quantile is the upper end of the step that holds a share q of all.
func (l *lateness) quantile(q float64) time.Duration {
	below := uint64(0)
	for i, n := range &l.counts {
		if below += n; n > 0 && float64(below) >= q*float64(l.count) {
			return time.Duration(min(math.Exp2(float64(i+1)/8), float64(l.max)))
		}
	}
	return 0
}
