// Package tinymodel writes small models with random weights, for tests that run
// a real engine without downloading anything.
//
// A [Shape] says how large the model is; [Tiny] is computed in a millisecond a
// step by one core. The same model comes as a GGUF file for llama.cpp and as a
// folder as transformers, vLLM and SGLang load it:
//
//	err := tinymodel.WriteGGUF(file, tinymodel.Tiny(), 1)
//	err = tinymodel.WriteFolder(dir, tinymodel.Tiny())  // config and tokenizer
//	err = tinymodel.WriteSafetensors(file, tinymodel.Tiny(), 1) // its weights
//
// Text that such a model writes is nonsense, but well-behaved nonsense: it never
// ends a reply by itself, so that a run gives exactly the tokens it was asked
// for, and each token is printable ASCII, so that no server holds back half a
// character. Column 0 of the embedding is 1 for every token and no layer writes
// to it; the output matrix uses it to rule out all other tokens.
//
// The tokenizer is a byte-level BPE of 512 entries. Digits and the marks
// #$%&*+=<>?@ are never merged: a prompt of n of them has n tokens, and one more
// for the mark at its beginning.
//
// The command maketiny writes either form from a shell.
package tinymodel

import (
	"errors"
	"fmt"
)

// Shape is the size of a model: a decoder of the Llama family.
type Shape struct {
	// Layers is the number of blocks, Hidden the width of the residual stream,
	// FFN that of the feed-forward block.
	Layers, Hidden, FFN int
	// Heads divide Hidden, KVHeads divide Heads.
	Heads, KVHeads int
	// Vocab is the number of tokens, at least 512. Those beyond 512 have a name
	// and are never produced, from text or by the model.
	Vocab int
	// MaxPositions is the longest sequence in tokens.
	MaxPositions int
}

// Tiny has 3.4 million parameters: 4 layers of width 256.
func Tiny() Shape {
	return Shape{Layers: 4, Hidden: 256, FFN: 768, Heads: 8, KVHeads: 4, Vocab: baseVocab, MaxPositions: 8192}
}

// Small has 76 million parameters: 12 layers of width 768.
func Small() Shape {
	return Shape{Layers: 12, Hidden: 768, FFN: 2048, Heads: 12, KVHeads: 4, Vocab: baseVocab, MaxPositions: 8192}
}

// Validate reports everything that makes the shape unusable.
func (s Shape) Validate() error {
	var faults []error
	for _, f := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"layers", s.Layers, 1, 1000},
		{"hidden size", s.Hidden, 1, 1 << 16},
		{"feed-forward size", s.FFN, 1, 1 << 18},
		{"heads", s.Heads, 1, 1 << 10},
		{"KV heads", s.KVHeads, 1, 1 << 10},
		{"vocabulary", s.Vocab, baseVocab, 1 << 20},
		{"positions", s.MaxPositions, 1, 1 << 30},
	} {
		if f.value < f.least || f.value > f.most {
			faults = append(faults, fmt.Errorf("%s %d: want %d to %d", f.name, f.value, f.least, f.most))
		}
	}
	if len(faults) == 0 {
		if s.Hidden%(2*s.Heads) != 0 {
			faults = append(faults, fmt.Errorf("hidden size %d: want a multiple of twice the %d heads", s.Hidden, s.Heads))
		}
		if s.Heads%s.KVHeads != 0 {
			faults = append(faults, fmt.Errorf("%d heads: want a multiple of the %d KV heads", s.Heads, s.KVHeads))
		}
	}
	return errors.Join(faults...)
}

func (s Shape) headDim() int { return s.Hidden / s.Heads }

// Params is the number of parameters, norms included.
func (s Shape) Params() int64 {
	n := int64(0)
	for _, t := range s.tensors() {
		n += t.elements()
	}
	return n
}
