package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// cancelling is a replica with two seats and few blocks.
func cancelling(t *testing.T, async bool) *Scheduler {
	t.Helper()
	rules, err := RulesOf("0.32.0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewScheduler(Config{
		Rules: rules, Blocks: 9, BlockSize: 4, MaxBatchedTokens: 16, MaxSeqs: 2, MaxModelLen: 32, Async: async,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCancel ends requests wherever they stand.
func TestCancel(t *testing.T) {
	for _, c := range []struct {
		why   string
		async bool
		steps int  // made before
		open  bool // and one more pass is planned but not applied
		end   int32
		want  bool
		token []int32 // who puts out a token in the next results
		next  []int32 // who gets tokens in the pass after those
	}{
		{why: "one that waits leaves the queue", steps: 1, end: 2, want: true, token: []int32{0, 1}, next: []int32{0, 1}},
		{why: "one that runs gives its seat to the next", steps: 1, end: 0, want: true, token: []int32{1, 2}, next: []int32{1, 2}},
		{why: "a step that is under way computes it for nothing", steps: 1, open: true, end: 0, want: true, token: []int32{1}, next: []int32{1, 2}},
		{why: "async: the step under way and the one planned both lose it", async: true, steps: 1, open: true, end: 0, want: true, token: []int32{1}, next: []int32{1, 2}},
		{why: "one that was refused stays so", steps: 1, end: 3, token: []int32{0, 1}, next: []int32{0, 1}},
		{why: "one that has ended stays so", steps: 5, end: 1, token: []int32{0, 2}, next: []int32{0, 2}},
		{why: "one that never was is none", steps: 1, end: 7, token: []int32{0, 1}, next: []int32{0, 1}},
	} {
		t.Run(c.why, func(t *testing.T) {
			s := cancelling(t, c.async)
			for _, q := range []Request{{Prompt: 6, Output: 9}, {Prompt: 5, Output: 4}, {Prompt: 4, Output: 6}, {Prompt: 40, Output: 1}} {
				if _, err := s.Add(q); err != nil {
					t.Fatal(err)
				}
			}
			for range c.steps {
				s.Schedule()
				s.Apply()
			}
			if c.open {
				s.Schedule()
			}
			before := s.State(min(c.end, 3))
			if got := s.Cancel(c.end); got != c.want {
				t.Fatalf("cancelled is %v, want %v", got, c.want)
			}
			if c.want && s.State(c.end) != Cancelled || !c.want && s.State(min(c.end, 3)) != before {
				t.Fatalf("state %d after %d", s.State(min(c.end, 3)), before)
			}
			if err := s.unbalanced(); err != nil {
				t.Fatal(err)
			}
			if !c.open {
				s.Schedule()
			}
			var token, next []int32
			for _, o := range s.Apply().Tokens {
				token = append(token, o.Request)
			}
			for _, share := range s.Schedule().Scheduled {
				next = append(next, share.Request)
			}
			if !slices.Equal(token, c.token) || !slices.Equal(next, c.next) {
				t.Fatalf("tokens of %v and a pass with %v, want %v and %v", token, next, c.token, c.next)
			}
			if s.Cancel(c.end) {
				t.Fatal("cancelled twice")
			}
		})
	}
}

// TestCancelLeavesCache lets a request find what a cancelled one computed.
func TestCancelLeavesCache(t *testing.T) {
	s := cancelling(t, false)
	prefix := []Span{{Node: 5, End: 10}}
	first, err := s.Add(Request{Prompt: 10, Output: 5, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	if s.Cached(Block{Node(5), 0}) {
		t.Fatal("a block is cached before anything ran")
	}
	s.Schedule()
	s.Apply()
	s.Cancel(first)
	if !s.Cached(Block{Node(5), 1}) || s.Cached(Block{Node(5), 2}) || s.FreeBlocks() != 8 {
		t.Fatalf("two blocks should be cached and all be free: %d are", s.FreeBlocks())
	}
	if _, err := s.Add(Request{Prompt: 10, Output: 1, Prefix: prefix}); err != nil {
		t.Fatal(err)
	}
	if hits := s.Schedule().Hits; len(hits) != 1 || hits[0].Tokens != 8 {
		t.Fatalf("found %v, want 8 tokens", hits)
	}
}

// TestRandomCancels holds that cancelled requests put out nothing more, block
// nobody and leave no block behind, at any moment of any load.
func TestRandomCancels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		s, err := NewScheduler(c)
		if err != nil {
			t.Fatal(err)
		}
		var load []Request
		gone := map[int32]bool{}
		maybeCancel := func() {
			if len(load) == 0 || rapid.IntRange(0, 3).Draw(t, "cancels") > 0 {
				return
			}
			id := int32(rapid.IntRange(0, len(load)-1).Draw(t, "whom"))
			lives := s.State(id) == Waiting || s.State(id) == Running
			if s.Cancel(id) != lives {
				t.Fatalf("request %d is in state %d: cancelled is %v", id, s.State(id), !lives)
			}
			if lives {
				gone[id] = true
			}
			if err := s.unbalanced(); err != nil {
				t.Fatalf("after the end of %d: %v", id, err)
			}
		}
		for left, step := rapid.IntRange(1, 12).Draw(t, "requests"), 0; left > 0 || !s.Idle(); step++ {
			if step > 20_000 {
				t.Fatalf("no end: %d run, %d wait", len(s.running), s.waiting.n)
			}
			if left > 0 {
				load = append(load, drawRequest(t, c))
				if _, err := s.Add(load[len(load)-1]); err != nil {
					t.Fatal(err)
				}
				left--
			}
			maybeCancel()
			for _, share := range s.Schedule().Scheduled {
				if gone[share.Request] {
					t.Fatalf("request %d has gone and gets tokens", share.Request)
				}
			}
			maybeCancel()
			for _, o := range s.Apply().Tokens {
				if gone[o.Request] {
					t.Fatalf("request %d has gone and puts out a token", o.Request)
				}
			}
			if err := s.unbalanced(); err != nil {
				t.Fatalf("after the step: %v", err)
			}
		}
		if int(s.kv.free) != c.Blocks-1 {
			t.Fatalf("%d blocks are free in the end, of %d", s.kv.free, c.Blocks-1)
		}
		for id, q := range load {
			if !gone[int32(id)] {
				checkEnd(t, s, int32(id), q, c)
			}
		}
	})
}
