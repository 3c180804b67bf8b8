package inferenceperf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// readRequests reads the requests, whose times are on a clock with any zero.
func readRequests(name string, n format.Node) (*profile.Profile, []error, error) {
	p := &profile.Profile{Header: profile.Header{Source: name}}
	failed, left := 0, 0
	var said []float64
	zero := 0.0
	for i, e := range n.Elements() {
		if e.Get("error").Present() {
			failed++
			continue
		}
		point, gaps, ok := readRequest(e, i)
		if !ok {
			left++
			continue
		}
		point.Origin = name + ": " + e.Path()
		if err := format.KeepRun(&point, name, gaps); err != nil {
			return nil, nil, err
		}
		if len(p.Points) == 0 || point.Request.Sent < zero {
			zero = point.Request.Sent
		}
		p.Points = append(p.Points, point)
		ttft, err := e.Get("computed_metrics").Get("time_to_first_token").Float()
		if err == nil {
			said = append(said, ttft*1e3)
		}
	}
	p.Points = slices.DeleteFunc(p.Points, func(point profile.Point) bool {
		r := point.Request
		r.Scheduled, r.Sent, r.First, r.Last = r.Scheduled-zero, r.Sent-zero, r.First-zero, r.Last-zero
		bad := point.Validate() != nil
		if bad {
			left++
		}
		return bad
	})
	if len(p.Points) == 0 {
		return nil, nil, &format.Error{File: name, Err: errors.New("holds no request that was answered with a stream")}
	}
	s := format.Summarize(p.Points)
	s.Tool, s.Origin, s.Failed = "inference-perf", name, &failed
	var warnings []error
	if len(said) == len(p.Points) {
		claim := format.Serving{Origin: name, Completed: s.Completed, TTFT: format.NewDistribution(said, format.OverRequests, "computed_metrics")}
		warnings = claim.Check(p.Points)
	}
	for _, c := range []struct {
		n    int
		what string
	}{{failed, "that failed"}, {left, "without the times of a stream"}} {
		if c.n > 0 {
			warnings = append(warnings, fmt.Errorf("%s: %d requests %s left out", name, c.n, c.what))
		}
	}
	return p, warnings, format.KeepServings(&p.Header, name, []format.Serving{s})
}

// readRequest reads one request as it stands in the file, and the gaps between
// its chunks in seconds; ok is false where something is missing.
func readRequest(n format.Node, index int) (p profile.Point, gaps []float64, ok bool) {
	f := &format.Figures{}
	response, asked := n.Get("info").Get("response_metrics"), n.Get("info").Get("request_metrics")
	count := func(nodes ...format.Node) *int {
		for _, n := range nodes {
			if v := f.Count(n); v != nil {
				return v
			}
		}
		return nil
	}
	usage := response.Get("server_usage")
	input := count(usage.Get("prompt_tokens"), asked.Get("text").Get("input_tokens"), n.Get("info").Get("input_tokens"))
	output := count(usage.Get("completion_tokens"), response.Get("output_tokens"))
	cached := count(usage.Get("prompt_tokens_details").Get("cached_tokens"))
	sent := f.Number(n.Get("start_time"), 1)
	var times []float64
	for _, e := range response.Get("output_token_times").Elements() {
		t := f.Number(e, 1)
		if t == nil {
			return p, nil, false
		}
		// Tokens of one chunk have one time.
		if len(times) == 0 || *t != times[len(times)-1] {
			times = append(times, *t)
		}
	}
	if input == nil || output == nil || sent == nil || len(times) == 0 || !slices.IsSorted(times) {
		return p, nil, false
	}
	r := &profile.Request{ID: strconv.Itoa(index), InputLen: *input, OutputLen: *output, Scheduled: *sent, Sent: *sent, First: times[0], Last: times[len(times)-1]}
	if cached != nil {
		r.CachedLen = *cached
	}
	gaps = make([]float64, 0, len(times)-1)
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, times[i]-times[i-1])
	}
	return profile.Point{Kind: profile.KindRequest, Request: r, Clock: profile.ClockWall}, gaps, true
}
