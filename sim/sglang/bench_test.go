package sglang_test

import (
	"testing"

	"github.com/llmprof/llmprof/sim/sglang"
)

// full makes a replica on which so many requests decode and wait.
func full(tb testing.TB, release string, running, waiting int) *sglang.Scheduler {
	rules, err := sglang.RulesOf(release)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := sglang.New(sglang.Config{
		Rules: rules, Pool: 1 << 24, Page: 1, Chunk: 8192, MaxPrefill: 16384, Seats: running,
		Conservativeness: 1, Overlap: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	for range running + waiting {
		if _, err := s.Add(sglang.Request{Prompt: 512, MaxNew: 1 << 29, Group: 1, Shared: 256}); err != nil {
			tb.Fatal(err)
		}
	}
	for {
		b, err := s.Step()
		if err != nil {
			tb.Fatal(err)
		}
		if b.Kind == sglang.Decode && len(b.Requests) == running {
			return s
		}
	}
}

// BenchmarkDecode is one iteration of 240 decoding requests while 100 wait.
func BenchmarkDecode(b *testing.B) {
	for _, release := range []string{"0.5.10", "0.5.23"} {
		b.Run(release, func(b *testing.B) {
			s, steps := full(b, release, 240, 100), 0
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if steps++; steps == 50_000 {
					b.StopTimer()
					s, steps = full(b, release, 240, 100), 0
					b.StartTimer()
				}
				if _, err := s.Step(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkServe is a whole run: 1,000 requests in groups, arriving as they
// are served.
func BenchmarkServe(b *testing.B) {
	rules, err := sglang.RulesOf("")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	steps := 0
	for range b.N {
		s, err := sglang.New(sglang.Config{
			Rules: rules, Pool: 60_000, Page: 1, Chunk: 2048, MaxPrefill: 16384, Seats: 256,
			Conservativeness: 1, Overlap: true, Policy: sglang.LPM,
		})
		if err != nil {
			b.Fatal(err)
		}
		for added := 0; added < 1000 || s.Busy(); steps++ {
			for range min(2, 1000-added) {
				if _, err := s.Add(sglang.Request{Prompt: 512, MaxNew: 100 + added%50, Group: added % 20, Shared: 400}); err != nil {
					b.Fatal(err)
				}
				added++
			}
			if _, err := s.Step(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
}

// TestNoAllocation holds the loop to taking no memory once it has its size.
func TestNoAllocation(t *testing.T) {
	for _, release := range sglang.Releases() {
		s := full(t, release, 64, 32)
		if n := testing.AllocsPerRun(200, func() {
			if _, err := s.Step(); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("release %s: %g allocations a step", release, n)
		}
	}
}
