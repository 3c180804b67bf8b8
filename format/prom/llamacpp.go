package prom

// LlamaCPP are the figures of a llama-server started with --metrics. A nil
// field is not published.
type LlamaCPP struct {
	// PromptTokens and PredictedTokens are tokens, PromptTime and
	// PredictedTime the seconds that they took, Decodes calls of the model.
	PromptTokens, PromptTime       *Number
	PredictedTokens, PredictedTime *Number
	Decodes                        *Number
	// PromptRate and PredictedRate are in tokens/s over the server's life.
	PromptRate, PredictedRate *Number
	// Processing and Deferred are requests at the moment of the scrape.
	Processing, Deferred *Number
	// BusySlots is the mean number of busy slots over the server's life.
	BusySlots *Number
	// MaxTokens is the largest context seen, in tokens.
	MaxTokens *Number
	// KVUsage, 0..1, and KVTokens, in tokens, are of old builds only.
	KVUsage, KVTokens *Number
}

// LlamaCPP reads the metrics of a llama-server.
func (s *Scrape) LlamaCPP() LlamaCPP {
	v := view{scrape: s, prefix: "llamacpp:"}
	return LlamaCPP{
		PromptTokens:    v.sum("prompt_tokens_total"),
		PromptTime:      v.sum("prompt_seconds_total"),
		PredictedTokens: v.sum("tokens_predicted_total"),
		PredictedTime:   v.sum("tokens_predicted_seconds_total"),
		Decodes:         v.sum("n_decode_total"),
		PromptRate:      v.sum("prompt_tokens_seconds"),
		PredictedRate:   v.sum("predicted_tokens_seconds"),
		Processing:      v.sum("requests_processing"),
		Deferred:        v.sum("requests_deferred"),
		BusySlots:       v.sum("n_busy_slots_per_decode"),
		MaxTokens:       v.sum("n_tokens_max", "n_past_max"),
		KVUsage:         v.mean("kv_cache_usage_ratio"),
		KVTokens:        v.sum("kv_cache_tokens"),
	}
}
