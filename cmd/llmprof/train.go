package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// defaultPredictorFile is where the forward-time predictor keeps its models.
const defaultPredictorFile = "trained_predictors.json"

func (a *app) trainCommand() *cobra.Command {
	var file, model, samples string
	cmd := &cobra.Command{
		Use:     "train CONFIG FILE...",
		Aliases: []string{"train_models", "train-models"},
		Short:   "Train a step predictor on measurements",
		Long: `Train fits how long a prefill and a decode step take, and writes the predictor
under the name CONFIG to a file that may hold many. FILEs are profiles or
benchmark files of the forward-time predictor.

The model auto has the shape of a step's cost and is chosen by
cross-validation; its file also holds the forward-time predictor's four weights
a mode, so that its readers accept it. The model linear is that regression and
nothing else.

Measurements that hold mixed steps, as an imported server log does, also train
a model of mixed steps; with the clients' requests beside them the host's time
between steps is kept with it.`,
		Example: `  llmprof train qwen3-4b-a100 benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json
  llmprof train server monday.llmprof tuesday.llmprof
  llmprof train c monday.llmprof tuesday.llmprof --predictor-file p.json --model linear`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage("llmprof train CONFIG FILE...", "train wants a name for the predictor and a file of measurements")
			}
			if strings.TrimSpace(args[0]) == "" {
				return usage("", "the predictor's name is empty")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.train(cmd.Context(), args[0], args[1:], file, model, samples)
		},
	}
	cmd.Flags().StringVar(&file, "predictor-file", defaultPredictorFile, "file of predictors to add to")
	cmd.Flags().StringVar(&model, "model", fit.Auto, "auto, or linear for the forward-time predictor's regression")
	completeWith(cmd, "model", fit.Auto, fit.LinearModel)
	registerSamples(cmd, &samples)
	onlyOnCommandLine(cmd.Flags(), "model")
	return cmd
}

func (a *app) train(ctx context.Context, config string, files []string, file, model, samples string) error {
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	parts, err := a.readParts(files, readOptions{cat: cat})
	if err != nil {
		return err
	}
	data, measured, err := observations(parts, samples)
	if err != nil {
		return err
	}
	opts := profile.LintOptions{}
	opts.Model, opts.Device = known(cat, measured)
	for _, finding := range profile.Lint(measured, opts) {
		if finding.Severity == profile.SeverityError {
			a.warn(fmt.Sprintf("%s: %d found in the measurements, which cannot be true; see llmprof lint", finding.Rule, finding.Count))
		}
	}
	var run runConditions
	if text, ok := measured.Header.Metadata[runKey]; ok && json.Unmarshal(text, &run) == nil && run.NumLayers > 0 {
		a.warn(fmt.Sprintf("the steps are those of the model's first %d layers, not of the whole model", run.NumLayers))
	}
	predictors, err := readPredictors(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	predictor, trained, err := fit.Train(ctx, data.Rows, fit.Options{Model: model, HostGap: a.hostGap(parts)})
	if err != nil {
		return usage("", "%w", err)
	}
	if err := predictors.Set(config, predictor, metadataOf(cat, measured)); err != nil {
		return err
	}
	if err := writeFile(file, predictors.Write); err != nil {
		return err
	}
	document := report.Training(config, file, model, data, predictor, trained, version())
	return a.write(document, report.TrainingTables(document)...)
}

// What counts of a point's samples.
const (
	allSamples = "all"
	minSample  = "min"
)

// registerSamples registers --samples.
func registerSamples(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "samples", allSamples, "which samples of a point count: all, or min for the least one (machines that others use as well)")
	completeWith(cmd, "samples", allSamples, minSample)
}

// observations joins measurements and collects what a fit can use of them.
func observations(parts []*profile.Profile, samples string) (fit.Data, *profile.Profile, error) {
	p, err := merged(parts)
	if err != nil {
		return fit.Data{}, nil, err
	}
	points := p.Points
	switch samples {
	case allSamples:
	case minSample:
		points = minima(points)
	default:
		return fit.Data{}, nil, usage("", "unknown --samples %q: want all or min", samples)
	}
	data, err := fit.ObservationsOf(points)
	if err != nil {
		return fit.Data{}, nil, usage("", "%w", err)
	}
	return data, p, nil
}

// minima keeps the least sample of every step of a grid, over all points that
// measured it. Other points stay as they are.
func minima(points []profile.Point) []profile.Point {
	type key struct {
		mode                 string
		batch, input, output int
		context              int64
	}
	first := map[key]int{}
	var out []profile.Point
	for _, p := range points {
		if p.Kind != profile.KindStep || p.Step.BatchSize < 1 || len(p.Samples) == 0 {
			out = append(out, p)
			continue
		}
		p.Samples = []float64{slices.Min(p.Samples)}
		p.Summary = nil // it counted the others
		k := key{p.Step.Mode, p.Step.BatchSize, p.Step.InputLen, p.Step.OutputLen, p.Step.Pass.Totals().KVTokens}
		if at, ok := first[k]; ok {
			out[at].Samples[0] = min(out[at].Samples[0], p.Samples[0])
			continue
		}
		first[k] = len(out)
		out = append(out, p)
	}
	return out
}

// hostGap finds what passes between a server's steps, from the loads whose
// requests are known; nil where none is.
func (a *app) hostGap(parts []*profile.Profile) *fit.Gap {
	var gaps []fit.Gap
	for _, p := range parts {
		requests := p.Filter(profile.ByKind(profile.KindRequest)).Points
		if len(requests) == 0 {
			continue
		}
		gap, err := fit.HostGap(p.Filter(profile.ByKind(profile.KindStep)).Points, requests)
		if err != nil {
			a.warn(fmt.Sprintf("%s: the host's time between steps cannot be told: %v", p.Header.Source, err))
			continue
		}
		gaps = append(gaps, gap)
	}
	if len(gaps) == 0 {
		return nil
	}
	gap, err := fit.MergeGaps(gaps...)
	if err != nil {
		a.warn(err.Error())
		return nil
	}
	a.warn(gap.Between.Warnings...)
	return &gap
}

// metadataOf is what a predictor keeps of the measurement: the benchmark's
// own metadata, and what the profile names of model, device and ranks where
// those do not.
func metadataOf(cat *catalog.Catalog, p *profile.Profile) map[string]json.RawMessage {
	metadata := maps.Clone(p.Header.Metadata)
	if metadata == nil {
		metadata = map[string]json.RawMessage{}
	}
	from := originOf(cat, p)
	for key, value := range map[string]any{fit.MetadataModel: from.Model, fit.MetadataDevice: from.Device, fit.MetadataTensorParallel: from.TensorParallel} {
		if _, taken := metadata[key]; taken || value == "" || value == 0 {
			continue
		}
		if text, err := json.Marshal(value); err == nil {
			metadata[key] = text
		}
	}
	return metadata
}

// originOf is what a profile says was measured, the device in the catalog's
// spelling where it has it.
func originOf(cat *catalog.Catalog, p *profile.Profile) fit.Origin {
	h := &p.Header
	from := fit.Origin{
		Model: h.Deploy.Model, Device: cmp.Or(h.Device.Name, h.Device.Reported, h.Deploy.Device), TensorParallel: h.Deploy.TensorParallel,
	}
	if _, device := known(cat, p); device != nil {
		from.Device = device.Name
	}
	return from
}

// readPredictors reads a predictor file; one that is not there gives an empty
// one and fs.ErrNotExist.
func readPredictors(name string) (*fit.File, error) {
	file, err := os.Open(name)
	if err != nil {
		return &fit.File{}, fileError("read", name, err)
	}
	defer func() { _ = file.Close() }() // read only
	predictors, err := fit.ReadPredictors(io.LimitReader(file, fit.MaxFileBytes+1))
	if err != nil {
		return nil, usage("", "%s: %w", name, err)
	}
	if others := predictors.Ignored(); len(predictors.Configs()) == 0 && len(others) > 0 {
		return nil, usage("", "%s is not a predictor file: it holds %s and no predictor", name, strings.Join(others[:min(3, len(others))], ", "))
	}
	return predictors, nil
}

// openPredictor reads one predictor of a file; without a name the file must
// hold exactly one.
func (a *app) openPredictor(name, config string) (*fit.Predictor, string, error) {
	predictors, err := readPredictors(name)
	if err != nil {
		return nil, "", err
	}
	if config == "" {
		known := predictors.Configs()
		if len(known) != 1 {
			return nil, "", usage("available: "+unit.List(known), "%s holds %d predictors: name one", name, len(known))
		}
		config = known[0]
	}
	predictor, warnings, err := predictors.Predictor(config)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	a.warn(warnings...)
	return predictor, config, nil
}
