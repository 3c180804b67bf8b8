package load

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits on what a peer may send besides the body.
const (
	maxHeaderBytes    = 64 << 10
	maxChunkLine      = 4 << 10
	maxInterimAnswers = 8
)

// mark says that the body's bytes up to end were read at the time at, by the
// connection's read number read.
type mark struct {
	end  int
	at   time.Duration
	read int32
}

// stage is where in an answer the parser is.
type stage uint8

const (
	inHeaders stage = iota
	inLength        // body of a known length
	inClose         // body that ends with the connection
	inChunkSize
	inChunk
	inChunkEnd // the line end after a chunk
	inTrailer
	complete
)

// response takes an HTTP/1.x answer as it arrives and keeps the body with the
// times of its reads. The zero value is ready; reset prepares it for the next
// answer and keeps its memory.
type response struct {
	stage       stage
	status      int
	contentType string
	location    string
	retryAfter  string
	headersAt   time.Duration
	keepAlive   bool
	interim     int // answers 1xx
	remain      int64
	line        []byte // header bytes or a line that is not complete
	lineMax     int
	body        []byte
	marks       []mark
	maxBody     int
	pieces      int // expected in a stream
}

// reset prepares for the next answer, of so many pieces if it is a stream.
func (r *response) reset(maxBody, pieces int) {
	*r = response{line: r.line[:0], body: r.body[:0], marks: r.marks[:0], maxBody: maxBody, pieces: pieces}
}

// malformed is an answer that is not HTTP as we accept it.
type malformed struct{ text string }

func (e *malformed) Error() string { return e.text }

func malformedf(format string, args ...any) error { return &malformed{fmt.Sprintf(format, args...)} }

var errBodyTooLarge = errors.New("the answer is larger than the limit")

// feed takes the bytes of one read and returns how many of them belong to the
// answer; fewer than len(p) only when the answer is complete.
func (r *response) feed(p []byte, at time.Duration, read int32) (int, error) {
	used := 0
	for used < len(p) && r.stage != complete {
		n, err := r.step(p[used:], at, read)
		used += n
		if err != nil {
			return used, err
		}
	}
	return used, nil
}

// step consumes at least one byte, or changes the stage.
func (r *response) step(p []byte, at time.Duration, read int32) (int, error) {
	switch r.stage {
	case inHeaders:
		return r.headers(p, at)
	case inLength, inChunk:
		n := int(min(int64(len(p)), r.remain))
		if err := r.keep(p[:n], at, read); err != nil {
			return n, err
		}
		r.remain -= int64(n)
		switch {
		case r.remain > 0:
		case r.stage == inChunk:
			r.stage = inChunkEnd
		default:
			r.stage = complete
		}
		return n, nil
	case inClose:
		return len(p), r.keep(p, at, read)
	default:
		return r.chunkLine(p)
	}
}

// keep appends body bytes and their time.
func (r *response) keep(p []byte, at time.Duration, read int32) error {
	if len(p) == 0 {
		return nil
	}
	if len(r.body)+len(p) > r.maxBody {
		return fmt.Errorf("%w of %d bytes", errBodyTooLarge, r.maxBody)
	}
	if len(r.body) == 0 && r.stage == inChunk {
		r.reserve(len(p))
	}
	r.body = append(r.body, p...)
	if last := len(r.marks) - 1; last >= 0 && r.marks[last].read == read {
		r.marks[last].end = len(r.body)
	} else {
		r.marks = append(r.marks, mark{len(r.body), at, read})
	}
	return nil
}

// reserve makes room for a stream whose pieces are as long as the first one,
// and for its end, within limits: what was asked for need not come.
func (r *response) reserve(first int) {
	pieces := min(r.pieces+4, 2<<10)
	r.body = slices.Grow(r.body, pieces*min(first, keepAnswer/(2<<10)))
	r.marks = slices.Grow(r.marks, pieces)
}

// chunkLine takes a line of the chunked framing.
func (r *response) chunkLine(p []byte) (int, error) {
	if r.stage == inChunkEnd && p[0] != '\r' && p[0] != '\n' {
		return 0, malformedf("%q follows a chunk instead of a line end", short(p))
	}
	n, line, ok := r.takeLine(p)
	if len(r.line) > maxChunkLine {
		return n, malformedf("a line of the chunked framing is longer than %d bytes", maxChunkLine)
	}
	if !ok {
		return n, nil
	}
	r.line = r.line[:0] // line may lie there; it is used before the next one comes
	switch r.stage {
	case inChunkEnd:
		if len(line) > 0 {
			return n, malformedf("%q follows a chunk instead of a line end", short(line))
		}
		r.stage = inChunkSize
	case inTrailer:
		if r.lineMax += len(line); r.lineMax > maxHeaderBytes {
			return n, malformedf("the trailer is longer than %d bytes", maxHeaderBytes)
		}
		if len(line) == 0 {
			r.stage = complete
		}
	default:
		if r.remain, ok = chunkSize(line); !ok {
			return n, malformedf("chunk size %q", short(line))
		}
		r.stage = inChunk
		if r.remain == 0 {
			r.stage = inTrailer
		}
	}
	return n, nil
}

// chunkSize reads the hexadecimal number that a line begins with; blanks may
// follow, and after a semicolon anything.
func chunkSize(line []byte) (size int64, ok bool) {
	digits := 0
	for ; digits < len(line); digits++ {
		value := strings.IndexByte("0123456789abcdef", line[digits]|0x20)
		if value < 0 || line[digits] < '0' {
			break
		}
		if size > math.MaxInt64>>4 {
			return 0, false
		}
		size = size<<4 | int64(value)
	}
	for _, c := range line[digits:] {
		if c == ';' {
			break
		}
		if c != ' ' && c != '\t' {
			return 0, false
		}
	}
	return size, digits > 0 && digits <= 16
}

// takeLine gathers a line over reads; the line has no line end.
func (r *response) takeLine(p []byte) (n int, line []byte, ok bool) {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		r.line = append(r.line, p[:min(len(p), maxHeaderBytes+1)]...)
		return len(p), nil, false
	}
	if len(r.line) == 0 {
		line = p[:end]
	} else {
		r.line = append(r.line, p[:end]...)
		line = r.line
	}
	return end + 1, bytes.TrimSuffix(line, []byte{'\r'}), true
}

// headers gathers the head of the answer up to its empty line.
func (r *response) headers(p []byte, at time.Duration) (int, error) {
	used := 0
	for used < len(p) {
		end := bytes.IndexByte(p[used:], '\n')
		if end < 0 {
			end = len(p) - used - 1
		}
		r.line = append(r.line, p[used:used+end+1]...)
		used += end + 1
		if len(r.line) > maxHeaderBytes {
			return used, malformedf("the headers are longer than %d bytes", maxHeaderBytes)
		}
		if n := min(len("HTTP/"), len(r.line)); string(r.line[:n]) != "HTTP/"[:n] {
			return used, malformedf("the answer begins with %q and is no HTTP", short(r.line))
		}
		if bytes.HasSuffix(r.line, []byte("\n\r\n")) || bytes.HasSuffix(r.line, []byte("\n\n")) {
			text := string(r.line)
			r.line = r.line[:0]
			return used, r.parseHead(text, at)
		}
	}
	return used, nil
}

// parseHead reads status line and headers.
func (r *response) parseHead(text string, at time.Duration) error {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	first := strings.TrimSuffix(lines[0], "\r")
	version, rest, _ := strings.Cut(first, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if (version != "HTTP/1.1" && version != "HTTP/1.0") || err != nil || len(code) != 3 || status < 100 {
		return malformedf("status line %q", short([]byte(first)))
	}
	if status < 200 {
		r.interim++
		if status == 101 || r.interim > maxInterimAnswers {
			return malformedf("interim answer %d, number %d", status, r.interim)
		}
		return nil
	}
	r.status, r.headersAt = status, at
	h, err := parseHeaders(lines[1:])
	if err != nil {
		return err
	}
	r.contentType, r.location, r.retryAfter = h.contentType, h.location, h.retryAfter
	r.keepAlive = version == "HTTP/1.1" && !h.close || h.keep
	switch {
	case status == 204 || status == 304 || (h.length == 0 && !h.chunked):
		r.stage = complete
	case h.chunked:
		r.stage = inChunkSize
	case h.length > 0:
		r.stage, r.remain = inLength, h.length
	default:
		r.stage, r.keepAlive = inClose, false
	}
	return nil
}

// headers are the fields of an answer that matter.
type headers struct {
	contentType, location, retryAfter string
	close, keep, chunked              bool
	length                            int64 // -1 where none is given
}

// parseHeaders reads header lines.
func parseHeaders(lines []string) (headers, error) {
	h := headers{length: -1}
	for _, line := range lines {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
		if !ok || !headerName(name) {
			return h, malformedf("header line %q", short([]byte(line)))
		}
		value = strings.Trim(value, " \t")
		switch strings.ToLower(name) {
		case "content-type":
			h.contentType = value
		case "location":
			h.location = value
		case "retry-after":
			h.retryAfter = value
		case "connection":
			h.close = h.close || strings.Contains(strings.ToLower(value), "close")
			h.keep = h.keep || strings.Contains(strings.ToLower(value), "keep-alive")
		case "transfer-encoding":
			if !strings.EqualFold(value, "chunked") || h.chunked {
				return h, malformedf("transfer encoding %q", short([]byte(value)))
			}
			h.chunked = true
		case "content-encoding":
			if value != "" && !strings.EqualFold(value, "identity") {
				return h, malformedf("content encoding %q, which was not asked for", short([]byte(value)))
			}
		case "content-length":
			length, err := strconv.ParseUint(value, 10, 62)
			if err != nil || (h.length >= 0 && h.length != int64(length)) {
				return h, malformedf("content length %q", short([]byte(value)))
			}
			h.length = int64(length)
		}
	}
	if h.chunked && h.length >= 0 {
		return h, malformedf("the answer gives a content length and is chunked")
	}
	return h, nil
}

// eof says what it means that the peer has closed: nil where the answer ends
// so.
func (r *response) eof() error {
	switch {
	case r.stage == inClose:
		r.stage = complete
		return nil
	case r.stage == inHeaders && len(r.line) == 0:
		return errors.New("the connection was closed before an answer")
	case r.stage == inHeaders:
		return errors.New("the connection was closed within the headers")
	default:
		return errors.New("the connection was closed before the end of the answer")
	}
}

// short cuts text for a message.
func short(text []byte) []byte {
	if len(text) > 60 {
		return append(bytes.Clone(text[:60]), "…"...)
	}
	return bytes.TrimRight(text, "\r\n")
}
