package load

import (
	"bytes"
	"errors"
	"strings"
)

var errJSON = errors.New("not a JSON object")

// maxDepth bounds nesting, so that brackets cannot exhaust the stack.
const maxDepth = 64

// walkObject calls visit for each member of the JSON object that text is, with
// the raw text of key and value. It is a scanner for known shapes, several
// times as fast as a decoder: strings are not unescaped and numbers not parsed,
// but the structure is checked.
func walkObject(text []byte, visit func(key, value []byte) error) error {
	p := skipSpace(text, 0)
	if p >= len(text) || text[p] != '{' {
		return errJSON
	}
	end, err := walkMembers(text, p, 0, visit)
	return atEnd(text, end, err)
}

// walkOn goes on with an object of which the members before p are known.
func walkOn(text []byte, p int, visit func(key, value []byte) error) error {
	p, closed, err := nextItem(text, p, '}')
	if !closed && err == nil {
		p, err = walkFrom(text, p, 0, visit)
	}
	return atEnd(text, p, err)
}

// atEnd is err, or says that something follows an object that ends at p.
func atEnd(text []byte, p int, err error) error {
	if err == nil && skipSpace(text, p) != len(text) {
		return errJSON
	}
	return err
}

// walkMembers walks the object that begins at p and returns where it ends.
func walkMembers(text []byte, p, depth int, visit func(key, value []byte) error) (int, error) {
	p = skipSpace(text, p+1)
	if p < len(text) && text[p] == '}' {
		return p + 1, nil
	}
	return walkFrom(text, p, depth, visit)
}

// walkFrom walks the members from the one that begins at p.
func walkFrom(text []byte, p, depth int, visit func(key, value []byte) error) (int, error) {
	for {
		if p >= len(text) || text[p] != '"' {
			return p, errJSON
		}
		keyEnd, err := skipString(text, p)
		if err != nil {
			return p, err
		}
		key := text[p+1 : keyEnd-1]
		p = skipSpace(text, keyEnd)
		if p >= len(text) || text[p] != ':' {
			return p, errJSON
		}
		start := skipSpace(text, p+1)
		if p, err = skipValue(text, start, depth+1); err != nil {
			return p, err
		}
		if visit != nil {
			if err := visit(key, text[start:p]); err != nil {
				return p, err
			}
		}
		var closed bool
		if p, closed, err = nextItem(text, p, '}'); closed || err != nil {
			return p, err
		}
	}
}

// walkArray calls visit for each element of the JSON array that text is, which
// skipValue has checked.
func walkArray(text []byte, visit func(value []byte) error) error {
	if len(text) == 0 || text[0] != '[' {
		return errJSON
	}
	_, err := walkElements(text, 0, 0, visit)
	return err
}

// walkElements walks the array that begins at p and returns where it ends.
func walkElements(text []byte, p, depth int, visit func(value []byte) error) (int, error) {
	p = skipSpace(text, p+1)
	if p < len(text) && text[p] == ']' {
		return p + 1, nil
	}
	for {
		start := p
		end, err := skipValue(text, p, depth+1)
		if err != nil {
			return end, err
		}
		if visit != nil {
			if err := visit(text[start:end]); err != nil {
				return end, err
			}
		}
		var closed bool
		if p, closed, err = nextItem(text, end, ']'); closed || err != nil {
			return p, err
		}
	}
}

// nextItem goes past a comma to the next item, or past the closing bracket.
func nextItem(text []byte, p int, bracket byte) (next int, closed bool, err error) {
	p = skipSpace(text, p)
	switch {
	case p < len(text) && text[p] == bracket:
		return p + 1, true, nil
	case p < len(text) && text[p] == ',':
		return skipSpace(text, p+1), false, nil
	}
	return p, false, errJSON
}

// skipValue returns where the value that begins at p ends.
func skipValue(text []byte, p, depth int) (int, error) {
	if p >= len(text) || depth > maxDepth {
		return p, errJSON
	}
	switch c := text[p]; {
	case c == '"':
		return skipString(text, p)
	case c == '{':
		return walkMembers(text, p, depth, nil)
	case c == '[':
		return walkElements(text, p, depth, nil)
	case c == '-' || c >= '0' && c <= '9':
		end := p + 1
		for end < len(text) && strings.IndexByte("0123456789+-.eE", text[end]) >= 0 {
			end++
		}
		return end, nil
	}
	for _, name := range [...]string{"null", "true", "false", "NaN", "Infinity"} {
		if bytes.HasPrefix(text[p:], []byte(name)) {
			return p + len(name), nil
		}
	}
	return p, errJSON
}

// skipString returns where the string that begins at p ends.
func skipString(text []byte, p int) (int, error) {
	for q := p + 1; q < len(text); {
		end := bytes.IndexByte(text[q:], '"')
		if end < 0 {
			break
		}
		end += q
		slashes := 0
		for end-slashes-1 > p && text[end-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1, nil
		}
		q = end + 1
	}
	return len(text), errJSON
}

// skipSpace returns the next position that is no white space.
func skipSpace(text []byte, p int) int {
	for p < len(text) && (text[p] == ' ' || text[p] == '\t' || text[p] == '\n' || text[p] == '\r') {
		p++
	}
	return p
}

// filled reports whether a raw value is a string with text in it.
func filled(value []byte) bool { return len(value) > 2 && value[0] == '"' }

// length counts the elements of a raw array; 0 for anything else.
func length(value []byte) int {
	n := 0
	if walkArray(value, func([]byte) error { n++; return nil }) != nil {
		return 0
	}
	return n
}
