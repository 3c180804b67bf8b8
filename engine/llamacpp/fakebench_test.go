package llamacpp_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fakeVariable makes this test program a llama-bench that behaves as its value
// says.
const fakeVariable = "LLMPROF_FAKE_LLAMA_BENCH"

func TestMain(m *testing.M) {
	if behaviour := os.Getenv(fakeVariable); behaviour != "" {
		os.Exit(fakeBench(behaviour, os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// fakeBench prints results in the documented format. A prompt of n tokens takes
// n ms, a decode step after n cached tokens 1 ms and n µs. It returns the exit
// status.
func fakeBench(behaviour string, args []string, stdout, stderr io.Writer) int {
	if args[0] == "--help" {
		fmt.Fprintln(stdout, "usage: llama-bench [options]\n  -p, --n-prompt <n>\n  -n, --n-gen <n>")
		if behaviour != "old" {
			fmt.Fprintln(stdout, "  -d, --n-depth <n>")
		}
		return 0
	}
	if calls := os.Getenv("FAKE_CALLS"); calls != "" {
		f, err := os.OpenFile(calls, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return 9
		}
		fmt.Fprintln(f, strings.Join(args, " "))
		f.Close()
	}
	flags := flag.NewFlagSet("llama-bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	model, output := flags.String("m", "", ""), flags.String("o", "", "")
	prompts, generated, depths := flags.String("p", "512", ""), flags.String("n", "128", ""), flags.String("d", "0", "")
	runs, threads := flags.Int("r", 5, ""), flags.Int("t", 2, "")
	layers := flags.Int("ngl", 99, "")
	batch, part := flags.Int("b", 2048, ""), flags.Int("ub", 512, "")
	keys, values := flags.String("ctk", "f16", ""), flags.String("ctv", "f16", "")
	if flags.Parse(args) != nil || *output != "jsonl" {
		return 1
	}
	if strings.Contains(*model, "missing") {
		fmt.Fprintf(stderr, "main: error: failed to load model '%s'\n", *model)
		return 1
	}
	fmt.Fprintln(stderr, "ggml: a remark")
	fmt.Fprintln(stdout, "warning: asserts enabled, performance may be affected")
	for _, depth := range numbers(*depths) {
		for _, test := range []struct{ prompts, generated []int }{{numbers(*prompts), []int{0}}, {[]int{0}, numbers(*generated)}} {
			for _, p := range test.prompts {
				for _, n := range test.generated {
					if p+n == 0 {
						continue
					}
					if status, stop := misbehave(behaviour, p, depth, stderr); stop {
						return status
					}
					fmt.Fprintln(stdout, fakeResult(*model, p, n, depth, *runs, *threads, *layers, *batch, *part, *keys, *values))
				}
			}
		}
	}
	return 0
}

// misbehave does at one test what the behaviour says.
func misbehave(behaviour string, prompt, depth int, stderr io.Writer) (status int, stop bool) {
	at := prompt + depth
	program := os.Getenv("FAKE_PROGRAM")
	broken := program + ".broken"
	if _, err := os.Stat(broken); program != "" && err == nil {
		fmt.Fprintln(stderr, "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected")
		return 1, true
	}
	switch {
	case behaviour == "vanish" && at == 64:
		if os.Remove(program) != nil {
			return 9, true
		}
		return 1, true
	case behaviour == "lost" && at == 64:
		if os.WriteFile(broken, nil, 0o600) != nil {
			return 9, true
		}
		fmt.Fprintln(stderr, "CUDA error: the launch failed")
		return 1, true
	case behaviour == "gone" && at == 64:
		return 127, true
	case behaviour == "oom" && at >= 4096:
		fmt.Fprintln(stderr, "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9 MiB on device 0: cudaMalloc failed: out of memory")
		fmt.Fprintln(stderr, "main: error: failed to create context with model")
		return 1, true
	case behaviour == "crash" && at == 64:
		fmt.Fprintln(stderr, "GGML_ASSERT(n > 0) failed")
		return 134, true
	case behaviour == "silent" && at == 64:
		return 0, true
	case behaviour == "hang" && at == 64:
		time.Sleep(time.Hour)
	}
	return 0, false
}

func numbers(list string) []int {
	var values []int
	for text := range strings.SplitSeq(list, ",") {
		n, _ := strconv.Atoi(text)
		values = append(values, n)
	}
	return values
}

func fakeResult(model string, prompt, generated, depth, runs, threads, layers, batch, part int, keys, values string) string {
	ns := 1_000_000 * prompt
	if generated > 0 {
		ns = generated * (1_000_000 + 1000*depth)
	}
	samples := strings.TrimSuffix(strings.Repeat(strconv.Itoa(ns)+", ", runs), ", ")
	return fmt.Sprintf(`{"build_commit": "abc1234", "build_number": 7300, "cpu_info": "Fake CPU", "gpu_info": "", "backends": "CPU", "model_filename": %q, "model_type": "llama ?B F16", "model_size": 6824960, "model_n_params": 3410176, "n_batch": %d, "n_ubatch": %d, "n_threads": %d, "type_k": %q, "type_v": %q, "n_gpu_layers": %d, "flash_attn": -1, "n_prompt": %d, "n_gen": %d, "n_depth": %d, "test_time": "2026-01-05T10:15:00Z", "avg_ns": %d, "stddev_ns": 0, "avg_ts": %g, "stddev_ts": 0, "samples_ns": [%s], "samples_ts": [1]}`,
		model, batch, part, threads, keys, values, layers, prompt, generated, depth, ns, float64(prompt+generated)/(float64(ns)/1e9), samples)
}
