package sglang

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/sim"
)

// Bounds of a scenario text: requests, tokens of one request and of the pool,
// bytes of a line and lines.
const (
	maxRequests = 10_000
	maxTokens   = 1 << 24
	maxLine     = 1 << 20
	maxLines    = 200_000
)

// scenario is a text that was read.
type scenario struct {
	config   Config
	names    []string
	arrivals []int
	requests []Request
	expect   []string // lines behind "expect"
}

// TextError is a fault of a scenario text.
type TextError struct {
	// Name is the file, Line counts from 1.
	Name string
	Line int
	// Fault says what is wrong.
	Fault  error
	advice string
}

// Error names the file and the line.
func (e *TextError) Error() string { return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Fault) }

// Unwrap gives the fault alone.
func (e *TextError) Unwrap() error { return e.Fault }

// Hint says what to write instead.
func (e *TextError) Hint() string { return e.advice }

// reader reads a scenario line by line.
type reader struct {
	name     string
	line     int
	sc       scenario
	groups   map[string]int32
	answers  map[answered]int32
	ends     map[ended]int32
	nodes    int32 // of groups, answers and their ends
	known    map[string]bool
	hasSetup bool
}

// answered is a prompt that is nothing but the first tokens of a group.
type answered struct {
	group  int32
	prompt int
}

// ended is an answer of which one token, counted from 1, is EOS.
type ended struct {
	answer int32
	eosAt  int
}

// prefix is whose tokens a request of a group begins with. Requests of the same
// prompt are answered the same, as greedy decoding does.
func (r *reader) prefix(group string, shared int, q *Request) []sim.Span {
	node, ok := r.groups[group]
	if !ok {
		node = r.nodes
		r.groups[group] = node
		r.nodes++
	}
	spans := []sim.Span{{Node: node, End: shared}}
	if shared < q.Prompt {
		return spans
	}
	prompt := answered{node, shared}
	answer, ok := r.answers[prompt]
	if !ok {
		answer = r.nodes
		r.answers[prompt] = answer
		r.nodes++
	}
	last := q.Prompt + q.MaxNew
	if q.EOSAt == 0 || q.EOSAt > q.MaxNew {
		return append(spans, sim.Span{Node: answer, End: last})
	}
	// EOS is another token than the one with which a longer answer goes on.
	end := ended{answer, q.EOSAt}
	eos, ok := r.ends[end]
	if !ok {
		eos = r.nodes
		r.ends[end] = eos
		r.nodes++
	}
	return append(spans, sim.Span{Node: answer, End: q.Prompt + q.EOSAt - 1}, sim.Span{Node: eos, End: last})
}

// fault is an error at the current line.
func (r *reader) fault(advice, format string, args ...any) error {
	return &TextError{Name: r.name, Line: r.line, Fault: fmt.Errorf(format, args...), advice: advice}
}

// readScenario reads a text; name stands in its errors.
func readScenario(name string, text io.Reader) (*scenario, error) {
	r := &reader{name: name, groups: map[string]int32{}, answers: map[answered]int32{}, ends: map[ended]int32{}, known: map[string]bool{}}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, maxLine)
	expects := false
	for lines.Scan() {
		r.line++
		if r.line > maxLines {
			return nil, r.fault("split the scenario", "more than %d lines", maxLines)
		}
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if expects {
			r.sc.expect = append(r.sc.expect, line)
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		var err error
		switch word {
		case "config":
			err = r.config(rest)
		case "req":
			err = r.request(rest)
		case "expect":
			expects = true
		default:
			err = r.fault("lines begin with config, req, expect or #", "unknown line %q", clipped(word))
		}
		if err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		r.line++
		return nil, r.fault("", "%w", err)
	}
	r.sc.rank()
	if !r.hasSetup {
		return nil, r.fault("write a line: config sglang="+NewestRelease+" pool=64 page=1 chunk=16 max_prefill=64 seats=8 policy=fcfs", "no config line")
	}
	return &r.sc, nil
}

// rank gives every request the place of its name among all names.
func (sc *scenario) rank() {
	names := slices.Clone(sc.names)
	slices.Sort(names)
	for i, name := range sc.names {
		sc.requests[i].Rank, _ = slices.BinarySearch(names, name)
	}
}

// clipped shortens a word for an error.
func clipped(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

// fields calls set for every name=value of a line.
func (r *reader) fields(line string, set func(name, value string) (known bool, err error)) error {
	var seen []string
	for _, f := range strings.Fields(line) {
		name, value, ok := strings.Cut(f, "=")
		if !ok || value == "" {
			return r.fault("fields are name=value, separated by spaces", "field %q", clipped(f))
		}
		if slices.Contains(seen, name) {
			return r.fault("give it once", "field %s stands twice", clipped(name))
		}
		seen = append(seen, name)
		known, err := set(name, value)
		if err != nil {
			return r.fault("", "field %s: %w", name, err)
		}
		if !known {
			return r.fault("see the names in the package's documentation", "unknown field %q", clipped(name))
		}
	}
	return nil
}

// config reads the config line.
func (r *reader) config(line string) error {
	if r.hasSetup {
		return r.fault("one file is one run of one replica", "a second config line")
	}
	r.hasSetup = true
	release := ""
	c := Config{Page: 1, Conservativeness: 1, Overlap: true, PreemptThreshold: 10}
	err := r.fields(line, func(name, value string) (bool, error) {
		switch name {
		case "sglang":
			release = value
		case "policy":
			at := slices.Index(policyNames(), value)
			if at < 0 {
				return true, fmt.Errorf("%q: want one of %s", clipped(value), strings.Join(policyNames(), ", "))
			}
			c.Policy = Policy(at)
		case "conservativeness":
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return true, fmt.Errorf("%q: want a number", clipped(value))
			}
			c.Conservativeness = f
		case "retraction":
			if value != "length" && value != "priority" {
				return true, fmt.Errorf("%q: want length or priority", clipped(value))
			}
			c.RetractByPriority = value == "priority"
		default:
			return r.configCount(&c, name, value)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if c.Rules, err = RulesOf(release); err != nil {
		return r.fault("", "%w", err)
	}
	if err := c.Validate(); err != nil {
		return r.fault("", "%w", err)
	}
	r.sc.config = c
	return nil
}

// configCount sets a number or a switch of the config line.
func (r *reader) configCount(c *Config, name, value string) (bool, error) {
	var err error
	switch name {
	case "pool":
		c.Pool, err = count(value, 1, maxTokens)
	case "page":
		c.Page, err = count(value, 1, maxTokens)
	case "chunk":
		c.Chunk, err = count(value, -1, maxTokens)
	case "max_prefill":
		c.MaxPrefill, err = count(value, 1, maxTokens)
	case "seats":
		c.Seats, err = count(value, 1, maxTokens)
	case "clip":
		c.Clip, err = count(value, 1, maxTokens)
	case "context":
		c.Context, err = count(value, 1, maxTokens)
	case "threshold":
		c.PreemptThreshold, err = count(value, -maxTokens, maxTokens)
	case "prefill_decode_interval":
		c.DecodeInterval, err = count(value, 0, 1000)
	case "seed":
		c.Seed, err = strconv.ParseUint(value, 10, 64)
	case "mixed":
		c.Mixed, err = isOn(value)
	case "priority":
		c.Priority, err = isOn(value)
	case "overlap":
		c.Overlap, err = isOn(value)
	case "cache":
		c.NoPrefixCache, err = isOn(value)
		c.NoPrefixCache = !c.NoPrefixCache
	default:
		return false, nil
	}
	return true, err
}

// request reads a req line.
func (r *reader) request(line string) error {
	name, rest, _ := strings.Cut(line, " ")
	switch {
	case name == "" || strings.ContainsAny(name, "=:,"):
		return r.fault("write: req NAME arrival=1 prompt=10 max_new=4", "request without a name")
	case name == "-" || r.known[name]:
		return r.fault("choose another name", "request name %q is taken", clipped(name))
	case len(r.sc.names) == maxRequests:
		return r.fault("split the scenario", "more than %d requests", maxRequests)
	}
	r.known[name] = true
	arrival, shared, group := 0, 0, ""
	var q Request
	err := r.fields(rest, func(name, value string) (bool, error) {
		var err error
		switch name {
		case "arrival":
			arrival, err = count(value, 1, maxTokens)
		case "prompt":
			q.Prompt, err = count(value, 1, maxTokens)
		case "max_new":
			q.MaxNew, err = count(value, 1, maxTokens)
		case "shared":
			shared, err = count(value, 0, maxTokens)
		case "eos_at":
			q.EOSAt, err = count(value, 1, maxTokens)
		case "priority":
			q.Priority, err = count(value, -maxTokens, maxTokens)
		case "routing":
			q.RoutingKey, err = count(value, 0, maxTokens)
		case "ignore_eos":
			q.IgnoreEOS, err = isOn(value)
		case "group":
			group = value
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	if arrival == 0 || q.Prompt == 0 || q.MaxNew == 0 {
		return r.fault("arrival, prompt and max_new are needed, each from 1", "request %s is not complete", clipped(name))
	}
	if shared > q.Prompt || shared > 0 && group == "" {
		return r.fault("shared is at most the prompt, and names a group", "request %s shares %d tokens", clipped(name), shared)
	}
	if q.IgnoreEOS {
		q.EOSAt = 0 // the token comes and ends nothing
	}
	if shared > 0 {
		q.Prefix = r.prefix(group, shared, &q)
	}
	r.sc.names = append(r.sc.names, name)
	r.sc.arrivals = append(r.sc.arrivals, arrival)
	r.sc.requests = append(r.sc.requests, q)
	return nil
}

// count reads a whole number.
func count(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q: want a whole number from %d to %d", clipped(text), least, most)
	}
	return n, nil
}

// isOn reads 0 or 1.
func isOn(text string) (bool, error) {
	if text != "0" && text != "1" {
		return false, fmt.Errorf("%q: want 0 or 1", clipped(text))
	}
	return text == "1", nil
}
