package llmservingsim_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format/llmservingsim"
	"github.com/llmprof/llmprof/profile"
)

// timed is a point of a layer with times in microseconds.
func timed(l profile.Layer, samples ...float64) profile.Point {
	for i := range samples {
		samples[i] /= 1e6
	}
	return profile.Point{Kind: profile.KindLayer, Clock: profile.ClockDevice, Layer: &l, Samples: samples}
}

// sheets are the written files as text, without the profile beside them.
func sheets(d folder) map[string]string {
	out := map[string]string{}
	for name, f := range d {
		if name != "profile.llmprof.gz" {
			out[name] = strings.ReplaceAll(string(f.Data), "\r\n", "\n")
		}
	}
	return out
}

// layers are points of one token, each layer one microsecond longer than the
// one before.
func layers(names string) []profile.Point {
	var points []profile.Point
	for i, name := range strings.Fields(names) {
		points = append(points, timed(profile.Layer{Name: name, Tokens: 1}, float64(i+1)))
	}
	return points
}

const llama = "embedding input_layernorm q_proj k_proj v_proj rope attn o_proj post_layernorm gate_proj up_proj act_fn down_proj final_layernorm lm_head"

// TestWriteMeasured writes what a probe of this program measures, batches of
// decoding sequences included.
func TestWriteMeasured(t *testing.T) {
	p := &profile.Profile{
		Header: profile.Header{
			Tool: "1.2", Created: "2026-01-02T03:04:05Z", Device: profile.Device{Name: "h42", Reported: "H42: #1"},
			Deploy: deploy.Config{
				Model: "org/m", Engine: "torch", EngineVersion: "2.9", TensorParallel: 1,
				DType: catalog.FP16, KVCacheDType: catalog.FP8, BlockSize: 16, GPUMemoryUtilization: 0.5,
			},
		},
		Points: append(
			layers(llama+" position_embedding"),
			timed(profile.Layer{Name: "o_proj", Tokens: 1, Context: 9}, 99), // a shorter context was measured
			timed(profile.Layer{Name: "o_proj", Tokens: 8, Context: 64}, 82),
			timed(profile.Layer{Name: "o_proj", Tokens: 8, Context: 16}, 80, 81),
			timed(profile.Layer{Name: "o_proj", Tokens: 2, SequenceContext: 5}, 1),
			timed(profile.Layer{Name: "q_proj", Tokens: 8, Context: 16}, 0.1, 0.3),
			timed(profile.Layer{Name: "k_proj", Tokens: 8, Context: 64}, 0.1, 0.1),
			timed(profile.Layer{Name: "v_proj", Tokens: 8, Context: 16}, 0.7),
			timed(profile.Layer{Name: "gate_proj", Tokens: 8, Context: 16}, 5), // up_proj was not measured there
			timed(profile.Layer{Name: "lm_head", Tokens: 8}, 7),                // of one row or of eight
			timed(profile.Layer{Name: "lm_head", Tokens: 8, Context: 16, Sequences: 8}, 20, 21),
			timed(profile.Layer{Name: "lm_head", Tokens: 8, Context: 64, Sequences: 8}, 99),
			timed(profile.Layer{Name: "attn", Tokens: 3, Sequences: 1}, 2),
			timed(profile.Layer{Name: "attn", Tokens: 1, Context: 5}, 3),
			timed(profile.Layer{Name: "attn", Sequences: 8, SequenceContext: 16}, 4),
			timed(profile.Layer{Name: "attention", Tokens: 4, Context: 2, Sequences: 8, SequenceContext: 6}, 5),
			timed(profile.Layer{Name: "attention", Sequences: 8, SequenceContext: 6, LongSequences: 1, LongContext: 99}, 5), // nothing to compare with
			timed(profile.Layer{Name: "indexer", Tokens: 3}, 6),
			profile.Point{Kind: profile.KindFailure, Reason: "oom"},
		),
	}
	d, remarks := remarked(t, p, llmservingsim.WriteOptions{})
	want := map[string]string{
		"tp1/dense.csv": `layer,tokens,time_us
act_fn,1,12
down_proj,1,13
embedding,1,17
final_layernorm,1,14
gate_up_proj,1,21
layernorm,1,5.5
o_proj,1,8
o_proj,8,80.5
qkv_proj,1,12
qkv_proj,8,1
rotary_emb,1,6
`,
		"tp1/per_sequence.csv": "layer,sequences,time_us\nlm_head,1,15\nlm_head,8,20.5\n",
		"tp1/attention.csv":    "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,5,3\n0,0,8,16,4\n1,0,0,0,7\n3,0,0,0,2\n4,2,8,6,5\n",
		"meta.yaml": `profiler_version: llmprof 1.2
engine: torch
engine_version: 2.9
gpu: 'H42: #1'
hardware: h42
profiled_at: '2026-01-02T03:04:05Z'
model: org/m
variant: fp16-kvfp8
tp_degrees: [1]
engine_effective:
  dtype: fp16
  kv_cache_dtype: fp8
  tensor_parallel_size: 1
  block_size: 16
  gpu_memory_utilization: 0.5
attention_grid:
  max_kv: 16
  chunks: 0, 1, 3, 4
  n_decode: 0, 1, 8
  kv: 0, 2, 5, 6, 16
skew_profile:
  enabled: false
skew_fit:
  enabled: false
`,
	}
	if diff := cmp.Diff(want, sheets(d)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"gate_up_proj left out at sizes at which not all of gate_proj and up_proj were measured: 1",
		"lm_head of more than one token left out (1 point): the profile does not tell for how many of them it computed logits",
		"left out, as no times of layers: 1 point",
		"a bundle has no place for indexer (1 point)",
		"a bundle has no columns for the sizes of attention (1 point) and o_proj (1 point)",
		"not measured, but wanted by LLMServingSim: sampler",
	}, remarks); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(saved(t, p).Points, read(t, fstest.MapFS(d)).Points); diff != "" {
		t.Errorf("the profile beside the files: %s", diff)
	}
	delete(d, "profile.llmprof.gz")
	back := read(t, fstest.MapFS(d)).Header
	back.Metadata = nil
	if diff := cmp.Diff(profile.Header{Schema: profile.Schema, Version: profile.Version, Source: "x", Device: profile.Device{Reported: "H42: #1"}, Deploy: p.Header.Deploy}, back); diff != "" {
		t.Error(diff)
	}
}

// TestFamilies writes what the probe measures of several architectures.
func TestFamilies(t *testing.T) {
	const (
		lacksBatches = "attention was not measured for decoding sequences: LLMServingSim goes by the nearest batches there are"
		oneHead      = "lm_head was measured for one number of sequences: LLMServingSim takes its time for any"
		noSampler    = "not measured, but wanted by LLMServingSim: sampler"
	)
	moe := timed(profile.Layer{Name: "moe", Tokens: 4, ActivatedExperts: 2}, 5)
	for _, c := range []struct {
		why     string
		points  []profile.Point
		dense   string // layers and times, by name
		moe     string
		remarks []string
	}{
		{
			why: "Qwen3 norms queries and keys", points: layers(llama + " q_norm k_norm"),
			dense:   "act_fn 12, down_proj 13, embedding 1, final_layernorm 14, gate_up_proj 21, layernorm 5.5, o_proj 8, qk_norm 33, qkv_proj 12, rotary_emb 6",
			remarks: []string{noSampler, lacksBatches, oneHead},
		},
		{
			why:    "OPT has neither rotary embedding nor gate, and attention in parts",
			points: layers("embedding input_layernorm q_proj k_proj v_proj qk_matmul softmax sv_matmul o_proj post_layernorm fc1 act_fn fc2 final_layernorm lm_head"),
			dense:  "act_fn 12, down_proj 13, embedding 1, final_layernorm 14, gate_up_proj 11, layernorm 6, o_proj 9, qkv_proj 12",
			remarks: []string{
				"fc1 stands for gate_up_proj, since this model has no gate",
				"not measured, but wanted by LLMServingSim: rotary_emb and sampler", lacksBatches, oneHead,
			},
		},
		{
			why: "a Phi of LLM-Profile times one expert", points: layers("embedding input_layernorm q_proj k_proj v_proj rope attn o_proj post_layernorm gate expert.w1 expert.w3 act_fn expert.w2 final_layernorm lm_head"),
			dense: "embedding 1, final_layernorm 15, layernorm 5.5, o_proj 8, qkv_proj 12, rotary_emb 6",
			remarks: []string{
				"expert.w1 (1 point), expert.w2 (1 point), expert.w3 (1 point) and gate (1 point): left out, since the profile does not tell how many experts were activated",
				"a bundle has no place for act_fn of an expert (1 point)",
				"not measured, but wanted by LLMServingSim: moe and sampler", lacksBatches, oneHead,
			},
		},
		{
			why: "Mixtral's experts come as one", points: layers("embedding input_layernorm qkv_proj rope attn o_proj post_layernorm gate experts final_layernorm lm_head"),
			dense: "embedding 1, final_layernorm 10, layernorm 4.5, o_proj 6, qkv_proj 3, rotary_emb 4",
			remarks: []string{
				"experts (1 point) and gate (1 point): left out, since the profile does not tell how many experts were activated",
				"not measured, but wanted by LLMServingSim: moe and sampler", lacksBatches, oneHead,
			},
		},
		{
			why: "activated experts are known", points: append(layers("embedding layernorm qkv_proj rotary_emb attention o_proj final_layernorm lm_head sampler"), moe),
			dense: "embedding 1, final_layernorm 7, layernorm 2, o_proj 6, qkv_proj 3, rotary_emb 4", moe: "4,2,5.0",
			remarks: []string{lacksBatches, oneHead},
		},
		{
			why: "Gemma's four norms are not those of two", points: layers("embedding input_layernorm q_proj k_proj attn post_attention_layernorm final_layernorm lm_head sampler"),
			dense: "embedding 1, final_layernorm 7",
			remarks: []string{
				"input_layernorm left out: layernorm also takes post_layernorm",
				"q_proj and k_proj left out: qkv_proj also takes v_proj",
				"a bundle has no place for post_attention_layernorm (1 point)",
				"not measured, but wanted by LLMServingSim: layernorm, qkv_proj, rotary_emb, o_proj, gate_up_proj, act_fn and down_proj",
				lacksBatches, oneHead,
			},
		},
		{
			why: "the GPT of early LLMServingSim", points: layers("vocab_embedding input_layernorm attention/qkv attention/wrapper attention/dense post_layernorm mlp/fc mlp/gelu mlp/proj ln_f lm_head"),
			dense: "act_fn 8, down_proj 9, embedding 1, final_layernorm 10, gate_up_proj 7, layernorm 4, o_proj 5, qkv_proj 3",
			remarks: []string{
				"mlp/fc stands for gate_up_proj, since this model has no gate",
				"not measured, but wanted by LLMServingSim: rotary_emb and sampler", lacksBatches, oneHead,
			},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			d, remarks := remarked(t, &profile.Profile{Points: c.points}, llmservingsim.WriteOptions{})
			if diff := cmp.Diff(c.remarks, remarks); diff != "" {
				t.Error(diff)
			}
			rows := strings.Split(strings.TrimSpace(sheets(d)["tp1/dense.csv"]), "\n")[1:]
			for i, row := range rows {
				rows[i] = strings.ReplaceAll(row, ",1,", " ")
			}
			if diff := cmp.Diff(c.dense, strings.Join(rows, ", ")); diff != "" {
				t.Error(diff)
			}
			_, moe, _ := strings.Cut(strings.TrimSpace(sheets(d)["tp1/moe.csv"]), "\n")
			if diff := cmp.Diff(c.moe, moe); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRanks: what all ranks compute alike need only be measured on one.
func TestRanks(t *testing.T) {
	var points []profile.Point
	for ranks, names := range map[int]string{1: "layernorm final_layernorm sampler o_proj", 2: "o_proj attention"} {
		for _, p := range layers(names) {
			p.Layer.TensorParallel = ranks
			points = append(points, p)
		}
	}
	d, remarks := remarked(t, &profile.Profile{Points: points}, llmservingsim.WriteOptions{})
	if diff := cmp.Diff([]string{
		"tp1: not measured, but wanted by LLMServingSim: embedding, qkv_proj, rotary_emb, attention, gate_up_proj, act_fn, down_proj and lm_head",
		"tp2: not measured, but wanted by LLMServingSim: embedding, qkv_proj, rotary_emb, gate_up_proj, act_fn, down_proj and lm_head",
		"tp2: attention was not measured for decoding sequences: LLMServingSim goes by the nearest batches there are",
	}, remarks); diff != "" {
		t.Error(diff)
	}
	if text := sheets(d)["meta.yaml"]; !strings.Contains(text, "tp_degrees: [1, 2]\n") || strings.Contains(text, "architecture") {
		t.Errorf("meta %s", text)
	}
}

// TestAnyProfile: whatever was measured, the files can be read by themselves,
// without two rows of a key, and the profile comes back whole.
func TestAnyProfile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &profile.Profile{Header: profile.Header{Schema: profile.Schema, Version: profile.Version, Deploy: deploy.Config{Model: "m"}}}
		names := strings.Fields(llama + " q_norm gate experts expert.w1 moe qkv_proj sampler qk_matmul softmax fc1")
		size := rapid.IntRange(0, 3)
		for range rapid.IntRange(1, 40).Draw(t, "points") {
			l := profile.Layer{
				Name: rapid.SampledFrom(names).Draw(t, "name"), Tokens: size.Draw(t, "tokens"), Context: size.Draw(t, "context"), Sequences: size.Draw(t, "sequences"),
				SequenceContext: size.Draw(t, "sequence context"), ActivatedExperts: size.Draw(t, "experts") / 3, TensorParallel: size.Draw(t, "ranks"),
			}
			p.Points = append(p.Points, timed(l, float64(rapid.IntRange(1, 1e6).Draw(t, "us"))))
		}
		d := folder{}
		remarks, err := llmservingsim.Write(p, d.create, llmservingsim.WriteOptions{})
		if err != nil {
			if !strings.Contains(err.Error(), "no layers that have a place") {
				t.Fatal(err)
			}
			return
		}
		if len(remarks) == 0 {
			t.Fatal("nothing is missing")
		}
		q, warnings, err := llmservingsim.ReadFS("x", fstest.MapFS(d), llmservingsim.Options{})
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		if diff := cmp.Diff(p, q); diff != "" {
			t.Fatal(diff)
		}
		delete(d, "profile.llmprof.gz")
		if q, warnings, err = llmservingsim.ReadFS("x", fstest.MapFS(d), llmservingsim.Options{}); err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		seen := map[profile.Layer]bool{}
		for _, point := range q.Points {
			if seen[*point.Layer] {
				t.Fatalf("two rows of %+v", *point.Layer)
			}
			seen[*point.Layer] = true
			if strings.HasPrefix(point.Layer.Name, "q_") || strings.HasPrefix(point.Layer.Name, "expert") {
				t.Fatalf("LLMServingSim knows no %s", point.Layer.Name)
			}
		}
	})
}

func ExampleWrite() {
	probe := &profile.Profile{Points: []profile.Point{
		{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "gate_proj", Tokens: 512}, Samples: []float64{310e-6, 320e-6}},
		{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "up_proj", Tokens: 512}, Samples: []float64{305e-6, 305e-6}},
		{Kind: profile.KindLayer, Layer: &profile.Layer{Name: "router_bias", Tokens: 512}, Samples: []float64{1e-6, 1e-6}},
	}}
	out := folder{}
	remarks, err := llmservingsim.Write(probe, out.create, llmservingsim.WriteOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(sheets(out)["tp1/dense.csv"])
	fmt.Println(remarks[0])
	// Output:
	// layer,tokens,time_us
	// gate_up_proj,512,620
	// a bundle has no place for router_bias (1 point)
}
