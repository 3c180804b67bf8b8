package aiperf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// maxGap bounds the number of gaps of a request.
const maxGap = 1 << 22

// readRecords reads the requests. A cut-off end costs the last one only.
func readRecords(name string, nodes []format.Node, fault error) (*profile.Profile, []error, error) {
	var warnings []error
	if fault != nil {
		warnings = append(warnings, fmt.Errorf("%w: the requests before it were read", fault))
	}
	var requests []record
	failed, warm, left := 0, 0, 0
	for _, n := range nodes {
		n = n.At("line " + strconv.Itoa(n.Line()))
		meta := n.Get("metadata")
		figures := &format.Figures{}
		if phase := figures.Text(meta.Get("benchmark_phase")); phase != "" && phase != "profiling" {
			warm++
			continue
		}
		if n.Get("error").Present() {
			failed++
			continue
		}
		r, ok := readRecord(n)
		if !ok {
			left++
			continue
		}
		requests = append(requests, r)
	}
	if len(requests) == 0 {
		return nil, nil, &format.Error{File: name, Err: errors.New("holds no request that was answered with a stream")}
	}
	zero := slices.MinFunc(requests, func(a, b record) int { return cmp.Compare(a.due, b.due) }).due
	p := &profile.Profile{Header: profile.Header{Source: name}}
	for _, r := range requests {
		point, err := r.point(name, zero)
		if err != nil {
			return nil, nil, err
		}
		if point.Validate() != nil {
			left++
			continue
		}
		p.Points = append(p.Points, point)
	}
	s := format.Summarize(p.Points)
	s.Tool, s.Origin, s.Failed = "aiperf", name, &failed
	for _, c := range []struct {
		n    int
		what string
	}{{warm, "of the warm-up"}, {failed, "that failed"}, {left, "without the times of a stream"}} {
		if c.n > 0 {
			warnings = append(warnings, fmt.Errorf("%s: %d requests %s left out", name, c.n, c.what))
		}
	}
	return p, warnings, format.KeepServings(&p.Header, name, []format.Serving{s})
}

// record is one request: times in nanoseconds of the file's clock, and from
// sending on in milliseconds.
type record struct {
	id            string
	place         string
	due, sent     int64
	first, last   float64
	input, output int
	gaps          []float64
}

// readRecord reads a request; ok is false where something is missing.
func readRecord(n format.Node) (record, bool) {
	figures := &format.Figures{}
	meta, metrics := n.Get("metadata"), n.Get("metrics")
	time := func(name string) (scale float64, v format.Node) {
		m := metrics.Get(name)
		scale, _ = milliseconds(figures.Text(m.Get("unit")))
		return scale, m.Get("value")
	}
	scale, v := time("time_to_first_token")
	first := figures.Number(v, scale)
	scale, v = time("request_latency")
	last := figures.Number(v, scale)
	count := func(names ...string) *int {
		for _, name := range names {
			if v := figures.Count(metrics.Get(name).Get("value")); v != nil {
				return v
			}
		}
		return nil
	}
	// The server's counts first.
	input, output := count("usage_prompt_tokens", "input_sequence_length"), count("usage_completion_tokens", "output_sequence_length")
	sent := nanoseconds(meta.Get("request_start_ns"))
	if sent == nil || first == nil || last == nil || input == nil || output == nil {
		return record{}, false
	}
	r := record{id: figures.Text(meta.Get("x_request_id")), place: n.Path(), due: *sent, sent: *sent, first: *first, last: *last, input: *input, output: *output}
	if due := nanoseconds(meta.Get("credit_issued_ns")); due != nil {
		r.due = *due
	}
	scale, v = time("inter_chunk_latency")
	if v.Kind() == format.Array && v.Len() <= maxGap && scale > 0 {
		r.gaps = make([]float64, 0, v.Len())
		for _, e := range v.Elements() {
			gap := figures.Number(e, scale/1e3)
			if gap == nil {
				r.gaps = nil
				break
			}
			r.gaps = append(r.gaps, *gap)
		}
	}
	return r, true
}

// nanoseconds reads a time to the last digit, which a float64 would not hold;
// nil where there is none.
func nanoseconds(n format.Node) *int64 {
	text, _ := n.JSON()
	v, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 64)
	if err != nil || v <= 0 {
		return nil
	}
	return &v
}

// point is the request with times from zero on.
func (r *record) point(name string, zero int64) (profile.Point, error) {
	sent := float64(r.sent-zero) * 1e-9
	p := profile.Point{
		Kind: profile.KindRequest, Clock: profile.ClockWall, Origin: name + ": " + r.place,
		Request: &profile.Request{
			ID: r.id, InputLen: r.input, OutputLen: r.output, Scheduled: float64(r.due-zero) * 1e-9, Sent: sent,
			First: sent + r.first*1e-3, Last: sent + r.last*1e-3,
		},
	}
	err := format.KeepRun(&p, name, r.gaps)
	return p, err
}
