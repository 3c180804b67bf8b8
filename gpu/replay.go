package gpu

import (
	"bufio"
	stdbytes "bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// recordedLine is a snapshot in a recording, one line of JSON.
type recordedLine struct {
	At      *float64         `json:"at_s"`
	Devices []recordedDevice `json:"devices"`
}

// recordedDevice is a Reading in a recording, field by field. What is not known
// is left out.
type recordedDevice struct {
	Index             int      `json:"index"`
	UUID              string   `json:"uuid,omitempty"`
	Name              string   `json:"name,omitempty"`
	Parent            string   `json:"parent,omitempty"`
	Time              string   `json:"time,omitempty"`
	MemoryTotal       *int64   `json:"memory_total_bytes,omitempty"`
	MemoryUsed        *int64   `json:"memory_used_bytes,omitempty"`
	ProcessMemory     *int64   `json:"process_bytes,omitempty"`
	ProcessPeak       *int64   `json:"process_peak_bytes,omitempty"`
	Processes         int      `json:"processes,omitempty"`
	Utilization       *float64 `json:"utilization,omitempty"`
	MemoryUtilization *float64 `json:"memory_utilization,omitempty"`
	Power             *float64 `json:"power_w,omitempty"`
	PowerLimit        *float64 `json:"power_limit_w,omitempty"`
	Clock             *float64 `json:"clock_hz,omitempty"`
	MemoryClock       *float64 `json:"memory_clock_hz,omitempty"`
	Temperature       *float64 `json:"temperature_c,omitempty"`
}

// check refuses figures that no device has.
func (d recordedDevice) check() error {
	for _, v := range []*int64{d.MemoryTotal, d.MemoryUsed, d.ProcessMemory, d.ProcessPeak} {
		if v != nil && (*v < 0 || *v > maxCount) {
			return fmt.Errorf("device %d: %d bytes of memory", d.Index, *v)
		}
	}
	for _, v := range []*float64{d.Utilization, d.MemoryUtilization, d.Power, d.PowerLimit, d.Clock, d.MemoryClock, d.Temperature} {
		if v != nil && (*v < 0 || *v > maxCount) {
			return fmt.Errorf("device %d: a figure of %g", d.Index, *v)
		}
	}
	if d.Processes < 0 {
		return fmt.Errorf("device %d: %d processes", d.Index, d.Processes)
	}
	return nil
}

// Writer saves snapshots for [Replay], as JSON Lines.
type Writer struct {
	out   io.Writer
	begin time.Time
}

// NewWriter returns a writer of a recording that began at begin. Every snapshot
// is one write, so that a crash loses at most the one in flight.
func NewWriter(w io.Writer, begin time.Time) *Writer { return &Writer{w, begin} }

// Write saves a snapshot; one from before the beginning is saved as of then.
func (w *Writer) Write(s Snapshot) error {
	at := max(0, s.Time.Sub(w.begin)).Seconds()
	line := recordedLine{At: &at}
	for _, r := range s.Readings {
		line.Devices = append(line.Devices, recordedDevice(r))
	}
	text, err := json.Marshal(line)
	if err == nil {
		_, err = w.out.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write a snapshot of devices: %w", err)
	}
	return nil
}

// Recorded is a source that plays a recording.
type Recorded struct {
	// Speed is how many seconds of the recording pass in one second, a factor;
	// 1 where it is 0.
	Speed float64
	steps []recordedLine
}

const (
	// maxRecording bounds a recording in bytes.
	maxRecording = 256 << 20
	// maxRecordingSeconds bounds its length, ten years.
	maxRecordingSeconds = 10 * 365 * 24 * 3600.0
)

// Replay reads a recording, one line for each snapshot:
//
//	{"at_s": 0.1, "devices": [{"index": 0, "name": "NVIDIA H200", "memory_used_bytes": 1073741824, "power_w": 98.5}]}
//
// Times are in seconds and never go back. A last line that is cut off is left
// out. As a source it plays the snapshots at their times, counted from when it
// is first followed, whatever the interval; then it ends.
func Replay(recorded io.Reader) (*Recorded, error) {
	lines := bufio.NewScanner(io.LimitReader(recorded, maxRecording))
	lines.Buffer(nil, maxLine)
	lines.Split(wholeLines)
	var out Recorded
	for number := 1; lines.Scan(); number++ {
		if len(stdbytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var line recordedLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("recording of devices: line %d: %w", number, err)
		}
		if err := out.add(line); err != nil {
			return nil, fmt.Errorf("recording of devices: line %d: %w", number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("recording of devices: %w", err)
	}
	if len(out.steps) == 0 {
		return nil, errors.New("recording of devices: it holds no snapshot")
	}
	return &out, nil
}

// add checks a line and takes it.
func (p *Recorded) add(line recordedLine) error {
	if line.At == nil {
		return errors.New("at_s is missing")
	}
	if *line.At < 0 || *line.At > maxRecordingSeconds {
		return fmt.Errorf("at_s is %g", *line.At)
	}
	if last := len(p.steps) - 1; last >= 0 && *line.At < *p.steps[last].At {
		return fmt.Errorf("at_s goes back from %g to %g", *p.steps[last].At, *line.At)
	}
	if len(line.Devices) > maxDevices {
		return fmt.Errorf("%d devices", len(line.Devices))
	}
	for _, d := range line.Devices {
		if err := d.check(); err != nil {
			return err
		}
	}
	p.steps = append(p.steps, line)
	return nil
}

// RecordedName is the name of a [Recorded].
const RecordedName = "recording"

// Name says that nothing is measured.
func (*Recorded) Name() string { return RecordedName }

// Follow plays the recording once. A snapshot's time is when it is due.
func (p *Recorded) Follow(ctx context.Context, _ time.Duration, take func(Snapshot)) error {
	speed := p.Speed
	if !(speed > 0) {
		speed = 1
	}
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for _, step := range p.steps {
		due := begin.Add(time.Duration(min(*step.At/speed, maxRecordingSeconds) * float64(time.Second)))
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		s := Snapshot{Time: due}
		for _, d := range step.Devices {
			s.Readings = append(s.Readings, Reading(d))
		}
		take(s)
	}
	return nil
}
