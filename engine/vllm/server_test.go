package vllm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// fakeSetup fits the fake server.
func fakeSetup() engine.Setup {
	return engine.Setup{
		Model: "/m/tiny", Device: "cpu", MaxBatch: 8, MaxInput: 512, MaxOutput: 8, Threads: 1,
		Deploy: deploy.Config{MaxNumBatchedTokens: 2048}, StartTimeout: time.Minute, TaskTimeout: 30 * time.Second,
	}
}

func newFake() *fakeServer {
	return &fakeServer{budget: 2048, seats: 8, slow: time.Millisecond, loading: 3 * time.Second}
}

// inBubble starts a session on a fake server within a bubble.
func inBubble(t *testing.T, f *fakeServer, setup engine.Setup, use func(t *testing.T, s engine.Session)) {
	t.Helper()
	inBubbleAt(t, f, setup, use)
}

// inBubbleAt does so at a place that leads to one.
func inBubbleAt(t *testing.T, f engine.Place, setup engine.Setup, use func(t *testing.T, s engine.Session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := (&vllm.Server{}).Start(t.Context(), f, setup)
		if err != nil {
			t.Fatal(err)
		}
		use(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error("a second Close:", err)
		}
	})
}

func stepTask(id, runs, batch, input, output int) engine.Task {
	return engine.Task{ID: id, Warmup: 1, Runs: runs, Step: &engine.StepTask{BatchSize: batch, InputLen: input, OutputLen: output}}
}

func near(got, want float64) bool { return math.Abs(got-want) < 1e-9 }

// fakeTime is what the fake server takes for a step.
func fakeTime(contextTokens, generations int) float64 {
	return 1e-3 + float64(contextTokens)*50e-6 + float64(generations)*100e-6
}

func TestServerMeasures(t *testing.T) {
	var log bytes.Buffer
	f, setup := newFake(), fakeSetup()
	setup.Log, setup.Env = &log, []string{"HF_TOKEN=a-secret-value"}
	f.startLog = []string{
		"(APIServer pid=9) INFO 11-21 00:07:38 token a-secret-value and hf_abcdefghijklmnopqrstuv",
		"(EngineCore pid=9) INFO 11-21 00:08:40 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, Maximum concurrency for 2,048 tokens per request: 256.00x",
	}
	inBubble(t, f, setup, func(t *testing.T, s engine.Session) {
		facts := s.Facts()
		if facts.Engine != "vllm" || facts.Version != "0.32.0" || facts.MaxModelLen != 2048 || facts.MaxTokens != 524288 || facts.MaxBatch != 8 ||
			facts.Deploy.BlockSize != 128 || facts.Deploy.MaxNumBatchedTokens != 2048 || facts.Resolution != 1e-5 || facts.Clock != profile.ClockWall {
			t.Errorf("facts %+v", facts)
		}
		var bytes int64
		for _, p := range facts.Memory {
			bytes = max(bytes, p.Memory.Bytes)
		}
		if bytes != 1<<30 {
			t.Errorf("memory %+v", facts.Memory)
		}
		for _, r := range measured(t, s, []engine.Task{stepTask(1, 3, 1, 16, 5), stepTask(2, 3, 8, 256, 5), stepTask(3, 2, 4, 100, 1)}) {
			task := r.Task.Step
			if r.Failure != "" {
				t.Errorf("%+v: %s", *task, r.Failure)
				continue
			}
			points := 2
			if task.OutputLen == 1 {
				points = 1
			}
			if len(r.Points) != points {
				t.Errorf("%+v: %d points: %+v", *task, len(r.Points), r.Points)
				continue
			}
			prefill := r.Points[0]
			if prefill.Step.Mode != profile.Prefill || len(prefill.Samples) != r.Task.Runs || !near(prefill.Samples[0], fakeTime(task.BatchSize*task.InputLen, 0)) {
				t.Errorf("%+v: prefill %+v", *task, prefill)
			}
			if points == 1 {
				continue
			}
			decode := r.Points[1]
			want := forward.Sequences{Count: task.BatchSize, SumContext: int64(task.BatchSize*task.InputLen + task.BatchSize*5/2)}
			if decode.Step.Mode != profile.Decode || decode.Step.Pass.Decode != want || len(decode.Samples) != r.Task.Runs || !near(decode.Samples[0], fakeTime(0, task.BatchSize)) {
				t.Errorf("%+v: decode %+v of %+v", *task, decode, *decode.Step)
			}
		}
	})
	if text := log.String(); strings.Contains(text, "a-secret-value") || strings.Contains(text, "hf_abc") || !strings.Contains(text, "token [redacted] and [redacted]") {
		t.Errorf("the log: %s", text)
	}
	if f.pauses == 0 {
		t.Error("the scheduler was never paused")
	}
}

func TestServerThreads(t *testing.T) {
	for _, c := range []struct {
		why     string
		threads int
		env     []string
		ranks   int
		want    int
	}{
		{why: "the engine's own choice"},
		{why: "those of the setup", threads: 3, want: 3},
		{why: "those of the user's own variable", threads: 3, env: []string{"OMP_NUM_THREADS=5"}, want: 5},
		{why: "no number", env: []string{"OMP_NUM_THREADS=many"}},
		{why: "two processes", threads: 3, ranks: 2},
	} {
		t.Run(c.why, func(t *testing.T) {
			setup := fakeSetup()
			setup.Device, setup.Threads, setup.Env, setup.Deploy.TensorParallel = "cpu", c.threads, c.env, c.ranks
			inBubble(t, newFake(), setup, func(t *testing.T, s engine.Session) {
				if got := s.Facts().Threads; got != c.want {
					t.Errorf("%d threads, want %d", got, c.want)
				}
			})
		})
	}
}

func TestServerCommandLine(t *testing.T) {
	f, setup := newFake(), fakeSetup()
	f.config = `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"intermediate_size":14336,"vocab_size":512,"max_position_embeddings":400}`
	setup.Deploy = deploy.Config{BlockSize: 64, DType: "bf16", TensorParallel: 2, KVCacheDType: "fp8", GPUMemoryUtilization: 0.5}
	setup.NumLayers, setup.Seed = 16, 7
	setup.Args = []string{"--max_num_seqs=16", "--no-enforce-eager", "--max-logprobs", "3"}
	setup.Env = []string{"VLLM_CPU_KVCACHE_SPACE=9"}
	inBubble(t, f, setup, func(t *testing.T, s engine.Session) {
		if n := s.Facts().Layers; n != 16 {
			t.Errorf("%d layers, want 16", n)
		}
	})
	line := strings.Join(f.argv, " ")
	for _, want := range []string{
		"vllm serve /m/tiny --host 127.0.0.1 --port ", "--enable-logging-iteration-details", "--no-enable-prefix-caching", "--load-format dummy",
		"--dtype bfloat16", "--kv-cache-dtype fp8", `--hf-overrides {"num_hidden_layers": 16}`, "--max-model-len 400", "--block-size 64",
		"--max-num-batched-tokens 4096", "--tensor-parallel-size 2", "--gpu-memory-utilization 0.5", "--seed 7", "--max_num_seqs=16 --no-enforce-eager --max-logprobs 3",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
	for _, never := range []string{"--max-num-seqs", "--enforce-eager ", "async-scheduling"} {
		if strings.Contains(line, never) {
			t.Errorf("%q in %s", never, line)
		}
	}
	env := strings.Join(f.env, " ")
	for _, want := range []string{"VLLM_SERVER_DEV_MODE=1", "OMP_NUM_THREADS=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1"} {
		if !slices.Contains(f.env, want) {
			t.Errorf("no %s in %s", want, env)
		}
	}
	// 16 layers × 2 × 1024 × 4 B × 8 sequences of 512 + 8, in whole blocks.
	if at, own := strings.Index(env, "VLLM_CPU_KVCACHE_SPACE=1 "), strings.Index(env, "VLLM_CPU_KVCACHE_SPACE=9"); at < 0 || own < at {
		t.Errorf("KV cache: %s", env)
	}
}

func TestGPUCommandLine(t *testing.T) {
	f, setup := newFake(), fakeSetup()
	setup.Device, setup.CUDAGraphs, setup.LoadWeights = "cuda", true, true
	inBubble(t, f, setup, func(t *testing.T, s engine.Session) {
		if !strings.Contains(fmt.Sprint(s.Facts().Warnings), "asynchronous scheduling is off") {
			t.Errorf("warnings %v", s.Facts().Warnings)
		}
	})
	line := strings.Join(f.argv, " ")
	for want, in := range map[string]bool{"--no-async-scheduling": true, "--enforce-eager": false, "--load-format": false} {
		if strings.Contains(line, want) != in {
			t.Errorf("%q in %s: want %v", want, line, in)
		}
	}
	if slices.ContainsFunc(f.env, func(v string) bool { return strings.HasPrefix(v, "VLLM_CPU") }) {
		t.Errorf("CPU variables: %v", f.env)
	}
}

// TestServerSplits asks for more prompt tokens than a step holds.
func TestServerSplits(t *testing.T) {
	f := newFake()
	f.budget = 1024
	setup := fakeSetup()
	setup.Deploy.MaxNumBatchedTokens = 1024
	inBubble(t, f, setup, func(t *testing.T, s engine.Session) {
		task := stepTask(1, 2, 4, 400, 8)
		r := measured(t, s, []engine.Task{task})[0]
		if want := engine.FailureException + "the engine did not take the batch in one step: 1600 prompt tokens, and a step holds at most 1024"; r.Failure != want {
			t.Errorf("failure %q", r.Failure)
		}
		var got []string
		for _, p := range r.Points {
			if len(p.Samples) != 2 || p.Step.Totals != nil {
				t.Errorf("point %+v of %+v", p, *p.Step)
			}
			got = append(got, fmt.Sprintf("%s %+v", p.Step.Mode, p.Step.Pass))
		}
		// 1024 = 400 + 400 + 224; then two decode while 176 + 400 prompt tokens run.
		want := []string{
			// Six steps of the whole batch at contexts of 1602, 1606, … tokens.
			"decode {Prefill:[] Decode:{Count:4 SumContext:1612 Shortest:0 Longest:0} DecodeContexts:[]}",
			"prefill {Prefill:[{Count:2 New:400 Context:0 Last:true} {Count:1 New:224 Context:0 Last:false}] Decode:{Count:0 SumContext:0 Shortest:0 Longest:0} DecodeContexts:[]}",
			"mixed {Prefill:[{Count:1 New:176 Context:224 Last:true} {Count:1 New:400 Context:0 Last:true}] Decode:{Count:2 SumContext:800 Shortest:0 Longest:0} DecodeContexts:[]}",
		}
		want = append(want, "decode {Prefill:[] Decode:{Count:2 SumContext:812 Shortest:0 Longest:0} DecodeContexts:[]}")
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if len(r.Points) > 0 && len(r.Points[0].Warnings) == 0 {
			t.Error("the decode point does not say which steps it stands for")
		}
	})
}

// TestServerWithoutPause has a server without the development interface.
func TestServerWithoutPause(t *testing.T) {
	f := newFake()
	f.noPause = true
	inBubble(t, f, fakeSetup(), func(t *testing.T, s engine.Session) {
		for _, r := range measured(t, s, []engine.Task{stepTask(1, 3, 8, 64, 4), stepTask(2, 3, 2, 16, 4)}) {
			if r.Failure != "" || len(r.Points) != 2 || len(r.Points[0].Samples) != 3 || strings.Count(string(r.Points[0].Extra["runs_data"]), "total_latency") != 3 {
				t.Errorf("%+v: %q, points %+v", *r.Task.Step, r.Failure, r.Points)
			}
		}
	})
}

// TestServerSlowArrival has prompts that arrive so slowly that waits must be
// stretched first.
func TestServerSlowArrival(t *testing.T) {
	f := newFake()
	f.slow = 15 * time.Millisecond
	inBubble(t, f, fakeSetup(), func(t *testing.T, s engine.Session) {
		r := measured(t, s, []engine.Task{stepTask(1, 3, 8, 16, 4)})[0]
		if r.Failure != "" || len(r.Points[0].Samples) != 3 {
			t.Errorf("%q, points %+v", r.Failure, r.Points)
		}
	})
	f = newFake()
	f.slow = 5 * time.Second
	inBubble(t, f, fakeSetup(), func(t *testing.T, s engine.Session) {
		setup := stepTask(1, 1, 2, 16, 4)
		r := measured(t, s, []engine.Task{setup})[0]
		if r.Failure != engine.FailureException+"the engine did not take the batch in one step" {
			t.Errorf("failure %q", r.Failure)
		}
		if len(r.Points) == 0 {
			t.Error("what was measured is lost")
		}
	})
}

func TestServerLogFaults(t *testing.T) {
	for _, c := range []struct {
		why    string
		logs   func(n int, line string) []string
		whole  bool // the result is as without faults
		totals bool // some steps have no pass
	}{
		{why: "every line twice", whole: true, logs: func(_ int, line string) []string { return []string{line, line} }},
		{why: "colours and CRLF", whole: true, logs: func(_ int, line string) []string {
			return []string{"\x1b[0;36m(APIServer pid=9)\x1b[0;0m " + line[len("(APIServer pid=9) "):] + "\r"}
		}},
		{why: "foreign lines between", whole: true, logs: func(n int, line string) []string {
			return []string{
				"Engine 000: Avg prompt throughput: 800.0 tokens/s, Avg generation throughput: 1 tokens/s, Running: 12 reqs, Waiting: 3 reqs, GPU KV cache usage: 41.4%",
				strings.Repeat("x", 200<<10), line, "Iteration(", fmt.Sprintf("Iteration(%d): garbage", n),
			}
		}},
		{why: "a line is missing in each run", totals: true, logs: func(n int, line string) []string {
			if n%4 == 3 {
				return nil
			}
			return []string{line}
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			f := newFake()
			f.logs = c.logs
			inBubble(t, f, fakeSetup(), func(t *testing.T, s engine.Session) {
				r := measured(t, s, []engine.Task{stepTask(1, 3, 4, 64, 6)})[0]
				if c.whole && (r.Failure != "" || len(r.Points) != 2 || len(r.Points[0].Samples) != 3 || len(r.Points[1].Samples) != 3) {
					t.Errorf("%q, points %+v", r.Failure, r.Points)
				}
				totals := slices.ContainsFunc(r.Points, func(p profile.Point) bool { return p.Step.Totals != nil })
				if totals != c.totals {
					t.Errorf("steps without a pass: %v", totals)
				}
			})
		})
	}
}

// TestServerStrangers shares the server with requests of others.
func TestServerStrangers(t *testing.T) {
	f := newFake()
	inBubble(t, f, fakeSetup(), func(t *testing.T, s engine.Session) {
		f.stranger = 40
		r := measured(t, s, []engine.Task{stepTask(1, 2, 4, 64, 6)})[0]
		if r.Failure == "" {
			t.Error("no failure")
		}
		for _, p := range r.Points {
			if p.Step.Mode == profile.Prefill && p.Step.Totals == nil {
				t.Errorf("a pass that the server did not run: %+v", p.Step.Pass)
			}
		}
	})
}

func TestServerFailures(t *testing.T) {
	killed := &engine.ExitError{Program: "vllm", Place: "fake", Code: -1, Signal: "killed"}
	for _, c := range []struct {
		why     string
		server  func(f *fakeServer)
		failure string // of the second task
		died    string // the session's error
		oom     bool
	}{
		{why: "a refused request", failure: "exception: POST /v1/completions: status 400: too long", server: func(f *fakeServer) {
			f.refuse = func(p [][]int) (int, string) {
				if len(p) == 4 {
					return 400, `{"error":{"message":"too long"}}`
				}
				return 0, ""
			}
		}},
		{why: "an error of the server", failure: "runtime_error: POST /v1/completions: status 500: boom", server: func(f *fakeServer) {
			f.refuse = func(p [][]int) (int, string) {
				if len(p) == 4 {
					return 500, "boom"
				}
				return 0, ""
			}
		}},
		{why: "memory ran out, and the server lives", failure: "oom", server: func(f *fakeServer) {
			f.refuse = func(p [][]int) (int, string) {
				if len(p) == 4 {
					return 500, "torch.OutOfMemoryError: CUDA out of memory."
				}
				return 0, ""
			}
		}},
		{why: "the engine behind the server is dead", died: "status 500", server: func(f *fakeServer) {
			f.unhealthy = 503
			f.refuse = func(p [][]int) (int, string) {
				if len(p) == 4 {
					return 500, "EngineCore encountered an issue"
				}
				return 0, ""
			}
		}},
		{why: "the process is killed", died: "killed", oom: true, server: func(f *fakeServer) { f.crashAt, f.crash = 12, killed }},
		{why: "the process ends with words", died: "CUDA out of memory", oom: true, server: func(f *fakeServer) {
			f.crashAt, f.crash = 12, &engine.ExitError{Program: "vllm", Place: "fake", Code: 1}
			f.crashLog = []string{"(EngineCore pid=9) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"}
		}},
		{why: "the process ends", died: "status 1", server: func(f *fakeServer) {
			f.crashAt, f.crash = 12, &engine.ExitError{Program: "vllm", Place: "fake", Code: 1}
		}},
		{why: "the engine hangs", failure: "timeout: no answer within 30s", server: func(f *fakeServer) { f.hangAt = 12 }},
	} {
		t.Run(c.why, func(t *testing.T) {
			f := newFake()
			c.server(f)
			inBubble(t, f, fakeSetup(), func(t *testing.T, s engine.Session) {
				var results []engine.Result
				err := s.Run(t.Context(), []engine.Task{stepTask(1, 1, 1, 16, 3), stepTask(2, 2, 4, 64, 6)}, func(r engine.Result) error {
					results = append(results, r)
					return nil
				})
				if len(results) == 0 || results[0].Failure != "" {
					t.Fatalf("the first task: %+v, %v", results, err)
				}
				if c.died != "" {
					var died *engine.DiedError
					if !errors.As(err, &died) || died.Task != 2 || died.OutOfMemory != c.oom || !strings.Contains(err.Error(), c.died) {
						t.Errorf("error %v (%+v), want %s", err, died, c.died)
					}
					return
				}
				if err != nil || len(results) != 2 || results[1].Failure != c.failure {
					t.Errorf("error %v, results %+v, want %s", err, results[1:], c.failure)
				}
			})
		})
	}
}

func TestServerTasksThatCannotBe(t *testing.T) {
	inBubble(t, newFake(), fakeSetup(), func(t *testing.T, s engine.Session) {
		results := measured(t, s, []engine.Task{
			{ID: 1, Layers: &engine.LayersTask{Tokens: 1}},
			stepTask(2, 1, 0, 16, 2),
			stepTask(3, 1, 9, 16, 2),
			stepTask(4, 1, 1, 2048, 2),
		})
		for i, want := range []string{"exception: a vLLM server measures whole steps", "exception: batch 0 × 16", engine.FailureLimits, engine.FailureLimits} {
			if !strings.HasPrefix(results[i].Failure, want) {
				t.Errorf("task %d: %q, want %q", i+1, results[i].Failure, want)
			}
		}
		stop := errors.New("enough")
		if err := s.Run(t.Context(), []engine.Task{stepTask(5, 1, 1, 16, 2)}, func(engine.Result) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("emit's error: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx, []engine.Task{stepTask(6, 1, 1, 16, 2)}, func(engine.Result) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled run: %v", err)
		}
	})
}

func TestServerRefused(t *testing.T) {
	exit := &engine.ExitError{Program: "vllm", Place: "fake", Code: 1}
	for _, c := range []struct {
		why, want, hint string
		server          func(f *fakeServer)
		setup           func(s *engine.Setup)
		oom             bool
	}{
		{why: "blocks that the attention does not have", want: "blocks of 16 tokens are not supported (CPU_ATTN: [MultipleOf(32)])", hint: "32, 64 or 128", server: func(f *fakeServer) {
			f.startExit = exit
			f.startLog = []string{"(Worker pid=26577) ERROR 11-21 00:55:49 [multiproc_executor.py:1063] ValueError: No common block size for 16 (CPU_ATTN: [MultipleOf(32)]).", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"}
		}},
		{why: "too long for the cache", want: "992", server: func(f *fakeServer) {
			f.startExit = exit
			f.startLog = []string{"ValueError: To serve at least one request with the model's max seq len (1024), (0.0 GiB KV cache is needed, which is larger than the available KV cache memory (0.0 GiB). Based on the available memory, the estimated maximum model length is 992. Try increasing `gpu_memory_utilization`."}
		}},
		{why: "too long for the model", want: "sequences of 9000 tokens are longer than the model's 8192", hint: "shorter", server: func(f *fakeServer) {
			f.startExit = exit
			f.startLog = []string{"pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", "  Value error, User-specified max_model_len (9000) is greater than the derived max_model_len (max_position_embeddings=8192.0 or model_max_length=None in model's config.json)."}
		}},
		{why: "does not fit", want: "27.28", oom: true, server: func(f *fakeServer) {
			f.startExit = exit
			f.startLog = []string{"ValueError: Free memory on device cuda:0 (27.28/31.86 GiB) on startup is less than desired GPU memory utilization (0.9, 28.67 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."}
		}},
		{why: "killed while loading, without a word", want: "perhaps for want of memory", hint: "dmesg", server: func(f *fakeServer) {
			f.startExit = &engine.ExitError{Program: "vllm", Place: "fake", Code: 137}
		}},
		{why: "an old release", want: "does not know --enable-logging-iteration-details", hint: "0.14", server: func(f *fakeServer) {
			f.startExit = &engine.ExitError{Program: "vllm", Place: "fake", Code: 2}
			f.startLog = []string{"vllm: error: unrecognized arguments: --enable-logging-iteration-details"}
		}},
		{why: "an installation without metadata", want: "vllm is not installed", hint: "pip install vllm", server: func(f *fakeServer) {
			f.startExit = exit
			f.startLog = []string{"importlib.metadata.PackageNotFoundError: No package metadata was found for vllm"}
		}},
		{why: "an unknown architecture", want: "models of kind 'FooForCausalLM'", hint: "newer release", server: func(f *fakeServer) {
			f.startExit = exit
			f.startLog = []string{"ValueError: Model architectures ['FooForCausalLM'] are not supported for now."}
		}},
		{why: "the first error is the cause", want: "OSError: cannot read the model", server: func(f *fakeServer) {
			f.startExit = exit
			f.startLog = []string{"(EngineCore pid=9) ERROR 11-21 00:55:49 [core.py:1] OSError: cannot read the model", "RuntimeError: Engine core initialization failed. See root cause above."}
		}},
		{why: "no words at all", want: "ended with status 1", server: func(f *fakeServer) { f.startExit = exit }},
		{why: "the shell finds no program", want: "not installed", hint: "pip install vllm", server: func(f *fakeServer) {
			f.startExit = &engine.ExitError{Program: "vllm", Place: "fake", Code: 127}
		}},
		{why: "no program", want: "vllm on fake: not installed", hint: "pip install vllm", server: func(f *fakeServer) {
			f.missing = &engine.UnusableError{Problem: engine.ProgramMissing, What: "vllm on fake"}
		}},
		{why: "not ready in time", want: "not ready after 1m0s; its last lines: loading shard 3", hint: "longer", server: func(f *fakeServer) {
			f.loading = time.Millisecond
			f.startLog = []string{"loading shard 3"}
			f.logs, f.unhealthy = nil, 0
			f.hangAt = 0
		}, setup: func(s *engine.Setup) { s.Model = "hang" }},
		{why: "no lines of iterations", want: "the server's log tells no iterations", hint: "--enable-logging-iteration-details", server: func(f *fakeServer) { f.silent = true }},
		{why: "several engines", want: "several engines", hint: "one replica", server: func(f *fakeServer) {
			f.logs = func(n int, line string) []string {
				return []string{strings.Replace(line, "Engine 000", fmt.Sprintf("Engine 00%d", n%2), 1)}
			}
		}},
		{why: "replicas", want: "2 data-parallel engines", hint: "one replica", server: func(*fakeServer) {}, setup: func(s *engine.Setup) { s.Deploy.DataParallel = 2 }},
		{why: "another clock", want: `clock "device"`, server: func(*fakeServer) {}, setup: func(s *engine.Setup) { s.Clock = profile.ClockDevice }},
		{why: "no model", want: "no model is named", hint: "config.json", server: func(*fakeServer) {}, setup: func(s *engine.Setup) { s.Model = "" }},
	} {
		t.Run(c.why, func(t *testing.T) {
			f, setup := newFake(), fakeSetup()
			c.server(f)
			if c.setup != nil {
				c.setup(&setup)
			}
			if setup.Model == "hang" {
				f.neverReady = true
			}
			synctest.Test(t, func(t *testing.T) {
				s, err := (&vllm.Server{}).Start(t.Context(), f, setup)
				if err == nil {
					s.Close()
					t.Fatal("it started")
				}
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %q, want %q", err, c.want)
				}
				if !strings.Contains(hintOf(err), c.hint) {
					t.Errorf("hint %q, want %q", hintOf(err), c.hint)
				}
				var start *vllm.StartError
				if c.oom && (!errors.As(err, &start) || !start.OutOfMemory) {
					t.Errorf("%v is not told as want of memory", err)
				}
			})
		})
	}
}

func TestServerPortTaken(t *testing.T) {
	f := newFake()
	f.portTaken = 1 // the first process finds its port taken
	f.startExit, f.startLog = nil, nil
	inBubble(t, f, fakeSetup(), func(*testing.T, engine.Session) {})
	if f.starts != 2 {
		t.Errorf("%d starts, want 2", f.starts)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.listener = newPipeListener()
		go func() {
			c, _ := f.listener.Accept()
			c.Close()
		}()
		_, err := (&vllm.Server{Port: 8000}).Start(t.Context(), f, fakeSetup())
		if err == nil || !strings.Contains(err.Error(), "port 8000 on fake is taken") {
			t.Errorf("error %v", err)
		}
	})
}

// TestServerTokenIDs: an id that the model does not have ends the engine.
func TestServerTokenIDs(t *testing.T) {
	for _, c := range []struct {
		why, model, config string
		maxID              int
	}{
		{why: "an unknown model", model: "nobody/nothing", maxID: 256},
		{why: "a folder", model: "/m/tiny", maxID: 500, config: `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":256,"num_hidden_layers":4,"num_attention_heads":8,"num_key_value_heads":4,"intermediate_size":768,"vocab_size":500,"max_position_embeddings":8192}`},
		{why: "a model of the catalog", model: "Qwen/Qwen3-4B", maxID: 30000},
	} {
		t.Run(c.why, func(t *testing.T) {
			f, setup := newFake(), fakeSetup()
			f.config, setup.Model = c.config, c.model
			largest := 0
			f.refuse = func(prompts [][]int) (int, string) {
				for _, p := range prompts {
					largest = max(largest, slices.Max(p))
				}
				return 0, ""
			}
			inBubble(t, f, setup, func(t *testing.T, s engine.Session) {
				if r := measured(t, s, []engine.Task{stepTask(1, 1, 8, 256, 3)})[0]; r.Failure != "" {
					t.Error(r.Failure)
				}
			})
			if largest >= c.maxID || largest < c.maxID*9/10 {
				t.Errorf("largest id %d of %d", largest, c.maxID)
			}
		})
	}
}
