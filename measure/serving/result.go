package serving

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// Result is what was measured of a cell.
type Result struct {
	Cell    Cell
	Started time.Time
	// Budget is the most tokens of a step, Seats of requests at once, and KVTokens
	// of the KV cache that the server has; 0 where not known.
	Budget, Seats, KVTokens int
	// StepNote is what a reader of the engine's steps must know.
	StepNote string
	// Prefill and Decode ran alone, Mixed together; nil where the cell has no
	// such part, or failed before it.
	Prefill, Decode, Mixed *Phase
	// Failure says why the cell could not be measured, Hint what helps; empty
	// where it was.
	Failure, Hint string
	// Missing names what was not measured, and why.
	Missing []Missing
	// Warnings are remarks on what was.
	Warnings []string
}

// Missing is a quantity that was not measured.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Side is the figures of one side of a load: its prefills, or its decodes.
type Side struct {
	// Type is [profile.Prefill] or [profile.Decode].
	Type string
	// Latencies are in seconds: of prefills the TTFT of each request, of decodes
	// the mean time of a token of each request. Gaps are single gaps between
	// tokens, in seconds.
	Latencies, Gaps []float64
	// Before are, of decodes beside prefills, the mean times of a token of the
	// same requests in the same runs while all of them decoded and the prefills
	// had not come, in seconds.
	Before []float64
	// E2EL are the times from sending to the last token in seconds.
	E2EL []float64
	// Records are the requests of all runs.
	Records []load.Record
	// Tokens were computed in the measured parts of the runs, which took so many
	// Seconds together: of prefills new prompt tokens, of decodes tokens out.
	Tokens  int
	Seconds float64
	// Steps are those of the engine that worked for the side; nil where it does
	// not tell of them. Efficiency is the share of what each could have computed
	// that it did, 0..1: the smaller of the budget and of what was there to
	// compute. BudgetUse is its tokens over the budget, 0..1. Without a known
	// budget there are no shares.
	Steps                 []engine.ServedStep
	Efficiency, BudgetUse []float64
	// Pure are, of decodes beside prefills, the steps of the same runs in which
	// all of them decoded and no prompt was computed: before the prefills come,
	// between them and after them. They are no steps of the measured part.
	Pure []engine.ServedStep
}

// Mean is the mean latency in seconds; NaN without any.
func (s *Side) Mean() float64 {
	if len(s.Latencies) == 0 {
		return math.NaN()
	}
	return stat.Mean(s.Latencies)
}

// TokensPerSecond is the rate of the measured parts in tokens/s; ok is false
// where they had no length.
func (s *Side) TokensPerSecond() (rate float64, ok bool) {
	return float64(s.Tokens) / s.Seconds, s.Seconds > 0
}

// Side gathers one side of a phase; nil where the phase is.
func (r *Result) Side(p *Phase, side string) *Side {
	if p == nil {
		return nil
	}
	out := &Side{Type: side}
	for i := range p.Runs {
		run := &p.Runs[i]
		out.Seconds += (run.To - run.From).Seconds()
		records := run.Prefill
		if side == profile.Decode {
			records = run.Decode
		}
		for j := range records {
			out.add(&records[j], run)
		}
		if side == profile.Prefill {
			out.Tokens += len(records) * r.Cell.NewTokens
		}
		r.addSteps(out, run)
	}
	return out
}

// add adds a request of a run.
func (s *Side) add(rec *load.Record, run *Run) {
	s.Records = append(s.Records, *rec)
	if total, ok := rec.E2EL(); ok {
		s.E2EL = append(s.E2EL, total.Seconds())
	}
	if s.Type == profile.Prefill {
		if first, ok := rec.TTFT(); ok {
			s.Latencies = append(s.Latencies, first.Seconds())
		}
		return
	}
	own := within
	if len(run.Prefill) > 0 {
		own = beside
		from, _ := steady(run.Decode)
		if before := within(rec, from, run.From); len(before) > 0 {
			s.Before = append(s.Before, stat.Mean(before))
		}
	}
	if found := own(rec, run.From, run.To); len(found) > 0 {
		s.Gaps = append(s.Gaps, found...)
		s.Latencies = append(s.Latencies, stat.Mean(found))
		s.Tokens += len(found)
	}
}

// addSteps adds the steps of a run that worked for the side, which are those of
// the measured part: prompts being computed, or all requests decoding.
func (r *Result) addSteps(s *Side, run *Run) {
	steps := run.Steps
	if len(run.Prefill) == 0 {
		steps = together(steps, len(run.Decode))
	}
	if s.Type == profile.Decode && len(run.Prefill) > 0 {
		for _, step := range together(steps, len(run.Decode)) {
			if t := step.Totals; t.PrefillTokens == 0 && t.DecodeRequests == len(run.Decode) {
				s.Pure = append(s.Pure, step)
			}
		}
	}
	// Prompts of the decodes themselves come first.
	before := len(run.Decode) * r.Cell.NewTokens
	if len(run.Prefill) == 0 {
		before = 0
	}
	waiting := len(run.Prefill) * r.Cell.NewTokens
	for _, step := range steps {
		own := min(step.Totals.PrefillTokens, before)
		before -= own
		arrived := step.Totals.PrefillTokens - own
		if own == 0 && (arrived > 0 || len(run.Prefill) == 0) {
			s.Steps = append(s.Steps, step)
			if possible := min(r.Budget, waiting+len(run.Decode)); possible > 0 {
				s.Efficiency = append(s.Efficiency, min(float64(step.Tokens())/float64(possible), 1))
				s.BudgetUse = append(s.BudgetUse, min(float64(step.Tokens())/float64(r.Budget), 1))
			}
		}
		waiting = max(waiting-arrived, 0)
	}
}

// together are the steps from the first to the last one in which all of so many
// requests decode.
func together(steps []engine.ServedStep, requests int) []engine.ServedStep {
	all := func(s engine.ServedStep) bool { return s.Totals.DecodeRequests == requests }
	first := slices.IndexFunc(steps, all)
	if first < 0 {
		return nil
	}
	last := len(steps)
	for !all(steps[last-1]) {
		last--
	}
	return steps[first:last]
}

// Slowdown is the mean latency of a side beside the other one over that without
// it: of prefills that of the prefills alone, of decodes that of the same
// requests just before, so that a machine that changes its speed between runs
// does not count. nil where either is missing.
func Slowdown(mixed, alone *Side) *float64 {
	if mixed == nil || alone == nil {
		return nil
	}
	base := alone.Mean()
	if len(mixed.Before) > 0 {
		base = stat.Mean(mixed.Before)
	}
	ratio := mixed.Mean() / base
	if !(ratio > 0) || math.IsInf(ratio, 0) {
		return nil
	}
	return &ratio
}

// Measured is the phase of the cell's own type: what was asked for.
func (r *Result) Measured() *Phase {
	switch r.Cell.Type {
	case profile.Prefill:
		return r.Prefill
	case profile.Decode:
		return r.Decode
	}
	return r.Mixed
}

// Runs are the counted runs of all phases.
func (r *Result) Runs() []Run {
	var out []Run
	for _, p := range []*Phase{r.Prefill, r.Decode, r.Mixed} {
		if p != nil {
			out = append(out, p.Runs...)
		}
	}
	return out
}

// Proof is how many tokens of prefixes the counted runs asked for, and how many
// the server found in its cache, by its counter of prefix hits or, where it has
// none, by its answers; found is nil where it does not say.
func (r *Result) Proof() (asked int, found *int, by string) {
	sum := 0
	for _, run := range r.Runs() {
		asked += r.Cell.Cached() * (len(run.Prefill) + len(run.Decode))
		told := run.Hits
		by = "counter of prefix hits"
		if told == nil {
			told, by = run.Cached, "usage of the answers"
		}
		if told == nil {
			return asked, nil, ""
		}
		sum += *told
	}
	return asked, &sum, by
}

// missing names what was not measured, and why.
func (r *Result) missing(o *Options) {
	if r.Failure != "" {
		return
	}
	add := func(what, why string) { r.Missing = append(r.Missing, Missing{what, why}) }
	runs := r.Runs()
	asked, found, _ := r.Proof()
	switch {
	case found == nil:
		add("cached prefix tokens", "the server publishes no counter of prefix hits, and its answers do not say")
	case *found != asked:
		r.Warnings = append(r.Warnings, fmt.Sprintf("the server's counter rose by %d tokens and its answers say %d: it had requests of others too", *found, asked))
	}
	told := func(of func(*profile.Server) bool) bool {
		return slices.ContainsFunc(runs, func(run Run) bool { return run.Server != nil && of(run.Server) })
	}
	const silent = "the server does not publish it"
	if !told(func(s *profile.Server) bool { return s.Preemptions != nil }) {
		add("preemptions", silent)
	}
	between := silent + ", or was not read while a run was on: they are shorter than the second between two readings"
	if r.KVUsage() == nil {
		add("KV cache use", between)
	}
	if !told(func(s *profile.Server) bool { return s.Waiting != nil }) {
		add("length of the waiting queue", between)
	}
	stepped := slices.ContainsFunc(runs, func(run Run) bool { return len(run.Steps) > 0 })
	switch {
	case o.Log == nil:
		add("steps and batch efficiency", "no log of the engine's steps was given: --server-log, of a server with --enable-logging-iteration-details")
	case !stepped:
		add("steps and batch efficiency", "the server's log told of no step")
	case o.Budget == 0:
		add("batch efficiency", "the server's budget is not known: --max-num-batched-tokens says it")
	}
	if stepped && r.Mixed != nil && len(r.Side(r.Mixed, profile.Decode).Pure) == 0 {
		add("time of steps that only decode", "in no step of the mixed runs did all decodes run without a prompt: more steps (--num-steps) come before the prompts")
	}
	switch d := r.Measured().Devices(); {
	case o.Source == nil:
		add("memory and utilisation of the devices", "no sampler reads them")
	case d == nil:
		add("memory and utilisation of the devices", "the sampler gave no reading while the runs were on")
	default:
		if d.Memory == nil {
			add("memory of the devices", "the sampler does not tell it")
		}
		if d.Utilization == nil {
			add("utilisation of the devices", "the sampler does not tell it")
		}
	}
	add("swaps, time of scheduling and of allocation", "vLLM's and SGLang's present engines do not swap, and tell neither time")
}

// kvUsage is the largest share of the KV cache in use, by the log or the
// metrics; nil where neither tells.
func (r *Run) kvUsage() *float64 {
	var most *float64
	take := func(v float64) {
		if most == nil || v > *most {
			most = &v
		}
	}
	for _, s := range r.Steps {
		if s.KVUsage != nil {
			take(*s.KVUsage)
		}
	}
	if r.Server != nil && r.Server.KVUsage != nil {
		take(r.Server.KVUsage.Max)
	}
	return most
}

// KVUsage is the largest share of the KV cache in use in the counted runs, 0..1;
// nil where nobody tells.
func (r *Result) KVUsage() *float64 {
	var most *float64
	for _, run := range r.Runs() {
		if v := run.kvUsage(); v != nil && (most == nil || *v > *most) {
			most = v
		}
	}
	return most
}

// Preemptions is their number in the counted runs; nil where the server does not
// say.
func (r *Result) Preemptions() *float64 {
	var sum *float64
	for _, run := range r.Runs() {
		if run.Server == nil || run.Server.Preemptions == nil {
			continue
		}
		if sum == nil {
			sum = new(0.0)
		}
		*sum += *run.Server.Preemptions
	}
	return sum
}
