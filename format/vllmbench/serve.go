package vllmbench

import (
	"encoding/json"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
)

// Serve is one result of "vllm bench serve". A figure that is not there is
// nil.
type Serve struct {
	// Date is as the file has it: YYYYmmdd-HHMMSS in local time.
	Date                      string
	EndpointType, Backend     string
	Label                     string
	ModelID, TokenizerID      string
	NumPrompts                *int64
	MaxConcurrency            *int64
	MaxConcurrentRequests     *int64
	Completed, Failed         *int64
	InputTokens, OutputTokens *int64

	// RequestRate is in requests per second. Unlimited says that it was "inf":
	// all requests were sent at once.
	RequestRate *float64
	Unlimited   bool
	// Burstiness is the shape factor of the arrival process, 1 for Poisson.
	Burstiness *float64

	// Duration is in seconds.
	Duration *float64
	// RequestThroughput and Goodput are in requests per second, the others in
	// tokens per second; Peak is the largest of any second.
	RequestThroughput, Goodput        *float64
	OutputThroughput, TotalThroughput *float64
	PeakOutputThroughput              *float64
	// RTFx is seconds of audio worked on a second; 0 for text.
	RTFx        *float64
	Statistics  []Statistic
	Speculation *Speculation
	Details     *Details
	// Extra keeps foreign keys, and those of --metadata, verbatim.
	Extra map[string]json.RawMessage
	// Origin is where the result was read: file, and line where it holds
	// several.
	Origin string
}

// Statistic is the distribution of one latency. All times are in seconds.
type Statistic struct {
	// Metric is "ttft", "tpot", "itl", "e2el", "client_queue_time", …
	Metric                  string
	Mean, Median, Deviation *float64
	// Percentiles are in ascending order.
	Percentiles []Percentile
}

// Speculation is what speculative decoding achieved.
type Speculation struct {
	// AcceptanceRate is in percent; AcceptanceLength in tokens per draft.
	AcceptanceRate, AcceptanceLength    *float64
	Drafts, DraftTokens, AcceptedTokens *int64
	// PerPosition are shares of drafts accepted at each position, 0..1.
	PerPosition []float64
}

// Details are what --save-detailed keeps of every request. Lists that the file
// does not hold are nil. All times are in seconds.
type Details struct {
	InputLens, OutputLens []int
	// TTFTs are times to the first token, ITLs the gaps between the following
	// pieces of output.
	TTFTs []float64
	ITLs  [][]float64
	// StartTimes are on a clock of the client's, with any zero.
	StartTimes []float64
	// Latencies are whole requests; QueueTimes what they waited in the client
	// before they were sent.
	Latencies, QueueTimes []float64
	// Texts are what was generated, Errors what went wrong, empty where
	// nothing did.
	Texts, Errors []string
}

// ReadServe reads the file of --save-result, which holds several results
// where --append-result was given.
func ReadServe(name string, r io.Reader, limits format.Limits) ([]Serve, []error, error) {
	text, _, err := open(name, r, limits, KindServe, KindUnknown)
	if err != nil {
		return nil, nil, err
	}
	nodes, warnings, err := objects(name, text, limits)
	if err != nil {
		return nil, nil, err
	}
	var results []Serve
	for _, n := range nodes {
		f := newFields(n)
		s := serve(f)
		s.Origin = name
		if n.Path() != "" {
			s.Origin += ": " + n.Path()
		}
		if f.err != nil {
			return nil, nil, f.err
		}
		checkServe(f, &s)
		results = append(results, s)
		warnings = append(warnings, f.warnings...)
	}
	return results, warnings, nil
}

func serve(f *fields) Serve {
	s := Serve{
		Date: f.text("date"), EndpointType: f.text("endpoint_type"), Backend: f.text("backend"), Label: f.text("label"),
		ModelID: f.text("model_id"), TokenizerID: f.text("tokenizer_id"),
		NumPrompts: f.count("num_prompts"), MaxConcurrency: f.count("max_concurrency"), MaxConcurrentRequests: f.count("max_concurrent_requests"),
		Completed: f.count("completed"), Failed: f.count("failed"),
		InputTokens: f.count("total_input_tokens"), OutputTokens: f.count("total_output_tokens"),
		Burstiness: f.number("burstiness", maxCount, 1), Duration: f.seconds("duration", 1),
		RequestThroughput: f.number("request_throughput", maxCount, 1), Goodput: f.goodput(),
		OutputThroughput: f.number("output_throughput", maxCount, 1), TotalThroughput: f.number("total_token_throughput", maxCount, 1),
		PeakOutputThroughput: f.number("max_output_tokens_per_s", maxCount, 1), RTFx: f.number("rtfx", maxCount, 1),
	}
	if n := f.get("request_rate"); n.Present() {
		v, err := n.Float()
		switch {
		case err != nil:
			f.fail(err)
		case math.IsInf(v, 1):
			s.Unlimited = true
		default:
			s.RequestRate = f.figure(n, maxCount, 1)
		}
	}
	s.Statistics = statistics(f)
	s.Speculation = speculation(f)
	s.Details = details(f)
	s.Extra = f.extra()
	return s
}

// goodput is a number, or an object where several were asked for, which is
// kept as it is.
func (f *fields) goodput() *float64 {
	if kind := f.top.Get("request_goodput").Kind(); kind == format.Object || kind == format.Array {
		return nil
	}
	return f.number("request_goodput", maxCount, 1)
}

var (
	momentKey     = regexp.MustCompile(`^(mean|median|std)_(\w+)_ms$`)
	percentileKey = regexp.MustCompile(`^p(\d+(?:\.\d+)?)_(\w+)_ms$`)
)

// statistics reads the summaries, in the order in which the file first names
// them.
func statistics(f *fields) []Statistic {
	var out []Statistic
	index := map[string]int{}
	of := func(metric string) *Statistic {
		i, ok := index[metric]
		if !ok {
			i = len(out)
			index[metric] = i
			out = append(out, Statistic{Metric: metric})
		}
		return &out[i]
	}
	for key, n := range f.top.Members() {
		if n.Kind() == format.Null {
			continue
		}
		if found := momentKey.FindStringSubmatch(key); found != nil {
			f.seen[key] = true
			s := of(found[2])
			v := f.milliseconds(n)
			switch found[1] {
			case "mean":
				s.Mean = v
			case "median":
				s.Median = v
			case "std":
				s.Deviation = v
			}
		} else if found := percentileKey.FindStringSubmatch(key); found != nil {
			percent, err := strconv.ParseFloat(found[1], 64)
			if err != nil || percent > 100 {
				continue // no percentile: kept among the foreign keys
			}
			f.seen[key] = true
			if v := f.milliseconds(n); v != nil {
				s := of(found[2])
				s.Percentiles = append(s.Percentiles, Percentile{Percent: percent, Seconds: *v})
			}
		}
	}
	for i := range out {
		sortPercentiles(out[i].Percentiles)
	}
	return out
}

func speculation(f *fields) *Speculation {
	const prefix = "spec_decode_"
	s := &Speculation{
		AcceptanceRate: f.number(prefix+"acceptance_rate", 100, 1), AcceptanceLength: f.number(prefix+"acceptance_length", maxTokens, 1),
		Drafts: f.count(prefix + "num_drafts"), DraftTokens: f.count(prefix + "draft_tokens"), AcceptedTokens: f.count(prefix + "accepted_tokens"),
		PerPosition: list(f, f.get(prefix+"per_position_acceptance_rates"), func(n format.Node) (float64, error) {
			v, err := n.Float()
			if err == nil && !(v >= 0 && v <= 1) {
				err = n.Errorf("want 0 to 1, got %s", n.Got())
			}
			return v, err
		}),
	}
	for key := range f.seen {
		if strings.HasPrefix(key, prefix) && f.top.Get(key).Present() {
			return s
		}
	}
	return nil
}

func details(f *fields) *Details {
	d := &Details{
		InputLens: list(f, f.get("input_lens"), tokens), OutputLens: list(f, f.get("output_lens"), tokens),
		TTFTs: list(f, f.get("ttfts"), secondsOf),
		ITLs: list(f, f.get("itls"), func(n format.Node) ([]float64, error) {
			inner := &fields{}
			out := list(inner, n, secondsOf)
			if out == nil && inner.err == nil {
				return nil, n.Errorf("want a list, got %s", n.Got())
			}
			return out, inner.err
		}),
		StartTimes: list(f, f.get("start_times"), func(n format.Node) (float64, error) {
			v, err := n.Float()
			if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
				err = n.Errorf("want a number of seconds, got %s", n.Got())
			}
			return v, err
		}),
		Latencies: list(f, f.get("latencies"), secondsOf), QueueTimes: list(f, f.get("queue_times"), queueTime),
		Texts: list(f, f.get("generated_texts"), optionalText), Errors: list(f, f.get("errors"), optionalText),
	}
	first, n := "", 0
	for _, c := range []struct {
		key string
		len int
		has bool
	}{
		{"input_lens", len(d.InputLens), d.InputLens != nil},
		{"output_lens", len(d.OutputLens), d.OutputLens != nil},
		{"ttfts", len(d.TTFTs), d.TTFTs != nil},
		{"itls", len(d.ITLs), d.ITLs != nil},
		{"start_times", len(d.StartTimes), d.StartTimes != nil},
		{"latencies", len(d.Latencies), d.Latencies != nil},
		{"errors", len(d.Errors), d.Errors != nil},
	} {
		switch {
		case !c.has:
		case first == "":
			first, n = c.key, c.len
		case c.len != n:
			f.fail(f.get(c.key).Errorf("holds %d values, but %s %d", c.len, first, n))
		}
	}
	if first == "" && d.QueueTimes == nil && d.Texts == nil {
		return nil
	}
	return d
}

// queueTime is the difference of two clock readings and may fall below zero.
func queueTime(n format.Node) (float64, error) {
	v, err := n.Float()
	if err == nil && !(math.Abs(v) <= maxSeconds) {
		err = n.Errorf("want a number of seconds, got %s", n.Got())
	}
	return v, err
}

func optionalText(n format.Node) (string, error) {
	if n.Kind() == format.Null {
		return "", nil
	}
	return n.Text()
}

// Statistic returns the distribution of a metric; nil where the file has none.
func (s *Serve) Statistic(metric string) *Statistic {
	i := slices.IndexFunc(s.Statistics, func(st Statistic) bool { return st.Metric == metric })
	if i < 0 {
		return nil
	}
	return &s.Statistics[i]
}
