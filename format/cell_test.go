package format_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/unit"
)

func TestKeptCells(t *testing.T) {
	for cell, want := range map[string]string{
		"12.50":  `12.50`,
		"-1e3":   `-1e3`,
		"007":    `"007"`,
		" 7":     `" 7"`,
		"":       `""`,
		"true":   `"true"`,
		"null":   `"null"`,
		"nan":    `"nan"`,
		`a "b`:   `"a \"b"`,
		"1e999":  `"1e999"`, // no float64: a reader of numbers would stumble
		"{\"a\"": `"{\"a\""`,
	} {
		var p profile.Point
		format.KeepCell(&p, "column", cell)
		if got := string(p.Extra["column"]); got != want {
			t.Errorf("%q is kept as %s, want %s", cell, got, want)
		}
		if got, ok := format.KeptCell(&p, "column"); !ok || got != cell {
			t.Errorf("%q became %q, %v", cell, got, ok)
		}
	}
	p := profile.Point{Extra: map[string]json.RawMessage{"list": json.RawMessage(`[1]`)}}
	if got, ok := format.KeptCell(&p, "list"); got != "[1]" || !ok {
		t.Errorf("a foreign value: %q, %v", got, ok)
	}
	if got, ok := format.KeptCell(&p, "none"); got != "" || ok {
		t.Errorf("nothing: %q, %v", got, ok)
	}
}

// TestCellsSurvive holds for any text.
func TestCellsSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.OneOf(rapid.String(), rapid.StringMatching(`[-+]?[0-9]{0,4}[.]?[0-9]{0,4}([eE][-+]?[0-9]{1,3})?`)).Draw(t, "cell")
		if !utf8.ValidString(cell) { // ReadText lets none through
			t.Skip()
		}
		var p profile.Point
		format.KeepCell(&p, "column", cell)
		if !json.Valid(p.Extra["column"]) {
			t.Fatalf("%q is kept as %s", cell, p.Extra["column"])
		}
		if got, ok := format.KeptCell(&p, "column"); !ok || got != cell {
			t.Fatalf("%q became %q, %v", cell, got, ok)
		}
	})
}

func TestSizeCell(t *testing.T) {
	for _, c := range []struct {
		kept string
		n    int
		want string
	}{
		{"", 128, "128"},
		{"128.0", 128, "128.0"},
		{" 128", 128, " 128"},
		{"128.0", 64, "64"},
		{"many", 128, "128"},
	} {
		var p profile.Point
		if c.kept != "" {
			format.KeepCell(&p, "tokens", c.kept)
		}
		if got := format.SizeCell(&p, "tokens", c.n); got != c.want {
			t.Errorf("%d, kept %q: %q, want %q", c.n, c.kept, got, c.want)
		}
	}
}

func TestMeanTime(t *testing.T) {
	for _, c := range []struct {
		why   string
		point profile.Point
		want  unit.Seconds
		ok    bool
	}{
		{"no time", profile.Point{}, 0, false},
		{"one sample is as it stands", profile.Point{Samples: []float64{0.1234567890123456}}, 0.1234567890123456, true},
		{"a summary is as it stands", profile.Point{Summary: &profile.Summary{Mean: 0.1234567890123456}}, 0.1234567890123456, true},
		{"what adding leaves is dropped", profile.Point{Samples: []float64{0.1, 0.2, 0.3}}, 0.2, true},
	} {
		if got, ok := format.MeanTime(&c.point); got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v, want %v, %v", c.why, float64(got), ok, float64(c.want), c.ok)
		}
	}
}
