package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/sim/scenario"
	"github.com/llmprof/llmprof/sim/sglang"
)

func (a *app) simulateCommand() *cobra.Command {
	var scenarios []string
	cmd := &cobra.Command{
		Use:   "simulate --scenario FILE...",
		Short: "Decide small schedules as the engine's scheduler does",
		Long: `Simulate runs scenarios: texts with a replica's settings and the requests that
arrive at it. It decides every step as the scheduler of vLLM or SGLang does, in the
release that the file names, and prints the schedule: who gets how many tokens, what the prefix
cache finds and forgets, who is preempted, and the free blocks.

A file that holds an expected schedule is checked: where it differs, the
difference goes to stderr and the exit code is 1. Files that hold none are
completed, so that the output is a scenario again.

  config vllm=0.32.0 num_blocks=17 block_size=4 max_num_batched_tokens=16 max_num_seqs=4 max_model_len=32
  req A arrival=1 prompt=6 output=4
  req B arrival=3 prompt=4 output=2`,
		Example: `  llmprof simulate --scenario load.txt
  llmprof simulate --scenario load.txt > expected.txt
  llmprof simulate --scenario schedules/*.txt > /dev/null`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(scenarios) == 0 {
				return usage("llmprof simulate --help shows one", "simulate wants the text of a scenario: --scenario FILE")
			}
			return a.simulateScenarios(append(scenarios, args...))
		},
	}
	cmd.Flags().StringArrayVar(&scenarios, "scenario", nil, "text `file` with a load and maybe its schedule; further files may follow")
	onlyOnCommandLine(cmd.Flags(), "scenario")
	return cmd
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
