package workload

import (
	"errors"
	"fmt"
	"slices"
)

// Sessions makes every arrival a conversation. The prompt of a later turn
// begins with all that was said before: the prompt of the turn before it and
// the answer to that.
type Sessions struct {
	// Turns is the number of turns of a session.
	Turns Length
	// Think is the time from the end of a turn to the next one; nil for none.
	Think Delay
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
	if err := orNone(s.Think).Validate(); err != nil {
		faults = append(faults, fmt.Errorf("sessions: %w", err))
	}
	if s.Context < 0 || s.Context > MaxLen {
		faults = append(faults, fmt.Errorf("sessions: context %d: want 0 to %d", s.Context, MaxLen))
	}
	return errors.Join(faults...)
}

// String is such as "turns fixed 4, think 2 s, growing".
func (s Sessions) String() string {
	text := fmt.Sprintf("turns %v, think %v", s.Turns, orNone(s.Think))
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
	next = Request{InputLen: last.InputLen + last.OutputLen + p.Input, OutputLen: p.Output}
	if s.Given {
		next.InputLen = p.Input
	}
	next.Prefix = Continue(last, answer, next.InputLen)
	return next, next.InputLen+next.OutputLen <= s.limit()
}

// Continue is the prefix of the turn that follows another one and whose prompt
// has an input length in tokens: what was said up to the end of that turn, cut
// to the length. The last answer is made of a seed. Turns share the memory of
// their spans, so one turn has at most one that continues it.
func Continue(last Request, answer uint64, input int) []Span {
	history := last.Prefix
	if own := last.InputLen - last.PrefixLen(); own > 0 {
		history = append(history, Span{Seed: last.Seed, Len: own})
	}
	history = append(history, Span{Seed: answer, Len: last.OutputLen, Answer: true})
	return cutCopy(history, last.InputLen+last.OutputLen, input)
}

// cutCopy shortens spans of so many tokens to a number of tokens, and leaves
// them as they are where they have no more.
func cutCopy(spans []Span, have, want int) []Span {
	if have <= want {
		return spans
	}
	spans = slices.Clone(spans)
	for i := range spans {
		if spans[i].Len >= want {
			spans[i].Len = want
			if want == 0 {
				return spans[:i]
			}
			return spans[:i+1]
		}
		want -= spans[i].Len
	}
	return spans
}
