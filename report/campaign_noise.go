package report

import (
	"math"
	"math/bits"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/llmprof/llmprof/format/memprofile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// SideKeys is one side of a comparison, in ms or bytes as the key above it
// names.
type SideKeys struct {
	Value float64 `json:"value"` // ms or bytes
	// Noise is what the value may be off by, in ms or bytes; null where that is
	// not known.
	Noise *float64 `json:"noise"`
	// Samples counts the runs behind a mean.
	Samples int `json:"samples,omitempty"`
	// spread is the standard error of a mean, in the unit of Value.
	spread float64
}

// ChangeKeys is a figure of two campaigns, and what follows from it.
type ChangeKeys struct {
	A SideKeys `json:"a"`
	B SideKeys `json:"b"`
	// ChangePct is the change from A to B in percent of A. LowPct and HighPct
	// bound it, in percent; null where a side does not know its noise.
	ChangePct float64  `json:"change_pct"`
	LowPct    *float64 `json:"low_pct"`
	HighPct   *float64 `json:"high_pct"`
	// Verdict is same, unclear, faster, slower, smaller or larger.
	Verdict string `json:"verdict"`
}

const (
	// confidence is the share of outcomes that the intervals cover, 0..1.
	confidence = 0.95
	// equal is the change in percent up to which two values count as the same.
	equal = 1.0

	verdictSame    = "same"
	verdictUnclear = "unclear"
	verdictFaster  = "faster"
	verdictSlower  = "slower"
	verdictSmaller = "smaller"
	verdictLarger  = "larger"
)

// judge tells a change by its interval.
func (c *ChangeKeys) judge(low, high float64, less, more string) {
	low, high = 100*low/c.A.Value, 100*high/c.A.Value
	c.LowPct, c.HighPct = &low, &high
	switch {
	case low >= -equal && high <= equal:
		c.Verdict = verdictSame
	case low > 0:
		c.Verdict = more
	case high < 0:
		c.Verdict = less
	}
}

// changeOf compares two values; nil where A is no base for percent.
func changeOf(a, b SideKeys) *ChangeKeys {
	if !(a.Value > 0) || math.IsInf(a.Value, 0) || math.IsNaN(b.Value) || math.IsInf(b.Value, 0) {
		return nil
	}
	return &ChangeKeys{A: a, B: b, ChangePct: 100 * (b.Value - a.Value) / a.Value, Verdict: verdictUnclear}
}

// latencySide is a mean in ms. Its noise is what the scatter of the runs leaves
// open, by Student's distribution.
func latencySide(l *memprofile.LatencyStats) SideKeys {
	var s SideKeys
	if l.MeanMs != nil {
		s.Value = *l.MeanMs
	}
	s.Samples = len(l.Latencies)
	n := float64(s.Samples)
	if n < 2 {
		return s
	}
	s.spread = 1e3 * stat.StdDev(l.Latencies) / math.Sqrt(n-1)
	noise := s.spread * student(n-1)
	s.Noise = &noise
	return s
}

// student is the factor between a standard error and the half-width of its
// interval.
func student(freedom float64) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile((1 + confidence) / 2)
}

// latencyChange compares mean latencies by Welch's interval. It holds for the
// scatter within a run of the engine; what another start would change is not in
// it.
func latencyChange(a, b *memprofile.Document) *ChangeKeys {
	if a.LatencyStats.MeanMs == nil || b.LatencyStats.MeanMs == nil {
		return nil
	}
	c := changeOf(latencySide(&a.LatencyStats), latencySide(&b.LatencyStats))
	if c == nil || c.A.Noise == nil || c.B.Noise == nil {
		return c
	}
	va, vb := c.A.spread*c.A.spread, c.B.spread*c.B.spread
	width := 0.0
	if sum := va + vb; sum > 0 {
		freedom := sum * sum / (va*va/float64(c.A.Samples-1) + vb*vb/float64(c.B.Samples-1))
		width = math.Sqrt(sum) * student(freedom)
	}
	d := c.B.Value - c.A.Value
	c.judge(d-width, d+width, verdictFaster, verdictSlower)
	return c
}

// memoryChange compares the memory at the peak. The noise is the step of the
// readings, and how far they lay apart while the engine ran.
func memoryChange(a, b CampaignRow) *ChangeKeys {
	sideA, okA := memorySide(a)
	sideB, okB := memorySide(b)
	if !okA || !okB {
		return nil
	}
	c := changeOf(sideA, sideB)
	if c == nil {
		return nil
	}
	d, width := c.B.Value-c.A.Value, *c.A.Noise+*c.B.Noise
	c.judge(d-width, d+width, verdictSmaller, verdictLarger)
	return c
}

// memorySide is the peak of all devices in bytes.
func memorySide(r CampaignRow) (SideKeys, bool) {
	peak := r.Profile.MemoryMeasurements.Peak
	if peak == nil || peak.TotalBytes == nil {
		return SideKeys{}, false
	}
	noise := float64(resolution(peak))
	if r.Spread != nil {
		noise += float64(*r.Spread)
	}
	return SideKeys{Value: float64(*peak.TotalBytes), Noise: &noise}, true
}

// coarsest is the widest step in which a driver is known to report memory.
const coarsest = unit.Bytes(1 << 20)

// resolution is the step of the readings of a point: the largest power of two
// that divides them, for each device.
func resolution(p *memprofile.MemoryPoint) unit.Bytes {
	var readings []unit.Bytes
	for _, g := range p.PerGPU {
		if g.UsedBytes != nil {
			readings = append(readings, *g.UsedBytes)
		}
	}
	if len(readings) == 0 {
		readings = append(readings, *p.TotalBytes)
	}
	var all unit.Bytes
	for _, r := range readings {
		all |= r
	}
	step := coarsest
	if zeros := bits.TrailingZeros64(uint64(all)); zeros < bits.TrailingZeros64(uint64(coarsest)) {
		step = 1 << zeros
	}
	return step * unit.Bytes(len(readings))
}

// fewest is the number of readings of a device from which percentiles tell
// their spread; of fewer it is the range.
const fewest = 10

// memorySpread is how far the readings of the timed runs lie apart, from the
// 5th to the 95th percentile, summed over the devices; nil where there are not
// two, or no moment of the warm-up. What an engine gives back as it ends, after
// the runs, is no spread. Of an engine on a CPU the readings are those of its
// processes: what else the host holds is not its own.
func memorySpread(d *memprofile.Document) *unit.Bytes {
	warm := d.MemoryMeasurements.PostWarmup
	if d.MemoryTimeline == nil || len(d.MemoryTimeline.Devices) == 0 || warm == nil || warm.At == nil {
		return nil
	}
	end := math.Inf(1) // seconds, as the times of the readings
	if runs := d.LatencyStats.Latencies; len(runs) > 0 {
		end = *warm.At
		for _, seconds := range runs {
			end += seconds
		}
	}
	var sum unit.Bytes
	for _, device := range d.MemoryTimeline.Devices {
		series := device.UsedBytes
		if d.GPUInfo.GPUType == "cpu" || len(series) == 0 {
			series = device.ProcessBytes
		}
		if len(series) != len(device.At) {
			return nil
		}
		var used []float64 // bytes
		for i, at := range device.At {
			if at >= *warm.At && at <= end && series[i] != nil {
				used = append(used, float64(*series[i]))
			}
		}
		slices.Sort(used)
		switch n := len(used); {
		case n < 2:
			return nil
		case n < fewest:
			sum += unit.Bytes(used[n-1] - used[0])
		default:
			sum += unit.Bytes(stat.QuantileSorted(used, 0.95) - stat.QuantileSorted(used, 0.05))
		}
	}
	return &sum
}
