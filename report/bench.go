package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/load/metrics"
)

// BenchDocument is the JSON of a run of a load generator.
type BenchDocument struct {
	Head
	// Verdict is VALID, DEGRADED or INVALID; Reasons say why it is not the
	// first.
	Verdict string   `json:"verdict"`
	Reasons []string `json:"reasons"`
	// Partial says why the run ended early.
	Partial string `json:"partial,omitempty"`
	// Targets and Model are what was asked, Workload how.
	Targets []string `json:"targets"`
	Model   string   `json:"model"`
	Engine  string   `json:"engine"`
	// EngineVersion is the engine's release, as far as it tells; where those of
	// several servers differ, all of them.
	EngineVersion string        `json:"engine_version,omitempty"`
	Endpoint      string        `json:"endpoint"`
	Workload      BenchWorkload `json:"workload"`
	Started       string        `json:"started"`
	// Whole is the whole run, Steady the part in which the load was steady.
	Whole  load.Summary `json:"whole"`
	Steady load.Summary `json:"steady"`
	// Server is what the server says between the readings within the steady
	// part, ServerWhole of the whole run; null where it publishes no metrics or
	// was not read twice meanwhile.
	Server      *metrics.Window `json:"server"`
	ServerWhole *metrics.Window `json:"server_whole"`
	// Servers is what each of several says; Server and ServerWhole are then sums,
	// without gauges and means, and null where one of the servers tells nothing.
	Servers []BenchServer `json:"servers,omitempty"`
	Checks  []load.Check  `json:"checks"`
	Machine load.Machine  `json:"client"`
	// CPUPerToken is the client's CPU time over all output tokens, in
	// microseconds.
	CPUPerToken *float64 `json:"client_cpu_us_per_token"`
	Files       []string `json:"files,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
}

// BenchServer is what one of several servers says, as of the whole run and of
// its steady part.
type BenchServer struct {
	URL    string          `json:"url"`
	Whole  *metrics.Window `json:"whole"`
	Steady *metrics.Window `json:"steady"`
}

// BenchWorkload is the load that was asked for.
type BenchWorkload struct {
	Pattern        string `json:"pattern"`
	Spec           string `json:"spec"`
	Seed           uint64 `json:"seed"`
	Requests       int    `json:"requests"`
	Warmup         int    `json:"warmup_requests"`
	MaxConcurrency int    `json:"max_concurrency,omitempty"`
	InputTokens    int    `json:"input_tokens"`
	OutputTokens   int    `json:"output_tokens"`
}

// Bench builds the document of a run.
func Bench(r *load.Result, whole, steady load.Summary, gate load.Gate, tool string) BenchDocument {
	d := BenchDocument{
		Head: NewHead("bench", tool), Verdict: string(gate.Grade), Reasons: gate.Reasons(), Partial: r.Partial, Checks: gate.Checks,
		Workload: BenchWorkload{
			Pattern: r.Schedule.Pattern, Spec: r.Schedule.Spec, Seed: r.Schedule.Seed, Requests: len(r.Schedule.Requests), Warmup: len(r.Warmup),
			MaxConcurrency: r.MaxConcurrency, InputTokens: r.Schedule.InputTokens(), OutputTokens: r.Schedule.OutputTokens(),
		},
		Started: r.Started.UTC().Format("2006-01-02T15:04:05Z"), Whole: whole, Steady: steady, Machine: r.Machine,
	}
	if d.Reasons == nil {
		d.Reasons = []string{}
	}
	if cpu, tokens := r.Machine.CPUSeconds, whole.OutputTokens; cpu != nil && tokens != nil && *tokens > 0 {
		us := *cpu / float64(*tokens) * 1e6
		d.CPUPerToken = &us
	}
	return d
}

// benchMetrics are the figures that a table shows, in its order.
func benchMetrics(s *load.Summary) []struct {
	key, name string
	figure    load.Figure
} {
	return []struct {
		key, name string
		figure    load.Figure
	}{
		{"ttft", "TTFT", s.TTFT},
		{"ttft_sched", "TTFT from schedule", s.TTFTSched},
		{"tpot", "TPOT", s.TPOT},
		{"itl", "ITL", s.ITL},
		{"icl", "ICL", s.ICL},
		{"e2el", "E2EL", s.E2EL},
		{"e2el_sched", "E2EL from schedule", s.E2ELSched},
		{"send_lag", "send lag", s.SendLag},
	}
}

// BenchMetrics are the latencies that [BenchTables] can show, in its order.
func BenchMetrics() []string {
	var keys []string
	for _, m := range benchMetrics(&load.Summary{}) {
		keys = append(keys, m.key)
	}
	return keys
}

// BenchTables shows a run. Metrics picks what of the latencies is shown; empty
// stands for all.
func BenchTables(d BenchDocument, wanted []string) []Table {
	summary := pairTable("")
	verdict := d.Verdict
	if len(d.Reasons) > 0 {
		verdict += ": " + strings.Join(d.Reasons, "; ")
	}
	summary.pair("verdict", verdict)
	if d.Partial != "" {
		summary.pair("ended early", d.Partial)
	}
	summary.pair("server", strings.Join(d.Targets, ", "))
	summary.pair("model", d.Model)
	summary.pair("load", d.Workload.Spec)
	if d.Workload.MaxConcurrency > 0 {
		summary.pair("max concurrency", strconv.Itoa(d.Workload.MaxConcurrency))
	}
	if len(d.Files) > 0 {
		summary.pair("wrote", strings.Join(d.Files, ", "))
	}
	if d.CPUPerToken != nil {
		summary.pair("client", fmt.Sprintf("%.1f µs of CPU a token", *d.CPUPerToken))
	}
	tables := []Table{summary, benchWindows(d), benchLatencies(d, wanted)}
	if d.Server != nil || d.ServerWhole != nil {
		tables = append(tables, benchServer(d))
	}
	if len(d.Servers) > 0 {
		tables = append(tables, benchServers(d))
	}
	return tables
}

func benchWindows(d BenchDocument) Table {
	t := Table{Title: "Throughput", Columns: []Column{
		{Name: "window", Left: true},
		{Name: "s", Key: "duration_s"},
		{Name: "completed"},
		{Name: "failed"},
		{Name: "req/s", Key: "request_throughput"},
		{Name: "tok/s", Key: "output_throughput"},
		{Name: "goodput/s", Key: "request_goodput", Idle: idle("–")},
		{Name: "open requests", Key: "concurrency_mean"},
		{Name: "at most", Key: "concurrency_max"},
	}}
	rate := func(v *float64, decimals int) Cell {
		if v == nil {
			return Missing()
		}
		return Fixed(*v, decimals)
	}
	for _, s := range []load.Summary{d.Whole, d.Steady} {
		if s.Window == load.Steady && s.Completed+s.Failed == 0 {
			continue // there was no such part
		}
		if s.Window == load.Steady && s.Goodput != nil {
			t.Notes = []string{"steady: req/s are of requests that ended in it, goodput/s of good ones that were sent in it"}
		}
		t.Rows = append(t.Rows, []Cell{
			Say(string(s.Window)), Fixed(s.Duration, 1), Whole(s.Completed), Whole(s.Failed), rate(s.RequestThroughput, 2), rate(s.OutputThroughput, 1),
			rate(s.Goodput, 2), Fixed(s.Concurrency.Mean, 1), Whole(s.Concurrency.Max),
		})
	}
	return t
}

func benchLatencies(d BenchDocument, wanted []string) Table {
	t := Table{Title: "Latency, ms, whole run", Columns: []Column{
		{Name: "", Key: "metric", Left: true},
		{Name: "mean", Key: "mean_ms"},
		{Name: "p50", Key: "p50_ms"},
		{Name: "p90", Key: "p90_ms"},
		{Name: "p95", Key: "p95_ms"},
		{Name: "p99", Key: "p99_ms"},
		{Name: "n"},
	}}
	for _, m := range benchMetrics(&d.Whole) {
		if len(wanted) > 0 && !slices.Contains(wanted, m.key) {
			continue
		}
		f := m.figure
		row := []Cell{Say(m.name)}
		for _, v := range []*float64{f.Mean, f.P50, f.P90, f.P95, f.P99} {
			row = append(row, known(2, v))
		}
		t.Rows = append(t.Rows, append(row, Whole(f.N)))
	}
	t.Notes = []string{"from schedule: since the moment at which the request was due; a p99 needs 100 values"}
	return t
}

// benchServer shows what the server says of itself.
func benchServer(d BenchDocument) Table {
	title := "What the server says"
	if len(d.Servers) > 0 {
		title = "What the servers say together"
	}
	t := Table{Title: title, Columns: []Column{
		{Name: "", Key: "figure", Left: true}, {Name: "whole run", Key: "whole"}, {Name: "steady", Key: "steady"},
	}}
	windows := []*metrics.Window{d.ServerWhole, d.Server}
	add := func(name string, decimals int, of func(*metrics.Window) *float64) {
		row, known := []Cell{Say(name)}, false
		for _, w := range windows {
			cell := Missing()
			if w != nil {
				if v := of(w); v != nil {
					cell, known = Fixed(*v, decimals), true
				}
			}
			row = append(row, cell)
		}
		if known {
			t.Rows = append(t.Rows, row)
		}
	}
	gauge := func(of func(*metrics.Window) *metrics.Gauge, largest bool) func(*metrics.Window) *float64 {
		return func(w *metrics.Window) *float64 {
			g := of(w)
			if g == nil {
				return nil
			}
			v := g.Mean
			if largest {
				v = g.Max
			}
			return &v
		}
	}
	running := func(w *metrics.Window) *metrics.Gauge { return w.Running }
	waiting := func(w *metrics.Window) *metrics.Gauge { return w.Waiting }
	usage := func(w *metrics.Window) *metrics.Gauge { return w.KVUsage }
	add("requests finished", 0, func(w *metrics.Window) *float64 { return w.Requests })
	add("prompt tokens", 0, func(w *metrics.Window) *float64 { return w.PromptTokens })
	add("generated tokens", 0, func(w *metrics.Window) *float64 { return w.GenerationTokens })
	add("prefix hits, tokens", 0, func(w *metrics.Window) *float64 { return w.PrefixHits })
	add("prefix hit rate", 3, func(w *metrics.Window) *float64 { return w.HitRate })
	add("preemptions", 0, func(w *metrics.Window) *float64 { return w.Preemptions })
	add("running, mean", 1, gauge(running, false))
	add("waiting, mean", 1, gauge(waiting, false))
	add("waiting, at most", 0, gauge(waiting, true))
	add("KV cache in use, mean", 3, gauge(usage, false))
	add("KV cache in use, at most", 3, gauge(usage, true))
	add("TTFT, mean ms", 2, func(w *metrics.Window) *float64 { return w.TTFT })
	add("token gap, mean ms", 2, func(w *metrics.Window) *float64 { return w.ITL })
	add("queue, mean ms", 2, func(w *metrics.Window) *float64 { return w.Queue })
	add("prefill, mean ms", 2, func(w *metrics.Window) *float64 { return w.Prefill })
	add("decode, mean ms", 2, func(w *metrics.Window) *float64 { return w.Decode })
	return t
}

// benchServers shows what each of several servers says of the whole run.
func benchServers(d BenchDocument) Table {
	t := Table{Title: "What each server says, whole run", Notes: d.Warnings, Columns: []Column{
		{Name: "server", Left: true},
		{Name: "requests", Key: "finished_requests"},
		{Name: "output tokens", Key: "generation_tokens"},
		{Name: "hit rate", Key: "prefix_cache_hit_rate", Idle: idle("–")},
		{Name: "preempted", Key: "preemptions", Idle: idle("–")},
		{Name: "running, mean", Key: "running_mean", Idle: idle("–")},
		{Name: "at most", Key: "running_max", Idle: idle("–")},
		{Name: "waiting, mean", Key: "waiting_mean", Idle: idle("–")},
		{Name: "at most", Key: "waiting_max", Idle: idle("–")},
		{Name: "KV cache, mean", Key: "kv_cache_usage_mean", Idle: idle("–")},
		{Name: "at most", Key: "kv_cache_usage_max", Idle: idle("–")},
		{Name: "TTFT mean ms", Key: "ttft_mean_ms", Idle: idle("–")},
	}}
	for _, s := range d.Servers {
		w := s.Whole
		if w == nil {
			w = &metrics.Window{}
		}
		row := []Cell{Say(s.URL), known(0, w.Requests), known(0, w.GenerationTokens), known(3, w.HitRate), known(0, w.Preemptions)}
		for _, g := range []struct {
			of             *metrics.Gauge
			mean, greatest int // decimals
		}{{w.Running, 1, 0}, {w.Waiting, 1, 0}, {w.KVUsage, 3, 3}} {
			if g.of == nil {
				row = append(row, Missing(), Missing())
				continue
			}
			row = append(row, Fixed(g.of.Mean, g.mean), Fixed(g.of.Max, g.greatest))
		}
		t.Rows = append(t.Rows, append(row, known(2, w.TTFT)))
	}
	return t
}
