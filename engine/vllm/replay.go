package vllm

import (
	"slices"

	"github.com/llmprof/llmprof/forward"
)

// request is a prompt that was sent: its tokens, and those it asks for.
type request struct{ prompt, output int }

// replay follows requests through the steps of a scheduler that serves them
// first come, first served, from the totals of each step.
type replay struct {
	requests []progress
	// lost says that a step did not agree; from there on nothing is known.
	lost bool
}

// progress is how far a request is: prompt tokens computed, tokens generated.
type progress struct {
	request
	computed, generated int
}

func newReplay(requests []request) *replay {
	r := &replay{}
	for _, q := range requests {
		r.requests = append(r.requests, progress{request: q})
	}
	return r
}

// tokens is what the requests compute in all: the last token generated is
// never computed.
func tokens(requests []request) int {
	n := 0
	for _, q := range requests {
		n += q.prompt + q.output - 1
	}
	return n
}

// next is the pass of the next step. ok is false where its totals cannot be
// those of the requests.
func (r *replay) next(t forward.Totals) (pass forward.Pass, ok bool) {
	if r.lost {
		return forward.Pass{}, false
	}
	var contexts []int
	for _, q := range r.requests {
		if q.generated > 0 && q.generated < q.output {
			contexts = append(contexts, q.prompt+q.generated-1)
		}
	}
	left, chunks := t.PrefillTokens, 0
	for i := range r.requests {
		q := &r.requests[i]
		switch {
		case q.generated > 0 && q.generated < q.output:
			q.generated++
		case q.computed < q.prompt && left > 0:
			c := forward.Chunk{Count: 1, New: min(left, q.prompt-q.computed), Context: q.computed}
			q.computed += c.New
			if c.Last = q.computed == q.prompt; c.Last {
				q.generated = 1
			}
			left -= c.New
			chunks++
			pass.Prefill = appendChunk(pass.Prefill, c)
		}
	}
	if left > 0 || chunks != t.PrefillRequests || len(contexts) != t.DecodeRequests || len(contexts) != t.DecodeTokens || chunks+len(contexts) == 0 {
		r.lost = true
		return forward.Pass{}, false
	}
	pass.Decode.Count = len(contexts)
	for _, n := range contexts {
		pass.Decode.SumContext += int64(n)
	}
	if len(contexts) > 0 && slices.Min(contexts) != slices.Max(contexts) {
		pass.DecodeContexts = contexts
	}
	return pass, true
}

// appendChunk adds a chunk to a run of equal ones.
func appendChunk(chunks []forward.Chunk, c forward.Chunk) []forward.Chunk {
	if n := len(chunks) - 1; n >= 0 {
		if last := chunks[n]; last.New == c.New && last.Context == c.Context && last.Last == c.Last {
			chunks[n].Count++
			return chunks
		}
	}
	return append(chunks, c)
}

// whole reports whether a pass is a batch of whole prompts and nothing else.
func whole(p forward.Pass, batch, input int) bool {
	return p.Decode.Count == 0 && len(p.Prefill) == 1 && p.Prefill[0] == forward.Chunk{Count: batch, New: input, Last: true}
}

// decoding reports whether a pass decodes the whole batch and nothing else.
func decoding(p forward.Pass, batch int) bool { return len(p.Prefill) == 0 && p.Decode.Count == batch }
