// Package prom reads the metrics that engines publish as Prometheus text.
//
// [Read] takes the body of one GET /metrics as a [Scrape]. Counters run from
// the start of the server, so a load is the difference of two scrapes:
//
//	load, warnings := after.Since(before)
//	mean, ok := load.VLLM().TTFT.Mean()
//
// [Scrape.VLLM], [Scrape.SGLang] and [Scrape.LlamaCPP] give the figures of one
// engine under names that stay, whatever the version calls them, summed over
// data-parallel engines with the parts kept. What a server does not publish is
// nil, never zero. Gauges with "_created" in the end, which only say when a
// counter began, are left out, and a counter is found with and without
// "_total".
package prom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// maxBytes is the largest text; engines write some 60 kB.
const maxBytes = 32 << 20

// Kind is what a metric is.
type Kind string

// The kinds of metrics. Untyped metrics are those of a text that does not say.
const (
	Counter       Kind = "counter"
	Gauge         Kind = "gauge"
	HistogramKind Kind = "histogram"
	Untyped       Kind = "untyped"
)

// Sample is one series of a metric.
type Sample struct {
	Labels map[string]string
	// Value is that of a counter or gauge, in the unit that the metric's name
	// tells: seconds, bytes, tokens or a number of events.
	Value float64
	// Histogram is nil for anything else.
	Histogram *Histogram
}

// Scrape is what a server published at one moment, or between two.
type Scrape struct {
	file     string
	families map[string]family
}

type family struct {
	kind    Kind
	samples []Sample
}

// Read reads the text of /metrics, plain or gzip, also where a server wraps it
// into one JSON string. The name stands in errors; it is not opened. Warnings
// tell of a text that is cut off and of series that could not be used.
func Read(name string, r io.Reader) (*Scrape, []error, error) {
	text, err := format.ReadText(name, r, format.Limits{Bytes: maxBytes})
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (*Scrape, []error, error) { return nil, nil, &format.Error{File: name, Err: err} }
	if text, err = unquote(text); err != nil {
		return fail(err)
	}
	var warnings []error
	warn := func(words string, args ...any) {
		warnings = append(warnings, &format.Error{File: name, Err: fmt.Errorf(words, args...)})
	}
	// The format ends every line; one that does not end may lack digits.
	if end := bytes.LastIndexByte(text, '\n') + 1; end < len(text) {
		if line := bytes.TrimSpace(text[end:]); len(line) > 0 && line[0] != '#' {
			warn("the last line has no end and was left out")
		}
		text = text[:end]
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))))
	if err != nil {
		return fail(fmt.Errorf("no Prometheus text: %w", err))
	}
	s := &Scrape{file: name, families: map[string]family{}}
	for _, key := range slices.Sorted(maps.Keys(families)) {
		if strings.HasSuffix(key, "_created") {
			continue
		}
		f, left := family{kind: Untyped}, 0
		for _, m := range families[key].GetMetric() {
			sample := Sample{Labels: map[string]string{}}
			for _, l := range m.GetLabel() {
				sample.Labels[l.GetName()] = l.GetValue()
			}
			switch {
			case m.Counter != nil:
				f.kind, sample.Value = Counter, m.GetCounter().GetValue()
			case m.Gauge != nil:
				f.kind, sample.Value = Gauge, m.GetGauge().GetValue()
			case m.Untyped != nil:
				sample.Value = m.GetUntyped().GetValue()
			case m.Histogram != nil && m.Histogram.SampleCount != nil && m.Histogram.SampleSum != nil:
				h := m.GetHistogram()
				f.kind = HistogramKind
				sample.Histogram = &Histogram{Sum: h.GetSampleSum(), Count: float64(h.GetSampleCount())}
				for _, b := range h.GetBucket() {
					sample.Histogram.Buckets = append(sample.Histogram.Buckets, Bucket{Bound: b.GetUpperBound(), Count: float64(b.GetCumulativeCount())})
				}
				sample.Value = sample.Histogram.Sum
			default:
				left++
				continue
			}
			if math.IsNaN(sample.Value) || math.IsInf(sample.Value, 0) {
				continue // how servers say that they have no figure yet
			}
			f.samples = append(f.samples, sample)
		}
		if left > 0 && families[key].GetType().String() != "SUMMARY" { // which no engine publishes
			warn("%s: %d histograms without sum or count were left out", key, left)
		}
		if len(f.samples) > 0 {
			s.families[key] = f
		}
	}
	if len(s.families) == 0 {
		return fail(errors.New("the text holds no metric"))
	}
	return s, warnings, nil
}

// unquote takes the text out of a JSON string, as some builds of llama-server
// wrap it.
func unquote(text []byte) ([]byte, error) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '"' {
		var inner string
		if err := json.Unmarshal(trimmed, &inner); err != nil {
			return nil, fmt.Errorf("the text begins with a quote but is no JSON string: %w", err)
		}
		return []byte(inner), nil
	}
	return text, nil
}

// HeadSize is the number of bytes of a file with which [Detect] can decide.
const HeadSize = 64 << 10

// Detect reports whether a file, plain or gzip, that begins with head is a
// Prometheus text.
func Detect(head []byte) bool {
	expanded, err := profile.Expand(bytes.NewReader(head), profile.Bounds{})
	if err != nil {
		return false
	}
	part := make([]byte, HeadSize)
	n, _ := io.ReadFull(expanded, part) // the head may end anywhere
	text := bytes.TrimPrefix(part[:n], []byte("\ufeff"))
	if bytes.HasPrefix(text, []byte(`"#`)) {
		text = bytes.ReplaceAll(text, []byte(`\n`), []byte("\n"))
	}
	for line := range bytes.Lines(text) {
		// "# TYPE name kind" is the format's own.
		fields := bytes.Fields(bytes.TrimLeft(line, `"`))
		if len(fields) == 4 && string(fields[0]) == "#" && string(fields[1]) == "TYPE" {
			switch string(fields[3]) {
			case "counter", "gauge", "histogram", "summary", "untyped":
				return true
			}
		}
	}
	return false
}

// Engine is the engine whose metrics these are: "vllm", "sglang", "llama.cpp",
// or empty.
func (s *Scrape) Engine() string {
	counts := map[string]int{}
	for name := range s.families {
		prefix, _, _ := strings.Cut(name, ":")
		counts[prefix]++
	}
	best, engine := 0, ""
	for _, e := range []struct{ prefix, name string }{{"vllm", "vllm"}, {"sglang", "sglang"}, {"llamacpp", "llama.cpp"}} {
		if counts[e.prefix] > best {
			best, engine = counts[e.prefix], e.name
		}
	}
	return engine
}

// Names lists the metrics, sorted.
func (s *Scrape) Names() []string { return slices.Sorted(maps.Keys(s.families)) }

// Samples are the series of a metric and its kind. A counter may be named with
// or without "_total". Without such a metric there are none.
func (s *Scrape) Samples(name string) ([]Sample, Kind) {
	f, _ := s.find(name)
	return f.samples, f.kind
}

// find looks a metric up and returns the name that it has here.
func (s *Scrape) find(name string) (family, string) {
	for _, spelling := range []string{name, name + "_total", strings.TrimSuffix(name, "_total")} {
		if f, ok := s.families[spelling]; ok {
			return f, spelling
		}
	}
	return family{}, ""
}
