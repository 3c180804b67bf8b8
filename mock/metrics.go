package mock

import (
	"bytes"
	"math"
	"strconv"
)

// exposition writes metrics as Prometheus reads them.
type exposition struct {
	text   bytes.Buffer
	labels string // of every series
}

// family begins a metric.
func (x *exposition) family(name, kind, help string) {
	x.text.WriteString("# HELP vllm:" + name + " " + help + "\n# TYPE vllm:" + name + " " + kind + "\n")
}

// sample writes a series; more are labels beside the common ones.
func (x *exposition) sample(name, more string, value float64) {
	x.text.WriteString("vllm:" + name + "{" + x.labels)
	if more != "" {
		x.text.WriteString("," + more)
	}
	x.text.WriteString("} " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

// one writes a metric with one series.
func (x *exposition) one(name, kind, help string, value float64) {
	x.family(name, kind, help)
	x.sample(name, "", value)
}

func (x *exposition) histogram(name, help string, h *histogram) {
	x.family(name, "histogram", help)
	below := uint64(0)
	for i, n := range h.counts {
		below += n
		bound := math.Inf(1)
		if i < len(h.bounds) {
			bound = h.bounds[i]
		}
		x.sample(name+"_bucket", `le="`+strconv.FormatFloat(bound, 'g', -1, 64)+`"`, float64(below))
	}
	x.sample(name+"_count", "", float64(below))
	x.sample(name+"_sum", "", h.sum)
}

// metricsOf is the body of /metrics.
func metricsOf(e engine) []byte {
	k := e.ledger()
	k.mu.Lock()
	defer k.mu.Unlock()
	now, m := e.now(), &k.meters
	x := &exposition{labels: `engine="0",model_name="` + k.options.Model + `"`}
	x.gauges(now)
	x.counters(now, m)
	if now.steps != nil {
		x.histogram("iteration_tokens_total", "Tokens of a step: those put out, and prompts that end in it as far as they were not cached.", now.steps)
	}
	for _, h := range []struct {
		name, help string
		histogram  *histogram
	}{
		{"time_to_first_token_seconds", "Time from the arrival of a request to its first token.", &m.ttft},
		{"inter_token_latency_seconds", "Time between two writes of a request.", &m.gap},
		{"request_time_per_output_token_seconds", "Mean time per token after the first, of each request.", &m.requestGap},
		{"e2e_request_latency_seconds", "Time from the arrival of a request to its end.", &m.endToEnd},
		{"request_queue_time_seconds", "Time that a request waited.", &m.queue},
		{"request_inference_time_seconds", "Time that a request ran.", &m.inference},
		{"request_prefill_time_seconds", "Time from the admission of a request to its first token.", &m.prefill},
		{"request_decode_time_seconds", "Time from the first token of a request to its last.", &m.decode},
		{"request_prompt_tokens", "Tokens of prompts.", &m.prompts},
		{"request_generation_tokens", "Tokens of answers.", &m.answers},
		{"request_max_num_generation_tokens", "Tokens that were asked for.", &m.limits},
		{"request_params_max_tokens", "The parameter max_tokens.", &m.limits},
		{"request_params_n", "The parameter n.", &m.params},
		{"request_prefill_kv_computed_tokens", "Tokens of prompts that were not cached.", &m.computed},
		{"request_num_preemptions", "Preemptions of each request.", &m.evictions},
	} {
		x.histogram(h.name, h.help, h.histogram)
	}
	return x.text.Bytes()
}

func (x *exposition) gauges(now state) {
	waiting := float64(now.waiting)
	x.one("num_requests_running", "gauge", "Requests that run.", float64(now.running))
	x.one("num_requests_waiting", "gauge", "Requests that wait.", waiting)
	x.family("num_requests_waiting_by_reason", "gauge", "Requests that wait, by why.")
	x.sample("num_requests_waiting_by_reason", `reason="capacity"`, waiting)
	x.sample("num_requests_waiting_by_reason", `reason="deferred"`, 0)
	blocks, tokens := "None", "None"
	if now.blocks != Unlimited {
		x.one("kv_cache_usage_perc", "gauge", "Used share of the KV cache, 0 to 1.", now.usage)
		blocks, tokens = strconv.Itoa(now.blocks), strconv.Itoa(now.cacheTokens)
	}
	x.family("cache_config_info", "gauge", "The KV cache.")
	caching := "True"
	if !now.share {
		caching = "False"
	}
	x.sample("cache_config_info", `block_size="`+strconv.Itoa(now.blockSize)+`",enable_prefix_caching="`+caching+
		`",kv_cache_size_tokens="`+tokens+`",num_gpu_blocks="`+blocks+`"`, 1)
}

func (x *exposition) counters(now state, m *meters) {
	for _, c := range []struct {
		name, help string
		value      int64
	}{
		{"prefix_cache_queries_total", "Tokens looked up in the prefix cache.", now.queries},
		{"prefix_cache_hits_total", "Tokens found in the prefix cache.", now.hits},
		{"num_preemptions_total", "Preemptions.", now.preemptions},
		{"prompt_tokens_total", "Tokens of prompts.", m.prompt},
		{"prompt_tokens_cached_total", "Tokens of prompts that were cached.", m.cached},
		{"generation_tokens_total", "Tokens put out.", m.generated},
	} {
		x.one(c.name, "counter", c.help, float64(c.value))
	}
	x.family("prompt_tokens_by_source_total", "counter", "Tokens of prompts by source.")
	x.sample("prompt_tokens_by_source_total", `source="local_compute"`, float64(m.prompt-m.cached))
	x.sample("prompt_tokens_by_source_total", `source="local_cache_hit"`, float64(m.cached))
	x.family("request_success_total", "counter", "Requests that ended, by why.")
	for _, reason := range []string{"stop", "length", "abort", "error"} {
		x.sample("request_success_total", `finished_reason="`+reason+`"`, float64(m.reasons[reason]))
	}
}
