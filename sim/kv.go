package sim

// kv is the pool of a replica's KV blocks: how many are free and in which
// order they are given out, and which are known under an identity. Blocks are
// alike, so only those that somebody may find in the cache, or may share, are
// kept one by one. Others are counted: those of a request's own tokens while it
// runs, and runs of blocks in the free list that nobody asks for again. An
// entry stands for one or for the other; entry 0 closes the ring of the free
// list. The null block, which is never handed out, does not appear.
type kv struct {
	size    int32 // tokens of a block
	total   int32 // usable blocks
	free    int32 // blocks in the free list
	caching bool
	split   bool // freed blocks without an identity go to the front

	count      []int32 // blocks of an entry
	refs       []int32 // how many requests hold an entry
	next, prev []int32 // the free list as a ring, its first entry is next[0]
	known      identities
	unused     []int32 // entries

	tables []table
	spare  []int32 // tables that nobody uses

	evicted []Block // since the pass began, in order
}

// table is what a request holds, in order of its tokens: first the blocks that
// are kept one by one, then those that are counted.
type table struct {
	entries []int32
	own     int32
}

// ceil is how many blocks the tokens need.
func (k *kv) ceil(tokens int32) int32 { return (tokens + k.size - 1) / k.size }

// entry makes one of some blocks without an identity, which stands nowhere.
func (k *kv) entry(blocks int32) int32 {
	if last := len(k.unused) - 1; last >= 0 {
		e := k.unused[last]
		k.unused = k.unused[:last]
		k.count[e] = blocks
		return e
	}
	k.count, k.refs = append(k.count, blocks), append(k.refs, 0)
	k.next, k.prev = append(k.next, 0), append(k.prev, 0)
	k.known.grow()
	return int32(len(k.count) - 1)
}

// hold opens a table for a new holder.
func (k *kv) hold() int32 {
	if last := len(k.spare) - 1; last >= 0 {
		t := k.spare[last]
		k.spare = k.spare[:last]
		return t
	}
	k.tables = append(k.tables, table{})
	return int32(len(k.tables) - 1)
}

// take gives a table blocks of the cache, which leave the free list if nobody
// held them.
func (k *kv) take(at int32, entries []int32) {
	for _, e := range entries {
		if k.refs[e] == 0 {
			k.unlink(e)
		}
		k.refs[e]++
	}
	k.tables[at].entries = append(k.tables[at].entries, entries...)
}

// extend gives a table n blocks, of which the first are kept one by one. The
// caller has seen that n are free.
func (k *kv) extend(at, n, kept int32) {
	k.pop(n)
	t := &k.tables[at]
	for range min(kept, n) {
		e := k.entry(1)
		k.refs[e] = 1
		t.entries = append(t.entries, e)
	}
	t.own += max(n-kept, 0)
}

// pop takes n blocks from the front of the free list. What was cached in them
// is forgotten.
func (k *kv) pop(n int32) {
	for n > 0 {
		e := k.next[0]
		some := min(n, k.count[e])
		if k.known.has(e) {
			b := k.known.of(e)
			for i := range some {
				k.evicted = append(k.evicted, Block{b.Owner, b.Index - i})
			}
		}
		n -= some
		if some == k.count[e] {
			k.unlink(e)
			k.known.remove(e)
			k.unused = append(k.unused, e)
			continue
		}
		k.free -= some
		k.count[e] -= some
		k.known.shorten(e, some)
	}
}

// release gives up a table and its blocks, the last one first, so that the end
// of a prefix is evicted before its start. Of the blocks that were counted, so
// many are cached as the owner's; they are found again if it may come back.
func (k *kv) release(at int32, owner Owner, cached int32, back bool) {
	t := &k.tables[at]
	first := int32(len(t.entries))
	if blank := t.own - cached; blank > 0 {
		k.put(k.entry(blank))
	}
	switch {
	case cached == 0:
	case back:
		for i := first + cached - 1; i >= first; i-- {
			e := k.entry(1)
			k.known.add(e, owner, i)
			k.pushBack(e)
		}
	default:
		e := k.entry(cached)
		k.known.mark(e, owner, first+cached-1)
		k.pushBack(e)
	}
	for i := len(t.entries) - 1; i >= 0; i-- {
		e := t.entries[i]
		k.refs[e]--
		if k.refs[e] == 0 {
			k.put(e)
		}
	}
	t.entries, t.own = t.entries[:0], 0
	k.spare = append(k.spare, at)
}

// put adds an entry to its end of the free list.
func (k *kv) put(e int32) {
	if k.split && !k.known.has(e) {
		k.link(e, 0, k.next[0])
		return
	}
	k.pushBack(e)
}

func (k *kv) pushBack(e int32) { k.link(e, k.prev[0], 0) }

func (k *kv) unlink(e int32) {
	before, after := k.prev[e], k.next[e]
	k.next[before], k.prev[after] = after, before
	k.free -= k.count[e]
}

// link puts an entry between two others of the free list.
func (k *kv) link(e, before, after int32) {
	k.prev[e], k.next[e] = before, after
	k.next[before], k.prev[after] = e, e
	k.free += k.count[e]
}
