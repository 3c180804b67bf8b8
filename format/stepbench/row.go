package stepbench

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// The keys of a row that have a meaning here.
const (
	keyBatch         = "batch_size"
	keyInput         = "input_len"
	keyOutput        = "output_len"
	keyPrefill       = "prefill_latency"
	keyPrefillRate   = "prefill_throughput"
	keyDecode        = "median_decode_latency"
	keyDecodeRate    = "median_decode_throughput"
	keyTotal         = "total_latency"
	keyOverallRate   = "overall_throughput"
	keyNumRuns       = "num_runs"
	keyRuns          = "runs_data"
	keyRunName       = "run_name"
	keyKV            = "predicted_kv_usage_in_gb"
	keyFailedRuns    = "num_failed_runs"
	keyPartialReason = "partial_success_reason"
	suffixStd        = "_std"
)

// meanTolerance is the relative difference up to which a file's mean agrees
// with that of its runs.
const meanTolerance = 1e-6

// row reads one row: one or two points.
func (b *reader) row(n format.Node) error {
	if n.Kind() != format.Object {
		return n.Errorf("want a row as an object, got %s", n.Got())
	}
	step, err := b.grid(n)
	if err != nil {
		return err
	}
	runs := n.Get(keyRuns)
	if runs.Present() && runs.Kind() != format.Array {
		return runs.Errorf("want a list of runs, got %s", runs.Got())
	}
	prefill, err := b.timed(n, runs, keyPrefill)
	if err != nil {
		return err
	}
	decode, err := b.timed(n, runs, keyDecode)
	if err != nil {
		return err
	}
	if prefill == nil && decode == nil {
		return n.Errorf("holds neither %s nor %s", keyPrefill, keyDecode)
	}
	extra, err := b.extra(n, runs, step, sampled{prefill: hasSamples(prefill), decode: hasSamples(decode)})
	if err != nil {
		return err
	}
	if prefill != nil {
		s := *step
		s.Mode, s.Pass = profile.Prefill, forward.Prefill(s.BatchSize, s.InputLen, 0)
		prefill.Step = &s
		b.add(*prefill, n, extra)
		extra = nil // the row's own keys stay with its first point
	}
	if decode != nil {
		s := *step
		s.Mode, s.Pass = profile.Decode, decodePass(s)
		if s.OutputLen == 0 {
			decode.Warnings = append(decode.Warnings, "output length not stated: taken at the context of the prompt alone")
		}
		decode.Step = &s
		b.add(*decode, n, extra)
	}
	return nil
}

func hasSamples(p *profile.Point) bool { return p != nil && len(p.Samples) > 0 }

// sampled says of which latencies a row keeps its runs.
type sampled struct{ prefill, decode bool }

func (b *reader) add(p profile.Point, n format.Node, extra map[string]json.RawMessage) {
	p.Kind, p.Clock = profile.KindStep, profile.ClockWall
	p.Origin, p.Extra = b.origin(n), extra
	b.profile.Points = append(b.profile.Points, p)
}

// decodePass is the pass for which a row's decode time stands. The row's
// single steps run at contexts input+1 … input+output−1, whose mean is input +
// output/2.
func decodePass(s profile.Step) forward.Pass {
	b, i, o := int64(s.BatchSize), int64(s.InputLen), int64(s.OutputLen)
	return forward.Pass{Decode: forward.Sequences{Count: s.BatchSize, SumContext: b*i + b*o/2}}
}

// seconds reads a latency; absent without a value.
func seconds(n format.Node) (t float64, ok bool, err error) {
	if !n.Present() {
		return 0, false, nil
	}
	t, err = n.Float()
	if err != nil || !(t > 0) || t > maxSeconds {
		return 0, false, n.Errorf("want a positive number of seconds, got %s", n.Got())
	}
	return t, true, nil
}

// timed reads one latency of a row: its summary, and the runs where they are
// kept. It returns nil where the row has no such latency.
func (b *reader) timed(n, runs format.Node, key string) (*profile.Point, error) {
	mean, ok, err := seconds(n.Get(key))
	if err != nil {
		return nil, err
	}
	p := &profile.Point{}
	for _, run := range runs.Elements() {
		if run.Kind() != format.Object {
			return nil, run.Errorf("want a run as an object, got %s", run.Got())
		}
		t, ok, err := seconds(run.Get(key))
		if err != nil {
			return nil, err
		}
		if ok {
			p.Samples = append(p.Samples, t)
		}
	}
	if !ok && len(p.Samples) == 0 {
		return nil, nil //nolint:nilnil // the row has no such latency
	}
	if !ok {
		return p, nil
	}
	p.Summary = &profile.Summary{Mean: mean}
	if p.Summary.Std, err = b.deviation(n.Get(key + suffixStd)); err != nil {
		return nil, err
	}
	if num := n.Get(keyNumRuns); num.Present() {
		if p.Summary.Runs, err = num.Int(1, maxTokens); err != nil {
			return nil, err
		}
	}
	if len(p.Samples) == 0 {
		return p, nil
	}
	if m := stat.Mean(p.Samples); math.Abs(m-mean) > meanTolerance*mean {
		b.warn(n.Get(key).Errorf("is %g, but the mean of its %d runs is %g", mean, len(p.Samples), m))
	}
	if p.Summary.Runs == 0 {
		p.Summary.Runs = len(p.Samples)
	} else if p.Summary.Runs != len(p.Samples) {
		b.warn(n.Get(keyNumRuns).Errorf("is %d, but %d runs hold %s", p.Summary.Runs, len(p.Samples), key))
	}
	return p, nil
}

// deviation reads a standard deviation; 0 where it is absent or not finite,
// as a single run leaves it.
func (b *reader) deviation(n format.Node) (float64, error) {
	if !n.Present() {
		return 0, nil
	}
	std, err := n.Float()
	if err != nil {
		return 0, err
	}
	if math.IsNaN(std) || math.IsInf(std, 0) {
		b.warn(n.Errorf("left out: %s", n.Got()))
		return 0, nil
	}
	if std < 0 {
		return 0, n.Errorf("want 0 or more, got %s", n.Got())
	}
	return std, nil
}

// derived reports whether a key follows from times and coordinates that the
// points hold.
func derived(key string, kept sampled) bool {
	switch key {
	case keyBatch, keyInput, keyOutput, keyPrefill, keyDecode, keyPrefill + suffixStd, keyDecode + suffixStd, keyNumRuns, keyRuns:
		return true
	case keyPrefillRate, keyPrefillRate + suffixStd:
		return kept.prefill
	case keyDecodeRate, keyDecodeRate + suffixStd:
		return kept.decode
	}
	return false
}

// extra collects the keys of a row that no field of a point holds, and those
// of its runs under runs_data. Known figures must be numbers.
func (b *reader) extra(n, runs format.Node, step *profile.Step, kept sampled) (map[string]json.RawMessage, error) {
	var extra map[string]json.RawMessage
	for key, value := range n.Members() {
		if err := checkFigure(key, value); err != nil {
			return nil, err
		}
		if value.Kind() != format.Null && !derived(key, kept) {
			extra = b.keep(value, extra, key)
		}
	}
	if runs.Len() == 0 {
		return extra, nil
	}
	list := make([]map[string]json.RawMessage, 0, runs.Len())
	for _, run := range runs.Elements() {
		if err := sameGrid(run, step); err != nil {
			return nil, err
		}
		var rest map[string]json.RawMessage
		for key, value := range run.Members() {
			if err := checkFigure(key, value); err != nil {
				return nil, err
			}
			if value.Kind() != format.Null && !derived(key, kept) {
				rest = b.keep(value, rest, key)
			}
		}
		list = append(list, rest)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, runs.Errorf("cannot be kept: %v", err)
	}
	if extra == nil {
		extra = map[string]json.RawMessage{}
	}
	extra[keyRuns] = text
	return extra, nil
}

// checkFigure refuses a known figure that is no number, or negative.
func checkFigure(key string, n format.Node) error {
	figures := []string{keyPrefillRate, keyDecodeRate, keyTotal, keyOverallRate, keyKV, keyFailedRuns}
	if n.Kind() == format.Null || !slices.Contains(figures, key) {
		return nil
	}
	v, err := n.Float()
	if err != nil {
		return err
	}
	if v < 0 {
		return n.Errorf("want 0 or more, got %s", n.Got())
	}
	return nil
}

// sameGrid refuses a run of another configuration than its row's.
func sameGrid(run format.Node, step *profile.Step) error {
	for _, c := range []struct {
		key  string
		want int
	}{{keyBatch, step.BatchSize}, {keyInput, step.InputLen}} {
		n := run.Get(c.key)
		if !n.Present() {
			continue
		}
		if v, err := n.Int(1, maxTokens); err != nil {
			return err
		} else if v != c.want {
			return n.Errorf("is %d, but the row's is %d", v, c.want)
		}
	}
	return nil
}
