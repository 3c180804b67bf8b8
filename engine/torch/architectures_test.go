package torch_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/internal/enginetest"
)

// architecture is a small model and the names that its layers should have.
type architecture struct {
	why      string
	config   map[string]any
	args     []string
	cut      int    // to so many layers; 0 for none
	block    string // the layers of the block
	warnings []string
}

const noGraphs = "CUDA graphs need a CUDA device: decode steps run without them"

func architectures() []architecture {
	attention := "input_layernorm q_proj k_proj v_proj rope attn o_proj post_layernorm "
	opt := map[string]any{"architectures": []string{"OPTForCausalLM"}, "model_type": "opt", "ffn_dim": 96, "word_embed_proj_dim": 64}
	return []architecture{
		{
			why:    "Llama is what the names come from",
			config: map[string]any{"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama"},
			block:  attention + "gate_proj act_fn up_proj down_proj",
		},
		{
			why: "Qwen3 norms queries and keys, and its list of layer types is cut with the layers",
			config: map[string]any{
				"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "head_dim": 16,
				"layer_types": []string{"full_attention", "full_attention", "full_attention"},
			},
			cut:   2,
			block: attention + "q_norm k_norm gate_proj act_fn up_proj down_proj",
		},
		{
			why:    "Mixtral has a router and experts",
			config: map[string]any{"architectures": []string{"MixtralForCausalLM"}, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
			block:  attention + "gate experts",
		},
		{
			why:    "PhiMoE's router is a gate by another name",
			config: map[string]any{"architectures": []string{"PhimoeForCausalLM"}, "model_type": "phimoe", "num_local_experts": 4, "num_experts_per_tok": 2},
			block:  attention + "gate experts",
		},
		{why: "OPT knows no rotary embedding", config: opt, block: "input_layernorm q_proj k_proj v_proj attn o_proj post_layernorm fc1 act_fn fc2"},
		{
			why: "OPT's eager attention comes in parts", config: opt, args: []string{"--attn", "eager"},
			block: "input_layernorm q_proj k_proj v_proj qk_matmul softmax sv_matmul o_proj post_layernorm fc1 act_fn fc2",
		},
		{
			why:    "GPT-2 joins queries, keys and values",
			config: map[string]any{"architectures": []string{"GPT2LMHeadModel"}, "model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128},
			block:  "input_layernorm qkv_proj attn o_proj post_layernorm fc1 act_fn fc2",
		},
		{
			why: "Qwen2-MoE shares an expert, and its first block is a plain one",
			config: map[string]any{
				"architectures": []string{"Qwen2MoeForCausalLM"}, "model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2,
				"moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "mlp_only_layers": []int{0}, "decoder_sparse_step": 1,
			},
			block:    attention + "shared_expert.gate_proj shared_expert.act_fn shared_expert.up_proj shared_expert.down_proj gate experts shared_expert_gate",
			warnings: []string{"blocks differ: the layers of the kind that 2 of 3 blocks have are timed"},
		},
		{
			why: "Gemma's block has four norms, which keep their names, and a window",
			config: map[string]any{
				"architectures": []string{"Gemma2ForCausalLM"}, "model_type": "gemma2", "head_dim": 16, "sliding_window": 6,
				"layer_types": []string{"sliding_attention", "full_attention", "full_attention"},
			},
			block: "input_layernorm q_proj k_proj v_proj rope attn o_proj post_attention_layernorm pre_feedforward_layernorm " +
				"gate_proj act_fn up_proj down_proj post_feedforward_layernorm",
			warnings: []string{"1 layers keep a KV cache of transformers' own, which may copy itself in a step"},
		},
		{
			why:    "GPT-NeoX nests its attention under another name",
			config: map[string]any{"architectures": []string{"GPTNeoXForCausalLM"}, "model_type": "gpt_neox"},
			block:  "input_layernorm qkv_proj rope attn o_proj post_layernorm fc1 act_fn fc2",
		},
	}
}

func TestRealArchitectures(t *testing.T) {
	python := enginetest.Python(t)
	all := architectures()
	var cases []map[string]any
	for _, a := range all {
		config := map[string]any{
			"num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
			"intermediate_size": 96, "max_position_embeddings": 128,
		}
		maps.Copy(config, a.config)
		cases = append(cases, map[string]any{"config": config, "args": a.args, "num_layers": a.cut})
	}
	lost := map[string]any{"model": "llmprof/no-such-model", "config": map[string]any{}}
	request, err := json.Marshal(append(cases, lost))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/architectures.py")
	cmd.Env = append(append(os.Environ(), "PYTHONPATH=.", "OMP_NUM_THREADS=1"), pythonEnv(t)...)
	cmd.Stdin = strings.NewReader(string(request))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var answers []struct {
		Layers, Attention, Warnings []string
		Same                        bool
		Held                        string
		Blocks, Context             int
		Samples                     []any
		Fatal, Message, Hint        string
	}
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, a := range all {
		t.Run(a.why, func(t *testing.T) {
			got := answers[i]
			if got.Fatal != "" {
				t.Fatalf("%s: %s", got.Fatal, got.Message)
			}
			outer := []string{"embedding", "final_layernorm", "lm_head", "position_embedding"}
			want := append(strings.Fields(a.block), outer...)
			slices.Sort(want)
			slices.Sort(got.Layers)
			if diff := cmp.Diff(want, got.Layers); diff != "" {
				t.Errorf("layers differ (-want +got):\n%s", diff)
			}
			parts := []string{"attn"}
			if strings.Contains(a.block, "qk_matmul") {
				parts = []string{"qk_matmul", "softmax", "sv_matmul"}
			}
			if diff := cmp.Diff(parts, got.Attention); diff != "" {
				t.Errorf("attention (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append([]string{noGraphs}, a.warnings...), got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			held := "[7, 7, 7]"
			if len(a.warnings) > 0 && strings.Contains(strings.Join(a.warnings, " "), "transformers' own") {
				held = "refused"
			}
			if got.Held != held {
				t.Errorf("a step that is repeated attends over %s tokens, want %s", got.Held, held)
			}
			if !got.Same {
				t.Error("the logits differ from those over transformers' own cache")
			}
			blocks := 3
			if a.cut > 0 {
				blocks = a.cut
			}
			if got.Blocks != blocks || got.Context != 4 {
				t.Errorf("%d blocks, want %d; the cache of 4 tokens holds %d", got.Blocks, blocks, got.Context)
			}
			if diff := cmp.Diff([]any{2.0, []any{2.0, 2.0}}, got.Samples); diff != "" {
				t.Errorf("samples of a step (-want +got):\n%s", diff)
			}
		})
	}
	if got := answers[len(all)]; got.Fatal != "model-missing" || !strings.Contains(got.Hint, "offline") {
		t.Errorf("a model that the cache of the hub lacks: %+v", got)
	}
}
