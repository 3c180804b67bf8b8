package main

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/llmprof/llmprof/unit"
)

// wholeFlag is a whole number: "200", "10k", "4Ki".
type wholeFlag struct{ value *int }

func newWhole(into *int, value int) wholeFlag {
	*into = value
	return wholeFlag{into}
}

func (w wholeFlag) String() string {
	if w.value == nil {
		return "0"
	}
	return strconv.Itoa(*w.value)
}

func (w wholeFlag) Type() string { return "count" }

func (w wholeFlag) Set(text string) error {
	if n, err := strconv.Atoi(text); err == nil {
		*w.value = n // what is below zero is refused where its range is known
		return nil
	}
	n, err := unit.ParseCount(text)
	if err == nil {
		*w.value = n
	}
	return err
}

// spanFlag is a time: "500ms", "5m", or a number of seconds.
type spanFlag struct{ value *time.Duration }

func newSpan(into *time.Duration, value time.Duration) spanFlag {
	*into = value
	return spanFlag{into}
}

func (s spanFlag) String() string {
	if s.value == nil {
		return "0s"
	}
	return s.value.String()
}

func (s spanFlag) Type() string { return "time" }

func (s spanFlag) Set(text string) error {
	if v, err := time.ParseDuration(text); err == nil {
		*s.value = v
		return nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(math.Abs(seconds) < math.MaxInt64/1e9) {
		return errors.New("want a time such as 500ms, 30s or 5m, or a number of seconds")
	}
	*s.value = time.Duration(math.Round(seconds * 1e9))
	return nil
}

// engineBytesFlag is a memory size that vLLM's own integers may say too: "10G"
// is 10 GiB and "10g" 10 GB there, and a bare number is bytes.
type engineBytesFlag struct{ bytesFlag }

func (b engineBytesFlag) Set(text string) error {
	if n, err := unit.ParseEngineCount(text); err == nil {
		*b.value = unit.Bytes(n)
		return nil
	}
	return b.bytesFlag.Set(text)
}
