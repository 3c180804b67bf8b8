package aiperf_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/aiperf"
	"github.com/llmprof/llmprof/profile"
)

const (
	recordedJSON = "aiperf-0.13.0.recorded.json"
	recordedCSV  = "aiperf-0.13.0.recorded.csv"
	records      = "aiperf-0.13.0-records.recorded.jsonl"
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
	p, warnings, err := aiperf.Read(name, bytes.NewReader(text), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := format.KeptServings(&p.Header)
	if err != nil || len(runs) != 1 {
		t.Fatal(len(runs), err)
	}
	return p, runs[0], fmt.Sprint(warnings)
}

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// TestWords holds both summaries to our words. The CSV's figures are rounded
// to two decimals.
func TestWords(t *testing.T) {
	for name, tolerance := range map[string]float64{recordedJSON: 1e-9, recordedCSV: 0.00501} {
		t.Run(name, func(t *testing.T) {
			_, s, said := read(t, name, fixture(t, name))
			for _, c := range []struct {
				what           string
				got            *format.Distribution
				mean, p25, p99 float64
				over           format.Over
			}{
				{"ttft", s.TTFT, 51.841013624999995, 51.26433075, 55.55140459, format.OverRequests},
				{"tpot, its inter-token latency", s.TPOT, 9.993210648550724, 9.977730652173912, 10.042807402173912, format.OverRequests},
				{"icl", s.ICL, 9.993210648550724, 9.55964225, 11.439963830000002, format.OverChunks},
				{"e2el", s.E2EL, 281.6848585416667, 281.1018975, 284.79680600999995, format.OverRequests},
			} {
				if c.got == nil || !near(*c.got.Mean, c.mean, tolerance) || !near(c.got.Other["p25"], c.p25, tolerance) || !near(*c.got.P99, c.p99, tolerance) || c.got.Over != c.over {
					t.Errorf("%s: %+v", c.what, c.got)
				}
			}
			if s.SendLag == nil || !near(*s.SendLag.Mean, 1.2133226666666668, tolerance) || s.E2ELSched == nil || !near(*s.E2ELSched.Mean, 282.9307733333333, tolerance) {
				t.Errorf("lag %+v, from schedule %+v", s.SendLag, s.E2ELSched)
			}
			if s.ITL != nil || s.NTPOT != nil {
				t.Error("figures that aiperf does not have")
			}
			if *s.Completed != 24 || *s.Failed != 0 || *s.InputTokens != 525 || *s.OutputTokens != 576 || !near(*s.Duration, 3.203730176, tolerance) {
				t.Errorf("counts %+v", s)
			}
			for _, want := range []string{"aiperf counted 1536 prompt tokens and the server 525", "but the total is 24", "names of figures have no place here"} {
				if !strings.Contains(said, want) {
					t.Errorf("no %q in %s", want, said)
				}
			}
			if !strings.Contains(strings.Join(s.Unmapped, " "), "time_to_second_token") {
				t.Errorf("unmapped: %v", s.Unmapped)
			}
		})
	}
}

func TestRecords(t *testing.T) {
	p, s, said := read(t, records, fixture(t, records))
	if len(p.Points) != 6 || said != "[]" {
		t.Fatalf("%d points, %s", len(p.Points), said)
	}
	r := p.Points[0].Request
	for what, c := range map[string][2]float64{
		"due": {r.Scheduled, 0}, "sent": {r.Sent, 0.001991959}, "ttft": {r.First - r.Sent, 0.056385009}, "e2el": {r.Last - r.Sent, 0.28541153},
	} {
		if !near(c[0], c[1], 1e-12) {
			t.Errorf("%s is %.12g, want %g", what, c[0], c[1])
		}
	}
	if r.InputLen != 21 || r.OutputLen != 24 {
		t.Errorf("the server's counts: %+v", r)
	}
	run, gaps := format.KeptRun(&p.Points[0])
	sum := 0.0
	for _, gap := range gaps {
		sum += gap
	}
	if run != s.Origin || len(gaps) != 23 || !near(sum, r.Last-r.First, 1e-9) {
		t.Errorf("run %q, %d gaps of %g s", run, len(gaps), sum)
	}
	if s.TTFT.P99 != nil || *s.TTFT.N != 6 || s.SendLag == nil || *s.PeakConcurrency < 2 {
		t.Errorf("%+v", s)
	}
}

func TestUnits(t *testing.T) {
	const text = `{"aiperf_version": "1", "request_count": {"unit": "requests", "avg": 2}, "error_request_count": {"unit": "requests", "avg": 1},
		"time_to_first_token": {"unit": "sec", "avg": 0.05}, "inter_token_latency": {"unit": "us", "avg": 9000, "count": 2}, "request_latency": {"unit": "parsec", "avg": 1},
		"good_request_fraction": {"unit": "%", "avg": 50}, "was_cancelled": true}`
	_, s, said := read(t, "x", []byte(text))
	if *s.TTFT.Mean != 50 || *s.TPOT.Mean != 9 || s.E2EL != nil || *s.GoodShare != 0.5 || *s.Failed != 1 {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(said, "request_latency") || !strings.Contains(said, "the run was cancelled") {
		t.Error(said)
	}
}

func TestFaults(t *testing.T) {
	lines := string(fixture(t, records))
	second := strings.Index(lines, "\n") + 1
	for _, c := range []struct{ why, text, warning, err string }{
		{why: "a cut-off last request", text: lines[:len(lines)-100], warning: "the requests before it were read"},
		{why: "a failed request", text: `{"metadata": {"request_start_ns": 1}, "metrics": {}, "error": {"code": 500}}` + "\n" + lines[second:], warning: "1 requests that failed left out"},
		{why: "a request of the warm-up", text: strings.Replace(lines, `"benchmark_phase": "profiling"`, `"benchmark_phase": "warmup"`, 1), warning: ""},
		{why: "no stream", text: `{"metadata": {"request_start_ns": 1}, "metrics": {"request_latency": {"value": 1, "unit": "ms"}}}`, err: "holds no request that was answered with a stream"},
		{why: "nothing of use", text: `{"aiperf_version": "1"}`, err: "holds neither a request_count nor a request_latency"},
		{why: "another file", text: `{"inter_token_latency": 1}`, err: "want a result of aiperf"},
		{why: "no JSON", text: `{"aiperf_version": `, err: "in the middle of a value"},
		{why: "a long row", text: "Metric,avg,min\nx (ms),1,2,3\n", err: "holds 4 cells under 3 columns"},
		{why: "an open quote", text: "Metric,avg,min\n\"x", err: "extraneous"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, warnings, err := aiperf.Read("x", strings.NewReader(c.text), format.Limits{})
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "x: ") || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || !strings.Contains(fmt.Sprint(warnings), c.warning) {
				t.Errorf("warnings %v, error %v, want %q", warnings, err, c.warning)
			}
		})
	}
}

func TestDetect(t *testing.T) {
	for _, name := range []string{recordedJSON, recordedCSV, records} {
		text := fixture(t, name)
		if !aiperf.Detect(text[:min(len(text), 3000)]) {
			t.Errorf("%s is not known by its head", name)
		}
	}
	for _, text := range []string{"", `{"metadata": {"gpu": "x"}, "metrics": []}`, "Metric", `{"request_throughput": 1, "request_latency": 2}`} {
		if aiperf.Detect([]byte(text)) {
			t.Errorf("%q is taken for aiperf's", text)
		}
	}
}

func ExampleRead() {
	const text = `{"aiperf_version": "0.13.0", "request_count": {"unit": "requests", "avg": 24}, "inter_token_latency": {"unit": "ms", "avg": 10, "count": 24}}`
	p, _, err := aiperf.Read("profile_export_aiperf.json", strings.NewReader(text), format.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	runs, err := format.KeptServings(&p.Header)
	fmt.Printf("TPOT %g ms over %d %s, %v\n", *runs[0].TPOT.Mean, *runs[0].TPOT.N, runs[0].TPOT.Over, err)
	// Output: TPOT 10 ms over 24 requests, <nil>
}

// FuzzRead holds the reader to end with a profile of valid points that can be
// written, or an error that names the file.
func FuzzRead(f *testing.F) {
	f.Add(fixture(f, records)[:3500])
	f.Add(fixture(f, recordedCSV)[:700])
	f.Add([]byte(`{"aiperf_version":"1","request_count":{"unit":"requests","avg":1e300},"inter_token_latency":{"unit":"ns","avg":NaN,"p":1,"p99.99":"2"},"completed_request_count":{"unit":"","avg":-1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		aiperf.Detect(text)
		p, _, err := aiperf.Read("x", bytes.NewReader(text), format.Limits{Bytes: 1 << 20, Values: 1 << 16})
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
