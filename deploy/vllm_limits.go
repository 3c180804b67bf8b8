package deploy

import (
	"fmt"
	"strconv"
)

// limit is one of the limits under way.
type limit struct {
	name   string
	value  int
	given  bool
	source string
}

func newLimit(name string, given, standard int, source string) *limit {
	if given != 0 {
		return &limit{name, given, true, Given}
	}
	return &limit{name, standard, false, source}
}

// set changes a value that was not given.
func (l *limit) set(value int, why string) {
	if l.given || value == l.value {
		return
	}
	l.source = fmt.Sprintf("%s, then %s", l.source, why)
	l.value = value
}

// limits fills in the longest request, the budget and the seats, in the order
// in which the engine adjusts them.
func (s *vllmStart) limits() {
	c, k, out := s.ask.Config, s.ask.Knobs, &s.out
	r := out.Release
	length := newLimit("max_model_len", c.MaxModelLen, s.ask.ModelLen, "the model's own")
	out.MaxModelLen = length.value
	ranks := max(c.TensorParallel, 1) * max(c.PipelineParallel, 1)
	standard := limitsOf(r, s.ask.Machine, s.ask.Usage, ranks)
	source := s.standard() + " for " + standard.why
	budget := newLimit("max_num_batched_tokens", c.MaxNumBatchedTokens, standard.budget, source)
	seats := newLimit("max_num_seqs", c.MaxNumSeqs, standard.seats, source)

	lowLatency := k.All2AllBackend == "deepep_low_latency" || k.All2AllBackend == "nixl_ep"
	if r.From(20, 0) && lowLatency && c.ExpertParallel > 1 && c.DataParallel > 1 {
		budget.set(256, "the bound of all2all backend "+k.All2AllBackend)
	}
	if r.From(17, 0) && k.PerformanceMode == "throughput" {
		budget.set(2*budget.value, "doubled by performance mode throughput")
		seats.set(2*seats.value, "doubled by performance mode throughput")
	}
	if !out.ChunkedPrefill && r.From(11, 2) {
		budget.set(max(budget.value, length.value), "raised to max_model_len, since prompts are not cut")
	} else if !out.ChunkedPrefill && r.From(10, 2) {
		budget.set(length.value, "max_model_len, since prompts are not cut")
	}
	if r.From(22, 0) {
		budget.set(max(budget.value, k.LargestItem), "raised to the largest image, which is taken whole")
	}
	if r.From(11, 2) && length.value > 0 {
		budget.set(min(budget.value, seats.value*length.value), "cut to max_num_seqs x max_model_len")
	}
	if r.From(10, 2) {
		seats.set(min(seats.value, budget.value), "cut to max_num_batched_tokens")
	}
	out.MaxNumBatchedTokens, out.MaxNumSeqs = budget.value, seats.value
	out.MaxScheduledTokens = k.MaxScheduledTokens
	for _, l := range []*limit{length, budget, seats} {
		s.choose(l.name, strconv.Itoa(l.value), l.source)
	}
	if k.MaxScheduledTokens > 0 {
		s.choose("max_num_scheduled_tokens", strconv.Itoa(k.MaxScheduledTokens), Given)
	}
}

// removed looks at knobs that the release lost or never had.
func (s *vllmStart) removed() {
	k, r := s.ask.Knobs, s.out.Release
	named := s.ask.Config.EngineVersion != ""
	gone := func(name, since string) {
		if named {
			s.fault("%s: vLLM %s does not have it any more, %s removed it", name, r, since)
			return
		}
		s.warn("%s has no effect: vLLM %s removed it", name, since)
	}
	if k.SwapSpace != nil {
		if r.From(18, 0) {
			gone("swap_space", "0.18.0")
		} else {
			s.warn("swap_space %g GiB has no effect: requests are preempted by computing them again", *k.SwapSpace)
		}
	}
	for _, knob := range []struct {
		name  string
		value *int
	}{{"max_num_partial_prefills", k.MaxPartialPrefills}, {"max_long_partial_prefills", k.MaxLongPartialPrefills}} {
		switch {
		case knob.value == nil:
		case r.From(27, 0):
			gone(knob.name, "0.27.0")
		case *knob.value < 1:
			s.fault("%s is %d: want at least 1", knob.name, *knob.value)
		default:
			s.warn("%s %d does not change how many prompts are computed at once", knob.name, *knob.value)
		}
	}
	if k.PerformanceMode != "" {
		s.performanceMode()
	}
	if k.MaxScheduledTokens > 0 && !r.From(17, 0) {
		s.fault("max_num_scheduled_tokens: vLLM %s does not have it, 0.17.0 brought it", r)
	}
	if k.KVCacheMemory > 0 && !r.From(10, 2) {
		s.fault("kv_cache_memory_bytes: vLLM %s does not have it, 0.10.2 brought it", r)
	}
}

func (s *vllmStart) performanceMode() {
	mode := s.ask.Knobs.PerformanceMode
	switch {
	case mode != "balanced" && mode != "interactivity" && mode != "throughput":
		s.fault("performance_mode %q: want balanced, interactivity or throughput", mode)
	case !s.out.Release.From(17, 0):
		s.fault("performance_mode: vLLM %s does not have it, 0.17.0 brought it", s.out.Release)
	}
}

// check copies the checks that the engine makes of the whole.
func (s *vllmStart) check() {
	out := &s.out
	s.partialPrefills()
	for _, n := range []struct {
		name  string
		value int
		least int
	}{
		{"max_model_len", out.MaxModelLen, 1},
		{"max_num_batched_tokens", out.MaxNumBatchedTokens, 1},
		{"max_num_seqs", out.MaxNumSeqs, 1},
		{"long_prefill_token_threshold", out.Threshold, 0},
	} {
		if n.value < n.least {
			s.fault("%s is %d: want at least %d", n.name, n.value, n.least)
		}
	}
	if len(s.faults) > 0 {
		return
	}
	if out.MaxNumBatchedTokens < out.MaxNumSeqs {
		s.fault("max_num_batched_tokens %d is below max_num_seqs %d: every running request needs a token a step", out.MaxNumBatchedTokens, out.MaxNumSeqs)
	}
	if !out.ChunkedPrefill && out.MaxNumBatchedTokens < out.MaxModelLen {
		s.fault("chunked prefill is off and max_num_batched_tokens %d is below max_model_len %d: a longer prompt would never run", out.MaxNumBatchedTokens, out.MaxModelLen)
	}
	several := s.ask.Knobs.MaxPartialPrefills != nil && *s.ask.Knobs.MaxPartialPrefills > 1
	if out.Threshold > out.MaxModelLen && (out.Release.From(27, 0) || several) {
		s.fault("long_prefill_token_threshold %d is above max_model_len %d", out.Threshold, out.MaxModelLen)
	}
	if most := out.MaxNumSeqs * out.MaxModelLen; out.MaxNumBatchedTokens > most {
		s.warn("max_num_batched_tokens %d is more than max_num_seqs x max_model_len = %d: a step can never use all of it", out.MaxNumBatchedTokens, most)
	}
}

// partialPrefills applies the knobs of releases before 0.27.
func (s *vllmStart) partialPrefills() {
	k, out := s.ask.Knobs, &s.out
	if out.Release.From(27, 0) {
		return
	}
	partial, long := 1, 1
	if k.MaxPartialPrefills != nil {
		partial = *k.MaxPartialPrefills
	}
	if k.MaxLongPartialPrefills != nil {
		long = *k.MaxLongPartialPrefills
	}
	if long > partial {
		s.fault("max_long_partial_prefills %d is above max_num_partial_prefills %d", long, partial)
	}
	if partial <= 1 {
		return
	}
	if !out.ChunkedPrefill {
		s.fault("max_num_partial_prefills %d needs chunked prefill, which is off", partial)
	}
	if out.Threshold == 0 {
		out.Threshold = int(float64(out.MaxModelLen) * 0.04)
		why := fmt.Sprintf("4 %% of max_model_len, set by max_num_partial_prefills %d", partial)
		for i := range out.Choices {
			if out.Choices[i].Name == "long_prefill_token_threshold" {
				out.Choices[i] = Choice{"long_prefill_token_threshold", strconv.Itoa(out.Threshold), why}
			}
		}
		s.warn("max_num_partial_prefills %d sets long_prefill_token_threshold to %d, 4 %% of max_model_len", partial, out.Threshold)
	}
}
