package format

import (
	"encoding/json"
	"strconv"

	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

// KeepCell keeps a cell of a table in a point's Extra, under the name of its
// column: as a number where JSON knows it as one, else as text. [KeptCell]
// gives it back to the letter.
func KeepCell(p *profile.Point, column, cell string) {
	if p.Extra == nil {
		p.Extra = map[string]json.RawMessage{}
	}
	if _, _, ok := splitNumber(cell); ok && json.Valid([]byte(cell)) {
		p.Extra[column] = json.RawMessage(cell)
		return
	}
	text, err := json.Marshal(cell)
	if err != nil { // a string always has a JSON form
		text = json.RawMessage(`""`)
	}
	p.Extra[column] = text
}

// KeptCell is the cell that [KeepCell] kept, and the JSON itself where Extra
// holds something else than a cell; ok is false where there is neither.
func KeptCell(p *profile.Point, column string) (cell string, ok bool) {
	kept, ok := p.Extra[column]
	if !ok {
		return "", false
	}
	if err := json.Unmarshal(kept, &cell); err != nil {
		return string(kept), true
	}
	return cell, true
}

// SizeCell writes a size into a column, in the spelling that [KeepCell] kept
// as long as that is the same number.
func SizeCell(p *profile.Point, column string, n int) string {
	if kept, ok := KeptCell(p, column); ok {
		if v, err := ParseSize(kept, 0); err == nil && v == n {
			return kept
		}
	}
	return strconv.Itoa(n)
}

// MeanTime is the point's mean as a table shows it; ok is false where the
// point holds no time. Of several samples it is rounded to twelve digits:
// those after them are left over from adding binary fractions.
func MeanTime(p *profile.Point) (t unit.Seconds, ok bool) {
	mean, ok := p.Mean()
	if !ok || p.Summary != nil || len(p.Samples) < 2 {
		return mean, ok
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(float64(mean), 'e', 11, 64), 64)
	if err != nil { // a float64 that was written is read again
		return mean, ok
	}
	return unit.Seconds(rounded), ok
}
