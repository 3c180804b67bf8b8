package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// At returns the node under another path, for values that a file lists
// without a name, such as the lines of JSON Lines.
func (n Node) At(path string) Node {
	n.path = path
	return n
}

// Present reports whether there is a value at all. JSON's null is one.
func (n Node) Present() bool { return n.v != nil }

// Kind is the kind of the value; Null for an absent one.
func (n Node) Kind() Kind {
	if n.v == nil {
		return Null
	}
	return n.v.kind
}

// Path names the place: "results[3].prefill_latency".
func (n Node) Path() string { return n.path }

// Line is the line of the text on which the value begins, counted from 1.
func (n Node) Line() int {
	if n.v == nil || n.line > 0 {
		return n.line
	}
	return 1 + bytes.Count(n.doc.text[:n.v.start], []byte{'\n'})
}

// Get returns the value of a key; it is absent where the key is, where n is
// no object, and where the value is null.
func (n Node) Get(key string) Node {
	out := Node{doc: n.doc, path: join(n.path, key)}
	if n.Kind() != Object || n.v.in == nil {
		return out
	}
	if i := slices.Index(n.v.in.keys, key); i >= 0 && n.v.in.values[i].kind != Null {
		out.v = &n.v.in.values[i]
	}
	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Has reports whether the object has the key, also with a null value.
func (n Node) Has(key string) bool {
	return n.Kind() == Object && n.v.in != nil && slices.Contains(n.v.in.keys, key)
}

// Elements yields the parts of an array with their index.
func (n Node) Elements() iter.Seq2[int, Node] {
	return func(yield func(int, Node) bool) {
		if n.Kind() != Array || n.v.in == nil {
			return
		}
		for i := range n.v.in.values {
			if !yield(i, Node{doc: n.doc, v: &n.v.in.values[i], path: n.path + "[" + strconv.Itoa(i) + "]"}) {
				return
			}
		}
	}
}

// Len is the number of parts of an array or object.
func (n Node) Len() int {
	if n.v == nil || n.v.in == nil {
		return 0
	}
	return len(n.v.in.values)
}

// Members yields keys and values of an object in the order of the text.
func (n Node) Members() iter.Seq2[string, Node] {
	return func(yield func(string, Node) bool) {
		if n.Kind() != Object || n.v.in == nil {
			return
		}
		for i, key := range n.v.in.keys {
			if !yield(key, Node{doc: n.doc, v: &n.v.in.values[i], path: join(n.path, key)}) {
				return
			}
		}
	}
}

// raw is the text of the value.
func (n Node) raw() []byte { return n.doc.text[n.v.start:n.v.end] }

// Text returns the value of a string.
func (n Node) Text() (string, error) {
	if n.Kind() != String {
		return "", n.Errorf("want a string, got %s", n.Got())
	}
	var s string
	if err := json.Unmarshal(n.raw(), &s); err != nil {
		return "", n.Errorf("malformed string: %v", err)
	}
	return s, nil
}

// Float returns a number, which may stand in quotes. NaN and infinities come
// back as such, without an error; a number too large for a float64 is one.
func (n Node) Float() (float64, error) {
	var text string
	switch n.Kind() {
	case Number, NotANumber:
		text = string(n.raw())
	case String:
		s, err := n.Text()
		if err != nil {
			return 0, err
		}
		text = strings.TrimSpace(s)
		if strings.ContainsAny(text, "xXpP_") {
			return 0, n.Errorf("want a number, got %s", n.Got())
		}
	default:
		return 0, n.Errorf("want a number, got %s", n.Got())
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && math.IsInf(f, 0) {
		return 0, n.Errorf("number %s is too large", excerpt([]byte(text)))
	}
	if err != nil {
		return 0, n.Errorf("want a number, got %s", n.Got())
	}
	return f, nil
}

// Int returns a whole number between least and most, which may stand in
// quotes or be written as 32.0.
func (n Node) Int(least, most int) (int, error) {
	f, err := n.Float()
	if err != nil {
		return 0, err
	}
	if f != math.Trunc(f) || math.IsNaN(f) || f < float64(least) || f > float64(most) {
		return 0, n.Errorf("want a whole number from %d to %d, got %s", least, most, n.Got())
	}
	return int(f), nil
}

// Got describes the value for an error message: what stands there, shortened.
func (n Node) Got() string {
	switch n.Kind() {
	case Array:
		return fmt.Sprintf("a list of %d", n.Len())
	case Object:
		return fmt.Sprintf("an object of %d keys", n.Len())
	case Null:
		if n.v == nil {
			return "nothing"
		}
	}
	return excerpt(n.raw())
}

// JSON returns the value as compact JSON. ok is false where it holds NaN or
// an infinity, which JSON cannot, or a string with a malformed escape.
func (n Node) JSON() (text json.RawMessage, ok bool) {
	var b bytes.Buffer
	if n.v == nil || json.Compact(&b, n.raw()) != nil {
		return nil, false
	}
	return b.Bytes(), true
}

// Errorf returns an [*Error] at the place of the value.
func (n Node) Errorf(format string, args ...any) error {
	e := &Error{Place: n.path, Err: fmt.Errorf(format, args...)}
	if n.doc != nil {
		e.File = n.doc.file
	}
	if e.Place == "" && n.v != nil {
		e.Place = position(n.doc.text, int(n.v.start))
	}
	return e
}
