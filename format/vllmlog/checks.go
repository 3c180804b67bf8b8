package vllmlog

import (
	"fmt"
	"math"

	"github.com/llmprof/llmprof/profile"
)

// check compares the figures of a server with each other.
func (r *reader) check(s *server) {
	for _, w := range s.workers {
		r.checkBudget(w)
	}
	for _, e := range s.engines {
		r.checkConcurrency(e)
	}
	if r.opts.Model != nil {
		r.checkBytesPerToken(s)
	}
}

// amountText prints an amount for a warning.
func amountText(bytes float64) string { return fmt.Sprintf("%.2f GiB", bytes/(1<<30)) }

// slack is how far the sum of figures with two decimals may be off, in bytes.
const slack = 0.03 * (1 << 30)

// checkBudget compares the parts of a worker's memory with what it may take.
// Graphs lie within the budget in newer versions and beyond it in older ones.
func (r *reader) checkBudget(w *worker) {
	budget, kv := w.parts[profile.MemoryBudget], w.parts[profile.MemoryKVCache]
	if budget.bytes == 0 || kv.bytes == 0 {
		return
	}
	var sum int64
	if consumed := w.parts[profile.MemoryConsumed]; consumed.bytes > 0 {
		sum = consumed.bytes + w.parts[profile.MemoryActivation].bytes
	} else {
		for _, part := range []string{profile.MemoryWeights, profile.MemoryActivation, profile.MemoryNonTorch} {
			a, ok := w.parts[part]
			if !ok {
				return
			}
			sum += a.bytes
		}
	}
	sum += kv.bytes
	graphs := w.parts[profile.MemoryGraphs].bytes
	off := math.Abs(float64(budget.bytes - sum))
	if math.Min(off, math.Abs(float64(budget.bytes-sum-graphs))) > slack+float64(budget.step) {
		r.warnAt(budget.line, "the budget is %s, its parts add up to %s, with graphs %s: some part is missing or means something else",
			amountText(float64(budget.bytes)), amountText(float64(sum)), amountText(float64(sum+graphs)))
	}
}

// checkConcurrency compares the tokens of a cache with the printed number of
// requests that fit.
func (r *reader) checkConcurrency(e *engine) {
	if e.told == 0 || e.maxLen == 0 {
		return
	}
	// Sizes of several ranks may come from different ones, so the smallest of
	// each belong together.
	if got := float64(e.told) / float64(e.maxLen); math.Abs(got-e.concurrency) > 0.01 {
		r.warnAt(e.line, "the cache holds %d tokens, %.2f requests of %d, and the log says %.2f: layers of several kinds share it",
			e.told, got, e.maxLen, e.concurrency)
	}
}

// checkBytesPerToken compares the bytes of a cache with those that the model
// needs for its tokens.
func (r *reader) checkBytesPerToken(s *server) {
	m, d := r.opts.Model, s.deploy.WithDefaults()
	if d.PipelineParallel > 1 {
		return // a stage holds only its own layers
	}
	kind := d.KVCacheDType
	if kind == "" {
		kind = d.DType
	}
	ranks := float64(min(d.TensorParallel, max(1, m.NumKVHeads)))
	if m.MLA != nil {
		ranks = 1 // every rank holds the latents of all heads
	}
	want := float64(m.KVElementsPerToken()) * kind.Bytes() / ranks
	for _, w := range s.workers {
		kv := w.parts[profile.MemoryKVCache]
		e := s.engineOf(w)
		if e == nil && len(s.engines) == 1 {
			e = s.engines[0]
		}
		if kv.bytes == 0 || e == nil || e.tokens() == 0 || want == 0 {
			continue
		}
		block, _ := e.blockTokens()
		if block == 0 {
			block = 256 // larger than any usual one
		}
		need := want * float64(e.tokens())
		if math.Abs(float64(kv.bytes)-need) > want*float64(block)+float64(kv.step) {
			r.warnAt(kv.line, "%d tokens take %d B, and %s needs %.0f B a token, %.0f B: the cache holds something else or is laid out in another way",
				e.tokens(), kv.bytes, m.Name, want, need)
		}
	}
}
