package load

import (
	"fmt"
	"math"
	"slices"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/workload"
)

// Metric names what is measured of a request or a chunk.
type Metric = workload.Metric

// The metrics, as the package comment defines them.
const (
	TTFT             = workload.TTFT
	TTFTSched Metric = "ttft_sched"
	TPOT             = workload.TPOT
	NTPOT            = workload.NTPOT
	ITL              = workload.ITL
	ICL              = workload.ICL
	E2EL             = workload.E2EL
	E2ELSched Metric = "e2el_sched"
	SendLag   Metric = "send_lag"
)

// Figure is the distribution of a metric. What a sample cannot say is nil: all
// of it without a value, p99 below 100 values.
type Figure struct {
	// N is the number of values.
	N int `json:"n"`
	// Mean, Std and the quantiles are in milliseconds. Std is that of the
	// population; quantiles interpolate between order statistics.
	Mean *float64 `json:"mean"`
	Std  *float64 `json:"std"`
	P50  *float64 `json:"p50"`
	P75  *float64 `json:"p75"`
	P90  *float64 `json:"p90"`
	P95  *float64 `json:"p95"`
	P99  *float64 `json:"p99"`
	// Max is the largest value, in milliseconds.
	Max *float64 `json:"max"`
}

// minP99 is the number of values from which a p99 is shown.
const minP99 = 100

// NewFigure describes a sample in milliseconds, which it sorts.
func NewFigure(sample []float64) Figure {
	f := Figure{N: len(sample)}
	if f.N == 0 {
		return f
	}
	slices.Sort(sample)
	f.Mean, f.Std = new(stat.Mean(sample)), new(stat.StdDev(sample))
	f.P50, f.P75 = new(stat.QuantileSorted(sample, 0.5)), new(stat.QuantileSorted(sample, 0.75))
	f.P90, f.P95 = new(stat.QuantileSorted(sample, 0.9)), new(stat.QuantileSorted(sample, 0.95))
	f.Max = new(sample[f.N-1])
	if f.N >= minP99 {
		f.P99 = new(stat.QuantileSorted(sample, 0.99))
	}
	return f
}

// FigureOf describes a distribution that is known by its figures instead of its
// values: its size, mean, standard deviation and largest value, and a function
// that gives its quantile of a share, 0..1; all in milliseconds.
func FigureOf(n int, mean, std, most float64, quantile func(share float64) float64) Figure {
	f := Figure{N: n}
	if n == 0 {
		return f
	}
	f.Mean, f.Std, f.Max = &mean, &std, &most
	f.P50, f.P75, f.P90, f.P95 = new(quantile(0.5)), new(quantile(0.75)), new(quantile(0.9)), new(quantile(0.95))
	if n >= minP99 {
		f.P99 = new(quantile(0.99))
	}
	return f
}

// tail is the highest quantile that the sample can tell, in milliseconds, and
// its name: a p99 of a few values would be their largest. It is nil without a
// value.
func (f Figure) tail() (ms *float64, name string) {
	switch {
	case f.N >= minP99:
		return f.P99, "p99"
	case f.N >= 20:
		return f.P95, fmt.Sprintf("p95 of %d", f.N)
	case f.N >= 10:
		return f.P90, fmt.Sprintf("p90 of %d", f.N)
	}
	return f.P50, fmt.Sprintf("median of %d", f.N)
}

// Concurrency is the number of open requests over a window.
type Concurrency struct {
	// Mean is weighted with time, in requests.
	Mean float64 `json:"mean"`
	Max  int     `json:"max"`
}

// sweep is an instant at which the number of open requests changes.
type sweep struct {
	at    float64
	delta int
}

// sweeps are the changes of all records, in order. Ends come before starts of
// the same instant.
func sweeps(records []Record) []sweep {
	var all []sweep
	for i := range records {
		if r := &records[i]; r.Sent {
			all = append(all, sweep{r.Send.Seconds(), 1}, sweep{max(r.Close, r.Send).Seconds(), -1})
		}
	}
	slices.SortFunc(all, func(a, b sweep) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return a.delta - b.delta
	})
	return all
}

// concurrency is the concurrency from one instant to another, in seconds.
func concurrency(changes []sweep, from, to float64) Concurrency {
	var c Concurrency
	open, last, area := 0, from, 0.0
	for _, s := range changes {
		if at := min(max(s.at, from), to); at > last {
			area += float64(open) * (at - last)
			last = at
			c.Max = max(c.Max, open)
		}
		if s.at > to {
			break
		}
		open += s.delta
	}
	if to > last {
		area += float64(max(open, 0)) * (to - last)
		c.Max = max(c.Max, open)
	}
	if to > from {
		c.Mean = area / (to - from)
	}
	if math.IsNaN(c.Mean) {
		c.Mean = 0
	}
	return c
}
