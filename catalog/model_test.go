package catalog

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func builtin(t testing.TB) *Catalog {
	t.Helper()
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func model(t testing.TB, c *Catalog, name string) *Model {
	t.Helper()
	m, err := c.Model(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestParamChecks compares all four counts of testdata/param_checks.json.
func TestParamChecks(t *testing.T) {
	raw, err := os.ReadFile("testdata/param_checks.json")
	if err != nil {
		t.Fatal(err)
	}
	var checks struct {
		Models map[string]struct {
			Total     int64 `json:"params_total"`
			Active    int64 `json:"params_active"`
			Attention int64 `json:"attn_params_per_layer"`
			KVBytes   int64 `json:"kv_bytes_per_token_bf16_tp1"`
		} `json:"models"`
	}
	if err := json.Unmarshal(raw, &checks); err != nil {
		t.Fatal(err)
	}
	if len(checks.Models) != 25 {
		t.Fatalf("testdata holds %d models, want 25", len(checks.Models))
	}
	c := builtin(t)
	for name, want := range checks.Models {
		t.Run(name, func(t *testing.T) {
			m := model(t, c, name)
			p := m.Params()
			kv := 2 * m.KVElementsPerToken()
			for _, layer := range m.Layers(0, m.NumLayers) {
				if got := m.LayerParams(layer).Attention; got != want.Attention {
					t.Errorf("attention of one %s layer has %d parameters, want %d", layer.Attention, got, want.Attention)
				}
			}
			if p.Total != want.Total || p.Active != want.Active || kv != want.KVBytes {
				t.Errorf("total %d, active %d, KV bytes per token %d, want %d, %d, %d", p.Total, p.Active, kv, want.Total, want.Active, want.KVBytes)
			}
		})
	}
}

// TestPublishedTotals holds the totals against figures that do not come from
// this package, also where the table carries none or a part is left out.
func TestPublishedTotals(t *testing.T) {
	const vision = 871_932_416 // Llama 4: vision tower, adapter and projector
	// prediction is GLM's extra layer: a mixture layer, a 2h→h projection,
	// three norms, and an embedding and a head of its own.
	prediction := func(m *Model) int64 {
		h, v := int64(m.HiddenSize), int64(m.VocabSize)
		return m.LayerParams(Layer{Attention: FullAttention, MoE: true}).Total() + 2*h*h + 3*h + 2*v*h
	}
	none := func(*Model) int64 { return 0 }
	c := builtin(t)
	for _, test := range []struct {
		why, name string
		want      int64
		extra     func(*Model) int64
	}{
		{"dense, tied, q/k norm", "Qwen3-4B", 4_022_468_096, none},
		{"one KV head, sliding layers, four norms", "Gemma-3-1B", 999_885_952, none},
		{"experts with biases, sinks", "gpt-oss-20b", 20_914_757_184, none},
		{"experts with biases, sinks", "gpt-oss-120b", 116_829_156_672, none},
		{"linear layers, gated attention, gated shared expert", "Qwen/Qwen3-Coder-Next", 79_674_391_296, none},
		{"latent attention with query compression", "DeepSeek-V2", 235_741_434_880, none},
		{"norm over the whole width", "OLMo-2-7B", 7_298_617_344, none},
		{"every layer a mixture", "Llama-4-Scout", 108_641_793_536, func(*Model) int64 { return vision }},
		{"every second layer a mixture", "Llama-4-Maverick", 401_583_781_376, func(*Model) int64 { return vision }},
		{"q/k norm, leading dense layers", "GLM-4.5", 358_337_791_296, prediction},
		{"no q/k norm", "GLM-4.5-Air", 110_468_824_832, prediction},
		{"biases everywhere, LayerNorm", "Phi-3.5-MoE", 41_873_153_344, none},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := model(t, c, test.name)
			if got := m.Params().Total + test.extra(m); got != test.want {
				t.Errorf("%s: %d parameters, published %d", test.why, got, test.want)
			}
		})
	}
}

func TestLayers(t *testing.T) {
	c := builtin(t)
	for _, test := range []struct {
		why, name   string
		first, last int
		want        []Layer
	}{
		{"dense and mixture alternate, one layer in four sees everything", "Llama-4-Maverick", 0, 48, []Layer{
			{ChunkedAttention, false, 24}, {ChunkedAttention, true, 12}, {FullAttention, true, 12},
		}},
		{"the pattern of six is cut off at the end", "Gemma-3-1B", 0, 26, []Layer{
			{SlidingAttention, false, 22}, {FullAttention, false, 4},
		}},
		{"three linear layers to one of attention", "Qwen3-Next-80B-A3B", 0, 48, []Layer{
			{LinearAttn, true, 36}, {FullAttention, true, 12},
		}},
		{"a stage in the middle keeps the positions", "gpt-oss-20b", 13, 16, []Layer{
			{FullAttention, true, 2}, {SlidingAttention, true, 1},
		}},
		{"leading dense layers", "DeepSeek-V3", 0, 61, []Layer{
			{FullAttention, false, 3}, {FullAttention, true, 58},
		}},
		{"one kind", "Mistral-7B-v0.1", 0, 32, []Layer{{SlidingAttention, false, 32}}},
		{"an empty stage", "Qwen3-8B", 5, 5, nil},
	} {
		t.Run(test.why, func(t *testing.T) {
			m := model(t, c, test.name)
			if diff := cmp.Diff(test.want, m.Layers(test.first, test.last)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.name, diff)
			}
		})
	}
}

func TestActiveParams(t *testing.T) {
	c := builtin(t)
	for name, want := range map[string][2]float64{ // billions, as the model's name or card says
		"Qwen3-Next-80B-A3B":    {3.0, 4.0},
		"Qwen3-Coder-480B-A35B": {34.5, 35.9},
		"Llama-4-Maverick":      {16.5, 18},
		"Kimi-K2":               {32, 33},
		"gpt-oss-120b":          {5.1, 5.8},
		"GLM-4.5":               {32, 34},
	} {
		if got := float64(model(t, c, name).Params().Active) / 1e9; got < want[0] || got > want[1] {
			t.Errorf("%s: %.2f billion active parameters, want %g to %g", name, got, want[0], want[1])
		}
	}
}

func TestKVElements(t *testing.T) {
	c := builtin(t)
	if got := model(t, c, "Qwen3-Next-80B-A3B").KVElements(LinearAttn); got != 0 {
		t.Errorf("a linear layer caches %d numbers per token, want none", got)
	}
	if got := model(t, c, "Kimi-K2").KVElements(FullAttention); got != 576 {
		t.Errorf("a latent layer caches %d numbers per token, want 512 + 64", got)
	}
	// 12 of 48 layers cache two heads of 256 for keys and for values.
	if got := model(t, c, "Qwen3-Next-80B-A3B").KVElementsPerToken(); got != 12*2*2*256 {
		t.Errorf("the attention layers cache %d numbers per token, want 12 · 1024", got)
	}
}

// TestTablesHaveNoStrayKeys reads the tables strictly, which Builtin leaves
// out to save time.
func TestTablesHaveNoStrayKeys(t *testing.T) {
	for name, table := range map[string]struct {
		text []byte
		into any
	}{
		"models.json":  {modelsJSON, &[]Model{}},
		"devices.json": {devicesJSON, &[]Device{}},
	} {
		d := json.NewDecoder(bytes.NewReader(table.text))
		d.DisallowUnknownFields()
		if err := d.Decode(table.into); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestModelTable(t *testing.T) {
	c := builtin(t)
	if n := len(c.Models()); n < 75 {
		t.Errorf("%d models, want at least 75", n)
	}
	if !slices.IsSortedFunc(c.Models(), func(a, b *Model) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("models are not sorted by name")
	}
	for _, m := range c.Models() {
		switch {
		case m.Type == "":
			t.Errorf("%s has no type", m.Name)
		case m.Source == "":
			t.Errorf("%s has no source", m.Name)
		case m.DType == "":
			t.Errorf("%s has no dtype", m.Name)
		case m.MLA == nil && m.NumHeads*m.HeadDim > 4*m.HiddenSize:
			t.Errorf("%s: heads of %d are out of proportion", m.Name, m.HeadDim)
		}
	}
}

func TestModelValidate(t *testing.T) {
	c := builtin(t)
	for _, test := range []struct {
		why, name string
		edit      func(*Model)
		want      string
	}{
		{"the checkpoint size is held against the formula", "Qwen3-8B", func(m *Model) { m.ParamsTotal++ }, "params_total is 8190735361 but the architecture has 8190735360"},
		{"heads divide evenly", "Qwen3-8B", func(m *Model) { m.NumKVHeads = 5 }, "not a multiple"},
		{"a window is needed where it is used", "Gemma-3-1B", func(m *Model) { m.Window = 0 }, "window is 0"},
		{"a linear layer needs its sizes", "Qwen3-Next-80B-A3B", func(m *Model) { m.Linear = nil }, "linear_attention is missing"},
		{"experts visited exist", "Mixtral-8x7B", func(m *Model) { m.MoE.ExpertsPerToken = 9 }, "exceeds moe.num_experts"},
		{"dense layers need a width", "Llama-4-Maverick", func(m *Model) { m.IntermediateSize = 0 }, "intermediate_size is 0"},
		{"unknown kind of attention", "Qwen3-8B", func(m *Model) { m.LayerPattern = []string{"lineal"} }, `"lineal"`},
		{"unknown kind of norm", "Qwen3-8B", func(m *Model) { m.QKNorm = "tail" }, "qk_norm"},
		{"unknown dtype", "Qwen3-8B", func(m *Model) { m.DType = "fp17" }, `unknown dtype "fp17"`},
		{"a checkpoint is not smaller than nothing", "Qwen3-8B", func(m *Model) { m.ParamsTotal = -1 }, "want 0 or more"},
		{"a latent rank is needed", "DeepSeek-V3", func(m *Model) { m.MLA.KVLoraRank = 0 }, "mla.kv_lora_rank is 0"},
		{"a linear layer without heads", "Qwen3-Next-80B-A3B", func(m *Model) { m.Linear.NumKeyHeads = 0 }, "linear_attention.num_key_heads is 0"},
		{"too many norms", "Qwen3-8B", func(m *Model) { m.NormsPerLayer = 9 }, "norms_per_layer is 9"},
		{"endless layers", "Qwen3-8B", func(m *Model) { m.NumLayers = 1 << 27 }, "want at most 4096"},
		{"counts stay within 64 bits", "Mixtral-8x7B", func(m *Model) {
			m.ParamsTotal, m.MoE.NumExperts, m.MoE.IntermediateSize, m.HiddenSize = 0, 1<<28, 1<<28, 1<<28
		}, "more than 1.15"},
		{"counts stay within 64 bits", "DeepSeek-V3", func(m *Model) {
			m.ParamsTotal, m.MLA.KVLoraRank, m.NumHeads, m.MLA.VHeadDim = 0, 1<<28, 1<<28, 1<<28
		}, "more than 1.15"},
	} {
		t.Run(test.why, func(t *testing.T) {
			m := model(t, c, test.name).Clone()
			test.edit(m)
			err := m.Validate()
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), m.Name) {
				t.Errorf("got %v, want an error that names %s and says %q", err, m.Name, test.want)
			}
		})
	}
}

func TestClone(t *testing.T) {
	c := builtin(t)
	for _, m := range c.Models() {
		before := m.Clone()
		copied := m.Clone()
		if diff := cmp.Diff(m, copied); diff != "" {
			t.Fatalf("%s: the copy differs:\n%s", m.Name, diff)
		}
		for i := range copied.Aliases {
			copied.Aliases[i] = "changed"
		}
		for i := range copied.LayerPattern {
			copied.LayerPattern[i] = "changed"
		}
		if copied.MoE != nil {
			copied.MoE.NumExperts = -1
		}
		if copied.MLA != nil {
			copied.MLA.KVLoraRank = -1
		}
		if copied.Linear != nil {
			copied.Linear.NumKeyHeads = -1
		}
		if diff := cmp.Diff(before, m); diff != "" {
			t.Errorf("%s: changing the copy changed the model:\n%s", m.Name, diff)
		}
	}
}
