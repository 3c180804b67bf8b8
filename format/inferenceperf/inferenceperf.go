// Package inferenceperf reads what inference-perf writes: the summary
// (summary_lifecycle_metrics.json, or that of a stage), the requests
// (per_request_lifecycle_metrics.json), and llm-d's benchmark report in YAML.
//
//	p, warnings, err := inferenceperf.Read("summary_lifecycle_metrics.json", file, format.Limits{})
//	runs, err := format.KeptServings(&p.Header)
//
// The summary becomes a [format.Serving] in the profile's header. Each request
// becomes a point, with times from the first one's sending, since nobody wrote
// when it was due, and the gaps between its chunks; the figures of a file of
// requests are computed from them.
//
// Its time per output token is ours, its normalized one is our NTPOT. Its
// inter-token latency is the gap of two chunks, our ICL, as long as each holds
// one token: further tokens of a chunk come as gaps of zero, and a summary with
// such gaps has no ICL. Of a file of requests the times of arrival are taken,
// each once. Failures count, whatever the tool's exit code was.
package inferenceperf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// kind is what a text holds.
type kind int

const (
	unknown kind = iota
	summaryJSON
	requestsJSON
	reportYAML
)

// Detect reports whether a file, plain or gzip, that begins with head is one
// of inference-perf's, or a benchmark report.
func Detect(head []byte) bool { return detect(format.Head(head)) != unknown }

var reportLine = regexp.MustCompile(`(?m)^ {2}request_performance:`)

func detect(text []byte) kind {
	if reportLine.Match(text) {
		return reportYAML
	}
	keys, _ := format.TopKeys(text)
	switch {
	case keys["load_summary"] && (keys["successes"] || keys["failures"]):
		return summaryJSON
	case keys["start_time"] && keys["end_time"] && keys["info"]:
		return requestsJSON
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
	if kind == reportYAML {
		return readReport(name, text)
	}
	nodes, err := format.ParseJSON(name, text, limits)
	if err != nil {
		return nil, nil, err
	}
	if len(nodes) == 1 {
		switch kind {
		case summaryJSON:
			return readSummary(name, nodes[0])
		case requestsJSON:
			return readRequests(name, nodes[0])
		}
	}
	return nil, nil, &format.Error{File: name, Err: errors.New("want a result of inference-perf: its summary, its requests, or a benchmark report")}
}

// readSummary reads the JSON of a summary: seconds throughout.
func readSummary(name string, n format.Node) (*profile.Profile, []error, error) {
	f := &format.Figures{}
	good := n.Get("successes")
	s := format.Serving{Tool: "inference-perf", Origin: name, Duration: f.Number(n.Get("benchmark_time_seconds"), 1)}
	s.Requests = f.Count(n.Get("load_summary").Get("count"))
	s.Completed, s.Failed = f.Count(good.Get("count")), f.Count(n.Get("failures").Get("count"))
	if s.Completed == nil {
		return nil, nil, good.Errorf("want successes with their count, got %s", good.Got())
	}
	latencies(f, &s, good.Get("latency"), func(format.Node) float64 { return 1e3 })
	for _, d := range []*format.Distribution{s.TTFT, s.NTPOT, s.E2EL} {
		if d != nil {
			d.N = s.Completed
		}
	}
	rates := good.Get("throughput")
	s.RequestThroughput = f.Number(rates.Get("requests_per_sec"), 1)
	s.OutputThroughput = f.Number(rates.Get("output_tokens_per_sec"), 1)
	s.TotalThroughput = f.Number(rates.Get("total_tokens_per_sec"), 1)
	prompt := good.Get("prompt_tokens")
	s.InputTokens, s.CachedTokens = f.Count(prompt.Get("total")), f.Count(prompt.Get("cached"))
	s.OutputTokens = f.Count(good.Get("output_tokens").Get("total"))
	goodput := good.Get("goodput_metrics")
	s.Goodput, s.GoodShare = f.Number(goodput.Get("request_goodput"), 1), f.Number(goodput.Get("goodput_percentage"), 1e-2)
	delay := n.Get("load_summary").Get("schedule_delay")
	s.SendLag = f.Distribution(delay, 1e3, format.OverRequests, true)
	for key, v := range good.Members() {
		switch key {
		case "count", "latency", "throughput", "prompt_tokens", "output_tokens", "goodput_metrics":
		default:
			if v.Kind() != format.Null {
				s.Unmapped = append(s.Unmapped, "successes."+key)
			}
		}
	}
	warnings := f.Warnings
	if s.SendLag != nil {
		warnings = append(warnings, fmt.Errorf("%s: %s: with a fixed number of workers this is the queue before them, not the client's lag", name, delay.Path()))
	}
	return finish(name, &s, warnings)
}

// finish checks a run and puts it into a profile without points.
func finish(name string, s *format.Serving, warnings []error) (*profile.Profile, []error, error) {
	warnings = append(warnings, s.Check(nil)...)
	if w := s.UnmappedWarning(); w != nil {
		warnings = append(warnings, w)
	}
	p := &profile.Profile{Header: profile.Header{Source: name}}
	p.Header.Deploy.Model = s.Model
	return p, warnings, format.KeepServings(&p.Header, name, []format.Serving{*s})
}

// latencies maps the distributions; scale gives the milliseconds of a
// distribution's unit, 0 where it has none that is known.
func latencies(f *format.Figures, s *format.Serving, n format.Node, scale func(format.Node) float64) {
	into := map[string]**format.Distribution{
		"request_latency": &s.E2EL, "time_to_first_token": &s.TTFT, "time_per_output_token": &s.TPOT,
		"normalized_time_per_output_token": &s.NTPOT, "inter_token_latency": &s.ICL,
	}
	for key, v := range n.Members() {
		unit := scale(v)
		switch {
		case v.Kind() == format.Null:
		case into[key] == nil || unit == 0:
			s.Unmapped = append(s.Unmapped, key)
		case key == "inter_token_latency":
			s.ICL = f.Distribution(v, unit, format.OverChunks, false)
			if s.ICL != nil && s.ICL.Min != nil && *s.ICL.Min == 0 {
				s.ICL = nil
				s.Unmapped = append(s.Unmapped, key)
				f.Warnings = append(f.Warnings, v.Errorf("left out: it holds gaps of 0, which stand for further tokens of a chunk"))
			}
		default:
			*into[key] = f.Distribution(v, unit, format.OverRequests, false)
		}
	}
}

// unquoted is a YAML scalar without its quotes.
func unquoted(text []byte) []byte {
	for _, quote := range []byte{'"', '\''} {
		if n := len(text); n >= 2 && text[0] == quote && text[n-1] == quote {
			return bytes.ReplaceAll(text[1:n-1], []byte{quote, quote}, []byte{quote})
		}
	}
	return text
}
