package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/stat"
)

// SimulationTables shows a simulated run.
func SimulationTables(d SimulationDocument) []Table {
	summary := pairTable("")
	what := d.Engine + " " + d.Release
	if d.Model != "" {
		what = d.Model + " on " + d.GPU + ", " + what
	}
	summary.pair("simulated", what)
	summary.pair("step times", stepTimes(d.Steps))
	if s := d.Steps; s.Between > 0 || s.Before > 0 || s.Delay > 0 {
		between := fmt.Sprintf("%.2f ms between steps", s.Between)
		if s.Delay > 0 {
			between += fmt.Sprintf(" and %.2f ms of mean delay", s.Delay)
		}
		summary.pair("host", between+fmt.Sprintf(", %.2f ms before the steps of a request", s.Before))
	}
	summary.pair("KV cache", fmt.Sprintf("%s (%s: %s)", d.KV.size(), d.KV.Basis, d.KV.Origin))
	summary.pair("load", d.Workload.Spec)
	if len(d.Replicas) > 1 {
		summary.pair("replicas", strconv.Itoa(len(d.Replicas))+", "+d.Routing)
	}
	if d.Partial != "" {
		summary.pair("ended early", d.Partial)
	}
	summary.pair("saturation", d.Saturation.Verdict+": "+d.Saturation.Why)
	if n := d.Workload.Requests - d.Outcomes[fleet.Completed.String()]; n > 0 {
		summary.pair("not completed", outcomes(d.Outcomes))
	}
	if e := d.Energy; e != nil {
		summary.pair("energy", fmt.Sprintf("%s J%s (%s)", threeDigits(e.Joules), perOutput(e.PerThousandTokens, e.PerGood, " J"), e.Basis))
	}
	if c := d.Cost; c != nil {
		summary.pair("cost", fmt.Sprintf("%s%s", threeDigits(c.Total), perOutput(c.PerThousandTokens, c.PerGood, "")))
	}
	if names := idleSettings(d); names != "" {
		summary.pair("no effect", names)
	}
	if len(d.Files) > 0 {
		summary.pair("wrote", strings.Join(d.Files, ", "))
	}
	b := BenchDocument{Whole: d.Whole, Steady: d.Steady}
	latencies := benchLatencies(b, []string{"ttft", "tpot", "itl", "e2el"})
	latencies.Notes = []string{"a p99 needs 100 values; itl is accurate to 0.4 %"}
	latencies.Rows = append(latencies.Rows, figureRow("queue", d.Queue))
	tables := []Table{summary, benchWindows(b), latencies, ttftTable(d), replicaTable(d)}
	if len(d.Classes) > 0 {
		tables = append(tables, simulatedClasses(d))
	}
	if t := simulatedVerdicts(d); len(t.Rows) > 0 {
		tables = append(tables, t)
	}
	return tables
}

// stepTimes says where the times of steps come from, and where nothing says what
// the host takes beside them.
func stepTimes(s StepSource) string {
	text := s.Source + " (" + s.Basis + ")"
	if s.Basis == string(stat.Theoretical) && s.Between == 0 && s.Before == 0 && s.Delay == 0 {
		text += "; no host time: --host-gap"
	}
	return text
}

// size is the blocks of a pool and its tokens. One block is never handed out, and
// what an engine prints is in requests of the longest length, which may fill no
// block or share the pool among layers of several kinds.
func (p SimulatedPool) size() string {
	blocks, size := int64(p.Blocks), int64(p.BlockSize)
	switch p.Tokens {
	case blocks * size:
		return fmt.Sprintf("%d blocks of %d = %d tokens", blocks, size, p.Tokens)
	case (blocks - 1) * size:
		return fmt.Sprintf("%d blocks of %d, one unused = %d tokens", blocks, size, p.Tokens)
	}
	return fmt.Sprintf("%d blocks of %d, %d tokens in requests of max_model_len", blocks, size, p.Tokens)
}

// threeDigits writes a number without an exponent, with three digits that count.
func threeDigits(v float64) string {
	decimals := 0
	if v > 0 {
		decimals = max(0, 2-int(math.Floor(math.Log10(v))))
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// perOutput is an amount by what was achieved.
func perOutput(perThousand, perGood *float64, unit string) string {
	text := ""
	if perThousand != nil {
		text += fmt.Sprintf(", %s%s per 1000 output tokens", threeDigits(*perThousand), unit)
	}
	if perGood != nil {
		text += fmt.Sprintf(", %s%s per good request", threeDigits(*perGood), unit)
	}
	return text
}

// idleSettings are the settings that made no difference to any replica, numbers
// with the values for which that holds.
func idleSettings(d SimulationDocument) string {
	count := map[string]int{}
	bounds := map[string]IdleSetting{}
	var names []string
	for _, r := range d.Replicas {
		for _, k := range r.Unbound {
			count[k.Name]++
			b := bounds[k.Name]
			if k.From != nil && (b.From == nil || *k.From > *b.From) {
				b.From = k.From
			}
			if k.To != nil && (b.To == nil || *k.To < *b.To) {
				b.To = k.To
			}
			bounds[k.Name] = b
			if count[k.Name] == len(d.Replicas) {
				names = append(names, k.Name)
			}
		}
	}
	for i, name := range names {
		names[i] += bounds[name].within()
	}
	return strings.Join(names, ", ")
}

// within says for which values a setting makes no difference; empty for all.
func (s IdleSetting) within() string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	switch {
	case s.From != nil && s.To != nil:
		return fmt.Sprintf(" (%s to %s)", number(*s.From), number(*s.To))
	case s.From != nil:
		return fmt.Sprintf(" (%s and more)", number(*s.From))
	case s.To != nil:
		return fmt.Sprintf(" (%s and less)", number(*s.To))
	}
	return ""
}

// outcomes lists how requests ended other than completed.
func outcomes(counts map[string]int) string {
	var parts []string
	for _, o := range []fleet.Outcome{fleet.Unservable, fleet.Aborted, fleet.TimedOut, fleet.Unfinished, fleet.Unsent} {
		if n := counts[o.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ReplaceAll(o.String(), "_", " ")))
		}
	}
	return strings.Join(parts, ", ")
}

func figureRow(name string, f load.Figure) []Cell {
	row := []Cell{Say(name)}
	for _, v := range []*float64{f.Mean, f.P50, f.P90, f.P95, f.P99} {
		row = append(row, known(2, v))
	}
	return append(row, Whole(f.N))
}

// ttftTable splits the time to the first token.
func ttftTable(d SimulationDocument) Table {
	t := Table{Title: "Time to the first token, ms", Columns: []Column{
		{Name: "part", Left: true},
		{Name: "mean", Key: "mean_ms"},
		{Name: "p50", Key: "p50_ms"},
		{Name: "p90", Key: "p90_ms"},
		{Name: "p95", Key: "p95_ms"},
		{Name: "p99", Key: "p99_ms"},
		{Name: "share", Key: "share_percent"},
	}}
	type part struct {
		name   string
		figure load.Figure
	}
	parts := []part{{"waiting in the queue", d.TTFT.Queue}, {"own prefill", d.TTFT.Own}, {"work of others in the same steps", d.TTFT.Others}}
	if most := d.TTFT.Host.Max; most != nil && *most > 0 {
		parts = append(parts, part{"host, before and between steps", d.TTFT.Host})
	}
	if d.TTFT.Transfer != nil {
		parts = append(parts, part{"KV on its way to the decoding replica", *d.TTFT.Transfer})
	}
	for _, part := range parts {
		row := figureRow(part.name, part.figure)
		share := Missing()
		if total := d.Whole.TTFT.Mean; total != nil && *total > 0 && part.figure.Mean != nil {
			share = Shown(fmt.Sprintf("%.0f %%", 100**part.figure.Mean / *total), 100**part.figure.Mean / *total)
		}
		row[len(row)-1] = share
		t.Rows = append(t.Rows, row)
	}
	return t
}

// replicaTable shows what the replicas did.
func replicaTable(d SimulationDocument) Table {
	t := Table{Title: "Replicas", Columns: []Column{
		{Name: "replica"},
		{Name: "role", Left: true, Idle: idle(fleet.Whole.String())},
		{Name: "requests"},
		{Name: "steps"},
		{Name: "busy", Key: "busy_percent"},
		{Name: "tokens a step", Key: "tokens_per_step"},
		{Name: "running, mean", Key: "running_mean"},
		{Name: "at most", Key: "running_max"},
		{Name: "waiting, mean", Key: "waiting_mean"},
		{Name: "at most", Key: "waiting_max"},
		{Name: "KV in use, mean", Key: "kv_usage_mean"},
		{Name: "at most", Key: "kv_usage_max"},
		{Name: "prefix hits", Key: "prefix_hit_rate", Idle: idle("0.0 %")},
		{Name: "preemptions", Idle: idle("0")},
	}}
	percent := func(share float64) Cell { return Shown(fmt.Sprintf("%.1f %%", 100*share), share) }
	var found, own int64
	for i, r := range d.Replicas {
		hits := 0.0
		if r.HitRate != nil {
			hits = *r.HitRate
		}
		t.Rows = append(t.Rows, []Cell{
			Whole(i), Say(r.Role), Whole(r.RequestsAssigned), Whole(r.Steps), percent(r.Busy), Fixed(r.TokensPerStep, 1), Fixed(r.Running.Mean, 1), Fixed(r.Running.Max, 0),
			Fixed(r.Waiting.Mean, 1), Fixed(r.Waiting.Max, 0), percent(r.KVUsage.Mean), percent(r.KVUsage.Max), percent(hits), Whole(r.Preemptions),
		})
		found, own = found+r.PrefixHits, own+r.ResumedHits
	}
	if own > 0 {
		t.Notes = []string{fmt.Sprintf("prefix hits: %d of %d tokens are of preempted requests that found their own blocks again", own, found)}
	}
	return t
}

// simulatedClasses shows the classes of requests.
func simulatedClasses(d SimulationDocument) Table {
	t := Table{Title: "Classes, ms", Columns: []Column{
		{Name: "class", Left: true},
		{Name: "requests"},
		{Name: "targets", Left: true},
		{Name: "good", Key: "good_share"},
		{Name: "TTFT mean", Key: "ttft_mean_ms"},
		{Name: "p99", Key: "ttft_p99_ms"},
		{Name: "TPOT mean", Key: "tpot_mean_ms"},
		{Name: "p99", Key: "tpot_p99_ms"},
		{Name: "E2EL mean", Key: "e2el_mean_ms"},
		{Name: "p99", Key: "e2el_p99_ms"},
	}}
	for _, c := range d.Classes {
		s := c.Summary
		good := Missing()
		if s.GoodShare != nil {
			good = Shown(fmt.Sprintf("%.1f %%", 100**s.GoodShare), *s.GoodShare)
		}
		t.Rows = append(t.Rows, []Cell{
			Say(c.Name), Whole(c.Requests), Say(strings.Join(c.Targets, " ")), good, known(2, s.TTFT.Mean), known(2, s.TTFT.P99),
			known(2, s.TPOT.Mean), known(2, s.TPOT.P99), known(2, s.E2EL.Mean), known(2, s.E2EL.P99),
		})
	}
	return t
}
