package load

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmprof/llmprof/stat"
)

// SLO is a limit on a metric.
type SLO struct {
	// Metric is what is limited. TTFT and E2EL are taken from the scheduled
	// time, so that a client that falls behind cannot hide a slow server.
	Metric Metric `json:"metric"`
	// Quantile is which share of the values must keep the limit, 0..1; 0 for a
	// limit that each request is held against.
	Quantile float64 `json:"quantile,omitempty"`
	// Limit is in milliseconds.
	Limit float64 `json:"limit_ms"`
}

// String is the limit as it is written.
func (s SLO) String() string {
	if s.Quantile == 0 {
		return fmt.Sprintf("%s:%g", s.Metric, s.Limit)
	}
	return fmt.Sprintf("%s:p%g<%gms", s.Metric, math.Round(s.Quantile*1e6)/1e4, s.Limit)
}

// SLOs are limits that hold together.
type SLOs []SLO

// Verdict is a limit on a quantile held against a window.
type Verdict struct {
	SLO SLO `json:"slo"`
	// Found is the quantile in milliseconds; nil without a value.
	Found *float64 `json:"found_ms"`
	Met   bool     `json:"met"`
}

var sloForm = regexp.MustCompile(`^([a-z0-9_]+):(?:p([0-9]+(?:\.[0-9]+)?)\s*<=?\s*)?([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s)?$`)

// ParseSLOs reads limits separated by spaces or commas: "ttft:500 tpot:50"
// limits each request in milliseconds, "ttft:p99<500ms" a quantile.
func ParseSLOs(text string) (SLOs, error) {
	var all SLOs
	for _, part := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r == ' ' || r == ',' || r == '\t' || r == '\n' }) {
		s, err := parseSLO(part)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func parseSLO(part string) (SLO, error) {
	found := sloForm.FindStringSubmatch(part)
	if found == nil {
		return SLO{}, fmt.Errorf("limit %q: want a form such as ttft:500 (ms) or ttft:p99<500ms", part)
	}
	s := SLO{Metric: Metric(found[1])}
	known := []Metric{TTFT, TPOT, NTPOT, ITL, ICL, E2EL}
	if !slices.Contains(known, s.Metric) {
		return SLO{}, fmt.Errorf("limit %q: want one of the metrics %v", part, known)
	}
	if found[2] != "" {
		share, err := strconv.ParseFloat(found[2], 64)
		if err != nil || share <= 0 || share >= 100 {
			return SLO{}, fmt.Errorf("limit %q: want a quantile above p0 and below p100", part)
		}
		s.Quantile = share / 100
	} else if s.Metric == ITL || s.Metric == ICL {
		return SLO{}, fmt.Errorf("limit %q: a request has many values of %s: give a quantile (%s:p95<%s) or use tpot", part, s.Metric, s.Metric, found[3])
	}
	limit, err := strconv.ParseFloat(found[3], 64)
	scale := map[string]float64{"": 1, "us": 1e-3, "ms": 1, "s": 1e3}[found[4]]
	if s.Limit = limit * scale; err != nil || s.Limit <= 0 || math.IsInf(s.Limit, 0) {
		return SLO{}, fmt.Errorf("limit %q: want a time above zero", part)
	}
	return s, nil
}

// from is the metric that is compared.
func (s SLO) from() Metric {
	switch s.Metric {
	case TTFT:
		return TTFTSched
	case E2EL:
		return E2ELSched
	}
	return s.Metric
}

// Met reports whether a request meets every limit; a failed one meets none.
// An answer of one token has no TPOT and passes that limit; an answer that is
// no stream has no TTFT and fails that one.
func (l SLOs) Met(rec *Record) bool {
	if !rec.OK() {
		return false
	}
	for _, s := range l {
		limit := time.Duration(s.Limit * float64(time.Millisecond))
		switch s.Metric {
		case ITL, ICL: // pooled, judged over the window
			continue
		case TPOT:
			if t, ok := rec.TPOT(); ok && t > limit || !ok && rec.Output.Tokens > 1 {
				return false
			}
		default:
			if t, ok := rec.value(s.from()); !ok || t > limit {
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
		if sample := samples[s.from()]; len(sample) > 0 {
			v.Found = new(stat.Quantile(sample, s.Quantile))
			v.Met = *v.Found <= s.Limit
		}
		all = append(all, v)
	}
	return all
}
