package load

import (
	"strconv"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// Point is a record as a point of a profile: a request of a run, with the gaps
// between its chunks as [format.KeepRun] keeps them, or the failure of one.
func Point(r *Record, run string) (profile.Point, error) {
	p := profile.Point{Kind: profile.KindRequest, Clock: profile.ClockWall}
	var gaps []float64
	if !r.OK() || len(r.Chunks) == 0 {
		p = profile.Point{Kind: profile.KindFailure, Reason: "the answer was no stream"}
		if r.Failure != nil {
			p.Reason = r.Failure.String()
		}
	} else {
		p.Request = &profile.Request{
			ID: strconv.Itoa(r.ID), InputLen: r.Prompt.Tokens, OutputLen: r.Output.Tokens, CachedLen: min(r.Cached.Tokens, r.Prompt.Tokens),
			Scheduled: r.Sched.Seconds(), Sent: r.Send.Seconds(), First: r.Chunks[0].At.Seconds(), Last: r.End.Seconds(),
		}
		gaps = make([]float64, len(r.Chunks)-1)
		for i := range gaps {
			gaps[i] = (r.Chunks[i+1].At - r.Chunks[i].At).Seconds()
		}
	}
	if err := format.KeepRun(&p, run, gaps); err != nil {
		return profile.Point{}, err
	}
	return p, nil
}
