// Package torch is the engine "torch": any decoder of the Hugging Face hub, run
// by PyTorch and transformers with nothing between. It measures whole forward
// passes and single layers, on random weights, from a model's configuration
// alone.
//
// The driver looks for a Python that has both libraries, at the place where it
// is to measure: Setup.Program, then the variables LLMPROF_PYTHON and
// VIRTUAL_ENV, then python3 on the path. It copies its probe there, starts it,
// and removes it when the session is closed:
//
//	session, err := torch.New().Start(ctx, place, engine.Setup{Model: "Qwen/Qwen3-4B", Device: "cuda"})
//
// A prefill is one forward pass over whole prompts, with logits of each prompt's
// last token; a decode step is one of a token a sequence, over a KV cache that
// is written in place. There is no scheduler, no paged cache and no fused
// kernel: what is measured is the model in eager mode, which is the honest
// figure of a layer and an upper bound of a serving engine's step. Layers bear
// the names of their modules in Llama's modelling code, wherever a module
// stands in the same place; rotary embedding and attention are called rope and
// attn. Layers outside the block, as embedding and lm_head, run once a pass.
//
// On a GPU layers are timed by the kernels that torch.profiler sees in them, on
// the device's clock: events around a small module would time the host, which
// launches its kernels later than the device could take them. On a CPU marks are
// set around the modules. Where the layers of a shape take longer together than
// a pass without marks, the shape's first point says so. Every replay of a CUDA
// graph attends over the mean context of its decode steps.
//
// Further arguments (Setup.Args): "--attn eager" chooses transformers' attention
// implementation, "--events" sets marks around the modules on a GPU too,
// "--profiler" has torch.profiler time them on a CPU too, "--trust-remote-code"
// runs code from the model's repository.
package torch

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/profile"
)

// probeFiles are the probe: probe.py and what it imports.
//
//go:embed probe.py probe_cache.py probe_layers.py
var probeFiles embed.FS

// Name is the engine's name.
const Name = "torch"

// Driver starts PyTorch.
type Driver struct{}

// New returns the driver.
func New() engine.Driver { return Driver{} }

// Name is "torch".
func (Driver) Name() string { return Name }

// Abilities says that steps and layers can be measured, on every clock.
func (Driver) Abilities() engine.Abilities {
	return engine.Abilities{
		Steps: true, Layers: true, CUDAGraphs: true,
		Clocks: []profile.Clock{profile.ClockWall, profile.ClockDevice, profile.ClockCPU},
	}
}

// Start builds the model and runs it once.
func (d Driver) Start(ctx context.Context, place engine.Place, setup engine.Setup) (engine.Session, error) {
	if err := d.Check(setup); err != nil {
		return nil, fmt.Errorf("start torch on %s: %w", place, err)
	}
	setup.Deploy.Engine = Name
	dir, remove, err := place.TempDir(ctx)
	if err != nil {
		return nil, fmt.Errorf("start torch on %s: %w", place, err)
	}
	session, err := start(ctx, place, setup, dir)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return &closer{Session: session, remove: remove}, nil
}

// start copies the probe to a folder of the place and starts it.
func start(ctx context.Context, place engine.Place, setup engine.Setup, dir string) (engine.Session, error) {
	dir = strings.ReplaceAll(dir, `\`, "/") // which Windows takes too
	probe := path.Join(dir, "probe.py")
	err := fs.WalkDir(probeFiles, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		source, err := probeFiles.ReadFile(name)
		if err != nil {
			return err
		}
		return place.CopyIn(ctx, path.Join(dir, name), bytes.NewReader(source), 0o644)
	})
	if err != nil {
		return nil, fmt.Errorf("start torch on %s: %w", place, err)
	}
	session, err := engine.StartProbe(ctx, place, engine.Command{Argv: engine.PythonCommand(setup.Program, "-u", probe), Env: environment(setup)}, setup)
	if err != nil {
		return nil, engine.PythonMissing(err, place, setup.Program, "torch transformers")
	}
	return session, nil
}

// environment is what the probe needs beside the place's own variables.
func environment(setup engine.Setup) []string {
	env := []string{
		"PYTHONIOENCODING=utf-8",
		"HF_HUB_DISABLE_TELEMETRY=1", "TOKENIZERS_PARALLELISM=false", "TRANSFORMERS_NO_ADVISORY_WARNINGS=1",
	}
	if setup.Threads > 0 {
		n := strconv.Itoa(setup.Threads)
		env = append(env, "OMP_NUM_THREADS="+n, "MKL_NUM_THREADS="+n)
	}
	return env
}

// setupError is a deployment that torch does not run.
type setupError struct{ text string }

// Error says what it does not run.
func (e *setupError) Error() string { return e.text }

// Hint names the engine that may.
func (e *setupError) Hint() string { return "the vllm engine measures deployments of this kind" }

// Check refuses what would be measured as something else in silence.
func (Driver) Check(s engine.Setup) error {
	d := s.Deploy
	var faults []string
	for _, size := range []struct {
		name  string
		value int
	}{
		{"tensor parallel", d.TensorParallel},
		{"pipeline parallel", d.PipelineParallel},
		{"data parallel", d.DataParallel},
		{"expert parallel", d.ExpertParallel},
	} {
		if size.value > 1 {
			faults = append(faults, fmt.Sprintf("%s size %d", size.name, size.value))
		}
	}
	if d.Quantization != "" && d.Quantization != "none" {
		faults = append(faults, "quantisation "+d.Quantization)
	}
	if dtype := (deploy.Config{DType: d.DType}).WithDefaults().DType; d.KVCacheDType != "" && d.KVCacheDType != dtype {
		faults = append(faults, fmt.Sprintf("a KV cache in %s", d.KVCacheDType))
	}
	if d.BlockSize > 0 {
		faults = append(faults, fmt.Sprintf("a KV cache in blocks of %d tokens", d.BlockSize))
	}
	if d.MaxNumBatchedTokens > 0 {
		faults = append(faults, fmt.Sprintf("steps of at most %d tokens", d.MaxNumBatchedTokens))
	}
	if share := max(d.GPUMemoryUtilization, d.MemFractionStatic); share > 0 {
		faults = append(faults, fmt.Sprintf("a share of %g of the device's memory", share))
	}
	if d.QuantizeEmbeddings {
		faults = append(faults, "quantised embeddings")
	}
	if len(d.PipelineLayers) > 0 {
		faults = append(faults, "stages of a pipeline")
	}
	if s.Model == "" {
		return errors.New("no model is named")
	}
	if len(faults) > 0 {
		return &setupError{"torch runs a plain model on one device, not " + strings.Join(faults, ", ")}
	}
	return nil
}

// closer removes the probe's files after its session.
type closer struct {
	engine.Session
	remove func() error
}

// Close ends the probe and removes its files.
func (c *closer) Close() error { return errors.Join(c.Session.Close(), c.remove()) }
