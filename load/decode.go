package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// decoder turns the bytes of an answer into the fields of a record. One serves
// many answers; it keeps nothing but memory between them.
type decoder struct {
	rec    *Record
	marks  []mark
	next   int // the mark of the line at hand
	before int // running usage so far
	carry  int // tokens of chunks without text
	usage  *usage
	form   form
	joined []byte
	chunks []Chunk // gathered here, kept at their exact size
	done   bool    // [DONE] was seen
	event  bool    // an event names itself an error
	// byTokens takes a chunk with tokens for one that carries text.
	byTokens bool
}

// decode fills rec from a complete answer.
func (d *decoder) decode(rec *Record, r *response) {
	*d = decoder{rec: rec, marks: r.marks, joined: d.joined[:0], chunks: d.chunks[:0], byTokens: d.byTokens}
	rec.Status, rec.Headers = r.status, r.headersAt
	media, _, _ := strings.Cut(r.contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	var failure *Failure
	switch {
	case r.status >= 300 && r.status < 400:
		failure = fail(FailRedirect, "status %d to %q, which is not followed", r.status, short([]byte(r.location)))
	case r.status != 200:
		failure = statusFailure(r)
	case media == "text/event-stream":
		failure = d.stream(r.body)
	case media == "application/json":
		failure = d.unary(r.body)
	default:
		failure = fail(FailContent, "content type %q: want an event stream or JSON", short([]byte(r.contentType)))
	}
	d.settle()
	if failure == nil && !d.answered() {
		failure = fail(FailEmpty, "the answer holds no text")
	}
	rec.Failure = failure
}

// fail makes a failure.
func fail(kind FailureKind, format string, args ...any) *Failure {
	return &Failure{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// statusFailure describes an answer that refuses.
func statusFailure(r *response) *Failure {
	text := fmt.Sprintf("status %d", r.status)
	if r.retryAfter != "" {
		text += ", retry after " + string(short([]byte(r.retryAfter)))
	}
	if said := errorText(r.body); said != "" {
		text += ": " + said
	}
	return &Failure{Kind: FailStatus, Message: text}
}

// errorText finds the message in an error object, or the first words of any
// other body.
func errorText(body []byte) string {
	var object struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &object) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		switch {
		case json.Unmarshal(object.Error, &inner) == nil && inner.Message != "":
			return clean([]byte(inner.Message))
		case object.Message != "":
			return clean([]byte(object.Message))
		case len(object.Error) > 0:
			return clean(object.Error)
		case len(object.Detail) > 0:
			return clean(object.Detail)
		}
	}
	return clean(body)
}

// clean makes at most 200 bytes of foreign text fit for a message.
func clean(text []byte) string {
	text = bytes.TrimSpace(text[:min(len(text), 200)])
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(text), "\ufffd"))
}

// answered reports whether the answer holds a token.
func (d *decoder) answered() bool { return len(d.rec.Chunks) > 0 || d.rec.Output.Tokens > 0 }

// errGarbage is a line that does not belong into an event stream.
var errGarbage = errors.New("a line of the stream is no event field")

// stream decodes an event stream.
func (d *decoder) stream(body []byte) *Failure {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	var data []byte // of the event at hand
	var at mark
	events, offset := 0, len(d.marks) // offset is set below
	if len(d.marks) > 0 {
		offset = d.marks[len(d.marks)-1].end - len(body)
	}
	for p := 0; p < len(body); {
		end := bytes.IndexByte(body[p:], '\n')
		partial := end < 0
		if partial {
			end = len(body) - p
		}
		line := bytes.TrimSuffix(body[p:p+end], []byte{'\r'})
		p = min(p+end+1, len(body))
		if len(line) == 0 {
			if failure := d.endEvent(data, at); failure != nil {
				return failure
			}
			data, d.event = nil, false
			continue
		}
		value, isData, err := d.field(line)
		if err != nil {
			return fail(FailStream, "%v: %q", err, short(line))
		}
		if !isData {
			continue
		}
		events++
		if data != nil { // an event over several lines
			d.joined = append(append(append(d.joined[:0], data...), '\n'), value...)
			value = bytes.Clone(d.joined)
		}
		data, at = value, d.markOf(p+offset)
		if partial && !isDone(data) {
			return fail(FailCut, "the stream ends within an event: %q", short(line))
		}
	}
	if failure := d.endEvent(data, at); failure != nil {
		return failure
	}
	switch {
	case events == 0:
		return fail(FailEmpty, "the stream holds no event")
	case !d.done && d.rec.Finish == "":
		return fail(FailCut, "the stream ends without [DONE] and without a finish reason")
	}
	return nil
}

// isDone reports whether data is the end mark.
func isDone(data []byte) bool { return string(bytes.TrimSpace(data)) == "[DONE]" }

// field reads a line of an event stream.
func (d *decoder) field(line []byte) (value []byte, data bool, err error) {
	if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		return bytes.TrimPrefix(rest, []byte{' '}), true, nil
	}
	name, rest, _ := bytes.Cut(line, []byte{':'})
	switch string(name) {
	case "", "id", "retry":
		return nil, false, nil
	case "data":
		return nil, true, nil
	case "event":
		d.event = string(bytes.TrimSpace(rest)) == "error"
		return nil, false, nil
	}
	return nil, false, errGarbage
}

// markOf finds the read that brought the byte before end.
func (d *decoder) markOf(end int) mark {
	for d.next < len(d.marks)-1 && d.marks[d.next].end < end {
		d.next++
	}
	return d.marks[d.next]
}

// endEvent takes the data of an event; nil for an event without data.
func (d *decoder) endEvent(data []byte, at mark) *Failure {
	switch {
	case data == nil:
		return nil
	case d.event:
		return fail(FailServer, "error event: %s", errorText(data))
	case isDone(data):
		d.done = true
		return nil
	case d.done:
		return fail(FailStream, "an event follows [DONE]: %q", short(data))
	}
	p, err := d.form.parse(data)
	if err != nil {
		return fail(FailStream, "an event is %v: %q", err, short(data))
	}
	if p.failure {
		return fail(FailServer, "error in the stream: %s", errorText(data))
	}
	d.take(p, at)
	return nil
}

// take adds a chunk to the record.
func (d *decoder) take(p piece, at mark) {
	d.facts(p)
	tokens := p.tokens
	if p.usage != nil && p.choices > 0 {
		tokens = max(p.usage.Completion-d.before, 0)
		d.before = max(d.before, p.usage.Completion)
		d.rec.Spread = FromRunningUsage
	} else if tokens > 0 && d.rec.Spread == Absent {
		d.rec.Spread = FromTokens
	}
	if !p.text && !(d.byTokens && p.tokens > 0) {
		if p.choices > 0 && d.rec.Role == 0 && len(d.chunks) == 0 {
			d.rec.Role = at.at
		}
		d.carry += tokens // such as half a letter: comes with the next text
		return
	}
	d.chunks = append(d.chunks, Chunk{At: at.at, Tokens: int32(tokens + d.carry), Read: at.read})
	d.carry = 0
}

// facts takes what a piece says about the whole request.
func (d *decoder) facts(p piece) {
	if len(p.finish) > 0 {
		d.rec.Finish = string(p.finish)
	}
	if p.usage != nil {
		d.usage = p.usage
	}
	if p.server != nil {
		d.rec.Server = p.server
	}
}

// unary decodes an answer that is one JSON document.
func (d *decoder) unary(body []byte) *Failure {
	p, err := parsePiece(body)
	switch {
	case err != nil:
		return fail(FailStream, "the answer is %v: %q", err, short(body))
	case p.failure:
		return fail(FailServer, "%s", errorText(body))
	}
	d.facts(p)
	if len(d.marks) > 0 {
		d.rec.End = d.marks[len(d.marks)-1].at
	}
	return nil
}

// settle counts the tokens when everything is read.
func (d *decoder) settle() {
	rec := d.rec
	chunks := slices.Clone(d.chunks)
	rec.Chunks = chunks
	if n := len(chunks); n > 0 {
		rec.End = chunks[n-1].At
		chunks[n-1].Tokens += int32(d.carry)
	}
	if rec.Spread == Absent && len(chunks) > 0 {
		rec.Spread = FromChunks
		for i := range chunks {
			chunks[i].Tokens = 1
		}
	}
	if d.usage == nil {
		if len(chunks) > 0 {
			rec.Output = Count{tokens(chunks), rec.Spread}
		}
		return
	}
	rec.Prompt = Count{d.usage.Prompt, FromUsage}
	rec.Output = Count{d.usage.Completion, FromUsage}
	if cached := d.usage.Details.Cached; cached != nil {
		rec.Cached = Count{*cached, FromUsage}
	}
	if n, total := len(chunks), d.usage.Completion; rec.Spread == FromChunks && total > n {
		rec.Spread = Spread
		for i := range chunks {
			chunks[i].Tokens = int32(ceilDiv((i+1)*total, n) - ceilDiv(i*total, n))
		}
	}
}

// tokens is the sum over chunks.
func tokens(chunks []Chunk) int {
	n := 0
	for _, c := range chunks {
		n += int(c.Tokens)
	}
	return n
}

// ceilDiv divides and rounds up; both are positive or zero.
func ceilDiv(a, b int) int { return (a + b - 1) / b }
