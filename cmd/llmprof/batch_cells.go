package main

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/engine"
)

// cellFlag is a flag of batch that changes cells: those of a file as those that
// flags make.
type cellFlag struct {
	name string
	lay  func(f *batchFlags, m *campaign.Model)
}

// cellFlags are all flags that change cells; a list takes the place of the
// file's. All other flags are about the run as a whole.
func cellFlags() []cellFlag {
	type model = *campaign.Model
	return []cellFlag{
		{"container", func(f *batchFlags, m model) { m.Cell.ContainerName, m.Cell.Place = f.container, "" }},
		{"place", func(f *batchFlags, m model) {
			m.Cell.Place = f.place
			if !f.changed("container") && f.place != "docker:"+m.Cell.ContainerName {
				m.Cell.ContainerName = ""
			}
		}},
		{"input-len", func(f *batchFlags, m model) { m.InputLengths = f.input.values }},
		{"output-len", func(f *batchFlags, m model) { m.OutputLengths = f.output.values }},
		{"batch-size", func(f *batchFlags, m model) { m.BatchSizes = f.batch.values }},
		{"block-sizes", func(f *batchFlags, m model) { m.BlockSizes = f.blocks.values }},
		{"block-size", func(f *batchFlags, m model) { m.BlockSizes = f.blockSize.values }},
		{"engine", func(f *batchFlags, m model) { m.Cell.Engine = f.engineFlags.name }},
		{"device", func(f *batchFlags, m model) { m.Cell.Device = f.device }},
		{"dtype", func(f *batchFlags, m model) { m.Cell.DType = f.dtype }},
		{"quantization", func(f *batchFlags, m model) { m.Cell.Quantization = f.quantization }},
		{"kv-cache-dtype", func(f *batchFlags, m model) { m.Cell.KVCacheDType = f.kv }},
		{"tensor-parallel-size", func(f *batchFlags, m model) { m.Cell.TensorParallel = f.tp.values[0] }},
		{"pipeline-parallel-size", func(f *batchFlags, m model) { m.Cell.PipelineParallel = f.pp.values[0] }},
		{"gpu-memory-utilization", func(f *batchFlags, m model) { m.Cell.GPUMemoryUtilization = f.utilization }},
		{"max-model-len", func(f *batchFlags, m model) { m.Cell.MaxModelLen = f.maxModelLen.values[0] }},
		{"max-num-batched-tokens", func(f *batchFlags, m model) { m.Cell.MaxNumBatchedTokens = f.maxBatchedTokens.values[0] }},
		{"threads", func(f *batchFlags, m model) { m.Cell.Threads = f.threads }},
		{"seed", func(f *batchFlags, m model) { m.Cell.Seed = f.seed }},
		{"cuda-graphs", func(f *batchFlags, m model) { m.Cell.CUDAGraphs, m.Cell.EnforceEager = f.graphs, !f.graphs }},
		{"enforce-eager", func(f *batchFlags, m model) { m.Cell.CUDAGraphs, m.Cell.EnforceEager = false, f.eager }},
		{"trust-remote-code", func(f *batchFlags, m model) { m.Cell.TrustRemoteCode = f.trust }},
		{"weights", func(f *batchFlags, m model) { m.Cell.Weights = f.weights }},
		{"num-iters-warmup", func(f *batchFlags, m model) { m.Cell.NumWarmup = f.warmup }},
		{"num-iters", func(f *batchFlags, m model) { m.Cell.NumIters = f.runs }},
		{"engine-arg", func(f *batchFlags, m model) { m.Cell.EngineArgs = append(slices.Clone(m.Cell.EngineArgs), f.args...) }},
		{"engine-env", layEnvironment},
		{"model-params", func(f *batchFlags, m model) { m.Cell.Architecture.Params = f.params }},
		{"num-layers", func(f *batchFlags, m model) { m.Cell.Architecture.NumLayers = f.layers }},
		{"num-heads", func(f *batchFlags, m model) { m.Cell.Architecture.NumHeads = f.heads }},
		{"num-kv-heads", func(f *batchFlags, m model) { m.Cell.Architecture.NumKVHeads = f.kvHeads }},
		{"head-dim", func(f *batchFlags, m model) { m.Cell.Architecture.HeadDim = f.headDim }},
		{"hidden-size", func(f *batchFlags, m model) { m.Cell.Architecture.HiddenSize = f.hiddens }},
	}
}

// layEnvironment adds variables of the engine; secrets are in no cell.
func layEnvironment(f *batchFlags, m *campaign.Model) {
	env := maps.Clone(m.Cell.EngineEnv)
	if env == nil {
		env = map[string]string{}
	}
	for _, pair := range f.env {
		if name, value, _ := strings.Cut(pair, "="); !engine.SecretName(name) {
			env[name] = value
		}
	}
	m.Cell.EngineEnv = env
}

// secrets are the variables of the engine that no file and no database keeps.
func (f *batchFlags) secrets() []string {
	return slices.DeleteFunc(slices.Clone(f.env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return !engine.SecretName(name)
	})
}

// lay lays the flags over an entry, which the rules of a file hold for then as
// before.
func (f *batchFlags) lay(m campaign.Model) (campaign.Model, error) {
	for _, flag := range cellFlags() {
		if f.changed(flag.name) {
			flag.lay(f, &m)
		}
	}
	checked, err := campaign.FromFlags(flagsOf(m))
	if err != nil {
		return m, err
	}
	laid := checked.Models[0]
	laid.Line = m.Line
	return laid, nil
}

func flagsOf(m campaign.Model) campaign.Flags {
	return campaign.Flags{Cell: m.Cell, InputLengths: m.InputLengths, OutputLengths: m.OutputLengths, BatchSizes: m.BatchSizes, BlockSizes: m.BlockSizes}
}

// laysAny reports whether a flag changes cells.
func (f *batchFlags) laysAny() bool {
	return slices.ContainsFunc(cellFlags(), func(flag cellFlag) bool { return f.changed(flag.name) })
}

// batchFile is what is to be run, flags laid over it, and its text as the store
// keeps it; nil where a run of the store says it.
func (a *app) batchFile(f *batchFlags) (*campaign.File, []byte, error) {
	if f.config == "" && f.model == "" {
		return nil, nil, nil
	}
	if f.config == "" {
		m := campaign.Model{Cell: campaign.Defaults()}
		m.Cell.ModelID = f.model
		m, err := f.lay(m)
		if err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(flagsOf(m))
		return &campaign.File{Name: "flags", Models: []campaign.Model{m}}, text, err
	}
	text, err := a.batchText(f.config)
	if err != nil {
		return nil, nil, err
	}
	file, warnings, err := campaign.Parse(sourceName(f.config), text)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range warnings {
		a.warn(w.String())
	}
	if !f.laysAny() {
		return file, text, nil
	}
	for i, m := range file.Models {
		if file.Models[i], err = f.lay(m); err != nil {
			return nil, nil, usage(hintOf(err), "%s:%d: with these flags: %w", file.Name, m.Line, err)
		}
	}
	return file, text, nil
}

// batchText is the text of a campaign's file, or of stdin.
func (a *app) batchText(name string) ([]byte, error) {
	in, err := a.openInput(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // read only
	text, err := io.ReadAll(io.LimitReader(in, maxBatchBytes))
	if err != nil {
		return nil, fileError("read", sourceName(name), err)
	}
	return text, nil
}

// different refuses cells that flags have made equal.
func different(cells []campaign.Cell) error {
	seen := map[string]string{}
	for _, c := range cells {
		hash := c.Hash()
		if other, ok := seen[hash]; ok {
			return usage("leave the flag out, or the entries that it makes equal", "with these flags the cells %s and %s are the same", other, c.Name())
		}
		seen[hash] = c.Name()
	}
	return nil
}
