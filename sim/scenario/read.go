package scenario

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llmprof/llmprof/sim"
)

// The bounds of what is read, so that a small text asks for little work.
const (
	// MaxBytes is the longest text.
	MaxBytes = 16 << 20
	// MaxRequests is the most requests.
	MaxRequests = 10_000
	// MaxTokens bounds each count, and the sum of all outputs.
	MaxTokens = 1 << 20
	// MaxBlocks is the largest pool.
	MaxBlocks = 1 << 20
	// MaxSchedule is the bytes after which a schedule is given up.
	MaxSchedule = 64 << 20
)

// SyntaxError is a fault of a scenario's text, with its place.
type SyntaxError struct {
	// File is the name given to the reader.
	File string
	// Line counts from 1; 0 where the whole text is meant.
	Line int
	// Err is what is wrong.
	Err error
}

// Error says where what is wrong.
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap gives what is wrong.
func (e *SyntaxError) Unwrap() error { return e.Err }

// Hint is the advice of what was wrong, or shows the form of the lines.
func (e *SyntaxError) Hint() string {
	var advised interface{ Hint() string }
	if errors.As(e.Err, &advised) {
		return advised.Hint()
	}
	return "a scenario is a line \"config vllm=0.33.0 num_blocks=17 block_size=4 max_num_batched_tokens=16 max_num_seqs=4 max_model_len=32\", " +
		"lines \"req NAME arrival=1 prompt=6 output=4\", and maybe \"expect\" with the schedule"
}

// reader is the state of [Read].
type reader struct {
	scenario   *Scenario
	configured bool
	expecting  bool
	ended      bool
	names      map[string]bool
	output     int
}

// Read reads a scenario. Name stands for the text in errors, which are of type
// [*SyntaxError].
func Read(name string, from io.Reader) (*Scenario, error) {
	text, err := io.ReadAll(io.LimitReader(from, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	fault := func(line int, err error) error { return &SyntaxError{File: name, Line: line, Err: err} }
	if len(text) > MaxBytes {
		return nil, fault(0, fmt.Errorf("longer than %d bytes", MaxBytes))
	}
	r := reader{scenario: &Scenario{}, names: map[string]bool{}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, MaxBytes+1)
	number := 0
	for lines.Scan() {
		number++
		if err := r.line(lines.Text()); err != nil {
			return nil, fault(number, err)
		}
	}
	if err := r.finish(); err != nil {
		return nil, fault(0, err)
	}
	return r.scenario, nil
}

// line reads one line.
func (r *reader) line(text string) error {
	s := r.scenario
	if comment, ok := strings.CutPrefix(text, "#"); ok {
		if !r.configured && len(s.Requests) == 0 && !r.expecting {
			s.Comments = append(s.Comments, strings.TrimRight(comment, "\r"))
		}
		return nil
	}
	if at := strings.Index(text, " #"); at >= 0 {
		text = text[:at]
	}
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return nil
	case r.ended:
		return errors.New("a line after the end line of the expectation")
	case r.expecting:
		return r.expect(words)
	}
	switch words[0] {
	case "config":
		return r.config(words[1:])
	case "req":
		return r.request(words[1:])
	case "expect":
		r.expecting, s.Expect = true, []string{}
		if len(words) > 1 {
			return fmt.Errorf("expect stands alone on its line, and here is %q after it", words[1])
		}
		return nil
	}
	return fmt.Errorf("%.40q: want a line that begins with config, req or expect", words[0])
}

// config reads the config line.
func (r *reader) config(words []string) error {
	s := r.scenario
	if r.configured {
		return errors.New("a second config line")
	}
	r.configured = true
	release := field{key: "vllm", read: func(text string) error {
		s.Release = text
		return nil
	}}
	if err := readFields(words, append(s.configFields(), release)); err != nil {
		return err
	}
	rules, err := sim.RulesOf(s.Release)
	if err != nil {
		return err
	}
	if s.Release == "" {
		s.Release = sim.NewestRelease
	}
	s.Config.Rules = rules
	return s.Config.Validate()
}

// request reads the line of a request.
func (r *reader) request(words []string) error {
	if len(words) == 0 {
		return errors.New("req wants a name")
	}
	q := Request{Name: words[0]}
	if err := checkName(q.Name); err != nil {
		return fmt.Errorf("req %.40s: %w", q.Name, err)
	}
	if r.names[q.Name] {
		return fmt.Errorf("req %s: a second request of that name", q.Name)
	}
	if err := readFields(words[1:], q.fields()); err != nil {
		return fmt.Errorf("req %s: %w", q.Name, err)
	}
	r.output += q.Output
	switch {
	case q.Arrival == 0 || q.Prompt == 0 || q.Output == 0:
		return fmt.Errorf("req %s: want arrival, prompt and output", q.Name)
	case q.Shared > 0 && q.Group == "":
		return fmt.Errorf("req %s: shared=%d without a group: add group=NAME", q.Name, q.Shared)
	case q.Shared > q.Prompt:
		return fmt.Errorf("req %s: shared=%d is more than its prompt of %d tokens", q.Name, q.Shared, q.Prompt)
	case len(r.scenario.Requests) == MaxRequests:
		return fmt.Errorf("more than %d requests", MaxRequests)
	case r.output > MaxTokens:
		return fmt.Errorf("req %s: more than %d tokens of output in all", q.Name, MaxTokens)
	}
	r.names[q.Name] = true
	r.scenario.Requests = append(r.scenario.Requests, q)
	return nil
}

// expect keeps a line of the expected schedule.
func (r *reader) expect(words []string) error {
	if words[0] != "step" && words[0] != "end" {
		return fmt.Errorf("%.40q: want a line that begins with step or end", words[0])
	}
	r.ended = words[0] == "end"
	r.scenario.Expect = append(r.scenario.Expect, strings.Join(words, " "))
	return nil
}

// finish looks at the whole.
func (r *reader) finish() error {
	if !r.configured {
		return errors.New("no config line")
	}
	for _, q := range r.scenario.Requests {
		if most := r.scenario.Config.MaxModelLen; q.Prompt >= most {
			return fmt.Errorf("req %s: a prompt of %d tokens leaves no room for one of output, since max_model_len is %d: the engine refuses it", q.Name, q.Prompt, most)
		}
	}
	return nil
}

// readFields reads name=value words, each name at most once.
func readFields(words []string, fields []field) error {
	seen := make([]bool, len(fields))
	for _, word := range words {
		key, text, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("%.40q: want name=value", word)
		}
		at := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
		if at < 0 {
			var known []string
			for _, f := range fields {
				known = append(known, f.key)
			}
			slices.Sort(known)
			return fmt.Errorf("%.40s: unknown setting; want one of %s", word, strings.Join(known, ", "))
		}
		if seen[at] {
			return fmt.Errorf("%s stands twice on the line", key)
		}
		seen[at] = true
		if err := fields[at].read(text); err != nil {
			return err
		}
	}
	return nil
}
