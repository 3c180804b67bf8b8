package prom

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// VLLM are the figures of a vLLM server of any version since V0. A nil field
// or map is not published.
type VLLM struct {
	// Running, Waiting and Swapped are requests at the moment of the scrape;
	// WaitingBy splits the waiting by why: "capacity", "deferred".
	Running, Waiting, Swapped *Number
	WaitingBy                 map[string]float64 // requests
	// KVUsage is the used share of the KV cache, 0..1, the mean of the engines.
	KVUsage *Number
	// Cache is what each engine says of its KV cache.
	Cache []CacheConfig

	// PrefixQueries and PrefixHits are prompt tokens that were looked up and
	// found in the prefix cache; External the same of a cache outside the
	// engine, Multimodal of the cache of processed inputs.
	PrefixQueries, PrefixHits         *Number
	ExternalQueries, ExternalHits     *Number
	MultimodalQueries, MultimodalHits *Number

	// PromptTokens, CachedTokens and GenerationTokens are tokens.
	PromptTokens, CachedTokens, GenerationTokens *Number
	// PromptTokensBy and CachedTokensBy split tokens by their source.
	PromptTokensBy, CachedTokensBy map[string]float64
	// Finished are requests by why they ended: "stop", "length", "abort".
	Finished map[string]float64
	// Preemptions and Rejections are numbers of events.
	Preemptions, Rejections *Number

	// Drafts, DraftTokens and AcceptedTokens are those of speculative
	// decoding; AcceptedBy counts the accepted tokens by position.
	Drafts, DraftTokens, AcceptedTokens *Number
	AcceptedBy                          map[string]float64 // tokens
	// FLOPs is the estimated work of one GPU, ReadBytes and WriteBytes its
	// memory traffic in bytes.
	FLOPs, ReadBytes, WriteBytes *Number

	// Observations in seconds: TTFT is the time to the first token, TokenGap
	// between two tokens, RequestGap its mean over a request.
	TTFT, TokenGap, RequestGap, EndToEnd                *Distribution
	QueueTime, InferenceTime, PrefillTime, DecodeTime   *Distribution
	RequestPrompt, RequestGeneration, RequestMaxNumbers *Distribution // tokens
	RequestN                                            *Distribution // sequences
	RequestMaxTokens, RequestPrefillComputed            *Distribution // tokens
	RequestPreemptions                                  *Distribution // events
	// IterationTokens counts the steps that put tokens out. It books a whole
	// prompt in the step of its first token, so it is not the size of steps;
	// see ScheduledTokens.
	IterationTokens *Distribution
	// SleepState is 1 for the states that engines are in, as a number of
	// engines; LoRARequests the adapters in use, by name.
	SleepState, LoRARequests map[string]float64
}

// CacheConfig is what an engine says of its KV cache. Zero and empty mean that
// it does not say.
type CacheConfig struct {
	// Engine is the label of the engine.
	Engine string
	// BlockSize is the number of tokens in a block, Blocks the number of
	// blocks, with the one that never holds tokens.
	BlockSize int
	Blocks    int64
	// Tokens is the capacity in tokens as the engine says it, or else blocks
	// times their size.
	Tokens int64
	// Bytes is the memory that was set for the cache, in bytes.
	Bytes int64
	// GPUMemoryUtilization is the share of device memory, 0..1.
	GPUMemoryUtilization float64
	// DType is the format as vLLM names it: "auto", "fp8".
	DType string
	// Labels are all that the engine says.
	Labels map[string]string
}

// VLLM reads the metrics of a vLLM server.
func (s *Scrape) VLLM() VLLM {
	v := view{scrape: s, prefix: "vllm:", part: "engine"}
	out := VLLM{
		Running:   v.sum("num_requests_running"),
		Waiting:   v.sum("num_requests_waiting", "num_requests_waiting_by_reason"),
		Swapped:   v.sum("num_requests_swapped"),
		WaitingBy: v.by("reason", "num_requests_waiting_by_reason"),
		KVUsage:   v.mean("kv_cache_usage_perc", "gpu_cache_usage_perc"),
		Cache:     cacheConfigs(s),

		PrefixQueries: v.sum("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
		PrefixHits:    v.sum("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),

		ExternalQueries: v.sum("external_prefix_cache_queries_total"),
		ExternalHits:    v.sum("external_prefix_cache_hits_total"),

		MultimodalQueries: v.sum("mm_cache_queries_total"),
		MultimodalHits:    v.sum("mm_cache_hits_total"),

		PromptTokens:     v.sum("prompt_tokens_total"),
		CachedTokens:     v.sum("prompt_tokens_cached_total"),
		GenerationTokens: v.sum("generation_tokens_total"),
		PromptTokensBy:   v.by("source", "prompt_tokens_by_source_total"),
		CachedTokensBy:   v.by("source", "prompt_tokens_cached_by_source_total"),
		Finished:         v.by("finished_reason", "request_success_total"),
		Preemptions:      v.sum("num_preemptions_total"),
		Rejections:       v.sum("admission_rejections_total"),

		Drafts:         v.sum("spec_decode_num_drafts_total"),
		DraftTokens:    v.sum("spec_decode_num_draft_tokens_total"),
		AcceptedTokens: v.sum("spec_decode_num_accepted_tokens_total"),
		AcceptedBy:     v.by("position", "spec_decode_num_accepted_tokens_per_pos_total"),

		FLOPs:      v.sum("estimated_flops_per_gpu_total"),
		ReadBytes:  v.sum("estimated_read_bytes_per_gpu_total"),
		WriteBytes: v.sum("estimated_write_bytes_per_gpu_total"),

		TTFT:          v.distribution("time_to_first_token_seconds"),
		TokenGap:      v.distribution("inter_token_latency_seconds", "time_per_output_token_seconds"),
		RequestGap:    v.distribution("request_time_per_output_token_seconds"),
		EndToEnd:      v.distribution("e2e_request_latency_seconds"),
		QueueTime:     v.distribution("request_queue_time_seconds"),
		InferenceTime: v.distribution("request_inference_time_seconds"),
		PrefillTime:   v.distribution("request_prefill_time_seconds"),
		DecodeTime:    v.distribution("request_decode_time_seconds"),

		RequestPrompt:          v.distribution("request_prompt_tokens"),
		RequestGeneration:      v.distribution("request_generation_tokens"),
		RequestMaxNumbers:      v.distribution("request_max_num_generation_tokens"),
		RequestN:               v.distribution("request_params_n"),
		RequestMaxTokens:       v.distribution("request_params_max_tokens"),
		RequestPrefillComputed: v.distribution("request_prefill_kv_computed_tokens"),
		RequestPreemptions:     v.distribution("request_num_preemptions"),
		IterationTokens:        v.distribution("iteration_tokens_total"),

		SleepState:   v.by("sleep_state", "engine_sleep_state"),
		LoRARequests: v.by("running_lora_adapters", "lora_requests_info"),
	}
	return out
}

// ScheduledTokens is the number of tokens that all steps computed: what
// IterationTokens adds up, less the first tokens, which come out of steps that
// a prompt paid for. Recomputation after preemptions is not included. ok is
// false where the server does not publish enough.
func (v VLLM) ScheduledTokens() (tokens float64, ok bool) {
	if v.IterationTokens == nil || v.TTFT == nil {
		return 0, false
	}
	return v.IterationTokens.Histogram.Sum - v.TTFT.Histogram.Count, true
}

// KVTokens is the capacity of all engines together in tokens; ok is false
// where one does not say.
func (v VLLM) KVTokens() (tokens int64, ok bool) {
	for _, c := range v.Cache {
		if c.Tokens == 0 || tokens > math.MaxInt64-c.Tokens {
			return 0, false
		}
		tokens += c.Tokens
	}
	return tokens, tokens > 0
}

// cacheConfigs reads cache_config_info, whose labels are its figures.
func cacheConfigs(s *Scrape) []CacheConfig {
	samples, _ := s.Samples("vllm:cache_config_info")
	var all []CacheConfig
	for _, sample := range samples {
		l := sample.Labels
		c := CacheConfig{
			Engine: l["engine"], Blocks: labelInt(l["num_gpu_blocks"]),
			Tokens: labelInt(l["kv_cache_size_tokens"]), Bytes: labelInt(l["kv_cache_memory_bytes"]),
			DType: l["cache_dtype"], Labels: l,
		}
		if n := labelInt(l["block_size"]); n <= math.MaxInt32 {
			c.BlockSize = int(n)
		}
		if u, err := strconv.ParseFloat(l["gpu_memory_utilization"], 64); err == nil && u > 0 && u <= 1 {
			c.GPUMemoryUtilization = u
		}
		if c.Tokens == 0 && c.BlockSize > 0 && c.Blocks < math.MaxInt64/int64(c.BlockSize) {
			c.Tokens = c.Blocks * int64(c.BlockSize)
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b CacheConfig) int { return cmp.Compare(labelInt(a.Engine), labelInt(b.Engine)) })
	return all
}
