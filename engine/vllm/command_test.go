package vllm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/profile"
)

// fakeCommand is a place on which "vllm bench latency" takes 10 ms for the
// prompts and 2 ms for each further token.
type fakeCommand struct {
	engine.Place // the methods that no test calls
	file         string
	started      [][]string
	stdout       string // instead of the progress bars
	exit         error
	hang         bool
}

func (*fakeCommand) String() string { return "fake" }

func (*fakeCommand) TempDir(context.Context) (string, func() error, error) {
	return "/tmp/x", func() error { return nil }, nil
}

func (f *fakeCommand) CopyOut(_ context.Context, path string) (io.ReadCloser, error) {
	if path != "/tmp/x/latency.json" || f.file == "" {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(f.file)), nil
}

func (f *fakeCommand) Start(ctx context.Context, cmd engine.Command) (engine.Process, error) {
	f.started = append(f.started, cmd.Argv)
	if cmd.Argv[1] == "--version" {
		return &fakeRun{out: strings.NewReader("0.32.0\n")}, nil
	}
	value := func(flag string) int {
		for i, a := range cmd.Argv {
			if a == flag {
				n, _ := strconv.Atoi(cmd.Argv[i+1])
				return n
			}
		}
		return 0
	}
	var times []string
	for i := range value("--num-iters") {
		times = append(times, fmt.Sprintf("%.6f", 0.010+0.002*float64(value("--output-len")-1)+0.0001*float64(i)))
	}
	f.file = fmt.Sprintf(`{"avg_latency": null, "latencies": [%s], "percentiles": {}}`, strings.Join(times, ","))
	run := &fakeRun{out: strings.NewReader("Warming up...\n" + f.stdout), err: f.exit}
	if f.hang {
		run.ctx = ctx
	}
	return run, nil
}

// fakeRun is a process that has ended, or ends with its context.
type fakeRun struct {
	out io.Reader
	err error
	ctx context.Context // the process ends with it
}

func (*fakeRun) Stdin() io.WriteCloser    { return nopCloser{io.Discard} }
func (r *fakeRun) Stdout() io.Reader      { return r.out }
func (*fakeRun) Stop(time.Duration) error { return nil }

func (r *fakeRun) Wait() error {
	if r.ctx != nil {
		<-r.ctx.Done()
		return r.ctx.Err()
	}
	return r.err
}

func TestBenchLatency(t *testing.T) {
	f := &fakeCommand{}
	setup := fakeSetup()
	s, err := vllm.BenchLatency{}.Start(t.Context(), f, setup)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Facts().Version != "0.32.0" {
		t.Errorf("version %q", s.Facts().Version)
	}
	results := measured(t, s, []engine.Task{stepTask(1, 5, 4, 128, 11), stepTask(2, 5, 4, 128, 1), stepTask(3, 5, 4, 2048, 8), {ID: 4, Layers: &engine.LayersTask{}}})
	both := results[0].Points
	if len(both) != 2 || !near(both[0].Samples[0], 0.010) || !near(both[1].Samples[2], 0.002) || both[1].Step.Pass.Decode.SumContext != 4*128+4*11/2 || len(both[0].Warnings) == 0 {
		t.Errorf("points %+v", both)
	}
	if text := string(both[0].Extra["runs_data"]); strings.Count(text, `"total_latency":0.03`) != 5 {
		t.Errorf("whole runs %s", text)
	}
	if p := results[1].Points; len(p) != 1 || p[0].Step.Mode != profile.Prefill || p[0].Step.OutputLen != 1 {
		t.Errorf("a prefill alone: %+v", p)
	}
	if results[2].Failure != engine.FailureLimits || !strings.HasPrefix(results[3].Failure, engine.FailureException) {
		t.Errorf("failures %q, %q", results[2].Failure, results[3].Failure)
	}
	line := strings.Join(f.started[1], " ")
	for _, want := range []string{"vllm bench latency --model /m/tiny --input-len 128 --output-len 1 --batch-size 4 --num-iters-warmup 1 --num-iters 5 --output-json /tmp/x/latency.json", "--load-format dummy", "--enforce-eager"} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %s", want, line)
		}
	}
}

func TestBenchLatencyFailures(t *testing.T) {
	for _, c := range []struct {
		why, want string
		place     fakeCommand
	}{
		{"few tokens", "exception: vllm bench latency draws token ids up to 10000, and the model has fewer", fakeCommand{stdout: "ValueError: Token id 5000 is out of vocabulary\n", exit: &engine.ExitError{Code: 1}}},
		{"memory", engine.FailureOOM, fakeCommand{stdout: "torch.OutOfMemoryError: CUDA out of memory.\n", exit: &engine.ExitError{Code: 1}}},
		{"a kill", "runtime_error: vllm: it was killed, perhaps for want of memory", fakeCommand{exit: &engine.ExitError{Code: 137}}},
		{"an error", "runtime_error: vllm: ValueError: no such thing", fakeCommand{stdout: "ValueError: no such thing\n", exit: &engine.ExitError{Code: 1}}},
		{"no end", "timeout: vllm bench latency did not end", fakeCommand{hang: true}},
	} {
		t.Run(c.why, func(t *testing.T) {
			setup := fakeSetup()
			if c.place.hang {
				setup.StartTimeout, setup.TaskTimeout = 50*time.Millisecond, 10*time.Millisecond
			}
			s, err := vllm.BenchLatency{}.Start(t.Context(), &c.place, setup)
			if err != nil {
				t.Fatal(err)
			}
			if r := measured(t, s, []engine.Task{stepTask(1, 1, 1, 16, 4)})[0]; r.Failure != c.want {
				t.Errorf("failure %q, want %q", r.Failure, c.want)
			}
		})
	}
}

func TestProgramsMissing(t *testing.T) {
	setup := fakeSetup()
	setup.Program = "/no/such/program"
	for _, d := range []engine.Driver{&vllm.Server{}, vllm.BenchLatency{}, vllm.Probe{}} {
		_, err := d.Start(t.Context(), place.Local(), setup)
		if engine.Unusable(err) != engine.ProgramMissing || !strings.Contains(hintOf(err), "pip install vllm") {
			t.Errorf("%s: %v, hint %q", d.Name(), err, hintOf(err))
		}
	}
}

// TestProbeWithoutVLLM starts the probe in an interpreter that has no vLLM.
func TestProbeWithoutVLLM(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED, NOT TESTED: no python3")
	}
	if exec.CommandContext(t.Context(), python, "-c", "import vllm").Run() == nil {
		t.Skip("SKIPPED, NOT TESTED: this python3 has vLLM")
	}
	setup := fakeSetup()
	setup.Program = python
	_, err = vllm.Probe{}.Start(t.Context(), place.Local(), setup)
	if engine.Unusable(err) != engine.EngineMissing || !strings.Contains(hintOf(err), "-m pip install vllm, or name another Python: --program PATH or $LLMPROF_PYTHON") {
		t.Errorf("error %v, hint %q", err, hintOf(err))
	}
	setup.Clock = profile.ClockDevice
	if _, err = (vllm.Probe{}).Start(t.Context(), place.Local(), setup); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("the device's clock: %v", err)
	}
}

func Example() {
	// A server that was started with --enable-logging-iteration-details, its
	// log followed by another program.
	driver := &vllm.Server{URL: "http://127.0.0.1:8000"}
	_, err := driver.Start(context.Background(), place.Local(), engine.Setup{})
	fmt.Println(err)
	fmt.Println(driver.Abilities().Steps, driver.Abilities().Layers)
	// Output:
	// start vllm: no log of the server at http://127.0.0.1:8000 was given
	// true false
}
