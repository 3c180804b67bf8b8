package mock

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
)

// sized is a timer whose steps all differ a little.
func sized(p forward.Pass) (time.Duration, error) {
	d := time.Millisecond + time.Duration(p.Tokens())*10*time.Microsecond + time.Duration(p.Decode.SumContext)*7
	for i, c := range p.Prefill {
		d += time.Duration(c.New*(c.Context+c.New)+i) * time.Nanosecond
	}
	return d, nil
}

// asked is a request of a load in plain words.
type asked struct {
	at       int64
	group    int // its prompt begins with the group's first shared tokens
	shared   int
	request  sim.Request
	maxToken int
}

// tokensOf makes the prompt of the n-th request of a load.
func (a asked) tokensOf(n int) []int64 {
	tokens := make([]int64, a.request.Prompt)
	for i := range tokens {
		tokens[i] = int64(1_000_000*(n+1) + i)
		if i < a.shared {
			tokens[i] = int64(1000*(a.group+1) + i%7)
		}
	}
	return tokens
}

// replay is the plain simulation of a load: the scheduler, the timer and a
// clock of its own. It returns when the tokens of each request are due.
func replay(t interface{ Fatal(...any) }, c *Simulation, load []asked) ([][]int64, sim.Totals) {
	s, err := sim.NewScheduler(c.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	dues := make([][]int64, len(load))
	gap, before := int64(float64(c.Between)/c.Speed), int64(float64(c.Before)/c.Speed)
	now, runsUntil, runs, added := int64(0), int64(0), false, 0
	for added < len(load) || !s.Idle() {
		if s.Idle() {
			now, runs = max(now, load[added].at+before), false
		}
		for ; added < len(load) && load[added].at+before <= now; added++ {
			if _, err := s.Add(load[added].request); err != nil {
				t.Fatal(err)
			}
		}
		plan, took := s.Schedule(), int64(0)
		if plan.Tokens > 0 {
			d, err := c.Timer.StepTime(passOf(plan, load))
			if err != nil {
				t.Fatal(err)
			}
			took = int64(float64(d) / c.Speed)
		}
		var results, next int64
		switch {
		case !c.Scheduler.Async:
			results, next = now+took, now+took+gap
		case runs:
			results, next = runsUntil, runsUntil
		default:
			results, next = now, now
		}
		if runsUntil, runs = next+took, true; took > 0 {
			runsUntil += gap
		}
		for _, o := range s.Apply().Tokens {
			dues[o.Request] = append(dues[o.Request], results)
		}
		now = next
	}
	return dues, s.Totals()
}

// passOf tells what a plan computes.
func passOf(plan *sim.Plan, load []asked) forward.Pass {
	var p forward.Pass
	for _, e := range plan.Scheduled {
		if e.Tokens == 1 && int(e.Context) >= load[e.Request].request.Prompt {
			p.Decode.Count++
			p.Decode.SumContext += int64(e.Context)
			continue
		}
		p.Prefill = append(p.Prefill, forward.Chunk{Count: 1, New: int(e.Tokens), Context: int(e.Context), Last: e.Samples})
	}
	return p
}

// drive runs a replica with a clock that jumps from event to event.
func drive(t interface{ Fatal(...any) }, c *Simulation, load []asked) ([][]int64, sim.Totals, *replica) {
	r, err := newReplica(c, func(at int64) int64 { return at })
	if err != nil {
		t.Fatal(err)
	}
	dues := make([][]int64, len(load))
	for arrived := 0; ; {
		at, ok := r.next()
		if arrived < len(load) && (!ok || load[arrived].at <= at) {
			q := load[arrived]
			tokens := q.tokensOf(arrived)
			all := append(slices.Clone(tokens), slices.Repeat([]int64{7}, q.request.Output)...)
			r.arrive(&sequence{
				request: &request{tokens: tokens, maxTokens: q.maxToken, priority: q.request.Priority},
				limit:   q.request.Output, keys: blockKeys(all, c.Scheduler.BlockSize),
			}, q.at)
			arrived++
			continue
		}
		if !ok {
			return dues, r.scheduler.Totals(), r
		}
		h, err := r.advance()
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != sim.Read {
			continue
		}
		for _, token := range h.Outcome.Tokens {
			dues[token.Request] = append(dues[token.Request], h.At)
		}
		for _, id := range h.Outcome.Finished {
			delete(r.live, id)
		}
	}
}

// drawSimulation draws a replica that runs short of everything, and a load.
func drawSimulation(t *rapid.T) (*Simulation, []asked) {
	rules, err := sim.RulesOf(rapid.SampledFrom([]string{"0.11.2", "0.27.0", "0.32.0", "0.33.0"}).Draw(t, "release"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Simulation{
		Scheduler: sim.Config{
			Rules: rules, BlockSize: rapid.IntRange(1, 8).Draw(t, "block size"), MaxModelLen: 64,
			MaxSeqs: rapid.IntRange(1, 6).Draw(t, "seats"), MaxBatchedTokens: rapid.IntRange(8, 80).Draw(t, "budget"),
			Policy: sim.Policy(rapid.IntRange(0, 1).Draw(t, "policy")), Async: rapid.Bool().Draw(t, "async"),
			NoPrefixCache: rapid.IntRange(0, 4).Draw(t, "cache") == 0,
		},
		Timer: sim.StepTimerFunc(sized), Speed: 1,
		Between: time.Duration(rapid.SampledFrom([]int{0, 300, 2_000_000}).Draw(t, "between")),
		Before:  time.Duration(rapid.SampledFrom([]int{0, 500, 3_000_000}).Draw(t, "before")),
	}
	c.Scheduler.Blocks = 1 + (64+c.Scheduler.BlockSize-1)/c.Scheduler.BlockSize + rapid.IntRange(0, 20).Draw(t, "more blocks")
	var load []asked
	at := int64(0)
	for range rapid.IntRange(1, 15).Draw(t, "requests") {
		at += int64(rapid.IntRange(0, 6_000_000).Draw(t, "after"))
		prompt := rapid.IntRange(1, 50).Draw(t, "prompt")
		output := rapid.IntRange(1, 64-prompt).Draw(t, "output")
		a := asked{
			at: at, group: rapid.IntRange(0, 1).Draw(t, "group"), shared: rapid.IntRange(0, prompt-1).Draw(t, "shared"),
			maxToken: rapid.IntRange(output, 64-prompt).Draw(t, "max tokens"),
		}
		a.request = sim.Request{
			Prompt: prompt, Output: output, MaxTokens: a.maxToken, Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
			Prefix: []sim.Span{{Node: int32(a.group), End: a.shared}},
		}
		load = append(load, a)
	}
	return c, load
}

// TestReplicaIsReplay holds the times of the paced engine, to the nanosecond,
// against a plain replay that knows shared prefixes by name.
func TestReplicaIsReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, load := drawSimulation(t)
		want, wantTotals := replay(t, c, load)
		got, gotTotals, r := drive(t, c, load)
		if gotTotals != wantTotals {
			t.Fatalf("counted %+v, want %+v", gotTotals, wantTotals)
		}
		for i := range load {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("request %d of %+v: tokens due at %v, want %v", i, load[i], got[i], want[i])
			}
			if len(got[i]) != load[i].request.Output {
				t.Fatalf("request %d: %d tokens, want %d", i, len(got[i]), load[i].request.Output)
			}
		}
		if len(r.live) > 0 || len(r.coming) > 0 {
			t.Fatalf("%d requests are left in the scheduler and %d before it", len(r.live), len(r.coming))
		}
	})
}

// TestReplicaTimes names times that can be told by hand: steps of 10 ms.
func TestReplicaTimes(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	for _, c := range []struct {
		why   string
		async bool
		gap   time.Duration
		speed float64
		late  int64   // when the second request enters, in ms
		first []int64 // ms, of the first request, which enters at 0
		then  []int64 // of the second one
	}{
		{"one step follows the other, and the next pass sees who came", false, 0, 1, 25, []int64{10, 20, 30, 40, 50}, []int64{40, 50}},
		{"who comes as a step ends is in the next one", false, 0, 1, 30, []int64{10, 20, 30, 40, 50}, []int64{40, 50}},
		{"the host's gap lies between steps", false, 2 * time.Millisecond, 1, 25, []int64{10, 22, 34, 46, 58}, []int64{46, 58}},
		{"who comes in the gap is in the next step", false, 2 * time.Millisecond, 1, 35, []int64{10, 22, 34, 46, 58}, []int64{46, 58}},
		{"async: the pass before has seen nothing, and a step is lost", true, 0, 1, 25, []int64{10, 20, 30, 40, 50}, []int64{50, 60}},
		{"async: what the host does not hide lengthens each step", true, 2 * time.Millisecond, 1, 25, []int64{12, 24, 36, 48, 60}, []int64{60, 72}},
		{"an idle engine starts at once", false, 2 * time.Millisecond, 1, 90, []int64{10, 22, 34, 46, 58}, []int64{100, 112}},
		{"async: an idle engine starts at once", true, 0, 1, 90, []int64{10, 20, 30, 40, 50}, []int64{100, 110}},
		{"twice as fast", false, 2 * time.Millisecond, 2, 13, []int64{5, 11, 17, 23, 29}, []int64{23, 29}},
	} {
		t.Run(c.why, func(t *testing.T) {
			rules, err := sim.RulesOf("")
			if err != nil {
				t.Fatal(err)
			}
			s := &Simulation{
				Scheduler: sim.Config{Rules: rules, Blocks: 100, BlockSize: 4, MaxBatchedTokens: 64, MaxSeqs: 4, MaxModelLen: 64, Async: c.async},
				Timer:     sim.StepTimerFunc(func(forward.Pass) (time.Duration, error) { return 10 * time.Millisecond, nil }),
				Between:   c.gap, Speed: c.speed,
			}
			got, _, _ := drive(t, s, []asked{
				{request: sim.Request{Prompt: 5, Output: 5}, maxToken: 5},
				{at: ms(c.late), request: sim.Request{Prompt: 5, Output: 2}, maxToken: 2},
			})
			for i, want := range [][]int64{c.first, c.then} {
				for j := range want {
					want[j] = ms(want[j])
				}
				if !slices.Equal(got[i], want) {
					t.Errorf("request %d: tokens due at %v, want %v", i+1, got[i], want)
				}
			}
		})
	}
}

// TestReplicaSteps holds what the log tells of steps: a prompt in pieces, one
// that resumes after a preemption, and steps that nobody is left for.
func TestReplicaSteps(t *testing.T) {
	rules, err := sim.RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	c := &Simulation{
		Scheduler: sim.Config{Rules: rules, Blocks: 6, BlockSize: 4, MaxBatchedTokens: 6, MaxSeqs: 2, MaxModelLen: 20},
		Timer:     sim.StepTimerFunc(sized), Speed: 1,
	}
	r, err := newReplica(c, func(at int64) int64 { return at })
	if err != nil {
		t.Fatal(err)
	}
	for i, prompt := range []int{8, 7} {
		a := asked{request: sim.Request{Prompt: prompt}}
		tokens := a.tokensOf(i)
		r.arrive(&sequence{request: &request{tokens: tokens, maxTokens: 6}, limit: 6, keys: blockKeys(tokens, 4)}, 0)
	}
	var lines []string
	for {
		if _, ok := r.next(); !ok {
			break
		}
		h, err := r.advance()
		if err != nil {
			t.Fatal(err)
		}
		if d := r.done(); h.Kind == sim.Read {
			lines = append(lines, fmt.Sprint(d.number, d.totals.PrefillRequests, d.totals.PrefillTokens, d.totals.DecodeRequests, d.totals.DecodeTokens))
		}
	}
	// The second request loses its blocks with two tokens out, and finds none
	// of them when it comes back.
	want := []string{
		"1 1 6 0 0", "2 2 6 0 0", "3 1 3 1 1", "4 0 0 2 2", "5 0 0 1 1", "6 0 0 1 1", "7 0 0 1 1",
	}
	if !slices.Equal(lines[:len(want)], want) || r.scheduler.Totals().Preemptions == 0 {
		t.Fatalf("steps\n%q\nwant\n%q first, and a preemption", lines, want)
	}
	for _, line := range lines[len(want):] {
		var n, requests, tokens, decodes, generated int
		if _, err := fmt.Sscan(line, &n, &requests, &tokens, &decodes, &generated); err != nil || requests > 0 {
			t.Errorf("step %q: a request that resumes counts as generating", line)
		}
	}
}

// TestPrefixes holds that two blocks have one name if and only if all tokens
// up to their end are the same, also after sweeps, as long as somebody needs
// them.
func TestPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 4).Draw(t, "block size")
		p := newPrefixes(size)
		var lists [][]int64
		var owners [][]sim.Block
		for range rapid.IntRange(2, 8).Draw(t, "requests") {
			list := rapid.SliceOfN(rapid.Int64Range(0, 1), 1, 20).Draw(t, "tokens")
			spans := p.spans(blockKeys(list, size))
			if len(spans) > 0 && spans[len(spans)-1].End != len(list)/size*size {
				t.Fatalf("the spans %v of %d tokens end early", spans, len(list))
			}
			var own []sim.Block
			for i, at := 0, 0; i < len(list)/size; i++ {
				for spans[at].End <= i*size {
					at++
				}
				own = append(own, sim.Block{Owner: sim.Node(spans[at].Node), Index: int32(i)})
			}
			lists, owners = append(lists, list), append(owners, own)
		}
		for a := range lists {
			for b := range lists {
				for i := range min(len(owners[a]), len(owners[b])) {
					same := reflect.DeepEqual(lists[a][:(i+1)*size], lists[b][:(i+1)*size])
					if (owners[a][i] == owners[b][i]) != same {
						t.Fatalf("block %d of %v and %v: named %v and %v", i, lists[a], lists[b], owners[a][i], owners[b][i])
					}
				}
			}
		}
	})
}

// TestPrefixSweep forgets what nobody needs, and nothing else.
func TestPrefixSweep(t *testing.T) {
	const size = 4
	p := newPrefixes(size)
	random := rand.New(rand.NewPCG(1, 2))
	list := func() []uint64 {
		tokens := make([]int64, 400)
		for i := range tokens {
			tokens[i] = int64(random.IntN(1 << 30))
		}
		return blockKeys(tokens, size)
	}
	held, cached := list(), list()
	heldSpans, cachedSpans := p.spans(held), p.spans(cached)
	node := cachedSpans[0].Node
	for range 50 {
		p.spans(list())
	}
	isCached := func(b sim.Block) bool { n, _ := b.Owner.Node(); return n == node }
	p.sweep(isCached, func(yield func([]uint64)) { yield(held) })
	if len(p.known) != len(held)+len(cached) {
		t.Fatalf("%d blocks are known after the sweep, want %d", len(p.known), len(held)+len(cached))
	}
	if !reflect.DeepEqual(p.spans(held), heldSpans) || !reflect.DeepEqual(p.spans(cached), cachedSpans) {
		t.Error("blocks that are needed have other names after the sweep")
	}
	before := len(p.known)
	p.spans(list())
	p.sweep(isCached, func(func([]uint64)) {})
	if len(p.known) != before+100 {
		t.Errorf("%d blocks are known, want %d: a few more are not worth a sweep", len(p.known), before+100)
	}
}
