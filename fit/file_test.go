package fit

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/forward"
)

var update = flag.Bool("update", false, "write the golden file anew")

// original is a file as later versions of the original write it.
const original = `{
    "metadata": {"note": "of the whole file"},
    "old": {"prefill": {"weights": [1e-05, 0.0, 1e-05, 0.0], "bias": 0.01, "model_type": "linear", "mse": 1e-6},
            "decode": {"weights": [0,0,0,0], "bias": 0.007, "model_type": "linear"},
            "metadata": {"batch_sizes_tested": [1, 8], "input_lens_tested": [1, 1024], "tp_size": 1}},
    "bare": {"prefill": {"weights": [1e-05, 0.0, 1e-05, 0.0], "bias": 0.01, "model_type": "linear"}},
    "forest": {"prefill": {"weights": [], "bias": 0, "model_type": "random_forest"}},
    "comment": "text"
}`

func read(tb testing.TB, text string) *File {
	tb.Helper()
	f, err := ReadPredictors(strings.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func write(tb testing.TB, f *File) string {
	tb.Helper()
	var out bytes.Buffer
	if err := f.Write(&out); err != nil {
		tb.Fatal(err)
	}
	return out.String()
}

func TestReadOriginal(t *testing.T) {
	f := read(t, original)
	if got := strings.Join(f.Configs(), " "); got != "old bare forest" {
		t.Errorf("configs %q", got)
	}
	if got := strings.Join(f.Ignored(), " "); got != "metadata comment" {
		t.Errorf("ignored %q", got)
	}
	for _, c := range []struct {
		why    string
		config string
		query  Query
		want   float64 // seconds
		basis  string
	}{
		{"inside the lists of the metadata", "old", Query{Mode: Prefill, BatchSize: 4, InputLen: 512}, 0.01 + 2048*2e-5, "interpolated"},
		{"outside the lists of the metadata", "old", Query{Mode: Prefill, BatchSize: 4, InputLen: 2048}, 0.01 + 8192*2e-5, "extrapolated"},
		{"no metadata, no range", "bare", Query{Mode: Prefill, BatchSize: 1, InputLen: 100}, 0.01 + 100*2e-5, "fitted"},
	} {
		p, warnings, err := f.Predictor(c.config)
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		got, err := p.Predict(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(float64(got.Value)-c.want) > 1e-12 || string(got.Basis) != c.basis || got.HasInterval() {
			t.Errorf("%s: %+v, want %v s %s", c.why, got, c.want, c.basis)
		}
	}
	if _, _, err := f.Predictor("forest"); err == nil || !strings.Contains(err.Error(), "random_forest") {
		t.Errorf("a model type of its own: %v", err)
	}
	unknown, ok := errors.AsType[*UnknownConfigError](func() error { _, _, err := f.Predictor("metadata"); return err }())
	if !ok || !strings.Contains(unknown.Hint(), "old, bare, forest") {
		t.Errorf("an entry that is no config: %v", unknown)
	}
}

// TestOrigin: what was measured comes from the benchmark's metadata, whoever
// wrote the file.
func TestOrigin(t *testing.T) {
	const weights = `{"prefill": {"weights": [1e-05, 0, 1e-05, 0], "bias": 0.01, "model_type": "linear"}`
	for _, c := range []struct {
		why, config string
		want        Origin
	}{
		{"both are named", weights + `, "metadata": {"model_path": "Qwen/Qwen3-4B", "gpu_type": " NVIDIA A100-SXM4-80GB"}}`, Origin{"Qwen/Qwen3-4B", "NVIDIA A100-SXM4-80GB", 0}},
		{"and the ranks", weights + `, "metadata": {"model_path": "Qwen/Qwen3-4B", "tp_size": 4}}`, Origin{"Qwen/Qwen3-4B", "", 4}},
		{"what is no text names nothing", weights + `, "metadata": {"model_path": ["x"], "gpu_type": null, "tp_size": "2"}}`, Origin{}},
		{"nor does a number that counts nothing", weights + `, "metadata": {"tp_size": -2}}`, Origin{}},
		{"no metadata", weights + `}`, Origin{}},
	} {
		p, _, err := read(t, `{"c": `+c.config+`}`).Predictor("c")
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		if got := p.Origin(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.why, got, c.want)
		}
	}
}

func TestSetKeepsTheRest(t *testing.T) {
	rows := a100(t).Rows
	f := read(t, original)
	for _, name := range []string{"new", "old"} {
		if err := f.Set(name, train(t, rows), map[string]json.RawMessage{"tp_size": json.RawMessage("1")}); err != nil {
			t.Fatal(err)
		}
	}
	text := write(t, f)
	again := read(t, text)
	if got := strings.Join(again.Configs(), " "); got != "old bare forest new" {
		t.Errorf("configs %q", got)
	}
	for _, kept := range []string{
		`"metadata": {"note": "of the whole file"}`,
		`"bare": {"prefill": {"weights": [1e-05, 0.0, 1e-05, 0.0], "bias": 0.01, "model_type": "linear"}}`,
		`"comment": "text"`,
	} {
		if !strings.Contains(text, kept) {
			t.Errorf("lost %s", kept)
		}
	}
	if write(t, again) != text {
		t.Error("reading and writing changes the file")
	}
}

// TestRoundTrip: a predictor read back says the same.
func TestRoundTrip(t *testing.T) {
	for name, p := range trained(t) {
		var f File
		if err := f.Set(name, p, nil); err != nil {
			t.Fatal(err)
		}
		back, warnings, err := read(t, write(t, &f)).Predictor(name)
		if err != nil || len(warnings) > 0 {
			t.Fatal(name, err, warnings)
		}
		for _, m := range p.Modes() {
			before, _ := p.Linear(m)
			after, _ := back.Linear(m)
			if before != after {
				t.Errorf("%s %s: weights %v became %v", name, m, before, after)
			}
			for _, q := range []Query{{Mode: m, BatchSize: 1, InputLen: 1}, {Mode: m, BatchSize: 5, InputLen: 777}, {Mode: m, BatchSize: 300, InputLen: 90000}} {
				a, errA := p.PredictAt(q, 0.95)
				b, errB := back.PredictAt(q, 0.95)
				if errA != nil || errB != nil || a.Value != b.Value || a.Low != b.Low || a.High != b.High || a.Basis != b.Basis || a.Level != b.Level {
					t.Errorf("%s %+v: %+v became %+v", name, q, a, b)
				}
			}
		}
	}
}

// TestOriginalReadsOurs: what the original's predict does with a file, key
// by key, on ours.
func TestOriginalReadsOurs(t *testing.T) {
	var f File
	if err := f.Set("c", train(t, a100(t).Rows), nil); err != nil {
		t.Fatal(err)
	}
	var doc map[string]map[string]struct {
		Weights   []float64 `json:"weights"`
		Bias      float64   `json:"bias"`
		ModelType string    `json:"model_type"`
	}
	if err := json.Unmarshal([]byte(write(t, &f)), &doc); err != nil {
		t.Fatal(err)
	}
	mode := doc["c"]["prefill"]
	seconds := mode.Bias
	for j, feature := range []float64{4 * 512, 4 * 512 * 512, 4 * 512, 4} {
		seconds += mode.Weights[j] * feature
	}
	if mode.ModelType != "linear" || math.Abs(seconds-0.074552) > 1e-6 {
		t.Errorf("model type %s, (4, 512) takes %v s, want linear and 0.074552", mode.ModelType, seconds)
	}
}

// TestGolden: files of version 1.0 are read for good.
func TestGolden(t *testing.T) {
	const name = "testdata/predictor_v1.0.json"
	if *update {
		var f File
		if err := f.Set("a100", train(t, a100(t).Rows), nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(write(t, &f)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p, warnings, err := read(t, string(text)).Predictor("a100")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	for _, c := range []struct {
		query            Query
		value, low, high float64 // milliseconds
	}{
		{Query{Mode: Prefill, BatchSize: 4, InputLen: 512}, 73.96145, 73.20673, 74.72395},
		{Query{Mode: Decode, BatchSize: 8, InputLen: 1024}, 8.36439, 8.30960, 8.41954},
	} {
		got, err := p.Predict(c.query)
		if err != nil {
			t.Fatal(err)
		}
		for k, pair := range [][2]float64{{got.Value.Milliseconds(), c.value}, {got.Low.Milliseconds(), c.low}, {got.High.Milliseconds(), c.high}} {
			if math.Abs(pair[0]-pair[1]) > 1e-4 {
				t.Errorf("%+v: number %d is %.5f ms, want %.5f", c.query, k, pair[0], pair[1])
			}
		}
	}
}

func TestVersions(t *testing.T) {
	var f File
	if err := f.Set("c", train(t, a100(t).Rows), nil); err != nil {
		t.Fatal(err)
	}
	text := write(t, &f)
	version := func(v string) *File {
		return read(t, strings.Replace(text, `"version": "1.0"`, `"version": "`+v+`"`, 1))
	}
	if _, warnings, err := version("1.7").Predictor("c"); err != nil || len(warnings) != 1 {
		t.Errorf("a newer minor version: %v, warnings %q", err, warnings)
	}
	_, _, err := version("2.0").Predictor("c")
	if later, ok := errors.AsType[*VersionError](err); !ok || later.Version != "2.0" || later.Hint() == "" {
		t.Errorf("a newer major version: %v", err)
	}
	for _, v := range []string{"", "one", "1", "0.9", "-1.0"} {
		if _, _, err := version(v).Predictor("c"); err == nil {
			t.Errorf("version %q: accepted", v)
		}
	}
}

func TestReadBroken(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"nothing", "", "line 1"},
		{"a list", "[1]", "object"},
		{"cut off in a config", "{\n\"a\": {\"prefill\": {", "line 2"},
		{"cut off between configs", "{\n\"a\": {},\n", "line 3"},
		{"not a number", "{\n\n\"a\": {\"prefill\": {\"bias\": NaN}}}", "line 3"},
		{"two of a name", `{"a": {}, "a": {}}`, "twice"},
		{"text behind the end", "{} {}", "more text"},
		{"deep nesting", `{"a": ` + strings.Repeat("[", 100000), "line 1"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, err := ReadPredictors(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want it to name %q", err, c.want)
			}
		})
	}
	for _, c := range []struct{ why, config, want string }{
		{"three weights", `{"prefill": {"weights": [1,2,3], "bias": 1, "model_type": "linear"}}`, "3 weights"},
		{"no bias", `{"prefill": {"weights": [1,2,3,4], "model_type": "linear"}}`, "bias"},
		{"text for a weight", `{"prefill": {"weights": ["x",2,3,4], "bias": 1, "model_type": "linear"}}`, "string"},
		{"a number beyond float64", `{"prefill": {"weights": [1e999,2,3,4], "bias": 1, "model_type": "linear"}}`, "1e999"},
		{"a weight that no step has", `{"prefill": {"weights": [1e300,2,3,4], "bias": 1, "model_type": "linear"}}`, "range"},
		{"a foreign schema", `{"prefill": {"weights": [1,2,3,4], "bias": 1, "model_type": "linear"}, "llmprof": {"schema": "x", "version": "1.0"}}`, "schema"},
		{"an empty range", `{"prefill": {"weights": [1,2,3,4], "bias": 1, "model_type": "linear"}, "llmprof": {"schema": "llmprof/predictor", "version": "1.0", "prefill": {"range": {"batch_size": [4, 1]}}}}`, "range"},
		{"an unknown variable", `{"prefill": {"weights": [1,2,3,4], "bias": 1, "model_type": "linear"}, "llmprof": {"schema": "llmprof/predictor", "version": "1.0",
			"prefill": {"floor_s": 1, "range": {"batch_size": [1, 4], "length_tokens": [1, 4], "max_work_tokens": 4}, "terms": [{"variable": "moon", "unit": "s", "coefficient": 1}]}}}`, "moon"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, _, err := read(t, `{"mine": `+c.config+`}`).Predictor("mine")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "mine") {
				t.Errorf("%v, want it to name mine and %q", err, c.want)
			}
		})
	}
}

func FuzzReadPredictors(f *testing.F) {
	f.Add([]byte(original))
	var ours File
	if err := ours.Set("c", train(f, a100(f).Mode(Prefill)[:30]), nil); err != nil {
		f.Fatal(err)
	}
	var text bytes.Buffer
	if err := ours.Write(&text); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Add([]byte(`{"a": {"decode": {}}}`))
	if text, err := os.ReadFile("testdata/predictor_v1.2.json"); err == nil {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := ReadPredictors(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, name := range file.Configs() {
			p, _, err := file.Predictor(name)
			if err != nil {
				continue
			}
			_, _ = p.Gap()
			for _, m := range p.Modes() {
				form, ok := p.Form(m)
				q := Query{Mode: m, BatchSize: 7, InputLen: 321}
				if m == Mixed {
					q = Query{Totals: &forward.Totals{PrefillRequests: 1, PrefillTokens: 7, DecodeRequests: 3, DecodeTokens: 3}}
				}
				got, err := p.Predict(q)
				if _, ok := errors.AsType[*NotMeasuredError](err); ok && m == Mixed {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if ok && len(form.Terms) > 0 && !(got.Value > 0) {
					t.Fatalf("%s %s: %v", name, m, got.Value)
				}
			}
		}
		var out bytes.Buffer
		if err := file.Write(&out); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPredictors(&out); err != nil {
			t.Fatalf("cannot read what was written: %v", err)
		}
	})
}
