package sglang

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/sim"
)

// pair is a scheduler that walks its decodes beside one that counts them.
type pair struct {
	walks, counts *Scheduler
	counted, all  int // outputs
	joined        map[int32]bool
}

func newPair(c Config) (*pair, error) {
	walks, err := New(c)
	if err != nil {
		return nil, err
	}
	c.Aggregate = true
	counts, err := New(c)
	return &pair{walks: walks, counts: counts, joined: map[int32]bool{}}, err
}

// step lets both make an iteration; between is called between its halves.
func (p *pair) step(between func()) (*Batch, error) {
	want, err := p.walks.Plan()
	got, fault := p.counts.Plan()
	if fmt.Sprint(err) != fmt.Sprint(fault) {
		return nil, fmt.Errorf("it stops with %q, want %q", fmt.Sprint(fault), fmt.Sprint(err))
	}
	if err != nil {
		return nil, err
	}
	if err := samePlan(want, got); err != nil {
		return nil, err
	}
	between()
	for _, r := range slices.Concat(got.Settled, got.Retracted) {
		delete(p.joined, r)
	}
	p.walks.Read()
	p.counts.Read()
	if err := p.sameResult(want, got); err != nil {
		return nil, err
	}
	p.counted, p.all = p.counted+got.SteadyOutputs, p.all+len(want.Outputs)
	return want, p.sameState()
}

// samePlan says how a batch that counts differs from one that lists.
func samePlan(want, got *Batch) error {
	if got.Steady > 0 && (len(got.Requests) > 0 || got.Kind != Decode) || got.Steady+len(got.Requests) != len(want.Requests) {
		return fmt.Errorf("%s batch of %v and %d counted, want %s of %v", got.Kind, got.Requests, got.Steady, want.Kind, want.Requests)
	}
	if got.Steady == 0 && !(slices.Equal(want.Requests, got.Requests) && slices.Equal(want.Tokens, got.Tokens)) {
		return fmt.Errorf("batch %v of %v, want %v of %v", got.Requests, got.Tokens, want.Requests, want.Tokens)
	}
	for _, l := range []struct {
		name      string
		want, got []int32
	}{
		{"cached", want.Cached, got.Cached},
		{"retracted", want.Retracted, got.Retracted},
		{"aborted", want.Aborted, got.Aborted},
		{"running", want.Running, got.Running},
		{"waiting", want.Waiting, got.Waiting},
	} {
		if !slices.Equal(l.want, l.got) {
			return fmt.Errorf("%s %v, want %v", l.name, l.got, l.want)
		}
	}
	type rest struct {
		kind                                         Kind
		open, queried, hit, free, evictable, evicted int
		context                                      int64
		piece                                        int32
		full                                         bool
		ratio                                        float64
	}
	of := func(b *Batch) rest {
		return rest{b.Kind, b.Open, b.Queried, b.Hit, b.Free, b.Evictable, b.Evicted, b.Context, b.Piece, b.Full, b.Ratio}
	}
	if a, b := of(want), of(got); a != b {
		return fmt.Errorf("plan %+v, want %+v", b, a)
	}
	return nil
}

// sameResult says how the result that was read differs.
func (p *pair) sameResult(want, got *Batch) error {
	if !slices.Equal(want.Finished, got.Finished) || want.FreeAfter != got.FreeAfter {
		return fmt.Errorf("finished %v and %d free, want %v and %d", got.Finished, got.FreeAfter, want.Finished, want.FreeAfter)
	}
	var counted []int32
	rest := got.Outputs
	for _, o := range want.Outputs {
		if len(rest) > 0 && rest[0] == o {
			rest = rest[1:]
			if p.joined[o.Request] && o.Number > 0 {
				return fmt.Errorf("output %d of request %d is listed, which is counted", o.Number, o.Request)
			}
			continue
		}
		counted = append(counted, o.Request)
	}
	if len(rest) > 0 || len(counted) != got.SteadyOutputs {
		return fmt.Errorf("outputs %v and %d counted, want %v", got.Outputs, got.SteadyOutputs, want.Outputs)
	}
	var joined []int32
	for _, r := range counted {
		if !p.joined[r] {
			p.joined[r] = true
			joined = append(joined, r)
		}
	}
	slices.Sort(joined)
	if sorted := slices.Sorted(slices.Values(got.Joined)); !slices.Equal(joined, sorted) {
		return fmt.Errorf("joined %v, want %v", sorted, joined)
	}
	return nil
}

// sameState says how the requests and the trees of the two differ.
func (p *pair) sameState() error {
	a, b := p.walks, p.counts
	for id := range a.q.state {
		id := int32(id)
		one := [...]int32{int32(a.q.state[id]), a.q.outputs(id), a.q.slots(id), a.q.held[id], a.q.node[id], a.q.leftover[id]}
		two := [...]int32{int32(b.q.state[id]), b.q.outputs(id), b.q.slots(id), b.q.held[id], b.q.node[id], b.q.leftover[id]}
		if one != two {
			return fmt.Errorf("request %d: state, outputs, slots, held, node, leftover %v, want %v", id, two, one)
		}
	}
	x, y := a.tree, b.tree
	for _, l := range [][2][]int32{
		{x.start, y.start},
		{x.end, y.end},
		{x.rep, y.rep},
		{x.parent, y.parent},
		{x.locks, y.locks},
		{x.next, y.next},
		{x.kids, y.kids},
		{x.first, y.first},
		{x.last, y.last},
		{x.left, y.left},
		{x.right, y.right},
		{x.own, y.own},
		{x.top, y.top},
	} {
		if !slices.Equal(l[0], l[1]) {
			return fmt.Errorf("tree %v, want %v", l[1], l[0])
		}
	}
	if !slices.Equal(x.used, y.used) || x.total != y.total || x.evictable != y.evictable || x.evicted != y.evicted {
		return errors.New("the trees differ in what is used, total, evictable or evicted")
	}
	if a.Busy() != b.Busy() || a.Used() != b.Used() || a.Running() != b.Running() {
		return fmt.Errorf("busy %t with %d used and %d running, want %t, %d, %d", b.Busy(), b.Used(), b.Running(), a.Busy(), a.Used(), a.Running())
	}
	return b.check()
}

// TestAggregate holds a scheduler that counts its decodes against one that
// walks them: every batch, tree, slot and output must be the same, whatever the
// load.
func TestAggregate(t *testing.T) {
	if !testing.Short() {
		manyChecks(t, 10_000)
	}
	counted, all := map[string]int{}, map[string]int{}
	retracted, preempted, pieces, mixed, evicted, hits := 0, 0, 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c, release := drawConfig(t)
		c.Pool += rapid.SampledFrom([]int{0, 200, 1000}).Draw(t, "roomier")
		if rapid.Bool().Draw(t, "promises too much") {
			c.Clip, c.Conservativeness, c.Mixed, c.Seats = 8, 0.02, false, 8
		}
		c.Context = c.Pool
		p, err := newPair(c)
		if err != nil {
			t.Fatal(err)
		}
		p.counts.steady.most = rapid.SampledFrom([]int32{20, mostPasses}).Draw(t, "most")
		nodes := map[[3]int]int32{}
		left, still := rapid.IntRange(1, 20).Draw(t, "requests"), 0
		giveUp := func(when string) {
			if n := len(p.walks.q.state); n > 0 && rapid.IntRange(0, 14).Draw(t, when) == 0 {
				id := rapid.Int32Range(0, int32(n-1)).Draw(t, "given up")
				if p.walks.Cancel(id) != p.counts.Cancel(id) {
					t.Fatalf("one of them cannot cancel request %d", id)
				}
				still = 0
			}
		}
		for step := 0; left > 0 || p.walks.Busy(); step++ {
			for left > 0 && rapid.IntRange(0, 2).Draw(t, "arrives") == 0 {
				q := drawRequest(t, nodes)
				_, one := p.walks.Add(q)
				_, two := p.counts.Add(q)
				if (one == nil) != (two == nil) {
					t.Fatalf("request %+v: %v and %v", q, one, two)
				}
				left, still = left-1, 0
			}
			giveUp("given up before the batch?")
			b, err := p.step(func() { giveUp("given up during it?") })
			if errors.Is(err, ErrStopped) {
				break // both did
			}
			if err != nil {
				t.Fatalf("release %s, step %d: %v", release, step, err)
			}
			if b.Kind == Mixed {
				mixed++
			}
			if b.Piece != none {
				pieces++
			}
			if b.Kind == Decode {
				retracted += len(b.Retracted)
			} else {
				preempted += len(b.Retracted)
			}
			evicted, hits = evicted+b.Evicted, hits+b.Hit
			if still++; b.Kind != None {
				still = 0
			}
			if still > p.walks.Patience() && left == 0 {
				break // the engine would wait for ever
			}
			if step > 100_000 {
				t.Fatal("no end")
			}
		}
		counted[release], all[release] = counted[release]+p.counted, all[release]+p.all
	})
	for _, release := range Releases() {
		t.Logf("%s: %d of %d outputs were counted", release, counted[release], all[release])
		if n := counted[release]; !testing.Short() && (n == 0 || n == all[release]) {
			t.Errorf("%s: %d of %d outputs were counted: want some of both", release, n, all[release])
		}
	}
	t.Logf("%d retracted, %d preempted, %d pieces, %d mixed batches, %d tokens evicted, %d found", retracted, preempted, pieces, mixed, evicted, hits)
	if !testing.Short() && min(retracted, preempted, pieces, mixed, evicted, hits) == 0 {
		t.Error("want some of each")
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

// TestRecordedCounted runs the recorded schedules on both: what is decided when
// decodes are counted is what SGLang's own code decided.
func TestRecordedCounted(t *testing.T) {
	files, err := filepath.Glob("testdata/0.*/*.txt")
	if err != nil || len(files) != 62 {
		t.Fatalf("recorded files: %d, %v; want 62", len(files), err)
	}
	counted := 0
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			sc, err := readScenario(file, f)
			if err != nil {
				t.Fatal(err)
			}
			p, err := newPair(sc.config)
			if err != nil {
				t.Fatal(err)
			}
			order := make([]int, len(sc.names))
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sc.arrivals[a], sc.arrivals[b]) })
			for step := 1; step <= sc.lastStep(); step++ {
				for len(order) > 0 && sc.arrivals[order[0]] <= step {
					for _, s := range []*Scheduler{p.walks, p.counts} {
						if _, err := s.Add(sc.requests[order[0]]); err != nil {
							t.Fatal(err)
						}
					}
					order = order[1:]
				}
				if _, err := p.step(func() {}); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
			counted += p.counted
		})
	}
	if counted == 0 {
		t.Error("no output was counted")
	}
}

// TestSteadyOrder holds two that end with one result to the order of the batch,
// though the second was known to end before the first was.
func TestSteadyOrder(t *testing.T) {
	rules, err := RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPair(Config{Rules: rules, Pool: 200, Page: 1, Chunk: -1, MaxPrefill: 100, Seats: 4, Conservativeness: 1, Overlap: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Scheduler{p.walks, p.counts} {
		for range 2 {
			if _, err := s.Add(Request{Prompt: 5, MaxNew: 20, Prefix: []sim.Span{{Node: 3, End: 4}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var finished []int32
	for step := range 40 {
		if step == 6 {
			p.walks.Cancel(1)
			p.counts.Cancel(1)
			p.walks.Cancel(0)
			p.counts.Cancel(0)
		}
		b, err := p.step(func() {})
		if err != nil {
			t.Fatal(err)
		}
		finished = append(finished, b.Finished...)
	}
	if !slices.Equal(finished, []int32{0, 1}) {
		t.Errorf("finished %v, want 0 and 1", finished)
	}
}
