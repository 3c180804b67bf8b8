package cost

import (
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/unit"
)

// Exchange is the time that the ranks of a step spend on the link by its
// datasheet: forTokens for what they exchange of tokens computed tokens, in all
// layers together, forRows for the logits of so many rows. 0 tokens or rows need
// none.
func (e *Estimator) Exchange(tokens, rows int) (forTokens, forRows unit.Seconds) {
	pass := func(chunk forward.Chunk) (all unit.Seconds) {
		for _, op := range e.Ops(forward.Pass{Prefill: []forward.Chunk{chunk}}) {
			all += op.Network * unit.Seconds(op.Count)
		}
		return all
	}
	if tokens > 0 {
		forTokens = pass(forward.Chunk{Count: 1, New: tokens})
	}
	if rows > 0 {
		forRows = pass(forward.Chunk{Count: rows, New: 1, Last: true}) - pass(forward.Chunk{Count: rows, New: 1})
	}
	return forTokens, forRows
}
