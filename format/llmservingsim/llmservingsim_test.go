package llmservingsim_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/layerscsv"
	"github.com/llmprof/llmprof/format/llmservingsim"
	"github.com/llmprof/llmprof/profile"
)

func read(t testing.TB, fsys fs.FS) *profile.Profile {
	t.Helper()
	p, warnings, err := llmservingsim.ReadFS("x", fsys, llmservingsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) > 0 {
		t.Errorf("warnings %v", warnings)
	}
	return p
}

// folder is a place to write to.
type folder fstest.MapFS

type file struct {
	bytes.Buffer
	close func([]byte)
}

func (f *file) Close() error { f.close(f.Bytes()); return nil }

func (d folder) create(name string) (io.WriteCloser, error) {
	if !fs.ValidPath(name) {
		return nil, fmt.Errorf("path %q leads elsewhere", name)
	}
	return &file{close: func(b []byte) { d[name] = &fstest.MapFile{Data: b} }}, nil
}

func write(t testing.TB, p *profile.Profile, opts llmservingsim.WriteOptions) folder {
	t.Helper()
	d, _ := remarked(t, p, opts)
	return d
}

// remarked is write with its remarks.
func remarked(t testing.TB, p *profile.Profile, opts llmservingsim.WriteOptions) (folder, []string) {
	t.Helper()
	d := folder{}
	remarks, err := llmservingsim.Write(p, d.create, opts)
	if err != nil {
		t.Fatal(err)
	}
	return d, remarks
}

func (d folder) names() []string { return slices.Sorted(maps.Keys(d)) }

// unpacked is a folder of testdata with its files expanded.
func unpacked(t testing.TB, root string) folder {
	t.Helper()
	d := folder{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path.Join(root, name))
		if err != nil {
			return err
		}
		if plain, ok := strings.CutSuffix(name, ".gz"); ok {
			zr, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				return err
			}
			if data, err = io.ReadAll(zr); err != nil {
				return err
			}
			name = plain
		}
		d[name] = &fstest.MapFile{Data: data}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func same(t *testing.T, want, got folder) {
	t.Helper()
	if diff := cmp.Diff(want.names(), got.names()); diff != "" {
		t.Fatal(diff)
	}
	for name := range want {
		if !bytes.Equal(want[name].Data, got[name].Data) {
			lines := bytes.Split(got[name].Data, []byte("\n"))
			for i, line := range bytes.Split(want[name].Data, []byte("\n")) {
				if i >= len(lines) || !bytes.Equal(line, lines[i]) {
					t.Errorf("%s line %d: %q became %q", name, i+1, line, append(lines, nil)[min(i, len(lines))])
					break
				}
			}
		}
	}
}

// saved is the profile as a file holds it.
func saved(t testing.TB, p *profile.Profile) *profile.Profile {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write("x.llmprof", &b); err != nil {
		t.Fatal(err)
	}
	out, warnings, err := profile.Read("x.llmprof", &b)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return out
}

// TestThereAndBack holds for both bundles: packed and unpacked they are the
// same profile, and that profile, saved and read, gives the same files.
func TestThereAndBack(t *testing.T) {
	for _, root := range []string{"RTX4090", "RTXPRO6000"} {
		t.Run(root, func(t *testing.T) {
			files := unpacked(t, "testdata/"+root)
			p := read(t, os.DirFS("testdata/"+root))
			if !reflect.DeepEqual(p, read(t, fstest.MapFS(files))) {
				t.Error("packed and unpacked differ")
			}
			for i := range p.Points {
				if err := p.Points[i].Validate(); err != nil {
					t.Fatalf("point %d: %v", i, err)
				}
			}
			out, remarks := remarked(t, saved(t, p), llmservingsim.WriteOptions{})
			same(t, files, out)
			if len(remarks) > 0 {
				t.Errorf("remarks %q", remarks)
			}
		})
	}
}

func TestBundle(t *testing.T) {
	p := read(t, os.DirFS("testdata/RTXPRO6000"))
	want := profile.Header{
		Schema: profile.Schema, Version: profile.Version, Source: "x",
		Device: profile.Device{Reported: "NVIDIA RTX PRO 6000 Blackwell Server Edition"},
		Deploy: deploy.Config{
			Model: "meta-llama/Llama-3.1-8B", Engine: "vllm", EngineVersion: "0.19.0",
			DType: catalog.BF16, BlockSize: 16, MaxNumBatchedTokens: 2048, GPUMemoryUtilization: 0.9,
		},
	}
	got := p.Header
	got.Metadata = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	count := map[string]int{}
	for _, point := range p.Points {
		l := point.Layer
		kind := "other"
		if l.Name == llmservingsim.AttentionLayer {
			kind = "attention"
		}
		if _, ok := point.Extra[llmservingsim.KeyRegime]; ok {
			kind = "skew"
		}
		count[fmt.Sprintf("tp%d %s", l.TensorParallel, kind)]++
	}
	if diff := cmp.Diff(map[string]int{
		"tp1 other": 1448, "tp2 other": 1448, "tp1 attention": 19364, "tp2 attention": 19364, "tp1 skew": 13009, "tp2 skew": 13009,
	}, count); diff != "" {
		t.Error(diff)
	}
	if text, ok := llmservingsim.Meta(&p.Header); !ok || !strings.Contains(text, "alpha_default: 0.0654") {
		t.Errorf("meta %v %q", ok, text)
	}
	for tp, lines := range map[int]int{1: 3983, 2: 3967, 4: 0} {
		if text, ok := llmservingsim.SkewFit(&p.Header, tp); ok != (lines > 0) || strings.Count(text, "\n") != lines {
			t.Errorf("skew fit of tp%d: %v, %d lines", tp, ok, strings.Count(text, "\n"))
		}
	}
}

func TestPoints(t *testing.T) {
	p := read(t, os.DirFS("testdata/RTX4090"))
	if p.Header.Deploy.TensorParallel != 1 {
		t.Errorf("deployment %+v", p.Header.Deploy)
	}
	find := func(match func(profile.Layer) bool) profile.Point {
		for _, point := range p.Points {
			if match(*point.Layer) {
				return point
			}
		}
		t.Fatal("no such point")
		return profile.Point{}
	}
	for _, c := range []struct {
		why   string
		layer profile.Layer
		want  float64
	}{
		{"dense", profile.Layer{Name: "act_fn", Tokens: 2, TensorParallel: 1}, 3.18967e-6},
		{"per sequence", profile.Layer{Name: "lm_head", Sequences: 1, TensorParallel: 1}, 1096.93e-6},
		{"attention", profile.Layer{Name: "attention", Sequences: 1, SequenceContext: 16, TensorParallel: 1}, 9.31067e-6},
		{"skew", profile.Layer{Name: "attention", Sequences: 2, SequenceContext: 128, LongSequences: 1, LongContext: 512, TensorParallel: 1}, 53.343e-6},
	} {
		t.Run(c.why, func(t *testing.T) {
			point := find(func(l profile.Layer) bool { return l == c.layer })
			if point.Samples[0] != c.want || len(point.Samples) != 1 {
				t.Errorf("samples %v, want %g", point.Samples, c.want)
			}
			if c.why != "skew" {
				return
			}
			want := map[string]json.RawMessage{
				llmservingsim.KeyRegime: json.RawMessage(`"pure"`), llmservingsim.KeyRatio: json.RawMessage("0.5"), llmservingsim.KeySkew: json.RawMessage("4.0"),
				llmservingsim.KeyMeanContext: json.RawMessage("320"), llmservingsim.KeyMeanTime: json.RawMessage("52.128"), llmservingsim.KeyMaxTime: json.RawMessage("56.254"),
				llmservingsim.KeyAlpha: json.RawMessage("0.2945"),
			}
			if diff := cmp.Diff(want, point.Extra); diff != "" {
				t.Error(diff)
			}
		})
	}
	empty := 0
	for _, point := range p.Points {
		if _, skew := point.Extra[llmservingsim.KeyRegime]; skew {
			if _, ok := point.Extra[llmservingsim.KeyAlpha]; !ok {
				empty++
			}
		}
	}
	if empty != 11 {
		t.Errorf("%d rows without alpha, want 11", empty)
	}
}

func TestMoE(t *testing.T) {
	moe, err := os.ReadFile("testdata/moe_format_synthetic.csv")
	if err != nil {
		t.Fatal(err)
	}
	files := folder{"meta.yaml": {Data: []byte("model: m\n")}, "tp1/moe.csv": {Data: moe}}
	p := read(t, fstest.MapFS(files))
	want := profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "moe", Tokens: 2, ActivatedExperts: 16, TensorParallel: 1}, Samples: []float64{61.5e-6}}
	if diff := cmp.Diff(want, p.Points[2]); diff != "" {
		t.Error(diff)
	}
	same(t, files, write(t, saved(t, p), llmservingsim.WriteOptions{}))
}

const dense = "layer,tokens,time_us\r\nq_proj,1,45.895\r\n"

// small is a bundle, with some files replaced; "" removes one.
func small(with map[string]string) fstest.MapFS {
	files := map[string]string{"meta.yaml": "gpu: NVIDIA H42\nhardware: H42\nmodel: m\nvariant: bf16\n", "tp1/dense.csv": dense}
	maps.Copy(files, with)
	out := fstest.MapFS{}
	for name, text := range files {
		if text != "" {
			out[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return out
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		why    string
		files  fstest.MapFS
		source string
		want   string // of the error
	}{
		{"the folder itself", small(nil), "x", ""},
		{"a folder above", fstest.MapFS{"H42/org/m/bf16/meta.yaml": small(nil)["meta.yaml"], "H42/org/m/bf16/tp1/dense.csv": small(nil)["tp1/dense.csv"]}, "x/H42/org/m/bf16", ""},
		{"its own before those below", small(map[string]string{"a/meta.yaml": "model: other\n"}), "x", ""},
		{"several", fstest.MapFS{"a/meta.yaml": small(nil)["meta.yaml"], "b/meta.yaml.gz": small(nil)["meta.yaml"]}, "", "x: holds 2 bundles, name one of them: a, b"},
		{"none", fstest.MapFS{"tp1/dense.csv": small(nil)["tp1/dense.csv"]}, "", "x: no meta.yaml: this is no LLMServingSim bundle"},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, _, err := llmservingsim.ReadFS("x", c.files, llmservingsim.Options{})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && p.Header.Source != c.source:
				t.Errorf("source %q", p.Header.Source)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if _, err := llmservingsim.Find(os.DirFS("testdata/none")); err == nil {
		t.Error("a folder that is not there was searched")
	}
}

func TestMeta(t *testing.T) {
	device := func(reported string) (string, bool) { return "h42", reported == "H42" }
	for _, c := range []struct {
		why, meta string
		want      profile.Header
	}{
		{"quotes, comments and lists", "model: 'it''s' # ours\ngpu: \"H\\u0034\\u0032\"\ntp_degrees: [1]\nlist:\n- model: x\n", profile.Header{
			Device: profile.Device{Name: "h42", Reported: "H42"}, Deploy: deploy.Config{Model: "it's", Device: "h42"},
		}},
		{"the short name is tried after the driver's", "model: m\ngpu: NVIDIA H42\nhardware: H42\n", profile.Header{
			Device: profile.Device{Name: "h42", Reported: "NVIDIA H42"}, Deploy: deploy.Config{Model: "m", Device: "h42"},
		}},
		{"KV cache in fp8", "model: m\nvariant: bf16-kvfp8\n", profile.Header{Deploy: deploy.Config{Model: "m", DType: catalog.BF16, KVCacheDType: catalog.FP8}}},
		{"weights in fp8", "model: m\nvariant: fp8-kvfp8\n", profile.Header{Deploy: deploy.Config{Model: "m", Quantization: "fp8", KVCacheDType: catalog.FP8}}},
		{"the engine's own words come first", "model: m\nvariant: bf16\nengine_effective:\n  dtype: float16\n  kv_cache_dtype: auto\n  quantization: fp8\n  hf_overrides:\n    block_size: 7\n", profile.Header{Deploy: deploy.Config{Model: "m", DType: catalog.FP16, Quantization: "fp8"}}},
		{"figures out of range are left out", "model: m\nengine_effective:\n  block_size: -1\n  gpu_memory_utilization: 90\n  max_num_batched_tokens: many\n", profile.Header{Deploy: deploy.Config{Model: "m"}}},
		{"rows of another indent", "  model: nested\nmodel: m\nmodel: again\n", profile.Header{Deploy: deploy.Config{Model: "m"}}},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, _, err := llmservingsim.ReadFS("x", small(map[string]string{"meta.yaml": c.meta}), llmservingsim.Options{Device: device})
			if err != nil {
				t.Fatal(err)
			}
			c.want.Schema, c.want.Version, c.want.Source, c.want.Deploy.TensorParallel = profile.Schema, profile.Version, "x", 1
			p.Header.Metadata = nil
			if diff := cmp.Diff(c.want, p.Header); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func seedProfile(t testing.TB) (*profile.Profile, string) {
	t.Helper()
	data, err := os.ReadFile("../layerscsv/testdata/RTX3090_Llama-3.1-8B.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := layerscsv.Read("RTX3090.csv.gz", bytes.NewReader(data), layerscsv.Options{})
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
	return p, string(text)
}

// TestSeedThroughBundle: CSV → bundle → profile → CSV loses nothing.
func TestSeedThroughBundle(t *testing.T) {
	p, text := seedProfile(t)
	d, remarks := remarked(t, p, llmservingsim.WriteOptions{})
	if diff := cmp.Diff([]string{
		"lm_head of more than one token left out (2047 points): the profile does not tell for how many of them it computed logits",
		"not measured, but wanted by LLMServingSim: sampler",
		"attention was not measured for several decoding sequences and prompts beside decoding sequences: LLMServingSim goes by the nearest batches there are",
		"lm_head was measured for one number of sequences: LLMServingSim takes its time for any",
	}, remarks); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"meta.yaml", "profile.llmprof.gz", "tp1/attention.csv", "tp1/dense.csv", "tp1/per_sequence.csv"}, d.names()); diff != "" {
		t.Fatal(diff)
	}
	back := read(t, fstest.MapFS(d))
	if !reflect.DeepEqual(p, back) {
		t.Fatal("the profile differs")
	}
	var b bytes.Buffer
	if err := layerscsv.Write(&b, back, layerscsv.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if b.String() != text {
		t.Error("the CSV differs")
	}
	same(t, d, write(t, back, llmservingsim.WriteOptions{}))

	// The files alone hold prompts of every layer and decode of attention.
	delete(d, "profile.llmprof.gz")
	alone := read(t, fstest.MapFS(d))
	if len(alone.Points) != 9*2048+2048+2048+1 {
		t.Errorf("%d points in the files", len(alone.Points))
	}
	at := map[profile.Layer]float64{}
	for _, point := range alone.Points {
		at[*point.Layer] = point.Samples[0]
	}
	for _, c := range []struct {
		why   string
		layer profile.Layer
		want  float64
	}{
		{"of two rows with one key the last counts", profile.Layer{Name: "o_proj", Tokens: 1, TensorParallel: 1}, 45851e-9},
		{"prefill of attention", profile.Layer{Name: "attention", Tokens: 1024, TensorParallel: 1}, 176218e-9},
		{"decode of attention", profile.Layer{Name: "attention", Sequences: 1, SequenceContext: 1024, TensorParallel: 1}, 15582e-9},
		{"the head works on sequences", profile.Layer{Name: "lm_head", Sequences: 1, TensorParallel: 1}, 1184777e-9},
	} {
		if c.want != at[c.layer] {
			t.Errorf("%s: %+v takes %g, want %g", c.why, c.layer, at[c.layer], c.want)
		}
	}
	measured := map[profile.Layer]float64{}
	for _, point := range p.Points {
		if point.Layer.Context == 0 {
			measured[profile.Layer{Name: point.Layer.Name, Tokens: point.Layer.Tokens}] = point.Samples[0]
		}
	}
	for n := 1; n <= 2048; n++ {
		for name, parts := range map[string][]string{
			"qkv_proj": {"q_proj", "k_proj", "v_proj"}, "gate_up_proj": {"gate_proj", "up_proj"}, "layernorm": {"input_layernorm", "post_layernorm"},
			"rotary_emb": {"rope"}, "embedding": {"embedding"}, "o_proj": {"o_proj"}, "act_fn": {"act_fn"}, "down_proj": {"down_proj"}, "final_layernorm": {"final_layernorm"},
		} {
			want := 0.0
			for _, part := range parts {
				want += measured[profile.Layer{Name: part, Tokens: n}]
			}
			if name == "layernorm" {
				want /= 2
			}
			if got := at[profile.Layer{Name: name, Tokens: n, TensorParallel: 1}]; math.Abs(got-want) > 1e-16 || want == 0 {
				t.Fatalf("%s of %d tokens takes %g, want %g", name, n, got, want)
			}
		}
	}
	if alone.Header.Device.Reported != "RTX3090" || alone.Header.Deploy.Model != "meta-llama/Llama-3.1-8B" {
		t.Errorf("header %+v", alone.Header)
	}
}

// TestProfileBesideBundle writes profiles that say as much as the files, and
// more.
func TestProfileBesideBundle(t *testing.T) {
	original := read(t, small(nil))
	for _, c := range []struct {
		why    string
		change func(*profile.Profile)
		beside bool
	}{
		{"as it was read", func(*profile.Profile) {}, false},
		{"a second sample", func(p *profile.Profile) { p.Points[0].Samples = []float64{1e-6, 2e-6} }, true},
		{"a clock", func(p *profile.Profile) { p.Points[0].Clock = profile.ClockDevice }, true},
		{"a remark", func(p *profile.Profile) { p.Points[0].Warnings = []string{"lint: cpu-time"} }, true},
		{"a key without a column", func(p *profile.Profile) {
			p.Points[0].Extra = map[string]json.RawMessage{"note": json.RawMessage(`"x"`)}
		}, true},
		{"a point of another kind", func(p *profile.Profile) {
			p.Points = append(p.Points, profile.Point{Kind: profile.KindFailure, Reason: "oom"})
		}, true},
		{"a rank that the header tells", func(p *profile.Profile) { p.Points[0].Layer.TensorParallel = 0 }, true},
		{"a layer without a column for its context", func(p *profile.Profile) { p.Points[0].Layer.Context = 9 }, true},
		{"a further row", func(p *profile.Profile) {
			p.Points = append(p.Points, profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "v_proj", Tokens: 1, TensorParallel: 1}, Samples: []float64{1e-6}})
		}, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			p := saved(t, original)
			c.change(p)
			if c.why == "a layer without a column for its context" {
				p.Points = append(p.Points, profile.Point{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "v_proj", Tokens: 1, TensorParallel: 1}, Samples: []float64{1e-6}})
			}
			d := write(t, p, llmservingsim.WriteOptions{})
			if _, ok := d["profile.llmprof.gz"]; ok != c.beside {
				t.Errorf("a profile beside the files: %v", ok)
			}
			if diff := cmp.Diff(p, read(t, fstest.MapFS(d))); diff != "" {
				t.Error(diff)
			}
			if _, ok := write(t, p, llmservingsim.WriteOptions{WithoutProfile: true})["profile.llmprof.gz"]; ok {
				t.Error("written although not wanted")
			}
		})
	}
}

func TestChangedBundle(t *testing.T) {
	p := read(t, small(nil))
	p.Points[0].Clock = profile.ClockDevice
	for _, c := range []struct {
		why    string
		change func(folder)
		want   string
	}{
		{"a row was changed", func(d folder) { d["tp1/dense.csv"] = &fstest.MapFile{Data: []byte(dense + "v_proj,1,3\r\n")} }, "tp1/dense.csv was changed"},
		{"meta was changed", func(d folder) { d["meta.yaml"] = &fstest.MapFile{Data: []byte("model: n\n")} }, "meta.yaml was changed"},
		{"a file was added", func(d folder) {
			d["tp1/per_sequence.csv"] = &fstest.MapFile{Data: []byte("layer,sequences,time_us\nlm_head,1,9\n")}
		}, "tp1/per_sequence.csv was added"},
		{"a file was removed", func(d folder) {
			d["tp2/dense.csv"] = d["tp1/dense.csv"]
			delete(d, "tp1/dense.csv")
		}, "tp1/dense.csv is no longer there"},
		{"the profile was cut", func(d folder) {
			d["profile.llmprof.gz"] = &fstest.MapFile{Data: d["profile.llmprof.gz"].Data[:30]}
		}, "profile.llmprof.gz: left out"},
		{"the profile is of something else", func(d folder) {
			var b bytes.Buffer
			if err := (&profile.Profile{}).Write("x", &b); err != nil {
				t.Fatal(err)
			}
			d["profile.llmprof.gz"] = &fstest.MapFile{Data: b.Bytes()}
		}, "does not say which files it belongs to"},
	} {
		t.Run(c.why, func(t *testing.T) {
			d := write(t, p, llmservingsim.WriteOptions{})
			c.change(d)
			q, warnings, err := llmservingsim.ReadFS("x", fstest.MapFS(d), llmservingsim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(fmt.Sprint(warnings), c.want) {
				t.Errorf("warnings %v, want %q", warnings, c.want)
			}
			if q.Points[0].Clock != "" {
				t.Error("the profile was taken")
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	full := errors.New("disk full")
	p := read(t, small(nil))
	for _, c := range []struct {
		why    string
		p      *profile.Profile
		create func(string) (io.WriteCloser, error)
		want   string
	}{
		{"no layers", &profile.Profile{}, folder{}.create, "holds no layers"},
		{"a full disk", p, func(string) (io.WriteCloser, error) { return nil, full }, "disk full"},
		{"a disk that fills", p, func(string) (io.WriteCloser, error) { return failing{full}, nil }, "disk full"},
		{"metadata of something else", &profile.Profile{Header: profile.Header{Metadata: map[string]json.RawMessage{llmservingsim.MetadataKey: json.RawMessage(`7`)}}}, folder{}.create, "metadata llmservingsim"},
		{"metadata that leads out of the folder", &profile.Profile{
			Header: profile.Header{Metadata: map[string]json.RawMessage{llmservingsim.MetadataKey: json.RawMessage(`{"../../evil": {"text": "x"}}`)}}, Points: p.Points,
		}, folder{}.create, `"../../evil" is no file of a bundle`},
	} {
		t.Run(c.why, func(t *testing.T) {
			if _, err := llmservingsim.Write(c.p, c.create, llmservingsim.WriteOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
func (failing) Close() error                { return nil }

func BenchmarkReadFS(b *testing.B) {
	for b.Loop() {
		if _, _, err := llmservingsim.ReadFS("x", os.DirFS("testdata/RTXPRO6000"), llmservingsim.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzReadFS(f *testing.F) {
	d := unpacked(f, "testdata/RTXPRO6000")
	head := func(name string) string {
		text := string(d[name].Data)
		return text[:strings.LastIndexByte(text[:min(len(text), 500)], '\n')+1]
	}
	meta := string(d["meta.yaml"].Data)
	for _, s := range []string{"dense.csv", "per_sequence.csv", "attention.csv", "skew.csv", "skew_fit.csv"} {
		f.Add(meta, s, head("tp1/"+s))
	}
	f.Add("model: m", "moe.csv", "tokens,activated_experts,time_us\n1,8,50.0\n2,8,1e-3\n")
	f.Add("a:\n b:\n  c: 'd", "dense.csv", "tokens,layer,note,time_us\n1,moe,\"x\ny\",5\n1,attention,,5.50\n")
	f.Add("model: m", "dense.csv", "layer,tokens,\"time_us\r\"\r\n0,01,1\r\n")
	f.Add("model: m", "profile.llmprof.gz", `{"schema":"llmprof/profile","version":"1.1","metadata":{"llmservingsim_digests":{}}}`)
	f.Fuzz(func(t *testing.T, meta, name, text string) {
		if !slices.Contains([]string{"dense.csv", "per_sequence.csv", "attention.csv", "moe.csv", "skew.csv", "skew_fit.csv", "profile.llmprof.gz"}, name) {
			return
		}
		files := fstest.MapFS{"meta.yaml": {Data: []byte(meta)}, "tp1/" + name: {Data: []byte(text)}}
		if name == "profile.llmprof.gz" {
			files[name] = files["tp1/"+name]
			files["tp1/dense.csv"] = &fstest.MapFile{Data: []byte(dense)}
			delete(files, "tp1/"+name)
		}
		p, _, err := llmservingsim.ReadFS("x", files, llmservingsim.Options{Limits: format.Limits{Bytes: 1 << 20}})
		if err != nil {
			if _, ok := errors.AsType[*format.Error](err); !ok {
				t.Fatalf("no place: %v", err)
			}
			return
		}
		for i := range p.Points {
			if err := p.Points[i].Validate(); err != nil {
				t.Fatalf("point %d: %v", i, err)
			}
		}
		if name == "profile.llmprof.gz" {
			return
		}
		out := folder{}
		if _, err := llmservingsim.Write(p, out.create, llmservingsim.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		q, _, err := llmservingsim.ReadFS("x", fstest.MapFS(out), llmservingsim.Options{})
		if err != nil {
			t.Fatalf("%v in %q", err, out["tp1/"+name].Data)
		}
		again := write(t, q, llmservingsim.WriteOptions{})
		for name := range out {
			if !bytes.Equal(out[name].Data, again[name].Data) {
				t.Fatalf("%s: %q became %q", name, out[name].Data, again[name].Data)
			}
		}
	})
}
