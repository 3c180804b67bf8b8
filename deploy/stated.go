package deploy

import (
	"fmt"

	"github.com/llmprof/llmprof/catalog"
)

// Stated is what a user says of a model's architecture; 0 is not stated.
type Stated struct {
	// Parameters is a count.
	Parameters float64
	// Layers, Heads and KVHeads are counts, HeadDim, HiddenSize and
	// IntermediateSize widths in elements.
	Layers, Heads, KVHeads, HeadDim, HiddenSize, IntermediateSize int
}

// KVElements is how many numbers each of ranks devices caches for a token, as
// far as the stated figures tell; 0 where they do not. It counts KV heads of a
// known size. Where no KV heads are stated, the heads, or else the hidden size,
// give an upper bound: the cache of full attention. KV heads without a size are
// not enough, since the hidden size may be many times as wide.
func (s Stated) KVElements(ranks int) (elements float64, bound bool) {
	heads, dim := s.KVHeads, s.HeadDim
	if heads == 0 {
		heads, bound = s.Heads, true
	}
	if dim == 0 && s.Heads > 0 && s.HiddenSize%s.Heads == 0 {
		dim = s.HiddenSize / s.Heads
	}
	ranks = max(ranks, 1)
	width := (heads + ranks - 1) / ranks * dim // of one rank, which holds whole heads
	if heads == 0 && dim == 0 {
		width = (s.HiddenSize + ranks - 1) / ranks
	}
	elements = 2 * float64(s.Layers) * float64(width)
	return elements, bound && elements > 0
}

// Over is a model with the stated sizes in place of its own; the number of
// parameters is not a size, and is left to the caller. Stated KV heads stand
// for latent attention as well. Sizes that make no model are an error.
func (s Stated) Over(m *catalog.Model) (*catalog.Model, error) {
	sizes := s
	sizes.Parameters = 0
	if sizes == (Stated{}) {
		return m, nil
	}
	out := m.Clone()
	out.ParamsTotal, out.Verified = 0, false
	if s.KVHeads > 0 || s.HeadDim > 0 {
		out.MLA = nil
	}
	for _, stated := range []struct {
		value int
		into  *int
	}{
		{s.Layers, &out.NumLayers},
		{s.Heads, &out.NumHeads},
		{s.KVHeads, &out.NumKVHeads},
		{s.HeadDim, &out.HeadDim},
		{s.HiddenSize, &out.HiddenSize},
		{s.IntermediateSize, &out.IntermediateSize},
	} {
		if stated.value > 0 {
			*stated.into = stated.value
		}
	}
	if err := out.Validate(); err != nil {
		return nil, fmt.Errorf("%s with what is stated of it: %w", m.Name, err)
	}
	return out, nil
}

// Bytes is the storage of the stated parameters in a deployment, in bytes; 0
// where they are not stated.
func (s Stated) Bytes(c Config) (float64, error) {
	c = c.WithDefaults()
	w, err := ParseWeightFormat(c.Quantization, c.DType)
	if err != nil {
		return 0, err
	}
	return s.Parameters * w.Bits / 8, nil
}
