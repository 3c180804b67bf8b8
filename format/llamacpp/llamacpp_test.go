package llamacpp_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/llamacpp"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t *testing.T, name string, text []byte) (*profile.Profile, []error) {
	t.Helper()
	p, warnings, err := llamacpp.Read(name, bytes.NewReader(text), llamacpp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Points {
		if err := p.Points[i].Validate(); err != nil {
			t.Errorf("point %d: %v", i, err)
		}
	}
	return p, warnings
}

// steps are the points of the newer fixtures without their times.
func steps() []profile.Step {
	return []profile.Step{
		{Mode: profile.Prefill, BatchSize: 1, InputLen: 128, Pass: forward.Prefill(1, 128, 0)},
		{Mode: profile.Prefill, BatchSize: 1, InputLen: 512, Pass: forward.Prefill(1, 512, 0)},
		{Mode: profile.Decode, BatchSize: 1, InputLen: 0, OutputLen: 64, Pass: forward.Decode(1, 32)},
		{Mode: profile.Decode, BatchSize: 1, InputLen: 1024, OutputLen: 64, Pass: forward.Decode(1, 1056)},
	}
}

func TestReadFixtures(t *testing.T) {
	want := profile.Header{
		Schema: profile.Schema, Version: profile.Version,
		Device: profile.Device{Reported: "Example CPU", Count: 1},
		Deploy: deploy.Config{Model: "tiny.gguf", Engine: "llama.cpp", EngineVersion: "b7200", DType: catalog.FP16, KVCacheDType: catalog.FP16},
	}
	var first *profile.Profile
	for _, name := range []string{"llama-bench.synthetic.json", "llama-bench.synthetic.jsonl", "llama-bench.synthetic.csv"} {
		t.Run(name, func(t *testing.T) {
			p, warnings := read(t, name, fixture(t, name))
			if len(warnings) > 0 {
				t.Errorf("warnings %q", warnings)
			}
			want.Source = name
			if d := cmp.Diff(want, p.Header, cmpopts.IgnoreFields(profile.Header{}, "Metadata")); d != "" {
				t.Error(d)
			}
			var got []profile.Step
			for _, point := range p.Points {
				got = append(got, *point.Step)
				if point.Clock != profile.ClockWall || string(point.Extra["test_time"]) != `"2026-01-05T10:15:00Z"` || len(point.Extra) != 1 {
					t.Errorf("clock %s, extra %s", point.Clock, point.Extra)
				}
			}
			if d := cmp.Diff(steps(), got); d != "" {
				t.Error(d)
			}
			if first == nil {
				first = p
				return
			}
			if d := cmp.Diff(first.Header.Metadata, p.Header.Metadata, cmp.Transformer("text", func(b []byte) string { return strings.Trim(string(b), `"`) })); d != "" && !strings.HasSuffix(name, "csv") {
				t.Errorf("metadata differ between the outputs: %s", d)
			}
			for i, point := range p.Points {
				a, _ := first.Points[i].Mean()
				b, ok := point.Mean()
				if !ok || math.Abs(float64(a-b)) > 1e-12 {
					t.Errorf("point %d takes %g here, %g there", i, b, a)
				}
			}
		})
	}
}

func TestTimes(t *testing.T) {
	p, _ := read(t, "x.json", fixture(t, "llama-bench.synthetic.json"))
	prefill, decode := p.Points[0], p.Points[3]
	if d := cmp.Diff([]float64{0.029374473, 0.029013833, 0.02871387, 0.029148621, 0.028700439}, prefill.Samples, cmpopts.EquateApprox(1e-12, 0)); d != "" {
		t.Errorf("prefill: %s", d)
	}
	if got, want := decode.Samples[0], 0.112577595/64; math.Abs(got-want) > 1e-15 {
		t.Errorf("a decode step takes %g s, want the run's time for 64 tokens by 64: %g s", got, want)
	}
	if s := decode.Summary; math.Abs(s.Mean-0.111925122/64) > 1e-12 || s.Runs != 5 || math.Abs(s.Std-768362e-9/64*math.Sqrt(4./5)) > 1e-12 {
		t.Errorf("summary %+v", s)
	}
	csv, _ := read(t, "x.csv", fixture(t, "llama-bench.synthetic.csv"))
	if point := csv.Points[3]; point.Samples != nil || point.Summary.Runs != 0 || math.Abs(point.Summary.Std-768362e-9/64) > 1e-12 {
		t.Errorf("from CSV: samples %v, summary %+v", point.Samples, point.Summary)
	}
	if at := csv.Points[3].Origin; at != "x.csv: line 5" {
		t.Errorf("origin %q", at)
	}
}

// TestOld reads a build without depths, whose flash_attn is a boolean.
func TestOld(t *testing.T) {
	p, warnings := read(t, "old.json", fixture(t, "llama-bench-old.synthetic.json"))
	if len(warnings) > 0 || len(p.Points) != 2 {
		t.Fatalf("%d points, warnings %q", len(p.Points), warnings)
	}
	if d := cmp.Diff(forward.Decode(1, 32), p.Points[1].Step.Pass); d != "" {
		t.Error(d)
	}
	if got := string(p.Header.Metadata["flash_attn"]); got != "false" {
		t.Errorf("flash_attn %s", got)
	}
}

// one is a record whose parts the cases below replace.
const one = `{"build_commit":"ab12","build_number":7200,"cpu_info":"C","gpu_info":"","model_filename":"m.gguf","model_type":"llama 8B Q4_K - Medium","n_threads":4,"type_k":"q8_0","type_v":"f16","n_gpu_layers":99,"n_prompt":512,"n_gen":0,"n_depth":0,"avg_ns":1000000,"stddev_ns":0,"avg_ts":512000,"samples_ns":[1000000],"samples_ts":[512000]}` + "\n"

func with(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(one) }

func TestHeader(t *testing.T) {
	device := func(reported string) (string, bool) { return "rtx-4090", reported == "NVIDIA GeForce RTX 4090" }
	for _, c := range []struct {
		why, text string
		device    profile.Device
		deploy    deploy.Config
	}{
		{
			"a quantised model on the processor", one,
			profile.Device{Reported: "C", Count: 1},
			deploy.Config{Model: "m.gguf", Engine: "llama.cpp", EngineVersion: "b7200", DType: catalog.FP16, Quantization: "q4_k"},
		},
		{
			"two equal GPUs", with(`"gpu_info":""`, `"gpu_info":"NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090"`),
			profile.Device{Name: "rtx-4090", Reported: "NVIDIA GeForce RTX 4090", Count: 2},
			deploy.Config{Model: "m.gguf", Device: "rtx-4090", Engine: "llama.cpp", EngineVersion: "b7200", DType: catalog.FP16, Quantization: "q4_k"},
		},
		{
			"a GPU that no layer is on", with(`"gpu_info":""`, `"gpu_info":"G"`, `"n_gpu_layers":99`, `"n_gpu_layers":0`),
			profile.Device{Reported: "C", Count: 1},
			deploy.Config{Model: "m.gguf", Engine: "llama.cpp", EngineVersion: "b7200", DType: catalog.FP16, Quantization: "q4_k"},
		},
		{
			"formats that are not known are left open", with(`"llama 8B Q4_K - Medium"`, `"llama ?B MXFP9"`, `"type_v":"f16"`, `"type_v":"q8_0"`, `"build_number":7200,`, ""),
			profile.Device{Reported: "C", Count: 1},
			deploy.Config{Model: "m.gguf", Engine: "llama.cpp"},
		},
		{
			"formats of the catalog", with(`"llama 8B Q4_K - Medium"`, `"qwen3 4B BF16"`, `"type_k":"q8_0"`, `"type_k":"f16"`),
			profile.Device{Reported: "C", Count: 1},
			deploy.Config{Model: "m.gguf", Engine: "llama.cpp", EngineVersion: "b7200", DType: catalog.BF16, KVCacheDType: catalog.FP16},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, _, err := llamacpp.Read("x", strings.NewReader(c.text), llamacpp.Options{Device: device})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.device, p.Header.Device); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.deploy, p.Header.Deploy); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"the rate does not follow from the time", with(`"avg_ts":512000`, `"avg_ts":600000`), "x: line 1.avg_ts: is 600000 tokens/s, but 512 tokens in 1e+06 ns are 512000 tokens/s"},
		{"the mean is not that of the samples", with(`"samples_ns":[1000000]`, `"samples_ns":[1000000,1100000]`), "avg_ns: is 1e+06 ns, but the mean of its 2 samples is 1.05e+06 ns"},
		{"a combined test", one + with(`"n_gen":0`, `"n_gen":128`), "line 2: left out: a combined test of 512 prompt and 128 generated tokens"},
		{"a cut-off last line", one + one[:90], "ends"},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, warnings := read(t, "x", []byte(c.text))
			if len(p.Points) != 1 || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), c.want) {
				t.Errorf("%d points, warnings %q, want %q", len(p.Points), warnings, c.want)
			}
		})
	}
	if _, warnings := read(t, "x", []byte(with(`"avg_ts":512000`, `"avg_ts":515000`, `"n_depth":0`, `"n_depth":0,"fresh":{"a":[1]}`))); len(warnings) > 0 {
		t.Errorf("a mean of rates may differ a little: %q", warnings)
	}
	p, _ := read(t, "x", []byte(with(`"n_depth":0`, `"n_depth":4096,"fresh":{"a":[1]}`)))
	if got := string(p.Points[0].Extra["fresh"]); got != `{"a":[1]}` {
		t.Errorf("an unknown key is not kept: %s", got)
	}
	if d := cmp.Diff(forward.Prefill(1, 512, 4096), p.Points[0].Step.Pass); d != "" {
		t.Errorf("a prompt on top of a depth: %s", d)
	}
}

func TestBroken(t *testing.T) {
	table := string(fixture(t, "llama-bench.synthetic.csv"))
	for _, c := range []struct{ why, text, want string }{
		{"empty", "", "x: "},
		{"another JSON", `{"a":1}`, "line 1: neither n_prompt nor n_gen"},
		{"a list of numbers", `[1]`, "[0]: want a test as an object"},
		{"no tests", `[]`, "holds no test"},
		{"only combined tests", with(`"n_gen":0`, `"n_gen":1`), "holds no test"},
		{"no time", with(`"avg_ns":1000000,`, ""), "avg_ns: missing"},
		{"a time of 0", with(`"avg_ns":1000000`, `"avg_ns":0`), "line 1.avg_ns: want a positive number"},
		{"a time that is none", with(`"avg_ns":1000000`, `"avg_ns":NaN`), "avg_ns: want a positive number"},
		{"a sample of 0", with(`[1000000]`, `[1000000,0]`), "samples_ns[1]: want a positive number"},
		{"samples that are no list", with(`[1000000]`, `7`), "samples_ns: want a list"},
		{"a negative deviation", with(`"stddev_ns":0`, `"stddev_ns":-1`), "stddev_ns: want 0 or more"},
		{"half a token", with(`"n_prompt":512`, `"n_prompt":0.5`), "n_prompt: "},
		{"a negative depth", with(`"n_depth":0`, `"n_depth":-1`), "n_depth: "},
		{"a name that is none", with(`"m.gguf"`, `{}`), "model_filename: "},
		{"cut off in the array", "[" + one + "," + one[:40], "x: "},
		{"another table", "a,b\n1,2\n", "line 1: is no table of llama-bench"},
		{"a table without rows", table[:strings.Index(table, "\n")], "without rows"},
		{"a row that is too short", table + `"a","b"` + "\n", "line 6: wrong number of fields"},
		{"a column twice", "n_prompt," + table, `line 1: column "n_prompt" stands twice`},
		{"an open quote", table + `"a`, "line 6"},
		{"text for a number", strings.Replace(table, `"28990247"`, `"soon"`, 1), "line 2.avg_ns: want a positive number"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, _, err := llamacpp.Read("x", strings.NewReader(c.text), llamacpp.Options{})
			if bad := new(format.Error); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want a format.Error with %q", err, c.want)
			}
		})
	}
}

// TestConditions splits a sweep into profiles.
func TestConditions(t *testing.T) {
	text := one + with(`"n_threads":4`, `"n_threads":8`) + with(`"n_prompt":512`, `"n_prompt":256`, `"avg_ts":512000`, `"avg_ts":256000`)
	profiles, warnings, err := llamacpp.ReadAll("x", strings.NewReader(text), llamacpp.Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	var got []string
	for _, p := range profiles {
		got = append(got, fmt.Sprintf("%s threads: %d points", p.Header.Metadata["n_threads"], len(p.Points)))
	}
	if want := []string{"4 threads: 2 points", "8 threads: 1 points"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	_, _, err = llamacpp.Read("x", strings.NewReader(text), llamacpp.Options{})
	mixed, ok := errors.AsType[*llamacpp.MixedError](err)
	if !ok || !slices.Equal(mixed.Differ, []string{"n_threads"}) || mixed.Hint() == "" || !strings.HasPrefix(err.Error(), "x: ") {
		t.Errorf("error %v", err)
	}
}

func zipped(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(text)
	w.Close()
	return b.Bytes()
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		why  string
		head []byte
		want bool
	}{
		{"JSON", fixture(t, "llama-bench.synthetic.json"), true},
		{"JSON Lines", fixture(t, "llama-bench.synthetic.jsonl"), true},
		{"CSV", fixture(t, "llama-bench.synthetic.csv"), true},
		{"an old build", fixture(t, "llama-bench-old.synthetic.json"), true},
		{"gzip", zipped(fixture(t, "llama-bench.synthetic.csv")), true},
		{"the first bytes", fixture(t, "llama-bench.synthetic.json")[:800], true},
		{"a mark before it", append([]byte("\ufeff"), one...), true},
		{"a reply of llama-server", fixture(t, "llama-server-completion.synthetic.json"), false},
		{"a benchmark of another tool", []byte(`{"batch_size":1,"input_len":2,"prefill_latency":1}`), false},
		{"another table", []byte("a,b\n1,2\n"), false},
		{"nothing", nil, false},
	} {
		if got := llamacpp.Detect(c.head); got != c.want {
			t.Errorf("%s: %t", c.why, got)
		}
	}
	p, _ := read(t, "x.gz", zipped(fixture(t, "llama-bench.synthetic.csv")))
	if len(p.Points) != 4 {
		t.Errorf("%d points of a gzip file", len(p.Points))
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"llama-bench.synthetic.json", "llama-bench.synthetic.jsonl", "llama-bench.synthetic.csv", "llama-bench-old.synthetic.json"} {
		f.Add(fixture(f, name))
	}
	f.Add([]byte(one))
	f.Add([]byte("n_prompt,avg_ns\n1,\"2\"\n\n\"3\",4e9"))
	f.Fuzz(func(t *testing.T, b []byte) {
		llamacpp.Detect(b)
		profiles, _, err := llamacpp.ReadAll("x", bytes.NewReader(b), llamacpp.Options{})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x: ") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		for _, p := range profiles {
			if len(p.Points) == 0 {
				t.Error("a profile without points")
			}
			if err := p.Write("x", &bytes.Buffer{}); err != nil {
				t.Errorf("cannot be written: %v", err)
			}
		}
	})
}
