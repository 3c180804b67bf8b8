package format_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

func node(t *testing.T, text string) format.Node {
	t.Helper()
	nodes, err := format.ParseJSON("x", []byte(text), format.Limits{})
	if err != nil || len(nodes) != 1 {
		t.Fatal(len(nodes), err)
	}
	return nodes[0]
}

func TestFigures(t *testing.T) {
	for _, c := range []struct {
		why, text string
		want      string // as JSON
		warnings  int
	}{
		{why: "guidellm's names", text: `{"mean": 1, "median": 2, "std_dev": 0.5, "count": 3, "percentiles": {"p001": 0.1, "p05": 5, "p50": 2, "p99": 9, "p999": 10}}`, want: `{"n":3,"mean":1,"std":0.5,"p50":2,"p99":9,"other":{"p0.1":0.1,"p5":5,"p99.9":10}}`},
		{why: "aiperf's names", text: `{"unit": "ms", "avg": 1, "p50": 2, "p75": 3, "min": 0, "max": 4, "std": 0.5, "count": 3, "sum": 3}`, want: `{"n":3,"mean":1,"std":0.5,"min":0,"p50":2,"max":4,"other":{"p75":3}}`},
		{why: "inference-perf's names", text: `{"mean": 1, "p0.1": 0.1, "median": 2, "p99.9": 9}`, want: `{"mean":1,"p50":2,"other":{"p0.1":0.1,"p99.9":9}}`},
		{why: "a report's names", text: `{"units": "s", "mean": "1", "stddev": 0.5, "p0p1": 0.1, "p99p9": 9}`, want: `{"mean":1,"std":0.5,"other":{"p0.1":0.1,"p99.9":9}}`},
		{why: "zeros of nothing", text: `{"mean": 0.0, "count": 0}`, want: `null`},
		{why: "nulls", text: `{"mean": null, "p99": null}`, want: `null`},
		{why: "no object", text: `3`, want: `null`},
		{why: "no numbers", text: `{"mean": NaN, "p99": "fast", "p50": -1, "max": 1e300, "count": 1.5, "min": 1}`, want: `{"min":1}`, warnings: 5},
		{why: "no percentile", text: `{"p101": 1, "payload": 2, "p": 3, "p1p1p1": 4}`, want: `null`},
	} {
		t.Run(c.why, func(t *testing.T) {
			f := &format.Figures{}
			d := f.Distribution(node(t, c.text), 1, "", false)
			if d != nil {
				d.Origin = ""
			}
			text, err := json.Marshal(d)
			if err != nil || string(text) != c.want || len(f.Warnings) != c.warnings {
				t.Errorf("%s, %v, warnings %v; want %s", text, err, f.Warnings, c.want)
			}
		})
	}
	f := &format.Figures{}
	if d := f.Distribution(node(t, `{"mean": -2}`), 1e3, "", true); d == nil || *d.Mean != -2000 {
		t.Errorf("a negative delay: %+v", d)
	}
	if f.Text(node(t, `3`)) != "" || f.Text(format.Node{}) != "" || len(f.Warnings) != 1 {
		t.Errorf("texts: %v", f.Warnings)
	}
}

func TestPercentiles(t *testing.T) {
	d := &format.Distribution{}
	for _, percent := range []float64{99.9, 99, 50, 5, 0.1, 90, 95} {
		d.SetPercentile(percent, percent)
	}
	var seen []float64
	d.Percentiles(func(percent, ms float64) {
		if percent != ms {
			t.Errorf("p%g is %g", percent, ms)
		}
		seen = append(seen, percent)
	})
	if diff := cmp.Diff([]float64{0.1, 5, 50, 90, 95, 99, 99.9}, seen); diff != "" {
		t.Error(diff)
	}
}

// TestKeptServings: runs of several files survive a profile's file and merging.
func TestKeptServings(t *testing.T) {
	var parts []*profile.Profile
	for _, name := range []string{"b.json", "a.json"} {
		p := &profile.Profile{}
		if err := format.KeepServings(&p.Header, name, []format.Serving{{Tool: "t", Origin: name + ": 1", TTFT: &format.Distribution{Mean: new(1.5)}}, {Origin: name + ": 2"}}); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	merged, err := profile.Merge(parts...)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := merged.Write("x", &text); err != nil {
		t.Fatal(err)
	}
	back, _, err := profile.Read("x", strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	runs, err := format.KeptServings(&back.Header)
	if err != nil || len(runs) != 4 || runs[0].Origin != "a.json: 1" || *runs[2].TTFT.Mean != 1.5 {
		t.Errorf("%+v, %v", runs, err)
	}
	back.Header.Metadata["serving:c"] = json.RawMessage(`3`)
	if _, err := format.KeptServings(&back.Header); err == nil || !strings.Contains(err.Error(), "serving:c") {
		t.Errorf("error %v", err)
	}
}

func request(t testing.TB, due, sent, first, last float64, out int, gaps []float64) profile.Point {
	t.Helper()
	p := profile.Point{Kind: profile.KindRequest, Request: &profile.Request{InputLen: 10, OutputLen: out, Scheduled: due, Sent: sent, First: first, Last: last}}
	if err := format.KeepRun(&p, "run", gaps); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSummarize(t *testing.T) {
	points := []profile.Point{
		request(t, 0, 0.5, 1, 3, 3, []float64{1, 1}),
		request(t, 1, 1, 1.5, 1.5, 1, []float64{}),
		{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryUsed, Bytes: 1}},
	}
	s := format.Summarize(points)
	for what, c := range map[string]struct{ got, want float64 }{
		"ttft": {*s.TTFT.Mean, 500}, "tpot": {*s.TPOT.Mean, 1000}, "ntpot": {*s.NTPOT.Mean, (2500.0/3 + 500) / 2}, "icl": {*s.ICL.Mean, 1000}, "lag": {*s.SendLag.Max, 500},
		"from schedule": {*s.TTFTSched.Max, 1000}, "duration": {*s.Duration, 2.5}, "output": {*s.OutputThroughput, 1.6}, "concurrency": {*s.Concurrency, 1.2},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s is %g, want %g", what, c.got, c.want)
		}
	}
	if *s.Completed != 2 || *s.TPOT.N != 1 || s.TTFT.P99 != nil || *s.PeakConcurrency != 2 || s.CachedTokens != nil {
		t.Errorf("%+v", s)
	}
	// One request whose gaps nobody noted: the others are not all of them.
	points = append(points, request(t, 2, 2, 2, 2, 0, nil))
	if s := format.Summarize(points); s.ICL != nil || *s.NTPOT.N != 2 {
		t.Errorf("icl %+v", s.ICL)
	}
	if s := format.Summarize([]profile.Point{request(t, 1, 1, 2, 3, 2, nil)}); s.SendLag != nil || s.E2ELSched != nil {
		t.Error("a schedule that nobody recorded")
	}
	if s := format.Summarize(nil); s.Completed != nil {
		t.Error("a run of nothing")
	}
}

// TestSummarizeProperties: what must hold of any requests.
func TestSummarizeProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var points []profile.Point
		least := 0 // requests that must have been open at once
		for range rapid.IntRange(1, 120).Draw(rt, "requests") {
			due := rapid.Float64Range(0, 10).Draw(rt, "due")
			sent := due + rapid.Float64Range(0, 1).Draw(rt, "lag")
			first := sent + rapid.Float64Range(0, 1).Draw(rt, "ttft")
			last := first + rapid.Float64Range(0, 2).Draw(rt, "rest")
			if last > sent { // one of no time was never open
				least = 1
			}
			points = append(points, request(t, due, sent, first, last, rapid.IntRange(0, 9).Draw(rt, "out"), nil))
		}
		s := format.Summarize(points)
		if s.Duration != nil && (*s.PeakConcurrency < least || *s.PeakConcurrency > len(points) || *s.Concurrency > float64(*s.PeakConcurrency)+1e-9) {
			rt.Fatalf("concurrency %v, %v", *s.Concurrency, *s.PeakConcurrency)
		}
		if (s.TTFT.P99 != nil) != (len(points) >= 100) || *s.TTFT.Mean > *s.E2EL.Mean+1e-9 {
			rt.Fatalf("ttft %+v, e2el %+v", s.TTFT, s.E2EL)
		}
		s.Origin = "x"
		if w := s.Check(points); len(w) > 0 {
			rt.Fatalf("computed figures contradict themselves: %v", w)
		}
		text, err := json.Marshal(s)
		if err != nil {
			rt.Fatal(err)
		}
		var back format.Serving
		if err := json.Unmarshal(text, &back); err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(s, back); d != "" {
			rt.Fatal(d)
		}
	})
}

func TestCheck(t *testing.T) {
	points := []profile.Point{request(t, 0, 0, 1, 3, 3, []float64{1, 1})}
	for _, c := range []struct {
		why  string
		run  format.Serving
		want string
	}{
		{"requests are lost", format.Serving{Requests: new(9), Completed: new(6), Failed: new(1), Cancelled: new(1)}, "x: 8 requests ended, but 9 were asked for"},
		{"a rate of another stretch", format.Serving{Duration: new(2.0), RequestThroughput: new(1.0), Completed: new(3)}, "which makes 2, but the total is 3"},
		{"a rate of other tokens", format.Serving{Duration: new(2.0), OutputThroughput: new(50.0), OutputTokens: new(99)}, "which makes 100, but the total is 99"},
		{"a mean of other requests", format.Serving{Completed: new(1), TTFT: &format.Distribution{Mean: new(900.0), Over: format.OverRequests}}, "ttft has a mean of 900 ms, but that of the requests is 1000 ms"},
		{"a mean over tokens is another figure", format.Serving{Completed: new(1), TPOT: &format.Distribution{Mean: new(9.0), Over: format.OverTokens}}, ""},
		{"not all requests are there", format.Serving{Completed: new(5), TTFT: &format.Distribution{Mean: new(900.0), Over: format.OverRequests}}, ""},
		{"within rounding", format.Serving{Duration: new(2.0), RequestThroughput: new(1.5001), Completed: new(3)}, ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			c.run.Origin = "x"
			if got := fmt.Sprint(c.run.Check(points)); (c.want == "") != (got == "[]") || !strings.Contains(got, c.want) {
				t.Errorf("warnings %s, want %q", got, c.want)
			}
		})
	}
}

func TestAmbiguousITL(t *testing.T) {
	for text, want := range map[string]bool{
		`{"mean_itl_ms": 10.2, "other": 1`: true,
		`{"inter_token_latency": {"mean"`:  true,
		`{"Inter Token Latency": 3}`:       true,
		`{"inter-token-latencies": []}`:    true,
		`{"title": "x", "capitle_ms": 2}`:  false,
		`{"time_to_first_token": 3}`:       false,
		``:                                 false,
	} {
		if format.AmbiguousITL([]byte(text)) != want {
			t.Errorf("%s: want %v", text, want)
		}
	}
}

func TestUnmappedWarning(t *testing.T) {
	s := format.Serving{Origin: "x"}
	if s.UnmappedWarning() != nil {
		t.Error("a warning of nothing")
	}
	s.Unmapped = slices.Repeat([]string{"a"}, 9)
	if got := fmt.Sprint(s.UnmappedWarning()); !strings.HasPrefix(got, "x: 9 names") || !strings.Contains(got, "listed in the profile") {
		t.Error(got)
	}
}

func ExampleSummarize() {
	p := profile.Point{Kind: profile.KindRequest, Request: &profile.Request{InputLen: 64, OutputLen: 24, First: 0.05, Last: 0.28}}
	s := format.Summarize([]profile.Point{p})
	fmt.Printf("TTFT %g ms, TPOT %.0f ms\n", *s.TTFT.Mean, *s.TPOT.Mean)
	// Output: TTFT 50 ms, TPOT 10 ms
}
