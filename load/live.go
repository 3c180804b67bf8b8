package load

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/llmprof/llmprof/stat"
)

// Live are the figures of a run so far. Quantiles are within 1 %.
type Live struct {
	// Elapsed is the time since the start.
	Elapsed time.Duration
	// Total counts the schedule's requests, Done those that ended well, Failed
	// those that did not, Running the open ones and Waiting those that the
	// limit on concurrency holds back.
	Total, Done, Failed, Running, Waiting int
	// Tokens is the number of output tokens of the requests that are done.
	Tokens int
	// RequestRate and TokenRate are requests and output tokens a second that
	// ended within about the last five seconds.
	RequestRate, TokenRate float64
	// TTFT50, TTFT99, ICL50 and ICL99 are quantiles; 0 before the first value.
	TTFT50, TTFT99, ICL50, ICL99 time.Duration
}

// live gathers figures while a run goes on.
type live struct {
	mu     sync.Mutex
	so     Live
	ttft   histogram
	icl    histogram
	ends   []ending // of the last seconds
	queued []point
	firsts []point
}

// ending is a request that ended well.
type ending struct {
	at     time.Duration
	tokens int
}

// point is a value at a time, in seconds.
type point struct{ at, value float64 }

// rateSpan is the time over which live rates are taken.
const rateSpan = 5 * time.Second

func newLive(total int) *live { return &live{so: Live{Total: total}} }

// add takes a request that has ended.
func (l *live) add(rec *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !rec.OK() {
		l.so.Failed++
		return
	}
	l.so.Done++
	l.so.Tokens += rec.Output.Tokens
	l.ends = append(l.ends, ending{rec.Close, rec.Output.Tokens})
	if t, ok := rec.TTFT(); ok {
		l.ttft.add(t)
		l.firsts = append(l.firsts, point{rec.Close.Seconds(), (rec.Chunks[0].At - rec.Sched).Seconds()})
	}
	for i := 1; i < len(rec.Chunks); i++ {
		l.icl.add(rec.Chunks[i].At - rec.Chunks[i-1].At)
	}
}

// figures are the figures at a time.
func (l *live) figures(now time.Duration, running, waiting int) Live {
	l.mu.Lock()
	defer l.mu.Unlock()
	so := l.so
	so.Elapsed, so.Running, so.Waiting = now, running, waiting
	for len(l.ends) > 0 && l.ends[0].at < now-rateSpan {
		l.ends = l.ends[1:]
	}
	span := min(now, rateSpan).Seconds()
	for _, e := range l.ends {
		so.RequestRate += 1 / span
		so.TokenRate += float64(e.tokens) / span
	}
	so.TTFT50, so.TTFT99 = l.ttft.quantile(0.5), l.ttft.quantile(0.99)
	so.ICL50, so.ICL99 = l.icl.quantile(0.5), l.icl.quantile(0.99)
	return so
}

// queue notes the number of requests in the system.
func (l *live) queue(now time.Duration, requests int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued = append(l.queued, point{now.Seconds(), float64(requests)})
}

// minOverload is how long a run must last before it can be called overloaded.
const minOverload = 5 * time.Second

// overloaded reports whether, over the second half of the run so far, the
// number of requests in the system and TTFT from the schedule both rise, each
// with a 95 % interval above zero, and the former by at least half of what the
// answers fall short of the requests.
func (l *live) overloaded(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now < minOverload {
		return false
	}
	half := now.Seconds() / 2
	queue, first := after(l.queued, half), after(l.firsts, half)
	low, ok := riseAtLeast(queue)
	if _, rises := riseAtLeast(first); !ok || !rises || low <= 0 {
		return false
	}
	grown := queue[len(queue)-1].value - queue[0].value
	return grown > 0.05*(grown+float64(len(first))) && low*half >= grown/2
}

// after are the points from a time on.
func after(points []point, from float64) []point {
	var late []point
	for _, p := range points {
		if p.at >= from {
			late = append(late, p)
		}
	}
	return late
}

// riseAtLeast is the lower end of the 95 % interval of the slope of a straight
// line through the points; ok says that it is above zero.
func riseAtLeast(points []point) (low float64, ok bool) {
	n := float64(len(points))
	if n < 20 {
		return 0, false
	}
	x, y := make([]float64, len(points)), make([]float64, len(points))
	for i, p := range points {
		x[i], y[i] = p.at, p.value
	}
	mx, my := stat.Mean(x), stat.Mean(y)
	var sxx, sxy, syy float64
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
		syy += (y[i] - my) * (y[i] - my)
	}
	if sxx == 0 {
		return 0, false
	}
	slope := sxy / sxx
	spread := math.Sqrt(max(syy-slope*sxy, 0) / (n - 2) / sxx)
	low = slope - 2*spread
	return low, low > 0
}

// histogram counts times in buckets of 1/128 of their power of two.
type histogram struct {
	counts []int64
	total  int64
}

const subBuckets = 7 // bits

func (h *histogram) add(t time.Duration) {
	v := uint64(max(t, 0))
	shift := max(bits.Len64(v)-subBuckets-1, 0)
	at := shift<<subBuckets + int(v>>shift)
	for len(h.counts) <= at {
		h.counts = append(h.counts, 0)
	}
	h.counts[at]++
	h.total++
}

// quantile is the middle of the bucket that holds the q quantile.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(h.total)))
	for at, n := range h.counts {
		if rank -= n; n > 0 && rank <= 0 {
			if at < 2<<subBuckets {
				return time.Duration(at)
			}
			shift := at>>subBuckets - 1
			low := uint64(at-shift<<subBuckets) << shift
			return time.Duration(low + 1<<shift/2)
		}
	}
	return 0
}
