package profile_test

import (
	"testing"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/profile"
)

func TestKVCapacity(t *testing.T) {
	kv := func(m profile.Memory, origin string) profile.Point {
		m.Part = profile.MemoryKVCache
		return profile.Point{Kind: profile.KindMemory, Memory: &m, Origin: origin}
	}
	server := profile.Point{Kind: profile.KindServer, Server: &profile.Server{Engine: "vllm", Cache: &profile.KVCache{BlockSize: 16, Blocks: 500, Tokens: 8000}}}
	for _, c := range []struct {
		why    string
		points []profile.Point
		header deploy.Config
		want   profile.KVCapacity // Origin "" is not told
	}{
		{"nothing", nil, deploy.Config{}, profile.KVCapacity{}},
		{"bytes alone are no capacity", []profile.Point{kv(profile.Memory{Bytes: 1 << 30}, "a")}, deploy.Config{}, profile.KVCapacity{}},
		{
			"blocks",
			[]profile.Point{kv(profile.Memory{Bytes: 1 << 30, Blocks: 100, BlockSize: 16, Tokens: 1600}, "server.log: line 7")},
			deploy.Config{},
			profile.KVCapacity{Blocks: 100, BlockSize: 16, Tokens: 1600, Bytes: 1 << 30, Origin: "server.log: line 7"},
		},
		{
			"the smallest engine",
			[]profile.Point{kv(profile.Memory{Tokens: 1616}, "a"), kv(profile.Memory{Tokens: 1600}, "b"), kv(profile.Memory{Tokens: 1700}, "c")},
			deploy.Config{},
			profile.KVCapacity{Tokens: 1600, Origin: "b"},
		},
		{
			"the block of the header",
			[]profile.Point{kv(profile.Memory{Tokens: 1600}, "a")},
			deploy.Config{BlockSize: 32},
			profile.KVCapacity{Tokens: 1600, BlockSize: 32, Origin: "a"},
		},
		{
			"what a server said",
			[]profile.Point{server},
			deploy.Config{Engine: "vllm", EngineVersion: "0.32.0"},
			profile.KVCapacity{Blocks: 500, Tokens: 8000, BlockSize: 16, Origin: "the profile of vllm 0.32.0"},
		},
	} {
		p := &profile.Profile{Header: profile.Header{Deploy: c.header}, Points: c.points}
		got, ok := p.KVCapacity()
		if got != c.want || ok != (c.want.Origin != "") {
			t.Errorf("%s: %+v, %v; want %+v", c.why, got, ok, c.want)
		}
	}
}
