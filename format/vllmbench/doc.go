// Package vllmbench reads what "vllm bench latency", "vllm bench throughput"
// and "vllm bench serve" write.
//
// [Detect] tells the files by what is in them, never by their names:
//
//	text, err := format.ReadText(name, file, format.Limits{})
//	switch vllmbench.Detect(text) {
//	case vllmbench.KindLatency:
//		latency, warnings, err := vllmbench.ReadLatency(name, bytes.NewReader(text), format.Limits{})
//	…
//
// Times are in seconds here, although the summaries of "bench serve" are in
// milliseconds; rates are per second. A figure that a file does not hold is
// nil, never zero, and so is one that is not a finite number. Keys that no
// field stands for are kept verbatim in Extra.
//
// Warnings are figures that contradict each other, with both numbers; nothing
// is corrected.
//
// [WriteServe] writes a result of "bench serve" with its keys, order and units,
// so that what reads vLLM's files reads ours; [FromProfile] makes them
// of any run that was imported or recorded, and [ReadServeProfile] reads them in
// our words: vLLM's itl is the gap of two chunks, our ICL.
//
// A latency file holds neither batch size nor lengths, and one run cannot tell
// a prompt's time from that of the tokens after it: [StepsFrom] takes two runs
// that differ in the output length only.
package vllmbench

import (
	"bytes"
	"regexp"

	"github.com/llmprof/llmprof/format"
)

// Kind is what a text holds.
type Kind string

// The kinds. The last three are what the commands print instead of what they
// write to a file.
const (
	KindUnknown          Kind = ""
	KindLatency          Kind = "latency"
	KindThroughput       Kind = "throughput"
	KindServe            Kind = "serve"
	KindLatencyStdout    Kind = "latency-stdout"
	KindThroughputStdout Kind = "throughput-stdout"
	KindServeStdout      Kind = "serve-stdout"
)

var (
	averageLine    = regexp.MustCompile(`(?m)^Avg latency: *(\S+) seconds`)
	throughputLine = regexp.MustCompile(`(?m)^Throughput: *([\d.]+) requests/s, *([\d.]+) total tokens/s(?:, *([\d.]+) output tokens/s)?`)
	serveLine      = regexp.MustCompile(`(?m)^=+ Serving Benchmark Result =+`)
)

// Detect tells what a text holds; KindUnknown where it is none of these. The
// text may be cut off after its first object or its results.
func Detect(text []byte) Kind {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
	if len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		keys, _ := format.TopKeys(text)
		switch {
		case keys["avg_latency"] && (keys["latencies"] || keys["percentiles"]):
			return KindLatency
		case keys["elapsed_time"] && keys["num_requests"] && keys["total_num_tokens"]:
			return KindThroughput
		case keys["request_throughput"] && keys["completed"] && keys["duration"] && keys["num_prompts"]:
			return KindServe
		}
		return KindUnknown
	}
	switch {
	case averageLine.Match(text):
		return KindLatencyStdout
	case serveLine.Match(text):
		return KindServeStdout
	case throughputLine.Match(text):
		return KindThroughputStdout
	}
	return KindUnknown
}
