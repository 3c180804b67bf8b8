package sglang_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/sim/sglang"
)

// FuzzRun feeds the reader anything: it must answer with a schedule or an
// error, and decide the same text the same way twice.
func FuzzRun(f *testing.F) {
	files, err := filepath.Glob("testdata/0.*/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("config sglang=0.4.1 pool=60 page=1 chunk=8 max_prefill=32 seats=4 policy=lpm mixed=1\nreq A arrival=1 prompt=9 max_new=3\n")
	f.Add("config pool=16 page=16 chunk=-1 max_prefill=8 seats=1 policy=random conservativeness=0.01\nreq A arrival=3 prompt=9 max_new=3\nexpect\nstep 9\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 || strings.Count(text, "req") > 40 || tooLong(text) {
			return
		}
		one, expected, err := sglang.Run("fuzz", strings.NewReader(text))
		two, _, again := sglang.Run("fuzz", strings.NewReader(text))
		if one != two || (err == nil) != (again == nil) {
			t.Fatalf("two runs differ:\n%s\n%s", one, two)
		}
		if err == nil && !strings.HasSuffix(one, "\n") {
			t.Fatalf("schedule %q", one)
		}
		if expected != "" && !strings.Contains(text, "expect") {
			t.Fatalf("expectation %q", expected)
		}
	})
}

// tooLong reports numbers that make a run slow, not wrong.
func tooLong(text string) bool {
	digits := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			digits = 0
			continue
		}
		if digits++; digits > 3 {
			return true
		}
	}
	return false
}

// TestTextFaults holds every fault of a text to one clear line.
func TestTextFaults(t *testing.T) {
	const config = "config pool=64 page=1 chunk=16 max_prefill=64 seats=8 policy=fcfs\n"
	for _, c := range []struct{ why, text, want string }{
		{"an empty text has no config", "", "x:0: no config line"},
		{"a request alone has no config either", "# a\nreq A arrival=1 prompt=1 max_new=1\n", "x:2: no config line"},
		{"a word nobody knows", config + "stop\n", `x:2: unknown line "stop"`},
		{"two configs are two runs", config + config, "x:2: a second config line"},
		{"a release that was not read", "config sglang=9.9.9 pool=64\n", `x:1: sglang release "9.9.9": its scheduler is not known`},
		{"a field nobody knows", "config pool=64 colour=red\n", `x:1: unknown field "colour"`},
		{"a field twice", "config pool=64 pool=65\n", "x:1: field pool stands twice"},
		{"a field without a value", "config pool=\n", `x:1: field "pool="`},
		{"a number that is none", "config pool=many\n", `x:1: field pool: "many": want a whole number from 1 to 16777216`},
		{"a switch is 0 or 1", "config mixed=yes\n", `x:1: field mixed: "yes": want 0 or 1`},
		{"a policy that the engine lacks", "config policy=best\n", `x:1: field policy: "best": want one of fcfs, lpm, dfs-weight, lof, random, routing-key, hrrn, shortest-prefill-first`},
		{"a setting newer than the release", "config sglang=0.5.10 pool=64 max_prefill=64 seats=8 prefill_decode_interval=2\n", "x:1: prefill_decode_interval: this release has it not"},
		{"priorities go with two policies", "config pool=64 max_prefill=64 seats=8 policy=lpm priority=1\n", "x:1: policy lpm: with priorities only fcfs and lof"},
		{"a chunk below a page computes nothing", "config pool=64 page=16 chunk=8 max_prefill=64 seats=8\n", "x:1: chunk 8: want at least a page of 16 tokens"},
		{"conservativeness of 0 reserves nothing", "config pool=64 max_prefill=64 seats=8 conservativeness=0\n", "x:1: conservativeness 0: want a number above 0"},
		{"a request needs a name", config + "req arrival=1 prompt=1 max_new=1\n", "x:2: request without a name"},
		{"names are told apart", config + "req A arrival=1 prompt=1 max_new=1\nreq A arrival=1 prompt=1 max_new=1\n", `x:3: request name "A" is taken`},
		{"a request needs a prompt", config + "req A arrival=1 max_new=1\n", "x:2: request A is not complete"},
		{"shared is part of the prompt", config + "req A arrival=1 prompt=4 max_new=1 group=g shared=5\n", "x:2: request A shares 5 tokens"},
		{"shared tokens belong to a group", config + "req A arrival=1 prompt=4 max_new=1 shared=2\n", "x:2: request A shares 2 tokens"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, _, err := sglang.Run("x", strings.NewReader(c.text))
			place, ok := errors.AsType[*sglang.TextError](err)
			if !ok || err.Error() != c.want {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if place.Line > strings.Count(c.text, "\n") {
				t.Errorf("line %d of %d", place.Line, strings.Count(c.text, "\n"))
			}
		})
	}
}

// TestUnfinished holds runs that cannot end to an error beside the schedule.
func TestUnfinished(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"a request larger than the pool blocks the queue", "config pool=40 max_prefill=64 seats=8 policy=fcfs\nreq A arrival=1 prompt=16 max_new=60\n", "x: step 3: 1 waiting requests can never run"},
		{"0.5.5 stops where the last request does not fit", "config sglang=0.5.5 pool=24 chunk=64 max_prefill=64 seats=8 policy=fcfs overlap=0 clip=8\nreq A arrival=1 prompt=10 max_new=40\n", "x: step 16: not even the last running request fits in the pool: the engine would stop here"},
		{"with a context a prompt is refused at arrival", "config pool=40 max_prefill=64 seats=8 policy=fcfs context=30\nreq A arrival=1 prompt=24 max_new=6\n", "x: request A: add request: prompt of 24 tokens: want less than 24 in a context of 30 and a pool of 40"},
	} {
		t.Run(c.why, func(t *testing.T) {
			schedule, _, err := sglang.Run("x", strings.NewReader(c.text))
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if !strings.HasPrefix(schedule[strings.LastIndex(schedule[:len(schedule)-1], "\n")+1:], "end steps=") {
				t.Errorf("schedule %q", schedule)
			}
		})
	}
}
