package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/measure"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// The formats of a measurement's file.
const (
	fileProfile   = "llmprof"
	fileBenchmark = "benchmark"
)

// stepFlags are the flags of profile step.
type stepFlags struct {
	*engineFlags
	outputFlags
	grid               string
	maxBatch, maxInput counts
	output             counts
	runs, warmup       int
	hardware           string
	format             string
}

func (a *app) profileStepCommand() *cobra.Command {
	f := &stepFlags{engineFlags: newEngineFlags(), maxBatch: newCount(1, 64), maxInput: newCount(1, 16384), output: newCount(1, 32)}
	cmd := &cobra.Command{
		Use:   "step MODEL",
		Short: "Time whole forward passes over a grid",
		Long: `Profile step times prefill and decode steps of MODEL on a real engine: every
combination of batch size and input length of a grid, powers of two unless
--grid says otherwise. MODEL is a folder with a config.json, a .gguf file, a hub
id or a name of the catalog.

Every point is warmed up, measured --num-runs times and kept with all samples;
points that scatter are repeated, and flagged if they still do. A point that the
engine has no memory for is noted with its reason, and the run goes on. The
cheap points come first. Ctrl-C and --budget keep what is done, and --resume
goes on from there.

train fits a predictor to the profile.`,
		Example: `  llmprof profile step ./tiny --engine torch --device cpu --grid 1..8x16..512 -o tiny.llmprof
  llmprof profile step meta-llama/Llama-3.1-8B --engine vllm --budget 30m -o llama.llmprof
  llmprof profile step Qwen3-4B --engine sglang --tp_size 2 --max_batch_size 32 --format benchmark
  llmprof profile step ./tiny --resume -o tiny.llmprof`,
		Args: oneEngineModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.changed = cmd.Flags().Changed
			return a.profileStep(cmd.Context(), args[0], f)
		},
		ValidArgsFunction: a.completeModels,
	}
	flags := cmd.Flags()
	f.engineFlags.register(cmd)
	f.registerCut(cmd, 0)
	f.outputFlags.register(cmd)
	flags.StringVar(&f.hardware, "gpu", "", "name of the hardware in what is written (--hardware; default: what the engine reports)")
	flags.StringVar(&f.grid, "grid", "", "batch sizes x input lengths, each a list or a range of powers of two: 1,4,16x128..4k")
	flags.Var(&f.maxBatch, "max-num-seqs", "largest batch size of the default grid (--max_batch_size)")
	flags.Var(&f.maxInput, "max-input-tokens", "largest input length of the default grid")
	flags.Var(&f.output, "output-len", "tokens to generate; one less are timed as decode steps")
	flags.IntVar(&f.runs, "num-runs", 3, "samples of each point")
	flags.IntVar(&f.warmup, "warmup", 3, "runs before them that are not counted")
	flags.StringVar(&f.format, "format", fileProfile, "llmprof, or benchmark to write the forward-time predictor's JSON as well")
	completeWith(cmd, "format", fileProfile, fileBenchmark)
	onlyOnCommandLine(flags, "format", "grid", "gpu")
	return cmd
}

// oneEngineModel wants exactly the model.
func oneEngineModel(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("see "+cmd.CommandPath()+" --help", "%s wants one model, and got %d: a folder with a config.json, a .gguf file, a hub id or a name of the catalog", strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), len(args))
	}
	return nil
}

// engineModelOrFlag wants the model as the argument or as --model.
func engineModelOrFlag(cmd *cobra.Command, args []string, model string) error {
	if len(args) == 0 && model != "" {
		return nil
	}
	if len(args) == 1 && model != "" && args[0] != model {
		return usage("", "the model is given twice: %s and --model %s", args[0], model)
	}
	return oneEngineModel(cmd, args)
}

func (a *app) profileStep(ctx context.Context, ref string, f *stepFlags) (fault error) {
	grid, err := f.points()
	if err != nil {
		return err
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	model, err := a.engineModel(cat, ref, f.local())
	if err != nil {
		return err
	}
	driver, where, setup, err := f.open(ctx, model)
	if err != nil {
		return err
	}
	defer func() { fault = errors.Join(fault, f.close()) }()
	if err := able(driver, grid); err != nil {
		return err
	}
	benchmark := ""
	if f.format == fileBenchmark {
		benchmark = f.out
		if benchmark == "" {
			benchmark = fmt.Sprintf("benchmark_data_%s_TP_%d_PP_%d.json", fileName(model.name), f.tp.values[0], f.pp.values[0])
		}
		if strings.HasSuffix(benchmark, ".llmprof") || strings.HasSuffix(benchmark, ".gz") {
			return usage("for example -o benchmark.json", "--format benchmark writes JSON to -o %s, and the profile beside it: name a .json file", benchmark)
		}
		f.out = strings.TrimSuffix(benchmark, ".json") + ".llmprof"
	}
	if f.out == "" {
		f.out = fmt.Sprintf("steps_%s_TP_%d_PP_%d.llmprof", fileName(model.name), f.tp.values[0], f.pp.values[0])
	}
	m := &measurement{
		outputFlags: &f.outputFlags, app: a, cat: cat, driver: driver, place: where, setup: setup, model: model.name,
		hardware: f.hardware, tasks: grid.Tasks(f.warmup, f.runs),
	}
	if benchmark != "" {
		if err := f.free(benchmark); err != nil {
			return err
		}
	}
	outcome, took, err := m.run(ctx)
	document := report.Measurement(m.profile, outcome, took.Seconds(), version())
	document.Place, document.Held = where.String(), m.held
	document.Files = []string{f.out}
	if benchmark != "" && len(gridPoints(m.profile).Points) > 0 {
		err = errors.Join(err, a.writeBenchmark(benchmark, m.profile))
		document.Files = append(document.Files, benchmark)
	}
	if err != nil {
		return err
	}
	if err := a.write(document, report.MeasurementTables(document)...); err != nil {
		return err
	}
	return verdict(outcome, m.profile, f.out)
}

// able refuses what an engine cannot measure before it is started.
func able(driver engine.Driver, grid measure.Grid) error {
	abilities := driver.Abilities()
	if !abilities.Steps {
		return usage("--engine chooses another", "%s cannot time whole steps", driver.Name())
	}
	if most := abilities.MaxBatch; most > 0 {
		for _, b := range grid.BatchSizes {
			if b > most {
				return usage(fmt.Sprintf("--grid %dx…, or --max_batch_size %d", most, most), "%s runs at most %d sequences at once, and the grid asks for %d", driver.Name(), most, b)
			}
		}
	}
	return nil
}

// points checks the flags and builds the grid.
func (f *stepFlags) points() (measure.Grid, error) {
	grid := measure.Grid{
		BatchSizes: measure.PowersOfTwo(1, f.maxBatch.values[0]), InputLens: measure.PowersOfTwo(1, f.maxInput.values[0]), OutputLen: f.output.values[0],
	}
	switch {
	case f.runs < 1:
		return grid, usage("", "--num-runs is %d: want at least 1", f.runs)
	case f.warmup < 0:
		return grid, usage("", "--warmup is %d: want 0 or more", f.warmup)
	case f.format != fileProfile && f.format != fileBenchmark:
		return grid, usage("", "unknown --format %q: want llmprof or benchmark", f.format)
	}
	if err := f.outputFlags.validate(); err != nil {
		return grid, err
	}
	if f.grid == "" {
		return grid, nil
	}
	for _, name := range []string{"max-num-seqs", "max-input-tokens"} {
		if f.changed(name) {
			return grid, usage("", "--grid says which points are measured; --%s goes with the default grid", name)
		}
	}
	batches, inputs, ok := strings.Cut(f.grid, "x")
	if !ok {
		return grid, usage("for example --grid 1,4,16x128..4096", "--grid %q: want batch sizes x input lengths", f.grid)
	}
	var err error
	if grid.BatchSizes, err = parseAxis(batches); err != nil {
		return grid, usage("for example --grid 1,4,16x128..4096", "--grid: batch sizes: %w", err)
	}
	if grid.InputLens, err = parseAxis(inputs); err != nil {
		return grid, usage("for example --grid 1,4,16x128..4096", "--grid: input lengths: %w", err)
	}
	return grid, nil
}

// maxAxis bounds the values of one axis of a grid.
const maxAxis = 10_000

// parseAxis reads "1,4,16", "128..4k" (powers of two, both ends included) or a
// mixture.
func parseAxis(text string) ([]int, error) {
	var values []int
	seen := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "..")
		least, err := unit.ParseCount(low)
		if err != nil {
			return nil, err
		}
		most := least
		if ranged {
			if most, err = unit.ParseCount(high); err != nil {
				return nil, err
			}
		}
		if least < 1 || most < least || most > 1<<30 {
			return nil, fmt.Errorf("%q: want numbers from 1 to %d, the lower first", part, 1<<30)
		}
		for _, v := range measure.PowersOfTwo(least, most) {
			if !seen[v] {
				values = append(values, v)
			}
			seen[v] = true
		}
	}
	if len(values) > maxAxis {
		return nil, fmt.Errorf("%d values: want at most %d", len(values), maxAxis)
	}
	return values, nil
}

// gridPoints are the prefill and decode steps of a grid, and what failed of it.
func gridPoints(p *profile.Profile) *profile.Profile {
	return p.Filter(func(_ *profile.Header, point *profile.Point) bool {
		return point.Step != nil && point.Step.BatchSize > 0 && point.Step.Mode != profile.Mixed
	})
}

// writeBenchmark writes what the forward-time predictor's format has a place
// for.
func (a *app) writeBenchmark(name string, p *profile.Profile) error {
	kept := gridPoints(p)
	if len(kept.Points) == 0 {
		return usage("export --format layers-csv writes layers", "the profile holds no prefill or decode step of a grid, which is what a benchmark file is made of")
	}
	if n := len(p.Points) - len(kept.Points); n > 0 {
		a.log().Info(fmt.Sprintf("%s leaves out %d points that the format has no place for: mixed steps, memory", name, n))
	}
	return writeFile(name, func(w io.Writer) error {
		out := bufio.NewWriter(w)
		if err := stepbench.Write(out, kept); err != nil {
			return err
		}
		return out.Flush()
	})
}
