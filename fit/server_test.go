package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// server makes up the steps of an engine with chunked prefill on a machine.
type server struct {
	machine machine
	budget  int     // tokens of a step
	rate    float64 // requests that arrive in a step, on average
	noise   float64 // standard deviation of a step's time, as a fraction
	drift   float64 // that of what some hundred steps share
	passes  bool    // the shapes of passes are known, not only their sums
}

type job struct{ left, context, generate int }

// run are n steps in their order.
func (s server) run(n int, seed uint64) []profile.Point {
	r := rand.New(rand.NewPCG(seed, 5))
	var waiting, decoding []job
	var points []profile.Point
	var drift float64
	for len(points) < n {
		drift = 0.99*drift + s.drift*math.Sqrt(1-0.99*0.99)*r.NormFloat64()
		for r.Float64() < s.rate/(1+s.rate) && len(waiting) < 16 {
			waiting = append(waiting, job{left: 1 + int(math.Exp(6+r.NormFloat64())), generate: 1 + int(math.Exp(4+0.7*r.NormFloat64()))})
		}
		pass := forward.Pass{}
		for _, d := range decoding {
			pass.Decode.Count++
			pass.Decode.SumContext += int64(d.context)
		}
		budget := s.budget - pass.Decode.Count
		for i := 0; i < len(waiting) && budget > 0; i++ {
			add := min(waiting[i].left, budget)
			budget -= add
			pass.Prefill = append(pass.Prefill, forward.Chunk{Count: 1, New: add, Context: waiting[i].context, Last: add == waiting[i].left})
			waiting[i].left -= add
			waiting[i].context += add
		}
		for i := range decoding {
			decoding[i].context++
			decoding[i].generate--
		}
		decoding = slices.DeleteFunc(decoding, func(j job) bool { return j.generate <= 0 })
		for len(waiting) > 0 && waiting[0].left == 0 {
			decoding, waiting = append(decoding, waiting[0]), waiting[1:]
		}
		if pass.Tokens() == 0 {
			continue
		}
		step := &profile.Step{Mode: profile.Mixed, Pass: pass}
		if !s.passes {
			totals := pass.Totals()
			step = &profile.Step{Mode: profile.Mixed, Totals: &totals}
		}
		points = append(points, profile.Point{
			Kind: profile.KindStep, Clock: profile.ClockWall, Step: step, Origin: fmt.Sprintf("server.log: line %d", len(points)+1),
			Samples: []float64{s.time(&pass) * math.Exp(drift+s.noise*r.NormFloat64())},
		})
	}
	return points
}

// time is the noise-free time of a pass in seconds.
func (s server) time(p *forward.Pass) float64 {
	w := workOfPass(p)
	return s.machine.time(w.prefillTokens+w.decodeTokens, w.prefillRequests+w.decodeRequests, w.cached, w.pairs)
}
