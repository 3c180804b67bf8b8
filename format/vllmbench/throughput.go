package vllmbench

import (
	"encoding/json"
	"io"
	"regexp"

	"github.com/llmprof/llmprof/format"
)

// Throughput is the result of "vllm bench throughput". The file counts prompt
// and output tokens together; what was printed tells them apart. All rates are
// per second; a figure that is not there is nil.
type Throughput struct {
	// ModelID is the model as the command line named it; empty in old files.
	ModelID string
	// Elapsed is in seconds.
	Elapsed *float64
	// Requests is a count, as are the tokens.
	Requests                                *int64
	TotalTokens, PromptTokens, OutputTokens *int64
	// RequestRate is in requests per second, TotalTokenRate and
	// OutputTokenRate in tokens per second; the first counts prompts as well.
	RequestRate, TotalTokenRate, OutputTokenRate *float64
	// Extra keeps foreign keys, verbatim.
	Extra map[string]json.RawMessage
	// Origin is where the result was read.
	Origin string
}

// ReadThroughput reads the file of --output-json, or what the command printed.
func ReadThroughput(name string, r io.Reader, limits format.Limits) (*Throughput, []error, error) {
	text, kind, err := open(name, r, limits, KindThroughput, KindThroughputStdout)
	if err != nil {
		return nil, nil, err
	}
	if kind == KindThroughputStdout {
		t, err := throughputStdout(name, text)
		return t, nil, err
	}
	nodes, warnings, err := objects(name, text, limits)
	if err != nil {
		return nil, nil, err
	}
	if len(nodes) > 1 {
		return nil, nil, nodes[1].Errorf("a second result: want one a file")
	}
	f := newFields(nodes[0])
	t := &Throughput{
		ModelID: f.text("model_id"), Elapsed: f.seconds("elapsed_time", 1),
		Requests: f.count("num_requests"), TotalTokens: f.count("total_num_tokens"),
		RequestRate: f.number("requests_per_second", maxCount, 1), TotalTokenRate: f.number("tokens_per_second", maxCount, 1),
		Origin: name,
	}
	t.Extra = f.extra()
	if t.Elapsed != nil && *t.Elapsed > 0 {
		if t.Requests != nil && t.RequestRate != nil {
			f.agree(f.get("requests_per_second"), *t.RequestRate, float64(*t.Requests) / *t.Elapsed, 1e-3, "requests over elapsed time")
		}
		if t.TotalTokens != nil && t.TotalTokenRate != nil {
			f.agree(f.get("tokens_per_second"), *t.TotalTokenRate, float64(*t.TotalTokens) / *t.Elapsed, 1e-3, "tokens over elapsed time")
		}
	}
	return t, append(warnings, f.warnings...), f.err
}

var (
	promptTokensLine = regexp.MustCompile(`(?m)^Total num prompt tokens: *(\d+)`)
	outputTokensLine = regexp.MustCompile(`(?m)^Total num output tokens: *(\d+)`)
)

func throughputStdout(name string, text []byte) (*Throughput, error) {
	t := &Throughput{Origin: name}
	found := throughputLine.FindSubmatch(text)
	for group, into := range []**float64{&t.RequestRate, &t.TotalTokenRate, &t.OutputTokenRate} {
		if len(found[group+1]) == 0 {
			continue
		}
		v, err := printed(name, found, group+1)
		if err != nil {
			return nil, err
		}
		*into = &v
	}
	for _, c := range []struct {
		line *regexp.Regexp
		into **int64
	}{{promptTokensLine, &t.PromptTokens}, {outputTokensLine, &t.OutputTokens}} {
		found := c.line.FindSubmatch(text)
		if found == nil {
			continue
		}
		v, err := printed(name, found, 1)
		if err != nil {
			return nil, err
		}
		whole := int64(v)
		*c.into = &whole
	}
	if t.PromptTokens != nil && t.OutputTokens != nil {
		sum := *t.PromptTokens + *t.OutputTokens
		t.TotalTokens = &sum
	}
	return t, nil
}
