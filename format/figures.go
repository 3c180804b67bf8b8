package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/profile"
)

// Figures reads the figures of a foreign summary. What is not there is nil;
// what is no usable number is nil too, with a warning.
type Figures struct {
	Warnings []error
}

// Bounds of a figure: a number of anything, and whole numbers.
const (
	maxFigure = 1e15
	maxCount  = 1 << 46
)

// Number reads a figure of 0 or more, times scale.
func (f *Figures) Number(n Node, scale float64) *float64 { return f.number(n, scale, 0) }

// Signed reads a figure that may fall below zero, times scale.
func (f *Figures) Signed(n Node, scale float64) *float64 { return f.number(n, scale, -maxFigure) }

func (f *Figures) number(n Node, scale, least float64) *float64 {
	if !n.Present() || n.Kind() == Null {
		return nil
	}
	v, err := n.Float()
	if err == nil && !(v >= least && v <= maxFigure) {
		err = n.Errorf("want a number from %g to %g, got %s", least, maxFigure, n.Got())
	}
	if err != nil {
		f.Warnings = append(f.Warnings, fmt.Errorf("left out: %w", err))
		return nil
	}
	v *= scale
	return &v
}

// Count reads a whole number of 0 or more.
func (f *Figures) Count(n Node) *int {
	v := f.Number(n, 1)
	if v == nil {
		return nil
	}
	if *v != math.Trunc(*v) || *v > maxCount {
		f.Warnings = append(f.Warnings, fmt.Errorf("left out: %w", n.Errorf("want a whole number, got %s", n.Got())))
		return nil
	}
	return new(int(*v))
}

// Text reads a string; empty where there is none.
func (f *Figures) Text(n Node) string {
	if !n.Present() || n.Kind() == Null {
		return ""
	}
	s, err := n.Text()
	if err != nil {
		f.Warnings = append(f.Warnings, fmt.Errorf("left out: %w", err))
	}
	return s
}

// Distribution reads a distribution that the file has in units of scale
// milliseconds, under the names that load tools use for its parts; nil for
// none. Delays may be negative, latencies not.
func (f *Figures) Distribution(n Node, scale float64, over Over, delay bool) *Distribution {
	d := &Distribution{Over: over, Origin: n.Path()}
	read := func(n Node) *float64 {
		if delay {
			return f.Signed(n, scale)
		}
		return f.Number(n, scale)
	}
	for key, v := range n.Members() {
		switch key {
		case "mean", "avg":
			d.Mean = read(v)
		case "std", "std_dev", "stddev":
			d.Std = read(v)
		case "min":
			d.Min = read(v)
		case "max":
			d.Max = read(v)
		case "median":
			d.P50 = read(v)
		case "count", "n":
			d.N = f.Count(v)
		case "percentiles":
			for key, v := range v.Members() {
				percent, ok := fractionPercent(key)
				if ms := read(v); ok && ms != nil {
					d.SetPercentile(percent, *ms)
				}
			}
		default:
			if percent, ok := plainPercent(key); ok {
				if ms := read(v); ms != nil {
					d.SetPercentile(percent, *ms)
				}
			}
		}
	}
	// Tools write zeros where they measured nothing.
	if d.N != nil && *d.N == 0 || d.empty() {
		return nil
	}
	return d
}

// plainPercent reads "p99", "p99.9" and "p99p9".
func plainPercent(key string) (percent float64, ok bool) {
	digits, ok := strings.CutPrefix(key, "p")
	if !ok || strings.Trim(digits, "0123456789p.") != "" {
		return 0, false
	}
	percent, err := strconv.ParseFloat(strings.Replace(digits, "p", ".", 1), 64)
	return percent, err == nil && percent >= 0 && percent <= 100
}

// fractionPercent reads the digits after "0." of the share of values: "p05",
// "p999".
func fractionPercent(key string) (percent float64, ok bool) {
	digits, ok := strings.CutPrefix(key, "p")
	if !ok || len(digits) < 2 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	percent, err := strconv.ParseFloat(digits[:2]+"."+digits[2:]+"0", 64)
	return percent, err == nil
}

// ErrAmbiguousITL refuses a latency between tokens of which nobody says whose
// word it is.
var ErrAmbiguousITL = errors.New(`holds an "inter-token latency" without the tool's name, and the tools mean different things by it: ` +
	"a request's mean gap (guidellm, aiperf) or the gap of two chunks (vLLM, SGLang, inference-perf)")

// AmbiguousITL reports whether a JSON text, which may be cut off anywhere,
// holds a figure of that name among its first keys. It is for texts that no
// reader knows.
func AmbiguousITL(text []byte) bool {
	keys, _ := TopKeys(text)
	for key := range keys {
		name := "_" + strings.ToLower(strings.NewReplacer(" ", "_", "-", "_").Replace(key)) + "_"
		if strings.Contains(name, "_itl_") || strings.Contains(name, "_inter_token_latenc") {
			return true
		}
	}
	return false
}

// HeadSize is the number of bytes of text with which a reader tells what a
// file is.
const HeadSize = 64 << 10

// Head is the text with which a file begins, plain or gzip, of which head are
// the first bytes; it is empty where they are neither.
func Head(head []byte) []byte {
	expanded, err := profile.Expand(bytes.NewReader(head), profile.Bounds{})
	if err != nil {
		return nil
	}
	part := make([]byte, HeadSize)
	n, _ := io.ReadFull(expanded, part) // the head may end anywhere
	return bytes.TrimPrefix(part[:n], []byte("\ufeff"))
}
