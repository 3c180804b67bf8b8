package memory

import (
	"slices"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
)

// Observation is what was seen of one task.
type Observation struct {
	// Facts is what the engine said of itself, Result what it answered.
	Facts  engine.Facts
	Result engine.Result
	// Task was run Warmup times before the Runs that count.
	Task         engine.StepTask
	Warmup, Runs int
	// Held is the number of tasks that the engine had run before.
	Held int
	// Marks are the moments of the engine's start and of this task.
	Marks []engine.Mark
	// Source names the sampler; empty where memory was not sampled.
	Source string
	// Timeline holds every reading since before the engine's start.
	Timeline gpu.Timeline
	// Baseline, PostWarmup and Peak are nil where they were not read.
	Baseline, PostWarmup, Peak *Moment
	// Started and Loaded are the begin and the end of loading the weights; nil
	// where the engine does not tell them.
	Started, Loaded *Moment

	ruler                                ruler
	engineBegan, engineReady, begin, end time.Time
}

// Moment is the memory at one time. Of a peak, each device has a time of its
// own.
type Moment struct {
	// At is the time since the begin of the timeline; of a peak, when the
	// fullest device was fullest.
	At time.Duration
	// Marker is what told of the moment.
	Marker string
	// Devices are in the order of the timeline.
	Devices []Device
}

// Device is one device at one time.
type Device struct {
	Index      int
	UUID, Name string
	// Bytes is what counts as used: the device's memory in use, or on a CPU the
	// resident memory of the engine's processes.
	Bytes int64
	// Total is what the device has, Process what the engine's processes hold, in
	// bytes; nil where not known.
	Total, Process *int64
	// At is the time of the reading since the begin of the timeline.
	At time.Duration
}

// Total is the memory of all devices in bytes.
func (m *Moment) Total() int64 {
	var sum int64
	for _, d := range m.Devices {
		sum += d.Bytes
	}
	return sum
}

// ruler says which figure of a reading counts as used.
type ruler struct{ byProcess bool }

func (r ruler) used(device, process *int64) *int64 {
	if r.byProcess {
		return process
	}
	return device
}

// reading is a sample that has the figure.
type reading struct {
	bytes int64
	gpu.Sample
}

func (r ruler) reading(s gpu.Sample, ok bool) (reading, bool) {
	v := r.used(s.Used, s.Process)
	if !ok || v == nil {
		return reading{}, false
	}
	return reading{*v, s}, true
}

// at is the last reading of a device at or before a moment.
func (r ruler) at(t *gpu.Timeline, device int, moment time.Time) (reading, bool) {
	return r.reading(t.Devices[device].At(moment.Sub(t.Begin)))
}

// largest is the fullest reading of a device within any of the spans.
func (r ruler) largest(t *gpu.Timeline, device int, spans []span) (best reading, found bool) {
	series := t.Devices[device]
	most := series.Max
	if r.byProcess {
		most = series.MaxProcess
	}
	for _, p := range spans {
		if one, ok := r.reading(most(p.from.Sub(t.Begin), p.to.Sub(t.Begin))); ok && (!found || one.bytes > best.bytes) {
			best, found = one, true
		}
	}
	return best, found
}

// span is a stretch of time.
type span struct{ from, to time.Time }

// find looks the three moments up.
func (o *Observation) find() {
	t := &o.Timeline
	if len(t.Devices) == 0 {
		return
	}
	o.Baseline = o.moment("before the engine was started", func(device int) (reading, bool) { return o.ruler.at(t, device, o.engineBegan) })
	o.PostWarmup = o.marked(engine.MarkWarm, engine.MarkReady)
	o.Started, o.Loaded = o.marked(engine.MarkStarted), o.marked(engine.MarkLoaded)
	// What other tasks took between the start and this task is not its own. The
	// last readings of the task come a moment after its end.
	spans := []span{{o.engineBegan, o.engineReady}, {o.begin, o.end.Add(t.Every)}}
	o.Peak = o.moment("largest reading while the engine ran", func(device int) (reading, bool) { return o.ruler.largest(t, device, spans) })
}

// marked reads the devices at the last mark of the first name of which there is
// one; nil where there is none. An engine that does not tell when it is warm is
// so after its start.
func (o *Observation) marked(names ...string) *Moment {
	for _, name := range names {
		for _, m := range slices.Backward(o.Marks) {
			if m.Name == name {
				return o.moment(m.Source, func(device int) (reading, bool) { return o.ruler.at(&o.Timeline, device, m.At) })
			}
		}
	}
	return nil
}

// moment reads every device; nil where one was not read.
func (o *Observation) moment(marker string, read func(device int) (reading, bool)) *Moment {
	m := &Moment{Marker: marker}
	fullest := int64(-1)
	for i := range o.Timeline.Devices {
		series := &o.Timeline.Devices[i]
		r, ok := read(i)
		if !ok {
			return nil
		}
		m.Devices = append(m.Devices, Device{
			Index: series.Index, UUID: series.UUID, Name: series.Name, Bytes: r.bytes, Total: series.MemoryTotal, Process: r.Process, At: r.At,
		})
		if r.bytes > fullest {
			fullest, m.At = r.bytes, r.At
		}
	}
	return m
}
