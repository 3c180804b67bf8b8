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
// Splitwise: CSV with arrival_timestamp in seconds, prompt_size and token_size,
// and perhaps request_id. Vidur: CSV with arrived_at in seconds,
// num_prefill_tokens and num_decode_tokens. Both column names were taken from the
// programs that read the files.
//
// Own: CSV with the columns at_s, input, output and, if wanted, id, group,
// shared, session, priority, class and timeout_s; or JSON Lines with these keys.
// The first "shared" tokens are the same for all of a group. The turns of a
// session stand in their order, and where none of group and shared is given
// their prompts begin with what was said before. A turn of JSON Lines without a
// time comes think_s seconds after the answer to the turn before it. Where a
// client has recorded sent_s, that is when the request came, and at_s says the
// order of the rows. Further keys, such as what else a client measured, are
// not read.
//
// vLLM: the detailed JSON of vllm bench serve: input_lens, output_lens and
// start_times. The times are when its client sent a request, which under a
// concurrency limit is later than when it was due.
//
// LLMServingSim: JSON Lines with input_toks and output_toks, and arrival_time_ns
// or, from its bench, arrival_time and queued_ts: see [LLMServingSim].
//
// ShareGPT: JSON with "conversations" of "value" texts. As in vllm bench
// serve, the first text is the prompt and the second one the answer. Without
// a tokenizer a length is the number of characters over
// [Options].CharsPerToken, so lengths are estimated, and there are no times.
package trace

import (
	"cmp"
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

	Splitwise Kind = "splitwise"
	Vidur     Kind = "vidur"
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
	c := &collector{trace: Trace{Name: name, Timed: true}, skipped: map[string]*skip{}, turns: map[string]int{}, unknown: map[string]bool{}, named: map[string]bool{}}
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
	last         unit.Seconds // the latest time so far, by which rows are in order
	back         int          // rows that are due before an earlier one
	furthest     unit.Seconds // by how much the one that goes back most
	sent, waits  bool         // some requests have times other than those, or none
	turns        map[string]int
	unknown      map[string]bool // keys that were warned of
	named        map[string]bool // ids so far
	repeated     int             // rows with the id of an earlier one, of which again names the first
	again        error
}

// jitter is how far rows may go back in time: clients send what is due at once
// one after the other, and write it down in another order.
const jitter unit.Seconds = 0.5

// skip counts the rows that were left out for one reason.
type skip struct {
	first error // where the first of them stands
	count int
}

// add takes the request of a row, whose place stands in errors. The time due is
// that by which rows are in order.
func (c *collector) add(q workload.Request, due unit.Seconds, place placer) error {
	if c.trace.Timed && q.After == nil && c.trace.Kind != VLLM {
		switch {
		case c.rows == 0 || due >= c.last:
			c.last = due
		case c.last-due > jitter || c.waits:
			return place("is due at %v, %v before an earlier row: want the rows in the order of their times", due, c.last-due)
		default:
			c.back++
			c.furthest = max(c.furthest, c.last-due)
		}
	}
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
		if q.Name != "" && c.named[q.Name] {
			c.repeated++
			if c.repeated == 1 {
				c.again = place("id %q stands in an earlier row too", q.Name)
			}
		}
		c.named[q.Name] = true
		if q.Session != "" {
			c.turns[q.Session] = len(c.trace.Requests)
		}
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
		c.warn(fmt.Errorf("%w: %s left out", s.first, unit.Plural(s.count, "such row")))
	}
	if len(t.Requests) == 0 {
		return nil, &format.Error{File: t.Name, Err: errors.New("holds no usable request")}
	}
	if c.repeated == 1 {
		c.warn(c.again)
	} else if c.repeated > 1 {
		c.warn(fmt.Errorf("%w: %d such rows", c.again, c.repeated))
	}
	if c.back > 0 {
		if c.waits {
			return nil, &format.Error{File: t.Name, Err: errors.New("some rows are due before an earlier one, and some turns have no time")}
		}
		c.warn(fmt.Errorf("%s: %s due up to %v before an earlier one: put in order", t.Name, unit.Plural(c.back, "row"), c.furthest))
	}
	if c.sent || c.back > 0 || t.Kind == VLLM { // rows in the order of schedules and of results
		slices.SortStableFunc(t.Requests, func(a, b workload.Request) int { return cmp.Compare(a.At, b.At) })
	}
	turns, spans := map[string]*workload.Request{}, 0
	for i := range t.Requests {
		q := &t.Requests[i]
		q.ID = i
		if q.Session == "" {
			continue
		}
		q.Turn = 1
		if last := turns[q.Session]; last != nil {
			if q.Turn = last.Turn + 1; c.remembers() && len(q.Prefix) == 0 {
				q.Prefix = workload.Continue(*last, seedOf("answer", q.Session+"/"+strconv.Itoa(last.Turn)), q.InputLen)
			}
		}
		turns[q.Session] = q
		if spans += len(q.Prefix); spans > maxSpans {
			return nil, &format.Error{File: t.Name, Err: fmt.Errorf("session %q: its turns are too many: what they said before has more than %d parts", q.Session, maxSpans)}
		}
	}
	return t, nil
}

// maxSpans bounds what the turns of sessions were told before.
const maxSpans = 1 << 24

// remembers reports whether the prompts of sessions hold what was said before.
func (c *collector) remembers() bool { return c.trace.Kind == OwnJSONL || c.trace.Kind == OwnCSV }

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
	if !(at >= 0 && at <= workload.MaxTime) {
		return fmt.Errorf("%v: want a time from 0 to %v", at, workload.MaxTime)
	}
	return nil
}
