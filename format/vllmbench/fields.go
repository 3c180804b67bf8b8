package vllmbench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
)

// Bounds of what a file may say.
const (
	maxCount   = 1 << 46
	maxTokens  = 1 << 30
	maxSeconds = 366 * 24 * 60 * 60
)

// fields reads the keys of one object. The first fault stops it; keys that
// were asked for are no extra ones.
type fields struct {
	top      format.Node
	seen     map[string]bool
	warnings []error
	err      error
}

func newFields(top format.Node) *fields {
	f := &fields{top: top, seen: map[string]bool{}}
	if top.Kind() != format.Object {
		f.err = top.Errorf("want an object, got %s", top.Got())
	}
	return f
}

// get returns the value of a key and marks the key as known.
func (f *fields) get(key string) format.Node {
	f.seen[key] = true
	return f.top.Get(key)
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *fields) warn(n format.Node, text string, args ...any) {
	f.warnings = append(f.warnings, n.Errorf(text, args...))
}

// text reads a string; empty where there is none.
func (f *fields) text(key string) string {
	n := f.get(key)
	if !n.Present() {
		return ""
	}
	s, err := n.Text()
	if err != nil {
		f.fail(err)
	}
	return s
}

// number reads a figure from 0 to most, times scale; nil where there is none.
func (f *fields) number(key string, most, scale float64) *float64 {
	return f.figure(f.get(key), most, scale)
}

func (f *fields) figure(n format.Node, most, scale float64) *float64 {
	if !n.Present() {
		return nil
	}
	v, err := n.Float()
	if err != nil {
		f.fail(err)
		return nil
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		f.warn(n, "left out: %s", n.Got())
		return nil
	}
	if v < 0 || v > most {
		f.fail(n.Errorf("want 0 to %g, got %s", most, n.Got()))
		return nil
	}
	v *= scale
	return &v
}

// seconds reads a time that the file has in units of scale seconds.
func (f *fields) seconds(key string, scale float64) *float64 {
	return f.number(key, maxSeconds/scale, scale)
}

// milliseconds reads a time in milliseconds as seconds. The decimal point is
// moved in the text, so that [WriteServe] gives the number back to the last
// digit.
func (f *fields) milliseconds(n format.Node) *float64 {
	v := f.figure(n, maxSeconds*1e3, 1)
	if v == nil {
		return nil
	}
	text := strconv.FormatFloat(*v, 'e', -1, 64)
	if n.Kind() == format.Number {
		raw, _ := n.JSON()
		text = strings.ToLower(string(raw))
	}
	digits, power, _ := strings.Cut(text, "e")
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			f.fail(n.Errorf("want a number of milliseconds, got %s", n.Got()))
			return nil
		}
	}
	seconds, err := strconv.ParseFloat(digits+"e"+strconv.Itoa(exponent-3), 64)
	if err != nil {
		f.fail(n.Errorf("want a number of milliseconds, got %s", n.Got()))
		return nil
	}
	return &seconds
}

// count reads a whole number; nil where there is none.
func (f *fields) count(key string) *int64 {
	n := f.get(key)
	if !n.Present() {
		return nil
	}
	v, err := n.Int(0, maxCount)
	if err != nil {
		f.fail(err)
		return nil
	}
	wide := int64(v)
	return &wide
}

// list reads a list with one function for each element.
func list[T any](f *fields, n format.Node, element func(format.Node) (T, error)) []T {
	if !n.Present() || f.err != nil {
		return nil
	}
	if n.Kind() != format.Array {
		f.fail(n.Errorf("want a list, got %s", n.Got()))
		return nil
	}
	out := make([]T, 0, n.Len())
	for _, e := range n.Elements() {
		v, err := element(e)
		if err != nil {
			f.fail(err)
			return nil
		}
		out = append(out, v)
	}
	return out
}

func secondsOf(n format.Node) (float64, error) {
	v, err := n.Float()
	if err != nil {
		return 0, err
	}
	if !(v >= 0) || v > maxSeconds {
		return 0, n.Errorf("want a number of seconds, got %s", n.Got())
	}
	return v, nil
}

func tokens(n format.Node) (int, error) { return n.Int(0, maxTokens) }

// extra collects the keys that were not asked for.
func (f *fields) extra() map[string]json.RawMessage {
	var extra map[string]json.RawMessage
	for key, n := range f.top.Members() {
		if f.seen[key] || n.Kind() == format.Null {
			continue
		}
		text, ok := n.JSON()
		if !ok {
			f.warn(n, "left out: %s is not valid JSON", n.Got())
			continue
		}
		if extra == nil {
			extra = map[string]json.RawMessage{}
		}
		extra[key] = text
	}
	return extra
}

// agree warns where a figure and what it follows from differ by more than the
// share tolerance of the larger.
func (f *fields) agree(n format.Node, got, want, tolerance float64, what string) {
	if math.Abs(got-want) > tolerance*math.Max(math.Abs(got), math.Abs(want)) {
		f.warn(n, "is %.6g, but %s is %.6g", got, what, want)
	}
}

// objects reads all objects of a JSON text: one, a list of them, or one after
// the other. A cut-off end costs only the object that it is in.
func objects(name string, text []byte, limits format.Limits) (nodes []format.Node, warnings []error, err error) {
	values, err := format.ParseJSON(name, text, limits)
	if err != nil {
		if len(values) == 0 {
			return nil, nil, err
		}
		warnings = append(warnings, err)
	}
	for i, v := range values {
		place := ""
		if len(values) > 1 {
			place = fmt.Sprintf("line %d", v.Line())
		}
		if v.Kind() != format.Array {
			nodes = append(nodes, values[i].At(place))
			continue
		}
		for j, e := range v.Elements() {
			nodes = append(nodes, e.At(fmt.Sprintf("[%d]", j)))
		}
	}
	if len(nodes) == 0 {
		return nil, warnings, &format.Error{File: name, Err: fmt.Errorf("holds no results")}
	}
	return nodes, warnings, nil
}

// open reads a text and holds it to be of one of two kinds: a file of results,
// or what the command printed.
func open(name string, r io.Reader, limits format.Limits, file, stdout Kind) (text []byte, kind Kind, err error) {
	text, err = format.ReadText(name, r, limits)
	if err != nil {
		return nil, "", err
	}
	kind = Detect(text)
	if kind == file || kind == stdout && stdout != KindUnknown {
		return text, kind, nil
	}
	if kind == KindServeStdout {
		err = fmt.Errorf(`the printed summary of "vllm bench serve": want the file that --save-result writes`)
	} else {
		// A broken file is told by its fault rather than by its kind.
		if kind == KindUnknown && (text[0] == '{' || text[0] == '[') {
			if _, err := format.ParseJSON(name, text, limits); err != nil {
				return nil, "", err
			}
		}
		err = fmt.Errorf(`want the result of "vllm bench %s"`, file)
		if kind != KindUnknown {
			err = fmt.Errorf("%w, got that of %q", err, kind)
		}
	}
	return nil, "", &format.Error{File: name, Err: err}
}
