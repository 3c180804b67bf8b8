package profile

import (
	"errors"
	"fmt"
	"math"
)

// Telemetry is a stretch of readings of one device. Its lists have one entry a
// reading, nil where it lacks the figure, or none at all where none has it.
type Telemetry struct {
	// Source is the sampler: "nvml", "nvidia-smi", "proc", …
	Source string `json:"source,omitempty"`
	// Device is the driver's number of the device; UUID and Name are empty
	// where it gives none.
	Device int    `json:"device"`
	UUID   string `json:"uuid,omitempty"`
	Name   string `json:"name,omitempty"`
	// MemoryTotal is the device's memory in bytes; 0 where not known.
	MemoryTotal int64 `json:"memory_total_bytes,omitempty"`
	// At are the times of the readings in seconds from the start of the
	// recording, not falling.
	At []float64 `json:"at_s"`
	// Used is the memory in use on the device in bytes, Process that of the
	// engine's processes.
	Used    []*int64 `json:"used_bytes,omitempty"`
	Process []*int64 `json:"process_bytes,omitempty"`
	// Utilization is the share of time in which a kernel ran, 0..1.
	Utilization []*float64 `json:"utilization,omitempty"`
	// Power is in watts, Temperature in degrees Celsius, Clock in hertz (1/s).
	Power       []*float64 `json:"power_w,omitempty"`
	Temperature []*float64 `json:"temperature_c,omitempty"`
	Clock       []*float64 `json:"clock_hz,omitempty"`
}

func (t *Telemetry) validate() error {
	if len(t.At) == 0 {
		return errors.New("holds no reading")
	}
	if t.Device < -1 || t.MemoryTotal < 0 {
		return fmt.Errorf("device %d, memory_total_bytes %d: out of range", t.Device, t.MemoryTotal)
	}
	last := math.Inf(-1)
	for i, at := range t.At {
		if math.IsNaN(at) || math.IsInf(at, 0) || at < last {
			return fmt.Errorf("at_s[%d] is %g after %g: want times that do not fall", i, at, last)
		}
		last = at
	}
	for _, list := range []struct {
		key    string
		values []*int64
	}{{"used_bytes", t.Used}, {"process_bytes", t.Process}} {
		if len(list.values) != 0 && len(list.values) != len(t.At) {
			return fmt.Errorf("%s has %d entries, at_s %d", list.key, len(list.values), len(t.At))
		}
		for i, v := range list.values {
			if v != nil && *v < 0 {
				return fmt.Errorf("%s[%d] is %d: want bytes", list.key, i, *v)
			}
		}
	}
	for _, list := range []struct {
		key    string
		values []*float64
	}{{"utilization", t.Utilization}, {"power_w", t.Power}, {"temperature_c", t.Temperature}, {"clock_hz", t.Clock}} {
		if len(list.values) != 0 && len(list.values) != len(t.At) {
			return fmt.Errorf("%s has %d entries, at_s %d", list.key, len(list.values), len(t.At))
		}
		for i, v := range list.values {
			if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
				return fmt.Errorf("%s[%d] is %g: want a number", list.key, i, *v)
			}
		}
	}
	return nil
}
