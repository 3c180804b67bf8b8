package report

import (
	"time"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/profile"
)

// benchRun names the one run in a profile of a load.
const benchRun = "bench"

// BenchProfile is a run as a profile, as imports of other load tools are: a point
// for each request, what the server said of both windows, and in the header the
// figures of the whole run.
func BenchProfile(r *load.Result, d *BenchDocument) (*profile.Profile, error) {
	p := &profile.Profile{Header: profile.Header{
		Schema: profile.Schema, Version: profile.Version, Tool: d.Tool, Created: r.Started.UTC().Format(time.RFC3339), Source: "llmprof bench",
		Deploy: deploy.Config{Model: d.Model, Engine: d.Engine, EngineVersion: d.EngineVersion},
	}}
	for i := range r.Records {
		point, err := load.Point(&r.Records[i], benchRun)
		if err != nil {
			return nil, err
		}
		p.Points = append(p.Points, point)
	}
	keep := func(window string, says *profile.Server) {
		if says != nil {
			w := *says
			w.Window = window
			p.Points = append(p.Points, profile.Point{Kind: profile.KindServer, Server: &w})
		}
	}
	if len(d.Servers) == 0 {
		keep("whole", d.ServerWhole)
		keep("steady", d.Server)
	}
	for _, s := range d.Servers { // each by itself: what a profile says of a server is of one
		keep("whole, "+s.URL, s.Whole)
		keep("steady, "+s.URL, s.Steady)
	}
	return p, format.KeepServings(&p.Header, benchRun, []format.Serving{benchServing(r, d)})
}

// benchServing are the figures of the whole run.
func benchServing(r *load.Result, d *BenchDocument) format.Serving {
	w := &d.Whole
	s := format.Serving{
		Tool: "llmprof " + d.Tool, Origin: benchRun, Model: d.Model, Backend: d.Engine, Started: d.Started, Load: d.Workload.Pattern,
		Requests: new(d.Workload.Requests), Completed: &w.Completed, Failed: &w.Failed, Cancelled: &w.Cancelled,
		InputTokens: w.InputTokens, OutputTokens: w.OutputTokens, CachedTokens: w.CachedTokens, Duration: &w.Duration,
		RequestThroughput: w.RequestThroughput, OutputThroughput: w.OutputThroughput, Goodput: w.Goodput, GoodShare: w.GoodShare,
		Concurrency: &w.Concurrency.Mean, PeakConcurrency: &w.Concurrency.Max,
	}
	if n := d.Workload.MaxConcurrency; n > 0 {
		s.MaxConcurrency = &n
	}
	samples := r.Samples(load.Whole, 0, 0)
	for metric, field := range map[load.Metric]**format.Distribution{
		load.TTFT: &s.TTFT, load.TTFTSched: &s.TTFTSched, load.TPOT: &s.TPOT, load.NTPOT: &s.NTPOT, load.E2EL: &s.E2EL, load.E2ELSched: &s.E2ELSched, load.SendLag: &s.SendLag,
	} {
		*field = format.NewDistribution(samples[metric], format.OverRequests, string(metric))
	}
	s.ITL = format.NewDistribution(samples[load.ITL], format.OverChunks, string(load.ITL))
	s.ICL = format.NewDistribution(samples[load.ICL], format.OverChunks, string(load.ICL))
	return s
}
