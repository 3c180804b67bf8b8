package mock

import "container/list"

// kvCache counts the blocks of a KV cache and keeps those of prompts for other
// prompts that begin alike.
type kvCache struct {
	blockSize int
	total     int // blocks, or Unlimited
	share     bool

	known map[uint64]*kvBlock
	idle  *list.List // of *kvBlock that nobody holds, the longest unused first
	used  int        // blocks that are held, each counted once
}

// kvBlock is a full block of a prompt.
type kvBlock struct {
	key     uint64
	holders int
	place   *list.Element // in idle, nil while it is held
}

// holding is what one sequence has of the cache.
type holding struct {
	shared  []*kvBlock
	private int // blocks
}

func newKVCache(o Options) *kvCache {
	return &kvCache{blockSize: o.BlockSize, total: o.KVBlocks, share: !o.NoPrefixCache, known: map[uint64]*kvBlock{}, idle: list.New()}
}

// blocksOf is the number of blocks for so many tokens.
func (c *kvCache) blocksOf(tokens int) int { return (tokens + c.blockSize - 1) / c.blockSize }

// fits reports whether so many further blocks can be held.
func (c *kvCache) fits(blocks int) bool { return c.total == Unlimited || c.used+blocks <= c.total }

// take holds the blocks of a sequence of so many tokens, whose prompt has the
// full blocks keys, and returns how many of its tokens were cached. The last
// token of a prompt is computed in any case.
func (c *kvCache) take(keys []uint64, prompt, tokens int) (h holding, cached int, ok bool) {
	if !c.share {
		keys = nil
	}
	need := c.blocksOf(tokens) - len(keys)
	hits, leading := 0, true
	for _, key := range keys {
		b := c.known[key]
		if leading = leading && b != nil; leading {
			hits++
		}
		if b == nil || b.holders == 0 {
			need++
		}
	}
	if !c.fits(need) {
		return holding{}, 0, false
	}
	for _, key := range keys {
		h.shared = append(h.shared, c.hold(key))
	}
	h.private = c.blocksOf(tokens) - len(keys)
	c.used += h.private
	c.evict()
	return h, min(hits*c.blockSize, (prompt-1)/c.blockSize*c.blockSize), true
}

// hold takes a block of the prefix cache, or makes it.
func (c *kvCache) hold(key uint64) *kvBlock {
	b := c.known[key]
	if b == nil {
		b = &kvBlock{key: key}
		c.known[key] = b
	}
	if b.place != nil {
		c.idle.Remove(b.place)
		b.place = nil
	}
	if b.holders == 0 {
		c.used++
	}
	b.holders++
	return b
}

// grow lets a holding have room for so many tokens, if there is some.
func (c *kvCache) grow(h *holding, tokens int) bool {
	more := c.blocksOf(tokens) - len(h.shared) - h.private
	if more <= 0 {
		return true
	}
	if !c.fits(more) {
		return false
	}
	h.private += more
	c.used += more
	c.evict()
	return true
}

// release gives a holding back. The end of a prompt is used less than its
// beginning, and goes first.
func (c *kvCache) release(h *holding) {
	c.used -= h.private
	for i := len(h.shared) - 1; i >= 0; i-- {
		b := h.shared[i]
		b.holders--
		if b.holders == 0 {
			c.used--
			b.place = c.idle.PushBack(b)
		}
	}
	*h = holding{}
	c.evict()
}

// evict forgets idle blocks that there is no room for.
func (c *kvCache) evict() {
	limit := c.total
	if limit == Unlimited {
		limit = c.used + cacheBlocks
	}
	for c.used+c.idle.Len() > limit && c.idle.Len() > 0 {
		b := c.idle.Remove(c.idle.Front()).(*kvBlock)
		delete(c.known, b.key)
	}
}

// usage is the held share of the cache, 0..1.
func (c *kvCache) usage() float64 { return float64(c.used) / float64(c.total) }

// blockKeys names the full blocks of a prompt, each by all tokens up to its end.
func blockKeys(tokens []int64, blockSize int) []uint64 {
	keys := make([]uint64, 0, len(tokens)/blockSize)
	key := uint64(0)
	for i, id := range tokens {
		key = (key + uint64(id) + 1) * 0x9e3779b97f4a7c15
		key ^= key >> 32
		if (i+1)%blockSize == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}
