package vllm

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/vllmlog"
)

// StartError says why vLLM did not start.
type StartError struct {
	// Reason says it in words.
	Reason string
	// Remedy is what to change; empty where nothing is known.
	Remedy string
	// OutOfMemory says that the model or its cache does not fit.
	OutOfMemory bool
	// Refused says that vLLM does not run such a configuration, and would not
	// another time.
	Refused bool
	// Err is how the process ended, or what it said.
	Err error
}

// Error names the attempt and the reason.
func (e *StartError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("start vllm: %v", e.Err)
	}
	return "start vllm: " + e.Reason
}

// Unwrap returns how the process ended.
func (e *StartError) Unwrap() error { return e.Err }

// Hint is the remedy.
func (e *StartError) Hint() string { return e.Remedy }

// ExitCode is that of failures outside.
func (e *StartError) ExitCode() int { return 4 }

// errPortTaken says that another program listens on the port.
var errPortTaken = errors.New("the port is taken")

var (
	blockSizeLine = regexp.MustCompile(`No common block size for (\d+)(?: \((.*)\))?`)
	derivedLine   = regexp.MustCompile(`User-specified max_model_len \((\d+)\) is greater than the derived max_model_len \(\S*?=(\d+)`)
	argumentLine  = regexp.MustCompile(`error: unrecognized arguments: (.*)`)
	moduleLine    = regexp.MustCompile(`(?:ModuleNotFoundError: No module named|PackageNotFoundError: No package metadata was found for) '?([\w.-]+)`)
	architecture  = regexp.MustCompile(`Model architectures \[(.*?)\] (?:are not supported|failed)`)
	errorLine     = regexp.MustCompile(`(?m)(?:^|\] )([A-Za-z_.]*(?:Error|Exception)): (.+)$`)
)

// refusal explains a start that failed, from the log and the process's end.
func refusal(log string, ended error) error {
	e := &StartError{Err: ended}
	if reason, remedy, oom, ok := told(log); ok {
		e.Reason, e.Remedy, e.OutOfMemory, e.Refused = reason, remedy, oom, !oom
		return e
	}
	if exit, ok := errors.AsType[*engine.ExitError](ended); ok && (exit.Code == 127 || exit.Code == 126) {
		return missing(exit.Program, exit.Place, ended)
	}
	for _, c := range []struct {
		line         *regexp.Regexp
		reason, what string
	}{
		{derivedLine, "sequences of %s tokens are longer than the model's %s", "ask for shorter input and output"},
		{argumentLine, "this release does not know %s", "step details need vLLM 0.14 or later: pip install -U vllm; other flags come from the setup"},
		{moduleLine, "%s is not installed for the Python of this vllm", "pip install vllm in its environment, or name the vllm program of another: --program PATH"},
		{architecture, "this release does not know models of kind %s", "a newer release may: pip install -U vllm"},
	} {
		if found := c.line.FindStringSubmatch(log); found != nil {
			words := make([]any, 0, 2)
			for _, w := range found[1:] {
				words = append(words, w)
			}
			e.Reason, e.Remedy, e.Refused = fmt.Sprintf(c.reason, words...), c.what, c.line != moduleLine
			return e
		}
	}
	if strings.Contains(strings.ToLower(log), "address already in use") {
		e.Reason, e.Remedy = errPortTaken.Error(), "choose another port"
		e.Err = errors.Join(errPortTaken, ended)
		return e
	}
	if exit, ok := errors.AsType[*engine.ExitError](ended); engine.SaysOutOfMemory(log) || ok && engine.SaysOutOfMemory(exit.Stderr) {
		e.Reason, e.OutOfMemory = "memory ran out", true
		e.Remedy = "fewer layers, a smaller grid, or more devices"
		return e
	}
	if engine.OutOfMemory(ended) { // a kill leaves no word
		e.Reason = "it was killed, perhaps for want of memory"
		e.Remedy = "the kernel's log tells (dmesg); fewer layers, a smaller grid, or more devices need less memory"
		return e
	}
	// The first error is the cause; those after it tell that there was one.
	for _, found := range errorLine.FindAllStringSubmatch(log, 100) {
		if !strings.Contains(found[2], "See root cause above") && !strings.Contains(found[2], "initialization failed") {
			e.Reason = found[1] + ": " + engine.Shorten(found[2], 400)
			return e
		}
	}
	if lines := lastOf(log, 5); lines != "" {
		e.Err = fmt.Errorf("%w; its last lines: %s", ended, lines)
	}
	return e
}

// told is what the reader of logs says of a refusal.
func told(log string) (reason, remedy string, oom, ok bool) {
	if found := blockSizeLine.FindStringSubmatch(log); found != nil {
		reason = "blocks of " + found[1] + " tokens are not supported"
		if found[2] != "" {
			reason += " (" + found[2] + ")"
		}
		return reason, "leave the block size to the engine, or take one that the attention has: on a CPU 32, 64 or 128", false, true
	}
	if log == "" {
		return "", "", false, false
	}
	_, warnings, err := vllmlog.Read("log", strings.NewReader(log), vllmlog.Options{})
	for _, w := range append(warnings, err) {
		if refused, is := errors.AsType[*vllmlog.RefusedError](w); is {
			oom := refused.Reason != vllmlog.RefusedBlockSize && refused.Reason != vllmlog.RefusedLength
			return refused.Detail, refused.Hint(), oom, true
		}
	}
	return "", "", false, false
}

// missing says that vLLM is not installed.
func missing(program, place string, err error) error {
	if unusable, ok := errors.AsType[*engine.UnusableError](err); ok {
		err = unusable.Err // it says the same in other words
	}
	return &engine.UnusableError{
		Problem: engine.ProgramMissing, What: program + " on " + place, Err: err,
		Remedy: "python3 -m pip install vllm, or name the vllm program of an environment that has it: --program PATH",
	}
}

// lastOf are the last lines of a text.
func lastOf(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// outOfVocabulary finds the refusal of a token id.
var outOfVocabulary = regexp.MustCompile(`(?i)out of vocabulary`)
