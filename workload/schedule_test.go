package workload_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

func TestWriteRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := build(t, specs().Draw(t, "spec"))
		var text bytes.Buffer
		if err := workload.Write(&text, s); err != nil {
			t.Fatal(err)
		}
		got, err := workload.Read("x", bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Requests, s.Requests) || got.Seed != s.Seed || got.Pattern != s.Pattern || got.Spec != s.Spec || !reflect.DeepEqual(got.Classes, s.Classes) || got.Warnings != nil {
			t.Fatalf("read %+v, want %+v", got, s)
		}
		var again bytes.Buffer
		if err := workload.Write(&again, got); err != nil || !bytes.Equal(again.Bytes(), text.Bytes()) {
			t.Fatalf("written again it differs (%v)", err)
		}
	})
}

const head = `{"schema":"llmprof/schedule","version":"1.0","seed":1,"pattern":"p","spec":"s","requests":1}` + "\n"

func TestReadFaults(t *testing.T) {
	const row = `{"id":0,"at_s":0,"input":5,"output":1,"seed":1}` + "\n"
	for _, test := range []struct{ why, text, want string }{
		{"an empty file", "", "x: the file is empty"},
		{"another schema", strings.Replace(head, "llmprof/schedule", "llmprof/run", 1) + row, `x: line 1: schema "llmprof/run"`},
		{"no header", row, `x: line 1: schema ""`},
		{"a newer major version", strings.Replace(head, "1.0", "2.0", 1) + "{", "x: llmprof/schedule version 2.0 is newer than 1.1"},
		{"no version", strings.Replace(head, "1.0", "one", 1) + row, `version "one"`},
		{"an unknown key in the header", strings.Replace(head, "seed", "sede", 1) + row, `unknown field "sede"`},
		{"an unknown key", head + strings.Replace(row, "seed", "sede", 1), `x: line 2: json: unknown field "sede"`},
		{"an empty line", head + "\n" + row, "x: line 2: the line is empty"},
		{"two values on a line", head + strings.TrimSpace(row) + row, "x: line 2: want one JSON value"},
		{"a request too many", head + row + row, "x: line 3: more than the 1 requests"},
		{"a request missing", strings.Replace(head, `"requests":1`, `"requests":2`, 1) + row, "x: line 2: the file ends after 1 of 2"},
		{"no requests", strings.Replace(head, `"requests":1`, `"requests":0`, 1), "x: line 1: 0 requests"},
		{"a cut line", head + row[:20], "x: line 2: unexpected EOF"},
		{"a fault of the schedule", head + strings.Replace(row, `"input":5`, `"input":0`, 1), "x: request 0: input of 0 tokens"},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, err := workload.Read("x", strings.NewReader(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	newer := strings.Replace(head, "1.0", "1.7", 1)
	s, err := workload.Read("x", strings.NewReader(newer+strings.Replace(row, `"seed"`, `"new":7,"seed"`, 1)))
	if err != nil || len(s.Warnings) != 1 || len(s.Requests) != 1 {
		t.Fatalf("a newer minor version: %+v, %v", s, err)
	}
	if v, ok := errors.AsType[*workload.VersionError](s.Warnings[0]); !ok || v.Hint() == "" {
		t.Errorf("warning %v", s.Warnings[0])
	}
}

// TestOlderVersion builds what version 1.0 wrote from the same spec, and reads
// its file.
func TestOlderVersion(t *testing.T) {
	file, err := os.Open("testdata/schedule-1.0.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	old, err := workload.Read(file.Name(), file)
	if err != nil {
		t.Fatal(err)
	}
	now := build(t, workload.Spec{
		Seed: 7, Arrivals: workload.Poisson{Rate: 4}, Count: 12,
		Lengths: workload.Independent{
			Input:  workload.Normal{Mean: 300, StdDev: 80, Low: 1, High: 900},
			Output: workload.Uniform{Low: 4, High: 60},
		},
		Prefixes: &workload.Prefixes{Share: 0.7, Groups: 3, Length: workload.Uniform{Low: 96, High: 288}, Zipf: 1},
		Sessions: &workload.Sessions{Turns: workload.Uniform{Low: 1, High: 3}, Think: workload.ExponentialDelay{Mean: 2}},
	})
	if !reflect.DeepEqual(old.Requests, now.Requests) || old.Spec != now.Spec || old.Warnings != nil {
		t.Errorf("the same spec makes\n%+v\nand made\n%+v", now, old)
	}
}

func TestScheduleFaults(t *testing.T) {
	ok := workload.Request{ID: 1, At: 2, InputLen: 5, OutputLen: 1}
	for _, test := range []struct {
		want string
		edit func(*workload.Request)
	}{
		{"id 7", func(q *workload.Request) { q.ID = 7 }},
		{"time NaN", func(q *workload.Request) { q.At = unit.Seconds(math.NaN()) }},
		{"time -1", func(q *workload.Request) { q.At = -1 }},
		{"is due at 500.0 ms, before", func(q *workload.Request) { q.At = 0.5 }},
		{"has a time and waits", func(q *workload.Request) { q.After = &workload.Dependency{} }},
		{"waits for request 1", func(q *workload.Request) { q.At, q.After = 0, &workload.Dependency{Request: 1} }},
		{"waits for request -2", func(q *workload.Request) { q.At, q.After = 0, &workload.Dependency{Request: -2} }},
		{"think time", func(q *workload.Request) { q.At, q.After = 0, &workload.Dependency{Think: -1} }},
		{"input of", func(q *workload.Request) { q.InputLen = workload.MaxLen + 1 }},
		{"output of 0", func(q *workload.Request) { q.OutputLen = 0 }},
		{"less than 2^53", func(q *workload.Request) { q.Seed = 1 << 53 }},
		{"of a prefix span", func(q *workload.Request) { q.Prefix = []workload.Span{{Len: 1, Seed: 1 << 53}} }},
		{"prefix span of 6 tokens", func(q *workload.Request) { q.Prefix = []workload.Span{{Len: 6}} }},
		{"prefix span of 3 tokens: want 1 to the 2", func(q *workload.Request) { q.Prefix = []workload.Span{{Len: 3}, {Len: 3}} }},
		{"prefix span of 0 tokens", func(q *workload.Request) { q.Prefix = []workload.Span{{}} }},
		{"timeout -1", func(q *workload.Request) { q.Timeout = -1 }},
		{`class "gold" is not among`, func(q *workload.Request) { q.Class = "gold" }},
		{`session "", turn 1`, func(q *workload.Request) { q.Turn = 1 }},
		{`session "a", turn 0`, func(q *workload.Request) { q.Session = "a" }},
	} {
		q := ok
		test.edit(&q)
		s := &workload.Schedule{Requests: []workload.Request{{At: 1, InputLen: 1, OutputLen: 1}, q}}
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
		if err := workload.Write(&bytes.Buffer{}, s); err == nil {
			t.Errorf("a schedule with a fault is written: %q", test.want)
		}
	}
	if err := (&workload.Schedule{}).Validate(); err == nil {
		t.Error("an empty schedule is taken")
	}
	many := &workload.Schedule{Requests: make([]workload.Request, 1000)}
	if n := strings.Count(many.Validate().Error(), "\n"); n > 30 {
		t.Errorf("%d faults listed", n)
	}
}

func TestTotals(t *testing.T) {
	s := build(t, workload.Spec{
		Arrivals: workload.Constant{Rate: 4}, Count: 9,
		Lengths: workload.Independent{Input: workload.Fixed(100), Output: workload.Fixed(10)},
	})
	rate, ok := s.MeanRate()
	if s.InputTokens() != 900 || s.OutputTokens() != 90 || s.Duration() != 2 || !ok || rate != 4 {
		t.Errorf("%d in, %d out, %v, %g/s %v", s.InputTokens(), s.OutputTokens(), s.Duration(), rate, ok)
	}
	s = build(t, workload.Spec{Arrivals: workload.Constant{Rate: math.Inf(1)}, Lengths: lengths(), Count: 3})
	if _, ok := s.MeanRate(); ok || s.Duration() != 0 {
		t.Error("all at once has no rate")
	}
}

func TestReplay(t *testing.T) {
	recorded := []workload.Request{
		{ID: 0, At: 10, InputLen: 100, OutputLen: 1, Seed: 1, Prefix: []workload.Span{{Group: "g", Seed: 7, Len: 64}}},
		{ID: 1, At: 14, InputLen: 90, OutputLen: 2, Seed: 2, Prefix: []workload.Span{{Group: "g", Seed: 7, Len: 64}}},
		{ID: 2, InputLen: 200, OutputLen: 2, Seed: 3, Prefix: []workload.Span{{Seed: 7, Len: 64}, {Seed: 2, Len: 26}}, After: &workload.Dependency{Request: 1, Think: 3}},
	}
	s, err := workload.Replay(recorded, workload.Replaying{Seed: 5, Speed: 2, Name: "log"})
	if err != nil {
		t.Fatal(err)
	}
	q := s.Requests
	if q[0].At != 0 || q[1].At != 2 || q[2].After.Think != 1.5 || recorded[2].After.Think != 3 {
		t.Errorf("replayed %+v", q)
	}
	if workload.Shared(q[0], q[1]) != 64 || workload.Shared(q[1], q[2]) != 90 {
		t.Errorf("shared %d and %d tokens, want 64 and 90", workload.Shared(q[0], q[1]), workload.Shared(q[1], q[2]))
	}
	if one, err := workload.Replay(recorded, workload.Replaying{Limit: 1, Name: "log"}); err != nil || one.Spec != "1 request of log, speed 1; seed 0" {
		t.Errorf("one request: %+v, %v", one, err)
	}
	other, err := workload.Replay(recorded, workload.Replaying{Seed: 6, Limit: 2})
	if err != nil || len(other.Requests) != 2 {
		t.Fatalf("%+v, %v", other, err)
	}
	if workload.Shared(q[0], other.Requests[0]) != 0 || recorded[0].Prefix[0].Seed != 7 {
		t.Error("another seed must give other tokens, and leave the record alone")
	}
	for _, bad := range []workload.Replaying{{Speed: -1}, {Limit: -1}, {Speed: math.NaN()}, {Speed: 1e-300}} {
		if _, err := workload.Replay(recorded, bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if _, err := workload.Replay(nil, workload.Replaying{}); err == nil {
		t.Error("an empty trace is taken")
	}
}

// TestReplayKeepsWhatIsShared replays schedules of all kinds: any two prompts
// share as many tokens as before.
func TestReplayKeepsWhatIsShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := build(t, specs().Draw(t, "spec"))
		again, err := workload.Replay(s.Requests, workload.Replaying{Seed: rapid.Uint64().Draw(t, "seed"), Classes: s.Classes})
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range again.Requests {
			for j := range i {
				if got, want := workload.Shared(q, again.Requests[j]), workload.Shared(s.Requests[i], s.Requests[j]); got != want {
					t.Fatalf("requests %d and %d share %d tokens, shared %d", i, j, got, want)
				}
			}
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(head + `{"id":0,"at_s":0,"input":5,"output":1,"seed":1,"prefix":[{"seed":2,"len":3}]}` + "\n"))
	f.Add([]byte(head + `{"id":0,"at_s":0,"after":{"request":-1,"think_s":1},"input":5,"output":1,"seed":1}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := workload.Read("x", bytes.NewReader(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := workload.Write(&out, s); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := workload.Read("x", &out)
		if err != nil {
			t.Fatal(err)
		}
		if s.Warnings = nil; len(again.Requests) != len(s.Requests) || again.InputTokens() != s.InputTokens() {
			t.Error("written and read again it differs")
		}
	})
}

// TestReusable compares with looking at every pair of prompts.
func TestReusable(t *testing.T) {
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
		for i, got := range workload.Reusable(requests) {
			want := 0
			for j := range requests {
				if i != j {
					want = max(want, workload.Shared(requests[i], requests[j]))
				}
			}
			if got != want {
				t.Fatalf("request %d of %+v: %d tokens, want %d", i, requests, got, want)
			}
		}
	})
}
