package engine_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/format/stepbench"
	"github.com/llmprof/llmprof/profile"
)

// TestProbePointsAsBenchmark writes what a probe measured in the predictor's
// own format, which has figures of whole runs beside the two phases.
func TestProbePointsAsBenchmark(t *testing.T) {
	s, err := startFake(t, "good", engine.Setup{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	results, err := collect(t, s, stepTask(1, 3))
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	p := &profile.Profile{Header: profile.Header{Deploy: s.Facts().Deploy}, Points: results[0].Points}
	if err := stepbench.Write(&file, p); err != nil {
		t.Fatal(err)
	}
	var bench struct {
		Results []struct {
			Prefill float64 `json:"prefill_latency"`
			Decode  float64 `json:"median_decode_latency"`
			Total   float64 `json:"total_latency"`
			Runs    []struct {
				Decode float64 `json:"median_decode_latency"`
				Total  float64 `json:"total_latency"`
			} `json:"runs_data"`
		} `json:"results"`
	}
	if err := json.Unmarshal(file.Bytes(), &bench); err != nil {
		t.Fatal(err)
	}
	if len(bench.Results) != 1 || len(bench.Results[0].Runs) != 2 {
		t.Fatalf("want one row of two runs:\n%s", file.String())
	}
	row := bench.Results[0]
	got := []float64{row.Prefill, row.Decode, row.Total, row.Runs[0].Total, row.Runs[1].Total}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if diff := cmp.Diff([]float64{1.5, 0.2, 2.1, 1.6, 2.6}, got, near); diff != "" {
		t.Errorf("prefill, decode, total, total of each run (-want +got):\n%s", diff)
	}
}
