package sglang

import "github.com/llmprof/llmprof/sim"

// Lookup is how many tokens of a prompt the cache has now: whole pages, and
// never the last token. Nothing that counts is changed. A prefix that is none
// finds nothing.
func (s *Scheduler) Lookup(prompt int, prefix []sim.Span) int {
	if s.config.NoPrefixCache || prompt < 1 || prompt > MaxCount || s.tree.know(prefix, MaxCount) != nil {
		return 0
	}
	defer s.tree.forget()
	return int(s.tree.peek(int32(len(s.tree.own)-1), int32(prompt-1)))
}

// Watch lets the scheduler keep which pages of shared nodes come into its cache
// and leave it from now on, for [Scheduler.TakeChanges].
func (s *Scheduler) Watch() { s.tree.watched = true }

// TakeChanges are the changes of the cache since the last call, in their order.
// They are valid until the next change. A page belongs to the node of its last
// token, as a block does that is filled with it.
func (s *Scheduler) TakeChanges() []sim.CacheChange {
	changes := s.tree.changes
	s.tree.changes = changes[:0]
	return changes
}

// changed keeps that the pages of a node came or left.
func (t *tree) changed(n int32, there bool) {
	if !t.watched {
		return
	}
	for end := t.start[n] + t.page; end <= t.end[n]; end += t.page {
		branch := t.whose.owner(t.rep[n], end-1)
		if branch == none {
			return // so are all after it
		}
		t.changes = append(t.changes, sim.CacheChange{
			Block: sim.Block{Owner: sim.Node(t.whose.nodes[branch]), Index: end/t.page - 1}, There: there,
		})
	}
}

// forget undoes the last know.
func (t *tree) forget() {
	t.own = t.own[:len(t.own)-1]
	t.whose.forget()
}

// forget undoes the last know but for the branches, which nobody has then.
func (c *chains) forget() {
	c.spans = c.spans[:len(c.spans)-len(c.of(int32(len(c.spanAt)-1)))]
	c.spanAt = c.spanAt[:len(c.spanAt)-1]
}

// peek is match without a trace.
func (t *tree) peek(r, n int32) (hit int32) {
	n = t.floor(n)
	at := root
	for hit < n {
		child := *t.slot(at, r)
		if child == none {
			break
		}
		hit = min(t.floor(min(t.whose.common(t.rep[child], r, t.end[at]+t.page-1), n)), t.end[child])
		if hit < t.end[child] {
			break
		}
		at = child
	}
	return hit
}
