package campaign

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// usualStep is assumed for the tokens in one step of vLLM where nothing states
// them: its own defaults are 2048 to 16384, by device and way of use.
const usualStep = 8192

// priced makes the estimator of a cell's deployment, once for each load.
func (p *planner) priced(c Cell, m *catalog.Model, d *catalog.Device) priced {
	key := c.LoadKey()
	if known, ok := p.estimators[key]; ok {
		return known
	}
	var made priced
	config := deploy.Config{
		Engine: c.Engine, TensorParallel: c.TensorParallel, PipelineParallel: c.PipelineParallel, Quantization: c.Quantization,
		GPUMemoryUtilization: c.GPUMemoryUtilization, BlockSize: c.BlockSize, MaxModelLen: c.MaxModelLen,
	}
	switch t, _ := catalog.ParseDType(c.DType); t {
	case catalog.FP8:
		if config.Quantization == "" {
			config.Quantization = "fp8"
		}
	case "":
		if m.DType.Bits() >= 16 {
			config.DType = m.DType
		}
	default:
		config.DType = t
	}
	if c.KVCacheDType != "" {
		config.KVCacheDType, made.err = catalog.ParseDType(c.KVCacheDType)
	}
	step, stated := stepTokens(c)
	if !stated && c.Engine == "vllm" {
		step = usualStep
		made.notes = append(made.notes, fmt.Sprintf("prompts are taken to be computed in steps of %d tokens", step))
	}
	config.MaxNumBatchedTokens = step
	if made.err == nil {
		made.estimator, made.err = cost.New(m, d, config, p.Settings)
	}
	if made.err == nil {
		made.notes = append(made.notes, made.estimator.Warnings()...)
	}
	p.estimators[key] = made
	return made
}

// stepTokens finds the tokens of a step: what the engine's arguments say wins.
func stepTokens(c Cell) (tokens int, stated bool) {
	args := c.EngineArgs
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if name != "--max-num-batched-tokens" {
			continue
		}
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		if n, err := unit.ParseCount(value); err == nil && n > 0 {
			return n, true
		}
	}
	return c.MaxNumBatchedTokens, c.MaxNumBatchedTokens > 0
}

// rough predicts without a device: weights and KV cache as far as the model,
// or else the file's own facts, go. m may be nil.
func rough(c Cell, m *catalog.Model) Prediction {
	var p Prediction
	weights, why := roughWeights(c, m)
	p.Weights = weights
	p.note(why)
	kv, why := roughKV(c, m)
	p.KVCache = kv
	p.note(why)
	p.note("activations and time need architecture and device")
	if p.Weights != nil || p.KVCache != nil {
		p.Basis = stat.Theoretical
	}
	return p
}

func (p *Prediction) note(text string) {
	if text != "" {
		p.Notes = append(p.Notes, text)
	}
}

// roughWeights is the storage of the parameters on one device, with a note on
// how far it can be trusted, or on why there is none.
func roughWeights(c Cell, m *catalog.Model) (*unit.Bytes, string) {
	params, quantization, note := c.Architecture.Params, c.Quantization, ""
	if m != nil {
		params = float64(m.Params().Total)
		if quantization == "" {
			quantization = m.Quantization
		}
	}
	dtype, err := catalog.ParseDType(c.DType)
	switch {
	case params == 0:
		return nil, "weights: the number of parameters is not known"
	case err != nil && m != nil && m.DType != "":
		dtype = m.DType
	case err != nil:
		return nil, "weights: the format of the checkpoint is not known"
	}
	if dtype == catalog.FP8 && quantization == "" {
		dtype, quantization = catalog.FP16, "fp8"
	}
	format, err := deploy.ParseWeightFormat(quantization, dtype)
	switch {
	case err != nil:
		return nil, "weights: " + err.Error()
	case format.ExpertsOnly:
		return nil, "weights: only the experts are stored in " + format.Name
	case quantization != "":
		note = "weights: all parameters counted in " + format.Name + ", although embeddings may be wider"
	case m == nil:
		note = fmt.Sprintf("weights: model_params of the file in %s; less if the checkpoint is quantized", c.DType)
	}
	return bytesOf(params * format.Bits / 8 / float64(max(c.TensorParallel, 1)*max(c.PipelineParallel, 1))), note
}

// roughKV is the KV cache of the whole batch on one device, with a note on how
// far it can be trusted, or on why there is none.
func roughKV(c Cell, m *catalog.Model) (*unit.Bytes, string) {
	dtype, err := catalog.ParseDType(c.KVCacheDType)
	if c.KVCacheDType == "" {
		if dtype, err = catalog.ParseDType(c.DType); err != nil && m != nil && m.DType != "" {
			dtype, err = m.DType, nil
		}
		if dtype == catalog.FP8 { // weights are narrower than what is computed
			dtype = catalog.FP16
		}
	}
	if err != nil {
		return nil, "KV cache: the format of the cache is not known"
	}
	tp, pp := max(c.TensorParallel, 1), max(c.PipelineParallel, 1)
	elements, note := givenKV(c.Architecture, tp, pp)
	if m != nil {
		elements, note = knownKV(m, tp, pp)
	}
	if elements == 0 {
		return nil, note
	}
	length := c.InputLen + c.OutputLen
	if b := c.BlockSize; b > 0 {
		length = (length + b - 1) / b * b
	}
	return bytesOf(elements * dtype.Bytes() * float64(length) * float64(c.BatchSize)), note
}

// givenKV is the number of elements that one device caches for a token, by
// what the file says.
func givenKV(a Architecture, tp, pp int) (elements float64, note string) {
	stated := deploy.Stated{Layers: perRank(a.NumLayers, pp), Heads: a.NumHeads, KVHeads: a.NumKVHeads, HeadDim: a.HeadDim, HiddenSize: a.HiddenSize}
	elements, bound := stated.KVElements(tp)
	switch {
	case elements == 0:
		return 0, "KV cache: layers, KV heads and head size are not known"
	case bound:
		note = "KV cache: an upper bound, with all heads in place of the KV heads; give num_kv_heads"
	}
	return elements, note
}

// knownKV is the same by the architecture.
func knownKV(m *catalog.Model, tp, pp int) (elements float64, note string) {
	elements = float64(m.KVElementsPerToken())
	if m.NumLayers > 0 {
		elements *= float64(perRank(m.NumLayers, pp)) / float64(m.NumLayers)
	}
	if slices.Contains(m.LayerPattern, catalog.SlidingAttention) || slices.Contains(m.LayerPattern, catalog.ChunkedAttention) {
		note = "KV cache: an upper bound, without regard to windows"
	}
	if m.MLA == nil && m.NumKVHeads > 0 {
		elements *= float64(perRank(m.NumKVHeads, tp)) / float64(m.NumKVHeads)
	}
	return elements, note
}

// perRank is the largest share of heads or layers that one of n devices has.
func perRank(parts, n int) int { return (parts + n - 1) / n }

// bytesOf rounds to whole bytes; nil beyond what can be counted.
func bytesOf(v float64) *unit.Bytes {
	if !(v >= 0 && v < math.MaxInt64/4) {
		return nil
	}
	b := unit.Bytes(math.Round(v))
	return &b
}
