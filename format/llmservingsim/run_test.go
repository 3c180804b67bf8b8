package llmservingsim_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/llmservingsim"
	"github.com/llmprof/llmprof/profile"
)

// Two requests on two clocks: the second reached the engine at once, the first
// half a second after it was sent.
const (
	firstRequest  = `{"request_id":"bench-0","input_toks":2361,"output_toks":532,"arrival_time":1777142984.5,"queued_ts":1001.0,"scheduled_ts":1001.25,"first_token_ts":1002.0,"last_token_ts":1010.0}`
	secondRequest = `{"request_id":"bench-1","input_toks":7,"output_toks":1,"arrival_time":1777142985.0,"queued_ts":1001.0,"scheduled_ts":1001.25,"first_token_ts":1003.5,"last_token_ts":1003.5}`
	runMeta       = `{"schema_version":1,"model":"meta-llama/Llama-3.1-8B","vllm_version":"0.19.0","started_at":"2026-08-20T23:19:39Z",
		"engine_kwargs":{"model":"meta-llama/Llama-3.1-8B","tensor_parallel_size":2,"max_num_seqs":256,"max_num_batched_tokens":2048,"max_model_len":null,"dtype":"bfloat16","kv_cache_dtype":"auto"},
		"kv_cache":{"num_gpu_blocks":2588,"block_size":16,"gpu_memory_utilization":0.9,"num_kv_tokens":41408},"hardware":{"device_name":"NVIDIA GeForce RTX 4090"}}`
)

func TestReadRun(t *testing.T) {
	run := fstest.MapFS{"vllm/requests.jsonl": {Data: []byte(firstRequest + "\n" + secondRequest + "\n")}, "vllm/meta.json": {Data: []byte(runMeta)}}
	if !llmservingsim.IsRun(run) {
		t.Fatal("the folder is not taken for a run")
	}
	p, warnings, err := llmservingsim.ReadRun("bench", run, llmservingsim.Options{Device: func(name string) (string, bool) { return "rtx-4090", strings.Contains(name, "4090") }})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	c := p.Header.Deploy
	if c.Model != "meta-llama/Llama-3.1-8B" || c.Engine != "vllm" || c.EngineVersion != "0.19.0" || c.TensorParallel != 2 || c.MaxNumSeqs != 256 ||
		c.MaxNumBatchedTokens != 2048 || c.MaxModelLen != 0 || c.BlockSize != 16 || c.GPUMemoryUtilization != 0.9 || c.DType != "bf16" || p.Header.Device.Name != "rtx-4090" {
		t.Errorf("header: %+v", p.Header)
	}
	if !strings.Contains(string(p.Header.Metadata[llmservingsim.RunKey]), `"num_kv_tokens":41408`) {
		t.Error("meta.json is not kept")
	}
	want := []profile.Request{
		{ID: "bench-0", InputLen: 2361, OutputLen: 532, Scheduled: 0, Sent: 0.5, First: 1.5, Last: 9.5},
		{ID: "bench-1", InputLen: 7, OutputLen: 1, Scheduled: 0.5, Sent: 0.5, First: 3, Last: 3},
	}
	for i, w := range want {
		if got := *p.Points[i].Request; got != w {
			t.Errorf("got %+v, want %+v", got, w)
		}
	}
	if got := string(p.Points[0].Extra["scheduled_ts"]); got != "1001.25" {
		t.Errorf("scheduled_ts is kept as %q", got)
	}
	if m := p.Points[2].Memory; m == nil || m.Part != profile.MemoryKVCache || m.Blocks != 2588 || m.Tokens != 41408 || m.BlockSize != 16 {
		t.Errorf("KV cache: %+v", p.Points[2])
	}
	if !llmservingsim.DetectRequests([]byte(firstRequest)) || llmservingsim.DetectRequests([]byte(runMeta)) {
		t.Error("requests.jsonl is not told by its keys")
	}
}

func TestReadRequestsFaults(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"no rows", "[]", "line 1: want an object"},
		{"tokens that are none", strings.Replace(firstRequest, "2361", "-1", 1), "line 1.input_toks"},
		{"a token before the request", firstRequest + "\n" + strings.Replace(secondRequest, "1003.5", "1000", 1), "line 2: request: sent_s"},
		{"without times", `{"input_toks":1,"output_toks":1}`, "queued_ts"},
		{"a time that is none", strings.Replace(firstRequest, "1002.0", "NaN", 1), "not finite"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, _, err := llmservingsim.ReadRequests("x", strings.NewReader(c.text), format.Limits{})
			if _, ok := errors.AsType[*format.Error](err); !ok || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a fault of the file about %q", err, c.want)
			}
		})
	}
	if _, _, err := llmservingsim.ReadRun("x", fstest.MapFS{}, llmservingsim.Options{}); err == nil {
		t.Error("an empty folder is taken for a run")
	}
	run := fstest.MapFS{"requests.jsonl": {Data: []byte(firstRequest)}, "meta.json": {Data: []byte(`{"engine_kwargs":{"max_num_seqs":-5}}`)}}
	if _, _, err := llmservingsim.ReadRun("x", run, llmservingsim.Options{}); err == nil || !strings.Contains(err.Error(), "max_num_seqs") {
		t.Errorf("-5 seats: got %v", err)
	}
}

const hardware = `hardware: RTXPRO6000
spec:
  gpu_name: NVIDIA RTX PRO 6000 Blackwell Server Edition
measured:
  at: '2026-09-08T17:59:31+00:00'
  interconnect:
    npus: 2
    collectives:
    - all_reduce
    samples:
    - collective: all_reduce
      bytes: 10240
      us: 25.0
      us_graphed: 16.24
      repeats_us:
      - 12.5
      - bytes: 7
    - collective: all_gather
      bytes: 1048576
      us: 84.1
    fit:
      bytes: 5
`

func TestReadHardware(t *testing.T) {
	if !llmservingsim.DetectHardware([]byte(hardware)) || llmservingsim.DetectHardware([]byte("hardware: x\nmodel: y\n")) {
		t.Error("hardware.yaml is not told by its text")
	}
	p, _, err := llmservingsim.ReadHardware("hardware.yaml", strings.NewReader(hardware), llmservingsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Header.Device.Reported != "NVIDIA RTX PRO 6000 Blackwell Server Edition" || p.Header.Deploy.TensorParallel != 2 || len(p.Points) != 2 {
		t.Fatalf("got %+v", p)
	}
	for i, want := range []struct {
		layer  profile.Layer
		us     float64
		origin string
	}{
		{profile.Layer{Name: "all_reduce", MessageBytes: 10240, TensorParallel: 2}, 16.24, "hardware.yaml: line 11"},
		{profile.Layer{Name: "all_gather", MessageBytes: 1 << 20, TensorParallel: 2}, 84.1, "hardware.yaml: line 18"},
	} {
		got := p.Points[i]
		if *got.Layer != want.layer || math.Abs(got.Samples[0]*1e6-want.us) > 1e-9 || got.Origin != want.origin || got.Validate() != nil {
			t.Errorf("got %+v %v %s, want %+v", *got.Layer, got.Samples, got.Origin, want)
		}
	}
	for _, c := range []struct{ why, old, text, want string }{
		{"one device has no link", "npus: 2", "npus: 1", "npus"},
		{"a size that is none", "10240", "ten", "line 11: bytes"},
		{"a time that is none", "84.1", "-1", "line 18: us"},
		{"no name", "collective: all_reduce", "x: y", "line 11: collective"},
		{"no samples", "samples:", "other:", "no times"},
	} {
		_, _, err := llmservingsim.ReadHardware("x", strings.NewReader(strings.Replace(hardware, c.old, c.text, 1)), llmservingsim.Options{})
		if _, ok := errors.AsType[*format.Error](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a fault about %q", c.why, err, c.want)
		}
	}
}

// checkPoints holds what a reader gives to the rules of a profile.
func checkPoints(t *testing.T, p *profile.Profile, err error) {
	if err != nil {
		if _, ok := errors.AsType[*format.Error](err); !ok {
			t.Errorf("the fault has no place: %v", err)
		}
		return
	}
	for i := range p.Points {
		if err := p.Points[i].Validate(); err != nil {
			t.Errorf("point %d: %v", i, err)
		}
		if q := p.Points[i].Request; q != nil && (q.Scheduled < 0 || q.Scheduled > q.Sent) {
			t.Errorf("request due at %v and taken in at %v", q.Scheduled, q.Sent)
		}
	}
}

func FuzzReadRun(f *testing.F) {
	f.Add(firstRequest+"\n"+secondRequest, runMeta)
	f.Add(firstRequest, "{}")
	f.Add("[]", "[1]")
	f.Fuzz(func(t *testing.T, requests, meta string) {
		run := fstest.MapFS{"requests.jsonl": {Data: []byte(requests)}, "meta.json": {Data: []byte(meta)}}
		p, _, err := llmservingsim.ReadRun("x", run, llmservingsim.Options{Limits: format.Limits{Bytes: 1 << 20}})
		checkPoints(t, p, err)
	})
}

func FuzzReadHardware(f *testing.F) {
	f.Add(hardware)
	f.Add("hardware: x\nmeasured:\n interconnect:\n  npus: 2\n  samples:\n  - collective: a\n    bytes: 1e3\n    us: 1e-3")
	f.Fuzz(func(t *testing.T, text string) {
		p, _, err := llmservingsim.ReadHardware("x", strings.NewReader(text), llmservingsim.Options{})
		checkPoints(t, p, err)
	})
}

// What is not of a bundle's files has no place in one that is written.
func TestWriteLeavesMessagesOut(t *testing.T) {
	p, _, err := llmservingsim.ReadHardware("hardware.yaml", strings.NewReader(hardware), llmservingsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.Points = append(p.Points, profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "qkv_proj", Tokens: 1, TensorParallel: 2}, Samples: []float64{1e-5}})
	d := write(t, p, llmservingsim.WriteOptions{})
	for name, f := range d {
		if strings.HasSuffix(name, ".csv") && strings.Contains(string(f.Data), "all_") {
			t.Errorf("%s holds a collective: %s", name, f.Data)
		}
	}
	if _, ok := d["tp2/dense.csv"]; !ok {
		t.Errorf("no tp2/dense.csv among %d files", len(d))
	}
}
