package mock

import (
	"strconv"
	"strings"
	"time"
)

// texts are the parts of an answer that stay the same: up to the list of choices,
// around the text, and the event of the role.
type texts struct{ head, before, after, role string }

// newTexts prepares the answer to a request, or the events of a stream.
func newTexts(model, id string, r *request, created time.Time) texts {
	object, opening, closing := "text_completion", `"text":"`, `"`
	switch {
	case r.chat && r.stream:
		object, opening, closing = "chat.completion.chunk", `"delta":{"content":"`, `"}`
	case r.chat:
		object, opening, closing = "chat.completion", `"message":{"role":"assistant","content":"`, `"}`
	}
	head := `{"id":"` + id + `","object":"` + object + `","created":` + strconv.FormatInt(created.Unix(), 10) + `,"model":"` + model + `","choices":[`
	if r.stream {
		head = "data: " + head
	}
	return texts{
		head: head, before: head + `{"index":0,` + opening, after: closing + `,"logprobs":null,"finish_reason":`,
		role: head + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`,
	}
}

// document is an answer that is no stream. Its emit_ns is that of the last token.
func (s *sequence) document() []byte {
	b := append([]byte(s.texts.before), strings.Repeat(tokenText, s.sent)+s.texts.after+`"`+s.reason+`"}],"usage":`...)
	b = s.appendUsage(b, s.sent)
	b = strconv.AppendInt(append(b, `,"emit_ns":`...), s.last, 10)
	return append(b, "}\n"...)
}

const (
	doneEvent    = "data: [DONE]\n\n"
	garbageLine  = "\x00\xff garbage {{{\n\n"
	errorMessage = `{"error":{"message":"made to fail","type":"internal_error","param":null,"code":500}}`
)

// write sends a batch, and where an event is to come in two parts returns the
// pause before the second. buffer is used and returned for the next time.
func (s *sequence) write(buffer []byte, b batch) ([]byte, time.Duration) {
	if s.out.silent {
		if b.end != open {
			s.out.send(nil, b.end)
		}
		return buffer, 0
	}
	buffer = append(buffer, make([]byte, frameRoom)...)
	split, pause := 0, time.Duration(0)
	for i, p := range b.pieces {
		first := p.upTo - p.tokens + 1
		if _, ok := s.strikes.within(ErrorEvent, first, p.upTo); ok {
			buffer = append(buffer, "data: "+errorMessage+"\n\n"+doneEvent...)
			return s.sendFrame(buffer, b.end), 0
		}
		if _, ok := s.strikes.within(Garbage, first, p.upTo); ok {
			buffer = append(buffer, garbageLine...)
		}
		start := len(buffer)
		if p.upTo == p.tokens && s.request.chat && s.role == RoleWithFirst {
			buffer = s.appendRole(buffer, b.emit, p.due)
			start = len(buffer)
		}
		buffer = s.appendChunk(buffer, p, b, i == len(b.pieces)-1)
		middle := start + (len(buffer)-start)/2
		if _, ok := s.strikes.within(CutChunk, first, p.upTo); ok {
			return s.sendFrame(buffer[:middle], b.end), 0
		}
		if _, ok := s.strikes.within(Duplicate, first, p.upTo); ok {
			buffer = append(buffer, buffer[start:]...)
		}
		if f, ok := s.strikes.within(HalfEvent, first, p.upTo); ok {
			split, pause = middle, f.For
		}
	}
	if b.end != open {
		buffer = s.appendEnd(buffer)
	}
	if split == 0 {
		return s.sendFrame(buffer, b.end), 0
	}
	// The second half is copied before the frame of the first overwrites it.
	_, s.rest = s.out.finishFrame(append(make([]byte, frameRoom), buffer[split:]...))
	s.restEnd = b.end
	return s.sendFrame(buffer[:split], open), pause
}

// sendFrame sends what a buffer holds after the room for a frame.
func (s *sequence) sendFrame(buffer []byte, end ending) []byte {
	buffer, sent := s.out.finishFrame(buffer)
	s.out.send(sent, end)
	return buffer
}

// appendRole adds the event that only tells the role.
func (s *sequence) appendRole(b []byte, emit, due int64) []byte {
	return appendStamps(append(b, s.texts.role...), emit, due)
}

// appendChunk adds the event of a piece.
func (s *sequence) appendChunk(b []byte, p piece, of batch, final bool) []byte {
	b = append(b, s.texts.before...)
	for range p.tokens {
		b = append(b, tokenText...)
	}
	b = append(b, s.texts.after...)
	if final && of.end != open {
		b = append(b, `"`+s.reason+`"}]`...)
	} else {
		b = append(b, `null}]`...)
	}
	if s.request.usageEach {
		b = s.appendUsage(append(b, `,"usage":`...), p.upTo)
	}
	return appendStamps(b, of.emit, p.due)
}

// appendStamps ends an event with its times.
func appendStamps(b []byte, emit, due int64) []byte {
	b = strconv.AppendInt(append(b, `,"emit_ns":`...), emit, 10)
	b = strconv.AppendInt(append(b, `,"due_ns":`...), due, 10)
	return append(b, "}\n\n"...)
}

// appendEnd adds what follows the last chunk.
func (s *sequence) appendEnd(b []byte) []byte {
	if s.request.usageLast {
		b = append(append(b, s.texts.head...), `],"usage":`...)
		b = append(s.appendUsage(b, s.limit), "}\n\n"...)
	}
	_, none := s.strikes.find(NoDone)
	if _, severed := s.strikes.find(CutDone); none || severed {
		return b
	}
	return append(b, doneEvent...)
}

// appendUsage adds the usage object with so many tokens of output.
func (s *sequence) appendUsage(b []byte, output int) []byte {
	if f, ok := s.strikes.find(WrongUsage); ok {
		output += f.By
	}
	prompt := s.request.promptTokens()
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), int64(prompt), 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), int64(output), 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), int64(prompt+output), 10)
	b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), int64(s.cached), 10)
	return append(b, "}}"...)
}
