package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// validateMixed checks the flags of a mixed step.
func (f *predictFlags) validateMixed(args []string) error {
	theory := len(args) == 1
	switch {
	case theory && len(f.gpus) == 0:
		return usage("llmprof predict PREDICTOR CONFIG --chunk-tokens N --decodes N --context N", "a mixed step wants a predictor that was trained on such steps, and its config, or a model and --gpu")
	case !theory && f.given("gpu"):
		return usage("", "predict takes either a predictor and a config, or a model and --gpu, not both: %s", strings.Join(args, " "))
	case theory && f.given("level"):
		return usage("", "--level goes with a predictor: a theoretical time has no interval")
	case theory && len(f.decodes.values) > 0 && !f.given("context"):
		return usage("", "--decodes with --gpu wants --context: the cached tokens of each decoding sequence")
	case f.given("batch-size") || f.given("input-len"):
		return usage("", "a mixed step is told by --chunk-tokens, --decodes and --context, not by --batch-size and --input-len")
	case f.context < 0 || f.chunkContext < 0:
		return usage("", "--context is %d, --chunk-context %d: want 0 or more", f.context, f.chunkContext)
	case len(f.chunk.values) == 0 && len(f.decodes.values) == 0:
		return usage("", "a mixed step wants --chunk-tokens, --decodes or both")
	case f.given("chunk-context") && len(f.chunk.values) == 0:
		return usage("", "--chunk-context goes with --chunk-tokens")
	case f.given("context") && len(f.decodes.values) == 0:
		return usage("--chunk-context tells what the chunk comes after", "--context goes with --decodes")
	case f.given("chunk-context") && len(f.decodes.values) > 0 && !f.given("context"):
		return usage("", "--chunk-context tells one context and leaves that of the decoding sequences open: give --context as well")
	}
	return f.ineffective(theory)
}

// predictMixed asks a predictor, or the datasheet of a device, for every
// combination of chunk and decoding sequences.
func (a *app) predictMixed(ctx context.Context, args []string, f *predictFlags) error {
	var documents []report.MixedKeys
	add := func(config string, ask func(q fit.Query) (stat.Estimate[unit.Seconds], error)) error {
		some, err := f.mixed(config, ask)
		documents = append(documents, some...)
		return err
	}
	var err error
	if len(args) == 1 {
		err = a.estimators(ctx, args[0], f, func(config string, model *catalog.Model, est *cost.Estimator) error {
			return add(config, func(q fit.Query) (stat.Estimate[unit.Seconds], error) { return theoryOfMixed(est, model, q.Pass) })
		})
	} else {
		var predictor *fit.Predictor
		var config string
		if predictor, config, err = a.askPredictor(args[0], args[1]); err != nil {
			return err
		}
		err = add(config, func(q fit.Query) (stat.Estimate[unit.Seconds], error) {
			estimate, err := predictor.PredictAt(q, f.level)
			if err != nil {
				return estimate, usage(hintOf(err), "%s: config %s: %w", args[0], config, err)
			}
			return estimate, nil
		})
	}
	if err != nil {
		return err
	}
	return a.write(report.MixedPredictions(documents, version()), report.MixedTable(documents))
}

// theoryOfMixed is the time of a mixed step by the datasheet, as the steps of a
// simulated load have it before they are padded to device graphs.
func theoryOfMixed(est *cost.Estimator, model *catalog.Model, pass *forward.Pass) (stat.Estimate[unit.Seconds], error) {
	estimate := stat.Exactly[unit.Seconds](est.Seconds(*pass), stat.Theoretical)
	longest, sequences := int(pass.MeanDecodeContext())+1, pass.Decode.Count
	for _, c := range pass.Prefill {
		longest, sequences = max(longest, c.New+c.Context), sequences+c.Count
	}
	if longest > model.MaxSeqLen {
		estimate.Warnings = append(estimate.Warnings, fmt.Sprintf("%d tokens exceed the model's %d", longest, model.MaxSeqLen))
	}
	if !est.Memory(sequences, longest, pass.Tokens()).Fits() {
		estimate.Warnings = append(estimate.Warnings, fmt.Sprintf("%d sequences of %d tokens do not fit into the device's memory", sequences, longest))
	}
	return estimate, nil
}

// mixed asks for every combination of chunk and decoding sequences.
func (f *predictFlags) mixed(config string, ask func(fit.Query) (stat.Estimate[unit.Seconds], error)) ([]report.MixedKeys, error) {
	one := func(c counts) []int {
		if len(c.values) == 0 {
			return []int{0}
		}
		return c.values
	}
	var documents []report.MixedKeys
	for _, chunk := range one(f.chunk) {
		for _, decodes := range one(f.decodes) {
			if chunk == 0 && decodes == 0 {
				return nil, usage("", "a step without prompt tokens and without decoding sequences computes nothing")
			}
			estimate, err := ask(f.mixedQuery(chunk, decodes))
			if err != nil {
				return nil, err
			}
			documents = append(documents, report.Mixed(config, chunk, f.chunkContext, decodes, f.knownContext(decodes), estimate))
		}
	}
	return documents, nil
}

// knownContext is the context of the decoding sequences, nil where it was not
// given or there are none.
func (f *predictFlags) knownContext(decodes int) *int {
	if !f.given("context") || decodes == 0 {
		return nil
	}
	return &f.context
}

// mixedQuery is the step of one chunk and decoding sequences. A context that
// was not given stays unknown, and with it all of them: only sums are asked for
// then.
func (f *predictFlags) mixedQuery(chunk, decodes int) fit.Query {
	if !f.given("context") && decodes > 0 {
		t := forward.Totals{DecodeRequests: decodes, DecodeTokens: decodes, PrefillTokens: chunk}
		if chunk > 0 {
			t.PrefillRequests = 1
		}
		return fit.Query{Totals: &t}
	}
	pass := forward.Pass{Decode: forward.Sequences{Count: decodes, SumContext: int64(decodes) * int64(f.context)}}
	if chunk > 0 {
		pass.Prefill = []forward.Chunk{{Count: 1, New: chunk, Context: f.chunkContext, Last: true}}
	}
	return fit.Query{Pass: &pass}
}
