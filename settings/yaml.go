package settings

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxBytes is the longest text in bytes.
const MaxBytes = 1 << 20

// Bounds of a text. The YAML parser's time grows with the square of the lines
// and its stack with the nesting.
const (
	maxLines = 10_000
	maxDepth = 16
	maxLine  = 1 << 16 // bytes
)

// Check refuses what the YAML parser would spend too much time or stack
// on, and what is no text.
func Check(text []byte) error {
	switch {
	case len(text) > MaxBytes:
		return fmt.Errorf("the file has %d bytes: want at most %d", len(text), MaxBytes)
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

// Body returns the body of the only document; nil where the file is empty. A
// key that stands twice is left to the caller. The text has passed [Check]. A
// fault has the token at which it stands, nil where the file as a whole is meant.
func Body(text []byte) (body ast.Node, at *token.Token, fault string) {
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var located yaml.Error
		if errors.As(err, &located) && located.GetToken() != nil && located.GetToken().Position != nil {
			at := located.GetToken()
			return nil, at, fmt.Sprintf("not valid YAML in line %d: %s", at.Position.Line, located.GetMessage())
		}
		return nil, nil, fmt.Sprintf("not valid YAML: %v", err)
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.DirectiveType:
		case body != nil:
			return nil, Start(doc.Body), "a second document: want one"
		default:
			body = doc.Body
		}
	}
	return body, nil, ""
}

// Start is the first token of a node.
func Start(node ast.Node) *token.Token {
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

// Describe says what a value is, for an error.
func Describe(node ast.Node) string {
	switch n := node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + Clip(node.GetToken().Value)
	case *ast.BoolNode:
		return node.GetToken().Value
	case *ast.StringNode:
		return "the text " + strconv.Quote(Clip(n.Value))
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

// Clip shortens a text for an error.
func Clip(s string) string {
	const longest = 60
	if runes := []rune(s); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return s
}

// Pairs returns the fields of a mapping.
func Pairs(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// KeyOf is the name of a field.
func KeyOf(f *ast.MappingValueNode) string {
	if key, ok := f.Key.(*ast.StringNode); ok {
		return key.Value
	}
	return f.Key.GetToken().Value
}
