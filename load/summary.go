package load

import (
	"slices"
	"time"

	"github.com/llmprof/llmprof/workload"
)

// Window names the part of a run that a summary is of.
type Window string

// The windows.
const (
	// Whole is from the first send to the last end: it holds the start and
	// the tail, and is what other tools report.
	Whole Window = "whole"
	// Steady is from the time when concurrency first reached its target, or a
	// tenth of the time where it has none, to the last send. A request belongs
	// to it by its scheduled time, a token by its chunk's.
	Steady Window = "steady"
)

// Summary holds the figures of a window. A rate without a duration is nil.
type Summary struct {
	Window Window `json:"window"`
	// From and To bound the window, in seconds from the run's start.
	From float64 `json:"from_s"`
	To   float64 `json:"to_s"`
	// Duration is To - From, in seconds.
	Duration float64 `json:"duration_s"`
	// Completed, Failed and Cancelled count the window's requests; Cancelled
	// were open when the run was ended early.
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
	// Retries counts sends on connections that the server had closed already.
	Retries int `json:"retries"`
	// InputTokens, OutputTokens and CachedTokens are those of completed
	// requests, as the answers' usage has them; nil where no answer said.
	InputTokens  *int `json:"input_tokens"`
	OutputTokens *int `json:"output_tokens"`
	CachedTokens *int `json:"cached_tokens"`
	// SendRate is requests sent a second.
	SendRate *float64 `json:"send_rate"`
	// RequestThroughput is completed requests a second; in the steady window
	// those that ended in it.
	RequestThroughput *float64 `json:"request_throughput"`
	// OutputThroughput is output tokens a second; in the steady window those
	// whose chunks came in it.
	OutputThroughput *float64 `json:"output_throughput"`
	// Goodput is requests a second that met every limit on single requests,
	// GoodShare their share, 0..1; nil without such limits.
	Goodput   *float64 `json:"request_goodput"`
	GoodShare *float64 `json:"goodput_share"`
	// Concurrency is the number of open requests.
	Concurrency Concurrency `json:"concurrency"`
	// Coalesced is the share of chunks that came in one read with the chunk
	// before, 0..1; nil without chunks.
	Coalesced *float64 `json:"coalesced_share"`
	// TTFT to SendLag are the metrics of the package comment. ITL and ICL are
	// pooled over requests, the others have a value a request.
	TTFT      Figure `json:"ttft_ms"`
	TTFTSched Figure `json:"ttft_sched_ms"`
	TPOT      Figure `json:"tpot_ms"`
	NTPOT     Figure `json:"ntpot_ms"`
	ITL       Figure `json:"itl_ms"`
	ICL       Figure `json:"icl_ms"`
	E2EL      Figure `json:"e2el_ms"`
	E2ELSched Figure `json:"e2el_sched_ms"`
	SendLag   Figure `json:"send_lag_ms"`
	// SLOs are the verdicts on the limits.
	SLOs []Verdict `json:"slos,omitempty"`
}

// Summaries are the figures of both windows, held against the limits. A run
// without a steady part has one of no duration.
func (r *Result) Summaries(limits SLOs) (whole, steady Summary) {
	changes := sweeps(r.Records)
	from, to := r.bounds()
	whole = r.summarize(Whole, changes, from, r.Elapsed, limits)
	start := r.steadyFrom(changes, from, to)
	return whole, r.summarize(Steady, changes, start, max(to, start), limits)
}

// bounds are the first and the last send.
func (r *Result) bounds() (first, last time.Duration) {
	found := false
	for i := range r.Records {
		rec := &r.Records[i]
		if !rec.Sent {
			continue
		}
		if !found || rec.Send < first {
			first, found = rec.Send, true
		}
		last = max(last, rec.Send)
	}
	return first, last
}

// steadyFrom is where the steady window begins.
func (r *Result) steadyFrom(changes []sweep, first, last time.Duration) time.Duration {
	target := closedTarget(r.Schedule)
	if target == 0 {
		return first + (last-first)/10
	}
	if r.MaxConcurrency > 0 {
		target = min(target, r.MaxConcurrency)
	}
	open := 0
	for _, s := range changes {
		if open += s.delta; open >= target {
			return time.Duration(s.at * float64(time.Second))
		}
	}
	return last
}

// closedTarget is the concurrency that a closed loop has from its start: the
// requests that wait for nothing while others wait for a slot; 0 for an open
// loop.
func closedTarget(s *workload.Schedule) int {
	if s == nil || !slices.ContainsFunc(s.Requests, func(q workload.Request) bool {
		return q.After != nil && q.After.Request == workload.AnyRequest
	}) {
		return 0
	}
	n := 0
	for _, q := range s.Requests {
		if q.After == nil {
			n++
		}
	}
	return n
}

// in reports whether the time lies in the window.
func in(t, from, to time.Duration) bool { return t >= from && t <= to }

// summarize computes a window's figures.
func (r *Result) summarize(w Window, changes []sweep, from, to time.Duration, limits SLOs) Summary {
	s := Summary{Window: w, From: from.Seconds(), To: to.Seconds(), Duration: (to - from).Seconds()}
	s.Concurrency = concurrency(changes, s.From, s.To)
	sample := r.Samples(w, from, to)
	sent, ended, good, streamed := 0, 0, 0, 0
	for i := range r.Records {
		rec := &r.Records[i]
		if rec.OK() && (w == Whole || in(rec.Close, from, to)) {
			ended++
		}
		streamed += tokensIn(rec, w, from, to)
		if w == Steady && !in(rec.Sched, from, to) {
			continue
		}
		s.Retries += rec.Retries
		if rec.Sent {
			sent++
		}
		switch {
		case rec.OK():
			s.Completed++
			addCount(&s.InputTokens, rec.Prompt)
			addCount(&s.OutputTokens, rec.Output)
			addCount(&s.CachedTokens, rec.Cached)
			if limits.Met(rec) {
				good++
			}
		case rec.Failure.Kind == FailCancelled:
			s.Cancelled++
		default:
			s.Failed++
		}
	}
	if s.Duration > 0 {
		s.SendRate = new(float64(sent) / s.Duration)
		s.RequestThroughput = new(float64(ended) / s.Duration)
		s.OutputThroughput = new(float64(streamed) / s.Duration)
		if limits.Single() {
			s.Goodput = new(float64(good) / s.Duration)
		}
	}
	if n := s.Completed + s.Failed; n > 0 && limits.Single() {
		s.GoodShare = new(float64(good) / float64(n))
	}
	s.Coalesced = r.coalesced(w, from, to)
	for _, f := range []struct {
		metric Metric
		into   *Figure
	}{
		{TTFT, &s.TTFT},
		{TTFTSched, &s.TTFTSched},
		{TPOT, &s.TPOT},
		{NTPOT, &s.NTPOT},
		{ITL, &s.ITL},
		{ICL, &s.ICL},
		{E2EL, &s.E2EL},
		{E2ELSched, &s.E2ELSched},
		{SendLag, &s.SendLag},
	} {
		*f.into = NewFigure(sample[f.metric])
	}
	s.SLOs = limits.judge(sample)
	return s
}

// addCount adds a known count.
func addCount(sum **int, c Count) {
	if !c.Known() {
		return
	}
	if *sum == nil {
		*sum = new(int)
	}
	**sum += c.Tokens
}

// tokensIn counts a good request's output tokens in a window: all of them in
// the whole run, those of the chunks that came in a steady window.
func tokensIn(rec *Record, w Window, from, to time.Duration) int {
	if !rec.OK() {
		return 0
	}
	if w == Whole || len(rec.Chunks) == 0 {
		if w == Steady && !in(rec.End, from, to) {
			return 0
		}
		return rec.Output.Tokens
	}
	n := 0
	for _, c := range rec.Chunks {
		if in(c.At, from, to) {
			n += int(c.Tokens)
		}
	}
	return n
}

// coalesced is the share of chunks that came with the one before.
func (r *Result) coalesced(w Window, from, to time.Duration) *float64 {
	together, all := 0, 0
	for i := range r.Records {
		rec := &r.Records[i]
		if !rec.OK() {
			continue
		}
		for j, c := range rec.Chunks {
			if w == Steady && !in(c.At, from, to) {
				continue
			}
			all++
			if j > 0 && rec.Chunks[j-1].Read == c.Read {
				together++
			}
		}
	}
	if all == 0 {
		return nil
	}
	return new(float64(together) / float64(all))
}

// Samples are all values of each metric in a window, in milliseconds: of good
// requests, and for the send lag of all that were sent. The bounds matter for
// the steady window only.
func (r *Result) Samples(w Window, from, to time.Duration) map[Metric][]float64 {
	samples := map[Metric][]float64{}
	add := func(m Metric, t time.Duration, ok bool) {
		if ok {
			samples[m] = append(samples[m], float64(t)/float64(time.Millisecond))
		}
	}
	for i := range r.Records {
		rec := &r.Records[i]
		if w == Whole || in(rec.Sched, from, to) {
			add(SendLag, rec.Lag(), rec.Sent)
			for _, m := range []Metric{TTFT, TTFTSched, TPOT, NTPOT, E2EL, E2ELSched} {
				t, ok := rec.value(m)
				add(m, t, ok)
			}
		}
		if !rec.OK() {
			continue
		}
		rec.gaps(func(c Chunk, icl, itl time.Duration) {
			if w == Whole || in(c.At, from, to) {
				add(ICL, icl, true)
				for range c.Tokens {
					add(ITL, itl, true)
				}
			}
		})
	}
	return samples
}

// value is a metric that a request has one value of.
func (r *Record) value(m Metric) (t time.Duration, ok bool) {
	switch m {
	case TTFT:
		return r.TTFT()
	case TTFTSched:
		t, ok = r.TTFT()
		return t + r.Lag(), ok
	case TPOT:
		return r.TPOT()
	case NTPOT:
		return r.NTPOT()
	case E2EL:
		return r.E2EL()
	case E2ELSched:
		t, ok = r.E2EL()
		return t + r.Lag(), ok
	case SendLag:
		return r.Lag(), r.Sent
	}
	return 0, false
}
