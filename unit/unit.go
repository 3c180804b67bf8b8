// Package unit gives the quantities of the field their own types, and one
// place where they are parsed and printed.
//
// A quantity is stored in its base unit: [Bytes] in bytes, [FLOPs] in
// floating-point operations, [Seconds] in seconds, [BytesPerSecond] and
// [FLOPsPerSecond] accordingly. GiB, ms and TFLOP/s exist only in text: a
// value is scaled when it is printed and when a flag is read, and nowhere
// else, so that a number in the program never needs a comment on its unit.
//
//	unit.Bytes(41_408 * 131_072).String() // "5.05 GiB"
//	unit.ParseCount("4Ki")                 // 4096
//	unit.Seconds(0.01329).String()         // "13.29 ms"
package unit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a number of bytes: memory, traffic or a message.
type Bytes int64

// Powers of 1024, as engines allocate memory.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// FLOPs is a number of floating-point operations; a multiply-add counts two.
// It is a float64 because a long prefill of a large model exceeds 2^63; whole
// numbers stay exact up to 2^53.
type FLOPs float64

// Seconds is a duration. Costs of single operators are far below a
// nanosecond's resolution in sums, so it is not a [time.Duration].
type Seconds float64

// BytesPerSecond is a bandwidth, in one direction where a link is meant.
type BytesPerSecond float64

// FLOPsPerSecond is a compute rate.
type FLOPsPerSecond float64

// Milliseconds returns s in milliseconds, the unit of every "_ms" key.
func (s Seconds) Milliseconds() float64 { return float64(s) * 1e3 }

// String prints s with four significant digits in ns, µs, ms or s.
func (s Seconds) String() string {
	abs := math.Abs(float64(s))
	switch {
	case math.IsNaN(abs) || math.IsInf(abs, 0):
		return strconv.FormatFloat(float64(s), 'g', -1, 64) + " s"
	case abs == 0:
		return "0 s"
	case abs >= 1e15: // no clock runs as long
		return strconv.FormatFloat(float64(s), 'e', 3, 64) + " s"
	case abs < 1e-6:
		return significant(float64(s)*1e9) + " ns"
	case abs < 1e-3:
		return significant(float64(s)*1e6) + " µs"
	case abs < 1:
		return significant(float64(s)*1e3) + " ms"
	default:
		return significant(float64(s)) + " s"
	}
}

// String prints b in powers of 1024 (B, KiB, MiB, GiB, TiB).
func (b Bytes) String() string {
	abs := math.Abs(float64(b))
	for _, step := range []struct {
		size float64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if abs >= step.size {
			return fixed(float64(b)/step.size) + " " + step.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// GiB returns b in units of 2^30 bytes.
func (b Bytes) GiB() float64 { return float64(b) / float64(GiB) }

// String prints f with an SI prefix (GFLOP, TFLOP, …).
func (f FLOPs) String() string { return si(float64(f), "FLOP") }

// String prints r with an SI prefix (TFLOP/s, …).
func (r FLOPsPerSecond) String() string { return si(float64(r), "FLOP/s") }

// String prints r with an SI prefix (GB/s, TB/s), as datasheets do.
func (r BytesPerSecond) String() string { return si(float64(r), "B/s") }

// Count prints a plain number with an SI suffix and two decimals (8.03 B for
// parameters, 1.02 k for tokens): suffixes k, M, B, T.
func Count(n float64) string {
	abs := math.Abs(n)
	switch {
	case abs >= 1e12:
		return fixed(n/1e12) + " T"
	case abs >= 1e9:
		return fixed(n/1e9) + " B"
	case abs >= 1e6:
		return fixed(n/1e6) + " M"
	case abs >= 1e4:
		return fixed(n/1e3) + " k"
	default:
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
}

// Plural prints how many there are of what a regular noun names: "1 cell",
// "4 cells".
func Plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

func si(v float64, name string) string {
	abs := math.Abs(v)
	for _, step := range []struct {
		size   float64
		prefix string
	}{{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if abs >= step.size {
			return fixed(v/step.size) + " " + step.prefix + name
		}
	}
	return fixed(v) + " " + name
}

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// significant prints v, whose magnitude lies in 1..1000 or above, with four
// significant digits and no exponent.
func significant(v float64) string {
	decimals := 3
	for limit := 10.0; decimals > 0 && math.Abs(v) >= limit; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// ParseCount reads a length or a count: "4096", "4k" (4000), "4Ki" (4096),
// also M, Mi, G, Gi. The result is never negative.
func ParseCount(s string) (int, error) {
	text := strings.TrimSpace(s)
	factor := 1.0
	for _, suffix := range []struct {
		text   string
		factor float64
	}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}} {
		if rest, ok := strings.CutSuffix(text, suffix.text); ok {
			text, factor = rest, suffix.factor
			break
		}
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, fmt.Errorf("%q is not a count: want a number such as 4096, 4k or 4Ki", s)
	}
	value *= factor
	switch {
	case value < 0:
		return 0, fmt.Errorf("%q is negative", s)
	case value > 1<<53:
		return 0, fmt.Errorf("%q is too large", s)
	case value != math.Trunc(value):
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	return int(value), nil
}

// ParseEngineCount reads a whole number as vLLM's own flags do: k, m, g and t are
// powers of 1000 and may follow a decimal number ("25.6k"), K, M, G and T are
// powers of 1024 behind a whole one. Ki, Mi and Gi are read as everywhere.
func ParseEngineCount(s string) (int, error) {
	text := strings.TrimSpace(s)
	for _, suffix := range []struct {
		text string
		base float64
		by   int
	}{{"k", 1e3, 1}, {"m", 1e3, 2}, {"g", 1e3, 3}, {"t", 1e3, 4}, {"K", 1 << 10, 1}, {"M", 1 << 10, 2}, {"G", 1 << 10, 3}, {"T", 1 << 10, 4}} {
		number, ok := strings.CutSuffix(text, suffix.text)
		if !ok {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		switch {
		case err != nil || strings.Trim(number, "0123456789.") != "":
			return 0, fmt.Errorf("%q is not a count: want a number such as 4096, 4k (4000) or 4K (4096)", s)
		case suffix.base == 1<<10 && strings.Contains(number, "."):
			return 0, fmt.Errorf("%q has decimals before a power of 1024: want %s%s for a power of 1000", s, number, strings.ToLower(suffix.text))
		}
		value = math.Floor(value*math.Pow(suffix.base, float64(suffix.by)) + 1e-6)
		if value > 1<<53 {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return int(value), nil
	}
	return ParseCount(text)
}

// ParseBytes reads a memory size with its unit: "80GiB", "512 MiB", "1.5GB",
// "1024B". A bare number is refused, since GiB and GB differ by 7 %.
func ParseBytes(s string) (Bytes, error) {
	text := strings.TrimSpace(s)
	for _, suffix := range []struct {
		text   string
		factor float64
	}{
		{"TiB", 1 << 40},
		{"GiB", 1 << 30},
		{"MiB", 1 << 20},
		{"KiB", 1 << 10},
		{"TB", 1e12},
		{"GB", 1e9},
		{"MB", 1e6},
		{"kB", 1e3},
		{"KB", 1e3},
		{"B", 1},
	} {
		rest, ok := strings.CutSuffix(text, suffix.text)
		if !ok {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
		if err != nil || math.IsNaN(value) || value < 0 || value*suffix.factor > math.MaxInt64/2 {
			break
		}
		return Bytes(math.Round(value * suffix.factor)), nil
	}
	return 0, fmt.Errorf("%q is not a memory size: want a number and a unit, such as 80GiB or 1.5GB", s)
}
