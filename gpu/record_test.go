package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/gpu"
)

// script is a source that says what it is told, at once.
type script struct {
	readings []gpu.Reading
	step     time.Duration
	err      error
	stay     bool // until ctx ends
}

func (script) Name() string { return "script" }

func (s script) Follow(ctx context.Context, _ time.Duration, take func(gpu.Snapshot)) error {
	begin := time.Now()
	for i, r := range s.readings {
		take(gpu.Snapshot{Time: begin.Add(time.Duration(i) * s.step), Readings: []gpu.Reading{r}})
	}
	if s.stay {
		<-ctx.Done()
	}
	return s.err
}

func of[T any](v T) *T { return &v }

// recorded records all that a source says.
func recorded(t testing.TB, source gpu.Source, o gpu.RecordOptions) (gpu.Timeline, error) {
	t.Helper()
	ended := make(chan struct{})
	recording := gpu.Record(context.Background(), told{source, ended}, o)
	<-ended
	return recording.Stop()
}

// told says when the source has ended.
type told struct {
	gpu.Source

	ended chan struct{}
}

func (s told) Follow(ctx context.Context, every time.Duration, take func(gpu.Snapshot)) error {
	defer close(s.ended)
	return s.Source.Follow(ctx, every, take)
}

func TestRecordBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		used := rapid.SliceOfN(rapid.Int64Range(0, 1000), 1, 300).Draw(rt, "used")
		most := rapid.IntRange(2, 20).Draw(rt, "most")
		var readings []gpu.Reading
		var power float64
		for i, v := range used {
			r := gpu.Reading{MemoryUsed: of(v), Power: of(float64(i)), ProcessMemory: of(1000 - v)}
			if rapid.Bool().Draw(rt, "unknown") {
				r.ProcessMemory = nil
			}
			readings = append(readings, r)
			power += float64(i)
		}
		timeline, err := recorded(t, script{readings: readings, step: time.Millisecond}, gpu.RecordOptions{MaxSamples: most})
		if err != nil || len(timeline.Devices) != 1 {
			rt.Fatal(timeline, err)
		}
		device := timeline.Devices[0]
		if len(device.Samples) > most {
			rt.Fatalf("%d samples, want at most %d", len(device.Samples), most)
		}
		count := 0
		for i, s := range device.Samples {
			count += s.Count
			if i > 0 && s.At < device.Samples[i-1].At {
				rt.Fatalf("sample %d at %v, the one before at %v", i, s.At, device.Samples[i-1].At)
			}
			if s.At < device.First || s.At > device.Last {
				rt.Fatalf("sample %d at %v, not within %v to %v", i, s.At, device.First, device.Last)
			}
		}
		if count != len(used) {
			rt.Fatalf("%d readings in the samples, want %d", count, len(used))
		}
		top, ok := device.Max(0, device.Last)
		if !ok || *top.Used != slices.Max(used) {
			rt.Fatalf("peak %+v, want %d", top, slices.Max(used))
		}
		var process *int64
		for _, r := range readings {
			if r.ProcessMemory != nil && (process == nil || *r.ProcessMemory > *process) {
				process = r.ProcessMemory
			}
		}
		topProcess, ok := device.MaxProcess(0, device.Last)
		if ok != (process != nil) || ok && *topProcess.Process != *process {
			rt.Fatalf("the processes' peak is %+v, %v, want %v", topProcess, ok, process)
		}
		most = rapid.IntRange(0, len(device.Samples)+1).Draw(rt, "merged")
		merged, before := device.Merged(most), slices.Clone(device.Samples)
		if len(merged.Samples) > max(most, 1) || !slices.Equal(device.Samples, before) {
			rt.Fatalf("%d samples, want at most %d of its own", len(merged.Samples), most)
		}
		whole := merged.Merged(1).Samples[0] // what all of them come to
		want := power / float64(len(used))
		if whole.Count != len(used) || *whole.Used != slices.Max(used) || *whole.Power < want-1e-9 || *whole.Power > want+1e-9 {
			rt.Fatalf("merged into %+v, want %g W", whole, want)
		}
	})
}

func TestSeries(t *testing.T) {
	ms := time.Millisecond
	s := gpu.Series{Samples: []gpu.Sample{
		{At: 10 * ms, Used: of(int64(5)), Count: 2, Power: of(100.0)},
		{At: 20 * ms, Count: 1},
		{At: 30 * ms, Used: of(int64(9)), Process: of(int64(4)), Count: 1, Power: of(400.0)},
		{At: 40 * ms, Used: of(int64(9)), Process: of(int64(4)), Count: 1},
	}}
	for _, c := range []struct {
		why      string
		t        time.Duration
		want     time.Duration
		notThere bool
	}{
		{"before the first", 9 * ms, 0, true},
		{"at the first", 10 * ms, 10 * ms, false},
		{"between", 29 * ms, 20 * ms, false},
		{"after the last", time.Hour, 40 * ms, false},
	} {
		if got, ok := s.At(c.t); got.At != c.want || ok == c.notThere {
			t.Errorf("%s: got %v, %v", c.why, got.At, ok)
		}
	}
	if top, ok := s.Max(0, 20*ms); !ok || *top.Used != 5 {
		t.Errorf("the most early on is %+v", top)
	}
	if top, ok := s.Max(0, time.Hour); !ok || top.At != 30*ms {
		t.Errorf("the most is at %v, want the first of two", top.At)
	}
	for _, bad := range [][2]time.Duration{{11 * ms, 29 * ms}, {50 * ms, 60 * ms}, {30 * ms, 10 * ms}} {
		if top, ok := s.Max(bad[0], bad[1]); ok {
			t.Errorf("the most of %v is %+v, but nothing was read", bad, top)
		}
	}
}

func TestRecording(t *testing.T) {
	full := []gpu.Reading{{UUID: "GPU-a", MemoryUsed: of(int64(1)), MemoryTotal: of(int64(10))}, {UUID: "GPU-b"}, {UUID: "GPU-a", MemoryUsed: of(int64(2))}}
	var each int
	recording := gpu.Record(t.Context(), script{readings: full, step: time.Second, stay: true}, gpu.RecordOptions{
		Keep: func(r gpu.Reading) bool { return r.UUID == "GPU-a" }, Each: func(gpu.Snapshot) { each++ },
	})
	if first, err := recording.First(t.Context()); err != nil || len(first.Readings) != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	timeline, err := recording.Stop()
	if err != nil || timeline.Source != "script" || timeline.Every != 100*time.Millisecond || len(timeline.Devices) != 1 || each != 2 {
		t.Fatalf("%+v, %v, %d", timeline, err, each)
	}
	if d := timeline.Devices[0]; len(d.Samples) != 2 || *d.MemoryTotal != 10 || *d.Samples[1].Used != 2 {
		t.Errorf("%+v", d)
	}
	if again, err := recording.Stop(); err != nil || len(again.Devices) != 1 {
		t.Error("a recording cannot be stopped twice:", err)
	}

	broken := errors.New("fell off the bus")
	recording = gpu.Record(t.Context(), script{err: broken}, gpu.RecordOptions{})
	if _, err := recording.First(t.Context()); !errors.Is(err, broken) {
		t.Errorf("error %v, want the source's", err)
	}
	if _, err := recording.Stop(); !errors.Is(err, broken) {
		t.Errorf("error %v, want the source's", err)
	}
	if _, ok := recording.Latest(); ok {
		t.Error("there is a latest snapshot of none")
	}
	recording = gpu.Record(t.Context(), script{}, gpu.RecordOptions{})
	if _, err := recording.First(t.Context()); err == nil || !strings.Contains(err.Error(), "before the first reading") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	recording = gpu.Record(t.Context(), script{stay: true}, gpu.RecordOptions{})
	if _, err := recording.First(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, err := recording.Stop(); err != nil {
		t.Errorf("a recording that was stopped fails: %v", err)
	}
}

func TestReplay(t *testing.T) {
	begin := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	full := gpu.Reading{
		Index: 3, UUID: "MIG-a", Name: "NVIDIA H200", Parent: "GPU-a", Time: "2026/01/05 10:15:00.001",
		MemoryTotal: of(int64(143771 << 20)), MemoryUsed: of(int64(0)), ProcessMemory: of(int64(1)), ProcessPeak: of(int64(2)), Processes: 4,
		Utilization: of(0.5), MemoryUtilization: of(0.25), Power: of(98.5), PowerLimit: of(700.0), Clock: of(1.98e9), MemoryClock: of(2.6e9), Temperature: of(41.0),
	}
	var text strings.Builder
	out := gpu.NewWriter(&text, begin)
	written := []gpu.Snapshot{
		{Time: begin, Readings: []gpu.Reading{full, {Index: 1}}},
		{Time: begin.Add(1500 * time.Millisecond)},
		{Time: begin.Add(3 * time.Second), Readings: []gpu.Reading{{Index: -1}}},
	}
	for _, s := range written {
		if err := out.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	source, err := gpu.Replay(strings.NewReader(text.String() + `{"at_s": 4, "devi`)) // as a crash leaves it
	if err != nil {
		t.Fatal(err)
	}
	source.Speed = 1000
	got, err := collect(t, source, 100)
	if err != nil || len(got) != len(written) {
		t.Fatalf("%d snapshots, %v", len(got), err)
	}
	for i := range got {
		if len(got[i].Readings) != len(written[i].Readings) {
			t.Errorf("snapshot %d: %+v", i, got[i])
		}
		if want := written[i].Time.Sub(begin) / 1000; got[i].Time.Sub(got[0].Time) != want {
			t.Errorf("snapshot %d is %v after the first, want %v", i, got[i].Time.Sub(got[0].Time), want)
		}
	}
	var again strings.Builder
	out = gpu.NewWriter(&again, got[0].Time)
	for i := range got {
		if err := out.Write(gpu.Snapshot{Time: got[0].Time.Add(written[i].Time.Sub(begin)), Readings: got[i].Readings}); err != nil {
			t.Fatal(err)
		}
	}
	if again.String() != text.String() {
		t.Errorf("read and written again:\n%s\nwas:\n%s", again.String(), text.String())
	}
}

func TestReplayBroken(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "no snapshot"},
		{"\n\n", "no snapshot"},
		{"{\n", "line 1: unexpected end"},
		{`{"devices": []}` + "\n", "line 1: at_s is missing"},
		{`{"at_s": -1}` + "\n", "at_s is -1"},
		{`{"at_s": 1e300}` + "\n", "at_s is 1e+300"},
		{`{"at_s": 2}` + "\n" + `{"at_s": 1}` + "\n", "line 2: at_s goes back from 2 to 1"},
		{`{"at_s": 1, "devices": [{"memory_used_bytes": -4}]}` + "\n", "device 0: -4 bytes"},
		{`{"at_s": 1, "devices": [{"power_w": -4}]}` + "\n", "a figure of -4"},
		{`{"at_s": 1, "devices": [{"memory_used_bytes": "4"}]}` + "\n", "memory_used_bytes"},
		{`{"at_s": 1, "devices": [` + strings.Repeat(`{},`, 2000) + `{}]}` + "\n", "2001 devices"},
		{strings.Repeat(" ", 2<<20) + "\n", "too long"},
	} {
		if _, err := gpu.Replay(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: error %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzReplay(f *testing.F) {
	f.Add(`{"at_s": 0.1, "devices": [{"index": 0, "memory_used_bytes": 1073741824, "power_w": 98.5}]}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		source, err := gpu.Replay(strings.NewReader(text))
		if err != nil {
			return
		}
		source.Speed = 1e12
		timeline, err := recorded(t, source, gpu.RecordOptions{MaxSamples: 4})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range timeline.Devices {
			if len(d.Samples) > 4 {
				t.Fatal(len(d.Samples))
			}
		}
	})
}

func TestDetect(t *testing.T) {
	programs(t, map[string]string{
		"nvidia-smi": `case "$*" in *-lms*) echo 'index, name, memory.total [MiB]'; while echo '0, NVIDIA H200, 143771'; do sleep 0.01; done ;; *) exit 1 ;; esac`,
		"rocm-smi":   `echo 'no driver' >&2; exit 2`,
	})
	found := map[string]gpu.Found{}
	for _, f := range gpu.Detect(t.Context(), elsewhere{gpu.Local()}) {
		found[f.Name] = f
		if f.Usable != (f.Why == "") || f.Usable != (len(f.Devices) > 0) {
			t.Errorf("%+v", f)
		}
	}
	if f := found["nvidia-smi"]; !f.Usable || f.Devices[0].Name != "NVIDIA H200" {
		t.Errorf("%+v", f)
	}
	if f := found["rocm-smi"]; f.Usable || !strings.Contains(f.Why, "no driver") {
		t.Errorf("%+v", f)
	}
	if f := found["amd-smi"]; f.Usable || !strings.Contains(f.Why, "not found") {
		t.Errorf("%+v", f)
	}
	for _, name := range []string{"amdgpu sysfs", "proc"} {
		if _, ok := found[name]; !ok {
			t.Errorf("%s was not tried", name)
		}
	}
}

func ExampleRecord() {
	source, err := gpu.Replay(strings.NewReader(`{"at_s": 0.00, "devices": [{"index": 0, "name": "NVIDIA H200", "memory_used_bytes": 500000000}]}
{"at_s": 0.01, "devices": [{"index": 0, "name": "NVIDIA H200", "memory_used_bytes": 90000000000}]}
{"at_s": 0.02, "devices": [{"index": 0, "name": "NVIDIA H200", "memory_used_bytes": 80000000000}]}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	count := 0
	recording := gpu.Record(context.Background(), source, gpu.RecordOptions{Each: func(gpu.Snapshot) {
		if count++; count == 3 {
			close(done)
		}
	}})
	<-done // here an engine would run
	timeline, err := recording.Stop()
	for _, device := range timeline.Devices {
		peak, _ := device.Max(0, device.Last)
		fmt.Println(device.Name, *peak.Used, err)
	}
	// Output: NVIDIA H200 90000000000 <nil>
}
