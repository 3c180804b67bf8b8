package fleet_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/sim/sglang"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// sglangOf is a small replica of a release.
func sglangOf(tb interface{ Fatal(...any) }, release string) *sglang.Config {
	rules, err := sglang.RulesOf(release)
	if err != nil {
		tb.Fatal(err)
	}
	return &sglang.Config{
		Rules: rules, Pool: 1000, Page: 1, Chunk: 512, MaxPrefill: 1000, Seats: 8, Conservativeness: 1, Context: 1000, Overlap: true,
	}
}

func scheduleOf(t *testing.T, requests ...workload.Request) *fleet.Load {
	t.Helper()
	for i := range requests {
		requests[i].ID, requests[i].Seed = i, uint64(i+1)
	}
	l, err := fleet.NewLoad(&workload.Schedule{Requests: requests})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// loopOf makes loops of a configuration.
func loopOf(c *sglang.Config) func() (fleet.Loop, error) {
	return func() (fleet.Loop, error) { return sglang.NewLoop(*c) }
}

func serve(t *testing.T, l *fleet.Load, c *sglang.Config) *fleet.Result {
	t.Helper()
	r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{{SGLang: loopOf(c), Timer: sim.StepTimerFunc(linear)}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSGLangByHand follows two requests of 100 and 200 tokens: A makes 3 and B,
// which comes after 8 ms, 2. A step takes 5 ms, 20 µs a prompt token, 30 µs a
// decode and 10 ns a token of its context.
func TestSGLangByHand(t *testing.T) {
	type times struct{ admitted, first, last int64 } // ns
	for _, c := range []struct {
		why            string
		overlap, mixed bool
		between        time.Duration
		a, b           times
	}{
		{
			why: "prefill A 7 ms, decode A at 100 5.031, prefill B 9, decode both at 101 and 200 5.06301",
			a:   times{0, 7_000_000, 26_094_010}, b: times{12_031_000, 21_031_000, 26_094_010},
		},
		{
			why: "mixed, A decodes beside B: 9.03101, then B alone 5.032", mixed: true,
			a: times{0, 7_000_000, 21_062_010}, b: times{12_031_000, 21_062_010, 26_094_010},
		},
		{
			why: "a host of 1 ms after each step lets B come in time: prefill B 9, decode both 5.063, decode A 5.03101", between: time.Millisecond,
			a: times{0, 7_000_000, 29_094_010}, b: times{8_000_000, 17_000_000, 23_063_000},
		},
		{
			why: "with overlap the second decode of A is planned at 7 ms, before B comes: 5.03101", overlap: true,
			a: times{0, 7_000_000, 17_062_010}, b: times{17_062_010, 26_062_010, 31_094_010},
		},
		{
			why: "mixed, B is planned at 12.031 ms, when A's last token is on its way", overlap: true, mixed: true,
			a: times{0, 7_000_000, 17_062_010}, b: times{17_062_010, 26_062_010, 31_094_010},
		},
		{
			why: "with overlap the host's time makes each step longer, and B comes in time for none more", overlap: true, between: 500 * time.Microsecond,
			a: times{0, 7_500_000, 18_562_010}, b: times{18_562_010, 28_062_010, 33_594_010},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			l := scheduleOf(t, workload.Request{InputLen: 100, OutputLen: 3}, workload.Request{At: 0.008, InputLen: 200, OutputLen: 2})
			config := sglangOf(t, "0.5.23")
			config.Overlap, config.Mixed = c.overlap, c.mixed
			r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{{SGLang: loopOf(config), Timer: sim.StepTimerFunc(linear), Between: c.between}}})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []times{c.a, c.b} {
				rec := r.Records[i]
				if got := (times{int64(rec.Admitted), int64(rec.First), int64(rec.Last)}); got != want || rec.Ended != rec.Last {
					t.Errorf("request %d: %+v ended %v, want %+v", i, got, rec.Ended, want)
				}
				if own := []time.Duration{7 * time.Millisecond, 9 * time.Millisecond}[i]; rec.Own != own {
					t.Errorf("request %d: %v of its own, want %v", i, rec.Own, own)
				}
			}
			if m := r.Replicas[0]; m.PrefillTokens != 300 || m.DecodeTokens != 3 {
				t.Errorf("replica %+v: want 300 prompt tokens and 3 decodes", m)
			}
		})
	}
}

// TestSGLangHits holds what turns and nested prompts find in the cache.
func TestSGLangHits(t *testing.T) {
	turn := workload.Request{InputLen: 35, OutputLen: 4, After: &workload.Dependency{Request: 0}, Prefix: []workload.Span{{Seed: 1, Len: 20}, {Seed: 7, Len: 5, Answer: true}}}
	for _, c := range []struct {
		why      string
		requests []workload.Request
		page     int
		hits     []int32
	}{
		{"the next turn finds prompt and answer but the last token", []workload.Request{{InputLen: 20, OutputLen: 5}, turn}, 1, []int32{0, 24}},
		{"whole pages of it", []workload.Request{{InputLen: 20, OutputLen: 5}, turn}, 16, []int32{0, 16}},
		{
			"nested prompts find what they share: both spans, or the first", []workload.Request{
				{InputLen: 50, OutputLen: 2, Prefix: []workload.Span{{Seed: 70, Len: 20}, {Seed: 71, Len: 15}}},
				{At: 1, InputLen: 50, OutputLen: 2, Prefix: []workload.Span{{Seed: 70, Len: 20}, {Seed: 71, Len: 15}}},
				{At: 2, InputLen: 50, OutputLen: 2, Prefix: []workload.Span{{Seed: 70, Len: 20}, {Seed: 72, Len: 15}}},
				{At: 3, InputLen: 50, OutputLen: 2, Prefix: []workload.Span{{Seed: 73, Len: 20}, {Seed: 71, Len: 15}}},
				{At: 4, InputLen: 18, OutputLen: 2, Prefix: []workload.Span{{Seed: 70, Len: 18}}},
			}, 1, []int32{0, 35, 20, 0, 17},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			config := sglangOf(t, "")
			config.Page, config.Chunk = c.page, 16
			r := serve(t, scheduleOf(t, c.requests...), config)
			queried, hit := int64(0), int64(0)
			for i, want := range c.hits {
				if got := r.Records[i].Hits; got != want {
					t.Errorf("request %d finds %d tokens, want %d", i, got, want)
				}
				queried, hit = queried+int64(c.requests[i].InputLen), hit+int64(want)
			}
			if m := r.Replicas[0]; m.QueriedTokens != queried || m.HitTokens != hit {
				t.Errorf("%d of %d tokens are found in sum, want %d of %d", m.HitTokens, m.QueriedTokens, hit, queried)
			}
		})
	}
}

// TestSGLangPriority holds the sign: the lower number is more important in a
// load.
func TestSGLangPriority(t *testing.T) {
	config := sglangOf(t, "")
	config.Priority, config.Seats = true, 1
	r := serve(t, scheduleOf(t, workload.Request{InputLen: 10, OutputLen: 2, Priority: 5}, workload.Request{InputLen: 10, OutputLen: 2, Priority: 1}), config)
	if a, b := r.Records[0].Admitted, r.Records[1].Admitted; a <= b {
		t.Errorf("they are admitted at %v and %v, want the second first", a, b)
	}
}

// TestSGLangEnds holds loads that cannot be served to an outcome or an error.
func TestSGLangEnds(t *testing.T) {
	small := func(release string, context, clip int) *sglang.Config {
		c := sglangOf(t, release)
		c.Pool, c.Context, c.Clip = 40, context, clip
		return c
	}
	long := workload.Request{InputLen: 16, OutputLen: 60}
	leaves, short := long, workload.Request{At: 0.1, InputLen: 4, OutputLen: 3}
	leaves.Timeout = 2
	for _, c := range []struct {
		why      string
		config   *sglang.Config
		requests []workload.Request
		want     []fleet.Outcome
		fault    string
	}{
		{"the context refuses a prompt", small("", 20, 0), []workload.Request{long, short}, []fleet.Outcome{fleet.Unservable, fleet.Completed}, ""},
		{"what outgrows the pool is given up", small("0.5.10", 0, 8), []workload.Request{long, {At: 9, InputLen: 4, OutputLen: 3}}, []fleet.Outcome{fleet.Aborted, fleet.Completed}, ""},
		{"0.5.5 stops there", small("0.5.5", 0, 8), []workload.Request{long}, nil, "not even the last running request fits in the pool: the engine would stop here"},
		{"a head that never fits blocks the queue", small("", 0, 0), []workload.Request{long, short}, nil, "2 requests wait and 0 run, and none can be computed"},
		{"until its client leaves", small("", 0, 0), []workload.Request{leaves, short}, []fleet.Outcome{fleet.TimedOut, fleet.Completed}, ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			l := scheduleOf(t, slices.Clone(c.requests)...)
			r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{{SGLang: loopOf(c.config), Timer: sim.StepTimerFunc(linear)}}})
			if c.fault != "" {
				if err == nil || !strings.HasSuffix(err.Error(), c.fault) {
					t.Fatalf("got %v, want ... %s", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if got := r.Records[i].Outcome; got != want {
					t.Errorf("request %d: %v, want %v", i, got, want)
				}
			}
			if law := r.Little(); law.Error > 1e-9 {
				t.Errorf("Little's law is off by %g", law.Error)
			}
		})
	}
}

// drawCrowd draws a load that comes nearly at once, or soon, and outgrows the
// pool.
func drawCrowd(t *rapid.T) *fleet.Load {
	spec := workload.Spec{
		Seed: rapid.Uint64Range(0, 1000).Draw(t, "seed"), Count: 30, Arrivals: workload.Poisson{Rate: rapid.SampledFrom([]float64{500, 50}).Draw(t, "rate")},
		Lengths:  workload.Independent{Input: workload.Uniform{Low: 1, High: 70}, Output: workload.Uniform{Low: 10, High: 80}},
		Prefixes: &workload.Prefixes{Share: 0.7, Groups: 3, Length: workload.Uniform{Low: 4, High: 40}},
	}
	if rapid.Bool().Draw(t, "timeouts") {
		spec.Timeout = unit.Seconds(rapid.Float64Range(0.1, 2).Draw(t, "timeout"))
	}
	s, err := workload.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Requests {
		s.Requests[i].Priority = i % 3 // for replicas that have them
	}
	l, err := fleet.NewLoad(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// drawSGLang draws a replica that is sometimes short of memory.
func drawSGLang(t *rapid.T) (r fleet.Replica, c *sglang.Config, release string) {
	release = rapid.SampledFrom(sglang.Releases()).Draw(t, "release")
	c = sglangOf(t, release)
	c.Pool = rapid.IntRange(200, 400).Draw(t, "pool")
	c.Clip = rapid.SampledFrom([]int{0, 4}).Draw(t, "clip") // too little is reserved, so that requests are retracted
	if c.Rules.Cut != sglang.CutExact {
		c.Page = rapid.SampledFrom([]int{1, 1, 4, 16}).Draw(t, "page")
	}
	c.Chunk = rapid.SampledFrom([]int{-1, 32, 100}).Draw(t, "chunk")
	c.MaxPrefill = rapid.IntRange(8, 200).Draw(t, "max prefill")
	c.Seats = rapid.SampledFrom([]int{40, 8, 2, 1}).Draw(t, "seats")
	c.Policy = rapid.SampledFrom([]sglang.Policy{sglang.FCFS, sglang.LPM, sglang.DFSWeight, sglang.LOF, sglang.Random}).Draw(t, "policy")
	c.Conservativeness = rapid.SampledFrom([]float64{0.02, 0.3, 1}).Draw(t, "conservativeness")
	c.Mixed, c.Overlap = rapid.Bool().Draw(t, "mixed"), rapid.Bool().Draw(t, "overlap")
	c.NoPrefixCache = rapid.IntRange(0, 3).Draw(t, "no cache") == 0
	c.Context, c.IgnoreEOS = 160, rapid.Bool().Draw(t, "ignore eos")
	if c.Rules.DecodeInterval {
		c.DecodeInterval = rapid.IntRange(0, 2).Draw(t, "interval")
	}
	return fleet.Replica{
		SGLang: loopOf(c), Timer: sim.StepTimerFunc(checked),
		Between: time.Duration(rapid.IntRange(0, 1).Draw(t, "between")) * time.Millisecond,
		Before:  time.Duration(rapid.IntRange(0, 1).Draw(t, "before")) * 3 * time.Millisecond,
	}, c, release
}

// checked is linear for a pass that is one.
func checked(p forward.Pass) (time.Duration, error) {
	if err := p.Validate(); err != nil {
		return 0, err
	}
	return linear(p)
}

// stops reports whether an error is one that releases or settings are known for:
// batches that do not fit where little is reserved or they are mixed, and queues
// that older releases block.
func stops(err error, c *sglang.Config) bool {
	if errors.Is(err, sglang.ErrStopped) {
		return c.Mixed || !c.Rules.AbortLast || c.Clip > 0
	}
	return strings.HasSuffix(err.Error(), "none can be computed") && !c.Rules.EmptyClearsFlag
}

// TestSGLangConservation holds what must be so whatever the load, and twice the
// same.
func TestSGLangConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoad(t)
		if rapid.Bool().Draw(t, "crowd") {
			l = drawCrowd(t)
		}
		replica, c, release := drawSGLang(t)
		var prefill, decode, preempted int
		var contexts int64
		var end time.Duration
		r, err := fleet.Run(context.Background(), l, fleet.Config{
			Replicas: []fleet.Replica{replica}, Step: func(s *fleet.Step) {
				if s.Begin < end || s.End < s.Begin || s.PrefillTokens+s.Decodes != s.Tokens || s.Decodes > 0 && s.Prefills > 0 && !c.Mixed {
					t.Fatalf("a step after %v: %+v", end, *s)
				}
				if s.FreeBlocks < 0 || s.FreeBlocks > s.UsableBlocks || s.Running < max(s.Prefills, s.Decodes) || s.Waiting < 0 || s.Hit > s.Queried {
					t.Fatalf("a step of %+v", *s)
				}
				prefill, decode, end = prefill+s.PrefillTokens, decode+s.Decodes, s.End
				preempted, contexts = preempted+s.Preempted, contexts+s.Context
			},
		})
		if err != nil {
			if stops(err, c) {
				return
			}
			t.Fatalf("release %s: %v", release, err)
		}
		if law := r.Little(); law.Error > 1e-9 {
			t.Fatalf("Little's law is off by %g: %+v", law.Error, law)
		}
		gaps, computed, decoded, preemptions, whole := 0, 0, 0, 0, true
		var sum int64
		for i, rec := range r.Records {
			q := l.Schedule().Requests[i]
			preemptions += int(rec.Preemptions)
			switch rec.Outcome {
			case fleet.Completed:
				want := min(q.OutputLen, min(160, c.Pool/c.Page*c.Page)-2-q.InputLen)
				if int(rec.Outputs) != want {
					t.Fatalf("request %d has %d tokens, want %d", i, rec.Outputs, want)
				}
				computed += q.InputLen - int(rec.Hits)
				gaps += want - 1
				decoded += want - 1
				sum += int64(want-1)*int64(q.InputLen) + int64(want-1)*int64(want-2)/2
			case fleet.TimedOut:
				whole = false
				if q.Timeout == 0 || rec.Ended-rec.Sent != time.Duration(float64(q.Timeout)*1e9+0.5) {
					t.Fatalf("request %d is given up after %v, want %v", i, rec.Ended-rec.Sent, q.Timeout)
				}
			case fleet.Unservable:
				if q.InputLen < 154 {
					t.Fatalf("request %d of %d tokens is refused", i, q.InputLen)
				}
			case fleet.Aborted:
				whole = false
			default:
				t.Fatalf("release %s: request %d: %v", release, i, rec.Outcome)
			}
			if rec.First >= 0 && !(rec.Sent <= rec.Admitted && rec.Admitted < rec.First && rec.First <= rec.Last && rec.Last <= rec.Ended && rec.Own <= rec.First-rec.Admitted) {
				t.Fatalf("request %d: %+v", i, rec)
			}
		}
		if preempted != preemptions {
			t.Fatalf("%d preemptions in steps, %d of requests", preempted, preemptions)
		}
		if prefill < computed || decode < decoded && preempted == 0 {
			t.Fatalf("%d prompt tokens and %d decodes are computed, want at least %d and %d", prefill, decode, computed, decoded)
		}
		if exact := whole && preempted == 0 && (!c.Overlap || c.Rules.SkipFinishing); exact && (prefill != computed || decode != decoded || contexts != sum) {
			t.Fatalf("release %s: %d prompt tokens, %d decodes on %d tokens are computed, want %d, %d on %d", release, prefill, decode, contexts, computed, decoded, sum)
		}
		if all, _ := r.Summaries(nil); all.ITL.N != gaps {
			t.Fatalf("%d inter-token times, want %d", all.ITL.N, gaps)
		}
		again, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{replica}})
		if err != nil || !slices.Equal(again.Records, r.Records) || !reflect.DeepEqual(again.Replicas, r.Replicas) {
			t.Fatalf("a second run differs: %v", err)
		}
	})
}

// TestSGLangRouters holds what routers see of replicas with steps of 10 ms.
func TestSGLangRouters(t *testing.T) {
	shared := []req{{at: 0, in: 10, out: 1, prefix: 7}, {at: 5, in: 10, out: 1}, {at: 30, in: 10, out: 5}, {at: 31, in: 10, out: 1, prefix: 7}}
	for _, c := range []struct {
		why, router string
		load        []req
		want        []int16
	}{
		{"the first prompt's 8 tokens are at the first replica, which is busy", "prefix-hit", shared, []int16{0, 1, 0, 0}},
		{"they are seen 50 ms late", "prefix-hit:delay=50ms", shared, []int16{0, 1, 0, 1}},
		{"seen 10 ms late they count", "prefix-hit:delay=10ms", shared, []int16{0, 1, 0, 0}},
		{
			"nothing is cached before its step ends, at 10 ms", "prefix-hit",
			[]req{{at: 0, in: 10, out: 9, prefix: 7}, {at: 5, in: 10, out: 1, prefix: 7}, {at: 12, in: 10, out: 1, prefix: 7}},
			[]int16{0, 1, 0},
		},
		{
			"prompts wait until they are planned: 30 tokens at the first replica, none and then 20 and 24 at the second", "least-tokens",
			[]req{{at: 0, in: 8, out: 9}, {at: 0.5, in: 8, out: 9}, {at: 1, in: 30, out: 1}, {at: 2, in: 20, out: 1}, {at: 3, in: 4, out: 1}, {at: 4, in: 4, out: 1}},
			[]int16{0, 1, 0, 1, 1, 1},
		},
		{
			"the first holds 8 pages of 4 tokens while it runs, the second 2, until its step ends", "least-kv",
			[]req{{at: 0, in: 30, out: 9}, {at: 1, in: 8, out: 1}, {at: 2, in: 4, out: 1}, {at: 25, in: 4, out: 1}},
			[]int16{0, 1, 1, 1},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			config := sglangOf(t, "")
			config.Overlap, config.Page = false, 4
			routing, err := fleet.ParseRouting(c.router)
			if err != nil {
				t.Fatal(err)
			}
			r, err := fleet.Run(context.Background(), caseOf(t, c.load), fleet.Config{
				Replicas: replicas(fleet.Replica{SGLang: loopOf(config), Timer: sim.StepTimerFunc(tens)}, 2), Router: routing,
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if got := r.Records[i].Replica; got != want {
					t.Errorf("request %d goes to replica %d, want %d", i, got, want)
				}
			}
		})
	}
}
