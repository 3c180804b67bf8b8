package vllmlog

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
)

// set keeps a setting under vLLM's own name; what is None or left to the
// engine says nothing. A later word of the same server counts.
func (s *server) set(key string, value any) {
	switch key {
	case "max_seq_len":
		key = "max_model_len"
	case "model_tag":
		if _, known := s.settings["model"]; known {
			return
		}
		key = "model"
	case "version", "model", "dtype", "max_model_len", "max_num_batched_tokens", "tensor_parallel_size", "pipeline_parallel_size",
		"data_parallel_size", "enable_expert_parallel", "quantization", "kv_cache_dtype", "block_size", "gpu_memory_utilization",
		"max_num_seqs", "enable_chunked_prefill", "enable_prefix_caching", "scheduling_policy":
	default:
		return
	}
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		text = strconv.FormatBool(v)
	}
	if text == "" || text == "auto" {
		return
	}
	s.settings[key] = strings.ToValidUTF8(text, "�")
}

// configure turns the settings of a server into its deployment and into the
// header's, where that does not say otherwise.
func (r *reader) configure(s *server) {
	d := &s.deploy
	d.Model = s.settings["model"]
	d.EngineVersion = s.settings["version"]
	for _, size := range []struct {
		key   string
		field *int
	}{
		{"max_model_len", &d.MaxModelLen},
		{"max_num_batched_tokens", &d.MaxNumBatchedTokens},
		{"tensor_parallel_size", &d.TensorParallel},
		{"pipeline_parallel_size", &d.PipelineParallel},
		{"data_parallel_size", &d.DataParallel},
		{"block_size", &d.BlockSize},
		{"max_num_seqs", &d.MaxNumSeqs},
	} {
		if n, err := strconv.ParseInt(s.settings[size.key], 10, 32); err == nil && n > 0 {
			*size.field = int(n)
		}
	}
	if s.settings["enable_expert_parallel"] == "true" {
		d.ExpertParallel = max(1, d.TensorParallel) * max(1, d.DataParallel)
	}
	for key, field := range map[string]**bool{"enable_chunked_prefill": &d.ChunkedPrefill, "enable_prefix_caching": &d.PrefixCaching} {
		if on, err := strconv.ParseBool(s.settings[key]); err == nil {
			*field = &on
		}
	}
	d.SchedulingPolicy = s.settings["scheduling_policy"]
	if u, err := strconv.ParseFloat(s.settings["gpu_memory_utilization"], 64); err == nil && u > 0 && u <= 1 {
		d.GPUMemoryUtilization = u
	}
	unknown := func(key string) {
		r.warnf("%s %q: not known here, left out of the header", key, s.settings[key])
		r.metadata(key, s.settings[key])
	}
	for _, t := range []struct {
		key   string
		field *catalog.DType
	}{{"dtype", &d.DType}, {"kv_cache_dtype", &d.KVCacheDType}} {
		if text := s.settings[t.key]; text != "" {
			parsed, err := catalog.ParseDType(text)
			if err != nil {
				unknown(t.key)
				continue
			}
			*t.field = parsed
		}
	}
	if text := s.settings["quantization"]; text != "" {
		if _, err := deploy.ParseWeightFormat(text, d.WithDefaults().DType); err != nil {
			unknown("quantization")
		} else {
			d.Quantization = text
		}
	}
	r.adopt(s.deploy)
}

// adopt fills the header with what it does not say yet and warns where a later
// server of the log has other settings.
func (r *reader) adopt(d deploy.Config) {
	known, next := fields(r.header.Deploy), fields(d)
	for _, key := range slices.Sorted(maps.Keys(next)) {
		if old, ok := known[key]; ok && string(old) != string(next[key]) {
			r.warnf("a server of this log has %s %s, one before it %s: the header keeps the first", key, next[key], old)
			continue
		}
		known[key] = next[key]
	}
	text, err := json.Marshal(known)
	if err != nil {
		return
	}
	var merged deploy.Config
	if json.Unmarshal(text, &merged) == nil {
		r.header.Deploy = merged
	}
}

// fields are the fields of a deployment that say something.
func fields(d deploy.Config) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	text, err := json.Marshal(d)
	if err != nil || json.Unmarshal(text, &all) != nil {
		return map[string]json.RawMessage{}
	}
	return all
}
