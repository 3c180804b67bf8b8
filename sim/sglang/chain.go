package sglang

import (
	"errors"
	"fmt"
	"math"

	"github.com/llmprof/llmprof/sim"
)

// span says that the tokens of a request before end that belong to no earlier
// span are those of a branch.
type span struct{ branch, end int32 }

// chains says whose every token is. A token belongs to a branch, which requests
// may share, or to the request alone. All tokens before those of a branch are
// the same in every request that has it, so that the branch of a token says all
// of the tokens before it too.
type chains struct {
	spans  []span  // of all requests
	spanAt []int32 // by request: where its spans end, and those of the next begin

	branch        map[int32]int32 // by shared node
	before, begin []int32         // of each branch: the branch it goes on from, and where
	nodes         []int32         // of each branch: its shared node
}

// of is the chain of a request.
func (c *chains) of(r int32) []span {
	from := int32(0)
	if r > 0 {
		from = c.spanAt[r-1]
	}
	return c.spans[from:c.spanAt[r]]
}

// know registers the chain of the next request of so many tokens at most.
func (c *chains) know(prefix []sim.Span, most int) error {
	known, last := len(c.spans), span{branch: none}
	fault := func(err error) error {
		c.spans = c.spans[:known]
		return err
	}
	for _, s := range prefix {
		switch {
		case s.Node < 0 || s.Node == math.MaxInt32:
			return fault(fmt.Errorf("shared node %d: want 0 to %d", s.Node, math.MaxInt32-1))
		case s.End < int(last.end) || s.End > most:
			return fault(errors.New("spans of a prefix: want ends that grow and are no later than the request's last token"))
		case s.End == int(last.end):
			continue
		}
		b, ok := c.branch[s.Node]
		if !ok {
			b = int32(len(c.begin))
			c.branch[s.Node] = b
			c.before, c.begin = append(c.before, last.branch), append(c.begin, last.end)
			c.nodes = append(c.nodes, s.Node)
		}
		if c.before[b] != last.branch || c.begin[b] != last.end {
			return fault(fmt.Errorf("shared node %d begins at token %d here and at %d elsewhere: want the same tokens before it", s.Node, last.end, c.begin[b]))
		}
		last = span{b, int32(s.End)}
		c.spans = append(c.spans, last)
	}
	c.spanAt = append(c.spanAt, int32(len(c.spans)))
	return nil
}

// at is the index of the span that a token belongs to; their number for a
// token of the request alone.
func at(chain []span, token int32) int {
	low, high := 0, len(chain)
	for low < high {
		if mid := (low + high) / 2; chain[mid].end <= token {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// owner is the branch of a token of a request, or none for one of its own.
func (c *chains) owner(r, token int32) int32 {
	chain := c.of(r)
	if i := at(chain, token); i < len(chain) {
		return chain[i].branch
	}
	return none
}

// common is how many of the first tokens of two requests are the same, if
// those up to a token are.
func (c *chains) common(a, b, token int32) int32 {
	if a == b {
		return MaxCount
	}
	x, y := c.of(a), c.of(b)
	i, j, same := at(x, token), at(y, token), int32(0)
	for i < len(x) && j < len(y) && x[i].branch == y[j].branch {
		same = min(x[i].end, y[j].end)
		if x[i].end != y[j].end {
			break
		}
		i, j = i+1, j+1
	}
	return same
}
