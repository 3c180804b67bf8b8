package torch_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/engine/torch"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/internal/enginetest"
	"github.com/llmprof/llmprof/internal/tinymodel"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// compiledVariable names the folder of compiled Python modules.
const compiledVariable = "LLMPROF_TEST_PYCACHE"

func TestMain(m *testing.M) {
	status := 1
	if dir, err := os.MkdirTemp("", "llmprof-pycache-*"); err == nil {
		os.Setenv(compiledVariable, dir)
		status = m.Run()
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// log collects what the probe prints.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts torch on a model folder, with one thread on CPU time.
func start(t *testing.T, model string, change func(*engine.Setup)) (engine.Session, error) {
	t.Helper()
	said := &log{}
	setup := engine.Setup{
		Model: model, Deploy: deploy.Config{DType: catalog.FP32}, Device: "cpu", Clock: profile.ClockCPU,
		Threads: 1, Seed: 1, Program: enginetest.Python(t), Log: said,
		Env: pythonEnv(t), StartTimeout: 3 * time.Minute, TaskTimeout: time.Minute,
	}
	if change != nil {
		change(&setup)
	}
	session, err := torch.New().Start(t.Context(), place.Local(), setup)
	if err == nil {
		t.Cleanup(func() {
			if err := session.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if t.Failed() {
				t.Logf("the probe said:\n%s", said)
			}
		})
	}
	return session, err
}

// pythonEnv are variables for the real engine's interpreter. Compiled modules
// are kept outside of its folder, for as long as these tests run.
func pythonEnv(t *testing.T) []string {
	t.Helper()
	return []string{"HF_HUB_OFFLINE=1", "PYTHONDONTWRITEBYTECODE=", "PYTHONPYCACHEPREFIX=" + os.Getenv(compiledVariable)}
}

// run measures tasks and returns their results by id.
func run(t *testing.T, s engine.Session, tasks ...engine.Task) map[int]engine.Result {
	t.Helper()
	results := map[int]engine.Result{}
	if err := s.Run(t.Context(), tasks, func(r engine.Result) error {
		results[r.Task.ID] = r
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(results) != len(tasks) {
		t.Fatalf("%d results of %d tasks", len(results), len(tasks))
	}
	return results
}

func step(id, batch, input, output, runs int) engine.Task {
	return engine.Task{ID: id, Step: &engine.StepTask{BatchSize: batch, InputLen: input, OutputLen: output}, Warmup: 1, Runs: runs}
}

func layers(id, tokens, context, sequences, runs int) engine.Task {
	return engine.Task{ID: id, Layers: &engine.LayersTask{Tokens: tokens, Context: context, Sequences: sequences}, Warmup: 2, Runs: runs}
}

func tinyFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny")
	if err := tinymodel.WriteFolder(dir, tinymodel.Tiny()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRealTinyLlama(t *testing.T) {
	shape := tinymodel.Tiny()
	s, err := start(t, tinyFolder(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := s.Facts()
	if f.Layers != shape.Layers || f.Threads < 1 {
		t.Errorf("%d layers on %d threads", f.Layers, f.Threads)
	}
	if f.Engine != "torch" || f.Version == "" || f.Libraries["torch"] != f.Version || f.Libraries["transformers"] == "" || f.Libraries["python"] == "" {
		t.Errorf("facts name no versions: %+v", f)
	}
	if f.Clock != profile.ClockCPU || f.Timer == "" || !(f.Resolution > 0 && f.Resolution < 1e-3) || f.MaxModelLen != shape.MaxPositions {
		t.Errorf("facts: clock %s, timer %q, resolution %g s, max model length %d", f.Clock, f.Timer, f.Resolution, f.MaxModelLen)
	}
	if f.Device.Reported == "" || f.Device.Count != 1 || f.Deploy.DType != catalog.FP32 || f.Deploy.Engine != "torch" || len(f.Warnings) != 0 {
		t.Errorf("facts: device %+v, deployment %+v, warnings %q", f.Device, f.Deploy, f.Warnings)
	}
	if f.Deploy.TensorParallel != 1 || f.Deploy.PipelineParallel != 1 || f.Deploy.MaxModelLen != shape.MaxPositions || f.Deploy.BlockSize != 0 {
		t.Errorf("deployment %+v", f.Deploy)
	}
	weights := []profile.Point{{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryWeights, Bytes: 4 * shape.Params()}}}
	if diff := cmp.Diff(weights, f.Memory); diff != "" {
		t.Errorf("weights in bytes (-want +got):\n%s", diff)
	}

	results := run(t, s,
		step(1, 1, 64, 8, 4), step(2, 1, 512, 8, 4), step(3, 4, 64, 1, 4), step(4, 2, 64, 3, 2),
		step(5, 1, shape.MaxPositions, 1, 1),
		step(10, 1<<40, 4096, 1, 1), step(11, 1, 16, 2, 1),
		layers(6, 64, 0, 1, 6), layers(7, 1, 256, 1, 6), layers(8, 1, 1024, 1, 6), layers(9, 1, 64, 3, 4),
	)
	if got := results[5].Failure; got != engine.FailureLimits || len(results[5].Points) != 0 {
		t.Errorf("a sequence beyond the model's positions: failure %q", got)
	}
	if got := results[10].Failure; got != engine.FailureOOM {
		t.Errorf("more than any memory holds: failure %q", got)
	}
	for id, want := range map[int]int{1: 2, 2: 2, 3: 1, 4: 2, 11: 2} {
		r := results[id]
		if len(r.Points) != want || r.Failure != "" {
			t.Fatalf("task %d: %d points, want %d; failure %q", id, len(r.Points), want, r.Failure)
		}
		for _, p := range r.Points {
			if len(p.Samples) != r.Task.Runs || p.Clock != profile.ClockCPU {
				t.Errorf("task %d: %d samples on clock %s", id, len(p.Samples), p.Clock)
			}
		}
	}
	if diff := cmp.Diff(forward.Pass{Decode: forward.Sequences{Count: 2, SumContext: 2*64 + 3}}, results[4].Points[1].Step.Pass); diff != "" {
		t.Errorf("decode stands for its mean context (-want +got):\n%s", diff)
	}
	least := func(id, point int) float64 { return slices.Min(results[id].Points[point].Samples) }
	if short, long := least(1, 0), least(2, 0); long < 2*short {
		t.Errorf("a prefill of 512 tokens takes %g s, one of 64 %g s", long, short)
	}

	names := []string{
		"embedding", "position_embedding", "input_layernorm", "q_proj", "k_proj", "v_proj", "rope", "attn", "o_proj",
		"post_layernorm", "gate_proj", "act_fn", "up_proj", "down_proj", "final_layernorm", "lm_head",
	}
	for _, id := range []int{6, 7, 8, 9} {
		if diff := cmp.Diff(names, layerNames(results[id])); diff != "" {
			t.Errorf("task %d: %s\nlayers differ (-want +got):\n%s", id, results[id].Failure, diff)
		}
	}
	whole := least(1, 0)
	sum := layerSum(results[6], shape.Layers)
	t.Logf("prefill of 64 tokens: whole %.2f ms, layers %.2f ms; decode step %.2f ms", 1e3*whole, 1e3*sum, 1e3*least(1, 1))
	if sum > 1.5*whole || sum < whole/4 {
		t.Errorf("the layers take %g s together, the whole pass %g s", sum, whole)
	}
	if near, far := layerTime(results[7], "attn"), layerTime(results[8], "attn"); far < near {
		t.Errorf("attention over 1024 tokens takes %g s, over 256 tokens %g s", far, near)
	}
	for _, p := range results[9].Points {
		want := profile.Layer{Name: p.Layer.Name, Tokens: 3, Context: 64}
		switch p.Layer.Name {
		case "attn":
			want = profile.Layer{Name: "attn", Sequences: 3, SequenceContext: 64}
		case "lm_head":
			want.Sequences = 3
		}
		if diff := cmp.Diff(want, *p.Layer); diff != "" {
			t.Errorf("%s of three sequences (-want +got):\n%s", p.Layer.Name, diff)
		}
	}
	endsAtOnce(t, s)
}

// endsAtOnce closes the session in the middle of a task that takes minutes.
func endsAtOnce(t *testing.T, s engine.Session) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		done <- s.Run(t.Context(), []engine.Task{step(99, 16, 2048, 2, 100)}, func(engine.Result) error { return nil })
	}()
	time.Sleep(300 * time.Millisecond)
	begin := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("closing took %v in the middle of a forward pass", took)
	}
	if err := <-done; err == nil {
		t.Error("the task went through")
	}
}

func layerNames(r engine.Result) []string {
	var names []string
	for _, p := range r.Points {
		names = append(names, p.Layer.Name)
	}
	return names
}

func layerTime(r engine.Result, name string) float64 {
	for _, p := range r.Points {
		if p.Layer.Name == name {
			return slices.Min(p.Samples)
		}
	}
	return 0
}

// layerSum is the time of a pass as its layers have it, in seconds.
func layerSum(r engine.Result, blocks int) float64 {
	var sum float64
	for _, p := range r.Points {
		times := float64(blocks)
		if slices.Contains([]string{"embedding", "position_embedding", "final_layernorm", "lm_head"}, p.Layer.Name) {
			times = 1
		}
		sum += times * stat.Median(p.Samples)
	}
	return sum
}

// writeConfig writes a model folder that holds a configuration alone.
func writeConfig(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRealWeightsAndWallClock(t *testing.T) {
	dir := tinyFolder(t)
	file, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tinymodel.WriteSafetensors(file, tinymodel.Tiny(), 1), file.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := start(t, dir, func(setup *engine.Setup) {
		setup.LoadWeights, setup.NumLayers, setup.Clock, setup.Deploy.DType = true, 2, "", ""
		setup.Args = []string{"--profiler"}
	})
	if err != nil {
		t.Fatal(err)
	}
	f := s.Facts()
	if f.Clock != profile.ClockWall || f.Deploy.DType != catalog.BF16 {
		t.Errorf("clock %s, dtype %s: want the CPU's wall clock and the checkpoint's dtype", f.Clock, f.Deploy.DType)
	}
	shape := tinymodel.Tiny()
	shape.Layers = 2
	if got := f.Memory[0].Memory.Bytes; got != 2*shape.Params() {
		t.Errorf("weights take %d bytes, want %d", got, 2*shape.Params())
	}
	results := run(t, s, step(1, 1, 16, 2, 1), layers(2, 8, 0, 2, 2))
	if results[1].Failure != "" || len(results[1].Points) != 2 {
		t.Errorf("step: %+v", results[1])
	}
	// Attention of two prompts has no place in a profile.
	if r := results[2]; r.Failure != "" || layerTime(r, "q_proj") == 0 || layerTime(r, "attn") != 0 || len(r.Points[0].Warnings) == 0 || !strings.HasPrefix(r.Points[0].Warnings[0], "attn of 2 prompts") {
		t.Errorf("layers by the profiler: %+v", r)
	}
}

func TestStartErrors(t *testing.T) {
	tests := []struct {
		why     string
		change  func(t *testing.T, s *engine.Setup)
		want    string
		problem engine.Problem
		hint    string
	}{
		{"a folder without a model", func(t *testing.T, s *engine.Setup) { s.Model = t.TempDir() }, "holds no config.json", "", "hub id"},
		{"a model type of the future", func(t *testing.T, s *engine.Setup) {
			s.Model = writeConfig(t, `{"model_type": "llama9000"}`)
		}, "model-unsupported", "", "--upgrade transformers"},
		{"no GPU", func(t *testing.T, s *engine.Setup) { s.Device = "cuda:7"; s.Model = tinyFolder(t) }, "cuda:7", engine.DeviceMissing, "another device"},
		{"a CPU has no timer of its own", func(t *testing.T, s *engine.Setup) { s.Clock = profile.ClockDevice; s.Model = tinyFolder(t) }, "no timer", engine.DeviceMissing, "clock wall"},
		{"an unknown argument", func(t *testing.T, s *engine.Setup) { s.Args = []string{"--fast"}; s.Model = tinyFolder(t) }, "--fast", "", ""},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			_, err := start(t, "unset", func(s *engine.Setup) { test.change(t, s) })
			checkError(t, err, test.want, test.problem, test.hint)
		})
	}
}

func checkError(t *testing.T, err error, want string, problem engine.Problem, hint string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %v, want one with %q", err, want)
	}
	if got := engine.Unusable(err); got != problem {
		t.Errorf("problem %q, want %q: %v", got, problem, err)
	}
	var hinted interface{ Hint() string }
	if hint != "" && (!errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), hint)) {
		t.Errorf("no hint with %q: %v", hint, err)
	}
}
