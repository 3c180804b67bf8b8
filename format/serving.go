package format

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/profile"
)

// Over says what the values of a [Distribution] are.
type Over string

// What values are taken over. Means over requests and over what was pooled
// from them differ.
const (
	// OverRequests: one value a request.
	OverRequests Over = "requests"
	// OverTokens: a request's value, once for each of its tokens.
	OverTokens Over = "tokens"
	// OverChunks: gaps, pooled over requests.
	OverChunks Over = "chunks"
)

// Distribution is a latency as a load tool reports it, in milliseconds. What
// the tool does not say is nil.
type Distribution struct {
	// N is the number of values.
	N *int `json:"n,omitempty"`
	// Mean to Max are in milliseconds.
	Mean *float64 `json:"mean,omitempty"`
	Std  *float64 `json:"std,omitempty"`
	Min  *float64 `json:"min,omitempty"`
	P50  *float64 `json:"p50,omitempty"`
	P90  *float64 `json:"p90,omitempty"`
	P95  *float64 `json:"p95,omitempty"`
	P99  *float64 `json:"p99,omitempty"`
	Max  *float64 `json:"max,omitempty"`
	// Other holds further percentiles, in milliseconds: "p99.9".
	Other map[string]float64 `json:"other,omitempty"`
	// Over is what the values are taken over; empty where nobody says.
	Over Over `json:"over,omitempty"`
	// Origin is the figure's name in the file.
	Origin string `json:"origin,omitempty"`
}

// SetPercentile keeps a percentile, 0 to 100, in milliseconds.
func (d *Distribution) SetPercentile(percent, ms float64) {
	switch percent {
	case 50:
		d.P50 = &ms
	case 90:
		d.P90 = &ms
	case 95:
		d.P95 = &ms
	case 99:
		d.P99 = &ms
	default:
		if d.Other == nil {
			d.Other = map[string]float64{}
		}
		d.Other["p"+strconv.FormatFloat(percent, 'f', -1, 64)] = ms
	}
}

// Percentiles calls visit for each percentile, in ascending order: 0 to 100,
// and its value in milliseconds.
func (d *Distribution) Percentiles(visit func(percent, ms float64)) {
	all := map[float64]float64{}
	for percent, v := range map[float64]*float64{50: d.P50, 90: d.P90, 95: d.P95, 99: d.P99} {
		if v != nil {
			all[percent] = *v
		}
	}
	for key, v := range d.Other {
		if percent, err := strconv.ParseFloat(strings.TrimPrefix(key, "p"), 64); err == nil {
			all[percent] = v
		}
	}
	for _, percent := range slices.Sorted(maps.Keys(all)) {
		visit(percent, all[percent])
	}
}

// empty reports whether nothing was said.
func (d *Distribution) empty() bool {
	for _, v := range []*float64{d.Mean, d.Std, d.Min, d.P50, d.P90, d.P95, d.P99, d.Max} {
		if v != nil {
			return false
		}
	}
	return len(d.Other) == 0
}

// Serving is what a load tool says of one run, in our words: a tool's name
// that means something else was mapped by its reader, one that means nothing
// of ours is in Unmapped. What was not said is nil.
type Serving struct {
	// Tool is the tool and its version, Origin the file and the place in it.
	Tool   string `json:"tool"`
	Origin string `json:"origin"`
	// Model is the model's name on the server, Backend what was talked to.
	Model   string `json:"model,omitempty"`
	Backend string `json:"backend,omitempty"`
	// Started is when the run began, as the tool writes it.
	Started string `json:"started,omitempty"`
	// Load is the pattern, in the tool's word.
	Load string `json:"load,omitempty"`
	// RequestRate was asked for, in requests a second; Unlimited is all at
	// once.
	RequestRate *float64 `json:"request_rate,omitempty"`
	Unlimited   bool     `json:"unlimited,omitempty"`
	// Burstiness is the shape of the arrivals, a ratio: 1 for Poisson.
	Burstiness *float64 `json:"burstiness,omitempty"`
	// MaxConcurrency was the limit, in requests.
	MaxConcurrency *int `json:"max_concurrency,omitempty"`
	// Requests were asked for; the other three are what became of them.
	Requests  *int `json:"requests,omitempty"`
	Completed *int `json:"completed,omitempty"`
	Failed    *int `json:"failed,omitempty"`
	Cancelled *int `json:"cancelled,omitempty"`
	// InputTokens to CachedTokens are those of completed requests.
	InputTokens  *int `json:"input_tokens,omitempty"`
	OutputTokens *int `json:"output_tokens,omitempty"`
	CachedTokens *int `json:"cached_tokens,omitempty"`
	// Duration is in seconds.
	Duration *float64 `json:"duration_s,omitempty"`
	// RequestThroughput and Goodput are in requests a second, OutputThroughput
	// and TotalThroughput in tokens a second; GoodShare is 0..1.
	RequestThroughput *float64 `json:"request_throughput,omitempty"`
	OutputThroughput  *float64 `json:"output_throughput,omitempty"`
	TotalThroughput   *float64 `json:"total_token_throughput,omitempty"`
	Goodput           *float64 `json:"request_goodput,omitempty"`
	GoodShare         *float64 `json:"goodput_share,omitempty"`
	// Concurrency is the mean number of open requests, PeakConcurrency the
	// largest.
	Concurrency     *float64 `json:"concurrency_mean,omitempty"`
	PeakConcurrency *int     `json:"concurrency_max,omitempty"`
	// TTFT counts from sending, the names with Sched from the schedule. ICL is
	// the gap of two chunks, ITL that gap over the later one's tokens, TPOT
	// the mean gap of a request, NTPOT its whole time over its tokens.
	TTFT      *Distribution `json:"ttft_ms,omitempty"`
	TTFTSched *Distribution `json:"ttft_sched_ms,omitempty"`
	TPOT      *Distribution `json:"tpot_ms,omitempty"`
	NTPOT     *Distribution `json:"ntpot_ms,omitempty"`
	ITL       *Distribution `json:"itl_ms,omitempty"`
	ICL       *Distribution `json:"icl_ms,omitempty"`
	E2EL      *Distribution `json:"e2el_ms,omitempty"`
	E2ELSched *Distribution `json:"e2el_sched_ms,omitempty"`
	SendLag   *Distribution `json:"send_lag_ms,omitempty"`
	// Unmapped are the file's names of figures that no word of ours means.
	Unmapped []string `json:"unmapped,omitempty"`
}

// servingKey begins the keys of runs in a header's Metadata; the file's name
// follows, so that merged profiles keep all runs.
const servingKey = "serving:"

// KeepServings keeps the runs of a file in a profile's header.
func KeepServings(h *profile.Header, file string, runs []Serving) error {
	text, err := json.Marshal(runs)
	if err != nil {
		return &Error{File: file, Err: err}
	}
	if h.Metadata == nil {
		h.Metadata = map[string]json.RawMessage{}
	}
	h.Metadata[servingKey+file] = text
	return nil
}

// KeptServings are the runs of all files that [KeepServings] kept.
func KeptServings(h *profile.Header) ([]Serving, error) {
	var all []Serving
	for _, key := range slices.Sorted(maps.Keys(h.Metadata)) {
		if !strings.HasPrefix(key, servingKey) {
			continue
		}
		var runs []Serving
		if err := json.Unmarshal(h.Metadata[key], &runs); err != nil {
			return nil, fmt.Errorf("metadata %s: %w", key, err)
		}
		all = append(all, runs...)
	}
	return all, nil
}

// The keys of a request's Extra: the run that it belongs to, which is the
// Origin of a [Serving], and the gaps between its chunks in seconds.
const (
	runKey  = "run"
	gapsKey = "icl_s"
)

// KeepRun notes a request's run and the gaps between its chunks, in seconds;
// nil gaps are not known.
func KeepRun(p *profile.Point, run string, gaps []float64) error {
	if p.Extra == nil {
		p.Extra = map[string]json.RawMessage{}
	}
	text, err := json.Marshal(run)
	if err != nil {
		return err
	}
	p.Extra[runKey] = text
	if gaps == nil {
		return nil
	}
	if text, err = json.Marshal(gaps); err != nil {
		return err
	}
	p.Extra[gapsKey] = text
	return nil
}

// KeptRun is what [KeepRun] noted: empty and nil where it did not.
func KeptRun(p *profile.Point) (run string, gaps []float64) {
	if json.Unmarshal(p.Extra[runKey], &run) != nil {
		run = ""
	}
	if json.Unmarshal(p.Extra[gapsKey], &gaps) != nil {
		gaps = nil
	}
	return run, gaps
}
