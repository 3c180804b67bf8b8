package campaign

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/llmprof/llmprof/settings"
	"github.com/llmprof/llmprof/unit"
)

// misread says that a value is not what its field takes.
type misread struct {
	at           *token.Token
	text, advice string
}

func wrong(node ast.Node, format string, args ...any) []misread {
	return []misread{{at: settings.Start(node), text: fmt.Sprintf(format, args...)}}
}

// readText reads a text.
func readText(node ast.Node) (string, []misread) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return strings.TrimRight(n.Value.Value, "\n"), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return "", []misread{{at: settings.Start(node), text: "want a text, got " + settings.Describe(node), advice: "put it in quotes"}}
	}
	return "", wrong(node, "want a text, got %s", settings.Describe(node))
}

// readNumber reads a number, which may stand in quotes.
func readNumber(node ast.Node) (float64, []misread) {
	switch n := node.(type) {
	case *ast.IntegerNode:
		if plain := octal(n.GetToken().Value); plain != "" {
			return 0, []misread{{at: settings.Start(node), text: fmt.Sprintf("%s begins with a zero, which makes it octal in YAML", settings.Clip(n.GetToken().Value)), advice: "write " + plain}}
		}
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
	return 0, wrong(node, "want a number, got %s", settings.Describe(node))
}

// octal is a number without its leading zeros; empty where it has none.
func octal(text string) string {
	text = strings.TrimLeft(text, "+-")
	digits := strings.TrimLeft(text, "0_")
	if len(text) < 2 || text[0] != '0' || strings.ContainsFunc(digits, func(r rune) bool { return r != '_' && (r < '0' || r > '9') }) {
		return ""
	}
	return cmp.Or(digits, "0")
}

// readWhole reads a whole number; a text such as "4k" or "4Ki" will do.
func readWhole(node ast.Node) (int, []misread) {
	if text, ok := node.(*ast.StringNode); ok {
		if n, err := unit.ParseCount(text.Value); err == nil {
			return n, nil
		}
		if _, err := strconv.ParseInt(strings.TrimSpace(text.Value), 10, 64); errors.Is(err, strconv.ErrRange) {
			return 0, wrong(node, "want a whole number that is not so large, got %s", settings.Clip(text.Value))
		}
	}
	v, bad := readNumber(node)
	if len(bad) > 0 && bad[0].advice != "" {
		return 0, bad
	}
	if bad != nil || v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return 0, wrong(node, "want a whole number, got %s", settings.Describe(node))
	}
	return int(v), nil
}

// readTruth reads true or false.
func readTruth(node ast.Node) (bool, []misread) {
	if n, ok := node.(*ast.BoolNode); ok {
		return n.Value, nil
	}
	bad := wrong(node, "want true or false, got %s", settings.Describe(node))
	switch strings.ToLower(node.GetToken().Value) {
	case "yes", "on":
		bad[0].advice = "write true"
	case "no", "off":
		bad[0].advice = "write false"
	}
	return false, bad
}

// readList reads a list with one or more values.
func readList[T any](node ast.Node, element func(ast.Node) (T, []misread)) ([]T, []misread) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		bad := wrong(node, "want a list, got %s", settings.Describe(node))
		if _, single := element(node); single == nil {
			bad[0].advice = fmt.Sprintf("write [%s]", settings.Clip(node.GetToken().Value))
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
		return "", wrong(n, "want an index or an id of a device, got %s", settings.Describe(n))
	}
	if _, ok := node.(*ast.SequenceNode); ok {
		return readList(node, one)
	}
	text, bad := one(node)
	if bad != nil {
		return nil, wrong(node, `want devices, such as "0,1", got %s`, settings.Describe(node))
	}
	ids := strings.Split(text, ",")
	for i := range ids {
		ids[i] = strings.TrimSpace(ids[i])
	}
	return ids, nil
}

// readPairs reads a mapping of names to texts or numbers.
func readPairs(node ast.Node) (map[string]string, []misread) {
	fields, ok := settings.Pairs(node)
	if !ok {
		return nil, wrong(node, "want a mapping, got %s", settings.Describe(node))
	}
	values := make(map[string]string, len(fields))
	var faults []misread
	for _, f := range fields {
		name := settings.KeyOf(f)
		if _, twice := values[name]; twice {
			faults = append(faults, misread{at: f.Key.GetToken(), text: fmt.Sprintf("%q stands twice", settings.Clip(name))})
		}
		switch f.Value.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			values[name] = f.Value.GetToken().Value
		default:
			faults = append(faults, wrong(f.Value, "want a text, got %s", settings.Describe(f.Value))...)
		}
	}
	return values, faults
}
