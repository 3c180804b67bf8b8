package sglang

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/engine"
)

// printRow prints a row as bench_one_batch does.
func printRow(s shape, output int, prefill, decode float64) string {
	b, i := float64(s.batch), float64(s.input)
	text := fmt.Sprintf("Prefill. latency: %6.5f s, throughput: %9.2f token/s\n", prefill, b*i/prefill)
	if output > 1 {
		text += fmt.Sprintf("Decode 0. Batch size: %d, latency: %6.5f s, throughput: %9.2f token/s\n", s.batch, 2*decode, b/(2*decode))
		text += fmt.Sprintf("Decode.  median latency: %6.5f s, median throughput: %9.2f token/s\n", decode, b/decode)
	}
	total := prefill + float64(output-1)*decode
	return text + fmt.Sprintf("Total. latency: %6.3f s, throughput: %9.2f token/s", total, b*(i+float64(output))/total)
}

// TestPrecision: what is printed tells prefill and decode to 0.02 %, and the
// whole run to 0.2 %.
func TestPrecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shape{rapid.IntRange(1, 512).Draw(t, "batch"), rapid.IntRange(1, 32768).Draw(t, "input")}
		output := rapid.IntRange(1, 256).Draw(t, "output")
		seconds := func(name string) float64 { return math.Pow(10, rapid.Float64Range(-4.9, 2).Draw(t, name)) }
		prefill, decode := seconds("prefill"), seconds("decode")
		var r reader
		r.bench.Line("Benchmark ...")
		var got row
		rows := 0
		for line := range strings.SplitSeq(printRow(s, output, prefill, decode), "\n") {
			row, ok, err := r.line(line, s, output)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				got = row
				rows++
			}
		}
		if rows != 1 {
			t.Fatalf("%d rows", rows)
		}
		near := func(what string, f figure, want, most float64) {
			if math.Abs(f.value-want) > f.off*(1+1e-6)+1e-15 || f.off > most*want {
				t.Errorf("%s: %g ± %g s, want %g to %g", what, f.value, f.off, want, most)
			}
		}
		near("prefill", got.prefill, prefill, 2e-4)
		near("total", got.total, prefill+float64(output-1)*decode, 2e-3)
		if output > 1 {
			near("decode", got.decode, decode, 2e-4)
		}
	})
}

func FuzzLine(f *testing.F) {
	f.Add("Benchmark ...\n" + printRow(shape{2, 16}, 4, 0.01, 0.002))
	f.Add("Benchmark\nskipping (2, 16, 4) due to max batch size limit")
	f.Add("Prefill. latency: 1 s, throughput: 1e999 token/s\nTotal. latency: . s, throughput: ... token/s")
	f.Fuzz(func(t *testing.T, text string) {
		r := reader{}
		sheet := newSheet(&rectangle{batches: []int{2}, inputs: []int{16}, output: 4, runs: 1, tasks: map[shape][]engine.Task{
			{2, 16}: {{ID: 1, Step: &engine.StepTask{BatchSize: 2, InputLen: 16, OutputLen: 4}, Runs: 1}},
		}}, func(result engine.Result) error {
			for _, p := range result.Points {
				if err := p.Validate(); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		for line := range strings.SplitSeq("Benchmark\n"+text, "\n") {
			if sheet.full() {
				break
			}
			row, ok, err := r.line(line, shape{2, 16}, 4)
			if err != nil {
				break
			}
			if ok && sheet.take(row) != nil {
				t.Error("emit failed")
			}
		}
		if err := sheet.rest(); err != nil {
			t.Error(err)
		}
	})
}
