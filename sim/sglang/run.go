package sglang

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a run: iterations, and bytes of its schedule.
const (
	maxSteps    = 1_000_000
	maxSchedule = 64 << 20
)

// Run decides a scenario text and returns its schedule, one line an iteration
// and a last line "end", in the form of the text's own expectation, which is
// returned as well and empty where there is none. A schedule ends with the last
// request, or where the expectation ends, or where what waits can never run;
// without an expectation the last is an error beside the schedule so far. Name
// stands in errors.
func Run(name string, text io.Reader) (schedule, expected string, err error) {
	sc, err := readScenario(name, text)
	if err != nil {
		return "", "", err
	}
	if len(sc.expect) > 0 {
		expected = strings.Join(sc.expect, "\n") + "\n"
	}
	schedule, err = sc.run()
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return schedule, expected, err
}

// lastStep is the iteration that the expectation ends with, or none.
func (sc *scenario) lastStep() int {
	for _, line := range slices.Backward(sc.expect) {
		word, rest, _ := strings.Cut(line, " ")
		number, _, _ := strings.Cut(rest, " ")
		if n, err := strconv.Atoi(number); word == "step" && err == nil {
			return n
		}
	}
	return 0
}

// run steps through a scenario.
func (sc *scenario) run() (string, error) {
	s, err := New(sc.config)
	if err != nil {
		return "", err
	}
	order := make([]int, len(sc.names))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sc.arrivals[a], sc.arrivals[b]) })
	w := writer{}
	last, next, lines, still := sc.lastStep(), 0, 0, 0
	for step := 1; step <= maxSteps; step++ {
		if last > 0 && step > last || last == 0 && next == len(order) && !s.Busy() {
			return w.end(lines), nil
		}
		if !s.Busy() && s.interval == 0 && next < len(order) && last == 0 {
			// Nothing happens until the next arrival but that the ratio is reset.
			if to := sc.arrivals[order[next]]; to > step+1 {
				step = to - 1
			}
		}
		for ; next < len(order) && sc.arrivals[order[next]] <= step; next++ {
			if _, err := s.Add(sc.requests[order[next]]); err != nil {
				return w.end(lines), fmt.Errorf("request %s: %w", sc.names[order[next]], err)
			}
			w.names = append(w.names, sc.names[order[next]])
			still = 0
		}
		b, err := s.Step()
		if err != nil {
			return w.end(lines), fmt.Errorf("step %d: %w", step, err)
		}
		if b.Kind != None || len(b.Outputs) > 0 || len(b.Waiting) > 0 || len(b.Retracted) > 0 {
			w.step(step, b)
			lines++
		}
		if w.text.Len() > maxSchedule {
			return "", fmt.Errorf("step %d: the schedule is longer than %d bytes", step, maxSchedule)
		}
		still++
		if b.Kind != None || len(b.Outputs) > 0 {
			still = 0
		}
		if last == 0 && next == len(order) && still > s.Patience() {
			return w.end(lines), fmt.Errorf("step %d: %d waiting requests can never run", step, len(b.Waiting))
		}
	}
	return w.end(lines), fmt.Errorf("not at its end after %d iterations", maxSteps)
}

// writer writes a schedule.
type writer struct {
	text  strings.Builder
	names []string
}

// end writes the last line and returns the text.
func (w *writer) end(lines int) string {
	fmt.Fprintf(&w.text, "end steps=%d\n", lines)
	return w.text.String()
}

// step writes the line of an iteration.
func (w *writer) step(n int, b *Batch) {
	t := &w.text
	fmt.Fprintf(t, "step %d kind=%s sched=", n, b.Kind)
	w.counts(b.Requests, b.Tokens)
	t.WriteString(" cached=")
	w.counts(b.Requests[:len(b.Cached)], b.Cached)
	w.list(" retract=", b.Retracted)
	w.list(" run=", b.Running)
	w.list(" wait=", b.Waiting)
	piece := "-"
	if b.Piece >= 0 {
		piece = w.names[b.Piece]
	}
	full := 0
	if b.Full {
		full = 1
	}
	fmt.Fprintf(t, " chunked=%s full=%d ratio=%.4f free=%d evictable=%d out=", piece, full, b.Ratio, b.Free, b.Evictable)
	for i, o := range b.Outputs {
		w.comma(i)
		t.WriteString(w.names[o.Request])
		if o.Number == 0 {
			t.WriteString(":wasted")
		} else {
			fmt.Fprintf(t, ":%d", o.Number)
		}
	}
	w.dash(len(b.Outputs))
	w.list(" finish=", b.Finished)
	fmt.Fprintf(t, " end_free=%d\n", b.FreeAfter)
}

func (w *writer) comma(i int) {
	if i > 0 {
		w.text.WriteByte(',')
	}
}

func (w *writer) dash(n int) {
	if n == 0 {
		w.text.WriteByte('-')
	}
}

func (w *writer) list(label string, ids []int32) {
	w.text.WriteString(label)
	for i, r := range ids {
		w.comma(i)
		w.text.WriteString(w.names[r])
	}
	w.dash(len(ids))
}

func (w *writer) counts(ids, values []int32) {
	for i, r := range ids {
		w.comma(i)
		fmt.Fprintf(&w.text, "%s:%d", w.names[r], values[i])
	}
	w.dash(len(ids))
}
