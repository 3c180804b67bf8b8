package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
		Args: func(cmd *cobra.Command, args []string) error { return engineModelOrFlag(cmd, args, f.model) },
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
	f.engineFlags.register(cmd)
	f.registerCut(cmd, 1)
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
	flags.BoolVar(&f.scaling.skip, "skip-scaling", false, "do not compare with the whole model, whatever other --scaling flags say")
	completeWith(cmd, "mode", modePrefill, modeDecode, modeBoth)
	completeWith(cmd, "format", formatLayersCSV, formatLLMServingSim, fileProfile)
	onlyOnCommandLine(flags, "model", "hf-token", "mode", "format", "append", "gpu", "skip-scaling")
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
	case f.full && max(s.PrefillMax, s.DecodeMax) > maxAxis:
		return s, usage("without --full the sweep is sparse", "--full would time %d lengths: want at most %d", max(s.PrefillMax, s.DecodeMax), maxAxis)
	case f.format != formatLayersCSV && f.format != formatLLMServingSim && f.format != fileProfile:
		return s, usage("", "unknown --format %q: want layers-csv, llmservingsim or llmprof", f.format)
	}
	return s, errors.Join(f.outputFlags.validate(), f.scaling.validate())
}

func (a *app) profileLayers(ctx context.Context, ref string, f *layerFlags) (fault error) {
	f.resume = f.resume || f.appending
	sweep, err := f.sweep()
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
	if f.token != "" {
		f.env = append(f.env, "HF_TOKEN="+f.token)
	}
	driver, where, setup, err := f.open(ctx, model)
	if err != nil {
		return err
	}
	defer func() { fault = errors.Join(fault, f.close()) }()
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
	target := f.target(model.name, f.hardware)
	if f.hardware != "" {
		if err := f.ready(target); err != nil {
			return err
		}
	}
	scaled := f.scaling.out
	if f.scaling.asked(f.changed) {
		if scaled == "" {
			scaled = strings.TrimSuffix(f.out, filepath.Ext(f.out)) + "-scaled.csv"
		}
		if err := f.free(scaled); err != nil {
			return err
		}
	}
	outcome, took, err := m.run(ctx)
	document := report.Measurement(m.profile, outcome, took.Seconds(), version())
	document.Place, document.Held = where.String(), m.held
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
	if f.format != fileProfile && slices.ContainsFunc(m.profile.Points, func(p profile.Point) bool { return p.Kind == profile.KindLayer }) {
		if f.hardware == "" {
			target = f.target(model.name, hardwareOf(m.profile.Header.Device))
		}
		if err := a.writeLayers(m.profile, f, target); err != nil {
			return err
		}
		document.Files = append(document.Files, target)
	}
	if outcome.Left == 0 && f.scaling.asked(f.changed) {
		f.scaling.out = scaled
		if document.Scaling, err = a.scaleLayers(ctx, m, f); err != nil {
			return err
		}
	}
	if err := a.write(document, report.MeasurementTables(document)...); err != nil {
		return err
	}
	return verdict(outcome, m.profile, f.out)
}

// hardwareOf names a device in a path.
func hardwareOf(d profile.Device) string {
	if d.Name != "" {
		return d.Name
	}
	if d.Reported != "" {
		return fileName(d.Reported)
	}
	return "unknown-hardware"
}

// target is what --format writes beside the profile: <hardware>/<model>.csv, or
// the folder of a bundle.
func (f *layerFlags) target(model, hardware string) string {
	base := filepath.Join(hardware, filepath.FromSlash(model))
	if f.format == formatLLMServingSim {
		variant := f.dtype
		if variant == "" {
			variant = "default-dtype"
		}
		return filepath.Join(base, variant)
	}
	return base + ".csv"
}

// ready makes the folder of the target and reports whether it may be written.
func (f *layerFlags) ready(target string) error {
	if f.format == fileProfile {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fileError("write", target, err)
	}
	if f.format == formatLayersCSV {
		return f.free(target)
	}
	return bundleTarget(target, f.resume || f.overwrite)
}

// writeLayers writes what --format asks for.
func (a *app) writeLayers(p *profile.Profile, f *layerFlags, target string) error {
	if err := f.ready(target); err != nil {
		return err
	}
	if f.format == formatLLMServingSim {
		return a.writeBundle(p, target, f.resume || f.overwrite)
	}
	single := p.Filter(func(_ *profile.Header, point *profile.Point) bool {
		return point.Kind != profile.KindLayer || point.Layer.Sequences <= 1
	})
	if n := len(p.Points) - len(single.Points); n > 0 {
		a.log().Info(fmt.Sprintf("%s has no place for batches of sequences: %d points are in %s only", target, n, f.out))
	}
	return a.export(single, formatLayersCSV, target, exportOptions{})
}
