package sim_test

import (
	"testing"

	"github.com/llmprof/llmprof/sim"
)

// BenchmarkListPath is a step of 240 decodes of some 1500 tokens of context,
// where each request that ends is followed by one that arrives.
func BenchmarkListPath(b *testing.B) { benchmarkSteps(b, false) }

// BenchmarkAggregatedPath is the same, with the decodes counted.
func BenchmarkAggregatedPath(b *testing.B) { benchmarkSteps(b, true) }

func benchmarkSteps(b *testing.B, aggregate bool) {
	for _, mode := range []struct {
		name  string
		async bool
	}{{"sync", false}, {"async", true}} {
		b.Run(mode.name, func(b *testing.B) {
			s := replica(b, func(c *sim.Config) {
				c.Blocks, c.BlockSize, c.MaxBatchedTokens, c.MaxSeqs, c.MaxModelLen = 40_000, 16, 8192, 256, 8192
				c.Async, c.Aggregate = mode.async, aggregate
			})
			next := 0
			arrive := func() {
				next++
				if _, err := s.Add(sim.Request{Prompt: 1000 + next%97, Output: 900 + next*37%201}); err != nil {
					b.Fatal(err)
				}
			}
			for range 240 {
				arrive()
			}
			step := func() {
				s.Schedule()
				for range s.Apply().Finished {
					arrive()
				}
			}
			for range 5000 {
				step()
			}
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}

// BenchmarkReplay is the whole of 10,000 requests of 512 and 256 tokens that
// come five steps after each other.
func BenchmarkReplay(b *testing.B) {
	b.ReportAllocs()
	steps := 0
	for b.Loop() {
		s := replica(b, func(c *sim.Config) {
			c.Blocks, c.BlockSize, c.MaxBatchedTokens, c.MaxSeqs, c.MaxModelLen = 27_000, 16, 2048, 256, 8192
		})
		for step, added := 0, 0; added < 10_000 || !s.Idle(); step++ {
			if step%5 == 0 && added < 10_000 {
				if _, err := s.Add(sim.Request{Prompt: 512, Output: 256}); err != nil {
					b.Fatal(err)
				}
				added++
			}
			s.Schedule()
			s.Apply()
			steps++
		}
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
}

// replica is a scheduler of the newest release with a small pool, changed as
// wanted.
func replica(t testing.TB, change func(*sim.Config)) *sim.Scheduler {
	t.Helper()
	rules, err := sim.RulesOf("")
	if err != nil {
		t.Fatal(err)
	}
	c := sim.Config{Rules: rules, Blocks: 17, BlockSize: 4, MaxBatchedTokens: 16, MaxSeqs: 4, MaxModelLen: 32}
	if change != nil {
		change(&c)
	}
	s, err := sim.NewScheduler(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
