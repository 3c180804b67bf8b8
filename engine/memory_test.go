package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/llmprof/llmprof/engine"
)

func TestSaysOutOfMemory(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                      false,
		"torch.OutOfMemoryError: CUDA":          true,
		"(EngineCore pid=9) HIP out of memory.": true,
		"terminate called after throwing an instance of 'std::bad_alloc'": true,
		"MemoryError": true,
		"DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes":   true,
		"ggml_backend_cuda_buffer_type_alloc_buffer: failed to allocate CUDA0 buffer": true,
		"first line\nKilled\n":              true,
		"a worker was Killed by its parent": false,
		"Worker failed with exit code: -9":  true,
		"If you are running out of memory, consider decreasing `gpu_memory_utilization`":                      false,
		"set expandable_segments to avoid out of memory":                                                      false,
		"If you are running out of memory, …\nCUDA out of memory.":                                            true,
		"CUDA out of memory. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF": true,
		"Available KV cache memory: 3 GiB":                                                                    false,
	} {
		if got := engine.SaysOutOfMemory(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("CUDA out of memory"), false}, // no end of a process
		{&engine.ExitError{Code: 1}, false},
		{&engine.ExitError{Code: 137}, true},
		{&engine.ExitError{Code: -1, Signal: "SIGKILL"}, true},
		{&engine.ExitError{Code: -1, Signal: "killed"}, true},
		{&engine.ExitError{Code: -1, Signal: "SIGSEGV"}, false},
		{fmt.Errorf("wrapped: %w", &engine.ExitError{Code: 1, Stderr: "std::bad_alloc"}), true},
	} {
		if got := engine.OutOfMemory(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aé…", 2, "a…"}} {
		if got := engine.Shorten(c.text, c.n); got != c.want || !utf8.ValidString(got) {
			t.Errorf("%q cut to %d: %q, want %q", c.text, c.n, got, c.want)
		}
	}
}
