package sim

// kv is the pool of a replica's KV blocks: who holds them, which are free and
// in which order, and which are known under an identity. Block 0 is the null
// block, which is never handed out; it closes the ring of the free list.
type kv struct {
	size    int32 // tokens of a block
	free    int32 // blocks in the free list
	caching bool
	split   bool // freed blocks without an identity go to the front

	refs       []int32 // how many requests hold a block
	next, prev []int32 // the free list as a ring, its first block is next[0]
	known      identities

	tables [][]int32 // blocks of a holder, in order of their tokens
	spare  []int32   // tables that nobody uses

	evicted []Block // since the pass began, in order
}

func newKV(c Config) kv {
	n := int32(c.Blocks)
	k := kv{
		size: int32(c.BlockSize), free: n - 1,
		caching: !c.NoPrefixCache, split: c.Rules.SplitFree,
		refs: make([]int32, n), next: make([]int32, n), prev: make([]int32, n),
	}
	if k.caching {
		k.known = newIdentities(n)
	}
	for b := range n {
		k.next[b], k.prev[b] = b+1, b-1
	}
	k.next[n-1], k.prev[0] = 0, n-1
	return k
}

// ceil is how many blocks the tokens need.
func (k *kv) ceil(tokens int32) int32 { return (tokens + k.size - 1) / k.size }

// hold opens a table for a new holder.
func (k *kv) hold() int32 {
	if last := len(k.spare) - 1; last >= 0 {
		table := k.spare[last]
		k.spare = k.spare[:last]
		return table
	}
	k.tables = append(k.tables, nil)
	return int32(len(k.tables) - 1)
}

// take gives a table blocks of the cache, which leave the free list if nobody
// held them.
func (k *kv) take(table int32, blocks []int32) {
	for _, b := range blocks {
		if k.refs[b] == 0 {
			k.unlink(b)
		}
		k.refs[b]++
	}
	k.tables[table] = append(k.tables[table], blocks...)
}

// extend gives a table n blocks from the front of the free list. What was
// cached in them is forgotten. The caller has seen that n are free.
func (k *kv) extend(table, n int32) {
	blocks := k.tables[table]
	for range n {
		b := k.next[0]
		k.unlink(b)
		k.refs[b] = 1
		if k.caching && k.known.has(b) {
			k.evicted = append(k.evicted, k.known.of(b))
			k.known.remove(b)
		}
		blocks = append(blocks, b)
	}
	k.tables[table] = blocks
}

// release gives up a table and its blocks, the last one first, so that the end
// of a prefix is evicted before its start.
func (k *kv) release(table int32) {
	blocks := k.tables[table]
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		k.refs[b]--
		switch {
		case k.refs[b] > 0:
		case k.split && !(k.caching && k.known.has(b)):
			k.link(b, 0, k.next[0])
		default:
			k.link(b, k.prev[0], 0)
		}
	}
	k.tables[table] = blocks[:0]
	k.spare = append(k.spare, table)
}

func (k *kv) unlink(b int32) {
	before, after := k.prev[b], k.next[b]
	k.next[before], k.prev[after] = after, before
	k.free--
}

// link puts a block between two others of the free list.
func (k *kv) link(b, before, after int32) {
	k.prev[b], k.next[b] = before, after
	k.next[before], k.prev[after] = b, b
	k.free++
}
