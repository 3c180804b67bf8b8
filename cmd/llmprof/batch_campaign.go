package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/store"
	"github.com/llmprof/llmprof/unit"
)

// batchRun is one call of batch.
type batchRun struct {
	flags *batchFlags
	cat   *catalog.Catalog
	only  campaign.Filter
	cells []campaign.Cell
	text  []byte
	store *store.Store
	run   store.Run
}

func (a *app) runBatch(ctx context.Context, b *batchRun) (fault error) {
	f := b.flags
	if err := writableFolder(f.results); err != nil {
		return err
	}
	sweep(f.results)
	var err error
	if b.store, err = f.storeFlags.open(ctx); err != nil {
		return err
	}
	defer func() { fault = errors.Join(fault, b.store.Close()) }()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	a.log().Info("run " + b.run.ID)
	runner, err := a.newBatchRunner(ctx, b)
	if err != nil {
		return err
	}
	meter := a.newBatchMeter()
	runner.note = meter.note
	hooks := meter.hooks()
	count := hooks.Ready
	hooks.Ready = func(o campaign.Outcome) {
		a.sayPrepared(o)
		count(o)
	}
	opts := campaign.Options{
		Store: b.store, RunID: b.run.ID, Runner: runner, Only: b.only,
		Retry:       campaign.Retry{Attempts: f.attempts, Backoff: f.backoff},
		CellTimeout: f.cellTimeout, Owner: ownerName(), Hooks: hooks,
		Settings: f.runSettings(), OtherSettings: f.otherSettings,
	}
	if f.resume {
		opts.Extend = b.cells
	}
	if f.retry {
		opts.Reset = []store.State{store.Failed, store.Timeout, store.Cancelled}
	}
	outcome, err := campaign.Run(ctx, opts)
	var held *store.LockedError
	if errors.As(err, &held) && ownerDied(held.Owner) {
		if err = b.store.Break(ctx, b.run.ID, held.Owner); err == nil {
			outcome, err = campaign.Run(ctx, opts)
		}
	}
	meter.end()
	var settings *campaign.SettingsError
	switch {
	case errors.As(err, &settings):
		return usage("give the flags that it began with, or --other-settings; or begin a new run: cells of one run are compared with each other", "%w", err)
	case errors.As(err, &held):
		return err // nothing was done
	}
	return a.reportBatch(context.WithoutCancel(ctx), b, outcome, err)
}

// sayPrepared says what has become of the run before its first cell.
func (a *app) sayPrepared(o campaign.Outcome) {
	if o.Added > 0 {
		a.log().Info("new: " + unit.Plural(o.Added, "cell"))
	}
	if o.Reset > 0 {
		a.log().Info("run again: " + unit.Plural(o.Reset, "cell"))
	}
	if o.Changed > 0 {
		a.log().Info("with the settings of now: " + unit.Plural(o.Changed, "cell"))
	}
	if o.Left > 0 {
		a.warn("not in the file as it and the flags are now, but run all the same: " + unit.Plural(o.Left, "cell") + " of the run")
	}
}

// runSettings are what decides the measurements beside the cells.
func (f *batchFlags) runSettings() json.RawMessage {
	given := map[string]string{}
	sampler := f.sampler
	if sampler == memory.SamplerAuto {
		sampler = ""
	}
	for name, value := range map[string]string{"program": f.program, "image": f.image, "clock": f.clock, "sampler": sampler} {
		if value != "" {
			given[name] = value
		}
	}
	text, err := json.Marshal(given)
	if err != nil { // a map of texts has a JSON
		return nil
	}
	return text
}

// reportBatch writes what the run has come to, whatever ended it.
func (a *app) reportBatch(ctx context.Context, b *batchRun, outcome campaign.Outcome, ended error) error {
	cells, err := b.store.Cells(ctx, b.run.ID)
	if err != nil {
		return errors.Join(ended, err)
	}
	document, err := campaignDocument(b.run, cells)
	if err != nil {
		return errors.Join(ended, err)
	}
	a.predictTotals(ctx, b.cat, &document)
	files, err := a.writeCampaign(document, b.flags.results, b.run.Created)
	if err := errors.Join(ended, err); err != nil {
		if outcome.Total > 0 {
			a.log().Info(fmt.Sprintf("%d of %s done; --resume goes on", outcome.Counts[store.Done], unit.Plural(outcome.Total, "cell")))
		}
		return err
	}
	a.log().Info("wrote " + strings.Join(files, ", "))
	if outcome.Selected == 0 {
		a.log().Info("nothing was left to run")
	}
	if err := a.write(document, report.CampaignTables(document)...); err != nil {
		return err
	}
	return batchVerdict(outcome, b.flags.only != "")
}

// batchVerdict is an error where cells have no answer yet, among those that
// were chosen: an engine's refusal and a want of memory are answers.
func batchVerdict(o campaign.Outcome, chosen bool) error {
	counts, total := maps.Clone(o.Counts), o.Total
	if chosen {
		counts, total = maps.Clone(o.Ended), o.Selected
		for _, n := range o.Ended {
			counts[store.Pending] -= n
		}
		counts[store.Pending] += total
	}
	open := 0
	var parts, hints []string
	for _, state := range []store.State{store.Pending, store.Running, store.Cancelled, store.Failed, store.Timeout} {
		if n := counts[state]; n > 0 {
			open += n
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if counts[store.Pending]+counts[store.Running] > 0 {
		hints = append(hints, "--resume goes on")
	}
	if counts[store.Cancelled]+counts[store.Failed]+counts[store.Timeout] > 0 {
		hints = append(hints, "--resume --retry-failed tries again what failed")
	}
	switch {
	case open > 0:
		return &incompleteError{fmt.Sprintf("%d of %s without an answer yet: %s", open, unit.Plural(total, "cell"), strings.Join(parts, ", ")), strings.Join(hints, "; ")}
	case counts[store.Done] == 0 && total > 0:
		return &incompleteError{"no cell could be measured", "llmprof runs show latest tells why of each"}
	}
	return nil
}

// prepare makes the run, or finds the one to go on with.
func (b *batchRun) prepare(ctx context.Context) error {
	f := b.flags
	source := sourceName(f.config)
	switch {
	case source == "":
		source = "flags: " + f.model
	case f.config != "-":
		if path, err := filepath.Abs(source); err == nil {
			source = path
		}
	}
	if !f.resume {
		return b.create(ctx, source)
	}
	run, err := b.find(ctx, source)
	if err != nil {
		return err
	}
	b.run = run
	if f.config == "" && f.model == "" && f.laysAny() {
		b.cells, err = b.laid(ctx)
	}
	return err
}

// laid are the cells of the run with the flags laid over them, where no file
// says what is asked for.
func (b *batchRun) laid(ctx context.Context) ([]campaign.Cell, error) {
	for _, list := range []string{"input-len", "output-len", "batch-size", "block-sizes", "block-size"} {
		if b.flags.changed(list) {
			return nil, usage("give the file of the run too, or --model", "--%s beside --run alone: the cells of the run have their sizes", list)
		}
	}
	rows, err := b.store.Outline(ctx, b.run.ID)
	if err != nil {
		return nil, err
	}
	var cells []campaign.Cell
	for _, row := range rows {
		c, err := campaign.Decode(row)
		if err != nil {
			return nil, err
		}
		m := campaign.Model{Cell: c, InputLengths: []int{c.InputLen}, OutputLengths: []int{c.OutputLen}, BatchSizes: []int{c.BatchSize}}
		if c.BlockSize > 0 {
			m.BlockSizes = []int{c.BlockSize}
		}
		m, err = b.flags.lay(m)
		if err != nil {
			return nil, err
		}
		cells = append(cells, (&campaign.File{Models: []campaign.Model{m}}).Cells()...)
	}
	return cells, different(cells)
}

// find finds the run to go on with: the one that is named, or the newest of
// the source.
func (b *batchRun) find(ctx context.Context, source string) (store.Run, error) {
	if b.flags.runID != "" {
		return findRun(ctx, b.store, b.flags.runID)
	}
	runs, err := b.store.Runs(ctx)
	if err != nil {
		return store.Run{}, err
	}
	at := slices.IndexFunc(runs, func(s store.Summary) bool { return s.Run.Source == source })
	if at < 0 {
		return store.Run{}, usage("without --resume a new run begins; llmprof runs lists those that there are", "no run of %s is in the store", source)
	}
	return runs[at].Run, nil
}

func (b *batchRun) create(ctx context.Context, source string) error {
	name := b.flags.name
	if name == "" {
		name = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(source), ".yaml"), ".yml")
	}
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	now := time.Now().UTC()
	b.run = store.Run{
		ID: now.Format("20060102-150405-") + strings.ToLower(rand.Text()[:4]), Kind: "memory", Name: name, Source: source,
		Tool: version(), Host: host, Config: b.text, Settings: b.flags.runSettings(), Created: now, Updated: now,
	}
	return campaign.Create(ctx, b.store, b.run, b.cells)
}

// ownerName is who holds a run, for others that want it.
func ownerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// ownerDied reports whether a run is held by a process of this machine that is
// no more. This process holds nothing yet when it asks: what has its number was
// an earlier one.
func ownerDied(owner string) bool {
	host, number, ok := strings.Cut(owner, ":")
	own, _, _ := strings.Cut(ownerName(), ":")
	pid, err := strconv.Atoi(number)
	if !ok || host != own || err != nil || pid <= 0 {
		return false
	}
	if pid == os.Getpid() {
		return true
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return true
	}
	return errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
