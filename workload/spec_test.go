package workload_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

func lengths() workload.Lengths {
	return workload.Independent{
		Input:  workload.LogNormal{Median: 300, Sigma: 0.7, Low: 8, High: 2000},
		Output: workload.Uniform{Low: 1, High: 64},
	}
}

func build(t interface{ Fatal(...any) }, spec workload.Spec) *workload.Schedule {
	s, err := workload.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return s
}

// delays are think times of all kinds.
func delays() []workload.Delay {
	return []workload.Delay{
		nil, workload.Pause(2),
		workload.ExponentialDelay{Mean: 2},
		workload.UniformDelay{Low: 1, High: 3},
		workload.LogNormalDelay{Mean: 2, StdDev: 3},
		workload.RecordedDelay{Values: []unit.Seconds{1, 2, 9}},
	}
}

// specs draws valid specs of all kinds.
func specs() *rapid.Generator[workload.Spec] {
	return rapid.Custom(func(t *rapid.T) workload.Spec {
		spec := workload.Spec{
			Seed: rapid.Uint64().Draw(t, "seed"),
			Arrivals: rapid.SampledFrom([]workload.Arrivals{
				workload.Constant{Rate: 5},
				workload.Poisson{Rate: 5},
				workload.Gamma{Rate: 5, Burstiness: 0.3},
				workload.Ramp{From: 1, To: 9, Shape: workload.Exponential, Over: 20, Burstiness: 1},
				workload.Burst{Of: workload.Poisson{Rate: 2}, Size: 3},
				workload.Closed{Workers: 3, Think: workload.Pause(0.5)},
				workload.Constant{Rate: math.Inf(1)},
			}).Draw(t, "arrivals"),
			Lengths: lengths(),
			Count:   rapid.IntRange(1, 60).Draw(t, "count"),
		}
		if rapid.Bool().Draw(t, "prefixes") {
			spec.Prefixes = &workload.Prefixes{
				Share: rapid.Float64Range(0, 1).Draw(t, "share"), Groups: rapid.IntRange(1, 9).Draw(t, "groups"),
				Length: workload.Uniform{Low: 1, High: 400}, Zipf: rapid.Float64Range(0, 2).Draw(t, "zipf"),
				Added: rapid.Bool().Draw(t, "added"),
			}
		}
		if rapid.Bool().Draw(t, "sessions") {
			spec.Sessions = &workload.Sessions{
				Turns: workload.Uniform{Low: 1, High: 5}, Think: rapid.SampledFrom(delays()).Draw(t, "think"),
				Given: rapid.Bool().Draw(t, "given"), Context: rapid.SampledFrom([]int{0, 500, 4000}).Draw(t, "context"),
			}
		}
		if rapid.Bool().Draw(t, "classes") {
			spec.Classes = []workload.Class{
				{Name: "chat", Share: 3, Priority: -1, Targets: []workload.SLO{{Metric: workload.TTFT, Limit: 500}}},
				{Name: "batch", Share: 1, Priority: 5},
			}
			spec.Timeout = 30
		}
		return spec
	})
}

func TestSameSeedSameSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := specs().Draw(t, "spec")
		a := build(t, spec)
		if b := build(t, spec); !reflect.DeepEqual(a.Requests, b.Requests) || a.Spec != b.Spec {
			t.Fatal("two schedules of one spec differ")
		}
		spec.Seed++
		if b := build(t, spec); b.Requests[0].Seed == a.Requests[0].Seed {
			t.Fatal("another seed gives the same prompt")
		}
	})
}

func TestConcernsAreApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := workload.Spec{Seed: rapid.Uint64().Draw(t, "seed"), Arrivals: workload.Poisson{Rate: 5}, Lengths: lengths(), Count: 40}
		plain := build(t, spec)
		spec.Prefixes = &workload.Prefixes{Share: 0.5, Groups: 3, Length: workload.Fixed(50)}
		shared := build(t, spec)
		spec.Prefixes.Groups = 6
		more := build(t, spec)
		groups := map[string]uint64{}
		for i, q := range plain.Requests {
			p := shared.Requests[i]
			p.Prefix = nil
			if !reflect.DeepEqual(p, q) {
				t.Fatalf("prefixes change request %d: %+v, without %+v", i, p, q)
			}
			if (shared.Requests[i].Prefix == nil) != (more.Requests[i].Prefix == nil) {
				t.Fatalf("more groups change whether request %d has a prefix", i)
			}
			for _, s := range shared.Requests[i].Prefix {
				groups[s.Group] = s.Seed
			}
		}
		for _, q := range more.Requests {
			for _, s := range q.Prefix {
				if seed, known := groups[s.Group]; known && seed != s.Seed {
					t.Fatalf("more groups change the tokens of %s", s.Group)
				}
			}
		}
	})
}

func TestPrefixShareAndChoice(t *testing.T) {
	spec := workload.Spec{
		Seed: 4, Arrivals: workload.Constant{Rate: 1}, Lengths: workload.Independent{Input: workload.Fixed(100), Output: workload.Fixed(1)}, Count: 20_000,
		Prefixes: &workload.Prefixes{Share: 0.7, Groups: 4, Length: workload.Fixed(150), Zipf: 1},
	}
	count := map[string]float64{}
	for _, q := range build(t, spec).Requests {
		for _, s := range q.Prefix {
			count[s.Group]++
			if s.Len != 100 || q.InputLen != 100 {
				t.Fatalf("a prefix within the input is cut to it: %+v", q)
			}
		}
	}
	// The weights 1, 1/2, 1/3 and 1/4 add up to 25/12.
	for group, weight := range map[string]float64{"g1": 12, "g2": 6, "g3": 4, "g4": 3} {
		if want := 0.7 * 20_000 * weight / 25; math.Abs(count[group]/want-1) > 0.06 {
			t.Errorf("%s came %g times, want about %g", group, count[group], want)
		}
	}
	spec.Prefixes.Added = true
	for _, q := range build(t, spec).Requests {
		if q.InputLen != 100+q.PrefixLen() {
			t.Fatalf("a prefix that is added makes the input longer: %+v", q)
		}
	}
}

func TestSessionsGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := specs().Draw(t, "spec")
		given := rapid.Bool().Draw(t, "given context")
		spec.Sessions = &workload.Sessions{Turns: workload.Uniform{Low: 1, High: 6}, Think: workload.Pause(3), Given: given, Context: 5000}
		s := build(t, spec)
		arrivals := 0
		for i, q := range s.Requests {
			if q.Turn == 1 {
				arrivals++
				continue
			}
			last := s.Requests[i-1]
			if last.Session != q.Session || last.Turn != q.Turn-1 || q.After == nil || q.After.Request != last.ID || q.After.Think != 3 {
				t.Fatalf("turn %+v does not follow %+v", q, last)
			}
			history := last.InputLen + last.OutputLen
			if !given && (q.InputLen <= history || q.PrefixLen() != history || workload.Shared(last, q) != last.InputLen) {
				t.Fatalf("turn %d of %d tokens, %d of them of before, shares %d, after %d+%d", q.Turn, q.InputLen, q.PrefixLen(), workload.Shared(last, q), last.InputLen, last.OutputLen)
			}
			if given && (q.PrefixLen() != min(history, q.InputLen) || workload.Shared(last, q) != min(last.InputLen, q.InputLen)) {
				t.Fatalf("given context: turn %+v after %+v", q, last)
			}
			if q.InputLen+q.OutputLen > 5000 {
				t.Fatalf("turn %+v is longer than the context", q)
			}
			answers := 0
			for _, span := range q.Prefix {
				if span.Answer {
					answers++
				}
			}
			if !given && answers != q.Turn-1 {
				t.Fatalf("turn %d holds %d answers", q.Turn, answers)
			}
		}
		if _, ramp := spec.Arrivals.(workload.Ramp); !ramp && arrivals != spec.Count {
			t.Fatalf("%d sessions, want %d", arrivals, spec.Count)
		}
	})
}

func TestClosed(t *testing.T) {
	s := build(t, workload.Spec{Arrivals: workload.Closed{Workers: 2, Think: workload.Pause(0.25)}, Lengths: lengths(), Count: 5})
	for i, q := range s.Requests {
		if i < 2 != (q.After == nil) || i >= 2 && *q.After != (workload.Dependency{Request: workload.AnyRequest, Think: 0.25}) {
			t.Errorf("request %d: %+v", i, q)
		}
	}
	if _, ok := s.MeanRate(); ok || s.Open() {
		t.Error("a closed loop has no rate beforehand")
	}
}

func TestBuildEnds(t *testing.T) {
	rows := []workload.Pair{{1, 1}, {2, 2}, {3, 3}}
	for _, test := range []struct {
		why  string
		spec workload.Spec
		want int
	}{
		{"by count", workload.Spec{Arrivals: workload.Constant{Rate: 1}, Lengths: lengths(), Count: 7}, 7},
		{"by duration, without its end", workload.Spec{Arrivals: workload.Constant{Rate: 2}, Lengths: lengths(), Duration: 3}, 6},
		{"by whichever is first", workload.Spec{Arrivals: workload.Constant{Rate: 2}, Lengths: lengths(), Duration: 3, Count: 4}, 4},
		{"by the lengths", workload.Spec{Arrivals: workload.Constant{Rate: 2}, Lengths: workload.InOrder{Rows: rows}}, 3},
		{"by the arrivals", workload.Spec{Arrivals: workload.Trace{Offsets: []unit.Seconds{4, 5}}, Lengths: lengths()}, 2},
	} {
		if got := len(build(t, test.spec).Requests); got != test.want {
			t.Errorf("%s: %d requests, want %d", test.why, got, test.want)
		}
	}
}

func TestSpecFaults(t *testing.T) {
	_, err := workload.Build(workload.Spec{
		Arrivals: workload.Gamma{}, Lengths: workload.Independent{}, Count: -1, Duration: -1,
		Prefixes: &workload.Prefixes{Share: 2, Zipf: -1}, Sessions: &workload.Sessions{Think: workload.Pause(-1), Context: -1},
	})
	for _, want := range []string{
		"rate 0/s", "burstiness 0", "input: want a length", "output: want a length", "count -1", "duration -1",
		"share 2", "0 groups", "prefixes: want a length", "exponent -1", "want a number of turns", "think time", "context -1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not tell of %q", err, want)
		}
	}
	for _, test := range []struct {
		want string
		spec workload.Spec
	}{
		{"want arrivals", workload.Spec{Lengths: lengths()}},
		{"want lengths", workload.Spec{Arrivals: workload.Constant{Rate: 1}}},
		{"has no end: want a count or a duration", workload.Spec{Arrivals: workload.Burst{Of: workload.Poisson{Rate: 1}, Size: 2}, Lengths: lengths()}},
		{"want a count", workload.Spec{Arrivals: workload.Closed{Workers: 1}, Lengths: lengths()}},
		{"knows no times", workload.Spec{Arrivals: workload.Closed{Workers: 1}, Lengths: lengths(), Duration: 1, Count: 1}},
		{"is due at", workload.Spec{Arrivals: workload.Constant{Rate: 1e-300}, Lengths: lengths(), Count: 3}},
		{"makes no request", workload.Spec{Arrivals: workload.Ramp{From: 1, To: 1, Shape: workload.Linear, Over: 1e-300, Burstiness: 1}, Lengths: lengths()}},
	} {
		if _, err := workload.Build(test.spec); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
}

func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := build(t, specs().Draw(t, "spec"))
		low := rapid.IntRange(0, 100).Draw(t, "low")
		high := low + rapid.IntRange(1<<12, 1<<17).Draw(t, "width")
		a := s.Requests[rapid.IntRange(0, len(s.Requests)-1).Draw(t, "a")]
		b := s.Requests[rapid.IntRange(0, len(s.Requests)-1).Draw(t, "b")]
		x, y := workload.Tokens(a, low, high), workload.Tokens(b, low, high)
		if len(x) != a.InputLen || cap(x) != len(x) || slices.Min(x) < low || slices.Max(x) >= high {
			t.Fatalf("%d tokens of %d (room for %d) from %d to %d", len(x), a.InputLen, cap(x), slices.Min(x), slices.Max(x))
		}
		same := 0
		for same < min(len(x), len(y)) && x[same] == y[same] {
			same++
		}
		// Chance makes one token more equal in 4096 cases at most, three in
		// 10^10.
		if shared := workload.Shared(a, b); same < shared || same > shared+2 {
			t.Fatalf("%d tokens are equal, %d shared", same, shared)
		}
		if !slices.Equal(workload.AppendTokens(nil, a, low, high), x) {
			t.Fatal("the same request gives other tokens")
		}
	})
}

func TestTokensOfAnyRequest(t *testing.T) {
	for _, test := range []struct {
		why  string
		q    workload.Request
		want int
	}{
		{"a negative length", workload.Request{InputLen: -1}, 0},
		{"a prefix beyond the prompt", workload.Request{InputLen: 3, Prefix: []workload.Span{{Len: 9}, {Len: 9}}}, 3},
		{"a negative prefix", workload.Request{InputLen: 3, Prefix: []workload.Span{{Len: -9}}}, 3},
	} {
		if got := workload.Tokens(test.q, 5, 5); len(got) != test.want || slices.ContainsFunc(got, func(v int) bool { return v != 5 }) {
			t.Errorf("%s: %v", test.why, got)
		}
	}
	room := make([]int, 0, 4096)
	q := workload.Request{InputLen: 4096, Prefix: []workload.Span{{Seed: 1, Len: 512}, {Seed: 2, Len: 512}}}
	if n := testing.AllocsPerRun(20, func() { workload.AppendTokens(room, q, 0, 1000) }); n != 0 {
		t.Errorf("%g allocations where there is room", n)
	}
}

func BenchmarkTokens(b *testing.B) {
	q := workload.Request{InputLen: 2048, Prefix: []workload.Span{{Seed: 1, Len: 512}}}
	room := make([]int, 0, q.InputLen)
	for b.Loop() {
		room = workload.AppendTokens(room[:0], q, 0, 128_000)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(q.InputLen), "ns/token")
}

// stopping is a context that ends when it was looked at so many times.
type stopping struct {
	context.Context
	looks *int
}

func (c stopping) Err() error {
	if *c.looks--; *c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestBuildContext: a load that is being made ends with its context, wherever it
// is.
func TestBuildContext(t *testing.T) {
	for looks := range 3 {
		ctx := stopping{t.Context(), &looks}
		s, err := workload.BuildContext(ctx, workload.Spec{Arrivals: workload.Constant{Rate: 1}, Lengths: lengths(), Count: 20_000})
		if s != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v, want no schedule and what ended the context", s, err)
		}
	}
}
