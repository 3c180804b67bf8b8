package tinymodel

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// WriteFolder writes what transformers, vLLM and SGLang want of a model beside
// its weights: config.json, generation_config.json, tokenizer.json and
// tokenizer_config.json. The folder is made where it is missing. Without
// weights vLLM and SGLang take "--load-format dummy".
func WriteFolder(dir string, shape Shape) error {
	if err := shape.Validate(); err != nil {
		return fmt.Errorf("write the model folder %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the model folder: %w", err)
	}
	for _, f := range []struct {
		name    string
		content any
	}{
		{"config.json", shape.config()},
		{"generation_config.json", object{"bos_token_id": beginID, "eos_token_id": endID, "pad_token_id": padID}},
		{"tokenizer.json", shape.tokenizer()},
		{"tokenizer_config.json", shape.tokenizerConfig()},
	} {
		text, err := json.MarshalIndent(f.content, "", "  ")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.name), append(text, '\n'), 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the model folder: %s: %w", f.name, err)
		}
	}
	return nil
}

// object is a JSON object.
type object map[string]any

func (s Shape) config() object {
	return object{
		"architectures":           []string{"LlamaForCausalLM"},
		"model_type":              "llama",
		"num_hidden_layers":       s.Layers,
		"hidden_size":             s.Hidden,
		"intermediate_size":       s.FFN,
		"num_attention_heads":     s.Heads,
		"num_key_value_heads":     s.KVHeads,
		"head_dim":                s.headDim(),
		"vocab_size":              s.Vocab,
		"max_position_embeddings": s.MaxPositions,
		"hidden_act":              "silu",
		"rms_norm_eps":            normEpsilon,
		"rope_theta":              float64(ropeTheta),
		"attention_bias":          false,
		"mlp_bias":                false,
		"tie_word_embeddings":     false,
		"initializer_range":       sigma,
		"torch_dtype":             "bfloat16",
		"use_cache":               true,
		"bos_token_id":            beginID,
		"eos_token_id":            endID,
		"pad_token_id":            padID,
	}
}

func (s Shape) tokenizer() object {
	vocab := map[string]int{}
	for id, token := range vocabulary(s.Vocab) {
		vocab[token] = id
	}
	var added []object
	for i, token := range controls() {
		added = append(added, object{
			"id": beginID + i, "content": token, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	begin := object{"SpecialToken": object{"id": beginToken, "type_id": 0}}
	part := func(id string, kind int) object { return object{"Sequence": object{"id": id, "type_id": kind}} }
	return object{
		"version":       "1.0",
		"truncation":    nil,
		"padding":       nil,
		"added_tokens":  added,
		"normalizer":    nil,
		"pre_tokenizer": byteLevel,
		"post_processor": object{
			"type":           "TemplateProcessing",
			"single":         []object{begin, part("A", 0)},
			"pair":           []object{begin, part("A", 0), part("B", 1)},
			"special_tokens": object{beginToken: object{"id": beginToken, "ids": []int{beginID}, "tokens": []string{beginToken}}},
		},
		"decoder": byteLevel,
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges(),
		},
	}
}

func (s Shape) tokenizerConfig() object {
	added := object{}
	for i, token := range controls() {
		added[strconv.Itoa(beginID+i)] = object{
			"content": token, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		}
	}
	return object{
		"tokenizer_class":              "PreTrainedTokenizerFast",
		"added_tokens_decoder":         added,
		"bos_token":                    beginToken,
		"eos_token":                    endToken,
		"pad_token":                    padToken,
		"additional_special_tokens":    []string{turnBeginToken, turnEndToken},
		"model_max_length":             s.MaxPositions,
		"clean_up_tokenization_spaces": false,
		"chat_template":                chatTemplate,
	}
}

// WriteSafetensors writes the weights that belong into the folder of
// [WriteFolder] as "model.safetensors", in bfloat16. The same shape and seed
// always give the same bytes.
func WriteSafetensors(w io.Writer, shape Shape, seed int64) error {
	if err := shape.Validate(); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	tensors := shape.tensors()
	list := object{"__metadata__": object{"format": "pt"}}
	offset := int64(0)
	for _, t := range tensors {
		dims := []int{t.rows, t.cols}
		if t.role == norm {
			dims = dims[1:]
		}
		end := offset + 2*t.elements()
		list[t.hf] = object{"dtype": "BF16", "shape": dims, "data_offsets": []int64{offset, end}}
		offset = end
	}
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	out := bufio.NewWriterSize(w, 1<<18)
	_, err = out.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...))
	weights := newSource(seed, bfloat16)
	for _, t := range tensors {
		if err != nil {
			break
		}
		if t.role != norm {
			err = weights.write(out, t)
			continue
		}
		for range t.cols {
			if _, err = out.Write(binary.LittleEndian.AppendUint16(nil, bfloat16(1))); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	return nil
}
