// Package trace reads recorded traffic as requests: when each came, how long
// its prompt and its answer were, and what the prompts had in common. The
// kind of file is told by its content, and it may be gzip.
//
//	t, err := trace.Read("conv.csv", file, trace.Options{})
//	s, err := workload.Replay(t.Requests, workload.Replaying{Seed: 7, Name: t.Name})
//
// # Kinds
//
// Azure: CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens. The
// times are dates, "2023-11-16 18:15:46.6805900" in the traces of 2023; those
// of 2024 are taken to have an offset at the end ("+00:00"), which was not
// checked against the files. Rows without a context or without generated
// tokens are left out.
//
// BurstGPT: CSV with Timestamp in seconds, "Request tokens" and "Response
// tokens", and perhaps "Session ID". Rows with 0 response tokens are failures
// and are left out. All models are taken, where vllm bench serve takes GPT-4
// only. The column names were taken from vLLM and other programs that
// read the files, not from the files.
//
// Mooncake: JSON Lines with timestamp in milliseconds, input_length,
// output_length and hash_ids, one for each block of 512 tokens, the last one
// perhaps shorter. Equal ids are equal blocks and become the spans of
// [workload.Request].Prefix. Other tools write the same keys with other block
// lengths: see [Options].
//
// Own: CSV with the columns at_s, input, output and, if wanted, group, shared,
// session and priority; or JSON Lines with these keys. The first "shared"
// tokens are the same for all of a group. Further keys, such as what a client
// measured, are not read.
//
// vLLM: the detailed JSON of vllm bench serve: input_lens, output_lens and
// start_times. The times are when its client sent a request, which under a
// concurrency limit is later than when it was due.
//
// ShareGPT: JSON with "conversations" of "value" texts. As in vllm bench
// serve, the first text is the prompt and the second one the answer. Without
// a tokenizer a length is the number of characters over
// [Options].CharsPerToken, so lengths are estimated, and there are no times.
package trace

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// Kind is a kind of file.
type Kind string

// The kinds, described in the package comment.
const (
	Azure    Kind = "azure"
	BurstGPT Kind = "burstgpt"
	Mooncake Kind = "mooncake"
	OwnCSV   Kind = "csv"
	OwnJSONL Kind = "jsonl"
	VLLM     Kind = "vllm-serve"
	ShareGPT Kind = "sharegpt"
)

// Options says how files are read. The zero value is the defaults.
type Options struct {
	// BlockTokens is the length of a block of hash_ids in tokens. Default 512.
	BlockTokens int
	// CharsPerToken is the number of characters that make a token of a text.
	// Default 4, a rule of thumb for English.
	CharsPerToken float64
	// Limits bounds the file. Values is 64 million by default.
	Limits format.Limits
}

// Trace is what a file holds.
type Trace struct {
	// Name is the name given to the reader.
	Name string
	// Kind is the kind of the file.
	Kind Kind
	// Requests stand in the order of their times; the ID of each is its index.
	// Their seeds only say which tokens are equal: see [workload.Replay].
	Requests []workload.Request
	// Timed says that the file holds times. Where it does not, At is 0
	// throughout, and only [Trace.Pairs] is of use.
	Timed bool
	// Estimated says that the lengths were estimated from characters.
	Estimated bool
	// Warnings are rows left out and assumptions made.
	Warnings []error
}

// Pairs are the lengths alone, for [workload.Empirical] or
// [workload.InOrder].
func (t *Trace) Pairs() []workload.Pair {
	pairs := make([]workload.Pair, len(t.Requests))
	for i, q := range t.Requests {
		pairs[i] = workload.Pair{Input: q.InputLen, Output: q.OutputLen}
	}
	return pairs
}

// Read reads a file of any kind. The name stands in errors; it is not opened.
// Errors are of type [*format.Error], with file and line or path. A file
// without a usable request is an error.
func Read(name string, r io.Reader, o Options) (*Trace, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, &format.Error{File: name, Err: err}
	}
	text, err := format.ReadText(name, r, o.Limits)
	if err != nil {
		return nil, err
	}
	c := &collector{trace: Trace{Name: name, Timed: true}, skipped: map[string]*skip{}}
	if first := strings.TrimLeft(string(text[:min(len(text), 64)]), " \t\r\n"); strings.HasPrefix(first, "{") || strings.HasPrefix(first, "[") {
		err = c.readJSON(name, text, o)
	} else {
		err = c.readTable(name, text, o)
	}
	if err != nil {
		return nil, err
	}
	return c.finish()
}

func (o Options) withDefaults() (Options, error) {
	if o.BlockTokens == 0 {
		o.BlockTokens = 512
	}
	if o.CharsPerToken == 0 {
		o.CharsPerToken = 4
	}
	if o.Limits.Values == 0 {
		o.Limits.Values = 64 << 20
	}
	if o.BlockTokens < 1 || o.BlockTokens > workload.MaxLen {
		return o, fmt.Errorf("block of %d tokens: want 1 to %d", o.BlockTokens, workload.MaxLen)
	}
	if !(o.CharsPerToken >= 0.01 && o.CharsPerToken <= 1000) {
		return o, fmt.Errorf("%g characters a token: want 0.01 to 1000", o.CharsPerToken)
	}
	return o, nil
}

// collector gathers the requests of a file.
type collector struct {
	trace        Trace
	rows         int
	skipped      map[string]*skip
	reasons      []string // of skipped, in the order in which they came
	blocksWarned bool
}

// skip counts the rows that were left out for one reason.
type skip struct {
	first error // where the first of them stands
	count int
}

// add takes the request of a row, whose place stands in errors.
func (c *collector) add(q workload.Request, place placer) error {
	c.rows++
	switch {
	case len(c.trace.Requests) == workload.MaxRequests:
		return place("more than %d requests", workload.MaxRequests)
	case q.InputLen == 0:
		c.leaveOut("no input tokens", place)
	case q.OutputLen == 0:
		c.leaveOut("no output tokens, as of a failed request", place)
	default:
		q.Seed = seedOf("row", strconv.Itoa(c.rows))
		c.trace.Requests = append(c.trace.Requests, q)
	}
	return nil
}

// placer makes an error at the place of a row.
type placer func(format string, args ...any) error

func (c *collector) leaveOut(reason string, place placer) {
	if c.skipped[reason] == nil {
		c.skipped[reason] = &skip{first: place("%s", reason)}
		c.reasons = append(c.reasons, reason)
	}
	c.skipped[reason].count++
}

func (c *collector) warn(err error) { c.trace.Warnings = append(c.trace.Warnings, err) }

// finish orders the requests and numbers them and the turns of sessions.
func (c *collector) finish() (*Trace, error) {
	t := &c.trace
	for _, reason := range c.reasons {
		s := c.skipped[reason]
		c.warn(fmt.Errorf("%w: %d such rows left out", s.first, s.count))
	}
	if len(t.Requests) == 0 {
		return nil, &format.Error{File: t.Name, Err: errors.New("holds no usable request")}
	}
	byTime := func(a, b workload.Request) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	}
	if !slices.IsSortedFunc(t.Requests, byTime) {
		slices.SortStableFunc(t.Requests, byTime)
		c.warn(&format.Error{File: t.Name, Err: errors.New("the rows are not in the order of their times: sorted")})
	}
	turns := map[string]int{}
	for i := range t.Requests {
		q := &t.Requests[i]
		q.ID = i
		if q.Session != "" {
			turns[q.Session]++
			q.Turn = turns[q.Session]
		}
	}
	return t, nil
}

// group is the prefix of a request that shares its first tokens.
func group(name string, shared int) []workload.Span {
	return []workload.Span{{Group: name, Seed: seedOf("group", name), Len: shared}}
}

// seedOf names equal things by equal numbers below 2^53.
func seedOf(kind, name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(kind))
	h.Write([]byte{0})
	h.Write([]byte(name))
	return h.Sum64() >> 11
}

// checkTime wants a time in seconds that a schedule can hold.
func checkTime(at unit.Seconds) error {
	if !(at >= -workload.MaxTime && at <= workload.MaxTime) {
		return fmt.Errorf("%v: want a time within %v", at, workload.MaxTime)
	}
	return nil
}
