package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/chart"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/store"
)

// The formats of the reports of a run, beside csv, json and markdown.
const (
	formatText = "txt"
	formatHTML = "html"
)

func (a *app) runsExportCommand(f *storeFlags) *cobra.Command {
	var form, out string
	cmd := &cobra.Command{
		Use:   "export RUN [--format FORMAT] [-o FILE]",
		Short: "Write the reports of a run: CSV, text, Markdown, HTML, JSON",
		Long: `Export writes the reports of a run. Without --format it writes all but JSON into
the folder that -o names (default: ` + memoryFolder + `):

  batch-bench-results-TIME.csv          the 22 columns of LLM Sizer's batches
  batch-bench-report-enhanced-TIME.txt  its text report, and again as
  batch-bench-report-TIME.txt           the name that its guide tells
  batch-bench-report-TIME.md            tables
  batch-bench-report-TIME.html          one page with charts that needs no network

TIME ends with the last part of the run's ID.

With --format it writes one of them to the file of -o, or to stdout; --json is
the same as --format json.`,
		Example: `  llmprof runs export latest
  llmprof runs export 20260301 --format html -o campaign.html
  llmprof runs export latest --format csv | column -s, -t`,
		Args: exactRuns(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if form == "" && a.asJSON {
				form = formatJSON
			}
			write := campaignWriter(form)
			if write == nil && form != "" {
				return usage("", "unknown format %q: want csv, txt, markdown, html or json", form)
			}
			return a.withRuns(cmd.Context(), f, func(s *store.Store) error {
				return a.exportRun(cmd.Context(), s, args[0], write, out)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&form, "format", "", "csv, txt, markdown, html or json (default: all but json)")
	flags.StringVarP(&out, "output", "o", "", "file to write, - for stdout; a folder without --format")
	completeWith(cmd, "format", formatCSV, formatText, formatMarkdown, formatHTML, formatJSON)
	onlyOnCommandLine(flags, "format", "output")
	return cmd
}

// exportRun writes one report, or all of them where write is nil.
func (a *app) exportRun(ctx context.Context, s *store.Store, id string, write campaignWrite, out string) error {
	d, err := a.shownRun(ctx, s, id)
	if err != nil {
		return err
	}
	now := time.Now().Truncate(time.Second)
	if write == nil {
		if out == "" {
			out = memoryFolder
		}
		files, err := a.writeCampaign(d, out, now)
		if err != nil {
			return err
		}
		for _, name := range files {
			a.log().Info("wrote " + name)
		}
		return nil
	}
	d.Generated = now
	if out != "" && out != "-" {
		return writeFile(out, func(w io.Writer) error { return write(w, d) })
	}
	buffered := bufio.NewWriter(a.stdout)
	if err := write(buffered, d); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return &outputError{err}
	}
	return nil
}

// campaignWrite writes a campaign in one format.
type campaignWrite func(io.Writer, report.CampaignDocument) error

// campaignWriter finds the writer of a format; nil for one that is not known.
func campaignWriter(form string) campaignWrite {
	switch form {
	case formatCSV:
		return report.CampaignCSV
	case formatText, "text":
		return report.CampaignText
	case formatMarkdown, "md":
		return report.CampaignMarkdown
	case formatHTML:
		return writeCampaignPage
	case formatJSON:
		return func(w io.Writer, d report.CampaignDocument) error { return report.JSON(w, d) }
	}
	return nil
}

// writeCampaignPage draws the figures and writes the page around them.
func writeCampaignPage(w io.Writer, d report.CampaignDocument) error {
	var svgs []string
	for _, f := range report.CampaignFigures(d) {
		var svg strings.Builder
		if err := chart.SVG(&svg, f); err != nil {
			return err
		}
		svgs = append(svgs, svg.String())
	}
	return report.CampaignHTML(w, d, svgs)
}

// writeCampaign writes all reports of a campaign into a folder, which is made,
// and returns their names. They end with the mark of the run, so that those of
// another run of the same second stay.
func (a *app) writeCampaign(d report.CampaignDocument, folder string, at time.Time) ([]string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fileError("write", folder, err)
	}
	d.Generated = at
	stamp := runStamp(d.Run.ID, at)
	var names []string
	for _, file := range []struct{ name, form string }{
		{"batch-bench-results-" + stamp + ".csv", formatCSV},
		{"batch-bench-report-enhanced-" + stamp + ".txt", formatText},
		{"batch-bench-report-" + stamp + ".txt", formatText},
		{"batch-bench-report-" + stamp + ".md", formatMarkdown},
		{"batch-bench-report-" + stamp + ".html", formatHTML},
	} {
		name := filepath.Join(folder, file.name)
		write := campaignWriter(file.form)
		if err := writeFile(name, func(w io.Writer) error { return write(w, d) }); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}
