package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llmprof/llmprof/sim/scenario"
	"github.com/llmprof/llmprof/sim/sglang"
)

func (a *app) simulateCommand() *cobra.Command {
	f := &simulateFlags{}
	cmd := &cobra.Command{
		Use:   "simulate MODEL --gpu GPU | --predictor-file FILE | --scenario FILE...",
		Short: "A load through a deployment: TTFT, TPOT, queues, KV cache, goodput",
		Long: `Simulate serves a load on paper: the engine's scheduler and KV cache decide step
by step as that release of vLLM or SGLang does, and steps take the time that the
datasheet of --gpu, a trained predictor (--predictor-file) or a profile
(--profile) tells. It prints what users would feel (TTFT, TPOT, ITL, E2EL), where
the time to the first token goes, whether the queue grows, and how full the KV
cache is. --json has the same whole and steady as llmprof bench: llmprof compare
puts a run and its simulation side by side.

The load is a trace (--trace), a description (--workload) or made by flags, the
same as for llmprof workload. What is not said of the deployment is what the
release chooses on that device.

With --scenario it decides small schedules instead: texts with a replica's
settings and the requests that arrive at it. The schedule says who gets how many
tokens, what the prefix cache finds and forgets, who is preempted, and the free
blocks. A file that holds an expected schedule is checked: where it differs, the
difference goes to stderr and the exit code is 1.`,
		Example: `  llmprof simulate Llama-3.1-8B --gpu h100 --request-rate 20 --num-prompts 10000 --input-len normal:512:256 --output-len normal:512:256
  llmprof simulate Qwen3-32B --gpu h100 --tp 2 --trace azure.csv --slo 'ttft:500 tpot:50' --json
  llmprof simulate --predictor-file predictors.json --predictor-config cpu --num-gpu-blocks 1024 --block-size 32 --trace load.jsonl
  llmprof simulate Llama-3.1-8B --gpu h100 --workload load.yaml --requests-csv requests.csv --chrome-trace trace.json
  llmprof simulate --scenario load.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(f.scenarios) > 0 {
				if err := onlyScenarios(cmd, f.load.given); err != nil {
					return err
				}
				return a.simulateScenarios(append(f.scenarios, args...))
			}
			if len(args) > 1 {
				return usage("--trace FILE or --workload FILE names a load", "simulate wants one model, and got %s", strings.Join(args, " "))
			}
			return a.simulate(cmd.Context(), args, f)
		},
		ValidArgsFunction: a.completeModels,
	}
	cmd.Flags().StringArrayVar(&f.scenarios, "scenario", nil, "text `file` with a small load and maybe its schedule; further files may follow")
	f.registerLoad(a, cmd)
	onlyOnCommandLine(cmd.Flags(), "scenario")
	return cmd
}

// onlyScenarios refuses flags of a load beside scenarios, which hold everything.
func onlyScenarios(cmd *cobra.Command, given func(string) bool) (err error) {
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if err == nil && flag.Name != "scenario" && cmd.InheritedFlags().Lookup(flag.Name) == nil && flag.Name != "help" && given(flag.Name) {
			err = usage("leave it out", "--%s has no use with --scenario, whose files hold everything", flag.Name)
		}
	})
	return err
}

// decider decides a scenario: it returns the schedule and the one that the
// text expects, empty where it expects none. Name stands for the text in errors.
type decider func(name string, text io.Reader) (schedule, expected string, err error)

// decided is a scenario with its schedule.
type decided struct {
	File     string   `json:"file"`
	Holds    *bool    `json:"holds,omitempty"` // nil where nothing is expected
	Schedule []string `json:"schedule"`
	Diff     string   `json:"diff,omitempty"` // from what is expected to what was decided
	text     string   // the load with the schedule
}

// simulateScenarios decides each file, and fails where an expectation differs.
func (a *app) simulateScenarios(files []string) error {
	if a.format == formatCSV || a.format == formatMarkdown {
		return usage("", "-o %s: a schedule is printed as text, json or yaml", a.format)
	}
	var all []decided
	var differ []string
	for i, file := range files {
		d, err := a.decide(file)
		if err != nil {
			return err
		}
		if d.Diff != "" {
			differ = append(differ, file)
		}
		all = append(all, d)
		if !a.people() {
			continue
		}
		if i > 0 {
			d.text = "\n" + d.text
		}
		if _, err := io.WriteString(a.stdout, d.text); err != nil {
			return &outputError{err}
		}
		if _, err := io.WriteString(a.stderr, d.Diff); err != nil {
			return fmt.Errorf("write the difference: %w", err)
		}
	}
	if !a.people() {
		if err := a.write(map[string]any{"scenarios": all}); err != nil {
			return err
		}
	}
	if len(differ) > 0 {
		return &verdictError{fmt.Sprintf("%d of %d schedules not as expected: %s", len(differ), len(files), strings.Join(differ, ", "))}
	}
	return nil
}

// decide runs one file.
func (a *app) decide(file string) (decided, error) {
	text, err := a.readScenario(file)
	if err != nil {
		return decided{}, err
	}
	schedule, expected, err := deciderOf(text)(file, bytes.NewReader(text))
	if err != nil {
		return decided{}, err
	}
	load := loadOf(text) + "expect\n"
	d := decided{File: file, Schedule: strings.Split(strings.TrimSuffix(schedule, "\n"), "\n"), text: load + schedule}
	if expected != "" {
		holds := schedule == expected
		d.Holds, d.Diff = &holds, string(diff.Diff(file, []byte(load+expected), "decided", []byte(load+schedule)))
	}
	return d, nil
}

// readScenario reads a text, at most one byte more than a scenario may have.
func (a *app) readScenario(file string) ([]byte, error) {
	in, err := a.openInput(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, scenario.MaxBytes+1))
	if err != nil {
		return nil, fileError("read", file, err)
	}
	return text, nil
}

// deciderOf chooses the scheduler by the config line, which names the engine
// and its release.
func deciderOf(text []byte) decider {
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "config" {
			continue
		}
		for _, word := range words {
			if strings.HasPrefix(word, "sglang=") {
				return sglang.Run
			}
		}
	}
	return scenario.Run
}

// loadOf is the text up to the schedule that it expects.
func loadOf(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == "expect" {
			break
		}
		b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}
