package sglang

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/sim"
)

// check finds what is wrong with the memory of a scheduler between two steps.
func (s *Scheduler) check() error {
	q, t := &s.q, s.tree
	own, total, unlocked, leaves := 0, 0, 0, 0
	for r := range q.prompt {
		own += s.pages(q.slots(int32(r))) - int(q.held[r]) + int(q.leftover[r])
		if q.slots(int32(r)) == 0 && q.held[r] != 0 {
			return fmt.Errorf("request %d holds %d tokens of the tree and no slot", r, q.held[r])
		}
	}
	locks := make([]int32, len(t.start))
	for r := range q.prompt {
		if q.held[r] == 0 {
			continue
		}
		if t.end[q.node[r]] != q.held[r] {
			return fmt.Errorf("request %d: its node ends at %d, it holds %d", r, t.end[q.node[r]], q.held[r])
		}
		for n := q.node[r]; n != root; n = t.parent[n] {
			locks[n]++
		}
	}
	var visit func(n int32) error
	visit = func(n int32) error {
		kids := int32(0)
		for c := t.first[n]; c != none; c = t.right[c] {
			kids++
			size := t.length(c)
			switch {
			case t.parent[c] != n || t.start[c] != t.end[n]:
				return fmt.Errorf("node %d is not where its parent %d ends", c, n)
			case size <= 0 || t.end[c]%t.page != 0:
				return fmt.Errorf("node %d is from %d to %d", c, t.start[c], t.end[c])
			case t.locks[c] != locks[c]:
				return fmt.Errorf("node %d has %d locks, want %d", c, t.locks[c], locks[c])
			case *t.slot(n, t.rep[c]) != c:
				return fmt.Errorf("node %d is not found from %d", c, n)
			case t.listed[c] != (t.locks[c] == 0 && t.kids[c] == 0):
				return fmt.Errorf("node %d: listed %t with %d locks and %d children", c, t.listed[c], t.locks[c], t.kids[c])
			}
			total += size
			if t.locks[c] == 0 {
				unlocked += size
			}
			if t.listed[c] {
				leaves++
			}
			if err := visit(c); err != nil {
				return err
			}
		}
		if kids != t.kids[n] {
			return fmt.Errorf("node %d has %d children, counted %d", n, kids, t.kids[n])
		}
		return nil
	}
	if err := visit(root); err != nil {
		return err
	}
	for n, before := t.oldest, none; n != none; n, before = t.newer[n], n {
		leaves--
		if t.older[n] != before || before != none && t.used[before] >= t.used[n] {
			return fmt.Errorf("the list of leaves is out of order at node %d", n)
		}
	}
	switch {
	case total != t.total || unlocked != t.evictable:
		return fmt.Errorf("the tree holds %d tokens, %d of them unlocked; counted %d and %d", total, unlocked, t.total, t.evictable)
	case leaves != 0:
		return fmt.Errorf("%d leaves are missing in the list or too many", leaves)
	case s.free < 0 || s.free+total+own != s.size:
		return fmt.Errorf("%d free + %d in the tree + %d of requests: want %d", s.free, total, own, s.size)
	}
	return nil
}

// drawConfig draws a configuration that its release accepts.
func drawConfig(t *rapid.T) (Config, string) {
	release := rapid.SampledFrom(Releases()).Draw(t, "release")
	rules, err := RulesOf(release)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Rules: rules, Page: 1,
		Conservativeness: rapid.SampledFrom([]float64{0.02, 0.1, 0.5, 1}).Draw(t, "conservativeness"),
		MaxPrefill:       rapid.IntRange(8, 200).Draw(t, "max_prefill"),
		Seats:            rapid.IntRange(1, 8).Draw(t, "seats"),
		Mixed:            rapid.Bool().Draw(t, "mixed"),
		NoPrefixCache:    rapid.Bool().Draw(t, "no cache"),
		Overlap:          rapid.Bool().Draw(t, "overlap"),
		Clip:             rapid.SampledFrom([]int{0, 8}).Draw(t, "clip"),
		Seed:             1,
	}
	if rules.Cut != CutExact {
		c.Page = rapid.SampledFrom([]int{1, 1, 4, 16}).Draw(t, "page")
	}
	c.Pool = rapid.IntRange(40, 500).Draw(t, "pool")
	c.Context = c.Pool
	c.Chunk = rapid.SampledFrom([]int{-1, 32, 48, 100}).Draw(t, "chunk")
	c.Policy = Policy(rapid.IntRange(0, int(ShortestPrefill)).Draw(t, "policy"))
	c.Priority = rules.Priorities && rapid.Bool().Draw(t, "priority")
	c.RetractByPriority = rules.RetractPriority && rapid.Bool().Draw(t, "retract by priority")
	if rules.DecodeInterval {
		c.DecodeInterval = rapid.IntRange(0, 3).Draw(t, "interval")
	}
	if c.Validate() != nil {
		c.Policy = FCFS
	}
	return c, release
}

// drawRequests draws requests whose prefixes are paths of one tree.
func drawRequests(t *rapid.T) []Request {
	nodes := map[[3]int]int32{} // by the node before, where it begins, and a number
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Request { return drawRequest(t, nodes) }), 1, 40).Draw(t, "requests")
}

func drawRequest(t *rapid.T, nodes map[[3]int]int32) Request {
	r := Request{
		Prompt:     rapid.IntRange(1, 80).Draw(t, "prompt"),
		MaxNew:     rapid.IntRange(1, 60).Draw(t, "max_new"),
		EOSAt:      rapid.IntRange(0, 70).Draw(t, "eos_at"),
		Priority:   rapid.IntRange(0, 40).Draw(t, "priority"),
		RoutingKey: rapid.IntRange(0, 2).Draw(t, "routing key"),
		IgnoreEOS:  rapid.IntRange(0, 4).Draw(t, "ignore eos") == 0,
	}
	last, end := -1, 0
	for end < r.Prompt+r.MaxNew && len(r.Prefix) < 4 && rapid.IntRange(0, 3).Draw(t, "goes on") > 0 {
		key := [3]int{last, end, rapid.IntRange(0, 1).Draw(t, "branch")}
		if _, ok := nodes[key]; !ok {
			nodes[key] = int32(len(nodes))
		}
		last = int(nodes[key])
		end = min(end+rapid.SampledFrom([]int{1, 5, 8, 16, 33}).Draw(t, "length"), r.Prompt+r.MaxNew)
		r.Prefix = append(r.Prefix, sim.Span{Node: nodes[key], End: end})
	}
	return r
}

// TestConserved runs random work on random configurations: tokens of the pool
// are conserved in every step, locks are those of the requests that run, every
// request gets its outputs once and in order, and every run ends.
func TestConserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, release := drawConfig(t)
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		requests := drawRequests(t)
		leaves := rapid.SliceOfN(rapid.IntRange(0, 60), len(requests), len(requests)).Draw(t, "leaves")
		gaps := rapid.SliceOfN(rapid.IntRange(0, 6), len(requests), len(requests)).Draw(t, "gaps")
		outs := map[int32]int32{}
		ended := map[int32]bool{}
		var ids []int32
		next, wait, still := 0, 0, 0
		for step := 0; next < len(requests) || s.Busy(); step++ {
			for ; next < len(requests) && wait >= gaps[next]; next++ {
				wait = 0
				if id, err := s.Add(requests[next]); err == nil {
					ids = append(ids, id)
				}
			}
			wait++
			for i, at := range leaves {
				if at != step || i >= len(ids) {
					continue
				}
				state := s.q.state[ids[i]]
				if ended := s.Cancel(ids[i]); ended != (state == waits || state == runs) {
					t.Fatalf("release %s: cancelling request %d in state %d reports %t", release, ids[i], state, ended)
				}
				still = 0
			}
			b, err := s.Step()
			if errors.Is(err, ErrStopped) {
				if c.Mixed || !c.Rules.AbortLast || c.Clip == 8 {
					return // known to stop with such settings
				}
				t.Fatalf("release %s: %v", release, err)
			}
			if err := s.check(); err != nil {
				t.Fatalf("release %s, step %d: %v", release, step, err)
			}
			checkBatch(t, s, b)
			queued := int64(0)
			for _, r := range s.waiting {
				queued += int64(s.q.prompt[r])
			}
			if queued != s.queued {
				t.Fatalf("%d tokens wait, counted %d", queued, s.queued)
			}
			if n := s.Running() + s.Waiting(); n != s.unfinished() {
				t.Fatalf("%d requests are open, want %d", n, s.unfinished())
			}
			for _, o := range b.Outputs {
				if o.Number == 0 {
					continue
				}
				if outs[o.Request]++; outs[o.Request] != o.Number || ended[o.Request] {
					t.Fatalf("request %d: output %d comes after %d", o.Request, o.Number, outs[o.Request]-1)
				}
			}
			for _, r := range append(b.Finished, b.Aborted...) {
				ended[r] = true
			}
			still++
			if b.Kind != None || next < len(requests) {
				still = 0
			}
			if still > s.Patience() && s.neverFits() {
				return // the engine would wait for ever too
			}
			if still > s.Patience() || step > 100_000 {
				t.Fatalf("release %s: %d wait and nothing happens: policy %s", release, len(s.waiting), c.Policy)
			}
		}
		for _, id := range ids {
			q := &s.q
			want := q.maxNew[id]
			if q.eosAt[id] > 0 {
				want = min(want, q.eosAt[id])
			}
			if q.state[id] == finished && q.outs[id] != want && !(q.gone[id] && q.outs[id] < want) || q.state[id] != finished && q.state[id] != aborted {
				t.Fatalf("release %s: request %d ends with %d outputs in state %d, want %d", release, id, q.outs[id], q.state[id], want)
			}
		}
	})
}

// unfinished counts the requests that have not ended.
func (s *Scheduler) unfinished() int {
	n := 0
	for _, state := range s.q.state {
		if state == waits || state == runs {
			n++
		}
	}
	return n
}

// neverFits reports whether some request that waits, or did so until its client
// left, asks for more than the pool, which blocks the queue: pages are reserved
// on top of what max_new is cut to, and 0.4 counts outputs that exist twice.
func (s *Scheduler) neverFits() bool {
	for r, state := range s.q.state {
		if state != waits && state != aborted {
			continue
		}
		fresh := s.clip(s.q.maxNew[r])
		if s.q.ignoreEOS[r] {
			fresh = int(s.q.maxNew[r])
		}
		if int(s.q.length(int32(r)))+fresh+2*int(s.page)+2 >= s.size {
			return true
		}
	}
	return false
}

// checkBatch holds a batch to its limits.
func checkBatch(t *rapid.T, s *Scheduler, b *Batch) {
	seen := map[int32]bool{}
	for i, r := range b.Requests {
		if seen[r] {
			t.Fatalf("request %d is twice in a batch", r)
		}
		seen[r] = true
		if b.Tokens[i] < 1 && !(s.config.Mixed && r == b.Piece) {
			t.Fatalf("request %d gets %d tokens", r, b.Tokens[i])
		}
	}
	if n := len(b.Running); b.Kind == Decode && n > s.config.Seats {
		t.Fatalf("%d requests decode, with %d seats", n, s.config.Seats)
	}
	if b.Ratio < 0 || b.Ratio > 1 {
		t.Fatalf("ratio %g", b.Ratio)
	}
}
