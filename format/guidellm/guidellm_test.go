package guidellm_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/guidellm"
	"github.com/llmprof/llmprof/profile"
)

const (
	recordedJSON = "guidellm-0.8.1.recorded.json"
	recordedCSV  = "guidellm-0.8.1.recorded.csv"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T, name string, text []byte) (*profile.Profile, []format.Serving, string) {
	t.Helper()
	p, warnings, err := guidellm.Read(name, bytes.NewReader(text), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := format.KeptServings(&p.Header)
	if err != nil {
		t.Fatal(err)
	}
	return p, runs, fmt.Sprint(warnings)
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// TestWords holds both files to our words: guidellm's time per output token
// holds the first one, and its inter-token latency is a request's mean gap.
func TestWords(t *testing.T) {
	for _, name := range []string{recordedJSON, recordedCSV} {
		t.Run(name, func(t *testing.T) {
			p, runs, _ := read(t, name, fixture(t, name))
			if len(runs) != 1 || p.Header.Deploy.Model != "mock" || runs[0].Tool != "guidellm 0.8.1" {
				t.Fatalf("%d runs of %q by %q", len(runs), p.Header.Deploy.Model, runs[0].Tool)
			}
			s := runs[0]
			for _, c := range []struct {
				what             string
				got              *format.Distribution
				mean, std, p99_9 float64
				over             format.Over
			}{
				{"ttft", s.TTFT, 53.36783329645792, 2.839336682431277, 62.2706413269043, format.OverRequests},
				{"tpot", s.TPOT, 9.982644647791766, 0.04331057690924173, 10.093958481498387, format.OverTokens},
				{"ntpot", s.NTPOT, 11.790360841486187, 0.15208858747347176, 12.267986933390299, format.OverTokens},
				{"e2el, from seconds", s.E2EL, 283.6045225461324, 3.7279408021669504, 295.34435272216797, format.OverRequests},
			} {
				if c.got == nil || !near(*c.got.Mean, c.mean) || !near(*c.got.Std, c.std) || !near(c.got.Other["p99.9"], c.p99_9) || c.got.Over != c.over {
					t.Errorf("%s: %+v", c.what, c.got)
				}
			}
			if s.ITL != nil || s.ICL != nil {
				t.Error("gaps between chunks, which guidellm does not keep")
			}
			if *s.Completed != 12 || *s.Failed != 0 || *s.Requests != 12 || *s.OutputTokens != 288 || *s.InputTokens != 208 {
				t.Errorf("counts %+v", s)
			}
			if !near(*s.RequestThroughput, 13.552564078399268) || !near(*s.OutputThroughput, 325.2615378815825) || !near(*s.Duration, 0.8854413032531738) || *s.GoodShare != 1 {
				t.Errorf("rates %+v", s)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	p, runs, said := read(t, recordedJSON, fixture(t, recordedJSON))
	if len(p.Points) != 12 {
		t.Fatalf("%d points", len(p.Points))
	}
	r := p.Points[0].Request
	// The clock of the file shows 0.24 µs.
	for what, c := range map[string][2]float64{
		"due": {r.Scheduled, 0}, "lag": {r.Sent - r.Scheduled, 0.013418436}, "ttft": {r.First - r.Sent, 0.0528407097}, "ntpot": {(r.Last - r.Sent) / 24, 0.01170314352},
	} {
		if math.Abs(c[0]-c[1]) > 1e-6 {
			t.Errorf("%s is %g, want %g", what, c[0], c[1])
		}
	}
	if r.InputLen != 17 || r.OutputLen != 24 || r.ID != "3f9d696a-d00c-4827-9e82-7197fb214491" {
		t.Errorf("%+v", r)
	}
	if run, gaps := format.KeptRun(&p.Points[0]); run != runs[0].Origin || gaps != nil {
		t.Errorf("run %q, gaps %v", run, gaps)
	}
	for _, want := range []string{"guidellm says: mean generation delay was 2%", "names of figures have no place here: root_dispatch_delay"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %s", want, said)
		}
	}
	if strings.Contains(said, "but") {
		t.Errorf("a self-check fails: %s", said)
	}
}

func TestFaults(t *testing.T) {
	good := string(fixture(t, recordedJSON))
	csv := string(fixture(t, recordedCSV))
	for _, c := range []struct{ why, text, warning, err string }{
		{why: "another number of requests", text: strings.ReplaceAll(good, `"total": 12`, `"total": 13`), warning: "12 requests ended, but 13 were asked for"},
		{why: "a latency that is a word", text: strings.Replace(good, `"mean": 53.36783329645792`, `"mean": "fast"`, 1), warning: "left out"},
		{why: "no benchmarks", text: `{"metadata": {"guidellm_version": "1"}, "benchmarks": []}`, err: "holds no benchmark"},
		{why: "a benchmark without metrics", text: `{"metadata": {"guidellm_version": "1"}, "benchmarks": [{}]}`, err: "benchmarks[0]: want a benchmark with metrics"},
		{why: "not guidellm", text: `{"metadata": {}, "benchmarks": []}`, err: "want one result of guidellm"},
		{why: "cut off", text: good[:9000], err: "in the middle of a value"},
		{why: "only column names", text: csv[:strings.LastIndex(strings.TrimSpace(csv), "\n")], err: "holds 3 rows"},
		{why: "nothing succeeded", text: `{"metadata": {"guidellm_version": "1"}, "benchmarks": [{"metrics": {"request_totals": {"successful": 0}, "time_to_first_token_ms": {"successful": {"mean": 0.0, "count": 0}}}}]}`},
	} {
		t.Run(c.why, func(t *testing.T) {
			if c.text == good {
				t.Fatal("the fault is not in the text")
			}
			p, warnings, err := guidellm.Read("x", strings.NewReader(c.text), format.Limits{})
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "x: ") || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || !strings.Contains(fmt.Sprint(warnings), c.warning) {
				t.Errorf("warnings %v, error %v, want %q", warnings, err, c.warning)
			}
			if runs, _ := format.KeptServings(&p.Header); c.warning == "" && (runs[0].TTFT != nil || runs[0].RequestThroughput != nil) {
				t.Errorf("figures of nothing: %+v", runs[0])
			}
		})
	}
}

func TestDetect(t *testing.T) {
	for _, name := range []string{recordedJSON, recordedCSV} {
		if !guidellm.Detect(fixture(t, name)[:4000]) {
			t.Errorf("%s is not known by its head", name)
		}
	}
	for _, text := range []string{"", `{"metadata": {"gpu": "x"}, "results": []}`, "Run Info", "\x1f\x8b"} {
		if guidellm.Detect([]byte(text)) {
			t.Errorf("%q is taken for guidellm's", text)
		}
	}
}

func ExampleRead() {
	const text = `{"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [{"duration": 2.0, "metrics": {
		"request_totals": {"successful": 8, "errored": 0, "incomplete": 0, "total": 8},
		"inter_token_latency_ms": {"successful": {"mean": 10.0, "count": 184}},
		"time_per_output_token_ms": {"successful": {"mean": 11.7, "count": 192}}}}]}`
	p, _, err := guidellm.Read("benchmarks.json", strings.NewReader(text), format.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	runs, err := format.KeptServings(&p.Header)
	fmt.Printf("TPOT %g ms, NTPOT %g ms over %s, %v\n", *runs[0].TPOT.Mean, *runs[0].NTPOT.Mean, runs[0].NTPOT.Over, err)
	// Output: TPOT 10 ms, NTPOT 11.7 ms over tokens, <nil>
}

// FuzzRead holds the reader to end with a profile of valid points that can be
// written, or an error that names the file.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"metadata":{"guidellm_version":"1"},"benchmarks":[{"duration":"1","start_time":1e300,"metrics":{"request_totals":{"successful":1e99},"prompt_token_count":{"successful":{"total_sum":-1}},"time_to_first_token_ms":{"successful":{"mean":NaN,"percentiles":{"p001":1,"p":2}}}},"requests":{"successful":[{"prompt_tokens":1,"output_tokens":2,"info":{"timings":{"request_start":1,"first_token_iteration":2,"last_token_iteration":1e15}}}]}}]}`))
	f.Add([]byte("Run Info,Timings\nRun ID,Duration\n,Sec\nx,1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		guidellm.Detect(text)
		p, _, err := guidellm.Read("x", bytes.NewReader(text), format.Limits{Bytes: 1 << 20, Values: 1 << 16})
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
