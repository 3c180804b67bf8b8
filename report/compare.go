package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/unit"
)

// ServedDocument is the JSON of two served loads side by side.
type ServedDocument struct {
	Head
	// A is what B is held against: the measured run where the other one is a
	// simulation, else the one that was named first.
	A ServedSide `json:"a"`
	B ServedSide `json:"b"`
	// Whole and Steady are the figures of both windows; nil for a window that
	// was not asked for.
	Whole  []ServedFigure `json:"whole,omitempty"`
	Steady []ServedFigure `json:"steady,omitempty"`
	// Engines is what the engines themselves did in the whole run; empty where
	// neither is known, or one run is another tool's.
	Engines []ServedFigure `json:"engines"`
	Bounds  []HeldBound    `json:"bounds"`
	// Warnings say why the two may not be comparable.
	Warnings []string `json:"warnings"`
}

// ServedSide names one of two runs.
type ServedSide struct {
	File string `json:"file"`
	// Kind is measured or simulated.
	Kind string `json:"kind"`
	// Schema is empty and Tool another one's name where no llmprof measured.
	Schema   string        `json:"schema"`
	Tool     string        `json:"tool"`
	Verdict  string        `json:"verdict,omitempty"`
	Model    string        `json:"model,omitempty"`
	GPU      string        `json:"gpu,omitempty"`
	Engine   string        `json:"engine,omitempty"`
	Release  string        `json:"engine_version,omitempty"`
	Workload BenchWorkload `json:"workload"`
}

// ServedFigure is a figure of both runs. What one does not know is null.
type ServedFigure struct {
	// Name is the path of the figure in its document, such as ttft_ms.mean.
	Name string `json:"figure"`
	// A and B are in milliseconds (ms) or seconds (s) where the name ends so,
	// else counts, tokens, requests or tokens/s, or shares.
	A *float64 `json:"a"`
	B *float64 `json:"b"`
	// Difference is B against A in percent; null where one is missing, or A is
	// zero and B is not.
	Difference *float64 `json:"difference_percent"`

	text     string
	decimals int
}

// ServedBound is how far two means may be apart.
type ServedBound struct {
	// Metric is ttft, tpot, itl, icl or e2el; Percent is of A's mean.
	Metric  load.Metric `json:"metric"`
	Percent float64     `json:"bound_percent"`
}

// HeldBound is a bound with what came of it.
type HeldBound struct {
	ServedBound
	Window load.Window `json:"window"`
	// Difference is that of the means in percent; null where one is missing,
	// and then the bound does not hold.
	Difference *float64 `json:"difference_percent"`
	Holds      bool     `json:"holds"`
}

// String says a bound with its difference, as "TTFT +9.12 % (at most 8)".
func (b HeldBound) String() string {
	of := "not known"
	if b.Difference != nil {
		of = fmt.Sprintf("%+.2f %%", *b.Difference)
	}
	return fmt.Sprintf("%s %s (at most %g)", strings.ToUpper(string(b.Metric)), of, b.Percent)
}

// ParseBounds reads bounds such as "ttft:8 tpot:10 e2el:7", in percent of a mean.
func ParseBounds(text string) ([]ServedBound, error) {
	var all []ServedBound
	for part := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return strings.ContainsRune(" ,\t\n", r) }) {
		name, number, found := strings.Cut(part, ":")
		percent, err := strconv.ParseFloat(strings.TrimSuffix(number, "%"), 64)
		if !found || err != nil || !(percent >= 0) || math.IsInf(percent, 0) {
			return nil, fmt.Errorf("bound %q: want a form such as ttft:8, in percent, 0 or more", part)
		}
		b := ServedBound{Metric: load.Metric(name), Percent: percent}
		if !slices.Contains(comparedMetrics(), b.Metric) {
			return nil, fmt.Errorf("bound %q: want one of the metrics %s", part, unit.List(comparedMetrics()))
		}
		if slices.ContainsFunc(all, func(o ServedBound) bool { return o.Metric == b.Metric }) {
			return nil, fmt.Errorf("bound %q: %s has one already", part, name)
		}
		all = append(all, b)
	}
	return all, nil
}

// comparedMetrics are the latencies that are compared.
func comparedMetrics() []load.Metric {
	return []load.Metric{load.TTFT, load.TPOT, load.ITL, load.ICL, load.E2EL}
}

// CompareServed puts two runs side by side. A measured run goes before a
// simulated one. Window chooses what is compared, "" for both windows, of which
// other tools know the whole run only; bounds are held against the means of that
// window, of the whole run without one.
func CompareServed(a, b *ServedRun, window load.Window, bounds []ServedBound, tool string) ServedDocument {
	if a.Simulated() && !b.Simulated() {
		a, b = b, a
	}
	d := ServedDocument{
		Head: NewHead("comparison", tool), A: sideOf(a), B: sideOf(b), Engines: []ServedFigure{},
		Bounds: []HeldBound{}, Warnings: append([]string{}, doubts(a, b)...),
	}
	if a.Reported == nil && b.Reported == nil { // other tools say nothing of the engine
		d.Engines = engineFigures(a, b)
	}
	if window != load.Steady {
		d.Whole = windowFigures(a.wholeFigures(), b.wholeFigures())
	}
	if window == load.Steady || window == "" && a.Reported == nil && b.Reported == nil {
		d.Steady = windowFigures(summaryFigures(a.Steady), summaryFigures(b.Steady))
	}
	held, figures := load.Whole, d.Whole
	if window == load.Steady {
		held, figures = load.Steady, d.Steady
	}
	for _, bound := range bounds {
		h := HeldBound{ServedBound: bound, Window: held}
		i := slices.IndexFunc(figures, func(f ServedFigure) bool { return f.Name == string(bound.Metric)+"_ms.mean" })
		if i >= 0 && figures[i].Difference != nil {
			h.Difference = figures[i].Difference
			h.Holds = math.Abs(*h.Difference) <= bound.Percent
		}
		d.Bounds = append(d.Bounds, h)
	}
	return d
}

// Missed are the bounds that do not hold.
func (d ServedDocument) Missed() []HeldBound {
	var out []HeldBound
	for _, b := range d.Bounds {
		if !b.Holds {
			out = append(out, b)
		}
	}
	return out
}

func sideOf(r *ServedRun) ServedSide {
	kind := "measured"
	if r.Simulated() {
		kind = "simulated"
	}
	return ServedSide{
		File: r.Name, Kind: kind, Schema: r.Schema, Tool: r.Tool, Verdict: r.Verdict, Model: r.Model, GPU: r.GPU, Engine: r.Engine, Release: r.Release, Workload: r.Workload,
	}
}

// doubts are the reasons for which two runs may not be comparable.
func doubts(a, b *ServedRun) []string {
	var out []string
	for _, r := range []*ServedRun{a, b} {
		out = append(out, r.doubts()...)
	}
	var differ []string
	note := func(what string, x, y any) {
		if x != y {
			differ = append(differ, fmt.Sprintf("%s %v and %v", what, x, y))
		}
	}
	count := func(what string, x, y int) {
		if x != 0 && y != 0 || a.Reported == nil && b.Reported == nil {
			note(what, x, y)
		}
	}
	count("requests", a.Workload.Requests, b.Workload.Requests)
	count("input tokens", a.Workload.InputTokens, b.Workload.InputTokens)
	count("output tokens", a.Workload.OutputTokens, b.Workload.OutputTokens)
	if a.Reported == nil && b.Reported == nil { // another tool has its own words for a pattern, and its own draws
		note("pattern", a.Workload.Pattern, b.Workload.Pattern)
		note("seed", a.Workload.Seed, b.Workload.Seed)
	}
	if len(differ) > 0 {
		out = append(out, "the two are not of the same load: "+strings.Join(differ, "; "))
	}
	if a.Engine != "" && b.Engine != "" && a.Engine != b.Engine {
		out = append(out, fmt.Sprintf("the engines differ: %s and %s", a.Engine, b.Engine))
	}
	return out
}

// doubts are the reasons for which the figures of a run may say less than they
// seem to.
func (r *ServedRun) doubts() []string {
	var out []string
	if r.Verdict == string(load.Invalid) || r.Verdict == string(load.Degraded) {
		out = append(out, fmt.Sprintf("%s is %s: %s", r.Name, r.Verdict, strings.Join(r.Reasons, "; ")))
	}
	if r.Partial != "" {
		out = append(out, fmt.Sprintf("%s ended early: %s", r.Name, r.Partial))
	}
	var done *int
	switch {
	case r.Reported != nil:
		done = r.Reported.Completed
	case r.Whole != nil:
		done = &r.Whole.Completed
	}
	if asked := r.Workload.Requests; done != nil && *done != asked && (asked != 0 || r.Reported == nil) {
		out = append(out, fmt.Sprintf("%s completed %d of %d requests, and its latencies are those of these", r.Name, *done, asked))
	}
	if s := r.Reported; s != nil && s.TPOT != nil && s.TPOT.Over == format.OverTokens {
		out = append(out, fmt.Sprintf("%s takes TPOT over tokens, so that long answers weigh more: here it is a mean over requests", r.Name))
	}
	return out
}

// figureList collects figures of two runs.
type figureList struct{ all []ServedFigure }

// add adds a figure; what cannot be written as JSON is taken as missing.
func (l *figureList) add(name, text string, decimals int, a, b *float64) {
	f := ServedFigure{Name: name, A: finite(a), B: finite(b), text: text, decimals: decimals}
	if f.A != nil && f.B != nil {
		switch {
		case *f.A == *f.B:
			f.Difference = new(0.0)
		case *f.A > 0:
			f.Difference = finite(new(100 * (*f.B / *f.A - 1)))
		}
	}
	l.all = append(l.all, f)
}

func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}

// number is a count as a figure.
func number[T ~int | ~int64](n *T) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}
