package profile

import (
	"fmt"

	"github.com/llmprof/llmprof/unit"
)

// KVCapacity is the KV cache of one engine, as a measurement tells it. Blocks
// or Tokens is known.
type KVCapacity struct {
	// Blocks is the count as the engine gives it, Tokens the capacity in
	// tokens, BlockSize the tokens of a block; 0 where it is not told.
	Blocks, Tokens int64
	BlockSize      int
	// Bytes is the memory of the cache on a rank; 0 where it is not told.
	Bytes unit.Bytes
	// Origin says where it was read.
	Origin string
}

// KVCapacity is the capacity of the KV cache of an engine of the profile: of
// the smallest one where several are told. ok is false where none is.
func (p *Profile) KVCapacity() (c KVCapacity, ok bool) {
	for i := range p.Points {
		found, told := p.Points[i].kvCapacity()
		if told && (!ok || found.size() < c.size()) {
			c, ok = found, true
		}
	}
	if ok && c.BlockSize == 0 {
		c.BlockSize = p.Header.Deploy.BlockSize
	}
	if ok && c.Origin == "" {
		c.Origin = "the profile"
		if d := p.Header.Deploy; d.Engine != "" {
			c.Origin = fmt.Sprintf("the profile of %s %s", d.Engine, d.EngineVersion)
		}
	}
	return c, ok
}

// size orders capacities.
func (c KVCapacity) size() int64 {
	if c.Blocks > 0 {
		return c.Blocks * int64(max(c.BlockSize, 1))
	}
	return c.Tokens
}

// kvCapacity is what one point tells of it.
func (p *Point) kvCapacity() (KVCapacity, bool) {
	c := KVCapacity{Origin: p.Origin}
	switch {
	case p.Memory != nil && p.Memory.Part == MemoryKVCache:
		m := p.Memory
		c.Blocks, c.Tokens, c.BlockSize, c.Bytes = m.Blocks, m.Tokens, m.BlockSize, unit.Bytes(m.Bytes)
	case p.Server != nil && p.Server.Cache != nil:
		k := p.Server.Cache
		c.Blocks, c.Tokens, c.BlockSize = k.Blocks, k.Tokens, k.BlockSize
	}
	return c, c.Blocks > 0 || c.Tokens > 0
}
