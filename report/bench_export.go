package report

import (
	"time"

	"github.com/llmprof/llmprof/format/vllmbench"
	"github.com/llmprof/llmprof/load"
)

// VLLMServe is a run as the result of vllm bench serve tells it, with every
// request that came due. That tool's itl is the gap of two chunks. What was
// asked for (rate, burstiness, limit) is left to the caller; texts are not kept,
// and stand as empty ones.
func VLLMServe(r *load.Result, d *BenchDocument) *vllmbench.Serve {
	backend := d.Engine
	if d.Endpoint == string(load.Chat) {
		backend += "-chat"
	}
	wide := func(n *int) *int64 {
		if n == nil {
			return nil
		}
		return new(int64(*n))
	}
	w := &d.Whole
	s := &vllmbench.Serve{
		Date: r.Started.Local().Format("20060102-150405"), EndpointType: backend, Backend: backend, ModelID: d.Model,
		NumPrompts: new(int64(len(r.Records))), Completed: new(int64(w.Completed)), Failed: new(int64(len(r.Records) - w.Completed)),
		InputTokens: wide(w.InputTokens), OutputTokens: wide(w.OutputTokens), Duration: &w.Duration,
		RequestThroughput: w.RequestThroughput, Goodput: w.Goodput, OutputThroughput: w.OutputThroughput,
		PeakOutputThroughput: peakTokens(r.Records), MaxConcurrentRequests: new(int64(w.Concurrency.Max)), RTFx: new(0.0),
		Details: vllmDetails(r),
	}
	if w.InputTokens != nil && w.OutputTokens != nil && w.Duration > 0 {
		s.TotalThroughput = new(float64(*w.InputTokens+*w.OutputTokens) / w.Duration)
	}
	samples := r.Samples(load.Whole, 0, 0)
	for _, c := range []struct {
		metric string
		of     load.Metric
	}{{"ttft", load.TTFT}, {"tpot", load.TPOT}, {"itl", load.ICL}, {"e2el", load.E2EL}, {"e2el_including_client_queue", load.E2ELSched}, {"client_queue_time", load.SendLag}} {
		seconds := make([]float64, len(samples[c.of]))
		for i, ms := range samples[c.of] {
			seconds[i] = ms / 1e3
		}
		if len(seconds) > 0 {
			s.Statistics = append(s.Statistics, vllmbench.Describe(c.metric, seconds))
		}
	}
	return s
}

// vllmDetails are the lists of the requests, in the order of the schedule.
func vllmDetails(r *load.Result) *vllmbench.Details {
	d := &vllmbench.Details{}
	for i := range r.Records {
		rec := &r.Records[i]
		start := rec.Send
		if !rec.Sent {
			start = rec.Sched
		}
		input, output, failure := r.Schedule.Requests[rec.ID].InputLen, 0, ""
		var ttft, latency float64
		gaps := []float64{}
		if rec.OK() {
			if rec.Prompt.Known() {
				input = rec.Prompt.Tokens
			}
			output = rec.Output.Tokens
			first, _ := rec.TTFT() // 0 for an answer that was no stream, as there
			all, _ := rec.E2EL()
			ttft, latency = first.Seconds(), all.Seconds()
			for j := 1; j < len(rec.Chunks); j++ {
				gaps = append(gaps, (rec.Chunks[j].At - rec.Chunks[j-1].At).Seconds())
			}
		} else {
			failure = rec.Failure.String()
		}
		d.InputLens, d.OutputLens = append(d.InputLens, input), append(d.OutputLens, output)
		d.TTFTs, d.ITLs, d.Latencies = append(d.TTFTs, ttft), append(d.ITLs, gaps), append(d.Latencies, latency)
		d.StartTimes, d.QueueTimes = append(d.StartTimes, start.Seconds()), append(d.QueueTimes, (start-rec.Sched).Seconds())
		d.Texts, d.Errors = append(d.Texts, ""), append(d.Errors, failure)
	}
	return d
}

// peakTokens is the most output tokens of any whole second of the run; nil
// where no chunk came.
func peakTokens(records []load.Record) *float64 {
	seconds, most := map[time.Duration]float64{}, 0.0
	for i := range records {
		if !records[i].OK() {
			continue
		}
		for _, c := range records[i].Chunks {
			at := c.At / time.Second
			seconds[at] += float64(c.Tokens)
			most = max(most, seconds[at])
		}
	}
	if len(seconds) == 0 {
		return nil
	}
	return &most
}
