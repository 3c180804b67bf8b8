package vllmlog

import (
	"bytes"
	"regexp"
	"strings"
)

const escape = 0x1b

// stripColours removes the escape sequences of terminals.
func stripColours(line string) string {
	at := strings.IndexByte(line, escape)
	if at < 0 {
		return line
	}
	var b strings.Builder
	for at >= 0 {
		b.WriteString(line[:at])
		line = line[at+1:]
		if strings.HasPrefix(line, "[") {
			end := 1
			for end < len(line) && (line[end] < '@' || line[end] > '~') {
				end++
			}
			line = line[min(end+1, len(line)):]
		}
		at = strings.IndexByte(line, escape)
	}
	b.WriteString(line)
	return b.String()
}

// process is who wrote a line.
type process struct {
	// name is "Worker_TP0", "EngineCore_DP1", "VllmWorker rank=0"; empty where
	// the line does not tell.
	name string
	// pid is the process id in digits, or empty.
	pid string
}

var (
	processTag = regexp.MustCompile(`\(([A-Za-z_][A-Za-z_0-9-]*(?: rank=\d+)?)(?:,? pid=(\d+))?(?:, ip=[^()\s]+)?\) `)
	// V0 writes the source file without an opening bracket.
	logPrefix = regexp.MustCompile(`(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\[\]\s]+:\d+\]|[^\[\]\s]+:\d+\]) ?`)
)

// cutPrefix parts a line without colours into who wrote it and what it says.
// A line that lacks the prefix, or parts of it, is read as far as it goes;
// text that a collector of logs put before it is dropped.
func cutPrefix(line string) (by process, rest string) {
	rest = line
	head := line
	if at := logPrefix.FindStringIndex(line); at != nil {
		head, rest = line[:at[0]], line[at[1]:]
	}
	// The last tag is the most exact: a worker below an engine.
	for at := processTag.FindStringSubmatchIndex(head); at != nil; at = processTag.FindStringSubmatchIndex(head) {
		if len(rest) == len(line) && at[0] > 0 {
			break // without level and time only a leading tag is one
		}
		by = process{name: head[at[2]:at[3]]}
		if at[4] >= 0 {
			by.pid = head[at[4]:at[5]]
		}
		if head = head[at[1]:]; len(rest) == len(line) {
			return by, head
		}
	}
	return by, rest
}

const engineMark = "Engine "

// sourceOf finds, in the text before an iteration, which engine it is of and
// when it was logged. It allocates nothing. The engine is "Engine 001" as the
// front end writes, or the process, "EngineCore_DP1"; empty where the line
// tells neither. The time is month to second as one number; 0 where not told.
func sourceOf(head []byte) (source []byte, stamp uint32) {
	for i := bytes.LastIndexByte(head, ':'); i > 0; i = bytes.LastIndexByte(head[:i], ':') {
		if stamp = stampAt(head, i-8); stamp != 0 {
			break
		}
	}
	trimmed := bytes.TrimRight(head, " ")
	if n := len(trimmed); n > 0 && trimmed[n-1] == ':' {
		if at := bytes.LastIndex(trimmed, []byte(engineMark)); at >= 0 && digits(trimmed[at+len(engineMark):n-1]) {
			return trimmed[at : n-1], stamp
		}
	}
	for rest := head; ; {
		at := bytes.IndexByte(rest, '(')
		if at < 0 {
			return source, stamp
		}
		rest = rest[at+1:]
		n := 0
		for n < len(rest) && isName(rest[n]) {
			n++
		}
		if n > 0 && !isDigit(rest[0]) && n < len(rest) && (rest[n] == ' ' || rest[n] == ')') {
			source = rest[:n]
		}
	}
}

// stampAt reads "MM-DD hh:mm:ss" at an offset; 0 where none is there.
func stampAt(b []byte, at int) uint32 {
	const shape = "00-00 00:00:00"
	if at < 0 || at+len(shape) > len(b) {
		return 0
	}
	var n uint32
	for i := range len(shape) {
		c := b[at+i]
		if shape[i] != '0' {
			if c != shape[i] {
				return 0
			}
			continue
		}
		if !isDigit(c) {
			return 0
		}
		n = n*10 + uint32(c-'0')
	}
	return max(n, 1)
}

func digits(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	return len(b) > 0
}

func isName(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '-'
}

// engineNumber is the number at the end of the name of an engine, or 0.
func engineNumber(source string) int {
	n, unit := 0, 1
	for i := len(source) - 1; i >= 0 && isDigit(source[i]) && unit < 1e6; i-- {
		n += unit * int(source[i]-'0')
		unit *= 10
	}
	return n
}
