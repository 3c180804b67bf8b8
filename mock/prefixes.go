package mock

import "github.com/llmprof/llmprof/sim"

// prefixes names the blocks of token sequences for a simulated scheduler:
// blocks that end the same tokens get the same name, as with vLLM's chained
// hashes. A node stands for the blocks that one request was the first to have,
// wherever in it they lie.
type prefixes struct {
	blockSize int // tokens
	known     map[uint64]sim.Block
	nodes     int32
	kept      int // blocks known after the last sweep
}

func newPrefixes(blockSize int) *prefixes {
	return &prefixes{blockSize: blockSize, known: map[uint64]sim.Block{}}
}

// spans are the shared parts of a request whose full blocks have these keys.
func (p *prefixes) spans(keys []uint64) []sim.Span {
	var spans []sim.Span
	fresh := int32(-1)
	for i, key := range keys {
		block, ok := p.known[key]
		if !ok {
			if fresh < 0 {
				fresh = p.nodes
				p.nodes++
			}
			block = sim.Block{Owner: sim.Node(fresh), Index: int32(i)}
			p.known[key] = block
		}
		node, _ := block.Owner.Node() // it owns no other kind
		end := (i + 1) * p.blockSize
		if last := len(spans) - 1; last >= 0 && spans[last].Node == node {
			spans[last].End = end
		} else {
			spans = append(spans, sim.Span{Node: node, End: end})
		}
	}
	return spans
}

// sweepAbove is the least number of blocks that are worth a sweep.
const sweepAbove = 4096

// sweep forgets blocks that nobody needs, when there are many more than there
// were: those that are not cached and not of a request that is still there.
func (p *prefixes) sweep(cached func(sim.Block) bool, there func(yield func(keys []uint64))) {
	if len(p.known) <= 2*p.kept+sweepAbove {
		return
	}
	needed := map[uint64]struct{}{}
	there(func(keys []uint64) {
		for _, key := range keys {
			needed[key] = struct{}{}
		}
	})
	for key, block := range p.known {
		if _, ok := needed[key]; !ok && !cached(block) {
			delete(p.known, key)
		}
	}
	p.kept = len(p.known)
}
