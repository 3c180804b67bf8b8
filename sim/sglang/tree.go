package sglang

import "github.com/llmprof/llmprof/sim"

// none is no node and no request.
const none int32 = -1

// root is the node that every path starts at; it holds no tokens.
const root int32 = 0

// tree is the radix tree of cached prefixes. Tokens are known by whose they
// are: a node names a request whose tokens from start to end it stands for, so
// comparing two requests is arithmetic and no token is stored.
//
// Every node starts and ends on a border of pages, and the last token of a page
// says whose page it is. Below a node lies at most one child that goes on with
// the same branch, or the same request's own tokens. Any other child is the
// first page of its branch or request, of which there is one place in the tree.
// So children are found without a search.
type tree struct {
	page int32
	lazy bool // refresh only nodes that matched as a whole

	whose chains
	own   []int32 // of each request: where its own tokens begin
	top   []int32 // of each branch: where it begins

	start, end, rep, parent, locks []int32
	next                           []int32 // the branch that goes on with the same tokens
	kids                           []int32 // number of children
	first, last, left, right       []int32 // children in order of appearance
	older, newer                   []int32 // unlocked leaves in order of use
	listed                         []bool
	used                           []int64
	spare                          []int32

	watched bool
	changes []sim.CacheChange // of shared nodes, since they were taken

	oldest, newest int32
	clock          int64
	// evictable are tokens of unlocked nodes, total those of all, evicted those
	// that were removed so far.
	evictable, total, evicted int
}

func newTree(page int32, lazy bool) *tree {
	t := &tree{page: page, lazy: lazy, oldest: none, newest: none, whose: chains{branch: map[int32]int32{}}}
	t.node(none, 0, 0, none)
	return t
}

// know registers the next request, of so many tokens at most.
func (t *tree) know(prefix []sim.Span, most int) error {
	if err := t.whose.know(prefix, most); err != nil {
		return err
	}
	for len(t.top) < len(t.whose.begin) {
		t.top = append(t.top, none)
	}
	t.own = append(t.own, none)
	return nil
}

// node makes a node that nothing points at yet.
func (t *tree) node(rep, start, end, parent int32) int32 {
	n := int32(len(t.start))
	if k := len(t.spare); k > 0 {
		n, t.spare = t.spare[k-1], t.spare[:k-1]
	} else {
		for _, a := range []*[]int32{
			&t.start, &t.end, &t.rep, &t.parent, &t.locks, &t.next, &t.kids,
			&t.first, &t.last, &t.left, &t.right, &t.older, &t.newer,
		} {
			*a = append(*a, 0)
		}
		t.listed = append(t.listed, false)
		t.used = append(t.used, 0)
	}
	t.start[n], t.end[n], t.rep[n], t.parent[n] = start, end, rep, parent
	t.locks[n], t.next[n], t.kids[n] = 0, none, 0
	t.first[n], t.last[n], t.left[n], t.right[n] = none, none, none, none
	t.clock++
	t.used[n] = t.clock
	return n
}

// length is the number of tokens of a node.
func (t *tree) length(n int32) int { return int(t.end[n] - t.start[n]) }

// floor is the whole pages of a length.
func (t *tree) floor(n int32) int32 { return n - n%t.page }

// slot is where the child of n is found on which request r goes on.
func (t *tree) slot(n, r int32) *int32 {
	end := t.end[n]
	owner := t.whose.owner(r, end+t.page-1)
	switch {
	case n != root && owner == t.whose.owner(t.rep[n], end-1):
		return &t.next[n]
	case owner == none:
		return &t.own[r]
	}
	return &t.top[owner]
}

// walk follows the first n tokens of request r, splitting the node that it
// ends inside of, and returns the last node of the path. With insert a path
// that ends on the last node does not refresh it where lazy.
func (t *tree) walk(r, n int32, insert bool) int32 {
	n = t.floor(n)
	at := root
	for t.end[at] < n {
		child := *t.slot(at, r)
		if child == none {
			break
		}
		reach := min(t.floor(min(t.whose.common(t.rep[child], r, t.end[at]+t.page-1), n)), t.end[child])
		if reach < t.end[child] {
			if !t.lazy {
				t.touch(child)
			}
			at = t.split(child, reach)
			break
		}
		at = child
		if !insert || !t.lazy || reach < n {
			t.touch(child)
		}
	}
	return at
}

// match finds the cached prefix of the first n tokens of request r: its length
// and the node that it ends on.
func (t *tree) match(r, n int32) (hit, node int32) {
	node = t.walk(r, n, false)
	return t.end[node], node
}

// insert adds the first n tokens of request r, whole pages of them, and
// returns how many were there already, and the node that they end on.
func (t *tree) insert(r, n int32) (present, node int32) {
	n = t.floor(n)
	node = t.walk(r, n, true)
	present = t.end[node]
	if present == n {
		return present, node
	}
	leaf := t.node(r, present, n, node)
	*t.slot(node, r) = leaf
	t.adopt(node, leaf)
	t.unlist(node)
	t.listNewest(leaf)
	t.changed(leaf, true)
	t.total += t.length(leaf)
	t.evictable += t.length(leaf)
	return present, leaf
}

// adopt puts a child at the end of the children of its parent.
func (t *tree) adopt(parent, child int32) {
	t.left[child], t.right[child] = t.last[parent], none
	if t.last[parent] == none {
		t.first[parent] = child
	} else {
		t.right[t.last[parent]] = child
	}
	t.last[parent] = child
	t.kids[parent]++
}

// split cuts a node at a border of pages and returns the upper part, which
// takes the node's place; the lower part keeps its number.
func (t *tree) split(n, at int32) int32 {
	parent, rep := t.parent[n], t.rep[n]
	upper := t.node(rep, t.start[n], at, parent)
	*t.slot(parent, rep) = upper
	t.locks[upper] = t.locks[n]
	l, r := t.left[n], t.right[n]
	t.left[upper], t.right[upper] = l, r
	if l == none {
		t.first[parent] = upper
	} else {
		t.right[l] = upper
	}
	if r == none {
		t.last[parent] = upper
	} else {
		t.left[r] = upper
	}
	t.start[n], t.parent[n] = at, upper
	*t.slot(upper, rep) = n
	t.adopt(upper, n)
	return upper
}

// lock keeps a node and all above it from being evicted.
func (t *tree) lock(n int32) {
	for ; n != root; n = t.parent[n] {
		if t.locks[n] == 0 {
			t.evictable -= t.length(n)
			t.unlist(n)
		}
		t.locks[n]++
	}
}

// unlock takes one lock back.
func (t *tree) unlock(n int32) {
	for ; n != root; n = t.parent[n] {
		t.locks[n]--
		if t.locks[n] == 0 {
			t.evictable += t.length(n)
			t.listByUse(n)
		}
	}
}
