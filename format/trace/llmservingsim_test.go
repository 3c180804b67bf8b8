package trace_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format/trace"
	"github.com/llmprof/llmprof/workload"
)

func TestLLMServingSim(t *testing.T) {
	ids := func(n, from int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprint(from+i))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	for _, c := range []struct {
		why, text string
		at        []float64
	}{
		{"a workload, in ns", `{"input_toks":2361,"output_toks":532,"arrival_time_ns":46926808}
			{"input_toks":7,"output_toks":3,"arrival_time_ns":347938951}`, []float64{0.046926808, 0.347938951}},
		{"a bench, on two clocks: the second was the quickest", `{"input_toks":2361,"output_toks":532,"arrival_time":1777142984.5,"queued_ts":1001.0,"first_token_ts":1002.0}
			{"input_toks":7,"output_toks":3,"arrival_time":1777142985.0,"queued_ts":1001.0,"first_token_ts":1002.0}`, []float64{0, 0.5}},
	} {
		got, err := trace.Read("x", strings.NewReader(c.text), trace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Kind != trace.LLMServingSim || !got.Timed || len(got.Requests) != 2 || len(got.Warnings) > 0 {
			t.Fatalf("%s: %+v", c.why, got)
		}
		for i, want := range c.at {
			if q := got.Requests[i]; math.Abs(float64(q.At)-want) > 1e-6 || q.InputLen != []int{2361, 7}[i] || q.OutputLen != []int{532, 3}[i] {
				t.Errorf("%s: request %d is %+v, want it at %v s", c.why, i, q, want)
			}
		}
	}
	shared := fmt.Sprintf(`{"input_toks":40,"output_toks":1,"arrival_time_ns":0,"input_tok_ids":%s}
		{"input_toks":50,"output_toks":1,"arrival_time_ns":1,"input_tok_ids":%s}
		{"input_toks":40,"output_toks":1,"arrival_time_ns":2,"input_tok_ids":%s}`, ids(40, 5), ids(50, 5), ids(40, 6))
	got, err := trace.Read("x", strings.NewReader(shared), trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	same := func(a, b []workload.Span) (n int) {
		for n < min(len(a), len(b)) && a[n].Seed == b[n].Seed {
			n++
		}
		return n
	}
	first, second, third := got.Requests[0].Prefix, got.Requests[1].Prefix, got.Requests[2].Prefix
	if len(first) != 2 || len(second) != 3 || same(first, second) != 2 || same(first, third) != 0 {
		t.Errorf("blocks %v, %v, %v: want the first two to share 2 of 2 and 3, and the third none", first, second, third)
	}
	if _, err := workload.Replay(got.Requests, workload.Replaying{Seed: 1}); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ why, text, want string }{
		{"a session", `{"session_id":"s","arrival_time_ns":1,"sub_requests":[{"input_toks":1,"output_toks":1}]}`, "sub_requests"},
		{"no time", `{"input_toks":1,"output_toks":1}`, "want a number"},
		{"ids of another number", `{"input_toks":3,"output_toks":1,"arrival_time_ns":1,"input_tok_ids":[1,2]}`, "3 token ids"},
		{"a time that is none", `{"input_toks":3,"output_toks":1,"arrival_time":1,"queued_ts":NaN}`, "queued_ts"},
	} {
		if _, err := trace.Read("x", strings.NewReader(c.text), trace.Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error about %s", c.why, err, c.want)
		}
	}
}
