package workload

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/unit"
)

// Metric names what is measured of a request or a chunk.
type Metric string

// The metrics that can be promised.
const (
	// TTFT is the time to the first token.
	TTFT Metric = "ttft"
	// TPOT is the mean time of a token after the first.
	TPOT Metric = "tpot"
	// NTPOT is the end-to-end latency over the number of tokens.
	NTPOT Metric = "ntpot"
	// ITL is the time between two tokens.
	ITL Metric = "itl"
	// ICL is the time between two chunks of a stream.
	ICL Metric = "icl"
	// E2EL is the end-to-end latency.
	E2EL Metric = "e2el"
)

// Promised lists the metrics that can be promised.
func Promised() []Metric { return []Metric{TTFT, TPOT, NTPOT, ITL, ICL, E2EL} }

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

// Validate reports the first fault of the limit.
func (s SLO) Validate() error {
	switch {
	case !slices.Contains(Promised(), s.Metric):
		return fmt.Errorf("limit %v: want one of the metrics %s", s, unit.List(Promised()))
	case !(s.Quantile >= 0 && s.Quantile < 1):
		return fmt.Errorf("limit %v: want a quantile above p0 and below p100", s)
	case s.Quantile == 0 && (s.Metric == ITL || s.Metric == ICL):
		return fmt.Errorf("limit %v: a request has many values of %s: give a quantile (%s:p95<%g) or use tpot", s, s.Metric, s.Metric, s.Limit)
	case !(s.Limit > 0 && s.Limit <= math.MaxFloat64):
		return fmt.Errorf("limit %v: want a time above zero", s)
	}
	return nil
}

var sloForm = regexp.MustCompile(`^([a-z0-9_]+):(?:p([0-9]+(?:\.[0-9]+)?)\s*<=?\s*)?([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s)?$`)

// ParseSLOs reads limits separated by spaces or commas: "ttft:500 tpot:50"
// limits each request in milliseconds, "ttft:p99<500ms" a quantile.
func ParseSLOs(text string) ([]SLO, error) {
	var all []SLO
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
	if !slices.Contains(Promised(), s.Metric) {
		return SLO{}, fmt.Errorf("limit %q: want one of the metrics %s", part, unit.List(Promised()))
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
