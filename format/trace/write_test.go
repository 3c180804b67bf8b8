package trace_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/format/trace"
	"github.com/llmprof/llmprof/workload"
)

func made(t interface{ Fatal(...any) }, spec workload.Spec) *workload.Schedule {
	s, err := workload.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// written writes a schedule and reads it back.
func written(t interface{ Fatal(...any) }, kind trace.Kind, s *workload.Schedule) (*workload.Schedule, []string) {
	var text bytes.Buffer
	lost, err := trace.Write(&text, kind, s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := trace.Read("x", &text, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := workload.Replay(back.Requests, workload.Replaying{})
	if err != nil || back.Kind != kind {
		t.Fatal(back.Kind, err)
	}
	return again, lost
}

// TestOwnRoundTrip holds what our own forms keep: lengths, times, classes,
// sessions, and how many tokens each prompt shares with those before it.
func TestOwnRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := workload.Spec{
			Seed: rapid.Uint64().Draw(t, "seed"), Arrivals: workload.Poisson{Rate: 3}, Count: rapid.IntRange(1, 30).Draw(t, "count"), Timeout: 7,
			Lengths:  workload.Independent{Input: workload.Uniform{Low: 1, High: 300}, Output: workload.Uniform{Low: 1, High: 20}},
			Prefixes: &workload.Prefixes{Share: 0.7, Groups: 3, Length: workload.Uniform{Low: 1, High: 200}, Added: rapid.Bool().Draw(t, "added")},
			Classes:  []workload.Class{{Name: "a", Share: 1, Priority: 3}, {Name: "b", Share: 2}},
		}
		kind := trace.OwnCSV
		if rapid.Bool().Draw(t, "sessions") {
			spec.Sessions = &workload.Sessions{Turns: workload.Uniform{Low: 1, High: 4}, Think: workload.ExponentialDelay{Mean: 2}, Given: rapid.Bool().Draw(t, "given")}
			kind = trace.OwnJSONL
		}
		s := made(t, spec)
		back, lost := written(t, kind, s)
		if len(lost) > 0 || len(back.Requests) != len(s.Requests) {
			t.Fatalf("%d requests became %d, lost %v", len(s.Requests), len(back.Requests), lost)
		}
		first := s.Requests[0].At // a replay begins at 0
		for i, q := range s.Requests {
			p := back.Requests[i]
			if p.InputLen != q.InputLen || p.OutputLen != q.OutputLen || p.Class != q.Class || p.Priority != q.Priority || p.Session != q.Session || p.Turn != q.Turn ||
				p.Timeout != 7 || (p.After == nil) != (q.After == nil) || p.After != nil && *p.After != *q.After {
				t.Fatalf("request %d: %+v, was %+v", i, p, q)
			}
			if q.After == nil && math.Abs(float64(p.At-(q.At-first))) > 1e-9 {
				t.Fatalf("request %d at %v, was %v", i, p.At, q.At-first)
			}
		}
		if !slices.Equal(workload.Reused(back.Requests), workload.Reused(s.Requests)) {
			t.Fatal("the prompts share other tokens")
		}
	})
}

func TestMooncakeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := made(t, workload.Spec{
			Seed: rapid.Uint64().Draw(t, "seed"), Arrivals: workload.Poisson{Rate: 3}, Count: 20,
			Lengths:  workload.Independent{Input: workload.Uniform{Low: 1, High: 3000}, Output: workload.Fixed(3)},
			Prefixes: &workload.Prefixes{Share: 0.8, Tree: []workload.Group{{Length: workload.Fixed(700), Groups: []workload.Group{{Copies: 2, Length: workload.Uniform{Low: 300, High: 1500}}}}}},
		})
		back, _ := written(t, trace.Mooncake, s)
		for i, q := range s.Requests {
			p := back.Requests[i]
			if p.InputLen != q.InputLen || p.OutputLen != q.OutputLen || math.Abs(float64(p.At-(q.At-s.Requests[0].At))) > 1.1e-3 {
				t.Fatalf("request %d: %+v, was %+v", i, p, q)
			}
			for j := range i {
				want := workload.Shared(q, s.Requests[j])
				// Whole blocks are shared, and a last one that is equal in full.
				if want < min(q.InputLen, s.Requests[j].InputLen) {
					want -= want % 512
				}
				if got := workload.Shared(p, back.Requests[j]); got != want && got != want-want%512 {
					t.Fatalf("requests %d and %d share %d tokens, want %d", i, j, got, want)
				}
			}
		}
	})
}

func TestWriteLosses(t *testing.T) {
	all := made(t, workload.Spec{
		Seed: 1, Arrivals: workload.Poisson{Rate: 3}, Count: 20, Timeout: 3,
		Lengths:  workload.Independent{Input: workload.Fixed(900), Output: workload.Fixed(3)},
		Prefixes: &workload.Prefixes{Share: 1, Tree: []workload.Group{{Name: "a", Length: workload.Fixed(100), Groups: []workload.Group{{Name: "b", Length: workload.Fixed(100)}}}}},
		Classes:  []workload.Class{{Name: "a", Share: 1, Priority: 3, Targets: []workload.SLO{{Metric: workload.TTFT, Limit: 1}}}},
	})
	all.Requests[0].Name = "first"
	for _, test := range []struct {
		kind trace.Kind
		want []string
	}{
		{trace.OwnJSONL, []string{"targets of classes", "prefixes within prefixes"}},
		{trace.OwnCSV, []string{"targets of classes", "prefixes within prefixes"}},
		{trace.Mooncake, []string{"names", "classes", "priorities", "timeouts"}},
		{trace.Azure, []string{"names", "classes", "priorities", "timeouts", "prefixes"}},
	} {
		if _, lost := written(t, test.kind, all); !slices.Equal(lost, test.want) {
			t.Errorf("%s: lost %q, want %q", test.kind, lost, test.want)
		}
	}
	nameless := made(t, workload.Spec{
		Arrivals: workload.Constant{Rate: 1}, Count: 2, Lengths: workload.Independent{Input: workload.Fixed(9), Output: workload.Fixed(3)},
		Prefixes: &workload.Prefixes{Share: 1, Tree: []workload.Group{{Length: workload.Fixed(5)}}},
	})
	if _, lost := written(t, trace.OwnCSV, nameless); !slices.Equal(lost, []string{"prefixes without a name of their own"}) {
		t.Errorf("lost %q", lost)
	}
}

func TestWriteFaults(t *testing.T) {
	closed := made(t, workload.Spec{
		Arrivals: workload.Closed{Workers: 1}, Count: 2, Lengths: workload.Independent{Input: workload.Fixed(9), Output: workload.Fixed(3)},
	})
	for _, kind := range trace.Writable() {
		_, err := trace.Write(&bytes.Buffer{}, kind, closed)
		if waiting, ok := errors.AsType[*trace.WaitingError](err); !ok || waiting.Request != 1 || waiting.Hint() == "" {
			t.Errorf("%s: a closed loop is written: %v", kind, err)
		}
	}
	if _, err := trace.Write(&bytes.Buffer{}, trace.ShareGPT, closed); err == nil || !strings.Contains(err.Error(), "want one of") {
		t.Errorf("a kind that is not written: %v", err)
	}
}
