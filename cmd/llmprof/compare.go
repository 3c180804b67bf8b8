package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/report"
)

// compareFlags are the flags of compare.
type compareFlags struct {
	window, bound string
	given         func(name string) bool
}

func (a *app) compareCommand() *cobra.Command {
	f := &compareFlags{}
	cmd := &cobra.Command{
		Use:   "compare RUN SIM",
		Short: "Put a measured run and its simulation side by side",
		Long: `Compare puts two served loads side by side, figure by figure: what llmprof bench
measured, what llmprof simulate foretold, in any order and of any pair. Each is
a file with the JSON of one of them, the folder that bench -o wrote, or - for
stdin. Differences are those of the second against the first in percent; where
one is measured and the other simulated, the measured one comes first.

A run may also come from another tool: a result of vllm bench serve,
sglang.bench_serving, guidellm, aiperf or inference-perf, or a .llmprof with the
requests of one. What they measure by another name or definition is mapped, and
what they do not say is missing. FILE#2 is the second run of a file with several.

It warns where the two are not of the same load, and where a run is not to be
trusted. What the server said of itself stands beside what the simulated
replicas did.

--bound ends it with exit code 1 where two means are further apart than that.`,
		Example: `  llmprof compare results/monday sim.json
  llmprof simulate --predictor-file p.json --num-gpu-blocks 1024 --workload results/monday/schedule.jsonl --json | llmprof compare results/monday -
  llmprof compare results/monday/run.json sim.json --window steady --bound 'ttft:8 tpot:10 e2el:7'
  llmprof compare vllm-bench-serve.json sim.json --window whole
  llmprof compare guidellm-sweep.json#3 sim.json --window whole
  llmprof compare results/monday results/tuesday --json`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 2:
				return usage("llmprof compare RUN SIM", "compare wants two files or folders, and got %d", len(args))
			case args[0] == "-" && args[1] == "-":
				return usage("give one of them as a file", "both are -, and stdin holds one document")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.given = a.givenIn(cmd)
			return a.compare(args, f)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= 2 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.window, "window", "", "compare this window only: whole or steady (default: both)")
	flags.StringVar(&f.bound, "bound", "", "how far means may be apart, as 'ttft:8 tpot:10 itl:10 icl:10 e2el:7' in percent; of the whole run, or of --window")
	completeWith(cmd, "window", string(load.Whole), string(load.Steady))
	onlyOnCommandLine(flags, "window", "bound")
	return cmd
}

// compare puts two documents side by side and holds their means against bounds.
func (a *app) compare(names []string, f *compareFlags) error {
	window := load.Window(f.window)
	if f.given("window") && window != load.Whole && window != load.Steady {
		return usage("", "unknown --window %q: want whole or steady", f.window)
	}
	bounds, err := report.ParseBounds(f.bound)
	if err != nil || f.given("bound") && len(bounds) == 0 {
		const hint = "for example --bound 'ttft:8 tpot:10 e2el:7'"
		if err == nil {
			return usage(hint, "--bound: it is empty: want bounds")
		}
		return usage(hint, "--bound: %w", err)
	}
	var runs [2]*report.ServedRun
	for i, name := range names {
		if runs[i], err = a.readServed(name); err != nil {
			return err
		}
	}
	for _, r := range runs {
		if r.Reported != nil && window == load.Steady {
			return usage("leave --window out, or give whole", "%s: %s tells of the whole run only", r.Name, r.Reported.Tool)
		}
	}
	d := report.CompareServed(runs[0], runs[1], window, bounds, version())
	if a.people() {
		a.warn(d.Warnings...)
	}
	if err := a.write(d, report.ServedTables(d)...); err != nil {
		return err
	}
	var missed []string
	for _, b := range d.Missed() {
		missed = append(missed, b.String())
	}
	if len(missed) > 0 {
		return &verdictError{"further apart than the bounds: " + strings.Join(missed, ", ")}
	}
	return nil
}
