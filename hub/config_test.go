package hub

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
)

// fixtures pairs each config.json with the catalog entry that it describes
// ("" if there is none) and the published size of the checkpoint, vision
// parts and prediction layers not counted.
func fixtures() []struct {
	file, entry string
	total       int64
} {
	return []struct {
		file, entry string
		total       int64
	}{
		{"deepseek_v2", "deepseek-ai/DeepSeek-V2-Lite", 15_706_484_224},
		{"deepseek_v3", "deepseek-ai/DeepSeek-V3", 671_026_419_200},
		{"ernie4_5", "", 360_748_032},
		{"ernie4_5_moe", "", 21_825_437_888},
		{"falcon3", "tiiuae/Falcon3-1B-Base", 1_669_408_768},
		{"gemma", "google/gemma-7b", 8_537_680_896},
		{"gemma2", "google/gemma-2-9b", 9_241_705_984},
		{"gemma3", "google/gemma-3-4b-it", 3_880_263_168},
		{"gemma3_text", "google/gemma-3-1b-it", 999_885_952},
		{"glm", "zai-org/glm-4-9b-chat-hf", 9_399_951_360},
		{"glm4", "zai-org/GLM-4-9B-0414", 9_400_279_040},
		{"glm4_moe", "zai-org/GLM-4.5", 352_797_829_024},
		{"gpt_oss", "openai/gpt-oss-20b", 20_914_757_184},
		{"granite", "ibm-granite/granite-3.3-8b-instruct", 8_170_864_640},
		{"granitemoe", "", 3_298_793_472},
		{"internlm", "", 7_321_948_160},
		{"internlm2", "internlm/internlm2-20b", 19_861_149_696},
		{"kimi_k2", "moonshotai/Kimi-K2-Instruct", 1_026_408_232_448},
		{"llama", "meta-llama/Llama-3.1-8B", 8_030_261_248},
		{"llama_tied", "meta-llama/Llama-3.2-1B", 1_235_814_400},
		{"llama_mha", "meta-llama/Llama-2-7b-hf", 6_738_415_616},
		{"llama4", "meta-llama/Llama-4-Scout-17B-16E-Instruct", 107_769_861_120},
		{"llama4_interleaved", "meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400_711_848_960},
		{"llama4_text", "", 107_769_861_120},
		{"ministral", "mistralai/Ministral-8B-Instruct-2410", 8_019_808_256},
		{"ministral3", "", 8_489_553_920},
		{"mistral", "mistralai/Mistral-7B-v0.1", 7_241_732_096},
		{"mistral_nemo", "mistralai/Mistral-Nemo-Instruct-2407", 12_247_782_400},
		{"mistral3", "mistralai/Mistral-Small-3.1-24B-Instruct-2503", 23_572_403_200},
		{"mixtral", "mistralai/Mixtral-8x7B-v0.1", 46_702_792_704},
		{"olmo2", "allenai/OLMo-2-1124-7B", 7_298_617_344},
		{"olmo3", "", 7_298_011_136},
		{"olmoe", "", 6_919_161_856},
		{"phi", "", 2_779_683_840},
		{"phi3", "microsoft/Phi-3-mini-4k-instruct", 3_821_079_552},
		{"phi4", "microsoft/phi-4", 14_659_507_200},
		{"phimoe", "microsoft/Phi-3.5-MoE-instruct", 41_873_153_344},
		{"qwen2", "Qwen/Qwen2.5-7B", 7_615_616_512},
		{"qwen2_moe", "Qwen/Qwen2-57B-A14B", 57_408_658_944},
		{"qwen3", "Qwen/Qwen3-8B", 8_190_735_360},
		{"qwen3_moe", "Qwen/Qwen3-30B-A3B", 30_532_122_624},
		{"qwen3_next", "Qwen/Qwen3-Next-80B-A3B-Instruct", 79_674_391_296},
		{"seed_oss", "", 36_151_104_512},
		{"smollm3", "HuggingFaceTB/SmolLM3-3B", 3_075_098_624},
		{"yi", "01-ai/Yi-34B", 34_388_917_248},
	}
}

func readConfig(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "configs", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParseConfigFamilies(t *testing.T) {
	builtin, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range fixtures() {
		t.Run(f.file, func(t *testing.T) {
			m, _, err := ParseConfig(f.file+".json", readConfig(t, f.file))
			if err != nil {
				t.Fatal(err)
			}
			seen[m.Type] = true
			if got := m.Params().Total; got != f.total {
				t.Errorf("%d parameters, published are %d", got, f.total)
			}
			if m.Name != f.file {
				t.Errorf("name %q", m.Name)
			}
			if f.entry == "" {
				return
			}
			entry, err := builtin.Model(f.entry)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(architecture(entry), architecture(m)); diff != "" {
				t.Errorf("config.json differs from the catalog (-catalog +config):\n%s", diff)
			}
		})
	}
	// ministral3 and Yi are read as an inner or an old name of what is tested.
	for _, modelType := range ModelTypes() {
		if !seen[modelType] && !slices.Contains([]string{"ministral3", "Yi"}, modelType) {
			t.Errorf("model_type %s has no fixture", modelType)
		}
	}
	files, err := filepath.Glob("testdata/configs/*.json")
	if err != nil || len(files) != len(fixtures()) {
		t.Errorf("%d files for %d fixtures (%v)", len(files), len(fixtures()), err)
	}
}

// architecture leaves of a model what its computation follows from. The
// format is left out where a file and the catalog name different 16-bit ones:
// the catalog lists what engines run.
func architecture(m *catalog.Model) *catalog.Model {
	a := m.Clone()
	a.Name, a.HubID, a.Aliases, a.Source, a.Verified, a.Note, a.ParamsTotal = "", "", nil, "", false, "", 0
	if a.DType.Bits() == 16 {
		a.DType = catalog.BF16
	}
	return a
}

// edited returns a fixture with some keys set (or removed, by nil).
func edited(t *testing.T, name string, edits map[string]any) []byte {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(readConfig(t, name), &fields); err != nil {
		t.Fatal(err)
	}
	for key, value := range edits {
		if value == absent {
			delete(fields, key)
			continue
		}
		fields[key] = value
	}
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// absent removes a key in edited; nil sets it to null.
const absent = "<absent>"

func TestParseConfigRules(t *testing.T) {
	repeat := func(kind string, n int) []any {
		return slices.Repeat([]any{kind}, n)
	}
	tests := []struct {
		why     string
		fixture string
		edits   map[string]any
		check   func(*catalog.Model) any
		want    any
	}{
		{
			why: "Gemma's code ties the embeddings where the file says nothing", fixture: "gemma",
			check: func(m *catalog.Model) any { return m.TieEmbeddings }, want: true,
		},
		{
			why: "Llama's does not", fixture: "llama", edits: map[string]any{"tie_word_embeddings": absent},
			check: func(m *catalog.Model) any { return m.TieEmbeddings }, want: false,
		},
		{
			why: "what the file says wins", fixture: "gemma", edits: map[string]any{"tie_word_embeddings": false},
			check: func(m *catalog.Model) any { return m.TieEmbeddings }, want: false,
		},
		{
			why: "the whole model's switch counts where the decoder has none", fixture: "mistral3", edits: map[string]any{"tie_word_embeddings": true},
			check: func(m *catalog.Model) any { return m.TieEmbeddings }, want: true,
		},
		{
			why: "without num_key_value_heads every head has its own", fixture: "llama", edits: map[string]any{"num_key_value_heads": absent},
			check: func(m *catalog.Model) any { return m.NumKVHeads }, want: 32,
		},
		{
			why: "but Mistral's code takes 8", fixture: "mistral", edits: map[string]any{"num_key_value_heads": absent},
			check: func(m *catalog.Model) any { return m.NumKVHeads }, want: 8,
		},
		{
			why: "a whole number may be written with a fraction", fixture: "llama", edits: map[string]any{"hidden_size": json.RawMessage("4.096e3")},
			check: func(m *catalog.Model) any { return m.HiddenSize }, want: 4096,
		},
		{
			why: "Mistral's code slides over 4096 where the key is absent", fixture: "mistral", edits: map[string]any{"sliding_window": absent},
			check: func(m *catalog.Model) any { return m.Window }, want: 4096,
		},
		{
			why: "null means no window", fixture: "mistral", edits: map[string]any{"sliding_window": nil},
			check: func(m *catalog.Model) any { return m.LayerPattern }, want: []string(nil),
		},
		{
			why: "a window as long as the longest sequence is none", fixture: "mistral", edits: map[string]any{"sliding_window": 32768},
			check: func(m *catalog.Model) any { return m.LayerPattern }, want: []string(nil),
		},
		{
			why: "Qwen slides from max_window_layers on", fixture: "qwen2", edits: map[string]any{"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 27},
			check: func(m *catalog.Model) any { return []string{m.AttentionOf(26), m.AttentionOf(27)} }, want: []string{"full", "sliding"},
		},
		{
			why: "Qwen's sliding_window alone does nothing", fixture: "qwen2",
			check: func(m *catalog.Model) any { return m.Window }, want: 0,
		},
		{
			why: "layer_types override the family's rule", fixture: "gemma2", edits: map[string]any{"layer_types": append(repeat("sliding_attention", 41), "full_attention")},
			check: func(m *catalog.Model) any { return []any{m.AttentionOf(1), m.AttentionOf(41), m.Window} }, want: []any{"sliding", "full", 4096},
		},
		{
			why: "gpt-oss alternates without layer_types", fixture: "gpt_oss", edits: map[string]any{"layer_types": absent},
			check: func(m *catalog.Model) any { return m.LayerPattern }, want: []string{"sliding", "full"},
		},
		{
			why: "SmolLM3's layers without rotation slide if told to", fixture: "smollm3",
			edits: map[string]any{"use_sliding_window": true, "sliding_window": 1024, "layer_types": absent},
			check: func(m *catalog.Model) any { return m.LayerPattern }, want: []string{"full", "full", "full", "sliding"},
		},
		{
			why: "mlp_only_layers at the start are leading dense layers", fixture: "qwen3_moe", edits: map[string]any{"mlp_only_layers": []int{0, 1}},
			check: func(m *catalog.Model) any { return []int{m.MoE.DenseLayers, m.MoE.Every, m.IntermediateSize} }, want: []int{2, 0, 6144},
		},
		{
			why: "decoder_sparse_step 2 makes the odd layers mixtures", fixture: "qwen3_moe", edits: map[string]any{"decoder_sparse_step": 2},
			check: func(m *catalog.Model) any { return []int{m.MoE.DenseLayers, m.MoE.Every, m.IntermediateSize} }, want: []int{0, 2, 6144},
		},
		{
			why: "num_experts 0 is a dense model", fixture: "qwen3_moe", edits: map[string]any{"num_experts": 0},
			check: func(m *catalog.Model) any { return m.MoE == nil && m.IntermediateSize == 6144 }, want: true,
		},
		{
			why: "Llama 4 may list its mixture layers", fixture: "llama4_text", edits: map[string]any{"moe_layers": []int{1, 3, 5, 7}, "num_hidden_layers": 8},
			check: func(m *catalog.Model) any { return []int{m.MoE.DenseLayers, m.MoE.Every, m.IntermediateSize} }, want: []int{0, 2, 16384},
		},
		{
			why: "all of Qwen3-MoE's layers slide where one does", fixture: "qwen3_moe", edits: map[string]any{"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 28},
			check: func(m *catalog.Model) any { return m.LayerPattern }, want: []string{"sliding"},
		},
		{
			why: "moe_layer_freq may list the layers", fixture: "deepseek_v2", edits: map[string]any{"moe_layer_freq": append([]int{0}, slices.Repeat([]int{1}, 26)...)},
			check: func(m *catalog.Model) any { return m.MoE.DenseLayers }, want: 1,
		},
		{
			why: "a DeepSeek-V3 without noaux_tc has no selection bias", fixture: "deepseek_v3", edits: map[string]any{"topk_method": "greedy"},
			check: func(m *catalog.Model) any { return m.MoE.RouterBias }, want: false,
		},
		{
			why: "GLM 4.5 Air has no norms on queries and keys", fixture: "glm4_moe", edits: map[string]any{"use_qk_norm": false},
			check: func(m *catalog.Model) any { return m.QKNorm }, want: "",
		},
		{
			why: "transformers 5 writes dtype for torch_dtype", fixture: "llama", edits: map[string]any{"torch_dtype": absent, "dtype": "float16"},
			check: func(m *catalog.Model) any { return m.DType }, want: catalog.FP16,
		},
		{
			why: "vLLM runs a model without a format in bf16", fixture: "llama", edits: map[string]any{"torch_dtype": absent},
			check: func(m *catalog.Model) any { return m.DType }, want: catalog.BF16,
		},
		{
			why: "Mixtral in Qwen's spelling", fixture: "mixtral", edits: map[string]any{"num_local_experts": absent, "num_experts": 8},
			check: func(m *catalog.Model) any { return m.MoE.NumExperts }, want: 8,
		},
		{
			why: "moe_layer_end_index -1 stands for the last layer", fixture: "ernie4_5_moe", edits: map[string]any{"moe_layer_end_index": -1},
			check: func(m *catalog.Model) any { return m.MoE.DenseLayers }, want: 1,
		},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			m, _, err := ParseConfig("config.json", edited(t, test.fixture, test.edits))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, test.check(m)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestQuantization(t *testing.T) {
	group := func(bits int, kind, strategy string, size int, activations bool) map[string]any {
		weights := map[string]any{"num_bits": bits, "type": kind, "strategy": strategy}
		if size > 0 {
			weights["group_size"] = size
		}
		g := map[string]any{"weights": weights, "targets": []string{"Linear"}, "input_activations": nil}
		if activations {
			g["input_activations"] = map[string]any{"num_bits": bits, "type": kind}
		}
		return map[string]any{"quant_method": "compressed-tensors", "config_groups": map[string]any{"group_0": g}}
	}
	tests := []struct {
		why    string
		config map[string]any
		want   string
		warns  bool
	}{
		{"fp8 with one scale a tensor", map[string]any{"quant_method": "fp8", "activation_scheme": "static"}, "fp8", false},
		{"DeepSeek's blocks", map[string]any{"quant_method": "fp8", "weight_block_size": []int{128, 128}}, "fp8-block", false},
		{"other blocks have other scales", map[string]any{"quant_method": "fp8", "weight_block_size": []int{64, 64}}, "fp8-block", true},
		{"FBGEMM", map[string]any{"quant_method": "fbgemm_fp8"}, "fp8", false},
		{"AWQ", map[string]any{"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", false},
		{"AWQ in its older spelling", map[string]any{"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, "awq", false},
		{"AWQ with smaller groups", map[string]any{"quant_method": "awq", "bits": 4, "group_size": 64}, "awq", true},
		{"GPTQ", map[string]any{"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq", false},
		{"GPTQ with 8 bits", map[string]any{"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq-int8", false},
		{"MXFP4", map[string]any{"quant_method": "mxfp4"}, "mxfp4", false},
		{"bitsandbytes in 4 bits", map[string]any{"quant_method": "bitsandbytes", "load_in_4bit": true}, "bitsandbytes-nf4", false},
		{"bitsandbytes in 8 bits", map[string]any{"quant_method": "bitsandbytes", "load_in_8bit": true, "load_in_4bit": false}, "int8-weight-only", false},
		{"ModelOpt fp8", map[string]any{"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", false},
		{"ModelOpt nvfp4", map[string]any{"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", false},
		{"Quark", map[string]any{"quant_method": "quark", "global_quant_config": map[string]any{"weight": map[string]any{"dtype": "fp8_e4m3"}}}, "fp8", false},
		{"Quark in fp4", map[string]any{"quant_method": "quark", "global_quant_config": map[string]any{"weight": map[string]any{"dtype": "fp4"}}}, "mxfp4-all", false},
		{"ModelOpt AWQ", map[string]any{"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, "awq", false},
		{"ModelOpt SmoothQuant", map[string]any{"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL"}, "int8", false},
		{"compressed-tensors W8A8 in fp8", group(8, "float", "channel", 0, true), "fp8", false},
		{"compressed-tensors fp8 weights alone", group(8, "float", "channel", 0, false), "fp8-weight-only", false},
		{"compressed-tensors fp8 blocks", group(8, "float", "block", 0, true), "fp8-block", false},
		{"compressed-tensors W8A8 in int8", group(8, "int", "channel", 0, true), "int8", false},
		{"compressed-tensors W8A16", group(8, "int", "channel", 0, false), "int8-weight-only", false},
		{"compressed-tensors W4A16", group(4, "int", "group", 128, false), "awq", false},
		{"compressed-tensors nvfp4", group(4, "float", "tensor_group", 16, true), "nvfp4", false},
		{"compressed-tensors mxfp4", group(4, "float", "group", 32, true), "mxfp4-all", false},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			m, warnings, err := ParseConfig("config.json", edited(t, "qwen3", map[string]any{"quantization_config": test.config}))
			if err != nil {
				t.Fatal(err)
			}
			if m.Quantization != test.want || (len(warnings) > 0) != test.warns {
				t.Errorf("got %q with warnings %q, want %q, warned %v", m.Quantization, warnings, test.want, test.warns)
			}
			if _, err := deploy.ParseWeightFormat(m.Quantization, m.DType); err != nil {
				t.Errorf("deploy does not know the format: %v", err)
			}
		})
	}
	t.Run("an unknown method keeps its name, so that it is refused by name", func(t *testing.T) {
		m, warnings, err := ParseConfig("config.json", edited(t, "qwen3", map[string]any{"quantization_config": map[string]any{"quant_method": "aqlm"}}))
		if err != nil || m.Quantization != "aqlm" || len(warnings) != 1 {
			t.Fatalf("got %+v, %q, %v", m, warnings, err)
		}
		if _, err := deploy.ParseWeightFormat(m.Quantization, m.DType); err == nil {
			t.Error("deploy takes aqlm for a format it knows")
		}
	})
}

func TestParseQuantConfig(t *testing.T) {
	tests := []struct{ why, text, want string }{
		{"an fp8 checkpoint of ModelOpt", `{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}`, "fp8"},
		{"only the KV cache is quantised", `{"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}}`, ""},
		{"an algorithm that is not known keeps its name", `{"quantization": {"quant_algo": "INT2"}}`, "int2"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			got, _, err := ParseQuantConfig("hf_quant_config.json", []byte(test.text))
			if err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestUnknownTypeIsRefused(t *testing.T) {
	for _, modelType := range []string{"mamba2", "gpt2", "qwen2_5_vl", "Llama", "llama ", "deepseek_v4"} {
		_, _, err := ParseConfig("config.json", edited(t, "llama", map[string]any{"model_type": modelType}))
		refused, ok := errors.AsType[*UnsupportedError](err)
		if !ok || refused.Name != modelType || refused.Key != "model_type" {
			t.Errorf("%q: got %v", modelType, err)
			continue
		}
		if hint := refused.Hint(); !strings.Contains(hint, "qwen3_moe") || !strings.Contains(hint, "norms") {
			t.Errorf("%q: hint %q does not say what is supported and what is missing", modelType, hint)
		}
	}
}

func TestTooLong(t *testing.T) {
	text := append([]byte(`{"model_type": "llama"}`), make([]byte, MaxConfigBytes)...)
	if _, _, err := ParseConfig("config.json", text); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
}

func TestModelName(t *testing.T) {
	tests := []struct{ why, file, want string }{
		{"a folder's config is called like the folder", "/models/Qwen3-8B/config.json", "Qwen3-8B"},
		{"a config without a folder is called like itself", "config.json", "config"},
		{"a Windows path", `C:\models\Yi-6B\config.json`, "Yi-6B"},
		{"another file is called like itself", "x/Llama.json", "Llama"},
		{"a GGUF file", "x/Llama-Q4_K_M.gguf", "Llama-Q4_K_M"},
	}
	for _, test := range tests {
		if got := modelName(test.file); got != test.want {
			t.Errorf("%s: got %q, want %q", test.why, got, test.want)
		}
	}
}
