package scenario_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/scenario"
)

// draws are random numbers in the words of a scenario.
type draws struct{ *rand.Rand }

// upTo is 1 to most, or 1 where that is less.
func (d draws) upTo(most int) int { return d.below(most) + 1 }

// below is 0 to n-1, or 0 where n is less than 1.
func (d draws) below(n int) int { return d.IntN(max(n, 1)) }

// oneIn is true once in n times.
func (d draws) oneIn(n int) bool { return d.IntN(n) == 0 }

func (d draws) of(values ...int) int { return values[d.IntN(len(values))] }

// randomScenario draws a load for a release that reaches most rules of its
// scheduler now and then: half of the pools hold hardly more than the longest
// request, so that there are preemptions and evictions.
func randomScenario(t *testing.T, d draws, release string) *scenario.Scenario {
	t.Helper()
	rules, err := sim.RulesOf(release)
	if err != nil {
		t.Fatal(err)
	}
	tight := d.oneIn(2)
	s := &scenario.Scenario{Release: release, Config: randomConfig(d, rules, tight)}
	if err := s.Config.Validate(); err != nil {
		t.Fatal(err)
	}
	n := d.upTo(d.of(4, 8, 16, 30))
	last := d.of(1, 3, n, 4*n)
	ranks, stops, groups := d.of(1, 2, 10), d.of(0, 3, 10), d.below(4)
	for i := range n {
		q := randomRequest(d, &s.Config, tight)
		q.Name, q.Arrival = fmt.Sprintf("R%02d", i), d.of(1, d.upTo(last), d.upTo(last))
		q.Priority, q.StopToken = d.below(ranks)-ranks/3, d.below(10) < stops
		q.Shared = d.of(0, q.Prompt, d.below(q.Prompt), q.Prompt/s.Config.BlockSize*s.Config.BlockSize)
		if q.Shared = min(q.Shared, groups*q.Prompt); q.Shared > 0 {
			q.Group = fmt.Sprintf("G%d", d.below(groups))
		}
		s.Requests = append(s.Requests, q)
	}
	return s
}

func randomConfig(d draws, rules sim.Rules, tight bool) sim.Config {
	size := d.of(1, 2, 3, 4, 4, 8, 16)
	length := 2 + d.upTo(d.of(6, 20, 30)*size)
	need := (length + size - 1) / size
	c := sim.Config{
		Rules: rules, BlockSize: size, MaxModelLen: length,
		Blocks:  need + 1 + d.of(0, d.below(4), d.below(need), d.below(4*need)),
		MaxSeqs: d.upTo(d.of(2, 4, 8, 12)),
		Policy:  sim.Policy(d.below(2)), Async: d.oneIn(2),
		WholePrompts: d.oneIn(5), NoPrefixCache: d.oneIn(6), NoFullSequenceGate: d.oneIn(3),
	}
	if tight {
		c.Blocks, c.MaxSeqs = need+1+d.below(5), 2+d.upTo(10)
	}
	c.MaxBatchedTokens = c.MaxSeqs + d.of(0, d.below(4), d.below(length), d.below(4*length))
	if c.WholePrompts {
		c.MaxBatchedTokens = max(c.MaxBatchedTokens, length+d.of(0, d.below(length)))
	}
	if rules.ScheduledTokens && d.oneIn(10) {
		c.MaxScheduledTokens = d.upTo(c.MaxBatchedTokens)
		if c.WholePrompts {
			c.MaxScheduledTokens = length
		}
	}
	if d.oneIn(3) {
		c.Threshold = d.upTo(d.of(4, length))
		c.Threshold = min(c.Threshold, length)
	}
	if d.oneIn(4) {
		c.Watermark = float64(d.below(100)) / 100
	}
	return c
}

// randomRequest draws the lengths of a request.
func randomRequest(d draws, c *sim.Config, tight bool) scenario.Request {
	most := c.MaxModelLen - 1
	prompt := d.of(d.upTo(most), d.upTo(2*c.BlockSize), d.upTo(most/c.BlockSize)*c.BlockSize, most)
	if tight {
		prompt = d.of(d.upTo(most), d.upTo(3*c.BlockSize), d.upTo(3*c.BlockSize))
	}
	q := scenario.Request{Prompt: min(prompt, most)}
	q.Output = d.of(1, d.upTo(5), d.upTo(2*c.BlockSize+2), d.upTo(c.MaxModelLen), d.upTo(c.MaxModelLen-q.Prompt))
	if tight {
		q.Output = d.of(d.upTo(c.MaxModelLen), d.upTo(c.MaxModelLen-q.Prompt))
	}
	return q
}
