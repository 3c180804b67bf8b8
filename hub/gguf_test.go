package hub

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
)

// ggufBuilder writes the head of a GGUF file of version 3.
type ggufBuilder struct {
	arch             string
	meta, tensors    bytes.Buffer
	entries, entered uint64
}

func put(b *bytes.Buffer, values ...any) {
	for _, v := range values {
		if text, ok := v.(string); ok {
			put(b, uint64(len(text)))
			b.WriteString(text)
			continue
		}
		_ = binary.Write(b, binary.LittleEndian, v)
	}
}

func newGGUF(arch string) *ggufBuilder {
	b := &ggufBuilder{arch: arch}
	b.entries++
	put(&b.meta, "general.architecture", uint32(ggufString), arch)
	return b
}

// kv adds numbers of the architecture: uint32, float32, bool or []uint32.
func (b *ggufBuilder) kv(key string, value any) *ggufBuilder {
	b.entries++
	switch v := value.(type) {
	case int:
		put(&b.meta, b.arch+"."+key, uint32(ggufUint32), uint32(v))
	case float32:
		put(&b.meta, b.arch+"."+key, uint32(ggufFloat32), v)
	case []uint32:
		put(&b.meta, b.arch+"."+key, uint32(ggufArray), uint32(ggufUint32), uint64(len(v)), v)
	}
	return b
}

// tokens adds a vocabulary of n texts.
func (b *ggufBuilder) tokens(n int) *ggufBuilder {
	b.entries++
	put(&b.meta, "tokenizer.ggml.tokens", uint32(ggufArray), uint32(ggufString), uint64(n))
	for i := range n {
		put(&b.meta, fmt.Sprintf("token %d", i))
	}
	return b
}

// tensor adds a tensor; the first extent is the fastest, as in the file.
func (b *ggufBuilder) tensor(name string, format int, extents ...int) *ggufBuilder {
	b.entered++
	put(&b.tensors, name, uint32(len(extents)))
	for _, e := range extents {
		put(&b.tensors, uint64(e))
	}
	put(&b.tensors, uint32(format), uint64(0))
	return b
}

func (b *ggufBuilder) bytes() []byte {
	var out bytes.Buffer
	out.WriteString("GGUF")
	put(&out, uint32(3), b.entered, b.entries)
	out.Write(b.meta.Bytes())
	out.Write(b.tensors.Bytes())
	return out.Bytes()
}

// GGML's numbers of the formats that the tests use.
const (
	f32, f16, q4K, q6K, bf16, mxfp4 = 0, 1, 12, 14, 30, 39
)

// ggufOf writes the tensors that a model has, by the names of llama.cpp, with
// its matrices in the given format and the rest in F32. It is the other way
// round of what the reader does, and is held against real parameter counts.
func ggufOf(b *ggufBuilder, m *catalog.Model, format int) *ggufBuilder {
	h := m.HiddenSize
	b.kv("block_count", m.NumLayers).kv("embedding_length", h).kv("context_length", m.MaxSeqLen)
	b.kv("attention.head_count", m.NumHeads).kv("attention.head_count_kv", m.NumKVHeads)
	if m.MLA == nil {
		b.kv("attention.key_length", m.HeadDim).kv("attention.value_length", m.HeadDim)
	}
	if m.IntermediateSize > 0 {
		b.kv("feed_forward_length", m.IntermediateSize)
	}
	if m.Window > 0 {
		b.kv("attention.sliding_window", m.Window)
	}
	b.tensor("token_embd.weight", format, h, m.VocabSize).tensor("output_norm.weight", f32, h)
	if !m.TieEmbeddings {
		b.tensor("output.weight", format, h, m.VocabSize)
	}
	for i := range m.NumLayers {
		p := fmt.Sprintf("blk.%d.", i)
		for _, norm := range []string{"attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"}[:m.Norms()] {
			b.tensor(p+norm+".weight", f32, h)
		}
		ggufAttention(b, m, p, format)
		ggufFFN(b, m, p, i, format)
	}
	return b
}

func ggufAttention(b *ggufBuilder, m *catalog.Model, p string, format int) {
	h, q, kv := m.HiddenSize, m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	if a := m.MLA; a != nil {
		b.tensor(p+"attn_q.weight", format, h, q)
		b.tensor(p+"attn_kv_a_mqa.weight", format, h, a.KVLoraRank+a.QKRopeHeadDim).tensor(p+"attn_kv_a_norm.weight", f32, a.KVLoraRank)
		b.tensor(p+"attn_kv_b.weight", format, a.KVLoraRank, m.NumHeads*(a.QKNopeHeadDim+a.VHeadDim))
		b.tensor(p+"attn_output.weight", format, m.NumHeads*a.VHeadDim, h)
		return
	}
	b.tensor(p+"attn_q.weight", format, h, q).tensor(p+"attn_k.weight", format, h, kv).tensor(p+"attn_v.weight", format, h, kv).tensor(p+"attn_output.weight", format, q, h)
	if m.QKVBias {
		b.tensor(p+"attn_q.bias", f32, q).tensor(p+"attn_k.bias", f32, kv).tensor(p+"attn_v.bias", f32, kv)
	}
	if m.OBias {
		b.tensor(p+"attn_output.bias", f32, h)
	}
	if m.AttentionSinks {
		b.tensor(p+"attn_sinks.weight", f32, m.NumHeads)
	}
	switch m.QKNorm {
	case "head":
		b.tensor(p+"attn_q_norm.weight", f32, m.HeadDim).tensor(p+"attn_k_norm.weight", f32, m.HeadDim)
	case "full":
		b.tensor(p+"attn_q_norm.weight", f32, q).tensor(p+"attn_k_norm.weight", f32, kv)
	}
}

func ggufFFN(b *ggufBuilder, m *catalog.Model, p string, layer, format int) {
	h, i := m.HiddenSize, m.IntermediateSize
	if !m.MoEAt(layer) {
		b.tensor(p+"ffn_gate.weight", format, h, i).tensor(p+"ffn_up.weight", format, h, i).tensor(p+"ffn_down.weight", format, i, h)
		return
	}
	e, w := m.MoE.NumExperts, m.MoE.IntermediateSize
	if layer == m.MoE.DenseLayers {
		b.kv("expert_count", e).kv("expert_used_count", m.MoE.ExpertsPerToken).kv("expert_feed_forward_length", w)
	}
	b.tensor(p+"ffn_gate_inp.weight", f32, h, e)
	b.tensor(p+"ffn_gate_exps.weight", format, h, w, e).tensor(p+"ffn_up_exps.weight", format, h, w, e).tensor(p+"ffn_down_exps.weight", format, w, h, e)
	if m.MoE.ExpertBias {
		b.tensor(p+"ffn_gate_exps.bias", f32, w, e).tensor(p+"ffn_up_exps.bias", f32, w, e).tensor(p+"ffn_down_exps.bias", f32, h, e)
	}
	if m.MoE.RouterBias {
		b.tensor(p+"ffn_gate_inp.bias", f32, e)
	}
	if s := m.MoE.SharedIntermediateSize; s > 0 {
		b.tensor(p+"ffn_gate_shexp.weight", format, h, s).tensor(p+"ffn_up_shexp.weight", format, h, s).tensor(p+"ffn_down_shexp.weight", format, s, h)
		if m.MoE.SharedGate {
			b.tensor(p+"ffn_gate_inp_shexp.weight", f32, h)
		}
	}
}

// TestGGUFEqualsConfig writes the head of a GGUF file for a fixture and reads
// the same architecture back from it.
func TestGGUFEqualsConfig(t *testing.T) {
	tests := []struct {
		arch, fixture string
		extra         func(*ggufBuilder)
		format        int
		quantization  string
	}{
		{arch: "llama", fixture: "llama", format: q4K, quantization: "q4_k"},
		{arch: "llama", fixture: "llama_tied", format: bf16},
		{arch: "llama", fixture: "mixtral", format: q6K, quantization: "q6_k"},
		{arch: "qwen2", fixture: "qwen2", format: f16},
		{arch: "qwen2moe", fixture: "qwen2_moe", format: q4K, quantization: "q4_k"},
		{arch: "qwen3", fixture: "qwen3", format: q4K, quantization: "q4_k"},
		{arch: "qwen3moe", fixture: "qwen3_moe", format: q6K, quantization: "q6_k"},
		{arch: "gemma2", fixture: "gemma2", format: f16},
		{arch: "gemma3", fixture: "gemma3_text", format: f16},
		{arch: "phi3", fixture: "phi3", format: f16},
		{arch: "olmo2", fixture: "olmo2", format: f16},
		{arch: "gpt-oss", fixture: "gpt_oss", format: mxfp4, quantization: "mxfp4"},
		{arch: "deepseek2", fixture: "deepseek_v2", format: f16, extra: func(b *ggufBuilder) {
			b.kv("attention.kv_lora_rank", 512).kv("attention.key_length", 192).kv("attention.value_length", 128).kv("rope.dimension_count", 64)
		}},
	}
	for _, test := range tests {
		t.Run(test.fixture, func(t *testing.T) {
			want, _, err := ParseConfig("config.json", readConfig(t, test.fixture))
			if err != nil {
				t.Fatal(err)
			}
			b := newGGUF(test.arch)
			if test.extra != nil {
				test.extra(b)
			}
			text := ggufOf(b, want, test.format).bytes()
			got, facts, warnings, err := ParseGGUF("model.gguf", bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) > 0 {
				t.Errorf("warnings: %q", warnings)
			}
			if got.Quantization != test.quantization {
				t.Errorf("format %q, want %q", got.Quantization, test.quantization)
			}
			got.Quantization = want.Quantization
			if want.Type == "mixtral" {
				got.Type = "mixtral" // GGUF calls it llama
			}
			if diff := cmp.Diff(architecture(want), architecture(got)); diff != "" {
				t.Errorf("(-config.json +gguf):\n%s", diff)
			}
			if total := want.Params().Total; facts.Params != total || got.ParamsTotal != total {
				t.Errorf("%d parameters in the tensors, %d in the architecture", facts.Params, total)
			}
		})
	}
}

func TestGGUFFacts(t *testing.T) {
	m, _, err := ParseConfig("config.json", readConfig(t, "llama"))
	if err != nil {
		t.Fatal(err)
	}
	b := newGGUF("llama").tokens(128256)
	ggufOf(b, m, q4K).tensor("rope_freqs.weight", f32, 64)
	_, facts, warnings, err := ParseGGUF("model.gguf", bytes.NewReader(b.bytes()))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	// 65 norms of 4096 and 64 rotation factors in 32 bits, the rest in 4.5.
	matrices, vectors := int64(8_030_261_248-65*4096), int64(65*4096+64)
	if want := matrices*9/16 + vectors*4; facts.CheckpointBytes != want {
		t.Errorf("%d bytes, want %d", facts.CheckpointBytes, want)
	}
	if want := float64(facts.CheckpointBytes) * 8 / float64(matrices+vectors); facts.BitsPerWeight != want {
		t.Errorf("%g bits a weight, want %g", facts.BitsPerWeight, want)
	}
}

func TestGGUFWarnings(t *testing.T) {
	m, _, err := ParseConfig("config.json", readConfig(t, "qwen3"))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		why   string
		build func(*ggufBuilder)
		want  string
	}{
		{"a vocabulary that does not fit the embedding", func(b *ggufBuilder) { b.tokens(7) }, "7 tokens"},
		{"a tensor that the architecture does not have", func(b *ggufBuilder) { b.tensor("blk.0.adapter.weight", f32, 4096, 4096) }, "the checkpoint has 8207512576 parameters, the architecture 8190735360 (-0.20 %)"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			b := newGGUF("qwen3")
			test.build(b)
			_, _, warnings, err := ParseGGUF("model.gguf", bytes.NewReader(ggufOf(b, m, f16).bytes()))
			if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], test.want) {
				t.Errorf("got %q, %v, want %q", warnings, err, test.want)
			}
		})
	}
}

// TestGGUFPredictionLayer: GLM 4.5's files count the prediction layer as a
// block.
func TestGGUFPredictionLayer(t *testing.T) {
	want, _, err := ParseConfig("config.json", readConfig(t, "glm4_moe"))
	if err != nil {
		t.Fatal(err)
	}
	longer := want.Clone()
	longer.NumLayers++
	got, _, warnings, err := ParseGGUF("model.gguf", bytes.NewReader(ggufOf(newGGUF("glm4moe").kv("nextn_predict_layers", 1), longer, q4K).bytes()))
	if err != nil {
		t.Fatal(err)
	}
	got.Quantization = ""
	if diff := cmp.Diff(architecture(want), architecture(got)); diff != "" {
		t.Errorf("(-config.json +gguf):\n%s", diff)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "next-token") {
		t.Errorf("warnings %q", warnings)
	}
}

// countingReader counts what is read of an endless file.
type countingReader struct {
	head io.Reader
	read int
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.head.Read(p)
	if err == io.EOF {
		n, err = len(p), nil // tensor data without end
	}
	r.read += n
	return n, err
}

func TestGGUFReadsTheHeadOnly(t *testing.T) {
	text, err := os.ReadFile("testdata/gguf/tiny.gguf")
	if err != nil {
		t.Fatal(err)
	}
	in := &countingReader{head: bytes.NewReader(text)}
	m, _, _, err := ParseGGUF("tiny.gguf", in)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(2*100*64 + 64 + 2*64 + 64*(64+32+32+64) + 3*64*128); m.Params().Total != want {
		t.Errorf("%d parameters, want %d", m.Params().Total, want)
	}
	if in.read > len(text)+64<<10 {
		t.Errorf("read %d bytes of a head of %d", in.read, len(text))
	}
}

func TestGGUFSplit(t *testing.T) {
	m, _, err := ParseConfig("config.json", readConfig(t, "llama"))
	if err != nil {
		t.Fatal(err)
	}
	whole := ggufOf(newGGUF("llama"), m, f16)
	dir := t.TempDir()
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("Big-%05d-of-00002.gguf", i)) }
	part := func(i int, metadata *ggufBuilder, tensors []byte, count uint64) {
		t.Helper()
		p := &ggufBuilder{arch: "split", entries: metadata.entries, entered: count}
		p.meta.Write(metadata.meta.Bytes())
		p.kv("count", 2)
		p.tensors.Write(tensors)
		if err := os.WriteFile(name(i), p.bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The first part holds the embedding alone, the second all the rest.
	var first bytes.Buffer
	put(&first, "token_embd.weight", uint32(2), uint64(4096), uint64(128256), uint32(f16), uint64(0))
	part(1, whole, first.Bytes(), 1)
	part(2, &ggufBuilder{}, whole.tensors.Bytes()[first.Len():], whole.entered-1)
	for _, i := range []int{1, 2} {
		got, facts, warnings, err := readGGUFFile(name(i))
		if err != nil {
			t.Fatal(err)
		}
		if got.TieEmbeddings || got.Params().Total != 8_030_261_248 || facts.Files != 2 || len(warnings) > 0 {
			t.Errorf("part %d: tied %v, %d parameters, %d files, %q", i, got.TieEmbeddings, got.Params().Total, facts.Files, warnings)
		}
	}
	if err := os.Remove(name(2)); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := readGGUFFile(name(1)); err == nil || !strings.Contains(err.Error(), "00002-of-00002") {
		t.Errorf("without its second part: got %v", err)
	}
}

// TestGGMLFormats: what a file can be stored in, deploy can price, at the bits
// that the block layout gives.
func TestGGMLFormats(t *testing.T) {
	known := 0
	for id := range uint32(64) {
		layout, ok := ggmlTypeOf(id)
		if !ok {
			continue
		}
		known++
		switch layout.name {
		case "I8", "I16", "I32", "I64", "Q8_1", "Q8_K", "Q1_0":
			continue // indices, activations, and one that no published model is in
		}
		format, err := deploy.ParseWeightFormat(ggmlFormatName(layout.name), catalog.FP16)
		if err != nil {
			t.Errorf("%s: %v", layout.name, err)
			continue
		}
		bits := float64(layout.bytes) * 8 / float64(layout.elements)
		if !plainGGML(layout.name) && format.Bits != bits {
			t.Errorf("%s: %g bits in its blocks, %g in deploy", layout.name, bits, format.Bits)
		}
	}
	if known != 34 {
		t.Errorf("%d formats are known", known)
	}
}

// TestGGUFKinds: a size may be written in any kind of number.
func TestGGUFKinds(t *testing.T) {
	values := []struct {
		kind  uint32
		value any
	}{
		{ggufUint8, uint8(64)},
		{ggufInt8, int8(64)},
		{ggufUint16, uint16(64)},
		{ggufInt16, int16(64)},
		{ggufUint32, uint32(64)},
		{ggufInt32, int32(64)},
		{ggufFloat32, float32(64)},
		{ggufUint64, uint64(64)},
		{ggufInt64, int64(64)},
		{ggufFloat64, float64(64)},
	}
	for _, v := range values {
		var head bytes.Buffer
		head.WriteString("GGUF")
		put(&head, uint32(2), uint64(0), uint64(2), "general.architecture", uint32(ggufString), "llama", "llama.embedding_length", v.kind, v.value)
		f, err := readGGUF("x.gguf", &head)
		if err != nil {
			t.Fatal(err)
		}
		g := &ggufModel{ggufFile: f, arch: "llama"}
		if got := g.size("embedding_length", -1, 1, maxHidden); got != 64 || g.err != nil {
			t.Errorf("kind %d: got %d, %v", v.kind, got, g.err)
		}
	}
}
