package sglang

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/llmprof/llmprof/format"
)

// Serving is one result of sglang.bench_serving. Latencies are in
// milliseconds, as their names say, durations in seconds, the detailed arrays
// in seconds; what the file does not hold is nil.
type Serving struct {
	Backend     string
	DatasetName string
	// RequestRate is in requests per second, infinite for all at once.
	RequestRate    *float64
	MaxConcurrency *int
	// Duration is in seconds.
	Duration  *float64
	Completed *int
	// TotalOutputTokens counts the requested tokens; TotalOutputRetokenized
	// those that came back.
	TotalInputTokens, TotalOutputTokens, TotalOutputRetokenized *int
	// RequestThroughput is in requests per second, the others in tokens per
	// second.
	RequestThroughput, InputThroughput, OutputThroughput *float64
	// LatencyMs holds the statistics by their key: "mean_ttft_ms".
	LatencyMs map[string]float64
	// InputLens and OutputLens are tokens; TTFTs and ITLs seconds, one list of
	// gaps a request.
	InputLens, OutputLens []int
	TTFTs                 []float64
	ITLs                  [][]float64
	// Raw holds every key of the file as it stands there.
	Raw map[string]json.RawMessage
	// Origin is the file and the place in it.
	Origin string
}

// ReadServing reads results of bench_serving: an object, several joined, or
// JSON Lines; plain or gzip. Warnings are self-checks that fail, with both
// numbers.
func ReadServing(name string, r io.Reader, limits format.Limits) ([]Serving, []error, error) {
	text, err := format.ReadText(name, r, limits)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := format.ParseJSON(name, text, limits)
	if err != nil {
		return nil, nil, err
	}
	var all []Serving
	var warnings []error
	for _, n := range nodes {
		list := []format.Node{n}
		if n.Kind() == format.Array {
			list = nil
			for _, e := range n.Elements() {
				list = append(list, e)
			}
		}
		for _, e := range list {
			s, err := serving(name, e)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, s)
			warnings = append(warnings, s.check()...)
		}
	}
	if len(all) == 0 {
		return nil, nil, &format.Error{File: name, Err: fmt.Errorf("holds no result of bench_serving")}
	}
	return all, warnings, nil
}

func serving(name string, n format.Node) (Serving, error) {
	if n.Kind() != format.Object || !n.Has("backend") || !n.Has("duration") {
		return Serving{}, n.Errorf("want a result of bench_serving with the keys backend and duration, got %s", n.Got())
	}
	s := Serving{LatencyMs: map[string]float64{}, Raw: map[string]json.RawMessage{}, Origin: name + ": " + n.Path()}
	number := func(key string) (*float64, error) {
		v := n.Get(key)
		if !v.Present() {
			return nil, nil
		}
		f, err := v.Float()
		if err != nil {
			return nil, err
		}
		if math.IsNaN(f) || f < 0 {
			return nil, v.Errorf("want a number of 0 or more, got %s", v.Got())
		}
		return &f, nil
	}
	count := func(key string) (*int, error) {
		v := n.Get(key)
		if !v.Present() {
			return nil, nil
		}
		i, err := v.Int(0, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		return &i, nil
	}
	for key, v := range n.Members() {
		if text, ok := v.JSON(); ok {
			s.Raw[key] = text
		}
		if len(key) > 3 && key[len(key)-3:] == "_ms" && v.Present() {
			f, err := v.Float()
			if err != nil {
				return s, err
			}
			if !math.IsNaN(f) && !math.IsInf(f, 0) {
				s.LatencyMs[key] = f
			}
		}
	}
	var err error
	for key, into := range map[string]*string{"backend": &s.Backend, "dataset_name": &s.DatasetName} {
		if v := n.Get(key); v.Present() {
			if *into, err = v.Text(); err != nil {
				return s, err
			}
		}
	}
	for key, into := range map[string]**float64{
		"request_rate": &s.RequestRate, "duration": &s.Duration, "request_throughput": &s.RequestThroughput,
		"input_throughput": &s.InputThroughput, "output_throughput": &s.OutputThroughput,
	} {
		if *into, err = number(key); err != nil {
			return s, err
		}
	}
	for key, into := range map[string]**int{
		"max_concurrency": &s.MaxConcurrency, "completed": &s.Completed, "total_input_tokens": &s.TotalInputTokens,
		"total_output_tokens": &s.TotalOutputTokens, "total_output_tokens_retokenized": &s.TotalOutputRetokenized,
	} {
		if *into, err = count(key); err != nil {
			return s, err
		}
	}
	err = s.details(n)
	return s, err
}

// details reads the arrays that --output-details adds.
func (s *Serving) details(n format.Node) error {
	for key, into := range map[string]*[]int{"input_lens": &s.InputLens, "output_lens": &s.OutputLens} {
		for _, e := range n.Get(key).Elements() {
			v, err := e.Int(0, math.MaxInt32)
			if err != nil {
				return err
			}
			*into = append(*into, v)
		}
	}
	times := func(list format.Node) ([]float64, error) {
		var out []float64
		for _, e := range list.Elements() {
			v, err := e.Float()
			if err != nil {
				return nil, err
			}
			if !(v >= 0) || math.IsInf(v, 0) {
				return nil, e.Errorf("want a time in seconds, got %s", e.Got())
			}
			out = append(out, v)
		}
		return out, nil
	}
	var err error
	if s.TTFTs, err = times(n.Get("ttfts")); err != nil {
		return err
	}
	for _, e := range n.Get("itls").Elements() {
		gaps, err := times(e)
		if err != nil {
			return err
		}
		s.ITLs = append(s.ITLs, gaps)
	}
	return nil
}

// check compares figures of one result that must agree.
func (s *Serving) check() []error {
	var warnings []error
	if s.OutputThroughput != nil && s.Duration != nil && s.TotalOutputTokens != nil {
		got := *s.OutputThroughput * *s.Duration
		if want := float64(*s.TotalOutputTokens); math.Abs(got-want) > 0.01*want+1 {
			warnings = append(warnings, fmt.Errorf("%s: output_throughput × duration is %.0f tokens, total_output_tokens %.0f", s.Origin, got, want))
		}
	}
	return warnings
}
