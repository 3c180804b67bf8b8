package workload

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/unit"
)

// LogNormalOf is the log-normal distribution whose lengths have a mean and a
// standard deviation, both in tokens and before they are cut to the bounds low
// and high.
func LogNormalOf(mean, stdDev float64, low, high int) LogNormal {
	spread := 1 + stdDev*stdDev/(mean*mean)
	return LogNormal{Median: mean / math.Sqrt(spread), Sigma: math.Sqrt(math.Log(spread)), Low: low, High: high}
}

// LengthError says that a text is no length.
type LengthError struct {
	// Text is what was to be read.
	Text string
	// Err says what is wrong.
	Err error
}

// Error names the text.
func (e *LengthError) Error() string { return fmt.Sprintf("length %q: %v", e.Text, e.Err) }

// Unwrap is what is wrong.
func (e *LengthError) Unwrap() error { return e.Err }

// Hint shows the forms.
func (e *LengthError) Hint() string {
	return "a length is a number, normal:512:256 (mean and standard deviation), lognormal:512:256 (the same), uniform:16:512, zipf:1.2:16:4096 or histogram:1-128=3,129-1k=1"
}

// ParseLength reads a distribution of lengths in tokens:
//
//	512, 4k, 4Ki          always that length
//	fixed:512             the same
//	normal:512:256        mean and standard deviation
//	lognormal:512:256     mean and standard deviation of the lengths themselves
//	uniform:16:512        every length from the first to the second
//	zipf:1.2:16:4096      weight 1/n^1.2 for a length n from 16 to 4096
//	histogram:1-128=3,129-512=1    lengths from and to, and their weight
//
// A normal or log-normal draw that is beyond a bound becomes that bound:
// 1 and [MaxLen], or those that follow, as in normal:512:256:16:2k. Errors
// are of type [*LengthError].
func ParseLength(text string) (Length, error) {
	length, err := parseLength(strings.TrimSpace(text))
	if err == nil {
		err = length.Validate()
	}
	if err != nil {
		return nil, &LengthError{Text: text, Err: err}
	}
	return length, nil
}

func parseLength(text string) (Length, error) {
	name, rest, named := strings.Cut(text, ":")
	if !named {
		n, err := unit.ParseCount(text)
		return Fixed(n), err
	}
	if name == "histogram" {
		return parseHistogram(rest)
	}
	form, known := map[string]struct{ least, most int }{
		"fixed": {1, 1}, "uniform": {2, 2}, "zipf": {3, 3}, "normal": {2, 4}, "lognormal": {2, 4},
	}[name]
	if !known {
		return nil, fmt.Errorf("unknown distribution %q: want fixed, normal, lognormal, uniform, zipf or histogram", name)
	}
	var values []float64
	for part := range strings.SplitSeq(rest, ":") {
		v, err := parseParameter(part)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	if n := len(values); n < form.least || n > form.most || n == 3 && form.most == 4 {
		return nil, fmt.Errorf("%d numbers after %s", n, name)
	}
	return lengthOf(name, values)
}

// lengthOf makes a distribution of as many numbers as it takes.
func lengthOf(name string, v []float64) (Length, error) {
	low, high := 1, MaxLen
	if len(v) == 4 {
		v[2], v[3] = bound(v[2]), bound(v[3])
		low, high = int(v[2]), int(v[3])
	}
	switch name {
	case "normal":
		return Normal{Mean: v[0], StdDev: v[1], Low: low, High: high}, nil
	case "lognormal":
		if !(v[0] > 0) {
			return nil, fmt.Errorf("mean %g: want more than 0", v[0])
		}
		return LogNormalOf(v[0], v[1], low, high), nil
	case "zipf":
		return Zipf{Exponent: v[0], Low: int(bound(v[1])), High: int(bound(v[2]))}, nil
	case "uniform":
		return Uniform{Low: int(bound(v[0])), High: int(bound(v[1]))}, nil
	}
	return Fixed(bound(v[0])), nil
}

// bound makes a number a length: 0, which is none, where it is not whole.
func bound(v float64) float64 {
	if v != math.Trunc(v) || math.Abs(v) > 2*MaxLen {
		return 0
	}
	return v
}

// parseParameter reads a number, also 4k and 4Ki.
func parseParameter(text string) (float64, error) {
	if n, err := unit.ParseCount(text); err == nil {
		return float64(n), nil
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	return v, nil
}

// parseHistogram reads bins such as "1-128=3,129-512=1".
func parseHistogram(text string) (Length, error) {
	var h Histogram
	for part := range strings.SplitSeq(text, ",") {
		span, weight, weighed := strings.Cut(part, "=")
		low, high, ranged := strings.Cut(span, "-")
		if !ranged {
			high = low
		}
		from, err := unit.ParseCount(low)
		to, err2 := unit.ParseCount(high)
		w, err3 := strconv.ParseFloat(strings.TrimSpace(weight), 64)
		if !weighed {
			err3 = fmt.Errorf("bin %q has no weight: want a form such as 1-128=3", part)
		}
		if err := cmp.Or(err, err2, err3); err != nil {
			return nil, err
		}
		h.Bins = append(h.Bins, Bin{Low: from, High: to, Weight: w})
	}
	return h, nil
}

// Records is what a file holds that a load refers to.
type Records struct {
	// Requests are recorded ones, in the order of their times.
	Requests []Request
	// Timed says that the record holds times.
	Timed bool
	// Values are lengths in tokens, of a file that holds nothing else.
	Values []int
}

// ParseLengths reads the lengths of prompts and of answers, each as
// [ParseLength] does or as file:NAME, which open reads. Of recorded requests
// that both name, the two lengths of a request stay together.
func ParseLengths(input, output string, open func(name string) (Records, error)) (Lengths, error) {
	if file, ok := strings.CutPrefix(input, "file:"); ok && input == output {
		r, err := open(file)
		if err != nil {
			return nil, err
		}
		if len(r.Values) > 0 {
			both := Recorded{Values: r.Values}
			return Independent{Input: both, Output: both}, nil
		}
		e := Empirical{Rows: make([]Pair, len(r.Requests))}
		for i, q := range r.Requests {
			e.Rows[i] = Pair{Input: q.InputLen, Output: q.OutputLen}
		}
		return e, e.Validate()
	}
	in, err := lengthOrFile(input, open, func(q Request) int { return q.InputLen })
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	out, err := lengthOrFile(output, open, func(q Request) int { return q.OutputLen })
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	return Independent{Input: in, Output: out}, nil
}

// lengthOrFile reads a length, or one side of the requests of a file.
func lengthOrFile(text string, open func(string) (Records, error), side func(Request) int) (Length, error) {
	file, ok := strings.CutPrefix(text, "file:")
	if !ok {
		return ParseLength(text)
	}
	r, err := open(file)
	if err != nil {
		return nil, err
	}
	d := Recorded{Values: r.Values}
	if len(d.Values) == 0 {
		for _, q := range r.Requests {
			d.Values = append(d.Values, side(q))
		}
	}
	return d, d.Validate()
}

// maxNumber bounds a line of [ReadLengths] in bytes.
const maxNumber = 100

// ReadLengths reads a text of lengths in tokens, one a line; empty lines and
// those that begin with "#" are passed over. The name stands in errors.
func ReadLengths(name string, r io.Reader) (Recorded, error) {
	var d Recorded
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxNumber)
	line := 0
	fail := func(err error) (Recorded, error) {
		return Recorded{}, fmt.Errorf("%s: line %d: %w", name, line, err)
	}
	for lines.Scan() {
		line++
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		n, err := unit.ParseCount(text)
		if err != nil {
			return fail(err)
		}
		if n < 1 || n > MaxLen {
			return fail(fmt.Errorf("length %d: want 1 to %d", n, MaxLen))
		}
		if len(d.Values) == MaxRequests {
			return fail(fmt.Errorf("more than %d lengths", MaxRequests))
		}
		d.Values = append(d.Values, n)
	}
	if err := lines.Err(); err != nil {
		line++
		return fail(err)
	}
	if len(d.Values) == 0 {
		return Recorded{}, fmt.Errorf("%s: holds no length", name)
	}
	return d, nil
}
