package vllmbench

import (
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/stat"
)

// DetectServe reports whether a file, plain or gzip, that begins with head is
// a result of "vllm bench serve", or what the command printed.
func DetectServe(head []byte) bool {
	kind := Detect(format.Head(head))
	return kind == KindServe || kind == KindServeStdout
}

// ReadServeProfile reads the file of --save-result in our words: each result
// becomes a [format.Serving] in the profile's header and, where
// --save-detailed was given, each request that succeeded a point.
func ReadServeProfile(name string, r io.Reader, limits format.Limits) (*profile.Profile, []error, error) {
	results, warnings, err := ReadServe(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	p := &profile.Profile{Header: profile.Header{Source: name}}
	p.Header.Deploy.Model = results[0].ModelID
	var runs []format.Serving
	for i := range results {
		s := &results[i]
		if s.ModelID != p.Header.Deploy.Model {
			return nil, nil, &format.Error{File: name, Err: &profile.ClashError{
				Field: "model_id", A: p.Header.Deploy.Model, B: s.ModelID, AOrigin: results[0].Origin, BOrigin: s.Origin,
			}}
		}
		points, left := s.Requests()
		p.Points = append(p.Points, points...)
		for _, text := range left {
			warnings = append(warnings, errors.New(text))
		}
		run := s.Serving()
		if w := run.UnmappedWarning(); w != nil {
			warnings = append(warnings, w)
		}
		runs = append(runs, run)
	}
	return p, warnings, format.KeepServings(&p.Header, name, runs)
}

// Serving is the result in our words.
func (s *Serve) Serving() format.Serving {
	narrow := func(n *int64) *int {
		if n == nil {
			return nil
		}
		return new(int(*n))
	}
	out := format.Serving{
		Tool: "vllm bench serve", Origin: s.Origin, Model: s.ModelID, Backend: s.Backend, Started: s.Date,
		RequestRate: s.RequestRate, Unlimited: s.Unlimited, Burstiness: s.Burstiness, MaxConcurrency: narrow(s.MaxConcurrency),
		Requests: narrow(s.NumPrompts), Completed: narrow(s.Completed), Failed: narrow(s.Failed),
		InputTokens: narrow(s.InputTokens), OutputTokens: narrow(s.OutputTokens), Duration: s.Duration,
		RequestThroughput: s.RequestThroughput, OutputThroughput: s.OutputThroughput, TotalThroughput: s.TotalThroughput,
		Goodput: s.Goodput, PeakConcurrency: narrow(s.MaxConcurrentRequests),
	}
	for i := range s.Statistics {
		st := &s.Statistics[i]
		var into **format.Distribution
		over := format.OverRequests
		switch st.Metric {
		case "ttft":
			into = &out.TTFT
		case "tpot":
			into = &out.TPOT
		case "itl":
			into, over = &out.ICL, format.OverChunks
		case "e2el":
			into = &out.E2EL
		case "e2el_including_client_queue":
			into = &out.E2ELSched
		case "client_queue_time":
			into = &out.SendLag
		default:
			out.Unmapped = append(out.Unmapped, st.Metric)
			continue
		}
		*into = st.distribution(over)
	}
	return out
}

// distribution is a statistic in milliseconds.
func (st *Statistic) distribution(over format.Over) *format.Distribution {
	ms := func(seconds *float64) *float64 {
		if seconds == nil {
			return nil
		}
		return new(*seconds * 1e3)
	}
	d := &format.Distribution{Mean: ms(st.Mean), Std: ms(st.Deviation), P50: ms(st.Median), Over: over, Origin: st.Metric + "_ms"}
	for _, p := range st.Percentiles {
		d.SetPercentile(p.Percent, p.Seconds*1e3)
	}
	return d
}

// FromProfile makes a result of every run that a profile holds, or of its
// requests where none is.
func FromProfile(p *profile.Profile) ([]*Serve, error) {
	runs, err := format.KeptServings(&p.Header)
	if err != nil {
		return nil, err
	}
	byRun := map[string][]profile.Point{}
	var all []profile.Point
	for _, point := range p.Points {
		if point.Kind == profile.KindRequest {
			run, _ := format.KeptRun(&point)
			byRun[run], all = append(byRun[run], point), append(all, point)
		}
	}
	if len(runs) == 0 {
		if len(all) == 0 {
			return nil, errors.New("the profile holds neither requests nor a run of a load tool")
		}
		computed := format.Summarize(all)
		return []*Serve{fromServing(p, &computed, all)}, nil
	}
	var out []*Serve
	for i := range runs {
		out = append(out, fromServing(p, &runs[i], byRun[runs[i].Origin]))
	}
	return out, nil
}

// fromServing is FromServing with the model of the profile, where the run does
// not say it.
func fromServing(p *profile.Profile, run *format.Serving, points []profile.Point) *Serve {
	s := FromServing(run, points)
	if s.ModelID == "" {
		s.ModelID = p.Header.Deploy.Model
	}
	return s
}

// FromServing makes a result of a run and its requests. Where the run does not
// say a latency in vLLM's meaning, it is taken from the requests, if all that
// were completed are there. Texts are not kept, and written as empty ones.
func FromServing(run *format.Serving, points []profile.Point) *Serve {
	wide := func(n *int) *int64 {
		if n == nil {
			return nil
		}
		return new(int64(*n))
	}
	s := &Serve{
		Date: date(run.Started), EndpointType: run.Backend, Backend: run.Backend, ModelID: run.Model, NumPrompts: wide(run.Requests),
		RequestRate: run.RequestRate, Unlimited: run.Unlimited, Burstiness: run.Burstiness, MaxConcurrency: wide(run.MaxConcurrency),
		Duration: run.Duration, Completed: wide(run.Completed), Failed: wide(run.Failed),
		InputTokens: wide(run.InputTokens), OutputTokens: wide(run.OutputTokens), RequestThroughput: run.RequestThroughput,
		Goodput: run.Goodput, OutputThroughput: run.OutputThroughput, TotalThroughput: run.TotalThroughput, MaxConcurrentRequests: wide(run.PeakConcurrency),
	}
	if s.NumPrompts == nil && run.Completed != nil && run.Failed != nil {
		s.NumPrompts = new(int64(*run.Completed + *run.Failed))
	}
	s.Details = detailsOf(points)
	var own map[string][]float64
	if run.Completed != nil && *run.Completed == len(points) && len(points) > 0 {
		own = s.Details.samples()
	}
	for _, c := range []struct {
		metric string
		said   *format.Distribution
		over   format.Over
	}{
		{"ttft", run.TTFT, format.OverRequests},
		{"tpot", run.TPOT, format.OverRequests},
		{"itl", run.ICL, format.OverChunks},
		{"e2el", run.E2EL, format.OverRequests},
	} {
		said := c.said != nil && c.said.Over == c.over
		switch sample := own[c.metric]; {
		case said && (c.said.P99 != nil || len(sample) == 0):
			s.Statistics = append(s.Statistics, statisticOf(c.metric, c.said))
		case len(sample) > 0:
			s.Statistics = append(s.Statistics, Describe(c.metric, sample))
		}
	}
	return s
}

var vllmDate = regexp.MustCompile(`^\d{8}-\d{6}$`)

// date is a time as vLLM writes it; empty where it cannot be read.
func date(started string) string {
	if vllmDate.MatchString(started) {
		return started
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, started); err == nil {
			return t.Format("20060102-150405")
		}
	}
	return ""
}

// statisticOf is a distribution in seconds.
func statisticOf(metric string, d *format.Distribution) Statistic {
	seconds := func(ms *float64) *float64 {
		if ms == nil {
			return nil
		}
		return new(*ms / 1e3)
	}
	st := Statistic{Metric: metric, Mean: seconds(d.Mean), Median: seconds(d.P50), Deviation: seconds(d.Std)}
	d.Percentiles(func(percent, ms float64) {
		st.Percentiles = append(st.Percentiles, Percentile{Percent: percent, Seconds: ms / 1e3})
	})
	return st
}

// Describe is a statistic of values in seconds, which it sorts: with vLLM's
// percentiles.
func Describe(metric string, seconds []float64) Statistic {
	slices.Sort(seconds)
	st := Statistic{Metric: metric, Mean: new(stat.Mean(seconds)), Median: new(stat.QuantileSorted(seconds, 0.5)), Deviation: new(stat.StdDev(seconds))}
	for _, percent := range []float64{50, 90, 95, 99} {
		st.Percentiles = append(st.Percentiles, Percentile{Percent: percent, Seconds: stat.QuantileSorted(seconds, percent/100)})
	}
	return st
}

// detailsOf are the lists of the requests. Gaps are left out where one of the
// requests has none noted, times of sending where nobody noted them.
func detailsOf(points []profile.Point) *Details {
	if len(points) == 0 {
		return nil
	}
	d := &Details{}
	gaps, sent := true, len(points) == 1
	for i := range points {
		r := points[i].Request
		d.InputLens, d.OutputLens = append(d.InputLens, r.InputLen), append(d.OutputLens, r.OutputLen)
		d.TTFTs, d.Latencies = append(d.TTFTs, r.First-r.Sent), append(d.Latencies, r.Last-r.Sent)
		d.StartTimes, d.QueueTimes = append(d.StartTimes, r.Sent), append(d.QueueTimes, r.Sent-r.Scheduled)
		d.Texts, d.Errors = append(d.Texts, ""), append(d.Errors, "")
		_, itl := format.KeptRun(&points[i])
		d.ITLs = append(d.ITLs, itl)
		gaps, sent = gaps && itl != nil, sent || r.Sent != 0
	}
	if !gaps {
		d.ITLs = nil
	}
	if !sent {
		d.StartTimes, d.QueueTimes = nil, nil
	}
	return d
}

// samples are the values behind the statistics, in seconds.
func (d *Details) samples() map[string][]float64 {
	all := map[string][]float64{"ttft": slices.Clone(d.TTFTs), "e2el": slices.Clone(d.Latencies)}
	for i, n := range d.OutputLens {
		if n > 1 {
			all["tpot"] = append(all["tpot"], math.Max(d.Latencies[i]-d.TTFTs[i], 0)/float64(n-1))
		}
	}
	for _, gaps := range d.ITLs {
		all["itl"] = append(all["itl"], gaps...)
	}
	return all
}
