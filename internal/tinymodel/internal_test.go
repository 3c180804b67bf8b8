package tinymodel

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestVocabulary(t *testing.T) {
	list := vocabulary(600)
	if len(list) != 600 || baseVocab != 512 {
		t.Fatalf("%d tokens, %d without padding", len(list), baseVocab)
	}
	seen := map[string]bool{}
	for id, token := range list {
		if seen[token] {
			t.Errorf("token %d %q stands twice", id, token)
		}
		seen[token] = true
		for _, r := range token {
			if !unicode.IsPrint(r) || r == ' ' {
				t.Errorf("token %d %q is not printable", id, token)
			}
		}
	}
	for id, want := range map[int]string{'a': "a", '0': "0", ' ': "Ġ", '\n': "Ċ", 0: "Ā", 0x7f: "ġ", 0xad: "Ń", 0xff: "ÿ", 256: "Ġa", beginID: "<|begin|>", 511: "<|im_end|>", 512: "<|unused_512|>"} {
		if list[id] != want {
			t.Errorf("token %d is %q, want %q", id, list[id], want)
		}
	}
	for _, p := range pairs() {
		if strings.ContainsAny(p[0]+p[1], "0123456789#$%&*+=<>?@") {
			t.Errorf("%q merges what must stay single", p)
		}
		if !slices.Contains(list, p[0]) || !slices.Contains(list, p[1]) {
			t.Errorf("%q merges what is no token", p)
		}
	}
	for id, want := range map[int]bool{31: false, ' ': true, '~': true, 127: false, 200: false, 256: true, 506: true, beginID: false, 511: false, 512: false} {
		if allowed(id) != want {
			t.Errorf("token %d %q: allowed is %t", id, list[id], !want)
		}
	}
}

func TestHalfPrecision(t *testing.T) {
	for f, want := range map[float32]uint16{
		0: 0, 1: 0x3c00, -2: 0xc000, -20: 0xcd00, 65504: 0x7bff, 65520: 0x7c00, 1e9: 0x7c00,
		6.103515625e-5: 0x0400, 5.960464477539063e-8: 0x0001, 2.98023223876953125e-8: 0, 1e-9: 0, 0.333251953125: 0x3555, 1.00048828125: 0x3c00, 1.00146484375: 0x3c02,
	} {
		if got := float16(f); got != want {
			t.Errorf("float16(%g) = %#04x, want %#04x", f, got, want)
		}
	}
	for f, want := range map[float32]uint16{0: 0, 1: 0x3f80, -20: 0xc1a0, 1.00390625: 0x3f80, 1.01171875: 0x3f82} {
		if got := bfloat16(f); got != want {
			t.Errorf("bfloat16(%g) = %#04x, want %#04x", f, got, want)
		}
	}
	for bits := range uint16(0x7c00) { // every positive half comes back
		v := math.Ldexp(float64(bits&0x3ff|0x400), max(int(bits>>10), 1)-25)
		if bits>>10 == 0 {
			v = math.Ldexp(float64(bits), -24)
		}
		if got := float16(float32(v)); got != bits {
			t.Fatalf("float16(%g) = %#04x, want %#04x", v, got, bits)
		}
	}
}

// TestConstantColumn checks what makes replies end only when asked to.
func TestConstantColumn(t *testing.T) {
	for _, tt := range []tensor{
		{"token_embd", "", 512, 8, embedding},
		{"output", "", 512, 8, head},
		{"ffn_down", "", 4, 8, writer},
		{"attn_q", "", 4, 8, matrix},
	} {
		var file strings.Builder
		if err := newSource(1, float16).write(&file, tt); err != nil {
			t.Fatal(err)
		}
		at := func(row, col int) uint16 {
			return binary.LittleEndian.Uint16([]byte(file.String())[2*(row*tt.cols+col):])
		}
		zeros := 0
		for col := range tt.cols {
			if at(0, col) == 0 {
				zeros++
			}
		}
		if (zeros == tt.cols) != (tt.role == writer) {
			t.Errorf("%s: row 0 has %d zeros", tt.gguf, zeros)
		}
		switch tt.role {
		case embedding:
			if at(0, 0) != float16(1) || at(511, 0) != float16(1) || at(5, 1) == float16(1) {
				t.Errorf("%s: column 0 is not 1", tt.gguf)
			}
		case head:
			if at('a', 0) != 0 || at(endID, 0) != float16(-20) || at(0, 0) != float16(-20) {
				t.Errorf("%s: end of text is not ruled out", tt.gguf)
			}
		}
	}
}
