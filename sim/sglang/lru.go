package sglang

// touch makes a node the last used.
func (t *tree) touch(n int32) {
	t.clock++
	t.used[n] = t.clock
	if t.listed[n] {
		t.unlist(n)
		t.listNewest(n)
	}
}

// listNewest lists an unlocked leaf that was used last.
func (t *tree) listNewest(n int32) { t.listAfter(n, t.newest) }

// listAfter lists a leaf behind another, or first behind none.
func (t *tree) listAfter(n, before int32) {
	after := t.oldest
	if before != none {
		after = t.newer[before]
		t.newer[before] = n
	} else {
		t.oldest = n
	}
	if after != none {
		t.older[after] = n
	} else {
		t.newest = n
	}
	t.older[n], t.newer[n] = before, after
	t.listed[n] = true
}

// listByUse lists a node at its place if it is an unlocked leaf.
func (t *tree) listByUse(n int32) {
	if n == root || t.listed[n] || t.kids[n] > 0 || t.locks[n] > 0 {
		return
	}
	before := t.newest
	for before != none && t.used[before] > t.used[n] {
		before = t.older[before]
	}
	t.listAfter(n, before)
}

// listFromOldest is listByUse for a node that is likely an old one.
func (t *tree) listFromOldest(n int32) {
	if n == root || t.kids[n] > 0 || t.locks[n] > 0 {
		return
	}
	before, after := none, t.oldest
	for after != none && t.used[after] < t.used[n] {
		before, after = after, t.newer[after]
	}
	t.listAfter(n, before)
}

// unlist takes a node off the list of unlocked leaves.
func (t *tree) unlist(n int32) {
	if !t.listed[n] {
		return
	}
	o, w := t.older[n], t.newer[n]
	if o == none {
		t.oldest = w
	} else {
		t.newer[o] = w
	}
	if w == none {
		t.newest = o
	} else {
		t.older[w] = o
	}
	t.listed[n] = false
}

// evict removes unlocked leaves, least recently used first and each as a
// whole, until at least n tokens are free, and returns how many became free.
func (t *tree) evict(n int) int {
	freed := 0
	for freed < n && t.oldest != none {
		leaf := t.oldest
		size := t.length(leaf)
		freed += size
		t.total -= size
		t.evictable -= size
		t.remove(leaf)
	}
	t.evicted += freed
	return freed
}

// remove takes a leaf out of the tree.
func (t *tree) remove(n int32) {
	t.changed(n, false)
	t.unlist(n)
	parent := t.parent[n]
	*t.slot(parent, t.rep[n]) = none
	l, r := t.left[n], t.right[n]
	if l == none {
		t.first[parent] = r
	} else {
		t.right[l] = r
	}
	if r == none {
		t.last[parent] = l
	} else {
		t.left[r] = l
	}
	t.kids[parent]--
	t.spare = append(t.spare, n)
	if t.kids[parent] == 0 {
		t.listFromOldest(parent)
	}
}
