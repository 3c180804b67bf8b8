package llmprofiler

import (
	"errors"
	"fmt"
	"math"
)

// Version selects the state of the tool that is reproduced.
type Version string

// The two states that differ in their results.
const (
	// Seed is commit 4185809 (May 2025), whose example the tool's README
	// shows. It is the default.
	Seed Version = "4185809"
	// June2025 is commit 8c117d6.
	June2025 Version = "8c117d6"
)

// ParseVersion reads a version; empty text means [Seed].
func ParseVersion(s string) (Version, error) {
	switch v := Version(s); v {
	case "":
		return Seed, nil
	case Seed, June2025:
		return v, nil
	}
	return "", fmt.Errorf("compat version %q: want %s or %s", s, Seed, June2025)
}

// Input is what is analysed: a batch of equal requests on one deployment.
type Input struct {
	Model Model
	GPU   GPU
	// TP and PP are the tensor and pipeline parallel sizes.
	TP, PP int
	// Batch is the number of sequences.
	Batch int
	// InputLen and OutputLen are the prompt and generated tokens of each.
	InputLen, OutputLen int
	// BytesPerParam is the width of a weight in bytes; 0 means 2.
	BytesPerParam float64
	// Version is the state of the tool; empty means [Seed].
	Version Version
}

// withDefaults fills what was left out.
func (in Input) withDefaults() Input {
	if in.BytesPerParam == 0 {
		in.BytesPerParam = 2
	}
	if in.Version == "" {
		in.Version = Seed
	}
	return in
}

const (
	// maxSize bounds every size, so that sums of two cannot overflow.
	maxSize = 1 << 31
	// maxExperts bounds the experts, of which the graph draws one node each.
	maxExperts = 1 << 16
	// maxFigure bounds the figures of a GPU in their units.
	maxFigure = 1e9
	// maxInteger bounds every integer of an analysis.
	maxInteger = 1 << 62
)

// Validate reports all that makes the input unusable.
func (in Input) Validate() error {
	in = in.withDefaults()
	var faults []error
	size := func(name string, v, low int) {
		if v < low || v > maxSize {
			faults = append(faults, fmt.Errorf("%s is %d: want %d to %d", name, v, low, maxSize))
		}
	}
	figure := func(name string, v float64, required bool) {
		if !(v >= 0 && v <= maxFigure) || required && v < 1/maxFigure {
			faults = append(faults, fmt.Errorf("%s is %g: want a positive number up to %g", name, v, maxFigure))
		}
	}
	m, g := in.Model, in.GPU
	size("model layers", m.NumLayers, 1)
	size("model hidden size", m.HiddenSize, 1)
	size("model heads", m.NumHeads, 1)
	size("model KV heads", m.NumKVHeads, 1)
	size("model head size", m.HeadDim, 1)
	size("model intermediate size", m.IntermediateSize, 1)
	size("model vocabulary", m.VocabSize, 1)
	size("model maximum sequence length", m.MaxSeqLen, 1)
	if m.NumExperts < 0 || m.NumExperts > maxExperts {
		faults = append(faults, fmt.Errorf("model experts is %d: want 0 to %d", m.NumExperts, maxExperts))
	} else if m.ExpertsPerToken < min(m.NumExperts, 1) || m.ExpertsPerToken > m.NumExperts {
		faults = append(faults, fmt.Errorf("model experts per token is %d: want %d to %d", m.ExpertsPerToken, min(m.NumExperts, 1), m.NumExperts))
	}
	figure("gpu memory in GB", g.MemoryGB, true)
	figure("gpu memory bandwidth in GB/s", g.HBMGBps, true)
	figure("gpu fp16 peak in TFLOP/s", g.FP16TFLOPS, true)
	figure("gpu link in GB/s", g.IntraNodeGBps, in.TP > 1)
	figure("gpu message latency in s", g.MessageLatency, false)
	figure("bytes per parameter", in.BytesPerParam, true)
	size("tensor parallel size", in.TP, 1)
	size("pipeline parallel size", in.PP, 1)
	size("batch size", in.Batch, 1)
	size("input length", in.InputLen, 1)
	size("output length", in.OutputLen, 1)
	if in.PP > m.NumLayers && m.NumLayers > 0 {
		faults = append(faults, fmt.Errorf("pipeline parallel size %d exceeds the %d layers", in.PP, m.NumLayers))
	}
	if _, err := ParseVersion(string(in.Version)); err != nil {
		faults = append(faults, err)
	}
	if len(faults) == 0 {
		bound := shapeOf[float64](m).bound(float64(in.Batch), float64(in.InputLen), float64(in.OutputLen), float64(in.TP))
		if math.IsNaN(bound) || bound > maxInteger {
			faults = append(faults, fmt.Errorf("batch size %d with %d+%d tokens: the counts exceed 64-bit integers", in.Batch, in.InputLen, in.OutputLen))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("analyze %s on %s with llm-profiler: %w", m.Name, g.Name, errors.Join(faults...))
}
