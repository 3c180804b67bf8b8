package vllmlog

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/profile"
)

// rule is one shape of a line.
type rule struct {
	// words stand in every line of the shape and are cheap to look for.
	words   string
	pattern *regexp.Regexp
	// take is given each match of the pattern, with its groups.
	take func(r *reader, by process, found []string)
	// telling says that the shape is vLLM's alone.
	telling bool
}

const (
	number = `(\d+(?:\.\d+)?)`
	gib    = number + `\s*Gi?B`
	// amountOf is a size with its unit; one below zero is none.
	amountOf = `(-?\d+(?:\.\d+)?\s*[GM]i?B)`
	whole    = `(\d[\d,]*)`
)

var (
	ruleServer     = regexp.MustCompile(`vLLM (?:API server )?version v?(\d\S*)|█\s+version v?(\d\S*)`)
	ruleArgs       = regexp.MustCompile(`non-default args: (\{.*)|^args: Namespace\((.*)`)
	ruleEngine     = regexp.MustCompile(`Initializing an? (?:V1 )?LLM engine \(v([^)\s]+)\) with config: (.*)`)
	ruleMaxLen     = regexp.MustCompile(`Using max model len (\d+)`)
	ruleChunked    = regexp.MustCompile(`Chunked prefill is enabled with max_num_batched_tokens=(\d+)`)
	rulePlatform   = regexp.MustCompile(`Automatically detected platform (\w+)`)
	ruleKVType     = regexp.MustCompile(`Using (fp8\w*) data type to store kv cache`)
	ruleProfiled   = regexp.MustCompile(`Memory profiling results: (.*)`)
	ruleLoaded     = regexp.MustCompile(`(?:Loading model weights|Model loading) took ` + amountOf)
	ruleParts      = regexp.MustCompile(`(model weights takes?|non_torch_memory(?: takes)?|PyTorch activation peak memory(?: takes)?|available_kv_cache_memory|reserved for KV Cache is)\s+` + amountOf)
	ruleBudget     = regexp.MustCompile(`total_gpu_memory \(` + gib + `\) x gpu_memory_utilization \(` + number + `\) = ` + gib)
	ruleBlocks     = regexp.MustCompile(`^# \w+ blocks: (\d+)|num_gpu_blocks is: (\d+)`)
	ruleTokens     = regexp.MustCompile(`\w+ KV cache size: ` + whole + ` tokens`)
	ruleConcurrent = regexp.MustCompile(`Maximum concurrency for ` + whole + ` tokens per request: ` + number + `x`)
	ruleAvailable  = regexp.MustCompile(`Available KV cache memory: ` + amountOf)
	ruleHostKV     = regexp.MustCompile(`(?:Explicitly|Auto) set \(` + number + `/` + number + `\) GiB for KV cache(?:.*? with ` + gib + ` requested memory for the worker\. ` + gib + ` memory was consumed by non-kv usages)?`)
	ruleGraphs     = regexp.MustCompile(`Graph capturing finished in ` + number + ` secs?, took ` + amountOf)
	ruleEstimate   = regexp.MustCompile(`Estimated CUDA graph memory: ` + amountOf)
	ruleFree       = regexp.MustCompile(`Free memory on device\s*(\S+)? ?\(` + number + `/` + number + ` GiB\) on startup\. Desired \w+ memory utilization is \(` + number + `, ` + gib + `\)`)
	ruleActual     = regexp.MustCompile(amountOf + ` for (weight|consumed memory|peak activation|non-torch memory|CUDAGraph memory)`)
	ruleKVBytes    = regexp.MustCompile(`Current kv cache memory in use is (?:` + gib + ` \()?` + whole + ` bytes`)
)

// rules are the shapes of start-up lines, in every era's wording.
func rules() []rule {
	configuration := []rule{
		{"version ", ruleServer, (*reader).serverLine, false},
		{"args: ", ruleArgs, (*reader).argsLine, false},
		{"LLM engine (v", ruleEngine, (*reader).engineLine, true},
		{"Using max model len", ruleMaxLen, func(r *reader, _ process, f []string) { r.server.set("max_model_len", f[1]) }, false},
		{"Chunked prefill is enabled", ruleChunked, func(r *reader, _ process, f []string) { r.server.set("max_num_batched_tokens", f[1]) }, false},
		{"Automatically detected platform", rulePlatform, func(r *reader, _ process, f []string) { r.metadata("platform", f[1]) }, true},
		{"data type to store kv cache", ruleKVType, func(r *reader, _ process, f []string) { r.server.set("kv_cache_dtype", f[1]) }, false},
	}
	figures := []rule{
		{"Memory profiling results", ruleProfiled, (*reader).profiledLine, true},
		{" took ", ruleLoaded, func(r *reader, by process, f []string) {
			r.loading(by)
			r.figure(by, profile.MemoryWeights, f[1])
		}, true},
		{"iB", ruleParts, (*reader).partLine, true},
		{"total_gpu_memory (", ruleBudget, func(r *reader, by process, f []string) {
			r.figure(by, profile.MemoryTotal, f[1])
			r.server.set("gpu_memory_utilization", f[2])
			r.figure(by, profile.MemoryBudget, f[3])
		}, true},
		{" blocks", ruleBlocks, (*reader).blocksLine, false},
		{"KV cache size: ", ruleTokens, func(r *reader, by process, f []string) {
			r.server.engine(by).setTokens(wholeNumber(f[1]), r.lines.number)
		}, true},
		{"Maximum concurrency for", ruleConcurrent, (*reader).concurrencyLine, true},
		{"Available KV cache memory", ruleAvailable, func(r *reader, by process, f []string) { r.figure(by, profile.MemoryKVCache, f[1]) }, true},
		{"GiB for KV cache", ruleHostKV, func(r *reader, by process, f []string) {
			r.figure(by, profile.MemoryKVCache, f[1])
			if f[3] != "" {
				r.figure(by, profile.MemoryBudget, f[3])
				r.figure(by, profile.MemoryConsumed, f[4])
			}
		}, true},
		{"Graph capturing finished", ruleGraphs, func(r *reader, by process, f []string) { r.figure(by, profile.MemoryGraphs, f[2]) }, true},
		{"Estimated CUDA graph memory", ruleEstimate, func(r *reader, by process, f []string) { r.server.worker(by).estimate(f[1], r.lines.number) }, true},
		{"Free memory on device", ruleFree, func(r *reader, by process, f []string) {
			r.figure(by, profile.MemoryFree, f[2])
			r.figure(by, profile.MemoryTotal, f[3])
			r.server.set("gpu_memory_utilization", f[4])
			r.figure(by, profile.MemoryBudget, f[5])
		}, true},
		{"Actual usage is ", ruleActual, (*reader).actualLine, false},
		{"Current kv cache memory in use", ruleKVBytes, func(r *reader, by process, f []string) {
			if bytes := wholeNumber(f[2]); bytes > 0 {
				r.server.worker(by).exact(profile.MemoryKVCache, bytes, r.lines.number)
			}
		}, true},
	}
	return append(append(configuration, figures...), refusalRules()...)
}

func (r *reader) figure(by process, part, printed string) {
	r.server.worker(by).figure(part, printed, r.lines.number)
}

func (r *reader) profiledLine(by process, found []string) {
	for field := range strings.FieldsSeq(found[1]) {
		key, value, _ := strings.Cut(field, "=")
		value = strings.TrimSuffix(value, "GiB")
		switch key {
		case "total_gpu_memory":
			r.figure(by, profile.MemoryTotal, value)
		case "non_torch_memory":
			r.figure(by, profile.MemoryNonTorch, value)
		case "kv_cache_size":
			r.figure(by, profile.MemoryKVCache, value)
		case "gpu_memory_utilization":
			r.server.set(key, value)
		}
	}
	// Its peak of PyTorch holds weights and activations in one.
	r.metadata("memory_profiling_results", strings.ToValidUTF8(found[1], "�"))
}

func (r *reader) partLine(by process, found []string) {
	part := profile.MemoryKVCache
	switch {
	case strings.HasPrefix(found[1], "model weights"):
		part = profile.MemoryWeights
	case strings.HasPrefix(found[1], "non_torch"):
		part = profile.MemoryNonTorch
	case strings.HasPrefix(found[1], "PyTorch"):
		part = profile.MemoryActivation
	}
	r.figure(by, part, found[2])
}

func (r *reader) actualLine(by process, found []string) {
	part := ""
	switch found[2] {
	case "weight":
		part = profile.MemoryWeights
	case "consumed memory":
		part = profile.MemoryConsumed
	case "peak activation":
		part = profile.MemoryActivation
	case "non-torch memory":
		part = profile.MemoryNonTorch
	case "CUDAGraph memory":
		part = profile.MemoryGraphs
	}
	r.figure(by, part, found[1])
}

func (r *reader) blocksLine(by process, found []string) {
	e := r.server.engine(by)
	n := wholeNumber(found[1] + found[2])
	if n > 0 && (e.blocks == 0 || n < e.blocks) {
		e.blocks, e.line = n, r.lines.number
	}
}

func (r *reader) concurrencyLine(by process, found []string) {
	e := r.server.engine(by)
	concurrency, err := strconv.ParseFloat(found[2], 64)
	if err != nil || math.IsInf(concurrency, 0) {
		return
	}
	// The smallest cache of several decides.
	if e.maxLen == 0 || concurrency < e.concurrency {
		e.maxLen, e.concurrency, e.line = wholeNumber(found[1]), concurrency, r.lines.number
	}
	r.server.set("max_model_len", strconv.FormatInt(wholeNumber(found[1]), 10))
}

// wholeNumber reads digits with or without commas; 0 where they are too many.
func wholeNumber(s string) int64 {
	n, err := strconv.ParseInt(strings.ReplaceAll(s, ",", ""), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
