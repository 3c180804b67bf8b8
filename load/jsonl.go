package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"time"
)

// The schema of a file of records.
const (
	// RecordsSchema names the format.
	RecordsSchema = "llmprof/requests"
	// RecordsVersion is its version.
	RecordsVersion = "1.0"
)

// maxLine bounds a line of a records file, in bytes.
const maxLine = 64 << 20

// Header is the first line of a file of records.
type Header struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	// Started is the wall-clock time of the start, RFC 3339.
	Started string `json:"started,omitempty"`
	// Tool and Command say what made the file.
	Tool    string `json:"tool,omitempty"`
	Command string `json:"command,omitempty"`
	// Targets are the servers' URLs.
	Targets []string `json:"targets,omitempty"`
	// Seed, Pattern and Spec are the schedule's.
	Seed    uint64 `json:"seed"`
	Pattern string `json:"pattern,omitempty"`
	Spec    string `json:"spec,omitempty"`
	// Machine is the client's machine, Gate the run's verdict on itself.
	Machine Machine `json:"machine"`
	Gate    *Gate   `json:"gate,omitempty"`
	// Partial says why the run ended early.
	Partial string `json:"partial,omitempty"`
}

// line is a record as it is written: times in seconds from the start, chunks as
// three lists.
type line struct {
	ID      int          `json:"id"`
	Target  int          `json:"target,omitempty"`
	Session string       `json:"session,omitempty"`
	Turn    int          `json:"turn,omitempty"`
	Sched   float64      `json:"t_sched"`
	Send    *float64     `json:"t_send"`
	Headers *float64     `json:"t_headers"`
	Role    *float64     `json:"t_role,omitempty"`
	Chunks  []float64    `json:"t_chunk"`
	Tokens  []int32      `json:"n_chunk"`
	Reads   []int32      `json:"read_id"`
	End     *float64     `json:"t_end"`
	Close   float64      `json:"t_close"`
	Asked   int          `json:"asked_tokens"`
	Forced  bool         `json:"forced,omitempty"`
	Prompt  *Count       `json:"prompt_tokens"`
	Output  *Count       `json:"output_tokens"`
	Cached  *Count       `json:"cached_tokens"`
	Spread  Origin       `json:"chunk_origin,omitempty"`
	Status  int          `json:"status,omitempty"`
	Finish  string       `json:"finish_reason,omitempty"`
	Server  *ServerTimes `json:"server,omitempty"`
	Retries int          `json:"retries,omitempty"`
	Failure *Failure     `json:"error,omitempty"`
}

// WriteRecords writes the header and the records as JSON Lines. Times keep
// their nanoseconds.
func WriteRecords(w io.Writer, h Header, records []Record) error {
	h.Schema, h.Version = RecordsSchema, RecordsVersion
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	if err := enc.Encode(h); err != nil {
		return fmt.Errorf("write the header of the records: %w", err)
	}
	for i := range records {
		if err := enc.Encode(lineOf(&records[i])); err != nil {
			return fmt.Errorf("write record %d: %w", records[i].ID, err)
		}
	}
	return out.Flush()
}

func lineOf(r *Record) line {
	known := func(c Count) *Count {
		if !c.Known() {
			return nil
		}
		return &c
	}
	l := line{
		ID: r.ID, Target: r.Target, Session: r.Session, Turn: r.Turn, Sched: r.Sched.Seconds(), Headers: some(r.Headers), Role: some(r.Role),
		End: some(r.End), Close: r.Close.Seconds(), Asked: r.Asked, Forced: r.Forced, Prompt: known(r.Prompt), Output: known(r.Output),
		Cached: known(r.Cached), Spread: r.Spread, Status: r.Status, Finish: r.Finish, Server: r.Server, Retries: r.Retries, Failure: r.Failure,
		Chunks: []float64{}, Tokens: []int32{}, Reads: []int32{},
	}
	if r.Sent {
		l.Send = new(r.Send.Seconds())
	}
	for _, c := range r.Chunks {
		l.Chunks, l.Tokens, l.Reads = append(l.Chunks, c.At.Seconds()), append(l.Tokens, c.Tokens), append(l.Reads, c.Read)
	}
	return l
}

// some is a time in seconds; nil where there was none.
func some(t time.Duration) *float64 {
	if t == 0 {
		return nil
	}
	return new(t.Seconds())
}

// record is the line as a record.
func (l line) record() (Record, error) {
	r := Record{
		ID: l.ID, Target: l.Target, Session: l.Session, Turn: l.Turn, Sent: l.Send != nil, Asked: l.Asked, Forced: l.Forced,
		Spread: l.Spread, Status: l.Status, Finish: l.Finish, Server: l.Server, Retries: l.Retries, Failure: l.Failure,
	}
	if len(l.Tokens) != len(l.Chunks) || len(l.Reads) != len(l.Chunks) {
		return r, fmt.Errorf("%d chunk times, %d token counts and %d read numbers", len(l.Chunks), len(l.Tokens), len(l.Reads))
	}
	for _, t := range []struct {
		from *float64
		to   *time.Duration
	}{{&l.Sched, &r.Sched}, {l.Send, &r.Send}, {l.Headers, &r.Headers}, {l.Role, &r.Role}, {l.End, &r.End}, {&l.Close, &r.Close}} {
		if t.from != nil {
			var err error
			if *t.to, err = timeOf(*t.from); err != nil {
				return r, err
			}
		}
	}
	for _, c := range []struct {
		from *Count
		to   *Count
	}{{l.Prompt, &r.Prompt}, {l.Output, &r.Output}, {l.Cached, &r.Cached}} {
		if c.from == nil {
			continue
		}
		if c.from.Tokens < 0 || c.from.Tokens > maxTokens || !c.from.Known() {
			return r, fmt.Errorf("a count of %d tokens from %q", c.from.Tokens, c.from.Origin)
		}
		*c.to = *c.from
	}
	for i, t := range l.Chunks {
		at, err := timeOf(t)
		if err != nil {
			return r, err
		}
		if l.Tokens[i] < 0 {
			return r, fmt.Errorf("a chunk of %d tokens", l.Tokens[i])
		}
		r.Chunks = append(r.Chunks, Chunk{at, l.Tokens[i], l.Reads[i]})
	}
	return r, nil
}

// maxTime bounds times in seconds: about a year.
const maxTime = 4e7

func timeOf(seconds float64) (time.Duration, error) {
	if math.Abs(seconds) > maxTime {
		return 0, fmt.Errorf("a time of %g s", seconds)
	}
	return time.Duration(math.Round(seconds * 1e9)), nil
}

// RecordsError is a file of records that cannot be read at a line.
type RecordsError struct {
	// File and Line say where, Err why.
	File string
	Line int
	Err  error
}

// Error names file, line and cause.
func (e *RecordsError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap is the cause.
func (e *RecordsError) Unwrap() error { return e.Err }

// ReadRecords reads what [WriteRecords] wrote: the header, then the records as
// they are asked for. name is for messages.
func ReadRecords(name string, r io.Reader) (Header, iter.Seq2[Record, error], error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	var h Header
	number := 1
	wrong := func(err error) error { return &RecordsError{name, number, err} }
	if !in.Scan() {
		return h, nil, wrong(errors.Join(in.Err(), errors.New("no header")))
	}
	if err := json.Unmarshal(in.Bytes(), &h); err != nil {
		return h, nil, wrong(err)
	}
	if h.Schema != RecordsSchema || (h.Version != "1" && !strings.HasPrefix(h.Version, "1.")) {
		return h, nil, wrong(fmt.Errorf("schema %q version %q: want %s 1", h.Schema, h.Version, RecordsSchema))
	}
	return h, func(yield func(Record, error) bool) {
		for in.Scan() {
			number++
			if len(bytes.TrimSpace(in.Bytes())) == 0 {
				continue
			}
			var l line
			err := json.Unmarshal(in.Bytes(), &l)
			var rec Record
			if err == nil {
				rec, err = l.record()
			}
			if err != nil {
				err = wrong(err)
			}
			if !yield(rec, err) {
				return
			}
		}
		if err := in.Err(); err != nil {
			number++
			yield(Record{}, wrong(err))
		}
	}, nil
}
