package fleet_test

import (
	"context"
	"testing"

	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/sim/sglang"
)

// BenchmarkReferenceSGLang is the load of BenchmarkReference on SGLang, with a
// pool of the same size.
func BenchmarkReferenceSGLang(b *testing.B) {
	l := reference(b, 10_000, 20)
	for _, mode := range []struct {
		name    string
		overlap bool
		policy  sglang.Policy
		listed  bool
	}{
		{"overlap", true, sglang.FCFS, false},
		{"overlap lpm", true, sglang.LPM, false},
		{"sync", false, sglang.FCFS, false},
		{"overlap walked", true, sglang.FCFS, true},
		{"sync walked", false, sglang.FCFS, true},
	} {
		b.Run(mode.name, func(b *testing.B) {
			rules, err := sglang.RulesOf("")
			if err != nil {
				b.Fatal(err)
			}
			config := &sglang.Config{
				Rules: rules, Pool: 27_000 * 16, Page: 1, Chunk: 8192, MaxPrefill: 16384, Seats: 256, Conservativeness: 1, Context: 8192,
				Overlap: mode.overlap, Policy: mode.policy,
			}
			b.ReportAllocs()
			steps := int64(0)
			for b.Loop() {
				r, err := fleet.Run(context.Background(), l, fleet.Config{Replicas: []fleet.Replica{{SGLang: loopOf(config), Timer: sim.StepTimerFunc(linear), Listed: mode.listed}}})
				if err != nil {
					b.Fatal(err)
				}
				steps += r.Replicas[0].Steps
			}
			b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}
