package llmsizer

import (
	"errors"
	"fmt"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/unit"
)

// Version selects a calculator.
type Version string

// The calculators.
const (
	// ScriptV1 is the "current formula" of the profiling scripts at 2c8af80.
	ScriptV1 Version = "script-v1"
	// ScriptV2 is the "proposed formula" of the same scripts.
	ScriptV2 Version = "script-v2"
	// AppEarly is the web app at commit 2c8af80.
	AppEarly Version = "app-2c8af80"
	// AppLate is the web app at commit 83714cf, with formulas of 159409d.
	AppLate Version = "app-83714cf"
)

// Versions lists the calculators, oldest first.
func Versions() []Version { return []Version{ScriptV1, ScriptV2, AppEarly, AppLate} }

// ParseVersion reads the name of a calculator.
func ParseVersion(s string) (Version, error) {
	for _, v := range Versions() {
		if s == string(v) {
			return v, nil
		}
	}
	return "", fmt.Errorf("llm-sizer version %q: want one of %s", s, unit.List(Versions()))
}

// PerGPU reports whether the sizes are those of one GPU, as the scripts'; the
// app's are sums over all of them.
func (v Version) PerGPU() bool { return v == ScriptV1 || v == ScriptV2 }

// Model is what the calculators know of a model. 0 means not known.
type Model struct {
	// Params is the number of parameters.
	Params float64
	// Layers, Heads and KVHeads are counts, HeadDim, Hidden and Intermediate
	// widths in elements.
	Layers, Heads, KVHeads, HeadDim, Hidden, Intermediate int
}

// GPU is what the calculators know of a GPU. 0 means not known.
type GPU struct {
	// MemoryGB is in GB of 1e9 bytes.
	MemoryGB float64
	// BandwidthGBps is in GB/s.
	BandwidthGBps float64
	// FP16TFLOPS and FP8TFLOPS are peaks in TFLOP/s.
	FP16TFLOPS, FP8TFLOPS float64
}

// Input is what is calculated.
type Input struct {
	Version Version
	Model   Model
	// GPU is needed for the app's [Fill] and [Speed] only; with the zero value
	// these are left out.
	GPU GPU
	// Weights and KV are the stored formats; empty means 16 bits.
	Weights, KV catalog.DType
	// Batch is the number of sequences, Tokens the length of each, prompt and
	// output together.
	Batch, Tokens int
	// Users multiplies the batch in the app; 0 means 1. The scripts have none.
	Users int
	// GPUs is the number of GPUs; 0 means 1.
	GPUs int
}

func (in Input) withDefaults() Input {
	in.Weights, in.KV = or16(in.Weights), or16(in.KV)
	in.Users, in.GPUs = max(in.Users, 1), max(in.GPUs, 1)
	return in
}

// or16 is the tool's reading of a format that is left to the engine.
func or16(t catalog.DType) catalog.DType {
	if t == "" {
		return catalog.FP16
	}
	return t
}

const (
	// maxSize bounds every count.
	maxSize = 1 << 31
	// maxFigure bounds parameters and the figures of a GPU in their units.
	maxFigure = 1e15
)

// faults collects what makes an input unusable.
type faults []error

func (f *faults) size(name string, v, low int) {
	if v < low || v > maxSize {
		*f = append(*f, fmt.Errorf("%s is %d: want %d to %d", name, v, low, maxSize))
	}
}

func (f *faults) figure(name string, v float64, positive bool) {
	if !(v >= 0 && v <= maxFigure) || positive && v == 0 {
		*f = append(*f, fmt.Errorf("%s is %g: want a positive number up to %g", name, v, float64(maxFigure)))
	}
}

func (f *faults) format(what string, t catalog.DType, known ...catalog.DType) {
	for _, k := range known {
		if t == k {
			return
		}
	}
	*f = append(*f, fmt.Errorf("%s in %s: the calculator knows %s", what, t, unit.List(known)))
}

// Validate reports all that makes the input unusable.
func (in Input) Validate() error {
	if in.Users < 0 || in.GPUs < 0 {
		return fmt.Errorf("calculate %s of llm-sizer: %d users on %d GPUs: want none negative", in.Version, in.Users, in.GPUs)
	}
	in = in.withDefaults()
	var f faults
	if _, err := ParseVersion(string(in.Version)); err != nil {
		return err
	}
	f.figure("number of parameters", in.Model.Params, true)
	f.size("layers", in.Model.Layers, 1)
	f.size("hidden size", in.Model.Hidden, 1)
	f.size("KV heads", in.Model.KVHeads, 0)
	f.size("intermediate size", in.Model.Intermediate, 0)
	heads := 0
	if in.Version == AppLate {
		heads = 1
	}
	f.size("heads", in.Model.Heads, heads)
	f.figure("GPU memory in GB", in.GPU.MemoryGB, false)
	f.figure("GPU bandwidth in GB/s", in.GPU.BandwidthGBps, false)
	f.figure("GPU fp16 peak in TFLOP/s", in.GPU.FP16TFLOPS, false)
	f.figure("GPU fp8 peak in TFLOP/s", in.GPU.FP8TFLOPS, false)
	f.format("weights", in.Weights, catalog.FP32, catalog.FP16, catalog.BF16, catalog.FP8, catalog.INT8, catalog.INT4, catalog.FP4)
	if in.Version.PerGPU() {
		f.format("KV cache", in.KV, catalog.FP32, catalog.FP16, catalog.BF16, catalog.FP8)
	} else {
		f.format("KV cache", in.KV, catalog.FP16, catalog.BF16, catalog.FP8, catalog.INT8)
	}
	f.size("batch size", in.Batch, 1)
	f.size("tokens", in.Tokens, 1)
	f.size("users", in.Users, 1)
	f.size("GPUs", in.GPUs, 1)
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("calculate %s of llm-sizer: %w", in.Version, errors.Join(f...))
}
