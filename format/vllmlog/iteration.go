package vllmlog

import (
	"math"

	"github.com/llmprof/llmprof/forward"
)

// Iteration is one engine step as the log tells it.
type Iteration struct {
	// Number is the engine's own count of its steps.
	Number int64
	// Totals is what the step computed; its KVTokens are 0.
	Totals forward.Totals
	// Seconds is the duration of the step in seconds.
	Seconds float64
	// KVUsage is the used share of the KV cache, 0..1, where HasKVUsage says
	// that the line tells it.
	KVUsage    float64
	HasKVUsage bool
	// Dummy marks a step without requests of its own, which an engine runs
	// because its data-parallel peers have work.
	Dummy bool
}

// ParseIteration reads a line of --enable-logging-iteration-details:
//
//	Iteration(7): 1 context requests, 395 context tokens, 2 generation requests,
//	2 generation tokens, iteration elapsed time: 53.22 ms, CPU KV cache usage: 0.1%
//
// on one line, with or without the log's prefix, colours and other text before
// it. Older versions end after the time. It allocates nothing unless the line
// holds colours. ok is false for any other line, and for one that is cut off
// within its figures.
func ParseIteration(line string) (it Iteration, ok bool) {
	return parseIteration(line)
}

// text is what lines are read from, so that a log's bytes need not become
// strings first.
type text interface{ ~string | ~[]byte }

const iterationMark = "Iteration("

func parseIteration[T text](line T) (Iteration, bool) {
	coloured := false
	for i := 0; i+len(iterationMark) <= len(line); i++ {
		switch line[i] {
		case 'I':
			if hasPrefix(line[i:], iterationMark) {
				if it, ok := iterationFields(line[i+len(iterationMark):]); ok {
					return it, true
				}
			}
		case escape:
			coloured = true
		}
	}
	if coloured {
		return parseIteration(stripColours(string(line)))
	}
	return Iteration{}, false
}

// iterationFields reads what follows "Iteration(".
func iterationFields[T text](line T) (it Iteration, ok bool) {
	s := scanner[T]{rest: line}
	var counts [4]int64
	it.Number = s.integer()
	for i, words := range [...]string{"): ", " context requests, ", " context tokens, ", " generation requests, "} {
		s.literal(words)
		counts[i] = s.integer()
	}
	s.literal(" generation tokens, iteration elapsed time: ")
	it.Seconds = s.decimal(1000)
	s.literal(" ms")
	if s.failed {
		return Iteration{}, false
	}
	for _, n := range counts {
		if n > math.MaxInt32 {
			return Iteration{}, false
		}
	}
	it.Totals = forward.Totals{
		PrefillRequests: int(counts[0]), PrefillTokens: int(counts[1]),
		DecodeRequests: int(counts[2]), DecodeTokens: int(counts[3]),
	}
	rest := s.rest
	s.find(" KV cache usage: ")
	usage := s.decimal(100)
	s.literal("%")
	if !s.failed && usage <= 1 {
		it.KVUsage, it.HasKVUsage = usage, true
		rest = s.rest
	}
	it.Dummy = contains(rest, "(dummy)")
	return it, true
}

// scanner takes a line apart from the left. After the first fault, which
// failed keeps, nothing moves.
type scanner[T text] struct {
	rest   T
	failed bool
}

// literal passes over words, which must come next.
func (s *scanner[T]) literal(words string) {
	if s.failed || !hasPrefix(s.rest, words) {
		s.failed = true
		return
	}
	s.rest = s.rest[len(words):]
}

// find passes over everything up to and including words.
func (s *scanner[T]) find(words string) {
	for i := 0; !s.failed && i+len(words) <= len(s.rest); i++ {
		if hasPrefix(s.rest[i:], words) {
			s.rest = s.rest[i+len(words):]
			return
		}
	}
	s.failed = true
}

// integer reads digits, which may hold commas between thousands.
func (s *scanner[T]) integer() int64 {
	var n int64
	i := 0
	for ; !s.failed && i < len(s.rest); i++ {
		c := s.rest[i]
		if c == ',' && i > 0 && i+1 < len(s.rest) && isDigit(s.rest[i+1]) {
			continue
		}
		if !isDigit(c) {
			break
		}
		if n > (math.MaxInt64-9)/10 {
			s.failed = true
			return 0
		}
		n = n*10 + int64(c-'0')
	}
	if i == 0 || s.failed {
		s.failed = true
		return 0
	}
	s.rest = s.rest[i:]
	return n
}

// decimal reads digits with or without a point among them and divides by unit,
// a power of ten, in one step: the result is the float64 nearest to what was
// printed. More than 15 digits, which no log prints, are a fault.
func (s *scanner[T]) decimal(unit int64) float64 {
	var mantissa int64
	digits, places, point := 0, 0, false
	i := 0
	for ; !s.failed && i < len(s.rest); i++ {
		c := s.rest[i]
		if c == '.' && !point && i+1 < len(s.rest) && isDigit(s.rest[i+1]) {
			point = true
			continue
		}
		if !isDigit(c) {
			break
		}
		digits++
		if digits > 15 {
			s.failed = true
			return 0
		}
		mantissa = mantissa*10 + int64(c-'0')
		if point {
			places++
		}
	}
	if digits == 0 || s.failed {
		s.failed = true
		return 0
	}
	s.rest = s.rest[i:]
	power := unit
	for range places {
		power *= 10
	}
	return float64(mantissa) / float64(power)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func hasPrefix[T text](s T, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if s[i] != prefix[i] {
			return false
		}
	}
	return true
}

func contains[T text](s T, part string) bool {
	for i := 0; i+len(part) <= len(s); i++ {
		if hasPrefix(s[i:], part) {
			return true
		}
	}
	return false
}
