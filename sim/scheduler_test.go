package sim_test

import (
	"slices"
	"testing"

	"github.com/llmprof/llmprof/sim"
)

// add lets a request arrive.
func add(t *testing.T, s *sim.Scheduler, q sim.Request) int32 {
	t.Helper()
	id, err := s.Add(q)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// finish runs until nothing is left.
func finish(s *sim.Scheduler) {
	for !s.Idle() {
		s.Schedule()
		s.Apply()
	}
}

// TestPrefixes gives hits where tokens are the same, and nowhere else.
func TestPrefixes(t *testing.T) {
	const system, agent, other, session = 0, 1, 2, 3
	for _, c := range []struct {
		why           string
		first, second sim.Request
		hit           int32 // of the second, in tokens
	}{
		{
			"nested prefixes share as far as the path is the same",
			sim.Request{Prompt: 22, Output: 1, Prefix: []sim.Span{{Node: system, End: 8}, {Node: agent, End: 16}}},
			sim.Request{Prompt: 22, Output: 1, Prefix: []sim.Span{{Node: system, End: 8}, {Node: other, End: 16}}},
			8,
		},
		{
			"the same path shares both",
			sim.Request{Prompt: 22, Output: 1, Prefix: []sim.Span{{Node: system, End: 8}, {Node: agent, End: 16}}},
			sim.Request{Prompt: 22, Output: 1, Prefix: []sim.Span{{Node: system, End: 8}, {Node: agent, End: 16}}},
			16,
		},
		{
			"a block across two nodes is the later one's",
			sim.Request{Prompt: 22, Output: 1, Prefix: []sim.Span{{Node: system, End: 6}, {Node: agent, End: 16}}},
			sim.Request{Prompt: 22, Output: 1, Prefix: []sim.Span{{Node: system, End: 6}, {Node: agent, End: 12}}},
			12,
		},
		{
			"a turn finds what the one before it computed, its answer but for the last token",
			sim.Request{Prompt: 10, Output: 7, Prefix: []sim.Span{{Node: session, End: 17}}},
			sim.Request{Prompt: 25, Output: 2, Prefix: []sim.Span{{Node: session, End: 27}}},
			16,
		},
		{
			"requests without a prefix have nothing in common",
			sim.Request{Prompt: 10, Output: 1},
			sim.Request{Prompt: 10, Output: 1},
			0,
		},
	} {
		s := replica(t, nil)
		add(t, s, c.first)
		finish(s)
		id := add(t, s, c.second)
		plan := s.Schedule()
		if want := []sim.Hit{{Request: id, Tokens: c.hit}}; !slices.Equal(plan.Hits, want) {
			t.Errorf("%s: hits %v, want %v", c.why, plan.Hits, want)
		}
	}
}

// TestScheduledTokens is the smaller budget beside max_num_batched_tokens.
func TestScheduledTokens(t *testing.T) {
	s := replica(t, func(c *sim.Config) { c.MaxScheduledTokens = 5 })
	id := add(t, s, sim.Request{Prompt: 8, Output: 1})
	want := []sim.Share{{Request: id, Tokens: 5}}
	if got := s.Schedule(); !slices.Equal(got.Scheduled, want) || got.Tokens != 5 {
		t.Errorf("%+v, want %v", got, want)
	}
	want = []sim.Share{{Request: id, Tokens: 3, Context: 5, Samples: true}}
	if got := s.Schedule(); !slices.Equal(got.Scheduled, want) {
		t.Errorf("%+v, want %v", got, want)
	}
}

// TestScheduleApplies takes in results that the caller did not ask for.
func TestScheduleApplies(t *testing.T) {
	s := replica(t, nil)
	id := add(t, s, sim.Request{Prompt: 4, Output: 3})
	s.Schedule()
	if s.Idle() {
		t.Error("idle with a plan that is not applied")
	}
	s.Schedule()
	if s.Outputs(id) != 1 || s.Computed(id) != 5 {
		t.Errorf("%d tokens put out, %d computed: want 1 and 5", s.Outputs(id), s.Computed(id))
	}
	s.Apply()
	if o := s.Apply(); len(o.Tokens) != 0 || s.Outputs(id) != 2 {
		t.Errorf("a step was applied twice: %v, %d tokens", o.Tokens, s.Outputs(id))
	}
}

// TestRulesAlone sets one rule against its release: requests that were set aside
// return in order.
func TestRulesAlone(t *testing.T) {
	for _, reversed := range []bool{true, false} {
		s := replica(t, func(c *sim.Config) {
			c.Rules, c.WholePrompts, c.MaxBatchedTokens = rulesOf(t, "0.11.2"), true, 32
			c.Rules.ReturnReversed = reversed
		})
		for _, prompt := range []int{20, 14, 13} {
			add(t, s, sim.Request{Prompt: prompt, Output: 1})
		}
		s.Schedule()
		want := []int32{1, 2}
		if reversed {
			want = []int32{2, 1}
		}
		if got := s.AppendWaiting(nil); !slices.Equal(got, want) || s.WaitingCount() != 2 {
			t.Errorf("reversed %v: %v wait, want %v", reversed, got, want)
		}
	}
}

// TestTotals keeps look-ups of requests that resume apart.
func TestTotals(t *testing.T) {
	s := replica(t, func(c *sim.Config) { c.Blocks, c.MaxModelLen = 7, 24 })
	add(t, s, sim.Request{Prompt: 8, Output: 6})
	add(t, s, sim.Request{Prompt: 8, Output: 6})
	finish(s)
	want := sim.Totals{Preemptions: 1, Evictions: 2, Finished: 2, Queried: 16, ResumedQueried: 13, ResumedHit: 8, Budget: 1} // the two prompts fill a step
	if got := s.Totals(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s.FreeBlocks() != 6 || s.UsableBlocks() != 6 {
		t.Errorf("%d of %d blocks are free in the end, want all 6", s.FreeBlocks(), s.UsableBlocks())
	}
}

// TestOwners tells requests and nodes apart.
func TestOwners(t *testing.T) {
	if n, ok := sim.Node(5).Node(); n != 5 || !ok {
		t.Errorf("node 5 is node %d, %v", n, ok)
	}
	if _, ok := sim.Node(0).Request(); ok {
		t.Error("node 0 is a request")
	}
	if id, ok := sim.Owner(0).Request(); id != 0 || !ok {
		t.Errorf("owner 0 is request %d, %v", id, ok)
	}
	if _, ok := sim.Owner(0).Node(); ok {
		t.Error("owner 0 is a node")
	}
}

// TestStepsAllocateNothing holds for prefill, decode, admissions, evictions and
// preemptions, once the lists have their length.
func TestStepsAllocateNothing(t *testing.T) {
	for _, policy := range []sim.Policy{sim.FCFS, sim.Priority} {
		for _, async := range []bool{false, true} {
			s := replica(t, func(c *sim.Config) {
				c.Blocks, c.BlockSize, c.MaxBatchedTokens, c.MaxSeqs, c.MaxModelLen = 600, 16, 512, 64, 2048
				c.Policy, c.Async = policy, async
			})
			for i := range 3000 {
				add(t, s, sim.Request{Prompt: 50 + i%150, Output: 150 + i%50, Priority: i % 3, Prefix: []sim.Span{{Node: int32(i % 7), End: 48}}})
			}
			step := func() {
				s.Schedule()
				s.Apply()
			}
			for range 1000 {
				step()
			}
			before := s.Totals()
			if n := testing.AllocsPerRun(500, step); n != 0 {
				t.Errorf("%s, async %v: %g allocations a step", policy, async, n)
			}
			after := s.Totals()
			if s.Idle() || after.Preemptions == before.Preemptions || after.Evictions == before.Evictions || after.Hit == before.Hit {
				t.Errorf("%s, async %v: the load shows too little: %+v, then %+v", policy, async, before, after)
			}
		}
	}
}
