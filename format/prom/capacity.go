package prom

import (
	"fmt"
	"math"

	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// maxTokens bounds the tokens of a cache.
const maxTokens = 1 << 50

// KVCapacity is the capacity of the KV cache of one engine: that of the
// smallest where several tell it. Name stands for the text in its origin; ok is
// false where no engine tells it.
func (s *Scrape) KVCapacity(name string) (c profile.KVCapacity, ok bool) {
	const metric = "vllm:cache_config_info"
	for _, e := range s.VLLM().Cache {
		found := profile.KVCapacity{
			Blocks: e.Blocks, Tokens: e.Tokens, BlockSize: e.BlockSize, Bytes: unit.Bytes(e.Bytes),
			Origin: fmt.Sprintf("%s: %s", name, metric),
		}
		if found.Blocks == 0 && found.Tokens == 0 {
			continue
		}
		if !ok || found.Blocks < c.Blocks || found.Blocks == c.Blocks && found.Tokens < c.Tokens {
			c, ok = found, true
		}
	}
	if ok {
		return c, true
	}
	if all := s.SGLang().KVTokens; all != nil {
		least := math.Inf(1)
		for _, tokens := range all.Parts {
			least = min(least, tokens)
		}
		if least >= 1 && least <= maxTokens {
			return profile.KVCapacity{Tokens: int64(least), Origin: name + ": " + all.Name}, true
		}
	}
	return c, false
}
