package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth is the deepest nesting of JSON that is read. A config.json nests
// four or five deep.
const maxDepth = 64

// checkText refuses what is not the text of one JSON object before a parser
// sees it: other encodings, compressed data, binary data, deep nesting.
func checkText(file string, text []byte) error {
	fail := func(offset int, problem string) error {
		line, column := position(text, offset)
		return &FileError{File: file, Line: line, Column: column, Problem: problem}
	}
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return &FileError{File: file, Problem: "the file is empty"}
	case bytes.HasPrefix(text, []byte{0x1f, 0x8b}):
		return &FileError{File: file, Problem: "the file is gzip-compressed: want JSON text"}
	case bytes.HasPrefix(text, []byte("PK\x03\x04")):
		return &FileError{File: file, Problem: "the file is a zip archive: want JSON text"}
	case bytes.HasPrefix(text, []byte("GGUF")):
		return &FileError{File: file, Problem: "the file is a GGUF model without the .gguf ending: want JSON text"}
	case bytes.HasPrefix(text, []byte{0xff, 0xfe}), bytes.HasPrefix(text, []byte{0xfe, 0xff}):
		return &FileError{File: file, Problem: "the text is UTF-16: want UTF-8"}
	case bytes.HasPrefix(text, []byte{0xef, 0xbb, 0xbf}):
		return &FileError{File: file, Problem: "the text starts with a byte order mark, which JSON does not allow"}
	case bytes.HasPrefix(text, []byte("version https://git-lfs")):
		return &FileError{File: file, Problem: "the file is a Git LFS pointer: fetch the real file with git lfs pull"}
	}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return fail(i, "a zero byte: the file is binary, want JSON text")
	}
	if !utf8.Valid(text) {
		for i := 0; i < len(text); {
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				return fail(i, "the text is not UTF-8")
			}
			i += size
		}
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			depth++
			if depth > maxDepth {
				return fail(i, fmt.Sprintf("nested deeper than %d levels", maxDepth))
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return nil
}

// position turns a byte offset into a line and a column, both from 1; the
// column counts bytes.
func position(text []byte, offset int) (line, column int) {
	offset = min(max(offset, 0), len(text))
	before := text[:offset]
	return bytes.Count(before, []byte("\n")) + 1, offset - bytes.LastIndexByte(before, '\n')
}

// notes collects what the readers of one file say: the first fault, and the
// warnings.
type notes struct {
	err      error
	warnings []string
}

// object reads the fields of one JSON object. The first fault stays in notes
// and later reads return zero values, so that a reader of many fields needs
// to look once, at the end.
type object struct {
	file   string
	text   []byte   // the whole file, to find places
	path   []string // from the root to this object
	fields map[string]json.RawMessage
	notes  *notes
}

// parseObject reads the text of one JSON object.
func parseObject(file string, text []byte) (*object, error) {
	if err := checkText(file, text); err != nil {
		return nil, err
	}
	o := &object{file: file, text: text, notes: &notes{}}
	if err := json.Unmarshal(text, &o.fields); err != nil {
		return nil, jsonError(file, text, err)
	}
	if o.fields == nil {
		return nil, &FileError{File: file, Line: 1, Column: 1, Problem: "the text is null: want an object"}
	}
	return o, nil
}

// jsonError places an error of encoding/json.
func jsonError(file string, text []byte, err error) error {
	fault := &FileError{File: file, Problem: "not valid JSON", Err: err}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at := int(min(syntax.Offset, int64(len(text)))) - 1
		fault.Line, fault.Column = position(text, at)
		rest := text[max(at, 0):]
		for _, word := range []string{"NaN", "Infinity"} {
			// A minus before Infinity is read before the fault.
			if bytes.HasPrefix(rest, []byte(word)) {
				fault.Problem, fault.Err = word+" is not a JSON number", nil
			}
		}
		if strings.Contains(syntax.Error(), "unexpected end") {
			fault.Problem, fault.Err = "the text ends early: the file is cut off", nil
		}
	} else if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		fault.Line, fault.Column = position(text, int(wrong.Offset)-1)
		fault.Problem, fault.Err = "the text is "+article(wrong.Value)+": want an object", nil
	}
	return fault
}

func article(kind string) string {
	kind, _, _ = strings.Cut(kind, " ")
	switch kind {
	case "array", "object":
		return "an " + kind
	case "bool":
		return "true or false"
	}
	return "a " + kind
}

// locate finds where the value at path starts; ok is false where there is
// none. It walks the tokens and does not recurse.
func locate(text []byte, path []string) (line, column int, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var at []string // keys of the open objects
	type frame struct{ object, key bool }
	var open []frame
	for {
		token, err := dec.Token()
		if err != nil {
			return 0, 0, false
		}
		top := len(open) - 1
		if delim, isDelim := token.(json.Delim); isDelim {
			switch delim {
			case '{', '[':
				open = append(open, frame{object: delim == '{', key: delim == '{'})
				at = append(at, "")
			default:
				open, at = open[:top], at[:len(at)-1]
				if top > 0 && open[top-1].object {
					open[top-1].key = true
				}
			}
			continue
		}
		if top < 0 || !open[top].object {
			continue
		}
		if !open[top].key {
			open[top].key = true
			continue
		}
		at[top], _ = token.(string)
		open[top].key = false
		if slices.Equal(at, path) {
			offset := int(dec.InputOffset())
			for offset < len(text) && strings.IndexByte(" \t\r\n:", text[offset]) >= 0 {
				offset++
			}
			line, column = position(text, offset)
			return line, column, true
		}
	}
}

// fail keeps the first fault, placed at the field.
func (o *object) fail(key, problem string) {
	if o.notes.err != nil {
		return
	}
	path := append(slices.Clone(o.path), key)
	fault := &FileError{File: o.file, Field: strings.Join(path, "."), Problem: problem}
	if line, column, ok := locate(o.text, path); ok {
		fault.Line, fault.Column = line, column
	}
	o.notes.err = fault
}

// unsupported keeps the first fault: a variant that is not known.
func (o *object) unsupported(key, name, missing string) {
	if o.notes.err == nil {
		o.notes.err = &UnsupportedError{File: o.file, Key: strings.Join(append(slices.Clone(o.path), key), "."), Name: name, Missing: missing}
	}
}

func (o *object) warnf(format string, args ...any) {
	o.notes.warnings = append(o.notes.warnings, fmt.Sprintf(format, args...))
}

// present reports whether a key stands in the object, be it null.
func (o *object) present(key string) bool {
	_, ok := o.fields[key]
	return ok
}

// has reports whether a key has a value that is not null.
func (o *object) has(key string) bool {
	raw, ok := o.fields[key]
	return ok && string(raw) != "null"
}

// integer reads a whole number between low and high; the number may be
// written as 4096.0.
func (o *object) integer(key string, low, high int) int {
	raw, ok := o.fields[key]
	if !ok {
		o.fail(key, "is missing")
		return 0
	}
	return o.integerValue(key, raw, low, high)
}

func (o *object) integerValue(key string, raw json.RawMessage, low, high int) int {
	text := string(raw)
	if text == "" || (text[0] != '-' && (text[0] < '0' || text[0] > '9')) {
		o.fail(key, "is "+shorten(text)+": want a whole number")
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(text, 64)
		switch {
		case ferr != nil || math.Abs(f) > 1<<53:
			o.fail(key, fmt.Sprintf("is %s: want %d to %d", shorten(text), low, high))
			return 0
		case f != math.Trunc(f):
			o.fail(key, "is "+shorten(text)+": want a whole number")
			return 0
		}
		n = int64(f)
	}
	if n < int64(low) || n > int64(high) {
		o.fail(key, fmt.Sprintf("is %s: want %d to %d", shorten(text), low, high))
		return 0
	}
	return int(n)
}

// integerOr is integer with a value for an absent or null key.
func (o *object) integerOr(key string, absent, low, high int) int {
	if !o.has(key) {
		return absent
	}
	return o.integer(key, low, high)
}

// flag reads true or false, with a value for an absent or null key.
func (o *object) flag(key string, absent bool) bool {
	if !o.has(key) {
		return absent
	}
	switch string(o.fields[key]) {
	case "true":
		return true
	case "false":
		return false
	}
	o.fail(key, "is "+shorten(string(o.fields[key]))+": want true or false")
	return false
}

// word reads a string; an absent or null key gives "".
func (o *object) word(key string) string {
	if !o.has(key) {
		return ""
	}
	var s string
	if raw := o.fields[key]; json.Unmarshal(raw, &s) != nil {
		o.fail(key, "is "+shorten(string(raw))+": want a string")
	}
	return s
}

// list reads an array; an absent or null key gives nil.
func (o *object) list(key string) []json.RawMessage {
	if !o.has(key) {
		return nil
	}
	var items []json.RawMessage
	if raw := o.fields[key]; json.Unmarshal(raw, &items) != nil {
		o.fail(key, "is "+shorten(string(raw))+": want a list")
	}
	return items
}

// integers reads an array of whole numbers.
func (o *object) integers(key string, low, high int) []int {
	items := o.list(key)
	numbers := make([]int, 0, len(items))
	for _, raw := range items {
		numbers = append(numbers, o.integerValue(key, raw, low, high))
	}
	return numbers
}

// child reads a nested object; an absent or null key gives nil.
func (o *object) child(key string) *object {
	if !o.has(key) {
		return nil
	}
	c := &object{file: o.file, text: o.text, path: append(slices.Clone(o.path), key), notes: o.notes}
	if raw := o.fields[key]; json.Unmarshal(raw, &c.fields) != nil || c.fields == nil {
		o.fail(key, "is "+shorten(string(raw))+": want an object")
		return nil
	}
	return c
}

// sortedKeys lists the keys of an object in order.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
