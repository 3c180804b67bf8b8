package hub

import (
	"fmt"
	"path"
	"strings"

	"github.com/llmprof/llmprof/catalog"
)

// Bounds on what a config.json may claim. They are far above any real model
// and keep a broken file from asking for endless work or overflowing a count.
const (
	maxLayers  = 4096
	maxHidden  = 1 << 20
	maxWidth   = 1 << 22
	maxHeads   = 1 << 14
	maxHeadDim = 1 << 14
	maxVocab   = 1 << 24
	maxExperts = 1 << 16
	maxTokens  = 1 << 28
)

// MaxConfigBytes is the longest config.json that is read, in bytes.
const MaxConfigBytes = 4 << 20

// ParseConfig turns the text of a config.json into the architecture that it
// describes. The name stands in errors and gives the model its name: that of
// the folder if name is a path to a config.json, else the last part without
// ".json".
//
// Only what the file says, and what the family's own code in transformers
// takes where a key is absent, enters the model; each such default that
// changes sizes is among the warnings. An unknown model_type gives an
// [*UnsupportedError], anything malformed a [*FileError] with its place.
func ParseConfig(name string, text []byte) (*catalog.Model, []string, error) {
	if len(text) > MaxConfigBytes {
		return nil, nil, &FileError{File: name, Problem: fmt.Sprintf("the file is longer than %d bytes: not a config.json", MaxConfigBytes)}
	}
	root, err := parseObject(name, text)
	if err != nil {
		return nil, nil, err
	}
	model := readModel(root)
	if root.notes.err != nil {
		return nil, nil, root.notes.err
	}
	model.Name = modelName(name)
	model.Source = name
	if err := model.Validate(); err != nil {
		return nil, nil, &FileError{File: name, Problem: "the sizes make no model: " + strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	return model, root.notes.warnings, nil
}

// modelName is the name that a file or a hub id gives to its model.
func modelName(file string) string {
	clean := strings.ReplaceAll(file, "\\", "/")
	base := path.Base(clean)
	if base == "config.json" {
		if folder := path.Base(path.Dir(clean)); folder != "." && folder != "/" {
			return folder
		}
	}
	for _, ending := range []string{".json", ".gguf"} {
		base = strings.TrimSuffix(base, ending)
	}
	return base
}

// readModel reads the whole architecture; faults are in root's notes.
func readModel(root *object) *catalog.Model {
	modelType := root.word("model_type")
	if root.notes.err != nil {
		return nil
	}
	if modelType == "" {
		root.fail("model_type", "is missing: without it the layers are not known")
		return nil
	}
	o, fam := decoder(root, modelType)
	if root.notes.err != nil {
		return nil
	}
	m := &catalog.Model{Type: modelType, PlainFFN: fam.plainFFN, NormBias: fam.normBias, NormsPerLayer: fam.norms, QKNorm: fam.qkNorm, AttentionSinks: fam.sinks, AttentionGate: fam.gate}
	readSizes(o, fam, m)
	m.TieEmbeddings = tied(root, o, fam)
	m.QKVBias, m.OBias, m.MLPBias, m.HeadBias = fam.qkvBias.read(o), fam.outBias.read(o), fam.mlpBias.read(o), fam.headBias.read(o)
	for _, key := range fam.unset {
		if o.flag(key, false) {
			o.unsupported(key, "true", "the parameters that "+key+" adds to "+modelType+" would have to be counted")
		}
	}
	if o.notes.err != nil {
		return nil
	}
	readAttention(o, fam, m)
	if fam.ffn == nil {
		m.IntermediateSize = o.integer("intermediate_size", 1, maxWidth)
	} else {
		fam.ffn(o, m)
	}
	readFormat(root, o, m)
	if root.notes.err != nil {
		return nil
	}
	if n := o.integerOr("num_nextn_predict_layers", 0, 0, maxLayers); n > 0 {
		o.warnf("%d next-token-prediction layer(s) are not counted", n)
	}
	return m
}

// decoder finds the object that describes the decoder and its family: the
// root, or text_config of a model that also sees.
func decoder(root *object, modelType string) (*object, family) {
	inner := composite(modelType)
	if inner == "" {
		fam, ok := familyOf(modelType)
		if !ok {
			root.unsupported("model_type", modelType, "supported are "+listed(ModelTypes())+"; for another type its layers, norms, biases and experts have to be described first")
		}
		return root, fam
	}
	text := root.child("text_config")
	if text == nil {
		root.fail("text_config", "is missing: a "+modelType+" describes its decoder there")
		return root, family{}
	}
	if t := text.word("model_type"); t != "" {
		inner = t
	}
	fam, ok := familyOf(inner)
	if !ok {
		text.unsupported("model_type", inner, "supported are "+listed(ModelTypes()))
		return text, family{}
	}
	if root.has("vision_config") {
		root.warnf("the vision part is not counted")
	}
	return text, fam
}

// readSizes reads what every decoder has.
func readSizes(o *object, fam family, m *catalog.Model) {
	m.NumLayers = o.integer("num_hidden_layers", 1, maxLayers)
	m.HiddenSize = o.integer("hidden_size", 1, maxHidden)
	m.NumHeads = o.defaulted("num_attention_heads", fam.heads, maxHeads)
	m.VocabSize = o.defaulted("vocab_size", fam.vocab, maxVocab)
	m.MaxSeqLen = o.defaulted("max_position_embeddings", fam.maxPosition, maxTokens)
	if fam.mla {
		readMLA(o, m)
		return
	}
	switch {
	case o.has("num_key_value_heads"), fam.kvHeads == 0 && !o.has("num_key_value_heads"):
		m.NumKVHeads = o.integerOr("num_key_value_heads", m.NumHeads, 1, maxHeads)
	default:
		m.NumKVHeads = o.defaulted("num_key_value_heads", fam.kvHeads, maxHeads)
	}
	switch {
	case o.has("head_dim"):
		m.HeadDim = o.integer("head_dim", 1, maxHeadDim)
	case fam.headDim > 0 && !o.present("head_dim"):
		m.HeadDim = o.defaulted("head_dim", fam.headDim, maxHeadDim)
	case m.NumHeads > 0 && m.HiddenSize%m.NumHeads == 0:
		m.HeadDim = m.HiddenSize / m.NumHeads
	case m.NumHeads > 0:
		o.fail("hidden_size", fmt.Sprintf("is %d, which %d heads do not divide, and head_dim is missing", m.HiddenSize, m.NumHeads))
	}
	if m.NumKVHeads > 0 && m.NumHeads%m.NumKVHeads != 0 {
		o.fail("num_key_value_heads", fmt.Sprintf("is %d: does not divide num_attention_heads %d", m.NumKVHeads, m.NumHeads))
	}
}

// readMLA reads the ranks of latent attention (DeepSeek-V2 and later).
func readMLA(o *object, m *catalog.Model) {
	m.NumKVHeads = o.integerOr("num_key_value_heads", m.NumHeads, 1, maxHeads)
	m.MLA = &catalog.MLA{
		QLoraRank:     o.integerOr("q_lora_rank", 0, 0, maxWidth),
		KVLoraRank:    o.integer("kv_lora_rank", 1, maxWidth),
		QKNopeHeadDim: o.integer("qk_nope_head_dim", 1, maxHeadDim),
		QKRopeHeadDim: o.integer("qk_rope_head_dim", 0, maxHeadDim),
		VHeadDim:      o.integer("v_head_dim", 1, maxHeadDim),
	}
	m.HeadDim = m.MLA.QKNopeHeadDim + m.MLA.QKRopeHeadDim
}

// defaulted reads a size; where the key is absent it takes the value that
// the family's code takes, with a warning. 0 means that there is none.
func (o *object) defaulted(key string, absent, high int) int {
	if !o.has(key) && absent > 0 {
		o.warnf("%s is not in the file: %d, the default of this model_type, is taken", key, absent)
		return absent
	}
	return o.integer(key, 1, high)
}

// tied reads tie_word_embeddings: the decoder's own value, else the whole
// model's, else what the family's code takes.
func tied(root, o *object, fam family) bool {
	if o.has("tie_word_embeddings") {
		return o.flag("tie_word_embeddings", false)
	}
	return root.flag("tie_word_embeddings", fam.tied)
}

// readFormat reads the number format of the weights.
func readFormat(root, o *object, m *catalog.Model) {
	for _, at := range []*object{o, root} {
		for _, key := range []string{"dtype", "torch_dtype"} {
			name := at.word(key)
			if name == "" || name == "auto" || m.DType != "" {
				continue
			}
			dtype, err := catalog.ParseDType(name)
			if err != nil {
				at.fail(key, "is \""+shorten(name)+"\": not a number format that is known")
				return
			}
			m.DType = dtype
		}
	}
	if m.DType == "" {
		// vLLM reads an absent format as float32 and then runs in bfloat16.
		m.DType = catalog.BF16
		root.warnf("neither dtype nor torch_dtype is in the file: bf16 is taken, as vLLM does")
	}
	for _, at := range []*object{root, o} {
		if q := at.child("quantization_config"); q != nil && m.Quantization == "" {
			m.Quantization = readQuantization(q)
		}
	}
}
