package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/llmprof/llmprof/sim/fleet"
)

// writable refuses, before anything is simulated, names under which no file can
// be written, and one name for two files.
func writable(names ...string) error {
	for i, name := range names {
		switch {
		case name == "":
			continue
		case name == "-":
			return usage("", `"-" is not a file that can be written here`)
		case slices.Contains(names[:i], name):
			return usage("", "%s would be written twice", name)
		}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			return usage("", "write %s: it is a folder", name)
		}
		if _, err := os.Stat(filepath.Dir(name)); err != nil {
			return fileError("write", name, err)
		}
	}
	return nil
}

// writeRequestsCSV writes one row a request.
func writeRequestsCSV(name string, r *fleet.Result) error {
	return writeFile(name, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<16)
		_, _ = out.WriteString("id,name,class,session,replica,prefill_replica,outcome,input_tokens,output_tokens,hit_tokens,preemptions,sent_s,queue_ms,prefill_ms,own_prefill_ms,decode_ms,ttft_ms,tpot_ms,itl_max_ms,e2el_ms\n")
		requests := r.Load.Schedule().Requests
		var row []byte
		for i := range r.Records {
			rec, q := &r.Records[i], &requests[i]
			row = strconv.AppendInt(row[:0], int64(i), 10)
			for _, text := range []string{q.Name, q.Class, q.Session} {
				row = appendField(append(row, ','), text)
			}
			row = strconv.AppendInt(append(row, ','), int64(rec.Replica), 10)
			row = append(row, ',')
			if rec.Producer >= 0 {
				row = strconv.AppendInt(row, int64(rec.Producer), 10)
			}
			row = fmt.Appendf(row, ",%s,%d,%d,%d,%d,", rec.Outcome, q.InputLen, rec.Outputs, rec.Hits, rec.Preemptions)
			if rec.Sent >= 0 {
				row = strconv.AppendFloat(row, rec.Sent.Seconds(), 'f', 9, 64)
			}
			queue, queued := rec.Queue()
			ttft, first := rec.TTFT()
			tpot, spaced := rec.TPOT()
			e2el, done := rec.E2EL()
			row = appendMilliseconds(row, queue, queued)
			row = appendMilliseconds(row, ttft-queue, first)
			row = appendMilliseconds(row, rec.Own, first)
			row = appendMilliseconds(row, rec.Last-rec.First, first)
			row = appendMilliseconds(row, ttft, first)
			row = appendMilliseconds(row, tpot, spaced)
			row = appendMilliseconds(row, rec.Gap, rec.Outputs > 1)
			row = append(appendMilliseconds(row, e2el, done), '\n')
			if _, err := out.Write(row); err != nil {
				return err
			}
		}
		return out.Flush()
	})
}

// appendMilliseconds appends a time as a further field, empty where it is not
// known.
func appendMilliseconds(row []byte, t time.Duration, known bool) []byte {
	row = append(row, ',')
	if !known {
		return row
	}
	return strconv.AppendFloat(row, milliseconds(t), 'f', 6, 64)
}

// appendField appends a text as a field of CSV.
func appendField(row []byte, text string) []byte {
	plain := true
	for i := range len(text) {
		switch text[i] {
		case ',', '"', '\n', '\r':
			plain = false
		}
	}
	if plain {
		return append(row, text...)
	}
	row = append(row, '"')
	for i := range len(text) {
		if text[i] == '"' {
			row = append(row, '"')
		}
		row = append(row, text[i])
	}
	return append(row, '"')
}

// stepLog keeps the steps of a run for the files that show them.
type stepLog struct {
	csv, trace string
	steps      []fleet.Step
}

// hook is what a run calls after each step; nil where no file wants them.
func (l *stepLog) hook() func(*fleet.Step) {
	if l.csv == "" && l.trace == "" {
		return nil
	}
	return func(s *fleet.Step) { l.steps = append(l.steps, *s) }
}

// writeCSV writes one row a step.
func (l *stepLog) writeCSV() error {
	return writeFile(l.csv, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<16)
		_, _ = out.WriteString("replica,begin_s,duration_ms,tokens,prefills,prefill_tokens,decodes,decode_context_tokens,running,waiting,free_blocks,usable_blocks,preempted,evicted_blocks,prefix_queries_tokens,prefix_hits_tokens\n")
		var row []byte
		for i := range l.steps {
			s := &l.steps[i]
			row = fmt.Appendf(row[:0], "%d,%.9f,%.6f,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d\n", s.Replica, s.Begin.Seconds(), milliseconds(s.End-s.Begin), s.Tokens,
				s.Prefills, s.PrefillTokens, s.Decodes, s.Context, s.Running, s.Waiting, s.FreeBlocks, s.UsableBlocks, s.Preempted, s.Evicted, s.Queried, s.Hit)
			if _, err := out.Write(row); err != nil {
				return err
			}
		}
		return out.Flush()
	})
}

// traceEvent is an event of the Trace Event Format, times in µs.
type traceEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	At    float64        `json:"ts"`
	For   float64        `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	ID    string         `json:"id,omitempty"`
	Kind  string         `json:"cat,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// writeTrace writes the steps of each replica as slices, its requests as
// asynchronous slices of queue, prefill and decode, and its load as counters.
func (l *stepLog) writeTrace(r *fleet.Result) error {
	return writeFile(l.trace, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<16)
		_, _ = out.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
		encoder, first := json.NewEncoder(out), true
		emit := func(e traceEvent) error {
			if !first {
				_ = out.WriteByte(',')
			}
			first = false
			return encoder.Encode(e)
		}
		for i := range r.Replicas {
			if err := emit(traceEvent{Name: "process_name", Phase: "M", PID: i, Args: map[string]any{"name": fmt.Sprintf("replica %d", i)}}); err != nil {
				return err
			}
		}
		for i := range l.steps {
			for _, e := range stepEvents(&l.steps[i]) {
				if err := emit(e); err != nil {
					return err
				}
			}
		}
		for i := range r.Records {
			for _, e := range requestEvents(i, &r.Records[i]) {
				if err := emit(e); err != nil {
					return err
				}
			}
		}
		_, _ = out.WriteString("]}\n")
		return out.Flush()
	})
}

func microseconds(t time.Duration) float64 { return float64(t) / float64(time.Microsecond) }

// stepEvents are a step as a slice and as counters.
func stepEvents(s *fleet.Step) []traceEvent {
	name := "decode"
	switch {
	case s.Prefills > 0 && s.Decodes > 0:
		name = "mixed"
	case s.Prefills > 0:
		name = "prefill"
	}
	return []traceEvent{
		{Name: name, Phase: "X", At: microseconds(s.Begin), For: microseconds(s.End - s.Begin), PID: s.Replica, Args: map[string]any{
			"tokens": s.Tokens, "prefill_tokens": s.PrefillTokens, "prefills": s.Prefills, "decodes": s.Decodes, "preempted": s.Preempted,
		}},
		{Name: "requests", Phase: "C", At: microseconds(s.Begin), PID: s.Replica, Args: map[string]any{"running": s.Running, "waiting": s.Waiting}},
		{Name: "KV blocks", Phase: "C", At: microseconds(s.Begin), PID: s.Replica, Args: map[string]any{"used": s.UsableBlocks - s.FreeBlocks}},
	}
}

// requestEvents are the parts of a request's life.
func requestEvents(i int, r *fleet.Record) []traceEvent {
	var events []traceEvent
	part := func(name string, from, to time.Duration) {
		if from < 0 || to < from {
			return
		}
		id := strconv.Itoa(i)
		events = append(events,
			traceEvent{Name: name, Phase: "b", Kind: "request", ID: id, At: microseconds(from), PID: int(r.Replica)},
			traceEvent{Name: name, Phase: "e", Kind: "request", ID: id, At: microseconds(to), PID: int(r.Replica)})
	}
	part("queue", r.Sent, r.Admitted)
	part("prefill", r.Admitted, r.First)
	part("decode", r.First, r.Ended)
	return events
}
