package fit

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// benchmarkRow is what these tests need of a benchmark file's row.
type benchmarkRow struct {
	Batch   int            `json:"batch_size"`
	Input   int            `json:"input_len"`
	Output  int            `json:"output_len"`
	Prefill float64        `json:"prefill_latency"`
	Decode  float64        `json:"median_decode_latency"`
	Runs    []benchmarkRow `json:"runs_data"`
}

// a100 are the 94 configurations of Qwen3-4B measured on an A100.
func a100(tb testing.TB) Data {
	tb.Helper()
	file, err := os.Open("../format/stepbench/testdata/benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	var doc struct{ Results []benchmarkRow }
	if err := json.NewDecoder(unpacked).Decode(&doc); err != nil {
		tb.Fatal(err)
	}
	data, err := ObservationsOf(benchmarkPoints(doc.Results))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// legacy are 6 rows without single runs.
func legacy(tb testing.TB) Data {
	tb.Helper()
	text, err := os.ReadFile("../format/stepbench/testdata/legacy_variant_synthetic.json")
	if err != nil {
		tb.Fatal(err)
	}
	var doc struct{ Results []benchmarkRow }
	if err := json.Unmarshal(text, &doc); err != nil {
		tb.Fatal(err)
	}
	data, err := ObservationsOf(benchmarkPoints(doc.Results))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func benchmarkPoints(rows []benchmarkRow) []profile.Point {
	var points []profile.Point
	for i, r := range rows {
		var prefill, decode []float64
		for _, run := range r.Runs {
			prefill = append(prefill, run.Prefill)
			decode = append(decode, run.Decode)
		}
		add := func(mode string, mean float64, samples []float64, pass forward.Pass) {
			points = append(points, profile.Point{
				Kind: profile.KindStep, Samples: samples, Summary: &profile.Summary{Mean: mean}, Clock: profile.ClockWall,
				Step:   &profile.Step{Mode: mode, BatchSize: r.Batch, InputLen: r.Input, OutputLen: r.Output, Pass: pass},
				Origin: fmt.Sprintf("benchmark.json: results[%d]", i),
			})
		}
		add(profile.Prefill, r.Prefill, prefill, forward.Prefill(r.Batch, r.Input, 0))
		if r.Decode > 0 {
			add(profile.Decode, r.Decode, decode, forward.Decode(r.Batch, r.Input+r.Output/2))
		}
	}
	return points
}
