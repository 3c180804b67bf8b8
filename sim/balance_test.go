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
	for _, id := range s.running {
		p := &s.requests.progress[id]
		blocks := k.tables[s.requests.table[id]]
		for _, b := range blocks {
			held[b]++
		}
		switch {
		case s.requests.state[id] != Running:
			return fmt.Errorf("request %d is in the list of those that run, in state %d", id, s.requests.state[id])
		case p.room != int32(len(blocks))*k.size:
			return fmt.Errorf("request %d: %d blocks, room for %d tokens", id, len(blocks), p.room)
		case p.computed > p.room:
			return fmt.Errorf("request %d: %d tokens computed, room for %d", id, p.computed, p.room)
		case p.computed > p.total+p.inflight:
			return fmt.Errorf("request %d: %d tokens computed of %d and %d in flight", id, p.computed, p.total, p.inflight)
		}
	}
	if !slices.Equal(held, k.refs) {
		return fmt.Errorf("blocks are held %v times by those who run, counted %v times", held, k.refs)
	}
	free := int32(0)
	for before, b := int32(0), k.next[0]; b != 0; before, b = b, k.next[b] {
		if k.refs[b] != 0 || k.prev[b] != before {
			return fmt.Errorf("block %d in the free list: %d references, after %d, says after %d", b, k.refs[b], before, k.prev[b])
		}
		if free++; free > k.free {
			return errors.New("the free list is longer than its count")
		}
	}
	used := int32(0)
	for _, n := range k.refs {
		if n > 0 {
			used++
		}
	}
	if free != k.free || free+used != int32(len(k.refs))-1 {
		return fmt.Errorf("%d blocks free, %d counted, %d used of %d", free, k.free, used, len(k.refs)-1)
	}
	return k.unfound()
}

// unfound names a cached block that a look-up would miss.
func (k *kv) unfound() error {
	if !k.caching {
		return nil
	}
	chained := 0
	for _, b := range k.known.first {
		for ; b != 0; b = k.known.after[b] {
			if chained++; chained > len(k.refs) {
				return errors.New("a chain of cached blocks has no end")
			}
		}
	}
	cached := 0
	for b := range int32(len(k.refs)) {
		if !k.known.has(b) {
			continue
		}
		cached++
		id := k.known.of(b)
		if at := k.known.find(id.Owner, id.Index); at == 0 || k.known.of(at) != id {
			return fmt.Errorf("block %d holds %v, and a look-up gives block %d", b, id, at)
		}
	}
	if cached != chained {
		return fmt.Errorf("%d blocks are cached, %d in chains", cached, chained)
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
