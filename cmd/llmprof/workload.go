package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/format/trace"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/workload"
)

// workloadCommandFlags are the flags of workload.
type workloadCommandFlags struct {
	loadFlags
	out, form string
}

func (a *app) workloadCommand() *cobra.Command {
	f := &workloadCommandFlags{}
	cmd := &cobra.Command{
		Use:   "workload [FILE]",
		Short: "Make a load, or look at a recorded one, and convert it",
		Long: `Workload shows what a load asks for before it runs: how many requests come how
fast, how long prompts and answers are, what the prompts have in common, its
sessions and its classes. The load is a FILE, told by its content: a description
in YAML or JSON, a trace of Azure, Mooncake, BurstGPT, splitwise, Vidur, vLLM or
LLMServingSim, rows of JSON Lines or CSV, or a schedule that was written. Or it is made by the flags.

The same description and seed make the same load. --write keeps it: as a
schedule, which holds everything and which bench --schedule sends and simulate
--workload replays, or as a trace for other programs, with a warning for
what that form cannot hold.`,
		Example: `  llmprof workload load.yaml
  llmprof workload azure.csv --trace-speed 2 --write half.jsonl --format jsonl
  llmprof workload --request-rate 4 --burstiness 0.5 --input-len lognormal:512:256 --output-len 128 --num-prompts 1000
  llmprof workload load.yaml --write schedule.jsonl --json`,
		Args: atMostOne("one file"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.workload(cmd.Context(), args, f) },
	}
	f.register(a, cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.out, "write", "", "write the load to this `file`")
	flags.StringVar(&f.form, "format", "schedule", "what --write writes: "+strings.Join(loadForms(), ", "))
	completeWith(cmd, "format", loadForms()...)
	onlyOnCommandLine(flags, "write", "format")
	return cmd
}

// loadForms are the forms in which a load is written.
func loadForms() []string {
	forms := []string{"schedule"}
	for _, kind := range trace.Writable() {
		forms = append(forms, string(kind))
	}
	return forms
}

// workload shows and writes a load.
func (a *app) workload(ctx context.Context, args []string, f *workloadCommandFlags) error {
	switch forms := loadForms(); {
	case !slices.Contains(forms, f.form):
		return usage("did you mean "+catalog.Nearest(f.form, forms, 1)[0]+"?", "unknown --format %q: want one of %s", f.form, strings.Join(forms, ", "))
	case f.given("format") && f.out == "":
		return usage("give --write FILE", "--format has no use without --write")
	}
	if err := a.loadFile(args, &f.loadFlags); err != nil {
		return err
	}
	s, err := f.schedule(ctx, a)
	if err != nil {
		return err
	}
	document := report.Load(s, version())
	if f.out != "" {
		if err := a.writeLoad(f.out, f.form, s); err != nil {
			return err
		}
		document.Files = []string{f.out}
	}
	return a.write(document, report.LoadTables(document)...)
}

// loadFile takes an argument for what its content is.
func (a *app) loadFile(args []string, f *loadFlags) error {
	switch {
	case len(args) == 0 && !f.asked():
		return usage("for example llmprof workload load.yaml, or --request-rate 4 --input-len 512 --output-len 128", "workload wants a file, or flags that say which load is meant")
	case len(args) == 0:
		return nil
	case f.trace != "" || f.file != "":
		return usage("give one of them", "%s stands beside --trace or --workload: each is a whole load", args[0])
	case args[0] == "-":
		return usage("--trace - reads recorded traffic from stdin, --workload - a description", `what "-" holds has to be said`)
	}
	_, file, kind, err := a.openLoad(args[0])
	if err != nil {
		return err
	}
	defer file.Close()
	switch kind {
	case loadLengths:
		return usage("--input-len file:"+args[0]+" draws from them", "%s holds lengths and no load", args[0])
	case loadTrace:
		f.trace = args[0]
	default:
		f.file = args[0]
	}
	return nil
}

// writeLoad writes a load in a form, and says what the form cannot hold.
func (a *app) writeLoad(name, form string, s *workload.Schedule) error {
	var lost []string
	err := writeFile(name, func(w io.Writer) error {
		if form == "schedule" {
			return workload.Write(w, s)
		}
		var err error
		lost, err = trace.Write(w, trace.Kind(form), s)
		return err
	})
	if waiting, ok := errors.AsType[*trace.WaitingError](err); ok {
		return usage(waiting.Hint(), "write %s: %w", name, waiting)
	}
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		a.warn(fmt.Sprintf("%s: the form %s cannot hold %s", name, form, strings.Join(lost, ", ")))
	}
	return nil
}
