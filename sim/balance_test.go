package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// unbalanced says what does not add up in a scheduler between two calls: every
// block is either free or held as often as it stands in tables, and what is
// cached is found.
func (s *Scheduler) unbalanced() error {
	k := &s.kv
	held := make([]int32, len(k.refs))
	used := int32(0)
	for _, id := range s.running {
		p := s.requests.progress[id]
		t := k.tables[s.requests.table[id]]
		for _, e := range t.entries {
			held[e]++
		}
		blocks := int32(len(t.entries)) + t.own
		if s.steady.has(id) {
			p.computed, p.total = s.steady.computed(id), s.steady.computed(id)+1-s.ahead
			own := k.ceil(p.computed) - blocks // counted together
			used, blocks = used+own, blocks+own
			p.room = blocks * k.size
		}
		used += t.own
		switch {
		case s.requests.state[id] != Running:
			return fmt.Errorf("request %d is in the list of those that run, in state %d", id, s.requests.state[id])
		case p.room != blocks*k.size:
			return fmt.Errorf("request %d: %d blocks, room for %d tokens", id, blocks, p.room)
		case p.computed > p.room:
			return fmt.Errorf("request %d: %d tokens computed, room for %d", id, p.computed, p.room)
		case p.computed > p.total+s.ahead*2:
			return fmt.Errorf("request %d: %d tokens computed of %d", id, p.computed, p.total)
		}
	}
	for id, flags := range s.requests.flags {
		if flags&holding == 0 {
			continue
		}
		t, p := k.tables[s.requests.table[id]], s.requests.progress[id]
		for _, e := range t.entries {
			held[e]++
		}
		used += t.own
		if blocks := int32(len(t.entries)) + t.own; p.room != blocks*k.size {
			return fmt.Errorf("request %d, which has no seat: %d blocks, room for %d tokens", id, blocks, p.room)
		}
	}
	if !slices.Equal(held, k.refs) {
		return fmt.Errorf("blocks are held %v times by those who run, counted %v times", held, k.refs)
	}
	free := int32(0)
	for before, e := int32(0), k.next[0]; e != 0; before, e = e, k.next[e] {
		if k.refs[e] != 0 || k.prev[e] != before || k.count[e] < 1 {
			return fmt.Errorf("entry %d of %d blocks in the free list: %d references, after %d, says after %d", e, k.count[e], k.refs[e], before, k.prev[e])
		}
		if free += k.count[e]; free > k.free {
			return errors.New("the free list is longer than its count")
		}
	}
	for _, n := range k.refs {
		if n > 0 {
			used++
		}
	}
	if free != k.free || free+used != k.total {
		return fmt.Errorf("%d blocks free, %d counted, %d used of %d", free, k.free, used, k.total)
	}
	return k.unfound()
}

// unfound names a cached block that a look-up would miss.
func (k *kv) unfound() error {
	chained := 0
	for _, e := range k.known.first {
		for ; e != 0; e = k.known.after[e] {
			if chained++; chained > len(k.refs) {
				return errors.New("a chain of cached blocks has no end")
			}
		}
	}
	cached := 0
	for e := range int32(len(k.refs)) {
		if !k.known.has(e) || k.known.after[e] == apart {
			continue
		}
		cached++
		id := k.known.of(e)
		if at := k.known.find(id.Owner, id.Index); at == 0 || k.known.of(at) != id || k.count[e] != 1 {
			return fmt.Errorf("entry %d holds %d blocks from %v, and a look-up gives entry %d", e, k.count[e], id, at)
		}
	}
	if cached != chained || cached != k.known.n || cached > 0 && !k.caching {
		return fmt.Errorf("%d blocks are cached, %d in chains, %d counted", cached, chained, k.known.n)
	}
	return nil
}

// wanting lists the running requests that would get a token if budget and
// blocks had no end.
func (s *Scheduler) wanting() []int32 {
	var ids []int32
	s.budget, s.threshold = math.MaxInt32, 0
	for _, id := range s.running {
		if s.needs(&s.requests.progress[id]) > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
