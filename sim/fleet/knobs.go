package fleet

import (
	"fmt"

	"github.com/llmprof/llmprof/sim"
)

// Knob is a setting that made no difference in a run.
type Knob = sim.Knob

// unbound are the settings that made no difference to a replica of vLLM, when prompts
// share tokens or not.
func unbound(c *sim.Config, t *sim.Totals, sharing bool) []Knob {
	var all []Knob
	add := func(idle bool, name, why string, args ...any) {
		if idle {
			all = append(all, Knob{Name: name, Why: fmt.Sprintf(why, args...)})
		}
	}
	budget, limit := "max_num_batched_tokens", c.MaxBatchedTokens
	if c.MaxScheduledTokens > 0 && c.MaxScheduledTokens < limit {
		add(true, budget, "max_num_scheduled_tokens is below it")
		budget, limit = "max_num_scheduled_tokens", c.MaxScheduledTokens
	}
	add(t.Budget == 0, budget, "no step reached %d tokens", limit)
	add(t.Seats == 0, "max_num_seqs", "no request waited while %d ran", c.MaxSeqs)
	never := t.Blocks == 0 && t.Preemptions == 0
	add(never && !sharing, "num_gpu_blocks", "nobody waited for blocks or was preempted, and no prompts share any")
	add(never && sharing && t.Evictions == 0, "num_gpu_blocks", "nobody waited for blocks or was preempted, and none were evicted")
	add(t.Shortened == 0, "max_model_len", "no request reached %d tokens", c.MaxModelLen)
	add(!t.Ranked && t.Preemptions == 0, "scheduling_policy", "all requests have one priority and nobody was preempted")
	add(!c.NoPrefixCache && t.Hit+t.ResumedHit == 0, "enable_prefix_caching", "nothing was found in the cache")
	add(!c.WholePrompts && t.Cut == 0, "enable_chunked_prefill", "no prompt was cut")
	add(c.WholePrompts && t.Whole == 0, "enable_chunked_prefill", "no prompt had to wait for a step of its own")
	add(c.Threshold > 0 && t.Threshold == 0, "long_prefill_token_threshold", "no prompt was cut to %d tokens", c.Threshold)
	add(c.Watermark > 0 && !c.Rules.Watermark, "watermark", "this release does not have it")
	add(c.Watermark > 0 && c.Rules.Watermark && t.Watermark == 0, "watermark", "it refused nobody")
	add(c.Rules.FullSequenceGate && !c.NoFullSequenceGate && t.FullSequence == 0, "scheduler_reserve_full_isl", "it refused nobody")
	return all
}
