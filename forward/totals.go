package forward

import "fmt"

// Totals is a pass of which only sums are known, as engines log their steps.
type Totals struct {
	// PrefillRequests is the number of requests with prompt tokens in the
	// step, PrefillTokens the number of those tokens.
	PrefillRequests int `json:"prefill_requests"`
	PrefillTokens   int `json:"prefill_tokens"`
	// DecodeRequests is the number of generating requests, DecodeTokens the
	// tokens computed for them: more than requests with speculative decoding.
	DecodeRequests int `json:"decode_requests"`
	DecodeTokens   int `json:"decode_tokens"`
	// KVTokens is the number of tokens in the KV cache that belong to running
	// requests at the end of the step; 0 where it is not known.
	KVTokens int64 `json:"kv_tokens,omitempty"`
}

// Tokens is the number of tokens computed in the step.
func (t Totals) Tokens() int { return t.PrefillTokens + t.DecodeTokens }

// Totals sums the pass up. Its KVTokens are those of all its sequences once it
// has run.
func (p Pass) Totals() Totals {
	t := Totals{DecodeRequests: p.Decode.Count, DecodeTokens: p.Decode.Count, KVTokens: p.Decode.SumContext + int64(p.Decode.Count)}
	for _, c := range p.Prefill {
		t.PrefillRequests += c.Count
		t.PrefillTokens += c.Count * c.New
		t.KVTokens += int64(c.Count) * (int64(c.New) + int64(c.Context))
	}
	return t
}

// Validate reports what makes the totals impossible.
func (t Totals) Validate() error {
	switch {
	case t.PrefillRequests < 0 || t.DecodeRequests < 0 || t.KVTokens < 0:
		return fmt.Errorf("%d prefill requests, %d decode requests, %d KV tokens: want none negative", t.PrefillRequests, t.DecodeRequests, t.KVTokens)
	case t.PrefillTokens < t.PrefillRequests || t.PrefillRequests == 0 && t.PrefillTokens > 0:
		return fmt.Errorf("%d prefill tokens of %d requests", t.PrefillTokens, t.PrefillRequests)
	case t.DecodeTokens < t.DecodeRequests || t.DecodeRequests == 0 && t.DecodeTokens > 0:
		return fmt.Errorf("%d decode tokens of %d requests", t.DecodeTokens, t.DecodeRequests)
	case t.Tokens() < 1:
		return fmt.Errorf("a step computes at least one token")
	}
	return nil
}
