package sglang

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

// optionError says that something is asked for which would not be applied.
type optionError struct{ what, advice string }

// Error names the flag.
func (e *optionError) Error() string { return e.what }

// Hint says what to use instead.
func (e *optionError) Hint() string { return e.advice }

// dtypes are SGLang's names of the formats that it computes in.
func dtypes() map[catalog.DType]string {
	return map[catalog.DType]string{catalog.BF16: "bfloat16", catalog.FP16: "float16", catalog.FP32: "float32"}
}

// refuse finds what a setup asks for and the command line cannot say, so that
// no profile claims a deployment that did not run.
func refuse(setup engine.Setup) error {
	d := setup.Deploy
	for _, c := range []struct {
		asked        bool
		what, advice string
	}{
		{d.PipelineParallel > 1, fmt.Sprintf("--pipeline-parallel-size %d: sglang.bench_one_batch runs one stage whatever it is told", d.PipelineParallel), "leave it out; --tensor-parallel-size spreads the model over devices"},
		{len(d.PipelineLayers) > 0, "layers of pipeline stages: sglang.bench_one_batch runs one stage", "leave them out"},
		{d.DataParallel > 1, fmt.Sprintf("data parallel size %d: sglang.bench_one_batch runs one replica", d.DataParallel), "leave it out"},
		{d.ExpertParallel > 1, fmt.Sprintf("expert parallel size %d is not passed on", d.ExpertParallel), fmt.Sprintf("--engine-arg --ep-size --engine-arg %d", d.ExpertParallel)},
		{d.DType != "" && dtypes()[d.DType] == "", fmt.Sprintf("--dtype %s: SGLang computes in bf16, fp16 or fp32", d.DType), fmt.Sprintf("for quantised weights: --engine-arg --quantization --engine-arg %s", d.DType)},
		{strings.EqualFold(d.Quantization, "none"), "quantization none: SGLang loads a checkpoint in the format that it has", "leave it out"},
		{d.QuantizeEmbeddings, "quantised embeddings: SGLang keeps them in the format of the activations", "leave it out"},
		{d.KVCacheDType != "", fmt.Sprintf("KV cache of %s: SGLang's formats have names of their own", d.KVCacheDType), "--engine-arg --kv-cache-dtype --engine-arg fp8_e5m2, or another that SGLang knows"},
		{d.GPUMemoryUtilization != 0, fmt.Sprintf("--gpu-memory-utilization %g: SGLang's share is another, of weights and KV cache alone", d.GPUMemoryUtilization), "--engine-arg --mem-fraction-static --engine-arg 0.8"},
		{d.MaxNumBatchedTokens != 0, fmt.Sprintf("--max-num-batched-tokens %d: sglang.bench_one_batch computes all prompts of a batch in one step", d.MaxNumBatchedTokens), "leave it out, or bound the grid"},
		{setup.Threads > 0, fmt.Sprintf("--threads %d is not passed on", setup.Threads), fmt.Sprintf("--engine-env OMP_NUM_THREADS=%d", setup.Threads)},
		{setup.Clock != "" && setup.Clock != profile.ClockWall, fmt.Sprintf("--clock %s: SGLang times with the clock %s", setup.Clock, profile.ClockWall), "leave it out"},
	} {
		if c.asked {
			return &optionError{c.what, c.advice}
		}
	}
	// A flag that stands twice means its last value, which nothing would record.
	own := append(arguments(setup), "--batch-size", "--input-len", "--output-len", "--result-filename", "--run-name")
	for _, arg := range setup.Args {
		name, _, _ := strings.Cut(arg, "=")
		if name == "--tp" {
			name = "--tp-size"
		}
		if strings.HasPrefix(name, "--") && slices.Contains(own, name) {
			return &optionError{fmt.Sprintf("--engine-arg %s: %s is on the command line already", arg, name), cmp.Or(flagFor(name), "leave it out")}
		}
	}
	return nil
}

// flagFor is the advice to use llmprof's own flag for one of SGLang's, empty
// where it has none.
func flagFor(name string) string {
	own := map[string]string{
		"--tp-size": "--tensor-parallel-size", "--context-length": "--max-model-len", "--page-size": "--block-size",
		"--dtype": "--dtype", "--device": "--device", "--load-format": "--weights",
	}[name]
	if own == "" {
		return ""
	}
	return "use " + own
}

// applied is the deployment that the command line asks for, and nothing else.
func applied(setup engine.Setup, version string) deploy.Config {
	d := setup.Deploy
	return deploy.Config{
		Model: cmp.Or(d.Model, setup.Model), Engine: "sglang", EngineVersion: version,
		TensorParallel: d.TensorParallel, PipelineParallel: d.PipelineParallel, // of which there is no more than 1
		MaxModelLen: d.MaxModelLen, BlockSize: d.BlockSize, DType: d.DType,
		Quantization: d.Quantization, MemFractionStatic: d.MemFractionStatic,
	}
}

// arguments are those of model and deployment.
func arguments(setup engine.Setup) []string {
	d := setup.Deploy
	argv := []string{"--model-path", setup.Model}
	if !setup.LoadWeights {
		argv = append(argv, "--load-format", "dummy")
	}
	number := func(flag string, v int) {
		if v > 0 {
			argv = append(argv, flag, strconv.Itoa(v))
		}
	}
	text := func(flag, v string) {
		if v != "" {
			argv = append(argv, flag, v)
		}
	}
	number("--tp-size", d.TensorParallel)
	number("--context-length", d.MaxModelLen)
	number("--page-size", d.BlockSize)
	if d.MemFractionStatic > 0 {
		text("--mem-fraction-static", strconv.FormatFloat(d.MemFractionStatic, 'g', -1, 64))
	}
	text("--dtype", dtypes()[d.DType])
	text("--quantization", d.Quantization)
	text("--device", setup.Device)
	return argv
}

// argv is the command line of a rectangle.
func (s *session) argv(r *rectangle, result string) []string {
	argv := append([]string{s.python, "-m", "sglang.bench_one_batch"}, arguments(s.setup)...)
	argv = append(argv, "--run-name", "llmprof", "--result-filename", result, "--batch-size")
	for _, b := range r.batches {
		argv = append(argv, strconv.Itoa(b))
	}
	argv = append(argv, "--input-len")
	for _, i := range r.inputs {
		for range r.rows() {
			argv = append(argv, strconv.Itoa(i))
		}
	}
	argv = append(argv, "--output-len", strconv.Itoa(r.output))
	if s.setup.CUDAGraphs {
		argv = append(argv, "--cuda-graph-max-bs", strconv.Itoa(slices.Max(r.batches)))
	}
	return append(argv, s.setup.Args...)
}
