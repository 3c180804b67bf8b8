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
	owner []Owner // by block; nobody where it has no identity
	index []int32
	first []int32 // by hash: head of a chain of blocks, 0 for an empty one
	after []int32 // by block: the next in its chain, 0 at its end
	mask  uint32
}

func newIdentities(blocks int32) identities {
	buckets := uint32(1)
	for buckets < uint32(blocks) {
		buckets *= 2
	}
	t := identities{
		owner: make([]Owner, blocks), index: make([]int32, blocks),
		first: make([]int32, buckets), after: make([]int32, blocks),
		mask: buckets - 1,
	}
	for b := range t.owner {
		t.owner[b] = nobody
	}
	return t
}

// bucket spreads owners; the blocks of one owner follow each other.
func (t *identities) bucket(owner Owner, index int32) uint32 {
	const golden = 0x9E3779B1
	return (uint32(owner)*golden>>7 + uint32(index)) & t.mask
}

func (t *identities) has(b int32) bool { return t.owner[b] != nobody }

func (t *identities) of(b int32) Block { return Block{t.owner[b], t.index[b]} }

// find gives the oldest block of that identity, 0 if there is none.
func (t *identities) find(owner Owner, index int32) int32 {
	b := t.first[t.bucket(owner, index)]
	for b != 0 && (t.owner[b] != owner || t.index[b] != index) {
		b = t.after[b]
	}
	return b
}

// add gives a block an identity.
func (t *identities) add(b int32, owner Owner, index int32) {
	t.owner[b], t.index[b], t.after[b] = owner, index, 0
	at := &t.first[t.bucket(owner, index)]
	for *at != 0 {
		at = &t.after[*at]
	}
	*at = b
}

// remove takes a block's identity away.
func (t *identities) remove(b int32) {
	at := &t.first[t.bucket(t.owner[b], t.index[b])]
	for *at != b {
		at = &t.after[*at]
	}
	*at = t.after[b]
	t.owner[b] = nobody
}
