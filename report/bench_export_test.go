package report_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/workload"
)

// exported is a run of four requests: two streams, one of them held back, an
// answer that is no stream, and one that failed.
func exported() *load.Result {
	const ms = time.Millisecond
	usage := func(n int) load.Count { return load.Count{Tokens: n, Origin: load.FromUsage} }
	r := &load.Result{Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), Elapsed: 1300 * ms, Schedule: &workload.Schedule{}, Records: []load.Record{
		{ID: 0, Send: ms, Sent: true, Chunks: []load.Chunk{{At: 51 * ms, Tokens: 1}, {At: 61 * ms, Tokens: 2}}, End: 61 * ms, Close: 62 * ms, Prompt: usage(11), Output: usage(3)},
		{ID: 1, Sched: 100 * ms, Send: 1100 * ms, Sent: true, Chunks: []load.Chunk{{At: 1200 * ms, Tokens: 1}, {At: 1210 * ms, Tokens: 3}, {At: 1230 * ms, Tokens: 2}}, End: 1230 * ms, Close: 1231 * ms, Prompt: usage(10), Output: usage(6)},
		{ID: 2, Sched: 200 * ms, Send: 200 * ms, Sent: true, End: 300 * ms, Close: 300 * ms, Prompt: usage(10), Output: usage(4)},
		{ID: 3, Sched: 300 * ms, Close: 1300 * ms, Failure: &load.Failure{Kind: load.FailConnect, Message: "refused"}},
	}}
	for i := range r.Records {
		r.Schedule.Requests = append(r.Schedule.Requests, workload.Request{ID: i, InputLen: 10, OutputLen: 4})
	}
	return r
}

func TestVLLMServe(t *testing.T) {
	r := exported()
	whole, steady := r.Summaries(nil)
	d := report.Bench(r, whole, steady, load.Gate{}, "test")
	d.Model, d.Engine, d.Endpoint = "m", "openai", "chat"
	want := report.VLLMServe(r, &d)
	want.Unlimited = true
	var text bytes.Buffer
	if err := vllmbench.WriteServe(&text, want); err != nil {
		t.Fatal(err)
	}
	got, warnings, err := vllmbench.ReadServe("x", bytes.NewReader(text.Bytes()), format.Limits{})
	if err != nil || len(got) != 1 {
		t.Fatalf("%d results, %v", len(got), err)
	}
	want.Origin = "x"
	if diff := cmp.Diff(want, &got[0]); diff != "" {
		t.Errorf("%s", diff)
	}
	// The answer that is no stream has no time to its first token, which that
	// tool writes as 0.
	if len(warnings) != 1 {
		t.Errorf("warnings %v", warnings)
	}
	s := got[0]
	if s.Date != "20260102-030405" || s.Backend != "openai-chat" || *s.NumPrompts != 4 || *s.Completed != 3 || *s.Failed != 1 || *s.InputTokens != 31 || *s.OutputTokens != 13 {
		t.Errorf("%s", text.String())
	}
	if *s.PeakOutputThroughput != 6 || *s.MaxConcurrentRequests != 1 { // of the chunks: 3 in the first second, 6 in the next
		t.Errorf("at most %g tokens a second, %d requests at once", *s.PeakOutputThroughput, *s.MaxConcurrentRequests)
	}
	lists := &vllmbench.Details{
		InputLens: []int{11, 10, 10, 10}, OutputLens: []int{3, 6, 4, 0}, TTFTs: []float64{0.05, 0.1, 0, 0}, ITLs: [][]float64{{0.01}, {0.01, 0.02}, {}, {}},
		StartTimes: []float64{0.001, 1.1, 0.2, 0.3}, Latencies: []float64{0.06, 0.13, 0.1, 0}, QueueTimes: []float64{0.001, 1, 0, 0},
		Texts: []string{"", "", "", ""}, Errors: []string{"", "", "", "connect: refused"},
	}
	if diff := cmp.Diff(lists, s.Details); diff != "" {
		t.Errorf("%s", diff)
	}
	if e := s.Statistic("e2el_including_client_queue"); e.Percentiles[3].Seconds < 1 {
		t.Errorf("the wait for a free place is hidden: %+v", e)
	}
}
