package vllmbench

import (
	"fmt"
	"strconv"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// Requests turns the details of a result into points, one a request that
// succeeded, with times from the first request on and the gaps between its
// chunks. It is empty for a result without details. Warnings tell of requests
// that were left out.
func (s *Serve) Requests() (points []profile.Point, warnings []string) {
	d := s.Details
	if d == nil || d.InputLens == nil || d.OutputLens == nil || d.TTFTs == nil || d.StartTimes == nil {
		return nil, nil
	}
	zero, first := 0.0, true
	for i, t := range d.StartTimes {
		if t -= d.queued(i); d.succeeded(i) && (first || t < zero) {
			zero, first = t, false
		}
	}
	left := 0
	for i := range d.InputLens {
		due := d.StartTimes[i] - d.queued(i) - zero
		sent := due + d.queued(i)
		r := &profile.Request{
			ID: strconv.Itoa(i), InputLen: d.InputLens[i], OutputLen: d.OutputLens[i],
			Scheduled: due, Sent: sent, First: sent + d.TTFTs[i],
		}
		r.Last = r.First
		if d.Latencies != nil {
			r.Last = max(r.First, sent+d.Latencies[i])
		} else if d.ITLs != nil {
			for _, gap := range d.ITLs[i] {
				r.Last += gap
			}
		}
		p := profile.Point{Kind: profile.KindRequest, Request: r, Clock: profile.ClockWall, Origin: fmt.Sprintf("%s: request %d", s.Origin, i)}
		var gaps []float64
		if d.ITLs != nil {
			gaps = d.ITLs[i]
		}
		if !d.succeeded(i) || p.Validate() != nil || format.KeepRun(&p, s.Origin, gaps) != nil {
			left++
			continue
		}
		points = append(points, p)
	}
	if left > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: %d of %d requests left out: they failed or hold impossible times", s.Origin, left, len(d.InputLens)))
	}
	return points, warnings
}

// queued is how long a request waited in the client; 0 where the file does not
// tell.
func (d *Details) queued(i int) float64 {
	if i < len(d.QueueTimes) {
		return max(d.QueueTimes[i], 0)
	}
	return 0
}
