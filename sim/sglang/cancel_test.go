package sglang_test

import (
	"slices"
	"testing"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/sglang"
)

// TestCancel follows two requests whose clients leave: one that runs makes one
// more token and leaves its tokens to the cache, one that waits makes none.
func TestCancel(t *testing.T) {
	rules, err := sglang.RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why     string
		overlap bool
		// reads are the outputs of A when it has left, after which iteration.
		outputs, after int
	}{
		{"without overlap A leaves with its third token", false, 3, 3},
		{"with overlap the token in flight is the last: the second", true, 2, 3},
	} {
		t.Run(c.why, func(t *testing.T) {
			s, err := sglang.New(sglang.Config{
				Rules: rules, Pool: 64, Page: 1, Chunk: 32, MaxPrefill: 64, Seats: 1, Conservativeness: 1, Overlap: c.overlap,
			})
			if err != nil {
				t.Fatal(err)
			}
			a, _ := s.Add(sglang.Request{Prompt: 10, MaxNew: 9, Prefix: []sim.Span{{Node: 0, End: 10}}})
			b, _ := s.Add(sglang.Request{Prompt: 10, MaxNew: 9})
			for step := 1; ; step++ {
				if step == 3 && (!s.Cancel(a) || !s.Cancel(b) || s.Cancel(b)) {
					t.Fatal("want both to be ended, once")
				}
				batch, err := s.Step()
				if err != nil {
					t.Fatal(err)
				}
				if slices.Contains(batch.Requests, b) {
					t.Fatal("a request that was cancelled in the queue runs")
				}
				if slices.Contains(batch.Finished, a) {
					if step != c.after || s.Outputs(a) != c.outputs {
						t.Errorf("it leaves with %d outputs in iteration %d, want %d in %d", s.Outputs(a), step, c.outputs, c.after)
					}
					break
				}
			}
			if s.Cancel(a) || s.Running() != 0 || s.Waiting() != 0 || s.Used() != 0 && !c.overlap {
				t.Errorf("%d run, %d wait, %d tokens are used; want none", s.Running(), s.Waiting(), s.Used())
			}
			for _, look := range []struct {
				prompt int
				spans  []sim.Span
				want   int
			}{
				{20, []sim.Span{{Node: 0, End: 10}}, 10},
				{10, []sim.Span{{Node: 0, End: 10}}, 9},
				{20, []sim.Span{{Node: 0, End: 4}, {Node: 5, End: 10}}, 4},
				{20, []sim.Span{{Node: 5, End: 10}}, 0},
				{20, nil, 0},
				{20, []sim.Span{{Node: -5, End: 10}}, 0},
			} {
				if got := s.Lookup(look.prompt, look.spans); got != look.want {
					t.Errorf("%d tokens of a prompt of %d with %v are cached, want %d", got, look.prompt, look.spans, look.want)
				}
			}
			next, _ := s.Add(sglang.Request{Prompt: 20, MaxNew: 2, Prefix: []sim.Span{{Node: 0, End: 10}}})
			for {
				batch, err := s.Step()
				if err != nil {
					t.Fatal(err)
				}
				if slices.Contains(batch.Requests, next) {
					if batch.Cached[0] != 10 {
						t.Errorf("%d tokens of the prompt are found, want 10", batch.Cached[0])
					}
					return
				}
			}
		})
	}
}
