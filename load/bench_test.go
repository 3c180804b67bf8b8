package load

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// The figures of these benchmarks are printed as metrics: they are the
// client's accuracy and cost. Run each once, on an idle machine:
//
//	go test ./load -run '^$' -bench . -benchtime 1x

// BenchmarkReadError has 300 requests of 64 tokens at 100 requests a second.
func BenchmarkReadError(b *testing.B) {
	for b.Loop() {
		late := readErrors(b)
		b.ReportMetric(stat.QuantileSorted(late, 0.5), "p50-ms")
		b.ReportMetric(stat.QuantileSorted(late, 0.99), "p99-ms")
		b.ReportMetric(late[len(late)-1], "max-ms")
	}
}

// BenchmarkPacing waits for 1,000 due times a second over three seconds.
func BenchmarkPacing(b *testing.B) {
	for b.Loop() {
		p, err := newPacer(clock{time.Now()})
		if err != nil {
			b.Fatal(err)
		}
		undo := p.Bind()
		var late []float64
		start := p.clock.now()
		for k := range 3000 {
			due := start + time.Duration(k+1)*time.Millisecond
			p.wait(due)
			late = append(late, float64(p.clock.now()-due)/float64(time.Microsecond))
		}
		undo()
		p.Close()
		slices.Sort(late)
		b.ReportMetric(stat.QuantileSorted(late, 0.5), "p50-µs")
		b.ReportMetric(stat.QuantileSorted(late, 0.99), "p99-µs")
		b.ReportMetric(late[len(late)-1], "max-µs")
	}
}

// BenchmarkClient32 and the next are closed loops against a server in another
// process: 50 ms to the first token, then 20 ms a token.
func BenchmarkClient32(b *testing.B) { benchmarkClient(b, 32) }

// BenchmarkClient256 has eight times as many streams.
func BenchmarkClient256(b *testing.B) { benchmarkClient(b, 256) }

func benchmarkClient(b *testing.B, streams int) {
	url := serveApart(b, 50*time.Millisecond, 20*time.Millisecond)
	for b.Loop() {
		before, _ := cpuTime()
		result, err := Run(b.Context(), []Target{{URL: url, Model: "m", Engine: VLLM}}, Options{Schedule: closedLoop(streams, 3*streams, 32, 128)})
		if err != nil {
			b.Fatal(err)
		}
		after, _ := cpuTime()
		whole, _ := result.Summaries(nil)
		if whole.Failed > 0 {
			b.Fatalf("%d requests failed%s", whole.Failed, firstFailure(result))
		}
		b.ReportMetric(float64(after-before)/float64(time.Microsecond)/float64(*whole.OutputTokens), "µs/token")
		b.ReportMetric(*whole.TTFT.Mean-50, "TTFT-above-ms")
		b.ReportMetric(*whole.ICL.Mean, "ICL-ms")
		b.ReportMetric(memory(b, "VmHWM"), "MB")
	}
}

// BenchmarkOpenLoop sends 1,000 requests a second, whatever comes back.
func BenchmarkOpenLoop(b *testing.B) {
	url := serveApart(b, 20*time.Millisecond, 10*time.Millisecond)
	s := &workload.Schedule{Pattern: "constant"}
	for k := range 5000 {
		s.Requests = append(s.Requests, workload.Request{ID: k, At: unit.Seconds(float64(k) / 1000), InputLen: 32, OutputLen: 4, Seed: uint64(k)})
	}
	for b.Loop() {
		result, err := Run(b.Context(), []Target{{URL: url, Model: "m", Engine: VLLM}}, Options{Schedule: s, Warmup: 16})
		if err != nil {
			b.Fatal(err)
		}
		whole, _ := result.Summaries(nil)
		off, _ := rateError(result)
		b.ReportMetric(100**off, "%-off-rate")
		b.ReportMetric(*whole.SendLag.P50*1000, "lag-p50-µs")
		b.ReportMetric(*whole.SendLag.P99*1000, "lag-p99-µs")
		b.ReportMetric(float64(whole.Failed), "failed")
		b.ReportMetric(memory(b, "VmHWM"), "MB")
	}
}

// BenchmarkMillionTokens takes 2^20 tokens as fast as they come and tells how
// much memory that took.
func BenchmarkMillionTokens(b *testing.B) {
	url := serveApart(b, 0, 0)
	for b.Loop() {
		before, _ := cpuTime()
		result, err := Run(b.Context(), []Target{{URL: url, Model: "m", Engine: VLLM}}, Options{Schedule: closedLoop(32, 2048, 32, 512)})
		if err != nil {
			b.Fatal(err)
		}
		after, _ := cpuTime()
		b.ReportMetric(memory(b, "VmHWM"), "MB-run")
		whole, _ := result.Summaries(nil)
		if *whole.OutputTokens != 1<<20 || whole.Failed > 0 {
			b.Fatalf("%d tokens, %d failed", *whole.OutputTokens, whole.Failed)
		}
		b.ReportMetric(float64(after-before)/float64(time.Microsecond)/(1<<20), "µs/token")
		b.ReportMetric(memory(b, "VmHWM"), "MB-summary")
	}
}

// memory reads a size of this process in 10^6 bytes.
func memory(b *testing.B, key string) float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), key+":")
	kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kb * 1024 / 1e6
}
