package gpu

import (
	"slices"
	"sort"
	"time"
)

// Timeline is what a recording has of the devices over time.
type Timeline struct {
	// Source is the name of the source.
	Source string
	// Begin is when the recording began, Every the interval that was asked for.
	Begin   time.Time
	Every   time.Duration
	Devices []Series
}

// Series is one device over time.
type Series struct {
	// Index, UUID, Name and Parent are the device's, see [Reading].
	Index              int
	UUID, Name, Parent string
	// MemoryTotal is in bytes, nil where it is not known.
	MemoryTotal *int64
	// Samples are in the order of time.
	Samples []Sample
	// First and Last are when the first and the last reading were taken, since
	// the timeline's begin.
	First, Last time.Duration
}

// Sample is a reading of a device, or several merged into one: the larger
// memory, and the means of the rest.
type Sample struct {
	// At is when the memory was read, since the timeline's begin.
	At time.Duration
	// Used is the device's used memory, Process that of the followed
	// processes, Peak the sum of their high-water marks; all in bytes.
	Used, Process, Peak *int64
	// Utilization is the share of time in which a kernel ran, 0..1; Power is in
	// watts, Temperature in degrees Celsius, Clock in hertz.
	Utilization, Power, Temperature, Clock *float64
	// Count is how many readings are merged into this.
	Count int
}

// At returns the last sample at or before t, a time since the timeline's begin;
// ok is false where there is none.
func (s Series) At(t time.Duration) (sample Sample, ok bool) {
	after := sort.Search(len(s.Samples), func(i int) bool { return s.Samples[i].At > t })
	if after == 0 {
		return Sample{}, false
	}
	return s.Samples[after-1], true
}

// Between returns the samples within [from, to].
func (s Series) Between(from, to time.Duration) []Sample {
	first := sort.Search(len(s.Samples), func(i int) bool { return s.Samples[i].At >= from })
	after := sort.Search(len(s.Samples), func(i int) bool { return s.Samples[i].At > to })
	return s.Samples[first:max(first, after)]
}

// Max returns the sample with the most memory used within [from, to], the first
// of several; ok is false where none was read.
func (s Series) Max(from, to time.Duration) (sample Sample, ok bool) {
	return s.most(from, to, func(s Sample) *int64 { return s.Used })
}

// MaxProcess returns the sample in which the followed processes held most
// within [from, to], the first of several; ok is false where that is not known.
func (s Series) MaxProcess(from, to time.Duration) (sample Sample, ok bool) {
	return s.most(from, to, func(s Sample) *int64 { return s.Process })
}

func (s Series) most(from, to time.Duration, of func(Sample) *int64) (most Sample, ok bool) {
	for _, sample := range s.Between(from, to) {
		if v := of(sample); v != nil && (!ok || *v > *of(most)) {
			most, ok = sample, true
		}
	}
	return most, ok
}

// weighted is a mean in the making.
type weighted struct{ sum, weight float64 }

func (w *weighted) add(v *float64, count int) {
	if v != nil {
		w.sum += *v * float64(count)
		w.weight += float64(count)
	}
}

func (w *weighted) mean() *float64 {
	if w.weight == 0 {
		return nil
	}
	v := w.sum / w.weight
	return &v
}

// merge makes one sample of two neighbours. Its time is that of the larger
// memory.
func merge(a, b Sample) Sample {
	out := Sample{At: a.At, Count: a.Count + b.Count, Used: larger(a.Used, b.Used), Process: larger(a.Process, b.Process), Peak: larger(a.Peak, b.Peak)}
	if b.Used != nil && (a.Used == nil || *b.Used > *a.Used) {
		out.At = b.At
	}
	mean := func(x, y *float64) *float64 {
		var w weighted
		w.add(x, a.Count)
		w.add(y, b.Count)
		return w.mean()
	}
	out.Utilization, out.Power = mean(a.Utilization, b.Utilization), mean(a.Power, b.Power)
	out.Temperature, out.Clock = mean(a.Temperature, b.Temperature), mean(a.Clock, b.Clock)
	return out
}

// larger is the larger of two numbers, nil where neither is known.
func larger(a, b *int64) *int64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// Merged returns the series with at most so many samples, at least 1:
// neighbours are merged two by two as often as that takes. s is left as it is.
func (s Series) Merged(most int) Series {
	k := keeper{series: s}
	k.series.Samples = slices.Clone(s.Samples)
	for len(k.series.Samples) > max(most, 1) {
		k.halve()
	}
	return k.series
}

// keeper adds to a series and keeps it short.
type keeper struct {
	series Series
	most   int // samples
	per    int // readings in a sample
}

// add takes the next sample, of one reading.
func (k *keeper) add(s Sample) {
	if len(k.series.Samples) == 0 {
		k.series.First = s.At
	}
	k.series.Last = s.At
	if samples := k.series.Samples; len(samples) >= k.most && samples[len(samples)-1].Count >= k.per {
		k.halve()
	}
	samples := k.series.Samples
	if last := len(samples) - 1; last >= 0 && samples[last].Count < k.per {
		samples[last] = merge(samples[last], s)
		return
	}
	k.series.Samples = append(k.series.Samples, s)
}

// halve merges neighbours two by two.
func (k *keeper) halve() {
	samples := k.series.Samples
	half := samples[:0]
	for pair := range slices.Chunk(samples, 2) {
		merged := pair[0]
		if len(pair) > 1 {
			merged = merge(pair[0], pair[1])
		}
		half = append(half, merged)
	}
	clear(samples[len(half):])
	k.series.Samples, k.per = half, 2*k.per
}
