package engine

import (
	"fmt"

	"github.com/llmprof/llmprof/profile"
)

// openRequest is the first request for a setup.
func openRequest(s Setup) probeOpen {
	return probeOpen{
		Op: "open", Schema: ProbeSchema, Version: ProbeVersion,
		Model: s.Model, DType: string(s.Deploy.DType), Device: s.Device, Clock: string(s.Clock),
		NumLayers: s.NumLayers, LoadWeights: s.LoadWeights, Threads: s.Threads, Seed: s.Seed,
		MaxBatch: s.MaxBatch, MaxInput: s.MaxInput, MaxOutput: s.MaxOutput, CUDAGraphs: s.CUDAGraphs,
		MaxModelLen: s.Deploy.MaxModelLen, MaxBatchedTokens: s.Deploy.MaxNumBatchedTokens,
		BlockSize: s.Deploy.BlockSize, TensorParallel: s.Deploy.TensorParallel, Args: s.Args,
	}
}

// readFacts checks a "ready" event and takes what it states.
func readFacts(e *probeEvent, setup Setup) (Facts, error) {
	if e.Schema != ProbeSchema || e.Version != ProbeVersion {
		return Facts{}, &probeError{
			text: fmt.Sprintf("the probe speaks %q version %d, this program %q version %d", e.Schema, e.Version, ProbeSchema, ProbeVersion),
			hint: "use the probe that belongs to this release of llmprof",
		}
	}
	clock := profile.Clock(e.Clock)
	switch clock {
	case profile.ClockWall, profile.ClockDevice, profile.ClockCPU:
	default:
		return Facts{}, &probeError{
			text: fmt.Sprintf("the probe times with clock %q: want %s, %s or %s", e.Clock, profile.ClockWall, profile.ClockDevice, profile.ClockCPU),
			hint: "use the probe that belongs to this release of llmprof",
		}
	}
	f := Facts{
		Engine: e.Engine, Version: e.EngineVersion, Libraries: e.Libraries,
		Device: profile.Device{Reported: e.Device, Count: max(e.DeviceCount, 0)}, Driver: e.Driver,
		Clock: clock, Timer: e.Timer, Resolution: max(e.ResolutionS, 0),
		MaxModelLen: max(e.MaxModelLen, 0), MaxTokens: max(e.MaxTokens, 0), MaxBatch: max(e.MaxBatch, 0),
		Layers: max(e.NumLayers, 0), Threads: max(e.Threads, 0), Warnings: e.Warnings,
	}
	running, unsure, err := runningDeploy(e, setup)
	if err != nil {
		return Facts{}, err
	}
	f.Deploy, f.Warnings = running, append(f.Warnings, unsure...)
	memory := e.Memory
	if e.WeightsBytes > 0 {
		memory = append([]profile.Memory{{Part: profile.MemoryWeights, Bytes: e.WeightsBytes}}, memory...)
	}
	f.Memory, unsure = memoryPoints(memory)
	f.Warnings = append(f.Warnings, unsure...)
	return f, nil
}

// memoryPoints are figures of memory as points; warnings name those that are of
// no use.
func memoryPoints(memory []profile.Memory) (points []profile.Point, warnings []string) {
	for i := range memory {
		p := profile.Point{Kind: profile.KindMemory, Memory: &memory[i]}
		if err := p.Validate(); err != nil {
			warnings = append(warnings, fmt.Sprintf("memory[%d] of the engine was left out: %v", i, err))
			continue
		}
		points = append(points, p)
	}
	return points, warnings
}
