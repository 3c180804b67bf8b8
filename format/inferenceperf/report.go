package inferenceperf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// maxReport bounds the lines of a report, maxLevels its nesting.
const (
	maxReport = 100_000
	maxLevels = 32
)

// readReport reads llm-d's benchmark report, which other tools' results are
// put into as well.
func readReport(name string, text []byte) (*profile.Profile, []error, error) {
	n, err := reportTree(name, text)
	if err != nil {
		return nil, nil, err
	}
	f := &format.Figures{}
	run := n.Get("run")
	tool := f.Text(n.Get("scenario").Get("load").Get("standardized").Get("tool"))
	if tool == "" && strings.HasPrefix(f.Text(run.Get("uid")), "inference-perf") {
		tool = "inference-perf"
	}
	aggregate := n.Get("results").Get("request_performance").Get("aggregate")
	if aggregate.Kind() != format.Object {
		return nil, nil, &format.Error{File: name, Err: errors.New("holds no results.request_performance.aggregate")}
	}
	if tool != "inference-perf" && aggregate.Get("latency").Has("inter_token_latency") {
		return nil, nil, &format.Error{File: name, Err: fmt.Errorf("a report of the tool %q: %w", tool, format.ErrAmbiguousITL)}
	}
	s := format.Serving{Tool: strings.TrimSpace(tool + " (benchmark report " + f.Text(n.Get("version")) + ")"), Origin: name}
	s.Started = f.Text(run.Get("time").Get("start"))
	requests := aggregate.Get("requests")
	s.Requests, s.Failed = f.Count(requests.Get("total")), f.Count(requests.Get("failures"))
	if s.Requests != nil && s.Failed != nil {
		s.Completed = new(max(*s.Requests-*s.Failed, 0))
	}
	latencies(f, &s, aggregate.Get("latency"), func(n format.Node) float64 {
		switch unit, _, _ := strings.Cut(f.Text(n.Get("units")), "/"); unit {
		case "s":
			return 1e3
		case "ms":
			return 1
		}
		return 0
	})
	rate := func(key string) *float64 { return f.Number(aggregate.Get("throughput").Get(key).Get("mean"), 1) }
	s.RequestThroughput, s.OutputThroughput, s.TotalThroughput = rate("request_rate"), rate("output_token_rate"), rate("total_token_rate")
	for key, into := range map[string]**int{"input_length": &s.InputTokens, "output_length": &s.OutputTokens} {
		if mean := f.Number(requests.Get(key).Get("mean"), 1); mean != nil && s.Completed != nil && *mean < 1<<30 {
			*into = new(int(*mean*float64(*s.Completed) + 0.5))
		}
	}
	if run.Get("time").Has("duration") {
		// The stage lasts longer than the requests over which rates are taken.
		s.Unmapped = append(s.Unmapped, "run.time.duration")
	}
	return finish(name, &s, f.Warnings)
}

// reportTree reads the part of YAML in which reports are written: nested
// blocks of keys with plain or quoted scalars. Lists are left out.
func reportTree(name string, text []byte) (format.Node, error) {
	fail := func(line int, text string) (format.Node, error) {
		return format.Node{}, &format.Error{File: name, Place: fmt.Sprintf("line %d", line), Err: errors.New(text)}
	}
	root := map[string]any{}
	type level struct {
		indent int
		keys   map[string]any
	}
	levels := []level{{-1, root}}
	line := 0
	for row := range bytes.Lines(text) {
		line++
		if line > maxReport {
			return fail(line, "the report is too long")
		}
		row = bytes.TrimRight(row, " \r\n")
		entry := bytes.TrimLeft(row, " ")
		if len(entry) == 0 || entry[0] == '#' || entry[0] == '-' {
			continue
		}
		indent := len(row) - len(entry)
		for len(levels) > 1 && levels[len(levels)-1].indent >= indent {
			levels = levels[:len(levels)-1]
		}
		key, value, ok := bytes.Cut(entry, []byte(":"))
		if !ok || len(value) > 0 && value[0] != ' ' {
			continue // within a list or a text of several lines
		}
		if len(levels) > maxLevels {
			return fail(line, "the report is nested too deep")
		}
		keys := levels[len(levels)-1].keys
		if _, twice := keys[string(key)]; twice {
			continue // a list's elements repeat their keys
		}
		if value = bytes.TrimSpace(value); len(value) == 0 {
			inner := map[string]any{}
			keys[string(key)] = inner
			levels = append(levels, level{indent, inner})
			continue
		}
		if scalar := string(value); scalar != "null" && scalar != "~" {
			keys[string(key)] = string(unquoted(value))
		}
	}
	// The tree of a JSON text has the numbers' checks and the places.
	tree, err := json.Marshal(root)
	if err != nil {
		return fail(line, err.Error())
	}
	nodes, err := format.ParseJSON(name, tree, format.Limits{})
	if err != nil {
		return format.Node{}, err
	}
	return nodes[0], nil
}
