package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// predictFlags are the flags of predict.
type predictFlags struct {
	mode         string
	batch, input counts
	context      int
	level        float64
	gpus         []string
	tp           counts
	chunk        counts
	decodes      counts
	chunkContext int
	layers       layerQuery
	deployment   deploymentFlags
	knobs        knobFlags
	// datasheet names the flags that act on the datasheet's time only.
	datasheet []string
	changed   func(name string) bool
	// given reports whether a flag stands on the command line.
	given func(name string) bool
}

func (a *app) predictCommand() *cobra.Command {
	f := &predictFlags{batch: newCounts(1), input: newCounts(1), tp: newCounts(1, 1), chunk: newCounts(0), decodes: newCounts(0), layers: newLayerQuery()}
	cmd := &cobra.Command{
		Use:   "predict PREDICTOR CONFIG | LAYERS | MODEL --gpu GPU",
		Short: "How long a step, a layer or a request takes, with interval and basis",
		Long: `Predict asks a trained predictor how long one prefill or decode step takes, or
with --chunk-tokens and --decodes one that mixes both. The answer carries an
interval and says whether it lies inside the measured range (interpolated) or
outside (extrapolated).

A layer profile (a file that profile layers or import wrote, a layer CSV, a
bundle of LLMServingSim) answers how long a layer takes (--layer, --attention),
or with --num-layers a whole request that is alone on its device.

With a model and --gpu instead of a predictor the time is computed from
datasheet figures, of mixed steps too, as simulate has them but for the padding
to device graphs, and says so (theoretical); only then do the flags for
formats, parallel ranks and efficiencies act.`,
		Example: `  llmprof predict predictors.json qwen3-4b-a100 --mode prefill --bs 4 --input-len 512
  llmprof predict predictors.json qwen3-4b-a100 --mode decode --bs 1,8,64 --input-len 1k,16k --json
  llmprof predict predictors.json server --chunk-tokens 512 --decodes 16 --context 1000
  llmprof predict layers.llmprof --num-layers 32 --input-len 512 --output-len 128
  llmprof predict perf/RTX4090 --layer qkv_proj --tokens 1,100,777 --tp 1
  llmprof predict perf/RTX4090 --attention 512,1024,16,3000
  llmprof predict Qwen3-4B --gpu a100 --mode decode --bs 8 --input-len 1024
  llmprof predict Qwen3-4B --gpu a100 --chunk-tokens 512 --decodes 16 --context 1000`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.changed, f.given = cmd.Flags().Changed, a.givenIn(cmd)
			return a.predict(cmd.Context(), args, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.mode, "mode", "", "prefill, decode or mixed")
	flags.Var(&f.batch, "batch-size", "sequences in the step (--bs)")
	flags.Var(&f.input, "input-len", "prompt tokens of each sequence")
	flags.IntVar(&f.context, "context", 0, "cached tokens of each decoding sequence, or of the call of a layer (default: the mean of the measured steps after the prompt; with --gpu the prompt)")
	flags.Var(&f.chunk, "chunk-tokens", "prompt tokens of a mixed step, in one chunk")
	flags.Var(&f.decodes, "decodes", "decoding sequences of a mixed step")
	flags.IntVar(&f.chunkContext, "chunk-context", 0, "cached tokens before the chunk of a mixed step")
	f.layers.register(cmd)
	flags.Float64Var(&f.level, "level", 0.8, "share of outcomes that the interval should hold: 0.8 or 0.95")
	gpuFlag(a, cmd, &f.gpus)
	flags.Var(&f.tp, "tensor-parallel-size", "ranks that share each layer, with --gpu or a layer profile (--tp)")
	before := map[string]bool{}
	flags.VisitAll(func(flag *pflag.Flag) { before[flag.Name] = true })
	f.deployment.registerFormats(cmd)
	f.knobs.registerTimes(cmd)
	flags.VisitAll(func(flag *pflag.Flag) {
		if !before[flag.Name] {
			f.datasheet = append(f.datasheet, flag.Name)
		}
	})
	completeWith(cmd, "mode", string(fit.Prefill), string(fit.Decode), string(fit.Mixed))
	completeWith(cmd, "level", "0.8", "0.95")
	return cmd
}

// givenIn reports of a flag whether it stands on the command line, and does
// not come from the environment or the configuration file, whose values also
// serve other commands.
func (a *app) givenIn(cmd *cobra.Command) func(name string) bool {
	return func(name string) bool { return cmd.Flags().Changed(name) && !a.defaulted[name] }
}

// predict answers every combination of batch size and input length.
func (a *app) predict(ctx context.Context, args []string, f *predictFlags) error {
	if f.layers.asked() && len(args) == 1 && len(f.gpus) == 0 {
		return a.predictLayers(args[0], f)
	}
	if err := f.validate(args); err != nil {
		return err
	}
	if f.mode == string(fit.Mixed) {
		return a.predictMixed(ctx, args, f)
	}
	var documents []report.PredictionKeys
	var err error
	if len(args) == 1 {
		documents, err = a.predictTheory(ctx, args[0], f)
	} else {
		documents, err = a.predictTrained(args[0], args[1], f)
	}
	if err != nil {
		return err
	}
	if len(documents) == 1 && a.people() {
		return report.PredictionText(a.stdout, documents[0])
	}
	return a.write(report.Predictions(documents, version()), report.PredictionTable(documents))
}

func (f *predictFlags) validate(args []string) error {
	if err := f.layers.stray(f.given); err != nil {
		return err
	}
	mixed := f.given("chunk-tokens") || f.given("decodes") || f.given("chunk-context")
	if mixed && f.mode == "" {
		f.mode = string(fit.Mixed)
	}
	switch {
	case f.layers.asked():
		return usage("", "--layer, --attention and --num-layers ask a layer profile, which stands alone: %s", strings.Join(args, " "))
	case len(f.gpus) == 0 && len(args) == 1 && f.mode == "":
		return usage("a predictor needs its config and --mode, a layer profile --layer, --attention or --num-layers, a model --gpu and --mode: see llmprof predict --help", "predict %s: what is asked is not said", args[0])
	case f.mode == "":
		return usage("", "predict wants --mode prefill or --mode decode")
	case f.mode != string(fit.Prefill) && f.mode != string(fit.Decode) && f.mode != string(fit.Mixed):
		return &codedError{codeNo, fmt.Errorf("unknown mode %q", f.mode), "available modes: prefill, decode, mixed"}
	case f.given("tensor-parallel-size") && len(args) == 2:
		return usage("the predictor answers for what it was trained on; a model and --gpu give a theoretical time", "--tensor-parallel-size goes with --gpu and has no effect on a predictor")
	case f.mode == string(fit.Mixed):
		return f.validateMixed(args)
	case mixed:
		return usage("", "--chunk-tokens, --decodes and --chunk-context go with --mode mixed")
	case len(f.batch.values) == 0:
		return usage("", "predict wants --batch-size")
	case len(f.input.values) == 0:
		return usage("", "predict wants --input-len")
	case f.changed("context") && f.mode != string(fit.Decode):
		return usage("", "--context goes with --mode decode")
	case f.context < 0:
		return usage("", "--context is %d: want 0 or more", f.context)
	case len(f.gpus) == 0 && len(args) == 1:
		return usage("a predictor needs the name of its config: llmprof predict PREDICTOR CONFIG; a model needs --gpu", "predict %s: neither a config nor --gpu is given", args[0])
	case f.given("gpu") && len(args) == 2:
		return usage("", "predict takes either a predictor and a config, or a model and --gpu, not both: %s", strings.Join(args, " "))
	case len(args) == 1 && f.given("level"):
		return usage("", "--level goes with a predictor: a theoretical time has no interval")
	}
	return f.ineffective(len(args) == 1)
}

// ineffective refuses flags that would be without effect.
func (f *predictFlags) ineffective(theory bool) error {
	if theory {
		for _, name := range []string{"expert-imbalance", "dispatch-once"} {
			if f.given(name) {
				return usage("llmprof analyze has both", "--%s acts with --expert-parallel-size, and predict has none", name)
			}
		}
		return nil
	}
	for _, name := range f.datasheet {
		if f.given(name) {
			return usage("the predictor answers for what it was trained on; a model and --gpu give a theoretical time", "--%s goes with --gpu and has no effect on a predictor", name)
		}
	}
	return nil
}

// askPredictor opens a predictor. What a file does not have ends with the
// forward-time predictor's exit code.
func (a *app) askPredictor(file, config string) (*fit.Predictor, string, error) {
	predictor, config, err := a.openPredictor(file, config)
	var unknown *fit.UnknownConfigError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", &codedError{codeNo, err, "llmprof train CONFIG FILE makes one"}
	case errors.As(err, &unknown):
		return nil, "", &codedError{codeNo, err, unknown.Hint()}
	}
	return predictor, config, err
}

// predictTrained asks a predictor file.
func (a *app) predictTrained(file, config string, f *predictFlags) ([]report.PredictionKeys, error) {
	predictor, config, err := a.askPredictor(file, config)
	if err != nil {
		return nil, err
	}
	var documents []report.PredictionKeys
	for _, batch := range f.batch.values {
		for _, input := range f.input.values {
			q := fit.Query{Mode: fit.Mode(f.mode), BatchSize: batch, InputLen: input}
			if f.changed("context") {
				q.Context = &f.context
			}
			estimate, err := predictor.PredictAt(q, f.level)
			if err != nil {
				return nil, usage(hintOf(err), "%s: config %s: %w", file, config, err)
			}
			documents = append(documents, report.Prediction(config, f.mode, batch, input, estimate))
		}
	}
	return documents, nil
}

// predictTheory computes the times from datasheet figures.
func (a *app) predictTheory(ctx context.Context, ref string, f *predictFlags) ([]report.PredictionKeys, error) {
	var documents []report.PredictionKeys
	err := a.estimators(ctx, ref, f, func(config string, model *catalog.Model, est *cost.Estimator) error {
		documents = append(documents, f.theory(est, model, config)...)
		return nil
	})
	return documents, err
}

// estimators makes the cost model of each device and number of ranks that is
// asked for, and hands it on with its name.
func (a *app) estimators(ctx context.Context, ref string, f *predictFlags, each func(config string, model *catalog.Model, est *cost.Estimator) error) error {
	base, err := f.deployment.config()
	if err != nil {
		return err
	}
	if algorithm := f.layers.algorithm(); algorithm != "" {
		f.knobs.attention = algorithm
	}
	settings, err := f.knobs.resolve()
	if err != nil {
		return err
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	model, err := a.model(ctx, cat, ref)
	if err != nil {
		return err
	}
	for _, name := range f.gpus {
		device, err := a.device(cat, name)
		if err != nil {
			return err
		}
		for _, tp := range f.tp.values {
			base.TensorParallel = tp
			est, err := cost.New(model, device, base, settings)
			if err != nil {
				return usage("", "%w", err)
			}
			a.warn(est.Warnings()...)
			config := fmt.Sprintf("%s on %s", model.Name, device.Name)
			if tp > 1 {
				config += fmt.Sprintf(" TP %d", tp)
			}
			if err := each(config, model, est); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *predictFlags) theory(est *cost.Estimator, model *catalog.Model, config string) []report.PredictionKeys {
	var documents []report.PredictionKeys
	for _, batch := range f.batch.values {
		for _, input := range f.input.values {
			pass := forward.Prefill(batch, input, 0)
			if f.mode == string(fit.Decode) {
				pass = forward.Decode(batch, input)
				if f.changed("context") {
					pass = forward.Decode(batch, f.context)
				}
			}
			estimate := stat.Exactly[unit.Seconds](est.Seconds(pass), stat.Theoretical)
			length := input
			if pass.Decode.Count > 0 {
				length = int(pass.MeanDecodeContext()) + 1
			}
			if length > model.MaxSeqLen {
				estimate.Warnings = append(estimate.Warnings, fmt.Sprintf("%d tokens exceed the model's %d", length, model.MaxSeqLen))
			}
			if !est.Memory(batch, length, pass.Tokens()).Fits() {
				estimate.Warnings = append(estimate.Warnings, "does not fit into the device's memory; llmprof analyze says by how much")
			}
			documents = append(documents, report.Prediction(config, f.mode, batch, input, estimate))
		}
	}
	return documents
}
