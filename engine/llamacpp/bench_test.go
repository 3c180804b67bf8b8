package llamacpp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/llamacpp"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// fakeSetup starts the fake llama-bench with a behaviour.
func fakeSetup(t testing.TB, behaviour string) engine.Setup {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return engine.Setup{Model: "m.gguf", Program: self, Env: []string{fakeVariable + "=" + behaviour}}
}

func task(id, batch, input, output int) engine.Task {
	return engine.Task{ID: id, Step: &engine.StepTask{BatchSize: batch, InputLen: input, OutputLen: output}, Warmup: 1, Runs: 3}
}

// bench runs tasks with the fake and tells what became of each.
func bench(t *testing.T, setup engine.Setup, tasks ...engine.Task) ([]engine.Result, error) {
	t.Helper()
	session, err := llamacpp.Bench().Start(t.Context(), place.Local(), setup)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var results []engine.Result
	err = session.Run(t.Context(), tasks, func(r engine.Result) error {
		results = append(results, r)
		return nil
	})
	return results, err
}

// story tells results in words: "1: prefill decode", "2: oom".
func story(results []engine.Result) string {
	var list []string
	for _, r := range results {
		words := []string{fmt.Sprintf("%d:", r.Task.ID)}
		for _, p := range r.Points {
			words = append(words, p.Step.Mode)
		}
		if r.Failure != "" {
			words = append(words, r.Failure)
		}
		list = append(list, strings.Join(words, " "))
	}
	return strings.Join(list, "; ")
}

func TestBench(t *testing.T) {
	setup := fakeSetup(t, "fine")
	calls := filepath.Join(t.TempDir(), "calls")
	var log bytes.Buffer
	setup.Env = append(setup.Env, "FAKE_CALLS="+calls)
	setup.Threads, setup.Device, setup.Log = 3, "cpu", &log
	setup.Deploy = deploy.Config{Model: "Tiny", MaxNumBatchedTokens: 256, KVCacheDType: catalog.BF16}
	session, err := llamacpp.Bench().Start(t.Context(), place.Local(), setup)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()

	want := engine.Facts{
		Engine: "llama.cpp", Version: "b7300", Libraries: map[string]string{"backends": "CPU", "commit": "abc1234"}, Threads: 3,
		Device: profile.Device{Reported: "Fake CPU", Count: 1}, Clock: profile.ClockWall, Timer: "std::chrono", Resolution: 1e-9, MaxBatch: 1,
		Memory: []profile.Point{{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryWeights, Bytes: 6824960}}},
		Deploy: deploy.Config{Model: "Tiny", Engine: "llama.cpp", EngineVersion: "b7300", DType: catalog.FP16, KVCacheDType: catalog.FP16, MaxNumBatchedTokens: 256},
	}
	if d := cmp.Diff(want, session.Facts()); d != "" {
		t.Error(d)
	}

	var results []engine.Result
	tasks := []engine.Task{task(1, 1, 128, 33), task(2, 2, 128, 33), task(3, 1, 512, 33), task(4, 1, 128, 1), task(5, 1, 64, 33), task(6, 1, 128, 33)}
	if err := session.Run(t.Context(), tasks, func(r engine.Result) error { results = append(results, r); return nil }); err != nil {
		t.Fatal(err)
	}
	if got, want := story(results), "1: prefill decode; 3: prefill decode; 5: prefill decode; 6: prefill decode; 2: skipped_due_to_limits; 4: prefill"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	prefill, decode := results[1].Points[0], results[1].Points[1]
	for _, p := range []profile.Point{prefill, decode} {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff(profile.Step{Mode: profile.Prefill, BatchSize: 1, InputLen: 512, OutputLen: 33, Pass: forward.Prefill(1, 512, 0)}, *prefill.Step); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(profile.Step{Mode: profile.Decode, BatchSize: 1, InputLen: 512, OutputLen: 33, Pass: forward.Decode(1, 512+16)}, *decode.Step); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]float64{0.512, 0.512, 0.512}, prefill.Samples, cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]float64{0.001512, 0.001512, 0.001512}, decode.Samples, cmpopts.EquateApprox(1e-9, 0)); d != "" {
		t.Error(d)
	}

	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	const common = "-m m.gguf -o jsonl -t 3 -ngl 0 -b 256 -ub 256 -ctk bf16 -ctv bf16 "
	wantCalls := common + "-p 1 -n 0 -r 1\n" +
		common + "-p 128,512,64,128 -n 0 -r 3\n" +
		common + "-p 0 -n 32 -d 128,512,64,128 -r 3\n" +
		common + "-p 128 -n 0 -r 3\n"
	if d := cmp.Diff(wantCalls, string(text)); d != "" {
		t.Errorf("calls of the program: %s", d)
	}
	if !strings.Contains(log.String(), "warning: asserts enabled") {
		t.Errorf("log %q", log.String())
	}
}

func TestBenchFailures(t *testing.T) {
	short := []engine.Task{task(1, 1, 32, 9), task(2, 1, 64, 9), task(3, 1, 128, 9), task(4, 1, 4096, 9)}
	for _, c := range []struct {
		behaviour, want string
		tasks           []engine.Task
	}{
		{"oom", "4: oom; 1: prefill decode; 2: prefill decode; 3: prefill decode", short},
		{"crash", "2: runtime_error: GGML_ASSERT(n > 0) failed; 1: prefill decode; 3: prefill decode; 4: prefill decode", short},
		{"silent", "2: runtime_error: llama-bench ended without a result for it; 1: prefill decode; 3: prefill decode; 4: prefill decode", short},
		{"hang", "2: timeout: no result within 2s; 1: prefill decode; 3: prefill decode; 4: prefill decode", short},
		{"old", "1: prefill runtime_error: this llama-bench is too old to decode after a prompt; 2: prefill", []engine.Task{task(1, 1, 32, 9), task(2, 1, 64, 1)}},
		{"fine", "1: exception: llama-bench measures steps of at least one sequence, token and run", []engine.Task{{ID: 1, Layers: &engine.LayersTask{Tokens: 1}, Runs: 1}}},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			setup := fakeSetup(t, c.behaviour)
			setup.TaskTimeout = 500 * time.Millisecond
			results, err := bench(t, setup, c.tasks...)
			if err != nil {
				t.Fatal(err)
			}
			if got := story(results); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

func TestBenchStops(t *testing.T) {
	setup := fakeSetup(t, "hang")
	session, err := llamacpp.Bench().Start(t.Context(), place.Local(), setup)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err = session.Run(ctx, []engine.Task{task(1, 1, 64, 2)}, func(engine.Result) error { return nil })
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 10*time.Second {
		t.Errorf("error %v after %v", err, time.Since(begin))
	}
	full := errors.New("disk full")
	if err := session.Run(t.Context(), []engine.Task{task(1, 1, 32, 2)}, func(engine.Result) error { return full }); !errors.Is(err, full) {
		t.Errorf("error %v, want that of emit", err)
	}
}

func TestBenchStartErrors(t *testing.T) {
	for _, c := range []struct {
		why     string
		change  func(*engine.Setup)
		want    string
		problem engine.Problem
		hint    string
	}{
		{"no model", func(s *engine.Setup) { s.Model = "" }, "no model is named", "", ""},
		{"layers cut off", func(s *engine.Setup) { s.NumLayers = 2 }, "cannot be cut to its first 2 layers", "", ""},
		{"a clock it does not have", func(s *engine.Setup) { s.Clock = profile.ClockCPU }, "it times with the clock wall, not cpu", "", ""},
		{"no program", func(s *engine.Setup) { s.Program = "/nope/llama-bench" }, "/nope/llama-bench on local", engine.ProgramMissing, "--program"},
		{"no such model", func(s *engine.Setup) { s.Model = "missing.gguf" }, "load missing.gguf", "", "name a .gguf file"},
		{"an argument that it does not know", func(s *engine.Setup) { s.Args = []string{"--nonsense"} }, "nonsense", "", ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			setup := fakeSetup(t, "fine")
			c.change(&setup)
			_, err := llamacpp.Bench().Start(t.Context(), place.Local(), setup)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q in it", err, c.want)
			}
			if got := engine.Unusable(err); got != c.problem {
				t.Errorf("problem %q, want %q", got, c.problem)
			}
			var hinted interface{ Hint() string }
			if errors.As(err, &hinted); c.hint != "" && (hinted == nil || !strings.Contains(hinted.Hint(), c.hint)) {
				t.Errorf("no hint with %q: %v", c.hint, hinted)
			}
		})
	}
}

func TestBenchDefaults(t *testing.T) {
	results, err := bench(t, fakeSetup(t, "fine"), task(1, 1, 1000, 2))
	if err != nil || len(results) != 1 || len(results[0].Points) != 2 {
		t.Fatalf("%v, %s", err, story(results))
	}
	if got, want := results[0].Points[1].Samples[0], 0.002; math.Abs(got-want) > 1e-12 {
		t.Errorf("one step after 1000 tokens takes %g s, want %g", got, want)
	}
	if a := llamacpp.Bench().Abilities(); !a.Steps || a.Layers || a.MaxBatch != 1 {
		t.Errorf("abilities %+v", a)
	}
}
