package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/measure"
	"github.com/llmprof/llmprof/profile"
)

// outputFlags say where a measurement goes and how long it may take.
type outputFlags struct {
	out       string
	resume    bool
	overwrite bool
	retry     bool
	budget    time.Duration
}

func (f *outputFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.out, "output", "o", "", "profile to write, gzip if it ends in .gz (default: named after the model)")
	flags.BoolVar(&f.resume, "resume", false, "go on with the profile where it stopped")
	flags.BoolVar(&f.retry, "retry-failed", false, "with --resume: measure again what failed")
	flags.BoolVar(&f.overwrite, "overwrite", false, "replace a profile that exists")
	flags.DurationVar(&f.budget, "budget", 0, "stop after this time, start of the engine included (10m); --resume goes on")
	onlyOnCommandLine(flags, "output", "resume", "overwrite", "retry-failed")
}

func (f *outputFlags) validate() error {
	switch {
	case f.resume && f.overwrite:
		return usage("", "--resume goes on with a profile and --overwrite replaces it: give one of them")
	case f.retry && !f.resume:
		return usage("", "--retry-failed goes with --resume")
	case f.budget < 0:
		return usage("", "--budget is %s: want a time above 0", f.budget)
	case f.out == "-":
		return usage("", "a profile that is measured is a file: -o FILE")
	}
	return nil
}

// free reports whether a file may be written, which is asked before anything
// is measured.
func (f *outputFlags) free(name string) error {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return usage("", "write %s: it is a folder", name)
	case err == nil && !f.resume && !f.overwrite:
		return usage("--resume goes on with the measurement, --overwrite replaces what it writes, -o names another file", "%s exists", name)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fileError("write", name, err)
	}
	if info, err := os.Stat(filepath.Dir(name)); err != nil || !info.IsDir() {
		return usage("mkdir -p "+filepath.Dir(name), "write %s: there is no folder %s", name, filepath.Dir(name))
	}
	// Whether the folder can be written to is better known now than after an
	// hour.
	trial, err := os.CreateTemp(filepath.Dir(name), ".llmprof-*")
	if err != nil {
		return fileError("write", name, err)
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}

// measurement is one run of measure.Run into a profile on disk.
type measurement struct {
	*outputFlags
	app    *app
	cat    *catalog.Catalog
	driver engine.Driver
	place  engine.Place
	setup  engine.Setup
	// model is the name under which the model is recorded.
	model string
	// hardware is the device's name as the user gave it; empty takes what the
	// engine reports.
	hardware string
	// tasks are all of them, next proposes further ones from what is measured.
	tasks []engine.Task
	next  func(points []profile.Point) []engine.Task

	held    int              // tasks that the file held before
	damaged bool             // the file ends in the middle of something
	profile *profile.Profile // what the file holds
	file    *os.File
	writer  *profile.Writer
}

// run measures what the file does not hold yet. The profile is complete up to
// the last task that ended, whatever the error.
func (m *measurement) run(ctx context.Context) (measure.Outcome, time.Duration, error) {
	if err := m.open(); err != nil {
		return measure.Outcome{}, 0, err
	}
	todo := measure.Remaining(m.tasks, m.profile.Points)
	m.held = len(m.tasks) - len(todo)
	if n := m.held; n > 0 {
		m.app.log().Info(fmt.Sprintf("%s holds %d of %d points; going on with the rest", m.out, n, len(m.tasks)))
	}
	m.setup.MaxBatch, m.setup.MaxInput, m.setup.MaxOutput = measure.Bounds(m.tasks)
	if m.app.verbose {
		m.setup.Log = m.app.stderr
	}
	meter := m.app.newMeter()
	meter.held = m.held
	began := time.Now()
	opts := measure.Options{
		Write: m.write, Ready: m.ready, Budget: m.budget,
		Progress: meter.now,
	}
	if m.next != nil {
		opts.More = func() []engine.Task { return measure.Remaining(m.next(m.profile.Points), m.profile.Points) }
	}
	if len(todo) > 0 {
		m.app.log().Info(fmt.Sprintf("starting %s on %s", m.driver.Name(), m.place))
	}
	outcome, err := measure.Run(ctx, func(ctx context.Context) (engine.Session, error) {
		return m.driver.Start(ctx, m.place, m.setup)
	}, todo, opts)
	meter.end()
	if m.writer == nil && m.damaged && err == nil {
		err = m.mend()
	}
	if m.writer != nil {
		err = errors.Join(err, m.writer.Close())
	}
	if m.file != nil {
		err = errors.Join(err, m.file.Close())
	}
	if n := outcome.Measured + outcome.Failed; err != nil && n > 0 {
		m.app.log().Info(fmt.Sprintf("%d points are kept in %s; --resume goes on with the rest", n, m.out))
	}
	return outcome, time.Since(began), err
}

// mend repairs the end of a file to which nothing is added: [profile.Append]
// does it whenever it continues one.
func (m *measurement) mend() error {
	file, err := os.OpenFile(m.out, os.O_RDWR, 0)
	if err != nil {
		return fileError("write", m.out, err)
	}
	m.file = file
	m.writer, err = profile.Append(m.out, file, m.profile.Header)
	return err
}

// open reads what the output file holds. Nothing is written yet: an engine
// that cannot be started leaves no file behind.
func (m *measurement) open() error {
	m.profile = &profile.Profile{}
	if err := m.free(m.out); err != nil {
		return err
	}
	switch info, err := os.Stat(m.out); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fileError("read", m.out, err)
	case m.overwrite || info.Size() == 0:
		return nil // there is nothing to go on with
	}
	file, err := os.Open(m.out)
	if err != nil {
		return fileError("read", m.out, err)
	}
	p, warnings, err := profile.Read(m.out, file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	for _, w := range warnings {
		// A point that was cut off is measured again.
		m.app.log().Debug(w.Error())
		if bad, ok := errors.AsType[*profile.SyntaxError](w); ok && bad.Truncated {
			m.damaged = true
		}
	}
	if err := m.sameConditions(p); err != nil {
		return err
	}
	if m.retry {
		failed := profile.ByKind(profile.KindFailure)
		kept := p.Filter(profile.Not(failed))
		if n := len(p.Points) - len(kept.Points); n > 0 {
			m.app.log().Info(fmt.Sprintf("%d points that failed are measured again", n))
			if err := writeFile(m.out, func(w io.Writer) error { return kept.Write(m.out, w) }); err != nil {
				return err
			}
		}
		p = kept
	}
	if n := measure.Foreign(m.tasks, p.Points); n > 0 && m.next == nil {
		m.app.log().Info(fmt.Sprintf("%s also holds %d points of another grid; they stay", m.out, n))
	}
	m.profile = p
	return nil
}

// runKey is where a profile says how the engine was asked to run.
const runKey = profile.RunKey

// runConditions are what makes two measurements different.
type runConditions struct {
	Engine string `json:"engine"`
	Model  string `json:"model"`
	Device string `json:"device,omitempty"`
	DType  string `json:"dtype,omitempty"`
	TP     int    `json:"tensor_parallel_size"`
	PP     int    `json:"pipeline_parallel_size"`
	// NumLayers is the number of blocks that the model was cut to; 0 for all.
	NumLayers  int           `json:"num_layers,omitempty"`
	Weights    bool          `json:"weights,omitempty"`
	CUDAGraphs bool          `json:"cuda_graphs,omitempty"`
	Threads    int           `json:"threads,omitempty"`
	Seed       int64         `json:"seed,omitempty"`
	Clock      profile.Clock `json:"clock,omitempty"`
	// Args are further arguments of the engine, secrets removed.
	Args string `json:"engine_args,omitempty"`
}

func (m *measurement) conditions() runConditions {
	s := m.setup
	args := engine.NewRedactor(s.Env...).Redact(strings.Join(s.Args, " "))
	return runConditions{
		Engine: m.driver.Name(), Model: m.model, Device: s.Device, DType: string(s.Deploy.DType), TP: max(s.Deploy.TensorParallel, 1), PP: max(s.Deploy.PipelineParallel, 1),
		NumLayers: s.NumLayers, Weights: s.LoadWeights, CUDAGraphs: s.CUDAGraphs, Threads: s.Threads, Seed: s.Seed, Clock: s.Clock, Args: args,
	}
}

// sameConditions refuses to go on with what was measured in another way.
func (m *measurement) sameConditions(p *profile.Profile) error {
	text, ok := p.Header.Metadata[runKey]
	if !ok {
		return nil
	}
	was, err := json.Marshal(m.conditions())
	if err != nil {
		return fmt.Errorf("compare the conditions: %w", err)
	}
	var before, now map[string]any
	if err := errors.Join(json.Unmarshal(text, &before), json.Unmarshal(was, &now)); err != nil {
		return usage("", "%s: its header says of %q: %w", m.out, runKey, err)
	}
	differ := differences(before, now)
	if len(differ) > 0 {
		return usage("measure it into another file: -o FILE, or give the flags of the first run", "%s holds points of other conditions: %s", m.out, strings.Join(differ, "; "))
	}
	return nil
}

// differences are the conditions in which two measurements differ, in words.
func differences(before, now map[string]any) []string {
	for key := range before {
		if _, ok := now[key]; !ok {
			now[key] = nil
		}
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if a, b := before[key], now[key]; !reflect.DeepEqual(a, b) {
			out = append(out, fmt.Sprintf("%s: %s there, %s now", key, stated(a), stated(b)))
		}
	}
	return out
}

// stated is a condition in words.
func stated(v any) string {
	if v == nil {
		return "not given"
	}
	return fmt.Sprint(v)
}

// ready opens the file for writing once the engine has said what it is.
func (m *measurement) ready(facts engine.Facts) error {
	for _, w := range facts.Warnings {
		m.app.warn(w)
	}
	if asked := m.setup.NumLayers; asked > 0 && facts.Layers > 0 && facts.Layers != asked {
		return usage("", "--num-layers is %d, and the model has %d", asked, facts.Layers)
	}
	header := measure.Header(facts)
	header.Tool = version()
	header.Created = time.Now().UTC().Format(time.RFC3339)
	header.Deploy.Model = m.model
	if header.Source = "llmprof profile on " + m.place.String(); m.place.String() == "local" {
		header.Source = "llmprof profile"
		if host, err := os.Hostname(); err == nil {
			header.Host = host
		}
	}
	if m.hardware != "" {
		header.Device.Name, header.Device.Reported = "", m.hardware
	}
	if canonical, ok := deviceNamer(m.cat)(header.Device.Reported); ok {
		header.Device.Name = canonical
	}
	conditions, err := json.Marshal(m.conditions())
	if err != nil {
		return fmt.Errorf("record the conditions: %w", err)
	}
	if header.Metadata == nil {
		header.Metadata = map[string]json.RawMessage{}
	}
	header.Metadata[runKey] = conditions
	if settings := engineSettings(m.place.String() == "local", m.setup.Env); len(settings) > 0 {
		text, err := json.Marshal(settings)
		if err != nil {
			return fmt.Errorf("record the environment: %w", err)
		}
		header.Metadata["environment"] = text
	}
	mode := os.O_RDWR | os.O_CREATE
	if m.overwrite && !m.resume {
		mode |= os.O_TRUNC
	}
	file, err := os.OpenFile(m.out, mode, 0o644)
	if err != nil {
		return fileError("write", m.out, err)
	}
	m.file = file
	if m.writer, err = profile.Append(m.out, file, header); err != nil {
		var clash *profile.ClashError
		if errors.As(err, &clash) {
			return usage("measure it into another file: -o FILE", "%s holds points of other conditions: %w", m.out, err)
		}
		return err
	}
	if m.profile.Header.Schema == "" {
		m.profile.Header = header
		return m.write(facts.Memory...)
	}
	return nil
}

// engineSettings are the variables that change how an engine runs, without
// secrets: those given for it, and at this machine those of the environment.
func engineSettings(local bool, given []string) []string {
	var settings []string
	if local {
		for _, pair := range os.Environ() {
			name, _, _ := strings.Cut(pair, "=")
			for _, prefix := range []string{"VLLM_", "SGLANG_", "OMP_", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NCCL_", "PYTORCH_"} {
				if strings.HasPrefix(name, prefix) {
					settings = append(settings, pair)
					break
				}
			}
		}
	}
	settings = append(settings, given...)
	slices.Sort(settings)
	return engine.NewRedactor(settings...).RedactEnv(settings)
}

// write hands points to the file and to the profile in memory.
func (m *measurement) write(points ...profile.Point) error {
	if len(points) == 0 {
		return nil
	}
	if err := m.writer.Write(points...); err != nil {
		return fileError("write", m.out, err)
	}
	m.profile.Points = append(m.profile.Points, points...)
	return nil
}

// incompleteError ends a run that left something out.
type incompleteError struct{ message, hint string }

func (e *incompleteError) Error() string { return e.message }
func (e *incompleteError) Hint() string  { return e.hint }
func (e *incompleteError) ExitCode() int { return codeIncomplete }

// verdict turns an outcome into an error where the run is not what was asked
// for; p is all that the file holds.
func verdict(outcome measure.Outcome, p *profile.Profile, out string) error {
	measured := slices.ContainsFunc(p.Points, func(p profile.Point) bool {
		return p.Kind == profile.KindStep || p.Kind == profile.KindLayer
	})
	switch {
	case outcome.OutOfTime && outcome.Left > 0:
		return &incompleteError{fmt.Sprintf("the budget is spent: %d points are left", outcome.Left), "the same command with --resume goes on with " + out}
	case outcome.Left > 0:
		return &incompleteError{fmt.Sprintf("%d points are left", outcome.Left), "the same command with --resume goes on with " + out}
	case !measured && outcome.Failed > 0:
		return &incompleteError{"no point could be measured", out + " holds the reason of each; --resume --retry-failed tries again"}
	}
	return nil
}

// fileName makes a file name of a model's name.
func fileName(model string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>| `, r) {
			return '_'
		}
		return r
	}, strings.Trim(model, "/"))
}

// profileCommand groups what measures an engine.
func (a *app) profileCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Measure a real engine",
		Long: `Profile starts an engine, measures it and writes a profile: step times whole
forward passes over a grid of batch sizes and input lengths, layers times every
layer of the model. llmprof doctor says which engines this machine has.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("llmprof profile step MODEL or llmprof profile layers MODEL", "unknown command %q for llmprof profile", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.profileStepCommand(), a.profileLayersCommand(), a.profileMemoryCommand(), a.profileWorkloadCommand())
	return cmd
}
