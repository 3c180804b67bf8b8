package gpu

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// NvidiaSMI reads the devices of a host through one nvidia-smi that runs all
// the time. A second one, run about every second, says how much the compute
// processes of a device hold; until it has listed a process, which it does not
// in some containers, that is not known. MIG instances are further readings,
// likewise about every second.
//
// Where the program's clock can be read, it says when a snapshot was taken, so
// that output that arrives late or in bunches is not bunched itself.
func NvidiaSMI(h Host) Source { return nvidiaSMI{h} }

type nvidiaSMI struct{ host Host }

// Name is the program.
func (nvidiaSMI) Name() string { return "nvidia-smi" }

// Follow reads the program's lines as they come.
func (s nvidiaSMI) Follow(ctx context.Context, every time.Duration, take func(Snapshot)) error {
	ctx, cancel := context.WithCancel(ctx)
	listing, err := ask(ctx, s.host, parseNvidiaList, "nvidia-smi", "-L")
	if errors.Is(err, exec.ErrNotFound) {
		cancel()
		return fmt.Errorf("nvidia-smi: %w", err)
	}
	side := nvidiaSide{host: s.host, listing: listing}
	side.readInstances(ctx) // so that they are in the first snapshot
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()

	cycle := nvidiaCycle{take: func(snapshot Snapshot) {
		side.addTo(&snapshot)
		take(snapshot)
	}}
	argv := append([]string{"nvidia-smi"}, NvidiaQuery()...)
	argv = append(argv, "-lms", strconv.FormatInt(max(1, interval(every).Milliseconds()), 10))
	err = eachLine(ctx, s.host, func(line string) error {
		if cycle.line(line, time.Now()) {
			beside.Go(func() { side.follow(ctx, sideInterval(every)) })
		}
		return nil
	}, argv...)
	cycle.stop()
	if err == nil && cycle.snapshots == 0 {
		err = errors.New("it lists no device")
	}
	if err != nil && cycle.snapshots == 0 && cycle.foreign != "" {
		err = fmt.Errorf("%w; it says %q", err, cycle.foreign)
	}
	return ended(ctx, "nvidia-smi", err)
}

// nvidiaCycle collects the lines of one round over the devices, which come in
// the order of their numbers.
type nvidiaCycle struct {
	take      func(Snapshot)
	table     nvidiaTable
	open      []Reading
	when      time.Time // of the last line in open
	last      string    // the device that ended the cycle before
	clock     toolClock
	snapshots int
	foreign   string // the first line that was not understood
}

// line takes a line of output; header is true once, where the columns are
// named. Lines that are not understood are passed over.
func (c *nvidiaCycle) line(text string, now time.Time) (header bool) {
	if c.table == nil {
		table, ok := nvidiaHeader(text)
		if ok {
			c.table = table
		} else if c.foreign == "" {
			c.foreign = clip(text)
		}
		return ok
	}
	reading, ok, err := c.table.reading(text)
	if err != nil || !ok || reading.Index < 0 && reading.UUID == "" {
		if c.foreign == "" {
			c.foreign = clip(text)
		}
		return false
	}
	if n := len(c.open); n > 0 && reading.Index <= c.open[n-1].Index {
		c.end()
	}
	c.open, c.when = append(c.open, reading), c.clock.at(reading.Time, now)
	if deviceKey(reading) == c.last {
		c.end()
	}
	return false
}

// end hands the open cycle on.
func (c *nvidiaCycle) end() {
	if len(c.open) == 0 {
		return
	}
	c.last = deviceKey(c.open[len(c.open)-1])
	c.take(Snapshot{Time: c.when, Readings: c.open})
	c.open = nil
	c.snapshots++
}

// stop hands the open cycle on unless the program ended amid it: a snapshot
// that lacks devices would look as if they had gone.
func (c *nvidiaCycle) stop() {
	if c.snapshots == 0 {
		c.end()
	}
}

// clip shortens a foreign line for an error.
func clip(text string) string { return text[:min(len(text), 200)] }

// deviceKey tells devices apart.
func deviceKey(r Reading) string {
	if r.UUID != "" {
		return r.UUID
	}
	return strconv.Itoa(r.Index)
}

// toolClock turns the time stamps of a tool, of whatever zone, into times of
// this machine: the line that took the least time to come sets the difference.
type toolClock struct {
	difference time.Duration
	set        bool
}

const (
	// maxAge is how late a line can be before the tool's clock is taken to
	// have been set.
	maxAge = time.Minute
	// maxDifference bounds by how much two clocks can differ.
	maxDifference = 50 * 365 * 24 * time.Hour
)

// at is when a line was written that came now.
func (c *toolClock) at(stamp string, now time.Time) time.Time {
	written, err := time.Parse("2006/01/02 15:04:05.000", stamp)
	if err != nil {
		return now
	}
	difference := now.Sub(written)
	if difference.Abs() > maxDifference {
		return now
	}
	if !c.set || difference < c.difference || difference-c.difference > maxAge {
		c.difference, c.set = difference, true
	}
	return now.Add(c.difference - difference)
}

// sideInterval is how often processes and instances are asked for: each time
// starts a program.
func sideInterval(every time.Duration) time.Duration { return max(time.Second, interval(every)) }

// nvidiaSide is what is read beside the devices.
type nvidiaSide struct {
	host    Host
	listing nvidiaListing // the instances at the beginning

	mu        sync.Mutex
	listed    bool // the driver has listed a process
	processes map[string]held
	instances []Reading // not yet handed on
}

// held is what the processes of a device hold: bytes, nil where one of them is
// not known.
type held struct {
	bytes *int64
	count int
}

// follow asks until ctx ends, or it makes no sense any more.
func (s *nvidiaSide) follow(ctx context.Context, every time.Duration) {
	_ = tick(ctx, every, failing(func() error {
		processes, err := ask(ctx, s.host, parseNvidiaApps, "nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,nounits")
		if err == nil {
			s.set(func() { s.processes, s.listed = processes, s.listed || len(processes) > 0 })
		}
		if s.readInstances(ctx) {
			return nil
		}
		return err
	}))
	s.set(func() { s.listed = false }) // what was listed last is out of date
}

// readInstances reads the MIG instances; ok is false where there are none, or
// they cannot be read.
func (s *nvidiaSide) readInstances(ctx context.Context) (ok bool) {
	if len(s.listing) == 0 {
		return false
	}
	instances, err := ask(ctx, s.host, s.listing.instances, "nvidia-smi", "-q", "-x")
	if err != nil {
		return false
	}
	s.set(func() { s.instances = instances })
	return true
}

func (s *nvidiaSide) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// addTo adds what is known to a snapshot.
func (s *nvidiaSide) addTo(snapshot *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot.Readings = append(snapshot.Readings, s.instances...)
	s.instances = nil
	if !s.listed {
		return
	}
	for i := range snapshot.Readings {
		r := &snapshot.Readings[i]
		found, ok := s.processes[r.UUID]
		if !ok {
			found.bytes = new(int64) // others were listed, of this device none
		}
		r.ProcessMemory, r.Processes = found.bytes, found.count
	}
}

// add counts a process that holds bytes of a device, nil for unknown.
func (h held) add(bytes *int64) held {
	h.count++
	switch {
	case bytes == nil || h.bytes == nil && h.count > 1:
		h.bytes = nil
	case h.count == 1:
		h.bytes = bytes
	default:
		sum := *h.bytes + *bytes
		h.bytes = &sum
	}
	return h
}
