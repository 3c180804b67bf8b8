package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/unit"
)

// memoryMachine is a machine with devices that hold so many bytes, of which
// nvidia-smi tells, and with a vllm that plays a script.
// TestEnginesRefuseGraphs: a driver that cannot be asked for graphs says so both
// ways, so that none is asked by default.
func TestEnginesRefuseGraphs(t *testing.T) {
	for _, choice := range engineChoices() {
		driver, err := choice.driver(newEngineFlags())
		if err != nil {
			t.Fatal(err)
		}
		setup := engine.Setup{Model: "m", CUDAGraphs: true}
		if err := engine.Check(driver, setup); (err == nil) != driver.Abilities().CUDAGraphs {
			t.Errorf("%s: abilities %+v, and %v", choice.name, driver.Abilities(), err)
		}
		setup.CUDAGraphs = false
		if err := (memorySettings{}).apply(driver, &setup); err != nil || engine.Check(driver, setup) != nil {
			t.Errorf("%s refuses what is asked by default: %v, %v", choice.name, err, engine.Check(driver, setup))
		}
	}
}

func memoryMachine(t *testing.T, script string, used ...int64) (dir string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("its nvidia-smi is a shell script")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, name := range []string{"llmprof", "fakevllm"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	smi := fmt.Sprintf("#!/bin/sh\nexec '%s' smi \"$@\"\n", filepath.Join(dir, "fakevllm"))
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(smi), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := bank(dir).write("used", "0 "+strings.Trim(fmt.Sprint(used), "[]")); err != nil {
		t.Fatal(err)
	}
	if script, err = filepath.Abs(script); err != nil {
		t.Fatal(err)
	}
	emptyHome(t)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("FAKE_VLLM", script)
	t.Setenv("FAKE_BANK", dir)
	return dir
}

// era is a script of measure/memory, whose truth stands beside it.
func era(name string) string {
	return filepath.Join("..", "..", "measure", "memory", "testdata", "eras", name+".txt")
}

// pathAt follows a path of jq, ".a.b[0]", through a document; nil where it
// leads nowhere.
func pathAt(v any, path string) any {
	for word := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch here := v.(type) {
		case map[string]any:
			v = here[word]
		case []any:
			i, err := strconv.Atoi(word)
			if err != nil || i >= len(here) {
				return nil
			}
			v = here[i]
		default:
			return nil
		}
	}
	return v
}

// TestMemoryProfile measures a scripted vLLM on two of four devices, through
// nvidia-smi, and holds the document to the script.
func TestMemoryProfile(t *testing.T) {
	const baseline = 512 << 20
	dir := memoryMachine(t, era("v1-2025-10-tp2"), 30e9, 40e9, baseline, baseline)
	t.Chdir(dir)
	progress, err := os.Create(filepath.Join(t.TempDir(), "progress"))
	if err != nil {
		t.Fatal(err)
	}
	defer progress.Close()
	t.Setenv("FAKE_PROGRESS", progress.Name())
	var out bytes.Buffer
	err = run(t.Context(), []string{
		"profile", "memory", "meta-llama/Llama-3.1-8B", "--program", filepath.Join(dir, "fakevllm"), "--tensor-parallel-size", "2",
		"--engine-env", "CUDA_VISIBLE_DEVICES=2,3", "--input-len", "512", "--output-len", "512", "--batch-size", "8",
		"--num-iters-warmup", "2", "--num-iters", "3", "--sample-every", "20ms", "--dtype", "bfloat16", "--record", "recording.jsonl", "--json",
	}, strings.NewReader(""), &out, progress)
	if err != nil {
		said, _ := os.ReadFile(progress.Name())
		t.Fatalf("%v\n%s", err, said)
	}
	files, err := filepath.Glob(filepath.Join("results", "memory-profiles", "*Llama-3.1-8B_512in_512out_bs8_*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v: want one in the default folder", files, err)
	}
	d, err := readMemoryProfile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if points := pointsOf(t, strings.TrimSuffix(files[0], ".json")+".llmprof"); len(points) < 10 {
		t.Errorf("%d points beside it", len(points))
	}
	// The truth of the script. nvidia-smi tells whole MiB.
	const weights, other, active, graphs, cache, warm = 16_060_522_496, 2 * 850_000_000, 2 * 1_350_000_000, 2 * 668_000_000, 1_010_224 * 131072, 2 * 400_000_000
	steady := float64(2*baseline + weights + other + graphs + cache)
	m := d.MemoryMeasurements
	for _, c := range []struct {
		name  string
		point *memprofile.MemoryPoint
		want  float64
	}{{"baseline", m.Baseline, 2 * baseline}, {"post-warm-up", m.PostWarmup, steady + warm}, {"peak", m.Peak, steady + active}} {
		if c.point == nil {
			t.Fatalf("%s was not measured", c.name)
		}
		if got := float64(*c.point.TotalBytes); math.Abs(got-c.want) > 2<<20 || len(c.point.PerGPU) != 2 || *c.point.PerGPU[0].Device != 2 {
			t.Errorf("%s is %.0f bytes on %+v, want %.0f on devices 2 and 3", c.name, got, c.point.PerGPU, c.want)
		}
	}
	worst := 0.0
	for name, want := range map[string]float64{
		memprofile.PartWeights: weights, memprofile.PartKVCache: cache, memprofile.PartActivations: active, memprofile.PartCUDAGraphs: graphs, memprofile.PartOverhead: other,
	} {
		p := d.MemoryBreakdown.Part(name)
		if p == nil || p.Bytes == nil {
			t.Errorf("%s is not known", name)
			continue
		}
		off := math.Abs(float64(*p.Bytes)/want - 1)
		worst = max(worst, off)
		if off > 0.01 || p.Confidence != memprofile.High {
			t.Errorf("%s is %s (%s), the script has %s", name, *p.Bytes, p.Confidence, unit.Bytes(want))
		}
	}
	b := d.MemoryBreakdown
	if !b.Consistent || b.UnexplainedBytes == nil || float64(*b.UnexplainedBytes) > 0.01*float64(*b.TotalMeasuredBytes) {
		t.Errorf("unexplained %v, faults %q", b.UnexplainedBytes, b.Faults)
	}
	if g := d.GPUInfo; *g.NumGPUs != 2 || *g.SystemGPUs != 4 || *g.TotalMemoryBytes != 2*143771<<20 || g.Sampler != "nvidia-smi" || g.GPUType != "cuda" {
		t.Errorf("devices %+v", g)
	}
	line := d.MemoryTimeline
	longest := 0.0
	for i, at := range line.Devices[0].At[1:] {
		longest = max(longest, at-line.Devices[0].At[i])
	}
	told := toldRate(t, "recording.jsonl", len(line.Devices[0].At))
	t.Logf("largest deviation %.3f %%; %.1f readings a second of %.1f that were told, longest gap %.0f ms", 100*worst, *line.RateHz, told, 1e3*longest)
	if told < 10 {
		t.Logf("10 A SECOND NOT JUDGED: this machine lets nvidia-smi tell only %.1f", told)
	}
	if *line.RateHz < min(10, 0.9*told) {
		t.Errorf("%.1f readings a second, asked for 50, and nvidia-smi told %.1f", *line.RateHz, told)
	}
	documentedPaths(t, out.String(), files[0])
}

// toldRate is how often a second nvidia-smi printed the first n readings of a
// recording, by its own clock.
func toldRate(t *testing.T, name string, n int) float64 {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var times []time.Time
	for line := range strings.Lines(string(text)) {
		var s struct{ Devices []struct{ Time string } }
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse("2006/01/02 15:04:05.000", s.Devices[0].Time)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, at)
	}
	if len(times) < n || n < 2 {
		t.Fatalf("%d readings in the recording, %d in the document", len(times), n)
	}
	return float64(n-1) / times[n-1].Sub(times[0]).Seconds()
}

// documentedPaths looks up what the queries of LLM Sizer's guide ask for, those
// by its documented names and those by the real ones, in what was printed and
// in the file.
func documentedPaths(t *testing.T, printed, file string) {
	t.Helper()
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"stdout": printed, "the file": string(written)} {
		var document any
		decoder := json.NewDecoder(strings.NewReader(text))
		if err := decoder.Decode(&document); err != nil || decoder.More() {
			t.Fatalf("%s is not one document: %v", where, err)
		}
		for _, path := range strings.Fields(`
			.memory.total_gb .latency_stats.mean_latency_ms
			.memory_breakdown.weights .memory_breakdown.kv_cache .memory_breakdown.activations .memory_breakdown.overhead .memory_breakdown.confidence
			.profiler_version .schema_version
			.memory_measurements.baseline.total_gb .memory_measurements.peak.total_gb .memory_measurements.memory_increase_gb
			.memory_breakdown.model_weights_gb .memory_breakdown.kv_cache_gb .memory_breakdown.activations_gb .memory_breakdown.framework_overhead_gb
			.memory_breakdown.confidence_levels.overall .memory_breakdown.confidence_levels.weights .memory_breakdown.confidence_levels.kv_cache .memory_breakdown.confidence_levels.activations
			.memory_measurements.peak.per_gpu_details .memory_measurements.peak.per_gpu_details[1].used_gb .memory_measurements.post_warmup.total_gb
			.memory_breakdown.total_measured_gb
			.metadata.timestamp .model_info.name .model_info.num_parameters .model_info.num_layers .model_info.dtype
			.latency_stats.tokens_per_second .latency_stats.avg_latency .latency_stats.percentiles.50 .engine_metadata.engine_version .engine_metadata.engine_type`) {
			if pathAt(document, path) == nil {
				t.Errorf("%s: %s is null", where, path)
			}
		}
		if v := pathAt(document, ".profiler_version"); v != "2.0" {
			t.Errorf("%s: jq -e '.profiler_version == \"2.0\"' says no: %v", where, v)
		}
	}
}

// TestInterruptedMemory: Ctrl-C ends the engine and leaves no half of a file.
func TestInterruptedMemory(t *testing.T) {
	script := filepath.Join(t.TempDir(), "hangs.txt")
	if err := os.WriteFile(script, []byte("@used 600000000\n@stderr \"\\rWarmup iterations:   0%|\"\n@pause 1h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := memoryMachine(t, script, 512<<20)
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(dir, "llmprof"), "profile", "memory", "m/m", "--program", filepath.Join(dir, "fakevllm"), "--sample-every", "10ms", "-o", "m.json")
	cmd.Dir, cmd.Stderr = dir, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the engine to run", func() bool {
		seen := bank(dir).read("seen")
		return len(seen) == 2 && seen[0] == "1"
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != codeInterrupted {
		t.Errorf("ended with %v, want exit code %d\n%s", err, codeInterrupted, stderr.String())
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "llmprof", "fakevllm", "nvidia-smi", "used", "seen", "seen.new":
		default:
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

// TestRecordedMemory: what --record keeps tells --sampler the same again.
func TestRecordedMemory(t *testing.T) {
	script := filepath.Join(t.TempDir(), "run.txt")
	if err := os.WriteFile(script, []byte("Warming up...\n"+strings.Repeat("@used 3221225472\n", 4)+"@result\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := memoryMachine(t, script, 512<<20, 3<<30)
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	t.Chdir(dir)
	profile := func(args ...string) *memprofile.Document {
		t.Helper()
		out, messages, code := llmprof(t, append([]string{"profile", "memory", "m/m", "--program", "fakevllm", "--sample-every", "10ms", "--json"}, args...)...)
		if code != 0 {
			t.Fatal(messages)
		}
		d, err := decodeMemoryProfile("stdout", []byte(out))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	live := profile("--sampler", "nvidia-smi", "--record", "r.jsonl", "-o", "live.json")
	text, err := os.ReadFile("r.jsonl")
	if err != nil || bytes.Count(text, []byte("\n")) < 10 || bytes.Count(text, []byte(`"GPU-0"`)) != bytes.Count(text, []byte(`"GPU-1"`)) {
		t.Fatalf("%v: the recording does not hold every reading of both devices:\n%s", err, text)
	}
	// The engine is done long before the recording is.
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	_, devices, _ := strings.Cut(lines[len(lines)-1], ",")
	if err := os.WriteFile("r.jsonl", fmt.Appendf(nil, "%s{\"at_s\":36000,%s\n", text, devices), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("Warming up...\n@result\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := profile("--sampler", "r.jsonl", "--record", "again.jsonl", "-o", "again.json")
	for _, d := range []*memprofile.Document{live, again} {
		if d.MemoryMeasurements.Peak == nil || *d.Memory.TotalBytes != 3<<30 || *d.GPUInfo.NumGPUs != 1 || *d.GPUInfo.SystemGPUs != 2 {
			t.Errorf("peak %v, devices %+v", d.Memory, d.GPUInfo)
		}
		if d.Metadata.Source != "llmprof profile memory" || !strings.HasPrefix(string(d.Metadata.Command), "fakevllm bench latency --model m/m ") {
			t.Errorf("source %q, command %q", d.Metadata.Source, d.Metadata.Command)
		}
	}
	copied, err := os.ReadFile("again.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	first := func(text []byte) string {
		line, _, _ := strings.Cut(string(text), "\n")
		_, devices, _ := strings.Cut(line, "devices")
		return devices
	}
	if first(text) != first(copied) {
		t.Errorf("%s became\n%s", first(text), first(copied))
	}
}

// TestMemorySecrets: a secret among the engine's arguments reaches the engine
// and nothing else.
func TestMemorySecrets(t *testing.T) {
	const secret = "mysecretvalue123"
	dir := t.TempDir()
	script := filepath.Join(dir, "run.txt")
	if err := os.WriteFile(script, []byte("@expect --hf-token "+secret+"\nWarming up...\n@result\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	memoryMachine(t, script, 512<<20)
	t.Chdir(t.TempDir())
	args := []string{"profile", "memory", "m/m", "--program", "fakevllm", "--sampler", "none", "--engine-arg=--hf-token", "--engine-arg=" + secret, "--engine-arg=--seed", "--engine-arg=5", "-v"}
	out, messages, code := llmprof(t, append(args, "--json")...)
	if code != 0 || !strings.Contains(out, `"--hf-token",`) || !strings.Contains(out, "--seed 5") || !strings.Contains(out, "[redacted]") {
		t.Fatalf("%d %s\n%s", code, messages, out)
	}
	table, again, _ := llmprof(t, args...)
	texts := map[string]string{"--json": out, "stderr": messages, "the table": table, "stderr of the table": again}
	names, err := filepath.Glob(filepath.Join(memoryFolder, "*"))
	if err != nil || len(names) != 2 {
		t.Fatalf("%v: profiles of the same second overwrite each other: %q", err, names)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	for where, text := range texts {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows the secret", where)
		}
	}
	out, messages, code = llmprof(t, "batch", "--model", "m/m", "--place", "local", "--engine", "vllm-bench", "--engine-arg=--hf-token", "--engine-arg="+secret, "--dry-run", "--json")
	if code != codeUsage || strings.Contains(out+messages, secret) || !strings.Contains(messages, "--engine-arg") {
		t.Errorf("batch: exit code %d\n%s%s", code, out, messages)
	}
}
