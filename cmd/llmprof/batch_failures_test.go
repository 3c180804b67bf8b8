package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/store"
)

// TestRunFailure: only who says that memory ran out ran out of it.
func TestRunFailure(t *testing.T) {
	exit := func(code int, signal, said string) *engine.ExitError {
		return &engine.ExitError{Program: "vllm", Place: "local", Code: code, Signal: signal, Stderr: said}
	}
	died := func(err error) error {
		return &engine.DiedError{Engine: "fake", OutOfMemory: engine.OutOfMemory(errors.Unwrap(err)) || engine.OutOfMemory(err), Err: err}
	}
	for _, c := range []struct {
		why   string
		err   error
		state store.State // empty for a failure that is tried again
		final bool
	}{
		{"killed without a word", died(exit(-1, "killed", "")), "", false},
		{"killed in a shell", died(exit(137, "", "")), "", false},
		{"what a shell says of it", died(exit(137, "", "Killed")), "", false},
		{"a worker was killed", died(exit(1, "", "WorkerProc died, exit code: -9")), "", false},
		{"killed after its own words", died(exit(-1, "SIGKILL", "torch.OutOfMemoryError: CUDA out of memory")), store.OOM, false},
		{"its own words", died(exit(1, "", "std::bad_alloc")), store.OOM, false},
		{"words in the last lines", died(fmt.Errorf("%w; its last lines: CUDA out of memory", exit(137, "", ""))), store.OOM, false},
		{"vLLM killed as it starts", &vllm.StartError{Reason: "memory ran out", OutOfMemory: true, Err: exit(-1, "killed", "")}, "", false},
		{"vLLM has too little memory as it starts", &vllm.StartError{Reason: "memory ran out", OutOfMemory: true, Err: exit(1, "", "")}, store.OOM, false},
		{"vLLM refuses", &vllm.StartError{Reason: "no such block size", Refused: true, Err: exit(1, "", "")}, store.Refused, false},
		{"a crash", died(exit(139, "", "Segmentation fault")), "", false},
		{"no sampler", &memory.SamplerError{Source: "nvml", Err: errors.New("no library")}, "", true},
	} {
		var f *campaign.CellError
		var state store.State
		final := false
		if errors.As(runFailure(c.err), &f) {
			state, final = f.State, f.Final
		}
		if state != c.state || final != c.final {
			t.Errorf("%s: state %q, final %v: want %q, %v", c.why, state, final, c.state, c.final)
		}
	}
}
