package sim

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLookup holds what is looked up before a pass against what the admissions
// of that pass find, and the changes of the cache against what is in it.
func TestLookup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.Aggregate = rapid.Bool().Draw(t, "aggregate")
		s, err := NewScheduler(c)
		if err != nil {
			t.Fatal(err)
		}
		s.Watch()
		var load []Request
		view := map[Block]int{}
		left := rapid.IntRange(1, 12).Draw(t, "requests")
		for step := 0; step < 20_000 && (left > 0 || !s.Idle()); step++ {
			for left > 0 && rapid.IntRange(0, 2).Draw(t, "arrives") == 0 {
				q := drawRequest(t, c)
				if _, err := s.Add(q); err != nil {
					t.Fatal(err)
				}
				load = append(load, q)
				left--
			}
			before := -1
			head := s.AppendWaiting(nil)
			if len(head) > 0 && s.Outputs(head[0]) == 0 {
				before = s.Lookup(load[head[0]].Prompt, load[head[0]].Prefix)
			}
			plan := s.Schedule()
			if before >= 0 && len(plan.Hits) > 0 && plan.Hits[0].Request == head[0] && !s.requests.resumed[head[0]] {
				// What those that run fill in this pass is found as well.
				if got := int(plan.Hits[0].Tokens); len(plan.Evicted) == 0 && (got < before || len(plan.Scheduled) == len(plan.Hits) && plan.Steady.Count == 0 && got != before) {
					t.Fatalf("request %d finds %d tokens, and %d were there before", head[0], got, before)
				}
			}
			s.Apply()
			for _, e := range s.TakeChanges() {
				if e.There {
					view[e.Block]++
				} else {
					view[e.Block]--
				}
			}
			for b, n := range view {
				if n < 0 || (n > 0) != s.Cached(b) {
					t.Fatalf("step %d: %d copies of %+v came, and cached is %v", step, n, b, s.Cached(b))
				}
			}
			for _, q := range load {
				seen := HitTokens(q.Prompt, c.BlockSize, q.Prefix, func(b Block) bool { return view[b] > 0 })
				if got := s.Lookup(q.Prompt, q.Prefix); got != seen {
					t.Fatalf("%+v: %d tokens are cached, and %d by what changed", q, got, seen)
				}
			}
		}
	})
}

// TestLookupWhole looks for prompts whose blocks are all cached: the last token
// is computed.
func TestLookupWhole(t *testing.T) {
	s := moving(t, nil)
	shared := []Span{{Node: 3, End: 8}}
	comes(t, s, Request{Prompt: 9, Output: 1, Prefix: shared})
	pass(t, s, "computes three blocks", []Share{{0, 9, 0, true}}, nil, 5)
	for prompt, want := range map[int]int{1: 0, 4: 0, 5: 4, 8: 4, 9: 8, 20: 8} {
		if got := s.Lookup(prompt, shared); got != want {
			t.Errorf("%d of a prompt of %d tokens are found, want %d", got, prompt, want)
		}
	}
}
