package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/store"
	"github.com/llmprof/llmprof/unit"
)

// batchRunner starts the engines of a campaign.
type batchRunner struct {
	app   *app
	cat   *catalog.Catalog
	flags *batchFlags
	model func(string) (*catalog.Model, error)
	store *store.Store
	run   store.Run
	note  func(string) // shows a remark beside the cells
	// blank are models whose missing architecture was remarked on.
	blank map[string]bool
	// shared are names that several cells of the run have.
	shared map[string]bool
	// held is what the devices of a place still hold of the last engine there.
	held map[string]unit.Bytes
}

func (a *app) newBatchRunner(ctx context.Context, b *batchRun) (*batchRunner, error) {
	r := &batchRunner{
		app: a, cat: b.cat, flags: b.flags, model: modelsOnce(ctx, hubClient(b.cat)), store: b.store, run: b.run,
		shared: map[string]bool{}, blank: map[string]bool{}, held: map[string]unit.Bytes{},
	}
	rows, err := b.store.Outline(ctx, b.run.ID)
	if err != nil {
		return nil, err
	}
	cells := slices.Clone(b.cells)
	for _, row := range rows {
		c, err := campaign.Decode(row)
		if err != nil {
			return nil, err
		}
		cells = append(cells, c)
	}
	named := map[string]string{}
	for _, c := range cells {
		hash, seen := named[c.Name()]
		r.shared[c.Name()] = r.shared[c.Name()] || seen && hash != c.Hash()
		named[c.Name()] = c.Hash()
	}
	return r, nil
}

// engineOf are the engine flags that a cell stands for.
func (f *batchFlags) engineOf(c campaign.Cell) *engineFlags {
	e := *f.engineFlags
	e.name, e.place, e.device = c.Engine, c.Place, c.Device
	e.tp, e.blockSize, e.maxModelLen = newCount(1, c.TensorParallel), newCount(1, c.BlockSize), newCount(1, c.MaxModelLen)
	e.pp, e.maxBatchedTokens = newCount(1, max(c.PipelineParallel, 1)), newCount(1, c.MaxNumBatchedTokens)
	e.threads, e.seed, e.graphs = c.Threads, c.Seed, c.CUDAGraphs
	e.utilization, e.weights = c.GPUMemoryUtilization, c.Weights
	if !takesUtilization(c.Engine) {
		e.utilization = 0
	}
	e.args = c.EngineArgs
	e.env = append(f.secrets(), environmentOf(c.EngineEnv)...)
	e.dtype = ""
	return &e
}

// takesUtilization reports whether an engine sets a share of the device's memory
// aside, which the file states for all.
func takesUtilization(name string) bool { return strings.HasPrefix(name, "vllm") }

// environmentOf is a map of variables as a list.
func environmentOf(variables map[string]string) []string {
	var out []string
	for name, value := range variables {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// settingsOf are a cell's formats.
func settingsOf(c campaign.Cell) memorySettings {
	return memorySettings{dtype: c.DType, quantization: c.Quantization, kv: c.KVCacheDType, trust: c.TrustRemoteCode, eager: c.EnforceEager}
}

// commandLine is the engine's own command line for a cell with the variables that
// the cell sets, or where its driver does not say it, that of a profile of the
// cell alone.
func (f *batchFlags) commandLine(c campaign.Cell) []string {
	task := engine.StepTask{BatchSize: c.BatchSize, InputLen: c.InputLen, OutputLen: c.OutputLen}
	variables := append(engine.NewRedactor(f.env...).RedactEnv(environmentOf(c.EngineEnv)), visibleVariables(c.GPUIDs)...)
	if driver, setup, err := f.describe(c); err == nil {
		setup.MaxBatch, setup.MaxInput, setup.MaxOutput = c.BatchSize, c.InputLen, c.OutputLen
		setup.Args = publicArgs(setup.Args, setup.Env)
		if commander, ok := onceATask(driver).(engine.Commander); ok {
			argv := commander.CommandLine(setup, task, c.NumWarmup, c.NumIters)
			if len(variables) > 0 {
				argv = slices.Concat([]string{"env"}, variables, argv)
			}
			return argv
		}
	}
	argv := []string{
		"llmprof", "profile", "memory", c.ModelID, "--engine", c.Engine, "--place", c.Place,
		"--input-len", strconv.Itoa(c.InputLen), "--output-len", strconv.Itoa(c.OutputLen), "--batch-size", strconv.Itoa(c.BatchSize), "--dtype", c.DType,
	}
	for _, flag := range []struct {
		name, value string
		given       bool
	}{
		{"--program", f.program, f.program != ""},
		{"--tensor-parallel-size", strconv.Itoa(c.TensorParallel), c.TensorParallel > 1},
		{"--pipeline-parallel-size", strconv.Itoa(c.PipelineParallel), c.PipelineParallel > 1},
		{"--quantization", c.Quantization, c.Quantization != ""},
		{"--kv-cache-dtype", c.KVCacheDType, c.KVCacheDType != ""},
		{"--gpu-memory-utilization", fmt.Sprint(c.GPUMemoryUtilization), takesUtilization(c.Engine)},
		{"--max-model-len", strconv.Itoa(c.MaxModelLen), c.MaxModelLen > 0},
		{"--max-num-batched-tokens", strconv.Itoa(c.MaxNumBatchedTokens), c.MaxNumBatchedTokens > 0},
		{"--block-size", strconv.Itoa(c.BlockSize), c.BlockSize > 0},
		{"--device", c.Device, c.Device != ""},
		{"--threads", strconv.Itoa(c.Threads), c.Threads > 0},
		{"--seed", strconv.FormatInt(c.Seed, 10), c.Seed != 0},
		{"--num-iters-warmup", strconv.Itoa(c.NumWarmup), true},
		{"--num-iters", strconv.Itoa(c.NumIters), true},
	} {
		if flag.given {
			argv = append(argv, flag.name, flag.value)
		}
	}
	for _, word := range []struct {
		name  string
		given bool
	}{{"--weights", c.Weights}, {"--trust-remote-code", c.TrustRemoteCode}, {"--enforce-eager", c.EnforceEager}, {"--cuda-graphs", c.CUDAGraphs}} {
		if word.given {
			argv = append(argv, word.name)
		}
	}
	for _, arg := range publicArgs(c.EngineArgs, f.env) {
		argv = append(argv, "--engine-arg="+arg)
	}
	for _, variable := range variables {
		argv = append(argv, "--engine-env="+variable)
	}
	return argv
}

// describe is the driver and the setup of a cell, without looking for its model
// or its place.
func (f *batchFlags) describe(c campaign.Cell) (engine.Driver, engine.Setup, error) {
	choice, err := findEngine(c.Engine)
	if err != nil {
		return nil, engine.Setup{}, err
	}
	flags := f.engineOf(c)
	driver, err := choice.driver(flags)
	if err != nil {
		return nil, engine.Setup{}, err
	}
	setup, err := flags.setup(modelRef{c.ModelID, c.ModelID})
	if err == nil {
		err = settingsOf(c).apply(driver, &setup)
	}
	return driver, setup, err
}

// refusal is why the engine of a group does not do what is asked of it, as far
// as that is known before it is started.
func (f *batchFlags) refusal(g campaign.Group) error {
	driver, setup, err := f.describe(g.Cells[0])
	if err == nil {
		err = knownClock(driver, setup.Clock)
	}
	if err != nil {
		return err
	}
	setup.MaxBatch, setup.MaxInput, setup.MaxOutput = g.MaxBatch, g.MaxInput, g.MaxOutput
	return engine.Check(driver, setup)
}

// refusalOf is the same of one cell of a group.
func (f *batchFlags) refusalOf(g campaign.Group, c campaign.Cell, find func(string) (*catalog.Model, error)) error {
	if err := f.refusal(g); err != nil {
		return err
	}
	if model, err := find(c.ModelID); err == nil {
		if err := fewTokens(c.Engine, model); err != nil {
			return err
		}
	}
	driver, _, err := f.describe(c)
	if err != nil {
		return err
	}
	return tooMany(c, driver.Abilities().MaxBatch)
}

// tooMany is why an engine does not take a cell's sequences at once; most is its
// bound, 0 for none.
func tooMany(c campaign.Cell, most int) error {
	if most == 0 || c.BatchSize <= most {
		return nil
	}
	return fmt.Errorf("%s runs at most %s at once", c.Engine, unit.Plural(most, "sequence"))
}

// Load starts the engine of a group.
func (r *batchRunner) Load(ctx context.Context, g campaign.Group) (_ campaign.Engine, fault error) {
	c := g.Cells[0]
	if err := r.flags.refusal(g); err != nil {
		return nil, &campaign.CellError{State: store.Refused, Err: err}
	}
	flags := r.flags.engineOf(c)
	model, err := r.app.engineModel(r.cat, c.ModelID, flags.local())
	if err != nil {
		return nil, err
	}
	driver, where, setup, err := flags.open(ctx, model)
	if err != nil {
		return nil, startFailure(err)
	}
	defer func() {
		if fault != nil {
			fault = errors.Join(fault, flags.close())
		}
	}()
	if err := settingsOf(c).apply(driver, &setup); err != nil {
		return nil, err
	}
	setup.MaxBatch, setup.MaxInput, setup.MaxOutput = g.MaxBatch, g.MaxInput, g.MaxOutput
	subject := memory.Subject{
		Name: model.name, Asked: setup.Deploy, Loaded: setup.LoadWeights, Method: methodOf(driver.Name()),
		EngineArgs: publicArgs(setup.Args, setup.Env), Stated: architectureStated(c.Architecture),
	}
	if subject.Model, err = r.model(c.ModelID); err != nil {
		r.unknown(c, err)
	}
	if err := fewTokens(c.Engine, subject.Model); err != nil {
		return nil, &campaign.CellError{State: store.Refused, Err: err, Advice: "engine vllm starts a server, which takes any prompt"}
	}
	e := &batchEngine{runner: r, flags: flags, most: driver.Abilities().MaxBatch, anew: driver.Abilities().AnewForTask}
	e.run, err = r.app.newMemoryRun(ctx, memoryRun{
		cat: r.cat, driver: onceATask(driver), place: where, setup: setup, subject: subject, source: "llmprof batch",
	}, r.flags.samplerFlags, c.GPUIDs)
	if err != nil {
		return nil, startFailure(err)
	}
	e.before = r.held[c.Place]
	if e.anew {
		return e, nil // each cell starts it
	}
	if e.experiment, err = e.run.open(ctx); err != nil {
		return nil, startFailure(err)
	}
	return e, nil
}

// unknown says once that a model's architecture is neither found nor in the file.
func (r *batchRunner) unknown(c campaign.Cell, why error) {
	if stated := c.Architecture; stated.Params > 0 && stated.NumLayers > 0 || r.blank[c.ModelID] {
		return
	}
	r.blank[c.ModelID] = true
	r.note(fmt.Sprintf("the architecture of %s is not known, and figures that follow from it are left out: %v", c.ModelID, why))
}

func architectureStated(a campaign.Architecture) memory.Architecture {
	return memory.Architecture{Parameters: a.Params, Layers: a.NumLayers, Heads: a.NumHeads, KVHeads: a.NumKVHeads, HeadDim: a.HeadDim, HiddenSize: a.HiddenSize}
}

// batchEngine runs the cells of a group.
type batchEngine struct {
	runner     *batchRunner
	flags      *engineFlags
	run        *memoryRun
	experiment *memory.Experiment // nil where each cell has its own
	most       int                // sequences, 0 for no bound
	anew       bool
	before     unit.Bytes // what the engine before still held when this one began
}

// Run measures a cell, writes its profile and reads it back.
func (e *batchEngine) Run(ctx context.Context, c campaign.Cell) (campaign.Result, error) {
	if err := tooMany(c, e.most); err != nil {
		return campaign.Result{}, &campaign.CellError{State: store.Refused, Alive: true, Err: err}
	}
	task := engine.StepTask{BatchSize: c.BatchSize, InputLen: c.InputLen, OutputLen: c.OutputLen}
	before := e.before
	var o *memory.Observation
	var err error
	if e.anew {
		o, e.before, err = e.run.measure(ctx, task, c.NumWarmup, c.NumIters)
		e.runner.held[c.Place] = e.before
	} else {
		o, err = e.experiment.Run(ctx, task, c.NumWarmup, c.NumIters)
	}
	if err != nil {
		return campaign.Result{}, runFailure(err)
	}
	if o.Result.Failure != "" {
		return campaign.Result{}, cellFailure(o.Result)
	}
	d := e.run.document(o)
	d.Metadata.RunID = memprofile.Text(e.runner.run.ID)
	if before > 0 {
		d.Metadata.Warnings = append(d.Metadata.Warnings, fmt.Sprintf("when the engine was started, the devices still held %s of the one before it, which count as baseline", before))
	}
	return e.keep(ctx, c, o, d)
}

// keep writes what was measured: the files, what the store has of them, and the
// profile in short.
func (e *batchEngine) keep(ctx context.Context, c campaign.Cell, o *memory.Observation, d *memprofile.Document) (campaign.Result, error) {
	fail := func(err error) (campaign.Result, error) {
		return campaign.Result{}, &campaign.CellError{Alive: true, Err: err}
	}
	files, err := e.runner.files(c)
	if err != nil {
		return fail(err)
	}
	if err := e.run.save(files, o, d); err != nil {
		return fail(err)
	}
	var short bytes.Buffer
	brief := *d
	brief.MemoryTimeline = nil // the file has it
	if err := memprofile.Write(&short, &brief); err != nil {
		return fail(err)
	}
	if err := e.runner.keepPoints(context.WithoutCancel(ctx), files.points, c, d); err != nil {
		return fail(err)
	}
	return campaign.Result{Document: short.Bytes(), ProfileFile: files.document, Warnings: d.MemoryBreakdown.Faults}, nil
}

// keepPoints tells the store of a cell's .llmprof, if it has one.
func (r *batchRunner) keepPoints(ctx context.Context, file string, c campaign.Cell, d *memprofile.Document) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was read
	}
	kept := store.Profile{
		Name: strings.TrimSuffix(filepath.Base(file), ".llmprof"), Model: c.ModelID, Engine: c.Engine,
		Device: strings.Join(slices.Compact(slices.Clone(d.GPUInfo.Names)), ", "), Path: file,
	}
	before, err := r.store.Profiles(ctx, store.Filter{Name: kept.Name})
	if err != nil {
		return err
	}
	hash, err := r.store.PutProfile(ctx, kept)
	for _, p := range before { // of a try that a kill took back, when the file was another
		if err == nil && p.Hash != hash {
			err = r.store.DeleteProfile(ctx, p.Hash)
		}
	}
	return err
}

// files names what a cell writes, from the root: the same at every try, so that
// one that was killed leaves nothing beside what the next one writes, and by the
// run's own mark another in every run. Cells of different models may share a
// name.
func (r *batchRunner) files(c campaign.Cell) (memoryFiles, error) {
	stem := c.Name() + "_" + runStamp(r.run.ID, r.run.Created)
	if r.shared[c.Name()] {
		stem += "_" + c.Hash()[:8]
	}
	path, err := filepath.Abs(filepath.Join(r.flags.results, stem+".json"))
	return filesOf(path), err
}

// runStamp is a time in the names of a run's files, with the run's own mark:
// another run of the same second has another.
func runStamp(id string, at time.Time) string {
	return at.Format("20060102_150405") + "_" + id[strings.LastIndexByte(id, '-')+1:]
}

// Close ends the engine and waits for its memory to be free.
func (e *batchEngine) Close(ctx context.Context) error {
	if e.experiment == nil {
		return e.flags.close()
	}
	left, err := e.experiment.Close(ctx)
	e.runner.held[e.run.place.String()] = unit.Bytes(left)
	if left > 0 {
		err = errors.Join(err, fmt.Errorf("the devices still hold %s more than before the engine; what runs next may find too little memory", unit.Bytes(left)))
	}
	return errors.Join(err, e.flags.close())
}
