package cost_test

import (
	"math"
	"testing"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/unit"
)

func quantity(v float64) catalog.Quantity {
	return catalog.Quantity{Value: v, Source: "test", Verified: true}
}

// card is a device with an A100's round figures.
func card() *catalog.Device {
	return &catalog.Device{
		Name: "test-card", FullName: "Test card", Vendor: "test",
		Memory: quantity(40 << 30), Bandwidth: quantity(1555e9),
		Peaks: map[catalog.DType]catalog.Quantity{
			catalog.FP32: quantity(19.5e12), catalog.FP16: quantity(312e12), catalog.BF16: quantity(312e12), catalog.INT8: quantity(624e12),
		},
		Link:      catalog.Link{Kind: "nvlink", Topology: "switch", Bandwidth: quantity(300e9), Domain: 8, Alpha: quantity(2e-6)},
		InterNode: quantity(25e9), PCIe: quantity(32e9),
	}
}

func dense70B() *catalog.Model {
	return &catalog.Model{
		Name: "dense-70B", Type: "llama", NumLayers: 80, HiddenSize: 8192, NumHeads: 64, NumKVHeads: 8, HeadDim: 128,
		IntermediateSize: 28672, VocabSize: 32000, MaxSeqLen: 4096, ParamsTotal: 68_976_648_192,
	}
}

func moe30B() *catalog.Model {
	return &catalog.Model{
		Name: "moe-30B", Type: "qwen3_moe", NumLayers: 48, HiddenSize: 2048, NumHeads: 32, NumKVHeads: 4, HeadDim: 128,
		VocabSize: 151936, MaxSeqLen: 40960, QKNorm: "head", ParamsTotal: 30_532_122_624,
		MoE: &catalog.MoE{NumExperts: 128, ExpertsPerToken: 8, IntermediateSize: 768},
	}
}

func latent671B() *catalog.Model {
	return &catalog.Model{
		Name: "latent-671B", Type: "deepseek_v3", NumLayers: 61, HiddenSize: 7168, NumHeads: 128, NumKVHeads: 128, HeadDim: 192,
		IntermediateSize: 18432, VocabSize: 129280, MaxSeqLen: 163840, ParamsTotal: 671_026_419_200,
		MoE: &catalog.MoE{NumExperts: 256, ExpertsPerToken: 8, IntermediateSize: 2048, SharedIntermediateSize: 2048, RouterBias: true, DenseLayers: 3},
		MLA: &catalog.MLA{QLoraRank: 1536, KVLoraRank: 512, QKNopeHeadDim: 128, QKRopeHeadDim: 64, VHeadDim: 128},
	}
}

func newEstimator(t testing.TB, m *catalog.Model, c deploy.Config, s cost.Settings) *cost.Estimator {
	t.Helper()
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	e, err := cost.New(m, card(), c, s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func find(t testing.TB, ops []cost.Op, name string) cost.Op {
	t.Helper()
	for _, op := range ops {
		if op.Name == name {
			return op
		}
	}
	t.Fatalf("no operator %q", name)
	return cost.Op{}
}

func TestWeightsOfARank(t *testing.T) {
	e := newEstimator(t, dense70B(), deploy.Config{TensorParallel: 8, DType: catalog.BF16}, cost.Settings{})
	if got, want := e.Memory(1, 16, 16).Weights, unit.Bytes(17_246_470_144); got != want {
		t.Errorf("weights of one of 8 ranks: got %d, want %d: (P − 161h)·2/8 + 161h·2", got, want)
	}
	for _, m := range []*catalog.Model{dense70B(), moe30B(), latent671B()} {
		e := newEstimator(t, m, deploy.Config{DType: catalog.BF16}, cost.Settings{})
		if got, want := e.Memory(1, 16, 16).Weights, unit.Bytes(2*m.ParamsTotal); got != want {
			t.Errorf("%s: weights of a single rank: got %d, want every parameter in two bytes, %d", m.Name, got, want)
		}
	}
}

func TestPrefillFLOPs(t *testing.T) {
	e := newEstimator(t, dense70B(), deploy.Config{DType: catalog.BF16}, cost.Settings{})
	attention := find(t, e.Ops(forward.Prefill(32, 1024, 0)), "attention")
	if got, want := attention.FLOPs, unit.FLOPs(550_292_684_800); got != want {
		t.Errorf("causal attention of one layer: got %.0f, want %.0f", got, want)
	}
	sharded := newEstimator(t, dense70B(), deploy.Config{TensorParallel: 8, DType: catalog.BF16}, cost.Settings{})
	a, err := sharded.Analyze(cost.Request{Batch: 32, Input: 1024, Output: 128})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := a.Prefill.FLOPs, unit.FLOPs(4_530_047_633_326_080); got != want {
		t.Errorf("whole prefill over all ranks: got %.0f, want %.0f", got, want)
	}
}

// The weights that a mixture reads are those of the distinct experts that
// its tokens visit.
func TestDistinctExperts(t *testing.T) {
	for _, c := range []struct {
		experts, perToken, tokens int
		want                      float64
	}{
		{128, 8, 1, 8},
		{128, 8, 4, 29.12},
		{128, 8, 32, 111.77},
		{128, 8, 64, 125.94},
		{256, 8, 32, 163.31},
		{8, 2, 4, 5.469},
	} {
		m := moe30B()
		m.ParamsTotal = 0
		m.MoE.NumExperts, m.MoE.ExpertsPerToken = c.experts, c.perToken
		e := newEstimator(t, m, deploy.Config{DType: catalog.BF16}, cost.Settings{})
		down := find(t, e.Ops(forward.Decode(c.tokens, 100)), "experts_down")
		activations := float64(c.tokens*c.perToken) * 2 * float64(m.MoE.IntermediateSize+m.HiddenSize)
		got := (float64(down.Bytes) - activations) / (2 * float64(m.MoE.IntermediateSize*m.HiddenSize))
		if math.Abs(got-c.want) > 0.005 {
			t.Errorf("%d of %d experts, %d tokens: reads %.3f experts, want %.3f", c.perToken, c.experts, c.tokens, got, c.want)
		}
	}
	skewed := newEstimator(t, moe30B(), deploy.Config{}, cost.Settings{ExpertSkew: 0.01})
	if s := skewed.Seconds(forward.Decode(4, 100)); !(s > 0) {
		t.Errorf("a router that uses fewer experts than a token visits: step %v", s)
	}
}

func TestAllReduceVolume(t *testing.T) {
	device := card()
	device.Link.Alpha = quantity(1e-15)
	e, err := cost.New(dense70B(), device, deploy.Config{TensorParallel: 8}, cost.Settings{EffNet: 0.75, NoLaunch: true})
	if err != nil {
		t.Fatal(err)
	}
	op := find(t, e.Ops(forward.Decode(32, 1000)), "attention_all_reduce")
	if op.Message != 524_288 {
		t.Errorf("message: got %d, want 32 · 8192 · 2 = 524288 bytes", op.Message)
	}
	if got, want := float64(op.Network)*1e6, 4.078; math.Abs(got-want) > 0.001 {
		t.Errorf("ring volume over 8 ranks at 225 GB/s: got %.4f µs, want %.3f µs", got, want)
	}
	if op.Bound != cost.BoundNetwork {
		t.Errorf("bound: got %s, want network", op.Bound)
	}
}

// The step of a large model at batch 32 is bound by reading weights and cache.
func TestDecodeStepIsMemoryTraffic(t *testing.T) {
	e := newEstimator(t, dense70B(), deploy.Config{TensorParallel: 8, DType: catalog.BF16}, cost.Settings{EffHBM: 0.9})
	m := e.Memory(32, 1088, 32)
	if got, want := m.KVCache, unit.Bytes(1_426_063_360); got != want {
		t.Errorf("KV cache of 32 sequences of 1088 tokens on one of 8 ranks: got %d, want %d", got, want)
	}
	table := unit.Bytes(32000 * 8192 * 2 / 8)
	ms := float64(m.Weights-table+m.KVCache) / (1555e9 * 0.9) * 1e3
	if math.Abs(ms-13.29) > 0.01 {
		t.Errorf("reading weights and cache: got %.3f ms, want 13.29 ms", ms)
	}
	var memory unit.Seconds
	for _, op := range e.Ops(forward.Decode(32, 1087)) {
		memory += unit.Seconds(op.Count) * op.Memory
	}
	if got := memory.Milliseconds(); got < ms || got > 1.05*ms {
		t.Errorf("memory time of the operators: got %.3f ms, want the %.3f ms of weights and cache and at most 5 %% of activations", got, ms)
	}
}

func TestKVBytesPerToken(t *testing.T) {
	for _, c := range []struct {
		why  string
		m    *catalog.Model
		tp   int
		want unit.Bytes
	}{
		{"grouped heads", dense70B(), 1, 327_680},
		{"heads split over ranks", dense70B(), 8, 40_960},
		{"heads replicated beyond one per rank", moe30B(), 8, 98_304 / 4},
		{"mixture of experts has the cache of its attention", moe30B(), 1, 98_304},
		{"latent cache is not split", latent671B(), 8, 70_272},
	} {
		t.Run(c.why, func(t *testing.T) {
			e := newEstimator(t, c.m, deploy.Config{TensorParallel: c.tp, DType: catalog.BF16}, cost.Settings{})
			if got := e.Memory(1, 16, 1).KVPerToken; got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestBreakdownSums(t *testing.T) {
	for _, m := range []*catalog.Model{dense70B(), moe30B(), latent671B()} {
		e := newEstimator(t, m, deploy.Config{TensorParallel: 2, ExpertParallel: expertRanks(m)}, cost.Settings{StepOverhead: 1e-4})
		for _, p := range []forward.Pass{
			forward.Prefill(4, 700, 0),
			forward.Decode(17, 900),
			{Prefill: []forward.Chunk{{Count: 1, New: 512, Context: 1024}}, Decode: forward.Sequences{Count: 8, SumContext: 5000}},
		} {
			var sum unit.Seconds
			for _, op := range e.Ops(p) {
				sum += unit.Seconds(op.Count) * op.Time
				want := max(op.Compute, op.Memory) + op.Network + op.Launch
				if op.Time != want {
					t.Errorf("%s: time %v is not max(compute, memory) + network + launch = %v", op.Name, op.Time, want)
				}
			}
			if got := e.Seconds(p); got != sum {
				t.Errorf("%s: step %v, operators sum to %v", m.Name, got, sum)
			}
		}
		a, err := e.Analyze(cost.Request{Batch: 4, Input: 1000, Output: 700})
		if err != nil {
			t.Fatal(err)
		}
		var sum unit.Seconds
		for _, op := range a.Decode.Ops {
			sum += unit.Seconds(op.Count) * op.Time
		}
		if math.Abs(float64(sum/a.TPOT)-1) > 1e-12 {
			t.Errorf("%s: mean decode step %v, operators sum to %v", m.Name, a.TPOT, sum)
		}
	}
}

func expertRanks(m *catalog.Model) int {
	if m.MoE == nil {
		return 1
	}
	return 2
}

// Long outputs are integrated; the exact sum of all steps is the truth.
func TestIntegrationOfLongOutputs(t *testing.T) {
	for _, m := range []*catalog.Model{dense70B(), moe30B(), latent671B()} {
		e := newEstimator(t, m, deploy.Config{}, cost.Settings{})
		for _, output := range []int{513, 1500, 6000} {
			var exact unit.Seconds
			for j := 1; j < output; j++ {
				exact += e.Seconds(forward.Decode(3, 100+j-1))
			}
			exact /= unit.Seconds(output - 1)
			a, err := e.Analyze(cost.Request{Batch: 3, Input: 100, Output: output})
			if err != nil {
				t.Fatal(err)
			}
			if gap := math.Abs(float64(a.TPOT/exact) - 1); gap > 1e-3 {
				t.Errorf("%s, %d tokens: TPOT %v, exact %v: off by %.2g, want at most 1e-3", m.Name, output, a.TPOT, exact, gap)
			}
		}
	}
}

func TestChunkedPrefill(t *testing.T) {
	whole := newEstimator(t, dense70B(), deploy.Config{}, cost.Settings{})
	chunked := newEstimator(t, dense70B(), deploy.Config{MaxNumBatchedTokens: 512}, cost.Settings{})
	r := cost.Request{Batch: 2, Input: 1300, Output: 2}
	a, err := whole.Analyze(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := chunked.Analyze(r)
	if err != nil {
		t.Fatal(err)
	}
	if b.Prefill.Passes != 6 {
		t.Errorf("2 x 1300 tokens in steps of 512: got %d passes, want 6", b.Prefill.Passes)
	}
	if a.Prefill.FLOPs != b.Prefill.FLOPs {
		t.Errorf("chunks compute the same work: got %.0f, want %.0f", b.Prefill.FLOPs, a.Prefill.FLOPs)
	}
	if b.TTFT <= a.TTFT {
		t.Errorf("chunks read the weights again: TTFT %v is not above %v", b.TTFT, a.TTFT)
	}
}

func TestCachedPrefix(t *testing.T) {
	e := newEstimator(t, dense70B(), deploy.Config{BlockSize: 16}, cost.Settings{})
	for _, c := range []struct {
		why           string
		prefix, input int
		want          float64 // tokens computed
	}{
		{"whole blocks only", 100, 1000, 904},
		{"the last token is always computed", 5000, 1024, 16},
		{"no cache", 0, 1000, 1000},
	} {
		t.Run(c.why, func(t *testing.T) {
			a, err := e.Analyze(cost.Request{Batch: 1, Input: c.input, Output: 1, CachedPrefix: c.prefix})
			if err != nil {
				t.Fatal(err)
			}
			got := a.PrefillTokensPerSecond * float64(a.TTFT)
			if math.Abs(got-c.want) > 1e-6 {
				t.Errorf("computed tokens: got %.1f, want %.0f", got, c.want)
			}
		})
	}
}

func TestDoesNotFit(t *testing.T) {
	e := newEstimator(t, dense70B(), deploy.Config{}, cost.Settings{})
	a, err := e.Analyze(cost.Request{Batch: 1, Input: 512, Output: 128})
	if err != nil {
		t.Fatal(err)
	}
	if a.Fits || len(a.Reasons) != 1 || a.Reasons[0].Code != cost.ReasonWeights {
		t.Fatalf("a 70B model on one 40 GiB card: fits %v, reasons %v", a.Fits, a.Reasons)
	}
	if a.SmallestTP != 4 {
		t.Errorf("smallest tensor parallel size: got %d, want 4 (138 GB of weights on 4 x 36 GiB)", a.SmallestTP)
	}
	short := newEstimator(t, dense70B(), deploy.Config{TensorParallel: 8}, cost.Settings{})
	a, err = short.Analyze(cost.Request{Batch: 1, Input: 4000, Output: 128})
	if err != nil {
		t.Fatal(err)
	}
	if a.Fits || a.Reasons[0].Code != cost.ReasonMaxSeqLen {
		t.Errorf("4128 tokens of 4096: fits %v, reasons %v", a.Fits, a.Reasons)
	}
}

func TestLayoutErrors(t *testing.T) {
	for _, c := range []struct {
		why    string
		model  *catalog.Model
		config deploy.Config
	}{
		{"7 ranks do not divide 64 heads", dense70B(), deploy.Config{TensorParallel: 7}},
		{"experts need experts", dense70B(), deploy.Config{TensorParallel: 2, ExpertParallel: 2}},
		{"more stages than layers", moe30B(), deploy.Config{PipelineParallel: 49}},
		{"a stage without layers", dense70B(), deploy.Config{PipelineParallel: 79}},
		{"utilisation above one", dense70B(), deploy.Config{GPUMemoryUtilization: 1.5}},
		{"experts on more ranks than there are", moe30B(), deploy.Config{ExpertParallel: 8}},
		{"activations in four bits", dense70B(), deploy.Config{DType: catalog.FP4}},
		{"stages that do not hold all layers", dense70B(), deploy.Config{PipelineParallel: 2, PipelineLayers: []int{40, 39}}},
		{"unknown quantization", dense70B(), deploy.Config{Quantization: "int3"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			if _, err := cost.New(c.model, card(), c.config, cost.Settings{}); err == nil {
				t.Error("want an error")
			}
		})
	}
}

func TestWindows(t *testing.T) {
	full := dense70B()
	full.ParamsTotal = 0
	sliding := *full
	sliding.LayerPattern, sliding.Window = []string{catalog.SlidingAttention}, 100
	chunked := *full
	chunked.LayerPattern, chunked.Window = []string{catalog.ChunkedAttention}, 100
	// Brute force over queries and keys.
	count := func(q, c int, seen func(query, key int) bool) float64 {
		n := 0
		for i := c; i < c+q; i++ {
			for j := 0; j <= i; j++ {
				if seen(i, j) {
					n++
				}
			}
		}
		return float64(n)
	}
	for _, shape := range [][2]int{{1, 0}, {1, 99}, {1, 100}, {1, 250}, {64, 0}, {64, 70}, {250, 0}, {250, 130}, {100, 200}} {
		q, c := shape[0], shape[1]
		for _, kind := range []struct {
			m    *catalog.Model
			seen func(query, key int) bool
		}{
			{full, func(_, _ int) bool { return true }},
			{&sliding, func(query, key int) bool { return query-key < 100 }},
			{&chunked, func(query, key int) bool { return query/100 == key/100 }},
		} {
			e := newEstimator(t, kind.m, deploy.Config{}, cost.Settings{})
			want := unit.FLOPs(4 * 64 * 128 * count(q, c, kind.seen))
			got := find(t, e.Ops(forward.Prefill(1, q, c)), "attention").FLOPs
			if got != want {
				t.Errorf("%v, %d new after %d: got %.0f FLOPs, brute force %.0f", kind.m.LayerPattern, q, c, got, want)
			}
			if q == 1 {
				if got := find(t, e.Ops(forward.Decode(1, c)), "attention").FLOPs; got != want {
					t.Errorf("%v, decode after %d: got %.0f FLOPs, brute force %.0f", kind.m.LayerPattern, c, got, want)
				}
			}
		}
	}
}

func TestPipeline(t *testing.T) {
	one := newEstimator(t, dense70B(), deploy.Config{TensorParallel: 2}, cost.Settings{})
	two := newEstimator(t, dense70B(), deploy.Config{TensorParallel: 2, PipelineParallel: 4}, cost.Settings{})
	p := forward.Decode(8, 500)
	sends := find(t, two.Ops(p), "pipeline_send")
	if sends.Count != 3 {
		t.Errorf("4 stages of 2 ranks in one node: got %d transfers, want 3", sends.Count)
	}
	if got, want := two.Seconds(p), one.Seconds(p)+3*sends.Time; math.Abs(float64(got-want)) > 1e-12 {
		t.Errorf("stages never shorten a step: got %v, want %v", got, want)
	}
	if w := two.Memory(1, 16, 16).Weights; w > one.Memory(1, 16, 16).Weights/3 {
		t.Errorf("a stage of 20 of 80 layers holds %v", w)
	}
	fill := func(batch, parts int) *cost.Analysis {
		e := newEstimator(t, dense70B(), deploy.Config{TensorParallel: 2, PipelineParallel: 4}, cost.Settings{MicroBatches: parts})
		a, err := e.Analyze(cost.Request{Batch: batch, Input: 2048, Output: 2})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, b := fill(8, 1), fill(8, 8)
	// With m parts on p equal stages the time falls towards (p+m−1)/(p·m).
	if ratio := float64(b.TTFT / a.TTFT); ratio < 11.0/32 || ratio > 1.3*11/32 {
		t.Errorf("8 micro-batches on 4 stages: TTFT ratio %.3f, want just above (4+8−1)/(4·8) = %.3f", ratio, 11.0/32)
	}
	if math.Abs(a.Prefill.Bubble-3.0/4) > 0.01 || math.Abs(b.Prefill.Bubble-3.0/11) > 0.03 {
		t.Errorf("bubble: got %.3f and %.3f, want (p−1)/(m+p−1) = %.3f and %.3f", a.Prefill.Bubble, b.Prefill.Bubble, 3.0/4, 3.0/11)
	}
	if c := fill(9, 8); c.TTFT >= a.TTFT*9/8 {
		t.Errorf("9 requests in parts of 2 take %v, 8 in one part %v", c.TTFT, a.TTFT)
	}
	if a.PipelinedTokensPerSecond < 3.5*a.DecodeTokensPerSecond || a.PipelinedTokensPerSecond > 4.1*a.DecodeTokensPerSecond {
		t.Errorf("4 batches in flight on 4 stages: %.0f tok/s after %.0f", a.PipelinedTokensPerSecond, a.DecodeTokensPerSecond)
	}
	given := newEstimator(t, dense70B(), deploy.Config{PipelineParallel: 3, PipelineLayers: []int{30, 26, 24}}, cost.Settings{})
	even := newEstimator(t, dense70B(), deploy.Config{PipelineParallel: 3}, cost.Settings{})
	if g, e := given.Memory(1, 16, 16).Weights, even.Memory(1, 16, 16).Weights; g <= e {
		t.Errorf("a stage of 30 layers holds %v, one of 27 %v", g, e)
	}
}

// Utilisation counts the peak of the format that multiplies, over all devices.
func TestUtilisationStaysBelowTheEfficiency(t *testing.T) {
	device := card()
	device.Peaks[catalog.FP8] = quantity(624e12)
	for _, c := range []struct {
		why      string
		config   deploy.Config
		settings cost.Settings
	}{
		{"plain", deploy.Config{}, cost.Settings{}},
		{"fp8 at its own peak", deploy.Config{Quantization: "fp8"}, cost.Settings{EffCompute: 0.95}},
		{"four stages", deploy.Config{PipelineParallel: 4}, cost.Settings{MicroBatches: 8}},
	} {
		t.Run(c.why, func(t *testing.T) {
			e, err := cost.New(dense70B(), device, c.config, c.settings)
			if err != nil {
				t.Fatal(err)
			}
			a, err := e.Analyze(cost.Request{Batch: 16, Input: 2048, Output: 8})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range []float64{a.Prefill.MFU, a.Decode.MFU} {
				if u <= 0 || u > a.Settings.EffCompute {
					t.Errorf("MFU %.3f with a compute efficiency of %g", u, a.Settings.EffCompute)
				}
			}
			if a.Decode.MBU > a.Settings.EffHBM {
				t.Errorf("MBU %.3f with a memory efficiency of %g", a.Decode.MBU, a.Settings.EffHBM)
			}
		})
	}
}

// A device of a mesh reaches one neighbour over one of its links.
func TestMeshLinks(t *testing.T) {
	device := card()
	device.Link.Topology = "mesh"
	slow, err := cost.New(dense70B(), device, deploy.Config{TensorParallel: 2}, cost.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	fast := newEstimator(t, dense70B(), deploy.Config{TensorParallel: 2}, cost.Settings{})
	p := forward.Prefill(1, 4096, 0)
	a, b := find(t, slow.Ops(p), "ffn_all_reduce").Network, find(t, fast.Ops(p), "ffn_all_reduce").Network
	if ratio := float64(a / b); ratio < 6.5 || ratio > 7.1 {
		t.Errorf("two of eight devices on one of seven links: %v against %v, ratio %.2f", a, b, ratio)
	}
}

// The capacity does not depend on the batch that was asked.
func TestCapacity(t *testing.T) {
	e := newEstimator(t, moe30B(), deploy.Config{TensorParallel: 4}, cost.Settings{})
	var seen int
	for _, batch := range []int{1, 40, 2000} {
		a, err := e.Analyze(cost.Request{Batch: batch, Input: 2000, Output: 48})
		if err != nil {
			t.Fatal(err)
		}
		if seen == 0 {
			seen = a.MaxBatch
		}
		if a.MaxBatch != seen || a.Fits != (batch <= seen) {
			t.Errorf("batch %d: fits %v, %d fit; asked for one, %d fitted", batch, a.Fits, a.MaxBatch, seen)
		}
	}
	if !e.Memory(seen, 2048, 2000*seen).Fits() || e.Memory(seen+1, 2048, 2000*(seen+1)).Fits() {
		t.Errorf("%d is not the largest batch that fits", seen)
	}
}

// FLOPs of the head count the vocabulary, its storage the padding too.
func TestPaddedVocabulary(t *testing.T) {
	m := dense70B()
	m.VocabSize, m.ParamsTotal = 32001, 0
	e := newEstimator(t, m, deploy.Config{DType: catalog.BF16}, cost.Settings{})
	head := find(t, e.Ops(forward.Decode(3, 10)), "lm_head")
	if want := unit.FLOPs(2 * 3 * 8192 * 32001); head.FLOPs != want {
		t.Errorf("FLOPs: got %.0f, want %.0f", head.FLOPs, want)
	}
	if want := unit.Bytes(2 * 8192 * 32064); head.Bytes < want {
		t.Errorf("bytes: got %d, want at least the padded weights, %d", head.Bytes, want)
	}
}

// A listed context costs a window what it can see, not the mean.
func TestListedContexts(t *testing.T) {
	m := dense70B()
	m.ParamsTotal, m.LayerPattern, m.Window = 0, []string{catalog.SlidingAttention}, 100
	e := newEstimator(t, m, deploy.Config{}, cost.Settings{})
	p := forward.Pass{Decode: forward.Sequences{Count: 2, SumContext: 1000}, DecodeContexts: []int{10, 990}}
	if got, want := find(t, e.Ops(p), "attention").FLOPs, unit.FLOPs(4*64*128*(11+100)); got != want {
		t.Errorf("got %.0f FLOPs, want %.0f", got, want)
	}
}

func TestKnobsOfTheSpecification(t *testing.T) {
	p := forward.Decode(32, 2000)
	base := newEstimator(t, dense70B(), deploy.Config{}, cost.Settings{})
	shared := newEstimator(t, dense70B(), deploy.Config{}, cost.Settings{SharedPrefix: 1000})
	a, b := find(t, base.Ops(p), "attention").Bytes, find(t, shared.Ops(p), "attention").Bytes
	if want := unit.Bytes(31 * 1000 * 2 * 8 * 128 * 2); a-b != want {
		t.Errorf("31 of 32 sequences do not read the 1000 shared tokens again: saved %d bytes, want %d", a-b, want)
	}
	quantised := newEstimator(t, dense70B(), deploy.Config{Quantization: "q4_k", QuantizeEmbeddings: true}, cost.Settings{})
	plain := newEstimator(t, dense70B(), deploy.Config{Quantization: "q4_k"}, cost.Settings{})
	saved := plain.Memory(1, 16, 16).Weights - quantised.Memory(1, 16, 16).Weights
	if want := unit.Bytes(2 * 32000 * 8192 * (16 - 4.5) / 8); saved != want {
		t.Errorf("quantised embedding and head save %d bytes, want %d", saved, want)
	}
	ep := deploy.Config{TensorParallel: 4, ExpertParallel: 4}
	each := newEstimator(t, moe30B(), ep, cost.Settings{})
	once := newEstimator(t, moe30B(), ep, cost.Settings{DispatchOnce: true})
	prefill := forward.Prefill(1, 4000, 0)
	x, y := find(t, each.Ops(prefill), "dispatch_all_to_all").Message, find(t, once.Ops(prefill), "dispatch_all_to_all").Message
	if ratio, want := float64(y)/float64(x), 4*(1-math.Pow(0.75, 8))/8; math.Abs(ratio-want) > 1e-6 {
		t.Errorf("one copy a rank: ratio %.4f, want %.4f", ratio, want)
	}
}

func TestSecondsDoesNotAllocate(t *testing.T) {
	for _, m := range []*catalog.Model{dense70B(), moe30B(), latent671B()} {
		e := newEstimator(t, m, deploy.Config{TensorParallel: 8}, cost.Settings{})
		p := forward.Decode(64, 1000)
		if n := testing.AllocsPerRun(100, func() { e.Seconds(p) }); n != 0 {
			t.Errorf("%s: %v allocations a pass, want none", m.Name, n)
		}
	}
}

func BenchmarkSeconds(b *testing.B) {
	for _, m := range []*catalog.Model{dense70B(), moe30B(), latent671B()} {
		b.Run(m.Name, func(b *testing.B) {
			e := newEstimator(b, m, deploy.Config{TensorParallel: 8}, cost.Settings{})
			p := forward.Pass{Prefill: []forward.Chunk{{Count: 1, New: 512, Context: 1024}}, Decode: forward.Sequences{Count: 64, SumContext: 64000}}
			b.ReportAllocs()
			for b.Loop() {
				e.Seconds(p)
			}
		})
	}
}
