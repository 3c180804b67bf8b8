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
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/store"
	"github.com/llmprof/llmprof/unit"
)

// latestRun stands for the newest run in place of an ID.
const latestRun = "latest"

func (a *app) runsCommand() *cobra.Command {
	f := &storeFlags{}
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List batch runs; show, compare, export and delete them; keep files",
		Long: `Runs lists what "llmprof batch" has run, newest first. A run is named by its ID,
by any beginning that no other run has, or by "latest".

The same database keeps profiles and predictors: batch puts the .llmprof of every
cell there, put adds files, kept lists them, get reads one back.`,
		Example: `  llmprof runs
  llmprof runs show latest
  llmprof runs compare 20260301 latest --fail-on-regression 5
  llmprof runs export latest -o reports
  llmprof runs put llama-h100.llmprof predictors.json
  llmprof runs get llama-h100 -o copy.llmprof`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRuns(cmd.Context(), f, func(s *store.Store) error { return a.listRuns(cmd.Context(), s) })
		},
	}
	cmd.AddCommand(
		a.runsShowCommand(f), a.runsCompareCommand(f), a.runsExportCommand(f), a.runsDeleteCommand(f),
		a.runsPutCommand(f), a.runsKeptCommand(f), a.runsGetCommand(f),
	)
	for _, c := range append(cmd.Commands(), cmd) {
		f.register(c)
	}
	return cmd
}

func (a *app) runsShowCommand(f *storeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN",
		Short: "Show the cells of a run: memory by part, latency, what failed and why",
		Args:  exactRuns(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRuns(cmd.Context(), f, func(s *store.Store) error {
				d, err := a.shownRun(cmd.Context(), s, args[0])
				if err != nil {
					return err
				}
				return a.write(d, report.CampaignTables(d)...)
			})
		},
	}
}

func (a *app) runsCompareCommand(f *storeFlags) *cobra.Command {
	limit := -1.0
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two runs cell by cell, with the noise of each",
		Long: `Compare matches the cells of two runs that measure the same, and then those of
the same model, lengths and batch size, and tells for each whether B is faster
or slower, smaller or larger than A, or the same, or whether the noise of both
leaves that unclear. The noise of a latency is the 95 % interval of the mean of
its runs, that of memory the step and the scatter of the readings.`,
		Example: `  llmprof runs compare 20260301 latest
  llmprof runs compare main branch --fail-on-regression 5`,
		Args: exactRuns(2, "two runs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("fail-on-regression") && !(limit >= 0) {
				return usage("for example --fail-on-regression 5", "--fail-on-regression is %g: want percent, 0 or more", limit)
			}
			return a.withRuns(cmd.Context(), f, func(s *store.Store) error {
				return a.compareRuns(cmd.Context(), s, args[0], args[1], limit)
			})
		},
	}
	cmd.Flags().Float64Var(&limit, "fail-on-regression", -1, "exit code 1 if a cell is slower or larger by more than this `percent` beyond the noise, or fails where it was measured before")
	cmd.Flags().Lookup("fail-on-regression").DefValue = ""
	return cmd
}

func (a *app) runsDeleteCommand(f *storeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "delete RUN",
		Short: "Delete a run from the store; the files of its profiles stay",
		Args:  exactRuns(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRuns(cmd.Context(), f, func(s *store.Store) error { return a.deleteRun(cmd.Context(), s, args[0]) })
		},
	}
}

// exactRuns wants that many IDs.
func exactRuns(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("llmprof runs lists them; latest is the newest", "%s wants %s, and got %d", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// withRuns opens the store for a command. One that nobody has made yet holds
// nothing, and reading does not make it.
func (a *app) withRuns(ctx context.Context, f *storeFlags, do func(*store.Store) error) (fault error) {
	path := f.path
	if path == "" {
		var err error
		if path, err = store.DefaultPath(os.Getenv); err != nil {
			return err
		}
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if f.path != "" {
			return fileError("read", path, err)
		}
		path = store.Memory
	}
	s, err := (&storeFlags{path}).open(ctx)
	if err != nil {
		return err
	}
	defer func() { fault = errors.Join(fault, s.Close()) }()
	return do(s)
}

func (a *app) listRuns(ctx context.Context, s *store.Store) error {
	all, err := s.Runs(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 && a.people() {
		a.log().Info("no runs yet: llmprof batch FILE makes one")
		return nil
	}
	return a.writeRuns(all)
}

// writeRuns lists runs.
func (a *app) writeRuns(all []store.Summary) error {
	runs := make([]report.RunKeys, len(all))
	for i, one := range all {
		runs[i] = runKeys(one.Run)
		runs[i].Seconds, runs[i].Counts = one.Seconds, map[string]int{}
		for state, n := range one.Counts {
			runs[i].Counts[string(state)] = n
			runs[i].Cells += n
		}
	}
	document := report.Runs(runs, version())
	return a.write(document, report.RunsTable(document))
}

// deleteRun deletes a run, and tells other programs what it was.
func (a *app) deleteRun(ctx context.Context, s *store.Store, id string) error {
	run, err := findRun(ctx, s, id)
	if err != nil {
		return err
	}
	all, err := s.Runs(ctx)
	if err != nil {
		return err
	}
	if err := s.DeleteRun(ctx, run.ID); err != nil {
		return err
	}
	if a.people() {
		a.log().Info("deleted run " + run.ID)
		return nil
	}
	return a.writeRuns(slices.DeleteFunc(all, func(one store.Summary) bool { return one.Run.ID != run.ID }))
}

// runKeys names a run; its cells are counted elsewhere.
func runKeys(r store.Run) report.RunKeys {
	return report.RunKeys{ID: r.ID, Kind: r.Kind, Name: r.Name, Source: shownPath(r.Source), Created: r.Created.UTC(), Updated: r.Updated.UTC()}
}

// findRun finds a run by its ID, a beginning of it, or as the latest.
func findRun(ctx context.Context, s *store.Store, id string) (store.Run, error) {
	if id != latestRun {
		return s.Run(ctx, id)
	}
	all, err := s.Runs(ctx)
	if err != nil {
		return store.Run{}, err
	}
	if len(all) == 0 {
		return store.Run{}, &store.NotFoundError{Kind: "run", Name: id}
	}
	return all[0].Run, nil
}

// loadRun reads a run as a document; result finds what was measured in a cell.
func loadRun(ctx context.Context, s *store.Store, id string, result resultReader) (report.CampaignDocument, error) {
	run, err := findRun(ctx, s, id)
	if err != nil {
		return report.CampaignDocument{}, err
	}
	cells, err := s.Cells(ctx, run.ID)
	if err != nil {
		return report.CampaignDocument{}, err
	}
	return campaignDocumentWith(run, cells, result)
}

// shownRun is a run as reports show it, with what was expected of its cells.
func (a *app) shownRun(ctx context.Context, s *store.Store, id string) (report.CampaignDocument, error) {
	d, err := loadRun(ctx, s, id, storedResult)
	if err != nil {
		return d, err
	}
	cat, err := a.catalog()
	if err != nil {
		return d, err
	}
	a.predictTotals(ctx, cat, &d)
	return d, nil
}

// resultReader reads what was measured in a cell; nil where nothing was.
type resultReader func(store.Cell) (*memprofile.Document, error)

// storedResult is the profile that the store keeps, without its samples.
func storedResult(c store.Cell) (*memprofile.Document, error) {
	if len(c.Result) == 0 {
		return nil, nil
	}
	d, _, err := memprofile.Read("result of cell "+c.Hash, bytes.NewReader(c.Result), format.Limits{})
	return d, err
}

// wholeResult is the profile with its samples, where its file is still the one
// that was measured.
func wholeResult(c store.Cell) (*memprofile.Document, error) {
	stored, err := storedResult(c)
	if err != nil || stored == nil || c.ProfileFile == "" {
		return stored, err
	}
	whole, err := readMemoryProfile(c.ProfileFile)
	if err != nil || whole.Timestamp != stored.Timestamp || !sameSize(whole, stored) {
		return stored, nil //nolint:nilerr // the file may be gone: what the store has is enough
	}
	return whole, nil
}

// sameSize reports whether two profiles have the same peak.
func sameSize(a, b *memprofile.Document) bool {
	x, y := a.Memory.TotalBytes, b.Memory.TotalBytes
	return x == y || x != nil && y != nil && *x == *y
}

// campaignDocument is a run with its cells as a document.
func campaignDocument(run store.Run, cells []store.Cell) (report.CampaignDocument, error) {
	return campaignDocumentWith(run, cells, storedResult)
}

// campaignDocumentWith is [campaignDocument] with another source of results. A
// result that cannot be read costs its own cell only.
func campaignDocumentWith(run store.Run, cells []store.Cell, result resultReader) (report.CampaignDocument, error) {
	rows := make([]report.CampaignRow, len(cells))
	var warnings []string
	for i, c := range cells {
		cell, err := campaign.Decode(c)
		if err != nil {
			return report.CampaignDocument{}, err
		}
		measured, err := result(c)
		if err != nil {
			warnings = append(warnings, err.Error())
		}
		rows[i] = report.CampaignRowOf(cell, report.CampaignEnd{
			State: string(c.State), Attempts: c.Attempts, Seconds: c.Seconds, Error: c.Error, Hint: c.Hint, ProfileFile: shownPath(c.ProfileFile),
		}, measured)
	}
	return report.Campaign(runKeys(run), rows, warnings, version()), nil
}

// shownPath is a file as seen from the working folder, where it lies in it.
func shownPath(name string) string {
	here, err := os.Getwd()
	if err != nil || !filepath.IsAbs(name) {
		return name
	}
	if relative, err := filepath.Rel(here, name); err == nil && filepath.IsLocal(relative) {
		return relative
	}
	return name
}

func (a *app) compareRuns(ctx context.Context, s *store.Store, idA, idB string, limit float64) error {
	before, err := loadRun(ctx, s, idA, wholeResult)
	if err != nil {
		return err
	}
	after, err := loadRun(ctx, s, idB, wholeResult)
	if err != nil {
		return err
	}
	d := report.CompareCampaigns(before, after, version())
	if err := a.write(d, report.ComparisonTables(d)...); err != nil {
		return err
	}
	if limit < 0 {
		return nil
	}
	if worse := d.Regressions(limit); len(worse) > 0 {
		return &verdictError{fmt.Sprintf("%d of %s worse by more than %g %%: %s", len(worse), unit.Plural(len(d.Pairs), "cell"), limit, strings.Join(worse, "; "))}
	}
	return nil
}
