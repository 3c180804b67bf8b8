package load

import (
	"strings"
	"time"
)

// Origin says where a count of tokens comes from.
type Origin string

// The origins of counts.
const (
	// Absent: nobody said.
	Absent Origin = ""
	// FromUsage: the answer's usage.
	FromUsage Origin = "usage"
	// FromChunks: each chunk with text counted as one token.
	FromChunks Origin = "chunks"
	// FromRunningUsage: usage in every chunk.
	FromRunningUsage Origin = "running-usage"
	// FromTokens: token ids or log-probabilities in the chunks.
	FromTokens Origin = "token-lists"
	// Spread: the total of usage, spread evenly over the chunks.
	Spread Origin = "usage-spread"
)

// Count is a number of tokens and who said it.
type Count struct {
	Tokens int    `json:"tokens"`
	Origin Origin `json:"origin,omitempty"`
}

// Known reports whether anybody said the count.
func (c Count) Known() bool { return c.Origin != Absent }

// Chunk is a piece of an answer that carries text.
type Chunk struct {
	// At is when the read that completed it returned, from the run's start.
	At time.Duration
	// Tokens is the number of its tokens.
	Tokens int32
	// Read is the number of that read on its connection; chunks of equal
	// number came together.
	Read int32
}

// FailureKind sorts failures by where they happened.
type FailureKind string

// The kinds of failures.
const (
	// FailConnect: no connection.
	FailConnect FailureKind = "connect"
	// FailClosed: the connection ended before an answer began.
	FailClosed FailureKind = "closed"
	// FailCut: the answer ended before its end.
	FailCut FailureKind = "cut"
	// FailTimeout: the request's time limit.
	FailTimeout FailureKind = "timeout"
	// FailStatus: a status other than 200.
	FailStatus FailureKind = "status"
	// FailRedirect: the server sends elsewhere, which is not followed.
	FailRedirect FailureKind = "redirect"
	// FailHTTP: not HTTP as it should be.
	FailHTTP FailureKind = "http"
	// FailContent: neither an event stream nor JSON.
	FailContent FailureKind = "content-type"
	// FailStream: something in the answer that should not be there.
	FailStream FailureKind = "stream"
	// FailServer: an error object instead of, or within, an answer.
	FailServer FailureKind = "server-error"
	// FailEmpty: an answer without any token.
	FailEmpty FailureKind = "empty"
	// FailTooLarge: more bytes than allowed.
	FailTooLarge FailureKind = "too-large"
	// FailCancelled: the run was ended while the request was open.
	FailCancelled FailureKind = "cancelled"
	// FailRequest: the request could not be built.
	FailRequest FailureKind = "request"
)

// Failure says why a request failed.
type Failure struct {
	Kind    FailureKind `json:"kind"`
	Message string      `json:"message"`
}

// String is the failure as a text.
func (f *Failure) String() string {
	if strings.HasPrefix(f.Message, string(f.Kind)+" ") { // "status 404" says it
		return f.Message
	}
	return string(f.Kind) + ": " + f.Message
}

// ServerTimes is what the server says of a request, where it does: vLLM with
// --enable-per-request-metrics, and llama-server's timings.
type ServerTimes struct {
	// QueueMS is the time before it was scheduled, in milliseconds.
	QueueMS *float64 `json:"queue_ms,omitempty"`
	// PrefillMS is the time from there to the first token, in milliseconds.
	PrefillMS *float64 `json:"prefill_ms,omitempty"`
	// GenerationMS is the time from the first to the last token, in
	// milliseconds; llama-server counts the first token's step too.
	GenerationMS *float64 `json:"generation_ms,omitempty"`
}

// Record is the raw record of one request: the source of every figure. Times
// count from the run's start.
type Record struct {
	// ID is the request's number in the schedule, Target that of its server.
	ID, Target int
	// Session and Turn are the schedule's.
	Session string
	Turn    int
	// Sched is when the schedule wanted the request.
	Sched time.Duration
	// Send is just before the request was written; absent, as the next ones,
	// where Sent, and so on, says that it did not come to that.
	Send time.Duration
	Sent bool
	// Headers is when the answer's headers were read; 0 where none came.
	Headers time.Duration
	// Role is when a first chunk without text was read; 0 where none came.
	Role time.Duration
	// Chunks are the chunks with text.
	Chunks []Chunk
	// End is the time of the last chunk with text, or of a whole answer that
	// is no stream; 0 where there was none.
	End time.Duration
	// Close is the end of the answer, or of the attempt.
	Close time.Duration
	// Asked is the wanted number of output tokens; Forced, that the engine was
	// told to generate just that many.
	Asked  int
	Forced bool
	// Prompt, Output and Cached are counts of tokens.
	Prompt, Output, Cached Count
	// Spread is where the tokens of single chunks come from.
	Spread Origin
	// Status is the HTTP status; 0 where no answer came.
	Status int
	// Finish is the finish_reason; empty where none came.
	Finish string
	// Server is what the server said of its own times; nil where it did not.
	Server *ServerTimes
	// Retries counts sends on connections that the server had closed already.
	Retries int
	// Failure says why the request failed; nil for a good one.
	Failure *Failure
}

// OK reports whether the request ended well.
func (r *Record) OK() bool { return r.Failure == nil }

// Lag is send time minus scheduled time.
func (r *Record) Lag() time.Duration { return r.Send - r.Sched }

// TTFT is the time from sending to the first chunk with text; ok is false
// where the answer was no stream or failed.
func (r *Record) TTFT() (t time.Duration, ok bool) {
	if !r.OK() || len(r.Chunks) == 0 {
		return 0, false
	}
	return r.Chunks[0].At - r.Send, true
}

// E2EL is the time from sending to the last chunk with text.
func (r *Record) E2EL() (t time.Duration, ok bool) { return r.End - r.Send, r.OK() }

// TPOT is the mean time of a token after the first; ok is false for fewer than
// two tokens.
func (r *Record) TPOT() (t time.Duration, ok bool) {
	if !r.OK() || len(r.Chunks) == 0 || r.Output.Tokens < 2 {
		return 0, false
	}
	return (r.End - r.Chunks[0].At) / time.Duration(r.Output.Tokens-1), true
}

// NTPOT is the end-to-end time over the number of tokens.
func (r *Record) NTPOT() (t time.Duration, ok bool) {
	if !r.OK() || r.Output.Tokens < 1 {
		return 0, false
	}
	return (r.End - r.Send) / time.Duration(r.Output.Tokens), true
}

// gaps calls visit for each chunk after the first: with the time since the one
// before, and that time over the chunk's tokens, which is 0 where it has none.
// The time of a chunk without tokens counts for the next that has some.
func (r *Record) gaps(visit func(c Chunk, icl, itl time.Duration)) {
	var carried time.Duration
	for i := 1; i < len(r.Chunks); i++ {
		c := r.Chunks[i]
		icl := c.At - r.Chunks[i-1].At
		carried += icl
		itl := time.Duration(0)
		if c.Tokens > 0 {
			itl, carried = carried/time.Duration(c.Tokens), 0
		}
		visit(c, icl, itl)
	}
}
