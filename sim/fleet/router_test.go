package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// req is a request of a small case: when it comes in ms, its tokens, the seed
// of the 8 tokens that it begins with (0 for none) and its session.
type req struct {
	at      float64
	in, out int
	prefix  uint64
	session string
}

// caseOf makes a load of requests.
func caseOf(tb testing.TB, all []req) *fleet.Load {
	tb.Helper()
	s := &workload.Schedule{}
	for i, r := range all {
		q := workload.Request{ID: i, At: unit.Seconds(r.at / 1e3), InputLen: r.in, OutputLen: r.out, Seed: uint64(1000 + i), Session: r.session}
		if r.prefix > 0 {
			q.Prefix = []workload.Span{{Seed: r.prefix, Len: 8}}
		}
		if r.session != "" {
			q.Turn = 1
		}
		s.Requests = append(s.Requests, q)
	}
	l, err := fleet.NewLoad(s)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// tens is a step time of 10 ms.
func tens(forward.Pass) (time.Duration, error) { return 10 * time.Millisecond, nil }

// small is a replica with 99 blocks of 4 tokens, 8 seats and steps of 10 ms.
func small(tb testing.TB) fleet.Replica {
	tb.Helper()
	rules, err := sim.RulesOf("0.33.0")
	if err != nil {
		tb.Fatal(err)
	}
	return fleet.Replica{
		VLLM:  &sim.Config{Rules: rules, BlockSize: 4, Blocks: 100, MaxBatchedTokens: 64, MaxSeqs: 8, MaxModelLen: 160},
		Timer: sim.StepTimerFunc(tens),
	}
}

func replicas(r fleet.Replica, n int) []fleet.Replica {
	all := make([]fleet.Replica, n)
	for i := range all {
		all[i] = r
	}
	return all
}

func TestRouters(t *testing.T) {
	for _, c := range []struct {
		why, router string
		load        []req
		want        []int16
	}{
		{"in turn", "round-robin", []req{{at: 0, in: 4, out: 9}, {at: 1, in: 4, out: 1}, {at: 2, in: 4, out: 1}}, []int16{0, 1, 0}},
		{
			"a request counts until it ends: at 15 ms the second has, at 25 ms both replicas have one", "least-requests",
			[]req{{at: 0, in: 4, out: 99}, {at: 1, in: 4, out: 1}, {at: 2, in: 4, out: 1}, {at: 15, in: 4, out: 5}, {at: 25, in: 4, out: 1}},
			[]int16{0, 1, 0, 1, 0},
		},
		{"of two replicas both are drawn", "power-of-two:seed=7", []req{{at: 0, in: 4, out: 9}, {at: 1, in: 4, out: 9}, {at: 2, in: 4, out: 9}}, []int16{0, 1, 0}},
		{
			"one that waits for a step to end does not count: at 48 ms both have one running, the first was sent less and has one waiting", "least-running",
			[]req{{at: 0, in: 4, out: 99}, {at: 1, in: 4, out: 1}, {at: 15, in: 4, out: 1}, {at: 30, in: 4, out: 1}, {at: 45, in: 4, out: 9}, {at: 47, in: 4, out: 9}, {at: 48, in: 4, out: 9}},
			[]int16{0, 1, 1, 1, 1, 0, 0},
		},
		{
			"what ran since 0 ms is seen from 20 ms on, though it has ended", "least-running:delay=20ms",
			[]req{{at: 0, in: 4, out: 1}, {at: 1, in: 4, out: 9}, {at: 2, in: 4, out: 1}, {at: 3, in: 4, out: 9}, {at: 20.2, in: 4, out: 9}},
			[]int16{0, 1, 0, 1, 1},
		},
		{
			"30 tokens wait at the first until its step ends, none and then 10 and 20 at the second", "least-tokens",
			[]req{{at: 0, in: 4, out: 9}, {at: 1, in: 4, out: 9}, {at: 2, in: 30, out: 9}, {at: 3, in: 10, out: 9}, {at: 4, in: 10, out: 9}, {at: 5, in: 11, out: 9}, {at: 6, in: 4, out: 9}},
			[]int16{0, 1, 0, 1, 1, 1, 0},
		},
		{
			"10 blocks are used at the first, 2 and then 3 at the second, which take in what waits at 11 ms", "least-kv",
			[]req{{at: 0, in: 40, out: 9}, {at: 1, in: 8, out: 9}, {at: 2, in: 4, out: 9}, {at: 13, in: 30, out: 9}, {at: 25, in: 4, out: 1}},
			[]int16{0, 1, 1, 1, 0},
		},
		{
			"a session stays, others take their turn", "sticky",
			[]req{{at: 0, in: 4, out: 1, session: "a"}, {at: 0, in: 4, out: 1, session: "b"}, {at: 30, in: 4, out: 1, session: "a"}, {at: 31, in: 4, out: 1}, {at: 32, in: 4, out: 1, session: "b"}, {at: 33, in: 4, out: 1}},
			[]int16{0, 1, 0, 0, 1, 1},
		},
		{
			"a prefix that is in a cache draws requests, whatever else is there", "prefix-hit",
			[]req{{at: 0, in: 10, out: 9, prefix: 7}, {at: 1, in: 10, out: 9, prefix: 7}, {at: 2, in: 10, out: 9, prefix: 8}, {at: 30, in: 10, out: 9, prefix: 7}, {at: 31, in: 10, out: 9, prefix: 8}},
			[]int16{0, 0, 1, 0, 1},
		},
		{
			"a cached block is seen 20 ms later: at 10 ms none, at 25 ms that of the first alone, which has more requests", "prefix-hit:delay=20ms",
			[]req{{at: 0, in: 10, out: 9, prefix: 7}, {at: 10, in: 10, out: 9, prefix: 7}, {at: 12, in: 10, out: 9, prefix: 9}, {at: 25, in: 10, out: 9, prefix: 7}, {at: 30, in: 10, out: 9, prefix: 8}},
			[]int16{0, 1, 0, 0, 1},
		},
		{
			"a bound of 1 lets no replica get ahead of the mean: one prefix takes turns", "prefix-affinity:bound=1",
			[]req{{at: 0, in: 10, out: 9, prefix: 5}, {at: 1, in: 10, out: 9, prefix: 5}, {at: 2, in: 10, out: 9, prefix: 5}, {at: 3, in: 10, out: 9, prefix: 5}},
			[]int16{0, 1, 0, 1},
		},
		{
			"a queue of one against none costs 1, a hit of 8 of 10 tokens brings 0.8 of its weight; of equal ones the second was sent less", "weighted:queue=1,prefix=1",
			[]req{{at: 0, in: 10, out: 9, prefix: 7}, {at: 1, in: 10, out: 9, prefix: 7}, {at: 2, in: 10, out: 9, prefix: 7}, {at: 30, in: 10, out: 9, prefix: 7}},
			[]int16{0, 0, 1, 1},
		},
		{
			"a hit of twice the weight is worth a queue", "weighted:queue=1,prefix=2",
			[]req{{at: 0, in: 10, out: 9, prefix: 7}, {at: 1, in: 10, out: 9, prefix: 7}, {at: 2, in: 10, out: 9, prefix: 7}},
			[]int16{0, 0, 0},
		},
		{
			"the session's last replica counts more than requests there", "weighted:requests=1,session=2",
			[]req{{at: 0, in: 4, out: 9, session: "a"}, {at: 1, in: 4, out: 9, session: "b"}, {at: 2, in: 4, out: 9, session: "b"}, {at: 3, in: 4, out: 9}, {at: 4, in: 4, out: 9, session: "b"}},
			[]int16{0, 1, 1, 0, 1},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			routing, err := fleet.ParseRouting(c.router)
			if err != nil {
				t.Fatal(err)
			}
			r, err := fleet.Run(context.Background(), caseOf(t, c.load), fleet.Config{Replicas: replicas(small(t), 2), Router: routing})
			if err != nil {
				t.Fatal(err)
			}
			var got []int16
			for _, rec := range r.Records {
				got = append(got, rec.Replica)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: replicas %v, want %v", c.why, got, c.want)
			}
		})
	}
}

// TestTies sends requests to idle replicas, which all look alike: they are sent
// equally many.
func TestTies(t *testing.T) {
	var all []req
	for i := range 12 {
		all = append(all, req{at: 100 * float64(i), in: 4, out: 2})
	}
	for _, router := range []string{"least-running", "least-requests", "least-tokens", "least-kv", "prefix-hit", "weighted:queue=1,kv=1"} {
		routing, err := fleet.ParseRouting(router)
		if err != nil {
			t.Fatal(err)
		}
		r, err := fleet.Run(context.Background(), caseOf(t, all), fleet.Config{Replicas: replicas(small(t), 3), Router: routing})
		if err != nil {
			t.Fatal(err)
		}
		for i, rec := range r.Records {
			if int(rec.Replica) != i%3 {
				t.Errorf("%s: request %d goes to replica %d, want %d", router, i, rec.Replica, i%3)
			}
		}
	}
}

// TestDrawn gives routers the seed of the run where they draw and name none.
func TestDrawn(t *testing.T) {
	random, sticky, named := fleet.Routing{Policy: fleet.Random}, fleet.Routing{Policy: fleet.Sticky}, fleet.Routing{Policy: fleet.PowerOfTwo, Seed: 3}
	if a, b := random.Drawn(1, 0), random.Drawn(2, 0); a.Seed == b.Seed {
		t.Errorf("seeds 1 and 2 draw the same: %+v", a)
	}
	if a, b := random.Drawn(1, 0), random.Drawn(1, 1); a.Seed == b.Seed {
		t.Errorf("two routers of a run draw the same: %+v", a)
	}
	if a, b := sticky.Drawn(1, 0), named.Drawn(1, 0); a != sticky || b != named {
		t.Errorf("%+v and %+v: want no other seed", a, b)
	}
}

// TestRoutingMistakes are told in the words of the reader.
func TestRoutingMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"power-of-two:seed=x":      `router "power-of-two:seed=x": seed "x": want a whole number from 0 to 18446744073709551615`,
		"least-kv:delay=soon":      `router "least-kv:delay=soon": delay "soon": want a time such as 100ms`,
		"weighted:queue=much":      `router "weighted:queue=much": queue "much": want a number`,
		"prefix-affinity:bound=1x": `router "prefix-affinity:bound=1x": bound "1x": want a number`,
	} {
		if _, err := fleet.ParseRouting(text); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestAffinityMovesLittle adds a replica: prompts either stay or go to it.
func TestAffinityMovesLittle(t *testing.T) {
	var all []req
	for i := range 300 {
		all = append(all, req{at: float64(i), in: 10, out: 1, prefix: uint64(i + 1)})
	}
	var before []fleet.Record
	for n := 4; n <= 5; n++ {
		r, err := fleet.Run(context.Background(), caseOf(t, all), fleet.Config{Replicas: replicas(small(t), n), Router: fleet.Routing{Policy: fleet.PrefixAffinity}})
		if err != nil {
			t.Fatal(err)
		}
		counts := make([]int, n)
		for i, rec := range r.Records {
			counts[rec.Replica]++
			if before != nil && rec.Replica != before[i].Replica && rec.Replica != 4 {
				t.Fatalf("prefix %d went from replica %d to %d", i, before[i].Replica, rec.Replica)
			}
		}
		for k, c := range counts {
			if c < 300/n/2 || c > 300/n*2 {
				t.Errorf("replica %d of %d has %d of 300 prefixes", k, n, c)
			}
		}
		before = r.Records
	}
}

func TestParseRouting(t *testing.T) {
	for _, c := range []struct {
		text string
		want fleet.Routing
	}{
		{"round-robin", fleet.Routing{}},
		{" least-tokens:delay=50ms ", fleet.Routing{Policy: fleet.LeastTokens, SignalDelay: 50 * time.Millisecond}},
		{"power-of-two:seed=3", fleet.Routing{Policy: fleet.PowerOfTwo, Seed: 3}},
		{"prefix-affinity:bound=1.25", fleet.Routing{Policy: fleet.PrefixAffinity, Bound: 1.25}},
		{"weighted:queue=2,kv=1,prefix=3.5,delay=1s", fleet.Routing{Policy: fleet.Weighted, Weights: fleet.Weights{Queue: 2, KV: 1, Prefix: 3.5}, SignalDelay: time.Second}},
	} {
		got, err := fleet.ParseRouting(c.text)
		if err != nil || got != c.want {
			t.Errorf("%q: %+v, %v, want %+v", c.text, got, err, c.want)
		}
	}
	for text, why := range map[string]string{
		"": "no name", "best": "no such policy", "weighted": "no weight", "weighted:queue=0": "no weight above 0", "weighted:queue=-1": "below 0",
		"weighted:speed=1": "no such signal", "random:queue=1": "no weights there", "random:seed=x": "no number", "random:seed=1,seed=2": "twice",
		"random:": "empty setting", "sticky:seed=1": "draws nothing", "random:delay=1s": "looks at nothing", "least-kv:delay=-1s": "before it is",
		"prefix-affinity:bound=0.5": "too small to place any", "least-kv:bound=2": "no bound there", "weighted:queue=NaN": "no weight", "prefix-affinity:bound=NaN": "no bound",
	} {
		_, err := fleet.ParseRouting(text)
		if _, ok := errors.AsType[*fleet.RoutingError](err); !ok {
			t.Errorf("%q (%s): %v, want an error", text, why, err)
		}
	}
}

func FuzzParseRouting(f *testing.F) {
	for _, p := range fleet.Policies() {
		f.Add(p.String())
	}
	f.Add("weighted:queue=2,kv=1,prefix=3,delay=100ms")
	f.Add("prefix-affinity:bound=1.25")
	f.Add("random:seed=18446744073709551615")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := fleet.ParseRouting(text)
		if err != nil {
			return
		}
		again, err := fleet.ParseRouting(r.String())
		if err != nil || again.String() != r.String() {
			t.Fatalf("%q is read as %q, and that as %q, %v", text, r, again, err)
		}
	})
}
