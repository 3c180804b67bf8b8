package vllm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/internal/enginetest"
	"github.com/llmprof/llmprof/internal/tinymodel"
	"github.com/llmprof/llmprof/profile"
)

// realSetup is a tiny model on this machine's CPU.
func realSetup(t *testing.T, vocab int) engine.Setup {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED, NOT TESTED: a real engine takes minutes")
	}
	shape := tinymodel.Tiny()
	if vocab > 0 {
		shape.Vocab = vocab
	}
	dir := filepath.Join(t.TempDir(), "tiny")
	if err := tinymodel.WriteFolder(dir, shape); err != nil {
		t.Fatal(err)
	}
	return engine.Setup{
		Model: dir, Device: "cpu", Threads: 1, Seed: 1,
		StartTimeout: 8 * time.Minute, TaskTimeout: 2 * time.Minute,
	}
}

// logTo keeps an engine's log beside the test's output where LLMPROF_TEST_LOGS
// names a folder.
func logTo(t *testing.T) io.Writer {
	t.Helper()
	dir := os.Getenv("LLMPROF_TEST_LOGS")
	if dir == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, t.Name()+".log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// measured runs tasks and returns their results.
func measured(t *testing.T, s engine.Session, tasks []engine.Task) []engine.Result {
	t.Helper()
	var results []engine.Result
	if err := s.Run(t.Context(), tasks, func(r engine.Result) error {
		results = append(results, r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(results) != len(tasks) {
		t.Fatalf("%d results of %d tasks", len(results), len(tasks))
	}
	for _, r := range results {
		for _, p := range r.Points {
			if err := p.Validate(); err != nil {
				t.Errorf("task %d: %v", r.Task.ID, err)
			}
		}
	}
	return results
}

// checkClean holds a result to be the whole batch in every step, and logs its
// times.
func checkClean(t *testing.T, r engine.Result) {
	t.Helper()
	task := r.Task.Step
	if r.Failure != "" {
		t.Errorf("%+v: %s", *task, r.Failure)
		return
	}
	var prefill, decode *profile.Point
	for i := range r.Points {
		switch p := &r.Points[i]; {
		case p.Step.BatchSize != task.BatchSize || p.Step.InputLen != task.InputLen:
		case p.Step.Mode == profile.Prefill:
			prefill = p
		case p.Step.Mode == profile.Decode:
			decode = p
		}
	}
	if prefill == nil || decode == nil {
		t.Errorf("%+v: points %+v", *task, r.Points)
		return
	}
	if len(prefill.Samples) < r.Task.Runs || len(decode.Samples) < r.Task.Runs {
		t.Errorf("%+v: %d and %d samples, want %d", *task, len(prefill.Samples), len(decode.Samples), r.Task.Runs)
	}
	if want := forward.Prefill(task.BatchSize, task.InputLen, 0); fmt.Sprint(prefill.Step.Pass) != fmt.Sprint(want) {
		t.Errorf("%+v: prefill pass %+v", *task, prefill.Step.Pass)
	}
	if d := decode.Step.Pass.Decode; d.Count != task.BatchSize || d.SumContext != int64(task.BatchSize*task.InputLen+task.BatchSize*task.OutputLen/2) {
		t.Errorf("%+v: decode pass %+v", *task, d)
	}
	p, _ := prefill.Median()
	d, _ := decode.Median()
	t.Logf("batch %d × %d: prefill %.2f ms, decode step %.2f ms, %d further points", task.BatchSize, task.InputLen,
		float64(p)*1e3, float64(d)*1e3, len(r.Points)-2)
}

// TestRealServer starts vLLM and measures a small grid.
func TestRealServer(t *testing.T) {
	setup := realSetup(t, 0)
	setup.Program = enginetest.VLLM(t)
	setup.MaxBatch, setup.MaxInput, setup.MaxOutput = 8, 512, 16
	setup.Deploy.MaxNumBatchedTokens = 2048
	log := newGrowing()
	setup.Log = log
	if kept := logTo(t); kept != nil {
		setup.Log = io.MultiWriter(log, kept)
	}
	begin := time.Now()
	session, err := (&vllm.Server{}).Start(t.Context(), place.Local(), setup)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	t.Logf("ready after %v", time.Since(begin).Round(time.Second))
	facts := session.Facts()
	t.Logf("facts: %+v", facts)
	for _, p := range facts.Memory {
		t.Logf("memory: %+v (%s)", *p.Memory, p.Origin)
	}
	if !strings.HasPrefix(facts.Version, "0.32") || facts.MaxModelLen != 528 || facts.MaxTokens < 8*528 || len(facts.Memory) == 0 || facts.Deploy.BlockSize != 128 {
		t.Error("facts are not those of the server")
	}
	var tasks []engine.Task
	for _, input := range []int{16, 64, 256, 512} {
		for _, batch := range []int{1, 2, 4, 8} {
			if batch*input <= 2048 {
				tasks = append(tasks, engine.Task{
					ID: len(tasks) + 1, Warmup: 1, Runs: 3,
					Step: &engine.StepTask{BatchSize: batch, InputLen: input, OutputLen: 8},
				})
			}
		}
	}
	for _, r := range measured(t, session, tasks) {
		checkClean(t, r)
	}

	split := engine.Task{ID: 100, Runs: 2, Step: &engine.StepTask{BatchSize: 8, InputLen: 512, OutputLen: 8}}
	beyond := engine.Task{ID: 101, Runs: 1, Step: &engine.StepTask{BatchSize: 1, InputLen: 600, OutputLen: 8}}
	results := measured(t, session, []engine.Task{split, beyond})
	if !strings.HasPrefix(results[0].Failure, engine.FailureException+"the engine did not take the batch in one step: 4096") {
		t.Errorf("8 × 512 in steps of 2048: failure %q", results[0].Failure)
	}
	mixed := false
	for _, p := range results[0].Points {
		t.Logf("8 × 512: %s, pass %+v, %d samples", p.Step.Mode, p.Step.Pass, len(p.Samples))
		if p.Step.Totals != nil {
			t.Errorf("a step without its pass: %+v", *p.Step.Totals)
		}
		if p.Step.Mode == profile.Mixed && p.Step.Pass.Tokens() == 2048 {
			mixed = mixed || slices.ContainsFunc(p.Step.Pass.Prefill, func(c forward.Chunk) bool { return !c.Last })
		}
	}
	if !mixed {
		t.Error("no mixed step with a chunk of a prompt")
	}
	if results[1].Failure != engine.FailureLimits {
		t.Errorf("600 tokens in 528: failure %q", results[1].Failure)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := session.Run(ctx, tasks[:1], func(engine.Result) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run: %v", err)
	}
	for _, r := range measured(t, session, tasks[:2]) {
		checkClean(t, r)
	}
	attachReal(t, session, log)
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

// TestRealRefused asks for blocks that a CPU has no kernels for.
func TestRealRefused(t *testing.T) {
	setup := realSetup(t, 0)
	setup.Program = enginetest.VLLM(t)
	setup.MaxBatch, setup.MaxInput, setup.MaxOutput = 1, 64, 16
	setup.Deploy.BlockSize = 16
	setup.Log = logTo(t)
	_, err := (&vllm.Server{}).Start(t.Context(), place.Local(), setup)
	var start *vllm.StartError
	if !errors.As(err, &start) || !strings.Contains(err.Error(), "blocks of 16 tokens are not supported") || !strings.Contains(start.Hint(), "32, 64 or 128") {
		t.Errorf("blocks of 16: %v", err)
	}
	t.Log(err)
}

// TestRealProbe measures in a process of its own, by both clocks.
func TestRealProbe(t *testing.T) {
	setup := realSetup(t, 0)
	setup.Program = enginetest.Python(t)
	setup.MaxBatch, setup.MaxInput, setup.MaxOutput = 4, 256, 8
	setup.Clock = profile.ClockCPU
	setup.Log = logTo(t)
	begin := time.Now()
	session, err := vllm.Probe{}.Start(t.Context(), place.Local(), setup)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	t.Logf("ready after %v: %+v", time.Since(begin).Round(time.Second), session.Facts())
	if f := session.Facts(); f.Layers != tinymodel.Tiny().Layers || f.Threads < 1 {
		t.Errorf("%d layers on %d threads", f.Layers, f.Threads)
	}
	var tasks []engine.Task
	for _, s := range []engine.StepTask{{BatchSize: 1, InputLen: 16, OutputLen: 8}, {BatchSize: 4, InputLen: 16, OutputLen: 8}, {BatchSize: 1, InputLen: 256, OutputLen: 8}, {BatchSize: 4, InputLen: 256, OutputLen: 8}} {
		tasks = append(tasks, engine.Task{ID: len(tasks) + 1, Warmup: 1, Runs: 3, Step: &s})
	}
	results := measured(t, session, tasks)
	for _, r := range results {
		checkClean(t, r)
		if r.Points[0].Clock != profile.ClockCPU {
			t.Errorf("clock %q", r.Points[0].Clock)
		}
	}
	small, _ := results[0].Points[0].Median()
	large, _ := results[3].Points[0].Median()
	if large < 3*small {
		t.Errorf("prefill of 16 tokens takes %v, of 1024 %v", small, large)
	}
	for _, r := range measured(t, session, []engine.Task{
		{ID: 50, Runs: 1, Step: &engine.StepTask{BatchSize: 5, InputLen: 16, OutputLen: 2}},
		{ID: 51, Runs: 1, Layers: &engine.LayersTask{Tokens: 1, Sequences: 1}},
	}) {
		if r.Failure == "" || r.Task.ID == 50 && r.Failure != engine.FailureLimits {
			t.Errorf("task %d: failure %q", r.Task.ID, r.Failure)
		}
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

// TestRealBenchLatency runs the command twice for one point.
func TestRealBenchLatency(t *testing.T) {
	if os.Getenv("LLMPROF_SLOW_TESTS") == "" {
		t.Skip("SKIPPED, NOT TESTED: takes four minutes; LLMPROF_SLOW_TESTS=1 runs it")
	}
	setup := realSetup(t, 16384)
	setup.Program = enginetest.VLLM(t)
	setup.MaxBatch, setup.MaxInput, setup.MaxOutput = 4, 128, 16
	setup.Log = logTo(t)
	session, err := vllm.BenchLatency{}.Start(t.Context(), place.Local(), setup)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if v := session.Facts().Version; !strings.HasPrefix(v, "0.32") {
		t.Errorf("version %q", v)
	}
	for _, r := range measured(t, session, []engine.Task{{ID: 1, Warmup: 2, Runs: 5, Step: &engine.StepTask{BatchSize: 4, InputLen: 128, OutputLen: 16}}}) {
		if r.Failure != "" || len(r.Points) != 2 || len(r.Points[0].Warnings) == 0 {
			t.Fatalf("%+v", r)
		}
		p, _ := r.Points[0].Median()
		d, _ := r.Points[1].Median()
		t.Logf("4 × 128: prefill %.1f ms with host, decode step %.2f ms", float64(p)*1e3, float64(d)*1e3)
	}
}
