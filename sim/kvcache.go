package sim

import "math"

// Owner says whose tokens a block holds: those of one request, or those of a
// shared node such as a prefix group or a session.
type Owner int32

// Node is the owner that stands for the n-th shared node.
func Node(n int32) Owner { return Owner(-1 - n) }

// Node is the number of the shared node; ok is false for a request.
func (o Owner) Node() (n int32, ok bool) { return int32(-1 - o), o < 0 }

// Request is the request's id; ok is false for a shared node.
func (o Owner) Request() (id int32, ok bool) { return int32(o), o >= 0 }

// nobody owns a block without an identity.
const nobody Owner = math.MinInt32

// Block is the identity of a full block: the Index-th of its owner. Two
// requests have equal tokens up to the end of a block if and only if it has
// the same identity in both; this stands for vLLM's chained hashes.
type Block struct {
	Owner Owner
	Index int32
}

// identities finds cached blocks by what they hold. Several blocks may have
// one identity, since the same prefix can be computed twice at once; they stand
// in one chain in the order in which they came, and the oldest is found.
type identities struct {
	owner []Owner // by entry; nobody where it has no identity
	index []int32
	first []int32 // by hash: head of a chain of entries, 0 for an empty one
	after []int32 // by entry: the next in its chain, 0 at its end; apart for none
	n     int     // in chains

	watched bool
	changes []CacheChange // of shared nodes, since they were taken
}

// apart stands for an entry that is in no chain: nobody looks for it.
const apart = -1

// grow makes room for one more entry.
func (t *identities) grow() {
	t.owner, t.index, t.after = append(t.owner, nobody), append(t.index, 0), append(t.after, apart)
}

// bucket spreads owners; the blocks of one owner follow each other.
func (t *identities) bucket(owner Owner, index int32) uint32 {
	const golden = 0x9E3779B1
	return (uint32(owner)*golden>>7 + uint32(index)) & uint32(len(t.first)-1)
}

func (t *identities) has(e int32) bool { return t.owner[e] != nobody }

// of is the identity of an entry's first block to go; the others have the
// indices below.
func (t *identities) of(e int32) Block { return Block{t.owner[e], t.index[e]} }

// find gives the oldest block of that identity, 0 if there is none.
func (t *identities) find(owner Owner, index int32) int32 {
	if t.n == 0 {
		return 0
	}
	e := t.first[t.bucket(owner, index)]
	for e != 0 && (t.owner[e] != owner || t.index[e] != index) {
		e = t.after[e]
	}
	return e
}

// add gives an entry of one block an identity under which it is found.
func (t *identities) add(e int32, owner Owner, index int32) {
	if t.n >= len(t.first) {
		t.spread()
	}
	t.owner[e], t.index[e] = owner, index
	t.append(e)
	t.n++
	t.changed(e, true)
}

// changed notes that a block of a shared node is there, or is not any longer.
func (t *identities) changed(e int32, there bool) {
	if t.watched && t.owner[e] < 0 {
		t.changes = append(t.changes, CacheChange{t.of(e), there})
	}
}

// append puts an entry at the end of its chain.
func (t *identities) append(e int32) {
	t.after[e] = 0
	at := &t.first[t.bucket(t.owner[e], t.index[e])]
	for *at != 0 {
		at = &t.after[*at]
	}
	*at = e
}

// spread doubles the chains. Those of one chain keep their order.
func (t *identities) spread() {
	old := t.first
	t.first = make([]int32, max(64, 2*len(old)))
	for _, e := range old {
		for e != 0 {
			after := t.after[e]
			t.append(e)
			e = after
		}
	}
}

// mark says what an entry holds without letting it be found. It may hold
// several blocks, of falling index.
func (t *identities) mark(e int32, owner Owner, index int32) {
	t.owner[e], t.index[e], t.after[e] = owner, index, apart
}

// shorten takes the first blocks from an entry.
func (t *identities) shorten(e, blocks int32) { t.index[e] -= blocks }

// remove takes an entry's identity away, if it has one.
func (t *identities) remove(e int32) {
	if t.after[e] != apart {
		at := &t.first[t.bucket(t.owner[e], t.index[e])]
		for *at != e {
			at = &t.after[*at]
		}
		*at = t.after[e]
		t.n--
		t.changed(e, false)
	}
	t.owner[e], t.after[e] = nobody, apart
}
