package cost

import (
	"fmt"
	"math"
	"sort"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
)

// KVLayer is one kind of layer as the KV cache of a rank sees it.
type KVLayer struct {
	// Attention is one of the catalog's attention kinds.
	Attention string
	// Window is the span of sliding and chunked layers in tokens.
	Window int
	// Count is the number of such layers on the rank.
	Count int
	// TokenBytes is the cache of a token in one layer, in bytes; 0 for layers
	// that keep a state.
	TokenBytes int64
	// StateBytes is the state of a sequence in one layer, in bytes.
	StateBytes int64
}

// KVGroup is layers that share a block table.
type KVGroup struct {
	// Attention and Window are those of its layers.
	Attention string
	Window    int
	// Layers is their number.
	Layers int
	// BlockSize is the tokens of one of its blocks.
	BlockSize int
}

// KVLayout is how vLLM lays the caches of a rank's layers over one pool of
// blocks. Layer i of every group shares memory with layer i of the others, so
// that a block of any group is one and the same number.
type KVLayout struct {
	// Release is vLLM's.
	Release deploy.Release
	// BlockSize is the smallest block of a group in tokens.
	BlockSize int
	// BlockBytes is the memory of one block on a rank.
	BlockBytes int64
	// Groups draw their blocks from the pool.
	Groups []KVGroup
	// StateBlocks is how many blocks a sequence keeps in a group of states: 1,
	// or 2 where the prefix cache holds states.
	StateBlocks int
	// PaddedLayers is how many layers' memory the last groups leave unused.
	PaddedLayers int
	// Notes say what the engine changes of its own accord.
	Notes []string
}

// NewKVLayout lays layers out as a release does, in blocks of a number of
// tokens. Without hybrid, layers with a window are counted as full ones.
func NewKVLayout(r deploy.Release, layers []KVLayer, block int, hybrid bool) (KVLayout, error) {
	if block < 1 {
		return KVLayout{}, fmt.Errorf("block size is %d: want at least 1", block)
	}
	kinds := kvKinds(layers, hybrid)
	l := KVLayout{Release: r, BlockSize: block, StateBlocks: 1}
	if len(kinds) == 0 {
		return l, fmt.Errorf("the model caches nothing")
	}
	if len(kinds) == 1 {
		return l.single(kinds[0])
	}
	block, err := l.stateBlock(kinds, block)
	if err != nil {
		return l, err
	}
	pages, err := l.pages(kinds, block)
	if err != nil {
		return l, err
	}
	l.group(kinds, pages)
	return l, nil
}

// kvKind is the layers of one kind, which may differ in size.
type kvKind struct {
	attention string
	window    int
	layers    []KVLayer
	count     int
}

// kvKinds sorts layers by kind, in the order of first occurrence.
func kvKinds(layers []KVLayer, hybrid bool) []kvKind {
	var kinds []kvKind
next:
	for _, layer := range layers {
		if layer.Count == 0 || layer.TokenBytes == 0 && layer.StateBytes == 0 {
			continue
		}
		windowed := layer.Attention == catalog.SlidingAttention || layer.Attention == catalog.ChunkedAttention
		switch {
		case windowed && !hybrid:
			layer.Attention, layer.Window = catalog.FullAttention, 0
		case !windowed:
			layer.Window = 0
		}
		for i := range kinds {
			if k := &kinds[i]; k.attention == layer.Attention && k.window == layer.Window {
				k.layers, k.count = append(k.layers, layer), k.count+layer.Count
				continue next
			}
		}
		kinds = append(kinds, kvKind{layer.Attention, layer.Window, []KVLayer{layer}, layer.Count})
	}
	return kinds
}

// tokenBytes is the cache of a token in the kind's widest layer, and whether
// its layers are all as wide.
func (k kvKind) tokenBytes() (widest int64, even bool) {
	widest, even = k.layers[0].TokenBytes, true
	for _, layer := range k.layers {
		even = even && layer.TokenBytes == widest
		widest = max(widest, layer.TokenBytes)
	}
	return widest, even
}

// single is the layout of one kind: one group.
func (l KVLayout) single(k kvKind) (KVLayout, error) {
	if _, even := k.tokenBytes(); !even && !l.Release.From(11, 2) {
		return l, fmt.Errorf("layers of different size: vLLM %s cannot lay them out, 0.11.2 brought it", l.Release)
	}
	for _, layer := range k.layers {
		l.BlockBytes += int64(layer.Count) * (layer.TokenBytes*int64(l.BlockSize) + layer.StateBytes)
	}
	l.Groups = []KVGroup{{k.attention, k.window, k.count, l.BlockSize}}
	return l, nil
}

// stateBlock raises the block until a page of attention holds a state, in
// steps of 16 tokens.
func (l *KVLayout) stateBlock(kinds []kvKind, block int) (int, error) {
	var state, token int64
	for _, k := range kinds {
		for _, layer := range k.layers {
			state = max(state, layer.StateBytes)
			if layer.TokenBytes > 0 && (token == 0 || layer.TokenBytes < token) {
				token = layer.TokenBytes
			}
		}
	}
	if state == 0 {
		return block, nil
	}
	const step = 16
	least := int((state + step*token - 1) / (step * token) * step)
	if least > maxKVBlock {
		return 0, fmt.Errorf("a state of %d bytes needs blocks of %d tokens: want at most %d", state, least, maxKVBlock)
	}
	if least > block {
		l.Notes = append(l.Notes, fmt.Sprintf("the block grows from %d to %d tokens to hold the state of a layer", block, least))
		block = least
	}
	return block, nil
}

// maxKVBlock bounds the tokens of a block.
const maxKVBlock = 1 << 24

// pages gives every kind the same bytes a page: its block sizes in tokens.
func (l *KVLayout) pages(kinds []kvKind, block int) (page kvPages, err error) {
	for _, k := range kinds {
		token, even := k.tokenBytes()
		if !even {
			return page, fmt.Errorf("%s layers of different size beside other kinds: the layout is the engine's to say, give the number of blocks", k.attention)
		}
		page.bytes = max(page.bytes, token*int64(block))
	}
	for _, k := range kinds {
		token, _ := k.tokenBytes()
		size := block
		switch wide := token * int64(block); {
		case token == 0 || wide == page.bytes:
		case !l.Release.From(12, 0):
			return page, fmt.Errorf("%s layers have smaller pages: vLLM %s cannot lay them out, 0.12.0 brought it", k.attention, l.Release)
		case page.bytes%wide == 0:
			size = block * int(page.bytes/wide)
		case l.Release.From(24, 0):
			l.Notes = append(l.Notes, fmt.Sprintf("pages of %s layers are padded from %d to %d bytes", k.attention, wide, page.bytes))
		default:
			return page, fmt.Errorf("%s layers have pages of %d bytes that do not divide %d: vLLM %s cannot lay them out, 0.24.0 brought it", k.attention, wide, page.bytes, l.Release)
		}
		page.sizes = append(page.sizes, size)
	}
	return page, nil
}

// kvPages is the bytes of every page and the tokens in one of each kind.
type kvPages struct {
	bytes int64
	sizes []int
}

// group cuts the kinds into groups of equal size.
func (l *KVLayout) group(kinds []kvKind, pages kvPages) {
	rarest, largest := math.MaxInt, 0
	for _, k := range kinds {
		rarest, largest = min(rarest, k.count), max(largest, k.count)
	}
	size, most := rarest, 0.0
	switch {
	case l.Release.From(18, 0):
		most = 1.5
	case l.Release.From(12, 0):
		most = 1.25
	}
	if float64(largest) < most*float64(rarest) {
		size = largest
	}
	l.BlockBytes = int64(size) * pages.bytes
	l.BlockSize = pages.sizes[0]
	for i, k := range kinds {
		l.BlockSize = min(l.BlockSize, pages.sizes[i])
		for left := k.count; left > 0; left -= size {
			l.Groups = append(l.Groups, KVGroup{k.attention, k.window, min(left, size), pages.sizes[i]})
			l.PaddedLayers += max(size-left, 0)
		}
	}
	if l.PaddedLayers > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("%d layers of padding", l.PaddedLayers))
	}
}

// Blocks is how many blocks fit in the bytes of a rank.
func (l KVLayout) Blocks(available int64) int64 {
	if l.BlockBytes < 1 || available < 0 {
		return 0
	}
	return available / l.BlockBytes
}

// RequestBlocks is how many blocks one request of length tokens takes, where
// at most ahead tokens are computed before older ones leave a window.
func (l KVLayout) RequestBlocks(length, ahead int) int64 {
	var sum int64
	for _, g := range l.Groups {
		blocks := func(tokens int) int64 { return int64((tokens + g.BlockSize - 1) / g.BlockSize) }
		switch g.Attention {
		case catalog.SlidingAttention:
			sum += blocks(min(g.Window-1+ahead, length)) + 1
		case catalog.ChunkedAttention:
			sum += blocks(min(g.Window+ahead, length))
		case catalog.LinearAttn:
			sum += int64(l.StateBlocks)
		default:
			sum += blocks(length)
		}
	}
	return sum
}

// Longest is the longest request in tokens that blocks hold beside the one
// that is never handed out; at most is a bound, 0 where not even one fits.
func (l KVLayout) Longest(blocks int64, ahead, most int) int {
	return sort.Search(most, func(i int) bool { return l.RequestBlocks(i+1, ahead) >= blocks })
}

// Concurrency is how many requests of length tokens the engine says the blocks
// hold at once.
func (l KVLayout) Concurrency(blocks int64, length, ahead int) float64 {
	return float64(blocks) / float64(l.RequestBlocks(length, ahead))
}

// LogTokens is the capacity in tokens that the engine prints for a longest
// request of length tokens.
func (l KVLayout) LogTokens(blocks int64, length, ahead int) int64 {
	if l.Release.From(21, 0) {
		return int64(l.Concurrency(blocks, length, ahead) * float64(length))
	}
	return blocks / int64(len(l.Groups)) * int64(l.BlockSize)
}
