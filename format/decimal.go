package format

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/unit"
)

// TimeUnit is the unit in which a file writes its times, as a power of ten of
// the second.
type TimeUnit int8

// The units of the files.
const (
	Milliseconds TimeUnit = -3
	Microseconds TimeUnit = -6
	Nanoseconds  TimeUnit = -9
)

// MaxTime is the longest time that [ParseTime] takes, one day in seconds:
// beyond it the unit is mistaken.
const MaxTime unit.Seconds = 24 * 60 * 60

// MaxSize is the largest whole number that [ParseSize] takes.
const MaxSize = 1 << 30

// maxExponent bounds the exponent of a number as written: beyond it no size
// or time is meant.
const maxExponent = 400

// splitNumber cuts a decimal number into its digits and its exponent; false
// where the text is none.
func splitNumber(text string) (digits string, exponent int, ok bool) {
	digits = text
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		n, err := strconv.Atoi(text[at+1:])
		if err != nil || n < -maxExponent || n > maxExponent {
			return "", 0, false
		}
		digits, exponent = text[:at], n
	}
	seen, point := false, false
	for i, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			seen = true
		case c == '.' && !point:
			point = true
		case (c == '-' || c == '+') && i == 0:
		default:
			return "", 0, false
		}
	}
	return digits, exponent, seen
}

// ParseTime reads a positive decimal number of a unit as seconds, blanks
// around it allowed. The decimal point is moved in the text, so that no digit
// is lost to a multiplication and [TimeText] gives the number back.
func ParseTime(text string, in TimeUnit) (unit.Seconds, error) {
	text = strings.TrimSpace(text)
	digits, exponent, ok := splitNumber(text)
	if !ok {
		return 0, fmt.Errorf("want a positive number, got %q", text)
	}
	v, err := strconv.ParseFloat(digits+"e"+strconv.Itoa(exponent+int(in)), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), !(v > 0):
		return 0, fmt.Errorf("want a positive number, got %q", text)
	case v > float64(MaxTime):
		return 0, fmt.Errorf("%q is more than a day: a mistaken unit?", text)
	}
	return unit.Seconds(v), nil
}

// TimeText writes a time in a unit, without an exponent and with the fewest
// digits that [ParseTime] reads as the same time. NaN and infinities, which
// no profile holds, are written by name.
func TimeText(t unit.Seconds, in TimeUnit) string {
	mantissa, power, _ := strings.Cut(strconv.FormatFloat(math.Abs(float64(t)), 'e', -1, 64), "e")
	exponent, err := strconv.Atoi(power)
	switch {
	case err != nil:
		return strconv.FormatFloat(float64(t), 'e', -1, 64)
	case t == 0:
		return "0"
	}
	sign := ""
	if t < 0 {
		sign = "-"
	}
	digits := strings.Replace(mantissa, ".", "", 1)
	at := 1 + exponent - int(in) // where the decimal point goes
	switch {
	case at <= 0:
		return sign + "0." + strings.Repeat("0", -at) + digits
	case at >= len(digits):
		return sign + digits + strings.Repeat("0", at-len(digits))
	}
	return sign + digits[:at] + "." + digits[at:]
}

// ParseSize reads a whole number from least to [MaxSize], blanks around it
// allowed. "128.0" and "1e3" are whole numbers too.
func ParseSize(text string, least int) (int, error) {
	text = strings.TrimSpace(text)
	n, err := strconv.Atoi(text)
	if err != nil {
		v, parseErr := strconv.ParseFloat(text, 64)
		if _, _, ok := splitNumber(text); !ok || parseErr != nil || v != math.Trunc(v) || math.Abs(v) > MaxSize {
			return 0, fmt.Errorf("want a whole number from %d to %d, got %q", least, MaxSize, text)
		}
		n = int(v)
	}
	if n < least || n > MaxSize {
		return 0, fmt.Errorf("want a whole number from %d to %d, got %q", least, MaxSize, text)
	}
	return n, nil
}
