package memory

import (
	"slices"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/stat"
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
	// Timeline holds the readings since before the engine's start; of a task
	// after others those before the start and those of its own. Beyond 36,000
	// of all devices neighbours are merged.
	Timeline gpu.Timeline
	// Baseline, PostWarmup and Peak are nil where they were not read.
	Baseline, PostWarmup, Peak *Moment
	// Started and Loaded are the begin and the end of loading the weights; nil
	// where the engine does not tell them.
	Started, Loaded *Moment

	ruler                                ruler
	engineBegan, engineReady, begin, end time.Time
	deaf                                 time.Time // when the sampler ended by itself; zero where it did not
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
	// ProcessPeak is, of a peak, the sum of the most that each of the processes
	// has held by the kernel's account, in bytes; nil where not known, and where
	// it was reached before the task.
	ProcessPeak *int64
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
	if o.unheard(o.end) {
		return // it may have held more since
	}
	// What other tasks took between the start and this task is not its own. The
	// last readings of the task come a moment after its end.
	spans := []span{{o.engineBegan, o.engineReady}, {o.begin, o.end.Add(t.Every)}}
	o.Peak = o.moment("largest reading while the engine ran", func(device int) (reading, bool) { return o.ruler.largest(t, device, spans) })
	if o.Peak == nil {
		return
	}
	for i := range o.Peak.Devices {
		o.Peak.Devices[i].ProcessPeak = o.highWater(i, spans)
	}
}

// highWater is the largest sum of the processes' high-water marks on a device
// within the spans. Marks never fall: of a task after others they tell nothing
// unless they have risen in it.
func (o *Observation) highWater(device int, spans []span) *int64 {
	t := &o.Timeline
	series := t.Devices[device]
	var before, highest *int64
	if o.Held > 0 {
		spans = spans[1:]
		if s, ok := series.At(o.begin.Sub(t.Begin)); ok {
			before = s.Peak
		}
	}
	for _, p := range spans {
		for _, s := range series.Between(p.from.Sub(t.Begin), p.to.Sub(t.Begin)) {
			if s.Peak != nil && (highest == nil || *s.Peak > *highest) {
				highest = s.Peak
			}
		}
	}
	if highest != nil && before != nil && *highest <= *before {
		return nil
	}
	return highest
}

// maxSamples bounds the samples of a timeline, those of all devices together.
const maxSamples = 36000

// trim leaves of the timeline what belongs to the task, within bounds.
func (o *Observation) trim() {
	t := &o.Timeline
	for i := range t.Devices {
		s := &t.Devices[i]
		if o.Held > 0 {
			before, own := s.Between(0, o.engineBegan.Sub(t.Begin)), s.Between(o.begin.Sub(t.Begin), s.Last)
			s.Samples = slices.Concat(before, own)
		}
		*s = s.Merged(maxSamples / len(t.Devices))
	}
}

// pace is the middle time between two neighbours of the samples in the
// timeline, in seconds, and how many of them there are in a second on the device
// with the fewest; ok is false for fewer than two. The start that the timeline
// of a later task lacks is no time between two.
func (o *Observation) pace() (interval, perSecond float64, ok bool) {
	var all []float64 // s
	for _, s := range o.Timeline.Devices {
		n, sum := 0, 0.0
		for k := 1; k < len(s.Samples); k++ {
			from, to := s.Samples[k-1].At, s.Samples[k].At
			start := o.engineBegan.Sub(o.Timeline.Begin)
			if o.Held > 0 && from <= start && to > start {
				continue
			}
			gap := (to - from).Seconds()
			all, n, sum = append(all, gap), n+1, sum+gap
		}
		if rate := float64(n) / sum; sum > 0 && (!ok || rate < perSecond) {
			perSecond, ok = rate, true
		}
	}
	if !ok {
		return 0, 0, false
	}
	return stat.Median(all), perSecond, true
}

// marked reads the devices at the last mark of the first name of which there is
// one; nil where there is none. An engine that does not tell when it is warm is
// so after its start.
func (o *Observation) marked(names ...string) *Moment {
	for _, name := range names {
		for _, m := range slices.Backward(o.Marks) {
			if m.Name == name && !o.unheard(m.At) {
				return o.moment(m.Source, func(device int) (reading, bool) { return o.ruler.at(&o.Timeline, device, m.At) })
			}
		}
	}
	return nil
}

// unheard reports whether the sampler had ended by a time.
func (o *Observation) unheard(at time.Time) bool { return !o.deaf.IsZero() && at.After(o.deaf) }

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
