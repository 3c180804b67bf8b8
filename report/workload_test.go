package report_test

import (
	"slices"
	"testing"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/measure/serving"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
)

// TestWorkloadComputeTimes: a mixed cell tells the times of the steps that compute
// prompts beside the decodes, and apart from them those that only decode.
func TestWorkloadComputeTimes(t *testing.T) {
	answered := func(first, last time.Duration) load.Record {
		return load.Record{Sent: true, End: last, Close: last, Chunks: []load.Chunk{{At: first, Tokens: 1}, {At: last, Tokens: 1}}, Output: load.Count{Tokens: 2, Origin: load.FromUsage}}
	}
	step := func(seconds float64, prefills, tokens, decodes int) engine.ServedStep {
		return engine.ServedStep{Seconds: seconds, Totals: forward.Totals{PrefillRequests: prefills, PrefillTokens: tokens, DecodeRequests: decodes, DecodeTokens: decodes}}
	}
	run := serving.Run{
		Elapsed: time.Second, From: 300 * time.Millisecond, To: 500 * time.Millisecond,
		Prefill: []load.Record{answered(500*time.Millisecond, 500*time.Millisecond)},
		Decode:  []load.Record{answered(100*time.Millisecond, time.Second)},
		// Its own prompt, a decode, two pieces of the other prompt with a decode
		// between them, a decode.
		Steps: []engine.ServedStep{step(0.09, 1, 16, 0), step(0.01, 0, 0, 1), step(0.05, 1, 8, 1), step(0.02, 0, 0, 1), step(0.06, 1, 8, 1), step(0.03, 0, 0, 1)},
	}
	phase := &serving.Phase{Runs: []serving.Run{run}}
	r := &serving.Result{Cell: serving.Cell{Type: profile.Mixed, NewTokens: 16, BlockSize: 16, Requests: 1}, Budget: 64, Prefill: &serving.Phase{}, Decode: &serving.Phase{}, Mixed: phase}
	m := report.Workload(r, report.WorkloadRun{Model: "m"}).Metrics
	if !slices.Equal(m.PrefillCompute, []float64{50, 60}) || !slices.Equal(m.DecodeCompute, []float64{10, 20, 30}) {
		t.Errorf("prefill_compute_time %v, want 50 and 60 ms; decode_compute_time %v, want 10, 20 and 30 ms", m.PrefillCompute, m.DecodeCompute)
	}
	if len(m.BatchEfficiency) != 2 || len(m.Running) != 2 {
		t.Errorf("efficiency %v, running %v: of the measured part alone", m.BatchEfficiency, m.Running)
	}
}
