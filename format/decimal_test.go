package format_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
)

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		text string
		in   format.TimeUnit
		want float64 // seconds
		back string  // as it is written again, where that is not text
		err  string
	}{
		{text: "154031", in: format.Nanoseconds, want: 154031e-9},
		{text: "45.895", in: format.Microseconds, want: 45.895e-6},
		{text: "0.040799999999999996", in: format.Milliseconds, want: 0.040799999999999996e-3},
		{text: " 12.0\t", in: format.Microseconds, want: 12e-6, back: "12"},
		{text: "+1.5E+3", in: format.Nanoseconds, want: 1500e-9, back: "1500"},
		{text: ".5", in: format.Milliseconds, want: 0.5e-3, back: "0.5"},
		{text: "5.", in: format.Milliseconds, want: 5e-3, back: "5"},
		{text: "007", in: format.Milliseconds, want: 7e-3, back: "7"},
		{text: "86400000", in: format.Milliseconds, want: 86400},
		{text: "1.5", in: 0, want: 1.5},
		{text: "86400001", in: format.Milliseconds, err: `"86400001" is more than a day: a mistaken unit?`},
		{text: "1e399", in: format.Nanoseconds, err: "more than a day"},
		{text: "1e401", err: "want a positive number"},
		{text: "1e-399", in: format.Nanoseconds, err: "want a positive number"},
		{text: "0", in: format.Nanoseconds, err: `want a positive number, got "0"`},
		{text: "-1", err: "want a positive number"},
		{text: "", err: `want a positive number, got ""`},
		{text: ".", err: "want a positive number"},
		{text: "e3", err: "want a positive number"},
		{text: "1e", err: "want a positive number"},
		{text: "1.2.3", err: "want a positive number"},
		{text: "1-2", err: "want a positive number"},
		{text: "1_000", err: "want a positive number"},
		{text: "0x1p3", err: "want a positive number"},
		{text: "NaN", err: "want a positive number"},
		{text: "inf", err: "want a positive number"},
		{text: "12ns", err: "want a positive number"},
	} {
		t.Run(fmt.Sprintf("%s e%d", c.text, c.in), func(t *testing.T) {
			got, err := format.ParseTime(c.text, c.in)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %g, %v, want %q", float64(got), err, c.err)
				}
				return
			}
			if err != nil || float64(got) != c.want {
				t.Fatalf("got %g, %v, want %g", float64(got), err, c.want)
			}
			if c.back == "" {
				c.back = c.text
			}
			if back := format.TimeText(got, c.in); back != c.back {
				t.Errorf("written as %s, want %s", back, c.back)
			}
		})
	}
}

// TestTimeText holds for values that no file should have, too.
func TestTimeText(t *testing.T) {
	for _, c := range []struct {
		t    float64 // seconds
		want string
	}{
		{0, "0"},
		{math.Copysign(0, -1), "0"},
		{-1.5e-6, "-1500"},
		{1e-12, "0.001"},
		{math.NaN(), "NaN"},
		{math.Inf(-1), "-Inf"},
		{math.SmallestNonzeroFloat64, "0." + strings.Repeat("0", 314) + "5"},
	} {
		if got := format.TimeText(unit.Seconds(c.t), format.Nanoseconds); got != c.want {
			t.Errorf("%g s: %s, want %s", c.t, got, c.want)
		}
	}
}

// TestShortestTimes: up to fifteen digits, which a float64 always holds, the
// shortest text of a time survives; any other spelling of it becomes that
// text; and no time is changed by writing and reading it.
func TestShortestTimes(t *testing.T) {
	units := rapid.SampledFrom([]format.TimeUnit{format.Milliseconds, format.Microseconds, format.Nanoseconds})
	t.Run("texts", rapid.MakeCheck(func(t *rapid.T) {
		in := units.Draw(t, "unit")
		digits := rapid.StringMatching(`[1-9]([0-9]{0,13}[1-9])?`).Draw(t, "digits")
		zeros := func(most int) string {
			return strings.Repeat("0", rapid.IntRange(0, most).Draw(t, "zeros"))
		}
		// A whole number, a number with a point, or one below 1.
		text, at := digits, rapid.IntRange(0, len(digits)).Draw(t, "point")
		switch {
		case at == 0:
			text = "0." + zeros(30) + digits
		case at < len(digits):
			text = digits[:at] + "." + digits[at:]
		}
		spelled := zeros(3) + text
		if strings.Contains(text, ".") {
			spelled += zeros(3)
		}
		if n := rapid.IntRange(-9, 9).Draw(t, "exponent"); n != 0 {
			// The same number: the point moves in digits, the exponent back.
			plain := strings.Repeat("0", 10) + digits + strings.Repeat("0", 10)
			if at > 0 {
				at += 10 - n
				spelled = fmt.Sprintf("%s.%se%+d", plain[:at], plain[at:], n)
			}
		}
		for _, s := range []string{text, spelled} {
			v, err := format.ParseTime(s, in)
			if err != nil {
				if strings.Contains(err.Error(), "more than a day") {
					continue
				}
				t.Fatal(err)
			}
			if got := format.TimeText(v, in); got != text {
				t.Fatalf("%s became %s, want %s", s, got, text)
			}
		}
	}))
	t.Run("times", rapid.MakeCheck(func(t *rapid.T) {
		in := units.Draw(t, "unit")
		v := unit.Seconds(rapid.Float64Range(1e-18, float64(format.MaxTime)).Draw(t, "seconds"))
		text := format.TimeText(v, in)
		got, err := format.ParseTime(text, in)
		if err != nil || got != v {
			t.Fatalf("%g s written as %s is read as %g s, %v", float64(v), text, float64(got), err)
		}
		if again := format.TimeText(got, in); again != text {
			t.Fatalf("%s became %s", text, again)
		}
		// Fewer digits would be another time.
		if strings.Contains(text, ".") {
			if cut, err := format.ParseTime(text[:len(text)-1], in); err == nil && cut == v {
				t.Fatalf("%s is not the shortest text", text)
			}
		}
	}))
}

func TestSizes(t *testing.T) {
	type result struct {
		N   int
		Err string
	}
	for _, c := range []struct {
		text  string
		least int
		want  result
	}{
		{"128", 1, result{N: 128}},
		{" 128\t", 1, result{N: 128}},
		{"128.0", 1, result{N: 128}},
		{"1e3", 1, result{N: 1000}},
		{"0", 0, result{}},
		{"-0", 0, result{}},
		{"1073741824", 1, result{N: format.MaxSize}},
		{"0", 1, result{Err: `want a whole number from 1 to 1073741824, got "0"`}},
		{"1073741825", 0, result{Err: `want a whole number from 0 to 1073741824, got "1073741825"`}},
		{"-1e300", 0, result{Err: `want a whole number from 0 to 1073741824, got "-1e300"`}},
		{"1.5", 0, result{Err: `want a whole number from 0 to 1073741824, got "1.5"`}},
		{"0x10", 0, result{Err: `want a whole number from 0 to 1073741824, got "0x10"`}},
		{"nan", 0, result{Err: `want a whole number from 0 to 1073741824, got "nan"`}},
		{"", 0, result{Err: `want a whole number from 0 to 1073741824, got ""`}},
	} {
		n, err := format.ParseSize(c.text, c.least)
		got := result{N: n}
		if err != nil {
			got.Err = err.Error()
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
	}
}
