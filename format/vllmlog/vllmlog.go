// Package vllmlog reads what a vLLM server writes to its log.
//
// [ParseIteration] reads one line of --enable-logging-iteration-details
// (vLLM 0.14 and later), the exact composition and duration of one engine
// step, and [ParsePeriodic] one of the lines that sum up ten seconds.
//
// [Read] turns a whole log into a profile: every iteration becomes a step, the
// figures of start-up become memory points, the settings that the log tells
// become the header, and a start that was refused becomes a failure and a
// [*RefusedError]. It knows the wordings of 2024 to 2026, reads line by line
// and may be given gzip. What it does not know it passes over: logs hold
// progress bars, access lines, tracebacks and the lines of other programs.
//
// A line of vLLM may begin with processes, level, time and source file, which
// may be coloured:
//
//	(Worker_TP0 pid=100) INFO 10-23 15:14:50 [gpu_worker.py:298] Available KV cache memory: 61.66 GiB
//
// One log may hold several engines, told apart by "Engine 001:" or the name of
// the process, and several servers one after the other.
package vllmlog

import (
	"bytes"
	"io"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/profile"
)

// Options says what is known beside the log. The zero value is useful.
type Options struct {
	// KVTokens is the capacity of one engine's KV cache in tokens, with which
	// the use that iterations tell becomes tokens. Default: what the log says.
	KVTokens int64
	// Model is the served model, for the check of bytes per token. Without it
	// that check is skipped.
	Model *catalog.Model
	// MaxSteps is the largest number of steps to keep; further ones are
	// counted in a warning. Default 4 million.
	MaxSteps int
	// MaxLine is the longest line in bytes that is looked at; longer ones are
	// counted in a warning. Default 1 MiB.
	MaxLine int
}

func (o Options) withDefaults() Options {
	if o.MaxSteps == 0 {
		o.MaxSteps = 4 << 20
	}
	if o.MaxLine == 0 {
		o.MaxLine = 1 << 20
	}
	return o
}

// Read reads the log of one or more servers, plain or gzip. The name stands in
// errors and origins; it is not opened.
//
// Steps are points of wall time with forward.Totals. Their KV tokens are the
// told use times the capacity, where that is known. Extra keeps "iteration",
// the engine's number of the step, "kv_cache_usage" (0..1) and, where a log
// holds several, "source". A line that stands twice counts once.
//
// A memory point's Resolution is one unit of the last printed digit: 54.18 GiB
// stands for 0.01 GiB around it. Of several figures of the same part the one
// with most digits stays, so exact bytes win over GiB.
//
// Warnings hold what was left out, refusals as [*RefusedError], and sums that
// do not agree. A log without steps, memory figures and refusals is an error.
func Read(name string, r io.Reader, opts Options) (*profile.Profile, []error, error) {
	return newReader(name, opts.withDefaults()).read(r)
}

// HeadSize is the number of bytes of a file with which [Detect] can decide.
const HeadSize = 64 << 10

// Detect reports whether a file, plain or gzip, that begins with head is a log
// of vLLM.
func Detect(head []byte) bool {
	text, err := expand(bytes.NewReader(head))
	if err != nil {
		return false
	}
	part := make([]byte, HeadSize)
	n, _ := io.ReadFull(text, part) // the head may end anywhere
	// JSON quotes log lines too, but is no log.
	if start := bytes.TrimLeft(part[:n], " \t\r\n\xef\xbb\xbf"); len(start) > 0 && start[0] == '{' {
		return false
	}
	shapes := rules()
	for line := range bytes.Lines(part[:n]) {
		if _, ok := parseIteration(line); ok {
			return true
		}
		for _, rule := range shapes {
			if rule.telling && bytes.Contains(line, []byte(rule.words)) && rule.pattern.Match(line) {
				return true
			}
		}
	}
	return false
}
