package mock

import "sync"

// books are what every engine keeps: who got which tokens and when.
type books struct {
	options Options
	clock   clock
	pacer   *pacer

	mu      sync.Mutex
	meters  meters
	truths  truths
	scratch []byte // the pacer's
}

// piece is one chunk of tokens.
type piece struct {
	due    int64
	tokens int
	upTo   int // tokens of the answer with it
}

// batch is what is written at once.
type batch struct {
	emit   int64
	first  int // the first of its tokens, from 1
	pieces []piece
	end    ending
}

// emit books the chunks of a request that wait for their write, which follows
// before the next chunk.
func (k *books) emit(s *sequence, end ending) batch {
	b := batch{emit: k.clock.now(), first: s.pending[0].upTo - s.pending[0].tokens + 1, pieces: s.pending, end: end}
	s.pending = s.pending[:0]
	k.meters.put(s, b)
	k.truths.put(s.truth, b)
	s.last = b.emit
	return b
}

// state is what an engine is at, as /metrics tells it.
type state struct {
	running, waiting int // requests
	// usage is the held share of the KV cache, 0..1; blocks is 0 where it has no
	// limit, cacheTokens what it holds.
	usage                          float64
	blocks, blockSize, cacheTokens int
	share                          bool // there is a prefix cache
	queries, hits                  int64
	preemptions                    int64
	steps                          *histogram // tokens of steps; nil where there are none
}
