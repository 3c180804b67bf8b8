package workload

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// Tokens makes the prompt of a request: InputLen token ids from low up to,
// but without, high. The same request always gives the same tokens. Where
// high is not above low, every token is low.
func Tokens(q Request, low, high int) []int {
	return AppendTokens(make([]int, 0, min(max(q.InputLen, 0), MaxLen)), q, low, high)
}

// AppendTokens appends the prompt of a request to dst, as [Tokens] makes it.
// It allocates nothing where dst has room.
func AppendTokens(dst []int, q Request, low, high int) []int {
	left := min(max(q.InputLen, 0), MaxLen)
	dst = slices.Grow(dst, left)
	for _, s := range q.Prefix {
		n := min(max(s.Len, 0), left)
		dst = appendStream(dst, s.Seed, n, low, high)
		left -= n
	}
	return appendStream(dst, q.Seed, left, low, high)
}

// appendStream appends the first n tokens of a seed.
func appendStream(dst []int, seed uint64, n, low, high int) []int {
	width := uint64(max(high-low, 1))
	var source rand.PCG
	source.Seed(streamTokens, seed)
	for range n {
		at, _ := bits.Mul64(source.Uint64(), width)
		dst = append(dst, low+int(at))
	}
	return dst
}

// Shared is how many tokens two prompts have in common from their start, as
// far as their spans tell: what a prefix cache can give the second of them at
// most.
func Shared(a, b Request) int {
	n := 0
	for i := 0; ; i++ {
		x, okX := a.part(i)
		y, okY := b.part(i)
		if !okX || !okY || x.Seed != y.Seed {
			return n
		}
		n += min(x.Len, y.Len)
		if x.Len != y.Len {
			return n
		}
	}
}

// Reusable is, for each request, how many tokens its prompt has in common with
// that of some other one from their start: what a prefix cache that was empty
// before can give it at most.
func Reusable(requests []Request) []int {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return compareParts(requests[i], requests[j]) })
	most := make([]int, len(requests))
	for k := 1; k < len(order); k++ { // the nearest in order share the most
		i, j := order[k-1], order[k]
		shared := Shared(requests[i], requests[j])
		most[i], most[j] = max(most[i], shared), max(most[j], shared)
	}
	return most
}

// compareParts orders prompts by their spans, one after the other.
func compareParts(a, b Request) int {
	for i := 0; ; i++ {
		x, okX := a.part(i)
		y, okY := b.part(i)
		switch {
		case !okX && !okY:
			return 0
		case !okX:
			return -1
		case !okY:
			return 1
		}
		if c := cmp.Or(cmp.Compare(x.Seed, y.Seed), cmp.Compare(x.Len, y.Len)); c != 0 {
			return c
		}
	}
}

// part is the i-th span of the prompt, counting what follows the prefix as
// the last one.
func (q Request) part(i int) (s Span, ok bool) {
	if i < len(q.Prefix) {
		return q.Prefix[i], true
	}
	own := q.InputLen - q.PrefixLen()
	return Span{Seed: q.Seed, Len: own}, i == len(q.Prefix) && own > 0
}
