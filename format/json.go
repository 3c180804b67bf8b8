package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is the kind of a JSON value.
type Kind uint8

// The kinds. NotANumber stands for the bare tokens NaN, Infinity and
// -Infinity.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
	NotANumber
)

// String names the kind as an error message does.
func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "an object", "not a finite number"}[k]
}

// value is a parsed value: its place in the text, and its parts.
type value struct {
	kind       Kind
	start, end int32
	in         *parts // of an object or array that is not empty
}

// parts is what stands in an object or array.
type parts struct {
	keys   []string // of an object, beside values
	values []value
}

// document is what all nodes of a file share.
type document struct {
	file string
	text []byte
}

// Node is a JSON value with its place in a file. The zero Node is absent.
type Node struct {
	doc  *document
	v    *value
	path string
	line int // of a value at the top; 0 for others
}

// ParseJSON parses all values of a text, one after the other. With a fault it
// returns the values before it and an [*Error], whose Truncated tells of a
// text that just ends too early.
func ParseJSON(file string, text []byte, limits Limits) ([]Node, error) {
	limits = limits.WithDefaults()
	if int64(len(text)) > min(limits.Bytes, math.MaxInt32) {
		return nil, &Error{File: file, Err: fmt.Errorf("text of %d bytes: want at most %d", len(text), limits.Bytes)}
	}
	p := &parser{text: text, depth: limits.Depth, values: limits.Values}
	doc := &document{file: file, text: text}
	var nodes []Node
	line, counted := 1, 0
	for {
		p.blanks()
		line += bytes.Count(text[counted:p.at], []byte{'\n'})
		counted = p.at
		if p.at == len(text) {
			return nodes, nil
		}
		v := new(value)
		if err := p.value(v, 0); err != nil {
			cut, at := errors.Is(err, errEnd), p.at
			if cut {
				at = len(bytes.TrimRight(text, " \t\r\n")) // the last line that holds something
			}
			return nodes, &Error{File: file, Place: position(text, at), Truncated: cut, Err: err}
		}
		nodes = append(nodes, Node{doc: doc, v: v, line: line})
	}
}

var errEnd = errors.New("the text ends in the middle of a value")

type parser struct {
	text   []byte
	at     int
	depth  int
	values int
}

func (p *parser) blanks() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) value(v *value, depth int) error {
	if p.at >= len(p.text) {
		return errEnd
	}
	if depth > p.depth {
		return fmt.Errorf("values nest deeper than %d", p.depth)
	}
	p.values--
	if p.values < 0 {
		return errors.New("too many values in one file")
	}
	v.start = int32(p.at)
	var err error
	switch c := p.text[p.at]; {
	case c == '{':
		err = p.object(v, depth)
	case c == '[':
		err = p.array(v, depth)
	case c == '"':
		v.kind = String
		err = p.string()
	case c == '-' || c >= '0' && c <= '9':
		err = p.number(v)
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		err = p.word(v)
	default:
		r, _ := utf8.DecodeRune(p.text[p.at:])
		err = fmt.Errorf("%q begins no value", r)
	}
	v.end = int32(p.at)
	return err
}

// word reads true, false, null and the tokens that are no numbers.
func (p *parser) word(v *value) error {
	start := p.at
	end := start
	for end < len(p.text) && (p.text[end] >= 'a' && p.text[end] <= 'z' || p.text[end] >= 'A' && p.text[end] <= 'Z') {
		end++
	}
	word := string(p.text[start:min(end, start+16)])
	switch word {
	case "true", "false":
		v.kind = Bool
	case "null":
		v.kind = Null
	case "NaN", "nan", "Infinity", "inf", "Inf":
		v.kind = NotANumber
	default:
		if end == len(p.text) {
			for _, known := range []string{"true", "false", "null", "NaN", "Infinity"} {
				if strings.HasPrefix(known, word) {
					p.at = end
					return errEnd
				}
			}
		}
		return fmt.Errorf("%q begins no value", word)
	}
	p.at = end
	return nil
}

// number checks the grammar of RFC 8259, section 6.
func (p *parser) number(v *value) error {
	v.kind = Number
	digits := func() (int, error) {
		n := 0
		for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
			n++
		}
		if n == 0 && p.at == len(p.text) {
			return 0, errEnd
		}
		if n == 0 {
			return 0, fmt.Errorf("malformed number %s", excerpt(p.text[v.start:min(p.at+1, len(p.text))]))
		}
		return n, nil
	}
	if p.text[p.at] == '-' {
		p.at++
		if p.at < len(p.text) && p.text[p.at] == 'I' {
			if err := p.word(v); err != nil {
				return err
			}
			return nil
		}
	}
	first := p.at
	n, err := digits()
	if err != nil {
		return err
	}
	if n > 1 && p.text[first] == '0' {
		return fmt.Errorf("malformed number %s: leading zero", excerpt(p.text[v.start:p.at]))
	}
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		if _, err := digits(); err != nil {
			return err
		}
	}
	if p.at < len(p.text) && (p.text[p.at] == 'e' || p.text[p.at] == 'E') {
		p.at++
		if p.at < len(p.text) && (p.text[p.at] == '+' || p.text[p.at] == '-') {
			p.at++
		}
		if _, err := digits(); err != nil {
			return err
		}
	}
	if p.at < len(p.text) && (p.text[p.at] >= 'a' && p.text[p.at] <= 'z' || p.text[p.at] >= 'A' && p.text[p.at] <= 'Z' || p.text[p.at] == '.') {
		return fmt.Errorf("malformed number %s", excerpt(p.text[v.start:p.at+1]))
	}
	return nil
}

// string steps over a string; its text is decoded when it is asked for.
func (p *parser) string() error {
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return nil
		case c == '\\':
			p.at++
			if p.at < len(p.text) && !strings.ContainsRune(`"\/bfnrtu`, rune(p.text[p.at])) {
				return fmt.Errorf("unknown escape \\%c in a string", rune(p.text[p.at]))
			}
		case c < ' ':
			return fmt.Errorf("control character 0x%02x in a string", c)
		}
	}
	p.at = len(p.text)
	return errEnd
}

func (p *parser) array(v *value, depth int) error {
	v.kind = Array
	p.at++
	p.blanks()
	if p.at < len(p.text) && p.text[p.at] == ']' {
		p.at++
		return nil
	}
	in := &parts{}
	v.in = in
	for {
		p.blanks()
		in.values = append(in.values, value{})
		if err := p.value(&in.values[len(in.values)-1], depth+1); err != nil {
			return err
		}
		if more, err := p.comma(']'); err != nil || !more {
			return err
		}
	}
}

// manyKeys is the size from which an object's keys are looked up in a map.
const manyKeys = 32

func (p *parser) object(v *value, depth int) error {
	v.kind = Object
	p.at++
	p.blanks()
	if p.at < len(p.text) && p.text[p.at] == '}' {
		p.at++
		return nil
	}
	in := &parts{}
	v.in = in
	var seen map[string]bool // only for objects of many keys
	for {
		p.blanks()
		if p.at >= len(p.text) {
			return errEnd
		}
		if p.text[p.at] != '"' {
			r, _ := utf8.DecodeRune(p.text[p.at:])
			return fmt.Errorf("want a key in quotes, got %q", r)
		}
		start := p.at
		if err := p.string(); err != nil {
			return err
		}
		var key string
		if err := json.Unmarshal(p.text[start:p.at], &key); err != nil {
			p.at = start
			return fmt.Errorf("malformed key: %w", err)
		}
		if len(in.keys) == manyKeys {
			seen = make(map[string]bool, 4*manyKeys)
			for _, k := range in.keys {
				seen[k] = true
			}
		}
		if seen[key] || seen == nil && slices.Contains(in.keys, key) {
			p.at = start
			return fmt.Errorf("key %s stands twice in one object", excerpt([]byte(strconv.Quote(key))))
		}
		if seen != nil {
			seen[key] = true
		}
		p.blanks()
		if p.at >= len(p.text) {
			return errEnd
		}
		if p.text[p.at] != ':' {
			return fmt.Errorf("want a colon after key %s", excerpt([]byte(strconv.Quote(key))))
		}
		p.at++
		p.blanks()
		in.keys = append(in.keys, key)
		in.values = append(in.values, value{})
		if err := p.value(&in.values[len(in.values)-1], depth+1); err != nil {
			return err
		}
		if more, err := p.comma('}'); err != nil || !more {
			return err
		}
	}
}

// comma reads what stands between two parts: a comma, or the end.
func (p *parser) comma(end byte) (more bool, err error) {
	before := p.at
	p.blanks()
	if p.at >= len(p.text) {
		return false, errEnd
	}
	switch p.text[p.at] {
	case ',':
		p.at++
		return true, nil
	case end:
		p.at++
		return false, nil
	}
	r, _ := utf8.DecodeRune(p.text[p.at:])
	if p.text[p.at] == '{' && bytes.IndexByte(p.text[before:p.at], '\n') >= 0 {
		// The next line begins a value of its own: this one was cut.
		p.at = before
		return false, fmt.Errorf("want a comma or %q, got the end of the line", end)
	}
	return false, fmt.Errorf("want a comma or %q, got %q", end, r)
}

// excerpt shortens a text for an error message.
func excerpt(text []byte) string {
	const most = 40
	text = bytes.Join(bytes.Fields(text[:min(len(text), 4*most)]), []byte{' '})
	if len(text) <= most {
		return string(text)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return string(text[:cut]) + "…"
}
