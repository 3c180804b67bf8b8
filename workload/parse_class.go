package workload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ClassError says that a text is no class.
type ClassError struct {
	// Text is what was to be read.
	Text string
	// Err says what is wrong.
	Err error
}

// Error names the text.
func (e *ClassError) Error() string { return fmt.Sprintf("class %q: %v", e.Text, e.Err) }

// Unwrap is what is wrong.
func (e *ClassError) Unwrap() error { return e.Err }

// Hint shows the form.
func (e *ClassError) Hint() string {
	return "a class is a name and, as wanted, share=3 priority=-1 input-len=512 output-len=lognormal:64:32 prefix-len=200 num-prefixes=4 prefix-share=0.8 slo=ttft:500,tpot:50"
}

// ParseClass reads a class of the traffic: its name, and behind it settings
// such as
//
//	chat share=3 priority=-1 input-len=normal:512:256 output-len=128
//
// The lengths are those of [ParseLengths]; one that is left out is that of the
// load. prefix-len is the tokens that prompts of the class share, ahead of their
// own, with num-prefixes (1) of them and a prefix-share (1) of the requests; 0
// is none, where the load has some. The targets of slo are separated by commas.
// Errors are of type [*ClassError].
func ParseClass(text string, load Lengths, open func(name string) (Records, error)) (Class, error) {
	c, err := parseClass(text, load, open)
	if err == nil {
		err = errors.Join(append(c.faults(), checkShares([]Class{c}), c.ownFaults())...) // the text names the class
	}
	if err != nil {
		return Class{}, &ClassError{Text: text, Err: err}
	}
	return c, nil
}

// classText is the settings of a class as they were given.
type classText struct {
	class         Class
	input, output string
	prefix        *Prefixes
	length        string // of the prefix
	shared        bool   // something was said about a prefix but its length
}

func parseClass(text string, load Lengths, open func(string) (Records, error)) (Class, error) {
	fields := strings.Fields(text)
	if len(fields) == 0 || strings.Contains(fields[0], "=") {
		return Class{}, errors.New("want a name first")
	}
	t := classText{class: Class{Name: fields[0], Share: 1}}
	seen := map[string]bool{}
	for _, field := range fields[1:] {
		key, value, ok := strings.Cut(field, "=")
		if !ok || value == "" {
			return Class{}, fmt.Errorf("%q: want a setting such as share=3", field)
		}
		if seen[key] {
			return Class{}, fmt.Errorf("%s stands twice", key)
		}
		seen[key] = true
		if err := t.set(key, value); err != nil {
			return Class{}, fmt.Errorf("%s: %w", key, err)
		}
	}
	if t.shared && (t.length == "" || t.length == "0") {
		return Class{}, errors.New("num-prefixes and prefix-share want a prefix-len")
	}
	if t.class.Prefixes = t.prefix; t.length == "0" {
		t.class.Prefixes = new(noPrefixes())
	}
	if t.input == "" && t.output == "" {
		return t.class, nil
	}
	var err error
	t.class.Lengths, err = classLengths(load, t.input, t.output, open)
	return t.class, err
}

// set takes one setting.
func (t *classText) set(key, value string) (err error) {
	switch key {
	case "share":
		t.class.Share, err = strconv.ParseFloat(value, 64)
	case "priority":
		t.class.Priority, err = wholeNumber(value)
	case "slo":
		t.class.Targets, err = ParseSLOs(value)
	case "input-len":
		t.input = value
	case "output-len":
		t.output = value
	case "prefix-len":
		if t.length = value; value != "0" {
			t.prefixes().Length, err = ParseLength(value)
		}
	case "num-prefixes":
		t.shared = true
		t.prefixes().Groups, err = wholeNumber(value)
	case "prefix-share":
		t.shared = true
		t.prefixes().Share, err = strconv.ParseFloat(value, 64)
	default:
		err = errors.New("want share, priority, slo, input-len, output-len, prefix-len, num-prefixes or prefix-share")
	}
	if errors.Is(err, strconv.ErrSyntax) || errors.Is(err, strconv.ErrRange) {
		err = fmt.Errorf("%q: want a number", value)
	}
	return err
}

// prefixes is what its prompts have in common.
func (t *classText) prefixes() *Prefixes {
	if t.prefix == nil {
		t.prefix = &Prefixes{Share: 1, Groups: 1, Added: true}
	}
	return t.prefix
}

// noPrefixes are those of a class whose prompts share nothing.
func noPrefixes() Prefixes { return Prefixes{Groups: 1, Length: Fixed(1)} }

// wholeNumber reads a number of 32 bits.
func wholeNumber(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	return int(n), err
}

// classLengths reads the lengths of a class; an empty text is that of the load.
func classLengths(load Lengths, input, output string, open func(string) (Records, error)) (Lengths, error) {
	if input != "" && output != "" {
		return ParseLengths(input, output, open)
	}
	all, ok := load.(Independent)
	switch {
	case input == "" && output == "":
		return nil, errors.New("want input or output, got neither")
	case !ok:
		return nil, errors.New("want input and output, since the load has no distribution of each")
	}
	var err error
	if input != "" {
		all.Input, err = lengthOrFile(input, open, func(q Request) int { return q.InputLen })
	} else {
		all.Output, err = lengthOrFile(output, open, func(q Request) int { return q.OutputLen })
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}
