package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// benchmarkName is the built-in measurement: Qwen3-4B on one A100.
const benchmarkName = "benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json.gz"

//go:embed builtin/benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json.gz
var benchmark []byte

// tour is what quickstart finds out.
type tour struct {
	report.Head
	Analyses    []report.AnalysisDocument `json:"analyses"`
	Scores      []fit.Score               `json:"scores"`
	Predictions []compared                `json:"predictions"`
	Next        []string                  `json:"next"`
}

// compared is one step: measured, predicted by a model that had not seen it,
// and computed from the datasheet.
type compared struct {
	report.PredictionKeys
	MeasuredMS    float64 `json:"measured_ms"`
	TheoreticalMS float64 `json:"theoretical_ms"`
}

func (a *app) quickstartCommand() *cobra.Command {
	var save string
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "The main job in a few seconds, on built-in measured data",
		Long: `Quickstart analyses Qwen3-4B on an A100, trains a step predictor on 94
configurations that were measured there, shows its error on held-out rows
beside the usual regression's, predicts two steps, and says what to type next.
It works offline and writes no file unless --save names one.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if save != "" {
				return a.saveBenchmark(save)
			}
			t, err := a.tour(cmd.Context())
			if err != nil {
				return err
			}
			return a.showTour(t)
		},
	}
	cmd.Flags().StringVar(&save, "save", "", "write the built-in benchmark to this `file`, to try the other commands on")
	return cmd
}

func (a *app) saveBenchmark(name string) error {
	err := writeFile(name, func(w io.Writer) error {
		_, err := w.Write(benchmark)
		return err
	})
	if err == nil {
		a.log().Info("wrote " + name + ": 94 configurations of Qwen3-4B on an A100, MIT licence (vikranth22446/llm_execution_time_predictor)")
	}
	return err
}

// tour runs the main job.
func (a *app) tour(ctx context.Context) (*tour, error) {
	cat, err := catalog.Builtin()
	if err != nil {
		return nil, err
	}
	model, err := cat.Model("Qwen3-4B")
	if err != nil {
		return nil, err
	}
	device, _, err := cat.Device("a100-sxm-80gb")
	if err != nil {
		return nil, err
	}
	est, err := cost.New(model, device, deploy.Config{}, cost.Settings{})
	if err != nil {
		return nil, err
	}
	t := &tour{Head: report.NewHead("quickstart", version())}
	for _, batch := range []int{1, 8, 64} {
		analysis, err := est.Analyze(cost.Request{Batch: batch, Input: 1024, Output: 128})
		if err != nil {
			return nil, err
		}
		t.Analyses = append(t.Analyses, report.Analysis(analysis, version()))
	}
	p, _, err := stepbench.Read(benchmarkName, bytes.NewReader(benchmark), stepbench.Options{Device: deviceNamer(cat)})
	if err != nil {
		return nil, err
	}
	data, err := fit.ObservationsOf(p.Points)
	if err != nil {
		return nil, err
	}
	t.Scores, err = a.scores(ctx, data.Rows, &scoreFlags{folds: 5, models: []string{fit.LinearModel, fit.Auto}, targets: []string{string(fit.Median)}})
	if err != nil {
		return nil, err
	}
	held, err := fit.HeldOut(ctx, data.Rows, 5, fit.Options{})
	if err != nil {
		return nil, err
	}
	t.compare(est, held)
	t.Next = nextCommands()
	return t, nil
}

// compare picks one prefill and one decode step of the held-out rows.
func (t *tour) compare(est *cost.Estimator, held []fit.Held) {
	for _, h := range held {
		var pass forward.Pass
		switch {
		case h.Mode == fit.Prefill && h.BatchSize == 4 && h.InputLen == 512:
			pass = forward.Prefill(h.BatchSize, h.InputLen, 0)
		case h.Mode == fit.Decode && h.BatchSize == 8 && h.InputLen == 1024:
			pass = forward.Decode(h.BatchSize, h.InputLen)
		default:
			continue
		}
		t.Predictions = append(t.Predictions, compared{
			PredictionKeys: report.Prediction("held out", string(h.Mode), h.BatchSize, h.InputLen, h.Estimate),
			MeasuredMS:     unit.Seconds(h.Median).Milliseconds(),
			TheoreticalMS:  est.Seconds(pass).Milliseconds(),
		})
	}
}

// nextCommands say where to go from here.
func nextCommands() []string {
	return []string{
		"llmprof analyze Llama-3.1-70B --gpu h100 --tp 4 --batch-size 1,16,64",
		"llmprof models --filter qwen3        # or your folder with config.json, or a hub id",
		"llmprof quickstart --save bench.json.gz",
		"llmprof train my-gpu bench.json.gz --predictor-file predictors.json",
		"llmprof predict predictors.json my-gpu --mode decode --bs 8,64 --input-len 1k,8k",
	}
}

// showTour writes the tour: a story for people, one document for machines.
func (a *app) showTour(t *tour) error {
	analyses := report.Sweep(t.Analyses)
	analyses.Title = "1. Qwen3-4B on an A100 from datasheet figures alone (theoretical)"
	scores := report.ScoreTable(t.Scores)
	scores.Title = "2. Step predictors trained on 94 measured configurations, scored on held-out rows"
	steps := comparison(t.Predictions)
	steps.Title = "3. Two steps that were held out: measured, predicted, and what the datasheet says"
	if !a.people() {
		return a.write(t, analyses, scores, steps)
	}
	return errors.Join(
		report.Text(a.stdout, analyses, scores, steps),
		printLines(a.stdout, "", "4. Next", "  "+strings.Join(t.Next, "\n  ")),
	)
}

func printLines(w io.Writer, lines ...string) error {
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func comparison(steps []compared) report.Table {
	t := report.Table{Columns: []report.Column{
		{Name: "mode", Left: true},
		{Name: "batch", Key: "batch_size"},
		{Name: "input", Key: "input_len"},
		{Name: "measured ms", Key: "measured_ms"},
		{Name: "predicted ms", Key: "latency_ms"},
		{Name: "80 % interval", Key: "interval_ms"},
		{Name: "basis", Left: true},
		{Name: "datasheet ms", Key: "theoretical_ms"},
	}}
	for _, s := range steps {
		interval := report.Missing()
		if s.Latency.Level != nil {
			interval = report.Say(fmt.Sprintf("%.2f .. %.2f", *s.Latency.Low, *s.Latency.High))
		}
		t.Rows = append(t.Rows, []report.Cell{
			report.Say(s.Mode), report.Whole(s.BatchSize), report.Whole(s.InputLen), report.Fixed(s.MeasuredMS, 2),
			report.Fixed(s.Latency.Value, 2), interval, report.Say(string(s.Latency.Basis)), report.Fixed(s.TheoreticalMS, 2),
		})
	}
	return t
}
