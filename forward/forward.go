// Package forward describes what one forward step of an engine computes: a
// [Pass] of prefill chunks and decode sequences. Everything that times a step
// takes a Pass; nothing here knows who asks for it or how long it takes.
//
// A prompt of 1000 tokens, alone in its step:
//
//	forward.Prefill(1, 1000, 0)
//
// 32 sequences that each decode one token after 1500 tokens of context:
//
//	forward.Decode(32, 1500)
//
// A mixed step of chunked prefill is one value with both parts. Weights are
// read once per Pass, whatever it holds.
package forward

import (
	"errors"
	"fmt"
)

// Chunk is a run of equal prefill pieces: Count sequences that each compute
// New tokens on top of Context tokens already in the KV cache.
type Chunk struct {
	// Count is the number of sequences with this very shape.
	Count int `json:"count"`
	// New is the number of tokens computed per sequence.
	New int `json:"new"`
	// Context is the number of tokens per sequence already in the cache:
	// earlier chunks or a cached prefix.
	Context int `json:"context,omitempty"`
	// Last says that the prompt ends in this chunk, so each sequence needs
	// one row of logits.
	Last bool `json:"last,omitempty"`
}

// Sequences aggregates sequences that each decode one token.
type Sequences struct {
	// Count is the number of sequences, and of tokens computed.
	Count int `json:"count"`
	// SumContext is the sum over the sequences of the tokens already in the
	// cache, the new token not counted.
	SumContext int64 `json:"sum_context"`
	// Shortest and Longest are the smallest and the largest context among
	// them, in tokens; both 0 where they are not known.
	Shortest int `json:"shortest_context,omitempty"`
	Longest  int `json:"longest_context,omitempty"`
}

// Add adds a sequence after context cached tokens. Shortest and Longest follow,
// unless they are not known of the sequences before it.
func (s *Sequences) Add(context int) {
	switch {
	case s.Count == 0:
		s.Shortest, s.Longest = context, context
	case s.Longest > 0 || s.SumContext == 0:
		s.Shortest, s.Longest = min(s.Shortest, context), max(s.Longest, context)
	}
	s.Count++
	s.SumContext += int64(context)
}

// Pass is the work of one forward step.
type Pass struct {
	// Prefill holds the prompt chunks, in no particular order.
	Prefill []Chunk `json:"prefill,omitempty"`
	// Decode aggregates the decoding sequences.
	Decode Sequences `json:"decode,omitzero"`
	// DecodeContexts optionally lists the context of each decoding sequence;
	// it matters for sliding windows. Where present, its length is
	// Decode.Count and its sum Decode.SumContext.
	DecodeContexts []int `json:"decode_contexts,omitempty"`
}

// Prefill returns a pass of batch whole prompts of n new tokens each, on top
// of context cached tokens.
func Prefill(batch, n, context int) Pass {
	return Pass{Prefill: []Chunk{{Count: batch, New: n, Context: context, Last: true}}}
}

// Decode returns a pass of batch sequences that decode one token each after
// context cached tokens.
func Decode(batch, context int) Pass {
	return Pass{Decode: Sequences{Count: batch, SumContext: int64(batch) * int64(context)}}
}

// Tokens is the number of tokens computed in the pass.
func (p Pass) Tokens() int {
	n := p.Decode.Count
	for _, c := range p.Prefill {
		n += c.Count * c.New
	}
	return n
}

// Rows is the number of rows of logits needed: one per decoding sequence and
// one per prompt that ends in the pass.
func (p Pass) Rows() int {
	n := p.Decode.Count
	for _, c := range p.Prefill {
		if c.Last {
			n += c.Count
		}
	}
	return n
}

// MeanDecodeContext is the mean context of the decoding sequences in tokens;
// 0 without any.
func (p Pass) MeanDecodeContext() float64 {
	if p.Decode.Count == 0 {
		return 0
	}
	return float64(p.Decode.SumContext) / float64(p.Decode.Count)
}

// Validate reports everything that is wrong with the pass.
func (p Pass) Validate() error {
	var faults []error
	for i, c := range p.Prefill {
		if c.Count < 1 || c.New < 1 || c.Context < 0 {
			faults = append(faults, fmt.Errorf("prefill chunk %d: count %d, new %d, context %d: want count and new at least 1, context at least 0", i, c.Count, c.New, c.Context))
		}
	}
	if p.Decode.Count < 0 || p.Decode.SumContext < 0 {
		faults = append(faults, fmt.Errorf("decode: %d sequences with %d tokens of context: want neither negative", p.Decode.Count, p.Decode.SumContext))
	}
	if d := p.Decode; d.Shortest < 0 || d.Longest < d.Shortest || d.Longest > 0 && !(float64(d.Shortest) <= p.MeanDecodeContext() && p.MeanDecodeContext() <= float64(d.Longest)) {
		faults = append(faults, fmt.Errorf("decode: contexts from %d to %d tokens with a mean of %g", d.Shortest, d.Longest, p.MeanDecodeContext()))
	}
	if p.DecodeContexts != nil && len(p.DecodeContexts) != p.Decode.Count {
		faults = append(faults, fmt.Errorf("decode: %d contexts listed for %d sequences", len(p.DecodeContexts), p.Decode.Count))
	}
	if p.Tokens() < 1 && faults == nil {
		faults = append(faults, errors.New("a pass computes at least one token"))
	}
	return errors.Join(faults...)
}
