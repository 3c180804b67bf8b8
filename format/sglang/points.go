package sglang

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// DetectServing reports whether a file, plain or gzip, that begins with head
// is a result of bench_serving.
func DetectServing(head []byte) bool {
	keys, _ := format.TopKeys(format.Head(head))
	return keys["backend"] && keys["duration"] && keys["mean_e2e_latency_ms"] && !keys["num_prompts"]
}

// ReadServingProfile reads results of bench_serving in our words: each becomes
// a [format.Serving] in the profile's header and, where --output-details was
// given, each request that was answered a point. The file does not say when a
// request was sent: the times of each point count from its own sending.
func ReadServingProfile(name string, r io.Reader, limits format.Limits) (*profile.Profile, []error, error) {
	results, warnings, err := ReadServing(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	p := &profile.Profile{Header: profile.Header{Source: name}}
	var runs []format.Serving
	for i := range results {
		s := &results[i]
		points, err := s.Points()
		if err != nil {
			return nil, nil, err
		}
		if left := len(s.InputLens) - len(points); left > 0 && len(s.InputLens) > 0 {
			warnings = append(warnings, fmt.Errorf("%s: %d of %d requests left out: they failed or hold no times", s.Origin, left, len(s.InputLens)))
		}
		run := s.Summary()
		// The throughput is over the requested tokens, which ReadServing has
		// held against it.
		checked := run
		checked.OutputTokens = nil
		warnings = append(warnings, checked.Check(points)...)
		if w := run.UnmappedWarning(); w != nil {
			warnings = append(warnings, w)
		}
		p.Points, runs = append(p.Points, points...), append(runs, run)
	}
	return p, warnings, format.KeepServings(&p.Header, name, runs)
}

var latencyKey = regexp.MustCompile(`^(mean|median|std|max|p\d+(?:\.\d+)?)_(\w+)_ms$`)

// Summary is the result in our words: its itl is the gap of two chunks, our
// ICL. Output tokens are those that came back, where they were counted.
func (s *Serving) Summary() format.Serving {
	out := format.Serving{
		Tool: "sglang.bench_serving", Origin: s.Origin, Backend: s.Backend, Load: s.DatasetName, MaxConcurrency: s.MaxConcurrency,
		Completed: s.Completed, InputTokens: s.TotalInputTokens, OutputTokens: s.TotalOutputTokens, Duration: s.Duration,
		RequestThroughput: s.RequestThroughput, OutputThroughput: s.OutputThroughput, RequestRate: s.RequestRate,
	}
	if s.RequestRate != nil && math.IsInf(*s.RequestRate, 1) {
		out.RequestRate, out.Unlimited = nil, true
	}
	if s.TotalOutputRetokenized != nil {
		out.OutputTokens = s.TotalOutputRetokenized
	}
	if s.InputThroughput != nil && s.OutputThroughput != nil {
		out.TotalThroughput = new(*s.InputThroughput + *s.OutputThroughput)
	}
	if json.Unmarshal(s.Raw["concurrency"], &out.Concurrency) != nil {
		out.Concurrency = nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.LatencyMs)) {
		found := latencyKey.FindStringSubmatch(key)
		if found == nil {
			out.Unmapped = append(out.Unmapped, key)
			continue
		}
		var into **format.Distribution
		over := format.OverRequests
		switch found[2] {
		case "ttft":
			into = &out.TTFT
		case "tpot":
			into = &out.TPOT
		case "itl":
			into, over = &out.ICL, format.OverChunks
		case "e2e_latency":
			into = &out.E2EL
		default:
			out.Unmapped = append(out.Unmapped, key)
			continue
		}
		if *into == nil {
			*into = &format.Distribution{Over: over, Origin: found[2] + "_ms"}
		}
		setPart(*into, found[1], s.LatencyMs[key])
	}
	return out
}

// setPart keeps one part of a distribution.
func setPart(d *format.Distribution, part string, ms float64) {
	switch part {
	case "mean":
		d.Mean = &ms
	case "median":
		d.P50 = &ms
	case "std":
		d.Std = &ms
	case "max":
		d.Max = &ms
	default:
		if percent, err := strconv.ParseFloat(strings.TrimPrefix(part, "p"), 64); err == nil && percent <= 100 {
			d.SetPercentile(percent, ms)
		}
	}
}

// notSent is said of every point.
const notSent = "when it was sent is not recorded: its times count from then"

// Points are the requests that were answered, with the gaps between their
// chunks; none without --output-details.
func (s *Serving) Points() ([]profile.Point, error) {
	n := len(s.InputLens)
	if len(s.OutputLens) != n || len(s.TTFTs) != n || len(s.ITLs) != n {
		if len(s.TTFTs) == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: input_lens, output_lens, ttfts and itls hold %d, %d, %d and %d values: want as many of each",
			s.Origin, n, len(s.OutputLens), len(s.TTFTs), len(s.ITLs))
	}
	var faults []string
	if json.Unmarshal(s.Raw["errors"], &faults) != nil {
		faults = nil
	}
	var points []profile.Point
	for i := range n {
		if i < len(faults) && faults[i] != "" || s.OutputLens[i] == 0 {
			continue
		}
		last := s.TTFTs[i]
		for _, gap := range s.ITLs[i] {
			last += gap
		}
		p := profile.Point{
			Kind: profile.KindRequest, Clock: profile.ClockWall, Origin: fmt.Sprintf("%s: request %d", s.Origin, i), Warnings: []string{notSent},
			Request: &profile.Request{ID: strconv.Itoa(i), InputLen: s.InputLens[i], OutputLen: s.OutputLens[i], First: s.TTFTs[i], Last: last},
		}
		gaps := s.ITLs[i]
		if gaps == nil {
			gaps = []float64{}
		}
		if err := format.KeepRun(&p, s.Origin, gaps); err != nil {
			return nil, err
		}
		if p.Validate() != nil {
			continue
		}
		points = append(points, p)
	}
	return points, nil
}
