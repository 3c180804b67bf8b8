package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/chart"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/report"
)

// rooflineModel names the datasheet's times among the models to score.
const rooflineModel = "roofline"

// scoreFlags are the flags of score.
type scoreFlags struct {
	folds             int
	models, targets   []string
	predictor, config string
	holdOut           string
	figure            string
	samples           string
	// given reports whether a flag stands on the command line.
	given func(name string) bool
}

func (a *app) scoreCommand() *cobra.Command {
	f := &scoreFlags{}
	cmd := &cobra.Command{
		Use:   "score FILE...",
		Short: "Error on rows that a predictor has not seen",
		Long: `Score trains on part of the measurements and tests on the rest, and shows the
models side by side. Folds go by row number (row n is held out in fold n mod
k), so the figures repeat. --hold-out tests on a part that the condition names
and trains on the rest, which shows how a model extrapolates. With
--predictor-file it scores that predictor on the file instead, and says how
many of the rows it was trained on.

The target median compares with the median of the runs, mean with the file's
own mean, which holds cold first runs.`,
		Example: `  llmprof score benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json --folds 5
  llmprof score bench.llmprof --model auto --target median --figure held-out.svg
  llmprof score bench.llmprof --hold-out 'input_len>2048'
  llmprof score tuesday.llmprof --predictor-file predictors.json --predictor-config monday`,
		Args: atLeastOne("a file of measurements"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.given = a.givenIn(cmd)
			return a.score(cmd.Context(), args, f)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.folds, "folds", 5, "parts into which the rows are cut")
	flags.StringSliceVar(&f.models, "model", []string{fit.LinearModel, fit.Auto}, "models to compare: auto, linear, and roofline for the datasheet's times")
	flags.StringSliceVar(&f.targets, "target", []string{string(fit.Median), string(fit.Mean)}, "what counts as the truth: median, mean")
	flags.StringVar(&f.holdOut, "hold-out", "", "rows to test on instead of folds, e.g. 'batch_size>16' or 'input_len>2048'")
	flags.StringVar(&f.predictor, "predictor-file", "", "score a predictor of this `file` instead of folds")
	flags.StringVar(&f.config, "predictor-config", "", "which predictor of the file (default: its only one)")
	flags.StringVar(&f.figure, "figure", "", "draw measured and held-out times as SVG to this `file`")
	completeWith(cmd, "model", fit.Auto, fit.LinearModel, rooflineModel)
	completeWith(cmd, "target", string(fit.Median), string(fit.Mean))
	registerSamples(cmd, &f.samples)
	onlyOnCommandLine(flags, "model", "hold-out", "predictor-file", "predictor-config", "figure")
	return cmd
}

// validate refuses what is unknown, and flags that would be without effect.
func (f *scoreFlags) validate() error {
	for _, t := range f.targets {
		if t != string(fit.Median) && t != string(fit.Mean) {
			return usage("", "unknown target %q: want median or mean", t)
		}
	}
	for _, m := range f.models {
		if m != fit.Auto && m != fit.LinearModel && m != rooflineModel {
			return usage("", "unknown model %q: want %s, %s or %s", m, fit.Auto, fit.LinearModel, rooflineModel)
		}
	}
	if f.predictor == "" && f.config != "" {
		return usage("", "--predictor-config is %s: it goes with --predictor-file", f.config)
	}
	for _, pair := range [][2]string{
		{"hold-out", "predictor-file"},
		{"hold-out", "figure"},
		{"hold-out", "folds"},
		{"predictor-file", "figure"},
		{"predictor-file", "folds"},
		{"predictor-file", "model"},
	} {
		if f.given(pair[0]) && f.given(pair[1]) {
			return usage("", "--%s and --%s do not go together", pair[0], pair[1])
		}
	}
	return nil
}

func (a *app) score(ctx context.Context, files []string, f *scoreFlags) error {
	if err := f.validate(); err != nil {
		return err
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	parts, err := a.readParts(files, readOptions{cat: cat})
	if err != nil {
		return err
	}
	data, measured, err := observations(parts, f.samples)
	if err != nil {
		return err
	}
	if mixed := data.Mode(fit.Mixed); f.predictor == "" && f.holdOut == "" && len(mixed) < f.folds && len(mixed) < len(data.Rows) {
		if len(mixed) > 0 {
			a.log().Info(fmt.Sprintf("%d mixed steps are too few to hold some out: not scored", len(mixed)))
		}
		data.Rows = slices.DeleteFunc(data.Rows, func(r fit.Row) bool { return r.Mode == fit.Mixed })
	}
	scores, err := a.scores(ctx, data.Rows, f)
	if err != nil {
		return err
	}
	if slices.Contains(f.models, rooflineModel) && f.predictor == "" {
		theory, err := theoryScores(cat, measured, data.Rows, f)
		if err != nil {
			return err
		}
		scores = append(scores, theory...)
	}
	sortScores(scores)
	if f.figure != "" {
		held, err := fit.HeldOut(ctx, data.Rows, f.folds, fit.Options{})
		if err != nil {
			return usage("", "%w", err)
		}
		title := "Step times, held out and predicted"
		if h := measured.Header; h.Deploy.Model != "" && h.Device.Reported != "" {
			title = fmt.Sprintf("%s on %s: step times, held out and predicted", h.Deploy.Model, h.Device.Reported)
		}
		if err := writeFile(f.figure, func(w io.Writer) error { return chart.SVG(w, report.HeldOutFigure(title, held)) }); err != nil {
			return err
		}
	}
	return a.write(report.Scores(scores, version()), report.ScoreTable(scores))
}

// scores compares models over folds, or scores one finished predictor.
func (a *app) scores(ctx context.Context, rows []fit.Row, f *scoreFlags) ([]fit.Score, error) {
	var all []fit.Score
	if f.predictor != "" {
		predictor, config, err := a.openPredictor(f.predictor, f.config)
		if err != nil {
			return nil, err
		}
		for _, target := range f.targets {
			some, err := fit.ScorePredictor(predictor, rows, fit.Target(target), config, "given predictor")
			if err != nil {
				return nil, usage("", "%w", err)
			}
			all = append(all, some...)
		}
		return all, nil
	}
	models := trainable(f.models)
	if len(models) == 0 {
		return nil, nil
	}
	evaluate := func(target fit.Target) ([]fit.Score, error) {
		return fit.CrossValidate(ctx, rows, f.folds, models, target)
	}
	if f.holdOut != "" {
		split, err := parseSplit(f.holdOut)
		if err != nil {
			return nil, err
		}
		evaluate = func(target fit.Target) ([]fit.Score, error) {
			return fit.HoldOut(ctx, rows, split, models, target)
		}
	}
	for _, target := range f.targets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		some, err := evaluate(fit.Target(target))
		if err != nil {
			return nil, usage("", "%w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// trainable leaves out the models that need no training.
func trainable(models []string) []string {
	return slices.DeleteFunc(slices.Clone(models), func(m string) bool { return m == rooflineModel })
}

// sortScores orders by mode and target and keeps the order of the models.
func sortScores(scores []fit.Score) {
	rank := func(s fit.Score) int {
		n := 0
		if s.Mode != fit.Prefill {
			n += 2
		}
		if s.Target != fit.Median {
			n++
		}
		return n
	}
	slices.SortStableFunc(scores, func(a, b fit.Score) int { return rank(a) - rank(b) })
}
