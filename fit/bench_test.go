package fit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llmprof/llmprof/forward"
)

// distinctRows are n distinct configurations of one machine, half of each mode.
func distinctRows(tb testing.TB, n int) []Row {
	tb.Helper()
	r := rand.New(rand.NewPCG(11, 0))
	m := machines()[1]
	var rows []Row
	seen := map[key]bool{}
	for len(rows) < n {
		row := Row{Mode: modes()[len(rows)%2], BatchSize: 1 + r.IntN(512), InputLen: int(math.Exp2(15 * r.Float64())), OutputLen: 32}
		if row.Mode == Decode {
			row.Context = float64(row.InputLen + 16)
		}
		if seen[row.key()] {
			continue
		}
		seen[row.key()] = true
		row.Median = m.step(row.Mode, row.BatchSize, row.InputLen, 32) * math.Exp(0.02*r.NormFloat64())
		row.Mean = row.Median
		rows = append(rows, row)
	}
	return rows
}

// BenchmarkTrain100k fits 100,000 distinct points; the bound is 2 s.
func BenchmarkTrain100k(b *testing.B) {
	rows := distinctRows(b, 100_000)
	for b.Loop() {
		if _, _, err := Train(b.Context(), rows, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTrainA100(b *testing.B) {
	rows := a100(b).Rows
	for b.Loop() {
		if _, _, err := Train(b.Context(), rows, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPredict(b *testing.B) {
	p, _, err := Train(b.Context(), a100(b).Rows, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Predict(Query{Mode: Decode, BatchSize: 12, InputLen: 700}); err != nil {
			b.Fatal(err)
		}
	}
}

// serverRows are n steps of one server.
func serverRows(tb testing.TB, n int) []Row {
	tb.Helper()
	d, err := ObservationsOf(server{machine: machines()[0], budget: 2048, rate: 0.15, noise: 0.05, drift: 0.05}.run(n, 1))
	if err != nil {
		tb.Fatal(err)
	}
	return d.Rows
}

// BenchmarkTrainMixed10k fits 10,000 steps of a server; the bound is 1 s.
func BenchmarkTrainMixed10k(b *testing.B) { benchmarkTrainMixed(b, 10_000) }

// BenchmarkTrainMixed100k fits 100,000; the bound is 5 s.
func BenchmarkTrainMixed100k(b *testing.B) { benchmarkTrainMixed(b, 100_000) }

func benchmarkTrainMixed(b *testing.B, n int) {
	b.Helper()
	rows := serverRows(b, n)
	for b.Loop() {
		if _, _, err := Train(b.Context(), rows, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStepTimeMixed is asked millions of times in a simulation; the bound
// is 1 µs.
func BenchmarkStepTimeMixed(b *testing.B) {
	p, _, err := Train(b.Context(), serverRows(b, 3000), Options{})
	if err != nil {
		b.Fatal(err)
	}
	pass := forward.Pass{Prefill: []forward.Chunk{{Count: 1, New: 300, Context: 512}, {Count: 1, New: 20}}, Decode: forward.Sequences{Count: 30, SumContext: 30000}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.StepTime(pass); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStepTimeOf(b *testing.B) {
	p, _, err := Train(b.Context(), serverRows(b, 3000), Options{})
	if err != nil {
		b.Fatal(err)
	}
	totals := forward.Totals{PrefillRequests: 2, PrefillTokens: 320, DecodeRequests: 30, DecodeTokens: 30, KVTokens: 30000}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.StepTimeOf(totals); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHostGap(b *testing.B) {
	steps, requests := vllmSteps(b, "g-busy-public"), vllmRequests(b, "g-busy-public")
	for b.Loop() {
		if _, err := HostGap(steps, requests); err != nil {
			b.Fatal(err)
		}
	}
}
