package vllmlog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/format/vllmlog"
)

func TestParsePeriodic(t *testing.T) {
	share := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		why, line string
		want      vllmlog.Periodic
		ok        bool
	}{
		{
			"V0", "INFO 12-05 10:15:40 metrics.py:334] Avg prompt throughput: 600.0 tokens/s, Avg generation throughput: 80.0 tokens/s, Running: 5 reqs, Swapped: 1 reqs, Pending: 2 reqs, GPU KV cache usage: 12.5%, CPU KV cache usage: 0.0%.",
			vllmlog.Periodic{PromptRate: 600, GenerationRate: 80, Running: 5, Waiting: 2, Swapped: 1, KVUsage: share(0.125), HostKVUsage: share(0)},
			true,
		},
		{
			"V1, second engine, all fields", "(APIServer pid=70) INFO 06-01 10:16:14 [loggers.py:271] Engine 001: Avg prompt throughput: 400.0 tokens/s, Avg generation throughput: 100.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 5.5%, Prefix cache hit rate: 80.0%, External prefix cache hit rate: 2.5%",
			vllmlog.Periodic{Engine: 1, PromptRate: 400, GenerationRate: 100, Running: 2, KVUsage: share(0.055), PrefixHitRate: share(0.8), ExternalHitRate: share(0.025)},
			true,
		},
		{
			"V1 on a CPU, with a field of tomorrow", "Engine 000: Avg prompt throughput: 3.5 tokens/s, Avg generation throughput: 2.4 tokens/s, Running: 0 reqs, Waiting: 0 reqs, Moon phase: 3, CPU KV cache usage: 0.1%, Prefix cache hit rate: 0.0%\r\n",
			vllmlog.Periodic{PromptRate: 3.5, GenerationRate: 2.4, KVUsage: share(0.001), PrefixHitRate: share(0)},
			true,
		},
		{"cut off", "Engine 000: Avg prompt throughput: 3.5 tokens/s, Avg gen", vllmlog.Periodic{}, false},
		{"an iteration", iterationLine, vllmlog.Periodic{}, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, ok := vllmlog.ParsePeriodic(c.line)
			if ok != c.ok {
				t.Fatalf("ok %v", ok)
			}
			if d := cmp.Diff(c.want, got); ok && d != "" {
				t.Error(d)
			}
		})
	}
}
