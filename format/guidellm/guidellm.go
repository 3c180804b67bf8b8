// Package guidellm reads what guidellm writes: the JSON of "guidellm run" or
// "guidellm benchmark", and its CSV.
//
//	p, warnings, err := guidellm.Read("benchmarks.json", file, format.Limits{})
//	runs, err := format.KeptServings(&p.Header)
//
// A file holds a benchmark for each load that was tried; each becomes a
// [format.Serving] in the profile's header, and each of its requests that
// succeeded a point whose times count from the benchmark's first request.
//
// guidellm's words are not ours. Its inter-token latency is the mean gap of a
// request, our TPOT; its time per output token takes in the first one, our
// NTPOT. Both are averaged over tokens, so that long requests weigh more. Its
// request latency runs to the end of the stream, a little beyond the last
// token to which the points' times run. No gaps between chunks are kept.
package guidellm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
)

// Detect reports whether a file, plain or gzip, that begins with head is one
// of guidellm's.
func Detect(head []byte) bool {
	text := format.Head(head)
	return detectJSON(text) || detectCSV(text)
}

func detectJSON(text []byte) bool {
	keys, _ := format.TopKeys(text)
	return keys["metadata"] && bytes.Contains(text, []byte(`"guidellm_version"`))
}

// Read reads a file as a profile. The name stands in errors and origins; it is
// not opened. Warnings are requests and names that were left out, and figures
// that contradict each other.
func Read(name string, r io.Reader, limits format.Limits) (*profile.Profile, []error, error) {
	text, err := format.ReadText(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	if detectCSV(text) {
		return readCSV(name, text, limits)
	}
	nodes, err := format.ParseJSON(name, text, limits)
	if err != nil {
		return nil, nil, err
	}
	if len(nodes) != 1 || !nodes[0].Get("metadata").Has("guidellm_version") || nodes[0].Get("benchmarks").Kind() != format.Array {
		return nil, nil, &format.Error{File: name, Err: errors.New("want one result of guidellm, with metadata.guidellm_version and benchmarks")}
	}
	f := &file{name: name}
	f.tool = "guidellm " + f.figures.Text(nodes[0].Get("metadata").Get("guidellm_version"))
	for _, b := range nodes[0].Get("benchmarks").Elements() {
		if err := f.benchmark(b); err != nil {
			return nil, nil, err
		}
	}
	return f.profile()
}

// file gathers the runs of one file.
type file struct {
	name, tool string
	figures    format.Figures
	runs       []format.Serving
	points     []profile.Point
	warnings   []error
}

func (f *file) profile() (*profile.Profile, []error, error) {
	if len(f.runs) == 0 {
		return nil, nil, &format.Error{File: f.name, Err: errors.New("holds no benchmark")}
	}
	p := &profile.Profile{Header: profile.Header{Source: f.name}, Points: f.points}
	p.Header.Deploy.Model = f.runs[0].Model
	for _, run := range f.runs {
		if run.Model != p.Header.Deploy.Model {
			return nil, nil, &format.Error{File: f.name, Err: fmt.Errorf("benchmarks of %q and of %q: want one model a file", p.Header.Deploy.Model, run.Model)}
		}
	}
	err := format.KeepServings(&p.Header, f.name, f.runs)
	return p, append(f.figures.Warnings, f.warnings...), err
}

// benchmark reads one load point.
func (f *file) benchmark(n format.Node) error {
	metrics := n.Get("metrics")
	if metrics.Kind() != format.Object {
		return n.Errorf("want a benchmark with metrics, got %s", n.Got())
	}
	figures := &f.figures
	s := format.Serving{Tool: f.tool, Origin: f.name + ": " + n.Path(), Duration: figures.Number(n.Get("duration"), 1)}
	config := n.Get("config")
	s.Model, s.Backend = figures.Text(config.Get("backend").Get("model")), figures.Text(config.Get("backend").Get("kind"))
	strategy := config.Get("strategy")
	s.Load = figures.Text(strategy.Get("type_"))
	s.RequestRate = figures.Number(strategy.Get("rate"), 1)
	s.MaxConcurrency = figures.Count(strategy.Get("max_concurrency"))
	if start := figures.Number(n.Get("start_time"), 1); start != nil {
		s.Started = time.UnixMilli(int64(*start * 1e3)).UTC().Format(time.RFC3339)
	}
	totals := metrics.Get("request_totals")
	s.Completed, s.Failed = figures.Count(totals.Get("successful")), figures.Count(totals.Get("errored"))
	s.Cancelled, s.Requests = figures.Count(totals.Get("incomplete")), figures.Count(totals.Get("total"))
	f.metrics(metrics, &s)
	before := len(f.points)
	if err := f.requests(n.Get("requests"), &s); err != nil {
		return err
	}
	f.warnings = append(f.warnings, s.Check(f.points[before:])...)
	for _, w := range n.Get("warnings").Elements() {
		if text := figures.Text(w.Get("message")); text != "" {
			f.warnings = append(f.warnings, fmt.Errorf("%s: guidellm says: %s", s.Origin, text))
		}
	}
	if w := s.UnmappedWarning(); w != nil {
		f.warnings = append(f.warnings, w)
	}
	f.runs = append(f.runs, s)
	return nil
}

// metrics maps the figures of the requests that succeeded.
func (f *file) metrics(metrics format.Node, s *format.Serving) {
	distributions := map[string]struct {
		into  **format.Distribution
		scale float64 // of the file's unit, in milliseconds
		over  format.Over
	}{
		"time_to_first_token_ms":    {&s.TTFT, 1, format.OverRequests},
		"inter_token_latency_ms":    {&s.TPOT, 1, format.OverTokens},
		"time_per_output_token_ms":  {&s.NTPOT, 1, format.OverTokens},
		"request_latency":           {&s.E2EL, 1e3, format.OverRequests},
		"request_scheduled_latency": {&s.E2ELSched, 1e3, format.OverRequests},
		"request_dispatch_delay":    {&s.SendLag, 1e3, format.OverRequests},
	}
	means := map[string]**float64{
		"requests_per_second": &s.RequestThroughput, "output_tokens_per_second": &s.OutputThroughput,
		"tokens_per_second": &s.TotalThroughput, "request_goodput": &s.Goodput, "request_concurrency": &s.Concurrency,
	}
	sums := map[string]**int{"prompt_token_count": &s.InputTokens, "output_token_count": &s.OutputTokens}
	some := s.Completed == nil || *s.Completed > 0
	for key, n := range metrics.Members() {
		good := n.Get("successful")
		switch {
		case n.Kind() == format.Null || key == "request_totals" || key == "slo_determined_requests":
		case distributions[key].into != nil:
			d := distributions[key]
			*d.into = f.figures.Distribution(good, d.scale, d.over, key == "request_dispatch_delay")
		case means[key] != nil:
			if some {
				*means[key] = f.figures.Number(good.Get("mean"), 1)
			}
		case sums[key] != nil:
			*sums[key] = wholeSum(&f.figures, good.Get("total_sum"))
		case key == "slo_attainment":
			s.GoodShare = f.figures.Number(n, 1)
		default:
			s.Unmapped = append(s.Unmapped, key)
		}
	}
}

// wholeSum reads a sum of counts that was added up in floating point.
func wholeSum(figures *format.Figures, n format.Node) *int {
	v := figures.Number(n, 1)
	if v == nil || *v > 1<<46 {
		return nil
	}
	return new(int(*v + 0.5))
}

// requests reads the requests that succeeded.
func (f *file) requests(n format.Node, s *format.Serving) error {
	var all []profile.Point
	left := 0
	for _, e := range n.Get("successful").Elements() {
		point, ok := f.request(e)
		if !ok {
			left++
			continue
		}
		point.Origin = f.name + ": " + e.Path()
		all = append(all, point)
	}
	if len(all) > 0 {
		zero := slices.MinFunc(all, func(a, b profile.Point) int { return cmp.Compare(a.Request.Scheduled, b.Request.Scheduled) }).Request.Scheduled
		for _, point := range all {
			r := point.Request
			r.Scheduled, r.Sent, r.First, r.Last = r.Scheduled-zero, r.Sent-zero, r.First-zero, r.Last-zero
			if point.Validate() != nil {
				left++
				continue
			}
			if err := format.KeepRun(&point, s.Origin, nil); err != nil {
				return err
			}
			f.points = append(f.points, point)
		}
	}
	if left > 0 {
		f.warnings = append(f.warnings, fmt.Errorf("%s: %d requests left out: they hold no times of a stream, or impossible ones", s.Origin, left))
	}
	return nil
}

// request reads one request with its times as they stand in the file; ok is
// false where one is missing.
func (f *file) request(n format.Node) (profile.Point, bool) {
	figures := &format.Figures{}
	times := n.Get("info").Get("timings")
	sent, first, last := figures.Number(times.Get("request_start"), 1), figures.Number(times.Get("first_token_iteration"), 1), figures.Number(times.Get("last_token_iteration"), 1)
	input, output := figures.Count(n.Get("prompt_tokens")), figures.Count(n.Get("output_tokens"))
	if sent == nil || first == nil || last == nil || input == nil || output == nil {
		return profile.Point{}, false
	}
	r := &profile.Request{ID: figures.Text(n.Get("request_id")), InputLen: *input, OutputLen: *output, Scheduled: *sent, Sent: *sent, First: *first, Last: *last}
	if cached := figures.Count(n.Get("cached_tokens")); cached != nil {
		r.CachedLen = *cached
	}
	if due := figures.Number(times.Get("targeted_start"), 1); due != nil {
		r.Scheduled = *due
	}
	return profile.Point{Kind: profile.KindRequest, Request: r, Clock: profile.ClockWall}, true
}
