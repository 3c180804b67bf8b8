package report

import (
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/stat"
)

// WorkloadTables shows workload profiles: the cells that were measured, those
// that were not, and what of the former nobody tells.
func WorkloadTables(d WorkloadDocument) []Table {
	measured := Table{Columns: append(cellColumns(), []Column{
		{Name: "TTFT mean ms", Key: "ttft_mean_ms", Idle: idle("–")},
		{Name: "TTFT p95", Key: "ttft_p95_ms", Idle: idle("–")},
		{Name: "TPOT mean ms", Key: "tpot_mean_ms", Idle: idle("–")},
		{Name: "TPOT p95", Key: "tpot_p95_ms", Idle: idle("–")},
		{Name: "tok/s", Key: "measured_tokens_per_second"},
		{Name: "prefill slowed", Key: "prefill_slowdown", Idle: idle("–")},
		{Name: "decode slowed", Key: "decode_slowdown", Idle: idle("–")},
		{Name: "cached, found", Key: "cached_tokens_found"},
		{Name: "of", Key: "cached_tokens_asked"},
		{Name: "KV use", Key: "kv_cache_usage", Idle: idle("–")},
		{Name: "batch efficiency", Key: "batch_efficiency", Idle: idle("–")},
		{Name: "preempted", Key: "preemptions", Idle: idle("–")},
	}...)}
	failed := Table{Title: "Not measured", Columns: append(cellColumns(), Column{Name: "why", Left: true})}
	left := Table{Title: "Left out", Columns: []Column{{Name: "what", Left: true}, {Name: "why", Left: true}}}
	seen := map[string]bool{}
	for _, r := range d.Results {
		if r.Failure != "" {
			failed.Rows = append(failed.Rows, append(r.cells(), Say(strings.TrimSuffix(r.Failure+"; "+r.Hint, "; "))))
			continue
		}
		measured.Rows = append(measured.Rows, r.row())
		for _, m := range r.NotMeasured {
			if key := m.What + m.Why; !seen[key] {
				seen[key] = true
				left.Rows = append(left.Rows, []Cell{Say(m.What), Say(m.Why)})
			}
		}
		for _, w := range r.Warnings {
			if !seen[w] {
				seen[w] = true
				measured.Notes = append(measured.Notes, w)
			}
		}
	}
	var out []Table
	for _, t := range []Table{measured, failed, left} {
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	if len(d.Files) > 0 {
		wrote := pairTable("")
		wrote.pair("wrote", strings.Join(d.Files, ", "))
		out = append(out, wrote)
	}
	return out
}

func cellColumns() []Column {
	return []Column{{Name: "type", Left: true}, {Name: "C"}, {Name: "M"}, {Name: "B"}, {Name: "block", Key: "block_size"}}
}

func (d *WorkloadResult) cells() []Cell {
	c := d.Config
	return []Cell{Say(d.ProfilingType), Whole(c.C), Whole(c.M), Whole(c.B), Whole(c.BlockSize)}
}

func (d *WorkloadResult) row() []Cell {
	slow := WorkloadRatio{}
	if d.Slowdown != nil {
		slow = *d.Slowdown
	}
	found, efficiency := Missing(), Missing()
	if n := d.PrefixTokens.Found; n != nil {
		found = Whole(*n)
	}
	if list := d.Metrics.BatchEfficiency; len(list) > 0 {
		efficiency = Fixed(stat.Mean(list), 3)
	}
	return append(d.cells(), known(2, d.TTFT.Mean), known(2, d.TTFT.P95), known(2, d.TPOT.Mean), known(2, d.TPOT.P95), known(1, d.PartTokensPerSecond),
		times(slow.Prefill), times(slow.Decode), found, Whole(d.PrefixTokens.Asked), known(3, d.KVCacheUsage), efficiency, known(0, d.Metrics.Preemptions))
}

// times is a ratio that may be missing.
func times(v *float64) Cell {
	if v == nil {
		return Missing()
	}
	return Shown(fmt.Sprintf("×%.2f", *v), *v)
}
