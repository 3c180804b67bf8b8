package prom

import "slices"

// SGLang are the figures of an SGLang server. Every rank reports the same
// work: of each data-parallel rank the first tensor- and pipeline-parallel
// rank counts, and only data-parallel ranks are added up. A nil field or map
// is not published.
type SGLang struct {
	// Running, Queued and Retracted are requests at the moment of the scrape.
	Running, Queued, Retracted *Number
	// UsedTokens and KVTokens are used and usable tokens of the KV cache,
	// TokenUsage the used share, 0..1.
	UsedTokens, KVTokens, TokenUsage *Number
	// CacheHitRate and Utilization are shares, 0..1, the mean of the ranks.
	CacheHitRate, Utilization *Number
	// GenerationRate is in tokens/s.
	GenerationRate *Number
	// AcceptLength is in tokens a draft, AcceptRate a share, 0..1.
	AcceptLength, AcceptRate *Number
	// CUDAGraph is the number of ranks whose last step ran from a graph.
	CUDAGraph *Number
	// StartupTime and LoadTime are in seconds, the mean of the ranks.
	StartupTime, LoadTime *Number
	// KVGiB is the memory of the KV cache in GiB, which SGLang calls GB.
	KVGiB *Number

	// PromptTokens, GenerationTokens and CachedTokens are tokens.
	PromptTokens, GenerationTokens, CachedTokens *Number
	// Requests, Aborted and Retractions are numbers of requests.
	Requests, Aborted, Retractions *Number
	// TokensBy are tokens by mode: "prefill_compute", "prefill_cache",
	// "decode"; ExecutionBy seconds by category; GraphPassesBy passes by mode.
	TokensBy, ExecutionBy, GraphPassesBy map[string]float64

	// Observations in seconds.
	TTFT, TokenGap, EndToEnd, QueueTime *Distribution
	// StageBy is the time of a request in each stage, in seconds.
	StageBy map[string]Histogram
}

// SGLang reads the metrics of an SGLang server.
func (s *Scrape) SGLang() SGLang {
	v := view{scrape: s, prefix: "sglang:", part: "dp_rank", pick: firstRanks}
	return SGLang{
		Running:        v.sum("num_running_reqs"),
		Queued:         v.sum("num_queue_reqs"),
		Retracted:      v.sum("num_retracted_reqs"),
		UsedTokens:     v.sum("num_used_tokens"),
		KVTokens:       v.sum("max_total_num_tokens"),
		TokenUsage:     v.mean("token_usage"),
		CacheHitRate:   v.mean("cache_hit_rate"),
		Utilization:    v.mean("utilization"),
		GenerationRate: v.sum("gen_throughput"),
		AcceptLength:   v.mean("spec_accept_length"),
		AcceptRate:     v.mean("spec_accept_rate"),
		CUDAGraph:      v.sum("is_cuda_graph"),
		StartupTime:    v.mean("engine_startup_time"),
		LoadTime:       v.mean("engine_load_weights_time"),
		KVGiB:          v.sum("kv_cache_memory_usage_gb"),

		PromptTokens:     v.sum("prompt_tokens_total"),
		GenerationTokens: v.sum("generation_tokens_total"),
		CachedTokens:     v.sum("cached_tokens_total"),
		Requests:         v.sum("num_requests_total"),
		Aborted:          v.sum("num_aborted_requests_total"),
		Retractions:      v.sum("num_retracted_requests_total"),
		TokensBy:         v.by("mode", "realtime_tokens_total"),
		ExecutionBy:      v.by("category", "gpu_execution_seconds_total"),
		GraphPassesBy:    v.by("mode", "cuda_graph_passes_total"),

		TTFT:      v.distribution("time_to_first_token_seconds"),
		TokenGap:  v.distribution("inter_token_latency_seconds", "time_per_output_token_seconds"),
		EndToEnd:  v.distribution("e2e_request_latency_seconds"),
		QueueTime: v.distribution("queue_time_seconds"),
		StageBy:   v.distributionBy("stage", "per_stage_req_latency_seconds"),
	}
}

// firstRanks keeps, of every data-parallel rank, the series of its first
// pipeline- and tensor-parallel rank. That is rank 0, except for attention
// ranks, whose tensor ranks are numbered on.
func firstRanks(samples []Sample) []Sample {
	first := map[string][2]int64{}
	rank := func(s Sample) [2]int64 { return [2]int64{labelInt(s.Labels["pp_rank"]), labelInt(s.Labels["tp_rank"])} }
	for _, s := range samples {
		dp, r := s.Labels["dp_rank"], rank(s)
		if least, ok := first[dp]; !ok || slices.Compare(r[:], least[:]) < 0 {
			first[dp] = r
		}
	}
	var kept []Sample
	for _, s := range samples {
		if rank(s) == first[s.Labels["dp_rank"]] {
			kept = append(kept, s)
		}
	}
	return kept
}
