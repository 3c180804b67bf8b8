package sglang

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/engine"
	format "github.com/llmprof/llmprof/format/sglang"
	"github.com/llmprof/llmprof/profile"
)

// figure is a time and the most by which it may be wrong, both in seconds.
type figure struct{ value, off float64 }

// exact says that the rounding is less than the noise of any measurement.
func (f figure) exact() bool { return f.off <= 0.002*f.value }

// row is one run of one shape.
type row struct {
	skipped bool
	// decode is the median of the single steps; it and total are 0 where they
	// are not said.
	prefill, decode, total figure
}

// Half the last printed digit of a whole run's time, in seconds, and of tokens
// per second.
const (
	halfTotal = 0.5e-3
	halfRate  = 0.5e-2
)

// rateLine holds tokens per second: of a prefill, of the median decode step, of
// the whole run.
var rateLine = regexp.MustCompile(`^(Prefill|Decode|Total)\. .*throughput: +([\d.]+) token/s`)

// reader reads rows, each as exactly as its lines allow.
type reader struct {
	bench format.Bench
	rates map[string]float64 // of the row under way, in tokens per second
	begun bool               // the model is loaded, the first shape runs
	// said takes the lines that tell no times, mark moments; both may be nil.
	said *startUp
	mark func(name, source string)
}

// moments tells of what a line says of the engine's life.
func (r *reader) moments(line string) {
	if r.said != nil && !r.begun {
		r.said.line(line)
	}
	if r.mark == nil {
		return
	}
	switch {
	case strings.HasPrefix(line, "Warmup"):
		r.mark(engine.MarkReady, "output: Warmup")
	case strings.HasPrefix(line, "Benchmark"):
		r.mark(engine.MarkWarm, "output: Benchmark")
	}
}

// line takes the next line; ok is true where it ends a row, which has to be one
// of the shape.
func (r *reader) line(line string, want shape, output int) (out row, ok bool, err error) {
	r.moments(line)
	r.begun = r.begun || strings.HasPrefix(line, "Warmup") || strings.HasPrefix(line, "Benchmark")
	if m := rateLine.FindStringSubmatch(line); m != nil {
		if m[1] == "Prefill" || r.rates == nil {
			r.rates = map[string]float64{}
		}
		if v, err := strconv.ParseFloat(m[2], 64); err == nil {
			r.rates[m[1]] = v
		}
	}
	said, ok := r.bench.Line(line)
	if !ok {
		return row{}, false, nil
	}
	rates := r.rates
	r.rates = nil
	if said.BatchSize > 0 && said.BatchSize != want.batch || said.Skipped && said.InputLen != want.input {
		return row{}, false, fmt.Errorf("it printed another row than the one of %d × %d tokens: %q", want.batch, want.input, line)
	}
	if said.Skipped {
		return row{skipped: true}, true, nil
	}
	b, i, o := float64(want.batch), float64(want.input), float64(output)
	out = row{
		prefill: sharpen(figure{said.Prefill, said.Printed / 2}, b*i, rates["Prefill"]),
		total:   sharpen(figure{said.Total, halfTotal}, b*(i+o), rates["Total"]),
	}
	if said.Decode > 0 {
		out.decode = sharpen(figure{said.Decode, said.Printed / 2}, b, rates["Decode"])
	}
	return out, true, nil
}

// sharpen takes the time of some tokens from their printed rate, in tokens per
// second, where that tells it more exactly and agrees with it.
func sharpen(f figure, tokens, rate float64) figure {
	if !(rate > halfRate) {
		return f
	}
	t := tokens / rate
	off := t * halfRate / (rate - halfRate)
	if off >= f.off || math.Abs(t-f.value) > f.off+off {
		return f
	}
	return figure{t, off}
}

// sheet holds the rows of a rectangle and gives out the results of its tasks.
type sheet struct {
	*rectangle
	order   []shape
	rows    []row
	emitted []bool // by the place in order
	emit    func(engine.Result) error
	// refused is the error of emit, which is not called again.
	refused error
}

func newSheet(r *rectangle, emit func(engine.Result) error) *sheet {
	order := r.shapes()
	return &sheet{rectangle: r, order: order, emitted: make([]bool, len(order)), emit: emit}
}

// next is the place of the shape whose row comes next, len(order) after the
// last.
func (s *sheet) next() int { return len(s.rows) / s.rectangle.rows() }

// full says that all rows are there.
func (s *sheet) full() bool { return s.next() == len(s.order) }

// take adds a row and gives out its shape where that is whole and exact.
func (s *sheet) take(r row) error {
	s.rows = append(s.rows, r)
	if len(s.rows)%s.rectangle.rows() != 0 {
		return nil
	}
	at := s.next() - 1
	for _, r := range s.counted(at) {
		if !r.skipped && (!r.prefill.exact() || r.decode.value > 0 && !r.decode.exact()) {
			return nil // the result file knows better
		}
	}
	return s.give(at)
}

// waiting says that shapes are whole and not given out.
func (s *sheet) waiting() bool {
	for at := range s.next() {
		if !s.emitted[at] {
			return true
		}
	}
	return false
}

// rest gives out what is whole and waits.
func (s *sheet) rest() error {
	for at := range s.next() {
		if err := s.give(at); err != nil {
			return err
		}
	}
	return nil
}

// counted are the rows of a shape without its warm-up.
func (s *sheet) counted(at int) []row {
	n := s.rectangle.rows()
	return s.rows[at*n+s.warmup : (at+1)*n]
}

// give emits the results of a shape, once.
func (s *sheet) give(at int) error {
	if s.refused != nil || s.emitted[at] {
		return s.refused
	}
	s.emitted[at] = true
	for _, task := range s.tasks[s.order[at]] {
		if s.refused = s.emit(s.result(at, task)); s.refused != nil {
			return s.refused
		}
	}
	return nil
}

// result is that of one task of a shape.
func (s *sheet) result(at int, task engine.Task) engine.Result {
	result := engine.Result{Task: task}
	times := engine.StepTimes{Clock: profile.ClockWall}
	rounded := false
	rows := s.counted(at)
	for _, r := range rows {
		if r.skipped {
			result.Failure = engine.FailureLimits
			return result
		}
		times.Prefill = append(times.Prefill, r.prefill.value)
		rounded = rounded || !r.prefill.exact()
		if r.decode.value > 0 && task.Step.OutputLen > 1 {
			times.Decode = append(times.Decode, r.decode.value)
			rounded = rounded || !r.decode.exact()
		}
		if r.total.value > 0 && r.total.exact() {
			times.Totals = append(times.Totals, r.total.value)
		}
	}
	// What not every run has is left out.
	if len(times.Decode) != len(rows) {
		times.Decode = nil
	}
	if len(times.Totals) != len(rows) {
		times.Totals = nil
	}
	if rounded {
		times.Warnings = []string{"rounded to 10 µs: read from the output, without the result file that SGLang writes at its end"}
	}
	var err error
	result.Totals = times.Totals
	if result.Points, err = engine.StepPoints(*task.Step, times); err != nil {
		result.Failure = engine.FailureException + err.Error()
	}
	return result
}

// sharper is one row of the result file, in seconds; 0 where it is not said.
type sharper struct{ prefill, decode, total float64 }

// sharpen replaces what was printed by the rows of the result file, which are
// those that were not skipped.
func (s *sheet) sharpen(file []sharper) error {
	var at []int
	for i, r := range s.rows {
		if !r.skipped {
			at = append(at, i)
		}
	}
	if len(at) != len(file) {
		return fmt.Errorf("the result file holds %d rows, %d were printed", len(file), len(at))
	}
	for i, f := range file {
		r := &s.rows[at[i]]
		if math.Abs(f.prefill-r.prefill.value) > 2*r.prefill.off+1e-9 {
			return fmt.Errorf("row %d of the result file says %g s and the output %g s", i+1, f.prefill, r.prefill.value)
		}
	}
	for i, f := range file {
		r := &s.rows[at[i]]
		r.prefill = figure{value: f.prefill}
		if f.decode > 0 {
			r.decode = figure{value: f.decode}
		}
		r.total = figure{value: f.total}
	}
	return nil
}

// errShort says that a process ended well and too early.
var errShort = errors.New("it ended before its last row")
