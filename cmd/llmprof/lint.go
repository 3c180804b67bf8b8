package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
)

func (a *app) lintCommand() *cobra.Command {
	var modelName, gpu, out string
	var drop bool
	cmd := &cobra.Command{
		Use:   "lint X.llmprof...",
		Short: "Find what cannot be true in a measurement",
		Long: `Lint checks measurements against physics and against themselves: passes faster
than the device's peaks, cold first runs, CPU time given for GPU time,
duplicates and contradictions, times that fall as work grows. It reads
everything that import reads.

It exits with 1 if it finds something that cannot be true. --write keeps the
verdict in a copy of the profile, --drop leaves the flagged points out of it.`,
		Example: `  llmprof lint qwen3-4b-a100.llmprof
  llmprof lint bench.json --model Qwen3-4B --gpu a100 --json
  llmprof lint bench.json --write clean.llmprof --drop`,
		Args: atLeastOne("a file of measurements"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if drop && out == "" {
				return usage("", "--drop wants a file to write: give --write X.llmprof")
			}
			cat, err := a.catalog()
			if err != nil {
				return err
			}
			p, err := a.readMeasurements(args, readOptions{cat: cat})
			if err != nil {
				return err
			}
			opts := profile.LintOptions{}
			opts.Model, opts.Device = known(cat, p)
			if modelName != "" {
				if opts.Model, err = a.model(cmd.Context(), cat, modelName); err != nil {
					return err
				}
			}
			if gpu != "" {
				if opts.Device, err = a.device(cat, gpu); err != nil {
					return err
				}
			}
			findings := profile.Lint(p, opts)
			if out != "" {
				kept := p.Mark(findings)
				if drop {
					kept = p.Drop(findings)
				}
				kept.Header.Tool = version()
				if err := writeFile(out, func(w io.Writer) error { return kept.Write(out, w) }); err != nil {
					return err
				}
			}
			document := report.Lint(p, findings, version())
			return errors.Join(a.write(document, report.LintTables(document)...), lintVerdict(findings))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&modelName, "model", "", "model that was measured (default: what the file says)")
	flags.StringVar(&gpu, "gpu", "", "device that was measured on (default: what the file says)")
	flags.StringVar(&out, "write", "", "write the profile with its verdicts to this `file`")
	flags.BoolVar(&drop, "drop", false, "leave flagged points out of what --write writes")
	onlyOnCommandLine(flags, "model", "gpu", "write", "drop")
	_ = cmd.RegisterFlagCompletionFunc("gpu", a.completeDevices)
	_ = cmd.RegisterFlagCompletionFunc("model", a.completeModels)
	return cmd
}

func lintVerdict(findings []profile.Finding) error {
	for _, f := range findings {
		if f.Severity == profile.SeverityError {
			return &verdictError{fmt.Sprintf("%s: %d found", f.Rule, f.Count)}
		}
	}
	return nil
}
