package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// moving is a replica with 8 usable blocks of 4 tokens, a budget of 16 and two
// seats.
func moving(t *testing.T, set func(*Config)) *Scheduler {
	t.Helper()
	rules, err := RulesOf("0.33.0")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Rules: rules, Blocks: 9, BlockSize: 4, MaxBatchedTokens: 16, MaxSeqs: 2, MaxModelLen: 32}
	if set != nil {
		set(&c)
	}
	s, err := NewScheduler(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func comes(t *testing.T, s *Scheduler, all ...Request) {
	t.Helper()
	for _, q := range all {
		if _, err := s.Add(q); err != nil {
			t.Fatal(err)
		}
	}
}

// pass makes a pass and its step, and holds what was planned against what was
// wanted.
func pass(t *testing.T, s *Scheduler, why string, scheduled []Share, loads []Load, free int) {
	t.Helper()
	p := s.Schedule()
	if !slices.Equal(p.Scheduled, scheduled) || !slices.Equal(p.Loads, loads) || p.Free != free {
		t.Fatalf("%s: scheduled %v, loads %v, %d free, want %v, %v, %d", why, p.Scheduled, p.Loads, p.Free, scheduled, loads, free)
	}
	if err := s.unbalanced(); err != nil {
		t.Fatalf("%s: %v", why, err)
	}
	s.Apply()
}

func TestRemote(t *testing.T) {
	s := moving(t, nil)
	comes(t, s, Request{Prompt: 6, Output: 3, Remote: 6})
	pass(t, s, "two blocks for six tokens, and nothing to compute", nil, []Load{{0, 6, 0}}, 6)
	if s.State(0) != Loading || s.WaitingCount() != 1 || len(s.Running()) != 0 || s.Loading() != 1 || s.Idle() {
		t.Fatalf("state %d, %d wait, %v run, %d load", s.State(0), s.WaitingCount(), s.Running(), s.Loading())
	}
	pass(t, s, "the KV is not there", nil, nil, 6)
	if !s.Loaded(0) || s.Loaded(0) || s.Loaded(1) {
		t.Fatal("the KV comes once, for one who waits for it")
	}
	pass(t, s, "all is there, so the last token is computed again", []Share{{0, 1, 5, true}}, nil, 6)
	pass(t, s, "a decode", []Share{{0, 1, 6, true}}, nil, 6)
	pass(t, s, "the last decode", []Share{{0, 1, 7, true}}, nil, 6)
	if s.State(0) != Finished || s.FreeBlocks() != 8 || !s.Idle() || s.Outputs(0) != 3 {
		t.Errorf("state %d, %d free, %d outputs", s.State(0), s.FreeBlocks(), s.Outputs(0))
	}
}

func TestRemoteSeat(t *testing.T) {
	s := moving(t, func(c *Config) { c.MaxSeqs = 1 })
	comes(t, s, Request{Prompt: 6, Output: 2, Remote: 6}, Request{Prompt: 4, Output: 3}, Request{Prompt: 4, Output: 1})
	pass(t, s, "who waits for KV has no seat, so the next one takes it", []Share{{1, 4, 0, true}}, []Load{{0, 6, 0}}, 5)
	s.Loaded(0)
	pass(t, s, "the seat is taken", []Share{{1, 1, 4, true}}, nil, 4)
	pass(t, s, "the seat is still taken", []Share{{1, 1, 5, true}}, nil, 4)
	pass(t, s, "before the one that came last", []Share{{0, 1, 5, true}}, nil, 6)
	pass(t, s, "a decode", []Share{{0, 1, 6, true}}, nil, 6)
	pass(t, s, "and then that one", []Share{{2, 4, 0, true}}, nil, 7)
}

func TestRemotePriority(t *testing.T) {
	s := moving(t, func(c *Config) { c.MaxSeqs, c.Policy = 1, Priority })
	comes(t, s, Request{Prompt: 4, Output: 1, Remote: 4, Priority: 2})
	pass(t, s, "nobody else is there", nil, []Load{{0, 4, 0}}, 7)
	s.Loaded(0)
	comes(t, s, Request{Prompt: 4, Output: 1, Priority: 1}, Request{Prompt: 4, Output: 1, Priority: 3})
	pass(t, s, "the most important first", []Share{{1, 4, 0, true}}, nil, 6)
	pass(t, s, "then the loaded one", []Share{{0, 1, 3, true}}, nil, 7)
	pass(t, s, "then the least important", []Share{{2, 4, 0, true}}, nil, 7)
	comes(t, s, Request{Prompt: 4, Output: 1, Remote: 4, Priority: 5}, Request{Prompt: 4, Output: 1, Remote: 4, Priority: 4})
	pass(t, s, "both load, the more important first", nil, []Load{{4, 4, 0}, {3, 4, 0}}, 6)
	s.Loaded(3)
	s.Loaded(4)
	pass(t, s, "and get the seat in that order", []Share{{4, 1, 3, true}}, nil, 6)
	pass(t, s, "the last", []Share{{3, 1, 3, true}}, nil, 7)
}

func TestRemotePart(t *testing.T) {
	s := moving(t, nil)
	comes(t, s, Request{Prompt: 10, Output: 1, Remote: 4})
	pass(t, s, "one block for what comes", nil, []Load{{0, 4, 0}}, 7)
	s.Loaded(0)
	pass(t, s, "the other six tokens are computed", []Share{{0, 6, 4, true}}, nil, 5)
}

// TestRemoteFull loads 8 of 12 tokens. Another prompt takes all blocks
// meanwhile, so that the rest does not fit; but what has come can be found.
func TestRemoteFull(t *testing.T) {
	s := moving(t, nil)
	shared := []Span{{Node: 0, End: 8}}
	comes(t, s, Request{Prompt: 12, Output: 1, Remote: 8, Prefix: shared}, Request{Prompt: 23, Output: 1})
	pass(t, s, "two blocks, and four for the first 16 tokens of the other", []Share{{1, 16, 0, false}}, []Load{{0, 8, 0}}, 2)
	s.Loaded(0)
	pass(t, s, "no block is left", []Share{{1, 7, 16, true}}, nil, 0)
	if got := s.Lookup(9, shared); got != 8 || s.State(0) != Loading {
		t.Errorf("%d tokens are found, state %d", got, s.State(0))
	}
	pass(t, s, "when the other has gone", []Share{{0, 4, 8, true}}, nil, 5)
}

// TestRemoteReserved has a prompt of 24 tokens under way, 8 tokens a step, that
// holds two blocks and still needs four of the six that are free.
func TestRemoteReserved(t *testing.T) {
	for _, c := range []struct {
		why    string
		tokens int
		loads  []Load
		free   int
	}{
		{"two blocks can be had beside four", 8, []Load{{1, 8, 0}}, 4},
		{"three cannot", 9, nil, 6},
	} {
		s := moving(t, func(c *Config) { c.Threshold = 8 })
		comes(t, s, Request{Prompt: 24, Output: 1}, Request{Prompt: c.tokens, Output: 1, Remote: c.tokens})
		pass(t, s, c.why, []Share{{0, 8, 0, false}}, c.loads, c.free)
		pass(t, s, c.why, []Share{{0, 8, 8, false}}, nil, c.free-2)
	}
}

func TestRemotePrefix(t *testing.T) {
	shared := []Span{{Node: 0, End: 8}}
	s := moving(t, nil)
	comes(t, s, Request{Prompt: 9, Output: 1, Remote: 9, Prefix: shared})
	pass(t, s, "nothing is cached", nil, []Load{{0, 9, 0}}, 5)
	if got := s.Lookup(9, shared); got != 0 {
		t.Errorf("%d tokens are found before they are there", got)
	}
	s.Loaded(0)
	pass(t, s, "the last of nine tokens", []Share{{0, 1, 8, true}}, nil, 5)
	if got := s.Lookup(9, shared); got != 8 {
		t.Errorf("%d tokens are found of 8 that were loaded", got)
	}
	comes(t, s, Request{Prompt: 11, Output: 1, Remote: 11, Prefix: shared}, Request{Prompt: 10, Output: 1, Remote: 8, Prefix: shared})
	pass(t, s, "8 tokens are cached: three more come, and for the next one none", []Share{{2, 2, 8, true}}, []Load{{1, 3, 8}}, 4)
	s.Loaded(1)
	pass(t, s, "its last token", []Share{{1, 1, 10, true}}, nil, 5)
}

func TestHold(t *testing.T) {
	for _, async := range []bool{false, true} {
		s := moving(t, func(c *Config) { c.Async = async })
		comes(t, s, Request{Prompt: 6, Output: 1, Hold: true})
		for range 3 {
			s.Schedule()
			s.Apply()
		}
		if s.State(0) != Finished || s.FreeBlocks() != 6 || s.Held() != 1 || len(s.Running()) != 0 || s.Outputs(0) != 1 {
			t.Fatalf("async %v: state %d, %d free, %d held", async, s.State(0), s.FreeBlocks(), s.Held())
		}
		if err := s.unbalanced(); err != nil {
			t.Fatal(err)
		}
		if !s.Release(0) || s.Release(0) || s.Release(1) || s.FreeBlocks() != 8 || s.Held() != 0 {
			t.Errorf("async %v: %d blocks are free", async, s.FreeBlocks())
		}
	}
}

func TestCancelLoading(t *testing.T) {
	s := moving(t, nil)
	comes(t, s, Request{Prompt: 6, Output: 3, Remote: 6}, Request{Prompt: 6, Output: 3, Remote: 6})
	s.Schedule()
	s.Apply()
	s.Loaded(1)
	for id, free := range []int{4, 6} { // KV still comes into the blocks of the first
		if !s.Cancel(int32(id)) || s.FreeBlocks() != free || s.State(int32(id)) != Cancelled {
			t.Errorf("request %d: %d blocks are free, want %d", id, s.FreeBlocks(), free)
		}
		if err := s.unbalanced(); err != nil {
			t.Fatal(err)
		}
	}
	if !s.Loaded(0) || s.FreeBlocks() != 8 || s.Loading() != 0 || !s.Idle() {
		t.Errorf("%d blocks are free when all is over, %d load", s.FreeBlocks(), s.Loading())
	}
}

// TestRandomTransfers lets KV come and go at any time: nothing is lost, and
// every request that is not given up gets all its tokens.
func TestRandomTransfers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.Aggregate = rapid.Bool().Draw(t, "aggregate")
		s, err := NewScheduler(c)
		if err != nil {
			t.Fatal(err)
		}
		var load []Request
		var loading []int32
		gone := map[int32]bool{}
		left := rapid.IntRange(1, 12).Draw(t, "requests")
		for step := 0; left > 0 || !s.Idle() || s.Held() > 0 || len(loading) > 0; step++ {
			if step > 20_000 {
				t.Fatalf("no end: %d run, %d wait, %d load", len(s.running), s.WaitingCount(), s.Loading())
			}
			for left > 0 && rapid.IntRange(0, 2).Draw(t, "arrives") == 0 {
				q := drawRequest(t, c)
				q.Remote, q.Hold = rapid.IntRange(0, q.Prompt).Draw(t, "remote"), rapid.Bool().Draw(t, "hold")
				arrives(t, s, q)
				load = append(load, q)
				left--
			}
			plan := s.Schedule()
			for _, l := range plan.Loads {
				loading = append(loading, l.Request)
				if q := load[l.Request]; int(l.Tokens+l.Context) != q.Remote || int(l.Context)%c.BlockSize != 0 || l.Tokens < 1 {
					t.Fatalf("load %+v of %+v", l, q)
				}
			}
			for _, e := range plan.Scheduled {
				if slices.Contains(loading, e.Request) {
					t.Fatalf("request %d computes and waits for its KV", e.Request)
				}
			}
			if err := s.unbalanced(); err != nil && !c.Aggregate { // those counted together stand between two passes
				t.Fatalf("after the pass: %v", err)
			}
			s.Apply()
			if len(load) > 0 && rapid.IntRange(0, 9).Draw(t, "give up?") == 0 {
				if id := rapid.Int32Range(0, int32(len(load)-1)).Draw(t, "who"); s.Cancel(id) {
					gone[id] = true
				}
			}
			for len(loading) > 0 && rapid.Bool().Draw(t, "is there") {
				i := rapid.IntRange(0, len(loading)-1).Draw(t, "which")
				if !s.Loaded(loading[i]) {
					t.Fatalf("request %d does not wait for its KV", loading[i])
				}
				loading = slices.Delete(loading, i, i+1)
			}
			for id := range load {
				if s.State(int32(id)) == Finished && rapid.IntRange(0, 2).Draw(t, "fetched") == 0 {
					s.Release(int32(id))
				}
			}
			if err := s.unbalanced(); err != nil {
				t.Fatalf("after the step: %v", err)
			}
		}
		if int(s.kv.free) != c.Blocks-1 || s.Loading() != 0 {
			t.Fatalf("%d blocks are free in the end, of %d, and %d load", s.kv.free, c.Blocks-1, s.Loading())
		}
		for id, q := range load {
			if !gone[int32(id)] {
				checkEnd(t, s, int32(id), q, c)
			}
		}
	})
}

func arrives(t *rapid.T, s *Scheduler, q Request) {
	if _, err := s.Add(q); err != nil {
		t.Fatal(err)
	}
}

// TestRemotePutBack has 48 requests that come one by one, load all at once and
// are preempted when they run, since the pool is too small for their outputs: the
// queue has room for all of them.
func TestRemotePutBack(t *testing.T) {
	s := moving(t, func(c *Config) {
		c.Blocks, c.MaxSeqs, c.MaxModelLen, c.MaxBatchedTokens = 50, 64, 40, 64
	})
	for range 48 {
		comes(t, s, Request{Prompt: 4, Output: 30, Remote: 4})
		s.Schedule()
		s.Apply()
	}
	for id := range int32(48) {
		s.Loaded(id)
	}
	for step := 0; !s.Idle(); step++ {
		if step > 5000 {
			t.Fatalf("no end: %d run, %d wait", len(s.Running()), s.WaitingCount())
		}
		s.Schedule()
		s.Apply()
	}
	if got := s.Totals(); got.Finished != 48 || got.Preemptions < 17 {
		t.Errorf("%+v: want 48 that end, and more put back than the queue had places", got)
	}
}
