package workload

import (
	"github.com/llmprof/llmprof/unit"
)

// Request is one request as it is wanted: when, how long, and what its prompt
// has in common with others.
type Request struct {
	// ID is the request's position in its schedule, counted from 0.
	ID int `json:"id"`
	// Name is what a trace calls the request; empty for none.
	Name string `json:"name,omitempty"`
	// At is the scheduled time in seconds from the start of the run. It is 0
	// where After is set: the time is then known only while the load runs.
	At unit.Seconds `json:"at_s"`
	// After is what must end first; nil for a request whose time is known.
	After *Dependency `json:"after,omitempty"`
	// InputLen is the length of the whole prompt in tokens, Prefix included.
	InputLen int `json:"input"`
	// OutputLen is how many tokens are to be generated.
	OutputLen int `json:"output"`
	// Seed makes the tokens after Prefix; it is below 2^53, so that every JSON
	// reader keeps it.
	Seed uint64 `json:"seed"`
	// Prefix is what the prompt begins with and other prompts may begin with
	// too; empty for a prompt of its own.
	Prefix []Span `json:"prefix,omitempty"`
	// Session names the conversation; empty for a request that stands alone.
	Session string `json:"session,omitempty"`
	// Turn is the number of the turn within the session, counted from 1; 0
	// without a session.
	Turn int `json:"turn,omitempty"`
	// Priority is the scheduling priority as vLLM counts it: the lower, the
	// earlier; 0 is what an engine takes where none is given.
	Priority int `json:"priority,omitempty"`
	// Class names the request's class: see [Class]; empty for none.
	Class string `json:"class,omitempty"`
	// Timeout is how long after its scheduled time the client gives the request
	// up, in seconds; 0 for never.
	Timeout unit.Seconds `json:"timeout_s,omitempty"`
}

// AnyRequest stands in [Dependency].Request of a closed loop: the request
// takes the slot of whichever request ends next.
const AnyRequest = -1

// Dependency says what ends before a request's time is known: the scheduled
// time is that end plus Think.
type Dependency struct {
	// Request is the ID of the request that ends, which stands earlier in the
	// schedule; or [AnyRequest] for a free slot. A slot becomes free when a
	// request ends that no other one names here, and is taken by the first
	// request in the schedule that still waits for one.
	Request int `json:"request"`
	// Think is the time between that end and the scheduled time, in seconds.
	Think unit.Seconds `json:"think_s"`
}

// Span is a part of a prompt that several prompts have in common. Spans of
// equal Seed hold equal tokens, as far as the shorter one goes; two prompts
// share the tokens up to where their spans first differ.
type Span struct {
	// Group names the prompts that share the span, for people; may be empty.
	Group string `json:"group,omitempty"`
	// Seed makes the tokens; it is below 2^53.
	Seed uint64 `json:"seed"`
	// Len is the length in tokens.
	Len int `json:"len"`
	// Answer says that the span stands for what the engine answered in the
	// session: the first such span for turn 1, the next for turn 2. A client
	// that knows the true answer can put it here.
	Answer bool `json:"answer,omitempty"`
}

// PrefixLen is the length of the request's prefix in tokens.
func (q Request) PrefixLen() int {
	n := 0
	for _, s := range q.Prefix {
		n += s.Len
	}
	return n
}
