package trace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// layout is where a kind of table keeps what. An empty name, and a column
// that a file lacks, is for what the kind does not hold.
type layout struct {
	kind                                         Kind
	at, input, output                            string // must be there
	group, shared, session, sessionAlt, priority string
	name, class, timeout                         string
	dates                                        bool // at holds dates
}

// layouts lists the kinds of tables.
func layouts() []layout {
	return []layout{
		{kind: Azure, at: "TIMESTAMP", input: "ContextTokens", output: "GeneratedTokens", dates: true},
		{kind: BurstGPT, at: "Timestamp", input: "Request tokens", output: "Response tokens", session: "Session ID", sessionAlt: "SessionID"},
		{kind: Splitwise, at: "arrival_timestamp", input: "prompt_size", output: "token_size", name: "request_id"},
		{kind: Vidur, at: "arrived_at", input: "num_prefill_tokens", output: "num_decode_tokens"},
		{
			kind: OwnCSV, at: "at_s", input: "input", output: "output", group: "group", shared: "shared", session: "session", priority: "priority",
			name: "id", class: "class", timeout: "timeout_s",
		},
	}
}

// sheet is a table with its columns found; -1 for none.
type sheet struct {
	*format.Table
	layout
	cells                                                      []string
	iAt, iInput, iOutput, iGroup, iShared, iSession, iPriority int
	iName, iClass, iTimeout                                    int
	start                                                      time.Time // of a table of dates
}

// readTable reads a CSV file.
func (c *collector) readTable(name string, text []byte, o Options) error {
	table, err := format.OpenTable(name, text, o.Limits)
	if err != nil {
		return err
	}
	s, err := openSheet(table)
	if err != nil {
		return err
	}
	c.trace.Kind = s.kind
	for row, err := range table.Rows() {
		if err != nil {
			return err
		}
		s.cells = row
		q, err := s.request()
		if err != nil {
			return err
		}
		place := func(format string, args ...any) error { return table.Errorf("", format, args...) }
		if err := c.add(q, q.At, place); err != nil {
			return err
		}
	}
	c.trace.Warnings = append(c.trace.Warnings, table.Warnings()...)
	return nil
}

// openSheet finds the layout whose columns are all there.
func openSheet(table *format.Table) (*sheet, error) {
	column := func(names ...string) int {
		for _, name := range names {
			if i := table.Column(name); name != "" && i >= 0 {
				return i
			}
		}
		return -1
	}
	for _, l := range layouts() {
		s := &sheet{
			Table: table, layout: l,
			iAt: column(l.at), iInput: column(l.input), iOutput: column(l.output),
			iGroup: column(l.group), iShared: column(l.shared),
			iSession: column(l.session, l.sessionAlt), iPriority: column(l.priority),
			iName: column(l.name), iClass: column(l.class), iTimeout: column(l.timeout),
		}
		if min(s.iAt, s.iInput, s.iOutput) >= 0 {
			return s, nil
		}
	}
	return nil, table.Errorf("", "no known trace: want the columns at_s, input, output, or those of an Azure, BurstGPT, splitwise or Vidur trace; got %.200q",
		strings.Join(table.Columns(), ","))
}

// request reads the current row.
func (s *sheet) request() (workload.Request, error) {
	var q workload.Request
	var err error
	if q.At, err = s.time(); err != nil {
		return q, err
	}
	if q.InputLen, err = s.whole(s.iInput, 0, workload.MaxLen); err != nil {
		return q, err
	}
	if q.OutputLen, err = s.whole(s.iOutput, 0, workload.MaxLen); err != nil {
		return q, err
	}
	if q.Priority, err = s.whole(s.iPriority, -1<<31, 1<<31-1); err != nil {
		return q, err
	}
	q.Name, q.Session, q.Class = s.cell(s.iName), s.cell(s.iSession), s.cell(s.iClass)
	if text := s.cell(s.iTimeout); text != "" {
		v, err := strconv.ParseFloat(text, 64)
		if q.Timeout = unit.Seconds(v); err != nil || !(v >= 0 && q.Timeout <= workload.MaxTime) {
			return q, s.Errorf(s.timeout, "want a number of seconds, got %.40q", text)
		}
	}
	shared, err := s.whole(s.iShared, 0, q.InputLen)
	if err != nil {
		return q, err
	}
	if shared > 0 {
		name := s.cell(s.iGroup)
		if name == "" {
			return q, s.Errorf("shared", "%d shared tokens without a group", shared)
		}
		q.Prefix = group(name, shared)
	}
	return q, nil
}

// cell is a copy of the text in a column; empty for no column.
func (s *sheet) cell(column int) string {
	if column < 0 {
		return ""
	}
	return strings.Clone(strings.TrimSpace(s.cells[column]))
}

// whole reads a whole number; an empty cell is 0 where the column need not
// be there.
func (s *sheet) whole(column, least, most int) (int, error) {
	text := s.cell(column)
	if text == "" && column != s.iInput && column != s.iOutput {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(text, ".0"))
	if err != nil || n < least || n > most {
		return 0, s.Errorf(s.Columns()[column], "want a whole number from %d to %d, got %.40q", least, most, text)
	}
	return n, nil
}

// time reads the time of the row in seconds: from the start of the trace where
// the file holds dates, else as it stands.
func (s *sheet) time() (unit.Seconds, error) {
	text := s.cell(s.iAt)
	at, err := s.parseTime(text)
	if err == nil && !(s.dates && at < 0) { // dates count from the first row, which may be out of order
		err = checkTime(at)
	}
	if err != nil {
		return 0, s.Errorf(s.at, "%w", err)
	}
	return at, nil
}

func (s *sheet) parseTime(text string) (unit.Seconds, error) {
	if !s.dates {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("want a number of seconds, got %.40q", text)
		}
		return unit.Seconds(v), nil
	}
	date, err := parseDate(text)
	if err != nil {
		return 0, err
	}
	if s.start.IsZero() {
		s.start = date
	}
	return unit.Seconds(date.Sub(s.start).Seconds()), nil
}

// parseDate reads a date with or without an offset; one without is UTC.
func parseDate(text string) (time.Time, error) {
	for _, form := range []string{
		"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00",
		"2006-01-02T15:04:05", time.RFC3339,
	} {
		if date, err := time.Parse(form, text); err == nil {
			return date, nil
		}
	}
	return time.Time{}, errors.New("want a date such as \"2023-11-16 18:15:46.6805900\", got " + fmt.Sprintf("%.40q", text))
}
