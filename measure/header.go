package measure

import (
	"encoding/json"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

// Header is the header of a profile that is measured on an engine with these
// facts. What the caller knows beside them (tool, time, host, source) it adds
// itself.
func Header(facts engine.Facts) profile.Header {
	h := profile.Header{Device: facts.Device, Driver: facts.Driver, Deploy: facts.Deploy}
	h.Deploy.Engine, h.Deploy.EngineVersion = facts.Engine, facts.Version
	keep := func(key string, value any) {
		if text, err := json.Marshal(value); err == nil {
			if h.Metadata == nil {
				h.Metadata = map[string]json.RawMessage{}
			}
			h.Metadata[key] = text
		}
	}
	if len(facts.Libraries) > 0 {
		keep("libraries", facts.Libraries)
	}
	if facts.Threads > 0 {
		keep("threads", facts.Threads)
	}
	if facts.Layers > 0 {
		keep("num_layers", facts.Layers)
	}
	if facts.Timer != "" {
		keep("timer", facts.Timer)
	}
	if facts.Resolution > 0 {
		keep("timer_resolution_s", facts.Resolution)
	}
	if facts.MaxTokens > 0 {
		keep("max_total_num_tokens", facts.MaxTokens)
	}
	if len(facts.Warnings) > 0 {
		keep("engine_warnings", facts.Warnings)
	}
	return h
}
