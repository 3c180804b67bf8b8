package sim

import (
	"errors"
	"fmt"
)

// MaxCount bounds every count of a configuration or a request.
const MaxCount = 1 << 29

// Policy says in which order requests are admitted and who is preempted.
type Policy uint8

const (
	// FCFS admits in order of arrival and preempts the request admitted last.
	FCFS Policy = iota
	// Priority admits the smallest (priority, arrival) first and preempts the
	// largest.
	Priority
)

// String is the policy as vLLM spells it.
func (p Policy) String() string {
	switch p {
	case FCFS:
		return "fcfs"
	case Priority:
		return "priority"
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// Config is one replica as its scheduler sees it. Counts of 0 are errors but
// where a default is named.
type Config struct {
	// Rules are those of a release: [RulesOf].
	Rules Rules
	// Blocks is num_gpu_blocks as vLLM counts them, the null block included,
	// so one less is usable.
	Blocks int
	// BlockSize is the tokens of a block.
	BlockSize int
	// MaxBatchedTokens is max_num_batched_tokens, the budget of a step.
	MaxBatchedTokens int
	// MaxScheduledTokens is max_num_scheduled_tokens, a smaller budget; 0 is
	// MaxBatchedTokens.
	MaxScheduledTokens int
	// MaxSeqs is max_num_seqs, the seats of running requests.
	MaxSeqs int
	// MaxModelLen is max_model_len: the most tokens of prompt and output.
	MaxModelLen int
	// Policy is scheduling_policy; default FCFS.
	Policy Policy
	// Async is async_scheduling: a pass is made while the step before runs.
	Async bool
	// Threshold is long_prefill_token_threshold, the most tokens of one
	// request in a step; 0 is none.
	Threshold int
	// Watermark is the fraction of Blocks that admissions leave free while
	// others run; without effect where the rules lack it.
	Watermark float64
	// WholePrompts is enable_chunked_prefill switched off.
	WholePrompts bool
	// NoPrefixCache is enable_prefix_caching switched off.
	NoPrefixCache bool
	// NoFullSequenceGate is scheduler_reserve_full_isl switched off; without
	// effect where the rules lack it.
	NoFullSequenceGate bool
	// Aggregate lets requests that only decode be counted instead of listed
	// ([Plan.Steady], [Outcome.Steady]) in steps that cannot preempt. What is
	// decided is the same, at a cost that does not grow with their number.
	Aggregate bool
}

// Validate reports what the engine would refuse at its start, all at once, and
// what would make it wait for ever.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, f := range []struct {
		name         string
		value, least int
	}{
		{"num_blocks", c.Blocks, 2},
		{"block_size", c.BlockSize, 1},
		{"max_num_batched_tokens", c.MaxBatchedTokens, 1},
		{"max_num_scheduled_tokens", c.MaxScheduledTokens, 0},
		{"max_num_seqs", c.MaxSeqs, 1},
		{"max_model_len", c.MaxModelLen, 2},
		{"long_prefill_token_threshold", c.Threshold, 0},
	} {
		if f.value < f.least || f.value > MaxCount {
			fault("%s is %d: want %d to %d", f.name, f.value, f.least, MaxCount)
		}
	}
	if c.Policy > Priority {
		fault("scheduling policy is %s: want fcfs or priority", c.Policy)
	}
	if !(c.Watermark >= 0 && c.Watermark < 1) {
		fault("watermark is %g: want a fraction of the blocks, 0 or more and below 1", c.Watermark)
	}
	if len(faults) == 0 {
		faults = c.contradictions()
	}
	return errors.Join(faults...)
}

// contradictions are settings that do not go together.
func (c Config) contradictions() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.MaxBatchedTokens < c.MaxSeqs {
		fault("max_num_batched_tokens %d is below max_num_seqs %d: every running request needs a token a step", c.MaxBatchedTokens, c.MaxSeqs)
	}
	if c.MaxScheduledTokens > 0 && !c.Rules.ScheduledTokens {
		fault("max_num_scheduled_tokens %d: this release does not have it", c.MaxScheduledTokens)
	}
	if c.WholePrompts && c.budget() < c.MaxModelLen {
		fault("chunked prefill is off and the budget of %d tokens is below max_model_len %d: a longer prompt would never run", c.budget(), c.MaxModelLen)
	}
	if c.Rules.ThresholdBounded && c.Threshold > c.MaxModelLen {
		fault("long_prefill_token_threshold %d is above max_model_len %d", c.Threshold, c.MaxModelLen)
	}
	if need := (c.MaxModelLen + c.BlockSize - 1) / c.BlockSize; need > c.Blocks-1 {
		fault("one request of max_model_len %d needs %d blocks of %d tokens, and %d of %d are usable: the longest that fits is %d",
			c.MaxModelLen, need, c.BlockSize, c.Blocks-1, c.Blocks, (c.Blocks-1)*c.BlockSize)
	}
	return faults
}

// budget is the tokens of a step.
func (c Config) budget() int {
	if c.MaxScheduledTokens > 0 {
		return min(c.MaxScheduledTokens, c.MaxBatchedTokens)
	}
	return c.MaxBatchedTokens
}
