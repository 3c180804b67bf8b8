package memory_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/profile"
)

// TestKnownMistakes: what LLM Sizer's profiler gets wrong of a measurement, one
// by one, is right here.
func TestKnownMistakes(t *testing.T) {
	for _, c := range []struct {
		name, why string
		check     func(*testing.T)
	}{
		{"released memory", "it reads memory before and after the engine's process, and loses the peak", releasedMemory},
		{"pool", "it takes the cache that was set aside for what is needed", cachePool},
		{"overhead", "its framework overhead is the idle cache", overheadWithoutPool},
		{"foreign devices", "it sums all devices of the host", foreignDevices},
		{"other users", "it has others' memory in the engine's", otherUsers},
		{"KV heads", "its cache ignores that heads share keys and values", kvHeads},
		{"quantised weights", "it computes weights with 2 bytes whatever they have", quantisedWeights},
		{"activations of ranks", "its activations are of one rank", activationsOfRanks},
		{"card", "its total of an AMD card is always 206.0", realTotals},
		{"GB", "it mixes 1e9 bytes with GiB", unitsOfSizes},
		{"shares", "it splits an unknown total into 65, 20 and 12 %", noShares},
		{"impossible parts", "it accepts weights that exceed the total", impossibleParts},
		{"zero baseline", "a baseline of zero ends in a division by zero", zeroBaseline},
		{"labels", "it calls its guesses high", labels},
		{"no sampler", "without a reading it writes zeros", withoutReadings},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Log("theirs:", c.why)
			c.check(t)
		})
	}
}

// llama is a run of Llama-3.1-8B in the words of an era.
func llama(t *testing.T, era string, devices int) *memprofile.Document {
	t.Helper()
	s := memory.Subject{Model: model(t, "Llama-3.1-8B"), Asked: deploy.Config{TensorParallel: devices}, Vendor: "cuda"}
	return play(t, newMachine(t, era, devices), devices).Document(s, time.Unix(0, 0))
}

func releasedMemory(t *testing.T) {
	m := newMachine(t, "v1-2025-10", 1)
	d := play(t, m, 1).Document(memory.Subject{}, time.Unix(0, 0))
	if now := m.snapshots()[len(m.snapshots())-1].Readings[0]; *now.MemoryUsed != baseline {
		t.Fatalf("the script ends with %d bytes in use", *now.MemoryUsed)
	}
	want := int64(baseline + truthWeights + truthOther + truthCache + truthGraphs + truthActive)
	if bytes(d.Memory.TotalBytes) != want || !d.MemoryBreakdown.Consistent {
		t.Errorf("peak %d, want %d; faults %v", bytes(d.Memory.TotalBytes), want, d.MemoryBreakdown.Faults)
	}
}

func cachePool(t *testing.T) {
	d := llama(t, "v1-2025-10", 1)
	if kv := d.KVCache; bytes(kv.Bytes) != truthCache || bytes(kv.UsedBytes) != 8*1024*131072 || *kv.Tokens != 443840 {
		t.Errorf("%d bytes for %v tokens, %d in use: want both what was set aside and what the batch takes", bytes(kv.Bytes), kv.Tokens, bytes(kv.UsedBytes))
	}
}

func overheadWithoutPool(t *testing.T) {
	if b := llama(t, "v1-2025-06", 1).MemoryBreakdown; bytes(b.FrameworkOverheadBytes) != truthOther || b.ConfidenceLevels.Overhead != memprofile.Medium {
		t.Errorf("overhead of %d bytes, %s: want the %d that were in use before loading", bytes(b.FrameworkOverheadBytes), b.ConfidenceLevels.Overhead, truthOther)
	}
}

func foreignDevices(t *testing.T) {
	b := newBank(1e9, 2e9, 70e9, 70e9)
	e, err := memory.Open(t.Context(), memory.Options{
		Source: b, Every: time.Millisecond, Settle: time.Millisecond, Keep: func(r gpu.Reading) bool { return r.Index < 2 },
		Start: func(context.Context, func(engine.Mark)) (engine.Session, error) {
			return &session{
				run:   func(engine.Task) engine.Result { b.hold(11e9, 13e9, 79e9, 1e9); return engine.Result{} },
				close: func() error { b.hold(1e9, 2e9, 79e9, 79e9); return nil },
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, e)
	d := o.Document(memory.Subject{SystemDevices: 4}, time.Unix(0, 0))
	if bytes(d.Memory.TotalBytes) != 24e9 || bytes(d.MemoryBreakdown.NetIncreaseBytes) != 21e9 || *d.GPUInfo.NumGPUs != 2 || *d.GPUInfo.SystemGPUs != 4 {
		t.Errorf("peak %d, increase %d on %d of %d devices", bytes(d.Memory.TotalBytes), bytes(d.MemoryBreakdown.NetIncreaseBytes), *d.GPUInfo.NumGPUs, *d.GPUInfo.SystemGPUs)
	}
	if left, err := e.Close(t.Context()); left != 0 || err != nil {
		t.Errorf("%d bytes left, %v: other devices do not count", left, err)
	}
}

func otherUsers(t *testing.T) {
	m := newMachine(t, "v0-2024-12", 1)
	m.others = 3 << 30
	d := play(t, m, 1).Document(memory.Subject{}, time.Unix(0, 0))
	alone := llama(t, "v0-2024-12", 1)
	if b := d.MemoryBreakdown; bytes(b.BaselineBytes) != baseline+m.others || bytes(b.NetIncreaseBytes) != bytes(alone.MemoryBreakdown.NetIncreaseBytes) || bytes(b.FrameworkOverheadBytes) != bytes(alone.MemoryBreakdown.FrameworkOverheadBytes) {
		t.Errorf("baseline %d, increase %d, alone %d", bytes(b.BaselineBytes), bytes(b.NetIncreaseBytes), bytes(alone.MemoryBreakdown.NetIncreaseBytes))
	}
}

func kvHeads(t *testing.T) {
	task := engine.StepTask{BatchSize: 8, InputLen: 512, OutputLen: 512}
	e, err := memory.Expect(model(t, "Llama-3.1-8B"), deploy.Config{}, task)
	if err != nil || bytes(e.KVPerToken) != 131072 {
		t.Errorf("%d bytes a token, %v: 32 layers of 8 KV heads of 128, keys and values of 2 bytes, are 131072", bytes(e.KVPerToken), err)
	}
}

func quantisedWeights(t *testing.T) {
	task := engine.StepTask{BatchSize: 1, InputLen: 8, OutputLen: 8}
	plain, err := memory.Expect(model(t, "Llama-3.1-8B"), deploy.Config{DType: catalog.BF16}, task)
	if err != nil || bytes(plain.Weights) != 2*8_030_261_248 {
		t.Errorf("bf16: %d bytes, %v; its numbers have two", bytes(plain.Weights), err)
	}
	four, err := memory.Expect(model(t, "Llama-3.1-8B"), deploy.Config{Quantization: "awq"}, task)
	if err != nil || float64(bytes(four.Weights)) > 0.4*float64(bytes(plain.Weights)) {
		t.Errorf("awq: %d bytes, %v", bytes(four.Weights), err)
	}
}

func activationsOfRanks(t *testing.T) {
	one, two := llama(t, "v1-2026", 1), llama(t, "v1-2026-tp2", 2)
	if a, b := bytes(one.MemoryBreakdown.ActivationsBytes), bytes(two.MemoryBreakdown.ActivationsBytes); b != 2*a {
		t.Errorf("%d bytes on one device, %d on two that each state as much", a, b)
	}
	if w := bytes(two.MemoryBreakdown.ModelWeightsBytes); math.Abs(float64(w)/truthWeights-1) > 0.01 {
		t.Errorf("the weights of all ranks are %d bytes", w)
	}
}

func realTotals(t *testing.T) {
	d := llama(t, "v1-2025-10-tp2", 2)
	if bytes(d.GPUInfo.TotalMemoryBytes) != 170e9 || bytes(d.MemoryMeasurements.Peak.PerGPU[1].TotalBytes) != 85e9 {
		t.Errorf("%d bytes, of which %d on the second: the driver says 85e9 of each", bytes(d.GPUInfo.TotalMemoryBytes), bytes(d.MemoryMeasurements.Peak.PerGPU[1].TotalBytes))
	}
	o := &memory.Observation{Peak: moment(5)}
	if g := o.Document(memory.Subject{Vendor: "rocm"}, time.Unix(0, 0)).GPUInfo; g.TotalMemoryBytes != nil || g.TotalMemoryGB != nil {
		t.Errorf("a total of %v that nobody told", g.TotalMemoryBytes)
	}
}

func unitsOfSizes(t *testing.T) {
	b := llama(t, "v1-2025-10", 1).MemoryBreakdown
	if got := float64(*b.KVCacheGB) * 1e9; math.Abs(got-truthCache) > 1 || bytes(b.KVCacheBytes) != truthCache {
		t.Errorf("%g GB and %d bytes", float64(*b.KVCacheGB), bytes(b.KVCacheBytes))
	}
}

func noShares(t *testing.T) {
	o := &memory.Observation{Baseline: moment(1e9), Peak: moment(38e9)}
	for _, p := range o.Breakdown(memory.Expected{}).Parts {
		switch {
		case p.Name == memprofile.PartOverhead: // all that remains, and said to be
			if bytes(p.Bytes) != 37e9 || p.Confidence != memprofile.Low || p.Source != "remainder" {
				t.Errorf("overhead %+v", p)
			}
		case p.Bytes != nil || p.Note == "":
			t.Errorf("%s is %d from nothing (%q)", p.Name, bytes(p.Bytes), p.Note)
		}
	}
}

func impossibleParts(t *testing.T) {
	o := &memory.Observation{Baseline: moment(512e6), Peak: moment(512e6)}
	d := o.Document(memory.Subject{Stated: memory.Architecture{Parameters: 6.7e9}}, time.Unix(0, 0))
	if d.MemoryBreakdown.Consistent || !slices.ContainsFunc(d.MemoryBreakdown.Faults, func(f string) bool { return strings.HasPrefix(f, "parts exceed total: weights 13.40 GB") }) {
		t.Errorf("13.4 GB of weights in 0.5 GB: faults %q", d.MemoryBreakdown.Faults)
	}
}

func zeroBaseline(t *testing.T) {
	o := &memory.Observation{Baseline: moment(0), PostWarmup: moment(0), Peak: moment(0)}
	d := o.Document(memory.Subject{}, time.Unix(0, 0))
	if d.MemoryBreakdown.OverheadPercentage != nil || d.MemoryBreakdown.Consistent {
		t.Errorf("%v %% of nothing, consistent %v", d.MemoryBreakdown.OverheadPercentage, d.MemoryBreakdown.Consistent)
	}
	o.Peak = moment(4e9)
	if d := o.Document(memory.Subject{}, time.Unix(0, 0)); bytes(d.MemoryBreakdown.NetIncreaseBytes) != 4e9 || !d.MemoryBreakdown.Consistent {
		t.Errorf("increase %d, faults %q", bytes(d.MemoryBreakdown.NetIncreaseBytes), d.MemoryBreakdown.Faults)
	}
}

func labels(t *testing.T) {
	o := &memory.Observation{Baseline: moment(0), Peak: moment(40e9)}
	o.Result.Memory = []profile.Point{sized(profile.MemoryWeights, 13e9), sized(profile.MemoryKVCache, 20e9), sized(profile.MemoryActivation, 1e9)}
	d := o.Document(memory.Subject{Stated: memory.Architecture{Parameters: 6.7e9}}, time.Unix(0, 0))
	if l := d.MemoryBreakdown.ConfidenceLevels; l.Weights != memprofile.High || l.Overhead != memprofile.Low || l.Overall != memprofile.Low {
		t.Errorf("levels %+v: an overhead that only remains is a guess, and so is the whole", l)
	}
	if *d.BenchmarkParameters.WarmupIters != 0 || *d.BenchmarkParameters.Iters != 0 {
		t.Errorf("%d and %d runs, though none was asked for", *d.BenchmarkParameters.WarmupIters, *d.BenchmarkParameters.Iters)
	}
}

func withoutReadings(t *testing.T) {
	d := (&memory.Observation{}).Document(memory.Subject{}, time.Unix(0, 0))
	if d.Memory.TotalGB != nil || d.MemoryMeasurements.Peak != nil || d.MemoryBreakdown.BaselineGB != nil || d.MemoryBreakdown.OverheadPercentage != nil || d.GPUInfo.NumGPUs != nil {
		t.Errorf("memory %+v of no reading", d.Memory)
	}
}
