package fleet_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/llmprof/llmprof/fit/layers"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
)

// scaled is a timer whose steps take so many times as long.
func scaled(timer sim.StepTimer, by float64) sim.StepTimer {
	return sim.StepTimerFunc(func(p forward.Pass) (time.Duration, error) {
		d, err := timer.StepTime(p)
		return time.Duration(math.Round(float64(d) * by)), err
	})
}

// atMean is a timer that takes decodes at their mean length.
func atMean(timer sim.StepTimer) sim.StepTimer {
	return sim.StepTimerFunc(func(p forward.Pass) (time.Duration, error) {
		p.Decode.Shortest, p.Decode.Longest, p.DecodeContexts = 0, 0, nil
		return timer.StepTime(p)
	})
}

// TestAttribution varies one thing at a time and prints what it does to the
// errors: which part of them could come from the arrivals, the KV capacity, the
// kernels, the host and the link.
func TestAttribution(t *testing.T) {
	for _, run := range servedRuns() {
		t.Run(run.name, func(t *testing.T) {
			r := ready(t, run)
			base := r.replica(t)
			try := func(why string, arrival func(profile.Request) float64, change func(*fleet.Replica, *sim.Config)) runErrors {
				config, replica := *base.VLLM, base
				replica.VLLM = &config
				change(&replica, &config)
				e, result := r.serve(t, arrival, replica)
				t.Logf("%-44s %v  (%d preemptions)", why, e, result.Replicas[0].Preemptions)
				return e
			}
			keep := func(*fleet.Replica, *sim.Config) {}
			as := try("as it is", due, keep)
			try("arrival: when the engine took them in", func(q profile.Request) float64 { return q.Sent }, keep)
			if e := try("host: no async scheduling", due, func(_ *fleet.Replica, c *sim.Config) { c.Async = false }); e == as {
				t.Error("sync and async scheduling give the same errors")
			}
			try("host: 0.5 ms more between steps", due, func(f *fleet.Replica, _ *sim.Config) { f.Between += 500 * time.Microsecond })
			fast := try("kernel: steps 2 % shorter", due, func(f *fleet.Replica, _ *sim.Config) { f.Timer = scaled(f.Timer, 0.98) })
			slow := try("kernel: steps 2 % longer", due, func(f *fleet.Replica, _ *sim.Config) { f.Timer = scaled(f.Timer, 1.02) })
			if !(fast.E2EL < as.E2EL && as.E2EL < slow.E2EL) {
				t.Errorf("E2EL errors with shorter, given and longer steps: %.2f, %.2f, %.2f: want them to rise", fast.E2EL, as.E2EL, slow.E2EL)
			}
			if e := try("kernel: decodes at their mean length", due, func(f *fleet.Replica, _ *sim.Config) { f.Timer = atMean(f.Timer) }); e.TPOT >= as.TPOT {
				t.Errorf("TPOT error at mean lengths %.2f, else %.2f: want unequal lengths to cost", e.TPOT, as.TPOT)
			}
			for _, share := range []float64{0.95, 1.05} {
				try("KV: "+map[bool]string{true: "5 % more", false: "5 % less"}[share > 1]+" blocks", due, func(_ *fleet.Replica, c *sim.Config) { c.Blocks = int(share * float64(c.Blocks)) })
			}
			try("KV: as computed from model and device", due, func(_ *fleet.Replica, c *sim.Config) { c.Blocks = r.computed })
			if r.tp == 1 {
				return
			}
			try("link: left out", due, func(f *fleet.Replica, _ *sim.Config) { f.Timer = r.timer })
			try("link: by its datasheet (cost)", due, func(f *fleet.Replica, _ *sim.Config) { f.Timer = r.timer.With(r.byDatasheet()) })
			try("link: measured after ACS was switched off", due, func(f *fleet.Replica, _ *sim.Config) { f.Timer = r.linked(t, "testdata/hardware-acs-off.yaml") })
		})
	}
}

// stretch is a time in which a server only decoded, with as many steps as is
// known for sure.
type stretch struct {
	from, to float64 // s
	steps    int
}

// stretches finds them: of requests that got their first or their last token in
// the same step, and of a request's own first and last token, the numbers of
// steps between are known while nobody is preempted.
func stretches(requests []profile.Request) []stretch {
	type link struct {
		to    float64
		steps int
	}
	links := map[float64][]link{}
	for _, q := range requests {
		links[q.First] = append(links[q.First], link{q.Last, q.OutputLen - 1})
		links[q.Last] = append(links[q.Last], link{q.First, 1 - q.OutputLen})
	}
	number := map[float64]int{}
	var out []stretch
	for start := range links {
		if _, seen := number[start]; seen {
			continue
		}
		number[start] = 0
		connected := []float64{start}
		for i := 0; i < len(connected); i++ {
			for _, l := range links[connected[i]] {
				if _, seen := number[l.to]; !seen {
					number[l.to] = number[connected[i]] + l.steps
					connected = append(connected, l.to)
				}
			}
		}
		slices.Sort(connected)
		for i := 1; i < len(connected); i++ {
			s := stretch{connected[i-1], connected[i], number[connected[i]] - number[connected[i-1]]}
			prompts := slices.ContainsFunc(requests, func(q profile.Request) bool { return q.Sent < s.to && q.First > s.from })
			if s.steps >= 5 && !prompts {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b stretch) int { return int(math.Copysign(1, a.from-b.from)) })
	return out
}

// TestDecodeSteps compares the times of single decode steps with those that the
// runs show, where only decodes ran: the error of the kernels and the link, with
// no scheduler in it. A stretch of time holds as many steps as the sum of its
// parts over the time of a step of each.
func TestDecodeSteps(t *testing.T) {
	for _, run := range servedRuns() {
		if run.preempts {
			continue // there is no telling how many steps lie between two tokens
		}
		t.Run(run.name, func(t *testing.T) {
			r := ready(t, run)
			timer := r.linked(t, r.link)
			found := stretches(r.requests)
			if len(found) < 10 {
				t.Fatalf("%d stretches of decoding: want some more", len(found))
			}
			counted, ours := 0.0, 0.0
			for _, s := range found {
				const parts = 200
				steps, seats := 0.0, 0
				for k := range parts {
					p := decoding(r.requests, s.from+(float64(k)+0.5)/parts*(s.to-s.from))
					d, err := timer.StepTime(p)
					if err != nil {
						t.Fatal(err)
					}
					steps += (s.to - s.from) / parts / d.Seconds()
					seats += p.Decode.Count
				}
				t.Logf("%6.1f s: %3d steps of about %5.1f decodes, %6.2f ms each, by layers %+.1f %%", s.from, s.steps, float64(seats)/parts, 1e3*(s.to-s.from)/float64(s.steps), 100*(float64(s.steps)/steps-1))
				counted, ours = counted+float64(s.steps), ours+steps
			}
			e := 100 * (counted/ours - 1)
			t.Logf("%.0f steps: the time of one is off by %+.2f %%", counted, e)
			if math.Abs(e) > 8 {
				t.Errorf("decode steps are off by %.2f %%: want at most 8 %%", e)
			}
		})
	}
}

// decoding is the pass of the requests that are between their first and their
// last token at a time.
func decoding(requests []profile.Request, at float64) (p forward.Pass) {
	for _, q := range requests {
		if q.First < at && at < q.Last {
			p.Decode.Add(q.InputLen + int(math.Round((at-q.First)/(q.Last-q.First)*float64(q.OutputLen-1))))
		}
	}
	return p
}

// A timer of layers is what the simulator takes.
var _ sim.StepTimer = (*layers.Timer)(nil)
