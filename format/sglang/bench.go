package sglang

import (
	"regexp"
	"strconv"
	"strings"
)

// Bench reads the output of sglang.bench_one_batch line by line. The zero value
// is ready.
type Bench struct {
	// MaxTokens is the capacity of the KV cache in tokens; 0 where the output
	// does not say it.
	MaxTokens int

	measuring bool
	row       Row
}

// Row is one point as bench_one_batch prints it. Its shape is that of the
// product of the lists on the command line, in order, without the skipped.
type Row struct {
	// Skipped says that the engine's limits do not admit the shape, which is
	// given then; no times are.
	Skipped                        bool
	BatchSize, InputLen, OutputLen int
	// Prefill, Decode (the median of the single steps) and Total are in
	// seconds, Decode 0 where nothing was decoded. Printed is the step of
	// the printed figures of the first two.
	Prefill, Decode, Total, Printed float64
	// Steps are the single decode steps that were printed, in seconds: the
	// first few, then some.
	Steps []float64
}

var (
	prefillLine = regexp.MustCompile(`^Prefill\. +latency: +([\d.]+) s`)
	stepLine    = regexp.MustCompile(`^Decode \d+\.(?: +Batch size: +(\d+),)? +latency: +([\d.]+) s`)
	medianLine  = regexp.MustCompile(`^Decode\. +median latency: +([\d.]+) s`)
	totalLine   = regexp.MustCompile(`^Total\. +latency: +([\d.]+) s`)
	skipLine    = regexp.MustCompile(`^skipping \((\d+), (\d+), (\d+)\) due to max batch size limit`)
	tokensLine  = regexp.MustCompile(`max_total_num_tokens=(\d+)`)
)

// printed is the step of a printed latency in seconds: five decimals.
const printed = 1e-5

// Line takes the next line. ok is true where it ends a row.
func (b *Bench) Line(line string) (row Row, ok bool) {
	line = strings.TrimRight(line, "\r\n")
	if m := tokensLine.FindStringSubmatch(line); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			b.MaxTokens = n
		}
		return Row{}, false
	}
	if strings.HasPrefix(line, "Benchmark") {
		b.measuring, b.row = true, Row{}
		return Row{}, false
	}
	if !b.measuring {
		return Row{}, false
	}
	if m := skipLine.FindStringSubmatch(line); m != nil {
		row := Row{Skipped: true}
		for i, into := range []*int{&row.BatchSize, &row.InputLen, &row.OutputLen} {
			n, err := strconv.Atoi(m[i+1])
			if err != nil {
				return Row{}, false
			}
			*into = n
		}
		return row, true
	}
	if m := prefillLine.FindStringSubmatch(line); m != nil {
		b.row = Row{Prefill: seconds(m[1]), Printed: printed}
		return Row{}, false
	}
	if m := stepLine.FindStringSubmatch(line); m != nil {
		b.row.Steps = append(b.row.Steps, seconds(m[2]))
		if n, err := strconv.Atoi(m[1]); err == nil {
			b.row.BatchSize = n
		}
		return Row{}, false
	}
	if m := medianLine.FindStringSubmatch(line); m != nil {
		b.row.Decode = seconds(m[1])
		return Row{}, false
	}
	if m := totalLine.FindStringSubmatch(line); m != nil && b.row.Prefill > 0 {
		row, b.row = b.row, Row{}
		row.Total = seconds(m[1])
		return row, true
	}
	return Row{}, false
}

// seconds reads a printed figure; 0 where it is none.
func seconds(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return v
}
