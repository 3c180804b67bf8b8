package sglang

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/sim"
)

// further is a configuration with another value of a setting: of a number any
// within its bounds.
func further(t *rapid.T, c Config, knob sim.Knob) Config {
	value := 0.0
	switch {
	case knob.From != nil:
		most := *knob.From*5 + 1000
		value = float64(rapid.IntRange(int(*knob.From), int(most)).Draw(t, knob.Name))
	case knob.To != nil:
		value = *knob.To * float64(rapid.IntRange(1, 16).Draw(t, knob.Name)) / 16
	}
	n := int(value)
	switch knob.Name {
	case "max_running_requests":
		c.Seats = n
	case "chunked_prefill_size":
		c.Chunk = n
	case "max_prefill_tokens":
		c.MaxPrefill = n
	case "max_total_num_tokens":
		c.Pool = n
	case "mem_fraction_static":
		c.Pool *= 3
	case "schedule_conservativeness":
		c.Conservativeness = value
	case "schedule_policy":
		c.Policy = Policy(rapid.IntRange(0, int(Random)).Draw(t, "other policy"))
		if c.Priority {
			c.Policy = LOF
		}
	case "context_length":
		c.Context = n
	case "page_size":
		c.Page = max(n, 1)
	case "disable_radix_cache":
		c.NoPrefixCache = true
	case "enable_mixed_chunk":
		c.Mixed = !c.Mixed
	case "enable_priority_scheduling":
		c.Priority = false
	case "priority_scheduling_preemption_threshold":
		c.PreemptThreshold = n
	case "retraction_policy":
		c.RetractByPriority = false
	case "prefill_decode_interval":
		c.DecodeInterval = n
	default:
		t.Fatalf("setting %s: nobody knows it", knob.Name)
	}
	return c
}

// decisions are what a scheduler does with requests that come after some
// iterations, but for what is free.
func decisions(c Config, requests []Request, gaps []int) (decided string, s *Scheduler, err error) {
	s, err = New(c)
	if err != nil {
		return "", nil, err
	}
	var b strings.Builder
	next, wait, still := 0, 0, 0
	for next < len(requests) || s.Busy() {
		for ; next < len(requests) && wait >= gaps[next]; next++ {
			wait, still = 0, 0
			_, err := s.Add(requests[next])
			fmt.Fprintln(&b, err == nil)
		}
		wait++
		t, err := s.Step()
		if errors.Is(err, ErrStopped) || still > 400 && next == len(requests) {
			return b.String(), s, nil
		}
		if err != nil {
			return "", nil, err
		}
		if still++; t.Kind != None {
			still = 0
		}
		fmt.Fprintln(&b, t.Kind, t.Requests, t.Tokens, t.Cached, t.Retracted, t.Aborted, t.Outputs, t.Finished, t.Running, t.Waiting)
	}
	return b.String(), s, nil
}

// TestUnboundIsUnbound changes every setting that is said to make no difference:
// it must make none. The sizes and the settings are such that each is said of
// some runs and not of others.
func TestUnboundIsUnbound(t *testing.T) {
	if !testing.Short() {
		manyChecks(t, 1000)
	}
	runs, idle := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		c, release := drawConfig(t)
		c.Pool += rapid.SampledFrom([]int{0, 1000, 10_000}).Draw(t, "roomier")
		c.Context = rapid.SampledFrom([]int{100, 200}).Draw(t, "context")
		c.MaxPrefill += rapid.SampledFrom([]int{0, 10_000}).Draw(t, "larger batches")
		c.Seats += rapid.SampledFrom([]int{0, 50}).Draw(t, "more seats")
		if c.Chunk > 0 {
			c.Chunk += rapid.SampledFrom([]int{0, 400}).Draw(t, "larger chunk")
		}
		requests := drawRequests(t)
		longest := rapid.SampledFrom([]int{6, 150}).Draw(t, "gap")
		gaps := rapid.SliceOfN(rapid.IntRange(0, longest), len(requests), len(requests)).Draw(t, "gaps")
		alone, alike := rapid.Bool().Draw(t, "nobody shares"), rapid.Bool().Draw(t, "nobody is more important")
		for i := range requests {
			if alone {
				requests[i].Prefix = nil
			}
			if alike {
				requests[i].Priority = 0
			}
		}
		want, s, err := decisions(c, requests, gaps)
		if err != nil {
			t.Fatal(err)
		}
		runs++
		for _, knob := range s.Unbound() {
			idle[knob.Name]++
			other := further(t, c, knob)
			got, _, err := decisions(other, requests, gaps)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
				for i := range a {
					if i >= len(b) || a[i] != b[i] {
						t.Fatalf("release %s, %s: %s, but changed, line %d is %q, not %q", release, knob.Name, knob.Why, i, b[min(i, len(b)-1)], a[i])
					}
				}
				t.Fatalf("release %s, %s: %s, but there is more", release, knob.Name, knob.Why)
			}
		}
	})
	names := make([]string, 0, len(idle))
	for name := range idle {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Logf("%s made no difference to %d of %d runs", name, idle[name], runs)
		if idle[name] == runs {
			t.Errorf("%s never makes a difference", name)
		}
	}
	if !testing.Short() && len(names) != 15 {
		t.Errorf("%d settings made no difference to some runs, want 15: %v", len(names), names)
	}
}
