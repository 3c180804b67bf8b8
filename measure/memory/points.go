package memory

import (
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/profile"
)

// series are the samples of a device as lists of equal length; nil where a
// figure was never read. A sample that lacks it has nil in its place.
type series struct {
	at                                     []float64  // seconds
	used, process                          []*int64   // bytes
	utilization, power, temperature, clock []*float64 // 0..1, W, °C, Hz
}

// lists takes samples apart.
func lists(samples []gpu.Sample) series {
	var l series
	for _, s := range samples {
		l.at = append(l.at, s.At.Seconds())
	}
	l.used = column(samples, func(s gpu.Sample) *int64 { return s.Used })
	l.process = column(samples, func(s gpu.Sample) *int64 { return s.Process })
	l.utilization = column(samples, func(s gpu.Sample) *float64 { return s.Utilization })
	l.power = column(samples, func(s gpu.Sample) *float64 { return s.Power })
	l.temperature = column(samples, func(s gpu.Sample) *float64 { return s.Temperature })
	l.clock = column(samples, func(s gpu.Sample) *float64 { return s.Clock })
	return l
}

// column is one figure of all samples; nil where none has it.
func column[T any](samples []gpu.Sample, of func(gpu.Sample) *T) []*T {
	out := make([]*T, len(samples))
	some := false
	for i, s := range samples {
		out[i] = of(s)
		some = some || out[i] != nil
	}
	if !some {
		return nil
	}
	return out
}

// maxStretch bounds the readings of one telemetry point.
const maxStretch = 3000

// Points are the observation as points of a profile: what was timed, what the
// engine states, the three moments, and every reading of the timeline.
func (o *Observation) Points() []profile.Point {
	var points []profile.Point
	points = append(points, o.Result.Points...)
	points = append(points, o.Facts.Memory...)
	points = append(points, o.Result.Memory...)
	for _, m := range []struct {
		phase  string
		moment *Moment
	}{{profile.PhaseBaseline, o.Baseline}, {profile.PhasePostWarmup, o.PostWarmup}, {profile.PhasePeak, o.Peak}} {
		if m.moment == nil {
			continue
		}
		part := profile.MemoryUsed
		if o.ruler.byProcess {
			part = profile.MemoryProcess
		}
		for _, d := range m.moment.Devices {
			points = append(points, profile.Point{
				Kind: profile.KindMemory, Origin: m.moment.Marker,
				Memory: &profile.Memory{Part: part, Bytes: d.Bytes, Phase: m.phase, At: d.At.Seconds(), Device: &d.Index},
			})
		}
	}
	for i := range o.Timeline.Devices {
		s := &o.Timeline.Devices[i]
		for rest := s.Samples; len(rest) > 0; {
			n := min(len(rest), maxStretch)
			points = append(points, profile.Point{Kind: profile.KindTelemetry, Telemetry: telemetry(o.Timeline.Source, s, rest[:n])})
			rest = rest[n:]
		}
	}
	return points
}

func telemetry(source string, s *gpu.Series, samples []gpu.Sample) *profile.Telemetry {
	l := lists(samples)
	t := &profile.Telemetry{
		Source: source, Device: s.Index, UUID: s.UUID, Name: s.Name, At: l.at, Used: l.used, Process: l.process,
		Utilization: l.utilization, Power: l.power, Temperature: l.temperature, Clock: l.clock,
	}
	if s.MemoryTotal != nil {
		t.MemoryTotal = *s.MemoryTotal
	}
	return t
}
