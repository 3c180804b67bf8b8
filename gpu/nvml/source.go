//go:build nvml && linux

package nvml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmprof/llmprof/gpu"
)

// Open loads the driver's library and looks for its devices. The library stays
// loaded until the program ends.
func Open() (gpu.Source, error) { return open("libnvidia-ml.so.1") }

// open loads a library.
func open(file string) (gpu.Source, error) {
	l, err := load(file)
	if err != nil {
		return nil, err
	}
	s := &source{library: l}
	if _, err := s.read(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	return s, nil
}

// source reads the devices of the library.
type source struct{ library *library }

// Name is the library.
func (*source) Name() string { return "nvml" }

// maxFailures is how many times in a row reading may fail.
const maxFailures = 5

// Follow reads all devices at every interval.
func (s *source) Follow(ctx context.Context, every time.Duration, take func(gpu.Snapshot)) error {
	if every <= 0 {
		every = 100 * time.Millisecond
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for failures := 0; ctx.Err() == nil; {
		readings, err := s.read()
		if err == nil {
			failures = 0
			take(gpu.Snapshot{Time: time.Now(), Readings: readings})
		} else {
			failures++
		}
		if failures == maxFailures {
			return fmt.Errorf("nvml: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return nil
}

// read reads all devices once.
func (s *source) read() ([]gpu.Reading, error) {
	l := s.library
	var count uint32
	if st := l.count(&count); st != success {
		return nil, fmt.Errorf("count devices: %w", l.fault(st))
	}
	if count == 0 {
		return nil, errors.New("the driver knows no device")
	}
	var out []gpu.Reading
	var last error
	for i := range count {
		var card device
		if st := l.byIndex(i, &card); st != success {
			last = fmt.Errorf("device %d: %w", i, l.fault(st))
			continue // one that has failed does not hide the rest
		}
		reading := s.reading(card, int(i), "")
		out = append(out, reading)
		out = append(out, s.instances(card, reading)...)
	}
	if len(out) == 0 {
		return nil, last
	}
	return out, nil
}

// instances reads the MIG instances of a card.
func (s *source) instances(card device, parent gpu.Reading) []gpu.Reading {
	l := s.library
	var most uint32
	if l.instances == nil || l.instance == nil || l.instances(card, &most) != success {
		return nil
	}
	var out []gpu.Reading
	for i := range most {
		var instance device
		if l.instance(card, i, &instance) == success {
			out = append(out, s.reading(instance, parent.Index, parent.UUID))
		}
	}
	return out
}

// reading reads a device. What the library cannot say is left out.
func (s *source) reading(d device, index int, parent string) gpu.Reading {
	l := s.library
	out := gpu.Reading{Index: index, Parent: parent, Name: text(d, l.name), UUID: text(d, l.uuid)}
	out.MemoryTotal, out.MemoryUsed = s.memory(d)
	out.ProcessMemory, out.Processes = s.processes(d)
	var u utilization
	if l.utilization(d, &u) == success {
		out.Utilization, out.MemoryUtilization = scaled(u.GPU, 0.01), scaled(u.Memory, 0.01)
	}
	var v uint32
	if l.power(d, &v) == success {
		out.Power = scaled(v, 1e-3)
	}
	if l.powerLimit != nil && l.powerLimit(d, &v) == success {
		out.PowerLimit = scaled(v, 1e-3)
	}
	if l.temperature(d, 0, &v) == success {
		out.Temperature = scaled(v, 1)
	}
	if l.clock(d, clockSM, &v) == success {
		out.Clock = scaled(v, 1e6)
	}
	if l.clock(d, clockMemory, &v) == success {
		out.MemoryClock = scaled(v, 1e6)
	}
	return out
}

// memory is the total and the used memory in bytes, without what the driver
// keeps for itself, as nvidia-smi counts it; with it where the driver is old.
func (s *source) memory(d device) (total, used *int64) {
	m2 := memory2{Version: memory2Version}
	if s.library.memory2 != nil && s.library.memory2(d, &m2) == success {
		return counted(m2.Total), counted(m2.Used)
	}
	var m memory
	if s.library.memory(d, &m) == success {
		return counted(m.Total), counted(m.Used)
	}
	return nil, nil
}

// maxProcesses bounds the processes of a device.
const maxProcesses = 1 << 12

// processes is what the compute processes of a device hold, in bytes, and how
// many there are.
func (s *source) processes(d device) (held *int64, count int) {
	if s.library.processes == nil {
		return nil, 0
	}
	for room := uint32(64); room <= maxProcesses; room *= 4 {
		found := room
		list := make([]process, room)
		st := s.library.processes(d, &found, &list[0])
		if st == insufficient {
			continue
		}
		if st != success || found > room {
			return nil, 0
		}
		var sum int64
		for _, p := range list[:found] {
			v := counted(p.Used)
			if p.Used == unknownMemory || v == nil {
				return nil, int(found)
			}
			sum += *v
		}
		return &sum, int(found)
	}
	return nil, 0
}

// text reads a text of a device, empty where there is none.
func text(d device, of func(device, *byte, uint32) status) string {
	buffer := make([]byte, maxText)
	if of(d, &buffer[0], maxText) != success {
		return ""
	}
	out, _, _ := bytes.Cut(buffer, []byte{0})
	return string(out)
}

// counted takes a count of bytes, nil for what can be none.
func counted(v uint64) *int64 {
	const most = 1 << 50
	if v > most {
		return nil
	}
	n := int64(v)
	return &n
}

// scaled takes a figure in another unit.
func scaled(v uint32, by float64) *float64 {
	f := float64(v) * by
	return &f
}
