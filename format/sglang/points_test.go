package sglang_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/sglang"
	"github.com/llmprof/llmprof/profile"
)

func imported(t *testing.T, text string) (*profile.Profile, []format.Serving, string) {
	t.Helper()
	p, warnings, err := sglang.ReadServingProfile("x", strings.NewReader(text), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := format.KeptServings(&p.Header)
	if err != nil {
		t.Fatal(err)
	}
	return p, runs, fmt.Sprint(warnings)
}

// TestServingWords: SGLang's itl is the gap of two chunks, and its output
// tokens are those that came back, where they were counted.
func TestServingWords(t *testing.T) {
	_, runs, said := imported(t, read(t, "bench-serving.synthetic.jsonl"))
	if len(runs) != 2 || said != "[]" {
		t.Fatalf("%d runs, %s", len(runs), said)
	}
	s := runs[0]
	if !s.Unlimited || s.RequestRate != nil || runs[1].Unlimited || *runs[1].RequestRate != 4 {
		t.Errorf("rates %v and %v", s.RequestRate, runs[1].RequestRate)
	}
	if *s.TTFT.Mean != 91.4 || *s.TTFT.P50 != 84 || *s.TPOT.P99 != 12 || *s.ICL.P95 != 13.9 || s.ICL.Over != format.OverChunks || *s.E2EL.Std != 41.2 || s.ITL != nil {
		t.Errorf("%+v", s)
	}
	if *s.OutputTokens != 12788 || *s.TotalThroughput != 6400 || *s.Concurrency != 15.2 {
		t.Errorf("%+v", s)
	}
}

const detailed = `{"backend":"sglang","duration":2,"completed":2,"mean_e2e_latency_ms":125,"mean_ttft_ms":900,"mean_queue_ms":3,"concurrency":null,
	"input_lens":[3,4,5],"output_lens":[3,1,0],"ttfts":[0.1,0.12,0],"itls":[[0.01,0.02],[],[]],"errors":["","","reset"]}`

func TestServingPoints(t *testing.T) {
	p, runs, said := imported(t, detailed)
	if len(p.Points) != 2 {
		t.Fatalf("%d points", len(p.Points))
	}
	r := p.Points[0].Request
	if r.InputLen != 3 || r.Sent != 0 || r.First != 0.1 || math.Abs(r.Last-0.13) > 1e-12 || !strings.Contains(p.Points[0].Warnings[0], "is not recorded") {
		t.Errorf("%+v, %v", r, p.Points[0].Warnings)
	}
	if run, gaps := format.KeptRun(&p.Points[0]); run != runs[0].Origin || len(gaps) != 2 {
		t.Errorf("run %q, gaps %v", run, gaps)
	}
	for _, want := range []string{"1 of 3 requests left out", "ttft has a mean of 900 ms, but that of the requests is 110 ms", "mean_queue_ms"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %s", want, said)
		}
	}
	if runs[0].Concurrency != nil {
		t.Error("a concurrency of null")
	}
	_, _, err := sglang.ReadServingProfile("x", strings.NewReader(strings.Replace(detailed, "[3,1,0]", "[3,1]", 1)), format.Limits{})
	if err == nil || !strings.Contains(err.Error(), "want as many of each") {
		t.Errorf("lists of different length: %v", err)
	}
}

func TestDetectServing(t *testing.T) {
	if !sglang.DetectServing([]byte(read(t, "bench-serving.synthetic.jsonl"))) || sglang.DetectServing([]byte(`{"backend":"vllm","duration":1,"num_prompts":2}`)) {
		t.Error("a result is not told from vLLM's")
	}
}

func ExampleReadServingProfile() {
	p, _, err := sglang.ReadServingProfile("x.jsonl", strings.NewReader(`{"backend":"sglang","duration":10,"completed":100,"mean_itl_ms":11.25}`), format.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	runs, err := format.KeptServings(&p.Header)
	fmt.Printf("ICL %g ms over %s, %v\n", *runs[0].ICL.Mean, runs[0].ICL.Over, err)
	// Output: ICL 11.25 ms over chunks, <nil>
}

// FuzzServingProfile holds the reader to end with a profile of valid points
// that can be written, or an error that names the file.
func FuzzServingProfile(f *testing.F) {
	f.Add([]byte(detailed))
	f.Add([]byte(`{"backend":"sglang","duration":Infinity,"request_throughput":Infinity,"p999_itl_ms":1,"max_itl_ms":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		sglang.DetectServing(text)
		p, _, err := sglang.ReadServingProfile("x", bytes.NewReader(text), format.Limits{Bytes: 1 << 20, Values: 1 << 16})
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
