package gpu

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// RecordOptions is how to record; the zero value will do.
type RecordOptions struct {
	// Every is the interval between two snapshots, 100 ms by default.
	Every time.Duration
	// MaxSamples bounds the samples that are kept of each device, 36000 by
	// default, an hour at the default interval. When they are full, neighbours
	// are merged two by two. It is at least 2.
	MaxSamples int
	// Keep picks the devices to record; nil stands for all.
	Keep func(Reading) bool
	// Each is called with every snapshot of the picked devices, one at a time;
	// nil for no call. A [Writer] can save them.
	Each func(Snapshot)
}

// Recording keeps what a source says, in the background.
type Recording struct {
	source  Source
	options RecordOptions
	cancel  context.CancelFunc
	first   chan struct{} // closed at the first snapshot
	ended   chan struct{} // closed at the end

	mu      sync.Mutex
	begin   time.Time
	keepers []*keeper
	places  map[string]int // of the keepers by device
	latest  Snapshot
	some    bool // there is a latest
	err     error
}

// Record starts to record a source, until Stop or the end of ctx.
func Record(ctx context.Context, src Source, o RecordOptions) *Recording {
	o.Every = interval(o.Every)
	if o.MaxSamples <= 0 {
		o.MaxSamples = 36000
	}
	o.MaxSamples = max(2, o.MaxSamples)
	ctx, cancel := context.WithCancel(ctx)
	r := &Recording{
		source: src, options: o, cancel: cancel, first: make(chan struct{}), ended: make(chan struct{}),
		begin: time.Now(), places: make(map[string]int),
	}
	go func() {
		defer close(r.ended)
		defer cancel()
		err := src.Follow(ctx, o.Every, r.take)
		if ctx.Err() != nil {
			err = nil // it was stopped
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = err
	}()
	return r
}

// take keeps a snapshot.
func (r *Recording) take(s Snapshot) {
	if r.options.Keep != nil {
		s.Readings = slices.DeleteFunc(slices.Clone(s.Readings), func(d Reading) bool { return !r.options.Keep(d) })
	}
	if len(s.Readings) == 0 {
		return
	}
	r.keep(s)
	if r.options.Each != nil {
		r.options.Each(s)
	}
}

// keep adds a snapshot to the series.
func (r *Recording) keep(s Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := max(0, s.Time.Sub(r.begin))
	for _, d := range s.Readings {
		k := r.keeper(d)
		if k == nil {
			continue
		}
		k.add(Sample{
			At: max(at, k.series.Last), Used: d.MemoryUsed, Process: d.ProcessMemory, Peak: d.ProcessPeak,
			Utilization: d.Utilization, Power: d.Power, Temperature: d.Temperature, Clock: d.Clock, Count: 1,
		})
	}
	r.latest.Time = s.Time
	for _, d := range s.Readings {
		same := func(old Reading) bool { return deviceKey(old) == deviceKey(d) }
		if i := slices.IndexFunc(r.latest.Readings, same); i >= 0 {
			r.latest.Readings[i] = d
		} else if len(r.latest.Readings) < maxDevices {
			r.latest.Readings = append(r.latest.Readings, d)
		}
	}
	if !r.some {
		r.some = true
		close(r.first)
	}
}

// keeper finds the series of a device, or begins it.
func (r *Recording) keeper(d Reading) *keeper {
	place, ok := r.places[deviceKey(d)]
	if !ok {
		if len(r.keepers) == maxDevices {
			return nil
		}
		place = len(r.keepers)
		r.places[deviceKey(d)] = place
		r.keepers = append(r.keepers, &keeper{
			series: Series{Index: d.Index, UUID: d.UUID, Name: d.Name, Parent: d.Parent}, most: r.options.MaxSamples, per: 1,
		})
	}
	k := r.keepers[place]
	k.series.MemoryTotal = larger(k.series.MemoryTotal, d.MemoryTotal)
	return k
}

// First waits for the first snapshot. It returns the source's error where that
// comes first.
func (r *Recording) First(ctx context.Context) (Snapshot, error) {
	select {
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	case <-r.first:
	case <-r.ended:
	}
	if s, ok := r.Latest(); ok {
		return s, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return Snapshot{}, r.err
	}
	return Snapshot{}, errors.New(r.source.Name() + ": the recording ended before the first reading of a device")
}

// Latest returns the last reading of each device, and the time of the last
// snapshot; ok is false where there is none yet.
func (r *Recording) Latest() (s Snapshot, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Snapshot{Time: r.latest.Time, Readings: slices.Clone(r.latest.Readings)}, r.some
}

// Timeline returns a copy of what there is so far.
func (r *Recording) Timeline() Timeline {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Timeline{Source: r.source.Name(), Begin: r.begin, Every: r.options.Every}
	for _, k := range r.keepers {
		series := k.series
		series.Samples = slices.Clone(series.Samples)
		out.Devices = append(out.Devices, series)
	}
	return out
}

// Stop ends the recording and returns all of it. The error is the source's,
// where reading failed before.
func (r *Recording) Stop() (Timeline, error) {
	r.cancel()
	<-r.ended
	r.mu.Lock()
	err := r.err
	r.mu.Unlock()
	return r.Timeline(), err
}
