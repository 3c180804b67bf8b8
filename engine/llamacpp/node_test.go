package llamacpp_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/llamacpp"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/internal/enginetest"
	"github.com/llmprof/llmprof/internal/tinymodel"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// tiny writes the tiny model.
func tiny(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := tinymodel.WriteGGUF(file, tinymodel.Tiny(), 1); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNodeErrors(t *testing.T) {
	if _, err := llamacpp.Node().Start(t.Context(), place.Local(), engine.Setup{}); err == nil || !strings.Contains(err.Error(), "no model is named") {
		t.Errorf("no model: %v", err)
	}
	_, err := llamacpp.Node().Start(t.Context(), place.Local(), engine.Setup{Model: "m.gguf", Program: "/nope/node"})
	missing, ok := errors.AsType[*engine.UnusableError](err)
	if !ok || missing.Problem != engine.ProgramMissing || !strings.Contains(missing.Hint(), "nodejs.org") {
		t.Errorf("no node: %v", err)
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("SKIPPED, NOT TESTED: the probe itself, for want of node: ", err)
	}
	model := tiny(t)
	other := filepath.Join(t.TempDir(), "other.gguf")
	if err := os.WriteFile(other, []byte("GIF89a"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why, want, hint string
		setup           engine.Setup
	}{
		{"a file that is not there", "there is no file", ".gguf", engine.Setup{Model: filepath.Join(t.TempDir(), "none.gguf")}},
		{"a file of another kind", "is no GGUF file", ".gguf", engine.Setup{Model: other}},
		{"a folder", "is a folder", "convert_hf_to_gguf.py", engine.Setup{Model: t.TempDir()}},
		{"fewer layers", "cannot be cut to its first 2 layers", "leave", engine.Setup{Model: model, NumLayers: 2}},
		{"a clock that a processor does not have", "no clock device", "wall", engine.Setup{Model: model, Clock: profile.ClockDevice}},
		{"no library", "node-llama-cpp is not installed in", "npm install --omit=optional --ignore-scripts node-llama-cpp@", engine.Setup{Model: model}},
	} {
		t.Run(c.why, func(t *testing.T) {
			c.setup.Env = []string{"LLMPROF_NODE_LLAMA_CPP=" + t.TempDir()}
			err := refused(t, c.setup, c.want, c.hint)
			if missing := engine.Unusable(err) == engine.EngineMissing; missing != (c.why == "no library") {
				t.Errorf("problem %q", engine.Unusable(err))
			}
		})
	}
}

// refused wants an error with a text and a hint with another.
func refused(t *testing.T, setup engine.Setup, want, hint string) error {
	t.Helper()
	_, err := llamacpp.Node().Start(t.Context(), place.Local(), setup)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %v, want %q in it", err, want)
	}
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted); hint != "" && (hinted == nil || !strings.Contains(hinted.Hint(), hint)) {
		t.Errorf("no hint with %q: %v", hint, hinted)
	}
	return err
}

// TestNodeBrokenModel finds out only when the engine reads the file.
func TestRealNodeBrokenModel(t *testing.T) {
	env := []string{"LLMPROF_NODE_LLAMA_CPP=" + enginetest.NodeLlamaCpp(t)}
	broken := filepath.Join(t.TempDir(), "broken.gguf")
	whole, err := os.ReadFile(tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, whole[:len(whole)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, engine.Setup{Model: broken, Env: env}, "load "+broken, "newer release")
}

// TestNode measures the tiny model with the real engine: on one thread, by
// processor time, so that a busy machine does not matter much.
func TestRealNode(t *testing.T) {
	setup := engine.Setup{
		Model: tiny(t), Device: "cpu", Clock: profile.ClockCPU, Threads: 1, Seed: 1,
		MaxBatch: 4, MaxInput: 1024, MaxOutput: 17, Env: []string{"LLMPROF_NODE_LLAMA_CPP=" + enginetest.NodeLlamaCpp(t)},
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	begin := time.Now()
	session, err := llamacpp.Node().Start(t.Context(), place.Local(), setup)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	f := session.Facts()
	t.Logf("ready after %v: %s %s, %v, %s, at most %d sequences of %d tokens, %d tokens in all", time.Since(begin).Round(time.Millisecond),
		f.Engine, f.Version, f.Libraries, f.Device.Reported, f.MaxBatch, f.MaxModelLen, f.MaxTokens)
	if f.Engine != "llama.cpp" || f.Version == "" || f.Clock != profile.ClockCPU || f.MaxBatch != 4 || f.MaxModelLen != 1024+17 || f.MaxTokens < 4*(1024+17) || f.Threads != 1 || f.Layers != tinymodel.Tiny().Layers {
		t.Errorf("facts %+v", f)
	}
	if len(f.Memory) == 0 || f.Memory[0].Memory.Part != profile.MemoryWeights || f.Memory[0].Memory.Bytes < 2*tinymodel.Tiny().Params() {
		t.Errorf("memory %+v", f.Memory)
	}

	shapes := [][2]int{{1, 16}, {1, 256}, {1, 1024}, {2, 64}, {4, 64}, {4, 256}, {5, 16}, {1, 1040}}
	var tasks []engine.Task
	for i, s := range shapes {
		tasks = append(tasks, engine.Task{ID: i + 1, Step: &engine.StepTask{BatchSize: s[0], InputLen: s[1], OutputLen: 17}, Warmup: 1, Runs: 4})
	}
	least := map[[2]int][2]float64{} // of prefill and decode step, in seconds
	err = session.Run(t.Context(), tasks, func(r engine.Result) error {
		shape := [2]int{r.Task.Step.BatchSize, r.Task.Step.InputLen}
		if r.Failure != "" {
			if r.Failure != engine.FailureLimits || shape[0] < 5 && shape[1] < 1040 {
				t.Errorf("%v: %s", shape, r.Failure)
			}
			return nil
		}
		if len(r.Points) != 2 || len(r.Points[0].Samples) != 4 || len(r.Points[1].Samples) != 4 {
			t.Errorf("%v: points %+v", shape, r.Points)
			return nil
		}
		times := [2]float64{slices.Min(r.Points[0].Samples), slices.Min(r.Points[1].Samples)}
		least[shape] = times
		t.Logf("%d × %4d tokens: prefill %7.2f ms, decode step %6.3f ms (median %6.3f)", shape[0], shape[1], times[0]*1e3, times[1]*1e3, stat.Median(r.Points[1].Samples)*1e3)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(least) != 6 {
		t.Fatalf("%d shapes measured, want 6", len(least))
	}
	for _, c := range []struct {
		why         string
		more, less  [2]int
		part        int
		least, most float64 // bounds of the ratio of the two times
	}{
		{"a longer prompt takes longer", [2]int{1, 256}, [2]int{1, 16}, 0, 2, 100},
		{"attention makes prompts grow faster than linear", [2]int{1, 1024}, [2]int{1, 256}, 0, 4, 40},
		{"a decode step reads its context", [2]int{1, 1024}, [2]int{1, 16}, 1, 1.5, 100},
		{"two sequences are more work than one", [2]int{4, 64}, [2]int{2, 64}, 1, 1.1, 8},
		{"four prompts are four times the work", [2]int{4, 256}, [2]int{1, 256}, 0, 2, 10},
	} {
		if ratio := least[c.more][c.part] / least[c.less][c.part]; !(ratio >= c.least && ratio <= c.most) {
			t.Errorf("%s: ratio %.3g, want %g to %g", c.why, ratio, c.least, c.most)
		}
	}
	end := time.Now()
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(end); took > time.Minute {
		t.Errorf("closing took %v", took)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
