package profile

import (
	"errors"
	"fmt"
	"math"
)

// Workload is a load of equal requests that was put on a server: B requests at
// once, each of C new tokens after M cached blocks.
type Workload struct {
	// Type is what ran together: [Prefill], [Decode], or [Mixed] for as many
	// requests of each. Side is whose times the point's samples are, [Prefill] or
	// [Decode]; of a prefill they are TTFTs, of a decode the mean time of a token
	// of each request.
	Type string `json:"type"`
	Side string `json:"side"`
	// NewTokens (C) are computed for each request on top of CachedBlocks (M)
	// blocks of BlockSize tokens, which were in the KV cache.
	NewTokens    int `json:"new_tokens"`
	CachedBlocks int `json:"cached_blocks"`
	BlockSize    int `json:"block_size,omitempty"`
	// Requests (B) is the number of requests of the side.
	Requests int `json:"requests"`
	// OutputLen is the most tokens that a request generated, Runs the number of
	// counted runs.
	OutputLen int `json:"output_len"`
	Runs      int `json:"runs"`
	// Slowdown is the mean time of this side beside the other one over that
	// without it, a ratio; nil where it was not mixed.
	Slowdown *float64 `json:"slowdown,omitempty"`
}

func (w *Workload) validate() error {
	switch {
	case w.Type != Prefill && w.Type != Decode && w.Type != Mixed:
		return fmt.Errorf("type %q: want prefill, decode or mixed", w.Type)
	case w.Side != Prefill && w.Side != Decode || w.Type != Mixed && w.Side != w.Type:
		return fmt.Errorf("side %q of a %s load: want prefill or decode, as the load has it", w.Side, w.Type)
	case w.Requests < 1 || w.Requests > maxSequences || w.Runs < 0:
		return fmt.Errorf("%d requests, %d runs: out of range", w.Requests, w.Runs)
	case w.NewTokens < 1 || w.CachedBlocks < 0 || w.BlockSize < 0 || w.OutputLen < 0,
		int64(w.NewTokens) > maxTokens || int64(w.CachedBlocks) > maxTokens || int64(w.BlockSize) > maxTokens || int64(w.OutputLen) > maxTokens:
		return fmt.Errorf("new_tokens %d, cached_blocks %d, block_size %d, output_len %d: out of range", w.NewTokens, w.CachedBlocks, w.BlockSize, w.OutputLen)
	case w.Slowdown != nil && !(*w.Slowdown > 0 && !math.IsInf(*w.Slowdown, 0)):
		return errors.New("slowdown: want a ratio above 0")
	}
	return nil
}

// Gauge is what a figure was over a stretch of time, in its own unit.
type Gauge struct {
	// Mean is that of the readings, not weighted; Max their largest, both in the
	// unit of the figure.
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Server is what a server says of a stretch of time, in its own metrics. What it
// does not publish is nil. Means of times are over the observations that ended
// in the stretch.
type Server struct {
	// Window names the stretch: "steady", "whole", "run 3"; empty where there is
	// one.
	Window string `json:"window,omitempty"`
	// Engine is "vllm", "sglang" or "llama.cpp".
	Engine string `json:"engine"`
	// Seconds is the time between the two readings that counters are
	// differences of; Readings is the number of them within.
	Seconds  float64 `json:"window_s"`
	Readings int     `json:"readings"`
	// Failed counts readings of the stretch that did not come.
	Failed int `json:"failed_readings"`

	// Running and Waiting are requests, KVUsage a share of the KV cache, 0..1.
	Running *Gauge `json:"running"`
	Waiting *Gauge `json:"waiting"`
	KVUsage *Gauge `json:"kv_cache_usage"`

	// Requests are those that finished. PromptTokens, CachedTokens and
	// GenerationTokens are tokens, PrefixQueries and PrefixHits prompt tokens
	// that were looked up and found in the prefix cache.
	Requests         *float64 `json:"finished_requests"`
	PromptTokens     *float64 `json:"prompt_tokens"`
	CachedTokens     *float64 `json:"cached_tokens"`
	GenerationTokens *float64 `json:"generation_tokens"`
	PrefixQueries    *float64 `json:"prefix_cache_queries_tokens"`
	PrefixHits       *float64 `json:"prefix_cache_hits_tokens"`
	// HitRate is hits over queries, 0..1.
	HitRate *float64 `json:"prefix_cache_hit_rate"`
	// Preemptions counts events.
	Preemptions *float64 `json:"preemptions"`
	// ScheduledTokens is what all steps computed, Steps the number of those that
	// put tokens out, both counts.
	ScheduledTokens *float64 `json:"scheduled_tokens"`
	Steps           *float64 `json:"output_steps"`

	// Means of times that the server took, in milliseconds.
	TTFT    *float64 `json:"ttft_mean_ms"`
	ITL     *float64 `json:"itl_mean_ms"`
	E2EL    *float64 `json:"e2el_mean_ms"`
	Queue   *float64 `json:"queue_mean_ms"`
	Prefill *float64 `json:"prefill_mean_ms"`
	Decode  *float64 `json:"decode_mean_ms"`

	// Cache is what the engine says of its KV cache.
	Cache *KVCache `json:"kv_cache,omitempty"`
	// Warnings are remarks on the readings.
	Warnings []string `json:"warnings,omitempty"`
}

// KVCache is the KV cache of all engines of a server.
type KVCache struct {
	BlockSize int   `json:"block_size,omitempty"` // tokens
	Blocks    int64 `json:"blocks,omitempty"`
	Tokens    int64 `json:"tokens,omitempty"`
}

func (s *Server) validate() error {
	if s.Engine == "" {
		return errors.New("engine is missing")
	}
	if !(s.Seconds >= 0) || math.IsInf(s.Seconds, 0) || s.Readings < 0 || s.Failed < 0 {
		return fmt.Errorf("window_s %g, readings %d, failed_readings %d: want none negative", s.Seconds, s.Readings, s.Failed)
	}
	return nil
}
