package prom

import (
	"slices"
	"strconv"
)

// Number is a figure of a server with its parts, all in one unit, which the
// field that holds it names.
type Number struct {
	// Value is the sum of the parts, or their mean where the figure is a
	// share, in the unit of the figure.
	Value float64
	// Parts are the engines of a data-parallel server by their label; the one
	// part of a server that does not label them is "".
	Parts map[string]float64
	// Name is the metric that it was read from.
	Name string
}

// Or is the value, or fallback where there is none; both in the figure's unit.
func (n *Number) Or(fallback float64) float64 {
	if n == nil {
		return fallback
	}
	return n.Value
}

// Bucket counts the observations up to a bound.
type Bucket struct {
	// Bound is in the unit of the metric.
	Bound float64
	// Count is the number of observations of at most Bound.
	Count float64
}

// Histogram sums up observations. Its buckets are coarse: for calibration use
// the mean, never a quantile.
type Histogram struct {
	// Sum is in the unit of the metric, Count the number of observations.
	Sum, Count float64
	// Buckets are cumulative, by bound; the last bound may be infinite.
	Buckets []Bucket
}

// Mean is the mean observation in the unit of the metric; ok is false where
// nothing was observed.
func (h *Histogram) Mean() (mean float64, ok bool) {
	if h == nil || !(h.Count > 0) {
		return 0, false
	}
	return h.Sum / h.Count, true
}

// Distribution is a histogram summed over a server's engines.
type Distribution struct {
	Histogram Histogram
	// Parts are the engines by their label, as in a Number.
	Parts map[string]Histogram
	// Name is the metric that it was read from.
	Name string
}

// Mean is the mean observation in the unit of the metric; ok is false where
// nothing was observed or published.
func (d *Distribution) Mean() (mean float64, ok bool) {
	if d == nil {
		return 0, false
	}
	return d.Histogram.Mean()
}

// view reads the metrics of one engine program.
type view struct {
	scrape *Scrape
	prefix string // of its metrics
	part   string // the label that names a data-parallel engine
	pick   func([]Sample) []Sample
}

// series are the samples of the first of the names that the scrape has.
func (v view) series(histograms bool, names []string) (samples []Sample, found string) {
	for _, name := range names {
		f, found := v.scrape.find(v.prefix + name)
		if found == "" || (f.kind == HistogramKind) != histograms {
			continue
		}
		if v.pick != nil {
			return v.pick(f.samples), found
		}
		return f.samples, found
	}
	return nil, ""
}

// sum adds up a counter or gauge; nil where the server has none of the names,
// given newest first.
func (v view) sum(names ...string) *Number {
	samples, name := v.series(false, names)
	if len(samples) == 0 {
		return nil
	}
	n := &Number{Parts: map[string]float64{}, Name: name}
	for _, s := range samples {
		n.Value += s.Value
		n.Parts[s.Labels[v.part]] += s.Value
	}
	return n
}

// mean averages a share over the engines.
func (v view) mean(names ...string) *Number {
	n := v.sum(names...)
	if n == nil {
		return nil
	}
	samples, _ := v.series(false, names)
	counts := map[string]float64{}
	for _, s := range samples {
		counts[s.Labels[v.part]]++
	}
	n.Value = 0
	for part, sum := range n.Parts {
		n.Parts[part] = sum / counts[part]
	}
	for _, s := range samples {
		n.Value += s.Value / float64(len(samples))
	}
	return n
}

// by sums a metric for each value of a label.
func (v view) by(label string, names ...string) map[string]float64 {
	samples, _ := v.series(false, names)
	if len(samples) == 0 {
		return nil
	}
	sums := map[string]float64{}
	for _, s := range samples {
		sums[s.Labels[label]] += s.Value
	}
	return sums
}

// distribution adds up a histogram.
func (v view) distribution(names ...string) *Distribution {
	samples, name := v.series(true, names)
	if len(samples) == 0 {
		return nil
	}
	d := &Distribution{Parts: map[string]Histogram{}, Name: name}
	for _, s := range samples {
		part := s.Labels[v.part]
		d.Histogram = d.Histogram.plus(*s.Histogram)
		d.Parts[part] = d.Parts[part].plus(*s.Histogram)
	}
	return d
}

// distributionBy adds up a histogram for each value of a label.
func (v view) distributionBy(label string, names ...string) map[string]Histogram {
	samples, _ := v.series(true, names)
	if len(samples) == 0 {
		return nil
	}
	sums := map[string]Histogram{}
	for _, s := range samples {
		sums[s.Labels[label]] = sums[s.Labels[label]].plus(*s.Histogram)
	}
	return sums
}

// plus adds up two histograms; buckets stay only where the bounds agree.
func (h Histogram) plus(other Histogram) Histogram {
	sum := Histogram{Sum: h.Sum + other.Sum, Count: h.Count + other.Count}
	if h.Count == 0 && len(h.Buckets) == 0 {
		sum.Buckets = slices.Clone(other.Buckets)
		return sum
	}
	if len(h.Buckets) != len(other.Buckets) {
		return sum
	}
	for i, b := range h.Buckets {
		if b.Bound != other.Buckets[i].Bound {
			return Histogram{Sum: sum.Sum, Count: sum.Count}
		}
		sum.Buckets = append(sum.Buckets, Bucket{Bound: b.Bound, Count: b.Count + other.Buckets[i].Count})
	}
	return sum
}

// labelInt reads a whole number from a label; 0 where it says "None" or none.
func labelInt(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
