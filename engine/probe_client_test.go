package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// lineLimit is the longest line that the tests admit, in bytes.
const lineLimit = 200_000

// fake is the command of a fake probe.
func fake(t *testing.T, behaviour string) engine.Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return engine.Command{Argv: []string{self}, Env: []string{fakeVariable + "=" + behaviour}}
}

func startFake(t *testing.T, behaviour string, setup engine.Setup) (engine.Session, error) {
	t.Helper()
	session, err := engine.StartImpatient(t.Context(), place.Local(), fake(t, behaviour), setup, 300*time.Millisecond, lineLimit)
	if err == nil {
		t.Cleanup(func() { session.Close() })
	}
	return session, err
}

// forGood is as long as a test takes at most where a wait does not end.
const forGood = 5 * time.Minute

// within fails the test if f takes longer than a probe may ever be waited for.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took > limit {
		t.Errorf("took %v, want at most %v", took, limit)
	}
}

func stepTask(id, batch int) engine.Task {
	return engine.Task{ID: id, Step: &engine.StepTask{BatchSize: batch, InputLen: 16, OutputLen: 4}, Warmup: 1, Runs: 2}
}

// collect runs tasks and returns what came of them.
func collect(t *testing.T, s engine.Session, tasks ...engine.Task) ([]engine.Result, error) {
	t.Helper()
	var results []engine.Result
	err := s.Run(t.Context(), tasks, func(r engine.Result) error {
		results = append(results, r)
		return nil
	})
	return results, err
}

func TestProbeFacts(t *testing.T) {
	setup := engine.Setup{Model: "/models/m", Deploy: deploy.Config{Engine: "fake", BlockSize: 16, MaxModelLen: 9000, TensorParallel: 2, PipelineParallel: 1}}
	s, err := startFake(t, "good", setup)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Facts{
		Engine: "fake", Version: "1.2", Libraries: map[string]string{"torch": "2"},
		Device: profile.Device{Reported: "Fake 9000", Count: 2}, Clock: profile.ClockWall, Timer: "clock", Resolution: 1e-9,
		MaxModelLen: 4096, Layers: 12, Threads: 4,
		Memory: []profile.Point{
			{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryWeights, Bytes: 1000}},
			{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryKVCache, Tokens: 640, BlockSize: 16}},
		},
		Deploy:   deploy.Config{Model: "/models/m", Engine: "fake", EngineVersion: "1.2", DType: "bf16", MaxModelLen: 4096},
		Warnings: []string{"it is a fake", "the engine does not confirm what it was asked for, so that it is not recorded: block size 16, tensor parallel size 2", "memory[1] of the engine was left out: memory: part is missing\nmemory: says neither bytes nor tokens nor blocks"},
	}
	got := s.Facts()
	want.Warnings[2] = got.Warnings[len(got.Warnings)-1] // the wording is the profile's
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts differ (-want +got):\n%s", diff)
	}
}

// TestProbeSaysOtherwise: an engine that runs something else than what was
// asked for is refused, and what is confirmed is recorded.
func TestProbeSaysOtherwise(t *testing.T) {
	tests := []struct {
		why, says string // fields of the ready event
		setup     engine.Setup
		want      deploy.Config
		err       string
	}{
		{
			"all is confirmed", `"dtype":"fp16","kv_cache_dtype":"fp8","quantization":"fp8","block_size":32,"max_num_batched_tokens":2048,` +
				`"tensor_parallel_size":2,"pipeline_parallel_size":1,"gpu_memory_utilization":0.85,"weights":"loaded"`,
			engine.Setup{LoadWeights: true, Deploy: deploy.Config{DType: "fp16", KVCacheDType: "fp8", Quantization: "fp8", BlockSize: 32, TensorParallel: 2, GPUMemoryUtilization: 0.85}},
			deploy.Config{
				Engine: "fake", EngineVersion: "1.2", DType: "fp16", KVCacheDType: "fp8", Quantization: "fp8", BlockSize: 32, MaxModelLen: 4096,
				MaxNumBatchedTokens: 2048, TensorParallel: 2, PipelineParallel: 1, GPUMemoryUtilization: 0.85,
			},
			"",
		},
		{"what nobody asked for is recorded too", `"block_size":64`, engine.Setup{}, deploy.Config{Engine: "fake", EngineVersion: "1.2", BlockSize: 64, MaxModelLen: 4096}, ""},
		{"another format", `"dtype":"fp32"`, engine.Setup{Deploy: deploy.Config{DType: "bf16"}}, deploy.Config{}, "asked for dtype bf16, and the engine runs with fp32"},
		{
			"a quantisation by its kernel's name", `"quantization":"awq_marlin"`,
			engine.Setup{Deploy: deploy.Config{Quantization: "awq"}},
			deploy.Config{Engine: "fake", EngineVersion: "1.2", MaxModelLen: 4096, Quantization: "awq_marlin"},
			"",
		},
		{"another quantisation", `"quantization":"gptq"`, engine.Setup{Deploy: deploy.Config{Quantization: "awq"}}, deploy.Config{}, "quantisation awq, and the engine runs with gptq"},
		{"other blocks", `"block_size":16`, engine.Setup{Deploy: deploy.Config{BlockSize: 32}}, deploy.Config{}, "block size 32, and the engine runs with 16"},
		{"fewer ranks", `"tensor_parallel_size":1`, engine.Setup{Deploy: deploy.Config{TensorParallel: 4}}, deploy.Config{}, "tensor parallel size 4, and the engine runs with 1"},
		{"more ranks than one", `"tensor_parallel_size":2`, engine.Setup{Deploy: deploy.Config{TensorParallel: 1}}, deploy.Config{}, "tensor parallel size 1, and the engine runs with 2"},
		{"random weights", `"weights":"random"`, engine.Setup{LoadWeights: true}, deploy.Config{}, "the checkpoint's weights, and the engine has random ones"},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			s, err := startFake(t, "says:"+test.says, test.setup)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, s.Facts().Deploy); diff != "" {
				t.Errorf("deployment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProbeProgramRefuses(t *testing.T) {
	for want, d := range map[string]deploy.Config{
		"pipeline parallel size": {PipelineParallel: 2},
		"data parallel size":     {DataParallel: 2},
		"expert parallel size":   {ExpertParallel: 2},
		"quantisation":           {Quantization: "awq"},
		"KV cache dtype":         {KVCacheDType: "fp8"},
		"GPU memory utilization": {GPUMemoryUtilization: 0.5},
	} {
		_, err := engine.ProbeProgram().Start(t.Context(), place.Local(), engine.Setup{Program: "true", Deploy: d})
		if err == nil || !strings.HasSuffix(err.Error(), "no request for "+want) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

// TestProbeInheritedSecrets: a probe inherits the place's environment, and what
// it prints of that must reach neither the terminal nor the profile.
func TestProbeInheritedSecrets(t *testing.T) {
	const secret = "plain-words-of-mine"
	env := append(os.Environ(), "MY_SERVICE_TOKEN="+secret)
	var said syncBuffer
	s, err := engine.StartProbe(t.Context(), place.Local(env...), fake(t, "leaks"), engine.Setup{Log: &said})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	results, err := collect(t, s, stepTask(1, 1), stepTask(2, 2), stepTask(3, 3))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // what it said on stderr is here by then
		t.Error(err)
	}
	all, err := json.Marshal([]any{s.Facts(), results, said.String()})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(all), engine.Hidden); strings.Contains(string(all), secret[:8]) || n < 5 {
		t.Errorf("%d places are hidden:\n%s", n, all)
	}
	_, err = engine.StartProbe(t.Context(), place.Local(env...), fake(t, "leaks-and-dies"), engine.Setup{})
	if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), engine.Hidden) {
		t.Errorf("error %v", err)
	}
}

func TestProbePoints(t *testing.T) {
	s, err := startFake(t, "good", engine.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	layers := func(id, tokens, context, sequences int) engine.Task {
		return engine.Task{ID: id, Layers: &engine.LayersTask{Tokens: tokens, Context: context, Sequences: sequences}, Runs: 2}
	}
	short := stepTask(2, 3)
	short.Step.OutputLen = 1
	results, err := collect(t, s, stepTask(1, 3), short, layers(3, 8, 5, 1), layers(4, 1, 100, 6), layers(5, 8, 0, 2))
	if err != nil {
		t.Fatal(err)
	}
	var points [][]profile.Point
	for _, r := range results {
		if r.Failure != "" {
			t.Errorf("task %d failed: %s", r.Task.ID, r.Failure)
		}
		points = append(points, r.Points)
	}
	// Three decode steps of 0.1, 0.2 and 0.3 s: median 0.2, sum 0.6.
	extra := map[string]json.RawMessage{
		"total_latency":      json.RawMessage("2.1"),
		"overall_throughput": json.RawMessage("30.288461538461537"),
		"runs_data":          json.RawMessage(`[{"total_latency":1.6,"overall_throughput":37.5},{"total_latency":2.6,"overall_throughput":23.076923076923077}]`),
	}
	step := profile.Step{Mode: profile.Prefill, BatchSize: 3, InputLen: 16, OutputLen: 4, Pass: forward.Prefill(3, 16, 0)}
	decode := step
	decode.Mode, decode.Pass = profile.Decode, forward.Decode(3, 16+4/2)
	want := []profile.Point{
		{Kind: profile.KindStep, Step: &step, Samples: []float64{1, 2}, Clock: profile.ClockWall, Extra: extra},
		{Kind: profile.KindStep, Step: &decode, Samples: []float64{0.2, 0.2}, Clock: profile.ClockWall},
	}
	tolerant := cmp.Transformer("extra", func(m map[string]json.RawMessage) map[string]any {
		out := map[string]any{}
		for key, text := range m {
			var v any
			if err := json.Unmarshal(text, &v); err != nil {
				t.Fatal(err)
			}
			out[key] = v
		}
		return out
	})
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if diff := cmp.Diff(want, points[0], tolerant, near); diff != "" {
		t.Errorf("step: points differ (-want +got):\n%s", diff)
	}
	if len(points[1]) != 1 || points[1][0].Step.Mode != profile.Prefill {
		t.Errorf("one output token has no decode step: got %d points", len(points[1]))
	}
	samples := []float64{0.5, 0.5}
	layer := func(l profile.Layer) profile.Point {
		return profile.Point{Kind: profile.KindLayer, Layer: &l, Samples: samples, Clock: profile.ClockWall}
	}
	for i, want := range [][]profile.Point{
		{
			layer(profile.Layer{Name: "q_proj", Tokens: 8, Context: 5}),
			layer(profile.Layer{Name: "attn", Tokens: 8, Context: 5}),
			layer(profile.Layer{Name: "indexer", Tokens: 8, Context: 5}),
			layer(profile.Layer{Name: "lm_head", Tokens: 8, Context: 5}),
		},
		{
			layer(profile.Layer{Name: "q_proj", Tokens: 6, Context: 100}),
			layer(profile.Layer{Name: "attn", Sequences: 6, SequenceContext: 100}),
			layer(profile.Layer{Name: "indexer", Sequences: 6, SequenceContext: 100}),
			layer(profile.Layer{Name: "lm_head", Tokens: 6, Context: 100, Sequences: 6}),
		},
		{
			layer(profile.Layer{Name: "q_proj", Tokens: 16}),
			layer(profile.Layer{Name: "lm_head", Tokens: 16, Sequences: 2}),
		},
	} {
		got := points[2+i]
		switch i {
		case 1:
			want[0].Warnings = []string{"blocks differ"}
		case 2:
			want[0].Warnings = []string{"attn, indexer of 2 prompts in one step has no place in a profile and was left out"}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("layers %d: points differ (-want +got):\n%s", i, diff)
		}
	}
}

// death is what a DiedError must say.
type death struct {
	task int
	oom  bool
}

func TestProbeDoesNotStart(t *testing.T) {
	tests := []struct {
		why, behaviour string
		want           string // part of the error
		problem        engine.Problem
		died           *death
		hint           string // part of it
	}{
		{"a probe that hangs is given up", "hangs-at-start", "not ready after 1s; a model that loads slowly needs a longer start timeout", "", &death{}, ""},
		{"a crash shows the probe's words", "crashes-at-start", "Segfault in libfake.so", "", &death{}, ""},
		{"the kernel's killer leaves no words", "killed-at-start", "SIGKILL", "", &death{oom: true}, ""},
		{"an end without an error is one", "ends-at-start", "it ended without a word; its last words: I am off", "", &death{}, ""},
		{"a shell reports a missing program by its status", "not-found", "not installed", engine.ProgramMissing, nil, "install it"},
		{"and one that may not run", "not-executable", "permission denied", engine.PermissionDenied, nil, "executable"},
		{"another version of the protocol", "wrong-version", `speaks "llmprof/probe" version 2, this program "llmprof/probe" version 1`, "", nil, "belongs to this release"},
		{"another protocol", "wrong-schema", `speaks "other/probe"`, "", nil, "belongs to this release"},
		{"a clock that no point may have", "unknown-clock", `clock "sundial"`, "", nil, "belongs to this release"},
		{"an answer before the first question", "answers-early", `answers "step" before it is ready`, "", &death{}, ""},
		{"no library", "fatal:engine-missing", "no such thing", engine.EngineMissing, nil, "install fake"},
		{"the probe knows the remedy best", "fatal-hint", "torch on local: engine not installed: No module named 'torch'", engine.EngineMissing, nil, "pip install torch"},
		{"no model", "fatal:model-missing", "fake on local gave up: model-missing: no such thing", "", nil, "config.json"},
		{"an unknown model", "fatal:model-unsupported", "model-unsupported: no such thing", "", nil, "newer release of fake"},
		{"a gated model", "fatal:permission-denied", "permission denied", engine.PermissionDenied, nil, "HF_TOKEN"},
		{"no device", "fatal:no-device", "no such device", engine.DeviceMissing, nil, "driver"},
		{"no memory for the weights", "fatal:oom", "oom: no such thing", "", &death{oom: true}, ""},
		{"a reason that nobody foresaw", "fatal:moon-phase", "moon-phase: no such thing", "", nil, ""},
		{"no reason", "fatal:", "no reason given: no such thing", "", nil, ""},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			t.Parallel()
			setup := engine.Setup{StartTimeout: 2 * forGood, Deploy: deploy.Config{Engine: "fake"}}
			if test.behaviour == "hangs-at-start" {
				setup.StartTimeout = time.Second
			}
			within(t, forGood, func() {
				_, err := startFake(t, test.behaviour, setup)
				if err == nil {
					t.Fatal("it started")
				}
				checkError(t, err, test.want, test.died)
				if got := engine.Unusable(err); got != test.problem {
					t.Errorf("problem %q, want %q", got, test.problem)
				}
				var hinted interface{ Hint() string }
				if test.hint != "" && (!errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), test.hint)) {
					t.Errorf("no hint with %q: %v", test.hint, err)
				}
			})
		})
	}
}

func checkError(t *testing.T, err error, want string, died *death) {
	t.Helper()
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error %q, want one with %q", err, want)
	}
	var got *engine.DiedError
	if errors.As(err, &got) != (died != nil) {
		t.Fatalf("is it a death? %#v", err)
	}
	if died != nil && (got.Task != died.task || got.OutOfMemory != died.oom || got.Engine != "fake") {
		t.Errorf("death of %s in task %d, out of memory %v; want fake, %d, %v", got.Engine, got.Task, got.OutOfMemory, died.task, died.oom)
	}
}

func TestProbeTaskGoesWrong(t *testing.T) {
	tests := []struct {
		why, behaviour string
		failure        string // part of the second task's; empty where it has none
		want           string // part of the session's error; empty where it goes on
		died           *death
	}{
		{"a task that hangs is a result, and ends the session", "hangs", "timeout: no answer within 12s", "a longer task timeout", &death{task: 2}},
		{"a crash ends the session", "crashes", "", "device-side assert", &death{task: 2}},
		{"so does one for want of memory", "crashes-of-memory", "", "bad_alloc", &death{task: 2, oom: true}},
		{"killed by the kernel", "killed", "", "SIGKILL", &death{task: 2, oom: true}},
		{"killed in a container, by status", "exit-137", "", "status 137", &death{task: 2, oom: true}},
		{"an end without an error", "ends", "", "ended without a word", &death{task: 2}},
		{"half a line, then the end", "half-line", "", "broken: unexpected end", &death{task: 2}},
		{"garbage is chatter", "garbage", "", "", nil},
		{"an event that is no JSON", "broken-event", "", "line of its output is broken", &death{task: 2}},
		{"an event of other types", "wrong-type", "", "line of its output is broken", &death{task: 2}},
		{"an event without end", "long-line", "", "more than 200000 bytes", &death{task: 2}},
		{"an answer to another task", "wrong-id", "", "answers task 42 while task 2 runs", &death{task: 2}},
		{"layers for a step", "wrong-kind", `of kind "layers"`, "", nil},
		{"NaN is no time", "nan", "prefill_s[0] is 0: want a positive", "", nil},
		{"nor is infinity", "infinite", "prefill_s[1] is 0: want a positive", "", nil},
		{"nor is a negative number", "negative", "prefill_s[0] is -5", "", nil},
		{"fewer samples than asked for", "few-samples", "holds 1 times, want 2", "", nil},
		{"fewer decode steps than asked for", "few-decode-steps", "decode_s[0] holds 1 times, want 3", "", nil},
		{"out of memory is an answer", "failed:oom", "oom", "", nil},
		{"limits are an answer", "failed:skipped_due_to_limits", "skipped_due_to_limits", "", nil},
		{"an exception", "failed:exception", "exception: it says [redacted]", "", nil},
		{"a runtime error", "failed:runtime_error", "runtime_error: it says [redacted]", "", nil},
		{"a timeout of the probe's own", "failed:timeout", "timeout: it says [redacted]", "", nil},
		{"a whole reason", "failed:exception: boom", "exception: boom", "", nil},
		{"a reason that nobody foresaw", "failed:moon", "runtime_error: moon: it says [redacted]", "", nil},
		{"the engine gives up in the middle", "fatal-in-task", "", "HIP out of memory", &death{task: 2, oom: true}},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			t.Parallel()
			within(t, forGood, func() {
				s, err := startFake(t, test.behaviour, engine.Setup{TaskTimeout: 2 * forGood})
				if test.behaviour == "hangs" && err == nil {
					s.Close()
					s, err = startFake(t, test.behaviour, engine.Setup{TaskTimeout: 4 * time.Second})
				}
				if err != nil {
					t.Fatal(err)
				}
				results, err := collect(t, s, stepTask(1, 1), stepTask(2, 2), stepTask(3, 1))
				if len(results) == 0 || results[0].Failure != "" || len(results[0].Points) != 2 {
					t.Fatalf("the first task is a plain one: %+v, %v", results, err)
				}
				if test.want == "" {
					if err != nil {
						t.Fatalf("the session ended: %v", err)
					}
					if len(results) != 3 || results[2].Failure != "" {
						t.Fatalf("it did not go on: %+v", results)
					}
				} else {
					if err == nil {
						t.Fatal("the session goes on")
					}
					checkError(t, err, test.want, test.died)
					if again, err2 := collect(t, s, stepTask(4, 1)); err2 == nil || len(again) != 0 {
						t.Errorf("a session that ended ran again: %v", err2)
					}
				}
				var failure string
				if len(results) > 1 {
					failure = results[1].Failure
					if failure != "" && len(results[1].Points) != 0 {
						t.Error("a failure with points")
					}
				}
				if (failure == "") != (test.failure == "") || !strings.Contains(failure, test.failure) {
					t.Errorf("failure %q, want one with %q", failure, test.failure)
				}
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		})
	}
}

// syncBuffer is a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestProbeChatterGoesToTheLog(t *testing.T) {
	var log syncBuffer
	s, err := startFake(t, "chatters", engine.Setup{Log: &log, Env: []string{"MY_SECRET=half way to"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := log.String()
	for _, want := range []string{"Loading weights: 50%\n", "{'a': dict}\n", "progress: half way\n", "token [redacted] of user\n", "warning on stderr\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "hf_abc") {
		t.Errorf("the log holds a secret:\n%s", got)
	}
	if _, err := startFake(t, "long-chatter", engine.Setup{}); err != nil {
		t.Errorf("a long line of chatter: %v", err)
	}
}

func TestProbeClose(t *testing.T) {
	for _, behaviour := range []string{"good", "ignores-close"} {
		s, err := startFake(t, behaviour, engine.Setup{})
		if err != nil {
			t.Fatal(err)
		}
		within(t, forGood, func() {
			for range 2 {
				if err := s.Close(); err != nil {
					t.Errorf("%s: close: %v", behaviour, err)
				}
			}
		})
		if _, err := collect(t, s, stepTask(1, 1)); err == nil {
			t.Errorf("%s: a closed session ran a task", behaviour)
		}
	}
}

func TestProbeCloseEndsARunningTask(t *testing.T) {
	s, err := startFake(t, "hangs", engine.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := collect(t, s, stepTask(2, 2))
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		if err == nil {
			t.Error("the task went through")
		}
	case <-time.After(forGood):
		t.Error("the task runs on")
	}
}

func TestProbeContextEnds(t *testing.T) {
	s, err := startFake(t, "hangs", engine.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	within(t, forGood, func() {
		err = s.Run(ctx, []engine.Task{stepTask(2, 2)}, func(engine.Result) error { return nil })
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	starting, cancelStart := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancelStart()
	if _, err := engine.StartProbe(starting, place.Local(), fake(t, "hangs-at-start"), engine.Setup{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: got %v, want the context's error", err)
	}
}

func TestProbeEmitEndsTheRun(t *testing.T) {
	s, err := startFake(t, "good", engine.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	if err := s.Run(t.Context(), []engine.Task{stepTask(1, 1), stepTask(2, 1)}, func(engine.Result) error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v, want the error of emit", err)
	}
	if results, err := collect(t, s, stepTask(3, 1)); err != nil || len(results) != 1 {
		t.Errorf("the session is as good as before: %v", err)
	}
}

func TestProbeRefusesTasks(t *testing.T) {
	s, err := startFake(t, "good", engine.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	step, layers := &engine.StepTask{BatchSize: 1, InputLen: 1, OutputLen: 1}, &engine.LayersTask{Tokens: 1, Sequences: 1}
	for _, task := range []engine.Task{
		{ID: 1, Runs: 1},
		{ID: 2, Runs: 1, Step: step, Layers: layers},
		{ID: 3, Step: step},
		{ID: 4, Runs: 1, Step: &engine.StepTask{BatchSize: 0, InputLen: 1, OutputLen: 1}},
		{ID: 5, Runs: 1, Layers: &engine.LayersTask{Tokens: 1, Context: -1, Sequences: 1}},
	} {
		if results, err := collect(t, s, task); err == nil || len(results) != 0 {
			t.Errorf("task %d was run: %v", task.ID, err)
		}
	}
	if results, err := collect(t, s, stepTask(9, 1)); err != nil || len(results) != 1 {
		t.Errorf("the session is as good as before: %v", err)
	}
}

func TestProbeMissingProgram(t *testing.T) {
	_, err := engine.StartProbe(t.Context(), place.Local(), engine.Command{Argv: []string{"/no/such/program"}}, engine.Setup{})
	if engine.Unusable(err) != engine.ProgramMissing && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := engine.StartProbe(t.Context(), place.Local(), engine.Command{}, engine.Setup{}); err == nil {
		t.Error("no program was started")
	}
}
