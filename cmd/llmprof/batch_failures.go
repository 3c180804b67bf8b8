package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/store"
)

// startFailure says what an error of a start means for a campaign.
func startFailure(err error) error {
	f := &campaign.CellError{Err: err}
	var refused *vllm.StartError
	var sampler *memory.SamplerError
	switch {
	case wasKilled(err):
		if errors.As(err, &refused) {
			err = refused.Err // the rest is a guess
		}
		f.Err, f.Advice = fmt.Errorf("the engine was killed, perhaps for want of memory: %w", err), "the kernel's log (dmesg) tells whether memory ran out"
	case errors.As(err, &refused) && refused.OutOfMemory, isOutOfMemory(err):
		f.State = store.OOM
	case errors.As(err, &refused) && refused.Refused:
		f.State = store.Refused
	case engine.Unusable(err) != "":
		f.Outside = true
	case errors.As(err, &sampler):
		f.Final = true
	default:
		return err
	}
	return f
}

// isOutOfMemory reports whether an engine died and said that it was for want of
// memory.
func isOutOfMemory(err error) bool {
	var died *engine.DiedError
	return errors.As(err, &died) && died.OutOfMemory
}

// killedWords are those of a shell or of a parent about a process that was
// killed: they do not say what for.
var killedWords = regexp.MustCompile(`(?im)^\s*Killed\s*$|exit ?code:? -9\b`)

// wasKilled reports whether an engine, or a process of it, was killed without a
// word about memory.
func wasKilled(err error) bool {
	exit, ok := errors.AsType[*engine.ExitError](err)
	if !ok {
		return false
	}
	said := err.Error() + "\n" + exit.Stderr
	const killed = 128 + 9 // as shells report it
	signal := strings.TrimPrefix(strings.ToUpper(exit.Signal), "SIG")
	if exit.Code != killed && signal != "KILL" && signal != "KILLED" && !killedWords.MatchString(said) {
		return false
	}
	return !engine.SaysOutOfMemory(killedWords.ReplaceAllLiteralString(said, ""))
}

// lessMemory is the advice for a cell that has too little memory.
const lessMemory = "fewer or shorter sequences, or more devices"

// runFailure is an engine that did not survive a cell.
func runFailure(err error) error {
	if isOutOfMemory(err) && !wasKilled(err) {
		return &campaign.CellError{State: store.OOM, Err: err, Advice: lessMemory}
	}
	return startFailure(err)
}

// failureWords says to people what a [engine.Result] says in the words of a file.
func failureWords(reason string) string {
	switch reason {
	case engine.FailureOOM:
		return "the engine ran out of memory"
	case engine.FailureLimits:
		return "the engine's limits do not admit it: its longest sequence, its KV cache or its batch"
	}
	for _, prefix := range []string{engine.FailureRefused, engine.FailureRuntime, engine.FailureException, engine.FailureTimeout} {
		if rest, ok := strings.CutPrefix(reason, prefix); ok {
			return rest
		}
	}
	return reason
}

// cellFailure is a cell that its engine survived.
func cellFailure(r engine.Result) error {
	reason := r.Failure
	f := &campaign.CellError{Alive: true, Err: errors.New(failureWords(reason)), Advice: r.Hint}
	switch {
	case reason == engine.FailureOOM:
		f.State, f.Advice = store.OOM, lessMemory
	case reason == engine.FailureLimits:
		f.State, f.Advice = store.Refused, "a larger max_model_len or gpu_memory_utilization, or fewer tokens"
	case strings.HasPrefix(reason, engine.FailureRefused):
		f.State = store.Refused
	case strings.HasPrefix(reason, engine.FailureTimeout):
		f.State, f.Alive = store.Timeout, false
	}
	return f
}
