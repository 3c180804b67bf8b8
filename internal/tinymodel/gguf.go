package tinymodel

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// The parts of GGUF that are written here.
const (
	ggufVersion   = 3
	ggufAlignment = 32

	ggufUint32  = 4
	ggufInt32   = 5
	ggufFloat32 = 6
	ggufBool    = 7
	ggufString  = 8
	ggufArray   = 9

	ggmlFloat32 = 0
	ggmlFloat16 = 1

	fileMostlyFloat16 = 1

	tokenNormal  = 1
	tokenControl = 3
	tokenUnused  = 5
)

// Constants of the architecture, the same in both forms.
const (
	normEpsilon = 1e-5
	ropeTheta   = 10000
)

// WriteGGUF writes the model as a GGUF file: matrices in half precision, norms
// in single. The same shape and seed always give the same bytes.
func WriteGGUF(w io.Writer, shape Shape, seed int64) error {
	if err := shape.Validate(); err != nil {
		return fmt.Errorf("write a GGUF model: %w", err)
	}
	out := bufio.NewWriterSize(w, 1<<18)
	head := shape.ggufHead()
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("write a GGUF model: %w", err)
	}
	weights := newSource(seed, float16)
	for _, t := range shape.tensors() {
		if err := writeGGUFTensor(out, weights, t); err != nil {
			return fmt.Errorf("write a GGUF model: %s: %w", t.gguf, err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write a GGUF model: %w", err)
	}
	return nil
}

func writeGGUFTensor(w io.Writer, weights *source, t tensor) error {
	if t.role != norm {
		if err := weights.write(w, t); err != nil {
			return err
		}
	} else {
		ones := make([]byte, 0, 4*t.cols)
		for range t.cols {
			ones = binary.LittleEndian.AppendUint32(ones, math.Float32bits(1))
		}
		if _, err := w.Write(ones); err != nil {
			return err
		}
	}
	_, err := w.Write(make([]byte, padding(t.ggufBytes())))
	return err
}

func (t tensor) ggufBytes() int64 {
	if t.role == norm {
		return 4 * t.elements()
	}
	return 2 * t.elements()
}

// padding is what is missing to the next multiple of the alignment.
func padding(n int64) int64 { return (ggufAlignment - n%ggufAlignment) % ggufAlignment }

// ggufHead is everything before the tensors' data.
func (s Shape) ggufHead() []byte {
	tensors := s.tensors()
	meta := s.metadata()
	b := &ggufText{text: []byte("GGUF")}
	b.uint32(ggufVersion)
	b.uint64(uint64(len(tensors)))
	b.uint64(uint64(len(meta)))
	for _, entry := range meta {
		b.string(entry.key)
		b.value(entry.value)
	}
	offset := int64(0)
	for _, t := range tensors {
		b.string(t.gguf)
		if t.role == norm {
			b.uint32(1)
			b.uint64(uint64(t.cols))
			b.uint32(ggmlFloat32)
		} else {
			b.uint32(2)
			b.uint64(uint64(t.cols))
			b.uint64(uint64(t.rows))
			b.uint32(ggmlFloat16)
		}
		b.uint64(uint64(offset))
		offset += t.ggufBytes() + padding(t.ggufBytes())
	}
	return append(b.text, make([]byte, padding(int64(len(b.text))))...)
}

// entry is one key of the metadata; its value's Go type gives that of the file.
type entry struct {
	key   string
	value any
}

// metadata says what the model is and how text becomes tokens.
func (s Shape) metadata() []entry {
	types := make([]int32, s.Vocab)
	for id := range types {
		switch {
		case id < beginID:
			types[id] = tokenNormal
		case id < baseVocab:
			types[id] = tokenControl
		default:
			types[id] = tokenUnused
		}
	}
	return []entry{
		{"general.architecture", "llama"},
		{"general.name", "llmprof tiny model, random weights"},
		{"general.file_type", uint32(fileMostlyFloat16)},
		{"general.alignment", uint32(ggufAlignment)},
		{"llama.context_length", uint32(s.MaxPositions)},
		{"llama.embedding_length", uint32(s.Hidden)},
		{"llama.block_count", uint32(s.Layers)},
		{"llama.feed_forward_length", uint32(s.FFN)},
		{"llama.attention.head_count", uint32(s.Heads)},
		{"llama.attention.head_count_kv", uint32(s.KVHeads)},
		{"llama.attention.layer_norm_rms_epsilon", float32(normEpsilon)},
		{"llama.rope.dimension_count", uint32(s.headDim())},
		{"llama.rope.freq_base", float32(ropeTheta)},
		{"llama.vocab_size", uint32(s.Vocab)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", "default"},
		{"tokenizer.ggml.tokens", vocabulary(s.Vocab)},
		{"tokenizer.ggml.token_type", types},
		{"tokenizer.ggml.merges", merges()},
		{"tokenizer.ggml.bos_token_id", uint32(beginID)},
		{"tokenizer.ggml.eos_token_id", uint32(endID)},
		{"tokenizer.ggml.padding_token_id", uint32(padID)},
		{"tokenizer.ggml.add_bos_token", true},
		{"tokenizer.ggml.add_eos_token", false},
		{"tokenizer.chat_template", chatTemplate},
	}
}

// ggufText gathers the head.
type ggufText struct{ text []byte }

func (b *ggufText) uint32(v uint32) { b.text = binary.LittleEndian.AppendUint32(b.text, v) }
func (b *ggufText) uint64(v uint64) { b.text = binary.LittleEndian.AppendUint64(b.text, v) }

func (b *ggufText) string(s string) {
	b.uint64(uint64(len(s)))
	b.text = append(b.text, s...)
}

func (b *ggufText) array(kind uint32, n int) {
	b.uint32(ggufArray)
	b.uint32(kind)
	b.uint64(uint64(n))
}

// value writes a value with its type. Types that metadata does not use are not
// known here.
func (b *ggufText) value(value any) {
	switch v := value.(type) {
	case uint32:
		b.uint32(ggufUint32)
		b.uint32(v)
	case float32:
		b.uint32(ggufFloat32)
		b.uint32(math.Float32bits(v))
	case bool:
		b.uint32(ggufBool)
		if v {
			b.text = append(b.text, 1)
		} else {
			b.text = append(b.text, 0)
		}
	case string:
		b.uint32(ggufString)
		b.string(v)
	case []string:
		b.array(ggufString, len(v))
		for _, s := range v {
			b.string(s)
		}
	case []int32:
		b.array(ggufInt32, len(v))
		for _, n := range v {
			b.uint32(uint32(n))
		}
	}
}
