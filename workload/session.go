package workload

import (
	"errors"
	"fmt"

	"github.com/llmprof/llmprof/unit"
)

// Sessions makes every arrival a conversation. The prompt of a later turn
// begins with all that was said before: the prompt of the turn before it and
// the answer to that.
type Sessions struct {
	// Turns is the number of turns of a session.
	Turns Length
	// Think is the time from the end of a turn to the next one, in seconds;
	// its mean, with Exponential.
	Think unit.Seconds
	// Exponential draws every think time from an exponential distribution.
	Exponential bool
	// Given takes the drawn input length as that of the whole prompt, so what
	// was said before is cut to it. Otherwise the drawn length is what the
	// user adds, and the prompts grow from turn to turn.
	Given bool
	// Context ends a session before the turn whose prompt and answer would be
	// longer, in tokens; 0 for [MaxLen].
	Context int
}

// Validate reports all faults of the parameters.
func (s Sessions) Validate() error {
	var faults []error
	if s.Turns == nil {
		faults = append(faults, errors.New("sessions: want a number of turns"))
	} else if err := s.Turns.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("sessions: turns: %w", err))
	}
	if !isTime(s.Think) {
		faults = append(faults, fmt.Errorf("sessions: think time %v: want 0 to %v", s.Think, MaxTime))
	}
	if s.Context < 0 || s.Context > MaxLen {
		faults = append(faults, fmt.Errorf("sessions: context %d: want 0 to %d", s.Context, MaxLen))
	}
	return errors.Join(faults...)
}

// String is such as "turns fixed 4, think 2 s, growing".
func (s Sessions) String() string {
	text := fmt.Sprintf("turns %v, think %v", s.Turns, s.Think)
	if s.Exponential {
		text += " exponential"
	}
	if s.Given {
		text += ", given context"
	} else {
		text += ", growing"
	}
	if s.Context > 0 {
		text += fmt.Sprintf(" to %d", s.Context)
	}
	return text
}

// limit is the longest prompt and answer together, in tokens.
func (s Sessions) limit() int {
	if s.Context == 0 {
		return MaxLen
	}
	return s.Context
}

// followUp is the next turn of a session: its prompt begins with what was
// said up to the end of the last turn, whose answer is made of the answer
// seed. ok is false where the context ends the session.
func (s Sessions) followUp(last Request, answer uint64, p Pair) (next Request, ok bool) {
	history := make([]Span, 0, len(last.Prefix)+2)
	history = append(history, last.Prefix...)
	if own := last.InputLen - last.PrefixLen(); own > 0 {
		history = append(history, Span{Seed: last.Seed, Len: own})
	}
	history = append(history, Span{Seed: answer, Len: last.OutputLen, Answer: true})
	next = Request{InputLen: last.InputLen + last.OutputLen + p.Input, OutputLen: p.Output, Prefix: history}
	if s.Given {
		next.InputLen = p.Input
		next.Prefix = cut(history, p.Input)
	}
	return next, next.InputLen+next.OutputLen <= s.limit()
}

// cut shortens spans to a number of tokens.
func cut(spans []Span, tokens int) []Span {
	for i := range spans {
		if spans[i].Len >= tokens {
			spans[i].Len = tokens
			if tokens == 0 {
				return spans[:i]
			}
			return spans[:i+1]
		}
		tokens -= spans[i].Len
	}
	return spans
}
