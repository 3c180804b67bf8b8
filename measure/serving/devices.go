package serving

import (
	"time"

	"github.com/llmprof/llmprof/gpu"
)

// Devices is what the devices did while runs of a phase were on.
type Devices struct {
	// Source is the sampler, Readings the number of its readings within the runs.
	Source   string
	Readings int
	// Memory is the most in use on all devices together, of a CPU what the
	// engine's processes hold, in bytes; nil where not known.
	Memory *int64
	// Utilization is the mean share of time in which a kernel ran, 0..1, Power
	// the mean of all devices together in watts; nil where not known.
	Utilization, Power *float64
}

// Devices are the readings of the phase's runs; nil without any.
func (p *Phase) Devices() *Devices {
	if p == nil {
		return nil
	}
	d := &Devices{Source: p.Timeline.Source}
	var memory int64
	var utilization, power mean
	held := false
	for _, s := range p.Timeline.Devices {
		most, device := int64(0), mean{}
		for _, sample := range s.Samples {
			if !p.during(p.Timeline.Begin.Add(sample.At)) {
				continue
			}
			d.Readings++
			if used := heldBy(sample); used != nil {
				most, held = max(most, *used), true
			}
			utilization.add(sample.Utilization)
			device.add(sample.Power)
		}
		memory += most
		if v := device.value(); v != nil {
			power.sum, power.n = power.sum+*v, 1
		}
	}
	if d.Readings == 0 {
		return nil
	}
	if held {
		d.Memory = &memory
	}
	d.Utilization, d.Power = utilization.value(), power.value()
	return d
}

// heldBy is the memory in use: the device's, or else the processes'.
func heldBy(s gpu.Sample) *int64 {
	if s.Used != nil {
		return s.Used
	}
	return s.Process
}

// during reports whether a run was on.
func (p *Phase) during(t time.Time) bool {
	for i := range p.Runs {
		if r := &p.Runs[i]; !t.Before(r.Started) && !t.After(r.Started.Add(r.Elapsed)) {
			return true
		}
	}
	return false
}

// mean is that of what was known.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v *float64) {
	if v != nil {
		m.sum, m.n = m.sum+*v, m.n+1
	}
}

func (m *mean) value() *float64 {
	if m.n == 0 {
		return nil
	}
	return new(m.sum / float64(m.n))
}
