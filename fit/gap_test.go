package fit

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// TestHostGapOfVLLM: four loads of one real server agree on its gap as far as
// its machine lets them.
func TestHostGapOfVLLM(t *testing.T) {
	var all []Gap
	for _, c := range []struct {
		load    string
		periods int
		steps   int
	}{
		{"a-poisson", 96, 3703},
		{"a2-poisson", 98, 3764},
		{"b-burst-prefix", 35, 1601},
		{"g-busy-public", 72, 5930},
	} {
		g, err := HostGap(vllmSteps(t, c.load), vllmRequests(t, c.load))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v (%v to %v) between steps, %v (%v to %v) before a request", c.load, g.Between.Value, g.Between.Low, g.Between.High, g.Before.Value, g.Before.Low, g.Before.High)
		if g.Periods != c.periods || g.Steps != c.steps || len(g.Between.Warnings) > 0 {
			t.Errorf("%s: %d periods of %d steps, warnings %q: want %d of %d", c.load, g.Periods, g.Steps, g.Between.Warnings, c.periods, c.steps)
		}
		if ms := g.Between.Value.Milliseconds(); ms < 0.6 || ms > 1.2 || !(g.Between.Low < g.Between.Value && g.Between.Value < g.Between.High) {
			t.Errorf("%s: %+v between steps", c.load, g.Between)
		}
		if ms := g.Before.Value.Milliseconds(); ms < 5 || ms > 9.5 || g.Before.Level != 0.8 {
			t.Errorf("%s: %+v before a request", c.load, g.Before)
		}
		all = append(all, g)
	}
	merged, err := MergeGaps(all...)
	if err != nil {
		t.Fatal(err)
	}
	if merged.Periods != 301 || merged.Between.Low != all[3].Between.Low || merged.Between.High != all[2].Between.High || merged.Between.Value < 7e-4 || merged.Between.Value > 1e-3 {
		t.Errorf("merged %+v", merged)
	}
	if _, err := MergeGaps(); !errors.Is(err, stat.ErrNoData) {
		t.Errorf("nothing to merge: %v", err)
	}
}

// clients are a first-come server's steps and its clients' requests, with a
// known gap between steps and a known time before a request is seen.
func clients(n int, gap, before, pause float64, seed uint64) (steps, requests []profile.Point) {
	r := rand.New(rand.NewPCG(seed, 9))
	type running struct {
		request *profile.Request
		left    int // prompt tokens
		made    int // tokens
	}
	var sent []*profile.Request
	at := 0.0
	for range n {
		at += pause * r.ExpFloat64()
		q := &profile.Request{InputLen: 20 + r.IntN(600), OutputLen: 2 + r.IntN(40), Sent: at}
		q.CachedLen = q.InputLen / 2 * r.IntN(2)
		sent = append(sent, q)
		requests = append(requests, profile.Point{Kind: profile.KindRequest, Request: q})
	}
	var active []*running
	now := 0.0
	for len(sent) > 0 || len(active) > 0 {
		if len(active) == 0 {
			now = max(now, sent[0].Sent+before)
		}
		for len(sent) > 0 && sent[0].Sent+before <= now {
			active = append(active, &running{request: sent[0], left: sent[0].InputLen - sent[0].CachedLen})
			sent = sent[1:]
		}
		var t forward.Totals
		budget := 256
		var ends []*running
		for _, a := range active {
			if a.left == 0 {
				t.DecodeRequests++
				t.DecodeTokens++
				ends = append(ends, a)
				continue
			}
			if budget == 0 {
				continue
			}
			add := min(a.left, budget)
			a.left -= add
			budget -= add
			t.PrefillRequests++
			t.PrefillTokens += add
			if a.left == 0 {
				ends = append(ends, a)
			}
		}
		y := 2e-3 + 1e-4*float64(t.Tokens())*(0.9+0.2*r.Float64())
		now += y
		steps = append(steps, profile.Point{Kind: profile.KindStep, Samples: []float64{y}, Step: &profile.Step{Mode: profile.Mixed, Totals: &t}})
		for _, a := range ends {
			if a.made == 0 {
				a.request.First = now
			}
			a.made++
			a.request.Last = now
		}
		still := active[:0]
		for _, a := range active {
			if a.made < a.request.OutputLen {
				still = append(still, a)
			}
		}
		active = still
		now += gap
	}
	return steps, requests
}

// TestHostGapKnown finds gaps that were put in.
func TestHostGapKnown(t *testing.T) {
	for _, c := range []struct {
		why                string
		gap, before, pause float64 // seconds
	}{
		{"an idle server", 1.3e-3, 6e-3, 0.5},
		{"a busy one", 1.3e-3, 6e-3, 0.12},
		{"no gap at all", 0, 1e-3, 0.3},
		{"a gap longer than the steps", 10e-3, 0, 0.8},
	} {
		t.Run(c.why, func(t *testing.T) {
			steps, requests := clients(200, c.gap, c.before, c.pause, 1)
			g, err := HostGap(steps, requests)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(float64(g.Between.Value)-c.gap) > 0.1*c.gap+2e-5 || math.Abs(float64(g.Before.Value)-c.before) > 0.15*c.before+2e-4 {
				t.Errorf("%v and %v from %d periods, want %v and %v s", g.Between.Value, g.Before.Value, g.Periods, c.gap, c.before)
			}
			if err := g.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostGapRecomputed: a period in which a request was computed again is left
// out, and those behind it are not.
func TestHostGapRecomputed(t *testing.T) {
	steps, requests := clients(200, 1e-3, 5e-3, 0.3, 2)
	all, err := HostGap(steps, requests)
	if err != nil || all.Periods < 50 {
		t.Fatalf("%d periods, %v", all.Periods, err)
	}
	for _, c := range []struct {
		why string
		at  []int
	}{
		{"in the first period", []int{0}},
		{"in the middle", []int{len(steps) / 2}},
		{"here and there", []int{3, len(steps) / 4, len(steps) / 2, len(steps) - 200}},
	} {
		again := slices.Clone(steps)
		for _, at := range c.at {
			totals := *again[at].Step.Totals
			totals.PrefillRequests, totals.PrefillTokens = totals.PrefillRequests+1, totals.PrefillTokens+50
			again[at].Step = &profile.Step{Mode: profile.Mixed, Totals: &totals}
		}
		g, err := HostGap(again, requests)
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
			continue
		}
		if lost := all.Periods - g.Periods; lost < len(c.at) || lost > 3*len(c.at) {
			t.Errorf("%s: %d of %d periods are left, want all but those of %d steps", c.why, g.Periods, all.Periods, len(c.at))
		}
		if math.Abs(g.Between.Value.Milliseconds()-1) > 0.1 || math.Abs(g.Before.Value.Milliseconds()-5) > 0.5 {
			t.Errorf("%s: %v and %v, want 1 and 5 ms", c.why, g.Between.Value, g.Before.Value)
		}
	}
}

// TestHostGapDoubts: what cannot be told is an error or carries a warning.
func TestHostGapDoubts(t *testing.T) {
	steps, requests := clients(200, 1e-3, 5e-3, 0.3, 2)
	few, ofFew := clients(8, 1e-3, 5e-3, 3, 3)
	others, _ := clients(200, 1e-3, 5e-3, 0.3, 4)
	crowd, ofCrowd := clients(100, 1e-3, 5e-3, 0.001, 5)
	warm := append([]profile.Point{steps[0], steps[1], steps[0]}, steps...)
	recomputed := append([]profile.Point(nil), steps...)
	again := *recomputed[len(steps)/2].Step.Totals
	again.PrefillRequests, again.PrefillTokens = again.PrefillRequests+1, again.PrefillTokens+50
	recomputed[len(steps)/2].Step = &profile.Step{Mode: profile.Mixed, Totals: &again}
	slow := append([]profile.Point(nil), steps...)
	for i := range slow {
		slow[i].Samples = []float64{2 * slow[i].Samples[0]}
	}
	broken := append([]profile.Point(nil), requests...)
	back := *requests[3].Request
	back.Last = back.Sent - 1
	broken[3].Request = &back
	for _, c := range []struct {
		why             string
		steps, requests []profile.Point
		fails, warns    string
	}{
		{"steps of other requests", others, requests, "do not add up", ""},
		{"a server that never paused", crowd, ofCrowd, "never paused", ""},
		{"steps that take longer than their requests", slow, requests, "not those of these steps", ""},
		{"a request that ends before it begins", steps, broken, "cannot be", ""},
		{"no steps", nil, requests, "no steps", ""},
		{"no requests", steps, nil, "no requests", ""},
		{"a recomputed prompt", recomputed, requests, "", "in the others the tokens"},
		{"steps after the last request", append(append([]profile.Point(nil), steps...), steps[0]), requests, "", "follow"},
		{"a step before the first request", warm, requests, "", "before the first request"},
		{"few periods", few, ofFew, "", "periods only"},
	} {
		t.Run(c.why, func(t *testing.T) {
			g, err := HostGap(c.steps, c.requests)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("%+v, %v, want an error of %q", g, err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(g.Between.Warnings, "; "); !strings.Contains(text, c.warns) || math.Abs(g.Between.Value.Milliseconds()-1) > 0.2 {
				t.Errorf("%v, warnings %q, want 1 ms and %q", g.Between.Value, text, c.warns)
			}
		})
	}
	bad := Gap{Between: stat.Exactly(unit.Seconds(-1), stat.Fitted)}
	if _, _, err := Train(t.Context(), a100(t).Rows[:4], Options{HostGap: &bad}); err == nil {
		t.Error("a negative gap: accepted")
	}
	if _, ok := (&Predictor{}).HostGap(); ok {
		t.Error("a predictor without a gap tells one")
	}
}
