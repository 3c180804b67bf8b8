package fit

import (
	"math"
	"math/rand/v2"
	"testing"
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
