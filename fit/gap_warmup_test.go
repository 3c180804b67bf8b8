package fit

import (
	"math"
	"testing"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// TestHostGapAfterWarmUp wants the steps of a warm-up left out whose requests are
// as long as those of the load: begun among its last decodes, the sums of tokens
// add up for a while too, with every period too late.
func TestHostGapAfterWarmUp(t *testing.T) {
	const step, gap, before = 4e-3, 1e-3, 7e-3
	lengths := [][2]int{{270, 14}, {57, 18}, {152, 13}, {90, 9}, {33, 21}, {400, 12}, {81, 16}, {120, 10}}
	var steps, requests []profile.Point
	add := func(prefill, decode int) {
		totals := &forward.Totals{PrefillTokens: prefill, DecodeTokens: decode, DecodeRequests: decode}
		mode := profile.Decode
		if prefill > 0 {
			mode, totals.PrefillRequests = profile.Prefill, 1
		}
		steps = append(steps, profile.Point{Kind: profile.KindStep, Samples: []float64{step * float64(1+prefill/50)}, Clock: profile.ClockWall, Step: &profile.Step{Mode: mode, Totals: totals}})
	}
	serve := func(input, output int) (first, last float64) {
		from := len(steps)
		add(input, 0)
		for range output - 1 {
			add(0, 1)
		}
		first = before + steps[from].Samples[0]
		return first, first + float64(output-1)*(step+gap)
	}
	serve(lengths[0][0], lengths[0][1])
	serve(lengths[1][0], lengths[1][1])
	for i, l := range lengths {
		sent := float64(i)
		first, last := serve(l[0], l[1])
		requests = append(requests, profile.Point{Kind: profile.KindRequest, Request: &profile.Request{InputLen: l[0], OutputLen: l[1], Sent: sent, First: sent + first, Last: sent + last}})
	}
	g, err := HostGap(steps, requests)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(float64(g.Between.Value)-gap) > 1e-9 || math.Abs(float64(g.Before.Value)-before) > 1e-9 || g.Periods != len(lengths) {
		t.Errorf("%v between steps, %v before requests, %d periods; want %g, %g, %d", g.Between.Value, g.Before.Value, g.Periods, gap, before, len(lengths))
	}
}
