package memory_test

import (
	stdbytes "bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/profile"
)

// subject is what was measured by the eras with two devices.
func subject(t *testing.T) memory.Subject {
	t.Helper()
	return memory.Subject{
		Name: "meta-llama/Llama-3.1-8B", Model: model(t, "Llama-3.1-8B"), Asked: deploy.Config{TensorParallel: 2, DType: catalog.BF16, GPUMemoryUtilization: 0.9, BlockSize: 16},
		Loaded: true, Method: "vllm_bench_latency", EngineArgs: []string{"--seed", "1"}, Vendor: "cuda", SystemDevices: 8,
	}
}

// TestDocument: what was seen stands in the document, and survives its file.
func TestDocument(t *testing.T) {
	o := play(t, newMachine(t, "v1-2025-10-tp2", 2), 2)
	at := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	d := o.Document(subject(t), at)
	var file stdbytes.Buffer
	if err := memprofile.Write(&file, d); err != nil {
		t.Fatal(err)
	}
	text := file.String()
	again, warnings, err := memprofile.Read("memory.json", &file, format.Limits{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if diff := cmp.Diff(d, again, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the file says something else (-written +read):\n%s", diff)
	}
	var second stdbytes.Buffer
	if err := memprofile.Write(&second, again); err != nil || second.String() != text {
		t.Errorf("the file of what was read is another: %v", err)
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"timestamp", string(d.Timestamp), "2026-11-21 09:30:00"},
		{"model", string(d.ModelInfo.Name), "meta-llama/Llama-3.1-8B"},
		{"parameters", *d.ModelInfo.Parameters, 8_030_261_248.0},
		{"KV heads", *d.ModelInfo.KVHeads, 8},
		{"source of the architecture", string(d.ModelInfo.ArchitectureSource), "architecture of Llama-3.1-8B"},
		{"dtype", string(d.BenchmarkParameters.DType), "bfloat16"},
		{"runs", [2]int{*d.BenchmarkParameters.WarmupIters, *d.BenchmarkParameters.Iters}, [2]int{2, 3}},
		{"ranks", *d.BenchmarkParameters.TensorParallelSize, 2},
		{"utilisation", *d.BenchmarkParameters.GPUMemoryUtilization, 0.9},
		{"latency in ms", *d.LatencyStats.MeanMs, 500.0},
		{"median in s", d.LatencyStats.Percentiles["50"], 0.5},
		{"tokens a second", *d.LatencyStats.TokensPerSecond, 8 * 512 / 0.5},
		{"vendor", string(d.GPUInfo.GPUType), "cuda"},
		{"devices of the engine", *d.GPUInfo.NumGPUs, 2},
		{"devices of the machine", *d.GPUInfo.SystemGPUs, 8},
		{"memory of the devices", int64(*d.GPUInfo.TotalMemoryBytes), int64(170e9)},
		{"engine", string(d.EngineMetadata.EngineType + " " + d.EngineMetadata.EngineVersion), "vllm 0.32.0"},
		{"method", string(d.EngineMetadata.ProfilingMethod), "vllm_bench_latency"},
		{"arguments", strings.Join(d.BenchmarkParameters.EngineArgs, " "), "--seed 1"},
		{"devices of the peak", len(d.MemoryMeasurements.Peak.PerGPU), 2},
		{"second device of the peak", int64(*d.MemoryMeasurements.Peak.PerGPU[1].UsedBytes), int64(77_641_172_224)},
		{"its spread", float64(*d.MemoryMeasurements.Peak.StddevUsedGB), 0.0},
		{"marker", string(d.MemoryMeasurements.PostWarmup.Marker), "log: Warmup iterations"},
		{"part of the batch", int64(*d.KVCache.UsedBytes), int64(8 * 1024 * 131072)},
		{"confidence", string(d.MemoryBreakdown.Confidence), "high"},
	} {
		if !cmp.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	line := d.MemoryTimeline
	if len(line.Devices) != 2 || *line.RateHz <= 0 || len(line.Devices[1].At) != len(o.Timeline.Devices[1].Samples) {
		t.Errorf("timeline %+v", line)
	}
}

// TestSubject: what the user states of the model wins, and what cannot be used
// is told.
func TestSubject(t *testing.T) {
	s := subject(t)
	s.Stated = memory.Architecture{Parameters: 7e9, KVHeads: 4}
	s.Asked.TensorParallel = 3
	d := (&memory.Observation{}).Document(s, time.Unix(0, 0))
	if *d.ModelInfo.Parameters != 7e9 || *d.ModelInfo.KVHeads != 4 || *d.ModelInfo.Layers != 32 {
		t.Errorf("model %+v", d.ModelInfo)
	}
	if !slices.ContainsFunc(d.Metadata.Warnings, func(w string) bool { return strings.HasPrefix(w, "the architecture was not used: ") }) {
		t.Errorf("warnings %q", d.Metadata.Warnings)
	}
	s.Asked = deploy.Config{Quantization: "awq", DType: catalog.FP16, KVCacheDType: catalog.FP8}
	d = (&memory.Observation{}).Document(s, time.Unix(0, 0))
	if f := d.DTypeMetadata; f.WeightDType != "awq" || f.ActivationDType != "float16" || f.KVCacheDType != "fp8" || !*f.QuantizationApplied {
		t.Errorf("formats %+v", f)
	}
}

// TestPoints: every point is valid, and together they hold all that was seen.
func TestPoints(t *testing.T) {
	o := play(t, newMachine(t, "v0-2025-03-tp2", 2), 2)
	phases, stated, readings := map[string]int64{}, map[string]int64{}, 0
	points := o.Points()
	for i, p := range points {
		if err := p.Validate(); err != nil {
			t.Errorf("point %d: %v", i, err)
		}
		switch {
		case p.Telemetry != nil:
			readings += len(p.Telemetry.At)
			if p.Telemetry.Source != "bank" || p.Telemetry.MemoryTotal != 85e9 || p.Telemetry.Power != nil {
				t.Errorf("telemetry of %q, %d bytes, power %v", p.Telemetry.Source, p.Telemetry.MemoryTotal, p.Telemetry.Power)
			}
		case p.Memory.Phase != "":
			phases[p.Memory.Phase] += p.Memory.Bytes
			if p.Memory.Part != profile.MemoryUsed || p.Memory.Device == nil {
				t.Errorf("reading %+v", p.Memory)
			}
		default:
			stated[p.Memory.Part] += p.Memory.Bytes
		}
	}
	want := map[string]int64{profile.PhaseBaseline: 2 * baseline, profile.PhasePostWarmup: o.PostWarmup.Total(), profile.PhasePeak: o.Peak.Total()}
	if diff := cmp.Diff(want, phases); diff != "" {
		t.Errorf("moments (-want +got):\n%s", diff)
	}
	if off := math.Abs(float64(stated[profile.MemoryWeights])/truthWeights - 1); off > 0.01 {
		t.Errorf("stated weights of %d bytes", stated[profile.MemoryWeights])
	}
	if all := len(o.Timeline.Devices[0].Samples) + len(o.Timeline.Devices[1].Samples); readings != all {
		t.Errorf("%d readings in the points, %d in the timeline", readings, all)
	}
	var file stdbytes.Buffer
	p := &profile.Profile{Header: profile.Header{Schema: profile.Schema, Version: profile.Version}, Points: points}
	if err := p.Write("memory.llmprof", &file); err != nil {
		t.Fatal(err)
	}
	if again, warnings, err := profile.Read("memory.llmprof", &file); err != nil || len(warnings) > 0 || len(again.Points) != len(points) {
		t.Errorf("read back: %v, %v", err, warnings)
	}
}

// TestLongTimeline: a long series is told in several points and none is lost,
// nor anything else for a reading that lacks a figure.
func TestLongTimeline(t *testing.T) {
	var series gpu.Series
	for i := range 7001 {
		used, power := int64(i), 100.0
		s := gpu.Sample{At: time.Duration(i) * time.Millisecond, Used: &used, Count: 1}
		if i == 4000 {
			s.Used = nil
		}
		if i != 5000 {
			s.Power = &power
		}
		series.Samples = append(series.Samples, s)
	}
	o := &memory.Observation{Timeline: gpu.Timeline{Source: "bank", Devices: []gpu.Series{series}}}
	var used []*int64
	var powers []*float64
	for _, p := range o.Points() {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
		if p.Telemetry.Process != nil {
			t.Errorf("what was never read: %v", p.Telemetry.Process)
		}
		used, powers = append(used, p.Telemetry.Used...), append(powers, p.Telemetry.Power...)
	}
	if len(used) != 7001 || len(powers) != 7001 || len(o.Points()) != 3 {
		t.Fatalf("%d readings in %d points, %d of power", len(used), len(o.Points()), len(powers))
	}
	p := &profile.Profile{Header: profile.Header{Schema: profile.Schema, Version: profile.Version}, Points: o.Points()}
	var points stdbytes.Buffer
	if err := p.Write("memory.llmprof", &points); err != nil {
		t.Fatal(err)
	}
	if again, warnings, err := profile.Read("memory.llmprof", &points); err != nil || len(warnings) > 0 || cmp.Diff(p.Points, again.Points) != "" {
		t.Errorf("the points are read back as others: %v, %v", err, warnings)
	}
	d := o.Document(memory.Subject{}, time.Unix(0, 0))
	line := d.MemoryTimeline.Devices[0]
	for i := range used {
		if (used[i] == nil) != (i == 4000) || (powers[i] == nil) != (i == 5000) || (line.UsedBytes[i] == nil) != (i == 4000) || (line.PowerW[i] == nil) != (i == 5000) {
			t.Fatalf("reading %d: used %v, power %v, in the document %v, %v", i, used[i], powers[i], line.UsedBytes[i], line.PowerW[i])
		}
	}
	if !d.MemoryBreakdown.Consistent {
		t.Errorf("faults %q", d.MemoryBreakdown.Faults)
	}
	var file stdbytes.Buffer
	if err := memprofile.Write(&file, d); err != nil {
		t.Fatal(err)
	}
	again, warnings, err := memprofile.Read("memory.json", &file, format.Limits{})
	if diff := cmp.Diff(d, again, cmpopts.EquateEmpty()); err != nil || len(warnings) > 0 || diff != "" {
		t.Errorf("%v, %v (-written +read):\n%s", err, warnings, diff)
	}
}
