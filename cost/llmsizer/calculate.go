package llmsizer

import "math"

// Memory is a calculated need in GB of 1e9 bytes: of one GPU where
// [Version.PerGPU] says so, of all together otherwise.
type Memory struct {
	// The parts, in GB. MultiGPU is what using several GPUs costs.
	Weights     float64 `json:"baseWeights"`
	Activations float64 `json:"activations"`
	KVCache     float64 `json:"kvCache"`
	Overhead    float64 `json:"frameworkOverhead"`
	MultiGPU    float64 `json:"multiGPUOverhead"`
}

// Total is the sum of the parts in GB.
func (m Memory) Total() float64 {
	return m.Weights + m.KVCache + m.Activations + m.Overhead + m.MultiGPU
}

// need is what weights, KV cache and activations take, in GB.
func (m Memory) need() float64 { return m.Weights + m.KVCache + m.Activations }

// Result is what a calculator says of an [Input].
type Result struct {
	Memory Memory `json:"breakdown"`
	// Fill and Speed are nil for the scripts, and where the figures of the GPU
	// that they need are not known.
	Fill  *Fill  `json:"fill,omitempty"`
	Speed *Speed `json:"perf,omitempty"`
}

// Calculate computes the memory, and for the app with a known GPU the rest.
// The error is that of [Input.Validate].
func Calculate(in Input) (Result, error) {
	if err := in.Validate(); err != nil {
		return Result{}, err
	}
	in = in.withDefaults()
	var r Result
	switch in.Version {
	case ScriptV1, ScriptV2:
		r.Memory = in.script()
		return r, nil
	case AppEarly:
		r.Memory = in.appEarly()
	default:
		r.Memory = in.appLate()
	}
	if in.GPU.MemoryGB > 0 {
		r.Fill = fillOf(r.Memory.Total(), in.GPU.MemoryGB*float64(in.GPUs))
		if in.GPU.FP16TFLOPS > 0 && in.GPU.BandwidthGBps > 0 {
			r.Speed = in.speed(r.Fill.Percent)
		}
	}
	return r, nil
}

// script is the formula of both scripts, which differ in the overhead.
func (in Input) script() Memory {
	m, n, b := in.Model, float64(in.GPUs), float64(in.Batch)
	out := Memory{
		Weights:     m.Params * in.Weights.Bytes() / (n * 1e9),
		KVCache:     2 * float64(m.Layers) * float64(m.Hidden) * float64(in.Tokens) * b * in.KV.Bytes() / n / 1e9,
		Activations: b * float64(in.Tokens) * float64(m.Hidden) * 8 * 2 / 1e9,
	}
	if in.Version == ScriptV1 {
		out.Overhead = 0.08 * out.need()
		return out
	}
	out.Overhead = 14 + 0.05*out.need() + 0.002*math.Log2(b)*out.need()
	out.MultiGPU = out.Weights / n * 0.15 * (n - 1)
	return out
}

// cached is the number of tokens in the cache.
func (in Input) cached() float64 {
	return float64(in.Batch) * float64(in.Tokens) * float64(in.Users)
}

func (in Input) appEarly() Memory {
	m, n := in.Model, float64(in.GPUs)
	layers, hidden := float64(m.Layers), float64(m.Hidden)
	out := Memory{
		Weights:     m.Params * float64(in.Weights.Bits()) / 8 / 1e9,
		KVCache:     2 * layers * hidden * in.KV.Bytes() * in.cached() / 1e9,
		Activations: float64(in.Batch) * float64(in.Tokens) * hidden * layers * 4 / n / 1e9,
	}
	out.Overhead = 0.08 * out.need()
	out.MultiGPU = (out.need() + out.Overhead) * 0.02 * (n - 1)
	return out
}

func (in Input) appLate() Memory {
	m, n := in.Model, float64(in.GPUs)
	kvHeads, width := m.KVHeads, m.Intermediate
	if kvHeads == 0 {
		kvHeads = m.Heads
	}
	if width == 0 {
		width = 4 * m.Hidden
	}
	kvWidth := float64(kvHeads) * float64(m.Hidden) / float64(m.Heads)
	out := Memory{
		Weights:     m.Params * float64(in.Weights.Bits()) / 8 / 1e9,
		KVCache:     2 * float64(m.Layers) * kvWidth * in.KV.Bytes() * in.cached() / 1e9,
		Activations: float64(in.Batch) * float64(in.Tokens) * float64(width) * 2 / n / 1e9,
	}
	out.Overhead = 1.5 + 0.05*out.need() + 0.5*(n-1)
	out.MultiGPU = out.Weights * 0.01 * (n - 1)
	return out
}
