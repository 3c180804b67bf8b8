package cost

import (
	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/forward"
)

// span is what one attention kind must do in a pass, summed over sequences.
type span struct {
	// prefillPairs and decodePairs count (query, key) pairs that attend.
	prefillPairs, decodePairs float64
	// prefillKV and decodeKV count cached and new tokens that are read.
	prefillKV, decodeKV float64
	// prefillContext counts tokens of prompts that were in the cache before.
	prefillContext float64
	// scores counts entries of the score matrix, masked ones included.
	scores float64
}

// pairs counts the (query, key) pairs of q new tokens after c cached ones.
// window is the span of a sliding or chunked kind and unused otherwise.
func pairs(kind string, window, q, c float64) float64 {
	switch kind {
	case catalog.SlidingAttention:
		// Σ_{j=1..q} min(c+j, window)
		growing := min(max(window-c, 0), q)
		return growing*c + growing*(growing+1)/2 + (q-growing)*window
	case catalog.ChunkedAttention:
		return chunkPairs(window, c+q) - chunkPairs(window, c)
	default:
		return q*c + q*(q+1)/2
	}
}

// chunkPairs counts the pairs of the first n tokens when attention restarts
// every window tokens.
func chunkPairs(window, n float64) float64 {
	whole := float64(int64(n / window))
	rest := n - whole*window
	return whole*window*(window+1)/2 + rest*(rest+1)/2
}

// reach counts the tokens whose keys are read by q new tokens after c cached
// ones.
func reach(kind string, window, q, c float64) float64 {
	switch kind {
	case catalog.SlidingAttention:
		return q + min(c, max(window-1, 0))
	case catalog.ChunkedAttention:
		return q + c - float64(int64(c/window))*window
	default:
		return q + c
	}
}

// spanOf sums a pass for one attention kind; shared leading tokens of the
// decoding sequences are read once.
func spanOf(p *forward.Pass, kind string, window, shared int) span {
	var s span
	w := float64(window)
	for i := range p.Prefill {
		chunk := &p.Prefill[i]
		n, q, c := float64(chunk.Count), float64(chunk.New), float64(chunk.Context)
		s.prefillPairs += n * pairs(kind, w, q, c)
		s.prefillKV += n * reach(kind, w, q, c)
		s.prefillContext += n * (reach(kind, w, q, c) - q)
		s.scores += n * q * (c + q)
	}
	if p.Decode.Count == 0 {
		return s
	}
	n, sum := float64(p.Decode.Count), float64(p.Decode.SumContext)
	s.scores += sum + n
	switch {
	case kind == catalog.FullAttention:
		s.decodePairs = sum + n
		s.decodeKV = sum + n
		if shared > 0 {
			s.decodeKV -= (n - 1) * min(float64(shared), sum/n)
		}
	case len(p.DecodeContexts) > 0 && kind == catalog.SlidingAttention:
		seen := 0
		for _, c := range p.DecodeContexts {
			seen += min(c+1, window)
		}
		s.decodePairs, s.decodeKV = float64(seen), float64(seen)
	case len(p.DecodeContexts) > 0 && kind == catalog.ChunkedAttention:
		seen := 0
		for _, c := range p.DecodeContexts {
			seen += c%window + 1
		}
		s.decodePairs, s.decodeKV = float64(seen), float64(seen)
	default:
		mean := sum / n
		s.decodePairs = n * pairs(kind, w, 1, mean)
		s.decodeKV = n * reach(kind, w, 1, mean)
	}
	return s
}
