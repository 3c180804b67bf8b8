package sglang_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/sglang"
	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/profile"
)

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBench(t *testing.T) {
	var bench sglang.Bench
	var rows []sglang.Row
	for line := range strings.Lines(read(t, "bench-one-batch.synthetic.stdout.txt")) {
		if row, ok := bench.Line(line); ok {
			rows = append(rows, row)
		}
	}
	if bench.MaxTokens != 443842 || len(rows) != 9 {
		t.Fatalf("%d tokens, %d rows", bench.MaxTokens, len(rows))
	}
	if r := rows[0]; r.Prefill != 0.01069 || r.Decode != 0 || r.Total != 0.011 || len(r.Steps) != 0 {
		t.Errorf("an output of one token: %+v", r)
	}
	if r := rows[7]; r.Prefill != 0.18003 || r.Decode != 0.00721 || r.Total != 0.288 || len(r.Steps) != 5 || r.BatchSize != 8 {
		t.Errorf("the last row: %+v", r)
	}
	if r := rows[8]; !r.Skipped || r.BatchSize != 512 || r.InputLen != 1024 || r.OutputLen != 16 {
		t.Errorf("the skipped row: %+v", r)
	}
	// The result file has the same figures, unrounded, for its own reader.
	p, _, err := stepbench.Read("out.jsonl", strings.NewReader(read(t, "bench-one-batch.synthetic.jsonl")), stepbench.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var prefill []float64
	for _, point := range p.Points {
		if point.Step.Mode == profile.Prefill {
			mean, _ := point.Mean()
			prefill = append(prefill, float64(mean))
		}
	}
	for i, want := range prefill {
		if math.Abs(rows[i].Prefill-want) > rows[i].Printed {
			t.Errorf("row %d: printed %g, in the file %g", i, rows[i].Prefill, want)
		}
	}
}

func TestBenchOlder(t *testing.T) {
	var bench sglang.Bench
	got := ""
	for _, line := range []string{
		"Total. latency:  1.700 s, throughput:     84.71 token/s", // before the measurement
		"Benchmark ...\r",
		"Total. latency:  1.700 s, throughput:     84.71 token/s", // without a prefill
		"Prefill. latency: 0.5 s, throughput: 1 token/s",
		"something foreign",
		"Decode.  latency: 0.00681 s, throughput:    146.74 token/s",
		"Decode 3.  latency: 0.00700 s, throughput:    146.74 token/s",
		"Total. latency:  0.6 s, throughput:     84.71 token/s",
		"skipping (99999999999999999999, 1, 1) due to max batch size limit",
	} {
		if row, ok := bench.Line(line); ok {
			got += fmt.Sprintf("%g %g %v %d;", row.Prefill, row.Total, row.Steps, row.BatchSize)
		}
	}
	if want := "0.5 0.6 [0.007] 0;"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestServing(t *testing.T) {
	all, warnings, err := sglang.ReadServing("x", strings.NewReader(read(t, "bench-serving.synthetic.jsonl")), format.Limits{})
	if err != nil || len(warnings) > 0 || len(all) != 2 {
		t.Fatal(len(all), warnings, err)
	}
	s := all[0]
	if !math.IsInf(*s.RequestRate, 1) || *s.MaxConcurrency != 16 || *s.Duration != 10 || *s.Completed != 100 || *s.TotalOutputRetokenized != 12788 ||
		s.LatencyMs["mean_ttft_ms"] != 91.4 || s.LatencyMs["p99_e2e_latency_ms"] != 1611 || s.Raw["sharegpt_output_len"] != nil && string(s.Raw["sharegpt_output_len"]) != "null" {
		t.Errorf("%+v", s)
	}
	if *all[1].RequestRate != 4 || *all[1].InputThroughput != 2000 {
		t.Errorf("%+v", all[1])
	}
	detailed := `{"backend":"sglang","duration":2,"output_throughput":9,"total_output_tokens":30,"input_lens":[3],"output_lens":[4],"ttfts":[0.1],"itls":[[0.01,0.02]],"new":{"a":1}}`
	all, warnings, err = sglang.ReadServing("x", strings.NewReader(detailed), format.Limits{})
	if err != nil || all[0].ITLs[0][1] != 0.02 || all[0].RequestRate != nil || all[0].Raw["new"] == nil {
		t.Errorf("%+v, %v", all, err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "18 tokens, total_output_tokens 30") {
		t.Errorf("warnings %v", warnings)
	}
}

func TestServingBroken(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "empty"},
		{`{"backend":"sglang"}`, "backend and duration"},
		{`[]`, "no result"},
		{`{"backend":"sglang","duration":"long"}`, "duration"},
		{`{"backend":"sglang","duration":-1}`, "duration"},
		{`{"backend":"sglang","duration":1,"completed":1.5}`, "completed"},
		{`{"backend":"sglang","duration":1,"ttfts":[NaN]}`, "ttfts[0]"},
		{`{"backend":7,"duration":1}`, "backend"},
	} {
		if _, _, err := sglang.ReadServing("x", strings.NewReader(c.text), format.Limits{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.text, err, c.want)
		}
	}
}

func TestLog(t *testing.T) {
	text := read(t, "startup.synthetic.log")
	p, warnings, err := sglang.ReadLog("s.log", strings.NewReader(text))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "4 batch lines") {
		t.Fatal(warnings, err)
	}
	got := map[string]profile.Memory{}
	for _, point := range p.Points {
		got[point.Memory.Part] = *point.Memory
	}
	near := func(bytes int64, gib float64) bool { return math.Abs(float64(bytes)/(1<<30)-gib) < 1e-9 }
	if kv := got[profile.MemoryKVCache]; kv.Tokens != 443842 || !near(kv.Bytes, 54.18) {
		t.Errorf("KV cache %+v", kv)
	}
	if !near(got[profile.MemoryWeights].Bytes, 14.96) || !near(got[profile.MemoryFree].Bytes, 8.92) {
		t.Errorf("weights %+v, free %+v", got[profile.MemoryWeights], got[profile.MemoryFree])
	}
	if !sglang.Detect([]byte(text)) || sglang.Detect([]byte("INFO 01-01 00:00:00 [x.py:1] KV cache")) {
		t.Error("a log is not told from others")
	}
	if _, _, err := sglang.ReadLog("s.log", strings.NewReader("nothing\n")); err == nil {
		t.Error("a text without a line of a log is accepted")
	}
}

func TestParseBatch(t *testing.T) {
	lines := strings.Split(read(t, "startup.synthetic.log"), "\n")
	prefill, ok := sglang.ParseBatch("\x1b[32m" + lines[7] + "\x1b[0m\r")
	if tokens, found := prefill.Number("#new-token"); !ok || !prefill.Prefill || !found || tokens != 4096 {
		t.Errorf("%+v", prefill)
	}
	decode, ok := sglang.ParseBatch(lines[8])
	if usage, found := decode.Number("token usage", "full token usage"); !ok || decode.Prefill || !found || usage != 0.02 {
		t.Errorf("%+v", decode)
	}
	if rate, found := decode.Number("gen throughput (token/s)"); !found || rate != 150 {
		t.Errorf("%+v", decode)
	}
	if _, ok := sglang.ParseBatch(lines[1]); ok {
		t.Error("a line of the start is taken for a batch")
	}
}

func FuzzLog(f *testing.F) {
	f.Add(read(f, "startup.synthetic.log"))
	f.Fuzz(func(t *testing.T, text string) {
		p, _, err := sglang.ReadLog("x", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, point := range p.Points {
			if err := point.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzBench(f *testing.F) {
	f.Add(read(f, "bench-one-batch.synthetic.stdout.txt"))
	f.Fuzz(func(t *testing.T, text string) {
		var bench sglang.Bench
		for line := range strings.Lines(text) {
			if row, ok := bench.Line(line); ok && (row.Prefill < 0 || row.Decode < 0) {
				t.Fatalf("%+v", row)
			}
		}
	})
}

func FuzzServing(f *testing.F) {
	f.Add(read(f, "bench-serving.synthetic.jsonl"))
	f.Fuzz(func(_ *testing.T, text string) {
		_, _, _ = sglang.ReadServing("x", strings.NewReader(text), format.Limits{})
	})
}

func ExampleBench() {
	var bench sglang.Bench
	for _, line := range []string{
		"Benchmark ...",
		"Prefill. latency: 0.02950 s, throughput:   4338.98 token/s",
		"Decode.  median latency: 0.00600 s, median throughput:   1333.33 token/s",
		"Total. latency:  0.120 s, throughput:   9600.00 token/s",
	} {
		if row, ok := bench.Line(line); ok {
			fmt.Println(row.Prefill, row.Decode)
		}
	}
	// Output: 0.0295 0.006
}
