package fit

import (
	"math"

	"github.com/llmprof/llmprof/forward"
)

// The variables of a mixed step, beside [VarLaunch], which is 1. They are sums
// over the requests of the step.
const (
	// VarHost is 1 in a step that computes prompt tokens: what the host does
	// for them whatever their number.
	VarHost Variable = "host"
	// VarFresh is 1 in a step that computes prompt tokens and generates nothing:
	// as a rule the server comes from idle, and its first step takes longer.
	VarFresh Variable = "fresh"
	// VarStepTokens is the number of tokens computed, of prompts and of
	// generating requests alike.
	VarStepTokens Variable = "step_tokens"
	// VarPrefillTokens and VarDecodeTokens are the tokens computed of prompts
	// and for generating requests.
	VarPrefillTokens Variable = "prefill_tokens"
	VarDecodeTokens  Variable = "decode_tokens"
	// VarPrefillRequests and VarDecodeRequests are the requests of each kind.
	VarPrefillRequests Variable = "prefill_requests"
	VarDecodeRequests  Variable = "decode_requests"
	// VarCached is the number of tokens in the KV cache once the step has run.
	VarCached Variable = "cached_tokens"
	// VarPairs is Σ new·(context + new/2) over the prompt chunks, the token
	// pairs of their attention.
	VarPairs Variable = "prefill_pairs"
)

// workVariables lists the variables of mixed steps.
func workVariables() []Variable {
	return []Variable{VarLaunch, VarHost, VarFresh, VarStepTokens, VarPrefillTokens, VarDecodeTokens, VarPrefillRequests, VarDecodeRequests, VarCached, VarPairs}
}

// workUnit is the unit of a coefficient of a variable of mixed steps; empty
// for other variables.
func workUnit(v Variable) string {
	switch v {
	case VarLaunch, VarHost, VarFresh:
		return "s"
	case VarStepTokens, VarPrefillTokens, VarDecodeTokens, VarCached:
		return "s/token"
	case VarPrefillRequests, VarDecodeRequests:
		return "s/request"
	case VarPairs:
		return "s/token^2"
	}
	return ""
}

// work is what a step computes, in the sizes that a mixed model knows: tokens,
// requests and token pairs. A size that is not known is NaN.
type work struct {
	prefillTokens, decodeTokens     float64
	prefillRequests, decodeRequests float64
	cached, pairs                   float64
}

// workOfTotals is the work of a step of which only sums are known. KV tokens
// of 0 are not known: a step leaves at least its own tokens in the cache,
// unless all of its requests end with it.
func workOfTotals(t forward.Totals) work {
	w := work{
		prefillTokens: float64(t.PrefillTokens), decodeTokens: float64(t.DecodeTokens),
		prefillRequests: float64(t.PrefillRequests), decodeRequests: float64(t.DecodeRequests),
		cached: float64(t.KVTokens), pairs: math.NaN(),
	}
	if t.KVTokens <= 0 {
		w.cached = math.NaN()
	}
	if t.PrefillTokens == 0 {
		w.pairs = 0
	}
	return w
}

// workOfPass is the work of a pass. Products are taken in floats, where they
// cannot overflow.
func workOfPass(p *forward.Pass) work {
	w := work{decodeTokens: float64(p.Decode.Count), decodeRequests: float64(p.Decode.Count)}
	w.cached = float64(p.Decode.SumContext) + w.decodeTokens
	for i := range p.Prefill {
		c := &p.Prefill[i]
		count, added, context := float64(c.Count), float64(c.New), float64(c.Context)
		w.prefillRequests += count
		w.prefillTokens += count * added
		w.cached += count * (added + context)
		w.pairs += count * added * (context + added/2)
	}
	return w
}

// value is a variable of the work.
func (w *work) value(v Variable) float64 {
	switch v {
	case VarLaunch:
		return 1
	case VarHost:
		return min(w.prefillTokens, 1)
	case VarFresh:
		return max(min(w.prefillTokens, 1)-w.decodeTokens, 0)
	case VarStepTokens:
		return w.prefillTokens + w.decodeTokens
	case VarPrefillTokens:
		return w.prefillTokens
	case VarDecodeTokens:
		return w.decodeTokens
	case VarPrefillRequests:
		return w.prefillRequests
	case VarDecodeRequests:
		return w.decodeRequests
	case VarCached:
		return w.cached
	case VarPairs:
		return w.pairs
	}
	return 0
}

// sumWork evaluates terms at w, in seconds.
func sumWork(terms []Term, w *work) float64 {
	var total float64
	for i := range terms {
		t := &terms[i]
		total += t.Coefficient * min(max(w.value(t.Variable)-t.From, 0), t.To-t.From)
	}
	return total
}
