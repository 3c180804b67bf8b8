package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/chart"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/report"
)

// scoreFlags are the flags of score.
type scoreFlags struct {
	folds             int
	models, targets   []string
	predictor, config string
	figure            string
}

func (a *app) scoreCommand() *cobra.Command {
	f := &scoreFlags{}
	cmd := &cobra.Command{
		Use:   "score FILE...",
		Short: "Error on rows that a predictor has not seen",
		Long: `Score trains on part of the measurements and tests on the rest, and shows the
models side by side. Folds go by row number (row n is held out in fold n mod
k), so the figures repeat. With --predictor-file it scores that predictor on
the file instead.

The target median compares with the median of the runs, mean with the file's
own mean, which holds cold first runs.`,
		Example: `  llmprof score benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json --folds 5
  llmprof score bench.llmprof --model auto --target median --figure held-out.svg
  llmprof score tuesday.llmprof --predictor-file predictors.json --predictor-config monday`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.score(args, f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.folds, "folds", 5, "parts into which the rows are cut")
	flags.StringSliceVar(&f.models, "model", []string{fit.LinearModel, fit.Auto}, "models to compare")
	flags.StringSliceVar(&f.targets, "target", []string{string(fit.Median), string(fit.Mean)}, "what counts as the truth: median, mean")
	flags.StringVar(&f.predictor, "predictor-file", "", "score a predictor of this `file` instead of folds")
	flags.StringVar(&f.config, "predictor-config", "", "which predictor of the file (default: its only one)")
	flags.StringVar(&f.figure, "figure", "", "draw measured and held-out times as SVG to this `file`")
	return cmd
}

func (a *app) score(files []string, f *scoreFlags) error {
	for _, t := range f.targets {
		if t != string(fit.Median) && t != string(fit.Mean) {
			return usage("", "unknown target %q: want median or mean", t)
		}
	}
	for _, m := range f.models {
		if m != fit.Auto && m != fit.LinearModel {
			return usage("", "unknown model %q: want %s or %s", m, fit.Auto, fit.LinearModel)
		}
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	data, _, err := a.observations(cat, files)
	if err != nil {
		return err
	}
	scores, err := a.scores(data.Rows, f)
	if err != nil {
		return err
	}
	if f.figure != "" {
		held, err := fit.HeldOut(data.Rows, f.folds, fit.Options{})
		if err != nil {
			return usage("", "%w", err)
		}
		title := fmt.Sprintf("Step times held out and predicted, %d folds", f.folds)
		if err := writeFile(f.figure, func(w io.Writer) error { return chart.SVG(w, report.HeldOutFigure(title, held)) }); err != nil {
			return err
		}
	}
	return a.write(report.Scores(scores), report.ScoreTable(scores))
}

// scores compares models over folds, or scores one finished predictor.
func (a *app) scores(rows []fit.Row, f *scoreFlags) ([]fit.Score, error) {
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
	for _, target := range f.targets {
		some, err := fit.CrossValidate(rows, f.folds, f.models, fit.Target(target))
		if err != nil {
			return nil, usage("", "%w", err)
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b fit.Score) int {
		switch {
		case a.Mode == b.Mode:
			return 0
		case a.Mode == fit.Prefill:
			return -1
		default:
			return 1
		}
	})
	return all, nil
}
