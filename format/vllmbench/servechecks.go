package vllmbench

import (
	"github.com/llmprof/llmprof/stat"
)

// checkServe warns where the figures of a result contradict each other.
func checkServe(f *fields, s *Serve) {
	if s.Completed != nil && s.Failed != nil && s.NumPrompts != nil && *s.Completed+*s.Failed != *s.NumPrompts {
		f.warn(f.get("completed"), "%d completed and %d failed make %d, but num_prompts is %d",
			*s.Completed, *s.Failed, *s.Completed+*s.Failed, *s.NumPrompts)
	}
	if s.Duration != nil && *s.Duration > 0 {
		rate := func(key string, rate *float64, counts ...*int64) {
			total := 0.0
			for _, c := range counts {
				if c == nil {
					return
				}
				total += float64(*c)
			}
			if rate != nil {
				f.agree(f.get(key), *rate**s.Duration, total, 1e-3, "times duration; the total")
			}
		}
		rate("output_throughput", s.OutputThroughput, s.OutputTokens)
		rate("total_token_throughput", s.TotalThroughput, s.InputTokens, s.OutputTokens)
		rate("request_throughput", s.RequestThroughput, s.Completed)
	}
	checkDetails(f, s)
}

// checkDetails compares the printed means with the arrays, of which only the
// requests that succeeded count.
func checkDetails(f *fields, s *Serve) {
	d := s.Details
	if d == nil || d.OutputLens == nil {
		return
	}
	var ttfts, itls, latencies []float64
	var output int64
	for i := range d.OutputLens {
		if !d.succeeded(i) {
			continue
		}
		output += int64(d.OutputLens[i])
		if d.TTFTs != nil {
			ttfts = append(ttfts, d.TTFTs[i])
		}
		if d.ITLs != nil {
			itls = append(itls, d.ITLs[i]...)
		}
		if d.Latencies != nil {
			latencies = append(latencies, d.Latencies[i])
		}
	}
	if s.OutputTokens != nil && output != *s.OutputTokens {
		f.warn(f.get("total_output_tokens"), "is %d, but the sum of output_lens is %d", *s.OutputTokens, output)
	}
	for _, c := range []struct {
		metric string
		times  []float64
		arrays string
	}{{"ttft", ttfts, "ttfts"}, {"itl", itls, "itls"}, {"e2el", latencies, "latencies"}} {
		if st := s.Statistic(c.metric); st != nil && st.Mean != nil && len(c.times) > 0 {
			f.agree(f.get("mean_"+c.metric+"_ms"), *st.Mean, stat.Mean(c.times), 1e-3, "in seconds, the mean of "+c.arrays)
		}
	}
}

// succeeded reports whether the request had an answer.
func (d *Details) succeeded(i int) bool {
	if len(d.Errors) > 0 && d.Errors[i] != "" {
		return false
	}
	return len(d.OutputLens) == 0 || d.OutputLens[i] > 0
}
