package cost_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
)

func release(t interface{ Fatalf(string, ...any) }, text string) deploy.Release {
	r, ok := deploy.ParseRelease(text)
	if !ok {
		t.Fatalf("release %q", text)
	}
	return r
}

// slidingAndFull is n sliding layers of 512 tokens and m full ones, with 1 KiB
// a token each.
func slidingAndFull(n, m int) []cost.KVLayer {
	return []cost.KVLayer{
		{Attention: catalog.SlidingAttention, Window: 512, Count: n, TokenBytes: 1024},
		{Attention: catalog.FullAttention, Count: m, TokenBytes: 1024},
	}
}

// TestKVLayoutFacts are figures that vLLM's own functions and engines gave.
func TestKVLayoutFacts(t *testing.T) {
	latent := []cost.KVLayer{{Attention: catalog.FullAttention, Count: 4, TokenBytes: (512 + 64) * 2}}
	for _, c := range []struct {
		why, release string
		layers       []cost.KVLayer
		block        int
		available    int64
		length       int
		ahead        int
		blocks       int64
		concurrency  float64
		tokens       int64
	}{
		{"10 sliding and 2 full layers on a CPU", "0.32.0", slidingAndFull(10, 2), 128, 1 << 30, 8192, 2048, 4096, 24.2367, 198_546},
		{"latent attention on a CPU", "0.32.0", latent, 16, 1 << 30, 4100, 2048, 14_563, 56.6654, 232_328},
		{"tokens by groups to 0.20", "0.20.0", slidingAndFull(10, 2), 16, 1 << 30, 8192, 2048, 32_768, 24.8808, 87_376},
		{"tokens by concurrency from 0.21", "0.21.0", slidingAndFull(10, 2), 16, 1 << 30, 8192, 2048, 32_768, 24.8808, 203_823},
		{"two batches in flight", "0.26.0", slidingAndFull(10, 2), 16, 1 << 30, 8192, 4096, 32_768, 16.7440, 137_166},
	} {
		l, err := cost.NewKVLayout(release(t, c.release), c.layers, c.block, true)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		blocks := l.Blocks(c.available)
		if blocks != c.blocks {
			t.Errorf("%s: %d blocks, want %d", c.why, blocks, c.blocks)
		}
		if got := l.Concurrency(blocks, c.length, c.ahead); math.Abs(got-c.concurrency) > 5e-5 {
			t.Errorf("%s: concurrency %.5f, want %.4f", c.why, got, c.concurrency)
		}
		if got := l.LogTokens(blocks, c.length, c.ahead); got != c.tokens {
			t.Errorf("%s: %d tokens, want %d", c.why, got, c.tokens)
		}
	}
}

// TestKVGrouping: into how many groups of which size the kinds are cut.
func TestKVGrouping(t *testing.T) {
	for _, c := range []struct {
		why, release  string
		sliding, full int
		groups, size  int
	}{
		{"one group of each would be padded by a layer", "0.11.2", 12, 13, 3, 12},
		{"below 1.25 x the largest kind is taken", "0.12.0", 12, 13, 2, 13},
		{"13 is above 1.25 x 10", "0.17.0", 13, 10, 3, 10},
		{"and below 1.5 x 10", "0.18.0", 13, 10, 2, 13},
		{"the rarest kind rules", "0.33.0", 10, 2, 6, 2},
		{"equal kinds", "0.33.0", 12, 12, 2, 12},
		{"exactly 1.5 x is too many", "0.33.0", 15, 10, 3, 10},
	} {
		l, err := cost.NewKVLayout(release(t, c.release), slidingAndFull(c.sliding, c.full), 16, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Groups) != c.groups || l.BlockBytes != int64(c.size)*16*1024 {
			t.Errorf("%s (%d + %d in %s): %d groups, %d bytes a block; want %d groups of %d", c.why, c.sliding, c.full, c.release, len(l.Groups), l.BlockBytes, c.groups, c.size)
		}
		if padded := c.groups*c.size - c.sliding - c.full; l.PaddedLayers != padded {
			t.Errorf("%s: %d padded layers, want %d", c.why, l.PaddedLayers, padded)
		}
	}
}

func TestKVLayoutKinds(t *testing.T) {
	state := []cost.KVLayer{
		{Attention: catalog.LinearAttn, Count: 36, StateBytes: 1_097_728},
		{Attention: catalog.FullAttention, Count: 12, TokenBytes: 2048},
	}
	widths := func(a, b int64) []cost.KVLayer {
		l := slidingAndFull(6, 6)
		l[0].TokenBytes, l[1].TokenBytes = a, b
		return l
	}
	for _, c := range []struct {
		why, release string
		layers       []cost.KVLayer
		hybrid       bool
		block        int   // of the layout
		bytes        int64 // of a block
		request      int64 // blocks of a request of 1600 tokens, 512 ahead
		err          string
	}{
		{"all alike", "0.9.2", []cost.KVLayer{{Attention: "full", Count: 32, TokenBytes: 4096}}, true, 16, 32 * 16 * 4096, 100, ""},
		{"layers of another size", "0.11.2", []cost.KVLayer{{Attention: "full", Count: 2, TokenBytes: 4096}, {Attention: "full", Count: 1, TokenBytes: 1024}}, true, 16, 16 * (2*4096 + 1024), 100, ""},
		{"not before 0.11.2", "0.11.0", []cost.KVLayer{{Attention: "full", Count: 2, TokenBytes: 4096}, {Attention: "full", Count: 1, TokenBytes: 1024}}, true, 0, 0, 0, "layers of different size"},
		{"windows counted as full", "0.33.0", slidingAndFull(10, 2), false, 16, 12 * 16 * 1024, 100, ""},
		{"chunks", "0.33.0", []cost.KVLayer{{Attention: "chunked", Window: 64, Count: 3, TokenBytes: 1024}, {Attention: "full", Count: 3, TokenBytes: 1024}}, true, 16, 3 * 16 * 1024, 36 + 100, ""},
		{"a state raises the block", "0.33.0", state, true, 544, 12 * 544 * 2048, 3 + 3, ""},
		{"smaller pages hold more tokens", "0.12.0", widths(1024, 2048), true, 16, 6 * 16 * 2048, 32 + 1 + 100, ""},
		{"not before 0.12", "0.11.2", widths(1024, 2048), true, 0, 0, 0, "sliding layers have smaller pages"},
		{"pages that do not divide are padded", "0.24.0", widths(1536, 2048), true, 16, 6 * 16 * 2048, 65 + 100, ""},
		{"not before 0.24", "0.23.0", widths(1536, 2048), true, 0, 0, 0, "do not divide"},
		{"nothing to cache", "0.33.0", nil, true, 0, 0, 0, "caches nothing"},
	} {
		l, err := cost.NewKVLayout(release(t, c.release), c.layers, 16, c.hybrid)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.why, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		if l.BlockSize != c.block || l.BlockBytes != c.bytes || l.RequestBlocks(1600, 512) != c.request {
			t.Errorf("%s: blocks of %d tokens, %d bytes, %d for a request; want %d, %d, %d", c.why, l.BlockSize, l.BlockBytes, l.RequestBlocks(1600, 512), c.block, c.bytes, c.request)
		}
	}
	if _, err := cost.NewKVLayout(release(t, "0.33.0"), state, 0, true); err == nil {
		t.Error("blocks of no tokens are refused")
	}
}

// TestKVLongest: the longest request is the longest that fits, beside the
// block that is never handed out.
func TestKVLongest(t *testing.T) {
	one, err := cost.NewKVLayout(release(t, "0.33.0"), []cost.KVLayer{{Attention: "full", Count: 2, TokenBytes: 64}}, 16, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := one.Longest(64, 2048, 1<<20); got != 1008 {
		t.Errorf("64 blocks of 16: %d tokens, want 1008", got)
	}
	if got := one.Longest(1, 2048, 1<<20); got != 0 {
		t.Errorf("the null block alone: %d tokens", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(1, 40).Draw(t, "sliding"), rapid.IntRange(1, 40).Draw(t, "full")
		l, err := cost.NewKVLayout(release(t, rapid.SampledFrom([]string{"0.9.2", "0.12.0", "0.33.0"}).Draw(t, "release")), slidingAndFull(n, m), rapid.SampledFrom([]int{1, 16, 128}).Draw(t, "block"), true)
		if err != nil {
			t.Fatal(err)
		}
		layers := 0
		for _, g := range l.Groups {
			layers += g.Layers
		}
		if layers != n+m {
			t.Fatalf("%d layers in groups of %d", layers, n+m)
		}
		blocks := rapid.Int64Range(0, 5000).Draw(t, "blocks")
		ahead := rapid.IntRange(1, 4096).Draw(t, "ahead")
		longest := l.Longest(blocks, ahead, 1<<20)
		if longest > 0 && l.RequestBlocks(longest, ahead) > blocks-1 {
			t.Fatalf("%d tokens do not fit in %d blocks", longest, blocks)
		}
		if longest < 1<<20 && l.RequestBlocks(longest+1, ahead) <= blocks-1 {
			t.Fatalf("%d tokens would fit in %d blocks", longest+1, blocks)
		}
	})
}
