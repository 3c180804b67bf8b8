package stepbench_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

const fixture = "benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json.gz"

func read(t testing.TB, name string) (*profile.Profile, []error) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, warnings, err := stepbench.Read(name, f, stepbench.Options{Device: func(reported string) (string, bool) {
		return "a100-sxm-80gb", reported == "NVIDIA A100-SXM4-80GB"
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p, warnings
}

// find returns the step of one mode and configuration.
func find(t *testing.T, p *profile.Profile, mode string, batch, input int) profile.Point {
	t.Helper()
	for _, point := range p.Points {
		if s := point.Step; point.Kind == profile.KindStep && s.Mode == mode && s.BatchSize == batch && s.InputLen == input {
			return point
		}
	}
	t.Fatalf("no %s of batch %d, input %d", mode, batch, input)
	return profile.Point{}
}

func TestFixtureCounts(t *testing.T) {
	p, warnings := read(t, fixture)
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	counts := map[string]int{}
	runs := 0
	for _, point := range p.Points {
		if point.Kind == profile.KindFailure {
			counts["failure: "+point.Reason]++
			continue
		}
		counts[point.Step.Mode]++
		if point.Step.Mode == profile.Prefill {
			runs += len(point.Samples)
		}
		if err := point.Validate(); err != nil {
			t.Error(err)
		}
	}
	for key, want := range map[string]int{profile.Prefill: 94, profile.Decode: 94, "failure: oom": 8, "failure: skipped_due_to_limits": 3} {
		if counts[key] != want {
			t.Errorf("%s: %d, want %d", key, counts[key], want)
		}
	}
	if runs != 282 {
		t.Errorf("%d runs, want 282", runs)
	}
	h := p.Header
	if h.Device != (profile.Device{Name: "a100-sxm-80gb", Reported: "NVIDIA A100-SXM4-80GB", Count: 1}) {
		t.Errorf("device %+v", h.Device)
	}
	if h.Deploy.Model != "Qwen/Qwen3-4B" || h.Deploy.TensorParallel != 1 || h.Deploy.PipelineParallel != 1 {
		t.Errorf("deploy %+v", h.Deploy)
	}
	if got := string(h.Metadata["batch_sizes_tested"]); got != "[1,2,4,8,16,32,64]" {
		t.Errorf("metadata batch_sizes_tested is %s", got)
	}
}

func TestFixtureValues(t *testing.T) {
	p, _ := read(t, fixture)
	for _, c := range []struct {
		batch, input    int
		prefill, decode float64 // ms, means of the file
	}{{4, 512, 74.264, 8.184}, {8, 1024, 276.236, 8.360}, {64, 512, 1066.746, 12.378}} {
		for mode, want := range map[string]float64{profile.Prefill: c.prefill, profile.Decode: c.decode} {
			mean, ok := find(t, p, mode, c.batch, c.input).Mean()
			if !ok || math.Abs(mean.Milliseconds()-want) > 5e-4 {
				t.Errorf("%s (%d,%d): mean %v, want %g ms", mode, c.batch, c.input, mean, want)
			}
		}
	}
	first := find(t, p, profile.Prefill, 1, 1)
	mean, _ := first.Mean()
	median, _ := first.Median()
	std := stat.StdDev(first.Samples)
	for what, c := range map[string][2]float64{
		"mean":               {mean.Milliseconds(), 37.927},
		"median":             {median.Milliseconds(), 11.442},
		"std of the runs":    {std * 1e3, 37.673},
		"std as the summary": {first.Summary.Std * 1e3, 37.673},
	} {
		if math.Abs(c[0]-c[1]) > 5e-4 {
			t.Errorf("(1,1): %s %.4f ms, want %g", what, c[0], c[1])
		}
	}
	if got := string(find(t, p, profile.Prefill, 4, 512).Extra["predicted_kv_usage_in_gb"]); got != "0.298828125" {
		t.Errorf("(4,512): KV %s GiB, want 0.298828125", got)
	}
	decode := find(t, p, profile.Decode, 4, 512)
	if got := decode.Step.Pass.MeanDecodeContext(); got != 512+16 {
		t.Errorf("decode of 32 tokens after 512 runs at mean context %g, want 528", got)
	}
	if got := find(t, p, profile.Prefill, 4, 512).Step.Pass.Tokens(); got != 2048 {
		t.Errorf("prefill (4,512) computes %d tokens, want 2048", got)
	}
}

// TestFixtureThroughput checks that a run's throughput is tokens over latency,
// and a row's the mean over its runs.
func TestFixtureThroughput(t *testing.T) {
	p, _ := read(t, fixture)
	original := results(t, gunzip(t, fixture))
	for i, row := range original {
		samples := p.Points[11+2*i].Samples
		tokens := row["batch_size"].(float64) * row["input_len"].(float64)
		sum := 0.0
		for k, run := range row["runs_data"].([]any) {
			rate := tokens / samples[k]
			sum += rate
			if got := run.(map[string]any)["prefill_throughput"].(float64); !near(got, rate) {
				t.Errorf("results[%d] run %d: throughput %g, tokens over latency %g", i, k, got, rate)
			}
		}
		if got := row["prefill_throughput"].(float64); !near(got, sum/float64(len(samples))) {
			t.Errorf("results[%d]: throughput %g, mean over runs %g", i, got, sum/3)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*max(math.Abs(a), math.Abs(b)) }

func gunzip(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(name, ".gz") {
		return b
	}
	zr, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(zr); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func results(t testing.TB, text []byte) []map[string]any {
	t.Helper()
	var doc struct {
		Results []map[string]any `json:"results"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Results
}

// TestRoundTrip reads and writes files and compares every key of every row
// and all metadata with the original.
func TestRoundTrip(t *testing.T) {
	for _, c := range []struct{ why, name string }{
		{"rows with runs come back with equal means, deviations and runs", fixture},
		{"the older key style keeps its keys and its given throughputs", "legacy_variant_synthetic.json"},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, _ := read(t, c.name)
			var out bytes.Buffer
			if err := stepbench.Write(&out, p); err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(gunzip(t, c.name), &want); err != nil {
				t.Fatal(err)
			}
			if n := compare(t, "", got, want); n < 100 {
				t.Errorf("only %d figures compared", n)
			}
		})
	}
}

// compare reports every difference and returns the number of numbers compared.
func compare(t *testing.T, path string, got, want any) (n int) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s: got %v, want an object", path, got)
			return 0
		}
		for key, w := range want {
			n += compare(t, path+"."+key, have[key], w)
		}
		for key := range have {
			if _, ok := want[key]; !ok {
				t.Errorf("%s.%s: not in the original", path, key)
			}
		}
	case []any:
		have, ok := got.([]any)
		if !ok || len(have) != len(want) {
			t.Errorf("%s: got %v, want a list of %d", path, got, len(want))
			return 0
		}
		for i := range want {
			n += compare(t, fmt.Sprintf("%s[%d]", path, i), have[i], want[i])
		}
	case float64:
		if have, ok := got.(float64); !ok || !near(have, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
		n++
	default:
		if got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	return n
}

// TestNativeRoundTrip writes the fixture as a profile, reads that, and writes
// it as a benchmark: nothing is lost on the way.
func TestNativeRoundTrip(t *testing.T) {
	p, _ := read(t, fixture)
	var native, direct, through bytes.Buffer
	if err := p.Write("x.llmprof.gz", &native); err != nil {
		t.Fatal(err)
	}
	back, warnings, err := profile.Read("x.llmprof.gz", &native)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if err := stepbench.Write(&direct, p); err != nil {
		t.Fatal(err)
	}
	if err := stepbench.Write(&through, back); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(direct.Bytes(), through.Bytes()) {
		t.Error("the benchmark written after the detour differs")
	}
}

func TestVariants(t *testing.T) {
	legacy, warnings := read(t, "legacy_variant_synthetic.json")
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	if legacy.Header.Deploy.TensorParallel != 1 || legacy.Header.Device.Reported != "" {
		t.Errorf("header %+v", legacy.Header)
	}
	point := find(t, legacy, profile.Prefill, 1, 1)
	if len(point.Samples) != 0 || point.Summary.Mean != 0.011135241948068142 {
		t.Errorf("legacy (1,1): %+v", point)
	}

	rows, warnings := read(t, "other_row_shapes_synthetic.jsonl")
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
	var modes []string
	for _, point := range rows.Points {
		modes = append(modes, point.Step.Mode)
	}
	if got := strings.Join(modes, " "); got != "prefill decode prefill decode prefill" {
		t.Errorf("rows of other shapes give %s", got)
	}
	if got := rows.Points[4].Origin; got != "other_row_shapes_synthetic.jsonl: line 3" {
		t.Errorf("origin %q", got)
	}
}

func TestReadTolerates(t *testing.T) {
	const row = `{"batch_size":2,"input_len":8,"output_len":4,"prefill_latency":0.5,"median_decode_latency":0.25`
	for _, c := range []struct {
		why, text string
		points    int
		warning   string // fragment; empty for none
		check     func(*profile.Profile) bool
	}{
		{
			why: "unknown keys are kept verbatim", text: `{"results":[` + row + `,"engine":{"v":[1,2.50]}}]}`, points: 2,
			check: func(p *profile.Profile) bool { return string(p.Points[0].Extra["engine"]) == `{"v":[1,2.50]}` },
		},
		{
			why: "numbers may stand in quotes", text: `{"results":[{"batch_size":"2","input_len":"8","output_len":"4","prefill_latency":"0.5"}]}`, points: 1,
			check: func(p *profile.Profile) bool { return p.Points[0].Summary.Mean == 0.5 },
		},
		{
			why: "an optional figure that is not a number is absent", text: `{"results":[` + row + `,"overall_throughput":Infinity,"prefill_latency_std":NaN}]}`, points: 2,
			warning: "left out",
			check: func(p *profile.Profile) bool {
				_, kept := p.Points[0].Extra["overall_throughput"]
				return !kept && p.Points[0].Summary.Std == 0
			},
		},
		{why: "null is absent", text: `{"metadata":null,"results":[` + row + `,"runs_data":null,"total_latency":null}]}`, points: 2},
		{why: "a list of rows", text: `[` + row + `},` + row + `}]`, points: 4},
		{why: "objects one after the other", text: row + "}\n\n" + row + "}{}"[:1] + "\n", points: 4},
		{why: "carriage returns and a byte order mark", text: "\ufeff" + row + "}\r\n" + row + "}\r\n", points: 4},
		{why: "a cut-off last line costs only itself", text: row + "}\n" + row, points: 2, warning: "the text ends in the middle of a value"},
		{
			why:  "a mean that is not that of its runs is kept and reported",
			text: `{"results":[` + row + `,"runs_data":[{"prefill_latency":0.4},{"prefill_latency":0.5}]}]}`, points: 2,
			warning: "is 0.5, but the mean of its 2 runs is 0.45",
			check: func(p *profile.Profile) bool {
				m, _ := p.Points[0].Mean()
				return m == 0.5 && len(p.Points[0].Samples) == 2
			},
		},
		{
			why:  "the metadata's output length stands in for the row's",
			text: `{"metadata":{"output_len":32},"results":[{"batch_size":1,"input_len":8,"median_decode_latency":0.1}]}`, points: 1,
			check: func(p *profile.Profile) bool { return p.Points[0].Step.Pass.MeanDecodeContext() == 24 },
		},
		{
			why:  "several devices of one kind",
			text: `{"metadata":{"tp_size":2,"pp_size":2,"gpu_count":4,"gpu_distribution":{"L4":4}},"results":[` + row + `}]}`, points: 2,
			check: func(p *profile.Profile) bool { return p.Header.Device == profile.Device{Reported: "L4", Count: 4} },
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, warnings, err := stepbench.Read("x.json", strings.NewReader(c.text), stepbench.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Points) != c.points {
				t.Errorf("%d points, want %d", len(p.Points), c.points)
			}
			if c.warning == "" && len(warnings) > 0 || c.warning != "" && (len(warnings) == 0 || !strings.Contains(warnings[0].Error(), c.warning)) {
				t.Errorf("warnings %v, want %q", warnings, c.warning)
			}
			if c.check != nil && !c.check(p) {
				t.Errorf("points %+v", p.Points)
			}
			var out bytes.Buffer
			if err := stepbench.Write(&out, p); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDetect(t *testing.T) {
	var native bytes.Buffer
	p, _ := read(t, fixture)
	if err := p.Write("p.gz", &native); err != nil {
		t.Fatal(err)
	}
	file := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return b[:min(len(b), stepbench.HeadSize)]
	}
	for _, c := range []struct {
		why  string
		head []byte
		want stepbench.Format
	}{
		{"gzip of a benchmark", file(fixture), stepbench.Benchmark},
		{"the first bytes of it suffice", file(fixture)[:2000], stepbench.Benchmark},
		{"older keys", file("legacy_variant_synthetic.json"), stepbench.Benchmark},
		{"rows alone", file("other_row_shapes_synthetic.jsonl"), stepbench.Rows},
		{"a list of rows", []byte(`[{"batch_size":1,"input_len":2,"prefill_lat`), stepbench.Rows},
		{"a profile, compressed", native.Bytes(), stepbench.Native},
		{"another JSON file", []byte(`{"model_type":"qwen3"}`), stepbench.Unknown},
		{"nothing", nil, stepbench.Unknown},
		{"no JSON", []byte("time,value\n1,2\n"), stepbench.Unknown},
		{"another schema", []byte(`{"schema":"llmprof/plan","version":"1.0"}`), stepbench.Unknown},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := stepbench.Detect(c.head); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWriteRefusesWhatHasNoPlace(t *testing.T) {
	p := &profile.Profile{Points: []profile.Point{{Kind: profile.KindStep, Samples: []float64{1}, Step: &profile.Step{Mode: profile.Mixed, BatchSize: 1, InputLen: 1}}}}
	if err := stepbench.Write(&bytes.Buffer{}, p); err == nil || !strings.Contains(err.Error(), "point 1") {
		t.Errorf("error %v", err)
	}
}

func TestWriteAfterDrop(t *testing.T) {
	p, _ := read(t, fixture)
	findings := profile.Lint(p, profile.LintOptions{})
	var out bytes.Buffer
	if err := stepbench.Write(&out, p.Drop(findings)); err != nil {
		t.Fatal(err)
	}
	row := results(t, out.Bytes())[0]
	if got := row["prefill_latency"].(float64); math.Abs(got-0.011288446) > 1e-8 {
		t.Errorf("(1,1) without its cold run: mean %g s, want 0.011288446", got)
	}
	if _, ok := row["runs_data"]; ok {
		t.Error("runs_data of a row whose metrics have different numbers of runs")
	}
}

func ExampleRead() {
	text := `{"metadata": {"model_path": "Qwen/Qwen3-4B", "tp_size": 1, "gpu_type": "NVIDIA A100-SXM4-80GB"},
	 "results": [{"batch_size": 4, "input_len": 512, "output_len": 32,
	              "prefill_latency": 0.0743, "median_decode_latency": 0.00818}]}`
	p, _, err := stepbench.Read("bench.json", strings.NewReader(text), stepbench.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, point := range p.Points {
		mean, _ := point.Mean()
		fmt.Println(point.Step.Mode, point.Step.Pass.Tokens(), "tokens", mean, "from", point.Origin)
	}
	// Output:
	// prefill 2048 tokens 74.30 ms from bench.json: results[0]
	// decode 4 tokens 8.180 ms from bench.json: results[0]
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"legacy_variant_synthetic.json", "other_row_shapes_synthetic.jsonl"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"results":[{"batch_size":1,"input_len":1,"prefill_latency":0.1,"runs_data":[{"prefill_latency":0.1,"x":NaN}]}]}`))
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01\x00\x00\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		stepbench.Detect(b)
		p, _, err := stepbench.Read("x", bytes.NewReader(b), stepbench.Options{})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x: ") {
				t.Errorf("error does not name the file: %v", err)
			}
			return
		}
		if len(p.Points) == 0 {
			t.Error("neither points nor an error")
		}
		for i := range p.Points {
			if err := p.Points[i].Validate(); err != nil {
				t.Errorf("point %d: %v", i, err)
			}
		}
		var first, second bytes.Buffer
		if err := stepbench.Write(&first, p); err != nil {
			t.Fatal(err)
		}
		again, _, err := stepbench.Read("x", bytes.NewReader(first.Bytes()), stepbench.Options{})
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, first.Bytes())
		}
		if err := stepbench.Write(&second, again); err != nil {
			t.Fatal(err)
		}
		profile.Lint(p, profile.LintOptions{})
	})
}
