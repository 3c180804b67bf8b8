package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/llmprof/llmprof/cost/llmprofiler"
	"github.com/llmprof/llmprof/report"
)

// analyzeReference runs every combination by the method of another tool.
func (a *app) analyzeReference(ctx context.Context, ref string, f *analyzeFlags) error {
	version, err := llmprofiler.ParseVersion(f.compat)
	if err != nil {
		return usage("", "--compat-version: %w", err)
	}
	model, err := a.referenceModel(ctx, ref)
	if err != nil {
		return err
	}
	a.warnIgnored(f)
	var results []llmprofiler.Result
	for _, name := range f.gpus {
		gpu, err := a.referenceGPU(name)
		if err != nil {
			return err
		}
		for _, tp := range f.tp.values {
			for _, pp := range f.pp.values {
				for _, r := range f.requests() {
					result, err := llmprofiler.Analyze(llmprofiler.Input{
						Model: model, GPU: gpu, TP: tp, PP: pp,
						Batch: r.Batch, InputLen: r.Input, OutputLen: r.Output, Version: version,
					})
					if err != nil {
						return usage("", "%w", err)
					}
					results = append(results, result)
				}
			}
		}
	}
	return a.writeReference(f, results)
}

func (a *app) writeReference(f *analyzeFlags, results []llmprofiler.Result) error {
	documents := make([]report.AnalysisDocument, len(results))
	for i, r := range results {
		documents[i] = report.Reference(r, version())
	}
	a.warn(unique(documents)...)
	var err error
	switch {
	case len(results) == 1 && a.people():
		for _, reason := range results[0].Reasons {
			a.warn("the reference would stop here: " + reason)
		}
		err = llmprofiler.Report(a.stdout, results[0])
	case len(results) == 1:
		err = a.write(documents[0], report.Sweep(documents))
	default:
		err = a.write(report.Results("analyses", version(), documents), report.Sweep(documents))
	}
	return errors.Join(err, f.verdict(documents))
}

// warnIgnored names the flags that this method has no use for.
func (a *app) warnIgnored(f *analyzeFlags) {
	ignored := append(knobNames(), "data-parallel-size", "expert-parallel-size", "dtype", "quantization", "kv-cache-dtype",
		"quantize-embeddings", "gpu-memory-utilization", "mem-fraction-static", "pipeline-layers", "block-size", "max-model-len", "max-num-batched-tokens", "cached-prefix", "per-op")
	for _, name := range ignored {
		if f.knobs.changed(name) {
			a.warn(fmt.Sprintf("--%s has no effect with --method llm-profiler", name))
		}
	}
}

// referenceModel finds a model in the method's own table, else anywhere.
func (a *app) referenceModel(ctx context.Context, ref string) (llmprofiler.Model, error) {
	model, err := llmprofiler.LookupModel(ref)
	var unknown *llmprofiler.UnknownError
	if !errors.As(err, &unknown) {
		return model, err
	}
	cat, err := a.catalog()
	if err != nil {
		return llmprofiler.Model{}, err
	}
	found, err := a.model(ctx, cat, ref)
	if err != nil {
		return llmprofiler.Model{}, err
	}
	return llmprofiler.FromCatalog(found)
}

// referenceGPU finds a device in the method's own table, else in the catalog.
func (a *app) referenceGPU(name string) (llmprofiler.GPU, error) {
	gpu, err := llmprofiler.LookupGPU(name)
	var unknown *llmprofiler.UnknownError
	if !errors.As(err, &unknown) {
		return gpu, err
	}
	cat, err := a.catalog()
	if err != nil {
		return llmprofiler.GPU{}, err
	}
	device, err := a.device(cat, name)
	if err != nil {
		return llmprofiler.GPU{}, err
	}
	return llmprofiler.GPUFromCatalog(device)
}
