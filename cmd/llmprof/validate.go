package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/fit/layers"
	"github.com/llmprof/llmprof/measure"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// scalingFlags say which requests of the whole model are compared with its
// layers.
type scalingFlags struct {
	skip, keep     bool
	numLayers      int
	min, max, step counts
	repeat         int
	out            string
}

func (f *scalingFlags) register(cmd *cobra.Command) {
	f.min, f.max, f.step = newCount(1, 128), newCount(1, 1024), newCount(1, 128)
	flags := cmd.Flags()
	flags.IntVar(&f.numLayers, "scaling-num-layers", 0, "blocks of the whole model that is measured (default: all)")
	flags.Var(&f.min, "scaling-input-min", "shortest prompt and output to compare at")
	flags.Var(&f.max, "scaling-input-max", "longest prompt and output to compare at")
	flags.Var(&f.step, "scaling-input-step", "step between them")
	flags.IntVar(&f.repeat, "scaling-repeat", 3, "samples of each request")
	flags.StringVar(&f.out, "scaling-output", "", "scaled CSV to write (default: beside the profile, -scaled.csv)")
	flags.BoolVar(&f.keep, "scaling-add-new-col", false, "keep the measured latencies there and add the scaled ones as a column")
	onlyOnCommandLine(flags, "scaling-num-layers", "scaling-output", "scaling-add-new-col")
}

// asked reports whether any flag asks for the comparison.
func (f *scalingFlags) asked(changed func(string) bool) bool {
	if f.skip {
		return false
	}
	return slices.ContainsFunc([]string{
		"scaling-num-layers", "scaling-input-min", "scaling-input-max", "scaling-input-step", "scaling-repeat", "scaling-output", "scaling-add-new-col",
	}, changed)
}

func (f *scalingFlags) validate() error {
	switch {
	case f.numLayers < 0:
		return usage("", "--scaling-num-layers is %d: want 0 or more", f.numLayers)
	case f.repeat < 1:
		return usage("", "--scaling-repeat is %d: want at least 1", f.repeat)
	case (f.max.values[0]-f.min.values[0])/f.step.values[0] >= 100:
		return usage("a larger --scaling-input-step", "the scaling lengths from %d to %d by %d are more than 100, and every combination is measured", f.min.values[0], f.max.values[0], f.step.values[0])
	case f.max.values[0] < f.min.values[0]:
		return usage("", "--scaling-input-max is %d and --scaling-input-min %d", f.max.values[0], f.min.values[0])
	}
	return nil
}

// tasks are the requests: every combination of the lengths.
func (f *scalingFlags) tasks() []engine.Task {
	var tasks []engine.Task
	for output := f.min.values[0]; output <= f.max.values[0]; output += f.step.values[0] {
		var inputs []int
		for input := f.min.values[0]; input <= f.max.values[0]; input += f.step.values[0] {
			inputs = append(inputs, input)
		}
		tasks = append(tasks, measure.Grid{BatchSizes: []int{1}, InputLens: inputs, OutputLen: output}.Tasks(1, f.repeat)...)
	}
	for i := range tasks {
		tasks[i].ID = i + 1
	}
	return tasks
}

// request is one request of the whole model, in seconds.
type request struct {
	input, output int
	total         []unit.Seconds
	// prefill and decode are what its parts took, where they are known.
	prefill, decode []unit.Seconds
}

func (a *app) validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Compare predictions with the real thing",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("llmprof validate layers PROFILE or llmprof validate memory PATH...", "unknown command %q for llmprof validate", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.validateLayersCommand(), a.validateMemoryCommand())
	return cmd
}

// validateFlags are the flags of validate layers.
type validateFlags struct {
	*engineFlags
	scaling  scalingFlags
	model    string
	measured string
	compat   bool
}

func (a *app) validateLayersCommand() *cobra.Command {
	f := &validateFlags{engineFlags: newEngineFlags()}
	cmd := &cobra.Command{
		Use:   "layers PROFILE (--model MODEL | --measured FILE)",
		Short: "Compare the whole model with the sum of its layers",
		Long: `Validate layers compares requests of the whole model with what a layer profile
adds up to, and prints the scaling factor: what the layers' times must be
multiplied by to give the whole. What lies between them, such as the host's
launches, is the difference.

With --model the requests are measured now: every combination of prompt and
output lengths from --scaling-input-min to -max. With --measured they are read:
a CSV with the columns input_len, output_len and latency_ms (a row a run), or a
profile of whole steps.

Every step counts lm_head once; --compat counts it twice in every generated
token, as LLM-Profile does.`,
		Example: `  llmprof validate layers layers.llmprof --measured requests.csv --num-layers 32
  llmprof validate layers layers.llmprof --model meta-llama/Llama-3.1-8B --device cuda --scaling-output scaled.csv
  llmprof validate layers layers.llmprof --measured steps.llmprof --compat --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("llmprof profile layers makes one", "validate layers wants one layer profile, and got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.changed = cmd.Flags().Changed
			return a.validateLayers(cmd.Context(), args[0], f)
		},
	}
	f.engineFlags.register(cmd)
	f.registerCut(cmd, 0)
	f.scaling.register(cmd)
	cmd.Flags().StringVar(&f.model, "model", "", "model to measure: a folder with a config.json or a hub id")
	cmd.Flags().StringVar(&f.measured, "measured", "", "`file` of requests that were measured")
	cmd.Flags().BoolVar(&f.compat, "compat", false, "count lm_head twice in every generated token, as LLM-Profile does")
	onlyOnCommandLine(cmd.Flags(), "model", "measured", "compat")
	return cmd
}

func (a *app) validateLayers(ctx context.Context, file string, f *validateFlags) error {
	if err := f.scaling.validate(); err != nil {
		return err
	}
	if (f.model == "") == (f.measured == "") {
		return usage("", "validate layers compares with a model that it measures (--model) or with requests that were measured (--measured): give one of them")
	}
	if f.measured != "" {
		for _, name := range measuringFlags() {
			if f.changed(name) {
				return usage("", "--%s acts on a measurement, and --measured reads one that was made", name)
			}
		}
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	p, _, err := a.readMeasurement(file, readOptions{cat: cat})
	if err != nil {
		return err
	}
	blocks := f.numLayers
	if f.scaling.numLayers > 0 {
		blocks = f.scaling.numLayers
	}
	var requests []request
	if f.measured != "" {
		requests, err = a.readRequestTimes(cat, f.measured, p)
	} else {
		var facts engine.Facts
		requests, facts, err = a.measureRequests(ctx, cat, f.model, f.engineFlags, &f.scaling)
		if facts.Layers > 0 && blocks == 0 {
			blocks = facts.Layers
		}
	}
	if err != nil {
		return err
	}
	asked := f.scaling.out != ""
	if !asked {
		f.scaling.out = scaledName(file)
	}
	document, err := a.scale(cat, p, requests, blocks, f.compat)
	if err != nil {
		return err
	}
	if _, err := os.Stat(f.scaling.out); err == nil && !asked {
		a.log().Info(f.scaling.out + " exists and stays as it is; --scaling-output names another")
	} else if err := a.writeScaled(p, document, &f.scaling); err != nil {
		if asked {
			return err
		}
		a.warn(fmt.Sprintf("no scaled CSV is written: %v", err))
	}
	return a.write(document, report.ScalingTables(*document)...)
}

// scaledName is the scaled table beside a layer profile.
func scaledName(file string) string {
	file = strings.TrimSuffix(strings.TrimRight(file, `/\`), ".gz")
	return strings.TrimSuffix(file, filepath.Ext(file)) + "-scaled.csv"
}

// writeScaled writes the layers' times multiplied by the factor.
func (a *app) writeScaled(p *profile.Profile, document *report.ScalingDocument, f *scalingFlags) error {
	single := p.Filter(func(_ *profile.Header, point *profile.Point) bool {
		return point.Kind == profile.KindLayer && point.Layer.Sequences <= 1
	})
	if err := a.export(single, formatLayersCSV, f.out, exportOptions{scale: document.Factor, keep: f.keep}); err != nil {
		return err
	}
	document.File = f.out
	return nil
}

// scaleLayers is the comparison that profile layers adds.
func (a *app) scaleLayers(ctx context.Context, m *measurement, f *layerFlags) (*report.ScalingDocument, error) {
	whole := *f.engineFlags
	whole.numLayers = f.scaling.numLayers
	requests, facts, err := a.measureRequests(ctx, m.cat, m.setup.Model, &whole, &f.scaling)
	if err != nil {
		return nil, err
	}
	blocks := f.scaling.numLayers
	if blocks == 0 {
		blocks = facts.Layers
	}
	document, err := a.scale(m.cat, m.profile, requests, blocks, false)
	if err != nil {
		return nil, err
	}
	return document, a.writeScaled(m.profile, document, &f.scaling)
}

// measuringFlags act where requests are measured.
func measuringFlags() []string {
	return []string{
		"engine", "place", "image", "program", "server", "server-log", "device", "dtype", "clock", "threads", "weights", "cuda-graphs",
		"tensor-parallel-size", "pipeline-parallel-size", "max-model-len", "max-num-batched-tokens", "block-size", "gpu-memory-utilization",
		"engine-arg", "engine-env", "seed", "start-timeout", "task-timeout",
		"scaling-input-min", "scaling-input-max", "scaling-input-step", "scaling-repeat",
	}
}

// measureRequests runs whole requests on an engine.
func (a *app) measureRequests(ctx context.Context, cat *catalog.Catalog, ref string, f *engineFlags, scaling *scalingFlags) (_ []request, _ engine.Facts, fault error) {
	fail := func(err error) ([]request, engine.Facts, error) { return nil, engine.Facts{}, err }
	model, err := a.engineModel(cat, ref, f.local())
	if err != nil {
		return fail(err)
	}
	driver, where, setup, err := f.open(ctx, model)
	if err != nil {
		return fail(err)
	}
	defer func() { fault = errors.Join(fault, f.close()) }()
	if !driver.Abilities().Steps {
		return fail(usage("--engine torch can", "%s cannot time whole steps", driver.Name()))
	}
	if scaling.numLayers > 0 {
		setup.NumLayers = scaling.numLayers
	}
	tasks := scaling.tasks()
	setup.MaxBatch, setup.MaxInput, setup.MaxOutput = measure.Bounds(tasks)
	if a.verbose {
		setup.Log = a.stderr
	}
	var points []profile.Point
	meter := a.newMeter()
	outcome, err := measure.Run(ctx, func(ctx context.Context) (engine.Session, error) { return driver.Start(ctx, where, setup) }, tasks, measure.Options{
		Write:    func(more ...profile.Point) error { points = append(points, more...); return nil },
		Progress: meter.now,
	})
	meter.end()
	if err != nil {
		return fail(err)
	}
	requests := requestsOf(points)
	if len(requests) == 0 {
		return fail(&incompleteError{"no request of the whole model could be measured", "llmprof profile step says why"})
	}
	if outcome.Failed > 0 {
		a.warn(fmt.Sprintf("%d of %d requests could not be measured and are left out", outcome.Failed, len(tasks)))
	}
	return requests, outcome.Facts, nil
}

// requestsOf joins the steps of single sequences to whole requests.
func requestsOf(points []profile.Point) []request {
	type key struct{ input, output int }
	found := map[key]*request{}
	var order []key
	for i := range points {
		p := &points[i]
		if p.Kind != profile.KindStep || p.Step.BatchSize != 1 || p.Step.OutputLen < 1 || len(p.Samples) == 0 && p.Summary == nil {
			continue
		}
		k := key{p.Step.InputLen, p.Step.OutputLen}
		r := found[k]
		if r == nil {
			r = &request{input: k.input, output: k.output}
			found[k] = r
			order = append(order, k)
		}
		times := p.Samples
		if len(times) == 0 {
			times = []float64{p.Summary.Mean}
		}
		for _, t := range times {
			switch p.Step.Mode {
			case profile.Prefill:
				r.prefill = append(r.prefill, unit.Seconds(t))
			case profile.Decode:
				r.decode = append(r.decode, unit.Seconds(t))
			}
		}
		r.total = append(r.total, wholeRuns(p)...)
	}
	var all []request
	for _, k := range order {
		r := found[k]
		if len(r.prefill) == 0 || len(r.decode) == 0 && r.output > 1 {
			continue
		}
		if len(r.total) == 0 {
			// The single steps were not kept: their median stands for each.
			for i, t := range r.prefill {
				if r.output > 1 {
					t += unit.Seconds(r.output-1) * r.decode[min(i, len(r.decode)-1)]
				}
				r.total = append(r.total, t)
			}
		}
		all = append(all, *r)
	}
	return all
}

// wholeRuns are the times of whole runs that a point keeps.
func wholeRuns(p *profile.Point) []unit.Seconds {
	var runs []struct {
		Total float64 `json:"total_latency"` // seconds
	}
	if json.Unmarshal(p.Extra["runs_data"], &runs) != nil {
		return nil
	}
	var out []unit.Seconds
	for _, r := range runs {
		if r.Total > 0 {
			out = append(out, unit.Seconds(r.Total))
		}
	}
	return out
}

// readRequestTimes reads requests that were measured, and says where they were
// measured on something else than the layers.
func (a *app) readRequestTimes(cat *catalog.Catalog, name string, table *profile.Profile) ([]request, error) {
	in, err := a.openInput(name)
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewReader(in)
	head, err := buffered.Peek(256)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fileError("read", name, errors.Join(err, in.Close()))
	}
	first, _, _ := strings.Cut(string(head), "\n")
	if strings.Contains(first, "latency_ms") && strings.Contains(first, "input_len") {
		requests, err := parseRequestTimes(name, io.LimitReader(buffered, 64<<20))
		return requests, errors.Join(err, in.Close())
	}
	if err := in.Close(); err != nil {
		return nil, fileError("read", name, err)
	}
	p, _, err := a.readMeasurement(name, readOptions{cat: cat})
	if err != nil {
		return nil, err
	}
	for _, pair := range []struct{ what, a, b string }{
		{"model", table.Header.Deploy.Model, p.Header.Deploy.Model}, {"device", table.Header.Device.Reported, p.Header.Device.Reported},
	} {
		if pair.a != "" && pair.b != "" && pair.a != pair.b {
			a.warn(fmt.Sprintf("the layers are of %s %s, the requests of %s: the factor compares different things", pair.what, pair.a, pair.b))
		}
	}
	requests := requestsOf(p.Points)
	if len(requests) == 0 {
		return nil, usage("a CSV with the columns input_len, output_len and latency_ms works too", "%s holds no prefill and decode steps of single sequences", name)
	}
	return requests, nil
}

// parseRequestTimes reads the columns input_len, output_len and latency_ms.
func parseRequestTimes(name string, r io.Reader) ([]request, error) {
	in := csv.NewReader(r)
	in.TrimLeadingSpace = true
	header, err := in.Read()
	if err != nil {
		return nil, usage("", "read %s: %w", name, err)
	}
	var at [3]int
	for i, column := range []string{"input_len", "output_len", "latency_ms"} {
		at[i] = slices.IndexFunc(header, func(h string) bool { return strings.TrimSpace(h) == column })
		if at[i] < 0 {
			return nil, usage("the columns are input_len, output_len and latency_ms", "read %s: column %s is missing", name, column)
		}
	}
	type key struct{ input, output int }
	index := map[key]int{}
	var all []request
	for line := 2; ; line++ {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, usage("", "read %s: %w", name, err)
		}
		input, err1 := strconv.Atoi(strings.TrimSpace(row[at[0]]))
		output, err2 := strconv.Atoi(strings.TrimSpace(row[at[1]]))
		ms, err3 := strconv.ParseFloat(strings.TrimSpace(row[at[2]]), 64)
		if err1 != nil || err2 != nil || err3 != nil || input < 1 || output < 1 || input > 1<<30 || output > 1<<30 || !(ms > 0 && ms < 1e12) {
			return nil, usage("", "read %s: line %d: want lengths of at least 1 and a positive time, got %s", name, line, strings.Join(row, ","))
		}
		k := key{input, output}
		i, ok := index[k]
		if !ok {
			i = len(all)
			index[k] = i
			all = append(all, request{input: input, output: output})
		}
		all[i].total = append(all[i].total, unit.Seconds(ms/1e3))
	}
	if len(all) == 0 {
		return nil, usage("", "read %s: it holds no requests", name)
	}
	return all, nil
}

// scale compares requests with a layer profile and reports the factor.
func (a *app) scale(cat *catalog.Catalog, p *profile.Profile, requests []request, blocks int, compat bool) (*report.ScalingDocument, error) {
	if blocks == 0 {
		model, err := cat.Model(p.Header.Deploy.Model)
		if err != nil {
			return nil, usage("give --num-layers", "how many blocks the model %q has is not known: %w", p.Header.Deploy.Model, err)
		}
		blocks = model.NumLayers
	}
	table, err := layers.New(slices.Values(singleSequences(p.Points)), layers.Options{TensorParallel: p.Header.Deploy.TensorParallel})
	if err != nil {
		return nil, usage("", "%w", err)
	}
	var keys []report.ScalingKeys
	var pairs, prefills, decodes []layers.Pair
	for _, r := range requests {
		t, err := table.Estimate(blocks, r.input, r.output, compat)
		if err != nil {
			return nil, usage((&layerQuery{compat: compat}).advice(err), "%d tokens in, %d out: %w", r.input, r.output, err)
		}
		estimated := t.EndToEnd.Value
		measured := meanSeconds(r.total)
		keys = append(keys, report.ScalingKeys{
			InputLen: r.input, OutputLen: r.output, MeasuredMs: measured.Milliseconds(), EstimatedMs: estimated.Milliseconds(), Factor: float64(measured / estimated),
		})
		pairs = append(pairs, layers.Pair{Measured: r.total, Estimated: []unit.Seconds{estimated}})
		if len(r.prefill) > 0 {
			prefills = append(prefills, layers.Pair{Measured: r.prefill, Estimated: []unit.Seconds{t.Prefill.Value}})
		}
		if len(r.decode) > 0 && t.TPOT != nil {
			decodes = append(decodes, layers.Pair{Measured: r.decode, Estimated: []unit.Seconds{t.TPOT.Value}})
		}
	}
	factor, err := layers.ScalingFactor(pairs)
	if err != nil {
		return nil, usage("", "%w", err)
	}
	document := report.Scaling(keys, factor, version())
	document.Model, document.Device, document.NumLayers, document.Compat = p.Header.Deploy.Model, p.Header.Device.Reported, blocks, compat
	for _, part := range []struct {
		pairs []layers.Pair
		into  **float64
	}{{prefills, &document.PrefillFactor}, {decodes, &document.DecodeFactor}} {
		if v, err := layers.ScalingFactor(part.pairs); err == nil && len(part.pairs) > 0 {
			*part.into = &v
		}
	}
	return &document, nil
}

func meanSeconds(times []unit.Seconds) unit.Seconds {
	plain := make([]float64, len(times))
	for i, t := range times {
		plain[i] = float64(t)
	}
	return unit.Seconds(stat.Mean(plain))
}
