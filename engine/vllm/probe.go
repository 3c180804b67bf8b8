package vllm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

//go:embed probe.py
var probeSource string

// Probe measures in a Python process that holds vLLM: exact batches, each step
// timed from outside, by wall clock or by the process's CPU time. Setup.Program
// names the interpreter; see [engine.PythonCommand] for the one that is looked
// for.
type Probe struct{}

// Name is "vllm-probe".
func (Probe) Name() string { return "vllm-probe" }

// Abilities are steps by wall clock or CPU time.
func (Probe) Abilities() engine.Abilities {
	return engine.Abilities{Steps: true, CUDAGraphs: true, Clocks: []profile.Clock{profile.ClockWall, profile.ClockCPU}}
}

// Check refuses what would run as something else, and clocks that the process
// does not have.
func (Probe) Check(setup engine.Setup) error {
	if setup.Clock == profile.ClockDevice {
		return fmt.Errorf("start vllm-probe: clock %q: steps are timed by wall clock or CPU time", setup.Clock)
	}
	return unsupported(setup.Deploy)
}

// Start copies the probe to the place and starts it.
func (p Probe) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	if setup.Model == "" {
		return nil, &StartError{Reason: "no model is named", Remedy: "name a folder with a config.json or a hub id"}
	}
	if err := p.Check(setup); err != nil {
		return nil, err
	}
	dir, remove, err := place.TempDir(ctx)
	if err != nil {
		return nil, fmt.Errorf("start vllm-probe on %s: %w", place, err)
	}
	script := path.Join(dir, "vllm_probe.py")
	if err := place.CopyIn(ctx, script, strings.NewReader(probeSource), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("start vllm-probe on %s: %w", place, err), remove())
	}
	setup.Deploy.Engine = "vllm"
	m, folder := known(ctx, place, setup.Model)
	l := limitsOf(setup)
	if m != nil && m.MaxSeqLen > 0 && setup.Deploy.MaxModelLen == 0 {
		l.modelLen = min(l.modelLen, m.MaxSeqLen)
	}
	low, high := idRange(m)
	argv := engine.PythonCommand(setup.Program, script, strconv.Itoa(low), strconv.Itoa(high), "--model", setup.Model, "--skip-tokenizer-init", "--disable-log-stats")
	argv = append(argv, engineArgs(setup, l)...)
	if setup.Device == "cpu" && setup.Deploy.TensorParallel <= 1 {
		// One process for all, so that its CPU time is the engine's.
		if _, own := argument(setup.Args, "--distributed-executor-backend"); !own {
			argv = append(argv, "--distributed-executor-backend", "uni")
		}
	}
	env := append(environment(m, folder, setup), "VLLM_ENABLE_V1_MULTIPROCESSING=0")
	session, err := engine.StartProbe(ctx, place, engine.Command{Argv: argv, Env: env}, setup)
	if err != nil {
		return nil, errors.Join(engine.PythonMissing(err, place, setup.Program, "vllm"), remove())
	}
	return &probeSession{Session: session, remove: sync.OnceValue(remove)}, nil
}

// probeSession deletes the probe's folder at its end.
type probeSession struct {
	engine.Session
	remove func() error
}

// Close ends the process and removes its folder.
func (s *probeSession) Close() error { return errors.Join(s.Session.Close(), s.remove()) }
