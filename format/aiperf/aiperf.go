// Package aiperf reads what aiperf writes, and its predecessor genai-perf: the
// summary as JSON or CSV (profile_export_aiperf.json, .csv) and the requests as
// JSON Lines (profile_export.jsonl).
//
//	p, warnings, err := aiperf.Read("profile_export.jsonl", file, format.Limits{})
//	runs, err := format.KeptServings(&p.Header)
//
// The summary becomes a [format.Serving] in the profile's header. Each request
// becomes a point, with times from the run's first request and the gaps between
// its chunks; the figures of a file of requests are computed from them.
//
// aiperf's inter-token latency is a request's mean gap, our TPOT; its
// inter-chunk latency is the gap of two chunks, our ICL. Its time to second
// token is none of our words. Units stand beside the figures and are obeyed.
// Where the server counted the tokens as well, its counts are taken, and a
// warning says so if they differ.
package aiperf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// kind is what a text holds.
type kind int

const (
	unknown kind = iota
	summaryJSON
	summaryCSV
	recordLines
)

// Detect reports whether a file, plain or gzip, that begins with head is one
// of aiperf's.
func Detect(head []byte) bool { return detect(format.Head(head)) != unknown }

func detect(text []byte) kind {
	text = bytes.TrimLeft(text, " \t\r\n")
	if first, _, _ := bytes.Cut(text, []byte{'\n'}); bytes.HasPrefix(first, []byte("Metric,avg,")) {
		return summaryCSV
	}
	keys, _ := format.TopKeys(text)
	switch {
	case keys["aiperf_version"], keys["request_throughput"] && keys["request_latency"] && bytes.Contains(text, []byte(`"unit"`)):
		return summaryJSON
	case keys["metadata"] && keys["metrics"] && bytes.Contains(text, []byte(`"request_start_ns"`)):
		return recordLines
	}
	return unknown
}

// Read reads a file as a profile. The name stands in errors and origins; it is
// not opened. Warnings are requests and names that were left out, and figures
// that contradict each other.
func Read(name string, r io.Reader, limits format.Limits) (*profile.Profile, []error, error) {
	text, err := format.ReadText(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	kind := detect(text)
	if kind == summaryCSV {
		return readCSV(name, text, limits)
	}
	nodes, err := format.ParseJSON(name, text, limits)
	if err != nil && len(nodes) == 0 {
		return nil, nil, err
	}
	switch {
	case kind == recordLines:
		return readRecords(name, nodes, err)
	case err != nil:
		return nil, nil, err
	case kind == summaryJSON && len(nodes) == 1:
		return readSummary(name, nodes[0])
	}
	return nil, nil, &format.Error{File: name, Err: errors.New("want a result of aiperf: its summary, or its requests as JSON Lines")}
}

// milliseconds is how many milliseconds a unit is; ok is false for what is no
// unit of time.
func milliseconds(unit string) (scale float64, ok bool) {
	switch strings.ToLower(unit) {
	case "ms", "milliseconds":
		return 1, true
	case "s", "sec", "seconds":
		return 1e3, true
	case "us", "µs", "microseconds":
		return 1e-3, true
	case "ns", "nanoseconds":
		return 1e-6, true
	}
	return 0, false
}

// share is what a unit of a ratio is of one.
func share(unit string) float64 {
	if unit == "%" {
		return 1e-2
	}
	return 1
}

// metric is a figure of a summary by its name in the JSON.
type metric struct {
	name, unit string
	node       format.Node
}

// summary maps the figures of a run.
type summary struct {
	figures format.Figures
	run     format.Serving
	// ended counts requests that succeeded or failed; own are the tokens as
	// the tool counted them, served as the server did.
	ended   *int
	own     struct{ input, output *int }
	served  struct{ input, output *int }
	remarks []error
}

// take maps one figure.
func (s *summary) take(m metric) {
	r := &s.run
	distributions := map[string]struct {
		into **format.Distribution
		over format.Over
	}{
		"time_to_first_token":     {&r.TTFT, format.OverRequests},
		"inter_token_latency":     {&r.TPOT, format.OverRequests},
		"inter_chunk_latency":     {&r.ICL, format.OverChunks},
		"request_latency":         {&r.E2EL, format.OverRequests},
		"effective_latency":       {&r.E2ELSched, format.OverRequests},
		"credit_to_start_latency": {&r.SendLag, format.OverRequests},
	}
	rates := map[string]**float64{
		"request_throughput": &r.RequestThroughput, "output_token_throughput": &r.OutputThroughput, "total_token_throughput": &r.TotalThroughput,
		"goodput": &r.Goodput, "effective_concurrency": &r.Concurrency,
	}
	counts := map[string]**int{
		"request_count": &r.Completed, "error_request_count": &r.Failed, "completed_request_count": &s.ended,
		"total_isl": &s.own.input, "total_osl": &s.own.output,
		"total_usage_prompt_tokens": &s.served.input, "total_usage_completion_tokens": &s.served.output,
	}
	scale, time := milliseconds(m.unit)
	switch {
	case distributions[m.name].into != nil && time:
		d := distributions[m.name]
		*d.into = s.figures.Distribution(m.node, scale, d.over, m.name == "credit_to_start_latency")
	case m.name == "benchmark_duration" && time:
		r.Duration = s.figures.Number(m.node.Get("avg"), scale/1e3)
	case rates[m.name] != nil && perSecond(m.unit):
		*rates[m.name] = s.figures.Number(m.node.Get("avg"), 1)
	case counts[m.name] != nil:
		*counts[m.name] = s.figures.Count(m.node.Get("avg"))
	case m.name == "good_request_fraction":
		r.GoodShare = s.figures.Number(m.node.Get("avg"), share(m.unit))
	default:
		r.Unmapped = append(r.Unmapped, m.name)
	}
}

// perSecond reports whether a unit is that of a rate, or of a number of
// requests.
func perSecond(unit string) bool {
	return unit == "" || unit == "requests" || strings.HasSuffix(unit, "/sec") || strings.HasSuffix(unit, "/s")
}

// profile settles the counts and builds the profile.
func (s *summary) profile(name string) (*profile.Profile, []error, error) {
	r := &s.run
	if r.Completed == nil && r.E2EL == nil {
		return nil, nil, &format.Error{File: name, Err: errors.New("holds neither a request_count nor a request_latency")}
	}
	if r.Failed == nil && s.ended != nil && r.Completed != nil {
		r.Failed = new(max(*s.ended-*r.Completed, 0))
	}
	// The throughput is over the tool's own tokens: they are checked first.
	r.InputTokens, r.OutputTokens = s.own.input, s.own.output
	warnings := slices.Concat(s.figures.Warnings, r.Check(nil))
	for _, c := range []struct {
		what        string
		own, served *int
		into        **int
	}{{"prompt", s.own.input, s.served.input, &r.InputTokens}, {"output", s.own.output, s.served.output, &r.OutputTokens}} {
		if c.served == nil {
			continue
		}
		if c.own != nil && *c.own != *c.served {
			warnings = append(warnings, fmt.Errorf("%s: aiperf counted %d %s tokens and the server %d, which are taken; the throughput is that of the former", r.Origin, *c.own, c.what, *c.served))
		}
		*c.into = c.served
	}
	if w := r.UnmappedWarning(); w != nil {
		warnings = append(warnings, w)
	}
	p := &profile.Profile{Header: profile.Header{Source: name}}
	p.Header.Deploy.Model = r.Model
	return p, warnings, format.KeepServings(&p.Header, name, []format.Serving{*r})
}

// readSummary reads the JSON.
func readSummary(name string, n format.Node) (*profile.Profile, []error, error) {
	s := &summary{run: format.Serving{Tool: "genai-perf", Origin: name}}
	if v := s.figures.Text(n.Get("aiperf_version")); v != "" {
		s.run.Tool = "aiperf " + v
	}
	s.run.Started = s.figures.Text(n.Get("start_time"))
	input := n.Get("input_config")
	for _, item := range input.Get("models").Get("items").Elements() {
		s.run.Model = s.figures.Text(item.Get("name"))
		break
	}
	s.run.Backend = s.figures.Text(input.Get("endpoint").Get("type"))
	for _, phase := range input.Get("phases").Elements() {
		if s.figures.Text(phase.Get("kind")) != "profiling" {
			continue
		}
		s.run.Load, s.run.RequestRate = s.figures.Text(phase.Get("type")), s.figures.Number(phase.Get("rate"), 1)
		s.run.MaxConcurrency = s.figures.Count(phase.Get("concurrency"))
	}
	for key, v := range n.Members() {
		if v.Has("unit") && v.Has("avg") {
			s.take(metric{key, s.figures.Text(v.Get("unit")), v})
		}
	}
	if cancelled, ok := n.Get("was_cancelled").JSON(); ok && string(cancelled) == "true" {
		s.remarks = append(s.remarks, fmt.Errorf("%s: the run was cancelled", name))
	}
	p, warnings, err := s.profile(name)
	return p, append(warnings, s.remarks...), err
}
