package vllmbench_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

func open(t testing.TB, name string) io.Reader {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(text)
}

func near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s: got %s, want %g", what, show(got), want)
	}
}

func show[T any](p *T) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprint(*p)
}

func count(t *testing.T, what string, got *int64, want int64) {
	t.Helper()
	if got == nil || *got != want {
		t.Errorf("%s: got %s, want %d", what, show(got), want)
	}
}

func TestDetect(t *testing.T) {
	for name, want := range map[string]vllmbench.Kind{
		"vllm-bench-latency-old.synthetic.json":                     vllmbench.KindLatency,
		"vllm-bench-latency.synthetic.json":                         vllmbench.KindLatency,
		"vllm-bench-latency.recorded-vllm-0.32.0-cpu.json":          vllmbench.KindLatency,
		"vllm-bench-latency.synthetic.stdout.txt":                   vllmbench.KindLatencyStdout,
		"vllm-bench-latency.recorded-vllm-0.32.0-cpu.stdout.txt":    vllmbench.KindLatencyStdout,
		"vllm-bench-throughput.synthetic.json":                      vllmbench.KindThroughput,
		"vllm-bench-throughput.recorded-vllm-0.32.0-cpu.json":       vllmbench.KindThroughput,
		"vllm-bench-throughput.synthetic.stdout.txt":                vllmbench.KindThroughputStdout,
		"vllm-bench-throughput.recorded-vllm-0.32.0-cpu.stdout.txt": vllmbench.KindThroughputStdout,
		"vllm-bench-serve.synthetic.json":                           vllmbench.KindServe,
		"vllm-bench-serve-append.synthetic.jsonl":                   vllmbench.KindServe,
		"vllm-bench-serve-detailed.synthetic.json":                  vllmbench.KindServe,
		"vllm-bench-serve-inconsistent.synthetic.json":              vllmbench.KindServe,
		"vllm-bench-serve-detailed.recorded-vllm-0.32.0-cpu.json":   vllmbench.KindServe,
		"vllm-iterations-bench-serve.recorded-vllm-0.32.0-cpu.json": vllmbench.KindServe,
		"vllm-bench-serve.recorded-vllm-0.32.0-cpu.stdout.txt":      vllmbench.KindServeStdout,
		"README.md": vllmbench.KindUnknown,
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := vllmbench.Detect(text); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := vllmbench.Detect([]byte(`{"results": [], "metadata": {}}`)); got != vllmbench.KindUnknown {
		t.Errorf("another tool's file: %q", got)
	}
}

func TestLatency(t *testing.T) {
	for _, c := range []struct {
		name, model          string
		average, p90, median float64
		runs                 int
		deviation            bool
	}{
		{"vllm-bench-latency.recorded-vllm-0.32.0-cpu.json", "tiny16k", 0.5203972712500047, 0.6545727620000433, 0.47409261849998074, 8, false},
		{"vllm-bench-latency.recorded-vllm-0.32.0-cpu.stdout.txt", "", 0.5203972712500047, 0.6545727620000433, 0.47409261849998074, 0, false},
		{"vllm-bench-latency.synthetic.json", "", 1.021315, 1.027875, 1.021737, 12, true},
		{"vllm-bench-latency-old.synthetic.json", "", 1.021315, 1.027875, 1.021737, 12, false},
		{"vllm-bench-latency.synthetic.stdout.txt", "", 1.021315, 1.027875, 1.021737, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, warnings, err := vllmbench.ReadLatency(c.name, open(t, c.name), format.Limits{})
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			near(t, "average", l.Average, c.average)
			if len(l.Percentiles) != 6 || l.Percentiles[4] != (vllmbench.Percentile{Percent: 90, Seconds: c.p90}) {
				t.Errorf("percentiles %v", l.Percentiles)
			}
			if len(l.Latencies) != c.runs || l.ModelID != c.model || (l.Deviation != nil) != c.deviation {
				t.Errorf("%d runs of %q, deviation %s", len(l.Latencies), l.ModelID, show(l.Deviation))
			}
			if c.runs > 0 && math.Abs(stat.Median(l.Latencies)-c.median) > 1e-6 {
				t.Errorf("median %g, want %g", stat.Median(l.Latencies), c.median)
			}
			if noted := strings.Contains(string(l.Extra["_note"]), "synthetic"); noted != (strings.Contains(c.name, "synthetic") && c.runs > 0) {
				t.Errorf("extra %s", l.Extra)
			}
		})
	}
}

func TestThroughput(t *testing.T) {
	for _, c := range []struct {
		name                   string
		elapsed, requests, out float64
		tokens, prompts        int64
	}{
		{"vllm-bench-throughput.recorded-vllm-0.32.0-cpu.json", 0.9994393879999279, 32.017949646789695, 0, 5136, 0},
		{"vllm-bench-throughput.recorded-vllm-0.32.0-cpu.stdout.txt", 0, 32.02, 1024.57, 5136, 4112},
		{"vllm-bench-throughput.synthetic.json", 40, 12.5, 0, 320000, 0},
		{"vllm-bench-throughput.synthetic.stdout.txt", 0, 12.5, 1600, 320000, 256000},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, warnings, err := vllmbench.ReadThroughput(c.name, open(t, c.name), format.Limits{})
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			near(t, "requests/s", got.RequestRate, c.requests)
			count(t, "tokens", got.TotalTokens, c.tokens)
			if c.elapsed > 0 {
				near(t, "elapsed", got.Elapsed, c.elapsed)
			} else {
				near(t, "output tokens/s", got.OutputTokenRate, c.out)
				count(t, "prompt tokens", got.PromptTokens, c.prompts)
			}
			if (got.Elapsed == nil) != (c.elapsed == 0) || (got.PromptTokens == nil) != (c.prompts == 0) {
				t.Errorf("absent figures are there: %+v", got)
			}
		})
	}
}

func readServe(t *testing.T, name string) ([]vllmbench.Serve, []error) {
	t.Helper()
	results, warnings, err := vllmbench.ReadServe(name, open(t, name), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return results, warnings
}

func TestServeSummary(t *testing.T) {
	results, warnings := readServe(t, "vllm-bench-serve.synthetic.json")
	if len(results) != 1 || len(warnings) > 0 {
		t.Fatal(len(results), warnings)
	}
	s := results[0]
	near(t, "rate", s.RequestRate, 4)
	near(t, "duration", s.Duration, 8.472108)
	count(t, "concurrency", s.MaxConcurrency, 64)
	count(t, "output", s.OutputTokens, 359)
	if s.Goodput != nil || s.Details != nil || s.Speculation != nil || s.Unlimited {
		t.Errorf("absent figures are there: %+v", s)
	}
	ttft := s.Statistic("ttft")
	if ttft == nil {
		t.Fatal("no ttft")
	}
	near(t, "mean ttft", ttft.Mean, 0.05321925)
	near(t, "std ttft", ttft.Deviation, 0.0068407163577727745)
	if want := []float64{50, 90, 95, 99}; len(ttft.Percentiles) != 4 || ttft.Percentiles[3].Percent != want[3] || math.Abs(ttft.Percentiles[3].Seconds-0.07154674999999999) > 1e-12 {
		t.Errorf("percentiles %v", ttft.Percentiles)
	}
	if got := string(s.Extra["note_key"]); got != `"from --metadata"` {
		t.Errorf("metadata %s", got)
	}
	if s.Statistic("nothing") != nil {
		t.Error("a metric that is not there")
	}
}

func TestServeDetailed(t *testing.T) {
	results, warnings := readServe(t, "vllm-bench-serve-detailed.synthetic.json")
	if len(warnings) > 0 {
		t.Error(warnings)
	}
	s := results[0]
	if !s.Unlimited || s.RequestRate != nil || s.MaxConcurrency != nil || s.Label != "demo" {
		t.Errorf("rate %s, unlimited %v", show(s.RequestRate), s.Unlimited)
	}
	if p := s.Statistic("ttft").Percentiles; p[len(p)-1].Percent != 99.9 {
		t.Errorf("percentiles %v", p)
	}
	near(t, "e2el with queue", s.Statistic("e2el_including_client_queue").Mean, 0.14476725)
	if s.Details == nil || s.Details.Latencies[0] != 0.140765 || s.Details.QueueTimes[1] != 0.000299 {
		t.Fatalf("details %+v", s.Details)
	}
	points, left := s.Requests()
	if len(points) != 12 || len(left) > 0 {
		t.Fatalf("%d requests, %v", len(points), left)
	}
	r := points[1].Request
	if r.InputLen != s.Details.InputLens[1] || math.Abs(r.Sent-r.Scheduled-0.000299) > 1e-9 || math.Abs(r.Last-r.Sent-0.146843) > 1e-9 {
		t.Errorf("second request %+v", r)
	}
	if first := points[0].Request; first.Scheduled != 0 {
		t.Errorf("first request is due at %g", first.Scheduled)
	}
}

func TestServeRecorded(t *testing.T) {
	for _, c := range []struct {
		name                                string
		prompts, input, output, concurrency int64
	}{
		{"vllm-bench-serve-detailed.recorded-vllm-0.32.0-cpu.json", 32, 2052, 512, 8},
		{"vllm-iterations-bench-serve.recorded-vllm-0.32.0-cpu.json", 32, 9238, 738, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			results, warnings := readServe(t, c.name)
			if len(warnings) > 0 {
				t.Error(warnings)
			}
			s := results[0]
			count(t, "prompts", s.NumPrompts, c.prompts)
			count(t, "input", s.InputTokens, c.input)
			count(t, "output", s.OutputTokens, c.output)
			if c.concurrency > 0 {
				count(t, "concurrency", s.MaxConcurrency, c.concurrency)
			}
			points, left := s.Requests()
			if len(points) != int(c.prompts) || len(left) > 0 {
				t.Errorf("%d requests, %v", len(points), left)
			}
			for _, p := range points {
				if err := p.Validate(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestServeAppended(t *testing.T) {
	results, warnings := readServe(t, "vllm-bench-serve-append.synthetic.jsonl")
	if len(results) != 2 || len(warnings) > 0 {
		t.Fatal(len(results), warnings)
	}
	near(t, "first rate", results[0].RequestRate, 2)
	if !strings.HasSuffix(results[1].Origin, "line 2") {
		t.Errorf("origin %s", results[1].Origin)
	}
}

func TestServeInconsistent(t *testing.T) {
	results, warnings := readServe(t, "vllm-bench-serve-inconsistent.synthetic.json")
	var text strings.Builder
	for _, w := range warnings {
		fmt.Fprintln(&text, w)
	}
	for _, want := range []string{"completed: 7 completed and 2 failed make 9, but num_prompts is 10", "output_throughput: is 89", "the total is 62"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	s := results[0].Speculation
	if s == nil {
		t.Fatal("no speculation")
	}
	near(t, "acceptance", s.AcceptanceRate, 62.5)
	count(t, "drafts", s.Drafts, 40)
	if d := cmp.Diff([]float64{0.75, 0.5}, s.PerPosition); d != "" {
		t.Error(d)
	}
	near(t, "goodput", results[0].Goodput, 1.9)
}

func TestForeignNumbers(t *testing.T) {
	const head = `{"num_prompts": "4", "completed": 4, "failed": 0, "duration": 2.0, "request_throughput": 2.0, `
	for _, c := range []struct{ why, text, warning, err string }{
		{why: "a bare Infinity", text: head + `"request_rate": Infinity}`},
		{why: "inf in quotes", text: head + `"request_rate": "inf"}`},
		{why: "NaN is no figure", text: head + `"mean_ttft_ms": NaN}`, warning: "mean_ttft_ms: left out: NaN"},
		{why: "a cut-off second object", text: head + `"x": 1}` + "\n" + head, warning: "in the middle of a value"},
		{why: "goodput per metric", text: head + `"request_goodput": {"ttft": 1}}`},
		{why: "a list of results", text: "[" + head + `"x": 1}]`},
		{why: "a percentile beyond 100", text: head + `"p101_ttft_ms": 5}`},
		{why: "a negative time", text: head + `"p99_ttft_ms": -5}`, err: "p99_ttft_ms: want 0 to"},
		{why: "arrays of different length", text: head + `"output_lens": [1, 2], "errors": [""]}`, err: "errors: holds 1 values, but output_lens 2"},
		{why: "gaps that are no lists", text: head + `"itls": [1]}`, err: "itls[0]: want a list, got 1"},
		{why: "a word for a number", text: head + `"total_input_tokens": "many"}`, err: `total_input_tokens: want a number, got "many"`},
		{why: "a doubled key", text: head + `"duration": 1}`, err: "stands twice"},
		{why: "cut off", text: head, err: "in the middle of a value"},
		{why: "another result", text: `{"avg_latency": 1, "latencies": [1]}`, err: `want the result of "vllm bench serve", got that of "latency"`},
		{why: "printed", text: "==== Serving Benchmark Result ====", err: "--save-result"},
		{why: "no result", text: `{"results": []}`, err: `want the result of "vllm bench serve"`},
	} {
		t.Run(c.why, func(t *testing.T) {
			results, warnings, err := vllmbench.ReadServe("x", strings.NewReader(c.text), format.Limits{})
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "x: ") || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil || len(results) != 1 {
				t.Fatal(err)
			}
			if got := fmt.Sprint(warnings); c.warning == "" && len(warnings) > 0 || !strings.Contains(got, c.warning) {
				t.Errorf("warnings %s, want %q", got, c.warning)
			}
			if strings.Contains(c.text, "request_rate") && !results[0].Unlimited {
				t.Error("the rate is not unlimited")
			}
		})
	}
}

func TestStepsFrom(t *testing.T) {
	run := func(out int, times ...float64) vllmbench.Run {
		return vllmbench.Run{Latency: &vllmbench.Latency{Latencies: times}, BatchSize: 4, InputLen: 128, OutputLen: out}
	}
	points, err := vllmbench.StepsFrom(run(1, 0.10, 0.12, 0.11), run(11, 0.31, 0.21, 0.41))
	if err != nil {
		t.Fatal(err)
	}
	if len(points) != 2 {
		t.Fatalf("%d points", len(points))
	}
	prefill, decode := points[0], points[1]
	if prefill.Step.Mode != profile.Prefill || len(prefill.Samples) != 3 || len(prefill.Warnings) != 1 {
		t.Errorf("prefill %+v", prefill)
	}
	median, _ := decode.Median()
	if math.Abs(float64(median)-0.02) > 1e-12 {
		t.Errorf("decode step %v, want 20 ms", median)
	}
	// Ten steps at contexts 129 … 138, as stepbench counts them, mean 133.5;
	// the sum is whole tokens.
	want := forward.Sequences{Count: 4, SumContext: 4*128 + 4*11/2}
	if decode.Step.Pass.Decode != want {
		t.Errorf("pass %+v, want %+v", decode.Step.Pass.Decode, want)
	}
	for _, p := range points {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
	if points, err = vllmbench.StepsFrom(run(2, 0.10), run(12, 0.09, 0.3)); err != nil || len(points) != 1 || len(points[0].Samples) != 1 || len(points[0].Warnings) != 1 {
		t.Errorf("two longer runs, one of them too quick: %+v, %v", points, err)
	}
	other := run(11, 1)
	other.InputLen = 64
	for why, c := range map[string][2]vllmbench.Run{
		"want the same batch size": {run(1, 1), other},
		"want the second to be":    {run(11, 1), run(11, 2)},
		"one holds no time":        {run(1), run(11, 2)},
		"took no longer than":      {run(1, 2), run(11, 1)},
		"want 1 or more of each":   {run(0, 2), run(11, 1)},
	} {
		if _, err := vllmbench.StepsFrom(c[0], c[1]); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("error %v, want %s", err, why)
		}
	}
}

func ExampleReadLatency() {
	l, _, err := vllmbench.ReadLatency("a.json", strings.NewReader(`{"avg_latency": 0.5, "latencies": [0.4, 0.6], "percentiles": {"50": 0.5}}`), format.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%g s over %d runs, 50 %%: %g s\n", *l.Average, len(l.Latencies), l.Percentiles[0].Seconds)
	// Output: 0.5 s over 2 runs, 50 %: 0.5 s
}

// FuzzRead holds every reader to end with a result or an error, and points to
// be valid.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/vllm-*")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 8000 {
			f.Add(text)
		}
	}
	f.Add([]byte(`{"num_prompts": 1, "completed": 1, "duration": 1, "request_throughput": NaN, "output_lens": [1], "itls": [[]], "ttfts": [0], "start_times": [-1e300], "input_lens": [1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		vllmbench.Detect(text)
		limits := format.Limits{Bytes: 1 << 20}
		if l, _, err := vllmbench.ReadLatency("x", bytes.NewReader(text), limits); err == nil {
			run := vllmbench.Run{Latency: l, BatchSize: 1, InputLen: 1, OutputLen: 1}
			long := run
			long.OutputLen = 2
			points, _ := vllmbench.StepsFrom(run, long)
			for _, p := range points {
				if err := p.Validate(); err != nil {
					t.Error(err)
				}
			}
		}
		if _, _, err := vllmbench.ReadThroughput("x", bytes.NewReader(text), limits); err == nil && vllmbench.Detect(text) == vllmbench.KindUnknown {
			t.Error("an unknown text is a throughput")
		}
		results, _, err := vllmbench.ReadServe("x", bytes.NewReader(text), limits)
		if err != nil {
			return
		}
		for _, s := range results {
			points, _ := s.Requests()
			for _, p := range points {
				if err := p.Validate(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
