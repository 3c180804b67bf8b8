package load

import (
	"maps"
	"math"
	"math/bits"
	"sync"
	"time"
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
	// DueRate, SendRate and RequestRate are requests a second that came due,
	// were sent and ended well, TokenRate output tokens a second of the latter,
	// all within about the last five seconds.
	DueRate, SendRate, RequestRate, TokenRate float64
	// TTFT50 to ITL99 are quantiles; 0 before the first value.
	TTFT50, TTFT99, ITL50, ITL99 time.Duration
	// Failures counts the failed requests by what failed; LastFailure is the
	// latest of them.
	Failures    map[FailureKind]int
	LastFailure *Failure
}

// live gathers figures while a run goes on.
type live struct {
	mu     sync.Mutex
	so     Live
	ttft   histogram
	itl    histogram
	ends   []ending   // of the last seconds
	sends  []progress // of the last seconds, and the one before
	queued []point
	firsts []point
}

// progress is how many requests had come due and were sent at a time.
type progress struct {
	at        time.Duration
	due, sent int
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

func newLive(total int) *live { return &live{so: Live{Total: total, Failures: map[FailureKind]int{}}} }

// add takes a request that has ended.
func (l *live) add(rec *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !rec.OK() {
		l.so.Failed++
		l.so.Failures[rec.Failure.Kind]++
		l.so.LastFailure = rec.Failure
		return
	}
	l.so.Done++
	l.so.Tokens += rec.Output.Tokens
	l.ends = append(l.ends, ending{rec.Close, rec.Output.Tokens})
	if t, ok := rec.TTFT(); ok {
		l.ttft.add(t, 1)
		l.firsts = append(l.firsts, point{rec.Close.Seconds(), (rec.Chunks[0].At - rec.Sched).Seconds()})
	}
	rec.gaps(func(c Chunk, _, itl time.Duration) { l.itl.add(itl, int64(c.Tokens)) })
}

// figures are the figures at a time, when so many requests are open, held back
// and have come due.
func (l *live) figures(now time.Duration, running, waiting, due int) Live {
	l.mu.Lock()
	defer l.mu.Unlock()
	so := l.so
	so.Elapsed, so.Running, so.Waiting, so.Failures = now, running, waiting, maps.Clone(l.so.Failures)
	l.sends = append(l.sends, progress{now, due, due - waiting})
	for len(l.sends) > 1 && l.sends[1].at <= now-rateSpan {
		l.sends = l.sends[1:]
	}
	since := l.sends[0]
	if now <= rateSpan {
		since = progress{}
	}
	if span := (now - since.at).Seconds(); span > 0 {
		so.DueRate, so.SendRate = float64(due-since.due)/span, float64(due-waiting-since.sent)/span
	}
	for len(l.ends) > 0 && l.ends[0].at < now-rateSpan {
		l.ends = l.ends[1:]
	}
	span := min(now, rateSpan).Seconds()
	for _, e := range l.ends {
		so.RequestRate += 1 / span
		so.TokenRate += float64(e.tokens) / span
	}
	so.TTFT50, so.TTFT99 = l.ttft.quantile(0.5), l.ttft.quantile(0.99)
	so.ITL50, so.ITL99 = l.itl.quantile(0.5), l.itl.quantile(0.99)
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
// number of requests in the system and TTFT from the schedule both rise: see
// [RiseOf].
func (l *live) overloaded(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now < minOverload {
		return false
	}
	half := now.Seconds() / 2
	r := RiseOf(half, after(l.queued, half), after(l.firsts, half))
	return r.Open && r.TTFT
}

// after are the points from a time on.
func after(points []point, from float64) Series {
	var late Series
	for _, p := range points {
		if p.at >= from {
			late.At, late.Values = append(late.At, p.at), append(late.Values, p.value)
		}
	}
	return late
}

// histogram counts times in buckets of 1/128 of their power of two.
type histogram struct {
	counts []int64
	total  int64
}

const subBuckets = 7 // bits

// add counts a time n times.
func (h *histogram) add(t time.Duration, n int64) {
	v := uint64(max(t, 0))
	shift := max(bits.Len64(v)-subBuckets-1, 0)
	at := shift<<subBuckets + int(v>>shift)
	for len(h.counts) <= at {
		h.counts = append(h.counts, 0)
	}
	h.counts[at] += n
	h.total += n
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
