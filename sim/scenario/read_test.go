package scenario_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/sim/scenario"
)

// standard is 16 usable blocks of 4 tokens, 16 tokens a step, 4 seats.
const standard = "vllm=0.33.0 num_blocks=17 block_size=4 max_num_batched_tokens=16 max_num_seqs=4 max_model_len=32"

const config = "config " + standard + "\n"

// TestReadRefuses names file, line and what to do.
func TestReadRefuses(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"nothing", "", "x.txt: no config line"},
		{"only requests", "req A arrival=1 prompt=1 output=1\n", "x.txt: no config line"},
		{"an unknown line", config + "request A\n", `x.txt:2: "request": want a line that begins with config, req or expect`},
		{"two configs", config + config, "x.txt:2: a second config line"},
		{"an unknown setting", "config blocks=7\n", "x.txt:1: blocks=7: unknown setting; want one of async, block_size, chunked"},
		{"a release twice", "config vllm=0.32.0 vllm=0.33.0\n", "x.txt:1: vllm stands twice on the line"},
		{"a setting twice", "config async=1 async=1\n", "x.txt:1: async stands twice on the line"},
		{"no value", "config async\n", `x.txt:1: "async": want name=value`},
		{"no flag", "config async=yes\n", "x.txt:1: async=yes: want 0 or 1"},
		{"no number", "config num_blocks=many\n", "x.txt:1: num_blocks=many: want a whole number from 2 to 1048576"},
		{"a number too large", "config num_blocks=9999999\n", "want a whole number from 2 to 1048576"},
		{"no policy", "config policy=lpm\n", "x.txt:1: policy=lpm: want fcfs or priority"},
		{"no fraction", "config watermark=1\n", "x.txt:1: watermark=1: want a fraction, 0 or more and below 1"},
		{"an infinite fraction", "config watermark=NaN\n", "want a fraction"},
		{"an unknown release", "config vllm=9.9.9\n", `x.txt:1: vLLM release "9.9.9": its scheduling rules are not known`},
		{"what the engine refuses", strings.Replace(config, "num_blocks=17", "num_blocks=8", 1), "x.txt:1: one request of max_model_len 32 needs 8 blocks"},
		{"a request without a name", config + "req\n", "x.txt:2: req wants a name"},
		{"a name of a list", config + "req A,B arrival=1 prompt=1 output=1\n", "x.txt:2: req A,B: want a name"},
		{"the name of nothing", config + "req - arrival=1 prompt=1 output=1\n", "x.txt:2: req -: want a name"},
		{"a name twice", config + "req A arrival=1 prompt=1 output=1\nreq A arrival=1 prompt=1 output=1\n", "x.txt:3: req A: a second request of that name"},
		{"a request without its length", config + "req A arrival=1 output=1\n", "x.txt:2: req A: want arrival, prompt and output"},
		{"a share of nobody", config + "req A arrival=1 prompt=4 output=1 shared=4\n", "x.txt:2: req A: shared=4 without a group: add group=NAME"},
		{"a share of more than the prompt", config + "req A arrival=1 prompt=4 output=1 group=G shared=5\n", "shared=5 is more than its prompt of 4 tokens"},
		{"an unknown stop", config + "req A arrival=1 prompt=4 output=1 stop=now\n", "x.txt:2: req A: stop=now: want len or eos"},
		{"a prompt without room for an output", config + "\nreq A arrival=1 prompt=32 output=1\n", "x.txt: req A: a prompt of 32 tokens leaves no room"},
		{"too much work", config + "req A arrival=1 prompt=1 output=1048576\nreq B arrival=1 prompt=1 output=1\n", "x.txt:3: req B: more than 1048576 tokens of output in all"},
		{"a stray line in the schedule", config + "expect\nsched A\n", `x.txt:3: "sched": want a line that begins with step or end`},
		{"a line after the end", config + "expect\nend steps=0\nstep 1\n", "x.txt:4: a line after the end line"},
		{"more on the line of expect", config + "expect nothing\n", `x.txt:2: expect stands alone on its line, and here is "nothing" after it`},
	} {
		_, err := scenario.Read("x.txt", strings.NewReader(c.text))
		var syntax *scenario.SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), c.want) || syntax.Hint() == "" {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
	long := strings.Repeat("#"+strings.Repeat("x", 1<<20)+"\n", 17)
	if _, err := scenario.Read("x.txt", strings.NewReader(long)); err == nil || !strings.Contains(err.Error(), "longer than 16777216 bytes") {
		t.Errorf("a text without end: %v", err)
	}
}

// TestReadTakes what people write.
func TestReadTakes(t *testing.T) {
	text := "#one\n# two\r\n\nreq  A  prompt=3 arrival=1 output=2 # early\r\n" +
		"config num_blocks=17 block_size=4 max_num_batched_tokens=16 max_num_seqs=4 max_model_len=32\r\n# not at the top\nexpect\nstep 1  x\n# said\n"
	s, err := scenario.Read("x.txt", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"one", " two"}; !reflect.DeepEqual(s.Comments, want) {
		t.Errorf("comments %q, want %q", s.Comments, want)
	}
	if want := []string{"step 1 x"}; !reflect.DeepEqual(s.Expect, want) {
		t.Errorf("expects %q, want %q", s.Expect, want)
	}
	if len(s.Requests) != 1 || s.Requests[0].Prompt != 3 || s.Release != "0.33.0" {
		t.Errorf("%+v", s)
	}
}

// TestWriteRead brings every scenario back as it was.
func TestWriteRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &scenario.Scenario{Release: rapid.SampledFrom([]string{"0.11.2", "0.24.0", "0.33.0"}).Draw(t, "release")}
		first, err := scenario.Read("first", strings.NewReader("config "+strings.Replace(standard, "0.33.0", s.Release, 1)))
		if err != nil {
			t.Fatal(err)
		}
		s.Config = first.Config
		c := &s.Config
		c.Async, c.NoPrefixCache = rapid.Bool().Draw(t, "async"), rapid.Bool().Draw(t, "no cache")
		c.NoFullSequenceGate = rapid.Bool().Draw(t, "no gate")
		c.Watermark = rapid.Float64Range(0, 0.99).Draw(t, "watermark")
		c.Threshold = rapid.IntRange(0, 32).Draw(t, "threshold")
		if rapid.Bool().Draw(t, "whole prompts") {
			c.WholePrompts, c.MaxBatchedTokens = true, 40
		}
		if c.Rules.ScheduledTokens {
			c.MaxScheduledTokens = rapid.SampledFrom([]int{0, 32, 36}).Draw(t, "scheduled tokens")
		}
		if rapid.Bool().Draw(t, "priority") {
			c.Policy = 1
		}
		s.Comments = rapid.SliceOfN(rapid.StringMatching(`[ a-z#]{0,9}`), 0, 2).Draw(t, "comments")
		for i := range rapid.IntRange(0, 4).Draw(t, "requests") {
			q := scenario.Request{
				Name:      string(rune('A' + i)),
				Arrival:   rapid.IntRange(1, 9).Draw(t, "arrival"),
				Prompt:    rapid.IntRange(1, 31).Draw(t, "prompt"),
				Output:    rapid.IntRange(1, 99).Draw(t, "output"),
				Priority:  rapid.IntRange(-2, 2).Draw(t, "priority"),
				StopToken: rapid.Bool().Draw(t, "stop token"),
			}
			if rapid.Bool().Draw(t, "group") {
				q.Group, q.Shared = "G", rapid.IntRange(0, q.Prompt).Draw(t, "shared")
			}
			s.Requests = append(s.Requests, q)
		}
		if rapid.Bool().Draw(t, "expect") {
			s.Expect = []string{"step 1 sched=A:1", "end steps=1"}
		}
		var text strings.Builder
		if err := s.Write(&text); err != nil {
			t.Fatal(err)
		}
		again, err := scenario.Read("again", strings.NewReader(text.String()))
		if err != nil {
			t.Fatalf("%v in\n%s", err, text.String())
		}
		if len(s.Comments) == 0 {
			s.Comments = nil
		}
		if !reflect.DeepEqual(s, again) {
			t.Fatalf("%+v came back as %+v from\n%s", s, again, text.String())
		}
	})
}

// FuzzRun reads anything, runs what is small, and expects its own schedule of
// what it has written.
func FuzzRun(f *testing.F) {
	for _, name := range []string{"06_preempt_fcfs.txt", "07_preempt_priority.txt", "11_eviction_split.txt", "18_async_eos.txt"} {
		text, err := os.ReadFile(filepath.Join("..", "testdata", "scheduler", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add(config + "req A arrival=1048576 prompt=1 output=9 group=A shared=1 stop=eos priority=-7\nexpect\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := scenario.Read("x.txt", strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x.txt:") {
				t.Fatalf("an error without its place: %v", err)
			}
			return
		}
		work := s.Config.Blocks
		for _, q := range s.Requests {
			work += q.Prompt + q.Output
		}
		if work > 2000 {
			return
		}
		var schedule, whole strings.Builder
		if err := s.Run(&schedule); err != nil {
			t.Fatal(err)
		}
		s.Expect = strings.Split(strings.TrimSuffix(schedule.String(), "\n"), "\n")
		if err := s.Write(&whole); err != nil {
			t.Fatal(err)
		}
		got, expected, err := scenario.Run("again", strings.NewReader(whole.String()))
		if err != nil || got != expected || got != schedule.String() {
			t.Fatalf("%v: wrote\n%s\ndecided\n%s", err, whole.String(), got)
		}
	})
}
