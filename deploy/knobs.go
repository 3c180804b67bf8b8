package deploy

import (
	"strings"

	"github.com/llmprof/llmprof/unit"
)

// Knobs are the settings of an engine's scheduler and pool that a [Config] does
// not hold, since nothing but the schedule depends on them. Nil and zero leave
// a knob to the engine. The first group is vLLM's, the second SGLang's; the
// pool's are of both.
type Knobs struct {
	// AsyncScheduling is async_scheduling: a pass is made while the step before
	// it runs.
	AsyncScheduling *bool
	// ReserveFullISL is scheduler_reserve_full_isl: a request is admitted only
	// when blocks for its whole prompt are free.
	ReserveFullISL *bool
	// Watermark is the fraction of the blocks that admissions leave free, 0..1.
	Watermark *float64
	// LongPrefillThreshold is long_prefill_token_threshold: the most tokens of
	// one request in a step; 0 is none.
	LongPrefillThreshold *int
	// MaxScheduledTokens is max_num_scheduled_tokens, a budget in tokens below
	// max_num_batched_tokens.
	MaxScheduledTokens int
	// MaxPartialPrefills and MaxLongPartialPrefills are max_num_partial_prefills
	// and max_long_partial_prefills, both counts of requests.
	MaxPartialPrefills, MaxLongPartialPrefills *int
	// SwapSpace is swap_space in GiB per device.
	SwapSpace *float64
	// PerformanceMode is performance_mode: "balanced", "interactivity",
	// "throughput".
	PerformanceMode string
	// All2AllBackend is all2all_backend, which carries tokens to experts.
	All2AllBackend string
	// NoHybridKVCache is disable_hybrid_kv_cache_manager.
	NoHybridKVCache bool
	// LargestItem is the largest image of a model that takes a whole one at
	// once, in tokens; 0 for every other model.
	LargestItem int
	// Eager is enforce_eager: no device graphs.
	Eager bool

	// MaxTotalTokens is max_total_tokens, a bound of the pool in tokens; 0 is
	// none.
	MaxTotalTokens int
	// MaxPrefillTokens is max_prefill_tokens.
	MaxPrefillTokens int
	// Conservativeness is schedule_conservativeness, a factor.
	Conservativeness float64
	// MixedChunk is enable_mixed_chunk: running requests decode in prefill
	// batches.
	MixedChunk bool
	// NoOverlap is disable_overlap_schedule.
	NoOverlap bool
	// DecodeInterval is prefill_decode_interval, in decode iterations.
	DecodeInterval int
	// PreemptThreshold is priority_scheduling_preemption_threshold; nil is the
	// engine's.
	PreemptThreshold *int
	// RetractByPriority is retraction_policy=priority.
	RetractByPriority bool

	// Blocks is num_gpu_blocks_override, or for SGLang a bound like
	// MaxTotalTokens in pages; 0 is what memory gives.
	Blocks int
	// KVCacheMemory is kv_cache_memory_bytes: what every rank takes for the
	// pool, in bytes; 0 is what is left.
	KVCacheMemory unit.Bytes
}

// Choice is a setting with where its value comes from.
type Choice struct {
	// Name is the setting as the engine spells it.
	Name string
	// Value is its value as the engine would print it.
	Value string
	// Source is "given", "default of vLLM 0.33.0", …, or how the value follows
	// from others.
	Source string
}

// Given is the [Choice.Source] of what the user said.
const Given = "given"

// InvalidError is a deployment that its engine would refuse, with every reason.
type InvalidError struct {
	// Faults are the reasons.
	Faults []error
	advice string
}

// Error lists the reasons.
func (e *InvalidError) Error() string { return joined(e.Faults) }

// Unwrap gives the reasons.
func (e *InvalidError) Unwrap() []error { return e.Faults }

// Hint says what to change, where that is known.
func (e *InvalidError) Hint() string { return e.advice }

func joined(faults []error) string {
	texts := make([]string, len(faults))
	for i, fault := range faults {
		texts[i] = fault.Error()
	}
	return strings.Join(texts, "; ")
}
