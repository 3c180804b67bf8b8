package main

import (
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/sim/launch"
)

// engineKV is the KV cache that the newest known vLLM would have of a
// deployment, with its own defaults for what was not given; nil where it would
// not start.
func (f *analyzeFlags) engineKV(a *cost.Analysis) *report.EngineKV {
	c := a.Config
	c.Engine, c.EngineVersion, c.MaxNumSeqs, c.MemFractionStatic = "", "", 0, 0
	if !f.given("gpu-memory-utilization") {
		c.GPUMemoryUtilization = 0
	}
	if !f.given("block-size") {
		c.BlockSize = 0
	}
	if !f.given("max-model-len") {
		c.MaxModelLen = 0
	}
	r, err := launch.VLLM(launch.Ask{Model: a.Model, Device: a.Device, Config: c, Costs: a.Settings})
	if err != nil {
		return nil
	}
	return &report.EngineKV{
		Engine: "vllm", Release: r.Scheduler.Release.String(), Tokens: r.Pool.Tokens,
		StepTokens: r.Scheduler.MaxNumBatchedTokens, Utilization: r.Scheduler.Utilization, Basis: string(r.Pool.Basis),
	}
}
