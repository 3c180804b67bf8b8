package vllmbench_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/profile"
)

const recordedServe = "vllm-bench-serve-detailed.recorded-vllm-0.32.0-cpu.json"

// keysOf are the keys of an object in their order.
func keysOf(t *testing.T, text []byte) []string {
	t.Helper()
	nodes, err := format.ParseJSON("x", text, format.Limits{})
	if err != nil || len(nodes) != 1 {
		t.Fatal(len(nodes), err)
	}
	var keys []string
	for key := range nodes[0].Members() {
		keys = append(keys, key)
	}
	return keys
}

func written(t *testing.T, s *vllmbench.Serve) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := vllmbench.WriteServe(&out, s); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// again reads what was written.
func again(t *testing.T, text []byte, origin string) vllmbench.Serve {
	t.Helper()
	results, _, err := vllmbench.ReadServe("x", bytes.NewReader(text), format.Limits{})
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	results[0].Origin = origin
	return results[0]
}

// TestWriteRecorded holds every recorded and composed result to be written as
// it was read, and those of vLLM itself with its keys in its order.
func TestWriteRecorded(t *testing.T) {
	for _, name := range []string{
		recordedServe, "vllm-iterations-bench-serve.recorded-vllm-0.32.0-cpu.json", "vllm-bench-serve-append.synthetic.jsonl",
		"vllm-bench-serve-detailed.synthetic.json", "vllm-bench-serve-inconsistent.synthetic.json", "vllm-bench-serve.synthetic.json",
	} {
		t.Run(name, func(t *testing.T) {
			results, _ := readServe(t, name)
			for i := range results {
				text := written(t, &results[i])
				if d := cmp.Diff(results[i], again(t, text, results[i].Origin)); d != "" {
					t.Error(d)
				}
				if !strings.Contains(name, "recorded") {
					continue
				}
				original, err := io.ReadAll(open(t, name))
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(keysOf(t, original), keysOf(t, text)); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// TestWriteValues holds the written numbers to the file's, figure by figure:
// but for the 17th digit, which a time in seconds does not hold.
func TestWriteValues(t *testing.T) {
	original, err := io.ReadAll(open(t, recordedServe))
	if err != nil {
		t.Fatal(err)
	}
	results, _ := readServe(t, recordedServe)
	var want, got map[string]any
	if err := json.Unmarshal(original, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(written(t, &results[0]), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(1e-15, 0)); d != "" {
		t.Error(d)
	}
}

// serves draws results that a reader could have given.
func serves(t *rapid.T) vllmbench.Serve {
	number := func(label string, most float64) *float64 {
		if rapid.Bool().Draw(t, "no "+label) {
			return nil
		}
		return new(rapid.Float64Range(0, most).Draw(t, label))
	}
	count := func(label string) *int64 {
		if rapid.Bool().Draw(t, "no "+label) {
			return nil
		}
		return new(rapid.Int64Range(0, 1<<40).Draw(t, label))
	}
	text := rapid.String()
	s := vllmbench.Serve{
		Date: text.Draw(t, "date"), Backend: text.Draw(t, "backend"), Label: text.Draw(t, "label"), ModelID: text.Draw(t, "model"),
		NumPrompts: new(int64(3)), MaxConcurrency: count("concurrency"), Completed: count("completed"), Failed: count("failed"),
		Unlimited: rapid.Bool().Draw(t, "unlimited"), Duration: number("duration", 1e6), RequestThroughput: number("throughput", 1e9), Goodput: number("goodput", 1e9), RTFx: number("rtfx", 1),
	}
	if !s.Unlimited {
		s.RequestRate = number("rate", 1e6)
	}
	for _, metric := range []string{"ttft", "tpot", "itl", "e2el"} {
		st := vllmbench.Statistic{Metric: metric, Mean: new(rapid.Float64Range(0, 1e6).Draw(t, metric)), Median: number("median", 1), Deviation: number("std", 1)}
		for _, percent := range []float64{0.1, 50, 99, 99.9} {
			if v := number("p", 1e5); v != nil {
				st.Percentiles = append(st.Percentiles, vllmbench.Percentile{Percent: percent, Seconds: *v})
			}
		}
		s.Statistics = append(s.Statistics, st)
	}
	if rapid.Bool().Draw(t, "detailed") {
		times := rapid.SliceOfN(rapid.Float64Range(0, 1e4), 3, 3)
		s.Details = &vllmbench.Details{
			InputLens: []int{1, 2, 3}, OutputLens: []int{2, 3, 0}, TTFTs: times.Draw(t, "ttfts"), Latencies: times.Draw(t, "latencies"), StartTimes: times.Draw(t, "starts"),
			ITLs: [][]float64{{1e-3}, times.Draw(t, "itl"), {}}, Texts: []string{text.Draw(t, "text"), "<&>", ""}, Errors: []string{"", "", "cut"},
		}
	}
	if rapid.Bool().Draw(t, "metadata") {
		s.Extra = map[string]json.RawMessage{"run": json.RawMessage(`"a<b"`), "ramp_up_strategy": json.RawMessage(`"linear"`)}
	}
	return s
}

// TestWriteReadBack: any result is read back equal, to the last digit.
func TestWriteReadBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := serves(rt)
		text := written(t, &s)
		// The reader knows a result by its keys, whatever they hold.
		if d := cmp.Diff(s, again(t, text, "")); d != "" {
			rt.Fatalf("%s\n%s", text, d)
		}
	})
}

func TestWriteRefuses(t *testing.T) {
	for why, s := range map[string]vllmbench.Serve{
		"stands twice":      {Extra: map[string]json.RawMessage{"duration": json.RawMessage("1")}},
		"names no metric":   {Statistics: []vllmbench.Statistic{{Metric: "a b", Mean: new(1.0)}}},
		"unsupported value": {Duration: new(math.Inf(1))},
	} {
		if err := vllmbench.WriteServe(io.Discard, &s); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("error %v, want %q", err, why)
		}
	}
}

func imported(t *testing.T, name string) (*profile.Profile, []format.Serving, string) {
	t.Helper()
	p, warnings, err := vllmbench.ReadServeProfile(name, open(t, name), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := format.KeptServings(&p.Header)
	if err != nil {
		t.Fatal(err)
	}
	return p, runs, fmt.Sprint(warnings)
}

// TestWords: vLLM's itl is the gap of two chunks.
func TestWords(t *testing.T) {
	p, runs, said := imported(t, recordedServe)
	if len(runs) != 1 || len(p.Points) != 32 || said != "[]" || p.Header.Deploy.Model != "tiny" {
		t.Fatalf("%d runs, %d points, %s", len(runs), len(p.Points), said)
	}
	s := runs[0]
	near(t, "ttft", s.TTFT.Mean, 30.760952062504288)
	near(t, "tpot", s.TPOT.P90, 13.335852973332294)
	near(t, "icl", s.ICL.P99, 23.542314679997368)
	near(t, "e2el", s.E2EL.Std, 60.5011148871693)
	if s.ITL != nil || s.ICL.Over != format.OverChunks || s.TPOT.Over != format.OverRequests {
		t.Errorf("itl %+v", s.ITL)
	}
	run, gaps := format.KeptRun(&p.Points[3])
	if run != s.Origin || len(gaps) != 15 {
		t.Errorf("run %q, %d gaps", run, len(gaps))
	}
	if _, runs, _ := imported(t, "vllm-bench-serve-detailed.synthetic.json"); !runs[0].Unlimited || runs[0].E2ELSched == nil || runs[0].SendLag == nil || len(runs[0].TTFT.Other) != 1 {
		t.Errorf("the newest keys: %+v", runs[0])
	}
	if _, runs, _ := imported(t, "vllm-bench-serve-append.synthetic.jsonl"); len(runs) != 2 || runs[0].Origin == runs[1].Origin {
		t.Errorf("%d runs", len(runs))
	}
}

// TestExport: what was imported is written with vLLM's keys and, but for the
// texts and times of day that nobody keeps, its figures.
func TestExport(t *testing.T) {
	p, _, _ := imported(t, recordedServe)
	results, err := vllmbench.FromProfile(p)
	if err != nil || len(results) != 1 {
		t.Fatal(len(results), err)
	}
	original, _ := readServe(t, recordedServe)
	text := written(t, results[0])
	want, got := keysOf(t, written(t, &original[0])), keysOf(t, text)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	var a, b map[string]any
	if err := json.Unmarshal(written(t, &original[0]), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(a)) {
		x, number := a[key].(float64)
		y, same := b[key].(float64)
		if number && same && math.Abs(x-y) > 1e-12*math.Abs(x) {
			t.Errorf("%s is %v, want %v", key, y, x)
		}
		if number != same && !slices.Contains([]string{"max_output_tokens_per_s", "rtfx"}, key) {
			t.Errorf("%s is %v, want %v", key, b[key], a[key])
		}
	}
	if b["date"] != a["date"] {
		t.Errorf("date %v", b["date"])
	}
}

// TestExportForeign: a request's mean gap, averaged over tokens, is not vLLM's
// tpot; the requests give it.
func TestExportForeign(t *testing.T) {
	var points []profile.Point
	for i, out := range []int{11, 101} {
		sent := float64(i)
		point := profile.Point{Kind: profile.KindRequest, Request: &profile.Request{InputLen: 8, OutputLen: out, Scheduled: sent, Sent: sent + 0.01, First: sent + 0.11, Last: sent + 1.11}}
		if err := format.KeepRun(&point, "a", nil); err != nil {
			t.Fatal(err)
		}
		points = append(points, point)
	}
	p := &profile.Profile{Points: points}
	run := format.Serving{Origin: "a", Started: "2026-11-21T00:49:08Z", Completed: new(2), Failed: new(1), TPOT: &format.Distribution{Mean: new(20.0), Over: format.OverTokens}}
	if err := format.KeepServings(&p.Header, "a", []format.Serving{run}); err != nil {
		t.Fatal(err)
	}
	results, err := vllmbench.FromProfile(p)
	if err != nil {
		t.Fatal(err)
	}
	s := results[0]
	near(t, "tpot", s.Statistic("tpot").Mean, (0.1+0.01)/2)
	near(t, "p99 of two", &s.Statistic("ttft").Percentiles[3].Seconds, 0.1)
	count(t, "prompts", s.NumPrompts, 3)
	if s.Statistic("itl") != nil || s.Details.ITLs != nil || s.Date != "20261121-004908" || math.Abs(s.Details.QueueTimes[0]-0.01) > 1e-12 {
		t.Errorf("%+v, date %q", s.Details, s.Date)
	}
	if results, err = vllmbench.FromProfile(&profile.Profile{Points: points}); err != nil || *results[0].Completed != 2 || results[0].Duration == nil {
		t.Errorf("requests without a run: %+v, %v", results, err)
	}
	if _, err = vllmbench.FromProfile(&profile.Profile{}); err == nil {
		t.Error("an empty profile is a run")
	}
}

func TestDetectServe(t *testing.T) {
	text, err := io.ReadAll(open(t, recordedServe))
	if err != nil {
		t.Fatal(err)
	}
	if !vllmbench.DetectServe(text[:5000]) || vllmbench.DetectServe([]byte(`{"avg_latency": 1, "latencies": [1]}`)) {
		t.Error("a result is not told from others")
	}
}

func ExampleWriteServe() {
	s := vllmbench.Serve{ModelID: "m", Unlimited: true, Completed: new(int64(1)), Statistics: []vllmbench.Statistic{{Metric: "ttft", Mean: new(0.0307)}}}
	var out strings.Builder
	if err := vllmbench.WriteServe(&out, &s); err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"model_id", "request_rate", "completed", "failed", "mean_ttft_ms"} {
		fmt.Println(regexp.MustCompile(`"` + key + `": [^,}]+`).FindString(out.String()))
	}
	// Output:
	// "model_id": "m"
	// "request_rate": "inf"
	// "completed": 1
	// "failed": null
	// "mean_ttft_ms": 30.7
}

// FuzzServe holds what was read to be written, read back equal, and turned
// into a valid profile.
func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"num_prompts":2,"completed":1,"duration":1,"request_throughput":1,"request_rate":"inf","mean_ttft_ms":3E-1,"p99.9_itl_ms":"5","output_lens":[1,2],"input_lens":[1,2],"ttfts":[0,1],"start_times":[1,2],"itls":[[],[1]],"request_goodput":{"a":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		vllmbench.DetectServe(text)
		limits := format.Limits{Bytes: 1 << 20, Values: 1 << 16}
		results, _, err := vllmbench.ReadServe("x", bytes.NewReader(text), limits)
		if err != nil {
			return
		}
		for i := range results {
			var out bytes.Buffer
			if err := vllmbench.WriteServe(&out, &results[i]); err != nil {
				t.Fatal(err)
			}
			back, _, err := vllmbench.ReadServe("x", &out, format.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			// Extra holds foreign texts, whose spelling may change.
			back[0].Origin, back[0].Extra = results[i].Origin, results[i].Extra
			if d := cmp.Diff(results[i], back[0]); d != "" {
				t.Error(d)
			}
		}
		p, _, err := vllmbench.ReadServeProfile("x", bytes.NewReader(text), limits)
		if err != nil {
			return
		}
		if err := p.Write("x", &bytes.Buffer{}); err != nil {
			t.Error(err)
		}
		if _, err := vllmbench.FromProfile(p); err != nil {
			t.Error(err)
		}
	})
}
