// Package sglang measures SGLang's sglang.bench_one_batch: exact prefill and
// decode batches without a scheduler and without a prefix cache.
//
// One process measures a whole rectangle of the grid. Every input length stands
// on its command line once for each warm-up and each sample, one after the
// other, so that a shape is warmed up and measured in one go; the output names
// the rows by their order in the product of the lists.
//
// A task's result is emitted as soon as its last row is printed. What is printed
// is rounded: a time to 10 µs, and the tokens per second beside it to 0.01. The
// two together tell a time to 0.02 % or better, whatever its size; where they
// contradict each other, as in a release that counts tokens differently, the
// time stands alone. A task of which any time is then known to no better than
// 0.2 % waits for the result file, which SGLang writes unrounded when all is
// done; where that never comes, as when the process died, it is emitted with a
// warning. Times of whole runs are kept where they are known to 0.2 %, too.
//
// What a deployment asks for is put on the command line, or refused before the
// start: see the errors' advice. Pipeline stages are refused because
// bench_one_batch passes over --pp-size.
//
// The driver follows SGLang's documented command and output. It was tested with
// a program that imitates them, not with SGLang on a GPU, which needs hardware
// that its authors did not have.
package sglang

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

// New returns the driver.
func New() engine.Driver { return driver{} }

type driver struct{}

// Name is "sglang".
func (driver) Name() string { return "sglang" }

// Abilities are steps, timed on the host around a device synchronisation.
func (driver) Abilities() engine.Abilities {
	return engine.Abilities{Steps: true, CUDAGraphs: true, Clocks: []profile.Clock{profile.ClockWall}, AnewForTask: true}
}

// packages are what pip is asked for.
const packages = `"sglang[all]"`

// facts is the program that says what the Python has, as one JSON object on
// the last line.
const facts = `
import importlib.metadata, json, sys
found = {"python": sys.version.split()[0], "executable": sys.executable}
for name in ("sglang", "torch"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
if "sglang" in found and "torch" in found:
    import torch
    found["cuda"] = torch.version.cuda or ""
    found["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps(found))
`

// Check refuses what the command line cannot say.
func (driver) Check(setup engine.Setup) error { return refuse(setup) }

// Start looks for SGLang; its processes start with the tasks.
func (d driver) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	setup.Log = engine.Concurrent(setup.Log)
	if err := d.Check(setup); err != nil {
		return nil, fmt.Errorf("start sglang on %s: %w", place, err)
	}
	if setup.NumLayers > 0 {
		// The model is cut by overriding its configuration.
		setup.Args = append(slices.Clone(setup.Args), "--json-model-override-args", fmt.Sprintf(`{"num_hidden_layers": %d}`, setup.NumLayers))
	}
	if setup.StartTimeout == 0 {
		setup.StartTimeout = 15 * time.Minute
	}
	if setup.TaskTimeout == 0 {
		setup.TaskTimeout = 10 * time.Minute
	}
	asking, cancel := context.WithTimeout(ctx, setup.StartTimeout)
	defer cancel()
	missing := func(err error) error { return engine.PythonMissing(err, place, setup.Program, packages) }
	process, err := place.Start(asking, engine.Command{Argv: engine.PythonCommand(setup.Program, "-c", facts), Env: setup.Env, Stderr: setup.Log})
	if err != nil {
		return nil, missing(err)
	}
	ask := fmt.Sprintf("ask %s on %s for SGLang", cmp.Or(setup.Program, "Python"), place)
	_ = process.Stdin().Close() // it reads nothing
	text, err := io.ReadAll(io.LimitReader(process.Stdout(), 1<<20))
	if err := errors.Join(err, process.Wait()); err != nil {
		return nil, missing(fmt.Errorf("%s: %w", ask, err))
	}
	var found struct {
		Python, Executable, SGLang, Torch, CUDA string
		Devices                                 []string
	}
	redactor := engine.NewRedactor(setup.Env...)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &found); err != nil {
		return nil, fmt.Errorf("%s: it answers %q", ask, redactor.Redact(string(lines[len(lines)-1])))
	}
	python := cmp.Or(setup.Program, found.Executable, "python3")
	if found.SGLang == "" {
		return nil, &engine.UnusableError{
			Problem: engine.EngineMissing, What: "sglang in " + python + " on " + place.String(),
			Remedy: engine.PackageRemedy(python, packages),
		}
	}
	s := &session{place: place, setup: setup, python: python, redactor: redactor, facts: engine.Facts{
		Engine: "sglang", Version: found.SGLang, Clock: profile.ClockWall, Timer: "time.perf_counter", Resolution: 1e-9, Deploy: applied(setup, found.SGLang),
		Layers:    setup.NumLayers,
		Libraries: map[string]string{"python": found.Python, "torch": found.Torch},
	}}
	if found.CUDA != "" {
		s.facts.Libraries["cuda"] = found.CUDA
	}
	if len(found.Devices) > 0 {
		s.facts.Device = profile.Device{Reported: found.Devices[0], Count: max(1, setup.Deploy.TensorParallel)}
	}
	return s, nil
}

type session struct {
	place    engine.Place
	setup    engine.Setup
	python   string
	facts    engine.Facts
	redactor *engine.Redactor
}

// Facts is what is known before the first process: not the capacity of the KV
// cache, which bench_one_batch says with its first line and applies itself.
func (s *session) Facts() engine.Facts { return s.facts }

// Close has nothing to end: a process lasts as long as its tasks.
func (s *session) Close() error { return nil }
