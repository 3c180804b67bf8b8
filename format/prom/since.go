package prom

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/format"
)

// Since is what happened between an earlier scrape of the same server and this
// one: counters and histograms as differences, gauges as they are now. A
// counter that ran backwards belongs to a server that was restarted: it counts
// from zero, with a warning.
func (s *Scrape) Since(before *Scrape) (*Scrape, []error) {
	out := &Scrape{file: s.file, families: map[string]family{}}
	restarted := 0
	example := ""
	for _, name := range s.Names() {
		f := s.families[name]
		if f.kind == Gauge || f.kind == Untyped && !strings.HasSuffix(name, "_total") {
			out.families[name] = f
			continue
		}
		earlier := map[string]Sample{}
		for _, sample := range before.families[name].samples {
			earlier[labelKey(sample.Labels)] = sample
		}
		next := family{kind: f.kind}
		for _, sample := range f.samples {
			if old, ok := earlier[labelKey(sample.Labels)]; ok {
				diff, ok := sample.minus(old)
				if !ok {
					restarted++
					example = name
				}
				sample = diff
			}
			next.samples = append(next.samples, sample)
		}
		out.families[name] = next
	}
	if restarted == 0 {
		return out, nil
	}
	return out, []error{&format.Error{File: s.file, Err: fmt.Errorf("%d counters are lower than before (%s): the server was restarted, they count from then", restarted, example)}}
}

// minus is the difference; ok is false where the earlier one is larger, and
// then nothing is taken away.
func (s Sample) minus(old Sample) (Sample, bool) {
	if s.Histogram == nil || old.Histogram == nil {
		if s.Value < old.Value {
			return s, false
		}
		s.Value -= old.Value
		return s, true
	}
	if s.Histogram.Count < old.Histogram.Count {
		return s, false
	}
	h := Histogram{Sum: s.Histogram.Sum - old.Histogram.Sum, Count: s.Histogram.Count - old.Histogram.Count}
	for _, b := range s.Histogram.Buckets {
		at := slices.IndexFunc(old.Histogram.Buckets, func(o Bucket) bool { return o.Bound == b.Bound })
		if at >= 0 {
			b.Count = max(0, b.Count-old.Histogram.Buckets[at].Count)
		}
		h.Buckets = append(h.Buckets, b)
	}
	s.Histogram, s.Value = &h, h.Sum
	return s, true
}

func labelKey(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%q=%q,", name, labels[name])
	}
	return b.String()
}
