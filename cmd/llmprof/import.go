package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/report"
)

func (a *app) importCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "import FILE... -o X.llmprof",
		Short: "Turn other tools' measurements into a profile",
		Long: `Import reads measurements, tells by their content what they are, and writes
one profile: the artefact that every later command reads. It knows the
benchmark files of the forward-time predictor (JSON, both key styles, and JSON
Lines; plain or gzip) and llmprof's own profiles, which it merges.`,
		Example: `  llmprof import benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json -o qwen3-4b-a100.llmprof
  llmprof import monday.llmprof tuesday.llmprof -o both.llmprof.gz`,
		Args: atLeastOne("a file of measurements"),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usage("", "import wants a file to write: give -o X.llmprof")
			}
			cat, err := a.catalog()
			if err != nil {
				return err
			}
			p, err := a.readMeasurements(cat, args)
			if err != nil {
				return err
			}
			p.Header.Tool = version()
			if out == "-" {
				if a.format != formatTable {
					return usage("", "import -o - writes the profile to stdout, where a summary in %s has no place", a.format)
				}
				if err := p.Write("stdout", a.stdout); err != nil {
					return &outputError{err}
				}
				return nil
			}
			if err := writeFile(out, func(w io.Writer) error { return p.Write(out, w) }); err != nil {
				return err
			}
			document := report.Import(p, out, version())
			return a.write(document, report.ImportTables(document)...)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "profile to write; gzip if it ends in .gz, - for stdout")
	onlyOnCommandLine(cmd.Flags(), "output")
	return cmd
}
