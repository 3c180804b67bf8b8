package workload_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/workload"
)

func inf() float64 { return math.Inf(1) }

func TestClassesShareTheTraffic(t *testing.T) {
	spec := workload.Spec{Seed: 3, Arrivals: workload.Constant{Rate: 1}, Lengths: lengths(), Count: 20_000}
	plain := build(t, spec)
	spec.Classes = []workload.Class{{Name: "a", Share: 3, Priority: -2}, {Name: "none"}, {Name: "b", Share: 1}}
	s := build(t, spec)
	counts := map[string]float64{}
	for i, q := range s.Requests {
		counts[q.Class]++
		if want := map[string]int{"a": -2, "b": 0}[q.Class]; q.Priority != want {
			t.Fatalf("request %d of class %s has priority %d, want %d", i, q.Class, q.Priority, want)
		}
		if q.Class, q.Priority = "", 0; !reflect.DeepEqual(q, plain.Requests[i]) {
			t.Fatalf("classes change request %d: %+v, without %+v", i, q, plain.Requests[i])
		}
	}
	if math.Abs(counts["a"]/20_000-0.75) > 0.02 || counts["none"] != 0 || counts[""] != 0 {
		t.Errorf("classes came %v times", counts)
	}
}

func TestSessionsHaveOneClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := specs().Draw(t, "spec")
		spec.Classes = []workload.Class{{Name: "a", Share: 1}, {Name: "b", Share: 1, Priority: 1}}
		spec.Sessions = &workload.Sessions{Turns: workload.Fixed(4)}
		class := map[string]string{}
		for _, q := range build(t, spec).Requests {
			if q.Turn == 1 {
				class[q.Session] = q.Class
			}
			if class[q.Session] != q.Class || q.Class == "" || q.Timeout != spec.Timeout {
				t.Fatalf("turn %+v of a session of class %s", q, class[q.Session])
			}
		}
	})
}

func TestClassFaults(t *testing.T) {
	for _, test := range []struct {
		want    string
		classes []workload.Class
	}{
		{"class 1 has no name", []workload.Class{{Share: 1}}},
		{"class a stands twice", []workload.Class{{Name: "a", Share: 1}, {Name: "a", Share: 1}}},
		{"class a: share -1", []workload.Class{{Name: "a", Share: -1}, {Name: "b", Share: 2}}},
		{"class a: share -1", []workload.Class{{Name: "a", Share: -1}}},
		{"class a: share NaN", []workload.Class{{Name: "a", Share: math.NaN()}, {Name: "b", Share: 2}}},
		{"add up to 0", []workload.Class{{Name: "a"}}},
		{"class a: limit", []workload.Class{{Name: "a", Share: 1, Targets: []workload.SLO{{Metric: "speed", Limit: 1}}}}},
	} {
		_, err := workload.Build(workload.Spec{Arrivals: workload.Constant{Rate: 1}, Count: 1, Lengths: lengths(), Classes: test.classes})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
			continue
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("one fault is told as several: %v", err)
		}
	}
}

func TestSLOValidate(t *testing.T) {
	for _, test := range []struct {
		want string
		slo  workload.SLO
	}{
		{"", workload.SLO{Metric: workload.TTFT, Limit: 5}},
		{"", workload.SLO{Metric: workload.ITL, Quantile: 0.9, Limit: 5}},
		{"one of the metrics", workload.SLO{Metric: "send_lag", Limit: 5}},
		{"below p100", workload.SLO{Metric: workload.TTFT, Quantile: 1, Limit: 5}},
		{"give a quantile", workload.SLO{Metric: workload.ICL, Limit: 5}},
		{"above zero", workload.SLO{Metric: workload.E2EL}},
		{"above zero", workload.SLO{Metric: workload.E2EL, Limit: inf()}},
	} {
		err := test.slo.Validate()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v, want %q", test.slo, err, test.want)
		}
	}
}

func TestReplayClasses(t *testing.T) {
	recorded := []workload.Request{
		{InputLen: 1, OutputLen: 1, Class: "gold"},
		{ID: 1, InputLen: 1, OutputLen: 1, Class: "gold", Priority: 7},
		{ID: 2, InputLen: 1, OutputLen: 1, Session: "s", Turn: 1},
		{ID: 3, InputLen: 1, OutputLen: 1, Session: "s", Turn: 2},
	}
	s, err := workload.Replay(recorded, workload.Replaying{})
	if err != nil || !reflect.DeepEqual(s.Classes, []workload.Class{{Name: "gold", Share: 0.5}}) {
		t.Fatalf("classes of a record: %+v, %v", s, err)
	}
	given := []workload.Class{{Name: "gold", Share: 1, Priority: -1}, {Name: "iron", Share: 1}}
	for seed := range uint64(20) {
		s, err = workload.Replay(recorded, workload.Replaying{Classes: given, Seed: seed, Timeout: 4})
		if err != nil {
			t.Fatal(err)
		}
		q := s.Requests
		if q[0].Priority != -1 || q[1].Priority != 7 || q[2].Class == "" || q[2].Class != q[3].Class || q[3].Timeout != 4 {
			t.Fatalf("requests %+v", q)
		}
	}
	_, err = workload.Replay(recorded, workload.Replaying{Classes: given[1:]})
	if err == nil || !strings.Contains(err.Error(), `class "gold" is not among`) {
		t.Errorf("a class that is not given: %v", err)
	}
}

func TestTreeOfPrefixes(t *testing.T) {
	spec := workload.Spec{
		Seed: 4, Arrivals: workload.Constant{Rate: 1}, Count: 40_000,
		Lengths: workload.Independent{Input: workload.Fixed(1000), Output: workload.Fixed(1)},
		Prefixes: &workload.Prefixes{Share: 0.5, Tree: []workload.Group{
			{Name: "a", Weight: 3, Length: workload.Fixed(100), Alone: 1, Groups: []workload.Group{
				{Name: "doc", Copies: 2, Zipf: 1, Weight: 2, Length: workload.Fixed(50)},
			}},
			{Name: "b", Length: workload.Fixed(70)},
		}},
	}
	counts, first := map[string]float64{}, map[string]workload.Request{}
	for _, q := range build(t, spec).Requests {
		name := ""
		for _, s := range q.Prefix {
			name = s.Group
		}
		counts[name]++
		first[name] = q
	}
	// a takes 3 of 4; of those 1 of 3 stops there, and the copies of doc share
	// the rest as 1 and 1/2.
	for name, want := range map[string]float64{"": 20_000, "a": 5000, "a/doc1": 20_000. * 3 / 4 * 2 / 3 * 2 / 3, "a/doc2": 20_000. * 3 / 4 * 2 / 3 / 3, "b": 5000} {
		if math.Abs(counts[name]-want) > 6*math.Sqrt(want) {
			t.Errorf("%q came %g times, want about %.0f", name, counts[name], want)
		}
	}
	for _, test := range []struct {
		a, b string
		want int
	}{{"a", "a/doc1", 100}, {"a/doc1", "a/doc2", 100}, {"a", "b", 0}} {
		if got := workload.Shared(first[test.a], first[test.b]); got != test.want {
			t.Errorf("%s and %s share %d tokens, want %d", test.a, test.b, got, test.want)
		}
	}
	if q := first["a/doc1"]; q.PrefixLen() != 150 || q.InputLen != 1000 {
		t.Errorf("%+v", q)
	}
	spec.Lengths = workload.Independent{Input: workload.Fixed(120), Output: workload.Fixed(1)}
	for _, q := range build(t, spec).Requests {
		if len(q.Prefix) == 2 && q.Prefix[1].Len != 20 {
			t.Fatalf("a prefix is cut to the input: %+v", q)
		}
	}
}

func TestTreeFaults(t *testing.T) {
	deep := workload.Group{Length: workload.Fixed(1)}
	for range 20 {
		deep = workload.Group{Length: workload.Fixed(1), Groups: []workload.Group{deep}}
	}
	one := workload.Fixed(1)
	for _, test := range []struct {
		want string
		tree []workload.Group
	}{
		{"group a: want a length", []workload.Group{{Name: "a"}}},
		{"group 1: weight -1", []workload.Group{{Length: one, Weight: -1}}},
		{"group 1: exponent -1", []workload.Group{{Length: one, Zipf: -1}}},
		{"-1 copies", []workload.Group{{Length: one, Copies: -1}}},
		{"weight alone without groups", []workload.Group{{Length: one, Alone: 1}}},
		{"within more than 16 others", []workload.Group{deep}},
		{"more than 1048576 groups", []workload.Group{{Length: one, Copies: 2000, Groups: []workload.Group{{Length: one, Copies: 2000}}}}},
		{"a: group b: want a length", []workload.Group{{Name: "a", Length: one, Groups: []workload.Group{{Name: "b"}}}}},
	} {
		err := workload.Prefixes{Share: 1, Tree: test.tree}.Validate()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
	if err := (workload.Prefixes{Tree: []workload.Group{{Length: one}}, Groups: 1}).Validate(); err == nil {
		t.Error("a tree and a number of groups are taken together")
	}
}

// TestReused compares with looking at all earlier prompts and answers.
func TestReused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.Custom(func(t *rapid.T) workload.Span {
			return workload.Span{Seed: rapid.Uint64Range(1, 3).Draw(t, "seed"), Len: rapid.IntRange(1, 3).Draw(t, "len")}
		})
		var requests []workload.Request
		for range rapid.IntRange(0, 12).Draw(t, "requests") {
			q := workload.Request{Seed: rapid.Uint64Range(1, 4).Draw(t, "own seed"), Prefix: rapid.SliceOfN(span, 0, 3).Draw(t, "prefix")}
			q.InputLen = q.PrefixLen() + rapid.IntRange(0, 3).Draw(t, "own")
			requests = append(requests, q)
		}
		for i, got := range workload.Reused(requests) {
			want := 0
			for j := range i {
				want = max(want, workload.Shared(requests[i], requests[j]))
			}
			if got != want {
				t.Fatalf("request %d of %+v: %d tokens, want %d", i, requests, got, want)
			}
		}
	})
}

func TestReusedAnswers(t *testing.T) {
	s := build(t, workload.Spec{
		Seed: 1, Count: 5, Arrivals: workload.Constant{Rate: 1}, Sessions: &workload.Sessions{Turns: workload.Fixed(3)},
		Lengths: workload.Independent{Input: workload.Fixed(100), Output: workload.Fixed(10)},
	})
	for i, got := range workload.Reused(s.Requests) {
		if want := 110 * (s.Requests[i].Turn - 1); got != want {
			t.Errorf("turn %d: %d tokens, want the %d of all turns and answers before", s.Requests[i].Turn, got, want)
		}
	}
}

// BenchmarkBuild makes a million requests.
func BenchmarkBuild(b *testing.B) {
	length := workload.Normal{Mean: 512, StdDev: 256, Low: 1, High: 4096}
	for b.Loop() {
		s, err := workload.Build(workload.Spec{
			Seed: 1, Arrivals: workload.Poisson{Rate: 20}, Lengths: workload.Independent{Input: length, Output: length}, Count: 1_000_000,
		})
		if err != nil || len(s.Requests) != 1_000_000 {
			b.Fatal(err)
		}
	}
}
