package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/hub"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/store"
	"github.com/llmprof/llmprof/unit"
)

// batchFlags are the flags of batch.
type batchFlags struct {
	*engineFlags
	samplerFlags
	architectureFlags
	storeFlags
	config, container, model        string
	input, output, batch, blocks    counts
	quantization, kv                string
	trust, eager                    bool
	warmup, runs                    int
	dryRun, resume, retry           bool
	otherSettings                   bool
	runID, only, results, name, gpu string
	cellTimeout, backoff            time.Duration
	attempts                        int
}

// storeFlags name the database.
type storeFlags struct{ path string }

func (f *storeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "store", "", "database of runs (default: $LLMPROF_STORE, or llmprof/llmprof.db in the user's data folder)")
}

// open opens the database.
func (f *storeFlags) open(ctx context.Context) (*store.Store, error) {
	path := f.path
	if path == "" {
		var err error
		if path, err = store.DefaultPath(os.Getenv); err != nil {
			return nil, err
		}
	}
	return store.Open(ctx, path)
}

func (a *app) batchCommand() *cobra.Command {
	f := &batchFlags{
		engineFlags: newEngineFlags(),
		input:       newCounts(1, 256), output: newCounts(1, 256), batch: newCounts(1, 1), blocks: newCounts(1),
	}
	cmd := &cobra.Command{
		Use:   "batch (FILE | --model MODEL --container NAME)",
		Short: "Measure the memory of many configurations",
		Long: `Batch measures every cell of a campaign, as profile memory does one: a YAML file
with models, lengths and batch sizes, or the same as flags. Cells that one loaded
engine can serve run on it one after the other, so that a model is loaded once. A
cell that finds too little memory is marked so, and smaller ones still run; one
that the engine refuses keeps the engine's words; one that fails is tried again.

Every cell is written as soon as it is measured. Ctrl-C keeps what is done, and
so does a power cut: --resume goes on. llmprof runs shows and compares campaigns.

Flags of the engine and of the model hold for all cells and win over the file,
lists of lengths and sizes too. A run that goes on wants those that it began with.`,
		Example: `  llmprof batch models.yaml --dry-run
  llmprof batch models.yaml --gpu h100 --dry-run --json
  llmprof batch models.yaml --resume
  llmprof batch models.yaml --only 'model=*llama*,batch=8' --cell-timeout 10m
  llmprof batch --container vllm --model meta-llama/Llama-2-7b-hf --input-len 256 512 --batch-size 1 8
  llmprof batch tiny.yaml --place local --engine vllm --device cpu --threads 1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("a file may hold many models; lists of numbers follow their flag: --input-len 256 512", "batch wants one file, and got %s", strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.changed = cmd.Flags().Changed
			if len(args) > 0 {
				if f.config != "" && f.config != args[0] {
					return usage("", "the file is given twice: %s and --config %s", args[0], f.config)
				}
				f.config = args[0]
			}
			return a.batch(cmd.Context(), f)
		},
	}
	f.engineFlags.registerOwnLimits(cmd, "the file's, or vllm", "the file's, or 0.9")
	f.samplerFlags.register(cmd)
	f.architectureFlags.register(cmd)
	f.storeFlags.register(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.config, "config", "c", "", "the YAML file, in place of the argument; - is stdin")
	flags.StringVar(&f.container, "container", "", "running Docker container in which the engine is, with --model")
	flags.StringVar(&f.model, "model", "", "model to measure, in place of a file")
	flags.Var(&f.input, "input-len", "prompt tokens, a list")
	flags.Var(&f.output, "output-len", "tokens to generate, a list")
	flags.Var(&f.batch, "batch-size", "sequences at once, a list")
	flags.Var(&f.blocks, "block-sizes", "tokens of one KV block, a list")
	flags.StringVar(&f.quantization, "quantization", "", "weight format of the checkpoint: awq, gptq, fp8, …")
	flags.StringVar(&f.kv, "kv-cache-dtype", "", "format of the KV cache: auto, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2 or int8")
	flags.BoolVar(&f.trust, "trust-remote-code", false, "let the engine run code that comes with the model")
	flags.BoolVar(&f.eager, "enforce-eager", false, "no CUDA graphs")
	flags.IntVar(&f.warmup, "num-iters-warmup", 10, "runs of each cell that are not counted")
	flags.IntVar(&f.runs, "num-iters", 30, "runs of each cell that are timed")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be run, with predicted memory and time, and run nothing")
	flags.BoolVar(&f.resume, "resume", false, "go on with the last run of this file")
	flags.StringVar(&f.runID, "run", "", "with --resume: the run to go on with (llmprof runs lists them)")
	flags.BoolVar(&f.retry, "retry-failed", false, "with --resume: run again what failed, timed out or found its place gone")
	flags.BoolVar(&f.otherSettings, "other-settings", false, "with --resume: go on although --program, --image, --clock, --sampler or a setting of cells is another than before")
	flags.StringVar(&f.only, "only", "", "cells to run: 'model=llama*,batch=8,input=512|1024,hash=ab12*', with --resume 'state=oom|skipped' too")
	flags.StringVar(&f.results, "results-dir", memoryFolder, "folder for profiles and reports")
	flags.StringVar(&f.name, "name", "", "name of the run (default: the file's)")
	flags.StringVar(&f.gpu, "gpu", "", "device for the predictions of --dry-run")
	flags.DurationVar(&f.cellTimeout, "cell-timeout", time.Hour, "longest time of one try of one cell; 0 for no bound")
	flags.IntVar(&f.attempts, "attempts", 3, "tries of a cell that fails for no clear reason")
	flags.DurationVar(&f.backoff, "backoff", 5*time.Second, "pause before the second try; it doubles")
	completeWith(cmd, "kv-cache-dtype", "auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8")
	_ = cmd.RegisterFlagCompletionFunc("gpu", a.completeDevices)
	onlyOnCommandLine(flags, "config", "container", "model", "dry-run", "resume", "run", "retry-failed", "other-settings", "only", "name")
	return cmd
}

func (f *batchFlags) validate() error {
	switch {
	case f.config == "" && f.model == "" && f.runID == "":
		return usage("llmprof batch models.yaml, or --model MODEL --container NAME --input-len 256 512 --batch-size 1 8", "batch wants a file, or a model")
	case f.config != "" && f.model != "":
		return usage("", "%s and --model both say what is run: give one of them", sourceName(f.config))
	case f.runID != "" && !f.resume:
		return usage("", "--run goes with --resume")
	case f.retry && !f.resume:
		return usage("", "--retry-failed goes with --resume")
	case f.otherSettings && !f.resume:
		return usage("", "--other-settings goes with --resume")
	case f.dryRun && f.resume:
		return usage("", "--dry-run and --resume do not go together; llmprof runs show says what is left of a run")
	case f.server != "":
		return usage("", "batch starts its engines: --server does not go with it")
	case f.cellTimeout < 0 || f.backoff < 0 || f.attempts < 1:
		return usage("", "--cell-timeout is %s, --backoff %s, --attempts %d: want none negative, and one try at least", f.cellTimeout, f.backoff, f.attempts)
	case f.warmup < 0 || f.runs < 1:
		return usage("", "--num-iters-warmup is %d, --num-iters %d: want none negative, and one run at least", f.warmup, f.runs)
	case f.changed("block-size") && f.changed("block-sizes"):
		return usage("", "--block-size and --block-sizes say the same: give one of them")
	case f.eager && f.graphs:
		return usage("", "--enforce-eager and --cuda-graphs contradict each other")
	}
	for _, pair := range f.env {
		if name, _, ok := strings.Cut(pair, "="); !ok || name == "" {
			return usage("for example --engine-env NCCL_DEBUG=WARN", "--engine-env %s: want NAME=value", engine.NewRedactor().Redact(pair))
		}
	}
	return errors.Join(f.samplerFlags.validate(), f.architectureFlags.validate())
}

func (a *app) batch(ctx context.Context, f *batchFlags) error {
	if err := f.validate(); err != nil {
		return err
	}
	only, err := campaign.Select(f.only)
	if err != nil {
		return err
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	file, text, err := a.batchFile(f)
	if err != nil {
		return err
	}
	var cells []campaign.Cell
	if file != nil {
		cells = file.Cells()
		if err := errors.Join(f.knownEngines(file), different(cells), f.chosen(only, cells)); err != nil {
			return err
		}
	}
	if f.dryRun {
		return a.dryRun(ctx, cat, cells, only, f)
	}
	return a.runBatch(ctx, &batchRun{flags: f, cat: cat, only: only, cells: cells, text: text})
}

// knownEngines refuses what no driver can run before anything is started.
func (f *batchFlags) knownEngines(file *campaign.File) error {
	for _, m := range file.Models {
		switch _, err := findEngine(m.Cell.Engine); {
		case err == nil:
		case f.changed("engine"):
			return err
		default:
			return usage(hintOf(err), "%s:%d: %w", file.Name, m.Line, err)
		}
	}
	return nil
}

// chosen refuses a new run of nothing.
func (f *batchFlags) chosen(only campaign.Filter, cells []campaign.Cell) error {
	if len(cells) == 0 && !f.dryRun {
		return usage("the warnings say why", "%s makes no cells", sourceName(f.config))
	}
	if f.resume || f.only == "" || slices.ContainsFunc(cells, func(c campaign.Cell) bool { return only.Match(c, store.Pending) }) {
		return nil
	}
	return usage("--dry-run lists the cells", "--only %s chooses none of %s", f.only, unit.Plural(len(cells), "cell"))
}

// maxBatchBytes bounds what is read of a campaign's file; the reader's own bound
// is below it.
const maxBatchBytes = 4 << 20

// offlineModel finds an architecture in the catalog, in a folder or in the
// caches, without the network.
func (a *app) offlineModel(ctx context.Context, cat *catalog.Catalog) func(string) (*catalog.Model, error) {
	client := hubClient(cat)
	client.Offline = true
	return modelsOnce(ctx, client)
}

// modelsOnce looks each model up a single time.
func modelsOnce(ctx context.Context, client *hub.Client) func(string) (*catalog.Model, error) {
	known := map[string]*catalog.Model{}
	faults := map[string]error{}
	return func(ref string) (*catalog.Model, error) {
		if _, ok := known[ref]; ok {
			return known[ref], faults[ref]
		}
		found, err := client.Model(ctx, ref)
		known[ref], faults[ref] = nil, err
		if err == nil {
			known[ref] = found.Model
		}
		return known[ref], err
	}
}

func (a *app) dryRun(ctx context.Context, cat *catalog.Catalog, cells []campaign.Cell, only campaign.Filter, f *batchFlags) error {
	opts := campaign.PlanOptions{
		Only:    only,
		Model:   a.offlineModel(ctx, cat),
		Command: f.commandLine,
	}
	opts.Refusal = func(g campaign.Group, c campaign.Cell) error { return f.refusalOf(g, c, opts.Model) }
	if f.gpu != "" {
		device, err := a.device(cat, f.gpu)
		if err != nil {
			return err
		}
		opts.Device = device
	}
	opts.FindDevice = func(name string) (*catalog.Device, error) {
		switch name {
		case "cpu", "cuda", "rocm", "gpu", "auto": // the kind, as engines take it
			if opts.Device != nil {
				return opts.Device, nil
			}
			return nil, fmt.Errorf("%q says the kind of the device: --gpu names it", name)
		}
		d, _, err := cat.Device(name)
		return d, err
	}
	plan := campaign.NewPlan(cells, opts)
	return a.write(plan, report.PlanTables(plan)...)
}
