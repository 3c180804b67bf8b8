package campaign

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/llmprof/llmprof/unit"
)

// Bounds of a file. The YAML parser's time grows with the square of the lines
// and its stack with the nesting.
const (
	maxBytes = 1 << 20
	maxLines = 10_000
	maxDepth = 16
	maxLine  = 1 << 16 // bytes
)

// checkText refuses what the YAML parser would spend too much time or stack
// on, and what is no text.
func checkText(text []byte) error {
	switch {
	case len(text) > maxBytes:
		return fmt.Errorf("the file has %d bytes: want at most %d", len(text), maxBytes)
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return errors.New("the file is not UTF-8 text")
	}
	open, line := 0, 0
	for row := range bytes.Lines(text) {
		line++
		opened := bytes.Count(row, []byte("[")) + bytes.Count(row, []byte("{"))
		closed := bytes.Count(row, []byte("]")) + bytes.Count(row, []byte("}"))
		open = max(0, open+opened-closed)
		indent := len(row) - len(bytes.TrimLeft(row, " \t"))
		switch {
		case line > maxLines:
			return fmt.Errorf("the file has more than %d lines", maxLines)
		case len(row) > maxLine:
			return fmt.Errorf("line %d has %d bytes: want at most %d", line, len(row), maxLine)
		case max(open, opened, levels(row)) > maxDepth, indent > 8*maxDepth:
			return fmt.Errorf("line %d is nested deeper than %d levels", line, maxDepth)
		}
	}
	return nil
}

// levels counts the places of a row that can open a level of a block.
func levels(row []byte) int {
	n := 0
	for i, b := range row {
		if b == '-' || b == '?' || b == ':' {
			if i+1 == len(row) || unicode.IsSpace(rune(row[i+1])) {
				n++
			}
		}
	}
	return n
}

// parseYAML returns the body of the only document; nil where the file is
// empty. A key that stands twice is left to the caller.
func parseYAML(text []byte) (ast.Node, *misread) {
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var located yaml.Error
		if errors.As(err, &located) && located.GetToken() != nil && located.GetToken().Position != nil {
			at := located.GetToken()
			return nil, &misread{at: at, text: fmt.Sprintf("not valid YAML in line %d: %s", at.Position.Line, located.GetMessage())}
		}
		return nil, &misread{text: fmt.Sprintf("not valid YAML: %v", err)}
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case body != nil:
			return nil, &misread{at: start(doc.Body), text: "a second document: want one"}
		default:
			body = doc.Body
		}
	}
	return body, nil
}

// misread says that a value is not what its field takes.
type misread struct {
	at           *token.Token
	text, advice string
}

func wrong(node ast.Node, format string, args ...any) []misread {
	return []misread{{at: start(node), text: fmt.Sprintf(format, args...)}}
}

// start is the first token of a node.
func start(node ast.Node) *token.Token {
	switch n := node.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return node.GetToken()
}

// describe says what a value is, for an error.
func describe(node ast.Node) string {
	switch n := node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + clip(node.GetToken().Value)
	case *ast.BoolNode:
		return node.GetToken().Value
	case *ast.StringNode:
		return "the text " + strconv.Quote(clip(n.Value))
	case *ast.LiteralNode:
		return "a text of several lines"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.NullNode:
		return "nothing"
	case *ast.TagNode:
		return "a tag"
	}
	return "something else"
}

// clip shortens a text for an error.
func clip(s string) string {
	const longest = 60
	if runes := []rune(s); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return s
}

// printable reports whether a terminal shows r and is not steered by it.
func printable(r rune) bool { return unicode.IsPrint(r) }

// readText reads a text.
func readText(node ast.Node) (string, []misread) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return strings.TrimRight(n.Value.Value, "\n"), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return "", []misread{{at: start(node), text: "want a text, got " + describe(node), advice: "put it in quotes"}}
	}
	return "", wrong(node, "want a text, got %s", describe(node))
}

// readNumber reads a number, which may stand in quotes.
func readNumber(node ast.Node) (float64, []misread) {
	switch n := node.(type) {
	case *ast.IntegerNode:
		switch v := n.Value.(type) {
		case int64:
			return float64(v), nil
		case uint64:
			return float64(v), nil
		}
	case *ast.FloatNode:
		return n.Value, nil
	case *ast.StringNode:
		if v, err := strconv.ParseFloat(strings.TrimSpace(n.Value), 64); err == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v, nil
		}
	}
	return 0, wrong(node, "want a number, got %s", describe(node))
}

// readWhole reads a whole number; a text such as "4k" or "4Ki" will do.
func readWhole(node ast.Node) (int, []misread) {
	if text, ok := node.(*ast.StringNode); ok {
		if n, err := unit.ParseCount(text.Value); err == nil {
			return n, nil
		}
	}
	v, bad := readNumber(node)
	if bad != nil || v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return 0, wrong(node, "want a whole number, got %s", describe(node))
	}
	return int(v), nil
}

// readTruth reads true or false.
func readTruth(node ast.Node) (bool, []misread) {
	if n, ok := node.(*ast.BoolNode); ok {
		return n.Value, nil
	}
	return false, wrong(node, "want true or false, got %s", describe(node))
}

// readList reads a list with one or more values.
func readList[T any](node ast.Node, element func(ast.Node) (T, []misread)) ([]T, []misread) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		bad := wrong(node, "want a list, got %s", describe(node))
		if _, single := element(node); single == nil {
			bad[0].advice = fmt.Sprintf("write [%s]", clip(node.GetToken().Value))
		}
		return nil, bad
	}
	if len(list.Values) == 0 {
		return nil, wrong(node, "the list is empty: want at least one value")
	}
	values := make([]T, 0, len(list.Values))
	var faults []misread
	for _, n := range list.Values {
		v, bad := element(n)
		faults = append(faults, bad...)
		values = append(values, v)
	}
	return values, faults
}

// readDevices reads "0,1", 0, or a list of indices and ids.
func readDevices(node ast.Node) ([]string, []misread) {
	one := func(n ast.Node) (string, []misread) {
		switch n.(type) {
		case *ast.IntegerNode, *ast.StringNode:
			return strings.TrimSpace(n.GetToken().Value), nil
		}
		return "", wrong(n, "want an index or an id of a device, got %s", describe(n))
	}
	if _, ok := node.(*ast.SequenceNode); ok {
		return readList(node, one)
	}
	text, bad := one(node)
	if bad != nil {
		return nil, wrong(node, `want devices, such as "0,1", got %s`, describe(node))
	}
	ids := strings.Split(text, ",")
	for i := range ids {
		ids[i] = strings.TrimSpace(ids[i])
	}
	return ids, nil
}

// readPairs reads a mapping of names to texts or numbers.
func readPairs(node ast.Node) (map[string]string, []misread) {
	fields, ok := pairs(node)
	if !ok {
		return nil, wrong(node, "want a mapping, got %s", describe(node))
	}
	values := make(map[string]string, len(fields))
	var faults []misread
	for _, f := range fields {
		name := keyOf(f)
		if _, twice := values[name]; twice {
			faults = append(faults, misread{at: f.Key.GetToken(), text: fmt.Sprintf("%q stands twice", clip(name))})
		}
		switch f.Value.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			values[name] = f.Value.GetToken().Value
		default:
			faults = append(faults, wrong(f.Value, "want a text, got %s", describe(f.Value))...)
		}
	}
	return values, faults
}

// pairs returns the fields of a mapping.
func pairs(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// keyOf is the name of a field.
func keyOf(f *ast.MappingValueNode) string {
	if key, ok := f.Key.(*ast.StringNode); ok {
		return key.Value
	}
	return f.Key.GetToken().Value
}
