package engine

import (
	"context"

	"github.com/llmprof/llmprof/profile"
)

// ProbeProgram drives any program that speaks the probe protocol on its stdin
// and stdout: Setup.Program, started with Setup.Args.
func ProbeProgram() Driver { return probeProgram{} }

type probeProgram struct{}

func (probeProgram) Name() string { return "probe" }

func (probeProgram) Abilities() Abilities {
	return Abilities{Steps: true, Layers: true, Clocks: []profile.Clock{profile.ClockDevice, profile.ClockWall, profile.ClockCPU}}
}

func (probeProgram) Start(ctx context.Context, place Place, setup Setup) (Session, error) {
	if setup.Program == "" {
		return nil, &UnusableError{Problem: ProgramMissing, What: "probe", Remedy: "name the program that speaks the probe protocol: --program PATH"}
	}
	return StartProbe(ctx, place, Command{Argv: append([]string{setup.Program}, setup.Args...), Env: setup.Env, Stderr: setup.Log}, setup)
}
