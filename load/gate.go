package load

import (
	"fmt"
	"slices"

	"github.com/llmprof/llmprof/workload"
)

// Grade is how far a run can be trusted.
type Grade string

// The grades.
const (
	Valid    Grade = "VALID"
	Degraded Grade = "DEGRADED"
	Invalid  Grade = "INVALID"
)

// Limits are the thresholds of the gate, all as shares (0..1) but for the
// steady window. A value above the first of a pair degrades a run, above the
// second makes it invalid; a second value of 0 never does.
type Limits struct {
	// Rate is how far the reached rate may be off the asked one, as a share.
	Rate [2]float64
	// Lag is the send lag's p99 over the TTFT's median, a ratio; with fewer than
	// 100 requests that of the quantile that so many can tell.
	Lag [2]float64
	// CPU is the client's share of the cores it may use, 0..1.
	CPU [2]float64
	// Coalesced is the share of chunks that came together, 0..1.
	Coalesced [2]float64
	// Failed is the share of failed requests, 0..1.
	Failed [2]float64
	// Tokens is the share of output tokens that contradict usage, 0..1.
	Tokens [2]float64
	// Cached is the share of the prompts' tokens that a prefix cache held and
	// that no other prompt of the run shares, 0..1.
	Cached [2]float64
	// Load is the machine's load over its cores before the run, a ratio.
	Load [2]float64
	// SteadySeconds and SteadyRequests are what a steady window should have,
	// in seconds and in requests.
	SteadySeconds  float64
	SteadyRequests int
}

// DefaultLimits are the limits that are used where none are given.
func DefaultLimits() Limits {
	return Limits{
		Rate: [2]float64{0.01, 0.05}, Lag: [2]float64{0.02, 0.10}, CPU: [2]float64{0.60, 0.85}, Coalesced: [2]float64{0.05, 0},
		Failed: [2]float64{0.001, 0.05}, Tokens: [2]float64{0, 0.01}, Cached: [2]float64{0.01, 0}, Load: [2]float64{0.5, 0},
		SteadySeconds: 30, SteadyRequests: 100,
	}
}

// Check is one question of the gate.
type Check struct {
	Name  string `json:"name"`
	Grade Grade  `json:"grade"`
	// Value is what was found, in the unit of the limit; nil where it could
	// not be measured, which degrades nothing.
	Value *float64 `json:"value"`
	// Reason is a sentence for a grade below valid.
	Reason string `json:"reason,omitempty"`
}

// Gate is the verdict of a run on itself.
type Gate struct {
	Grade  Grade   `json:"verdict"`
	Checks []Check `json:"checks"`
}

// Reasons are the sentences of the checks that a run did not pass.
func (g Gate) Reasons() []string {
	var all []string
	for _, c := range g.Checks {
		if c.Reason != "" {
			all = append(all, c.Reason)
		}
	}
	return all
}

// add grades a value and keeps the check.
func (g *Gate) add(name string, value *float64, limits [2]float64, reason string) {
	c := Check{Name: name, Grade: Valid, Value: value}
	switch {
	case value == nil:
	case limits[1] > 0 && *value > limits[1]:
		c.Grade = Invalid
	case *value > limits[0]:
		c.Grade = Degraded
	}
	g.keep(c, reason)
}

// keep keeps a check; the worst one is the verdict.
func (g *Gate) keep(c Check, reason string) {
	if c.Grade != Valid {
		c.Reason = reason
		if g.Grade != Invalid {
			g.Grade = c.Grade
		}
	}
	g.Checks = append(g.Checks, c)
}

// Judge grades a run by its two windows.
func Judge(r *Result, whole, steady Summary, l Limits) Gate {
	g := Gate{Grade: Valid}
	rate, text := rateError(r)
	g.add("rate", rate, l.Rate, text)
	judged := whole
	if !r.Schedule.Open() && steady.SendLag.N >= l.SteadyRequests {
		judged = steady // clients that all begin at once do so only once
	}
	if lag, quantile := judged.SendLag.tail(); lag != nil {
		var ratio *float64
		if p50 := judged.TTFT.P50; p50 != nil && *p50 > 0 {
			ratio = new(*lag / *p50)
		}
		g.add("send-lag", ratio, l.Lag, fmt.Sprintf("requests were sent up to %.3g ms late (%s); the figures from the schedule hold that", *lag, quantile))
	}
	if cpu := r.Machine.CPUSeconds; cpu != nil && r.Elapsed > 0 {
		share := *cpu / r.Elapsed.Seconds() / float64(r.Machine.Cores)
		g.add("client-cpu", &share, l.CPU, fmt.Sprintf("the client used %.0f %% of the CPU it may use", 100*share))
	}
	if c := whole.Coalesced; c != nil {
		g.add("coalesced", c, l.Coalesced, fmt.Sprintf("%.1f %% of the chunks came together with others: quantiles of ICL and ITL say little", 100**c))
	}
	var failed *float64
	if n := whole.Completed + whole.Failed; n > 0 {
		failed = new(float64(whole.Failed) / float64(n))
	}
	g.add("failures", failed, l.Failed, fmt.Sprintf("%d of %d requests failed%s", whole.Failed, whole.Completed+whole.Failed, firstFailure(r)))
	off, total := tokenFaults(r)
	if total > 0 {
		g.add("tokens", new(float64(off)/float64(total)), l.Tokens, fmt.Sprintf("%d output tokens contradict the answers' usage or the length asked for", off))
	}
	cached, text := warmCache(r)
	g.add("cached-prompts", cached, l.Cached, text)
	g.steady(r, steady, l)
	if load := r.Machine.LoadBefore; load != nil {
		g.add("machine-load", new(*load/float64(r.Machine.Cores)), l.Load, fmt.Sprintf("the machine was busy before the run: load %.1f on %d cores", *load, r.Machine.Cores))
	}
	if whole.Completed == 0 {
		g.keep(Check{Name: "completed", Grade: Invalid}, "no request completed")
	}
	if r.Partial != "" {
		g.keep(Check{Name: "complete", Grade: Degraded}, fmt.Sprintf("the run was ended early, with %d requests unsent: %s", r.Unsent, r.Partial))
	}
	return g
}

// steady grades the length of the steady window. Requests that are all sent at
// once have none, which does not make the figures of the whole run wrong.
func (g *Gate) steady(r *Result, s Summary, l Limits) {
	n := s.Completed + s.Failed
	c := Check{Name: "steady-window", Grade: Valid, Value: new(s.Duration)}
	if r.burst() {
		c.Grade = Degraded
		g.keep(c, "a burst has no steady part: figures are those of the whole run")
		return
	}
	switch {
	case s.Duration <= 0 || n == 0:
		c.Grade = Invalid
	case s.Duration < l.SteadySeconds || n < l.SteadyRequests:
		c.Grade = Degraded
	}
	g.keep(c, fmt.Sprintf("the steady window holds %.1f s and %d requests: want %.0f s and %d", s.Duration, n, l.SteadySeconds, l.SteadyRequests))
}

// burst reports whether all requests were due at once and none was held back.
func (r *Result) burst() bool {
	return r.MaxConcurrency == 0 && len(r.Schedule.Requests) > 0 && !slices.ContainsFunc(r.Schedule.Requests, func(q workload.Request) bool {
		return q.After != nil || q.At != r.Schedule.Requests[0].At
	})
}

// warmCache is the share of the prompts' tokens that the server found in its
// prefix cache beyond what the prompts of the run have in common: it had them
// from before. The server's counters stand in where no answer says what was
// cached; nil where nobody does. A chat template's tokens are in every prompt.
func warmCache(r *Result) (share *float64, text string) {
	reusable := workload.Reusable(r.Schedule.Requests)
	prompts, found, shared, beyond, told := 0, 0, 0, 0, false
	for i := range r.Records {
		rec := &r.Records[i]
		want := r.Schedule.Requests[rec.ID]
		own := reusable[rec.ID] + max(rec.Prompt.Tokens-want.InputLen, 0)
		prompts += max(rec.Prompt.Tokens, want.InputLen)
		shared += own
		if rec.Cached.Known() {
			told = true
			found += rec.Cached.Tokens
			beyond += max(rec.Cached.Tokens-own, 0)
		}
	}
	if !told {
		if r.ServerHits == nil {
			return nil, ""
		}
		found = int(*r.ServerHits)
		beyond = max(found-shared, 0)
	}
	if prompts == 0 {
		return nil, ""
	}
	return new(float64(beyond) / float64(prompts)), fmt.Sprintf(
		"%d prompt tokens were in the server's prefix cache, %d more than the run's prompts share: it had them from before; another --seed sends others", found, beyond)
}

// rateError is how far the rate of sending is off the schedule's; nil unless
// all times were known beforehand and nothing cut the run short.
func rateError(r *Result) (off *float64, text string) {
	var last float64
	for _, q := range r.Schedule.Requests {
		if q.After != nil {
			return nil, ""
		}
		last = max(last, float64(q.At))
	}
	n := len(r.Records)
	if last == 0 || n < 2 || r.Unsent > 0 {
		return nil, ""
	}
	first, end := r.bounds()
	span := (end - first).Seconds()
	if span <= 0 {
		return nil, ""
	}
	asked := float64(n-1) / (last - float64(firstDue(r.Schedule)))
	reached := float64(n-1) / span
	diff := reached/asked - 1
	if diff < 0 {
		diff = -diff
	}
	return &diff, fmt.Sprintf("%.4g requests/s were sent instead of %.4g", reached, asked)
}

// firstDue is when the first request is due, in seconds.
func firstDue(s *workload.Schedule) float64 {
	first := float64(s.Requests[0].At)
	for _, q := range s.Requests {
		first = min(first, float64(q.At))
	}
	return first
}

// tokenFaults counts the output tokens that cannot be right: chunks that hold
// other counts than usage, more chunks with text than tokens, a forced length
// that did not come.
func tokenFaults(r *Result) (off, total int) {
	for i := range r.Records {
		rec := &r.Records[i]
		if !rec.OK() {
			continue
		}
		total += rec.Output.Tokens
		counted := tokens(rec.Chunks)
		switch {
		case rec.Forced && rec.Output.Tokens != rec.Asked:
			off += distance(rec.Output.Tokens, rec.Asked)
		case rec.Output.Origin == FromUsage && len(rec.Chunks) > 0 && counted != rec.Output.Tokens:
			off += distance(counted, rec.Output.Tokens)
		}
	}
	return off, total
}

func distance(a, b int) int { return max(a-b, b-a) }

// firstFailure tells of the first failure.
func firstFailure(r *Result) string {
	for i := range r.Records {
		if f := r.Records[i].Failure; f != nil && f.Kind != FailCancelled {
			return ", the first: " + f.String()
		}
	}
	return ""
}
