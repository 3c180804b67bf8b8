package sglang_test

import (
	"testing"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/sglang"
)

// full makes a replica on which so many requests decode and wait.
func full(tb testing.TB, release string, running, waiting int, aggregate bool) *sglang.Scheduler {
	rules, err := sglang.RulesOf(release)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := sglang.New(sglang.Config{
		Rules: rules, Pool: 1 << 24, Page: 1, Chunk: 8192, MaxPrefill: 16384, Seats: running,
		Conservativeness: 1, Overlap: true, Aggregate: aggregate,
	})
	if err != nil {
		tb.Fatal(err)
	}
	for range running + waiting {
		if _, err := s.Add(sglang.Request{Prompt: 512, MaxNew: 1 << 29, Prefix: []sim.Span{{Node: 1, End: 256}}}); err != nil {
			tb.Fatal(err)
		}
	}
	for {
		b, err := s.Step()
		if err != nil {
			tb.Fatal(err)
		}
		if b.Kind == sglang.Decode && len(b.Requests)+b.Steady == running {
			return s
		}
	}
}

// BenchmarkListPath is an iteration of 240 decodes of some 1500 tokens of
// context, where each request that ends is followed by one that arrives.
func BenchmarkListPath(b *testing.B) { benchmarkSteps(b, false) }

// BenchmarkAggregatedPath is the same, with the decodes counted.
func BenchmarkAggregatedPath(b *testing.B) { benchmarkSteps(b, true) }

func benchmarkSteps(b *testing.B, aggregate bool) {
	for _, mode := range []struct {
		name, release string
		overlap       bool
		page          int
	}{
		{"sync", "", false, 1},
		{"overlap", "", true, 1},
		{"overlap pages", "", true, 16},
		{"overlap 0.5.10", "0.5.10", true, 1},
	} {
		b.Run(mode.name, func(b *testing.B) {
			rules, err := sglang.RulesOf(mode.release)
			if err != nil {
				b.Fatal(err)
			}
			s, err := sglang.New(sglang.Config{
				Rules: rules, Pool: 640_000, Page: mode.page, Chunk: 8192, MaxPrefill: 16384, Seats: 256, Context: 8192,
				Conservativeness: 1, Overlap: mode.overlap, Aggregate: aggregate,
			})
			if err != nil {
				b.Fatal(err)
			}
			next := 0
			arrive := func() {
				next++
				if _, err := s.Add(sglang.Request{Prompt: 1000 + next%97, MaxNew: 900 + next*37%201}); err != nil {
					b.Fatal(err)
				}
			}
			for range 240 {
				arrive()
			}
			step := func() {
				t, err := s.Step()
				if err != nil {
					b.Fatal(err)
				}
				for range t.Finished {
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

// BenchmarkDecode is one iteration of 240 decoding requests while 100 wait and
// none ends.
func BenchmarkDecode(b *testing.B) {
	for _, mode := range []struct {
		name, release string
		aggregate     bool
	}{{"listed 0.5.10", "0.5.10", false}, {"listed", "0.5.23", false}, {"counted 0.5.10", "0.5.10", true}, {"counted", "0.5.23", true}} {
		b.Run(mode.name, func(b *testing.B) {
			s, steps := full(b, mode.release, 240, 100, mode.aggregate), 0
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if steps++; steps == 50_000 {
					b.StopTimer()
					s, steps = full(b, mode.release, 240, 100, mode.aggregate), 0
					b.StartTimer()
				}
				if _, err := s.Step(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
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
				if _, err := s.Add(sglang.Request{Prompt: 512, MaxNew: 100 + added%50, Prefix: []sim.Span{{Node: int32(added % 20), End: 400}}}); err != nil {
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
		for _, aggregate := range []bool{false, true} {
			s := full(t, release, 64, 32, aggregate)
			if n := testing.AllocsPerRun(200, func() {
				if _, err := s.Step(); err != nil {
					t.Fatal(err)
				}
			}); n > 0 {
				t.Errorf("release %s, counted %t: %g allocations a step", release, aggregate, n)
			}
		}
	}
}
