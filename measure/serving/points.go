package serving

import (
	"fmt"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/profile"
)

// Points are the result as points of a profile: the latencies of each side, the
// requests and the engine's steps of all counted runs, and what the server said of each run. A cell
// that failed is one failure.
func (r *Result) Points() ([]profile.Point, error) {
	if r.Failure != "" {
		side := r.Cell.Type
		if side == profile.Mixed {
			side = profile.Prefill
		}
		w := r.workload(nil, side, r.Cell.Type)
		return []profile.Point{{Kind: profile.KindFailure, Workload: w, Reason: r.Failure, Origin: r.Cell.String()}}, nil
	}
	var points []profile.Point
	alone := map[string]*Side{profile.Prefill: r.Side(r.Prefill, profile.Prefill), profile.Decode: r.Side(r.Decode, profile.Decode)}
	for _, part := range []struct {
		phase *Phase
		name  string
		sides []string
	}{
		{r.Prefill, profile.Prefill, []string{profile.Prefill}},
		{r.Decode, profile.Decode, []string{profile.Decode}},
		{r.Mixed, profile.Mixed, []string{profile.Prefill, profile.Decode}},
	} {
		if part.phase == nil {
			continue
		}
		for _, name := range part.sides {
			side := r.Side(part.phase, name)
			if len(side.Latencies) == 0 {
				continue
			}
			w := r.workload(part.phase, name, part.name)
			if part.name == profile.Mixed {
				w.Slowdown = Slowdown(side, alone[name])
			}
			points = append(points, profile.Point{
				Kind: profile.KindWorkload, Workload: w, Samples: side.Latencies, Clock: profile.ClockWall, Origin: r.Cell.String(), Warnings: r.Warnings,
			})
		}
		for i := range part.phase.Runs {
			own, err := r.runPoints(&part.phase.Runs[i], part.name, i+1)
			if err != nil {
				return nil, err
			}
			points = append(points, own...)
		}
	}
	return points, nil
}

// workload is the cell as one side of a profile's load.
func (r *Result) workload(p *Phase, side, kind string) *profile.Workload {
	w := &profile.Workload{
		Type: kind, Side: side, NewTokens: r.Cell.NewTokens, CachedBlocks: r.Cell.CachedBlocks, BlockSize: r.Cell.BlockSize, Requests: r.Cell.Requests,
	}
	if p == nil {
		return w
	}
	w.Runs = len(p.Runs)
	for i := range p.Runs {
		records := p.Runs[i].Prefill
		if side == profile.Decode {
			records = p.Runs[i].Decode
		}
		for j := range records {
			w.OutputLen = max(w.OutputLen, records[j].Output.Tokens)
		}
	}
	return w
}

// runPoints are the requests of a run, and what the server said of it.
func (r *Result) runPoints(run *Run, part string, number int) ([]profile.Point, error) {
	var points []profile.Point
	name := fmt.Sprintf("%s: %s, run %d", r.Cell, part, number)
	for _, rec := range run.all() {
		p, err := load.Point(&rec, name)
		if err != nil {
			return nil, err
		}
		points = append(points, p)
	}
	for _, step := range run.Steps {
		points = append(points, r.step(step))
	}
	if run.Server != nil {
		s := *run.Server
		s.Window = name
		points = append(points, profile.Point{Kind: profile.KindServer, Server: &s})
	}
	return points, nil
}

// step is a step of the engine as a point.
func (r *Result) step(step engine.ServedStep) profile.Point {
	totals, mode := step.Totals, profile.Mixed
	switch {
	case totals.DecodeRequests == 0:
		mode = profile.Prefill
	case totals.PrefillRequests == 0:
		mode = profile.Decode
	}
	if step.KVUsage != nil {
		totals.KVTokens = int64(*step.KVUsage*float64(r.KVTokens) + 0.5)
	}
	p := profile.Point{Kind: profile.KindStep, Clock: profile.ClockWall, Samples: []float64{step.Seconds}, Step: &profile.Step{Mode: mode, Totals: &totals}}
	if r.StepNote != "" {
		p.Warnings = []string{r.StepNote}
	}
	return p
}
