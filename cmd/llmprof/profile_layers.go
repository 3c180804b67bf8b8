package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/measure"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
)

// layerFlags are the flags of profile layers.
type layerFlags struct {
	*engineFlags
	outputFlags
	hardware              string
	model, token, mode    string
	warmup, runs          int
	prefillMax, decodeMax counts
	sequences             counts
	full, appending       bool
	tolerance             float64
	maxPoints             int
	format                string
	scaling               scalingFlags
}

// The modes of a sweep over layers.
const (
	modePrefill = "prefill"
	modeDecode  = "decode"
	modeBoth    = "both"
)

func (a *app) profileLayersCommand() *cobra.Command {
	f := &layerFlags{engineFlags: newEngineFlags(), prefillMax: newCount(1, 2048), decodeMax: newCount(0, 2048), sequences: newCount(1, 1)}
	cmd := &cobra.Command{
		Use:   "layers MODEL",
		Short: "Time every layer of the model",
		Long: `Profile layers times each layer of one decoder block, the embedding, the final
norm and the head: for prompts of growing length on an empty cache, and for one
token on a growing cache. It writes a profile, and from it <hardware>/<model>.csv
as LLM-Profile does, or with --format llmservingsim a bundle for LLMServingSim.

A sparse sweep times where the curve bends and says what linear interpolation
between the points misses; --full times every length, as LLM-Profile does.

With any --scaling-… flag the whole model is measured too, and compared with
what its layers add up to: llmprof validate layers does the same later.`,
		Example: `  llmprof profile layers ./tiny --device cpu --hardware epyc --prefill-max 512 --decode-max 512
  llmprof profile layers meta-llama/Llama-3.1-8B --hardware RTX3090 --device cuda --warmup 10 --repeat 100
  llmprof profile layers Qwen3-8B --hardware H200 --max-num-seqs 64 --format llmservingsim`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && f.model != "" {
				return nil
			}
			if len(args) == 1 && f.model != "" && args[0] != f.model {
				return usage("", "the model is given twice: %s and --model %s", args[0], f.model)
			}
			return oneEngineModel(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.changed = cmd.Flags().Changed
			ref := f.model
			if len(args) > 0 {
				ref = args[0]
			}
			return a.profileLayers(cmd.Context(), ref, f)
		},
		ValidArgsFunction: a.completeModels,
	}
	flags := cmd.Flags()
	f.engineFlags.register(cmd, 1)
	f.outputFlags.register(cmd)
	flags.StringVar(&f.hardware, "gpu", "", "name of the hardware in what is written (--hardware; default: what the engine reports)")
	flags.StringVar(&f.model, "model", "", "the model, in place of the argument")
	flags.StringVar(&f.token, "hf-token", "", "Hugging Face token for gated models (default: $HF_TOKEN); never printed or stored")
	flags.StringVar(&f.mode, "mode", modeBoth, "prefill, decode or both")
	flags.IntVar(&f.warmup, "warmup", 10, "runs of each shape that are not counted")
	flags.IntVar(&f.runs, "repeat", 100, "samples of each shape")
	flags.Var(&f.prefillMax, "prefill-max", "longest prompt in tokens")
	flags.Var(&f.decodeMax, "decode-max", "longest cache in tokens")
	flags.Var(&f.sequences, "max-num-seqs", "largest batch of decoding sequences to time as well (powers of two)")
	flags.BoolVar(&f.full, "full", false, "time every length from 1 to --prefill-max and every cache from 0 to --decode-max")
	flags.Float64Var(&f.tolerance, "tolerance", 0.03, "relative error of interpolation from which a sparse sweep times the middle of a stretch")
	flags.IntVar(&f.maxPoints, "max-points", 48, "most shapes of either axis of a sparse sweep")
	flags.BoolVar(&f.appending, "append", false, "the same as --resume")
	flags.StringVar(&f.format, "format", formatLayersCSV, "what to write beside the profile: layers-csv, llmservingsim or llmprof for nothing")
	f.scaling.register(cmd)
	completeWith(cmd, "mode", modePrefill, modeDecode, modeBoth)
	completeWith(cmd, "format", formatLayersCSV, formatLLMServingSim, fileProfile)
	onlyOnCommandLine(flags, "model", "hf-token", "mode", "format", "append", "gpu")
	return cmd
}

// sweep checks the flags and builds the sweep.
func (f *layerFlags) sweep() (measure.Sweep, error) {
	s := measure.Sweep{
		PrefillMax: f.prefillMax.values[0], DecodeMax: f.decodeMax.values[0], MaxSequences: f.sequences.values[0],
		Warmup: f.warmup, Runs: f.runs, Full: f.full, Tolerance: f.tolerance, MaxPoints: f.maxPoints,
	}
	switch f.mode {
	case modeBoth:
	case modePrefill:
		s.DecodeMax, s.MaxSequences = -1, 1
	case modeDecode:
		s.PrefillMax = 0
	default:
		return s, usage("", "unknown --mode %q: want prefill, decode or both", f.mode)
	}
	switch {
	case f.runs < 1:
		return s, usage("", "--repeat is %d: want at least 1", f.runs)
	case f.warmup < 0:
		return s, usage("", "--warmup is %d: want 0 or more", f.warmup)
	case !(f.tolerance > 0 && f.tolerance < 1):
		return s, usage("", "--tolerance is %g: want a share between 0 and 1", f.tolerance)
	case f.maxPoints < 3:
		return s, usage("", "--max-points is %d: want at least 3", f.maxPoints)
	case f.resume && f.overwrite:
		return s, usage("", "--resume goes on with a profile and --overwrite replaces it: give one of them")
	case f.format != formatLayersCSV && f.format != formatLLMServingSim && f.format != fileProfile:
		return s, usage("", "unknown --format %q: want layers-csv, llmservingsim or llmprof", f.format)
	}
	return s, nil
}

func (a *app) profileLayers(ctx context.Context, ref string, f *layerFlags) error {
	f.resume = f.resume || f.appending
	sweep, err := f.sweep()
	if err != nil {
		return err
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	model, err := a.engineModel(cat, ref, f.place == "local")
	if err != nil {
		return err
	}
	if f.token != "" {
		f.env = append(f.env, "HF_TOKEN="+f.token)
	}
	driver, where, setup, err := f.open(model)
	if err != nil {
		return err
	}
	if !driver.Abilities().Layers {
		return usage("--engine torch can", "%s cannot time single layers", driver.Name())
	}
	if f.out == "" {
		f.out = fmt.Sprintf("layers_%s.llmprof", fileName(model.name))
	}
	m := &measurement{
		outputFlags: &f.outputFlags, app: a, cat: cat, driver: driver, place: where, setup: setup, model: model.name,
		hardware: f.hardware, tasks: sweep.Tasks(), next: sweep.Next,
	}
	outcome, took, err := m.run(ctx)
	if len(m.profile.Points) == 0 {
		return err
	}
	document := report.Measurement(m.profile, outcome, took.Seconds(), version())
	document.Place = where.String()
	document.Files = []string{f.out}
	prefill, decode := measure.Interpolations(m.profile.Points)
	document.Interpolation = map[string]report.InterpolationKeys{}
	if prefill.Points > 0 {
		document.Interpolation["prompt lengths"] = report.Interpolation(prefill)
	}
	if decode.Points > 0 {
		document.Interpolation["contexts"] = report.Interpolation(decode)
	}
	if err != nil {
		return err
	}
	written, err := a.writeLayers(m.profile, f)
	if err != nil {
		return err
	}
	document.Files = append(document.Files, written...)
	if err := a.write(document, report.MeasurementTables(document)...); err != nil {
		return err
	}
	if err := verdict(outcome, f.out); err != nil {
		return err
	}
	if f.scaling.asked(f.changed) {
		return a.scaleLayers(ctx, m, f)
	}
	return nil
}

// writeLayers writes what --format asks for, below <hardware>/<model>.
func (a *app) writeLayers(p *profile.Profile, f *layerFlags) ([]string, error) {
	if f.format == fileProfile {
		return nil, nil
	}
	hardware := f.hardware
	if hardware == "" {
		hardware = p.Header.Device.Name
	}
	if hardware == "" {
		hardware = fileName(p.Header.Device.Reported)
	}
	if hardware == "" {
		hardware = "unknown-hardware"
	}
	base := filepath.Join(hardware, filepath.FromSlash(p.Header.Deploy.Model))
	if f.format == formatLayersCSV {
		name := base + ".csv"
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return nil, fileError("write", name, err)
		}
		return []string{name}, a.export(p, formatLayersCSV, name, exportOptions{})
	}
	name := filepath.Join(base, variant(p))
	return []string{name}, a.export(p, formatLLMServingSim, name, exportOptions{})
}

// variant is the name that LLMServingSim gives to the formats of a profile.
func variant(p *profile.Profile) string {
	if p.Header.Deploy.DType == "" {
		return "bf16"
	}
	return string(p.Header.Deploy.DType)
}
