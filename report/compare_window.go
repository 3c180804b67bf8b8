package report

import (
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/load"
)

// The names of what is compared beside the latencies, as [load.Summary] has
// them.
const (
	figRequests    = "request_throughput"
	figOutput      = "output_throughput"
	figGoodput     = "request_goodput"
	figGoodShare   = "goodput_share"
	figOpen        = "concurrency.mean"
	figMostOpen    = "concurrency.max"
	figDuration    = "duration_s"
	figSendRate    = "send_rate"
	figCompleted   = "completed"
	figFailed      = "failed"
	figCancelled   = "cancelled"
	figInputTokens = "input_tokens"
	figTokensOut   = "output_tokens"
	figCached      = "cached_tokens"
)

// latencyFigures are the names of a latency's figures, in the order in which
// they are shown.
func latencyFigures() []string { return []string{"mean", "p50", "p90", "p95", "p99"} }

// windowFigures puts the figures of one window of two runs side by side. A run
// without the window has nil; what is not known is missing or nil.
func windowFigures(a, b map[string]*float64) []ServedFigure {
	out := &figureList{}
	for _, metric := range comparedMetrics() {
		for _, key := range latencyFigures() {
			name := string(metric) + "_ms." + key
			out.add(name, strings.ToUpper(string(metric))+" "+key+", ms", 2, a[name], b[name])
		}
	}
	for _, f := range []struct {
		name, text string
		decimals   int
	}{
		{figRequests, "requests/s", 3},
		{figOutput, "output tokens/s", 1},
		{figGoodput, "goodput, requests/s", 3},
		{figGoodShare, "goodput, share", 3},
		{figOpen, "open requests, mean", 2},
		{figMostOpen, "open requests, at most", 0},
		{figDuration, "length of the window, s", 2},
		{figSendRate, "requests sent/s", 3},
		{figCompleted, "completed requests", 0},
		{figFailed, "failed requests", 0},
		{figCancelled, "cancelled requests", 0},
		{figInputTokens, "input tokens", 0},
		{figTokensOut, "output tokens", 0},
		{figCached, "cached tokens", 0},
	} {
		out.add(f.name, f.text, f.decimals, a[f.name], b[f.name])
	}
	return out.all
}

// wholeFigures are those of the whole run, by name.
func (r *ServedRun) wholeFigures() map[string]*float64 {
	if r.Reported != nil {
		return servingFigures(r.Reported)
	}
	return summaryFigures(r.Whole)
}

// summaryFigures are the figures of a window by name; nil without one.
func summaryFigures(s *load.Summary) map[string]*float64 {
	if s == nil {
		return nil
	}
	out := map[string]*float64{
		figRequests: s.RequestThroughput, figOutput: s.OutputThroughput, figGoodput: s.Goodput, figGoodShare: s.GoodShare,
		figOpen: &s.Concurrency.Mean, figMostOpen: number(&s.Concurrency.Max), figDuration: &s.Duration, figSendRate: s.SendRate,
		figCompleted: number(&s.Completed), figFailed: number(&s.Failed), figCancelled: number(&s.Cancelled),
		figInputTokens: number(s.InputTokens), figTokensOut: number(s.OutputTokens), figCached: number(s.CachedTokens),
	}
	for metric, f := range map[load.Metric]load.Figure{load.TTFT: s.TTFT, load.TPOT: s.TPOT, load.ITL: s.ITL, load.ICL: s.ICL, load.E2EL: s.E2EL} {
		setLatency(out, metric, f.Mean, f.P50, f.P90, f.P95, f.P99)
	}
	return out
}

// servingFigures are what a load tool says of a run, by name.
func servingFigures(s *format.Serving) map[string]*float64 {
	out := map[string]*float64{
		figRequests: s.RequestThroughput, figOutput: s.OutputThroughput, figGoodput: s.Goodput, figGoodShare: s.GoodShare,
		figOpen: s.Concurrency, figMostOpen: number(s.PeakConcurrency), figDuration: s.Duration,
		figCompleted: number(s.Completed), figFailed: number(s.Failed), figCancelled: number(s.Cancelled),
		figInputTokens: number(s.InputTokens), figTokensOut: number(s.OutputTokens), figCached: number(s.CachedTokens),
	}
	for metric, d := range map[load.Metric]*format.Distribution{load.TTFT: s.TTFT, load.TPOT: s.TPOT, load.ITL: s.ITL, load.ICL: s.ICL, load.E2EL: s.E2EL} {
		if d != nil {
			setLatency(out, metric, d.Mean, d.P50, d.P90, d.P95, d.P99)
		}
	}
	return out
}

// setLatency adds the figures of a latency, in the order of [latencyFigures].
func setLatency(to map[string]*float64, metric load.Metric, values ...*float64) {
	for i, key := range latencyFigures() {
		to[string(metric)+"_ms."+key] = values[i]
	}
}
