package fleet

import "github.com/llmprof/llmprof/sim"

// depth is how deep a replica is in work, as its engine counts it: requests,
// KV blocks, and the prompt tokens of the requests that wait.
type depth struct {
	waiting, running, used, usable int
	tokens                         int64
}

// plus adds what changed.
func (d depth) plus(e depth) depth {
	return depth{d.waiting + e.waiting, d.running + e.running, d.used + e.used, d.usable + e.usable, d.tokens + e.tokens}
}

// minus is what changed since an earlier depth.
func (d depth) minus(e depth) depth {
	return depth{d.waiting - e.waiting, d.running - e.running, d.used - e.used, d.usable - e.usable, d.tokens - e.tokens}
}

// cached is a server whose prefix cache can be asked.
type cached interface {
	// lookup is how many tokens of a request's prompt are cached: as seen in a
	// view of the past, or now if that is nil.
	lookup(i int32, view cacheView) int
}

// watched is a server whose prefix cache can be followed.
type watched interface {
	cached
	// watch lets the server keep the changes of its cache.
	watch()
	// changes are those since the last call.
	changes() []sim.CacheChange
}

// cacheView is the blocks of shared nodes in a prefix cache, with their number.
type cacheView map[sim.Block]int32

// change is what changed in a replica at a time. It is a step from one depth to
// the next, or a block that came or left.
type change struct {
	at      int64
	replica int32
	cache   int32 // +1 or -1 for a block, 0 for a depth
	block   sim.Block
	depth   depth
}

// signals is what a router knows of engines some time ago. Changes wait in a
// ring until they are old enough.
type signals struct {
	delay int64
	known []depth // at the end of the ring
	seen  []depth // at its begin
	views []cacheView
	ring  []change // its length is a power of two
	head  int
	n     int
}

// newSignals looks at servers at the start of a run, and at their caches where
// those count.
func newSignals(delay int64, servers []server, caches bool) *signals {
	s := &signals{delay: delay, ring: make([]change, 64)}
	for _, v := range servers {
		s.known, s.seen = append(s.known, v.depth()), append(s.seen, v.depth())
		s.views = append(s.views, cacheView{})
		if c, ok := v.(watched); ok && caches {
			c.watch()
		}
	}
	return s
}

// note looks at what changed in a server until now.
func (s *signals) note(now int64, k int, v server) {
	d := v.depth()
	if by := d.minus(s.known[k]); by != (depth{}) {
		s.push(change{at: now, replica: int32(k), depth: by})
		s.known[k] = d
	}
	c, ok := v.(watched)
	if !ok {
		return
	}
	for _, e := range c.changes() {
		by := int32(-1)
		if e.There {
			by = 1
		}
		s.push(change{at: now, replica: int32(k), cache: by, block: e.Block})
	}
}

func (s *signals) push(c change) {
	if s.n == len(s.ring) {
		grown := make([]change, 2*len(s.ring))
		for i := range s.n {
			grown[i] = s.ring[(s.head+i)&(len(s.ring)-1)]
		}
		s.ring, s.head = grown, 0
	}
	s.ring[(s.head+s.n)&(len(s.ring)-1)] = c
	s.n++
}

// advance takes in what has become old enough.
func (s *signals) advance(now int64) {
	for s.n > 0 && s.ring[s.head].at <= now-s.delay {
		c := &s.ring[s.head]
		s.head, s.n = (s.head+1)&(len(s.ring)-1), s.n-1
		if c.cache == 0 {
			s.seen[c.replica] = s.seen[c.replica].plus(c.depth)
			continue
		}
		view := s.views[c.replica]
		if view[c.block] += c.cache; view[c.block] == 0 {
			delete(view, c.block)
		}
	}
}
