package sim

// Lookup is how many tokens of a request's prompt the prefix cache has now, as
// an admission would find them: see [HitTokens]. Nothing is changed.
func (s *Scheduler) Lookup(prompt int, prefix []Span) int {
	if !s.kv.caching {
		return 0
	}
	return HitTokens(prompt, int(s.kv.size), prefix, func(b Block) bool { return s.kv.known.find(b.Owner, b.Index) != 0 })
}

// HitTokens is how many tokens of a prompt are cached where certain blocks are:
// whole blocks from the start, and never the last token. Tokens of no shared
// span are not looked for.
func HitTokens(prompt, blockSize int, prefix []Span, cached func(Block) bool) int {
	most := int32((prompt - 1) / blockSize)
	found := int32(0)
	for _, span := range prefix {
		for ; found < min(int32(span.End/blockSize), most); found++ {
			if !cached(Block{Node(span.Node), found}) {
				return int(found) * blockSize
			}
		}
	}
	return int(found) * blockSize
}

// CacheChange is a block of a shared node that came into the prefix cache or
// left it.
type CacheChange struct {
	Block Block
	// There says that it came. A block that two requests computed at once is
	// there twice, and leaves twice.
	There bool
}

// Watch lets the scheduler keep what changes in its prefix cache from now on,
// for [Scheduler.TakeChanges].
func (s *Scheduler) Watch() { s.kv.known.watched = true }

// TakeChanges are the changes of the prefix cache since the last call, in their
// order. They are valid until the next change.
func (s *Scheduler) TakeChanges() []CacheChange {
	changes := s.kv.known.changes
	s.kv.known.changes = changes[:0]
	return changes
}
