package memory_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/vllm"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/unit"
)

// The truth of the scripts in testdata/eras, in bytes.
const (
	truthWeights  = 16_060_522_496 // of all devices
	truthOther    = 850_000_000    // these three of each device
	truthActive   = 1_350_000_000
	truthGraphs   = 668_000_000
	truthWarm     = 400_000_000      // activations that stay after the warm-up
	truthCache    = 443_840 * 131072 // of one device alone
	truthCacheTP2 = 1_010_224 * 131072
)

// era is what can be found out from the log of one.
type era struct {
	name, why string
	devices   int
	tokens    int
	// graphs says that graphs were captured; silent are parts that nobody
	// tells.
	graphs bool
	silent []string
}

func eras() []era {
	return []era{
		{"v0-2024-11", "one line of results: activations only within the peak of torch", 1, 443840, false, []string{memprofile.PartActivations}},
		{"v0-2024-12", "a table", 1, 443840, false, nil},
		{"v0-2025-03", "sentences", 1, 443840, true, nil},
		{"v0-2025-03-tp2", "the first rank has no name", 2, 1010224, true, nil},
		{"v1-2025-06", "activations are not told, and other memory is what was in use before loading", 1, 443840, true, []string{memprofile.PartActivations}},
		{"v1-2025-10", "one line sums up", 1, 443840, true, nil},
		{"v1-2025-10-tp2", "every rank tells its own", 2, 1010224, true, nil},
		{"v1-2026", "weights and other memory in one, cache and concurrency in one line", 1, 443840, true, nil},
		{"v1-2026-tp2", "the first rank tells weights and cache for all", 2, 1010224, true, nil},
	}
}

// truth is the script's figure of a part over all devices.
func (e era) truth(part string) int64 {
	n := int64(e.devices)
	switch part {
	case memprofile.PartWeights:
		return truthWeights
	case memprofile.PartKVCache:
		if n > 1 {
			return truthCacheTP2
		}
		return truthCache
	case memprofile.PartActivations:
		return n * truthActive
	case memprofile.PartCUDAGraphs:
		if !e.graphs {
			return 0
		}
		return n * truthGraphs
	default:
		return n * truthOther
	}
}

// steady is what the engine holds between two runs.
func (e era) steady() int64 {
	sum := int64(e.devices) * baseline
	for _, part := range []string{memprofile.PartWeights, memprofile.PartKVCache, memprofile.PartCUDAGraphs, memprofile.PartOverhead} {
		sum += e.truth(part)
	}
	return sum
}

// play runs an era's script under an experiment.
func play(t *testing.T, m *machine, devices int) *memory.Observation {
	t.Helper()
	setup := engine.Setup{
		Model: "example-org/example-8b", OwnLimits: true, CUDAGraphs: true, LoadWeights: true,
		Deploy: deploy.Config{TensorParallel: devices, MaxModelLen: 32768},
	}
	e, err := memory.Open(t.Context(), memory.Options{
		Source: m.bank, Every: time.Millisecond, Settle: 5 * time.Millisecond, FreeWithin: time.Minute,
		Start: func(ctx context.Context, marked func(engine.Mark)) (engine.Session, error) {
			setup.Marked = func(mark engine.Mark) {
				marked(mark)
				m.hear(mark.Name)
			}
			return vllm.BenchLatency{Whole: true}.Start(ctx, m, setup)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := e.Run(t.Context(), engine.StepTask{BatchSize: 8, InputLen: 512, OutputLen: 512}, 2, 3)
	if err != nil || o.Result.Failure != "" {
		t.Fatalf("run: %v, failure %q", err, o.Result.Failure)
	}
	if left, err := e.Close(t.Context()); left != 0 || err != nil {
		t.Errorf("close: %d bytes left, %v", left, err)
	}
	return o
}

// TestEras plays a run of vLLM in the words of every era: the moments are the
// script's to the byte, the parts within 1 %, and nothing else is left over.
func TestEras(t *testing.T) {
	worst := 0.0
	for _, e := range eras() {
		t.Run(e.name, func(t *testing.T) {
			m := newMachine(t, e.name, e.devices)
			o := play(t, m, e.devices)
			steady, n := e.steady(), int64(e.devices)
			for _, c := range []struct {
				name   string
				moment *memory.Moment
				want   int64
			}{
				{"baseline", o.Baseline, n * baseline},
				{"started", o.Started, n * (baseline + truthOther)},
				{"loaded", o.Loaded, n*(baseline+truthOther) + truthWeights},
				{"post-warm-up", o.PostWarmup, steady + n*truthWarm},
				{"peak", o.Peak, steady + n*truthActive},
			} {
				if c.moment == nil {
					t.Errorf("%s: %s was not found", e.why, c.name)
				} else if got := c.moment.Total(); got != c.want || len(c.moment.Devices) != e.devices {
					t.Errorf("%s: %s of %d bytes on %d devices, the script has %d on %d", e.why, c.name, got, len(c.moment.Devices), c.want, e.devices)
				}
			}
			complete(t, m, o)
			d := o.Document(memory.Subject{Name: "example-org/example-8b", Asked: deploy.Config{TensorParallel: e.devices}, Vendor: "cuda"}, time.Unix(1.8e9, 0))
			worst = max(worst, e.parts(t, d))
			if d.KVCache.Tokens == nil || *d.KVCache.Tokens != e.tokens {
				t.Errorf("%s: KV cache %+v, want %d tokens", e.why, d.KVCache, e.tokens)
			}
		})
	}
	t.Logf("largest deviation of a part: %.3f %%", 100*worst)
}

// TestSmallBatch: what vLLM states of its largest step is more than a small batch
// has resident; the parts still make the peak, and the file says what was stated.
func TestSmallBatch(t *testing.T) {
	o := play(t, newMachine(t, "v1-2025-10-small", 1), 1)
	d := o.Document(memory.Subject{Name: "example-org/example-8b", Vendor: "cuda"}, time.Unix(1.8e9, 0))
	b := d.MemoryBreakdown
	if !b.Consistent || *b.UnexplainedBytes != 0 {
		t.Errorf("faults %v, %s unexplained", b.Faults, *b.UnexplainedBytes)
	}
	const small = 50_000_000
	p := b.Part(memprofile.PartActivations)
	if off := int64(*p.Bytes) - small; max(off, -off) > 40e6 || p.Confidence != memprofile.Medium || p.Source != "remainder" {
		t.Errorf("activations %+v of %d bytes, the script has %d", p, *p.Bytes, small)
	}
	if !strings.Contains(string(p.Note), "the engine states 1.26 GiB for the largest step") {
		t.Errorf("note %q", p.Note)
	}
	for name, want := range map[string]int64{memprofile.PartWeights: truthWeights, memprofile.PartKVCache: truthCache, memprofile.PartCUDAGraphs: truthGraphs, memprofile.PartOverhead: truthOther} {
		if p := b.Part(name); math.Abs(float64(*p.Bytes)/float64(want)-1) > 0.01 || p.Confidence != memprofile.High {
			t.Errorf("%s: %+v, the script has %d bytes", name, p, want)
		}
	}
}

// parts holds a document's parts to the script; worst is the largest share by
// which one is off.
func (e era) parts(t *testing.T, d *memprofile.Document) (worst float64) {
	t.Helper()
	hidden := int64(0)
	silent := map[string]bool{memprofile.PartCUDAGraphs: !e.graphs}
	for _, name := range e.silent {
		silent[name], hidden = true, hidden+e.truth(name)
	}
	for _, name := range []string{memprofile.PartWeights, memprofile.PartKVCache, memprofile.PartActivations, memprofile.PartCUDAGraphs, memprofile.PartOverhead} {
		p := d.MemoryBreakdown.Part(name)
		switch {
		case p == nil:
			t.Errorf("%s: there is no part %s", e.why, name)
		case silent[name]:
			if p.Bytes != nil || p.Note == "" {
				t.Errorf("%s: %s is %v, though nobody tells it (%q)", e.why, name, *p.Bytes, p.Note)
			}
		case p.Bytes == nil:
			t.Errorf("%s: %s is not known: %s", e.why, name, p.Note)
		default:
			off := float64(*p.Bytes)/float64(e.truth(name)) - 1
			worst = max(worst, math.Abs(off))
			t.Logf("%s %s, %+.3f %% (%s)", name, *p.Bytes, 100*off, p.Confidence)
			if math.Abs(off) > 0.01 {
				t.Errorf("%s: %s is %s, the script has %s", e.why, name, *p.Bytes, unit.Bytes(e.truth(name)))
			}
		}
	}
	b := d.MemoryBreakdown
	rest := int64(*b.NetIncreaseBytes)
	for _, p := range b.Parts {
		if p.Bytes != nil {
			rest -= int64(*p.Bytes)
		}
	}
	if off := math.Abs(float64(rest - hidden)); off > 0.01*float64(*b.TotalMeasuredBytes) {
		t.Errorf("%s: %s unexplained, the script leaves %s", e.why, unit.Bytes(rest), unit.Bytes(hidden))
	}
	rounded := slices.ContainsFunc(b.Notes, func(note string) bool { return strings.Contains(note, "rounds its figures") })
	if b.UnexplainedBytes == nil || int64(*b.UnexplainedBytes) != rest {
		t.Errorf("%s: unexplained is %v, want %s", e.why, b.UnexplainedBytes, unit.Bytes(rest))
	}
	if (rest < 0) != rounded {
		t.Errorf("%s: %s unexplained, and the notes say %v", e.why, unit.Bytes(rest), b.Notes)
	}
	if !b.Consistent {
		t.Errorf("%s: faults %v", e.why, b.Faults)
	}
	return worst
}

// complete holds the timeline to be all that the source has handed on, from
// before the engine's start on: no reading lost, none added.
func complete(t *testing.T, m *machine, o *memory.Observation) {
	t.Helper()
	all := m.snapshots()
	for i, series := range o.Timeline.Devices {
		if series.Samples[0].At >= o.Baseline.Devices[i].At && len(series.Samples) < 2 {
			t.Errorf("device %d: nothing was read before the engine", i)
		}
		for k, s := range series.Samples {
			want := all[k].Readings[i]
			if *s.Used != *want.MemoryUsed || s.Count != 1 || s.At != max(0, all[k].Time.Sub(o.Timeline.Begin)) {
				t.Fatalf("device %d: sample %d is %+v, read was %d bytes", i, k, s, *want.MemoryUsed)
			}
		}
		if last := len(series.Samples) - 1; *series.Samples[last].Used != baseline {
			t.Errorf("device %d: the timeline ends at %d bytes, before the release", i, *series.Samples[last].Used)
		}
	}
}

var _ gpu.Source = (*bank)(nil)
