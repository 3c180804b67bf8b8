package hub_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/hub"
)

func ExampleParseConfig() {
	m, warnings, err := hub.ParseConfig("Tiny/config.json", []byte(`{
  "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
  "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": false,
  "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "torch_dtype": "bfloat16"
}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Name, m.Params().Total, m.Params().Active, len(warnings))
	// Output: Tiny 30532122624 3353032704 0
}

func ExampleParseConfig_fault() {
	_, _, err := hub.ParseConfig("config.json", []byte("{\n \"model_type\": \"llama\",\n \"num_hidden_layers\": \"32\"\n}"))
	fmt.Println(err)
	_, _, err = hub.ParseConfig("config.json", []byte(`{"model_type": "rwkv7"}`))
	fmt.Println(err)
	// Output:
	// config.json:3:23: num_hidden_layers: is "32": want a whole number
	// config.json: model_type "rwkv7" is not supported
}

func ExampleClient_Model() {
	c := &hub.Client{Offline: true}
	_, err := c.Model(context.Background(), "org/name")
	fmt.Println(err)
	if advice, ok := err.(interface{ Hint() string }); ok {
		fmt.Println(advice.Hint())
	}
	// Output:
	// get config.json of org/name@main from https://huggingface.co: offline, and the file is in no cache
	// unset HF_HUB_OFFLINE, or give a local folder with config.json
}

func ExampleParseIndex() {
	index, err := hub.ParseIndex("model.safetensors.index.json", []byte(`{
  "metadata": {"total_size": 16060522496},
  "weight_map": {"lm_head.weight": "model-2.safetensors", "model.embed_tokens.weight": "model-1.safetensors"}
}`))
	fmt.Println(index.TotalBytes, strings.Join(index.Files, " "), err)
	// Output: 16060522496 model-1.safetensors model-2.safetensors <nil>
}
