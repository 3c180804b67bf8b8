package vllmlog

import (
	"math"
	"strconv"
	"strings"
)

// pythonDepth is how deep values may nest.
const pythonDepth = 32

// pythonValue reads the value that Python printed at the start of s: a string,
// a number, True, False, None, a list, a tuple or a dict. Anything else, such
// as an object, comes back as its text. The result is what encoding/json
// writes: nil, bool, int64, float64, string, []any, map[string]any.
func pythonValue(s string, depth int) (value any, rest string, ok bool) {
	s = strings.TrimLeft(s, " ")
	if s == "" || depth > pythonDepth {
		return nil, s, false
	}
	switch s[0] {
	case '\'', '"':
		return pythonString(s)
	case '[':
		return pythonList(s[1:], ']', depth)
	case '(':
		return pythonList(s[1:], ')', depth)
	case '{':
		return pythonDict(s[1:], depth)
	}
	end := pythonEnd(s)
	return pythonAtom(strings.TrimSpace(s[:end])), s[end:], end > 0
}

// pythonAtom reads a value that holds no others.
func pythonAtom(s string) any {
	switch s {
	case "None":
		return nil
	case "True":
		return true
	case "False":
		return false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return f
	}
	return strings.ToValidUTF8(s, "�")
}

func pythonString(s string) (any, string, bool) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			return strings.ToValidUTF8(b.String(), "�"), s[i+1:], true
		case c == '\\' && i+1 < len(s) && (s[i+1] == '\\' || s[i+1] == '\'' || s[i+1] == '"'):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return nil, "", false
}

func pythonList(s string, end byte, depth int) (any, string, bool) {
	list := []any{}
	for {
		s = strings.TrimLeft(s, " ,")
		if s == "" {
			return nil, "", false
		}
		if s[0] == end {
			return list, s[1:], true
		}
		value, rest, ok := pythonValue(s, depth+1)
		if !ok {
			return nil, "", false
		}
		list, s = append(list, value), rest
	}
}

func pythonDict(s string, depth int) (any, string, bool) {
	dict := map[string]any{}
	for {
		s = strings.TrimLeft(s, " ,")
		if s == "" {
			return nil, "", false
		}
		if s[0] == '}' {
			return dict, s[1:], true
		}
		if s[0] != '\'' && s[0] != '"' {
			return nil, "", false
		}
		key, rest, ok := pythonString(s)
		if !ok || !strings.HasPrefix(rest, ":") {
			return nil, "", false
		}
		value, rest, ok := pythonValue(rest[1:], depth+1)
		if !ok {
			return nil, "", false
		}
		dict[key.(string)], s = value, rest
	}
}

// pythonEnd is the length of the value at the start of s: up to a comma or a
// closing bracket that is not its own.
func pythonEnd(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\'', '"':
			// A quote within a word is an apostrophe.
			if i > 0 && isName(s[i-1]) {
				continue
			}
			if _, rest, ok := pythonString(s[i:]); ok {
				i = len(s) - len(rest) - 1
			}
		case '(', '[', '{', '<':
			depth++
		case ')', ']', '}', '>':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return len(s)
}

// pythonPairs reads "key=value, key=value", as Python prints an object, up to
// its end. Pairs that are no such come out as far as they are.
func pythonPairs(s string) map[string]any {
	pairs := map[string]any{}
	for {
		s = strings.TrimLeft(s, " ,")
		key, after, ok := strings.Cut(s, "=")
		if !ok || key == "" || strings.ContainsAny(key, " ,()'\"") {
			return pairs
		}
		value, rest, ok := pythonValue(after, 0)
		if !ok {
			return pairs
		}
		// A string or list followed by more is text: b'x', or a call.
		pairs[key], s = value, rest
		if s != "" && s[0] != ',' {
			return pairs
		}
	}
}
