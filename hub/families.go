package hub

import (
	"maps"
	"slices"

	"github.com/llmprof/llmprof/catalog"
)

// toggle is a property that a key switches, or that a family always has or
// never has.
type toggle struct {
	// key is the field; "" if the property is fixed.
	key string
	// absent is the fixed value, or that of an absent key.
	absent bool
}

func (t toggle) read(o *object) bool {
	if t.key == "" {
		return t.absent
	}
	return o.flag(t.key, t.absent)
}

// family says how the decoders of one model_type are built: what config.json
// does not say because the family's code knows it, and what that code takes
// where a key is absent.
type family struct {
	// tied is tie_word_embeddings where the key is absent.
	tied bool
	// heads, kvHeads, headDim, vocab and maxPosition stand for absent keys;
	// 0 means: the key is required, or for kvHeads the number of heads and
	// for headDim hidden_size / heads.
	heads, kvHeads, headDim, vocab, maxPosition int

	qkvBias, outBias, mlpBias, headBias toggle
	// qkNorm, norms, normBias, plainFFN, sinks and gate are as in
	// catalog.Model.
	qkNorm                          string
	norms                           int
	normBias, plainFFN, sinks, gate bool
	// mla says that attention is latent.
	mla bool
	// unset are switches that must be off: what they add is not counted.
	unset []string

	// attention gives the kinds of the layers where layer_types is absent;
	// nil means full attention.
	attention func(*object, *catalog.Model)
	// ffn reads the feed-forward sizes; nil means intermediate_size.
	ffn func(*object, *catalog.Model)
}

// composite gives the model_type of the decoder within a model that holds it
// in text_config; "" for a model that is a decoder itself.
func composite(modelType string) string {
	switch modelType {
	case "llama4":
		return "llama4_text"
	case "mistral3":
		return "mistral"
	case "gemma3":
		return "gemma3_text"
	}
	return ""
}

// ModelTypes lists the values of model_type that [ParseConfig] reads, sorted.
func ModelTypes() []string {
	types := slices.Collect(maps.Keys(families()))
	types = append(types, "gemma3", "llama4", "mistral3")
	slices.Sort(types)
	return types
}

func familyOf(modelType string) (family, bool) {
	f, ok := families()[modelType]
	return f, ok
}

// families describes every model_type. Source: the configuration and
// modelling files of transformers 4.57.1, ministral3 5.23.0; kimi_k2, internlm,
// internlm2 and Yi: the code in the models' repositories.
func families() map[string]family {
	always := toggle{absent: true}
	attentionBias := toggle{key: "attention_bias"}
	mlpBias := toggle{key: "mlp_bias"}
	bias := toggle{key: "bias"}
	useBias := toggle{key: "use_bias"}

	llama := family{qkvBias: attentionBias, outBias: attentionBias, mlpBias: mlpBias, maxPosition: 2048}
	gemma := family{tied: true, kvHeads: 16, headDim: 256, maxPosition: 8192, qkvBias: attentionBias, outBias: attentionBias}
	qwen3 := family{qkvBias: attentionBias, outBias: attentionBias, qkNorm: "head", headDim: 128, kvHeads: 32, maxPosition: 32768, attention: qwenWindow}
	mistral := family{kvHeads: 8, maxPosition: 131072, attention: windowed(4096)}
	deepseek := family{mla: true, maxPosition: 2048, unset: []string{"attention_bias", "mlp_bias"}, ffn: deepseekV2Experts}

	all := map[string]family{
		"llama":       llama,
		"Yi":          {maxPosition: 4096},
		"mistral":     mistral,
		"ministral":   mistral,
		"ministral3":  {kvHeads: 8, headDim: 128, maxPosition: 262144, attention: windowed(0)},
		"mixtral":     {kvHeads: 8, maxPosition: 131072, attention: windowed(0), ffn: plainExperts(false)},
		"llama4_text": {kvHeads: 8, headDim: 128, maxPosition: 131072, qkvBias: attentionBias, outBias: attentionBias, attention: llama4Chunks, ffn: llama4Experts},

		"qwen2":      {kvHeads: 32, maxPosition: 32768, qkvBias: always, attention: qwenWindow},
		"qwen2_moe":  {kvHeads: 16, maxPosition: 32768, qkvBias: toggle{key: "qkv_bias", absent: true}, attention: qwenWindow, ffn: qwenExperts(true)},
		"qwen3":      qwen3,
		"qwen3_moe":  {kvHeads: 4, maxPosition: 32768, qkvBias: attentionBias, outBias: attentionBias, qkNorm: "head", attention: qwen3MoEWindow, ffn: qwenExperts(false)},
		"qwen3_next": {kvHeads: 2, headDim: 256, maxPosition: 32768, qkvBias: attentionBias, outBias: attentionBias, qkNorm: "head", gate: true, attention: deltaLayers, ffn: qwenExperts(true)},

		"gemma": gemma,

		"phi":     {maxPosition: 2048, qkvBias: always, outBias: always, mlpBias: always, headBias: always, normBias: true, norms: 1, plainFFN: true, unset: []string{"qk_layernorm"}},
		"phi3":    {maxPosition: 4096, attention: windowed(0)},
		"phimoe":  {kvHeads: 8, maxPosition: 131072, qkvBias: attentionBias, outBias: attentionBias, headBias: toggle{key: "lm_head_bias"}, normBias: true, attention: windowed(0), ffn: plainExperts(false)},
		"gpt_oss": {kvHeads: 8, headDim: 64, maxPosition: 131072, qkvBias: toggle{key: "attention_bias", absent: true}, outBias: toggle{key: "attention_bias", absent: true}, sinks: true, attention: alternating(2, 128), ffn: plainExperts(true)},

		"deepseek_v2": deepseek,
		"glm":         {kvHeads: 2, headDim: 128, maxPosition: 131072, qkvBias: toggle{key: "attention_bias", absent: true}},
		"glm4":        {kvHeads: 2, headDim: 128, maxPosition: 131072, qkvBias: toggle{key: "attention_bias", absent: true}, norms: 4},
		"glm4_moe":    {kvHeads: 8, maxPosition: 131072, qkvBias: attentionBias, attention: glm4QKNorm, ffn: deepseekV3Experts},

		"internlm":  {qkvBias: bias, outBias: bias, maxPosition: 2048},
		"internlm2": {qkvBias: bias, outBias: bias, maxPosition: 2048},

		"olmo2":      {qkvBias: attentionBias, outBias: attentionBias, qkNorm: "full", maxPosition: 2048},
		"olmo3":      {qkvBias: attentionBias, outBias: attentionBias, qkNorm: "full", maxPosition: 2048, attention: alternating(4, 4096)},
		"olmoe":      {qkvBias: attentionBias, outBias: attentionBias, qkNorm: "full", maxPosition: 4096, ffn: plainExperts(false)},
		"granite":    llama,
		"granitemoe": {qkvBias: attentionBias, outBias: attentionBias, maxPosition: 2048, ffn: plainExperts(false)},

		"smollm3":      {tied: true, kvHeads: 4, qkvBias: attentionBias, outBias: attentionBias, mlpBias: mlpBias, maxPosition: 32768, attention: smolWindow},
		"seed_oss":     {kvHeads: 8, headDim: 128, maxPosition: 524288, qkvBias: toggle{key: "attention_bias", absent: true}, outBias: toggle{key: "attention_out_bias"}, mlpBias: mlpBias},
		"ernie4_5":     {tied: true, kvHeads: 2, headDim: 128, maxPosition: 131072, qkvBias: useBias, outBias: useBias, mlpBias: useBias},
		"ernie4_5_moe": {tied: true, kvHeads: 4, maxPosition: 131072, unset: []string{"use_bias"}, ffn: ernieExperts},
	}
	gemma2 := gemma
	gemma2.norms, gemma2.kvHeads, gemma2.attention = 4, 4, alternating(2, 4096)
	all["gemma2"] = gemma2
	gemma3 := gemma2
	gemma3.qkNorm, gemma3.heads, gemma3.vocab, gemma3.maxPosition, gemma3.attention = "head", 8, 262208, 131072, gemma3Window
	all["gemma3_text"] = gemma3
	v3 := deepseek
	v3.maxPosition, v3.ffn = 4096, deepseekV3Experts
	all["deepseek_v3"] = v3
	all["kimi_k2"] = v3
	return all
}
