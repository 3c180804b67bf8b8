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
	setup.Deploy = deploy.Config{Model: "Tiny", Device: "H200", TensorParallel: 1, PipelineParallel: 1, MaxNumBatchedTokens: 256, KVCacheDType: catalog.BF16}
	session, err := llamacpp.Bench().Start(t.Context(), place.Local(), setup)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()

	want := engine.Facts{
		Engine: "llama.cpp", Version: "b7300", Libraries: map[string]string{"backends": "CPU", "commit": "abc1234"}, Threads: 3,
		Device: profile.Device{Reported: "Fake CPU", Count: 1}, Clock: profile.ClockWall, Timer: "std::chrono", Resolution: 1e-9, MaxBatch: 1,
		Memory: []profile.Point{{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryWeights, Bytes: 6824960}}},
		Deploy: deploy.Config{Model: "Tiny", Engine: "llama.cpp", EngineVersion: "b7300", TensorParallel: 1, PipelineParallel: 1, DType: catalog.FP16, KVCacheDType: catalog.BF16, MaxNumBatchedTokens: 256},
	}
	if d := cmp.Diff(want, session.Facts()); d != "" {
		t.Error(d)
	}

	var results []engine.Result
	tasks := []engine.Task{task(1, 1, 128, 33), task(2, 2, 128, 33), task(3, 1, 512, 33), task(4, 1, 128, 1), task(5, 1, 64, 33), task(6, 1, 128, 33)}
	if err := session.Run(t.Context(), tasks, func(r engine.Result) error { results = append(results, r); return nil }); err != nil {
		t.Fatal(err)
	}
	if got, want := story(results), "2: skipped_due_to_limits; 1: prefill decode; 3: prefill decode; 4: prefill; 5: prefill decode; 6: prefill decode"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	prefill, decode := results[2].Points[0], results[2].Points[1]
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
		common + "-p 128,512 -n 0 -r 3\n" +
		common + "-p 0 -n 32 -d 128,512 -r 3\n" +
		common + "-p 128 -n 0 -r 3\n" +
		common + "-p 64,128 -n 0 -r 3\n" +
		common + "-p 0 -n 32 -d 64,128 -r 3\n"
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
		{"hang", "2: timeout: no result within 12s; 1: prefill decode; 3: prefill decode; 4: prefill decode", short},
		{"old", "1: prefill runtime_error: this llama-bench is too old to decode after a prompt; 2: prefill", []engine.Task{task(1, 1, 32, 9), task(2, 1, 64, 1)}},
		{"fine", "1: exception: llama-bench measures steps of at least one sequence, token and run", []engine.Task{{ID: 1, Layers: &engine.LayersTask{Tokens: 1}, Runs: 1}}},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			setup := fakeSetup(t, c.behaviour)
			if c.behaviour == "hang" {
				setup.TaskTimeout = 3 * time.Second
			}
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

// TestBenchGroups has more tasks than share a run: results come in their order,
// and what comes before a stop is kept.
func TestBenchGroups(t *testing.T) {
	var tasks []engine.Task
	for i := range 11 {
		tasks = append(tasks, task(i+1, 1, 16*(i+1), 9))
	}
	session, err := llamacpp.Bench().Start(t.Context(), place.Local(), fakeSetup(t, "fine"))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	spent := errors.New("the time budget is spent")
	for _, c := range []struct{ stop, kept int }{{0, 11}, {1, 1}, {6, 6}} {
		var results []engine.Result
		err := session.Run(t.Context(), tasks, func(r engine.Result) error {
			results = append(results, r)
			if len(results) == c.stop {
				return spent
			}
			return nil
		})
		if want := c.stop > 0; errors.Is(err, spent) != want || len(results) != c.kept {
			t.Errorf("stop at %d: error %v, %d results", c.stop, err, len(results))
		}
		for i, r := range results {
			if r.Task.ID != i+1 || len(r.Points) != 2 {
				t.Errorf("stop at %d: result %d is %s", c.stop, i+1, story(results[i:i+1]))
			}
		}
	}

	// The run hangs in the prompts of its second group.
	setup := fakeSetup(t, "hang")
	if session, err = llamacpp.Bench().Start(t.Context(), place.Local(), setup); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tasks = []engine.Task{task(1, 1, 8, 9), task(2, 1, 16, 9), task(3, 1, 32, 9), task(4, 1, 48, 9), task(5, 1, 64, 9)}
	kept := 0
	err = session.Run(ctx, tasks, func(engine.Result) error {
		if kept++; kept == 4 {
			time.AfterFunc(200*time.Millisecond, cancel)
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || kept != 4 {
		t.Errorf("error %v after %d results", err, kept)
	}
}

// TestBenchDies has faults that are no task's own: no task fails by them.
func TestBenchDies(t *testing.T) {
	for _, c := range []struct {
		behaviour, want string
		problem         engine.Problem
	}{
		{"vanish", "llama-bench on local", engine.ProgramMissing},
		{"gone", "ended with status 127", engine.ProgramMissing},
		{"lost", "no CUDA-capable device is detected", ""},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			setup := fakeSetup(t, c.behaviour)
			link := filepath.Join(t.TempDir(), "llama-bench")
			if err := os.Symlink(setup.Program, link); err != nil {
				t.Skip(err)
			}
			setup.Program, setup.Env = link, append(setup.Env, "FAKE_PROGRAM="+link)
			results, err := bench(t, setup, task(1, 1, 32, 1), task(2, 1, 64, 9), task(3, 1, 128, 9))
			died, ok := errors.AsType[*engine.DiedError](err)
			if !ok || died.Task != 0 || !strings.Contains(err.Error(), c.want) || engine.Unusable(err) != c.problem {
				t.Errorf("error %v", err)
			}
			if got := story(results); got != "1: prefill" {
				t.Errorf("results %s", got)
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
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 5*time.Minute {
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

// refusals are what neither driver applies.
func refusals() []refusal {
	return []refusal{
		{engine.Setup{Deploy: deploy.Config{TensorParallel: 2}}, "--tensor-parallel-size 2", "leave it out"},
		{engine.Setup{Deploy: deploy.Config{PipelineParallel: 3}}, "--pipeline-parallel-size 3", "leave it out"},
		{engine.Setup{Deploy: deploy.Config{PipelineLayers: []int{1, 2}}}, "--pipeline-parallel-size 2", "leave it out"},
		{engine.Setup{Deploy: deploy.Config{DataParallel: 2}}, "data parallel size 2", "leave it out"},
		{engine.Setup{Deploy: deploy.Config{ExpertParallel: 2}}, "expert parallel size 2", "leave it out"},
		{engine.Setup{Deploy: deploy.Config{DType: catalog.BF16}}, "--dtype bf16", "llama-quantize"},
		{engine.Setup{Deploy: deploy.Config{Quantization: "fp8"}}, `quantization "fp8"`, "llama-quantize"},
		{engine.Setup{Deploy: deploy.Config{BlockSize: 16}}, "--block-size 16", "leave it out"},
		{engine.Setup{Deploy: deploy.Config{GPUMemoryUtilization: 0.5}}, "--gpu-memory-utilization 0.5", "leave it out"},
		{engine.Setup{Deploy: deploy.Config{MemFractionStatic: 0.5}}, "a static share of memory of 0.5", "leave it out"},
		{engine.Setup{NumLayers: 2}, "--num-layers 2", "leave it out"},
		{engine.Setup{CUDAGraphs: true}, "--cuda-graphs", "GGML_CUDA_DISABLE_GRAPHS=1"},
	}
}

type refusal struct {
	setup      engine.Setup
	want, hint string
}

// check starts the setup with a driver.
func (c refusal) check(t *testing.T, driver engine.Driver) {
	t.Helper()
	c.setup.Model, c.setup.Program = "m.gguf", "/nope/program" // it is refused before the program is looked for
	_, err := driver.Start(t.Context(), place.Local(), c.setup)
	var hinted interface{ Hint() string }
	if err == nil || !strings.Contains(err.Error(), "start "+driver.Name()+" on local: "+c.want) || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), c.hint) {
		t.Errorf("%s: error %v, want %q; hint %v, want %q", driver.Name(), err, c.want, hinted, c.hint)
	}
	if err := engine.Check(driver, c.setup); err == nil || !strings.Contains(err.Error(), c.want) {
		t.Errorf("%s: before it starts: %v, want %q", driver.Name(), err, c.want)
	}
}

func TestRefused(t *testing.T) {
	for _, driver := range []engine.Driver{llamacpp.Bench(), llamacpp.Node()} {
		for _, c := range refusals() {
			c.check(t, driver)
		}
	}
	for _, c := range []refusal{
		{engine.Setup{Deploy: deploy.Config{KVCacheDType: catalog.FP8}}, "KV cache of fp8", "--engine-arg -ctk"},
		{engine.Setup{Deploy: deploy.Config{MaxModelLen: 4096}}, "--max-model-len 4096", "bound the grid"},
	} {
		c.check(t, llamacpp.Bench())
	}
	for _, c := range []refusal{
		{engine.Setup{Deploy: deploy.Config{KVCacheDType: catalog.FP16}}, "KV cache of fp16", "--engine llama-bench"},
		{engine.Setup{MaxBatch: 8, Deploy: deploy.Config{MaxNumBatchedTokens: 4}}, "--max-num-batched-tokens 4", "as many tokens"},
	} {
		c.check(t, llamacpp.Node())
	}
	// What llama.cpp does anyway is not refused.
	plain := engine.Setup{Model: "m.gguf", Program: "/nope/program", LoadWeights: true, Deploy: deploy.Config{TensorParallel: 1, PipelineParallel: 1, DataParallel: 1, ExpertParallel: 1}}
	for _, driver := range []engine.Driver{llamacpp.Bench(), llamacpp.Node()} {
		if _, err := driver.Start(t.Context(), place.Local(), plain); engine.Unusable(err) != engine.ProgramMissing {
			t.Errorf("%s: %v", driver.Name(), err)
		}
	}
}

// TestNames holds the drivers' names to the values of --engine.
func TestNames(t *testing.T) {
	if got := llamacpp.Bench().Name(); got != "llama-bench" {
		t.Error(got)
	}
	if got := llamacpp.Node().Name(); got != "node-llama-cpp" {
		t.Error(got)
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
