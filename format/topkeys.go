package format

import "encoding/json"

// TopKeys returns the keys of the first object of a text, or of the first
// object of a list with which it begins, as far as the text goes; and the
// value of its key "schema", where that is a string. The text may end
// anywhere.
func TopKeys(text []byte) (keys map[string]bool, schema string) {
	limits := Limits{}.WithDefaults()
	p := &parser{text: text, depth: limits.Depth, values: limits.Values}
	keys = map[string]bool{}
	p.blanks()
	if p.at < len(text) && text[p.at] == '[' {
		p.at++
		p.blanks()
	}
	if p.at >= len(text) || text[p.at] != '{' {
		return keys, ""
	}
	p.at++
	for {
		p.blanks()
		if p.at >= len(text) || text[p.at] != '"' {
			return keys, schema
		}
		start := p.at
		var key string
		if p.string() != nil || json.Unmarshal(text[start:p.at], &key) != nil {
			return keys, schema
		}
		keys[key] = true
		p.blanks()
		if p.at >= len(text) || text[p.at] != ':' {
			return keys, schema
		}
		p.at++
		p.blanks()
		start = p.at
		var v value
		if p.value(&v, 1) != nil {
			return keys, schema
		}
		if key == "schema" && v.kind == String && json.Unmarshal(text[start:p.at], &schema) != nil {
			return keys, schema
		}
		if more, err := p.comma('}'); err != nil || !more {
			return keys, schema
		}
	}
}
