package llamacpp

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

//go:embed probe.mjs
var probe string

// Node drives llama.cpp in a Node.js process. Setup.Program is the node to use,
// Setup.Args are further arguments of node.
func Node() engine.Driver { return node{} }

type node struct{}

// Name is that of the library.
func (node) Name() string { return "node-llama-cpp" }

// Abilities are steps of any batch.
func (node) Abilities() engine.Abilities {
	return engine.Abilities{Steps: true, Clocks: []profile.Clock{profile.ClockWall, profile.ClockCPU}}
}

// Check refuses what the probe is not told.
func (node) Check(setup engine.Setup) error { return refuse(unspoken(setup)...) }

// Start copies the probe to the place and starts it.
func (n node) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	if setup.Model == "" {
		return nil, errors.New("start node-llama-cpp: no model is named: want a .gguf file")
	}
	if err := n.Check(setup); err != nil {
		return nil, fmt.Errorf("start node-llama-cpp on %s: %w", place, err)
	}
	setup.Deploy.Engine, setup.Deploy.Device = "llama.cpp", ""
	dir, remove, err := place.TempDir(ctx)
	if err != nil {
		return nil, fmt.Errorf("start node-llama-cpp on %s: %w", place, err)
	}
	script := dir + "/probe.mjs"
	if err := place.CopyIn(ctx, script, strings.NewReader(probe), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("start node-llama-cpp on %s: %w", place, err), remove())
	}
	program := cmp.Or(setup.Program, "node")
	argv := append(append([]string{program}, setup.Args...), script)
	session, err := engine.StartProbe(ctx, place, engine.Command{Argv: argv}, setup)
	if err != nil {
		if missing, ok := errors.AsType[*engine.UnusableError](err); ok && missing.Problem == engine.ProgramMissing {
			err = &engine.UnusableError{
				Problem: engine.ProgramMissing, What: program + " on " + place.String(), Err: missing.Err,
				Remedy: "install Node.js 20 or newer (https://nodejs.org) there, or name it: --program PATH",
			}
		}
		return nil, errors.Join(err, remove())
	}
	return &nodeSession{Session: session, remove: sync.OnceValue(remove)}, nil
}

// unspoken is what the probe is not told, or does not apply.
func unspoken(setup engine.Setup) []option {
	d := setup.Deploy
	return append(
		common(setup, "leave it out; llama.cpp takes all devices by itself"),
		option{
			d.KVCacheDType != "", fmt.Sprintf("KV cache of %s: node-llama-cpp chooses its format", d.KVCacheDType),
			"leave it out, or measure with --engine llama-bench",
		},
		option{
			d.MaxNumBatchedTokens > 0 && d.MaxNumBatchedTokens < setup.MaxBatch,
			fmt.Sprintf("--max-num-batched-tokens %d: a decode step of %d sequences has more tokens", d.MaxNumBatchedTokens, setup.MaxBatch),
			"ask for as many tokens as sequences at least, or bound the grid",
		},
	)
}

// nodeSession removes the probe's folder at its end.
type nodeSession struct {
	engine.Session
	remove func() error
}

// Close ends the probe.
func (s *nodeSession) Close() error { return errors.Join(s.Session.Close(), s.remove()) }
