package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/fit/memory"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// validateMemoryFlags are the flags of validate memory.
type validateMemoryFlags struct {
	architectureFlags
	intermediate int
	calculators  []string
	expected     string
	// total is the user's own figure, in GB of 1e9 bytes; 0 for none.
	total float64

	gpu, model, quant, kv string
	reserve               unit.Bytes
	utilization           float64
	batchedTokens         counts
	sequences             counts

	compat, detailed     bool
	scheme, failOn       string
	threshold            float64
	csv, record, summary string
	changed              func(string) bool
}

func (a *app) validateMemoryCommand() *cobra.Command {
	f := &validateMemoryFlags{batchedTokens: newCount(0, 0), sequences: newCount(0, 0)}
	cmd := &cobra.Command{
		Use:   "memory PATH...",
		Short: "Hold memory calculators against measured memory profiles",
		Long: `Validate memory compares memory profiles with what calculators expect of the
same run: the error of each component, quality classes, what the errors have in
common (by model size, format, batch and GPUs), and what to change.

A PATH is a memory profile of any schema, a results CSV of a batch, a validation
CSV, or a folder, of which all .json below it are read that are memory profiles.
A row of a batch stands for its profile, where that is found beside the table. A
validation CSV is analysed with the figures that stand in it.

Calculators are this project's own (ours) and those of LLM Sizer: script-v1 and
script-v2 of its profiling scripts, app-early (commit 2c8af80) and app-late
(83714cf) of its web app, with their mistakes. script-rule is how its profiler
splits what it has measured: not the total, but its parts are held to the measured
ones. Without --calculator they are ours, script-v2 and app-late, the last states
of each. What --model-params, --num-layers and the like state wins over the model's
own architecture, for each of them.
--expected adds a CSV of your own figures with the columns model, batch,
input_len, output_len and total_gb in GB of 1e9 bytes, and optionally dtype,
gpus, gpu, weights_gb, kv_cache_gb, activations_gb and overhead_gb.

Only what was measured is compared. The parts in LLM Sizer's profiles follow from
its formulas, and an engine that fills its device says nothing about its need
with its total; --compat compares all the same, as LLM Sizer does. Differences are
measured less calculated: negative is an overestimate.

It exits with 0 whatever the errors are; with --fail-on CLASS it exits with 1 if
nothing could be compared, or if a total is in this class or a worse one.`,
		Example: `  llmprof validate memory results/memory-profiles
  llmprof validate memory llama.json --calculator all --gpu h100 --detailed
  llmprof validate memory batch-bench-results-*.csv --expected sizes.csv -o markdown
  llmprof validate memory old.json --compat --scheme batch-validate --calculator app-late --csv validation-results.csv`,
		Args: atLeastOne("a memory profile, a table of them or a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.changed = cmd.Flags().Changed
			return a.validateMemory(cmd.Context(), args, f)
		},
	}
	f.register(cmd)
	_ = cmd.RegisterFlagCompletionFunc("gpu", a.completeDevices)
	_ = cmd.RegisterFlagCompletionFunc("model-id", a.completeModels)
	return cmd
}

func (f *validateMemoryFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.calculators, "calculator", nil, "calculators to judge (repeatable): "+strings.Join(calculatorNames(), ", ")+" or all")
	flags.StringVar(&f.expected, "expected", "", "CSV `file` of your own expectations, judged as well")
	flags.Float64Var(&f.total, "calculator-total", 0, "your own figure for the total of every profile, in GB of 1e9 bytes; judged alone without --calculator")
	flags.StringVar(&f.gpu, "gpu", "", "device, where the profile does not say")
	flags.StringVar(&f.gpu, "gpu-id", "", "the same as --gpu")
	flags.StringVar(&f.model, "model-id", "", "model to calculate, instead of the one that the profile names")
	f.architectureFlags.register(cmd)
	flags.IntVar(&f.intermediate, "intermediate-size", 0, "width of the feed-forward layers (default: from the model's config)")
	flags.StringVar(&f.quant, "inference-quant", "", "weight format to calculate with: fp16, bf16, fp8, int8, int4, … (default: the profile's)")
	flags.StringVar(&f.kv, "kv-quant", "", "KV cache format to calculate with: fp16_bf16, fp8_bf16 or int8 (default: the profile's)")
	flags.Var(bytesFlag{&f.reserve}, "reserve-memory", "memory for context, communicator and graphs of each GPU, or for the processes of an engine on a CPU, for ours (default 1GiB on a GPU; on a CPU none, and ours has no total)")
	flags.Var(bytesFlag{&f.reserve}, "reserve", "the same as --reserve-memory")
	flags.Float64Var(&f.utilization, "gpu-memory-utilization", 0, "share of device memory that the engine may take, for ours, where the profile does not say")
	flags.Var(&f.batchedTokens, "max-num-batched-tokens", "most tokens of one step of the engine, for ours, where the profile does not say")
	flags.Var(&f.sequences, "max-num-seqs", "most sequences of one step of the engine, for ours, where the profile does not say")
	flags.BoolVar(&f.compat, "compat", false, "take computed parts and the whole peak as measured, as LLM Sizer does")
	flags.StringVar(&f.scheme, "scheme", string(memory.Guide), "bounds of the quality classes: one of "+unit.List(memory.Schemes()))
	flags.StringVar(&f.failOn, "fail-on", "", "exit with 1 if a total is in this quality `class` or a worse one")
	flags.Float64Var(&f.threshold, "threshold", 0, "list only totals that are off by more than so many percent")
	flags.BoolVar(&f.detailed, "detailed", false, "show every size that was compared, and what was assumed")
	flags.StringVar(&f.csv, "csv", "", "write the comparisons with the first calculator to this `file`, in the columns of LLM Sizer's batch-validate")
	flags.StringVar(&f.record, "record", "", "append the profiles with the first calculator's totals to this CSV `file`, in the columns of LLM Sizer's validate-profile")
	flags.StringVar(&f.summary, "summary", "", "write the tables as text to this `file`")
	for _, alias := range []string{"gpu-id", "reserve"} {
		flags.Lookup(alias).Hidden = true
	}
	onlyOnCommandLine(
		flags, "calculator", "expected", "calculator-total", "gpu", "gpu-id", "model-id", "intermediate-size", "inference-quant", "kv-quant", "compat", "scheme", "fail-on", "threshold",
		"csv", "record", "summary",
	)
	completeWith(cmd, "calculator", append(calculatorNames(), calculatorAll)...)
	completeWith(cmd, "scheme", fmt.Sprint(memory.Guide), fmt.Sprint(memory.ValidateCalculator), fmt.Sprint(memory.BatchValidate), fmt.Sprint(memory.ValidateProfile))
}

// classesOf lists the classes of a scheme, the best first.
func classesOf(s memory.Scheme) []string {
	var classes []string
	for percent := range 101 {
		classes = append(classes, s.Class(float64(percent)))
	}
	return slices.Compact(classes)
}

func (f *validateMemoryFlags) validate() error {
	scheme, err := memory.ParseScheme(f.scheme)
	switch {
	case err != nil:
		return usage("", "--scheme: %w", err)
	case !(f.threshold >= 0) || math.IsInf(f.threshold, 0):
		return usage("", "--threshold is %g: want a percentage", f.threshold)
	case !(f.utilization >= 0 && f.utilization <= 1):
		return usage("", "--gpu-memory-utilization is %g: want a share, 0 to 1", f.utilization)
	case f.changed("calculator-total") && !(f.total > 0 && f.total < 1e6):
		return usage("", "--calculator-total is %g: want a size in GB", f.total)
	}
	if f.failOn != "" && !slices.ContainsFunc(classesOf(scheme), func(c string) bool { return strings.EqualFold(c, f.failOn) }) {
		return usage("", "--fail-on is %s: the classes of %s are %s", f.failOn, scheme, strings.Join(classesOf(scheme), ", "))
	}
	if _, err := deploy.ParseWeightFormat(f.quant, catalog.BF16); err != nil {
		if _, err := catalog.ParseDType(f.quant); err != nil {
			return usage("", "--inference-quant: %w", err)
		}
	}
	if f.intermediate < 0 || f.intermediate > 1<<20 {
		return usage("", "--intermediate-size is %d: want 0 to %d", f.intermediate, 1<<20)
	}
	if _, err := f.cacheFormat(); err != nil {
		return usage("fp16_bf16, fp8_bf16 and int8 are LLM Sizer's", "--kv-quant: %w", err)
	}
	return f.architectureFlags.validate()
}

func (a *app) validateMemory(ctx context.Context, paths []string, f *validateMemoryFlags) error {
	if err := f.validate(); err != nil {
		return err
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	calculators, err := a.chosen(cat, f)
	if err != nil {
		return err
	}
	said, err := a.overrides(ctx, cat, f)
	if err != nil {
		return err
	}
	in, err := a.readMemoryProfiles(paths, f.compat)
	if err != nil {
		return err
	}
	in.apply(said)
	judged := in.judge(calculators, memory.Options{Scheme: memory.Scheme(f.scheme), Catalog: cat})
	document := report.MemoryValidation(judged, in.MemoryReading, version())
	if len(calculators) > 1 && (f.csv != "" || f.record != "") {
		a.log().Info(fmt.Sprintf("the CSV has room for one calculator, %s: --calculator names another", calculators[0].Name()))
	}
	if err := writeMemoryFiles(&document, in, calculators[0].Name(), f); err != nil {
		return err
	}
	a.adviseMemory(judged)
	if f.threshold > 0 {
		document = document.Above(f.threshold)
	}
	if err := a.write(document, report.MemoryValidationTables(document, f.detailed)...); err != nil {
		return err
	}
	return failing(judged, f.failOn)
}

// adviseMemory says what would have let more be compared.
func (a *app) adviseMemory(judged memory.Report) {
	if len(judged.Verdicts) > 0 && !slices.ContainsFunc(judged.Verdicts, func(v memory.Verdict) bool { return len(v.Comparisons) > 0 }) {
		a.warn("nothing could be compared: of these profiles no part was measured; --compat takes the parts that were computed, as LLM Sizer does")
	}
	models, devices := 0, 0
	for _, s := range judged.Summaries {
		for _, m := range s.Missed {
			if _, ok := errors.AsType[*memory.UnknownModelError](m.Err); ok {
				models++
			}
			if unknown, ok := errors.AsType[*catalog.UnknownError](m.Err); ok && unknown.Kind == "device" {
				devices++
			}
		}
	}
	if models > 0 {
		a.log().Info(fmt.Sprintf("not calculated, since the model is not known: %d; models are matched by id, never by size: --model-id or a file for --catalog tells what it is", models))
	}
	if devices > 0 {
		a.log().Info(fmt.Sprintf("not calculated, since the device is not known: %d; --gpu names it", devices))
	}
}

// failing is the verdict of --fail-on.
func failing(judged memory.Report, class string) error {
	classes := classesOf(judged.Scheme)
	first := slices.IndexFunc(classes, func(c string) bool { return strings.EqualFold(c, class) })
	if first < 0 {
		return nil
	}
	if !slices.ContainsFunc(judged.Verdicts, func(v memory.Verdict) bool { return len(v.Comparisons) > 0 }) {
		return &verdictError{fmt.Sprintf("no total was compared, so none is known to be better than %s", classes[first])}
	}
	n := 0
	for _, v := range judged.Verdicts {
		if slices.Index(classes, v.Class) >= first {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return &verdictError{fmt.Sprintf("%d of %d totals are %s or worse", n, len(judged.Verdicts), classes[first])}
}
