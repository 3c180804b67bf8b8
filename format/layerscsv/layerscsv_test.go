package layerscsv_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/layerscsv"
	"github.com/llmprof/llmprof/profile"
)

const seedFile = "testdata/RTX3090_Llama-3.1-8B.csv.gz"

func read(t testing.TB, path string) (*profile.Profile, []error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, warnings, err := layerscsv.Read(path, f, layerscsv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p, warnings
}

func parse(t testing.TB, text string) *profile.Profile {
	t.Helper()
	p, _, err := layerscsv.Read("x.csv", strings.NewReader(text), layerscsv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func write(t testing.TB, p *profile.Profile, opts layerscsv.WriteOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := layerscsv.Write(&b, p, opts); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func plain(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func fixtures(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.csv.gz")
	if err != nil || len(paths) < 11 {
		t.Fatalf("%d fixtures, %v", len(paths), err)
	}
	return paths
}

// TestThereAndBack reads every fixture, saves it as a profile, reads that and
// writes the file anew: its bytes are the same.
func TestThereAndBack(t *testing.T) {
	for _, path := range fixtures(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			p, _ := read(t, path)
			for i := range p.Points {
				if err := p.Points[i].Validate(); err != nil {
					t.Fatalf("point %d: %v", i, err)
				}
			}
			var saved bytes.Buffer
			if err := p.Write("x.llmprof", &saved); err != nil {
				t.Fatal(err)
			}
			p, warnings, err := profile.Read("x.llmprof", &saved)
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			want, got := plain(t, path), write(t, p, layerscsv.WriteOptions{Variant: layerscsv.AsRead})
			if got == want {
				return
			}
			lines := strings.Split(got, "\n")
			for i, line := range strings.Split(want, "\n") {
				if i >= len(lines) || line != lines[i] {
					t.Fatalf("line %d: %q became %q", i+1, line, append(lines, "")[min(i, len(lines))])
				}
			}
			t.Fatalf("%d lines more", len(lines)-strings.Count(want, "\n"))
		})
	}
}

func TestSeedFile(t *testing.T) {
	p, warnings := read(t, seedFile)
	if len(warnings) > 0 {
		t.Errorf("warnings %v", warnings)
	}
	if len(p.Points) != 61455 {
		t.Errorf("%d points", len(p.Points))
	}
	if p.Header.Device.Reported != "RTX3090" || p.Header.Deploy.Model != "meta-llama/Llama-3.1-8B" || p.Header.Source != seedFile {
		t.Errorf("header %+v", p.Header)
	}
	names, keys, extras := map[string]bool{}, map[profile.Layer]int{}, 0
	at := map[profile.Layer]float64{}
	for _, point := range p.Points {
		names[point.Layer.Name] = true
		keys[*point.Layer]++
		extras += len(point.Extra)
		at[*point.Layer] = point.Samples[0]
		if point.Clock != "" || point.Origin != "" || len(point.Samples) != 1 {
			t.Fatalf("point %+v", point)
		}
	}
	if len(names) != 15 || len(keys) != 61440 || extras != 0 {
		t.Errorf("%d layers, %d keys, %d extras", len(names), len(keys), extras)
	}
	for _, c := range []struct {
		name       string
		tokens, kv int
		want       float64
	}{
		{"attn", 128, 0, 8631e-9},
		{"attn", 1024, 0, 176218e-9},
		{"attn", 2048, 0, 593188e-9},
		{"attn", 1, 1024, 15582e-9},
		{"attn", 1, 2048, 28073e-9},
		{"lm_head", 1, 1024, 1184909e-9},
	} {
		if got := at[profile.Layer{Name: c.name, Tokens: c.tokens, Context: c.kv}]; got != c.want {
			t.Errorf("%s (%d,%d): %g s, want %g", c.name, c.tokens, c.kv, got, c.want)
		}
	}
}

func TestVariants(t *testing.T) {
	for _, c := range []struct {
		path    string
		variant layerscsv.Variant
		rows    int
		header  profile.Header
		first   profile.Point
		warning string
	}{
		{
			path: "v0.1.0_RTX3090_gpt3_sample.csv.gz", variant: layerscsv.Seed, rows: 77,
			first: profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "mlp/gelu", Tokens: 1}, Samples: []float64{55507e-9}},
		},
		{
			path: "layers_A6000_Llama-3.1-8B_tp2_sample.csv.gz", variant: layerscsv.Layers, rows: 255,
			first: profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "embedding", Tokens: 1, TensorParallel: 2}, Samples: []float64{2586e-9}},
		},
		{
			path: "attention_A6000_Llama-3.1-8B_tp1_sample.csv.gz", variant: layerscsv.Attention, rows: 607,
			first: profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "attention", Tokens: 32, Context: 32, TensorParallel: 1}, Summary: &profile.Summary{Mean: 0.00437446e-3, Std: 7.468767234289727e-08}},
		},
		{
			path: "attn_prefill_predictions_A6000_tp1_sample.csv.gz", variant: layerscsv.PrefillPredictions, rows: 601,
			first: profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "attention", Tokens: 32}, Summary: &profile.Summary{Mean: 51270e-9}}, warning: "not measurements",
		},
		{
			path: "attn_decode_predictions_A6000_tp1_sample.csv.gz", variant: layerscsv.DecodePredictions, rows: 604,
			first: profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "attention", Sequences: 1}, Summary: &profile.Summary{Mean: 17094e-9}}, warning: "not measurements",
		},
	} {
		t.Run(c.path, func(t *testing.T) {
			p, warnings := read(t, "testdata/"+c.path)
			if v, ok := layerscsv.VariantOf(p.Header); !ok || v != c.variant {
				t.Errorf("variant %q, %v", v, ok)
			}
			if len(p.Points) != c.rows {
				t.Errorf("%d points", len(p.Points))
			}
			first := p.Points[0]
			first.Extra = nil
			if diff := cmp.Diff(c.first, first); diff != "" {
				t.Error(diff)
			}
			if fmt.Sprint(warnings) != "[]" && (c.warning == "" || !strings.Contains(fmt.Sprint(warnings), c.warning)) {
				t.Errorf("warnings %v", warnings)
			}
		})
	}
}

func TestAttentionKeepsItsStatistics(t *testing.T) {
	p, _ := read(t, "testdata/attention_A6000_Llama-3.1-8B_tp1_sample.csv.gz")
	for i, want := range []string{"0.00432", "0.040799999999999996"} {
		if got := string(p.Points[i].Extra["time_stats.attn_prefill.min"]); got != want {
			t.Errorf("row %d: min %s, want %s", i+1, got, want)
		}
	}
	if p.Header.Deploy.TensorParallel != 1 {
		t.Errorf("deployment %+v", p.Header.Deploy)
	}
	if !strings.Contains(string(p.Header.Metadata[layerscsv.MetadataKey]), `"n_q_head":"32"`) {
		t.Errorf("metadata %s", p.Header.Metadata[layerscsv.MetadataKey])
	}
}

func TestDevice(t *testing.T) {
	opts := layerscsv.Options{Device: func(reported string) (string, bool) { return "rtx-3090", reported == "RTX3090" }}
	for _, c := range []struct {
		why, name, text, reported, model, canonical string
	}{
		{"the file names the device", "x.csv", seed("RTX3090,m,q_proj,1,0,5"), "RTX3090", "m", "rtx-3090"},
		{"an unknown device stays as reported", "x.csv", seed("H42,m,q_proj,1,0,5"), "H42", "m", ""},
		{"the path names it where the file cannot", "/x/perf_models/RTX3090/meta-llama/Llama-3.1-8B/tp1/layers.csv", "layer_name,input,kv_cache,tp_size,latency(ns)\nq_proj,1,0,1,5\n", "RTX3090", "meta-llama/Llama-3.1-8B", "rtx-3090"},
		{"another path names nothing", "/RTX3090/tp1/layers.csv", "layer_name,input,kv_cache,tp_size,latency(ns)\nq_proj,1,0,1,5\n", "", "", ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, _, err := layerscsv.Read(c.name, strings.NewReader(c.text), opts)
			if err != nil {
				t.Fatal(err)
			}
			if h := p.Header; h.Device.Reported != c.reported || h.Deploy.Model != c.model || h.Device.Name != c.canonical || h.Deploy.Device != c.canonical {
				t.Errorf("header %+v", h)
			}
		})
	}
}

const seedColumns = "hardware,model,layer_name,input,kv_cache,latency(ns)"

// seed is a file of the seed's layout.
func seed(rows ...string) string {
	return seedColumns + "\r\n" + strings.Join(rows, "\r\n") + "\r\n"
}

func TestSpellingsComeBack(t *testing.T) {
	for _, c := range []struct{ why, text string }{
		{"fractions of a nanosecond", seed("R,m,q_proj,1,0,45895.5", "R,m,q_proj,2,0,45895.0")},
		{"an exponent", seed("R,m,q_proj,1,0,4.5895e4")},
		{"leading zeros and signs", seed("R,m,q_proj,+1,00,045895")},
		{"more digits than a float64 holds", seed("R,m,q_proj,1,0,45895.123456789012345678901")},
		{"a whole number as a fraction", seed("R,m,q_proj,128.0,0,7")},
		{"a comma and quotes in a name", seed(`R,"m, ""x""",q_proj,1,0,7`)},
		{"a scaled column", "hardware,model,layer_name,input,kv_cache,latency(ns),scaled_latency(ns)\nR,m,q_proj,1,0,46750,49087\nR,m,q_proj,2,0,46751,\n"},
		{"columns in another order", "latency(ns),input,layer_name,kv_cache,model,hardware\n7,1,q_proj,0,m,R\n"},
		{"columns of others", "note,hardware,model,layer_name,input,kv_cache,latency(ns),run\nsame,R,m,q_proj,1,0,7,1\nsame,R,m,q_proj,2,0,7,0x2\n"},
		{"an unnamed column", ",hardware,model,layer_name,input,kv_cache,latency(ns)\n0,R,m,q_proj,1,0,7\n1,R,m,q_proj,2,0,7\n"},
		{"a rank in the seed's layout", "hardware,model,layer_name,input,kv_cache,tp_size,latency(ns)\nR,m,q_proj,1,0,4,7\n"},
		{"no device and no model", seed(",,q_proj,1,0,7")},
		{"statistics of the other phase", "time_stats.attn_prefill.mean,time_stats.attn_decode.mean,batch_size,prefill_chunk_size,kv_cache_size,is_prefill\n0.5,0.25,1,32,0,true\n0.125,1e-2,4,0,64,False\n"},
	} {
		t.Run(c.why, func(t *testing.T) {
			p := parse(t, c.text)
			if got := write(t, p, layerscsv.WriteOptions{Variant: layerscsv.AsRead}); got != c.text {
				t.Errorf("%q became %q", c.text, got)
			}
		})
	}
}

func TestScaling(t *testing.T) {
	text := seed("RTX3090,m,embedding,1,0,46750")
	for _, c := range []struct {
		why  string
		text string
		opts layerscsv.WriteOptions
		want string
	}{
		{"in place", text, layerscsv.WriteOptions{Scale: 1.05}, seed("RTX3090,m,embedding,1,0,49087")},
		{"in a column of its own", text, layerscsv.WriteOptions{Scale: 1.05, KeepUnscaled: true}, seedColumns + ",scaled_latency(ns)\r\nRTX3090,m,embedding,1,0,46750,49087\r\n"},
		{"over an older scaling", seedColumns + ",scaled_latency(ns)\nR,m,embedding,1,0,46750,1\n", layerscsv.WriteOptions{Scale: 2, KeepUnscaled: true}, seedColumns + ",scaled_latency(ns)\nR,m,embedding,1,0,46750,93500\n"},
		{"a latency that was spelled otherwise", seed("R,m,embedding,1,0,46750.9"), layerscsv.WriteOptions{Scale: 1.05}, seed("R,m,embedding,1,0,49087")},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := write(t, parse(t, c.text), c.opts); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestScalingAsTheOriginal compares with the table that the original scaled.
// The factor lies where both tables allow it.
func TestScalingAsTheOriginal(t *testing.T) {
	raw, _ := read(t, "testdata/RTX3090_old_cpu_time_raw_sample.csv.gz")
	want, _ := read(t, "testdata/RTX3090_old_cpu_time_scaled_sample.csv.gz")
	low, high := 0.0, math.Inf(1)
	for i := range raw.Points {
		r, s := raw.Points[i].Samples[0], want.Points[i].Samples[0]
		low, high = max(low, s/r), min(high, (s+1e-9)/r)
	}
	if low >= high {
		t.Fatalf("no factor: %g to %g", low, high)
	}
	got := parse(t, write(t, raw, layerscsv.WriteOptions{Scale: (low + high) / 2}))
	for i := range got.Points {
		if got.Points[i].Samples[0] != want.Points[i].Samples[0] {
			t.Fatalf("row %d: %g, want %g", i+1, got.Points[i].Samples[0], want.Points[i].Samples[0])
		}
	}
}

// measured is a point as a probe of this program takes it.
func measured(layer profile.Layer, samples ...float64) profile.Point {
	return profile.Point{Kind: profile.KindLayer, Clock: profile.ClockDevice, Layer: &layer, Samples: samples}
}

func TestWriteMeasured(t *testing.T) {
	p := &profile.Profile{
		Header: profile.Header{Device: profile.Device{Name: "rtx-3090"}},
		Points: []profile.Point{
			measured(profile.Layer{Name: "q_proj", Tokens: 1, Sequences: 1}, 10e-6, 11e-6),
			measured(profile.Layer{Name: "attn", Tokens: 1, Context: 5, Sequences: 1}, 3e-6, 4e-6, 4e-6),
			{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryFree, Bytes: 1}},
			{Kind: profile.KindFailure, Reason: "oom", Layer: &profile.Layer{Name: "q_proj", Tokens: 99}},
			measured(profile.Layer{Name: "q_proj", Tokens: 2, Sequences: 1}, 1.9999e-9),
			measured(profile.Layer{Name: "q_proj", Tokens: 3, Sequences: 1}, 4e-6, 6e-6), // their sum in binary is a little less
			measured(profile.Layer{Name: "attention", Sequences: 1, SequenceContext: 7}, 1e-6),
		},
	}
	p.Header.Deploy.Model = "meta-llama/Llama-3.1-8B"
	want := seed(
		"rtx-3090,meta-llama/Llama-3.1-8B,q_proj,1,0,10500",
		"rtx-3090,meta-llama/Llama-3.1-8B,q_proj,2,0,1",
		"rtx-3090,meta-llama/Llama-3.1-8B,q_proj,3,0,5000",
		"rtx-3090,meta-llama/Llama-3.1-8B,attn,1,5,3666",
		"rtx-3090,meta-llama/Llama-3.1-8B,attention,1,7,1000",
	)
	if got := write(t, p, layerscsv.WriteOptions{}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := write(t, p, layerscsv.WriteOptions{Variant: layerscsv.AsRead}); got != want {
		t.Error("a profile that was not read from a CSV is not written as the seed's")
	}
	p.Points = p.Points[:1]
	if got, want := write(t, p, layerscsv.WriteOptions{Variant: layerscsv.Layers}), "layer_name,input,kv_cache,tp_size,latency(ns)\nq_proj,1,0,1,10500\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, c := range []struct {
		why   string
		point profile.Point
		opts  layerscsv.WriteOptions
		want  string
	}{
		{"a batch", measured(profile.Layer{Name: "attention", Sequences: 8, SequenceContext: 16}, 1e-6), layerscsv.WriteOptions{}, "point 1: 8 sequences: rows are of one"},
		{"a rank", measured(profile.Layer{Name: "q_proj", Tokens: 8, TensorParallel: 2}, 1e-6), layerscsv.WriteOptions{}, "one of 2 ranks"},
		{"a mixture of experts", measured(profile.Layer{Name: "moe", Tokens: 8, ActivatedExperts: 2}, 1e-6), layerscsv.WriteOptions{}, "experts have no column"},
		{"no token", measured(profile.Layer{Name: "q_proj"}, 1e-6), layerscsv.WriteOptions{}, "it computes no token"},
		{"a chunk beside a decode", measured(profile.Layer{Name: "attention", Tokens: 8, Sequences: 1, SequenceContext: 9}, 1e-6), layerscsv.WriteOptions{}, "a prompt chunk and a decoding sequence at once"},
		{"a step", profile.Point{Kind: profile.KindStep, Samples: []float64{1}}, layerscsv.WriteOptions{}, "it is a step"},
		{"no time", profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "q_proj", Tokens: 1}}, layerscsv.WriteOptions{}, "it holds no time"},
		{"no layers", profile.Point{Kind: profile.KindFailure, Reason: "oom"}, layerscsv.WriteOptions{}, "the profile holds no layers"},
		{"less than a nanosecond", measured(profile.Layer{Name: "q_proj", Tokens: 8}, 9e-10), layerscsv.WriteOptions{}, "less than a nanosecond"},
		{"a negative factor", measured(profile.Layer{Name: "q_proj", Tokens: 8}, 1e-6), layerscsv.WriteOptions{Scale: -1}, "scale -1: want a positive factor"},
		{"an infinite factor", measured(profile.Layer{Name: "q_proj", Tokens: 8}, 1e-6), layerscsv.WriteOptions{Scale: math.Inf(1)}, "want a positive factor"},
		{"NaN as factor", measured(profile.Layer{Name: "q_proj", Tokens: 8}, 1e-6), layerscsv.WriteOptions{Scale: math.NaN()}, "want a positive factor"},
		{"a factor that leaves nothing", measured(profile.Layer{Name: "q_proj", Tokens: 8}, 1e-6), layerscsv.WriteOptions{Scale: 1e-9}, "less than a nanosecond"},
		{"a factor beyond reason", measured(profile.Layer{Name: "q_proj", Tokens: 8}, 1e-6), layerscsv.WriteOptions{Scale: 1e30}, "more than a day"},
		{"a scaled column without a factor", measured(profile.Layer{Name: "q_proj", Tokens: 8}, 1e-6), layerscsv.WriteOptions{KeepUnscaled: true}, "no factor"},
		{"scaled statistics", measured(profile.Layer{Name: "attention", Tokens: 8}, 1e-6), layerscsv.WriteOptions{Scale: 2, Variant: layerscsv.Attention}, "no latency to scale"},
		{"an unknown layout", measured(profile.Layer{Name: "q_proj", Tokens: 8}, 1e-6), layerscsv.WriteOptions{Variant: "xls"}, `unknown layout "xls": want seed, layers`},
		{"another layer as attention", measured(profile.Layer{Name: "q_proj", Tokens: 8}, 1e-6), layerscsv.WriteOptions{Variant: layerscsv.Attention}, "rows are of attention"},
		{"a decode as prefill prediction", measured(profile.Layer{Name: "attention", Sequences: 8}, 1e-6), layerscsv.WriteOptions{Variant: layerscsv.PrefillPredictions}, "no prefill"},
		{"a prefill as decode prediction", measured(profile.Layer{Name: "attention", Tokens: 8}, 1e-6), layerscsv.WriteOptions{Variant: layerscsv.DecodePredictions}, "no decode"},
	} {
		t.Run(c.why, func(t *testing.T) {
			err := layerscsv.Write(io.Discard, &profile.Profile{Points: []profile.Point{c.point}}, c.opts)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if place, ok := errors.AsType[*layerscsv.PlaceError](err); ok && place.Hint() == "" {
				t.Error("no hint")
			}
		})
	}
}

func TestWriteFails(t *testing.T) {
	p := parse(t, seed("R,m,q_proj,1,0,7"))
	if err := layerscsv.Write(failing{}, p, layerscsv.WriteOptions{}); !errors.Is(err, errFull) {
		t.Errorf("error %v", err)
	}
	p.Header.Metadata[layerscsv.MetadataKey] = []byte(`"x"`)
	if err := layerscsv.Write(io.Discard, p, layerscsv.WriteOptions{}); err == nil || !strings.Contains(err.Error(), "metadata layers_csv") {
		t.Errorf("error %v", err)
	}
}

var errFull = errors.New("disk full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestDetect(t *testing.T) {
	for _, path := range fixtures(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !layerscsv.Detect(data[:min(len(data), layerscsv.HeadSize)]) || !layerscsv.Detect([]byte(plain(t, path))[:800]) {
			t.Errorf("%s is not recognised", path)
		}
	}
	for _, c := range []struct {
		text string
		want bool
	}{
		{"\ufeff" + seedColumns + "\n", true},
		{seedColumns, false}, // the line may go on
		{"", false},
		{"\x1f\x8b", false},
		{`{"results": []}`, false},
		{"batch_size,input_len,prefill_latency\n1,2,3\n", false},
		{"layer,tokens,time_us\n", false},
		{"\"\n", false},
	} {
		if got := layerscsv.Detect([]byte(c.text)); got != c.want {
			t.Errorf("%q: %v", c.text, got)
		}
	}
}

// TestTimesSurvive holds for any number of nanoseconds: what is read is what
// is written.
func TestTimesSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Int64Range(1, 24*3600*1e9).Draw(t, "ns")
		text := seed(fmt.Sprintf("R,m,q_proj,1,0,%d", ns))
		p, _, err := layerscsv.Read("x.csv", strings.NewReader(text), layerscsv.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Points[0].Extra != nil {
			t.Fatalf("extra %v", p.Points[0].Extra)
		}
		var b bytes.Buffer
		if err := layerscsv.Write(&b, p, layerscsv.WriteOptions{}); err != nil || b.String() != text {
			t.Fatalf("%q, %v", b.String(), err)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	data, err := os.ReadFile(seedFile)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := layerscsv.Read("x", bytes.NewReader(data), layerscsv.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, path := range fixtures(f) {
		text := plain(f, path)
		f.Add([]byte(text[:min(len(text), 2000)]))
	}
	f.Add([]byte(seed("R,m,q_proj,1,0,45895.5")))
	f.Add([]byte(zipped(seed("R,m,q_proj,1,0,7"))))
	f.Add([]byte("layer_name,\"in\nput\",kv_cache,tp_size,latency(ns)\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		layerscsv.Detect(data)
		p, _, err := layerscsv.Read("x", bytes.NewReader(data), layerscsv.Options{Limits: format.Limits{Bytes: 1 << 20}})
		if err != nil {
			if bad, ok := errors.AsType[*format.Error](err); !ok || bad.File != "x" {
				t.Fatalf("no place: %v", err)
			}
			return
		}
		for i := range p.Points {
			if err := p.Points[i].Validate(); err != nil {
				t.Fatalf("point %d: %v", i, err)
			}
		}
		var out, again bytes.Buffer
		if err := layerscsv.Write(&out, p, layerscsv.WriteOptions{Variant: layerscsv.AsRead}); err != nil {
			t.Fatal(err)
		}
		q, _, err := layerscsv.Read("x", bytes.NewReader(out.Bytes()), layerscsv.Options{})
		if err != nil {
			t.Fatalf("%v in %q", err, out.String())
		}
		if err := layerscsv.Write(&again, q, layerscsv.WriteOptions{Variant: layerscsv.AsRead}); err != nil || again.String() != out.String() {
			t.Fatalf("%q became %q, %v", out.String(), again.String(), err)
		}
	})
}
