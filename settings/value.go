package settings

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// File is a text with what was found wrong with it.
type File struct {
	name   string
	lines  []string
	body   ast.Node
	faults []*LineError
}

// Open reads a text. What is wrong with it stands in [File.Err].
func Open(name string, text []byte) *File {
	f := &File{name: name}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if err := Check(text); err != nil {
		f.fault(nil, err.Error(), "")
		return f
	}
	f.lines = strings.Split(string(text), "\n")
	body, at, fault := Body(text)
	switch {
	case fault != "":
		f.fault(at, fault, "")
	case body == nil || body.Type() == ast.NullType:
		f.fault(nil, "the file is empty", "")
	default:
		f.body = body
	}
	return f
}

// Top is the value that the file holds.
func (f *File) Top() Value { return Value{file: f, node: f.body} }

// Err is all faults in the order of the text, a [*FileError]; nil without one.
func (f *File) Err() error {
	if len(f.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(f.faults, func(a, b *LineError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &FileError{Faults: f.faults}
}

// maxFaults bounds the faults that are kept of one file.
const maxFaults = 1000

func (f *File) fault(at *token.Token, text, advice string) {
	if len(f.faults) >= maxFaults {
		return
	}
	fault := &LineError{File: f.name, Text: text, Advice: advice}
	if at != nil && at.Position != nil {
		fault.Line, fault.Column = at.Position.Line, max(at.Position.Column, 1)
		fault.Excerpt = Excerpt(f.lines, fault.Line, fault.Column)
	}
	f.faults = append(f.faults, fault)
}

// Value is a place in a file and what stands there.
type Value struct {
	file *File
	node ast.Node     // nil where nothing stands there
	near *token.Token // the mapping that lacks it
	name string       // its key; empty at the top and in lists
}

// Present reports whether something stands there; null does not.
func (v Value) Present() bool { return v.node != nil && v.node.Type() != ast.NullType }

// Fault notes that something is wrong with the value. The advice may be empty.
func (v Value) Fault(advice, format string, args ...any) {
	at := v.near
	if v.node != nil {
		at = Start(v.node)
	}
	text := fmt.Sprintf(format, args...)
	if v.name != "" {
		text = v.name + ": " + text
	}
	v.file.fault(at, text, advice)
}

// broken reports whether nothing can be read, and notes why where the file is
// not already known to be broken as a whole.
func (v Value) broken(want string) bool {
	if v.node != nil {
		return false
	}
	if v.file.body != nil {
		v.Fault("", "want %s, got nothing", want)
	}
	return true
}

// Text reads a text.
func (v Value) Text() string {
	if v.broken("a text") {
		return ""
	}
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return strings.TrimRight(n.Value.Value, "\n")
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		v.Fault("put it in quotes", "want a text, got %s", Describe(v.node))
		return ""
	}
	v.Fault("", "want a text, got %s", Describe(v.node))
	return ""
}

// Scalar is a text or a number as it is written; ok is false for all else.
func (v Value) Scalar() (text string, ok bool) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode:
		return v.node.GetToken().Value, true
	}
	return "", false
}

// Number reads a finite number.
func (v Value) Number() float64 {
	if v.broken("a number") {
		return 0
	}
	text, ok := v.Scalar()
	number, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if !ok || err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
		v.Fault("", "want a number, got %s", Describe(v.node))
		return 0
	}
	return number
}

// Whole reads a whole number from a least to a most one.
func (v Value) Whole(least, most int) int {
	before := len(v.file.faults)
	number := v.Number()
	if len(v.file.faults) > before || v.node == nil {
		return least
	}
	if number != math.Trunc(number) || number < float64(least) || number > float64(most) {
		v.Fault("", "want a whole number from %d to %d, got %s", least, most, Describe(v.node))
		return least
	}
	return int(number)
}

// Truth reads true or false.
func (v Value) Truth() bool {
	if v.broken("true or false") {
		return false
	}
	n, ok := v.node.(*ast.BoolNode)
	if !ok {
		v.Fault("", "want true or false, got %s", Describe(v.node))
		return false
	}
	return n.Value
}

// IsList reports whether the value is a list, IsMapping whether it has fields.
func (v Value) IsList() bool { _, ok := v.node.(*ast.SequenceNode); return ok }

// List reads a list of one or more values.
func (v Value) List() []Value {
	if v.broken("a list") {
		return nil
	}
	list, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.Fault("", "want a list, got %s", Describe(v.node))
		return nil
	}
	if len(list.Values) == 0 {
		v.Fault("", "the list is empty: want at least one value")
	}
	values := make([]Value, len(list.Values))
	for i, n := range list.Values {
		values[i] = Value{file: v.file, node: n}
	}
	return values
}

// Fields are the values of a mapping by their keys.
type Fields struct {
	of     Value
	values map[string]Value
}

// Get is the value of a key; one that is not there is not Present.
func (f Fields) Get(key string) Value {
	if v, ok := f.values[key]; ok {
		return v
	}
	near := f.of.near
	if f.of.node != nil {
		near = Start(f.of.node)
	}
	return Value{file: f.of.file, near: near, name: key}
}

// Has reports whether a key is there with a value other than null.
func (f Fields) Has(key string) bool { return f.Get(key).Present() }

// Fields reads a mapping of known keys. Another key is a fault, and so is one
// that stands twice.
func (v Value) Fields(known ...string) Fields {
	f := Fields{of: v, values: map[string]Value{}}
	if v.broken("a mapping") {
		return f
	}
	pairs, ok := Pairs(v.node)
	if !ok {
		v.Fault("", "want a mapping, got %s", Describe(v.node))
		return f
	}
	for _, pair := range pairs {
		key := KeyOf(pair)
		_, twice := f.values[key]
		switch {
		case !slices.Contains(known, key):
			v.file.fault(pair.Key.GetToken(), fmt.Sprintf("unknown field %q", Clip(key)), "nearest known: "+Nearest(key, known))
		case twice:
			v.file.fault(pair.Key.GetToken(), fmt.Sprintf("%q stands twice", key), "")
		default:
			value := Value{file: v.file, node: pair.Value, near: pair.Key.GetToken(), name: key}
			if !value.Present() {
				value.node = nil
			}
			f.values[key] = value
		}
	}
	return f
}

// Nearest is the known word with the fewest letters to change; the first of
// several.
func Nearest(word string, known []string) string {
	const compared = 64 // bytes
	word = word[:min(len(word), compared)]
	best, least := "", math.MaxInt
	for _, k := range known {
		if d := EditDistance(word, k[:min(len(k), compared)]); d < least {
			best, least = k, d
		}
	}
	return best
}

// EditDistance is the Levenshtein distance of two words in bytes: how many are to
// be added, taken away or changed.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
