package load

import (
	"slices"
	"time"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/workload"
)

// SLO is a limit on a metric.
type SLO = workload.SLO

// SLOs are limits that hold together.
type SLOs []SLO

// Verdict is a limit on a quantile held against a window.
type Verdict struct {
	SLO SLO `json:"slo"`
	// Found is the quantile in milliseconds; nil without a value.
	Found *float64 `json:"found_ms"`
	Met   bool     `json:"met"`
}

// ParseSLOs reads limits as [workload.ParseSLOs] does.
func ParseSLOs(text string) (SLOs, error) { return workload.ParseSLOs(text) }

// compared is the metric that a limit is held against.
func compared(limited Metric) Metric {
	switch limited {
	case TTFT:
		return TTFTSched
	case E2EL:
		return E2ELSched
	}
	return limited
}

// Single reports whether any limit is one that a request alone can miss: those
// on quantiles are judged over a window.
func (l SLOs) Single() bool {
	return slices.ContainsFunc(l, func(s SLO) bool { return s.Quantile == 0 })
}

// Met reports whether a request meets every limit that is not on a quantile; a
// failed one meets none. An answer of one token has no TPOT and passes that limit; an answer that is
// no stream has no TTFT and fails that one.
func (l SLOs) Met(rec *Record) bool {
	if !rec.OK() {
		return false
	}
	for _, s := range l {
		if s.Quantile != 0 {
			continue
		}
		limit := time.Duration(s.Limit * float64(time.Millisecond))
		switch s.Metric {
		case TPOT:
			if t, ok := rec.TPOT(); ok && t > limit || !ok && rec.Output.Tokens > 1 {
				return false
			}
		default:
			if t, ok := rec.value(compared(s.Metric)); !ok || t > limit {
				return false
			}
		}
	}
	return true
}

// judge holds the limits on quantiles against samples.
func (l SLOs) judge(samples map[Metric][]float64) []Verdict {
	var all []Verdict
	for _, s := range l {
		if s.Quantile == 0 {
			continue
		}
		v := Verdict{SLO: s}
		if sample := samples[compared(s.Metric)]; len(sample) > 0 {
			v.Found = new(stat.Quantile(sample, s.Quantile))
			v.Met = *v.Found <= s.Limit
		}
		all = append(all, v)
	}
	return all
}
