package stepbench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// Write writes a profile of steps as a benchmark file, plain JSON. The
// prefill and the decode point of one configuration become one row. Means,
// population standard deviations and throughputs are computed from the
// samples; a point without samples gives its summary. Foreign keys come back
// from Extra, so that a benchmark that was read is written with equal figures.
// A step without grid coordinates or of mixed mode has no place in the format
// and is an error.
func Write(w io.Writer, p *profile.Profile) error {
	rows, failed, err := joinRows(p)
	if err != nil {
		return fmt.Errorf("write benchmark: %w", err)
	}
	results := make([]object, len(rows))
	for i, r := range rows {
		if results[i], err = r.object(); err != nil {
			return fmt.Errorf("write benchmark: results[%d]: %w", i, err)
		}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(object{{"metadata", metadataObject(p, rows, failed)}, {"results", results}}); err != nil {
		return fmt.Errorf("write benchmark: %w", err)
	}
	return nil
}

// object is a JSON object that keeps the order of its keys.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(m.key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, fmt.Errorf("%s: %w", m.key, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// benchRow is what becomes one row of the file.
type benchRow struct {
	step            *profile.Step
	prefill, decode *profile.Point
}

// joinRows joins the points of one configuration. Points of one file belong
// together by their origin; of points without one, the next of the same
// coordinates.
func joinRows(p *profile.Profile) (rows []*benchRow, failed []*profile.Point, err error) {
	type id struct {
		origin               string
		batch, input, output int
	}
	open := map[id]*benchRow{}
	for i := range p.Points {
		point := &p.Points[i]
		if point.Kind == profile.KindFailure {
			failed = append(failed, point)
			continue
		}
		s := point.Step
		if point.Kind != profile.KindStep || s == nil || s.BatchSize < 1 || s.InputLen < 1 || s.Mode != profile.Prefill && s.Mode != profile.Decode {
			return nil, nil, fmt.Errorf("point %d is no prefill or decode step with batch size and input length", i+1)
		}
		key := id{point.Origin, s.BatchSize, s.InputLen, s.OutputLen}
		row := open[key]
		if row == nil || s.Mode == profile.Prefill && row.prefill != nil || s.Mode == profile.Decode && row.decode != nil {
			row = &benchRow{step: s}
			open[key] = row
			rows = append(rows, row)
		}
		if s.Mode == profile.Prefill {
			row.prefill = point
		} else {
			row.decode = point
		}
	}
	return rows, failed, nil
}

// extra is the value that a foreign file gave for a key of the row.
func (r *benchRow) extra(key string) (json.RawMessage, bool) {
	for _, p := range []*profile.Point{r.prefill, r.decode} {
		if p != nil {
			if v, ok := p.Extra[key]; ok {
				return v, true
			}
		}
	}
	return nil, false
}

// metric is one latency of a row with its throughput.
type metric struct {
	latency, rate string
	tokens        float64 // computed by the timed pass
	point         *profile.Point
}

func (r *benchRow) metrics() []metric {
	b, i := float64(r.step.BatchSize), float64(r.step.InputLen)
	var all []metric
	if r.prefill != nil {
		all = append(all, metric{keyPrefill, keyPrefillRate, b * i, r.prefill})
	}
	if r.decode != nil {
		all = append(all, metric{keyDecode, keyDecodeRate, b, r.decode})
	}
	return all
}

// object builds the row in the order of the original's keys.
func (r *benchRow) object() (object, error) {
	out := object{{keyRunName, r.runName(0)}}
	if name, ok := r.extra(keyRunName); ok {
		out[0].value = name
	}
	out = append(out, r.grid()...)
	var deviations object
	runs := 0
	for _, m := range r.metrics() {
		var mean, rate float64
		if samples := m.point.Samples; len(samples) > 0 {
			rates := make([]float64, len(samples))
			for k, s := range samples {
				rates[k] = m.tokens / s
			}
			mean, rate = stat.Mean(samples), stat.Mean(rates)
			deviations = append(deviations, member{m.latency + suffixStd, stat.StdDev(samples)}, member{m.rate + suffixStd, stat.StdDev(rates)})
			runs = max(runs, len(samples))
		} else {
			t, ok := m.point.Mean()
			if !ok {
				return nil, fmt.Errorf("%s: the point holds no time", m.latency)
			}
			mean, rate = float64(t), m.tokens/float64(t)
			runs = max(runs, m.point.Summary.Runs)
			if std := m.point.Summary.Std; std > 0 {
				deviations = append(deviations, member{m.latency + suffixStd, std})
			}
		}
		out = append(out, member{m.latency, mean})
		if given, ok := r.extra(m.rate); ok {
			out = append(out, member{m.rate, given})
		} else {
			out = append(out, member{m.rate, rate})
		}
	}
	out = append(out, r.foreign(runs)...)
	// Latencies before throughputs, as the original writes them.
	slices.SortStableFunc(deviations, func(a, b member) int { return cmp.Compare(deviationRank(a.key), deviationRank(b.key)) })
	out = append(out, deviations...)
	if runs > 0 {
		out = append(out, member{keyNumRuns, runs})
	}
	list, err := r.runs()
	if err != nil {
		return nil, err
	}
	if list != nil {
		out = append(out, member{keyRuns, list})
	}
	return out, nil
}

func deviationRank(key string) int {
	return slices.Index([]string{keyPrefill + suffixStd, keyDecode + suffixStd, keyPrefillRate + suffixStd, keyDecodeRate + suffixStd}, key)
}

func (r *benchRow) runName(run int) string {
	return fmt.Sprintf("sweep_bs%d_il%d_run%d", r.step.BatchSize, r.step.InputLen, run)
}

func (r *benchRow) grid() object {
	out := object{{keyBatch, r.step.BatchSize}, {keyInput, r.step.InputLen}}
	if r.step.OutputLen > 0 {
		out = append(out, member{keyOutput, r.step.OutputLen})
	}
	return out
}

// foreign is what Extra holds of the row, known keys first.
func (r *benchRow) foreign(runs int) object {
	var out object
	written := []string{keyRunName, keyRuns, keyPrefillRate, keyDecodeRate}
	if runs == 0 {
		written = append(written, keyNumRuns)
	}
	for _, key := range []string{keyTotal, keyOverallRate, keyKV} {
		if v, ok := r.extra(key); ok {
			out = append(out, member{key, v})
		}
		written = append(written, key)
	}
	rest := map[string]json.RawMessage{}
	for _, p := range []*profile.Point{r.decode, r.prefill} {
		if p != nil {
			maps.Copy(rest, p.Extra)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(rest)) {
		if !slices.Contains(written, key) {
			out = append(out, member{key, rest[key]})
		}
	}
	return out
}

// runs rebuilds the runs of the row; nil where its latencies do not have the
// same number of samples, as after dropping one.
func (r *benchRow) runs() ([]object, error) {
	all := r.metrics()
	n := len(all[0].point.Samples)
	for _, m := range all {
		if len(m.point.Samples) != n {
			return nil, nil
		}
	}
	if n == 0 {
		return nil, nil
	}
	rest := make([]map[string]json.RawMessage, n)
	if kept, ok := r.extra(keyRuns); ok {
		var list []map[string]json.RawMessage
		if err := json.Unmarshal(kept, &list); err != nil {
			return nil, fmt.Errorf("%s in extra: %w", keyRuns, err)
		}
		if len(list) == n { // else they are of other runs
			rest = list
		}
	}
	out := make([]object, n)
	for k := range out {
		run := object{{keyRunName, r.runName(k)}}
		if name, ok := rest[k][keyRunName]; ok {
			run[0].value = name
		}
		run = append(run, r.grid()...)
		for _, m := range all {
			t := m.point.Samples[k]
			run = append(run, member{m.latency, t}, member{m.rate, m.tokens / t})
		}
		for _, key := range slices.Sorted(maps.Keys(rest[k])) {
			if key != keyRunName {
				run = append(run, member{key, rest[k][key]})
			}
		}
		out[k] = run
	}
	return out, nil
}
