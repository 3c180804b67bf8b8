package vllmlog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/format/vllmlog"
	"github.com/llmprof/llmprof/forward"
)

const iterationLine = "Iteration(332): 1 context requests, 395 context tokens, 2 generation requests, 3 generation tokens, iteration elapsed time: 53.22 ms"

func TestParseIteration(t *testing.T) {
	bare := vllmlog.Iteration{Number: 332, Totals: forward.Totals{PrefillRequests: 1, PrefillTokens: 395, DecodeRequests: 2, DecodeTokens: 3}, Seconds: 0.05322}
	withUsage := bare
	withUsage.KVUsage, withUsage.HasKVUsage = 0.001, true
	dummy := bare
	dummy.Dummy = true
	for _, c := range []struct {
		why, line string
		want      vllmlog.Iteration
		ok        bool
	}{
		{"before the KV part existed", iterationLine, bare, true},
		{"on a CPU", iterationLine + ", CPU KV cache usage: 0.1%", withUsage, true},
		{"on a GPU", iterationLine + ", GPU KV cache usage: 0.1%", withUsage, true},
		{"CRLF", iterationLine + ", GPU KV cache usage: 0.1%\r\n", withUsage, true},
		{"with the prefix of the API server", "(APIServer pid=18662) INFO 11-21 00:37:21 [loggers.py:199] Engine 000: " + iterationLine + ", CPU KV cache usage: 0.1%", withUsage, true},
		{"with the prefix of the engine core", "(EngineCore_DP1 pid=1205) INFO 07-09 03:15:05 [v1/engine/core.py:359] " + iterationLine, bare, true},
		{"after a progress bar", "Loading: 50%|##   | Iteration(x) " + iterationLine, bare, true},
		{"colours around it", "\x1b[36m(EngineCore_DP0 pid=9)\x1b[0;0m " + iterationLine + "\x1b[0m", bare, true},
		{"colours within it", "Iteration(\x1b[1m332\x1b[0m)" + iterationLine[len("Iteration(332)"):], bare, true},
		{"a step for the peers", iterationLine + " (dummy)", dummy, true},
		{"cut off in the KV part", iterationLine + ", GPU KV cache usage: 0.", bare, true},
		{"cut off in the time", iterationLine[:len(iterationLine)-3], vllmlog.Iteration{}, false},
		{"a count beyond reason", "Iteration(1): 1 context requests, 99999999999999999999 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 1.00 ms", vllmlog.Iteration{}, false},
		{"another line", "Engine 000: Avg prompt throughput: 1.0 tokens/s", vllmlog.Iteration{}, false},
		{"nothing", "", vllmlog.Iteration{}, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, ok := vllmlog.ParseIteration(c.line)
			if ok != c.ok {
				t.Fatalf("ok %v", ok)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestParseIterationAllocatesNothing(t *testing.T) {
	line := "(APIServer pid=18662) INFO 11-21 00:37:21 [loggers.py:199] Engine 000: " + iterationLine + ", CPU KV cache usage: 0.1%"
	if n := testing.AllocsPerRun(100, func() { vllmlog.ParseIteration(line) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkParseIteration(b *testing.B) {
	line := "(APIServer pid=18662) INFO 11-21 00:37:21 [loggers.py:199] Engine 000: " + iterationLine + ", CPU KV cache usage: 0.1%"
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		vllmlog.ParseIteration(line)
	}
}
