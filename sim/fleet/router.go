package fleet

import (
	"math"
	"math/rand/v2"
)

// streamRouting is the random stream of routers, apart from those that make a
// load.
const streamRouting = 0x726f757465

// router chooses the replica of each request, among some of the replicas of a
// run.
type router struct {
	run     *run
	routing Routing
	members []int32
	draws   *rand.Rand
	turns   int
	home    map[string]int32 // by session: where its last turn went
	signals *signals         // nil where the engines are looked at now
	scores  []float64
	sent    []int32 // by replica: requests that this router has sent there
}

func newRouter(r *run, routing Routing, members []int32, signals *signals) *router {
	return &router{
		run: r, routing: routing, members: members, signals: signals, home: map[string]int32{},
		sent:  make([]int32, len(r.config.Replicas)),
		draws: rand.New(rand.NewPCG(routing.Seed, streamRouting)),
	}
}

// choose gives the replica of a request, which arrives now.
func (r *router) choose(i int32) int {
	k := r.pick(i)
	r.sent[k]++
	return k
}

// fresher breaks a tie: it reports whether a replica was sent fewer requests
// than one of a lower index.
func (r *router) fresher(k, than int32) bool { return r.sent[k] < r.sent[than] }

// pick finds the replica of a request.
func (r *router) pick(i int32) int {
	if len(r.members) == 1 {
		return int(r.members[0])
	}
	if r.signals != nil {
		r.signals.advance(r.run.now)
	}
	switch r.routing.Policy {
	case Random:
		return int(r.members[r.draws.IntN(len(r.members))])
	case LeastRunning:
		return r.least(func(k int32) int64 { return int64(r.depth(k).running) })
	case LeastRequests:
		return r.least(r.requests)
	case LeastTokens:
		return r.least(func(k int32) int64 { return r.depth(k).tokens })
	case LeastKV:
		return r.leastKV()
	case PowerOfTwo:
		return r.ofTwo()
	case PrefixAffinity:
		return r.affinity(i)
	case PrefixHit:
		return r.prefixHit(i)
	case Weighted:
		return r.weighted(i)
	case Sticky:
		return r.sticky(i)
	}
	return r.turn()
}

// turn takes the replicas in turn.
func (r *router) turn() int {
	k := r.members[r.turns%len(r.members)]
	r.turns++
	return int(k)
}

// depth is what the router knows of a replica.
func (r *router) depth(k int32) depth {
	if r.signals != nil {
		return r.signals.seen[k]
	}
	return r.run.servers[k].depth()
}

// requests is how many the router has sent to a replica that have not ended.
func (r *router) requests(k int32) int64 { return int64(r.run.pending[k]) }

// least takes the replica with the smallest value.
func (r *router) least(value func(k int32) int64) int {
	best, least := r.members[0], int64(math.MaxInt64)
	for _, k := range r.members {
		if v := value(k); v < least || v == least && r.fresher(k, best) {
			best, least = k, v
		}
	}
	return int(best)
}

func (r *router) leastKV() int {
	best := r.members[0]
	least := r.depth(best)
	for _, k := range r.members[1:] {
		d := r.depth(k)
		share, other := d.used*least.usable, least.used*d.usable
		if share < other || share == other && r.fresher(k, best) {
			best, least = k, d
		}
	}
	return int(best)
}

func (r *router) ofTwo() int {
	a := r.draws.IntN(len(r.members))
	b := r.draws.IntN(len(r.members) - 1)
	if b >= a {
		b++
	}
	first, second := r.members[min(a, b)], r.members[max(a, b)]
	if a, b := r.requests(first), r.requests(second); b < a || b == a && r.fresher(second, first) {
		return int(second)
	}
	return int(first)
}

// affinity takes the replica that stands first in the order of a prefix and has
// room for one more.
func (r *router) affinity(i int32) int {
	room := int64(math.MaxInt64)
	if r.routing.Bound > 0 {
		total := int64(1)
		for _, k := range r.members {
			total += r.requests(k)
		}
		room = int64(math.Ceil(r.routing.Bound * float64(total) / float64(len(r.members))))
	}
	key := r.run.load.beginning(i)
	best, highest := int32(none), uint64(0)
	for _, k := range r.members {
		if h := mix(key ^ mix(uint64(k)+1)); r.requests(k) < room && (best == none || h > highest) {
			best, highest = k, h
		}
	}
	return int(best)
}

// beginning stands for the tokens that a request begins with: those of its
// first shared span, or its own.
func (l *Load) beginning(i int32) uint64 {
	q := &l.requests[i]
	if len(q.Prefix) > 0 {
		return q.Prefix[0].Seed
	}
	return q.Seed
}

// mix spreads a number over all bits: the finisher of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// hit is how many tokens of a request's prompt a replica's cache holds.
func (r *router) hit(i, k int32) int {
	c, ok := r.run.servers[k].(cached)
	if !ok {
		return 0
	}
	var view cacheView
	if r.signals != nil {
		view = r.signals.views[k]
	}
	return c.lookup(i, view)
}

func (r *router) prefixHit(i int32) int {
	best, most := r.members[0], r.hit(i, r.members[0])
	for _, k := range r.members[1:] {
		h, more := r.hit(i, k), r.requests(k)-r.requests(best)
		if h > most || h == most && (more < 0 || more == 0 && r.fresher(k, best)) {
			best, most = k, h
		}
	}
	return int(best)
}

func (r *router) sticky(i int32) int {
	session := r.run.load.requests[i].Session
	if session == "" {
		return r.turn()
	}
	k, ok := r.home[session]
	if !ok {
		k = int32(r.turn())
		r.home[session] = k
	}
	return int(k)
}

// weighted takes the replica with the highest score.
func (r *router) weighted(i int32) int {
	w := &r.routing.Weights
	r.scores = append(r.scores[:0], make([]float64, len(r.members))...)
	r.count(w.Queue, func(k int32) int64 { return int64(r.depth(k).waiting) })
	r.count(w.Running, func(k int32) int64 { return int64(r.depth(k).running) })
	r.count(w.Requests, r.requests)
	r.count(w.Tokens, func(k int32) int64 { return r.depth(k).tokens })
	r.score(w.KV, func(k int32) float64 {
		d := r.depth(k)
		return 1 - float64(d.used)/float64(max(d.usable, 1))
	})
	q := &r.run.load.requests[i]
	r.score(w.Prefix, func(k int32) float64 { return float64(r.hit(i, k)) / float64(q.InputLen) })
	home, known := r.home[q.Session]
	r.score(w.Session, func(k int32) float64 {
		if known && k == home {
			return 1
		}
		return 0
	})
	best := 0
	for at, score := range r.scores {
		if score > r.scores[best] || score == r.scores[best] && r.fresher(r.members[at], r.members[best]) {
			best = at
		}
	}
	k := r.members[best]
	if w.Session > 0 && q.Session != "" {
		r.home[q.Session] = k
	}
	return int(k)
}

// score adds weighted scores.
func (r *router) score(weight float64, of func(k int32) float64) {
	if weight == 0 {
		return
	}
	for at, k := range r.members {
		r.scores[at] += float64(weight * of(k)) // rounded here, so that no machine fuses it with the sum
	}
}

// count adds weighted scores of a count, of which the smallest is best.
func (r *router) count(weight float64, of func(k int32) int64) {
	if weight == 0 {
		return
	}
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for _, k := range r.members {
		low, high = min(low, of(k)), max(high, of(k))
	}
	r.score(weight, func(k int32) float64 {
		if high == low {
			return 1
		}
		return float64(high-of(k)) / float64(high-low)
	})
}
