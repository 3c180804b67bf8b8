package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/profile"
)

// ProbeProgram drives any program that speaks the probe protocol on its stdin
// and stdout: Setup.Program, started with Setup.Args.
func ProbeProgram() Driver { return probeProgram{} }

// probeProgram is the driver; its program comes with the setup.
type probeProgram struct{}

// Name is "probe".
func (probeProgram) Name() string { return "probe" }

// Abilities are all that the protocol offers; what a program makes of them shows
// in its facts and results.
func (probeProgram) Abilities() Abilities {
	return Abilities{Steps: true, Layers: true, CUDAGraphs: true, Clocks: []profile.Clock{profile.ClockDevice, profile.ClockWall, profile.ClockCPU}}
}

// Check refuses what the protocol cannot ask for.
func (probeProgram) Check(setup Setup) error {
	fields := noRequest(setup.Deploy)
	if len(fields) == 0 {
		return nil
	}
	return &probeError{
		text: "the probe protocol has no request for " + strings.Join(fields, ", "),
		hint: "give it to the program in its own words: --engine-arg",
	}
}

// Start starts the program and waits until it is ready.
func (p probeProgram) Start(ctx context.Context, place Place, setup Setup) (Session, error) {
	if setup.Program == "" {
		return nil, &UnusableError{Problem: ProgramMissing, What: "probe", Remedy: "name the program that speaks the probe protocol: --program PATH"}
	}
	if err := p.Check(setup); err != nil {
		return nil, fmt.Errorf("start probe: %w", err)
	}
	return StartProbe(ctx, place, Command{Argv: append([]string{setup.Program}, setup.Args...), Env: setup.Env, Stderr: setup.Log}, setup)
}
