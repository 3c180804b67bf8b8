package cost_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/unit"
)

// anyModel draws an architecture of every kind that the catalog holds.
func anyModel(t *rapid.T) *catalog.Model {
	kv := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "kv heads")
	m := &catalog.Model{
		Name: "drawn", Type: "drawn",
		NumLayers: rapid.IntRange(1, 48).Draw(t, "layers"), HiddenSize: 64 * rapid.IntRange(1, 128).Draw(t, "hidden"),
		NumKVHeads: kv, NumHeads: kv * rapid.SampledFrom([]int{1, 4, 8}).Draw(t, "group"),
		HeadDim: rapid.SampledFrom([]int{64, 128, 256}).Draw(t, "head"), VocabSize: rapid.IntRange(100, 200_000).Draw(t, "vocabulary"),
		IntermediateSize: 16 * rapid.IntRange(1, 1000).Draw(t, "width"), MaxSeqLen: 1 << 20,
		TieEmbeddings: rapid.Bool().Draw(t, "tied"), QKVBias: rapid.Bool().Draw(t, "bias"),
	}
	switch rapid.SampledFrom([]string{"full", "sliding", "latent", "linear"}).Draw(t, "attention") {
	case "sliding":
		m.LayerPattern, m.Window = []string{catalog.SlidingAttention, catalog.FullAttention}, rapid.IntRange(1, 4096).Draw(t, "window")
	case "latent":
		m.MLA = &catalog.MLA{QLoraRank: rapid.SampledFrom([]int{0, 512}).Draw(t, "q rank"), KVLoraRank: 512, QKNopeHeadDim: 128, QKRopeHeadDim: 64, VHeadDim: 128}
	case "linear":
		m.LayerPattern = []string{catalog.LinearAttn, catalog.FullAttention}
		m.Linear = &catalog.LinearAttention{NumKeyHeads: 8, NumValueHeads: 16, KeyHeadDim: 128, ValueHeadDim: 128, ConvKernel: 4}
	}
	if rapid.Bool().Draw(t, "experts") {
		m.MoE = &catalog.MoE{NumExperts: 64, ExpertsPerToken: rapid.IntRange(1, 8).Draw(t, "per token"), IntermediateSize: 256, SharedIntermediateSize: 512, DenseLayers: 1}
	}
	return m
}

func anyPass(t *rapid.T) forward.Pass {
	var p forward.Pass
	for range rapid.IntRange(0, 3).Draw(t, "chunks") {
		p.Prefill = append(p.Prefill, forward.Chunk{
			Count: rapid.IntRange(1, 4).Draw(t, "count"), New: rapid.IntRange(1, 3000).Draw(t, "new"),
			Context: rapid.IntRange(0, 9000).Draw(t, "context"), Last: rapid.Bool().Draw(t, "last"),
		})
	}
	n := rapid.IntRange(1, 300).Draw(t, "decodes")
	p.Decode = forward.Sequences{Count: n, SumContext: int64(n) * int64(rapid.IntRange(0, 9000).Draw(t, "mean context"))}
	return p
}

func build(t *rapid.T, m *catalog.Model, d *catalog.Device, c deploy.Config) *cost.Estimator {
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	e, err := cost.New(m, d, c, cost.Settings{})
	if err != nil {
		t.Skip(err)
	}
	return e
}

func TestFasterHardwareIsNeverSlower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, p := anyModel(t), anyPass(t)
		c := deploy.Config{TensorParallel: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "tp")}
		slow, fast := card(), card()
		factor := rapid.Float64Range(1, 4).Draw(t, "factor")
		switch rapid.SampledFrom([]string{"bandwidth", "peak", "link"}).Draw(t, "what") {
		case "bandwidth":
			fast.Bandwidth.Value *= factor
		case "peak":
			fast.Peaks[catalog.BF16] = quantity(fast.Peaks[catalog.BF16].Value * factor)
		case "link":
			fast.Link.Bandwidth.Value *= factor
		}
		a, b := build(t, m, slow, c).Seconds(p), build(t, m, fast, c).Seconds(p)
		if b > a*(1+1e-12) {
			t.Errorf("faster hardware: %v after %v", b, a)
		}
	})
}

func TestMoreWorkIsNeverFaster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, p := anyModel(t), anyPass(t)
		e := build(t, m, card(), deploy.Config{})
		more := p
		more.Decode.Count++
		more.Decode.SumContext += p.Decode.SumContext / int64(p.Decode.Count)
		if a, b := e.Seconds(p), e.Seconds(more); b < a*(1-1e-9) {
			t.Errorf("one more sequence: %v after %v", b, a)
		}
		longer := p
		longer.Decode.SumContext += int64(p.Decode.Count) * 64
		if a, b := e.Seconds(p), e.Seconds(longer); b < a*(1-1e-9) {
			t.Errorf("longer contexts: %v after %v", b, a)
		}
	})
}

func TestOperatorsSumToTheStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := build(t, anyModel(t), card(), deploy.Config{TensorParallel: rapid.SampledFrom([]int{1, 2}).Draw(t, "tp")})
		p := anyPass(t)
		var sum unit.Seconds
		for _, op := range e.Ops(p) {
			if math.IsNaN(float64(op.Time)) || op.Time <= 0 || op.FLOPs < 0 || op.Bytes < 0 {
				t.Fatalf("%s: time %v, %v, %v", op.Name, op.Time, op.FLOPs, op.Bytes)
			}
			sum += unit.Seconds(op.Count) * op.Time
		}
		if got := e.Seconds(p); got != sum {
			t.Errorf("step %v, operators %v", got, sum)
		}
	})
}

// Cutting a prompt into chunks changes neither its FLOPs nor the order of
// magnitude of its time.
func TestChunksConserveFLOPs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		if m.MLA != nil {
			t.Skip("expanding cached latents again is work that chunks add")
		}
		e := build(t, m, card(), deploy.Config{})
		input := rapid.IntRange(2, 5000).Draw(t, "input")
		cut := rapid.IntRange(1, input-1).Draw(t, "cut")
		flops := func(p forward.Pass) (sum float64) {
			for _, op := range e.Ops(p) {
				if op.Name != "lm_head" {
					sum += float64(op.Count) * float64(op.FLOPs)
				}
			}
			return sum
		}
		whole := flops(forward.Prefill(1, input, 0))
		parts := flops(forward.Prefill(1, cut, 0)) + flops(forward.Prefill(1, input-cut, cut))
		if math.Abs(whole/parts-1) > 1e-12 {
			t.Errorf("whole %.0f FLOPs, chunks %.0f", whole, parts)
		}
	})
}

func TestRanksHoldTheWholeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		tp := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "tp")
		e := build(t, m, card(), deploy.Config{TensorParallel: tp})
		held := float64(e.Memory(1, 16, 16).Weights) * float64(tp)
		if all := 2 * float64(m.Params().Total); held < all*(1-1e-12) {
			t.Errorf("%d ranks hold %.0f bytes of a model of %.0f", tp, held, all)
		}
	})
}

func TestMoreSequencesNeedMoreMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := build(t, anyModel(t), card(), deploy.Config{})
		batch, length := rapid.IntRange(1, 200).Draw(t, "batch"), rapid.IntRange(1, 9000).Draw(t, "length")
		a, b := e.Memory(batch, length, batch), e.Memory(batch+1, length+1, batch+1)
		if b.Total() < a.Total() {
			t.Errorf("batch %d of %d tokens: %v; one more of each: %v", batch, length, a.Total(), b.Total())
		}
		same := func(n int) int { return n }
		most, _ := e.Capacity(length, same)
		fewer, _ := e.Capacity(length+1, same)
		if fewer > most {
			t.Errorf("%d sequences of %d tokens fit, and %d longer ones", most, length, fewer)
		}
		if a.Fits() != (batch <= most) {
			t.Errorf("fits is %v and the largest batch is %d of %d", a.Fits(), most, batch)
		}
	})
}
