package sglang_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
			case how == "hang" && n == 6:
				time.Sleep(time.Minute)
			case how == "garbage":
				fmt.Println("\x00\xff Prefill. latency: x s\nDecode.\n}{")
				continue
			}
			if b > 5000/(i+o) {
				fmt.Printf("skipping (%d, %d, %d) due to max batch size limit\n", b, i, o)
				continue
			}
			prefill := float64(b*i)*1e-5 + 0.0000012
			fmt.Printf("Prefill. latency: %7.5f s, throughput: %9.2f token/s\n", prefill, float64(b*i)/prefill)
			total, decode := prefill, 0.0
			if o > 1 {
				decode = 0.004 + float64(b)*1e-4
				total += decode * float64(o-1)
				fmt.Printf("Decode 0. Batch size: %d, latency: %6.5f s, throughput: %9.2f token/s\n", b, decode, float64(b)/decode)
				fmt.Printf("Decode.  median latency: %6.5f s, median throughput: %9.2f token/s\n", decode, float64(b)/decode)
			}
			fmt.Printf("Total. latency: %6.3f s, throughput: %9.2f token/s\n", total, 1.0)
			row := fmt.Sprintf(`{"run_name": "llmprof", "batch_size": %d, "input_len": %d, "output_len": %d, "prefill_latency": %g, "prefill_throughput": 1.0, "total_latency": %g, "overall_throughput": 1.0`, b, i, o, prefill, total)
			if o > 1 {
				row += fmt.Sprintf(`, "median_decode_latency": %g, "median_decode_throughput": 1.0`, decode)
			}
			results = append(results, row+"}")
		}
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
	session, err := sglang.New().Start(t.Context(), place.Local(), engine.Setup{
		Model: "m", Program: self, Env: []string{behaviour + "=" + how}, TaskTimeout: 200 * time.Millisecond, StartTimeout: 20 * time.Second,
	})
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
		{"oom", []string{"1x512 prefill 0.0051200×2 rounded decode 0.0041000×2 rounded", "1x64 prefill 0.0006400×2 rounded decode 0.0041000×2 rounded"}, 4, true},
		{"crash", []string{"1x64 prefill 0.0006400×2 rounded decode 0.0041000×2 rounded"}, 3, false},
		{"hang", []string{"1x64 prefill 0.0006400×2 rounded decode 0.0041000×2 rounded"}, 3, false},
		{"garbage", nil, 1, false},
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

func TestInterrupted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	session, err := sglang.New().Start(t.Context(), place.Local(), engine.Setup{Model: "m", Program: self, Env: []string{behaviour + "=hang"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	kept := 0
	err = session.Run(ctx, tasks(4, [2]int{1, 64}, [2]int{4, 64}, [2]int{1, 512}), func(engine.Result) error { kept++; return nil })
	if !errors.Is(err, context.Canceled) || kept != 1 {
		t.Errorf("error %v, %d results kept", err, kept)
	}
}

func ExampleNew() {
	fmt.Println(sglang.New().Name(), sglang.New().Abilities().Steps)
	// Output: sglang true
}
