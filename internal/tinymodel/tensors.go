package tinymodel

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
)

// role says what is special about a tensor's values.
type role uint8

const (
	matrix    role = iota
	norm           // ones
	embedding      // column 0 is 1
	head           // column 0 rules tokens out
	writer         // adds to the residual stream: row 0 is zero
)

// tensor is one weight, rows × cols with the columns next to each other; a norm
// has one row.
type tensor struct {
	gguf, hf   string
	rows, cols int
	role       role
}

func (t tensor) elements() int64 { return int64(t.rows) * int64(t.cols) }

// tensors lists the weights of the model in the order of its files.
func (s Shape) tensors() []tensor {
	kv := s.KVHeads * s.headDim()
	list := []tensor{
		{"token_embd", "model.embed_tokens", s.Vocab, s.Hidden, embedding},
		{"output_norm", "model.norm", 1, s.Hidden, norm},
		{"output", "lm_head", s.Vocab, s.Hidden, head},
	}
	for i := range s.Layers {
		at := strconv.Itoa(i)
		for _, t := range []tensor{
			{"attn_norm", "input_layernorm", 1, s.Hidden, norm},
			{"attn_q", "self_attn.q_proj", s.Hidden, s.Hidden, matrix},
			{"attn_k", "self_attn.k_proj", kv, s.Hidden, matrix},
			{"attn_v", "self_attn.v_proj", kv, s.Hidden, matrix},
			{"attn_output", "self_attn.o_proj", s.Hidden, s.Hidden, writer},
			{"ffn_norm", "post_attention_layernorm", 1, s.Hidden, norm},
			{"ffn_gate", "mlp.gate_proj", s.FFN, s.Hidden, matrix},
			{"ffn_up", "mlp.up_proj", s.FFN, s.Hidden, matrix},
			{"ffn_down", "mlp.down_proj", s.Hidden, s.FFN, writer},
		} {
			t.gguf, t.hf = "blk."+at+"."+t.gguf, "model.layers."+at+"."+t.hf
			list = append(list, t)
		}
	}
	for i := range list {
		list[i].gguf += ".weight"
		list[i].hf += ".weight"
	}
	return list
}

// sigma is the standard deviation of random weights, ruledOut what the output
// matrix gives a token that is never to be sampled.
const (
	sigma    = 0.02
	ruledOut = -20
)

// poolSize is the number of random values from which all weights are cut. Rows
// begin at random places of it, which is as good as fresh values here and fills
// a hundred million weights in a fraction of a second.
const poolSize = 1 << 16

// source writes weights in one two-byte format.
type source struct {
	rng    *rand.Rand
	encode func(float32) uint16
	pool   []byte // twice over, so that a row may begin anywhere in its first half
}

func newSource(seed int64, encode func(float32) uint16) *source {
	s := &source{rng: rand.New(rand.NewPCG(uint64(seed), 0x74696e79)), encode: encode}
	s.pool = make([]byte, 0, 4*poolSize)
	for range poolSize {
		s.pool = binary.LittleEndian.AppendUint16(s.pool, encode(float32(s.rng.NormFloat64()*sigma)))
	}
	s.pool = append(s.pool, s.pool...)
	return s
}

// write writes a tensor that is no norm.
func (s *source) write(w io.Writer, t tensor) error {
	row := make([]byte, 2*t.cols)
	for i := range t.rows {
		for filled := 0; filled < len(row); {
			start := 2 * s.rng.IntN(poolSize)
			filled += copy(row[filled:], s.pool[start:start+2*poolSize])
		}
		switch {
		case t.role == embedding:
			binary.LittleEndian.PutUint16(row, s.encode(1))
		case t.role == head && allowed(i):
			binary.LittleEndian.PutUint16(row, s.encode(0))
		case t.role == head:
			binary.LittleEndian.PutUint16(row, s.encode(ruledOut))
		case t.role == writer && i == 0:
			clear(row)
		}
		if _, err := w.Write(row); err != nil {
			return err
		}
	}
	return nil
}

// bfloat16 rounds to the nearest value, ties to even.
func bfloat16(f float32) uint16 {
	b := math.Float32bits(f)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// float16 rounds to the nearest IEEE half, ties to even. Values beyond its
// range become infinite; weights never are.
func float16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	exp := int(b>>23&0xff) - 127
	man := b&0x7fffff | 0x800000
	switch {
	case exp > 15:
		return sign | 0x7c00
	case exp >= -14:
		man = (man + 0xfff + man>>13&1) >> 13 // 11 bits, or 12 after a carry
		return sign + uint16(exp+14)<<10 + uint16(man)
	case exp >= -25:
		shift := uint(-exp - 1)
		half := uint32(1)<<(shift-1) - 1
		return sign + uint16((man+half+man>>shift&1)>>shift)
	}
	return sign
}
