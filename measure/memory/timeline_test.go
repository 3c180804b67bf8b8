package memory_test

import (
	stdbytes "bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/profile"
)

// TestTimelineOfLaterTask: the engine's start stands in the first timeline
// only, each later one has the readings before it and those of its own task.
func TestTimelineOfLaterTask(t *testing.T) {
	b := newBank(5)
	e := scripted(t, b, memory.Options{}, []act{{used: 40}, {used: 41}, {mark: engine.MarkReady}},
		[]act{{used: 60}, {used: 61}},
		[]act{{used: 70}, {used: 71}},
	)
	has := func(o *memory.Observation, used int64) bool {
		return slices.ContainsFunc(o.Timeline.Devices[0].Samples, func(s gpu.Sample) bool { return *s.Used == used })
	}
	first, second := run(t, e), run(t, e)
	if _, err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, used := range []int64{5, 40, 41, 60, 61} {
		if !has(first, used) {
			t.Errorf("the first timeline lacks the reading of %d", used)
		}
	}
	for used, want := range map[int64]bool{5: true, 40: false, 41: false, 60: false, 70: true, 71: true} {
		if has(second, used) != want {
			t.Errorf("the second timeline has the reading of %d: %v", used, !want)
		}
	}
	if at(second.PostWarmup) != 41 || at(second.Peak) != 71 || at(second.Baseline) != 5 {
		t.Errorf("warm %d, peak %d, baseline %d: the moments are those of all readings", at(second.PostWarmup), at(second.Peak), at(second.Baseline))
	}
	for _, o := range []*memory.Observation{first, second} {
		paced(t, o)
	}
}

// paced holds interval and rate to the samples that a document lists.
func paced(t *testing.T, o *memory.Observation) {
	t.Helper()
	line := o.Document(memory.Subject{}, time.Unix(0, 0)).MemoryTimeline
	times := line.Devices[0].At
	var gaps []float64 // s
	for i := range times[1:] {
		gaps = append(gaps, times[i+1]-times[i])
	}
	slices.Sort(gaps)
	if o.Held > 0 { // the start that is left out
		gaps = gaps[:len(gaps)-1]
	}
	sum := 0.0
	for _, g := range gaps {
		sum += g
	}
	if want := float64(len(gaps)) / sum; math.Abs(*line.RateHz/want-1) > 1e-9 {
		t.Errorf("%g samples a second, the list has %g", *line.RateHz, want)
	}
	if *line.Interval < gaps[0] || *line.Interval > gaps[len(gaps)-1] {
		t.Errorf("an interval of %g s, the list has %g to %g", *line.Interval, gaps[0], gaps[len(gaps)-1])
	}
}

// TestLongSession: a timeline has a bound, whatever the number of devices, and
// what it says of its pace is true of what it lists.
func TestLongSession(t *testing.T) {
	var text strings.Builder
	const readings, devices = 12000, 8
	for i := range readings {
		used := 100
		if i == 7777 {
			used = 900
		}
		var at []string
		for d := range devices {
			at = append(at, fmt.Sprintf(`{"index": %d, "memory_used_bytes": %d}`, d, used))
		}
		fmt.Fprintf(&text, `{"at_s": %g, "devices": [%s]}`+"\n", 0.05*float64(i), strings.Join(at, ", "))
	}
	text.WriteString(`{"at_s": 3600, "devices": []}` + "\n")
	recorded, err := gpu.Replay(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	recorded.Speed = 10000
	played := make(chan struct{})
	n := 0
	e, err := memory.Open(t.Context(), memory.Options{
		Source: recorded, Settle: time.Millisecond, Every: time.Millisecond,
		Each: func(gpu.Snapshot) {
			if n++; n == readings {
				close(played)
			}
		},
		Start: func(context.Context, func(engine.Mark)) (engine.Session, error) {
			return &session{run: func(engine.Task) engine.Result { <-played; return engine.Result{} }}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := e.Run(t.Context(), engine.StepTask{BatchSize: 1, InputLen: 8, OutputLen: 8}, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, d := range o.Timeline.Devices {
		total += len(d.Samples)
		if !slices.ContainsFunc(d.Samples, func(s gpu.Sample) bool { return *s.Used == 900 }) {
			t.Error("the peak was merged away")
		}
	}
	if total > 36000 || total < 10000 {
		t.Errorf("%d samples of %d readings", total, readings*devices)
	}
	paced(t, o)
	var file stdbytes.Buffer
	if err := memprofile.Write(&file, o.Document(memory.Subject{}, time.Unix(0, 0))); err != nil || file.Len() > 8<<20 {
		t.Errorf("a file of %d bytes, %v", file.Len(), err)
	}
	if _, err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHighWaterMarks: what the kernel knows of the processes is told as an
// upper bound, where it belongs to the task.
func TestHighWaterMarks(t *testing.T) {
	b := newBank(7000)
	b.process, b.water = []int64{0}, []int64{0}
	set := func(process, water int64) {
		b.mu.Lock()
		b.water = []int64{water}
		b.mu.Unlock()
		b.holds(process)
	}
	tasks := [][2]int64{{500, 650}, {400, 650}, {600, 900}}
	e, err := memory.Open(t.Context(), memory.Options{
		Source: b, ByProcess: true, Every: time.Millisecond, Settle: 3 * time.Millisecond,
		Start: func(context.Context, func(engine.Mark)) (engine.Session, error) {
			set(300, 450)
			return &session{
				run: func(task engine.Task) engine.Result {
					set(tasks[task.ID-1][0], tasks[task.ID-1][1])
					return engine.Result{}
				},
				close: func() error { set(0, 0); return nil },
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{650, -1, 900} {
		o := run(t, e)
		d := o.Document(memory.Subject{}, time.Unix(0, 0))
		if got := bytes(d.MemoryMeasurements.Peak.PerGPU[0].ProcessPeakBytes); got != want {
			t.Errorf("task %d: at most %d bytes, want %d", i, got, want)
		}
		if noted := strings.Contains(strings.Join(d.MemoryBreakdown.Notes, "\n"), "an upper bound: what each of them has held"); noted != (want > 0) {
			t.Errorf("task %d: notes %q", i, d.MemoryBreakdown.Notes)
		}
	}
	if _, err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHost: a CPU is no GPU, and the host's memory not that of one.
func TestHost(t *testing.T) {
	o := byProcess(t, nil, 2000)
	g := o.Document(memory.Subject{Vendor: "cpu", SystemDevices: 1}, time.Unix(0, 0)).GPUInfo
	if g.GPUType != "cpu" || *g.NumGPUs != 0 || g.SystemGPUs != nil || g.TotalMemoryBytes != nil || g.TotalMemoryGB != nil || bytes(g.HostMemoryBytes) != 85e9 {
		t.Errorf("%+v", g)
	}
	if m := o.Document(memory.Subject{}, time.Unix(0, 0)).MemoryMeasurements; *m.Peak.NumGPUs != 0 || len(m.Peak.PerGPU) != 1 {
		t.Errorf("%+v", m.Peak)
	}
}

// byProcess is a task of an engine on a CPU that holds so many bytes at most.
func byProcess(t *testing.T, said []profile.Point, peak int64) *memory.Observation {
	t.Helper()
	b := newBank(7000)
	b.process = []int64{0}
	e, err := memory.Open(t.Context(), memory.Options{
		Source: b, ByProcess: true, Every: time.Millisecond, Settle: 3 * time.Millisecond,
		Start: func(context.Context, func(engine.Mark)) (engine.Session, error) {
			s := &session{
				run:   func(engine.Task) engine.Result { b.holds(peak); return engine.Result{Memory: said} },
				close: func() error { b.holds(0); return nil },
			}
			s.facts.Engine = "vllm"
			return s, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, e)
	if _, err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return o
}

// TestUntouched: what vLLM sets aside of the host's memory and does not touch is
// no fault but a note.
func TestUntouched(t *testing.T) {
	weights := sized(profile.MemoryWeights, 2e9)
	pool := says(profile.Memory{Part: profile.MemoryKVCache, Bytes: 500e9, Tokens: 5e6})
	for _, c := range []struct {
		why        string
		said       []profile.Point
		part, pool int64
		confidence memprofile.Confidence
	}{
		{"the cache in use stands for it", []profile.Point{weights, pool, says(profile.Memory{Part: profile.MemoryKVUsed, Tokens: 100})}, 10e6, 500e9, memprofile.High},
		{"where that is not known, nothing does", []profile.Point{weights, pool}, -1, 500e9, ""},
	} {
		d := byProcess(t, c.said, 3e9).Document(memory.Subject{Vendor: "cpu"}, time.Unix(0, 0))
		b := d.MemoryBreakdown
		p := b.Part(memprofile.PartKVCache)
		if bytes(p.Bytes) != c.part || p.Confidence != c.confidence || bytes(d.KVCache.Bytes) != c.pool || !strings.Contains(string(p.Note), "are set aside in the host's memory") {
			t.Errorf("%s: %+v, set aside %d", c.why, p, bytes(d.KVCache.Bytes))
		}
		if !b.Consistent || bytes(b.UnexplainedBytes) != 0 {
			t.Errorf("%s: faults %q, unexplained %d", c.why, b.Faults, bytes(b.UnexplainedBytes))
		}
		if d.MemoryTimeline.ProcessScope != "the engine's processes" {
			t.Errorf("%s: process_bytes of %q", c.why, d.MemoryTimeline.ProcessScope)
		}
	}
}
