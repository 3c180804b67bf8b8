package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawConfig draws a replica that is small enough to run short of everything.
func drawConfig(t *rapid.T) Config {
	releases := []string{"0.11.2", "0.12.0", "0.18.0", "0.19.0", "0.24.0", "0.27.0", "0.28.0", "0.31.0", "0.33.0"}
	rules, err := RulesOf(rapid.SampledFrom(releases).Draw(t, "release"))
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Rules:              rules,
		BlockSize:          rapid.IntRange(1, 9).Draw(t, "block size"),
		MaxModelLen:        rapid.IntRange(2, 60).Draw(t, "max model len"),
		MaxSeqs:            rapid.IntRange(1, 6).Draw(t, "seats"),
		Policy:             Policy(rapid.IntRange(0, 1).Draw(t, "policy")),
		Async:              rapid.Bool().Draw(t, "async"),
		WholePrompts:       rapid.Bool().Draw(t, "whole prompts"),
		NoPrefixCache:      rapid.Bool().Draw(t, "no cache"),
		NoFullSequenceGate: rapid.Bool().Draw(t, "no gate"),
	}
	least := c.MaxSeqs
	if c.WholePrompts {
		least = max(least, c.MaxModelLen)
	}
	c.MaxBatchedTokens = rapid.IntRange(least, least+40).Draw(t, "budget")
	c.Blocks = 1 + (c.MaxModelLen+c.BlockSize-1)/c.BlockSize + rapid.IntRange(0, 12).Draw(t, "more blocks")
	if rapid.Bool().Draw(t, "threshold?") {
		c.Threshold = rapid.IntRange(1, c.MaxModelLen).Draw(t, "threshold")
	}
	if rapid.Bool().Draw(t, "watermark?") {
		c.Watermark = rapid.Float64Range(0, 0.5).Draw(t, "watermark")
	}
	return c
}

// drawRequest draws a request, sometimes one that the replica refuses.
func drawRequest(t *rapid.T, c Config) Request {
	q := Request{
		Prompt:   rapid.IntRange(1, c.MaxModelLen+1).Draw(t, "prompt"),
		Output:   rapid.IntRange(1, 30).Draw(t, "output"),
		Priority: rapid.IntRange(-1, 2).Draw(t, "priority"),
	}
	if rapid.Bool().Draw(t, "stop token") {
		q.MaxTokens = q.Output + rapid.IntRange(-q.Output+1, 10).Draw(t, "limit beyond it")
	}
	if rapid.Bool().Draw(t, "shared") {
		outer := rapid.IntRange(0, q.Prompt+q.Output).Draw(t, "outer")
		group := rapid.Int32Range(0, 1).Draw(t, "group")
		q.Prefix = []Span{{Node: group, End: outer}}
		if rapid.Bool().Draw(t, "nested") {
			// A nested prefix begins where its outer one ends, always at the same place.
			q.Prefix = []Span{{Node: group, End: min(9, q.Prompt)}, {Node: 2 + group, End: max(outer, min(9, q.Prompt))}}
		}
	}
	return q
}

// TestRandomLoads holds what must be so whatever the load: blocks and
// references balance, limits are kept, nobody who runs is forgotten, and every
// request ends with all its tokens, one after the other.
func TestRandomLoads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		s, err := NewScheduler(c)
		if err != nil {
			t.Fatal(err)
		}
		var load []Request
		refused, left := 0, rapid.IntRange(1, 12).Draw(t, "requests")
		for step := 0; left > 0 || !s.Idle(); step++ {
			if step > 20_000 {
				t.Fatalf("no end: %d run, %d wait", len(s.running), s.waiting.n)
			}
			for left > 0 && rapid.IntRange(0, 2).Draw(t, "arrives") == 0 {
				q := drawRequest(t, c)
				id, err := s.Add(q)
				if err != nil || int(id) != len(load) {
					t.Fatalf("request %d has id %d: %v", len(load), id, err)
				}
				if q.Prompt >= c.MaxModelLen {
					refused++
				}
				load = append(load, q)
				left--
			}
			checkStep(t, s, c)
		}
		if int(s.kv.free) != c.Blocks-1 {
			t.Fatalf("%d blocks are free in the end, of %d", s.kv.free, c.Blocks-1)
		}
		if got := int(s.totals.Finished + s.totals.Unservable); got != len(load) || int(s.totals.Unservable) != refused {
			t.Fatalf("%d requests ended, %d refused, of %d with %d that are too long", s.totals.Finished, s.totals.Unservable, len(load), refused)
		}
		for id, q := range load {
			checkEnd(t, s, int32(id), q, c)
		}
	})
}

// checkStep makes one pass and takes in results.
func checkStep(t *rapid.T, s *Scheduler, c Config) {
	wanting := s.wanting()
	before := map[int32]int{}
	for id := range s.requests.state {
		before[int32(id)] = s.Outputs(int32(id))
	}
	plan := s.Schedule()
	if err := s.unbalanced(); err != nil {
		t.Fatalf("after the pass: %v", err)
	}
	tokens := 0
	for _, e := range plan.Scheduled {
		if tokens += int(e.Tokens); e.Tokens < 1 {
			t.Fatalf("request %d gets %d tokens", e.Request, e.Tokens)
		}
		wanting = slices.DeleteFunc(wanting, func(id int32) bool { return id == e.Request })
	}
	if tokens != plan.Tokens || tokens > c.MaxBatchedTokens || len(s.running) > c.MaxSeqs {
		t.Fatalf("%d tokens, counted %d, budget %d; %d run on %d seats", tokens, plan.Tokens, c.MaxBatchedTokens, len(s.running), c.MaxSeqs)
	}
	if len(plan.Preempted) == 0 && len(wanting) > 0 {
		t.Fatalf("requests %v run, want tokens and get none", wanting)
	}
	if len(plan.Preempted) > 0 && len(plan.Hits) > 0 {
		t.Fatalf("%v are preempted and %v admitted in one step", plan.Preempted, plan.Hits)
	}
	for _, h := range plan.Hits {
		if int(h.Tokens)%c.BlockSize != 0 || int(h.Tokens) >= before[h.Request]+int(s.requests.progress[h.Request].prompt) {
			t.Fatalf("request %d finds %d tokens", h.Request, h.Tokens)
		}
	}
	for _, o := range s.Apply().Tokens {
		if int(o.Number) != before[o.Request]+1 {
			t.Fatalf("request %d puts out token %d after %d", o.Request, o.Number, before[o.Request])
		}
	}
	if err := s.unbalanced(); err != nil {
		t.Fatalf("after the step: %v", err)
	}
}

// checkEnd looks at a request when all is over.
func checkEnd(t *rapid.T, s *Scheduler, id int32, q Request, c Config) {
	if q.Prompt >= c.MaxModelLen {
		if s.State(id) != Unservable {
			t.Fatalf("request %d of %d tokens has state %d", id, q.Prompt, s.State(id))
		}
		return
	}
	want := min(q.Output, c.MaxModelLen-q.Prompt)
	if q.MaxTokens > 0 {
		want = min(want, q.MaxTokens)
	}
	if s.State(id) != Finished || s.Outputs(id) != want {
		t.Fatalf("request %d has state %d and %d tokens, want %d", id, s.State(id), s.Outputs(id), want)
	}
}

// TestQueueOrder holds both queues against a sorted list.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := queue{ranked: rapid.Bool().Draw(t, "ranked")}
		var want []int32
		sort := func() {
			if q.ranked {
				slices.SortFunc(want, func(a, b int32) int {
					if q.priority[a] != q.priority[b] {
						return int(q.priority[a] - q.priority[b])
					}
					return int(a - b)
				})
			}
		}
		var out []int32 // taken, may come back
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			switch what := rapid.IntRange(0, 4).Draw(t, "what"); {
			case what <= 1:
				id := int32(len(q.priority))
				q.priority = append(q.priority, rapid.Int32Range(0, 3).Draw(t, "priority"))
				q.state = append(q.state, Waiting)
				q.reserve(len(want) + len(out) + 1)
				q.pushBack(id)
				want = append(want, id)
			case what == 2 && len(want) > 0:
				if got := q.first(); got != want[0] {
					t.Fatalf("first is %d, want %d", got, want[0])
				}
				q.pop()
				out, want = append(out, want[0]), want[1:]
			case what == 3 && len(out) > 0:
				last := len(out) - 1
				q.pushFront(out[last])
				want, out = append([]int32{out[last]}, want...), out[:last]
			case what == 4 && len(want) > 0:
				at := rapid.IntRange(0, len(want)-1).Draw(t, "which")
				q.state[want[at]] = Cancelled
				q.left()
				want = slices.Delete(slices.Clone(want), at, at+1)
			}
			sort()
			if got := q.list(nil); !slices.Equal(got, want) || q.n != len(want) {
				t.Fatalf("%d in the queue: %v, want %v", q.n, got, want)
			}
		}
	})
}

// TestLeavingMovesNobody lets requests leave from the middle of both queues: the
// cost of that may not grow with those that wait.
func TestLeavingMovesNobody(t *testing.T) {
	for _, ranked := range []bool{false, true} {
		const n = 100
		q := queue{ranked: ranked, priority: make([]int32, n), state: make([]State, n)}
		for id := range int32(n) {
			q.reserve(int(id) + 1)
			q.pushBack(id)
		}
		before := slices.Clone(q.ids)
		for id := int32(1); id < n; id += 2 {
			q.state[id] = Cancelled
			q.left()
		}
		if !slices.Equal(q.ids, before) || q.n != n/2 {
			t.Errorf("ranked %v: %d wait, in %v, want %d in %v", ranked, q.n, q.ids, n/2, before)
		}
		q.pop()
		if q.first() != 2 || q.gone != n/2-1 {
			t.Errorf("ranked %v: %d is first, and %d are to be dropped, want 2 and %d", ranked, q.first(), q.gone, n/2-1)
		}
	}
}

// TestIdentities holds the table against a map of lists.
func TestIdentities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const blocks = 20
		table := identities{}.emptied()
		for range blocks {
			table.grow()
		}
		want := map[Block][]int32{} // oldest first
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			b := rapid.Int32Range(1, blocks-1).Draw(t, "block")
			if table.has(b) {
				id := table.of(b)
				table.remove(b)
				want[id] = slices.DeleteFunc(want[id], func(x int32) bool { return x == b })
			} else {
				id := Block{Owner(rapid.Int32Range(-2, 2).Draw(t, "owner")), rapid.Int32Range(0, 3).Draw(t, "index")}
				table.add(b, id.Owner, id.Index)
				want[id] = append(want[id], b)
			}
			for id, list := range want {
				got, oldest := table.find(id.Owner, id.Index), int32(0)
				if len(list) > 0 {
					oldest = list[0]
				}
				if got != oldest {
					t.Fatalf("%v is found in block %d, want %d", id, got, oldest)
				}
			}
		}
	})
}
