package sim

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/forward"
)

// TestAggregate holds a scheduler that counts its decodes against one that
// walks them: every step, block and token must be the same, whatever the load.
func TestAggregate(t *testing.T) {
	if !testing.Short() {
		manyChecks(t, 10_000)
	}
	counted, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.Blocks += rapid.SampledFrom([]int{0, 10, 100}).Draw(t, "roomier")
		walks, err := NewScheduler(c)
		if err != nil {
			t.Fatal(err)
		}
		c.Aggregate = true
		counts, err := NewScheduler(c)
		if err != nil {
			t.Fatal(err)
		}
		left := rapid.IntRange(1, 20).Draw(t, "requests")
		for step := 0; left > 0 || !walks.Idle() || !counts.Idle(); step++ {
			if step > 20_000 {
				t.Fatal("no end")
			}
			for left > 0 && rapid.IntRange(0, 2).Draw(t, "arrives") == 0 {
				q := drawRequest(t, c)
				for _, s := range []*Scheduler{walks, counts} {
					if _, err := s.Add(q); err != nil {
						t.Fatal(err)
					}
				}
				left--
			}
			want, got := walks.Schedule(), counts.Schedule()
			if err := samePlan(want, got); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			all, counted = all+len(want.Scheduled), counted+got.Steady.Count
			give := func(when string) {
				if n := len(walks.requests.state); n > 0 && rapid.IntRange(0, 9).Draw(t, when) == 0 {
					id := rapid.Int32Range(0, int32(n-1)).Draw(t, "given up")
					if walks.Cancel(id) != counts.Cancel(id) {
						t.Fatalf("step %d: one of them cannot cancel request %d", step, id)
					}
				}
			}
			give("given up during the step?")
			o, p := walks.Apply(), counts.Apply()
			if err := sameOutcome(o, p); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			if err := sameState(walks, counts); err != nil {
				t.Fatalf("after step %d: %v", step, err)
			}
			give("given up after it?")
			if err := sameState(walks, counts); err != nil {
				t.Fatalf("after step %d and who gave up: %v", step, err)
			}
			if err := counts.unbalanced(); err != nil {
				t.Fatalf("after step %d: %v", step, err)
			}
		}
	})
	t.Logf("%d of %d shares were counted", counted, all)
	if counted == 0 || counted == all {
		t.Errorf("%d of %d shares were counted: want some of both", counted, all)
	}
}

// manyChecks lets the test's properties be checked more often than by default.
func manyChecks(t *testing.T, n int) {
	t.Helper()
	const name = "rapid.checks"
	before := flag.Lookup(name).Value.String()
	if before != "100" {
		return // asked for
	}
	if err := flag.Set(name, strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { flag.Set(name, before) })
}

// samePlan says how a plan that counts differs from one that lists.
func samePlan(list, counts *Plan) error {
	var steady []Share
	rest := counts.Scheduled
	for _, e := range list.Scheduled {
		if len(rest) > 0 && rest[0] == e {
			rest = rest[1:]
			continue
		}
		if e.Tokens != 1 || !e.Samples {
			return fmt.Errorf("share %v is not listed", e)
		}
		steady = append(steady, e)
	}
	var want forward.Sequences
	for _, e := range steady {
		want.Add(int(e.Context))
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("shares %v are listed in %v, want %v", rest, counts.Scheduled, list.Scheduled)
	case counts.Steady != want:
		return fmt.Errorf("counted %+v, want %+v", counts.Steady, want)
	case list.Tokens != counts.Tokens || list.Free != counts.Free:
		return fmt.Errorf("%d tokens, %d free, want %d, %d", counts.Tokens, counts.Free, list.Tokens, list.Free)
	case !slices.Equal(list.Hits, counts.Hits) || !slices.Equal(list.Preempted, counts.Preempted) || !slices.Equal(list.Evicted, counts.Evicted):
		return fmt.Errorf("hits %v, preempted %v, evicted %v; want %v, %v, %v", counts.Hits, counts.Preempted, counts.Evicted, list.Hits, list.Preempted, list.Evicted)
	}
	return nil
}

func sameOutcome(list, counts *Outcome) error {
	rest := counts.Tokens
	for _, o := range list.Tokens {
		if len(rest) > 0 && rest[0] == o {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 || len(counts.Tokens)+counts.Steady != len(list.Tokens) {
		return fmt.Errorf("tokens %v and %d counted, want %v", counts.Tokens, counts.Steady, list.Tokens)
	}
	if !slices.Equal(list.Finished, counts.Finished) || list.Free != counts.Free {
		return fmt.Errorf("finished %v, %d free; want %v, %d", counts.Finished, counts.Free, list.Finished, list.Free)
	}
	return nil
}

func sameState(list, counts *Scheduler) error {
	if !slices.Equal(list.running, counts.running) || !slices.Equal(list.waiting.list(nil), counts.waiting.list(nil)) || list.Totals() != counts.Totals() {
		return fmt.Errorf("%v run, %v wait, %+v; want %v, %v, %+v", counts.running, counts.waiting.list(nil), counts.Totals(), list.running, list.waiting.list(nil), list.Totals())
	}
	for id := range list.requests.state {
		id := int32(id)
		if list.State(id) != counts.State(id) || list.Outputs(id) != counts.Outputs(id) || list.State(id) < Finished && list.Computed(id) != counts.Computed(id) {
			return fmt.Errorf("request %d: state %d, %d outputs, %d computed; want %d, %d, %d", id,
				counts.State(id), counts.Outputs(id), counts.Computed(id), list.State(id), list.Outputs(id), list.Computed(id))
		}
	}
	if a, b := freeList(list), freeList(counts); !slices.Equal(a, b) {
		return fmt.Errorf("free list %v, want %v", b, a)
	}
	return nil
}

// freeList is what the free blocks hold, in their order.
func freeList(s *Scheduler) []Block {
	var out []Block
	for e := s.kv.next[0]; e != 0; e = s.kv.next[e] {
		b := s.kv.known.of(e)
		for i := range s.kv.count[e] {
			if b.Owner == nobody {
				out = append(out, Block{Owner: nobody})
				continue
			}
			out = append(out, Block{b.Owner, b.Index - i})
		}
	}
	return out
}
