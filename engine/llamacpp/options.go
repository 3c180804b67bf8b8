package llamacpp

import (
	"fmt"

	"github.com/llmprof/llmprof/engine"
)

// optionError says that something is asked for which would not be applied.
type optionError struct{ what, advice string }

// Error names the flag.
func (e *optionError) Error() string { return e.what }

// Hint says what to use instead.
func (e *optionError) Hint() string { return e.advice }

// option is something that a driver does not apply.
type option struct {
	asked        bool
	what, advice string
}

// refuse returns the first that is asked for, so that no profile claims a
// deployment that did not run.
func refuse(options ...option) error {
	for _, o := range options {
		if o.asked {
			return &optionError{o.what, o.advice}
		}
	}
	return nil
}

// common is what neither driver applies; split says how its engine spreads a
// model over devices.
func common(setup engine.Setup, split string) []option {
	const (
		leave     = "leave it out"
		otherFile = "leave it out; llama-quantize makes a file of other formats"
	)
	d := setup.Deploy
	return []option{
		{d.TensorParallel > 1, fmt.Sprintf("--tensor-parallel-size %d: llama.cpp has no ranks", d.TensorParallel), split},
		{d.PipelineParallel > 1 || len(d.PipelineLayers) > 0, fmt.Sprintf("--pipeline-parallel-size %d: llama.cpp has no stages of its own processes", max(d.PipelineParallel, len(d.PipelineLayers))), split},
		{d.DataParallel > 1, fmt.Sprintf("data parallel size %d: llama.cpp runs one replica", d.DataParallel), leave},
		{d.ExpertParallel > 1, fmt.Sprintf("expert parallel size %d: llama.cpp does not spread experts", d.ExpertParallel), leave},
		{d.DType != "", fmt.Sprintf("--dtype %s: a GGUF file has formats of its own", d.DType), otherFile},
		{d.Quantization != "" || d.QuantizeEmbeddings, fmt.Sprintf("quantization %q: a GGUF file has formats of its own", d.Quantization), otherFile},
		{d.BlockSize != 0, fmt.Sprintf("--block-size %d: llama.cpp's KV cache has no blocks", d.BlockSize), leave},
		{d.GPUMemoryUtilization != 0, fmt.Sprintf("--gpu-memory-utilization %g: llama.cpp takes the memory that it needs", d.GPUMemoryUtilization), leave},
		{d.MemFractionStatic != 0, fmt.Sprintf("a static share of memory of %g: llama.cpp takes the memory that it needs", d.MemFractionStatic), leave},
		{setup.NumLayers > 0, fmt.Sprintf("--num-layers %d: a GGUF file is measured as it is, it cannot be cut to its first %d layers", setup.NumLayers, setup.NumLayers), leave},
		{setup.CUDAGraphs, "--cuda-graphs: llama.cpp decides by itself whether it replays graphs", "leave it out; --engine-env GGML_CUDA_DISABLE_GRAPHS=1 keeps it from doing so"},
	}
}
