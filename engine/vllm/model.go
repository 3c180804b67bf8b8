package vllm

import (
	"context"
	"io"
	"path"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/hub"
)

// modelAt reads the model's config.json at a place; nil where it cannot be
// read, as that of a hub id.
func modelAt(ctx context.Context, place engine.Place, name string) *catalog.Model {
	if name == "" || strings.HasSuffix(name, ".gguf") {
		return nil
	}
	r, err := place.CopyOut(ctx, path.Join(name, "config.json"))
	if err != nil {
		return nil
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, 4<<20))
	if err != nil {
		return nil
	}
	m, _, err := hub.ParseConfig("config.json", text)
	if err != nil {
		return nil
	}
	return m
}

// known is the model of a folder, or of the catalog where the folder does not
// tell; nil where neither does. folder says that it was the folder.
func known(ctx context.Context, place engine.Place, name string) (m *catalog.Model, folder bool) {
	if m := modelAt(ctx, place, name); m != nil {
		return m, true
	}
	models, err := catalog.Builtin()
	if err != nil || name == "" {
		return nil, false
	}
	m, err = models.Model(name)
	if err != nil {
		return nil, false
	}
	return m, false
}

// cacheGiB is the KV cache in whole GiB that the grid needs, with room to
// spare; 4 where the model is not known.
func cacheGiB(m *catalog.Model, setup engine.Setup) int {
	if m == nil {
		return 4
	}
	layers := int64(m.NumLayers)
	if setup.NumLayers > 0 {
		layers = int64(setup.NumLayers)
	}
	width := int64(m.NumKVHeads) * int64(m.HeadDim)
	if m.MLA != nil || width == 0 {
		width = int64(m.HiddenSize)
	}
	// Keys and values in up to 4 bytes; each sequence ends within a block.
	const block = 256
	sequence := int64(setup.MaxInput+setup.MaxOutput+block) / block * block
	bytes := 2 * layers * width * 4 * sequence * int64(max(setup.MaxBatch, 1))
	return int(min(max(bytes*5/4>>30+1, 1), 1<<20))
}

// layersOf is the number of layers that run; 0 where it is not known.
func layersOf(m *catalog.Model, cut int) int {
	if m == nil {
		return cut
	}
	if cut > 0 {
		return min(cut, m.NumLayers)
	}
	return m.NumLayers
}

// everyID is how many token ids every model has.
const everyID = 256

// idRange are the token ids that prompts are made of, those at both ends left
// out, which are mostly control tokens. An id that the model does not have ends
// the engine, so that of an unknown model only the first ones are taken.
func idRange(m *catalog.Model) (low, high int) {
	if m == nil || m.VocabSize == 0 {
		return 0, everyID
	}
	low, high = 100, min(m.VocabSize*97/100, 30000)
	if high-low < 100 {
		return 0, max(m.VocabSize, 1)
	}
	return low, high
}
