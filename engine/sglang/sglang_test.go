package sglang_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/sglang"
	"github.com/llmprof/llmprof/profile"
)

// behaviour names the variable that turns the test binary into a Python with
// SGLang and says how it behaves.
const behaviour = "LLMPROF_TEST_SGLANG"

func TestMain(m *testing.M) {
	if how := os.Getenv(behaviour); how != "" {
		os.Exit(python(how, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// list are the values of a flag that takes several.
func list(args []string, flag string) []string {
	var out []string
	for _, a := range args[slices.Index(args, flag)+1:] {
		if strings.HasPrefix(a, "--") {
			break
		}
		out = append(out, a)
	}
	return out
}

// python imitates "python -c" and "python -m sglang.bench_one_batch", which
// prints the documented lines and writes the documented file.
func python(how string, args []string) int {
	if args[0] == "-c" {
		if how == "missing" {
			fmt.Println(`{"python": "3.12.1", "torch": "2.9"}`)
			return 0
		}
		fmt.Println("a library chatters")
		fmt.Println(`{"python": "3.12.1", "sglang": "0.5.4", "torch": "2.9", "cuda": "12.8", "devices": ["NVIDIA H200"]}`)
		return 0
	}
	if file := os.Getenv("FAKE_ARGS"); file != "" {
		if os.WriteFile(file, []byte(strings.Join(args, " ")), 0o600) != nil {
			return 9
		}
	}
	if how == "early" {
		fmt.Fprintln(os.Stderr, "torch.OutOfMemoryError: CUDA out of memory while the model is loaded")
		return 1
	}
	rate := func(tokens int, latency float64) float64 {
		if strings.HasPrefix(how, "rates") {
			return 1 // no rate that fits the time
		}
		return float64(tokens) / latency
	}
	fmt.Println("max_total_num_tokens=5000")
	fmt.Println("Warmup ...\nPrefill. latency: 9.00000 s, throughput: 1 token/s\nTotal. latency:  9.000 s, throughput: 1 token/s\nBenchmark ...")
	var results []string
	n := 0
	for _, bt := range list(args, "--batch-size") {
		for _, it := range list(args, "--input-len") {
			b, _ := strconv.Atoi(bt)
			i, _ := strconv.Atoi(it)
			o, _ := strconv.Atoi(list(args, "--output-len")[0])
			n++
			switch {
			case how == "oom" && b*i >= 1024:
				fmt.Fprintln(os.Stderr, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
				return 1
			case how == "crash" && n == 6:
				fmt.Fprintln(os.Stderr, "Segmentation fault")
				return 139
			case strings.HasSuffix(how, "hang") && n == 6:
				time.Sleep(time.Hour)
			case how == "killed" && n == 6:
				self, err := os.FindProcess(os.Getpid())
				if err != nil || self.Kill() != nil {
					return 9
				}
				time.Sleep(time.Hour)
			case how == "order" && n == 5:
				fmt.Println("skipping (1, 7, 4) due to max batch size limit")
				continue
			case how == "garbage":
				fmt.Println("\x00\xff Prefill. latency: x s\nDecode.\n}{")
				continue
			}
			if b > 5000/(i+o) {
				fmt.Printf("skipping (%d, %d, %d) due to max batch size limit\n", b, i, o)
				continue
			}
			prefill := float64(b*i)*1e-5 + 0.0000012
			fmt.Printf("Prefill. latency: %7.5f s, throughput: %9.2f token/s\n", prefill, rate(b*i, prefill))
			total, decode := prefill, 0.0
			if o > 1 {
				decode = 0.004 + float64(b)*1e-4
				total += decode * float64(o-1)
				fmt.Printf("Decode 0. Batch size: %d, latency: %6.5f s, throughput: %9.2f token/s\n", b, decode, rate(b, decode))
				fmt.Printf("Decode.  median latency: %6.5f s, median throughput: %9.2f token/s\n", decode, rate(b, decode))
			}
			fmt.Printf("Total. latency: %6.3f s, throughput: %9.2f token/s\n", total, rate(b*(i+o), total))
			row := fmt.Sprintf(`{"run_name": "llmprof", "batch_size": %d, "input_len": %d, "output_len": %d, "prefill_latency": %g, "prefill_throughput": 1.0, "total_latency": %g, "overall_throughput": 1.0`, b, i, o, prefill, total)
			if o > 1 {
				row += fmt.Sprintf(`, "median_decode_latency": %g, "median_decode_throughput": 1.0`, decode)
			}
			results = append(results, row+"}")
		}
	}
	if how == "rates nofile" {
		return 0
	}
	if err := os.WriteFile(list(args, "--result-filename")[0], []byte(strings.Join(results, "\n")+"\n"), 0o600); err != nil {
		return 1
	}
	return 0
}

func tasks(output int, shapes ...[2]int) []engine.Task {
	var out []engine.Task
	for i, s := range shapes {
		out = append(out, engine.Task{ID: i + 1, Step: &engine.StepTask{BatchSize: s[0], InputLen: s[1], OutputLen: output}, Warmup: 1, Runs: 2})
	}
	return out
}

// run starts a session on the imitation and measures the tasks.
func run(t *testing.T, how string, todo []engine.Task) (results []engine.Result, facts engine.Facts, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	setup := engine.Setup{Model: "m", Program: self, Env: []string{behaviour + "=" + how}}
	if strings.HasSuffix(how, "hang") {
		setup.TaskTimeout = 5 * time.Second
	}
	session, err := sglang.New().Start(t.Context(), place.Local(), setup)
	if err != nil {
		return nil, engine.Facts{}, err
	}
	defer func() {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	}()
	err = session.Run(t.Context(), todo, func(r engine.Result) error {
		results = append(results, r)
		return nil
	})
	return results, session.Facts(), err
}

func said(results []engine.Result) []string {
	var out []string
	for _, r := range results {
		text := fmt.Sprintf("%dx%d", r.Task.Step.BatchSize, r.Task.Step.InputLen)
		if r.Failure != "" {
			text += " " + r.Failure
		}
		for _, p := range r.Points {
			text += fmt.Sprintf(" %s %.7f×%d", p.Step.Mode, p.Samples[0], len(p.Samples))
			if len(p.Warnings) > 0 {
				text += " rounded"
			}
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func TestRun(t *testing.T) {
	results, facts, err := run(t, "works", tasks(4, [2]int{1, 64}, [2]int{8, 64}, [2]int{1, 512}, [2]int{8, 512}, [2]int{64, 512}, [2]int{2, 256}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1x512 prefill 0.0051212×2 decode 0.0041000×2",
		"1x64 prefill 0.0006412×2 decode 0.0041000×2",
		"2x256 prefill 0.0051212×2 decode 0.0042000×2",
		"64x512 skipped_due_to_limits",
		"8x512 prefill 0.0409612×2 decode 0.0048000×2",
		"8x64 prefill 0.0051212×2 decode 0.0048000×2",
	}
	if got := said(results); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if facts.Version != "0.5.4" || facts.Device.Reported != "NVIDIA H200" || facts.Libraries["cuda"] != "12.8" {
		t.Errorf("facts %+v", facts)
	}
	for _, r := range results {
		for _, p := range r.Points {
			if err := p.Validate(); err != nil {
				t.Error(err)
			}
			if p.Step.Mode == profile.Decode && p.Step.Pass.MeanDecodeContext() != float64(p.Step.InputLen+2) {
				t.Errorf("%d tokens: decode at a mean context of %g", p.Step.InputLen, p.Step.Pass.MeanDecodeContext())
			}
			if p.Step.Mode == profile.Prefill && !strings.HasPrefix(string(p.Extra["runs_data"]), `[{"total_latency":0.0`) {
				t.Errorf("%d tokens: whole runs %s", p.Step.InputLen, p.Extra["runs_data"])
			}
		}
	}
}

func TestFailures(t *testing.T) {
	shapes := [][2]int{{1, 64}, {4, 64}, {1, 512}, {4, 512}}
	for _, c := range []struct {
		how  string
		want []string
		dead int // task
		oom  bool
	}{
		{"oom", []string{"1x512 prefill 0.0051212×2 decode 0.0041000×2", "1x64 prefill 0.0006412×2 decode 0.0041000×2", "4x64 prefill 0.0025612×2 decode 0.0044000×2"}, 4, true},
		{"crash", []string{"1x64 prefill 0.0006412×2 decode 0.0041000×2"}, 3, false},
		{"killed", []string{"1x64 prefill 0.0006412×2 decode 0.0041000×2"}, 3, true},
		{"hang", []string{"1x64 prefill 0.0006412×2 decode 0.0041000×2"}, 3, false},
		{"rates hang", []string{"1x64 prefill 0.0006400×2 rounded decode 0.0041000×2 rounded"}, 3, false},
		{"order", []string{"1x64 prefill 0.0006412×2 decode 0.0041000×2"}, 3, false},
		{"garbage", nil, 1, false},
		{"early", nil, 0, true},
	} {
		t.Run(c.how, func(t *testing.T) {
			results, _, err := run(t, c.how, tasks(4, shapes...))
			died, ok := errors.AsType[*engine.DiedError](err)
			if !ok || died.Task != c.dead || died.OutOfMemory != c.oom {
				t.Fatalf("error %#v, %v", died, err)
			}
			for i, text := range said(results) {
				if i >= len(c.want) || text != c.want[i] {
					t.Errorf("got %q, want %q", said(results), c.want)
				}
			}
			if len(results) != len(c.want) {
				t.Errorf("%d results, want %d", len(results), len(c.want))
			}
		})
	}
}

func TestMissing(t *testing.T) {
	_, _, err := run(t, "missing", nil)
	unusable, ok := errors.AsType[*engine.UnusableError](err)
	if !ok || unusable.Problem != engine.EngineMissing || !strings.Contains(unusable.Remedy, `-m pip install "sglang[all]", or name another Python: --program PATH or $LLMPROF_PYTHON`) {
		t.Errorf("error %v", err)
	}
	_, err = sglang.New().Start(t.Context(), place.Local(), engine.Setup{Program: "/nowhere/python"})
	if engine.Unusable(err) != engine.ProgramMissing {
		t.Errorf("error %v", err)
	}
}

// open starts a session on the imitation.
func open(t *testing.T, setup engine.Setup, how string, env ...string) (engine.Session, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	setup.Model, setup.Program, setup.Env = "m", self, append(setup.Env, append(env, behaviour+"="+how)...)
	return sglang.New().Start(t.Context(), place.Local(), setup)
}

var square = [][2]int{{1, 64}, {4, 64}, {1, 512}, {4, 512}}

func TestInterrupted(t *testing.T) {
	full := errors.New("the time budget is spent")
	for _, c := range []struct {
		why, how string
		// stop is called after each result that is kept.
		stop func(kept int, cancel func()) error
		want error
		kept int
	}{
		{"cancelled while it hangs", "hang", func(_ int, cancel func()) error { time.AfterFunc(200*time.Millisecond, cancel); return nil }, context.Canceled, 1},
		{"cancelled after two results", "works", func(kept int, cancel func()) error {
			if kept == 2 {
				cancel()
			}
			return nil
		}, context.Canceled, -2},
		{"refused at once", "hang", func(int, func()) error { return full }, full, 1},
		{"refused after the second", "works", func(kept int, _ func()) error {
			if kept == 2 {
				return full
			}
			return nil
		}, full, 2},
		{"refused when the file is read", "rates", func(int, func()) error { return full }, full, 1},
	} {
		t.Run(c.why, func(t *testing.T) {
			session, err := open(t, engine.Setup{}, c.how)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			kept, begin := 0, time.Now()
			err = session.Run(ctx, tasks(4, square...), func(engine.Result) error {
				kept++
				return c.stop(kept, cancel)
			})
			if !errors.Is(err, c.want) || kept != c.kept && !(c.kept < 0 && kept >= -c.kept) {
				t.Errorf("error %v, %d results kept", err, kept)
			}
			if took := time.Since(begin); took > 5*time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestWaiting offers what is measured and waits for the result file when the
// run is stopped, as long as emit takes it.
func TestWaiting(t *testing.T) {
	session, err := open(t, engine.Setup{}, "rates hang")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var kept []engine.Result
	err = session.Run(ctx, tasks(4, square...), func(r engine.Result) error { kept = append(kept, r); return nil })
	if want := []string{"1x64 prefill 0.0006400×2 rounded decode 0.0041000×2 rounded"}; !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(said(kept), want) {
		t.Errorf("error %v, kept %q", err, said(kept))
	}
}

// TestRounded has no rates beside the times: what they do not tell to 0.2 %
// waits for the result file, or has a warning where there is none.
func TestRounded(t *testing.T) {
	for _, c := range []struct {
		how  string
		want []string // in the order of coming
	}{
		{"rates", []string{"4x512 prefill 0.0204800×2 decode 0.0044000×2", "1x64 prefill 0.0006412×2 decode 0.0041000×2"}},
		{"rates nofile", []string{"4x512 prefill 0.0204800×2 decode 0.0044000×2", "1x64 prefill 0.0006400×2 rounded decode 0.0041000×2 rounded"}},
	} {
		t.Run(c.how, func(t *testing.T) {
			results, _, err := run(t, c.how, append(tasks(4, [2]int{1, 64}, [2]int{4, 64}), tasks(4, [2]int{1, 512}, [2]int{4, 512})...))
			if err != nil {
				t.Fatal(err)
			}
			at := map[string]int{}
			for i, r := range results {
				at[said([]engine.Result{r})[0]] = i + 1
			}
			if early, late := at[c.want[0]], at[c.want[1]]; len(results) != 4 || early == 0 || late < early {
				t.Errorf("got %v, want %q", at, c.want)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "args")
	asked := deploy.Config{
		Model: "Tiny", Device: "H200", TensorParallel: 2, PipelineParallel: 1, DataParallel: 1, DType: catalog.BF16,
		Quantization: "fp8", MemFractionStatic: 0.8, BlockSize: 16, MaxModelLen: 4096,
	}
	session, err := open(t, engine.Setup{Deploy: asked, Device: "cuda", NumLayers: 2, Args: []string{"--attention-backend", "triton"}}, "works", "FAKE_ARGS="+file)
	if err != nil {
		t.Fatal(err)
	}
	applied := deploy.Config{
		Model: "Tiny", Engine: "sglang", EngineVersion: "0.5.4", TensorParallel: 2, PipelineParallel: 1, DType: catalog.BF16,
		Quantization: "fp8", MemFractionStatic: 0.8, BlockSize: 16, MaxModelLen: 4096,
	}
	if d := cmp.Diff(applied, session.Facts().Deploy); d != "" {
		t.Error(d)
	}
	if f := session.Facts(); f.Device.Count != 2 || f.Layers != 2 {
		t.Errorf("facts %+v", f)
	}
	if err := session.Run(t.Context(), tasks(4, square...), func(engine.Result) error { return nil }); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := `-m sglang.bench_one_batch --model-path m --load-format dummy --tp-size 2 --context-length 4096 --page-size 16 --mem-fraction-static 0.8 ` +
		`--dtype bfloat16 --quantization fp8 --device cuda --run-name llmprof --result-filename FILE --batch-size 1 4 --input-len 64 64 64 512 512 512 ` +
		`--output-len 4 --attention-backend triton --json-model-override-args {"num_hidden_layers": 2}`
	got := strings.Fields(string(text))
	if at := slices.Index(got, "--result-filename"); at >= 0 {
		got[at+1] = "FILE"
	}
	if d := cmp.Diff(want, strings.Join(got, " ")); d != "" {
		t.Error(d)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		setup      engine.Setup
		want, hint string
	}{
		{engine.Setup{Deploy: deploy.Config{PipelineParallel: 2}}, "--pipeline-parallel-size 2", "--tensor-parallel-size"},
		{engine.Setup{Deploy: deploy.Config{PipelineLayers: []int{3, 4}}}, "layers of pipeline stages", ""},
		{engine.Setup{Deploy: deploy.Config{DataParallel: 2}}, "data parallel size 2", ""},
		{engine.Setup{Deploy: deploy.Config{ExpertParallel: 4}}, "expert parallel size 4", "--engine-arg --ep-size --engine-arg 4"},
		{engine.Setup{Deploy: deploy.Config{DType: catalog.FP8}}, "--dtype fp8", "--engine-arg --quantization --engine-arg fp8"},
		{engine.Setup{Deploy: deploy.Config{Quantization: "none"}}, "quantization none", "leave it out"},
		{engine.Setup{Deploy: deploy.Config{QuantizeEmbeddings: true}}, "quantised embeddings", ""},
		{engine.Setup{Deploy: deploy.Config{KVCacheDType: catalog.FP8}}, "KV cache of fp8", "--engine-arg --kv-cache-dtype --engine-arg"},
		{engine.Setup{Deploy: deploy.Config{GPUMemoryUtilization: 0.9}}, "--gpu-memory-utilization 0.9", "--engine-arg --mem-fraction-static --engine-arg 0.8"},
		{engine.Setup{Deploy: deploy.Config{MaxNumBatchedTokens: 2048}}, "--max-num-batched-tokens 2048", ""},
		{engine.Setup{Threads: 4}, "--threads 4", "--engine-env OMP_NUM_THREADS=4"},
		{engine.Setup{Clock: profile.ClockCPU}, "--clock cpu", ""},
		{engine.Setup{Deploy: deploy.Config{TensorParallel: 1}, Args: []string{"--tp", "2"}}, "--engine-arg --tp: --tp-size", "use --tensor-parallel-size"},
		{engine.Setup{Args: []string{"--batch-size=7"}}, "--engine-arg --batch-size=7", "leave it out"},
	} {
		_, err := open(t, c.setup, "works")
		if err == nil || !strings.Contains(err.Error(), "start sglang on local: "+c.want) {
			t.Errorf("error %v, want %q", err, c.want)
			continue
		}
		var hinted interface{ Hint() string }
		if !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), c.hint) {
			t.Errorf("%v: hint %q, want %q in it", err, hinted, c.hint)
		}
	}
	if _, err := open(t, engine.Setup{Deploy: deploy.Config{TensorParallel: 1, PipelineParallel: 1, DataParallel: 1, ExpertParallel: 1}, Clock: profile.ClockWall}, "works"); err != nil {
		t.Errorf("defaults are refused: %v", err)
	}
}

// TestName holds the driver's name to the value of --engine.
func TestName(t *testing.T) {
	if got := sglang.New().Name(); got != "sglang" {
		t.Error(got)
	}
}

// TestGone loses the interpreter between start and run.
func TestGone(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "python")
	if err := os.Symlink(self, program); err != nil {
		t.Skip(err)
	}
	session, err := sglang.New().Start(t.Context(), place.Local(), engine.Setup{Model: "m", Program: program, Env: []string{behaviour + "=works"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	err = session.Run(t.Context(), tasks(4, square...), func(r engine.Result) error { t.Errorf("result %+v", r); return nil })
	died, ok := errors.AsType[*engine.DiedError](err)
	if !ok || died.Task != 0 || engine.Unusable(err) != engine.ProgramMissing {
		t.Errorf("error %#v", err)
	}
}

func ExampleNew() {
	fmt.Println(sglang.New().Name(), sglang.New().Abilities().Steps)
	// Output: sglang true
}
