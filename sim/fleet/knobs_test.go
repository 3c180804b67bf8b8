package fleet_test

import (
	"context"
	"slices"
	"testing"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/sim/sglang"
)

// TestUnbound looks for each setting at a load that it binds and one that it
// does not.
func TestUnbound(t *testing.T) {
	light := []req{{at: 0, in: 20, out: 5}}
	for _, c := range []struct {
		knob, why string
		set       func(*sim.Config)
		binds     []req
		light     []req
	}{
		{knob: "max_num_batched_tokens", why: "64 tokens of one prompt fill a step", binds: []req{{in: 64, out: 1}}},
		{knob: "max_num_scheduled_tokens", why: "and so do 32 where the budget is smaller", set: func(c *sim.Config) { c.MaxScheduledTokens = 32 }, binds: []req{{in: 33, out: 1}}},
		{knob: "max_num_seqs", why: "the second waits for the first", set: func(c *sim.Config) { c.MaxSeqs = 1 }, binds: []req{{in: 4, out: 3}, {in: 4, out: 1}}},
		{knob: "num_gpu_blocks", why: "three of 37 and more blocks do not fit into 99", binds: []req{{in: 150, out: 9}, {in: 150, out: 9}, {in: 150, out: 9}}},
		{knob: "max_model_len", why: "the answer ends early at 160", binds: []req{{in: 100, out: 61}}, light: []req{{in: 100, out: 60}}},
		{knob: "enable_prefix_caching", why: "the second finds 8 tokens", binds: []req{{in: 9, out: 1, prefix: 2}, {in: 9, out: 1, prefix: 2}}, light: []req{{in: 9, out: 1, prefix: 2}}},
		{knob: "enable_chunked_prefill", why: "65 tokens need two steps", binds: []req{{in: 65, out: 1}}, light: []req{{in: 64, out: 1}}},
		{
			knob: "enable_chunked_prefill", why: "two prompts of 100 do not go into a step of 160 tokens", binds: []req{{in: 100, out: 1}, {in: 100, out: 1}},
			set: func(c *sim.Config) { c.WholePrompts, c.MaxBatchedTokens = true, 160 },
		},
		{knob: "long_prefill_token_threshold", why: "two prompts, of which one is longer", set: func(c *sim.Config) { c.Threshold = 10 }, binds: []req{{in: 11, out: 1}, {in: 4, out: 1}}, light: []req{{in: 10, out: 1}, {in: 4, out: 1}}},
		{
			knob: "watermark", why: "50 of 100 blocks stay free while 40 are used, and 20 are wanted", set: func(c *sim.Config) { c.Watermark = 0.5 },
			binds: []req{{in: 64, out: 90}, {at: 5, in: 150, out: 1}, {at: 45, in: 60, out: 1}},
		},
		{
			knob: "scheduler_reserve_full_isl", why: "the third needs 33 blocks of which 20 are free, and 16 for its first 62 tokens", binds: []req{{in: 150, out: 10}, {at: 35, in: 150, out: 10}, {at: 75, in: 130, out: 5}},
		},
	} {
		t.Run(c.knob, func(t *testing.T) {
			if c.light == nil {
				c.light = light
			}
			for k, all := range [][]req{c.binds, c.light} {
				replica := small(t)
				if c.set != nil {
					c.set(replica.VLLM)
				}
				r, err := fleet.Run(context.Background(), caseOf(t, all), fleet.Config{Replicas: []fleet.Replica{replica}})
				if err != nil {
					t.Fatal(err)
				}
				idle := slices.ContainsFunc(r.Replicas[0].Unbound, func(k fleet.Knob) bool { return k.Name == c.knob })
				if idle != (k == 1) {
					t.Errorf("%s: load %d: without effect is %v: %v", c.why, k, idle, r.Replicas[0].Unbound)
				}
			}
		})
	}
}

// TestUnboundSGLang is the same for SGLang, whose own test changes what is said
// to make no difference.
func TestUnboundSGLang(t *testing.T) {
	light := []req{{at: 0, in: 20, out: 5}}
	two := []req{{in: 9, out: 3}, {in: 9, out: 3}}
	for _, c := range []struct {
		knob, why string
		set       func(*sglang.Config)
		binds     []req
	}{
		{"max_running_requests", "the second waits for the first", func(c *sglang.Config) { c.Seats = 1 }, two},
		{"chunked_prefill_size", "65 tokens need two batches of 64", func(c *sglang.Config) { c.Chunk = 64 }, []req{{in: 65, out: 1}}},
		{"max_prefill_tokens", "without chunks two prompts of 40 do not go into 64", func(c *sglang.Config) { c.Chunk, c.MaxPrefill = -1, 64 }, []req{{in: 40, out: 1}, {in: 40, out: 1}}},
		{"max_total_num_tokens", "two of 60 and 60 to come do not fit in 200", func(c *sglang.Config) { c.Pool = 200 }, []req{{in: 60, out: 60}, {in: 60, out: 60}}},
		{"mem_fraction_static", "for the same reason", func(c *sglang.Config) { c.Pool = 200 }, []req{{in: 60, out: 60}, {in: 60, out: 60}}},
		{"schedule_conservativeness", "while the first has 180 tokens to come", func(c *sglang.Config) { c.Pool = 300 }, []req{{in: 60, out: 190}, {at: 40, in: 90, out: 30}}},
		{"schedule_policy", "two come at once", nil, two},
		{"context_length", "the answer ends at the context of 100", func(c *sglang.Config) { c.Context = 100 }, []req{{in: 60, out: 60}}},
		{"page_size", "two share 6 tokens, which are no page", func(c *sglang.Config) { c.Page = 8 }, []req{{in: 9, out: 1, prefix: 6}, {at: 90, in: 9, out: 1, prefix: 6}}},
		{"disable_radix_cache", "the second finds 6 tokens", nil, []req{{in: 9, out: 1, prefix: 6}, {at: 90, in: 9, out: 1, prefix: 6}}},
		{"enable_mixed_chunk", "the second comes while the first decodes", nil, []req{{in: 9, out: 20}, {at: 30, in: 9, out: 3}}},
		{"enable_priority_scheduling", "the second waits for a seat", func(c *sglang.Config) { c.Priority, c.Seats = true, 1 }, two},
		{"prefill_decode_interval", "the second comes in the first three decodes of the first", func(c *sglang.Config) { c.DecodeInterval = 3 }, []req{{in: 9, out: 20}, {at: 8, in: 9, out: 3}}},
	} {
		t.Run(c.knob, func(t *testing.T) {
			for k, all := range [][]req{c.binds, light} {
				config := sglangOf(t, "")
				if c.set != nil {
					c.set(config)
				}
				r := serve(t, caseOf(t, all), config)
				idle := slices.ContainsFunc(r.Replicas[0].Unbound, func(k fleet.Knob) bool { return k.Name == c.knob })
				if idle != (k == 1) {
					t.Errorf("%s: load %d: without effect is %v: %v", c.why, k, idle, r.Replicas[0].Unbound)
				}
			}
		})
	}
}
