package sim_test

import (
	"math"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim"
)

// TestConfig says what an engine refuses at its start.
func TestConfig(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*sim.Config)
		want   string // in the error; empty for none
	}{
		{"the standard replica", func(*sim.Config) {}, ""},
		{"a request of full length fits exactly", func(c *sim.Config) { c.Blocks = 9 }, ""},
		{"it fits with the null block only", func(c *sim.Config) { c.Blocks = 8 }, "needs 8 blocks of 4 tokens, and 7 of 8 are usable: the longest that fits is 28"},
		{"so too in releases that start and never run it", func(c *sim.Config) { c.Blocks, c.Rules = 8, rulesOf(t, "0.28.0") }, "7 of 8 are usable"},
		{"no tokens for all seats", func(c *sim.Config) { c.MaxSeqs = 17 }, "max_num_batched_tokens 16 is below max_num_seqs 17"},
		{"a budget below the longest whole prompt", func(c *sim.Config) { c.WholePrompts = true }, "chunked prefill is off and the budget of 16 tokens is below max_model_len 32"},
		{"a smaller budget hides behind a large one", func(c *sim.Config) { c.WholePrompts, c.MaxBatchedTokens, c.MaxScheduledTokens = true, 32, 31 }, "the budget of 31 tokens"},
		{"a budget for the longest prompt", func(c *sim.Config) { c.WholePrompts, c.MaxBatchedTokens = true, 32 }, ""},
		{"a setting that the release lacks", func(c *sim.Config) { c.MaxScheduledTokens, c.Rules = 8, rulesOf(t, "0.16.0") }, "max_num_scheduled_tokens 8: this release does not have it"},
		{"a threshold above the longest request", func(c *sim.Config) { c.Threshold = 33 }, "threshold 33 is above max_model_len 32"},
		{"it was not checked before 0.27", func(c *sim.Config) { c.Threshold, c.Rules = 33, rulesOf(t, "0.26.0") }, ""},
		{"a watermark of everything", func(c *sim.Config) { c.Watermark = 1 }, "watermark is 1"},
		{"no number", func(c *sim.Config) { c.Watermark = math.NaN() }, "watermark is NaN"},
		{"an unknown policy", func(c *sim.Config) { c.Policy = 7 }, "scheduling policy is policy 7: want fcfs or priority"},
		{"too many", func(c *sim.Config) { c.Blocks = sim.MaxCount + 1 }, "num_blocks is 536870913: want 2 to 536870912"},
		{"no room for an output", func(c *sim.Config) { c.MaxModelLen = 1 }, "max_model_len is 1: want 2"},
	} {
		config := sim.Config{Rules: rulesOf(t, ""), Blocks: 17, BlockSize: 4, MaxBatchedTokens: 16, MaxSeqs: 4, MaxModelLen: 32}
		c.change(&config)
		_, err := sim.NewScheduler(config)
		if (err != nil) != (c.want != "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
	_, err := sim.NewScheduler(sim.Config{})
	for _, name := range []string{"num_blocks", "block_size", "max_num_batched_tokens", "max_num_seqs", "max_model_len"} {
		if err == nil || !strings.Contains(err.Error(), name+" is 0") {
			t.Errorf("all faults are named at once: %s is not in %v", name, err)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	s := replica(t, nil)
	for _, c := range []struct {
		why  string
		q    sim.Request
		want string
	}{
		{"no prompt", sim.Request{Output: 1}, "prompt of 0 tokens"},
		{"no output", sim.Request{Prompt: 1}, "output of 0 tokens"},
		{"a negative limit", sim.Request{Prompt: 1, Output: 1, MaxTokens: -1}, "limit of -1 tokens"},
		{"a priority beyond 32 bits", sim.Request{Prompt: 1, Output: 1, Priority: 1 << 40}, "priority 1099511627776"},
		{"a node without a number", sim.Request{Prompt: 1, Output: 1, Prefix: []sim.Span{{Node: -1, End: 1}}}, "shared node -1"},
		{"a span beyond the last token", sim.Request{Prompt: 1, Output: 1, Prefix: []sim.Span{{Node: 1, End: 3}}}, "ends that grow"},
		{"spans that go back", sim.Request{Prompt: 9, Output: 1, Prefix: []sim.Span{{Node: 1, End: 8}, {Node: 2, End: 4}}}, "ends that grow"},
	} {
		if _, err := s.Add(c.q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
	if !s.Idle() {
		t.Error("a request that is none waits")
	}
	id, err := s.Add(sim.Request{Prompt: 32, Output: 1})
	if err != nil || s.State(id) != sim.Unservable || s.Totals().Unservable != 1 || !s.Idle() {
		t.Errorf("a prompt of max_model_len: state %d, %d refused, idle %v, %v; want it counted and nothing to do", s.State(id), s.Totals().Unservable, s.Idle(), err)
	}
}
