package vllm

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/vllmlog"
	"github.com/llmprof/llmprof/profile"
)

// resolution is the step of the times in the log, in seconds.
const resolution = 1e-5

func newTokens(m *catalog.Model, seed int64) *prompts {
	low, high := idRange(m)
	return &prompts{random: rand.New(rand.NewPCG(uint64(seed), 0x76116d)), low: low, high: high} // repeatable on purpose
}

// factsOf puts together what the server and its log of the start say.
func (s *session) factsOf(said served, log string) engine.Facts {
	f := engine.Facts{
		Engine: "vllm", Version: said.version,
		Clock: profile.ClockWall, Timer: "vLLM iteration log", Resolution: resolution,
		MaxModelLen: said.maxModelLen, MaxTokens: int(said.number("kv_cache_size_tokens")),
		MaxBatch: s.limits.sequences, Layers: s.layers, Threads: s.threads,
	}
	f.Deploy = deploy.Config{Engine: "vllm", Model: s.setup.Deploy.Model, GPUMemoryUtilization: said.share("gpu_memory_utilization")}
	if !s.attached {
		f.Deploy = flagged(s.setup, s.limits)
	}
	f.Deploy.EngineVersion, f.Deploy.MaxModelLen = said.version, said.maxModelLen
	if f.Deploy.Model == "" {
		f.Deploy.Model = said.model
	}
	if n := said.number("block_size"); n > 0 && n < 1<<20 {
		f.Deploy.BlockSize = int(n)
	}
	cache := cachePoint(said)
	if p, _, err := vllmlog.Read("server log", strings.NewReader(log), vllmlog.Options{}); err == nil {
		if !s.attached { // what stands in a log of others may be of an earlier server
			f.Deploy = overlay(f.Deploy, p.Header.Deploy)
		}
		for _, point := range p.Points {
			switch m := point.Memory; {
			case point.Kind != profile.KindMemory:
			case m.Part != profile.MemoryKVCache:
				f.Memory = append(f.Memory, point)
			case len(cache) == 0: // the metrics are exact, the log is rounded
				f.Memory = append(f.Memory, point)
				f.MaxTokens = max(f.MaxTokens, int(m.Tokens))
			}
		}
	}
	f.Memory = append(f.Memory, cache...)
	if s.setup.Device != "" {
		d := f.Deploy.WithDefaults()
		f.Device = profile.Device{Reported: s.setup.Device, Count: d.TensorParallel * d.PipelineParallel}
	}
	if f.MaxTokens == 0 {
		f.MaxTokens = int(said.number("num_gpu_blocks") * said.number("block_size"))
	}
	f.Warnings = s.remarks(said)
	return f
}

// cachePoint is the KV cache as the metrics tell it, exact to the byte where
// they name it.
func cachePoint(said served) []profile.Point {
	m := &profile.Memory{
		Part: profile.MemoryKVCache, Bytes: said.number("kv_cache_memory_bytes"), Tokens: said.number("kv_cache_size_tokens"),
		Blocks: said.number("num_gpu_blocks"), BlockSize: int(said.number("block_size")),
	}
	p := profile.Point{Kind: profile.KindMemory, Memory: m, Origin: "vllm:cache_config_info"}
	if m.Bytes == 0 && m.Tokens == 0 && m.Blocks == 0 || p.Validate() != nil {
		return nil
	}
	return []profile.Point{p}
}

// remarks are what a reader of the points must know.
func (s *session) remarks(said served) []string {
	var out []string
	if s.tokens.high == everyID {
		out = append(out, "the model's vocabulary is not known: prompts are made of the first 256 token ids")
	}
	if s.attached {
		out = append(out, "attached to a running server: requests of others share its steps")
		if said.cache["enable_prefix_caching"] == "True" {
			out = append(out, "the server caches prefixes; every prompt is random, so that none is found there")
		}
	}
	_, own := argument(s.setup.Args, "--async-scheduling")
	_, off := argument(s.setup.Args, "--no-async-scheduling")
	switch {
	case s.setup.Device == "cpu" || s.attached:
	case s.setup.Serve && !own && !off:
		out = append(out, "whether scheduling is asynchronous is the engine's choice: where it is, the log tells how long the engine waited for a step, not how long it took")
	case own:
		out = append(out, "with asynchronous scheduling the log tells how long the engine waited for a step, not how long it took")
	default:
		out = append(out, "asynchronous scheduling is off, so that each step is timed by itself; a server that has it on hides part of the host's work")
	}
	if major, minor, ok := strings.Cut(said.version, "."); ok && major == "0" {
		minor, _, _ = strings.Cut(minor, ".")
		if n, err := strconv.Atoi(minor); err == nil && n < 14 {
			out = append(out, "vLLM "+said.version+" is older than the log of iterations")
		}
	}
	return out
}
