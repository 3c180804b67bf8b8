package trace

import (
	"bufio"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// Writable lists the kinds that [Write] writes.
func Writable() []Kind { return []Kind{OwnJSONL, OwnCSV, Mooncake, Azure} }

// Write writes a schedule as a trace of a kind. It returns what the kind cannot
// hold and the schedule has, such as "classes". A schedule with requests whose
// time is known only while it runs is an error, but for the turns of sessions
// in JSON Lines of our own.
func Write(w io.Writer, kind Kind, s *workload.Schedule) (lost []string, err error) {
	if !slices.Contains(Writable(), kind) {
		return nil, fmt.Errorf("write a trace: want one of %s, got %q", unit.List(Writable()), kind)
	}
	for i := range s.Requests {
		q := &s.Requests[i]
		if q.After != nil && (kind != OwnJSONL || !follows(q, s.Requests)) {
			return nil, &WaitingError{Kind: kind, Request: i}
		}
	}
	buffered := bufio.NewWriter(w)
	switch kind {
	case OwnJSONL:
		lost, err = writeJSONL(buffered, s)
	case OwnCSV:
		lost, err = writeCSV(buffered, s)
	case Mooncake:
		lost, err = writeMooncake(buffered, s)
	default:
		lost, err = writeAzure(buffered, s)
	}
	if err = errors.Join(err, buffered.Flush()); err != nil {
		return nil, fmt.Errorf("write a trace: %w", err)
	}
	return lost, nil
}

// WaitingError says that a load cannot be written as a trace, since the time of
// a request is known only while the load runs.
type WaitingError struct {
	// Kind is the kind of trace, Request the ID of the first such request.
	Kind    Kind
	Request int
}

// Error names the request.
func (e *WaitingError) Error() string {
	return fmt.Sprintf("request %d waits for another one, and the form %s wants times", e.Request, e.Kind)
}

// Hint names what can hold it.
func (e *WaitingError) Hint() string {
	return "a schedule holds every load, and jsonl the turns of sessions"
}

// follows reports whether a request waits for the turn before it.
func follows(q *workload.Request, all []workload.Request) bool {
	if q.After.Request < 0 || q.Session == "" {
		return false
	}
	before := &all[q.After.Request]
	return before.Session == q.Session && before.Turn == q.Turn-1
}

// losses collects what a kind cannot hold.
type losses []string

func (l *losses) note(what string, has bool) {
	if has && !slices.Contains(*l, what) {
		*l = append(*l, what)
	}
}

// ownRow is a row of JSON Lines.
type ownRow struct {
	ID       string        `json:"id"`
	At       *unit.Seconds `json:"at_s,omitempty"`
	Input    int           `json:"input"`
	Output   int           `json:"output"`
	Group    string        `json:"group,omitempty"`
	Shared   int           `json:"shared,omitempty"`
	Session  string        `json:"session,omitempty"`
	Think    unit.Seconds  `json:"think_s,omitempty"`
	Priority int           `json:"priority,omitempty"`
	Class    string        `json:"class,omitempty"`
	Timeout  unit.Seconds  `json:"timeout_s,omitempty"`
}

// ownRows makes rows of our own form.
type ownRows struct {
	lost   losses
	groups map[string]uint64 // the seed of each name
}

// row is that of one request.
func (o *ownRows) row(q *workload.Request) ownRow {
	r := ownRow{
		ID: q.Name, Input: q.InputLen, Output: q.OutputLen, Session: q.Session, Priority: q.Priority, Class: q.Class, Timeout: q.Timeout,
	}
	if r.ID == "" {
		r.ID = strconv.Itoa(q.ID)
	}
	if q.After == nil {
		r.At = &q.At
	} else {
		r.Think = q.After.Think
	}
	if len(q.Prefix) == 0 || q.Turn > 1 { // later turns begin with what was said
		return r
	}
	first := q.Prefix[0]
	o.lost.note("prefixes within prefixes", len(q.Prefix) > 1)
	seed, named := o.groups[first.Group]
	if first.Group == "" || named && seed != first.Seed {
		o.lost.note("prefixes without a name of their own", true)
		return r
	}
	o.groups[first.Group] = first.Seed
	r.Group, r.Shared = first.Group, first.Len
	return r
}

func writeJSONL(w io.Writer, s *workload.Schedule) ([]string, error) {
	rows := ownRows{groups: map[string]uint64{}}
	rows.lost.note("targets of classes", slices.ContainsFunc(s.Classes, func(c workload.Class) bool { return len(c.Targets) > 0 }))
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for i := range s.Requests {
		if err := out.Encode(rows.row(&s.Requests[i])); err != nil {
			return nil, err
		}
	}
	return rows.lost, nil
}

func writeCSV(w io.Writer, s *workload.Schedule) ([]string, error) {
	rows := ownRows{groups: map[string]uint64{}}
	rows.lost.note("targets of classes", slices.ContainsFunc(s.Classes, func(c workload.Class) bool { return len(c.Targets) > 0 }))
	out := csv.NewWriter(w)
	err := out.Write([]string{"id", "at_s", "input", "output", "group", "shared", "session", "priority", "class", "timeout_s"})
	filled := func(text string, empty bool) string {
		if empty {
			return ""
		}
		return text
	}
	for i := range s.Requests {
		if err != nil {
			break
		}
		r := rows.row(&s.Requests[i])
		err = out.Write([]string{
			r.ID, number(float64(*r.At)), strconv.Itoa(r.Input), strconv.Itoa(r.Output), r.Group, filled(strconv.Itoa(r.Shared), r.Shared == 0),
			r.Session, filled(strconv.Itoa(r.Priority), r.Priority == 0), r.Class, filled(number(float64(r.Timeout)), r.Timeout == 0),
		})
	}
	out.Flush()
	return rows.lost, errors.Join(err, out.Error())
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// noteLabels notes what traces of lengths alone cannot hold.
func (l *losses) noteLabels(q *workload.Request) {
	l.note("names", q.Name != "")
	l.note("sessions", q.Session != "")
	l.note("classes", q.Class != "")
	l.note("priorities", q.Priority != 0)
	l.note("timeouts", q.Timeout != 0)
}

// mooncakeRow is a row of Mooncake's traces.
type mooncakeRow struct {
	Timestamp int64   `json:"timestamp"` // ms
	Input     int     `json:"input_length"`
	Output    int     `json:"output_length"`
	Hashes    []int32 `json:"hash_ids"`
}

// writeMooncake writes blocks of 512 tokens: two that are equal, with all before
// them, have one id.
func writeMooncake(w io.Writer, s *workload.Schedule) ([]string, error) {
	const block = 512
	var lost losses
	type chain struct {
		before int32
		tokens uint64 // names the tokens of the block
	}
	ids := map[chain]int32{}
	out := json.NewEncoder(w)
	for i := range s.Requests {
		q := &s.Requests[i]
		lost.noteLabels(q)
		row := mooncakeRow{Timestamp: int64(math.Round(float64(q.At) * 1e3)), Input: q.InputLen, Output: q.OutputLen}
		before := int32(-1)
		for tokens := range blocks(q, block) {
			key := chain{before, tokens}
			id, known := ids[key]
			if !known {
				id = int32(len(ids))
				ids[key] = id
			}
			row.Hashes = append(row.Hashes, id)
			before = id
		}
		if err := out.Encode(row); err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// blocks yields a number for the tokens of each block of a prompt.
func blocks(q *workload.Request, size int) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		h, room := fnv.New64a(), size
		parts := append(slices.Clip(q.Prefix), workload.Span{Seed: q.Seed, Len: q.InputLen - q.PrefixLen()})
		for _, part := range parts {
			for done := 0; done < part.Len; {
				n := min(part.Len-done, room)
				var piece [24]byte
				binary.LittleEndian.PutUint64(piece[:], part.Seed)
				binary.LittleEndian.PutUint64(piece[8:], uint64(done))
				binary.LittleEndian.PutUint64(piece[16:], uint64(n))
				h.Write(piece[:])
				done += n
				if room -= n; room > 0 {
					continue
				}
				if !yield(h.Sum64()) {
					return
				}
				h.Reset()
				room = size
			}
		}
		if room < size {
			yield(h.Sum64())
		}
	}
}

func writeAzure(w io.Writer, s *workload.Schedule) ([]string, error) {
	var lost losses
	// The day of the traces that the form comes from; only differences count.
	start := time.Date(2023, 11, 16, 18, 0, 0, 0, time.UTC)
	if _, err := io.WriteString(w, "TIMESTAMP,ContextTokens,GeneratedTokens\n"); err != nil {
		return nil, err
	}
	for i := range s.Requests {
		q := &s.Requests[i]
		lost.noteLabels(q)
		lost.note("prefixes", len(q.Prefix) > 0)
		at := start.Add(time.Duration(math.Round(float64(q.At)*1e7)) * 100) // its times have seven decimals
		if _, err := fmt.Fprintf(w, "%s,%d,%d\n", at.Format("2006-01-02 15:04:05.0000000"), q.InputLen, q.OutputLen); err != nil {
			return nil, err
		}
	}
	return lost, nil
}
