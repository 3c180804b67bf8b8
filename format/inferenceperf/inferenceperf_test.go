package inferenceperf_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/inferenceperf"
	"github.com/llmprof/llmprof/profile"
)

const (
	recordedJSON = "inference-perf-0.7.0.recorded.json"
	report       = "inference-perf-0.7.0-llmd-report.recorded.yaml"
	requests     = "inference-perf-0.7.0-per-request.recorded.json"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T, name string, text []byte) (*profile.Profile, format.Serving, string) {
	t.Helper()
	p, warnings, err := inferenceperf.Read(name, bytes.NewReader(text), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := format.KeptServings(&p.Header)
	if err != nil || len(runs) != 1 {
		t.Fatal(len(runs), err)
	}
	return p, runs[0], fmt.Sprint(warnings)
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// TestWords holds the summary and the report to the same figures in our words.
func TestWords(t *testing.T) {
	for _, name := range []string{recordedJSON, report} {
		t.Run(name, func(t *testing.T) {
			_, s, _ := read(t, name, fixture(t, name))
			for _, c := range []struct {
				what           string
				got            *format.Distribution
				mean, p50, p01 float64
				over           format.Over
			}{
				{"ttft", s.TTFT, 51.54718995830384, 51.376004000076136, 50.509204438781125, format.OverRequests},
				{"tpot", s.TPOT, 9.999444322465604, 9.996979934780742, 9.95834476678726, format.OverRequests},
				{"ntpot", s.NTPOT, 11.750618602430369, 11.737116854163787, 11.700664292575784, format.OverRequests},
				{"icl, its inter-token latency", s.ICL, 9.999444322465604, 9.760750000168628, 8.674729060985101, format.OverChunks},
				{"e2el", s.E2EL, 282.0148464583288, 281.6908044999309, 280.81594302181884, format.OverRequests},
			} {
				if c.got == nil || !near(*c.got.Mean, c.mean) || !near(*c.got.P50, c.p50) || !near(c.got.Other["p0.1"], c.p01) || c.got.Over != c.over {
					t.Errorf("%s: %+v", c.what, c.got)
				}
			}
			if s.ITL != nil || *s.Completed != 24 || *s.Failed != 0 || *s.InputTokens != 1072 || *s.OutputTokens != 576 || !near(*s.RequestThroughput, 13.530635038910903) {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	text := fixture(t, recordedJSON)
	_, s, said := read(t, "x", text)
	if !near(*s.SendLag.Min, -0.2143601568604936) || !strings.Contains(said, "this is the queue before them") || !near(*s.Duration, 1.7737526679998155) || *s.GoodShare != 1 {
		t.Errorf("lag %+v, %s", s.SendLag, said)
	}
	if s.TPOT.N != nil || *s.TTFT.N != 24 {
		t.Error("the number of requests with two tokens is not in the file")
	}
	// Several tokens of a chunk come as gaps of zero: that is no ICL.
	zeros := bytes.Replace(text, []byte(`"min": 0.008566176000385894`), []byte(`"min": 0.0`), 1)
	_, s, said = read(t, "x", zeros)
	if s.ICL != nil || !strings.Contains(said, "gaps of 0") {
		t.Errorf("%+v, %s", s.ICL, said)
	}
	failed := bytes.Replace(text, []byte("\"failures\": {\n    \"count\": 0"), []byte("\"failures\": {\n    \"count\": 3"), 1)
	if _, s, said = read(t, "x", failed); *s.Failed != 3 || !strings.Contains(said, "27 requests ended, but 24 were asked for") {
		t.Errorf("%d failed: %s", *s.Failed, said)
	}
}

func TestRequests(t *testing.T) {
	p, s, said := read(t, requests, fixture(t, requests))
	if len(p.Points) != 4 || said != "[]" {
		t.Fatalf("%d points, %s", len(p.Points), said)
	}
	r := p.Points[0].Request
	if !near(r.First-r.Sent, 0.055244845999823156) || !near((r.Last-r.First)/23, 0.009978241913042597) || r.InputLen != 46 || r.OutputLen != 24 || r.Scheduled != r.Sent {
		t.Errorf("%+v", r)
	}
	if _, gaps := format.KeptRun(&p.Points[0]); len(gaps) != 23 || !near(gaps[0], 0.008960929000295437) {
		t.Errorf("gaps %v", gaps)
	}
	if s.SendLag != nil || s.E2ELSched != nil {
		t.Error("a schedule that nobody recorded")
	}
}

// TestChunks: tokens that came together are one chunk.
func TestChunks(t *testing.T) {
	const text = `[{"start_time": 10, "end_time": 11, "info": {"request_metrics": {"text": {"input_tokens": 5}}, "response_metrics": {"output_tokens": 5, "output_token_times": [10.1, 10.1, 10.3, 10.3, 10.4]}}, "error": null},
		{"start_time": 10, "end_time": 11, "info": {}, "error": {"error_type": "timeout"}}, {"start_time": 10, "end_time": 11, "info": {"response_metrics": {"output_tokens": 5, "output_token_times": [3, 2]}}}]`
	p, s, said := read(t, "x", []byte(text))
	_, gaps := format.KeptRun(&p.Points[0])
	if len(gaps) != 2 || !near(gaps[0], 0.2) || !near(gaps[1], 0.1) || !near(*s.TPOT.Mean, 75) || !near(*s.ICL.Mean, 150) {
		t.Errorf("gaps %v, tpot %+v", gaps, s.TPOT)
	}
	if *s.Failed != 1 || !strings.Contains(said, "1 requests that failed left out") || !strings.Contains(said, "1 requests without the times") {
		t.Errorf("%+v, %s", s.Failed, said)
	}
}

func TestFaults(t *testing.T) {
	yaml := string(fixture(t, report))
	_, _, err := inferenceperf.Read("x", strings.NewReader(strings.Replace(yaml, "uid: inference-perf", "uid: other", 1)), format.Limits{})
	if !errors.Is(err, format.ErrAmbiguousITL) {
		t.Errorf("a report of an unknown tool: %v", err)
	}
	_, warnings, err := inferenceperf.Read("x", strings.NewReader(strings.Replace(yaml, "units: s\n          mean: 0.0515", "units: fortnight\n          mean: 0.0515", 1)), format.Limits{})
	if err != nil || !strings.Contains(fmt.Sprint(warnings), "time_to_first_token") {
		t.Errorf("an unknown unit: %v, %v", warnings, err)
	}
	for _, c := range []struct{ why, text, err string }{
		{"no summary", `{"load_summary": {}, "successes": {}}`, "want successes with their count"},
		{"no stream", `[{"start_time": 1, "end_time": 2, "info": {}}]`, "holds no request that was answered with a stream"},
		{"another file", `{"a": 1}`, "want a result of inference-perf"},
		{"cut off", `{"load_summary": {}, "successes": `, "in the middle of a value"},
		{"an empty report", "run:\nresults:\n  request_performance:\n", "holds no results.request_performance.aggregate"},
		{"deep", "results:\n  request_performance:\n" + deep(40), "nested too deep"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, _, err := inferenceperf.Read("x", strings.NewReader(c.text), format.Limits{})
			if err == nil || !strings.HasPrefix(err.Error(), "x: ") || !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func deep(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i+4) + "a:\n")
	}
	return b.String()
}

func TestDetect(t *testing.T) {
	for _, name := range []string{recordedJSON, report, requests} {
		if !inferenceperf.Detect(fixture(t, name)) {
			t.Errorf("%s is not known", name)
		}
	}
	for _, text := range []string{"", `{"successes": 1}`, "request_performance: 1"} {
		if inferenceperf.Detect([]byte(text)) {
			t.Errorf("%q is taken for inference-perf's", text)
		}
	}
}

func ExampleRead() {
	const text = `{"load_summary": {"count": 8}, "failures": {"count": 0},
		"successes": {"count": 8, "latency": {"normalized_time_per_output_token": {"mean": 0.0117}, "inter_token_latency": {"mean": 0.01, "min": 0.009}}}}`
	p, _, err := inferenceperf.Read("summary_lifecycle_metrics.json", strings.NewReader(text), format.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	runs, err := format.KeptServings(&p.Header)
	fmt.Printf("NTPOT %.1f ms, ICL %g ms, %v\n", *runs[0].NTPOT.Mean, *runs[0].ICL.Mean, err)
	// Output: NTPOT 11.7 ms, ICL 10 ms, <nil>
}

// FuzzRead holds the reader to end with a profile of valid points that can be
// written, or an error that names the file.
func FuzzRead(f *testing.F) {
	f.Add(fixture(f, report)[:1500])
	f.Add([]byte(`[{"start_time":1,"end_time":2,"info":{"response_metrics":{"server_usage":{"prompt_tokens":1,"completion_tokens":"2","prompt_tokens_details":{"cached_tokens":9}},"output_token_times":[1,1e15,NaN]}},"error":null}]`))
	f.Add([]byte(`{"load_summary":{"count":-1,"schedule_delay":{"mean":-5}},"successes":{"count":1e300,"latency":{"inter_token_latency":{"min":0,"mean":1}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		inferenceperf.Detect(text)
		p, _, err := inferenceperf.Read("x", bytes.NewReader(text), format.Limits{Bytes: 1 << 20, Values: 1 << 16})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x: ") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		if err := p.Write("x", &bytes.Buffer{}); err != nil {
			t.Error(err)
		}
		for i := range p.Points {
			if err := p.Points[i].Validate(); err != nil {
				t.Error(err)
			}
		}
	})
}
