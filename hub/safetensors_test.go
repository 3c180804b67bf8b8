package hub

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// safetensors writes a file of the given tensors (name, dtype, shape) whose
// data are zeros.
func safetensors(t *testing.T, tensors ...Tensor) []byte {
	t.Helper()
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	at := int64(0)
	for _, tensor := range tensors {
		elements := int64(1)
		for _, extent := range tensor.Shape {
			elements *= extent
		}
		size := elements * safetensorsBits(tensor.DType) / 8
		header[tensor.Name] = map[string]any{"dtype": tensor.DType, "shape": tensor.Shape, "data_offsets": []int64{at, at + size}}
		at += size
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(out, text...), make([]byte, at)...)
}

func TestParseSafetensors(t *testing.T) {
	file := safetensors(t,
		Tensor{Name: "b.weight", DType: "BF16", Shape: []int64{3, 5}},
		Tensor{Name: "a.weight", DType: "F8_E4M3", Shape: []int64{4, 4}},
		Tensor{Name: "scalar", DType: "F32", Shape: []int64{}},
		Tensor{Name: "empty", DType: "F32", Shape: []int64{0, 7}},
	)
	for _, size := range []int64{int64(len(file)), -1} {
		header, err := ParseSafetensors("model.safetensors", bytes.NewReader(file), size)
		if err != nil {
			t.Fatal(err)
		}
		if header.Elements != 32 || header.Bytes != 30+16+4 || len(header.Tensors) != 4 {
			t.Errorf("got %d elements in %d bytes of %d tensors", header.Elements, header.Bytes, len(header.Tensors))
		}
		if first := header.Tensors[0]; first.Name != "a.weight" || first.DType != "F8_E4M3" || first.Elements != 16 {
			t.Errorf("first tensor %+v", first)
		}
	}
}

func TestParseIndex(t *testing.T) {
	index, err := ParseIndex("model.safetensors.index.json", []byte(`{"metadata": {"total_size": 16381470720}, "weight_map": {"lm_head.weight": "model-00005-of-00005.safetensors", "a": "model-00001-of-00005.safetensors", "b": "model-00001-of-00005.safetensors"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if index.TotalBytes != 16381470720 || fmt.Sprint(index.Files) != "[model-00001-of-00005.safetensors model-00005-of-00005.safetensors]" {
		t.Errorf("got %+v", index)
	}
}

// smallModel is a Llama of 2 layers whose tensors fit a test.
const smallModel = `{"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 32, "vocab_size": 50, "max_position_embeddings": 64, "torch_dtype": "bfloat16", "tie_word_embeddings": %v}`

func smallTensors(tied bool) []Tensor {
	tensors := []Tensor{{Name: "model.embed_tokens.weight", Shape: []int64{50, 16}}, {Name: "model.norm.weight", Shape: []int64{16}}}
	if !tied {
		tensors = append(tensors, Tensor{Name: "lm_head.weight", Shape: []int64{50, 16}})
	}
	for i := range 2 {
		p := fmt.Sprintf("model.layers.%d.", i)
		tensors = append(
			tensors,
			Tensor{Name: p + "input_layernorm.weight", Shape: []int64{16}}, Tensor{Name: p + "post_attention_layernorm.weight", Shape: []int64{16}},
			Tensor{Name: p + "self_attn.q_proj.weight", Shape: []int64{16, 16}}, Tensor{Name: p + "self_attn.k_proj.weight", Shape: []int64{8, 16}},
			Tensor{Name: p + "self_attn.v_proj.weight", Shape: []int64{8, 16}}, Tensor{Name: p + "self_attn.o_proj.weight", Shape: []int64{16, 16}},
			Tensor{Name: p + "mlp.gate_proj.weight", Shape: []int64{32, 16}}, Tensor{Name: p + "mlp.up_proj.weight", Shape: []int64{32, 16}},
			Tensor{Name: p + "mlp.down_proj.weight", Shape: []int64{16, 32}},
		)
	}
	for i := range tensors {
		tensors[i].DType = "BF16"
	}
	return tensors
}

// params of smallModel by hand: 2 (768 + 1536 + 32) + 16 + 800 [+ 800].
const smallParams = 2*(768+1536+32) + 16 + 800

func writeFolder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "Small-1B")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFolderFacts(t *testing.T) {
	config := func(tied bool) []byte { return fmt.Appendf(nil, smallModel, tied) }
	all := smallTensors(false)
	index := func(size int) []byte {
		files := map[string]string{}
		for i, tensor := range all {
			files[tensor.Name] = fmt.Sprintf("model-%d.safetensors", min(i/6, 1))
		}
		text, err := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": size}, "weight_map": files})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	tests := []struct {
		why     string
		files   map[string][]byte
		params  int64
		bytes   int64
		warning string
	}{
		{
			why:   "one file that fits the architecture",
			files: map[string][]byte{"config.json": config(false), "model.safetensors": safetensors(t, all...)}, params: smallParams + 800, bytes: 2 * (smallParams + 800),
		},
		{
			why:   "several files",
			files: map[string][]byte{"config.json": config(false), "model.safetensors.index.json": index(1), "model-0.safetensors": safetensors(t, all[:6]...), "model-1.safetensors": safetensors(t, all[6:]...)}, params: smallParams + 800, bytes: 2 * (smallParams + 800),
		},
		{
			why:   "a tied head that is stored all the same counts once",
			files: map[string][]byte{"config.json": config(true), "model.safetensors": safetensors(t, all...)}, params: smallParams, bytes: 2 * (smallParams + 800),
		},
		{
			why: "vision parts, prediction layers and scales are no parameters of the decoder",
			files: map[string][]byte{"config.json": config(false), "model.safetensors": safetensors(t, append(smallTensors(false),
				Tensor{Name: "vision_tower.x.weight", DType: "BF16", Shape: []int64{9}},
				Tensor{Name: "model.layers.2.mlp.up_proj.weight", DType: "BF16", Shape: []int64{9}},
				Tensor{Name: "model.layers.1.mlp.up_proj.weight_scale_inv", DType: "F32", Shape: []int64{9}})...)},
			params: smallParams + 800, bytes: 2*(smallParams+800) + 2*9 + 2*9 + 4*9,
		},
		{
			why: "packed weights hide the number of parameters",
			files: map[string][]byte{"config.json": config(false), "model.safetensors": safetensors(t,
				Tensor{Name: "model.layers.0.mlp.up_proj.qweight", DType: "I32", Shape: []int64{9}})}, bytes: 36,
		},
		{
			why:   "a checkpoint that is another model's",
			files: map[string][]byte{"config.json": config(false), "model.safetensors": safetensors(t, all[1:]...)}, params: smallParams, bytes: 2 * smallParams,
			warning: "the checkpoint has 5488 parameters, the architecture 6288 (+14.58 %)",
		},
		{
			why:     "a missing part: the index still gives the bytes",
			files:   map[string][]byte{"config.json": config(false), "model.safetensors.index.json": index(12576)},
			bytes:   12576,
			warning: "model-0.safetensors",
		},
		{
			why:     "a broken header",
			files:   map[string][]byte{"config.json": config(false), "model.safetensors": []byte("nonsense that is long enough")},
			warning: "not a safetensors file",
		},
		{why: "no weights at all", files: map[string][]byte{"config.json": config(false)}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			resolved, err := (&Client{}).Model(t.Context(), writeFolder(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			facts := resolved.Facts
			if facts == nil {
				facts = &Facts{}
			}
			if facts.Params != test.params || facts.CheckpointBytes != test.bytes {
				t.Errorf("%d parameters in %d bytes, want %d in %d", facts.Params, facts.CheckpointBytes, test.params, test.bytes)
			}
			if got := strings.Join(resolved.Warnings, "; "); (test.warning == "") != (got == "") || !strings.Contains(got, test.warning) {
				t.Errorf("warnings %q, want %q", got, test.warning)
			}
		})
	}
}

func TestFolderQuantConfig(t *testing.T) {
	config := fmt.Appendf(nil, smallModel, true)
	tests := []struct{ why, quant, want, err string }{
		{"ModelOpt's file says how the weights are stored", `{"quantization": {"quant_algo": "NVFP4"}}`, "nvfp4", ""},
		{"a broken one is not passed over", `{"quantization": 4}`, "", "hf_quant_config.json:1:18: quantization: is 4: want an object"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			resolved, err := (&Client{}).Model(t.Context(), writeFolder(t, map[string][]byte{"config.json": config, quantFile: []byte(test.quant)}))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || resolved.Model.Quantization != test.want {
				t.Errorf("got %+v, %v, want %q", resolved, err, test.want)
			}
		})
	}
	t.Run("a config of more than 4 MiB is not read", func(t *testing.T) {
		dir := writeFolder(t, map[string][]byte{"config.json": make([]byte, MaxConfigBytes+1)})
		if _, err := (&Client{}).Model(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "at most 4194304 are read") {
			t.Errorf("got %v", err)
		}
	})
}
