package vllmlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

// reader builds a profile from the lines of a log.
type reader struct {
	name  string
	opts  Options
	lines *lineReader
	rules []rule

	header   profile.Header
	memory   []profile.Point // and failures
	steps    []profile.Point
	warnings []error
	server   *server // whose lines are being read
	servers  int     // that ended

	sources  []string // engines in order of appearance
	sourceOf []int32  // of each step, an index into sources
	seen     map[stepKey]struct{}
	usages   map[float64]json.RawMessage

	periodic, duplicates, idle, dummy, impossible, beyond int
}

// stepKey is what makes two lines of iterations the same.
type stepKey struct {
	source  int32
	stamp   uint32
	number  int64
	counts  [4]int32
	seconds float64
	usage   float64
}

func newReader(name string, opts Options) *reader {
	return &reader{
		name: name, opts: opts, rules: rules(),
		seen: map[stepKey]struct{}{}, usages: map[float64]json.RawMessage{},
		server: newServer(),
	}
}

func (r *reader) read(src io.Reader) (*profile.Profile, []error, error) {
	text, err := expand(src)
	if err != nil {
		return nil, nil, &format.Error{File: r.name, Err: readFault(err)}
	}
	r.lines = newLineReader(text, r.opts.MaxLine)
	for {
		line, err := r.lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if len(r.steps) == 0 {
				return nil, nil, &format.Error{File: r.name, Err: readFault(err)}
			}
			// What came before the fault is good.
			r.warnf("%w: the lines up to here were read", readFault(err))
			break
		}
		r.line(line)
	}
	if r.lines.number == 0 {
		return nil, nil, &format.Error{File: r.name, Err: errors.New("the file is empty")}
	}
	r.endServer()
	r.markSources()
	r.countWarnings()
	if len(r.memory)+len(r.steps) == 0 {
		fault := fmt.Errorf("none of %d lines is of a start or a step of vLLM", r.lines.number)
		if r.idle+r.dummy+r.impossible > 0 || r.periodic > 0 {
			fault = fmt.Errorf("%w: %d steps without work, %d periodic lines", fault, r.idle+r.dummy+r.impossible, r.periodic)
		}
		return nil, nil, &noPointsError{format.Error{File: r.name, Err: fault}}
	}
	r.header.Schema, r.header.Version = profile.Schema, profile.Version
	r.header.Deploy.Engine = "vllm"
	r.header.Source = r.name
	return &profile.Profile{Header: r.header, Points: slices.Concat(r.memory, r.steps)}, r.warnings, nil
}

func readFault(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the compressed data is cut off")
	}
	return err
}

// noPointsError is a log from which nothing could be taken.
type noPointsError struct{ fault format.Error }

// Error says what was looked for.
func (e *noPointsError) Error() string { return e.fault.Error() }

// Unwrap gives the fault with its place.
func (e *noPointsError) Unwrap() error { return &e.fault }

// Hint says how to get a log that can be read.
func (e *noPointsError) Hint() string {
	return "take the log of vllm serve from its start; --enable-logging-iteration-details (vLLM 0.14 and later) adds a line for every step"
}

func (r *reader) warnf(text string, args ...any) {
	r.warnAt(r.lines.number, text, args...)
}

// maxWarnings bounds what is said one by one.
const maxWarnings = 100

func (r *reader) warnAt(line int, text string, args ...any) {
	if len(r.warnings) < maxWarnings {
		r.warnings = append(r.warnings, &format.Error{File: r.name, Place: place(line), Err: fmt.Errorf(text, args...)})
	}
}

func place(line int) string {
	if line == 0 {
		return ""
	}
	return "line " + strconv.Itoa(line)
}

func (r *reader) line(line []byte) {
	if at := bytes.Index(line, []byte(iterationMark)); at >= 0 || bytes.IndexByte(line, escape) >= 0 {
		if it, ok := parseIteration(line); ok {
			if bytes.IndexByte(line, escape) >= 0 {
				line = []byte(stripColours(string(line)))
				at = bytes.Index(line, []byte(iterationMark))
			}
			r.iteration(line[:max(at, 0)], it)
			return
		}
	}
	if bytes.Contains(line, []byte("Avg prompt throughput: ")) {
		r.periodic++
		return
	}
	// The words are looked for first: most lines of a busy server are of
	// requests and hold none of them.
	text, by, cut := "", process{}, false
	for _, rule := range r.rules {
		if !bytes.Contains(line, []byte(rule.words)) {
			continue
		}
		if !cut {
			by, text = cutPrefix(stripColours(string(line)))
			cut = true
		}
		for _, found := range rule.pattern.FindAllStringSubmatch(text, -1) {
			rule.take(r, by, found)
		}
	}
}

// source is the index of the engine that wrote an iteration.
func (r *reader) source(name []byte) int32 {
	for i, known := range r.sources {
		if known == string(name) {
			return int32(i)
		}
	}
	// A log has few engines; what claims to be more is foreign text.
	if len(r.sources) == 1024 {
		return 0
	}
	r.sources = append(r.sources, string(name))
	return int32(len(r.sources) - 1)
}

func (r *reader) iteration(head []byte, it Iteration) {
	switch {
	case it.Dummy:
		r.dummy++
		return
	case it.Totals.Tokens() == 0:
		r.idle++
		return
	case it.Seconds <= 0 || it.Totals.Validate() != nil:
		r.impossible++
		return
	case len(r.steps) >= r.opts.MaxSteps:
		r.beyond++
		return
	}
	name, stamp := sourceOf(head)
	source := r.source(name)
	t := it.Totals
	key := stepKey{
		source: source, stamp: stamp, number: it.Number, seconds: it.Seconds, usage: it.KVUsage,
		counts: [4]int32{int32(t.PrefillRequests), int32(t.PrefillTokens), int32(t.DecodeRequests), int32(t.DecodeTokens)},
	}
	if _, again := r.seen[key]; again {
		r.duplicates++
		return
	}
	r.seen[key] = struct{}{}
	r.server.steps++
	if capacity := r.capacity(name); it.HasKVUsage && capacity > 0 {
		t.KVTokens = int64(math.Round(it.KVUsage * float64(capacity)))
	}
	mode := profile.Mixed
	switch {
	case t.DecodeTokens == 0:
		mode = profile.Prefill
	case t.PrefillTokens == 0:
		mode = profile.Decode
	}
	// One allocation for what belongs together.
	parts := &struct {
		step   profile.Step
		totals forward.Totals
		sample [1]float64
	}{totals: t, sample: [1]float64{it.Seconds}}
	parts.step = profile.Step{Mode: mode, Totals: &parts.totals}
	extra := map[string]json.RawMessage{"iteration": strconv.AppendInt(nil, it.Number, 10)}
	if it.HasKVUsage {
		extra["kv_cache_usage"] = r.usage(it.KVUsage)
	}
	r.steps = append(r.steps, profile.Point{
		Kind: profile.KindStep, Step: &parts.step, Samples: parts.sample[:1:1], Clock: profile.ClockWall,
		Origin: r.name + ": line " + strconv.Itoa(r.lines.number), Extra: extra,
	})
	r.sourceOf = append(r.sourceOf, source)
}

// usage is the number as JSON. Logs round it, so few values come often.
func (r *reader) usage(v float64) json.RawMessage {
	text, ok := r.usages[v]
	if !ok {
		text = strconv.AppendFloat(nil, v, 'g', -1, 64)
		if len(r.usages) < 1<<16 {
			r.usages[v] = text
		}
	}
	return text
}

// capacity is the KV cache of the engine that wrote an iteration, in tokens; 0
// where it is not known.
func (r *reader) capacity(source []byte) int64 {
	if r.opts.KVTokens > 0 {
		return r.opts.KVTokens
	}
	switch engines := r.server.engines; len(engines) {
	case 0:
		return 0
	case 1:
		return engines[0].tokens()
	default:
		number := engineNumber(string(source))
		least := int64(0)
		for _, e := range engines {
			tokens := e.tokens()
			if engineNumber(e.by.name) == number && tokens > 0 {
				return tokens
			}
			if tokens > 0 && (least == 0 || tokens < least) {
				least = tokens
			}
		}
		return least
	}
}

// markSources names the engine of each step, where there are several.
func (r *reader) markSources() {
	if len(r.sources) == 1 && r.sources[0] != "" {
		r.metadata("source", r.sources[0])
	}
	if len(r.sources) < 2 {
		return
	}
	names := make([]json.RawMessage, len(r.sources))
	for i, name := range r.sources {
		names[i] = jsonText(name)
	}
	for i := range r.steps {
		r.steps[i].Extra["source"] = names[r.sourceOf[i]]
	}
}

func (r *reader) metadata(key string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		return
	}
	if r.header.Metadata == nil {
		r.header.Metadata = map[string]json.RawMessage{}
	}
	if _, first := r.header.Metadata[key]; !first {
		r.header.Metadata[key] = text
	}
}

func jsonText(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}

// countWarnings says what was left out.
func (r *reader) countWarnings() {
	if r.servers > 1 {
		r.warnAt(0, "the log holds %d servers one after the other", r.servers)
	}
	for _, c := range []struct {
		n    int
		text string
	}{
		{r.duplicates, "%d lines of steps stand twice: each counts once"},
		{r.idle, "%d steps without tokens were left out"},
		{r.dummy, "%d steps without requests of their own (dummy) were left out"},
		{r.impossible, "%d steps with impossible figures were left out"},
		{r.beyond, "%d steps beyond the bound of MaxSteps were left out"},
		{r.lines.tooLong, "%d lines beyond the bound of MaxLine were left out"},
	} {
		if c.n > 0 {
			r.warnings = append(r.warnings, &format.Error{File: r.name, Err: fmt.Errorf(c.text, c.n)})
		}
	}
}
