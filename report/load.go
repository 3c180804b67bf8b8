package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// LoadDocument is the JSON of a load before it runs.
type LoadDocument struct {
	Head
	// Pattern and Spec say how the load was made.
	Pattern string `json:"pattern"`
	Spec    string `json:"spec"`
	Seed    uint64 `json:"seed"`
	// Requests is their number, Waiting that of those whose time is known only
	// while the load runs.
	Requests int `json:"requests"`
	Waiting  int `json:"waiting_requests"`
	// Duration is the latest time that is known beforehand, in seconds.
	Duration float64 `json:"duration_s"`
	// Rate is the gaps between the first and the last request over the time
	// between them, in requests a second; nil where not all times are known, or
	// all are one.
	Rate *float64 `json:"rate_per_s"`
	// GapCV is the coefficient of variation of the gaps, without a unit; nil
	// where there is no rate.
	GapCV *float64 `json:"gap_cv"`
	// Input and Output are the lengths of prompts and answers in tokens.
	Input  LengthKeys `json:"input_tokens"`
	Output LengthKeys `json:"output_tokens"`
	// Prefix says what prompts have in common.
	Prefix LoadPrefix `json:"prefix"`
	// Sessions is nil without any.
	Sessions *LoadSessions `json:"sessions"`
	// Classes are empty without any.
	Classes []LoadClass `json:"classes"`
	// Timeouts is how many requests a client gives up after a time.
	Timeouts int `json:"requests_with_timeout"`
	// Files are those that were written.
	Files []string `json:"files,omitempty"`
}

// LengthKeys is the distribution of lengths.
type LengthKeys struct {
	// Total is the sum in tokens.
	Total int `json:"total"`
	// Mean and Std are in tokens; Std is that of the population.
	Mean float64 `json:"mean"`
	Std  float64 `json:"std"`
	// The extremes and the quantiles are in tokens.
	Min float64 `json:"min"` // tokens
	P50 float64 `json:"p50"` // tokens
	P90 float64 `json:"p90"` // tokens
	P99 float64 `json:"p99"` // tokens
	Max float64 `json:"max"` // tokens
}

// LoadPrefix is what prompts have in common.
type LoadPrefix struct {
	// Requests is how many prompts begin with a shared prefix or with what was
	// said before.
	Requests int `json:"requests"`
	// Reusable is how many input tokens an engine has seen before that serves
	// the requests in order and forgets nothing, Share their part of all.
	Reusable int     `json:"reusable_tokens"`
	Share    float64 `json:"reusable_share"`
}

// LoadSessions is the conversations of a load.
type LoadSessions struct {
	// Count is the number of sessions.
	Count int `json:"count"`
	// MeanTurns and MaxTurns are numbers of turns in a session.
	MeanTurns float64 `json:"mean_turns"`
	MaxTurns  int     `json:"max_turns"`
	// MeanThink is in seconds, over the turns that wait for another one; nil
	// where none does.
	MeanThink *float64 `json:"mean_think_s"`
}

// LoadClass is one class of a load.
type LoadClass struct {
	workload.Class
	// Requests is how many the schedule holds, MeanInput and MeanOutput their
	// lengths in tokens.
	Requests   int     `json:"requests"`
	MeanInput  float64 `json:"mean_input_tokens"`
	MeanOutput float64 `json:"mean_output_tokens"`
}

// Load builds the document of a load.
func Load(s *workload.Schedule, tool string) LoadDocument {
	d := LoadDocument{
		Head: NewHead("load", tool), Pattern: s.Pattern, Spec: s.Spec, Seed: s.Seed, Requests: len(s.Requests),
		Duration: float64(s.Duration()), Classes: loadClasses(s), Sessions: loadSessions(s),
		Input:  lengthsOf(s, func(q *workload.Request) int { return q.InputLen }),
		Output: lengthsOf(s, func(q *workload.Request) int { return q.OutputLen }),
	}
	for i, reused := range workload.Reused(s.Requests) {
		q := &s.Requests[i]
		if d.Prefix.Reusable += reused; len(q.Prefix) > 0 {
			d.Prefix.Requests++
		}
		if q.Timeout > 0 {
			d.Timeouts++
		}
		if q.After != nil {
			d.Waiting++
		}
	}
	d.Prefix.Share = float64(d.Prefix.Reusable) / float64(max(d.Input.Total, 1))
	if rate, ok := s.MeanRate(); ok {
		d.Rate, d.GapCV = &rate, gapCV(s)
	}
	return d
}

// gapCV is the coefficient of variation of the gaps; nil for fewer than two.
func gapCV(s *workload.Schedule) *float64 {
	var gaps []float64
	for i := 1; i < len(s.Requests); i++ {
		gaps = append(gaps, float64(s.Requests[i].At-s.Requests[i-1].At))
	}
	mean := stat.Mean(gaps)
	if len(gaps) < 2 || !(mean > 0) {
		return nil
	}
	return new(stat.StdDev(gaps) / mean)
}

func lengthsOf(s *workload.Schedule, of func(*workload.Request) int) LengthKeys {
	x, total := make([]float64, len(s.Requests)), 0
	for i := range s.Requests {
		n := of(&s.Requests[i])
		x[i], total = float64(n), total+n
	}
	if len(x) == 0 {
		return LengthKeys{}
	}
	slices.Sort(x)
	return LengthKeys{
		Total: total, Mean: stat.Mean(x), Std: stat.StdDev(x), Min: x[0], Max: x[len(x)-1],
		P50: stat.QuantileSorted(x, 0.5), P90: stat.QuantileSorted(x, 0.9), P99: stat.QuantileSorted(x, 0.99),
	}
}

func loadSessions(s *workload.Schedule) *LoadSessions {
	turns, thinks, waiting, total := map[string]int{}, 0.0, 0, 0
	for i := range s.Requests {
		q := &s.Requests[i]
		if q.Session == "" {
			continue
		}
		turns[q.Session]++
		total++
		if q.After != nil && q.After.Request >= 0 {
			thinks += float64(q.After.Think)
			waiting++
		}
	}
	if len(turns) == 0 {
		return nil
	}
	d := &LoadSessions{Count: len(turns), MeanTurns: float64(total) / float64(len(turns))}
	for _, n := range turns {
		d.MaxTurns = max(d.MaxTurns, n)
	}
	if waiting > 0 {
		d.MeanThink = new(thinks / float64(waiting))
	}
	return d
}

func loadClasses(s *workload.Schedule) []LoadClass {
	all := make([]LoadClass, len(s.Classes))
	place := map[string]int{}
	for i, c := range s.Classes {
		all[i].Class = c
		place[c.Name] = i
	}
	for i := range s.Requests {
		q := &s.Requests[i]
		if k, known := place[q.Class]; known {
			all[k].Requests++
			all[k].MeanInput += float64(q.InputLen)
			all[k].MeanOutput += float64(q.OutputLen)
		}
	}
	for i := range all {
		n := float64(max(all[i].Requests, 1))
		all[i].MeanInput /= n
		all[i].MeanOutput /= n
	}
	return all
}

// LoadTables shows a load.
func LoadTables(d LoadDocument) []Table {
	t := pairTable("")
	t.pair("load", d.Spec)
	t.pair("requests", strconv.Itoa(d.Requests))
	if d.Waiting > 0 {
		t.pair("", fmt.Sprintf("%d of them wait for an answer", d.Waiting))
	}
	switch {
	case d.Rate != nil:
		t.pair("arrivals", fmt.Sprintf("%.4g/s over %v", *d.Rate, unit.Seconds(d.Duration)))
	case d.Waiting > 0 && d.Duration > 0:
		t.pair("arrivals", fmt.Sprintf("over %v, those whose time is known", unit.Seconds(d.Duration)))
	default:
		t.pair("arrivals", "all at once")
	}
	if d.GapCV != nil {
		t.pair("gaps", fmt.Sprintf("coefficient of variation %.3f", *d.GapCV))
	}
	if d.Prefix.Requests > 0 || d.Prefix.Reusable > 0 {
		t.pair("shared prefixes", fmt.Sprintf("%s; %d input tokens (%s) were seen before", unit.Plural(d.Prefix.Requests, "request"), d.Prefix.Reusable, percent(float64(d.Prefix.Reusable), float64(d.Input.Total))))
	}
	if s := d.Sessions; s != nil {
		text := fmt.Sprintf("%d of %.2f turns in the mean, %d at most", s.Count, s.MeanTurns, s.MaxTurns)
		if s.MeanThink != nil {
			text += ", think time " + unit.Seconds(*s.MeanThink).String()
		}
		t.pair("sessions", text)
	}
	if d.Timeouts > 0 {
		t.pair("timeouts", unit.Plural(d.Timeouts, "request"))
	}
	for _, f := range d.Files {
		t.pair("written", f)
	}
	tables := []Table{t, lengthTable(d)}
	if len(d.Classes) > 0 {
		tables = append(tables, classTable(d.Classes))
	}
	return tables
}

func lengthTable(d LoadDocument) Table {
	t := Table{Title: "Lengths in tokens", Columns: []Column{
		{Name: "", Key: "side", Left: true},
		{Name: "total"},
		{Name: "mean"},
		{Name: "sd"},
		{Name: "min"},
		{Name: "p50"},
		{Name: "p90"},
		{Name: "p99"},
		{Name: "max"},
	}}
	for _, side := range []struct {
		name string
		LengthKeys
	}{{"input", d.Input}, {"output", d.Output}} {
		row := []Cell{Say(side.name), {Text: strconv.Itoa(side.Total), Value: side.Total}}
		for _, v := range []float64{side.Mean, side.Std} {
			row = append(row, Cell{Text: fmt.Sprintf("%.1f", v), Value: v})
		}
		for _, v := range []float64{side.Min, side.P50, side.P90, side.P99, side.Max} {
			row = append(row, Cell{Text: fmt.Sprintf("%.0f", v), Value: v})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func classTable(classes []LoadClass) Table {
	t := Table{Title: "Classes", Columns: []Column{
		{Name: "class", Left: true},
		{Name: "requests"},
		{Name: "priority"},
		{Name: "mean input", Key: "mean_input_tokens"},
		{Name: "mean output", Key: "mean_output_tokens"},
		{Name: "targets", Left: true},
	}}
	for _, c := range classes {
		var targets []string
		for _, target := range c.Targets {
			targets = append(targets, target.String())
		}
		t.Rows = append(t.Rows, []Cell{
			Say(c.Name),
			{Text: strconv.Itoa(c.Requests), Value: c.Requests},
			{Text: strconv.Itoa(c.Priority), Value: c.Priority},
			{Text: fmt.Sprintf("%.1f", c.MeanInput), Value: c.MeanInput},
			{Text: fmt.Sprintf("%.1f", c.MeanOutput), Value: c.MeanOutput},
			Say(strings.Join(targets, " ")),
		})
	}
	return t
}
